"""Prometheus' text format 0.0.4, read strictly: by hand from its description, and by nothing of ours that writes it.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
#: What a histogram's sample names end with.
PARTS = ("_bucket", "_sum", "_count")

Labels = frozenset[tuple[str, str]]


@dataclass
class Read:
    """One family as a scraper takes it."""

    kind: str
    help: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        """One sample; its name without the family's own is empty, or one of `PARTS`."""
        return self.samples[name, frozenset(labels.items())]


def read(text: str) -> dict[str, Read]:
    """Every family by name. Fails on whatever a scraper, or its lint, would take exception to."""
    families: dict[str, Read] = {}
    assert text.endswith("\n")
    name, told = "", ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name, _, told = line[7:].partition(" ")
            assert re.fullmatch(_NAME, name), line
            assert told, f"no words about {name}"
            assert name not in families, f"{name} is told twice"
        elif line.startswith("# TYPE "):
            typed, _, kind = line[7:].partition(" ")
            assert typed == name, f"{typed} has no HELP before its TYPE"
            assert kind in ("counter", "gauge", "histogram"), line
            assert name not in families, f"{name} is told twice"
            families[name] = Read(kind, told)
        else:
            _sample(line, name, families[name])
    for name, family in families.items():
        assert name.endswith("_total") == (family.kind == "counter"), f"{name} is a {family.kind}"
        if family.kind == "histogram":
            _is_a_histogram(family)
    return families


def _sample(line: str, name: str, family: Read) -> None:
    found = _SAMPLE.fullmatch(line)
    assert found, line
    own = found[1].removeprefix(name)
    assert own != found[1], f"{found[1]} stands among the lines of {name}"
    assert own in (PARTS if family.kind == "histogram" else ("",)), line
    labels: dict[str, str] = {}
    left = found[2] or ""
    while left:
        label = _LABEL.match(left)
        assert label, line
        assert label[1] not in labels, line
        labels[label[1]] = re.sub(r'\\[\\"n]', lambda escape: _ESCAPES[escape[0]], label[2])
        left = left[label.end() :]
    key = (own, frozenset(labels.items()))
    assert key not in family.samples, f"twice: {line}"
    family.samples[key] = float(found[3])


def _is_a_histogram(family: Read) -> None:
    """Of each label set: bounds that rise, counts that do not fall, and the last, `+Inf`, which is the count."""
    by_labels: dict[Labels, list[tuple[float, float]]] = {}
    for (part, labels), value in family.samples.items():
        if part == "_bucket":
            (bound,) = (float(value) for label, value in labels if label == "le")
            rest = frozenset(pair for pair in labels if pair[0] != "le")
            by_labels.setdefault(rest, []).append((bound, value))
    for labels, buckets in by_labels.items():
        assert [bound for bound, _ in buckets] == sorted(bound for bound, _ in buckets)
        assert [n for _, n in buckets] == sorted(n for _, n in buckets)
        assert buckets[-1] == (float("inf"), family.samples["_count", labels])
        assert ("_sum", labels) in family.samples

"""Prometheus' text format 0.0.4, written. Pure: families and their series in, text out.

By hand and not by `prometheus_client`: the format is these few lines, while the library keeps its numbers in locks and
registries of the whole process, where several daemons of one test would share them, and knows no label from our rows.
"""

from collections.abc import Iterable
from typing import Final

from reconcile.meter_families import Family, Labels, Spread

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: One series: its labels and what stands there.
Series = tuple[Labels, float | Spread]
_IN_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABELS: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def render(families: Iterable[tuple[Family, Iterable[Series]]]) -> str:
    """All families, each told once, in the order given; the series of a family in the order of their labels."""
    lines: list[str] = []
    for family, series in families:
        lines.append(f"# HELP {family.name} {family.help.translate(_IN_HELP)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for labels, value in sorted(((_ordered(family, labels), value) for labels, value in series), key=_labels_first):
            lines += (
                _spread(family, labels, value) if isinstance(value, Spread) else [_line(family.name, labels, value)]
            )
    return "\n".join(lines) + "\n"


def _labels_first(series: Series) -> Labels:
    return series[0]


def _ordered(family: Family, labels: Labels) -> Labels:
    """Each label that the family has: one that is not given is empty, which is the same as none."""
    given = dict(labels)
    return tuple((name, given.get(name, "")) for name in family.labels)


def _spread(family: Family, labels: Labels, spread: Spread) -> list[str]:
    """A histogram's lines: how many values up to each bound, up to any, their sum and their number."""
    lines, so_far = [], 0
    for bound, n in zip([*map(_number, family.buckets), "+Inf"], spread.counts, strict=True):
        so_far += n
        lines.append(_line(f"{family.name}_bucket", (*labels, ("le", bound)), so_far))
    return [
        *lines,
        _line(f"{family.name}_sum", labels, spread.sum),
        _line(f"{family.name}_count", labels, spread.count),
    ]


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{label}="{text.translate(_IN_LABELS)}"' for label, text in labels)
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))

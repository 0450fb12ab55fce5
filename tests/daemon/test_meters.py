"""What is counted while it happens, and that nothing is counted which nobody can see."""

import ast
from pathlib import Path

import pytest

from daemon.meters import Counts
from daemon.process_numbers import measured_by, own_numbers
from reconcile.errors import StoreBusy
from reconcile.meter_families import METERS, Family, Spread

ROOT = Path(__file__).parents[2]


def spread(meters: Counts, name: str) -> Spread:
    (found,) = (value for known, _, value in meters.read() if known == name)
    assert isinstance(found, Spread)
    return found


@pytest.mark.parametrize(
    ("value", "bucket"), [(0.0, 0), (1.0, 0), (1.0001, 1), (2.5, 1), (899.9, 9), (86_400.0, 13), (86_401.0, 14)]
)
def test_a_value_falls_into_the_first_bucket_that_reaches_it(value: float, bucket: int) -> None:
    """A bound belongs to its bucket, as Prometheus has it."""
    meters = Counts()
    meters.observe("detection_delay_seconds", value, provider="a", road="sweep")
    found = spread(meters, "detection_delay_seconds")
    assert [n for n, count in enumerate(found.counts) if count] == [bucket]
    assert (found.count, found.sum) == (1, value)


def test_series_of_one_name_are_counted_apart_and_added_up_by_what_they_share() -> None:
    meters = Counts()
    meters.count("webhooks", provider="a", answer="new")
    meters.count("webhooks", 2, answer="duplicate", provider="a")
    meters.count("webhooks", provider="b", answer="new")
    meters.observe("commit_duration_seconds", 0.1)
    assert meters.total("webhooks", provider="a") == 3
    assert meters.total("webhooks", answer="new") == 2
    assert meters.total("commit_duration_seconds") == 1
    assert meters.total("nothing") == 0


@pytest.mark.parametrize("family", METERS.values(), ids=lambda family: family.name)
def test_a_family_is_named_as_its_kind_asks_and_explained(family: Family) -> None:
    assert family.name.startswith("reconciled_")
    assert family.name.endswith("_total") == (family.kind == "counter")
    assert family.help.endswith(".")
    assert list(family.buckets) == sorted(set(family.buckets))
    assert bool(family.buckets) == (family.kind == "histogram")


def test_everything_that_is_counted_has_its_family_and_its_labels() -> None:
    """Every call in the source; `event` in reconcile/report.py is one of two, told by the kinds of a history row."""
    used: dict[str, set[str]] = {"evidence_refused": {"provider", "to"}, "evidence_contradiction": {"provider", "to"}}
    used["state_changed"] = {"provider", "to"}
    for path in (path for house in ("daemon", "handlers", "reconcile") for path in (ROOT / house).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr not in ("count", "observe") or "meters" not in ast.unparse(node.func.value):
                continue
            if isinstance(node.args[0], ast.Constant):
                used.setdefault(str(node.args[0].value), set()).update(word.arg or "" for word in node.keywords)
    assert {name: set(family.labels) for name, family in METERS.items()} == used


def test_a_commit_that_was_lost_is_counted_and_not_timed() -> None:
    meters, clock = Counts(), Ticking()
    with measured_by(meters, clock)(3):
        clock.at += 0.02
    with pytest.raises(StoreBusy), measured_by(meters, clock)(5):
        raise StoreBusy("full")
    assert (spread(meters, "commit_duration_seconds").count, spread(meters, "commit_writes").sum) == (1, 3)
    assert spread(meters, "commit_duration_seconds").sum == pytest.approx(0.02)
    assert meters.total("commits_lost") == 1


class Ticking:
    """A clock that a test moves."""

    at = 5.0

    def now(self) -> int:
        return int(self.at * 1000)

    def monotonic(self) -> float:
        return self.at


def test_the_process_tells_of_itself(tmp_path: Path) -> None:
    before = own_numbers()
    with (tmp_path / "a").open("w"), (tmp_path / "b").open("w"):
        during = own_numbers()
    assert during["open_fds"] - before["open_fds"] == 2
    assert before["resident"] > 10_000_000
    assert before["cpu"] > 0
    assert before["max_fds"] > before["open_fds"]


def test_what_the_system_does_not_tell_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.process_numbers._SELF", tmp_path)
    assert set(own_numbers()) == {"cpu"}

"""A backup at each commit of the lost-create and cancel stories, restored and started: it pays nothing twice, and asks
a person where it cannot know.

Each is restored three times: after the original ran on to its end, with the files of the backup's own time and with
those of the end, and where the original was lost at the very moment of the backup. No restored file ever sends a create
by itself, whatever the configuration allows; a cancel only where it may be sent twice.
"""

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from daemon.standin.scenarios import find_scenario
from reconcile.contract import Contract
from reconcile.draft import Draft
from reconcile.evidence import FoundInBackup
from reconcile.restored import Restored
from reconcile.rules import restoring
from tests.simulation import test_cancel_stories as cancelling
from tests.simulation import test_hard_stories as hard
from tests.simulation.restoring import Backup, Original, Story, live, restored, told, violations
from tests.simulation.test_stories import CREATE, history, once
from tests.simulation.transports import LOST_ANSWER, LOST_REQUEST, Fault
from tests.simulation.view import load
from tests.simulation.world import EPOCH_MS, PROVIDER, CrashPoint, Edge, SimWorld

NORMAL: Final = find_scenario("normal")
NEVER_ENDS: Final = find_scenario("never-ends")
CANCEL: Final = b"POST /v1/batches/"
#: Seconds after which a restore finds every deadline of a create past.
LATE: Final = 3_600.0
Faults = Callable[[], Callable[[str, bytes], Fault | None]]


def first(begins: bytes, fault: Fault) -> Faults:
    """The first request of that kind, in each world anew."""
    return lambda: once(PROVIDER, begins, fault)


def may_resend(contract: Contract) -> Contract:
    """The configuration lets a create be sent again that is not found for ten seconds."""
    assert contract.lookup is not None
    return replace(contract, on_absent="resend", lookup=replace(contract.lookup, lag_ms=10_000))


def has_no_road(contract: Contract) -> Contract:
    """A provider with no list."""
    return replace(contract, lookup=None)


def resends_blindly(contract: Contract) -> Contract:
    """No list, and leave to send again all the same."""
    return replace(contract, on_absent="resend", lookup=None)


def counts(contract: Contract) -> Contract:
    """Nothing marks a job for sure, and the configuration lets the only one be taken."""
    assert contract.lookup is not None
    return replace(contract, adopt="by_count", lookup=replace(contract.lookup, is_sure=False))


def repeats_cancels(contract: Contract) -> Contract:
    """A cancel may be sent twice."""
    assert contract.cancel is not None
    return replace(contract, cancel=replace(contract.cancel, is_repeatable=True))


CREATES: Final = (
    *(Story(story.scenario.name, story.scenario) for story in hard.STORIES),
    Story("never-arrived", NORMAL, faults=first(CREATE, LOST_REQUEST)),
    Story("sent-again-by-leave", NORMAL, may_resend, first(CREATE, LOST_REQUEST)),
    Story("no-road", NORMAL, has_no_road, first(CREATE, LOST_ANSWER), finds=False),
    Story(
        "sent-again-blindly",
        NORMAL,
        resends_blindly,
        first(CREATE, LOST_ANSWER),
        finds=False,
        by_leave=frozenset({"N3", "N5", "N11", "N12", "N20"}),
    ),
    Story("taken-by-count", NORMAL, counts, first(CREATE, LOST_ANSWER), finds=False),
)
CANCELS: Final = (
    *(Story(story.name, story.scenario, cancels_when=story.asks) for story in cancelling.STORIES),
    *(
        Story(f"{story.name}, repeatable", story.scenario, repeats_cancels, cancels_when=story.asks, cancels=2)
        for story in cancelling.STORIES[:3]
    ),
    Story("cancel-never-arrived", NEVER_ENDS, faults=first(CANCEL, LOST_REQUEST), cancels_when=cancelling.runs),
    Story("cancel-answer-lost", NEVER_ENDS, faults=first(CANCEL, LOST_ANSWER), cancels_when=cancelling.runs),
)
#: How each backup is restored.
WAYS: Final[tuple[dict[str, Any], ...]] = (
    {"files": "own"},
    {"files": "all", "later": LATE},
    {"is_lost_at_once": True},
)


def found(
    folder: Path, original: Original, backup: Backup, point: CrashPoint | None = None, **way: Any
) -> tuple[SimWorld, list[str]]:
    """A world after one restore, and what is wrong with it; with a `point` its first start is killed there."""
    world = restored(folder, original, backup, **way)
    before = backup.provider if way.get("is_lost_at_once") else original.world.provider
    kept = sorted(path.name for name in ("spool", "results") for path in (world.state_dir / name).rglob("*.json*"))
    if point is not None:
        live(world, point)
    if not world.lives or not world.lives[-1].ended:
        live(world)
    wrong = list(violations(world, original.story, backup, before))
    left = [path.name for path in world.state_dir.rglob("*.json*")]
    wrong += [f"{name} is gone" for name, n in Counter(kept).items() if left.count(name) < n]
    return world, wrong


def swept(folder: Path, story: Story) -> Counter[str]:
    """Each backup restored in each way; how they ended."""
    original = told(folder, story)
    ends: Counter[str] = Counter()
    for backup in original.backups:
        for number, way in enumerate(WAYS):
            place = folder / f"restored-{backup.number}-{number}"
            world, wrong = found(place, original, backup, **way)
            stood = backup.row["state"] if backup.row else "nothing"
            assert wrong == [], f"commit {backup.number} ({stood}), {way}"
            ends[_end(world)] += 1
    return ends


def _end(world: SimWorld) -> str:
    return next((str(op["state"]) for op in load(world).operations), "nothing")


@pytest.mark.parametrize("story", CREATES, ids=str)
def test_a_backup_at_any_commit_of_a_create_pays_nothing_twice(folder: Path, story: Story) -> None:
    ends = swept(folder, story)
    print(f"{story}: {sum(ends.values())} restores: {dict(ends)}")
    # Whatever the provider offers: where the original was lost before it sent anything, nobody can know.
    assert ends["create_unresolved"] > 0


@pytest.mark.parametrize("story", CANCELS, ids=str)
def test_a_backup_at_any_commit_of_a_cancel_pays_nothing_twice(folder: Path, story: Story) -> None:
    ends = swept(folder, story)
    print(f"{story}: {sum(ends.values())} restores: {dict(ends)}")
    assert ends["create_unresolved"] > 0


LOST_CREATE: Final = CREATES[0]
BY_LEAVE: Final = next(story for story in CREATES if story.name == "sent-again-by-leave")
CANCELLED: Final = CANCELS[0]
#: No job was ever made, and the leave to send again is spent on one that was lost too.
ABSENT: Final = Story("absent", NORMAL, may_resend, lambda: always(CREATE, LOST_REQUEST))
EDGES: Final[tuple[Edge, ...]] = ("before", "after")


def always(begins: bytes, fault: Fault) -> Callable[[str, bytes], Fault | None]:
    """Every request of that kind."""
    return lambda host, head: fault if host == PROVIDER and head.startswith(begins) else None


def in_state(original: Original, state: str, *, is_marked: bool | None = None) -> Backup:
    """The first backup in which the operation stands there; `is_marked`: with or without a send mark."""
    for backup in original.backups:
        row = backup.row
        if row is not None and row["state"] == state and is_marked in (None, row["mark_at"] is not None):
            return backup
    raise AssertionError(f"no backup of {original.story} has its operation in {state}")


@pytest.mark.parametrize(
    ("story", "state"),
    [(LOST_CREATE, "create_pending"), (BY_LEAVE, "create_unknown"), (CANCELLED, "cancel_requested")],
    ids=str,
)
def test_a_first_start_that_is_killed_anywhere_is_made_up_for_by_the_next(
    folder: Path, story: Story, state: str
) -> None:
    original = told(folder, story)
    backup = in_state(original, state)
    points = [CrashPoint(commit=(n, edge)) for n in range(1, 9) for edge in EDGES]
    points += [CrashPoint(file_step=n) for n in range(1, 9)]
    points += [CrashPoint(step=n) for n in range(0, 60, 3)]
    for number, point in enumerate(points):
        for way in WAYS[:2]:
            _, wrong = found(folder / f"{number}-{way['files']}", original, backup, point, **way)
            assert wrong == [], f"killed at {point}, {way}"


def test_the_history_says_in_words_why_nothing_is_sent(folder: Path) -> None:
    original = told(folder, LOST_CREATE)
    world, _ = found(folder / "restored", original, in_state(original, "create_pending", is_marked=False))
    (row,) = [row for row in history(world) if "restored backup" in str(row["reason"])]
    assert row["to_state"] == "create_unknown"
    assert row["actor"] == "start"
    at = "2027-01-15T08:00:00Z"
    assert row["reason"] == (
        f"this file is a restored backup of {at}: the create may have been sent since; it is looked up, not sent again"
    )
    (told_in_the_log,) = [entry for entry in world.lives[0].log if entry["event"] == "restored_backup"]
    assert told_in_the_log["operations"] == {"create_pending": 1}
    assert told_in_the_log["made_at_ms"] == EPOCH_MS


def test_an_end_that_only_the_lost_time_was_told_of_is_found_by_polling(folder: Path) -> None:
    """The provider sends no webhook twice that was taken."""
    original = told(folder, Story("normal", NORMAL))
    world, wrong = found(folder / "restored", original, in_state(original, "observing"))
    assert wrong == []
    assert len(original.world.provider.acks) == len(world.provider.acks) == 1
    assert load(world).events == []
    assert _end(world) == "succeeded"


def test_what_the_lost_time_left_in_the_folders_is_kept_apart(folder: Path) -> None:
    original = told(folder, Story("normal", NORMAL))
    (op,) = load(original.world).operations
    unknown = next(backup for backup in original.backups if backup.row is None)
    world, wrong = found(folder / "unknown", original, unknown, files="all")
    assert wrong == []
    aside = world.state_dir / "unclaimed"
    assert sorted(path.relative_to(aside).as_posix() for path in aside.rglob("*.jsonl")) == [
        f"results/{op['operation_id']}/{op['living']['collect_attempt']}/0.jsonl",
        f"spool/{op['operation_id']}.jsonl",
    ]
    (entry,) = [entry for entry in world.lives[0].log if entry["event"] == "restored_backup"]
    assert entry["unclaimed"] == 2
    # Its input is named by the copy, its result is not yet: that is fetched again.
    world, wrong = found(folder / "known", original, in_state(original, "observing"), files="all")
    assert wrong == []
    aside = world.state_dir / "unclaimed"
    assert [path.name for path in aside.rglob("*.jsonl")] == ["0.jsonl"]
    assert _end(world) == "succeeded"


def test_a_file_that_was_settled_once_is_a_database_like_any_other(folder: Path) -> None:
    """The second start brings nothing up: what was started since is sent as ever."""
    original = told(folder, LOST_CREATE)
    world = restored(folder / "restored", original, original.backups[0])
    live(world)
    world.live()
    assert world.client.body["state"] == "succeeded"
    assert [sum(e["event"] == "restored_backup" for e in life.log) for life in world.lives] == [1, 0]
    assert len(world.provider.log.creates) == len(original.world.provider.log.creates) + 1


# -- the product broken on purpose -------------------------------------------------------------------------------------


def without_its_mark(_: pytest.MonkeyPatch, database: Path) -> None:
    """A copy that nobody marked."""
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DELETE FROM backup")


def with_its_mark_gone_too_early(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    """The mark goes before the rows are brought up, and the start is killed in between."""
    take = Restored._take_for_sent

    async def early(self: Restored, made_at: int) -> Counter[str]:
        await self._store.record.settle_backup()
        return await take(self, made_at)

    monkeypatch.setattr(Restored, "_take_for_sent", early)


def with_the_lost_times_files_tidied(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    """Nothing is set aside, so that the tidying of every start finds files that no row names."""

    async def nothing(_: Restored) -> int:
        return 0

    monkeypatch.setattr(Restored, "_set_aside", nothing)


def with_cancels_sent_twice(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    """Every cancel counts as repeatable."""
    monkeypatch.setattr(Contract, "is_repeatable", lambda _self, _state: True)


def with_a_leave_that_lasts(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    """The configuration's leave to send again is taken once more."""
    found_in_backup = restoring.found_in_backup

    def forgets(draft: Draft, evidence: FoundInBackup) -> None:
        found_in_backup(draft, evidence)
        draft.set(restored=False)

    monkeypatch.setattr(restoring, "found_in_backup", forgets)


@pytest.mark.parametrize(
    ("plant", "story", "state", "way", "point", "seen"),
    [
        (without_its_mark, LOST_CREATE, "create_pending", {}, None, "creates were sent by the restored file"),
        # Long after, the create deadline passes for one that surely never left: so it seems.
        (without_its_mark, LOST_CREATE, "create_pending", {"later": LATE}, None, "N11"),
        (without_its_mark, CANCELLED, "cancel_requested", {}, None, "2 cancels reached the provider"),
        (
            with_its_mark_gone_too_early,
            LOST_CREATE,
            "create_pending",
            {},
            CrashPoint(commit=(3, "before")),
            "creates were sent by the restored file",
        ),
        (with_the_lost_times_files_tidied, LOST_CREATE, None, {"files": "all"}, None, "is gone"),
        (with_cancels_sent_twice, CANCELLED, "cancel_requested", {}, None, "2 cancels reached the provider"),
        (with_a_leave_that_lasts, ABSENT, "create_unknown", {"is_lost_at_once": True}, None, "1 creates were sent"),
    ],
)
def test_a_planted_fault_is_seen(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch, Path], None],
    story: Story,
    state: str | None,
    way: dict[str, Any],
    point: CrashPoint | None,
    seen: str,
) -> None:
    original = told(folder, story)
    is_marked = False if state == "create_pending" else None
    backup = in_state(original, state, is_marked=is_marked) if state else original.backups[0]
    _, wrong = found(folder / "sound", original, backup, point, **way)
    assert wrong == []
    plant(monkeypatch, backup.folder / "reconciled.db")
    _, wrong = found(folder / "broken", original, backup, point, **way)
    assert any(seen in words for words in wrong), wrong

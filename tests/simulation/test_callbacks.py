"""Callbacks in virtual time (N29, F25): whatever the target does and whenever the daemon dies, each move is told.

Told at least once, under one id and with the same bytes, never before its commit; whoever drops repeats has each effect
once; and what nobody took stands in the inbox.
"""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Coroutine, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

import reconcile.courier
from reconcile.callback import Attempt, Fate
from reconcile.signatures import sign_standard
from reconcile.store import evidence
from reconcile.store.backup import back_up
from tests.simulation.invariants import check
from tests.simulation.test_invariants import names
from tests.simulation.view import load
from tests.simulation.world import API, CALLBACKS, CrashPoint, Process, SimWorld, story_ends

HOUR: Final = 3600.0
#: Longer than the whole schedule with all its jitter, virtual seconds.
SCHEDULE: Final = 40 * HOUR


def saying(*replies: str) -> Callable[[int], str]:
    """One after the other, the last for ever."""
    return lambda n: replies[min(n, len(replies)) - 1]


def world_of(folder: Path, *replies: str, scenario: str = "normal", seed: int = 1) -> SimWorld:
    world = SimWorld(folder / "world", seed, scenario=scenario, calls_back=saying(*replies))
    world.patience = 3 * SCHEDULE
    return world


def fates(world: SimWorld) -> list[tuple[str, str, int]]:
    """Each delivery: what it tells of, how it stands, how often it was tried."""
    return [(row["type"].removeprefix("operation."), row["state"], row["attempts"]) for row in load(world).deliveries]


def arrived(world: SimWorld) -> list[float]:
    """Seconds between the first arrival and each."""
    assert world.receiver is not None
    return [(got.at_ms - world.receiver.got[0].at_ms) / 1000 for got in world.receiver.got]


# ---- told whole ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replies", "arrivals", "fate"),
    [
        (("take",), 1, "delivered"),
        (("slow",), 1, "delivered"),
        (("500", "take"), 2, "delivered"),
        (("307", "take"), 2, "delivered"),
        (("hang", "take"), 2, "delivered"),
        (("reset", "take"), 2, "delivered"),
        (("forget", "take"), 2, "delivered"),
        (("forget", "forget", "500", "hang", "take"), 5, "delivered"),
        (("500",) * 7 + ("take",), 8, "delivered"),
        (("410",), 1, "exhausted"),
        (("500",), 8, "exhausted"),
        (("hang",), 8, "exhausted"),
        (("forget",), 8, "exhausted"),
    ],
)
def test_a_target_that_misbehaves_is_told_once_or_a_person_is(
    folder: Path, replies: tuple[str, ...], arrivals: int, fate: str
) -> None:
    world = world_of(folder, *replies)
    world.live()
    assert check(world, at_the_end=True) == []
    assert fates(world) == [("done", fate, arrivals)]
    assert world.receiver is not None
    assert len(world.receiver.got) == arrivals
    assert len({got.event_id for got in world.receiver.got}) == 1
    waits = [5, 300, 1800, 7200, 18000, 36000, 36000]
    gaps = [later - sooner for sooner, later in zip(arrived(world), arrived(world)[1:], strict=False)]
    for gap, wait in zip(gaps, waits, strict=False):
        assert wait <= gap <= wait * 1.2 + 31, "an attempt that hangs takes 30 seconds of its own"


def test_a_person_is_told_and_lets_it_be_sent_again_under_the_same_id(folder: Path) -> None:
    world = world_of(folder, "410", "500", "take")

    async def story(process: Process) -> None:
        await story_ends(process)
        (operation,) = world.client.started[:1]
        notice = f"{API}/v1/inbox/callback_exhausted.{operation}/decisions"
        async with process.client_session() as session:
            body = {"decision": "redeliver", "by": "simulation", "reason": "the target is back"}
            async with session.post(notice, json=body) as answer:
                assert answer.status == 200
        await story_ends(process)

    world.live(until=story)
    assert check(world, at_the_end=True) == []
    assert fates(world) == [("done", "delivered", 2)]
    assert world.receiver is not None
    assert list(world.receiver.effects.values()) == [1]


def test_questions_are_told_too(folder: Path) -> None:
    world = world_of(folder, "take", scenario="never-ends")
    world.client.start = {**world.client.start, "result_within": "60s"}
    world.live()
    assert [words for words in check(world, at_the_end=True) if not words.startswith("N23")] == []
    assert fates(world) == [("needs_attention", "delivered", 1)]


def test_a_target_that_is_down_for_ten_hours_holds_nothing_up_and_is_told_in_the_end(folder: Path) -> None:
    world = world_of(folder, "500")
    assert world.receiver is not None
    world.receiver.reply = lambda _: "take" if world.receiver and arrived(world)[-1] > 10 * HOUR else "500"
    world.live()
    assert check(world, at_the_end=True) == []
    assert fates(world) == [("done", "delivered", 7)]


def test_a_clock_that_is_set_back_by_a_day_delays_no_attempt_by_a_day(folder: Path) -> None:
    """N34: the second attempt comes when it was meant to, as far as the world outside can tell."""
    world = world_of(folder, "500", "take")

    async def story(process: Process) -> None:
        async with process.client_session() as session:
            await world.client.run(session)
        await asyncio.sleep(2)
        process.clock.step_wall(-24 * 3_600_000)
        await story_ends(process)

    world.live(until=story)
    assert fates(world) == [("done", "delivered", 2)]
    first, second = arrived(world)
    assert second - first < 30


def test_a_callback_that_was_removed_is_sent_once_it_is_back(folder: Path) -> None:
    world = world_of(folder, "500", "take")

    async def refused_once(process: Process) -> None:
        async with process.client_session() as session:
            await world.client.run(session)
        await asyncio.sleep(2)

    world.live(until=refused_once)
    world.configure({})

    async def a_day(_: Process) -> None:
        await asyncio.sleep(24 * HOUR)

    life = world.live(until=a_day)
    assert [line["deliveries"] for line in life.log if line["event"] == "callback_missing"] == [1]
    assert fates(world) == [("done", "waiting", 1)]
    world.configure({"callbacks": CALLBACKS})
    world.live()
    assert check(world, at_the_end=True) == []
    assert fates(world) == [("done", "delivered", 2)]


# ---- killed ----------------------------------------------------------------------------------------------------------


def swept(folder: Path, points: Iterable[CrashPoint], *replies: str) -> list[int]:
    """A world for each point, killed there and then lived to its end; how many deliveries arrived in each."""
    counts = []
    for point in points:
        world = world_of(folder, *replies)
        try:
            if not world.live(point).ended:
                assert check(world, at_the_end=False) == []
                world.live()
            assert check(world, at_the_end=True) == []
        except AssertionError as error:
            error.add_note(f"killed at {point}")
            raise
        assert world.receiver is not None
        asked = [row for row in load(world).deliveries if row["type"] == "operation.needs_attention"]
        ended = [row for row in load(world).deliveries if row["type"] == "operation.done"]
        assert len(asked) + len(ended) == len(world.receiver.effects) > 0
        counts.append(len(world.receiver.got))
        shutil.rmtree(folder / "world")
    return counts


def length(folder: Path, *replies: str) -> tuple[int, int]:
    """Steps and commits of a life without a crash."""
    life = world_of(folder, *replies).live()
    shutil.rmtree(folder / "world")
    return life.steps, life.commits


@pytest.mark.parametrize("replies", [("take",), ("forget", "take")])
def test_killed_after_any_step_it_is_told_at_least_once_and_repeats_at_most(
    folder: Path, replies: tuple[str, ...]
) -> None:
    steps, _ = length(folder, *replies)
    counts = swept(folder, (CrashPoint(step=step) for step in range(steps)), *replies)
    assert max(counts) == len(replies) + 1, "killed between the send and its record, it is sent once more"
    print(f"{replies}: killed after each of {steps} steps: {sum(counts)} arrivals in {len(counts)} worlds")


@pytest.mark.parametrize("edge", ["before", "after", "lost", "kept"])
def test_killed_at_any_commit_it_is_told_at_least_once_and_repeats_at_most(folder: Path, edge: Any) -> None:
    replies = ("500", "hang", "take")
    _, commits = length(folder, *replies)
    counts = swept(folder, (CrashPoint(commit=(n, edge)) for n in range(1, commits + 1)), *replies)
    assert max(counts) <= len(replies) + 1
    assert len(counts) > 15


def test_killed_at_any_commit_of_giving_up_a_person_is_told_all_the_same(folder: Path) -> None:
    _, commits = length(folder, "410")
    for n in range(1, commits + 1):
        world = world_of(folder, "410")
        if not world.live(CrashPoint(commit=(n, "after"))).ended:
            assert check(world, at_the_end=False) == []
            world.live()
        assert check(world, at_the_end=True) == []
        assert {fate for _, fate, _ in fates(world)} == {"exhausted"}
        shutil.rmtree(folder / "world")


# ---- restored --------------------------------------------------------------------------------------------------------


def test_a_restored_backup_sends_again_what_waited_in_it_under_the_same_id(folder: Path) -> None:
    """What is told anew has an id of its own: an id never stands for two bodies."""
    world = world_of(folder, "500", "take")
    backups: list[tuple[Path, float]] = []

    def keep(process: Process) -> None:
        kept = folder / f"backup-{process.life.commits}"
        kept.mkdir()
        back_up(world.database, kept / "reconciled.db", made_at=process.clock.now())
        backups.append((kept, process.loop.time()))

    world.on_commit = keep
    assert world.live().ended
    world.on_commit = lambda _: None
    assert world.receiver is not None
    (told,) = {got.event_id for got in world.receiver.got}
    seen: dict[tuple[str, ...], int] = {}
    for kept, at in backups:
        with closing(sqlite3.connect(kept / "reconciled.db")) as connection:
            waited = tuple(state for (state,) in connection.execute("SELECT state FROM deliveries"))
            operations = connection.execute("SELECT count(*) FROM operations").fetchone()[0]
        if not operations:
            continue
        shutil.copytree(world.state_dir, folder / "whole", dirs_exist_ok=True)
        for name in ("reconciled.db", "reconciled.db-wal", "reconciled.db-shm"):
            (world.state_dir / name).unlink(missing_ok=True)
        shutil.copy(kept / "reconciled.db", world.state_dir)
        world.time = max(world.time, at)
        before = len(world.receiver.got)
        assert world.live().ended
        assert names(check(world, at_the_end=True)) & {"N23", "N26", "N27", "N28", "N29"} == set()
        again = {got.event_id for got in world.receiver.got[before:]}
        assert len(again) == (0 if waited == ("delivered",) else 1)
        assert (again == {told}) == (waited == ("waiting",))
        seen[waited] = seen.get(waited, 0) + 1
        shutil.rmtree(world.state_dir)
        shutil.move(folder / "whole", world.state_dir)
    assert set(seen) == {(), ("waiting",), ("delivered",)}


# ---- the checks are checked ------------------------------------------------------------------------------------------

FORGERIES: Final = (
    "DELETE FROM deliveries",
    "UPDATE deliveries SET type = 'operation.needs_attention'",
    "UPDATE deliveries SET body = CAST(replace(body, 'succeeded', 'failed') AS BLOB)",
    "UPDATE deliveries SET delivery_id = 'msg_of_somebody'",
    "UPDATE deliveries SET state = 'exhausted'",
    "UPDATE deliveries SET state = 'waiting', due_at = 1",
)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_delivery_is_named(folder: Path, forgery: str) -> None:
    world = world_of(folder, "take")
    world.live()
    assert check(world, at_the_end=True) == []
    connection = sqlite3.connect(world.database)
    connection.execute("DROP TRIGGER deliveries_are_frozen")
    assert connection.execute(forgery).rowcount > 0
    connection.commit()
    connection.close()
    assert "N29" in names(check(world, at_the_end=True))


def broken_in(folder: Path, *replies: str, steps: Iterable[int] = ()) -> set[str]:
    """The rules that are broken in a world that goes well, or in any of those that are killed."""
    broken: set[str] = set()
    for point in [CrashPoint(), *(CrashPoint(step=step) for step in steps)]:
        world = world_of(folder, *replies)
        if not world.live(point).ended:
            broken |= names(check(world, at_the_end=False))
            world.live()
        broken |= names(check(world, at_the_end=True))
        shutil.rmtree(folder / "world")
    return broken


def test_a_delivery_that_is_marked_before_it_is_sent_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = reconcile.courier.Courier.deliver

    async def slowly(self: Any, target: Any, delivery: Any) -> Attempt:
        asyncio.get_running_loop().create_task(_later(deliver(self, target, delivery)))
        return Attempt(200)

    monkeypatch.setattr(reconcile.courier.Courier, "deliver", slowly)
    assert "N29" in broken_in(folder, "500", "take")


async def _later(work: Coroutine[Any, Any, Any]) -> None:
    await asyncio.sleep(0.1)
    await work


def test_an_id_of_each_attempt_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sign = sign_standard
    count = iter(range(1_000))

    def signed(body: bytes, *, event_id: str, **more: Any) -> dict[str, str]:
        return sign(body, event_id=f"{event_id}{next(count)}", **more)

    monkeypatch.setattr("reconcile.courier.sign_standard", signed)
    assert "N29" in broken_in(folder, "500", "take")


def test_a_move_that_puts_nothing_into_the_outbox_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "_told_of", lambda _change, _after: None)
    assert "N29" in broken_in(folder, "take")


def test_giving_up_without_a_word_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconcile.store.deliveries.notices.tell", lambda _connection, _notices: None)
    assert "N29" in broken_in(folder, "410")


def test_a_redirect_that_counts_as_taken_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def after(attempt: Attempt, *, attempts: int, **_: Any) -> Fate:
        return Fate("delivered", attempts + 1, None, attempt.status, None)

    monkeypatch.setattr("reconcile.callback.after", after)
    assert "N29" in broken_in(folder, "307")

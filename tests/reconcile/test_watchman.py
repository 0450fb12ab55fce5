"""The watchman on the whole daemon: what stands is told, what is over goes, and a clock that was set delays nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from reconcile.client import Exchange
from reconcile.errors import StoreBusy
from reconcile.evidence import DeadlinePassed
from reconcile.limits import NO_PAUSE, Pause
from reconcile.peer import Peer
from reconcile.provider import HttpRequest, HttpResponse, Purpose
from reconcile.store.claims import ClaimWish
from reconcile.store.writer import Hooks
from tests.handlers.ground import NOON, Ground, running, until
from tests.reconcile.store.ground import beside, database_error, raising

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
REFUSED = Pause(NOON + 5_000, "credentials_refused", 1, NOON)


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as ground:
        yield ground


async def told(ground: Ground) -> list[str]:
    await ground.daemon.watchman.look()
    return [notice.notice_id for notice in await ground.daemon.store.notices()]


def peer(ground: Ground) -> Peer:
    return ground.daemon.watchman._peers["openai"]


def due(ground: Ground, operation_id: str) -> int:
    return ground.due_at(operation_id)


async def test_a_refused_key_is_told_while_the_pause_lasts(ground: Ground) -> None:
    peer(ground).pause = REFUSED
    assert await told(ground) == ["credentials_refused.openai"]
    peer(ground).pause = NO_PAUSE
    assert await told(ground) == []


async def test_what_stands_unchanged_is_written_once(ground: Ground) -> None:
    peer(ground).pause = REFUSED
    await told(ground)
    commits = ground.daemon.store.commits
    ground.clock.advance(MINUTE)
    await told(ground)
    assert ground.daemon.store.commits == commits


async def test_a_condition_that_an_earlier_process_left_behind_goes_at_the_first_look(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as ground:
        peer(ground).pause = REFUSED
        assert await told(ground) == ["credentials_refused.openai"]
    async with running(tmp_path / "state") as ground:
        assert await told(ground) == []


async def test_a_result_about_to_be_dropped_is_told_and_goes_when_it_is_settled(ground: Ground) -> None:
    """J7: OpenAI keeps results 30 days; a quarter of that is left from day 22 and a half on."""
    operation_id = await ground.operation("result_validation_failed", "batch_1")
    ground.clock.advance(22 * DAY)
    assert await told(ground) == []
    ground.clock.advance(13 * HOUR)
    assert await told(ground) == [f"result_expiring.{operation_id}"]
    await ground.apply(operation_id, DeadlinePassed("attention"))
    assert (await ground.row(operation_id)).is_terminal
    assert await told(ground) == []


async def test_a_full_disk_keeps_the_notice_for_the_next_look(tmp_path: Path) -> None:
    hooks = Hooks()
    async with running(tmp_path / "state", hooks=hooks) as ground:
        peer(ground).pause = REFUSED
        hooks.before_commit = raising(database_error(13))  # SQLITE_FULL
        with pytest.raises(Exception, match="rolled back"):
            await ground.daemon.watchman.look()
        hooks.before_commit = None
        assert await told(ground) == ["credentials_refused.openai"]


async def test_a_store_that_cannot_be_read_keeps_the_notice_for_the_next_look(ground: Ground) -> None:
    """What is told by a read that fails is told later; the watchman, and with it the daemon, goes on."""
    peer(ground).pause = REFUSED
    file = ground.folder / "reconciled.db"
    rename(file, "operations", "gone")
    stop = asyncio.Event()
    running = asyncio.create_task(ground.daemon.watchman.run(stop))
    ground.daemon.watchman.wake()

    async def was_logged() -> bool:
        assert not running.done(), "the watchman ended"
        return any(entry["event"] == "notices_not_kept" for entry in ground.logged)

    await until(was_logged)
    rename(file, "gone", "operations")
    stop.set()
    ground.daemon.watchman.wake()
    await running
    assert await told(ground) == ["credentials_refused.openai"]


def rename(file: Path, old: str, new: str) -> None:
    with beside(file, writes=True) as connection:
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.execute(f"ALTER TABLE {old} RENAME TO {new}")


# ---- the clock ----


@pytest.mark.parametrize("step", [5_000, -5_000])
async def test_a_clock_that_drifts_is_no_step(ground: Ground, step: int) -> None:
    ground.clock.advance(step - (100 if step > 0 else -100))
    await ground.daemon.watchman.check_clock()
    assert await ground.daemon.store.notices() == []


@pytest.mark.parametrize(("step", "way"), [(DAY, "forward by 86"), (-DAY, "back by 86")])
async def test_a_step_is_told_once(ground: Ground, step: int, way: str) -> None:
    ground.clock.advance(step)
    await ground.daemon.watchman.check_clock()
    await ground.daemon.watchman.check_clock()
    (notice,) = await ground.daemon.store.notices()
    assert notice.notice_id == "clock_stepped"
    assert way in notice.message


async def test_a_clock_set_back_by_a_day_delays_no_read_by_more_than_the_longest_wait(ground: Ground) -> None:
    """N34: OpenAI's sweep of 15 minutes is the longest wait; deadlines are wall time and stay."""
    watched = await ground.operation("observing", "batch_1", result_within="20h")
    asked = await ground.operation("result_validation_failed", "batch_2")
    deadline = (await ground.row(watched)).deadlines.result
    question_due = due(ground, asked)
    ground.clock.advance(-DAY)
    await ground.daemon.watchman.check_clock()
    now = ground.clock.now()
    assert due(ground, watched) == now + 15 * MINUTE
    assert (await ground.row(watched)).deadlines.result == deadline
    assert due(ground, asked) == min(question_due, now + 15 * MINUTE)


async def test_a_clock_set_back_leaves_no_lease_and_no_pause_of_a_day(ground: Ground) -> None:
    await ground.operation("observing", "batch_1", result_within="20h")
    ground.clock.advance(HOUR)
    (claim,) = (await ground.daemon.store.claim(ClaimWish("A", ground.clock.now(), 60_000, {"openai": 1}))).claims
    await ground.daemon.watchman.check_clock()
    peer(ground).pause = Pause(ground.clock.now() + MINUTE, "failures: timeout", 5, ground.clock.now())
    ground.clock.advance(-DAY)
    await ground.daemon.watchman.check_clock()
    now = ground.clock.now()
    assert ground.rows("SELECT lease_until FROM schedule WHERE lease_owner = 'A'") == [(now + 60_000,)]
    lasts_ms = (peer(ground).pause.until_ms or 0) - now
    assert abs(lasts_ms - MINUTE) < 1000, "as long as it would have; monotonic time went on for some ms"
    assert claim.fence == 1


@pytest.mark.parametrize("step", [5 * HOUR, -5 * HOUR])
async def test_a_pause_that_was_set_by_the_new_clock_already_stays_as_long_as_it_is(ground: Ground, step: int) -> None:
    """A provider that was asked just after a step of 5 h, and said to wait a minute, was left alone for 5 h."""
    await ground.daemon.watchman.check_clock()
    ground.clock.advance(step)
    client, request = ground.daemon.client, HttpRequest("GET", "/batches/b", Purpose.STATUS)
    answer = HttpResponse(429, {}, b"", MINUTE)
    client.note(peer(ground), Exchange(request, ground.clock.now(), ground.clock.now(), answer))
    for _ in range(2):
        await ground.daemon.watchman.check_clock()
        assert abs((peer(ground).pause.until_ms or 0) - ground.clock.now() - MINUTE) < 5_000


async def test_a_clock_step_that_the_disk_keeps_from_being_told_moves_a_pause_once(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(_: Any) -> None:
        raise StoreBusy("the disk is full")

    await ground.daemon.watchman.check_clock()
    peer(ground).pause = Pause(ground.clock.now() + MINUTE, "failures: timeout", 5, ground.clock.now())
    ground.clock.advance(HOUR)
    with monkeypatch.context() as broken:
        broken.setattr(ground.daemon.store, "tell", busy)
        with pytest.raises(StoreBusy):
            await ground.daemon.watchman.check_clock()
    await ground.daemon.watchman.check_clock()
    assert abs((peer(ground).pause.until_ms or 0) - ground.clock.now() - MINUTE) < 1000


async def test_a_start_after_the_clock_was_set_back_reads_within_the_longest_wait(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as ground:
        watched = await ground.operation("observing", "batch_1", result_within="40h")
        clock = ground.clock
    clock.advance(-DAY)
    async with running(tmp_path / "state", clock=clock) as ground:
        assert due(ground, watched) == clock.now() + 15 * MINUTE

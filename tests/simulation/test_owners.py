"""Two owners on one file, as if the lock were gone, and a disk that is full while an answer is in hand.

The lock keeps a second daemon out; that leases and fences alone are enough is shown here, where it is taken away: two
whole daemons, leases shorter than the provider's answers, and in half of the worlds no renewal at all. Nothing is sent
twice, and each rule holds all the same.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from daemon.assembly import Daemon, assemble
from reconcile import worker as leases
from tests.simulation.invariants import check
from tests.simulation.seams import SeededDice
from tests.simulation.test_stories import CREATE, OUTCOMES, SCENARIOS, history, judge
from tests.simulation.transports import Fault
from tests.simulation.world import API_PORT, DAEMON, PROVIDER, Process, SimWorld, story_ends

SEEDS: Final = 60
#: The longest that an answer takes, virtual seconds: several of the leases below, and shorter than any time-out.
SLOWEST_SECONDS: Final = 12.0
#: The product's own bound on a stop, typed by hand: what running actions get, and a moment more.
STOP_SECONDS: Final = 21.0


class Owners:
    """A second daemon on the first one's file, and somebody who wakes both workers all the time."""

    def __init__(self, process: Process, dice: SeededDice) -> None:
        self._process = process
        self._dice = dice

    async def story(self) -> None:
        """The client's whole story, with two daemons at work."""
        process = self._process
        seams = process._seams()
        seams.dice = SeededDice(f"{process.world.seed}/second")
        second = await assemble(process.world.config, seams, local_hosts=frozenset({f"{DAEMON}:{API_PORT}"}))
        stop = asyncio.Event()
        writer = process.supervisor.start("second writer", second.store.run())
        worker = process.supervisor.start("second worker", second.worker.run(stop))
        alarm = process.supervisor.start("alarm", self._wake(process.daemon, second))
        await story_ends(process)
        alarm.cancel()
        stop.set()
        second.worker.wake(0)
        await asyncio.wait({alarm, worker})
        second.store.stop()
        await asyncio.wait({writer})
        await second.client.close()
        await second.store.close()

    async def _wake(self, *daemons: Daemon) -> None:
        while True:
            await asyncio.sleep(0.1 + self._dice.draw())
            daemons[int(2 * self._dice.draw())].worker.wake(0)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_two_owners_with_short_leases_never_make_a_second_job(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    dice = SeededDice(f"owners/{seed}")
    monkeypatch.setattr(leases, "LEASE_MS", 1_000 + int(3_000 * dice.draw()))
    monkeypatch.setattr(leases, "RENEW_MS", 10**9 if seed % 2 else 400)
    scenario = SCENARIOS[seed // 2 % len(SCENARIOS)]
    world = SimWorld(folder, seed, scenario=scenario)

    def delays(host: str, head: bytes) -> Fault | None:
        if host != PROVIDER or not head or dice.draw() < 0.3:
            return None
        delay = SLOWEST_SECONDS * dice.draw() ** 2
        # A create is never late on its way there: the rules look at the row when it arrives, not when it leaves.
        is_late_there = dice.draw() < 0.3 and not head.startswith(CREATE)
        return Fault(request_delay=delay) if is_late_there else Fault(answer_delay=delay)

    world.faults = delays

    async def story(process: Process) -> None:
        await Owners(process, dice).story()

    life = world.live(until=story)
    assert not life.stalled
    assert check(world, at_the_end=True) == []
    state = world.client.body["state"]
    jobs = world.provider.truth().jobs
    assert len(jobs) <= 1 or state in ("contract_violation", "create_unresolved")
    assert len(world.provider.log.creates) == 1
    assert state == OUTCOMES[scenario]
    assert len(history(world)) < 60
    lost = sum(entry["event"] == "lease_lost" for entry in life.log)
    print(f"{scenario}: {state}, {len(history(world))} history rows, {lost} leases lost")


def test_leases_are_lost_in_those_worlds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would show nothing: an upload or a create outlasts its lease, and its owner is told."""
    monkeypatch.setattr(leases, "LEASE_MS", 1_000)
    monkeypatch.setattr(leases, "RENEW_MS", 10**9)
    lost = {}
    for name, begins in (("upload", b"POST /v1/files "), ("create", CREATE)):
        world = SimWorld(folder / name)
        left = [Fault(answer_delay=5)]

        def delays(host: str, head: bytes, begins: bytes = begins, left: list[Fault] = left) -> Fault | None:
            return left.pop() if left and host == PROVIDER and head.startswith(begins) else None

        world.faults = delays

        async def story(process: Process) -> None:
            await Owners(process, SeededDice("owners")).story()

        life = world.live(until=story)
        assert check(world, at_the_end=True) == []
        assert world.client.body["state"] == "succeeded"
        assert len(world.provider.log.creates) == 1
        lost[name] = sum(entry["event"] == "lease_lost" for entry in life.log)
        if name == "upload":
            assert len(world.provider.log.uploads) == 2
        else:
            assert "create_unknown" in [row["to_state"] for row in history(world)]
    assert min(lost.values()) >= 1


# -- a full disk -------------------------------------------------------------------------------------------------------


def fill(process: Process, code: int) -> Callable[[], None]:
    """From now on every transaction ends in that result code, until the answer is called."""
    hooks = process.daemon.store._group._inbox.hooks
    before = hooks.before_commit

    def fails(_: sqlite3.Connection) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = code
        raise error

    def empty() -> None:
        hooks.before_commit = before

    hooks.before_commit = fails
    return empty


def answers_late(_: str, head: bytes) -> Fault | None:
    """The disk is full before the create is answered."""
    return Fault(answer_delay=0.5) if head.startswith(CREATE) else None


async def created(process: Process) -> None:
    """Wait until the create has come to the provider."""
    while not process.world.provider.log.creates:  # noqa: ASYNC110 - nothing of the provider tells of it
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL], ids=["busy", "full"])
@pytest.mark.parametrize("seconds", [1, 3, 8, 20])
def test_an_answer_that_the_disk_would_not_take_is_kept_once_it_does(folder: Path, seconds: int, code: int) -> None:
    """The job id is in hand and nobody else knows it: it is neither dropped nor asked for again."""
    world = SimWorld(folder, scenario="lost-webhook")
    world.faults = answers_late
    times: list[int] = []

    async def story(process: Process) -> None:
        async with process.client_session() as session:
            assert await world.client.ask(session)
        await created(process)
        empty = fill(process, code)
        await asyncio.sleep(seconds)
        times.append(process.clock.now())
        empty()
        await story_ends(process)

    world.live(until=story)
    assert judge(world, "succeeded") == "succeeded"
    assert len(world.provider.log.creates) == 1
    accepted = next(row for row in history(world) if row["to_state"] == "accepted")
    assert int(str(accepted["at"])) < times[0]  # when it was heard, not when it was taken


def test_a_stop_while_the_disk_is_full_ends_in_time_and_loses_no_job(folder: Path) -> None:
    """The answer is let go after the grace; the open mark makes the next start look the job up."""
    world = SimWorld(folder, scenario="lost-webhook")
    world.faults = answers_late
    stopped: list[float] = []

    async def story(process: Process) -> None:
        async with process.client_session() as session:
            assert await world.client.ask(session)
        await created(process)
        fill(process, sqlite3.SQLITE_FULL)
        await asyncio.sleep(3)
        stopped.append(process.loop.time())

    life = world.live(until=story)
    assert life.ended
    assert life.troubles == []
    assert world.time - stopped[0] <= STOP_SECONDS
    assert [entry["event"] for entry in life.log].count("action_dropped") == 1
    assert check(world, at_the_end=False) == []
    world.live()
    assert judge(world, "succeeded") == "succeeded, found again"
    assert len(world.provider.log.creates) == 1

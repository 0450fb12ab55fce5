"""A thousand clients that wait cost the database nothing: they hang on memory, not on a query each second."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import aiohttp

from daemon.standin.scenarios import Scenario
from reconcile.store.writer import PATIENCE_SECONDS
from tests.simulation.inline_sqlite import InlineConnection, InlineSqlite
from tests.simulation.invariants import check
from tests.simulation.loop import VirtualLoop
from tests.simulation.world import API, Process, SimWorld

WAITERS: Final = 1_000
#: The job runs for an hour and no webhook tells of it; the next poll is minutes off.
SLOW: Final = Scenario("slow", "A job of an hour.", duration_ms=3_600_000, webhooks="lost")
PATIENT_POLL: Final = {"base": "10m", "cap": "10m", "sweep": "10m"}


class CountingSqlite(InlineSqlite):
    """Tells `seen` of every statement that any connection of the daemon runs, as SQLite itself reports it."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self.seen: list[str] = []

    async def __call__(
        self, database: str, *, uri: bool = False, factory: Callable[..., sqlite3.Connection] | None = None
    ) -> InlineConnection:
        """Open, and listen."""

        def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection = (factory or sqlite3.Connection)(*args, **kwargs)
            connection.set_trace_callback(self.seen.append)
            return connection

        return await super().__call__(database, uri=uri, factory=traced)  # type: ignore[arg-type]


async def wait(session: aiohttp.ClientSession, path: str, answers: list[dict[str, Any]]) -> None:
    """One client that waits half a minute."""
    async with session.get(path) as answer:
        assert answer.status == 200
        answers.append(await answer.json())


def test_a_thousand_waiters_on_an_idle_daemon_ask_the_database_nothing(folder: Path) -> None:
    world = SimWorld(folder, scenario=SLOW, poll=PATIENT_POLL)
    answers: list[dict[str, Any]] = []

    async def story(process: Process) -> None:
        opener = process.opener
        assert isinstance(opener, CountingSqlite)
        async with process.client_session() as session:
            assert await world.client.ask(session)
            path = f"{API}/v1/operations/{world.client.started[0]}"
            await asyncio.sleep(5)
            began = len(opener.seen)
            async with asyncio.TaskGroup() as waiters:
                for _ in range(WAITERS):
                    waiters.create_task(wait(session, f"{path}?wait=30", answers))
                await asyncio.sleep(5)
                settled = len(opener.seen)
                assert any("SELECT" in sql for sql in opener.seen[began:settled])  # each was looked up, many at once
                assert answers == []
                await asyncio.sleep(10)
                assert opener.seen[settled:] == []

    life = world.live(opener=CountingSqlite, until=story)
    assert life.ended
    assert life.troubles == []
    assert check(world, at_the_end=False) == []
    assert len(answers) == WAITERS
    assert {answer["wait"]["result"] for answer in answers} == {"timed_out"}
    assert {answer["wait"]["waited_seconds"] for answer in answers} == {30.0}
    print(f"{WAITERS} waiters: {life.steps} steps")


def test_one_change_answers_all_who_wait_for_it_at_once(folder: Path) -> None:
    world = SimWorld(folder)
    answers: list[dict[str, Any]] = []

    async def story(process: Process) -> None:
        opener = process.opener
        assert isinstance(opener, CountingSqlite)
        async with process.client_session() as session:
            assert await world.client.ask(session)
            path = f"{API}/v1/operations/{world.client.started[0]}"
            async with asyncio.TaskGroup() as waiters:
                for _ in range(WAITERS):
                    waiters.create_task(wait(session, f"{path}?wait=50", answers))
                await asyncio.sleep(1)
                settled = len(opener.seen)
            assert sum(sql.startswith("SELECT") for sql in opener.seen[settled:]) < WAITERS

    assert world.live(opener=CountingSqlite, until=story).ended
    assert {answer["wait"]["result"] for answer in answers} == {"succeeded"}
    # The job's four seconds, and the moment for which a read's write waits for company.
    assert {answer["wait"]["waited_seconds"] for answer in answers} == {4.0 + PATIENCE_SECONDS}

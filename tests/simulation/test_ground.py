"""The ground itself is proved here, with toy servers and a toy store, before worlds are built on it."""

import asyncio
import contextlib
import errno
import functools
import gc
import hashlib
import itertools
import math
import os
import sqlite3
import subprocess
import sys
import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from aiohttp import web

from reconcile import seams
from tests.simulation.inline_sqlite import Dead, InlineSqlite, ThreadedSqlite
from tests.simulation.loop import Crash, Deadlock, Livelock, VirtualLoop, dispose
from tests.simulation.seams import CountingMeters, DirectSupervisor, SeededDice, VirtualClock
from tests.simulation.transports import LOST_ANSWER, LOST_REQUEST, REFUSED, Fault, MemoryNetwork, Trace

T = TypeVar("T")
Opener = type[InlineSqlite] | type[ThreadedSqlite]


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    """A loop that is expected to end without complaints."""
    loop = VirtualLoop()
    yield loop
    dispose(loop)
    assert loop.complaints == []


@pytest.fixture(autouse=True)
def nothing_unraisable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test may leave a warning or an exception to the garbage collector."""
    leaked: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: leaked.append((args.exc_value, repr(args.object))))
    with warnings.catch_warnings(record=True, action="always") as caught:
        yield
        gc.collect()
    assert leaked == []
    assert [str(warning.message) for warning in caught] == []


# -- time --------------------------------------------------------------------------------------------------------------


def test_virtual_hours_pass_in_no_time(loop: VirtualLoop) -> None:
    async def story() -> None:
        await asyncio.sleep(3600 * 24)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(7200), timeout=60)

    began = time.perf_counter()
    loop.run_until_complete(story())
    assert loop.time() == 3600 * 25 + 60
    assert time.perf_counter() - began < 1


def test_a_wait_that_nothing_can_end_is_a_deadlock() -> None:
    for hopeless in (asyncio.Event().wait, lambda: asyncio.sleep(math.inf)):
        loop = VirtualLoop()
        with pytest.raises(Deadlock, match="task-1"):
            loop.run_until_complete(hopeless())
        dispose(loop)


def test_a_loop_that_spins_without_time_moving_is_a_livelock() -> None:
    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    loop = VirtualLoop(steps_without_time=1000)
    with pytest.raises(Livelock):
        loop.run_until_complete(spin())
    dispose(loop)


def test_cancelled_timers_do_not_pile_up(loop: VirtualLoop) -> None:
    async def story() -> None:
        for _ in range(1000):
            async with asyncio.timeout(3600):
                await asyncio.sleep(0.001)

    loop.run_until_complete(story())
    assert len(loop._scheduled) < 250
    assert loop.time() == pytest.approx(1)


def test_sets_of_tasks_are_walked_in_a_fixed_order(loop: VirtualLoop) -> None:
    ended: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async def story() -> None:
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                ballast = [bytearray(number * 37) for number in range(200)]
                for number in range(200):
                    group.create_task(wait(number))
                    ballast.pop()
                await asyncio.sleep(0)
                raise ValueError

    loop.run_until_complete(story())
    assert ended == list(range(200))


# -- seams -------------------------------------------------------------------------------------------------------------


def test_the_seams_do_what_their_protocols_say(loop: VirtualLoop) -> None:
    clock, supervisor, meters = VirtualClock(loop, 1_700_000_000_000), DirectSupervisor(loop), CountingMeters()
    dice = SeededDice("7/dice")
    kept: tuple[seams.Clock, seams.Supervisor, seams.Meters, seams.Dice] = (clock, supervisor, meters, dice)
    assert len(kept) == 4

    async def fail() -> None:
        await asyncio.sleep(1.5)
        raise ValueError("lost")

    async def story() -> int:
        task = supervisor.start("failing", fail())
        await asyncio.wait([task])
        clock.step_wall(-86_400_000)
        return await supervisor.offload(lambda: 42)

    assert loop.run_until_complete(story()) == 42
    assert clock.now() == 1_700_000_001_500 - 86_400_000
    assert clock.monotonic() == 1.5
    assert [(name, str(error)) for name, error in supervisor.failures] == [("failing", "lost")]
    assert not supervisor.running
    assert SeededDice(1).identifier("op_") == SeededDice(1).identifier("op_") != SeededDice(2).identifier("op_")
    assert len(dice.trace_id()) == 32
    assert 0 <= dice.draw() < 1
    meters.count("reads", provider="a", kind="x")
    meters.count("reads", 2, kind="y", provider="a")
    meters.observe("seconds", 0.5)
    assert meters.total("reads", provider="a") == 3
    assert meters.total("reads", kind="y") == 2


# -- network -----------------------------------------------------------------------------------------------------------


class Toy:
    """A provider that notes what reached it, and one client session."""

    def __init__(self, loop: VirtualLoop, *, trace: Trace | None = None) -> None:
        self.loop = loop
        self.network = MemoryNetwork(loop, trace)
        self.seen: list[str] = []
        self.peers: set[int] = set()
        self.sent = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Echo the body's length and digest."""
        body = hashlib.sha256()
        size = 0
        async for piece in request.content.iter_chunked(65536):
            body.update(piece)
            size += len(piece)
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername")[1])
        self.seen.append(f"{request.method} {request.path}")
        return web.json_response({"size": size, "sha256": body.hexdigest()})

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Five megabytes in pieces."""
        response = web.StreamResponse()
        await response.prepare(request)
        for number in range(80):
            await response.write(bytes([number]) * 65536)
            self.sent = number
        await response.write_eof()
        return response

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Serve on provider.test:443 while the block runs."""
        app = web.Application(client_max_size=0)
        app.router.add_get("/stream", self.stream)
        app.router.add_route("*", "/{tail:.*}", self.handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        assert runner.server is not None
        self.network.serve("provider.test", 443, runner.server)
        async with aiohttp.ClientSession("https://provider.test", connector=self.network.connector()) as session:
            yield session
        await runner.cleanup()

    def run(self, story: Callable[[aiohttp.ClientSession], Coroutine[Any, Any, T]]) -> T:
        """Run `story` against the served provider."""

        async def whole() -> T:
            async with self.up() as session:
                return await story(session)

        return self.loop.run_until_complete(whole())


def test_a_client_and_a_server_talk_and_keep_their_connection(loop: VirtualLoop) -> None:
    toy = Toy(loop)

    async def story(session: aiohttp.ClientSession) -> None:
        for number in range(5):
            async with session.post(f"/jobs/{number}", json={"n": number}) as answer:
                assert answer.status == 200
                assert (await answer.json())["size"] == 8
            await asyncio.sleep(30)

    toy.run(story)
    assert toy.seen == [f"POST /jobs/{number}" for number in range(5)]
    assert len(toy.peers) == 1


def test_large_bodies_stream_both_ways_with_back_pressure(loop: VirtualLoop) -> None:
    toy = Toy(loop)

    async def upload() -> AsyncIterator[bytes]:
        for number in range(80):
            yield bytes([number]) * 65536

    async def story(session: aiohttp.ClientSession) -> None:
        async with session.get("/stream") as answer:
            await asyncio.sleep(10)
            assert 0 < toy.sent < 20
            whole = await answer.read()
        assert whole == b"".join(bytes([number]) * 65536 for number in range(80))
        async with session.post("/jobs", data=upload()) as answer:
            assert await answer.json() == {"size": 80 * 65536, "sha256": hashlib.sha256(whole).hexdigest()}

    toy.run(story)


def always(fault: Fault, host: str, head: bytes) -> Fault:
    """A hook that does the same to all."""
    return fault


def test_each_network_fault_shows_as_itself(loop: VirtualLoop) -> None:
    cases: list[tuple[str, Fault, type[BaseException], bool]] = [
        ("refused", REFUSED, aiohttp.ClientConnectorError, False),
        ("slow to connect", Fault(connect_delay=math.inf), aiohttp.ConnectionTimeoutError, False),
        ("request lost", LOST_REQUEST, aiohttp.ServerDisconnectedError, False),
        ("request cut", Fault(request_bytes=40), aiohttp.ServerDisconnectedError, False),
        ("request late", Fault(request_delay=100), aiohttp.SocketTimeoutError, False),
        ("answer lost", LOST_ANSWER, aiohttp.ClientOSError, True),
        ("answer cut in its head", Fault(answer_bytes=20), aiohttp.ServerDisconnectedError, True),
        ("answer cut in its body", Fault(answer_bytes=170), aiohttp.ClientPayloadError, True),
        ("answer reset in its body", Fault(answer_bytes=170, reset=True), aiohttp.ClientPayloadError, True),
        ("answer late", Fault(answer_delay=100), aiohttp.SocketTimeoutError, True),
        ("black hole", Fault(answer_delay=math.inf), aiohttp.SocketTimeoutError, True),
    ]
    toy = Toy(loop)
    limits = aiohttp.ClientTimeout(total=None, connect=20, sock_read=60)

    async def story(session: aiohttp.ClientSession) -> None:
        for name, fault, expected, arrives in cases:
            async with aiohttp.ClientSession("https://provider.test", connector=toy.network.connector()) as fresh:
                toy.network.fault = functools.partial(always, fault)
                toy.seen.clear()
                began = loop.time()
                with pytest.raises(expected) as caught:
                    async with fresh.post("/jobs", json={}, timeout=limits) as answer:
                        await answer.read()
                assert type(caught.value) is expected, name
                assert loop.time() - began <= 60, name
                assert toy.seen == (["POST /jobs"] if arrives else []), name
                if fault is REFUSED:
                    assert isinstance(caught.value, OSError)
                    assert caught.value.errno == errno.ECONNREFUSED
        toy.network.fault = lambda _host, _head: Fault(answer_delay=40)
        async with session.post("/jobs", timeout=limits) as answer:
            assert answer.status == 200
        toy.network.fault = lambda _host, _head: None
        with pytest.raises(aiohttp.ClientConnectorDNSError):
            await session.get("https://nowhere.test/")
        toy.network.stop("provider.test", 443)
        toy.network.serve("provider.test", 80, asyncio.Protocol)
        async with aiohttp.ClientSession("https://provider.test", connector=toy.network.connector()) as fresh:
            with pytest.raises(aiohttp.ClientConnectorError):
                await fresh.get("/")

    toy.run(story)


def test_a_fault_befalls_one_request_of_a_connection_that_is_used_again(loop: VirtualLoop) -> None:
    """aiohttp itself sends an idempotent request once more when a *used* connection breaks; a POST it does not."""
    toy = Toy(loop)

    def fault(host: str, head: bytes) -> Fault | None:
        return LOST_ANSWER if b" /bad" in head and not toy.seen.count("GET /bad") else None

    async def story(session: aiohttp.ClientSession) -> None:
        toy.network.fault = fault
        await session.post("/good")
        with pytest.raises(aiohttp.ClientOSError):
            await session.post("/bad")
        await session.post("/good")
        await session.get("/bad")

    toy.run(story)
    assert toy.seen == ["POST /good", "POST /bad", "POST /good", "GET /bad", "GET /bad"]


# -- a small daemon: a server that writes rows, and a client that keeps its acknowledgements ---------------------------


class HookedConnection(sqlite3.Connection):
    """What a store hands in as `factory`."""

    before_commit: Callable[[], None] | None = None
    after_commit: Callable[[], None] | None = None

    def commit(self) -> None:
        """COMMIT between the two hooks."""
        if self.before_commit is not None:
            self.before_commit()
        super().commit()
        if self.after_commit is not None:
            self.after_commit()


class Life:
    """One life of the toy daemon on one database; `acks` is what the client was told."""

    def __init__(self, path: Path, *, opener: Opener = InlineSqlite, seed: int = 1, trace: Trace | None = None) -> None:
        self.path = path
        self.loop = VirtualLoop()
        self.dice = SeededDice(seed)
        self.network = MemoryNetwork(self.loop, trace)
        self.opener = opener(self.loop)
        self.acks: list[str] = []
        self.refused: list[str] = []
        self.ack_first = False
        self.factory: type[HookedConnection] = HookedConnection

    async def handle(self, request: web.Request) -> web.Response:
        """One row, one commit, one answer."""
        row = await request.text()
        if self.ack_first:
            self.network.loop.create_task(self.write(row))
        else:
            await self.write(row)
        return web.Response()

    async def write(self, row: str) -> None:
        """A transaction; its `finally` runs also when the coroutine is thrown away."""
        async with self.writer:
            try:
                await self.store.execute_fetchall("BEGIN IMMEDIATE")
                await self.store.execute_fetchall("INSERT INTO rows VALUES (?)", (row,))
            finally:
                try:
                    await self.store.commit()
                except Dead:
                    self.refused.append(row)
                    raise
        self.network.note("committed", row.encode())

    async def post(self, session: aiohttp.ClientSession, number: int) -> None:
        """Post until a 200 comes."""
        row = self.dice.identifier(f"row-{number}-")
        for _ in range(20):
            await asyncio.sleep(self.dice.draw())
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.post("/", data=row) as answer:
                    if answer.status == 200:
                        self.acks.append(row)
                        return

    async def story(self, clients: int) -> None:
        """Serve, post, stop in order."""
        self.writer = asyncio.Lock()
        self.store = await self.opener(str(self.path), factory=self.factory)
        await self.store.execute_fetchall("PRAGMA journal_mode = WAL")
        await self.store.execute_fetchall("CREATE TABLE IF NOT EXISTS rows (name TEXT) STRICT")
        app = web.Application()
        app.router.add_post("/", self.handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        assert runner.server is not None
        self.network.serve("daemon.test", 80, runner.server)
        limits = aiohttp.ClientTimeout(total=10)
        connector = self.network.connector()
        session = aiohttp.ClientSession("http://daemon.test", connector=connector, timeout=limits)
        async with session, asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(self.post(session, number))
        await runner.cleanup()
        await self.store.close()

    def run(self, clients: int = 1) -> bool:
        """Whether the life came to its own end; else it crashed. Nothing of it is left either way."""
        try:
            self.loop.run_until_complete(self.story(clients))
        except Crash:
            return False
        else:
            assert self.loop.complaints == []
            return True
        finally:
            dispose(self.loop)


def rows(path: Path) -> list[str]:
    """What a reader finds in the file afterwards."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'rows'").fetchall():
            return []
        return [name for (name,) in database.execute("SELECT name FROM rows ORDER BY rowid")]


def sweep(folder: Path, *, ack_first: bool, opener: Opener = InlineSqlite, stride: int = 1) -> tuple[int, int, int]:
    """Crash at every step: how many lives, how many of them with a row, how many with an ack that has no row."""
    with_row = broken = 0
    for step in range(0, 10_000, stride):
        life = Life(folder / f"{step}.db", opener=opener)
        life.ack_first = ack_first
        life.loop.crash_at_step = step
        ended = life.run()
        if ended:
            return step, with_row, broken
        found = rows(life.path)
        with_row += bool(found)
        broken += any(ack not in found for ack in life.acks)
    raise AssertionError("the story never came to its end")


def test_a_crash_at_any_step_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    lives, with_row, broken = sweep(tmp_path, ack_first=False)
    assert lives > 40
    assert 0 < with_row < lives
    assert broken == 0


def test_the_sweep_would_find_an_acknowledgement_before_the_commit(tmp_path: Path) -> None:
    _, _, broken = sweep(tmp_path, ack_first=True)
    assert broken > 0


def test_a_crash_sweep_over_the_real_thread_finds_the_same(tmp_path: Path) -> None:
    _, _, broken = sweep(tmp_path, ack_first=False, opener=ThreadedSqlite, stride=5)
    assert broken == 0


@pytest.mark.parametrize("opener", [InlineSqlite, ThreadedSqlite])
@pytest.mark.parametrize("edge", ["before_commit", "after_commit"])
def test_a_crash_in_a_commit_hook_stops_the_loop_at_once(tmp_path: Path, edge: str, opener: Opener) -> None:
    life = Life(tmp_path / "rows.db", opener=opener)
    stopped_at: list[int] = []

    def die() -> None:
        stopped_at.append(life.loop.steps)
        life.loop.crash()

    life.factory = type("Dying", (HookedConnection,), {edge: staticmethod(die)})
    assert not life.run()
    assert stopped_at == [life.loop.steps]
    assert life.acks == []
    assert len(rows(life.path)) == (edge == "after_commit")


def test_a_dead_store_refuses_before_it_touches_the_file(tmp_path: Path) -> None:
    """The `finally` of a thrown-away coroutine would otherwise commit what the crash should have lost."""
    refusals = 0
    for step in range(10, 60):
        life = Life(tmp_path / f"{step}.db")
        life.loop.crash_at_step = step
        life.run()
        assert not set(life.refused) & set(rows(life.path))
        refusals += len(life.refused)
    assert refusals > 0


def test_time_goes_on_in_the_next_life(tmp_path: Path) -> None:
    first = VirtualLoop()
    first.call_later(50, first.stop)
    first.run_forever()
    dispose(first)
    second = VirtualLoop(start=first.time())
    second.run_until_complete(asyncio.sleep(10))
    dispose(second)
    assert second.time() == 60


# -- determinism -------------------------------------------------------------------------------------------------------


def busy_digest(path: Path, seed: int, opener: Opener = InlineSqlite) -> str:
    """Forty clients under random faults, to the end."""
    trace = Trace()
    life = Life(path, seed=seed, trace=trace, opener=opener)
    faults = SeededDice(seed)
    menu = [
        REFUSED,
        LOST_REQUEST,
        LOST_ANSWER,
        Fault(answer_bytes=30),
        Fault(answer_delay=20),
        Fault(request_delay=0.3),
    ]
    life.network.fault = lambda _host, _head: menu[int(faults.draw() * 6)] if faults.draw() < 0.4 else None
    assert life.run(clients=40)
    assert set(rows(path)) >= set(life.acks)
    assert len(life.acks) > 30
    return trace.hexdigest()


def test_the_same_seed_makes_the_same_history(tmp_path: Path) -> None:
    first = busy_digest(tmp_path / "a.db", 7)
    assert busy_digest(tmp_path / "b.db", 7) == first
    assert busy_digest(tmp_path / "c.db", 8) != first
    assert busy_digest(tmp_path / "d.db", 7, ThreadedSqlite) == first
    script = (
        "import pathlib, sys; from tests.simulation.test_ground import busy_digest; "
        "print(busy_digest(pathlib.Path(sys.argv[1]), 7))"
    )
    for hash_seed in ("0", "4242"):
        printed = subprocess.run(
            [sys.executable, "-W", "error", "-c", script, str(tmp_path / f"{hash_seed}.db")],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert (printed.stdout.strip(), printed.stderr) == (first, "")

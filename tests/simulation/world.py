"""A whole world: the real daemon, life after life, between one client and one provider that outlive it.

`SimWorld` holds what a crash cannot touch: the state directory, the provider, what the client was told, the trace and
the time. `live` runs one life of the process: a fresh loop, the assembled daemon with its real client and servers over
a network in memory, its real SQLite file and its real files. A crash is a dead stop; the next life finds the disk.
"""

import asyncio
import contextlib
import hashlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import aiohttp
import structlog
from aiohttp import web, web_app
from structlog.testing import LogCapture

from daemon.assembly import Daemon, assemble
from daemon.config import parse
from daemon.rooms import Seams
from daemon.standin.openai_face import build_app
from daemon.standin.scenarios import Scenario, find_scenario
from reconcile.errors import StoreBroken
from reconcile.store.schema import read_only_uri
from reconcile.store.writer import Hooks
from tests.simulation import receiver
from tests.simulation.client import NAME, START, Client
from tests.simulation.inline_sqlite import InlineSqlite, ThreadedSqlite
from tests.simulation.loop import Crash, VirtualLoop, dispose
from tests.simulation.provider import Provider
from tests.simulation.seams import CountingMeters, DirectSupervisor, SeededDice, VirtualClock
from tests.simulation.transports import Fault, MemoryNetwork, Trace

#: Unix ms at the beginning of each world; arbitrary.
EPOCH_MS: Final = 1_800_000_000_000
#: How long the process stays down after a crash, virtual seconds; arbitrary.
DOWN_SECONDS: Final = 1.0
#: When a life is given up that has not come to its story's end, virtual seconds: above every deadline of `config`.
PATIENCE_SECONDS: Final = 2 * 3600.0
DAEMON, PROVIDER = "daemon.test", "provider.test"
API_PORT, HOOKS_PORT, PROVIDER_PORT = 8787, 8786, 443
API = f"http://{DAEMON}:{API_PORT}"
ENVIRON: Final = {
    "KEY": "sk-simulated-key",
    "SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "CI_0": receiver.SECRETS[0],
    "CI_1": receiver.SECRETS[1],
}
CALLBACKS: Final = {"ci": {"url": receiver.URL, "secrets": [{"env": "CI_0"}, {"env": "CI_1"}]}}
#: Poll numbers small against the job's four seconds, so that each road (poll, ring, sweep) is walked.
POLL: Final = {"base": "2s", "cap": "20s", "sweep": "30s"}
#: The product's own lease, typed by hand.
LEASE_MS: Final = 60_000
Opener = type[InlineSqlite] | type[ThreadedSqlite]
#: Of a commit: killed before or after it; or it ends in an I/O error, and was lost, or was kept all the same.
Edge = Literal["before", "after", "lost", "kept"]


@dataclass(slots=True)
class Life:
    """One life of the process, as it was seen from outside."""

    number: int
    began_ms: int
    ended: bool = False
    steps: int = 0
    commits: int = 0
    file_steps: int = 0
    #: What must be empty after a life that came to its end: complaints of the loop, failed tasks, error logs.
    troubles: list[str] = field(default_factory=list)
    #: The story's end did not come within `PATIENCE_SECONDS`.
    stalled: bool = False
    #: Why it gave up its file; empty: it did not.
    broken: str = ""
    log: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Where the process is killed: after so many steps, at an edge of a commit, or at a step of a file (from 1)."""

    step: int | None = None
    commit: tuple[int, Edge] | None = None
    file_step: int | None = None


NEVER: Final = CrashPoint()


class SimWorld:
    """Everything of one seed. `faults` is asked as `MemoryNetwork.fault` is, in every life until it is set anew."""

    def __init__(
        self,
        folder: Path,
        seed: int = 1,
        *,
        scenario: str | Scenario = "normal",
        poll: Mapping[str, str] = POLL,
        calls_back: Callable[[int], str] | None = None,
    ) -> None:
        self.seed = seed
        self.state_dir = folder / "state"
        self.database = self.state_dir / "reconciled.db"
        self.trace = Trace()
        self.time = 0.0
        #: Who is called back, where that was asked for: what becomes of the n-th delivery that arrives there.
        self.receiver = None if calls_back is None else receiver.Receiver(self.database, calls_back)
        start = START if self.receiver is None else {**START, "callback_url": receiver.URL}
        self.client = Client(API, start)
        #: When a life is given up, virtual seconds.
        self.patience = PATIENCE_SECONDS
        self.lives: list[Life] = []
        self.faults: Callable[[str, bytes], Fault | None] = lambda _host, _head: None
        #: Told of each commit of each life, while nothing else happens.
        self.on_commit: Callable[[Process], None] = lambda _: None
        chosen = scenario if isinstance(scenario, Scenario) else find_scenario(scenario)
        ids = SeededDice(f"{seed}/provider").identifier
        self.provider = Provider(chosen, ids=ids, database=self.database, api_key=ENVIRON["KEY"])
        self._poll = poll
        self.configure({} if self.receiver is None else {"callbacks": CALLBACKS})
        self.state_dir.mkdir(parents=True)

    def configure(self, sections: Mapping[str, Any]) -> None:
        """The configuration of the lives to come, with further sections."""
        document = {**config(self.state_dir, self._poll), **sections}
        self.config = parse(document, ENVIRON, file="simulated.toml")

    def live(
        self,
        point: CrashPoint = NEVER,
        *,
        opener: Opener = InlineSqlite,
        until: "Callable[[Process], Coroutine[Any, Any, None]] | None" = None,
    ) -> Life:
        """Run the next life up to `until` (the end of the story), or up to the crash point if that comes first."""
        process = self.process(point, opener, until or story_ends)
        self.lives.append(process.life)
        try:
            process.loop.run_until_complete(process.main())
            process.life.ended = True
        except Crash:
            pass
        except StoreBroken as fault:
            process.life.broken = str(fault)
        finally:
            process.bury()
        self.time = process.loop.time()
        if not process.life.ended:
            self.time += DOWN_SECONDS
            self.provider.break_off(self.now_ms)
        return process.life

    def process(
        self, point: CrashPoint, opener: Opener, until: "Callable[[Process], Coroutine[Any, Any, None]]"
    ) -> "Process":
        """The next life's."""
        return Process(self, point, opener, until)

    @property
    def now_ms(self) -> int:
        """Unix ms between two lives."""
        return EPOCH_MS + round(self.time * 1000)

    def waiting(self) -> int:
        """How many deliveries of the outbox are still to be sent."""
        with contextlib.closing(sqlite3.connect(read_only_uri(str(self.database)), uri=True)) as connection:
            sql = "SELECT count(*) FROM deliveries WHERE state = 'waiting'"
            return int(connection.execute(sql).fetchone()[0])

    def digest(self) -> str:
        """Of everything that went over the network, and of the history that was written."""
        connection = sqlite3.connect(read_only_uri(str(self.database)), uri=True)
        with contextlib.closing(connection):
            heads = connection.execute("SELECT head FROM operations ORDER BY key").fetchall()
        return hashlib.sha256(repr((self.trace.hexdigest(), heads)).encode()).hexdigest()


class Process:
    """One life: loop, network, seams, daemon, and the people outside who talk to it."""

    def __init__(
        self,
        world: SimWorld,
        point: CrashPoint,
        opener: Opener,
        until: "Callable[[Process], Coroutine[Any, Any, None]]",
    ) -> None:
        self.world = world
        self.life = Life(len(world.lives) + 1, world.now_ms)
        self.loop = VirtualLoop(start=world.time, crash_at_step=point.step)
        self.network = MemoryNetwork(self.loop, world.trace)
        self.network.fault = lambda host, head: world.faults(host, head)
        self.clock = VirtualClock(self.loop, EPOCH_MS)
        #: The provider's: a step of the daemon's wall clock does not move it.
        self.outside = VirtualClock(self.loop, EPOCH_MS)
        self.supervisor = DirectSupervisor(self.loop)
        self.capture = LogCapture()
        self.opener = opener(self.loop)
        self.daemon: Daemon
        self.writer: asyncio.Task[None]
        self._point = point
        self._until = until
        self._log = structlog.wrap_logger(
            None,
            processors=[structlog.processors.add_log_level, self.capture],
            wrapper_class=structlog.make_filtering_bound_logger(20),
        )
        # After the handles: a coroutine thrown away runs its `finally`, and must not find the dead process's files.
        self._away = world.state_dir.with_name("away")
        self.loop.last_rites.append(self._take_away)

    def bury(self) -> None:
        """Throw the process away, and note what it had to say."""
        self.life.steps = self.loop.steps
        self.life.log = list(self.capture.entries)
        self.life.troubles += [str(complaint) for complaint in self.loop.complaints]
        self.life.troubles += [f"{name}: {error!r}" for name, error in self.supervisor.failures]
        self.life.troubles += [str(entry) for entry in self.capture.entries if entry["log_level"] == "error"]
        web_app._cached_build_middleware.cache_clear()  # it would keep the last 1024 lives alive
        logging.disable()  # aiohttp tells its log of coroutines that are thrown away
        try:
            dispose(self.loop)
        finally:
            logging.disable(logging.NOTSET)
        self._away.rename(self.world.state_dir)

    def _take_away(self) -> None:
        self.world.state_dir.rename(self._away)

    async def main(self) -> None:
        """Provider and daemon up, the story, both down again in order."""
        async with self._provider(), self._receiver(), self._daemon() as daemon:
            self.daemon = daemon
            story = self.supervisor.start("story", self._until(self))
            await asyncio.wait({story, self.writer}, timeout=self.world.patience, return_when=asyncio.FIRST_COMPLETED)
            if self.writer.done():
                self.writer.result()
            self.life.stalled = not story.done()
            story.cancel()
            await asyncio.wait({story})
            if not story.cancelled():
                story.result()

    def session(self, **more: Any) -> aiohttp.ClientSession:
        """A session of somebody outside."""
        return aiohttp.ClientSession(connector=self.network.connector(), **more)

    def client_session(self) -> aiohttp.ClientSession:
        """A session of somebody who holds the token."""
        headers = {"Authorization": f"Bearer {self.daemon.token}"}
        return self.session(headers=headers, timeout=aiohttp.ClientTimeout(total=60))

    @asynccontextmanager
    async def _provider(self) -> AsyncIterator[None]:
        face = build_app(
            self.world.provider,
            self.outside,
            self.supervisor,
            webhook_url=f"http://{DAEMON}:{HOOKS_PORT}/webhooks/{NAME}",
            webhook_secret=ENVIRON["SECRET"],
            session_factory=lambda: self.session(timeout=aiohttp.ClientTimeout(total=15)),
            log=self._log,
        )
        async with self._served(self.world.provider.watch.over(face, self.outside.now), PROVIDER, PROVIDER_PORT):
            yield

    @asynccontextmanager
    async def _receiver(self) -> AsyncIterator[None]:
        if self.world.receiver is None:
            yield
            return
        async with self._served(self.world.receiver.app(self.outside.now), receiver.ADDRESS, receiver.PORT):
            yield

    @asynccontextmanager
    async def _daemon(self) -> AsyncIterator[Daemon]:
        """As `daemon.service.serve`, without sockets, signals and the lock."""
        daemon = await assemble(self.world.config, self._seams(), local_hosts=frozenset({f"{DAEMON}:{API_PORT}"}))
        stop = asyncio.Event()
        self.writer = writer = self.supervisor.start("writer", daemon.store.run())
        await daemon.recover()
        worker = self.supervisor.start("worker", daemon.worker.run(stop))
        watchman = self.supervisor.start("watchman", daemon.watchman.run(stop))
        outbox = self.supervisor.start("outbox", daemon.outbox.run(stop))
        upkeep = self.supervisor.start("upkeep", daemon.upkeep.run(stop))
        async with AsyncExitStack() as listeners:
            await listeners.enter_async_context(self._served(daemon.local, DAEMON, API_PORT))
            await listeners.enter_async_context(self._served(daemon.public, DAEMON, HOOKS_PORT))
            yield daemon
            stop.set()
            daemon.worker.wake(0)
            daemon.watchman.wake()
            daemon.outbox.wake()
        await asyncio.wait({worker, watchman, upkeep, outbox})
        await daemon.upkeep.close()
        daemon.store.stop()
        await asyncio.wait({writer})
        writer.result()
        await daemon.outbox.close()
        await daemon.client.close()
        await daemon.store.close()

    @asynccontextmanager
    async def _served(self, app: web.Application, host: str, port: int) -> AsyncIterator[None]:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=2)
        await runner.setup()
        assert runner.server is not None
        self.network.serve(host, port, runner.server)
        yield
        self.network.stop(host, port)
        await runner.cleanup()

    def _seams(self) -> Seams:
        return Seams(
            clock=self.clock,
            dice=SeededDice(f"{self.world.seed}/{self.life.number}"),
            supervisor=self.supervisor,
            meters=CountingMeters(),
            opener=self.opener,
            connector=self.network.connector,
            log=self._log,
            hooks=Hooks(before_commit=self._before_commit, after_commit=self._after_commit),
            file_hook=self._at_file_step,
            resolver=receiver.Names,
        )

    def _before_commit(self, _: object) -> None:
        self.life.commits += 1
        if self._point.commit == (self.life.commits, "before"):
            self.loop.crash()
        if self._point.commit == (self.life.commits, "lost"):
            raise io_error()

    def _after_commit(self, _: object) -> None:
        self.world.on_commit(self)
        if self._point.commit == (self.life.commits, "after"):
            self.loop.crash()
        if self._point.commit == (self.life.commits, "kept"):
            raise io_error()

    def _at_file_step(self, _step: str, _path: Path) -> None:
        self.life.file_steps += 1
        if self._point.file_step == self.life.file_steps:
            self.loop.crash()


def io_error() -> sqlite3.OperationalError:
    """As SQLite gives it of a disk that fails."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    return error


async def story_ends(process: Process) -> None:
    """The client comes to its end, and then the provider's last webhooks are taken."""
    async with process.client_session() as session:
        await process.world.client.run(session)
    await all_is_delivered(process)
    await nobody_waits_to_be_called(process)


async def nobody_waits_to_be_called(process: Process) -> None:
    """Each delivery of the outbox was taken, or given up."""
    while process.world.receiver is not None and process.world.waiting():  # noqa: ASYNC110 - a stranger is not told
        await asyncio.sleep(5)


async def all_is_delivered(process: Process) -> None:
    """The provider has sent what it had to send."""
    while process.world.provider.owes(process.outside.now()):  # noqa: ASYNC110 - the account is pure: it tells nobody
        await asyncio.sleep(0.25)


def config(state_dir: Path, poll: Mapping[str, str]) -> dict[str, Any]:
    """The configuration file of a simulated daemon, parsed."""
    return {
        "state_dir": str(state_dir),
        "providers": {
            NAME: {
                "kind": "openai_batch",
                "base_url": f"https://{PROVIDER}/v1",
                "api_key": {"env": "KEY"},
                "webhook_secrets": [{"env": "SECRET"}],
                "poll": poll,
            }
        },
    }

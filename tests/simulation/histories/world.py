"""A random world: one daemon, life after life, between many clients and a provider of each creed."""

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from daemon.assembly import Daemon
from daemon.config import parse
from daemon.standin.anthropic_face import add_message_batches
from daemon.standin.openai_face import build_app
from reconcile.store.schema import read_only_uri
from tests.simulation import receiver
from tests.simulation.histories.accounts import DeclaredAccount
from tests.simulation.histories.configuration import SECRETS, document, hook_of, host_of
from tests.simulation.histories.faces import Sender, declared_face
from tests.simulation.histories.mischief import SpoilingWatch
from tests.simulation.histories.people import Customer
from tests.simulation.histories.scripts import CREEDS, STANDINS, Doom, Draws, Plan
from tests.simulation.histories.standins import StandIn
from tests.simulation.seams import SeededDice
from tests.simulation.transports import LOST_ANSWER, Fault
from tests.simulation.watch import Asking
from tests.simulation.world import API, DAEMON, EPOCH_MS, CrashPoint, Opener, Process, SimWorld

PORT: Final = 443
#: When a world is given up, virtual seconds: above all its deadlines, and what people may add to them.
PATIENCE_SECONDS: Final = 4 * 3600.0
#: Of a network: what may befall a request. A create is never late on its way there for longer than the time-outs.
NETWORK: Final = (
    Fault(refuse=True),
    Fault(request_bytes=0),
    Fault(request_bytes=50),
    Fault(answer_bytes=0, reset=True),
    Fault(answer_bytes=30),
    Fault(answer_bytes=300),
    Fault(answer_delay=3),
    Fault(answer_delay=70),
    Fault(request_delay=5),
)


@dataclass(frozen=True, slots=True)
class Send(Asking):
    """One request as it left the daemon, and the committed row that it left under."""

    at_ms: int
    life: int
    host: str
    method: str
    path: str
    trace_id: str
    row: Mapping[str, Any] | None
    #: What its network did to it; empty: nothing.
    fault: str = ""

    @property
    def has_effect(self) -> bool:
        """Whether it would change anything at the provider."""
        return self.method != "GET" and not self.path.startswith("/v1/files")


class HistoryWorld(SimWorld):
    """Everything of one plan, life after life."""

    def __init__(self, folder: Path, plan: Plan, *, opener: Opener | None = None) -> None:
        super().__init__(folder, plan.seed, calls_back=self._calls_back)
        self.plan = plan
        self.patience = PATIENCE_SECONDS
        self.scripts = {wish.script.name: wish.script for wish in plan.wishes}
        ids = SeededDice(f"{plan.seed}/providers").identifier
        self.accounts = {
            creed.name: DeclaredAccount(creed, self.scripts, ids) for creed in CREEDS if creed.name in plan.providers
        }
        self.standins = {name: StandIn(self.scripts, ids) for name in STANDINS if name in plan.providers}
        self.customers = [Customer(wish, API, plan.seed) for wish in plan.wishes]
        self.sends: list[Send] = []
        #: (when, provider) of each webhook that was sent to the daemon.
        self.rings: list[tuple[int, str]] = []
        #: (when, host) of each connection that was refused: what was to be sent over it never left.
        self.refused: list[tuple[int, str]] = []
        #: Hosts that the daemon wanted to reach and nobody named.
        self.strangers: list[str] = []
        self.watches: dict[str, SpoilingWatch] = {}
        #: (what befell, the state of the operation that it befell).
        self.ledger: Counter[tuple[str, str]] = Counter()
        self.jumped = False
        #: In a history told by hand: what befalls a request beside what is drawn.
        self.told_fault: Callable[[str, bytes], Fault | None] = lambda _host, _head: None
        self._wall_offset_ms = 0
        self._dice = Draws(f"faults/{plan.seed}")
        self._opener = opener
        for name in self.senders:
            self.watches[name] = self._watch(name)
        self.faults = self._befalls
        self.config = parse(document(self.state_dir, plan.providers), SECRETS, file="simulated.toml")

    def _calls_back(self, n: int) -> str:
        replies = ("take", "take", "take", "slow", "500", "forget", "hang") if self.is_bad else ("take",)
        return str(Draws(f"receiver/{self.seed}/{n}").pick(replies))

    def _watch(self, name: str) -> SpoilingWatch:
        auth = ("X-Api-Key", SECRETS["KEY"]) if name == "anthropic" else ("Authorization", f"Bearer {SECRETS['KEY']}")
        watch = SpoilingWatch(auth, Draws(f"mischief/{self.seed}/{name}"))
        watch.badness = lambda: self.plan.badness if self.is_bad else 0.0
        watch.is_down = lambda: any(
            who == name and begins <= self._at() < ends for who, begins, ends in self.plan.outages
        )
        return watch

    @property
    def senders(self) -> Mapping[str, DeclaredAccount | StandIn]:
        """Whoever has jobs and may tell of them by webhooks: every provider, by its name."""
        return {**self.accounts, **self.standins}

    @property
    def is_bad(self) -> bool:
        """Whether networks and providers misbehave just now."""
        return self._at() < self.plan.bad_until

    @property
    def calm_since(self) -> float:
        """From when on nothing is broken any more, virtual seconds; the last life's beginning, if that is later."""
        outages = [ends for _, _, ends in self.plan.outages]
        begun = (self.lives[-1].began_ms - EPOCH_MS) / 1000 if self.lives else 0.0
        return max([self.plan.bad_until, begun, *outages])

    def _at(self) -> float:
        return self._process.loop.time() if self._process is not None else self.time

    _process: Process | None = None

    # ---- lives ----

    def run(self, after_a_crash: Callable[["HistoryWorld"], None] = lambda _: None) -> None:
        """All lives, up to the end of the story; `after_a_crash` is asked whenever one ended before."""
        for doom in self.plan.dooms:
            if self._lived(doom):
                return
            self._note_crash(doom)
            after_a_crash(self)
        self._lived(Doom())

    def _note_crash(self, doom: Doom) -> None:
        """For the ledger: how it ended, and the state of each operation that it left open."""
        if not self.database.exists():
            return
        name = f"stop:{doom.name}" if self.lives[-1].ended else f"crash:{doom.name}"
        with contextlib.closing(sqlite3.connect(read_only_uri(str(self.database)), uri=True)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schedule'").fetchall():
                return
            sql = "SELECT o.state, s.mark_at IS NOT NULL FROM operations o JOIN schedule s ON s.key = o.key"
            for state, is_marked in connection.execute(sql):
                self.ledger[name, f"{state}{'+mark' if is_marked else ''}"] += 1

    def _lived(self, doom: Doom) -> bool:
        """One life; whether the story came to its end in it."""
        point = CrashPoint(step=doom.step, commit=doom.commit, file_step=doom.file_step)  # type: ignore[arg-type]
        told: list[bool] = []

        async def until(process: Process) -> None:
            await self._story(process, doom.stop_after)
            # A stop in order may come while a callback waits for its next try: another life has to make it.
            told.append(all(customer.told.is_over for customer in self.customers) and not self.waiting())

        life = self.live(point, until=until, **({"opener": self._opener} if self._opener else {}))
        if not (life.ended and told and told[0]):
            for sender in self.senders.values():
                sender.break_off(self.now_ms)
        return life.ended and bool(told) and told[0]

    def born(self, process: Process) -> None:
        """A new life begins."""
        self._process = process
        process.clock.wall_offset_ms = self._wall_offset_ms
        jump = self.plan.jumps.get(process.life.number)
        if jump is not None:
            process.loop.call_later(jump.after, self._jump, process, jump.by_ms)

    def _jump(self, process: Process, by_ms: int) -> None:
        self.jumped = True
        if isinstance(process, HistoryProcess):
            for (state,) in process.reader().execute("SELECT state FROM operations WHERE completed_at IS NULL"):
                self.ledger["clock:forward" if by_ms > 0 else "clock:back", state] += 1
        process.clock.step_wall(by_ms)
        self._wall_offset_ms = process.clock.wall_offset_ms

    async def _story(self, process: Process, stop_after: float | None) -> None:
        """Everybody's wishes in this life, then the callbacks; or a stop in order before that."""
        async with process.client_session() as session:
            began = process.loop.time()
            tasks = {
                process.loop.create_task(customer.run(session, now=began))
                for customer in self.customers
                if not customer.told.is_over or not customer.has_claimed
            }
            if tasks:
                await asyncio.wait(tasks, timeout=stop_after)
            for task in tasks:
                if task.done():
                    task.result()
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            if stop_after is None:
                while self.waiting():  # noqa: ASYNC110 - a stranger is not told
                    await asyncio.sleep(600)

    def process(
        self, point: CrashPoint, opener: Opener, until: "Callable[[Process], Coroutine[Any, Any, None]]"
    ) -> Process:
        """The next life's."""
        return HistoryProcess(self, point, opener, until)

    # ---- the network ----

    def _befalls(self, host: str, head: bytes) -> Fault | None:
        process = self._process
        assert process is not None
        is_bad = self.is_bad and self._dice.chance(self.plan.badness / 2)
        fault: Fault | None = self._dice.pick(NETWORK) if is_bad else self.told_fault(host, head)
        if fault is not None and host == receiver.ADDRESS:
            fault = LOST_ANSWER  # late on its way there, its signature would be stale
        if fault is not None and fault.refuse and not head:
            self.refused.append((process.outside.now(), host))
        if host == DAEMON and head.startswith(b"POST /webhooks/"):
            self.rings.append((process.outside.now(), head.split(b" ", 2)[1].decode().rpartition("/")[2]))
        elif host.startswith("p-") and head:
            self._note_send(process, host, head, _name(fault) if fault is not None else "")
        elif host not in KNOWN and not host.startswith("p-"):
            self.strangers.append(host)
        return fault

    def _note_send(self, process: Process, host: str, head: bytes, fault: str) -> None:
        line, _, rest = head.partition(b"\r\n")
        method, path, _ = line.decode().split(" ")
        at = rest.find(b"traceparent: ")
        trace_id = rest[at + 13 : at + 61].decode().split("-")[1] if at >= 0 else ""
        row = self.committed(trace_id)
        if fault:
            self.ledger[f"network:{fault}", str(row["state"]) if row is not None else "?"] += 1
        now, path = process.outside.now(), path.partition("?")[0]
        self.sends.append(Send(now, process.life.number, host, method, path, trace_id, row, fault))

    def committed(self, trace_id: str) -> Mapping[str, Any] | None:
        """The row as everybody else can see it at this moment."""
        process = self._process
        if process is None or not isinstance(process, HistoryProcess):
            return None
        row = process.reader().execute(_COMMITTED, (trace_id,)).fetchone()
        return None if row is None else dict(zip(_COMMITTED_NAMES, row, strict=True))

    def notes_mischief(self, name: str, trace_id: str) -> None:
        """For the ledger."""
        row = self.committed(trace_id)
        self.ledger[f"answer:{name}", str(row["state"]) if row is not None else "?"] += 1


#: Hosts that are no provider's and may be reached all the same.
KNOWN: Final = frozenset({DAEMON, receiver.ADDRESS, receiver.HOST})
_COMMITTED_NAMES: Final = (
    "operation_id", "provider", "state", "token", "job", "mark_at", "lease_until", "deadline_at", "errors",
    "fence",
)  # fmt: skip
_COMMITTED: Final = (
    "SELECT o.operation_id, o.provider, o.state, o.token, o.remote_job_id, s.mark_at, s.lease_until, s.deadline_at,"
    " s.errors, s.fence FROM operations o LEFT JOIN schedule s ON s.key = o.key WHERE o.trace_id = ?"
)


def _name(fault: Fault) -> str:
    if fault.refuse:
        return "refused"
    if fault.request_bytes is not None:
        return "request_cut"
    if fault.answer_bytes is not None:
        return "answer_lost" if fault.answer_bytes == 0 else "answer_cut"
    return "request_late" if fault.request_delay else "answer_late"


class HistoryProcess(Process):
    """One life among many providers."""

    world: HistoryWorld

    def __init__(
        self,
        world: HistoryWorld,
        point: CrashPoint,
        opener: Opener,
        until: "Callable[[Process], Coroutine[Any, Any, None]]",
    ) -> None:
        super().__init__(world, point, opener, until)
        self._reader: sqlite3.Connection | None = None
        self.loop.last_rites.insert(0, self._close_reader)
        world.born(self)

    def reader(self) -> sqlite3.Connection:
        """A second connection that can only read, for looks at what is committed."""
        if self._reader is None:
            self._reader = sqlite3.connect(read_only_uri(str(self.world.database)), uri=True, isolation_level=None)
        return self._reader

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    @asynccontextmanager
    async def _daemon(self) -> AsyncIterator[Daemon]:
        async with super()._daemon() as daemon:
            yield daemon
        self._close_reader()

    @asynccontextmanager
    async def _provider(self) -> AsyncIterator[None]:
        world = self.world
        async with AsyncExitStack() as up:
            for name, account in world.accounts.items():
                sender = None
                if account.creed.webhooks:
                    session = await up.enter_async_context(self.session(timeout=aiohttp.ClientTimeout(total=15)))
                    secret = SECRETS["HOOK_STANDARD" if account.creed.webhooks == "standard" else "HOOK_HMAC"]
                    sender = Sender(account, self.outside, url=hook_of(name), secret=secret)
                    await up.enter_async_context(sender.sending(session))
                face = world.watches[name].over(declared_face(account, self.outside, sender), self.outside.now)
                await up.enter_async_context(self._served(face, host_of(name), PORT))
            for name, standin in world.standins.items():
                face = build_app(
                    standin,
                    self.outside,
                    self.supervisor,
                    webhook_url=hook_of(name) if name == "openai" else None,
                    webhook_secret=SECRETS["HOOK_STANDARD"] if name == "openai" else None,
                    session_factory=lambda: self.session(timeout=aiohttp.ClientTimeout(total=15)),
                    log=self._log,
                )
                if name == "anthropic":
                    add_message_batches(face, standin, self.outside)
                face = world.watches[name].over(face, self.outside.now)
                await up.enter_async_context(self._served(face, host_of(name), PORT))
            for watch in world.watches.values():
                watch.on_mischief = world.notes_mischief
            yield

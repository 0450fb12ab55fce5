"""A real store on a real file: its writer runs, and the file can be looked at from beside it.

Everything a test waits for is set by the code under test; `PATIENCE` only ends a test whose promise was broken.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from daemon.runtime import open_sqlite
from reconcile.chain import ChainedRow
from reconcile.contract import Contract
from reconcile.evidence import Accepted, Evidence, JobRead
from reconcile.ingest import judge_by
from reconcile.model import Change, Observation, Operation
from reconcile.states import State
from reconcile.store.claims import Claim, Claimed, ClaimWish
from reconcile.store.events import EventRecord, HasRead
from reconcile.store.evidence import Announce, Arrival, Judge
from reconcile.store.kept import ObservationRecord, RequestRecord
from reconcile.store.schema import Opener
from reconcile.store.starts import Started, StartRecord
from reconcile.store.store import Store, open_store
from reconcile.store.writer import Done, Hooks
from tests.reconcile.chains import verify
from tests.reconcile.rows import CONTRACT, NOW, in_state

#: Seconds after which something that should have happened is held not to happen any more.
PATIENCE: Final = 5.0
LEASE: Final = 60_000
WRITER: Final = "the writer"
#: States of an operation that has no job yet.
WITHOUT_JOB: Final = (State.CREATE_PENDING, State.CREATE_UNKNOWN, State.CREATE_UNRESOLVED)
TABLES: Final = (
    "completion_claims",
    "deliveries",
    "operations",
    "starts",
    "schedule",
    "history",
    "pauses",
    "providers",
    "sweeps",
    "notices",
    "checkpoints",
    "heads",
    "pruned",
    "event_ids",
    "pruned_events",
    "backup",
    "requests",
    "observations",
    "events",
    "items",
    "client_keys",
)
Dump = dict[str, list[tuple[Any, ...]]]


class Killed(BaseException):
    """The process ended here: no `except Exception` may take it for an answer of the database."""


# ---- values ----


def operation(n: int, state: State = State.OBSERVING, **over: Any) -> Operation:
    """The n-th operation, with ids of its own; job_n is its job where it has one."""
    own: dict[str, Any] = {"operation_id": f"op_{n}", "token": f"tok_{n}", "trace_id": f"{n:032x}"}
    if state not in WITHOUT_JOB:
        own["remote_job_id"] = f"job_{n}"
    return in_state(state, **{**own, **over})


def record(op: Operation, **over: Any) -> StartRecord:
    """A start of `op` as a client would cause it."""
    return replace(StartRecord(op, "client:ci", f"start:{op.operation_id}", "started"), **over)


def event(event_id: str, word: str | None = "running", job: str | None = "job_1", **over: Any) -> EventRecord:
    """A verified delivery that says `word` of `job`; its body differs with what it says."""
    body = f"{event_id} {word} {job}".encode("utf-8", "surrogatepass")
    given = EventRecord("test", event_id, body.hex(), body, NOW, 0.0, Observation(word, remote_job_id=job))
    return replace(given, **over)


def arrival(n: int, evidence: Evidence, **over: Any) -> Arrival:
    """Evidence for the n-th operation, gained without a lease unless `fence` is given."""
    given = Arrival(f"op_{n}", evidence, "worker", "observation:obs", NOW, 0.0)
    return replace(given, **over)


def exchange(name: str, observation: Observation | None = None) -> dict[str, Any]:
    """The records of one request and of what it showed, as `arrival` takes them."""
    return {
        "requests": (RequestRecord(f"req_{name}", "status", 1, NOW - 5, NOW, 200, None, None, "key"),),
        "observation": ObservationRecord(f"obs_{name}", "status", b'{"raw": true}', observation),
        "cause": f"observation:obs_{name}",
    }


def read(word: str | None, n: int = 1, **over: Any) -> JobRead:
    """A read of the n-th job that says `word`."""
    return JobRead(Observation(word, remote_job_id=f"job_{n}", **over))


def accepted(job: str, word: str | None = None) -> Accepted:
    """A create answer that names `job`."""
    return Accepted(Observation(word, remote_job_id=job))


def database_error(code: int) -> sqlite3.OperationalError:
    """What SQLite raises with that result code."""
    error = sqlite3.OperationalError(f"simulated error {code}")
    error.sqlite_errorcode = code
    return error


# ---- fault points ----


class Gate:
    """A fault point that holds SQLite's thread until the test lets it go on."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._open = threading.Event()

    def __call__(self, _: sqlite3.Connection) -> None:
        self._reached.set()
        assert self._open.wait(PATIENCE), "the test never opened the gate"

    async def reached(self) -> None:
        """Wait until SQLite's thread stands here."""
        assert await asyncio.to_thread(self._reached.wait, PATIENCE), "SQLite's thread never came here"

    def open(self) -> None:
        """Let it go on, now and ever after."""
        self._open.set()


def once(action: Callable[[sqlite3.Connection], object]) -> Callable[[sqlite3.Connection], None]:
    """A fault point that does `action` the first time and nothing afterwards."""
    left = [action]

    def hook(connection: sqlite3.Connection) -> None:
        if left:
            left.pop()(connection)

    return hook


def raising(error: BaseException) -> Callable[[sqlite3.Connection], None]:
    """A fault point that raises `error`, once."""

    def throw(_: sqlite3.Connection) -> None:
        raise error

    return once(throw)


def setting(pragma: str) -> Callable[[sqlite3.Connection], None]:
    """A fault point that changes a setting of the writer's connection."""

    def change(connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA {pragma}").fetchall()

    return change


class Statements:
    """A fault point that records each statement, and whether a transaction stood open when it began."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []

    def __call__(self, connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(lambda sql: self.seen.append((sql, connection.in_transaction)))

    def writes_to(self, table: str) -> list[str]:
        """Statements that changed rows of a table."""
        verbs = tuple(f"{verb} {table} " for verb in ("UPDATE", "INSERT INTO", "INSERT OR REPLACE INTO", "DELETE FROM"))
        return [sql for sql, _ in self.seen if sql.startswith(verbs)]

    @property
    def outside(self) -> list[str]:
        """Statements that ran while no transaction stood open."""
        return [sql for sql, inside in self.seen if not inside]


# ---- the file from beside ----


@contextlib.contextmanager
def beside(path: Path, *, writes: bool = False) -> Iterator[sqlite3.Connection]:
    """A second connection to the file; it may read only, unless said otherwise."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode={'rw' if writes else 'ro'}", uri=True)
    connection.isolation_level = None
    try:
        yield connection
    finally:
        connection.close()


def look(path: Path, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """What a query gives on a second, read-only connection: committed rows only."""
    with beside(path) as connection:
        return connection.execute(sql, parameters).fetchall()


def content(path: Path) -> bytes:
    """The file's own bytes, without its journal."""
    return path.read_bytes()


def dump(path: Path, *tables: str) -> Dump:
    """All rows of the named tables, else of every table."""
    with beside(path) as connection:
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)  # noqa: S608 - our names
            for table in tables or TABLES
        }


# ---- the store ----


@dataclass
class Ground:
    """One open store, and what its commits told."""

    path: Path
    store: Store
    hooks: Hooks
    writer: "asyncio.Task[None]"
    heard: list[list[Done]] = field(default_factory=list)
    _fault_was_seen: bool = False

    def look(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """As the function of that name."""
        return look(self.path, sql, *parameters)

    def one(self, sql: str, *parameters: Any) -> Any:
        """The one value of a query that gives one."""
        ((value,),) = self.look(sql, *parameters)
        return value

    def dump(self, *tables: str) -> Dump:
        """As the function of that name."""
        return dump(self.path, *tables)

    def schedule(self, n: int = 1) -> dict[str, Any]:
        """The narrow row of the n-th operation by column; empty where it has none."""
        with beside(self.path) as connection:
            connection.row_factory = sqlite3.Row
            sql = "SELECT s.* FROM schedule s JOIN operations o ON o.key = s.key WHERE o.operation_id = ?"
            row = connection.execute(sql, (f"op_{n}",)).fetchone()
            return dict(row) if row is not None else {}

    async def start(self, *operations: Operation) -> None:
        """Put operations as they are into the file."""
        for answer in await together(*(self.store.start(record(op)) for op in operations)):
            assert isinstance(answer, Started), answer

    async def get(self, n: int = 1) -> Operation:
        """The n-th operation as it stands."""
        op = await self.store.get(f"op_{n}")
        assert op is not None
        return op

    async def apply(self, n: int, evidence: Evidence, **over: Any) -> Change:
        """Bring evidence to the n-th operation."""
        change: Change = await self.store.apply(arrival(n, evidence, **over))
        return change

    async def claim(self, owner: str = "A", *, now: int = NOW, room: int = 10, provider: str = "test") -> Claimed:
        """Claim due rows of one provider."""
        return await self.store.claim(ClaimWish(owner, now, LEASE, {provider: room}))

    async def claim_one(self, owner: str = "A", *, now: int = NOW) -> Claim:
        """Claim the one row that is due."""
        claimed = await self.claim(owner, now=now)
        assert len(claimed.claims) == 1
        return claimed.claims[0]

    async def history(self, n: int = 1) -> list[tuple[str, str | None]]:
        """The n-th operation's history as (kind, to_state)."""
        return [(row.kind, row.to_state) for row in await self.store.history(f"op_{n}")]

    async def fault(self) -> BaseException | None:
        """Wait until the writer's loop has ended, and say with what."""
        self._fault_was_seen = True
        done, _ = await asyncio.wait({self.writer}, timeout=PATIENCE)
        assert done, "the writer's loop goes on"
        return None if self.writer.cancelled() else self.writer.exception()

    def check_chains(self) -> None:
        """That every operation's history is whole and ends where its row says, and positions have no gap."""
        sql = (
            "SELECT h.position, o.operation_id, h.seq, h.at, h.actor, h.kind, h.from_state, h.to_state, h.cause,"
            " h.remote_job_id, h.reason, h.facts, h.hash FROM history h JOIN operations o ON o.key = h.operation_key"
            " WHERE o.operation_id = ? ORDER BY h.seq"
        )
        for operation_id, seq, head in self.look("SELECT operation_id, seq, head FROM operations"):
            chain = [(ChainedRow(*row[:-1]), row[-1]) for row in self.look(sql, operation_id)]
            assert verify(chain, head=head, length=seq) is None
        positions = [row[0] for row in self.look("SELECT position FROM history ORDER BY position")]
        assert positions == list(range(1, len(positions) + 1))

    async def end(self) -> None:
        """Stop, let what waits be committed, close; a fault of the writer that no test asked for is raised."""
        self.hooks.before_begin = self.hooks.before_commit = self.hooks.after_commit = None
        self.store.stop()
        done, _ = await asyncio.wait({self.writer}, timeout=PATIENCE)
        if not done:
            self.writer.cancel()
        await self.store.close()
        assert done, "the writer's loop did not end"
        if not (self._fault_was_seen or self.writer.cancelled()) and (fault := self.writer.exception()):
            raise fault


@contextlib.asynccontextmanager
async def opened(
    path: Path,
    *,
    contract: Contract = CONTRACT,
    judge: Judge | None = None,
    announce: Announce = lambda _op, _event, _at: None,
    opener: Opener = open_sqlite,
    on_done: Callable[[Sequence[Done]], None] = lambda _: None,
) -> AsyncIterator[Ground]:
    """The store on `path`, its writer running until the block is left."""
    hooks = Hooks()
    heard: list[list[Done]] = []

    def hear(done: Sequence[Done]) -> None:
        heard.append(list(done))
        on_done(done)

    store = await open_store(
        str(path),
        opener=opener,
        judge=judge or judge_by(lambda _: contract),
        has_read=HasRead([] if contract.has_read else ["test"]),
        on_done=hear,
        announce=announce,
        hooks=hooks,
    )
    ground = Ground(path, store, hooks, asyncio.create_task(store.run(), name=WRITER), heard)
    try:
        yield ground
    finally:
        await ground.end()


async def together(*writes: Coroutine[Any, Any, Any]) -> list[Any]:
    """Hand in all writes before the writer looks, and give each one's result or exception, in order."""
    tasks = [asyncio.create_task(write) for write in writes]
    return await answers(tasks)


async def answers(tasks: "Sequence[asyncio.Task[Any]]") -> list[Any]:
    """Each task's result or exception; a task that is never answered fails the test and is thrown away."""
    ends = asyncio.get_running_loop().time() + PATIENCE
    waiting = set(tasks)
    while waiting and asyncio.get_running_loop().time() < ends:
        done, waiting = await asyncio.wait(waiting, timeout=0.5)
        if not done and WRITER not in {task.get_name() for task in asyncio.all_tasks()}:
            break  # nobody is left who could answer
    for task in waiting:
        task.cancel()
    assert not waiting, f"{len(waiting)} of {len(tasks)} callers were never answered"
    return [task.exception() or task.result() for task in tasks]


async def killed(ground: Ground, *writes: Coroutine[Any, Any, Any]) -> list[Any]:
    """Hand in writes whose batch kills the process, see it die, and give what callers were told before that."""
    tasks = [asyncio.create_task(write) for write in writes]
    fault = await ground.fault()
    for _ in range(5):
        await asyncio.sleep(0)
    told = [task.result() for task in tasks if task.done() and not task.exception()]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert isinstance(fault, Killed), fault
    return told

"""A real store on a real file: its writer runs, and the file can be looked at from beside it.

Everything a test waits for is set by the code under test; `PATIENCE` only ends a test whose promise was broken.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from daemon.runtime import open_sqlite
from reconcile.chain import ChainedRow
from reconcile.contract import Contract
from reconcile.ingest import judge_by
from reconcile.store.events import HasRead
from reconcile.store.evidence import Announce, Judge
from reconcile.store.schema import Opener
from reconcile.store.store import open_store
from reconcile.store.writer import Done, Hooks
from tests.conformance.owner import PATIENCE, WRITER, Edge, Owner
from tests.conformance.owner import Killed as Killed
from tests.conformance.owner import answers as answers
from tests.conformance.owner import killed as killed
from tests.conformance.owner import together as together
from tests.conformance.values import LEASE as LEASE
from tests.conformance.values import WITHOUT_JOB as WITHOUT_JOB
from tests.conformance.values import accepted as accepted
from tests.conformance.values import arrival as arrival
from tests.conformance.values import event as event
from tests.conformance.values import exchange as exchange
from tests.conformance.values import operation as operation
from tests.conformance.values import read as read
from tests.conformance.values import record as record
from tests.reconcile.chains import verify
from tests.reconcile.rows import CONTRACT

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


# ---- fault points ----


def database_error(code: int) -> sqlite3.OperationalError:
    """What SQLite raises with that result code."""
    error = sqlite3.OperationalError(f"simulated error {code}")
    error.sqlite_errorcode = code
    return error


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


@dataclass(frozen=True)
class HookFaults:
    """The faults that a test of any store can ask for, at SQLite's commit."""

    hooks: Hooks

    def kill(self, edge: Edge, *, commit: int = 1) -> None:
        """The process ends at one edge of a commit."""
        left = [commit]

        def hook(_: sqlite3.Connection) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        self._set(edge, hook)

    def refuse(self) -> None:
        """The disk is full at the next commit."""
        self.hooks.before_commit = raising(database_error(sqlite3.SQLITE_FULL))

    def lose(self, edge: Edge) -> None:
        """The disk fails at the next commit."""
        self._set(edge, raising(database_error(sqlite3.SQLITE_IOERR)))

    def hold(self, edge: Edge) -> Gate:
        """The next commit waits."""
        gate = Gate()
        self._set(edge, gate)
        return gate

    def _set(self, edge: Edge, hook: Callable[[sqlite3.Connection], None]) -> None:
        setattr(self.hooks, f"{edge}_commit", hook)


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


@dataclass(kw_only=True)
class Ground(Owner):
    """An owner whose file can be looked at."""

    path: Path
    hooks: Hooks

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
        """As of any owner; a fault point that was never reached is taken away."""
        self.hooks.before_begin = self.hooks.before_commit = self.hooks.after_commit = None
        await super().end()


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
    ground = Ground(
        store=store,
        writer=asyncio.create_task(store.run(), name=WRITER),
        faults=HookFaults(hooks),
        heard=heard,
        path=path,
        hooks=hooks,
    )
    try:
        yield ground
    finally:
        await ground.end()

"""A file as it stands after months: ended and open operations with all that hangs on them, events of all ages.

Rows are written by SQL, each with a date of the test's own; chains are whole, and checkpoints are the real notary's.
"""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import structlog

from reconcile.chain import ChainedRow
from reconcile.checkpoint import AuditKey, Head, PrunedHead, SignedCheckpoint, fault_of
from reconcile.merkle import Tree
from reconcile.model import Entry, EntryKind
from reconcile.notary import Notary
from reconcile.states import TERMINAL, State
from reconcile.store import checkpoints, history, rows
from reconcile.store.pruned_events import EventPruning, IdsKept
from reconcile.store.pruning import Pruned, Pruning
from reconcile.store.schema import prepare_writer
from tests.reconcile.chains import verify
from tests.reconcile.rows import DAY, NOW, in_state
from tests.reconcile.store.ground import WITHOUT_JOB, Dump, Ground

KEY: Final = AuditKey.made(b"k" * 32)
#: Kept so long, by the tests' own configuration; ids by the interface.
FINISHED: Final = 90 * DAY
IDS: Final = 7 * DAY
KEPT: Final = IdsKept({"test": NOW - IDS}, NOW - IDS)
#: Tables whose rows hang on an operation, with the column that names it.
HANGING: Final = {
    "starts": "operation_key",
    "schedule": "key",
    "history": "operation_key",
    "requests": "operation_key",
    "observations": "operation_key",
    "events": "operation_key",
    "items": "operation_key",
    "notices": "operation_key",
    "deliveries": "operation_key",
    "client_keys": "operation_key",
    "completion_claims": "operation_key",
}


class Still:
    """A clock that stands."""

    def now(self) -> int:
        return NOW

    def monotonic(self) -> float:
        return 0.0


@dataclass
class Aged:
    """Writes such a file; `connection` is the only one while it does."""

    connection: sqlite3.Connection
    keys: dict[int, int] = field(default_factory=dict)
    _names: Iterator[int] = field(default_factory=lambda: iter(range(1, 10**9)))

    def operation(self, n: int, state: State = State.SUCCEEDED, *, age: int = 100 * DAY, **over: Any) -> int:
        """The n-th operation, ended so long ago or open; its key."""
        job = None if state in WITHOUT_JOB else f"job_{n}"
        ended = NOW - age if state in TERMINAL else None
        own = {"operation_id": f"op_{n}", "token": f"tok_{n}", "trace_id": f"{n:032x}", "created_at": NOW - age - DAY}
        op = in_state(state, **{**own, "remote_job_id": job, "completed_at": ended, **over})
        key = self.keys[n] = rows.insert(self.connection, op)
        self.connection.execute("INSERT INTO starts VALUES (?, '{}', '{}')", (key,))
        if ended is None:
            sql = "INSERT INTO schedule (key, provider, priority, due_at) VALUES (?, 'test', 5, ?)"
            self.connection.execute(sql, (key, NOW + DAY))
        self.history(n, 2)
        return key

    def history(self, n: int, count: int = 1) -> None:
        """So many more rows of its history."""
        _, op = rows.by_ids(self.connection, [f"op_{n}"])[f"op_{n}"]
        entries = tuple(Entry(EntryKind.FACT, op.state, None, "observation:x", "told", {"n": n}) for _ in range(count))
        appender = history.Appender(self.connection)
        written = appender.append(self.keys[n], op, entries, at=NOW - DAY, actor="worker:boot")
        appender.flush()
        rows.update(self.connection, [(self.keys[n], replace(op, seq=written[-1].seq, head=written[-1].hash))])

    def items(self, n: int, count: int, attempt: int = 1) -> None:
        self._many("items", 9, [(self.keys[n], attempt, f"i{i}", i, "succeeded", "", 0, i, 1) for i in range(count)])

    def request(self, n: int, purpose: str = "status") -> str:
        name = f"req_{next(self._names)}"
        self._many("requests", 10, [(name, self.keys[n], purpose, 1, NOW, NOW, 200, None, None, "key")])
        return name

    def observation(self, n: int, request: str | None = None, *, road: str = "status", size: int = 900) -> None:
        name = f"obs_{next(self._names)}"
        row = (None, name, self.keys[n], NOW, road, "done", "done", "done", 1, None, request, 1, b"x" * size)
        self._many("observations", 13, [row])

    def page(self, *shown: int) -> str:
        """A list page that told news of several operations; its request stands under the first."""
        name = self.request(shown[0], "list")
        for n in shown:
            self.observation(n, name, road="list")
        return name

    def event(self, n: int | None, *, age: int, event_id: str | None = None, size: int = 200, repeats: int = 0) -> str:
        """An event of one operation, or of nobody's job."""
        name = event_id or f"evt_{next(self._names)}"
        key = None if n is None else self.keys[n]
        disposition = "unmatched" if n is None else "kept"
        row = (None, "test", name, f"{name} running job", NOW - age, "job", "running", "pending", key, disposition)
        self._many("events", 12, [(*row, repeats, b"x" * size)])
        return name

    def notice(self, n: int, *, age: int = 100 * DAY) -> None:
        """A contradiction that was told so long ago, and that nobody has acknowledged."""
        sql = "INSERT INTO notices (notice_id, reason, operation_key, since, message, evidence)"
        values = (f"contradiction.op_{n}", self.keys[n], NOW - age)
        self.connection.execute(f"{sql} VALUES (?, 'contradiction', ?, ?, 'told', '{{}}')", values)

    def delivery(self, n: int, state: str = "delivered", *, due_in: int | None = None) -> None:
        """A callback's delivery; one that waits comes due at so many ms from now."""
        columns = "delivery_id, operation_key, callback, url, type, body, created_at, state, due_at"
        values = (f"msg_{n}_{state}", self.keys[n], state, None if due_in is None else NOW + due_in)
        shape = "?, ?, 'ci', 'https://x/', 'operation.done', x'', 0, ?, ?"
        self.connection.execute(f"INSERT INTO deliveries ({columns}) VALUES ({shape})", values)  # noqa: S608

    def client_key(self, n: int) -> str:
        self._many("client_keys", 4, [(f"key-{n}", "content", self.keys[n], NOW)])
        return f"key-{n}"

    def claims(self, n: int, count: int) -> None:
        """So many consumers took its completion."""
        self._many("completion_claims", 5, [(self.keys[n], f"c{i}", NOW, "client:c", None) for i in range(count)])

    def _many(self, table: str, columns: int, values: list[tuple[Any, ...]]) -> None:
        self.connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * columns)})", values)  # noqa: S608


@contextmanager
def writing(path: Path, keys: dict[int, int] | None = None) -> Iterator[Aged]:
    """Write rows into a file that no store has open."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare_writer(connection)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        yield Aged(connection, keys if keys is not None else {})
        connection.execute("COMMIT")


async def sign(ground: Ground) -> SignedCheckpoint | None:
    """A checkpoint over all that moved."""
    log = structlog.wrap_logger(structlog.ReturnLogger())
    return await Notary(record=ground.store.record, key=KEY, clock=Still(), log=log).sign()


# ---- pruning it ------------------------------------------------------------------------------------------------------


def wish(**over: Any) -> Pruning:
    """What the loop asks for."""
    return replace(Pruning(NOW, NOW - FINISHED, KEPT), **over)


async def prune(ground: Ground) -> list[Pruned]:
    """Every slice there is."""
    done: list[Pruned] = []
    asked = wish()
    while not done or done[-1].has_gone_on:
        assert len(done) < 1_000, "it never comes to an end"
        done.append(await ground.store.record.prune(asked))
        asked = replace(asked, after=done[-1].after, passed_over=done[-1].passed_over)
    while await ground.store.record.prune_events(EventPruning(NOW - 30 * DAY, KEPT)):
        pass
    while await ground.store.record.prune_event_ids(KEPT):
        pass
    return done


# ---- what must hold --------------------------------------------------------------------------------------------------


def keys_of(dump: Dump) -> dict[int, tuple[Any, ...]]:
    """The rows of `operations` by key."""
    return {row[0]: row for row in dump["operations"]}


def check_file(path: Path) -> None:
    """That it is a sound file of SQLite, its chains and checkpoints whole, and nothing names what is not there."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as c:
        assert c.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert c.execute("PRAGMA foreign_key_check").fetchall() == []
        for operation_id, key, seq, head in c.execute("SELECT operation_id, key, seq, head FROM operations").fetchall():
            sql = (
                "SELECT position, ?, seq, at, actor, kind, from_state, to_state, cause, remote_job_id, reason, facts,"
                " hash FROM history WHERE operation_key = ? ORDER BY seq"
            )
            chain = [(ChainedRow(*row[:-1]), row[-1]) for row in c.execute(sql, (operation_id, key))]
            assert verify(chain, head=head, length=seq) is None
        before: SignedCheckpoint | None = None
        for row in c.execute(checkpoints.ALL).fetchall():
            signed = checkpoints.load(row)
            assert fault_of(signed, before) is None
            assert signed.checkpoint.root == _root(c, signed.checkpoint.number)
            before = signed
        dangling = (
            "SELECT n.observation_id FROM observations n WHERE n.request_id IS NOT NULL"
            " AND NOT EXISTS (SELECT 1 FROM requests r WHERE r.request_id = n.request_id)"
        )
        assert c.execute(dangling).fetchall() == [], "an observation names a request that is gone"


def _root(c: sqlite3.Connection, number: int) -> str:
    """The root over what stands in the file under a number, made by hand from the rows."""
    tree = Tree()
    for row in c.execute(checkpoints.HEADS, (number, "", 10**9)):
        tree.add(Head(*row).leaf())
    for row in c.execute(checkpoints.PRUNED, (number, "", 10**9)):
        tree.add(PrunedHead(*row).leaf())
    return tree.finish()


def hanging_on(dump: Dump, path: Path, key: int) -> dict[str, list[tuple[Any, ...]]]:
    """The rows that hang on one operation, by table."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as c:
        places = {
            table: [row[1] for row in c.execute(f"PRAGMA table_info({table})")].index(column)
            for table, column in HANGING.items()
        }
    return {table: [row for row in dump[table] if row[places[table]] == key] for table in HANGING}


def check_kept(before: Dump, after: Dump, path: Path, *, may_go: set[int]) -> None:
    """That nothing but `may_go` was touched, and that of what went whole nothing is left but its head."""
    old, new = keys_of(before), keys_of(after)
    pruned = {row[0]: row for row in after["pruned"]}
    for key, row in old.items():
        had, has = hanging_on(before, path, key), hanging_on(after, path, key)
        if key not in new:
            assert key in may_go, f"{row[1]} was not to be pruned"
            assert not any(has.values()), f"{row[1]} is gone, and left {has}"
            assert (row[14], row[15]) == pruned[row[1]][1:3]
        elif new[key] == row:
            for table in HANGING:
                lost = [each for each in had[table] if each not in has[table]]
                assert lost == [], f"{row[1]} lost {lost} of {table}"
        else:
            assert key in may_go, f"{row[1]} was not to be touched"
            assert new[key][:-1] == row[:-1]
            assert new[key][-1] == 1, "it is leaving"
            assert has["history"] == had["history"]


def check_ids(before: Dump, after: Dump) -> None:
    """That no id of a delivery that may be repeated is free."""
    known = {row[1:4] for row in after["events"]} | {row[:3] for row in after["event_ids"]}
    young = {row[1:4] for row in before["events"] if row[4] > NOW - IDS}
    young |= {row[:3] for row in before["event_ids"] if row[3] > NOW - IDS}
    assert young <= known


# ---- random worlds ---------------------------------------------------------------------------------------------------


def make_world(path: Path, seed: int) -> dict[int, int]:
    """Operations in all states and of all ages, none of them signed yet."""
    dice = random.Random(seed)
    with writing(path) as aged:
        count = dice.randint(6, 10)
        for n in range(1, count + 1):
            state = dice.choice([*TERMINAL] if dice.random() < 0.7 else [*State])
            aged.operation(n, state, age=dice.choice((DAY, 89 * DAY, 90 * DAY, 91 * DAY, 200 * DAY)))
            aged.history(n, dice.randint(1, 6))
            aged.items(n, dice.choice((0, 0, 3, 20)), attempt=0)
            aged.items(n, dice.choice((0, 3, 30)))
            for _ in range(dice.randint(0, 4)):
                aged.observation(n, aged.request(n), size=dice.choice((10, 900, 9_000)))
            for _ in range(dice.randint(0, 3)):
                aged.event(n, age=dice.choice((0, 6 * DAY, 8 * DAY, 95 * DAY)), repeats=dice.randint(0, 2))
            if dice.random() < 0.5:
                aged.client_key(n)
            if dice.random() < 0.3:
                aged.notice(n)
            aged.claims(n, (0, 0, 1, 9)[n % 4])
        for _ in range(3):
            aged.page(*dice.sample(range(1, count + 1), 3))
        for age in (0, DAY, 29 * DAY, 31 * DAY, 31 * DAY, 300 * DAY):
            aged.event(None, age=age, repeats=dice.randint(0, 2))
        return aged.keys


def late_evidence(path: Path, keys: dict[int, int], seed: int) -> set[int]:
    """Some histories grow on after the checkpoint; the keys of those."""
    dice = random.Random(f"{seed}/late")
    grown = {n for n in keys if dice.random() < 0.25}
    with writing(path, keys) as aged:
        for n in sorted(grown):
            aged.history(n, dice.randint(1, 2))
    return {keys[n] for n in grown}

"""Records to be verified: random histories written by the real store, checkpoints signed by the real notary, chains
pruned as retention does it; and the file opened by somebody who owns it, triggers or not.
"""

import contextlib
import json
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from structlog.testing import CapturingLogger

from reconcile.checkpoint import AuditKey
from reconcile.evidence import (
    CancelAnswer,
    CancelAnswered,
    CancelAsked,
    Collected,
    CreateUnknown,
    Evidence,
    LookupFound,
    ReadFailed,
)
from reconcile.model import Progress, ResultRef, Summary
from reconcile.notary import Notary
from reconcile.states import State
from reconcile.store.audit.verify import Verified, verify
from reconcile.store.looking import look_at
from tests.reconcile.rows import HOUR, NOW, info
from tests.reconcile.store.ground import Ground, accepted, beside, exchange, look, opened, operation, read

KEY: Final = AuditKey.made(b"k" * 32)
OTHER_KEY: Final = AuditKey.made(b"o" * 32)
#: What hangs on an operation, besides its history.
_CHILDREN: Final = ("requests", "observations", "events", "items", "client_keys", "starts", "schedule", "notices")


class _Still:
    """A clock that stands."""

    def __init__(self, at: int) -> None:
        self._at = at

    def now(self) -> int:
        return self._at

    def monotonic(self) -> float:
        return 0.0


def notary(ground: Ground, *, key: AuditKey = KEY, now: int = NOW) -> Notary:
    """The real one, on a clock that stands."""
    return Notary(record=ground.store.record, key=key, clock=_Still(now), log=CapturingLogger())


def checked(path: Path, *, trusted: tuple[str, ...] = (KEY.public_key,), noted: tuple[str, ...] = ()) -> Verified:
    """As `audit verify` does it. Raises: RecordDamaged and its like."""
    return look_at(path, lambda connection: verify(connection, trusted=trusted, noted=noted))


# ---- random histories ----


def _evidence(rnd: random.Random, n: int) -> Evidence:
    job = f"job_{n}"
    words = ["queued", "running", "running", "waiting", "done", "failed", "cancelled", "brand_new", "forgotten"]
    kinds: list[Callable[[], Evidence]] = [
        lambda: accepted(job, "queued"),
        lambda: accepted(job, "running"),
        lambda: read(rnd.choice(words), n, progress=Progress(completed=rnd.randrange(9), total=9)),
        lambda: read(rnd.choice(words), n, results=(ResultRef(f"file-{rnd.randrange(3)}"),)),
        lambda: read(rnd.choice(words), n),
        lambda: ReadFailed("http_500"),
        lambda: CreateUnknown("timeout"),
        lambda: LookupFound((f"job_x{n}", job), is_sure=False),
        lambda: CancelAsked("cancel_9", "client:zoë", "why \u2028 not", "stops"),
        lambda: CancelAnswered(rnd.choice(list(CancelAnswer))),
        lambda: Collected(info(), Summary(3, succeeded=1, failed=2)),
        lambda: Collected(info(), Summary(3, succeeded=3)),
    ]
    return rnd.choice(kinds)()


async def write_record(path: Path, rnd: random.Random, *, operations: int, steps: int, prunes: bool = True) -> None:
    """A record of so many operations and about so many rows, some of them signed, some of it pruned."""
    async with opened(path) as ground:
        signer, now, last = notary(ground), NOW, 0
        for step in range(steps):
            now += rnd.choice([0, 1, HOUR])
            if last < operations and (not last or rnd.random() < 0.4):
                last += 1
                state = rnd.choice([State.CREATE_PENDING, State.ACCEPTED, State.OBSERVING])
                await ground.start(operation(last, state))
            n = rnd.randrange(1, last + 1)
            if look(path, "SELECT 1 FROM operations WHERE operation_id = ?", f"op_{n}"):
                await ground.apply(n, _evidence(rnd, n), at=now, draw=rnd.random(), **exchange(str(step)))
            if rnd.random() < 0.15:
                await signer.sign()
            if prunes and rnd.random() < 0.15:
                _prune_one(path, rnd, now)
        if rnd.random() < 0.3:
            await signer.sign()
        if prunes and rnd.random() < 0.5:
            _prune_one(path, rnd, now)
        _begin_to_prune(path, rnd)


_PRUNABLE: Final = (
    "SELECT operation_id FROM operations o WHERE o.completed_at IS NOT NULL AND (SELECT max(position) FROM history h"
    " WHERE h.operation_key = o.key) <= (SELECT max(position) FROM checkpoints) ORDER BY key"
)


def _prune_one(path: Path, rnd: random.Random, now: int) -> None:
    found = look(path, _PRUNABLE)
    if found:
        prune(path, rnd.choice(found)[0], now)


def prune(path: Path, operation_id: str, at: int = NOW) -> None:
    """Take one whole operation away, its head kept behind the checkpoint that signed it."""
    with beside(path, writes=True) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("BEGIN IMMEDIATE")
        key, seq, head = connection.execute(
            "SELECT key, seq, head FROM operations WHERE operation_id = ?", (operation_id,)
        ).fetchone()
        (behind,) = connection.execute(
            "SELECT min(number) FROM checkpoints WHERE position >="
            " (SELECT max(position) FROM history WHERE operation_key = ?)",
            (key,),
        ).fetchone()
        connection.execute(
            "INSERT INTO pruned (operation_id, seq, head, pruned_at, behind, operation_key) VALUES (?, ?, ?, ?, ?, ?)",
            (operation_id, seq, head, at, behind, key),
        )
        connection.execute("DELETE FROM history WHERE operation_key = ?", (key,))
        for table in _CHILDREN:
            column = "key" if table == "schedule" else "operation_key"
            connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (key,))
        connection.execute("DELETE FROM operations WHERE key = ?", (key,))
        connection.execute("COMMIT")


def _begin_to_prune(path: Path, rnd: random.Random) -> None:
    """An operation whose pruning was interrupted: what hangs on it is partly gone, its chain is whole."""
    found = look(path, _PRUNABLE)
    if found and rnd.random() < 0.5:
        with beside(path, writes=True) as connection:
            connection.execute("UPDATE operations SET leaving = 1 WHERE operation_id = ?", rnd.choice(found))
            connection.execute(
                "DELETE FROM observations WHERE operation_key IN (SELECT key FROM operations WHERE leaving = 1)"
            )


# ---- somebody who owns the file ----


class NoPlace(Exception):
    """The record offers no place for this damage."""


@dataclass
class Copy:
    """A copy of a record, and one who does with it as he likes."""

    path: Path
    connection: sqlite3.Connection
    rnd: random.Random

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, parameters).fetchall()

    def one_of(self, sql: str, *parameters: Any) -> tuple[Any, ...]:
        """One of the rows. Raises: NoPlace."""
        found = self.rows(sql, *parameters)
        if not found:
            raise NoPlace
        return self.rnd.choice(found)

    def do(self, sql: str, *parameters: Any) -> None:
        changed = self.connection.execute(sql, parameters).rowcount
        assert changed, f"nothing was damaged by {sql}"


@contextlib.contextmanager
def copied(path: Path, to: Path, rnd: random.Random) -> Iterator[Copy]:
    """A copy without any trigger, its constraints not asked."""
    shutil.copyfile(path, to)
    connection = sqlite3.connect(to, isolation_level=None)
    try:
        for pragma in ("foreign_keys = OFF", "ignore_check_constraints = ON", "synchronous = OFF"):
            connection.execute(f"PRAGMA {pragma}")
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        yield Copy(to, connection, rnd)
    finally:
        connection.close()


def behind_the_index(path: Path, table: str, index: str, sql: str, *parameters: Any) -> None:
    """Change a table's rows and leave its index as it was, as a damaged page would."""

    def as_owner() -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA writable_schema = ON")
        return connection

    with contextlib.closing(as_owner()) as connection:
        ((made, entry),) = connection.execute(
            "SELECT t.sql, json_array(i.rootpage, i.sql) FROM sqlite_schema t JOIN sqlite_schema i ON i.name = ?"
            " WHERE t.name = ?",
            (index, table),
        ).fetchall()
        bare = made.replace(",\n    UNIQUE (operation_key, seq)", "").replace(
            "operation_id TEXT NOT NULL UNIQUE", "operation_id TEXT NOT NULL"
        )
        connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (bare, table))
        connection.execute("DELETE FROM sqlite_schema WHERE name = ?", (index,))
        kept = connection.execute(
            "SELECT name FROM sqlite_schema WHERE name LIKE 'sqlite_autoindex_%' AND tbl_name = ?", (table,)
        ).fetchall()
        if bare != made:  # what is left of automatic indexes is numbered from 1 again
            connection.execute(
                "UPDATE sqlite_schema SET name = ? WHERE name IN (SELECT value FROM json_each(?))",
                (index, json.dumps([name for (name,) in kept])),
            )
    with contextlib.closing(as_owner()) as connection:
        assert connection.execute(sql, parameters).rowcount == 1
    with contextlib.closing(as_owner()) as connection:
        connection.execute(
            "UPDATE sqlite_schema SET name = ? WHERE name = ? AND tbl_name = ?",
            (kept[0][0] if kept and bare != made else index, index, table),
        )
        rootpage, its_sql = json.loads(entry)
        connection.execute("INSERT INTO sqlite_schema VALUES ('index', ?, ?, ?, ?)", (index, table, rootpage, its_sql))
        connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (made, table))

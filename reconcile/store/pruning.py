"""Pruning: an ended operation goes with all that hangs on it, in slices that hold the writer for some ms each.

One that fits a slice goes whole in one transaction. A larger one is first marked as leaving, from when on nobody is
shown it; slices take what hangs on it, and the last one takes the rest together with its history and its row. Before a
chain goes, its head goes into `pruned`, so that pruning can be told from deletion; only a chain whose last head a
checkpoint has signed is taken, so that evidence which came late waits for the next one, and a chain that somebody
altered stays for `audit verify` to name.

The key of a removed operation is given again where it was the newest of all. Nothing confuses the two: no row may name
a key that is not there (foreign keys), cursors are operation ids, and `pruned` keeps the place that each stood at.
"""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from reconcile.errors import WriteRefused
from reconcile.model import UnixMs
from reconcile.store import forgotten
from reconcile.store.forgotten import PAGE_BYTES, SLICE, IdsKept, within
from reconcile.store.reading import Reader
from reconcile.store.writer import Done, Kind

#: Operations that one slice takes at most. 16: as many small ones as fit.
MAX_OPERATIONS: Final = 16
#: Rows of an operation that are always there: its own, its start, its client key, its head in `pruned`.
_OWN_ROWS: Final = 4


@dataclass(frozen=True, slots=True)
class Pruning:
    """Take one slice of what ended before a moment, after the (end, key) of what was taken last."""

    at: UnixMs
    ended_before: UnixMs
    ids: IdsKept
    after: tuple[UnixMs, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Gone:
    """An operation that nobody is shown any more, and the files in spool/ that its row named."""

    operation_id: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one slice came to."""

    #: Those whose files may go now: of a large one they go first.
    hidden: tuple[Gone, ...]
    #: How many are gone whole.
    count: int
    after: tuple[UnixMs, int]
    #: False: nothing was left to take.
    has_gone_on: bool


@dataclass(frozen=True, slots=True)
class Removed:
    """That an operation ended and went. `at` None: it is on its way."""

    at: UnixMs | None


@dataclass(frozen=True, slots=True)
class _Candidate:
    key: int
    operation_id: str
    completed_at: UnixMs
    seq: int
    head: str
    behind: int | None
    inputs: tuple[str, ...]
    #: What hangs on it beside its history, counted no further than just above a slice.
    weight: int

    @property
    def is_large(self) -> bool:
        """Whether it goes in several slices."""
        return self.weight > SLICE


#: The next ones in the order in which they ended, so many and no more: a slice is short however many of them must stay.
#: `behind` is null for what may not go: only an ended operation may whose last head a checkpoint has signed.
_NEXT: Final = f"""
    SELECT o.key, o.operation_id, o.completed_at, o.seq, o.head,
        (SELECT l.checkpoint FROM heads l WHERE l.checkpoint = (SELECT number FROM checkpoints WHERE position >=
                (SELECT position FROM history h WHERE h.operation_key = o.key ORDER BY h.seq DESC LIMIT 1)
            ORDER BY position, number LIMIT 1)
            AND l.operation_id = o.operation_id AND l.seq = o.seq AND l.head = o.head
            AND NOT EXISTS (SELECT 1 FROM schedule s WHERE s.key = o.key)),
        o.living ->> '$.input_ref', o.living ->> '$.input.ref',
        (SELECT count(*) FROM (SELECT 1 FROM items i WHERE i.operation_key = o.key LIMIT {SLICE + 1}))
        + (SELECT count(*) FROM (SELECT 1 FROM requests r WHERE r.operation_key = o.key LIMIT {SLICE + 1}))
        + (SELECT coalesce(sum(weight), 0) FROM (SELECT 1 + length(n.raw) / {PAGE_BYTES} AS weight
            FROM observations n WHERE n.operation_key = o.key LIMIT {SLICE + 1}))
        + (SELECT coalesce(sum(weight), 0) FROM (SELECT 1 + length(e.body) / {PAGE_BYTES} AS weight
            FROM events e WHERE e.operation_key = o.key LIMIT {SLICE + 1}))
    FROM (SELECT * FROM operations WHERE %s AND completed_at IS NOT NULL ORDER BY completed_at, key
        LIMIT {MAX_OPERATIONS}) o ORDER BY o.completed_at, o.key
"""
#: One at a time: the others are still as they were.
_LEAVING: Final = _NEXT % "key = (SELECT key FROM operations INDEXED BY operations_leaving WHERE leaving = 1 LIMIT 1)"
_ENDED: Final = _NEXT % "leaving = 0 AND completed_at <= ? AND (completed_at, key) > (?, ?)"
_REMOVED: Final = (
    "SELECT pruned_at FROM pruned WHERE operation_id = ?"
    " UNION ALL SELECT NULL FROM operations WHERE operation_id = ? AND leaving = 1"
)
#: The oldest open operation whose job, or whose second one, is still looked for.
_UNSETTLED: Final = (
    "SELECT min(o.created_at) FROM schedule s JOIN operations o ON o.key = s.key"
    " WHERE o.remote_job_id IS NULL OR coalesce(o.living ->> '$.resends', 0) > 0"
)
_LEAVE: Final = (
    "UPDATE operations SET leaving = 1 WHERE key = ? AND completed_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM schedule s WHERE s.key = operations.key)"
)
_KEEP_HEAD: Final = (
    "INSERT INTO pruned (operation_id, seq, head, pruned_at, behind, operation_key) VALUES (?, ?, ?, ?, ?, ?)"
)
_IN: Final = "IN (SELECT value FROM json_each(?))"
#: In this order: a request is not gone while an observation names it, and the row goes when nothing hangs on it.
_REMOVE: Final = tuple(
    f"DELETE FROM {table} WHERE operation_key {_IN}"
    for table in ("requests", "items", "notices", "client_keys", "starts", "history")
)
_REMOVE_ROWS: Final = (
    f"DELETE FROM operations WHERE key {_IN} AND completed_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM schedule s WHERE s.key = operations.key)"
)
_EVENTS_OF: Final = f"SELECT key FROM events WHERE operation_key {_IN}"
_OBSERVATIONS_GO: Final = f"DELETE FROM observations WHERE operation_key {_IN}"
#: A list page told of several operations; its request stands under one of them for as long as one is there (N9).
_OBSERVERS: Final = "SELECT n.operation_key FROM observations n WHERE n.request_id = requests.request_id"
_HAND_ON: Final = (
    f"UPDATE requests SET operation_key = ({_OBSERVERS} AND n.road = 'list' AND n.operation_key <> requests."
    f"operation_key LIMIT 1) WHERE %s AND EXISTS ({_OBSERVERS} AND n.road = 'list'"
    " AND n.operation_key <> requests.operation_key)"
)
_HAND_ON_ALL: Final = _HAND_ON % f"operation_key {_IN}"
_HAND_ON_SOME: Final = _HAND_ON % f"request_id {_IN}"


async def removed(reader: Reader, operation_id: str) -> Removed | None:
    """That an operation was pruned, or is being pruned; None where there is one, or never was."""
    found = await reader.execute_fetchall(_REMOVED, (operation_id, operation_id))
    return Removed(found[0][0]) if found else None


async def oldest_unsettled(reader: Reader) -> UnixMs | None:
    """Since when some operation's job is looked for; None where none is."""
    found: UnixMs | None = (await reader.execute_fetchall(_UNSETTLED))[0][0]
    return found


def _prune(connection: sqlite3.Connection, wish: Pruning) -> Done:
    leaving = [one for one in _found(connection, _LEAVING) if one.behind is not None]
    found = leaving or _found(connection, _ENDED, wish.ended_before, *wish.after)
    going, after = _fitting(found, wish.after)
    if going and going[0].is_large:
        _lessen(connection, going[0], wish.ids)
        return Done(Pruned((_gone(going[0]),), 0, after, has_gone_on=True))
    if going:
        _remove(connection, going, wish)
    return Done(Pruned(tuple(map(_gone, going)), len(going), after, has_gone_on=bool(found)))


def _found(connection: sqlite3.Connection, sql: str, *parameters: int) -> list[_Candidate]:
    return [
        _Candidate(key, operation_id, ended_at, seq, head, behind, tuple(filter(None, inputs)), weight)
        for key, operation_id, ended_at, seq, head, behind, *inputs, weight in connection.execute(sql, parameters)
    ]


def _fitting(found: list[_Candidate], after: tuple[UnixMs, int]) -> tuple[list[_Candidate], tuple[UnixMs, int]]:
    """The first ones that may go and fit a slice together, or a large one alone; and where the next slice begins.

    The very first goes however long its history is: a chain goes whole.
    """
    going: list[_Candidate] = []
    left = SLICE
    for one in found:
        if one.behind is not None:
            left -= one.weight + one.seq + _OWN_ROWS
            if going and left < 0:
                break
            going.append(one)
            if one.is_large:  # it stays the next one until it is gone
                break
        after = max(after, (one.completed_at, one.key))
    return going, after


def _gone(one: _Candidate) -> Gone:
    return Gone(one.operation_id, one.inputs)


def _remove(connection: sqlite3.Connection, going: list[_Candidate], wish: Pruning) -> None:
    keys = json.dumps([one.key for one in going])
    connection.executemany(
        _KEEP_HEAD, [(one.operation_id, one.seq, one.head, wish.at, one.behind, one.key) for one in going]
    )
    forgotten.forget(connection, [key for (key,) in connection.execute(_EVENTS_OF, (keys,))], wish.ids)
    connection.execute(_OBSERVATIONS_GO, (keys,))
    connection.execute(_HAND_ON_ALL, (keys,))
    for sql in _REMOVE:
        connection.execute(sql, (keys,))
    if connection.execute(_REMOVE_ROWS, (keys,)).rowcount != len(going):  # the last net: nothing of this is kept
        raise WriteRefused("an operation that is open, or not there, was to be pruned")


# ---- large ones ----


def _lessen(connection: sqlite3.Connection, one: _Candidate, ids: IdsKept) -> None:
    """Hide it, and take one slice of what hangs on it."""
    if connection.execute(_LEAVE, (one.key,)).rowcount != 1:
        raise WriteRefused(f"{one.operation_id} is open, and was to be pruned")
    for table in ("client_keys", "notices"):
        connection.execute(f"DELETE FROM {table} WHERE operation_key = ?", (one.key,))
    left = SLICE
    for take in (_take_items, _take_observations, _take_events(ids), _take_requests):
        if left > 0:
            left -= take(connection, one.key, left)


def _take_items(connection: sqlite3.Connection, key: int, most: int) -> int:
    named = "operation_key, attempt, item_id, line"
    sql = f"DELETE FROM items WHERE ({named}) IN (SELECT {named} FROM items WHERE operation_key = ? LIMIT ?)"
    return connection.execute(sql, (key, most)).rowcount


def _take_observations(connection: sqlite3.Connection, key: int, most: int) -> int:
    sql = f"SELECT number, 1 + length(raw) / {PAGE_BYTES} FROM observations WHERE operation_key = ? LIMIT ?"
    numbers, weight = within(connection.execute(sql, (key, most)), most)
    connection.execute(f"DELETE FROM observations WHERE number {_IN}", (json.dumps(numbers),))
    return weight


def _take_events(ids: IdsKept) -> Callable[[sqlite3.Connection, int, int], int]:
    sql = f"SELECT key, 1 + length(body) / {PAGE_BYTES} FROM events WHERE operation_key = ? LIMIT ?"

    def take(connection: sqlite3.Connection, key: int, most: int) -> int:
        keys, weight = within(connection.execute(sql, (key, most)), most)
        forgotten.forget(connection, keys, ids)
        return weight

    return take


def _take_requests(connection: sqlite3.Connection, key: int, most: int) -> int:
    sql = "SELECT request_id FROM requests WHERE operation_key = ? LIMIT ?"
    names = [name for (name,) in connection.execute(sql, (key, most))]
    spelled = json.dumps(names)
    connection.execute(_HAND_ON_SOME, (spelled,))
    connection.execute(f"DELETE FROM requests WHERE request_id {_IN} AND operation_key = ?", (spelled, key))
    return len(names)


def _run(connection: sqlite3.Connection, payloads: Any) -> list[Done]:
    return [_prune(connection, wish) for wish in payloads]


PRUNE: Final = Kind("prune", _run)

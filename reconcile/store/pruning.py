"""Pruning: an ended operation goes with all that hangs on it, in slices that hold the writer for some ms each.

One that fits a slice goes whole in one transaction. A larger one is first marked as leaving, from when on nobody is
shown it; slices take what hangs on it, and the last one takes the rest together with its history and its row. Before a
chain goes, its head goes into `pruned`, so that pruning can be told from deletion; only a chain whose last head a
checkpoint has signed is taken, so that evidence which came late waits for the next one, and a chain that somebody
altered stays for `audit verify` to name.

One bad row keeps nobody else: where a slice is refused, its operations are tried one by one, and the one that cannot
go is passed over and named. Nor does an operation go whose notice nobody has acknowledged, until the notice is as old
as what may go: a person must have been able to see it.

The key of a pruned operation is given again where it was the newest of all. Nothing confuses the two: no row may name
a key that is not there (foreign keys), cursors are operation ids, and `pruned` keeps the place that each stood at.
"""

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.errors import WriteRefused
from reconcile.model import UnixMs
from reconcile.store import pruned_events
from reconcile.store.faults import is_batch_lost
from reconcile.store.pruned_events import MAX_WEIGHT, PAGE_BYTES, IdsKept, within
from reconcile.store.reading import Reader
from reconcile.store.writer import Done, Kind

#: Operations that one slice takes at most. 16: as many small ones as fit.
MAX_OPERATIONS: Final = 16
#: Rows of an operation that are always there: its own, its start, its client key, its head in `pruned`.
_OWN_ROWS: Final = 4


@dataclass(frozen=True, slots=True)
class Pruning:
    """Take one slice of what ended before a moment; every slice but a round's first goes on where the last one was."""

    at: UnixMs
    ended_before: UnixMs
    ids: IdsKept
    #: The (end, key) of what was taken, or passed over, last.
    after: tuple[UnixMs, int] = (0, 0)
    #: Keys of those that are leaving and were passed over in this round: they must wait, or cannot go.
    passed_over: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaving:
    """An operation that nobody is shown any more, and the files in spool/ that its row named."""

    operation_id: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotPruned:
    """An operation that may go and cannot: the file refuses it."""

    operation_id: str
    error: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one slice came to."""

    #: Those whose files may go now: of a large one they go first.
    leaving: tuple[Leaving, ...]
    #: How many were pruned whole.
    count: int
    #: Where the next slice goes on.
    after: tuple[UnixMs, int]
    #: False: nothing was left to take.
    has_gone_on: bool
    passed_over: tuple[int, ...] = ()
    refused: tuple[NotPruned, ...] = ()


@dataclass(frozen=True, slots=True)
class WasPruned:
    """That an operation ended and was pruned. `at` None: it is leaving."""

    at: UnixMs | None


@dataclass(frozen=True, slots=True)
class _Candidate:
    key: int
    operation_id: str
    completed_at: UnixMs
    seq: int
    head: str
    #: The checkpoint that signed its last head; none for one that may not go.
    behind: int | None
    is_readable: bool
    inputs: tuple[str, ...]
    #: What hangs on it beside its history, counted no further than just above a slice.
    weight: int

    @property
    def is_large(self) -> bool:
        """Whether it goes in several slices."""
        return self.weight > MAX_WEIGHT

    @property
    def place(self) -> tuple[UnixMs, int]:
        """Where it stands in the order in which they ended."""
        return self.completed_at, self.key


#: The next ones in the order in which they ended, so many and no more: a slice is short however many of them must stay.
#: `behind` is null for what may not go: only an ended operation may whose last head a checkpoint has signed, and whose
#: notices are acknowledged, or as old as what may go (?1); nor one of which a callback is still to be told, unless
#: that has been due for as long: its callback is not configured any more.
_NEXT: Final = f"""
    SELECT o.key, o.operation_id, o.completed_at, o.seq, o.head,
        (SELECT l.checkpoint FROM heads l WHERE l.checkpoint = (SELECT number FROM checkpoints WHERE position >=
                (SELECT position FROM history h WHERE h.operation_key = o.key ORDER BY h.seq DESC LIMIT 1)
            ORDER BY position, number LIMIT 1)
            AND l.operation_id = o.operation_id AND l.seq = o.seq AND l.head = o.head
            AND NOT EXISTS (SELECT 1 FROM schedule s WHERE s.key = o.key)
            AND (o.leaving = 1 OR NOT EXISTS (SELECT 1 FROM notices t
                WHERE t.operation_key = o.key AND t.acknowledged_at IS NULL AND t.since > ?1))
            AND (o.leaving = 1 OR NOT EXISTS (SELECT 1 FROM deliveries d
                WHERE d.operation_key = o.key AND d.state = 'waiting' AND d.due_at > ?1))),
        json_valid(o.living),
        CASE WHEN json_valid(o.living) THEN o.living ->> '$.input_ref' END,
        CASE WHEN json_valid(o.living) THEN o.living ->> '$.input.ref' END,
        (SELECT count(*) FROM (SELECT 1 FROM items i WHERE i.operation_key = o.key LIMIT {MAX_WEIGHT + 1}))
        + (SELECT count(*) FROM (SELECT 1 FROM requests r WHERE r.operation_key = o.key LIMIT {MAX_WEIGHT + 1}))
        + (SELECT count(*) FROM (SELECT 1 FROM completion_claims c WHERE c.operation_key = o.key
            LIMIT {MAX_WEIGHT + 1}))
        + (SELECT coalesce(sum(weight), 0) FROM (SELECT 1 + length(n.raw) / {PAGE_BYTES} AS weight
            FROM observations n WHERE n.operation_key = o.key LIMIT {MAX_WEIGHT + 1}))
        + (SELECT coalesce(sum(weight), 0) FROM (SELECT 1 + length(e.body) / {PAGE_BYTES} AS weight
            FROM events e WHERE e.operation_key = o.key LIMIT {MAX_WEIGHT + 1}))
    FROM (SELECT * FROM operations %s AND completed_at IS NOT NULL ORDER BY completed_at, key
        LIMIT {MAX_OPERATIONS}) o ORDER BY o.completed_at, o.key
"""
#: Those whose pruning has begun: few, and first of all.
_LEAVING: Final = _NEXT % (
    "INDEXED BY operations_leaving WHERE leaving = 1 AND key NOT IN (SELECT value FROM json_each(?2))"
)
_ENDED: Final = _NEXT % "WHERE leaving = 0 AND completed_at <= ?1 AND (completed_at, key) > (?2, ?3)"
_WAS_PRUNED: Final = (
    "SELECT pruned_at FROM pruned WHERE operation_id = ?"
    " UNION ALL SELECT NULL FROM operations WHERE operation_id = ? AND leaving = 1"
)
#: The oldest open operation whose job, or whose second one, is still looked for. One that cannot be read may be such.
_UNSETTLED: Final = (
    "SELECT min(o.created_at) FROM schedule s JOIN operations o ON o.key = s.key WHERE o.remote_job_id IS NULL"
    " OR CASE WHEN json_valid(o.living) THEN coalesce(o.living ->> '$.resends', 0) > 0"
    " OR coalesce(o.living ->> '$.restored', 0) ELSE 1 END"
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
    for table in ("requests", "items", "notices", "deliveries", "client_keys", "completion_claims", "starts", "history")
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
    f"operation_key ORDER BY n.operation_key LIMIT 1) WHERE %s AND EXISTS ({_OBSERVERS} AND n.road = 'list'"
    " AND n.operation_key <> requests.operation_key)"
)
_HAND_ON_ALL: Final = _HAND_ON % f"operation_key {_IN}"
_HAND_ON_SOME: Final = _HAND_ON % f"request_id {_IN}"


async def was_pruned(reader: Reader, operation_id: str) -> WasPruned | None:
    """That an operation was pruned, or is leaving; None where there is one, or never was."""
    found = await reader.execute_fetchall(_WAS_PRUNED, (operation_id, operation_id))
    return WasPruned(found[0][0]) if found else None


async def oldest_unsettled(reader: Reader) -> UnixMs | None:
    """Since when some operation's job is looked for; None where none is."""
    found: UnixMs | None = (await reader.execute_fetchall(_UNSETTLED))[0][0]
    return found


def _prune(connection: sqlite3.Connection, wish: Pruning) -> Done:
    leaving = _found(connection, _LEAVING, wish.ended_before, json.dumps(wish.passed_over))
    begun = [one for one in leaving if one.behind is not None][:1]  # one at a time: the others are as they were
    if begun:
        done, refused = _take(connection, begun, wish)
        passed_over, after, is_over = [one.key for one, _ in refused], wish.after, False
    else:
        ended = _found(connection, _ENDED, wish.ended_before, *wish.after)
        fitting, after = _fitting(ended, wish.after)
        done, refused = _take(connection, fitting, wish)
        after = max([after, *(one.place for one, _ in refused)])
        passed_over, is_over = [one.key for one in leaving], not ended and not leaving
    return Done(
        Pruned(
            tuple(Leaving(one.operation_id, one.inputs) for one in done),
            sum(not one.is_large for one in done),
            after,
            has_gone_on=not is_over,
            passed_over=(*wish.passed_over, *passed_over),
            refused=tuple(NotPruned(one.operation_id, error) for one, error in refused),
        )
    )


def _found(connection: sqlite3.Connection, sql: str, *parameters: int | str) -> list[_Candidate]:
    return [
        _Candidate(
            key, operation_id, ended_at, seq, head, behind, bool(is_readable), tuple(filter(None, inputs)), weight
        )
        for key, operation_id, ended_at, seq, head, behind, is_readable, *inputs, weight in connection.execute(
            sql, parameters
        )
    ]


def _fitting(found: list[_Candidate], after: tuple[UnixMs, int]) -> tuple[list[_Candidate], tuple[UnixMs, int]]:
    """The first ones that may go and fit a slice together, or a large one alone; and where the next slice begins.

    The very first goes however long its history is: a chain goes whole.
    """
    going: list[_Candidate] = []
    left = MAX_WEIGHT
    for one in found:
        if one.behind is not None:
            left -= one.weight + one.seq + _OWN_ROWS
            if going and left < 0:
                break
            going.append(one)
            if one.is_large:  # it stays the next one until it was pruned whole
                break
        after = max(after, one.place)
    return going, after


def _take(
    connection: sqlite3.Connection, taken: list[_Candidate], wish: Pruning
) -> tuple[list[_Candidate], list[tuple[_Candidate, str]]]:
    """Prune them together, or where that is refused one by one: which were taken, and which were refused, and why."""
    if not taken or _refusal(connection, taken, wish) is None:
        return taken, []
    done: list[_Candidate] = []
    refused: list[tuple[_Candidate, str]] = []
    for one in taken:
        if (error := _refusal(connection, [one], wish)) is None:
            done.append(one)
        else:
            refused.append((one, error))
    return done, refused


def _refusal(connection: sqlite3.Connection, taken: Sequence[_Candidate], wish: Pruning) -> str | None:
    """Prune them, or undo what was begun and say why not."""
    connection.execute("SAVEPOINT taken")
    try:
        if taken[0].is_large:
            _prune_part(connection, taken[0], wish.ids)
        else:
            _prune_whole(connection, taken, wish)
    except (sqlite3.Error, WriteRefused) as fault:
        if is_batch_lost(connection, fault):
            raise
        connection.execute("ROLLBACK TO taken")
        connection.execute("RELEASE taken")
        return str(fault)
    connection.execute("RELEASE taken")
    return None


def _refuse_unreadable(one: _Candidate) -> None:
    """Somebody else wrote there: it stays to be looked at, with all that hangs on it."""
    if not one.is_readable:
        raise WriteRefused("what its row tells of it is no JSON")


def _prune_whole(connection: sqlite3.Connection, going: Sequence[_Candidate], wish: Pruning) -> None:
    for one in going:
        _refuse_unreadable(one)
    keys = json.dumps([one.key for one in going])
    connection.executemany(
        _KEEP_HEAD, [(one.operation_id, one.seq, one.head, wish.at, one.behind, one.key) for one in going]
    )
    pruned_events.prune(connection, [key for (key,) in connection.execute(_EVENTS_OF, (keys,))], wish.ids)
    connection.execute(_OBSERVATIONS_GO, (keys,))
    connection.execute(_HAND_ON_ALL, (keys,))
    for sql in _REMOVE:
        connection.execute(sql, (keys,))
    if connection.execute(_REMOVE_ROWS, (keys,)).rowcount != len(going):  # the last net: nothing of this is kept
        raise WriteRefused("an operation that is open, or not there, was to be pruned")


# ---- large ones ----


def _prune_part(connection: sqlite3.Connection, one: _Candidate, ids: IdsKept) -> None:
    """Mark it as leaving, and take one slice of what hangs on it."""
    _refuse_unreadable(one)
    if connection.execute(_LEAVE, (one.key,)).rowcount != 1:
        raise WriteRefused(f"{one.operation_id} is open, and was to be pruned")
    for table in ("client_keys", "notices"):
        connection.execute(f"DELETE FROM {table} WHERE operation_key = ?", (one.key,))
    left = MAX_WEIGHT
    for take in (_take_items, _take_observations, _take_events(ids), _take_requests, _take_claims):
        if left > 0:
            left -= take(connection, one.key, left)


def _take_items(connection: sqlite3.Connection, key: int, most: int) -> int:
    named = "operation_key, attempt, item_id, line"
    sql = f"DELETE FROM items WHERE ({named}) IN (SELECT {named} FROM items WHERE operation_key = ? LIMIT ?)"
    return connection.execute(sql, (key, most)).rowcount


def _take_claims(connection: sqlite3.Connection, key: int, most: int) -> int:
    sql = (
        "DELETE FROM completion_claims WHERE (operation_key, consumer) IN"
        " (SELECT operation_key, consumer FROM completion_claims WHERE operation_key = ? LIMIT ?)"
    )
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
        pruned_events.prune(connection, keys, ids)
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

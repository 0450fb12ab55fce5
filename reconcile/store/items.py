"""Items of a result, indexed while they stream past: where each line stands, what it came to, and how all add up.

A collection writes its rows in slices under its own attempt; only the attempt that the operation names is served, so
a half-written one shows nowhere. Ids are compared in SQL: a million of them never stand in memory.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.errors import WriteRefused
from reconcile.store.schema import Connection
from reconcile.store.writer import Done, Kind

#: Item rows in one write. 500: keeps the writer under about 5 ms, so that webhooks wait no longer.
SLICE: Final = 500
#: Ids of each problem that are named; the rest is only counted by the summary.
MAX_NAMED: Final = 100
#: What an item may come to.
OUTCOMES: Final = frozenset({"succeeded", "failed", "cancelled", "expired", "missing"})


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One result line: its outcome, and the bytes it stands in (`file` counts the collected files from 0)."""

    item_id: str
    line: int
    outcome: str
    reason: str
    file: int | None
    start: int | None
    length: int | None


@dataclass(frozen=True, slots=True)
class ItemSlice:
    """Rows to be written under one attempt of one operation."""

    operation_id: str
    attempt: int
    rows: tuple[ItemRow, ...]


@dataclass(frozen=True, slots=True)
class Doubled:
    """Ids that stand in more than one line of an attempt."""

    operation_id: str
    attempt: int
    item_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Absentees:
    """Ask for one more slice of submitted ids that stand in no result, to be written as `outcome`."""

    operation_id: str
    attempt: int
    outcome: str


_KEY: Final = "SELECT key FROM operations WHERE operation_id = ?"
_INSERT: Final = (
    "INSERT OR REPLACE INTO items (operation_key, attempt, item_id, line, outcome, reason, file, start, length)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
#: A doubled id has no outcome to be trusted: each of its lines is kept, and counts as failed.
_DOUBLED: Final = (
    "UPDATE items SET outcome = 'failed', reason = 'duplicate_id' WHERE operation_key = ? AND attempt = ?"
    " AND item_id IN (SELECT value FROM json_each(?))"
)
_ABSENT: Final = (
    "INSERT INTO items (operation_key, attempt, item_id, line, outcome, reason)"
    " SELECT sent.operation_key, ?, sent.item_id, 0, ?, 'absent' FROM items sent"
    " WHERE sent.operation_key = (SELECT key FROM operations WHERE operation_id = ?) AND sent.attempt = 0"
    " AND NOT EXISTS (SELECT 1 FROM items found WHERE found.operation_key = sent.operation_key"
    "  AND found.attempt = ? AND found.item_id = sent.item_id)"
    " LIMIT ?"
)
#: Rows of other attempts than the one kept; submitted ids (attempt 0) stay.
_PRUNE: Final = (
    "DELETE FROM items WHERE (operation_key, attempt, item_id, line) IN (SELECT operation_key, attempt, item_id, line"
    " FROM items WHERE operation_key = (SELECT key FROM operations WHERE operation_id = ?) AND attempt > 0"
    " AND attempt <> ? LIMIT ?)"
)


def _insert(connection: sqlite3.Connection, payloads: Sequence[ItemSlice]) -> list[Done]:
    for part in payloads:
        key = _key_of(connection, part.operation_id)
        connection.executemany(
            _INSERT,
            [(key, part.attempt, r.item_id, r.line, r.outcome, r.reason, r.file, r.start, r.length) for r in part.rows],
        )
    return [Done() for _ in payloads]


def _mark_doubled(connection: sqlite3.Connection, payloads: Sequence[Doubled]) -> list[Done]:
    for part in payloads:
        key = _key_of(connection, part.operation_id)
        connection.execute(_DOUBLED, (key, part.attempt, json.dumps(part.item_ids)))
    return [Done() for _ in payloads]


def _key_of(connection: sqlite3.Connection, operation_id: str) -> int:
    found = connection.execute(_KEY, (operation_id,)).fetchone()
    if found is None:
        raise WriteRefused(f"no operation {operation_id}")
    return int(found[0])


def _absent(connection: sqlite3.Connection, payloads: Sequence[Absentees]) -> list[Done]:
    done = []
    for wish in payloads:
        cursor = connection.execute(_ABSENT, (wish.attempt, wish.outcome, wish.operation_id, wish.attempt, SLICE))
        done.append(Done(cursor.rowcount))
    return done


def _prune(connection: sqlite3.Connection, payloads: Sequence[tuple[str, int]]) -> list[Done]:
    return [Done(connection.execute(_PRUNE, (op_id, keep, SLICE)).rowcount) for op_id, keep in payloads]


INSERT: Final = Kind("items", _insert)
DOUBLED: Final = Kind("doubled_items", _mark_doubled)
ABSENT: Final = Kind("absent_items", _absent)
PRUNE: Final = Kind("prune_items", _prune)


@dataclass(frozen=True, slots=True)
class Tally:
    """One attempt, counted by id; the named ids are capped at `MAX_NAMED`, strange ones are in no count."""

    by_outcome: dict[str, int]
    duplicate: tuple[str, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    #: Different ids that were found in the result, strange ones left out.
    found: int


_OF: Final = "operation_key = (SELECT key FROM operations WHERE operation_id = ?) AND attempt = ?"
_HAS_SUBMITTED: Final = f"SELECT EXISTS (SELECT 1 FROM items WHERE {_OF})"
_DOUBLED_IDS: Final = (
    f"SELECT item_id FROM items WHERE {_OF} AND line > 0 AND item_id > ? GROUP BY item_id HAVING count(*) > 1"
    " ORDER BY item_id LIMIT ?"
)
_COUNT: Final = f"SELECT outcome, count(DISTINCT item_id) FROM items WHERE {_OF} GROUP BY outcome"
_STRANGERS: Final = (
    "SELECT found.item_id, min(found.outcome) FROM items found WHERE found.operation_key = (SELECT key FROM operations"
    " WHERE operation_id = ?) AND found.attempt = ? AND NOT EXISTS (SELECT 1 FROM items sent"
    " WHERE sent.operation_key = found.operation_key AND sent.attempt = 0 AND sent.item_id = found.item_id)"
    " GROUP BY found.item_id ORDER BY found.item_id"
)


async def doubled_ids(reader: Connection, operation_id: str, attempt: int, *, after: str) -> tuple[str, ...]:
    """One slice of the ids that stand in more than one line, in order, after `after`."""
    found = await reader.execute_fetchall(_DOUBLED_IDS, (operation_id, attempt, after, SLICE))
    return tuple(row[0] for row in found)


async def tally(reader: Connection, operation_id: str, attempt: int) -> Tally:
    """Count one attempt whose doubled and absent ids are marked."""
    at = (operation_id, attempt)
    by_outcome = dict(await reader.execute_fetchall(_COUNT, at))
    absent = f"SELECT count(*) FROM items WHERE {_OF} AND line = 0"
    found = sum(by_outcome.values()) - int((await reader.execute_fetchall(absent, at))[0][0])
    unknown: list[str] = []
    if (await reader.execute_fetchall(_HAS_SUBMITTED, (operation_id, 0)))[0][0]:
        for item_id, outcome in await reader.execute_fetchall(_STRANGERS, at):
            by_outcome[outcome] -= 1
            found -= 1
            unknown.append(item_id)
    named = f"SELECT DISTINCT item_id FROM items WHERE {_OF} AND outcome = 'missing' ORDER BY item_id LIMIT {MAX_NAMED}"
    missing = tuple(row[0] for row in await reader.execute_fetchall(named, at))
    duplicate = (await doubled_ids(reader, operation_id, attempt, after=""))[:MAX_NAMED]
    return Tally(by_outcome, duplicate, tuple(unknown[:MAX_NAMED]), missing, found)


@dataclass(frozen=True, slots=True)
class ItemView:
    """One item as it is shown: doubled lines folded into one, with every place it stands in."""

    item_id: str
    outcome: str
    reason: str
    places: tuple[tuple[int, int, int], ...]


_VIEW: Final = (
    "SELECT item_id, min(outcome), min(reason),"
    " json_group_array(json_array(file, start, length)) FILTER (WHERE file IS NOT NULL)"
    f" FROM items WHERE {_OF} AND %s GROUP BY item_id ORDER BY item_id LIMIT ?"
)


async def page(
    reader: Connection, operation_id: str, attempt: int, *, after: str, limit: int, outcome: str | None
) -> list[ItemView]:
    """Items in the order of their ids, after `after`; those of a rare outcome come from their own index."""
    which, more = ("item_id > ?", (after,)) if outcome is None else (_of_outcome(outcome), (after,))
    found = await reader.execute_fetchall(_VIEW % which, (operation_id, attempt, *more, limit))
    return [_view(row) for row in found]


def _of_outcome(outcome: str) -> str:
    """The condition for one of our own outcome words, spelled so that the partial index can serve it."""
    if outcome not in OUTCOMES:
        raise ValueError(outcome)
    rare = "attempt > 0 AND outcome <> 'succeeded' AND " if outcome != "succeeded" else ""
    return f"{rare}outcome = '{outcome}' AND item_id > ?"


async def one(reader: Connection, operation_id: str, attempt: int, item_id: str) -> ItemView | None:
    """One item by its id."""
    found = await reader.execute_fetchall(_VIEW % "item_id = ?", (operation_id, attempt, item_id, 1))
    return _view(found[0]) if found else None


def _view(row: Sequence[Any]) -> ItemView:
    places = json.loads(row[3]) if row[3] else []
    return ItemView(row[0], row[1], row[2], tuple((p[0], p[1], p[2]) for p in places))

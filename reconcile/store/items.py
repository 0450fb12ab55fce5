"""Items of a result, indexed while they stream past: where each line stands, what it came to, and how all add up.

A collection writes its rows in slices under its own attempt; only the attempt that the operation names is served, so
a half-written one shows nowhere. Ids are compared in SQL: a million of them never stand in memory.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.store.schema import Connection
from reconcile.store.writer import Done, Kind

#: Item rows in one write. 500: keeps the writer under about 5 ms, so that webhooks wait no longer.
SLICE: Final = 500
#: Ids of each problem that are named; the rest is only counted by the summary.
MAX_NAMED: Final = 100


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
class Absentees:
    """Ask for one more slice of submitted ids that stand in no result, to be written as `outcome`."""

    operation_id: str
    attempt: int
    outcome: str


_INSERT: Final = (
    "INSERT OR REPLACE INTO items (operation_key, attempt, item_id, line, outcome, reason, file, start, length)"
    " SELECT key, ?, ?, ?, ?, ?, ?, ?, ? FROM operations WHERE operation_id = ?"
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
        connection.executemany(
            _INSERT,
            [
                (part.attempt, r.item_id, r.line, r.outcome, r.reason, r.file, r.start, r.length, part.operation_id)
                for r in part.rows
            ],
        )
    return [Done() for _ in payloads]


def _absent(connection: sqlite3.Connection, payloads: Sequence[Absentees]) -> list[Done]:
    done = []
    for wish in payloads:
        cursor = connection.execute(_ABSENT, (wish.attempt, wish.outcome, wish.operation_id, wish.attempt, SLICE))
        done.append(Done(cursor.rowcount))
    return done


def _prune(connection: sqlite3.Connection, payloads: Sequence[tuple[str, int]]) -> list[Done]:
    return [Done(connection.execute(_PRUNE, (op_id, keep, SLICE)).rowcount) for op_id, keep in payloads]


INSERT: Final = Kind("items", _insert)
ABSENT: Final = Kind("absent_items", _absent)
PRUNE: Final = Kind("prune_items", _prune)


@dataclass(frozen=True, slots=True)
class Tally:
    """One attempt, counted by id: outcomes, and ids that are doubled or were never sent."""

    by_outcome: dict[str, int]
    duplicate: tuple[str, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    #: Different ids that were found in the result, strange ones left out.
    found: int


_OF: Final = "operation_key = (SELECT key FROM operations WHERE operation_id = ?) AND attempt = ?"
_HAS_SUBMITTED: Final = f"SELECT EXISTS (SELECT 1 FROM items WHERE {_OF})"
_DUPLICATE: Final = (
    f"SELECT item_id FROM items WHERE {_OF} AND line > 0 GROUP BY item_id HAVING count(*) > 1 ORDER BY item_id"
)
_UNKNOWN: Final = (
    "SELECT DISTINCT item_id FROM items found WHERE found.operation_key = (SELECT key FROM operations"
    " WHERE operation_id = ?) AND found.attempt = ? AND NOT EXISTS (SELECT 1 FROM items sent"
    " WHERE sent.operation_key = found.operation_key AND sent.attempt = 0 AND sent.item_id = found.item_id)"
)
_COUNT: Final = (
    "SELECT outcome, count(*) FROM (SELECT item_id, CASE WHEN count(*) > 1 THEN 'failed' ELSE min(outcome) END"
    f" AS outcome FROM items WHERE {_OF} GROUP BY item_id) GROUP BY outcome"
)


async def tally(reader: Connection, operation_id: str, attempt: int) -> Tally:
    """Count one attempt. A doubled id has no outcome to be trusted: it counts once, as failed."""
    at = (operation_id, attempt)
    by_outcome = dict(await reader.execute_fetchall(_COUNT, at))
    doubled = [row[0] for row in await reader.execute_fetchall(_DUPLICATE, at)]
    unknown: list[str] = []
    if (await reader.execute_fetchall(_HAS_SUBMITTED, (operation_id, 0)))[0][0]:
        strangers = await reader.execute_fetchall(
            f"SELECT item_id, min(outcome), count(*) FROM items WHERE {_OF} AND item_id IN ({_UNKNOWN})"
            " GROUP BY item_id ORDER BY item_id",
            (*at, *at),
        )
        for item_id, outcome, lines in strangers:  # a strange id is in no count
            unknown.append(item_id)
            word = "failed" if lines > 1 else outcome
            by_outcome[word] -= 1
    found = sum(by_outcome.values()) - await _absentees(reader, at)
    sql = f"SELECT item_id FROM items WHERE {_OF} AND outcome = 'missing' ORDER BY item_id LIMIT {MAX_NAMED}"
    missing = tuple(row[0] for row in await reader.execute_fetchall(sql, at))
    return Tally(by_outcome, tuple(doubled[:MAX_NAMED]), tuple(unknown[:MAX_NAMED]), missing, found)


async def _absentees(reader: Connection, at: tuple[str, int]) -> int:
    sql = f"SELECT count(*) FROM items WHERE {_OF} AND line = 0"
    return int((await reader.execute_fetchall(sql, at))[0][0])


@dataclass(frozen=True, slots=True)
class ItemView:
    """One item as it is shown: doubled lines folded into one, with every place it stands in."""

    item_id: str
    outcome: str
    reason: str
    places: tuple[tuple[int, int, int], ...]


_PAGE: Final = (
    "SELECT item_id, CASE WHEN count(*) > 1 THEN 'failed' ELSE min(outcome) END,"
    " CASE WHEN count(*) > 1 THEN 'duplicate_id' ELSE min(reason) END,"
    " json_group_array(json_array(file, start, length)) FILTER (WHERE file IS NOT NULL)"
    f" FROM items WHERE {_OF} AND item_id > ? GROUP BY item_id ORDER BY item_id LIMIT ?"
)
_PAGE_OF_OUTCOME: Final = (
    "SELECT * FROM (SELECT item_id, CASE WHEN count(*) > 1 THEN 'failed' ELSE min(outcome) END AS word,"
    " CASE WHEN count(*) > 1 THEN 'duplicate_id' ELSE min(reason) END,"
    " json_group_array(json_array(file, start, length)) FILTER (WHERE file IS NOT NULL)"
    f" FROM items WHERE {_OF} AND item_id > ? GROUP BY item_id) WHERE word = ? ORDER BY item_id LIMIT ?"
)


async def page(
    reader: Connection, operation_id: str, attempt: int, *, after: str, limit: int, outcome: str | None
) -> list[ItemView]:
    """Items in the order of their ids, after `after`."""
    if outcome is None:
        found = await reader.execute_fetchall(_PAGE, (operation_id, attempt, after, limit))
    else:
        found = await reader.execute_fetchall(_PAGE_OF_OUTCOME, (operation_id, attempt, after, outcome, limit))
    return [_view(row) for row in found]


async def one(reader: Connection, operation_id: str, attempt: int, item_id: str) -> ItemView | None:
    """One item by its id."""
    sql = _PAGE.replace("item_id > ?", "item_id = ?")
    found = await reader.execute_fetchall(sql, (operation_id, attempt, item_id, 1))
    return _view(found[0]) if found else None


def _view(row: Sequence[Any]) -> ItemView:
    places = json.loads(row[3]) if row[3] else []
    return ItemView(row[0], row[1], row[2], tuple((p[0], p[1], p[2]) for p in places))

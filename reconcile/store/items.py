"""Items of a result, indexed while they stream past: where each line stands, what it came to, and how all add up.

A collection writes its rows in slices under its own attempt; only the attempt that the operation names is served, so
a half-written one shows nowhere. Ids are compared in SQL: a million of them never stand in memory.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from reconcile.errors import WriteRefused
from reconcile.store.reading import Reader
from reconcile.store.writer import Done, Kind

#: Item rows in one write. 500: keeps the writer under about 5 ms, so that webhooks wait no longer.
SLICE: Final = 500
#: Ids of each problem that are named; the rest is only counted by the summary.
MAX_NAMED: Final = 100
#: What an item may come to.
OUTCOMES: Final = frozenset({"succeeded", "failed", "cancelled", "expired", "missing"})


class ItemRow(NamedTuple):
    """One result line: its outcome, and the bytes it stands in (`file` counts the collected files from 0).

    A tuple, since there may be a million: made and compared at little cost, in the order of the table's key.
    """

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
    """Ask for the next slice, after `after`, of submitted ids that stand in no result, to be written as `outcome`."""

    operation_id: str
    attempt: int
    outcome: str
    after: str = ""


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
    " AND sent.item_id > ? AND NOT EXISTS (SELECT 1 FROM items found WHERE found.operation_key = sent.operation_key"
    "  AND found.attempt = ? AND found.item_id = sent.item_id)"
    " ORDER BY sent.item_id LIMIT ? RETURNING item_id"
)
#: Rows of other attempts than the one kept; submitted ids (attempt 0) stay.
_PRUNE: Final = (
    "DELETE FROM items WHERE (operation_key, attempt, item_id, line) IN (SELECT operation_key, attempt, item_id, line"
    " FROM items WHERE operation_key = (SELECT key FROM operations WHERE operation_id = ?) AND attempt %s LIMIT ?)"
)


def _insert(connection: sqlite3.Connection, payloads: Sequence[ItemSlice]) -> list[Done]:
    for part in payloads:
        key = _key_of(connection, part.operation_id)
        connection.executemany(
            _INSERT,
            [(key, part.attempt, *row) for row in part.rows],
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
        values = (wish.attempt, wish.outcome, wish.operation_id, wish.after, wish.attempt, SLICE)
        written = [row[0] for row in connection.execute(_ABSENT, values)]
        done.append(Done((len(written), max(written, default=""))))
    return done


def _prune(connection: sqlite3.Connection, payloads: Sequence[tuple[str, int]]) -> list[Done]:
    return [Done(_prune_one(connection, operation_id, keep)) for operation_id, keep in payloads]


def _prune_one(connection: sqlite3.Connection, operation_id: str, keep: int) -> int:
    older = connection.execute(_PRUNE % "BETWEEN 1 AND ?", (operation_id, keep - 1, SLICE)).rowcount
    later = connection.execute(_PRUNE % "> ?", (operation_id, keep, SLICE)).rowcount
    return older + later


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
_STRANGE: Final = (
    "items found WHERE found.operation_key = (SELECT key FROM operations WHERE operation_id = ?) AND found.attempt = ?"
    " AND NOT EXISTS (SELECT 1 FROM items sent WHERE sent.operation_key = found.operation_key AND sent.attempt = 0"
    " AND sent.item_id = found.item_id)"
)
_STRANGERS: Final = f"SELECT outcome, count(DISTINCT item_id) FROM {_STRANGE} GROUP BY outcome"
_STRANGE_IDS: Final = f"SELECT DISTINCT item_id FROM {_STRANGE} ORDER BY item_id LIMIT {MAX_NAMED}"


async def doubled_ids(reader: Reader, operation_id: str, attempt: int, *, after: str) -> tuple[str, ...]:
    """One slice of the ids that stand in more than one line, in order, after `after`."""
    found = await reader.execute_fetchall(_DOUBLED_IDS, (operation_id, attempt, after, SLICE))
    return tuple(row[0] for row in found)


async def tally(reader: Reader, operation_id: str, attempt: int) -> Tally:
    """Count one attempt whose doubled and absent ids are marked."""
    at = (operation_id, attempt)
    by_outcome = dict(await reader.execute_fetchall(_COUNT, at))
    absent = f"SELECT count(*) FROM items WHERE {_OF} AND line = 0"
    found = sum(by_outcome.values()) - int((await reader.execute_fetchall(absent, at))[0][0])
    unknown: tuple[str, ...] = ()
    if (await reader.execute_fetchall(_HAS_SUBMITTED, (operation_id, 0)))[0][0]:
        for outcome, strangers in await reader.execute_fetchall(_STRANGERS, at):
            by_outcome[outcome] -= strangers
            found -= strangers
        unknown = tuple(row[0] for row in await reader.execute_fetchall(_STRANGE_IDS, at))
    named = f"SELECT DISTINCT item_id FROM items WHERE {_OF} AND outcome = 'missing' ORDER BY item_id LIMIT {MAX_NAMED}"
    missing = tuple(row[0] for row in await reader.execute_fetchall(named, at))
    duplicate = (await doubled_ids(reader, operation_id, attempt, after=""))[:MAX_NAMED]
    return Tally(by_outcome, duplicate, unknown, missing, found)


@dataclass(frozen=True, slots=True)
class ItemView:
    """One item as it is shown: the lines of a doubled id folded into one."""

    item_id: str
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where one line of a result stands: the collected file, counted from 0, and its bytes."""

    file: int
    start: int
    length: int


_VIEW: Final = (
    f"SELECT item_id, min(outcome), min(reason) FROM items WHERE {_OF} AND %s GROUP BY item_id ORDER BY item_id LIMIT ?"
)
#: The first lines that bear an id; a result may repeat one without end.
_PLACES: Final = (
    f"SELECT file, start, length FROM items WHERE {_OF} AND item_id = ? AND file IS NOT NULL"
    f" ORDER BY line LIMIT {MAX_NAMED}"
)


async def page(
    reader: Reader, operation_id: str, attempt: int, *, after: str, limit: int, outcome: str | None
) -> list[ItemView]:
    """Items in the order of their ids, after `after`; those of a rare outcome come from their own index."""
    which = "item_id > ?" if outcome is None else _of_outcome(outcome)
    found = await reader.execute_fetchall(_VIEW % which, (operation_id, attempt, after, limit))
    return [ItemView(*row) for row in found]


def _of_outcome(outcome: str) -> str:
    """The condition for one of our own outcome words, spelled so that the partial index can serve it."""
    if outcome not in OUTCOMES:
        raise ValueError(outcome)
    rare = "attempt > 0 AND outcome <> 'succeeded' AND " if outcome != "succeeded" else ""
    return f"{rare}outcome = '{outcome}' AND item_id > ?"


async def one(reader: Reader, operation_id: str, attempt: int, item_id: str) -> ItemView | None:
    """One item by its id."""
    found = await reader.execute_fetchall(_VIEW % "item_id = ?", (operation_id, attempt, item_id, 1))
    return ItemView(*found[0]) if found else None


async def places(reader: Reader, operation_id: str, attempt: int, item_id: str) -> list[Place]:
    """The first lines that bear an id, at most `MAX_NAMED`."""
    found = await reader.execute_fetchall(_PLACES, (operation_id, attempt, item_id))
    return [Place(*row) for row in found]

"""Deliveries that were pruned: counted, and their ids known for as long as a provider may repeat them.

A late repeat is still a repeat (C8), and the same id with other content is still noticed. An id is pruned when no
repeat of it can come any more; the counts stay.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.model import UnixMs
from reconcile.store.reading import Reader
from reconcile.store.writer import Done, Kind

#: What one slice takes at most: rows, and pages of the long values in them. 300: measured, a few ms of the writer.
MAX_WEIGHT: Final = 300
#: Bytes of one page of the file: SQLite's default. Long bodies fill pages of their own, each freed by itself.
PAGE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class IdsKept:
    """Of each provider, the ids of deliveries that came since a moment; of one that is not named, since `otherwise`."""

    since: Mapping[str, UnixMs]
    otherwise: UnixMs


@dataclass(frozen=True, slots=True)
class EventPruning:
    """Take one slice of the events that no operation was found for and that came before a moment."""

    received_before: UnixMs
    ids: IdsKept


_COUNT: Final = (
    "INSERT INTO pruned_events (provider, events, duplicates, unmatched, last_at) SELECT provider, count(*),"
    " sum(duplicates), sum(disposition = 'unmatched'), max(received_at) FROM events"
    " WHERE key IN (SELECT value FROM json_each(?)) GROUP BY provider ON CONFLICT (provider) DO UPDATE SET"
    " events = events + excluded.events, duplicates = duplicates + excluded.duplicates,"
    " unmatched = unmatched + excluded.unmatched, last_at = max(last_at, excluded.last_at)"
)
_KEEP_IDS: Final = (
    "INSERT INTO event_ids (provider, event_id, body_sha256, received_at)"
    " SELECT e.provider, e.event_id, e.body_sha256, e.received_at FROM events e"
    " WHERE e.key IN (SELECT value FROM json_each(?1))"
    " AND e.received_at > coalesce((SELECT j.value FROM json_each(?2) j WHERE j.key = e.provider), ?3)"
    " ON CONFLICT DO NOTHING"
)
_REMOVE: Final = "DELETE FROM events WHERE key IN (SELECT value FROM json_each(?))"
_STALE: Final = (
    f"SELECT key, 1 + length(body) / {PAGE_BYTES} FROM events WHERE operation_key IS NULL AND received_at <= ?"
    " ORDER BY received_at LIMIT ?"
)
#: Every provider whose ids may be here has a row there.
_PROVIDERS: Final = "SELECT provider FROM pruned_events ORDER BY provider"
_NAMED: Final = "provider, event_id, body_sha256"
_REMOVE_IDS: Final = (
    f"DELETE FROM event_ids WHERE ({_NAMED}) IN"
    f" (SELECT {_NAMED} FROM event_ids WHERE provider = ? AND received_at <= ? LIMIT ?)"
)
_KNOWN: Final = (
    "SELECT json_group_array(json_array(i.event_id, i.body_sha256)) FROM json_each(?) j CROSS JOIN event_ids i"
    " ON i.provider = ? AND i.event_id = j.value"
)
_REPEATED: Final = "UPDATE pruned_events SET duplicates = duplicates + ? WHERE provider = ?"
_COUNTS: Final = (
    "SELECT provider, sum(n), sum(repeats), sum(strangers), max(last_at) FROM"
    " (SELECT provider, count(*) AS n, sum(duplicates) AS repeats, sum(disposition = 'unmatched') AS strangers,"
    "   max(received_at) AS last_at FROM events GROUP BY provider"
    "  UNION ALL SELECT provider, events, duplicates, unmatched, last_at FROM pruned_events)"
    " GROUP BY provider ORDER BY provider"
)


def prune(connection: sqlite3.Connection, keys: Sequence[int], ids: IdsKept) -> None:
    """Remove events: they stay counted, and of those that may still be repeated the ids are kept."""
    if not keys:
        return
    named = json.dumps(keys)
    connection.execute(_KEEP_IDS, (named, json.dumps(dict(ids.since)), ids.otherwise))
    connection.execute(_COUNT, (named,))
    connection.execute(_REMOVE, (named,))


def known(connection: sqlite3.Connection, provider: str, event_ids: str) -> set[tuple[str, str]]:
    """Which of these ids, a JSON array, belong to pruned events: each with the hash of a body that it came with."""
    found = connection.execute(_KNOWN, (event_ids, provider)).fetchone()[0]
    return {(event_id, sha) for event_id, sha in json.loads(found)}


def count_repeats(connection: sqlite3.Connection, provider: str, repeats: int) -> None:
    """Count repeats of pruned events."""
    if repeats:
        connection.execute(_REPEATED, (repeats, provider))


async def counts(reader: Reader) -> dict[str, dict[str, Any]]:
    """By provider: deliveries kept, duplicates, unmatched, and when the last one came, pruned or not."""
    return {
        provider: {"accepted": n, "duplicate": repeats, "unmatched": strangers, "last_at": last}
        for provider, n, repeats, strangers, last in await reader.execute_fetchall(_COUNTS)
    }


def within(rows: Iterable[tuple[int, int]], most: int) -> tuple[list[int], int]:
    """The first rows whose weights come to `most`, and at least one: one value may be longer than a slice."""
    keys: list[int] = []
    sum_of_weights = 0
    for key, weight in rows:
        if keys and sum_of_weights + weight > most:
            break
        keys.append(key)
        sum_of_weights += weight
    return keys, sum_of_weights


def _prune_stale(connection: sqlite3.Connection, wish: EventPruning) -> Done:
    """One slice; answered with how many there were."""
    keys, _ = within(connection.execute(_STALE, (wish.received_before, MAX_WEIGHT)), MAX_WEIGHT)
    prune(connection, keys, wish.ids)
    return Done(len(keys))


def _prune_ids(connection: sqlite3.Connection, ids: IdsKept) -> Done:
    """One slice; answered with how many there were."""
    left = MAX_WEIGHT
    for (provider,) in connection.execute(_PROVIDERS).fetchall():
        if left > 0:
            before = ids.since.get(provider, ids.otherwise)
            left -= connection.execute(_REMOVE_IDS, (provider, before, left)).rowcount
    return Done(MAX_WEIGHT - left)


PRUNE_EVENTS: Final = Kind("prune_events", lambda connection, payloads: [_prune_stale(connection, w) for w in payloads])
PRUNE_IDS: Final = Kind("prune_event_ids", lambda connection, payloads: [_prune_ids(connection, i) for i in payloads])

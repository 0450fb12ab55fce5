"""Verified deliveries: kept once, matched to their operation, and the row rung, in set-wide statements.

A ring writes the event and the due time, no history and no wide row; only an event that `decide` must judge (the job
has ended, the provider has no read, the same id came with other content) goes through the evidence road, in the same
transaction.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconcile.evidence import EventSeen
from reconcile.model import Observation, UnixMs, Verdict
from reconcile.states import GIVEN_UP, RINGS, Priority, State
from reconcile.store import pruned_events
from reconcile.store.evidence import Applier, Arrival, Rules
from reconcile.store.schema import listed
from reconcile.store.writer import Done, Kind


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One verified delivery as it is kept. `observation` is None where the body could not be read."""

    provider: str
    event_id: str
    body_sha256: str
    body: bytes
    received_at: UnixMs
    draw: float
    observation: Observation | None
    verdict: Verdict | None = None


@dataclass(slots=True)
class _Arrived:
    """A delivery of this batch that is new to the file."""

    record: EventRecord
    key: int
    is_other_content: bool = False
    operation_key: int | None = None
    operation_id: str | None = None
    state: State | None = None
    disposition: str = "unmatched"
    positions: list[int] = field(default_factory=list)


#: Rows of one INSERT; a few prepared sizes, so that the statements stay cached.
_SIZES: Final = (64, 16, 4, 1)
_COLUMNS: Final = "provider, event_id, body_sha256, received_at, remote_job_id, word, verdict, disposition, body"
_DUPLICATES: Final = (
    "UPDATE events SET duplicates = duplicates + 1 WHERE key IN (SELECT e.key FROM json_each(?) j JOIN events e"
    " ON e.provider = j.value ->> 0 AND e.event_id = j.value ->> 1 AND e.body_sha256 = j.value ->> 2)"
)
_OTHER_CONTENT: Final = (
    "SELECT e.key FROM json_each(?) j JOIN events e ON e.key = j.value WHERE EXISTS (SELECT 1 FROM events other"
    " WHERE other.provider = e.provider AND other.event_id = e.event_id AND other.key < e.key)"
)
#: A job may have had several operations; the one that still holds it is the one that an event concerns.
_MATCH: Final = (
    "SELECT e.key, o.key, o.operation_id, o.state FROM json_each(?) j JOIN events e ON e.key = j.value"
    " JOIN present o ON o.provider = e.provider AND o.remote_job_id = e.remote_job_id"
    f" ORDER BY e.key, o.state IN {listed(GIVEN_UP)} DESC, o.key"
)
_MATCHED: Final = (
    "UPDATE events SET operation_key = j.value ->> 1, disposition = j.value ->> 2 FROM json_each(?) j"
    " WHERE events.key = j.value ->> 0"
)
_RING: Final = (
    "UPDATE schedule SET due_at = min(due_at, j.value ->> 1), priority = min(priority, ?), ring = j.value ->> 2"
    " FROM json_each(?) j WHERE schedule.key = j.value ->> 0"
)


def kind(rules: Rules, contract_has_read: "HasRead") -> Kind:
    """The writes that bring events; each is answered "new" or "duplicate"."""

    def run(connection: sqlite3.Connection, payloads: Sequence[EventRecord]) -> list[Done]:
        arrived = _keep(connection, payloads)
        _match(connection, arrived, contract_has_read)
        applier = Applier(connection, rules)
        judged = [a for a in arrived if a.operation_id is not None and a.disposition in ("kept", "contradiction")]
        applier.load([str(a.operation_id) for a in judged])
        changes = {a.key: applier.apply(_as_arrival(a)) for a in judged}
        applier.flush()
        _ring(connection, [a for a in arrived if a.disposition == "rings"])
        done = [Done("duplicate") for _ in payloads]
        for a in arrived:
            change = changes.get(a.key)
            due_at = a.record.received_at if a.disposition == "rings" else (change.due_at if change else None)
            unmatched = a.record.provider if a.disposition == "unmatched" and a.record.observation else None
            done[a.positions[0]] = Done("new", change.changes if change else (), due_at, unmatched)
        return done

    return Kind("events", run)


class HasRead:
    """Whether a provider's jobs can be read; where not, the verified event itself is the evidence."""

    def __init__(self, providers_without_read: Iterable[str]) -> None:
        self._without = frozenset(providers_without_read)

    def __call__(self, provider: str) -> bool:
        """Whether events of this provider only ring."""
        return provider not in self._without


def _keep(connection: sqlite3.Connection, payloads: Sequence[EventRecord]) -> list[_Arrived]:
    """Insert what is new, count what is not; the batch itself is searched for repeats first."""
    first: dict[tuple[str, str, str], list[int]] = {}
    for position, record in enumerate(payloads):
        first.setdefault((record.provider, record.event_id, record.body_sha256), []).append(position)
    pruned = pruned_events.known_ids(connection, {name[:2]: None for name in first})
    _count_late_repeats(connection, first, pruned)
    unique = [payloads[positions[0]] for positions in first.values()]
    inserted: dict[tuple[str, str, str], int] = {}
    for chunk in _chunks(unique):
        values = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?)"] * len(chunk))
        sql = (
            f"INSERT INTO events ({_COLUMNS}) VALUES {values} ON CONFLICT DO NOTHING"
            " RETURNING key, provider, event_id, body_sha256"
        )
        parameters = [value for record in chunk for value in _values(record)]
        for key, provider, event_id, sha in connection.execute(sql, parameters).fetchall():
            inserted[provider, event_id, sha] = key
    repeats = [list(name) for name, positions in first.items() for _ in positions[0 if name not in inserted else 1 :]]
    if repeats:
        for name in repeats:  # one statement a repeat: a set-wide UPDATE would count a tripled id once
            connection.execute(_DUPLICATES, (json.dumps([name]),))
    arrived = [_Arrived(payloads[first[name][0]], key, positions=first[name]) for name, key in inserted.items()]
    others = {key for (key,) in connection.execute(_OTHER_CONTENT, (json.dumps([a.key for a in arrived]),))}
    for a in arrived:
        a.is_other_content = a.key in others or (a.record.provider, a.record.event_id) in pruned
    return arrived


def _count_late_repeats(
    connection: sqlite3.Connection,
    first: dict[tuple[str, str, str], list[int]],
    pruned: dict[tuple[str, str], set[str]],
) -> None:
    """Take out of `first` what repeats an event that was pruned: nothing but its count is written."""
    repeats: dict[str, int] = {}
    for name in [name for name in first if name[2] in pruned.get(name[:2], ())]:
        repeats[name[0]] = repeats.get(name[0], 0) + len(first.pop(name))
    pruned_events.count_repeats(connection, repeats)


def _values(record: EventRecord) -> tuple[Any, ...]:
    seen = record.observation
    return (
        record.provider,
        record.event_id,
        record.body_sha256,
        record.received_at,
        seen.remote_job_id if seen else None,
        seen.word if seen else None,
        record.verdict.kind if record.verdict else None,
        "unmatched" if seen else "unreadable",
        record.body,
    )


def _match(connection: sqlite3.Connection, arrived: list[_Arrived], has_read: HasRead) -> None:
    by_key = {a.key: a for a in arrived}
    found = connection.execute(_MATCH, (json.dumps([a.key for a in arrived if a.record.observation]),)).fetchall()
    for event_key, operation_key, operation_id, state in found:
        a = by_key[event_key]
        a.operation_key, a.operation_id, a.state = operation_key, operation_id, State(state)
        if a.is_other_content:
            a.disposition = "contradiction"
        else:
            a.disposition = "rings" if a.state in RINGS and has_read(a.record.provider) else "kept"
    matched = [[a.key, a.operation_key, a.disposition] for a in arrived if a.operation_key is not None]
    connection.execute(_MATCHED, (json.dumps(matched),))


def _ring(connection: sqlite3.Connection, rung: list[_Arrived]) -> None:
    if rung:
        rows = [[a.operation_key, a.record.received_at, f"event:{a.record.event_id}"] for a in rung]
        connection.execute(_RING, (Priority.RUNG, json.dumps(rows)))


def _as_arrival(a: _Arrived) -> Arrival:
    record = a.record
    assert record.observation is not None  # noqa: S101 - an unreadable body matches no operation
    return Arrival(
        operation_id=str(a.operation_id),
        evidence=EventSeen(record.observation, is_other_content=a.is_other_content),
        actor=f"webhook:{record.provider}",
        cause=f"event:{record.event_id}",
        at=record.received_at,
        draw=record.draw,
    )


def _chunks(records: Sequence[EventRecord]) -> Iterable[Sequence[EventRecord]]:
    rest = records
    while rest:
        size = next(size for size in _SIZES if size <= len(rest))
        yield rest[:size]
        rest = rest[size:]

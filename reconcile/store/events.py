"""Verified deliveries: kept once, matched to their operation, and the row rung, in set-wide statements.

A ring writes the event and the due time, no history and no wide row; only an event that `decide` must judge (the job
has ended, the provider has no read, the same id came with other content) goes through the evidence road, in the same
transaction.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.evidence import EventSeen
from reconcile.model import Observation, UnixMs, Verdict
from reconcile.states import GIVEN_UP, RINGS, Priority, State
from reconcile.store import pruned_events
from reconcile.store.evidence import Applier, Arrival, Rules
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


#: Provider, event id, hash of the body: what tells one delivery from another.
_Name = tuple[str, str, str]


@dataclass(slots=True)
class _Arrived:
    """A delivery of this batch that is new to the file."""

    record: EventRecord
    #: Where it, and whatever repeats it, stand in the batch.
    positions: list[int]
    is_other_content: bool
    operation_key: int | None = None
    operation_id: str | None = None
    disposition: str = "unmatched"


#: Rows of one INSERT; a few prepared sizes, so that the statements stay cached.
_SIZES: Final = (64, 16, 4, 1)
_COLUMNS: Final = (
    "provider, event_id, body_sha256, received_at, remote_job_id, word, verdict, operation_key, disposition,"
    " duplicates, body"
)
_ROW: Final = f"({', '.join('?' * len(_COLUMNS.split(',')))})"
# These answer with one row, whatever they find: for each row sqlite3 drops the interpreter's lock and takes it again,
# which under load means to wait for it.
_KNOWN: Final = (
    "SELECT json_group_array(json_array(e.event_id, e.body_sha256, e.key)) FROM json_each(?) j CROSS JOIN events e"
    " ON e.provider = ? AND e.event_id = j.value"
)
_HOLDERS: Final = (
    "SELECT json_group_array(json_array(o.remote_job_id, o.key, o.operation_id, o.state))"
    " FROM json_each(?) j CROSS JOIN present o ON o.provider = ? AND o.remote_job_id = j.value"
)
_REPEATED: Final = (
    "UPDATE events SET duplicates = duplicates + (j.value ->> 1) FROM json_each(?) j WHERE events.key = j.value ->> 0"
)
#: What was rung already and waits for its read is not written once more.
_RING: Final = (
    "UPDATE schedule SET due_at = min(due_at, j.value ->> 1), priority = min(priority, ?1), ring = j.value ->> 2"
    " FROM json_each(?2) j WHERE schedule.key = j.value ->> 0"
    " AND (schedule.ring IS NULL OR schedule.due_at > j.value ->> 1 OR schedule.priority > ?1)"
)


def kind(rules: Rules, contract_has_read: "HasRead") -> Kind:
    """The writes that bring events; each is answered "new" or "duplicate"."""

    def run(connection: sqlite3.Connection, payloads: Sequence[EventRecord]) -> list[Done]:
        arrived = _new(connection, payloads)
        _match(connection, arrived, contract_has_read)
        _insert(connection, arrived)
        judged = [a for a in arrived if a.disposition in ("kept", "contradiction") and a.operation_id is not None]
        changes = _judge(connection, rules, judged) if judged else {}
        _ring(connection, [a for a in arrived if a.disposition == "rings"])
        done = [Done("duplicate") for _ in payloads]
        for a in arrived:
            change = changes.get(a.positions[0])
            due_at = a.record.received_at if a.disposition == "rings" else (change.due_at if change else None)
            unmatched = a.record.provider if a.disposition == "unmatched" else None
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


def _new(connection: sqlite3.Connection, payloads: Sequence[EventRecord]) -> list[_Arrived]:
    """What the file does not hold yet; what it holds is counted. The batch itself is searched for repeats first."""
    batch: dict[_Name, list[int]] = {}
    for position, record in enumerate(payloads):
        batch.setdefault((record.provider, record.event_id, record.body_sha256), []).append(position)
    arrived: list[_Arrived] = []
    repeats: list[tuple[int, int]] = []
    for provider in {name[0]: None for name in batch}:
        named = {name: positions for name, positions in batch.items() if name[0] == provider}
        ids = json.dumps(list({name[1]: None for name in named}))
        known = {(event_id, sha): key for event_id, sha, key in _one(connection, _KNOWN, ids, provider)}
        pruned = pruned_events.known(connection, provider, ids)
        taken = {event_id for event_id, _ in (*known, *pruned)}
        repeats_of_pruned = 0
        for name, positions in named.items():
            if name[1:] in pruned:
                repeats_of_pruned += len(positions)
            elif name[1:] in known:
                repeats.append((known[name[1:]], len(positions)))
            else:
                arrived.append(_Arrived(payloads[positions[0]], positions, is_other_content=name[1] in taken))
                taken.add(name[1])
        pruned_events.count_repeats(connection, provider, repeats_of_pruned)
    if repeats:
        connection.execute(_REPEATED, (json.dumps(repeats),))
    return arrived


def _match(connection: sqlite3.Connection, arrived: list[_Arrived], has_read: HasRead) -> None:
    """Find the operation that each delivery is about, and what it does to it."""
    jobs: dict[str, set[str]] = {}
    for a in arrived:
        seen = a.record.observation
        a.disposition = "unreadable" if seen is None else "unmatched"
        if seen is not None and seen.remote_job_id is not None:
            jobs.setdefault(a.record.provider, set()).add(seen.remote_job_id)
    holders = {
        (provider, row[0]): row
        for provider, ids in jobs.items()
        # A job may have had several operations; the one that still holds it is the one that an event concerns.
        for row in sorted(
            _one(connection, _HOLDERS, json.dumps(sorted(ids)), provider),
            key=lambda row: (State(row[3]) not in GIVEN_UP, row[1]),
        )
    }
    for a in arrived:
        seen = a.record.observation
        holder = None if seen is None else holders.get((a.record.provider, seen.remote_job_id))
        if holder is None:
            continue
        _, a.operation_key, a.operation_id, state = holder
        if a.is_other_content:
            a.disposition = "contradiction"
        else:
            a.disposition = "rings" if State(state) in RINGS and has_read(a.record.provider) else "kept"


def _one(connection: sqlite3.Connection, sql: str, names: str, provider: str) -> list[list[Any]]:
    """The rows of a statement that puts them into one."""
    found: list[list[Any]] = json.loads(connection.execute(sql, (names, provider)).fetchone()[0])
    return found


def _insert(connection: sqlite3.Connection, arrived: Sequence[_Arrived]) -> None:
    for chunk in _chunks(arrived):
        sql = f"INSERT INTO events ({_COLUMNS}) VALUES {', '.join([_ROW] * len(chunk))}"
        connection.execute(sql, [value for a in chunk for value in _values(a)])


def _values(a: _Arrived) -> tuple[Any, ...]:
    record, seen = a.record, a.record.observation
    return (
        record.provider,
        record.event_id,
        record.body_sha256,
        record.received_at,
        seen.remote_job_id if seen else None,
        seen.word if seen else None,
        record.verdict.kind if record.verdict else None,
        a.operation_key,
        a.disposition,
        len(a.positions) - 1,
        record.body,
    )


def _judge(connection: sqlite3.Connection, rules: Rules, arrived: Sequence[_Arrived]) -> dict[int, Done]:
    """What `decide` makes of those that are more than a ring, by their place in the batch."""
    applier = Applier(connection, rules)
    applier.load([str(a.operation_id) for a in arrived])
    changes = {a.positions[0]: applier.apply(_as_arrival(a)) for a in arrived}
    applier.flush()
    return changes


def _ring(connection: sqlite3.Connection, rung: list[_Arrived]) -> None:
    """Of several that ring one row the first to come counts: SQL would take any of them."""
    first: dict[int | None, _Arrived] = {}
    for a in sorted(rung, key=lambda a: a.record.received_at):
        first.setdefault(a.operation_key, a)
    if first:
        rows = [[key, a.record.received_at, f"event:{a.record.event_id}"] for key, a in first.items()]
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


def _chunks(arrived: Sequence[_Arrived]) -> Iterable[Sequence[_Arrived]]:
    rest = arrived
    while rest:
        size = next(size for size in _SIZES if size <= len(rest))
        yield rest[:size]
        rest = rest[size:]

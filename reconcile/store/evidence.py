"""Evidence into rows: the one place where a decision meets the row as it stands.

All evidence of a batch is decided in order between one SELECT and a few set-wide statements; the second for an
operation is decided on the row that the first one left. `judge` (classify and decide behind it) is handed in and
touches nothing but its arguments.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile import health
from reconcile.callback import CallbackEvent
from reconcile.contract import GONE_RUN_READS
from reconcile.decisions import job_held_by
from reconcile.errors import IllegalTransition, WriteRefused
from reconcile.evidence import (
    Accepted,
    EventSeen,
    Evidence,
    FinishedAtOnce,
    JobGone,
    JobIsHeld,
    JobRead,
    LookedAgain,
    LookupFound,
    PersonDecided,
)
from reconcile.model import Change, Entry, EntryKind, Observation, Operation, UnixMs
from reconcile.notice import Notice
from reconcile.notices import of_contradiction
from reconcile.replacing import replace
from reconcile.states import ACTIONS, GIVEN_UP, REASON_OF, WATCHING, Priority, is_legal
from reconcile.store import deliveries, kept_events, lost_creates, notices, providers, rows
from reconcile.store.deliveries import Announcement
from reconcile.store.history import Appender
from reconcile.store.kept import Keeper, ObservationRecord, RequestRecord
from reconcile.store.schema import listed
from reconcile.store.writer import Done, Kind


@dataclass(frozen=True, slots=True)
class Arrival:
    """Evidence on its way into the store, with all that its rows need.

    `fence`: the lease under which it was gained, None where it needs none (people, events, list pages).
    `holds`: the action goes on under the same lease, so the row is not released.
    """

    operation_id: str
    evidence: Evidence
    actor: str
    cause: str
    at: UnixMs
    draw: float
    fence: int | None = None
    holds: bool = False
    requests: tuple[RequestRecord, ...] = ()
    observation: ObservationRecord | None = None


Judge = Callable[[Operation, Arrival], Change]
#: The body with which a callback is told of an event, as the operation then stands; None: it is not to be told.
Announce = Callable[[Operation, CallbackEvent, UnixMs], bytes | None]


@dataclass(frozen=True, slots=True)
class Rules:
    """The pure functions that are handed in: what evidence comes to, and what is told of it to whom."""

    judge: Judge
    announce: Announce


_LEASES: Final = (
    "SELECT s.key, s.fence, s.lease_owner IS NOT NULL, s.ring, s.due_at FROM schedule s JOIN operations o"
    " ON o.key = s.key WHERE o.operation_id IN (SELECT value FROM json_each(?))"
)
_PLAN: Final = (
    "UPDATE schedule SET priority = ?, due_at = ?, deadline_at = ?,"
    " polls = ?, errors = ?, gone_reads = ?, gone_since = ?, mark_at = ?,"
    " marks_on_claim = ?, ring = ?, last_read_at = coalesce(?, last_read_at),"
    " reads = reads + ?,"
    " lease_owner = CASE WHEN ? THEN NULL ELSE lease_owner END,"
    " lease_until = CASE WHEN ? THEN NULL ELSE lease_until END WHERE key = ?"
)
#: Another operation that holds a job; those that ended without the job's own end hold none (N5).
_HOLDER: Final = (
    "SELECT operation_id FROM present WHERE provider = ? AND remote_job_id = ? AND key <> ?"
    f" AND state NOT IN {listed(GIVEN_UP)}"
)


@dataclass(slots=True)
class _Lease:
    fence: int = 0
    is_held: bool = False
    ring: str | None = None
    due_at: UnixMs | None = None


@dataclass(frozen=True, slots=True)
class _Hold:
    """How an arrival stands to the lease of its row."""

    is_holder: bool
    #: Its action goes on under the same lease.
    goes_on: bool
    was_due_at: UnixMs


class Applier:
    """One transaction's worth of evidence; `flush` writes what `apply` decided."""

    def __init__(self, connection: sqlite3.Connection, rules: Rules) -> None:
        self._connection = connection
        self._judge = rules.judge
        self._announce = rules.announce
        self._history = Appender(connection)
        self._standing: dict[str, tuple[int, Operation]] = {}
        self._leases: dict[int, _Lease] = {}
        self._wide: dict[int, Operation] = {}
        self._plans: list[tuple[Any, ...]] = []
        self._ended: list[tuple[int]] = []
        self._keeper = Keeper(connection)
        self._notices: list[Notice] = []
        #: Who is told of what, as it stood after the whole change.
        self._told: list[tuple[int, Operation, CallbackEvent, UnixMs]] = []
        #: How the newest ends of a provider came to light, where this batch added to them.
        self._recent_ends: dict[str, str] = {}

    def load(self, operation_ids: Sequence[str]) -> None:
        """Read the rows that the batch concerns, in one go."""
        ids = list(dict.fromkeys(operation_ids))
        self._standing.update(rows.by_ids(self._connection, ids))
        for key, fence, is_held, ring, due_at in self._connection.execute(_LEASES, (json.dumps(ids),)):
            self._leases[key] = _Lease(fence, bool(is_held), ring, due_at)

    def apply(self, arrival: Arrival) -> Done:
        """Decide one arrival on the row as it stands. Raises: WriteRefused, for an operation that does not exist."""
        standing = self._standing.get(arrival.operation_id)
        if standing is None:
            raise WriteRefused(f"no operation {arrival.operation_id}")
        key, op = standing
        lease = self._leases.setdefault(key, _Lease())
        is_stale = arrival.fence is not None and not (lease.is_held and lease.fence == arrival.fence)
        if isinstance(arrival.evidence, LookupFound) and (arrival.evidence.job_ids or op.candidates):
            self.flush()  # what this batch has decided of the neighbours is asked for by SQL
            arrival = replace(arrival, evidence=lost_creates.among_others(self._connection, key, op, arrival.evidence))
        if isinstance(arrival.evidence, JobGone) and _may_be_gone(op):
            told = kept_events.end_told(self._connection, key, str(op.remote_job_id))
            arrival = replace(arrival, evidence=replace(arrival.evidence, announced=told))
        arrival = _with_ring(arrival, lease.ring)
        change = self._late(op, arrival) if is_stale else self._judge(op, arrival)
        if change.operation.remote_job_id not in (None, op.remote_job_id):
            change = self._unless_held(key, op, change, arrival)
        if change.refusal is not None:
            return Done(change, (change,))
        change = self._write(key, op, change, arrival, lease, is_stale=is_stale)
        self._keeper.keep(key, change, arrival.requests, arrival.observation, arrival.at)
        changes = [change]
        if change.operation.remote_job_id not in (None, op.remote_job_id):
            changes += self._apply_kept_events(key, change.operation, arrival)
        after = changes[-1].operation
        due_at = None if after.is_terminal else after.schedule.due_at
        return Done(replace(change, operation=after, is_late=is_stale), tuple(changes), due_at)

    def flush(self) -> None:
        """Write everything that was decided since the last time, a statement a table."""
        rows.update(self._connection, list(self._wide.items()))
        self._connection.executemany(_PLAN, self._plans)
        self._connection.executemany("DELETE FROM schedule WHERE key = ?", self._ended)
        self._keeper.flush()
        self._history.flush()
        notices.tell(self._connection, self._notices)
        providers.keep_ends(self._connection, self._recent_ends)
        deliveries.write(self._connection, list(self._announcements()))
        self._wide.clear()
        for written in (self._plans, self._ended, self._notices, self._told):
            written.clear()

    def _announcements(self) -> Iterator[Announcement]:
        """What is put into the outbox; only once the neighbours' rows are written, which a candidate may be held by."""
        for key, op, event, at in self._told:
            shown = lost_creates.as_shown(self._connection, key, op)
            body = self._announce(shown, event, at)
            if body is not None and op.callback is not None:
                yield Announcement(delivery_id(op), key, op.callback, event, body, at)

    def _unless_held(self, key: int, op: Operation, change: Change, arrival: Arrival) -> Change:
        """A job that another operation holds is never taken: that is a violation of the contract, for a person (B4)."""
        job_id = str(change.operation.remote_job_id)
        holder = self._connection.execute(_HOLDER, (op.provider, job_id, key)).fetchone()
        if holder is None:
            return change
        if isinstance(arrival.evidence, PersonDecided):  # a person may name another one instead (N32)
            return Change(op, refusal=job_held_by(job_id, holder[0]))
        return self._judge(op, replace(arrival, evidence=JobIsHeld(job_id, by=holder[0])))

    def _late(self, op: Operation, arrival: Arrival) -> Change:
        """Facts of an owner whose lease was taken over: kept, but no action; a job id is never thrown away (N24)."""
        if isinstance(arrival.evidence, Accepted | FinishedAtOnce | LookedAgain):
            return self._judge(op, arrival)
        judged = self._judge(op, arrival)  # only for what the facts mean
        lost = "an owner that had lost its lease: kept, the job is read again"
        whose = "a request that was under way as the operation ended: kept" if op.is_terminal else lost
        reason = f"{type(arrival.evidence).__name__} of {whose}"
        entry = Entry(EntryKind.REFUSED, op.state, None, arrival.cause, reason)
        rung = min(op.schedule.priority, Priority.RUNG)
        schedule = replace(op.schedule, due_at=min(op.schedule.due_at, arrival.at), priority=rung)
        return Change(
            replace(op, schedule=schedule),
            (entry,),
            is_news=True,
            verdict=judged.verdict,
            contract_version=judged.contract_version,
        )

    def _write(
        self, key: int, op: Operation, change: Change, arrival: Arrival, lease: _Lease, *, is_stale: bool
    ) -> Change:
        change = self._count_end(op.provider, change)
        after = change.operation
        for entry in change.entries:  # the last net under decide: no illegal move is ever written
            if entry.kind is not EntryKind.MOVE or entry.from_state is None or entry.to_state is None:
                continue
            if not is_legal(entry.from_state, entry.to_state):
                raise IllegalTransition(op.operation_id, entry.from_state, entry.to_state)
        self._notices += [
            of_contradiction(op.operation_id, entry.reason, arrival.at)
            for entry in change.entries
            if entry.kind is EntryKind.CONTRADICTION
        ]
        if change.entries:
            written = self._history.append(
                key, after_head(op, after), change.entries, at=arrival.at, actor=arrival.actor
            )
            change = replace(change, rows=written)
            after = replace(after, seq=written[-1].seq, head=written[-1].hash)
        hold = _Hold(
            is_holder=arrival.fence is not None and not is_stale,
            goes_on=arrival.holds and ACTIONS[after.state] is ACTIONS[op.state],
            was_due_at=op.schedule.due_at,
        )
        after = self._plan(key, after, arrival, lease, hold)
        if (event := _told_of(change, after)) is not None:
            self._told.append((key, after, event, arrival.at))
            change = replace(change, delivers=True)
        if change.entries or replace(after, schedule=op.schedule) != op:
            self._wide[key] = after
        self._standing[op.operation_id] = (key, after)
        return replace(change, operation=after)

    def _count_end(self, provider: str, change: Change) -> Change:
        """Bring an end that an event should have told of into the provider's window (J5)."""
        if change.end_seen is None or not change.end_seen.is_expected:
            return change
        recent = self._recent_ends.get(provider)
        if recent is None:
            recent = providers.recent_ends(self._connection, provider)
        recent = health.with_end(recent, announced=change.end_seen.is_announced)
        self._recent_ends[provider] = recent
        return replace(change, recent_ends=recent)

    def _plan(self, key: int, op: Operation, arrival: Arrival, lease: _Lease, hold: _Hold) -> Operation:
        if op.is_terminal:
            self._ended.append((key,))
            self._leases[key] = _Lease()
            return op
        plan = op.schedule
        releases = hold.is_holder and not hold.goes_on
        if hold.is_holder and lease.ring is not None:
            # Rung while this read was under way: what it saw may be older than the ring, so another read follows.
            plan = replace(plan, due_at=min(plan.due_at, arrival.at), priority=min(plan.priority, Priority.RUNG))
        is_late = arrival.fence is not None and not hold.is_holder
        if arrival.fence is None and isinstance(arrival.evidence, JobRead) and lease.ring is not None:
            # A list page that was asked for before the ring: the read that is owed stays owed.
            plan = replace(plan, due_at=min(plan.due_at, hold.was_due_at), priority=min(plan.priority, Priority.RUNG))
        makes_due = plan.due_at <= arrival.at and plan.due_at != hold.was_due_at
        rings = lease.is_held or isinstance(arrival.evidence, EventSeen)
        if rings and not hold.is_holder and (is_late or makes_due):
            lease.ring = lease.ring or arrival.cause
        if releases:
            lease.is_held = False
        lease.due_at = plan.due_at
        reads = len(arrival.requests)
        self._plans.append(
            (
                plan.priority,
                plan.due_at,
                plan.deadline_at,
                plan.polls,
                plan.errors,
                plan.gone_reads,
                plan.gone_since,
                plan.mark_at,
                plan.marks_on_claim,
                lease.ring,
                arrival.at if reads else None,
                reads,
                releases,
                releases,
                key,
            )
        )
        return replace(op, schedule=plan)

    def adopt(self, key: int, op: Operation, at: UnixMs, draw: float) -> list[Change]:
        """Judge the events that were kept for the job of an adopted operation."""
        self._standing[op.operation_id] = (key, op)
        self._leases[key] = _Lease(due_at=op.schedule.due_at)
        seen = EventSeen(Observation(None, remote_job_id=op.remote_job_id))
        start = Arrival(op.operation_id, seen, f"webhook:{op.provider}", f"start:{op.operation_id}", at, draw)
        return self._apply_kept_events(key, op, start)

    def _apply_kept_events(self, key: int, op: Operation, arrival: Arrival) -> list[Change]:
        """Events that came before their job was known are judged now, in the order in which they came."""
        changes = []
        for event in kept_events.take(self._connection, op.provider, str(op.remote_job_id), key):
            seen = Observation(event.word, remote_job_id=op.remote_job_id)
            told = replace(
                arrival,
                evidence=EventSeen(seen, is_other_content=event.is_other_content),
                actor=f"webhook:{op.provider}",
                cause=f"event:{event.event_id}",
                fence=None,
                requests=(),
                observation=None,
            )
            standing = self._standing[op.operation_id][1]
            judged = self._judge(standing, told)
            changes.append(self._write(key, standing, judged, told, self._leases[key], is_stale=False))
        return changes


def _with_ring(arrival: Arrival, ring: str | None) -> Arrival:
    """A read that was under way when an event rang, or shows a job that waits for its read, was announced too (J5)."""
    evidence = arrival.evidence
    if ring is None or not isinstance(evidence, JobRead) or evidence.is_announced:
        return arrival
    told = replace(evidence, rung_by=ring)
    return replace(arrival, evidence=told) if told.is_announced else arrival


def _told_of(change: Change, after: Operation) -> CallbackEvent | None:
    """What a callback is told of a change that moved the operation: its end, or the question that it has come to.

    Only where the whole change leads counts: a question that the same decision answers is asked of nobody.
    """
    if after.callback is None or not any(entry.kind is EntryKind.MOVE for entry in change.entries):
        return None
    if after.is_terminal:
        return CallbackEvent.DONE
    return CallbackEvent.NEEDS_ATTENTION if after.state in REASON_OF else None


def delivery_id(op: Operation) -> str:
    """The id of what is told of an operation's newest change: the same for these bytes, and for no others.

    Made of the chain's head, not of a number: a restored backup that comes to another end must not tell of it under an
    id that receivers have seen.
    """
    return f"msg_{op.head[:32]}"


def _may_be_gone(op: Operation) -> bool:
    """Whether one more such answer may complete the run: only then is it asked what events have told."""
    return op.state in WATCHING and op.schedule.gone_reads + 1 >= GONE_RUN_READS


def after_head(before: Operation, after: Operation) -> Operation:
    """`after` with the chain's end as it was: decide does not know of seq and head."""
    return replace(after, seq=before.seq, head=before.head)


def kind(rules: Rules) -> Kind:
    """The writes that bring evidence."""

    def run(connection: sqlite3.Connection, payloads: Sequence[Arrival]) -> list[Done]:
        applier = Applier(connection, rules)
        applier.load([arrival.operation_id for arrival in payloads])
        done = [applier.apply(arrival) for arrival in payloads]
        applier.flush()
        return done

    return Kind("evidence", run)

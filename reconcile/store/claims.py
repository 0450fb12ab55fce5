"""Leases: which due rows an owner acts on. Claim and send mark are one write, committed before the action starts."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconcile.light_dataclass import light_dataclass
from reconcile.model import Operation, UnixMs
from reconcile.states import Priority, State
from reconcile.store import rows
from reconcile.store.writer import Done, Kind

#: Of the rows claimed at once, the share kept for sweeping while more urgent work waits: one in eight, arbitrary,
#: so that a flood of rung jobs cannot starve those whose webhook never came. A page of a list comes before rows.
SWEEP_SHARE: Final = 8
#: How long a poll that comes due waits for others, ms, so that one claim and one commit serve many. 100: arbitrary, a
#: tenth of the shortest interval that makes sense; what rings, a create, a cancel or a deadline waits for nobody.
COMPANY_MS: Final = 100
#: Rows past their deadline that one claim takes of a provider that cannot be asked. 100: arbitrary; each is one write.
MAX_OVERDUE: Final = 100


@light_dataclass(frozen=True, slots=True)
class Claim:
    """One leased row: what to act on, the fence its answer must bear, and what stood open before.

    An operation that is being observed comes without its request and what was expected: its job is only read.
    """

    operation: Operation
    fence: int
    #: A send mark that an earlier owner left: that request may have arrived.
    open_mark: bool
    #: What rang the row, if anything did.
    ring: str | None
    #: When the provider last answered, or should have answered, a request about it.
    last_read_at: UnixMs | None = None
    #: Taken although nothing may be sent, because its deadline has passed: it fires without a last read.
    is_overdue: bool = False


@dataclass(frozen=True, slots=True)
class ClaimWish:
    """How many rows of each provider the owner can take now."""

    owner: str
    now: UnixMs
    lease_ms: int
    room: Mapping[str, int]
    #: How many of these may be results to fetch: they are the long ones. No bound where a provider is absent.
    collect_room: Mapping[str, int] = field(default_factory=dict)
    #: Providers that nothing may be sent to: of their rows only those past their deadline are taken.
    paused: frozenset[str] = frozenset()
    #: Providers whose slots have all been held for so long that a deadline cannot wait for its last read.
    stuck: frozenset[str] = frozenset()
    #: Providers whose pause is being probed: what has been due for longest goes, whatever it is.
    probed: frozenset[str] = frozenset()
    #: Providers whose list can be read: of what is kept for sweeping one place is left to it.
    listed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Renewal:
    """A lease to be kept; answered False where it was lost."""

    operation_id: str
    owner: str
    fence: int
    until: UnixMs


_EXPIRED: Final = (
    "UPDATE schedule SET lease_owner = NULL, lease_until = NULL WHERE lease_owner IS NOT NULL AND lease_until <= ?"
)
_DUE: Final = (
    "SELECT key, mark_at IS NOT NULL, ring, last_read_at, due_at FROM schedule"
    " WHERE lease_owner IS NULL AND provider = ? AND priority = ? AND due_at <= ? ORDER BY due_at, key LIMIT ?"
)
#: Rows whose deadline has passed, of a provider that cannot be asked: waiting must end although nothing can be sent.
_OVERDUE: Final = (
    "SELECT key, mark_at IS NOT NULL, ring, last_read_at FROM schedule WHERE lease_owner IS NULL AND provider = ?"
    " AND deadline_at IS NOT NULL AND deadline_at <= ? ORDER BY deadline_at, key LIMIT ?"
)
_NEXT_DEADLINE: Final = (
    "SELECT min(deadline_at) FROM schedule WHERE lease_owner IS NULL AND provider = ? AND deadline_at >= ?"
)
_LEASE: Final = (
    "UPDATE schedule SET lease_owner = ?, lease_until = ?, fence = fence + 1, ring = NULL,"
    " mark_at = CASE WHEN marks_on_claim AND mark_at IS NULL THEN ? ELSE mark_at END"
    " WHERE key IN (SELECT value FROM json_each(?))"
)
#: What was asked for comes with the row where it may be sent or looked into: a job that is only read needs none of it.
_CLAIMED: Final = (
    rows.SELECT.replace(" FROM ", ", t.request, t.expect FROM ", 1)
    + f"LEFT JOIN starts t ON t.operation_key = o.key AND o.state <> '{State.OBSERVING}'"
    " WHERE o.key IN (SELECT value FROM json_each(?)) ORDER BY o.key"
)
_RENEW: Final = (
    "UPDATE schedule SET lease_until = ? WHERE lease_owner = ? AND fence = ?"
    " AND key = (SELECT key FROM operations WHERE operation_id = ?)"
)
_NEXT_DUE: Final = "SELECT min(due_at) FROM schedule WHERE lease_owner IS NULL AND provider = ? AND priority = ?"
_NEXT_EXPIRY: Final = "SELECT min(lease_until) FROM schedule WHERE lease_owner IS NOT NULL"
_PRIORITIES: Final = range(Priority.CANCEL, Priority.SWEPT + 1)


def next_due(connection: sqlite3.Connection, wish: ClaimWish) -> dict[str, UnixMs]:
    """When each provider's next unleased row is to be taken; a provider without one is absent.

    Polls that come due shortly after the first of them are taken along with it.
    """
    found: dict[str, UnixMs] = {}
    for provider in wish.room:
        if provider in wish.paused:
            continue
        can_collect = wish.collect_room.get(provider, 1) > 0
        priorities = [p for p in _PRIORITIES if can_collect or p != Priority.COLLECT]
        times = {p: connection.execute(_NEXT_DUE, (provider, p)).fetchone()[0] for p in priorities}
        if (polled := times[Priority.SWEPT]) is not None:
            times[Priority.SWEPT] = _in_company(connection, provider, polled)
        if known := [t for t in times.values() if t is not None]:
            found[provider] = min(known)
    return found


def _in_company(connection: sqlite3.Connection, provider: str, first: UnixMs) -> UnixMs:
    """When polls of which the first is due at `first` are taken together: no later than the next deadline after it."""
    deadline = connection.execute(_NEXT_DEADLINE, (provider, first)).fetchone()[0]
    company = first + COMPANY_MS
    return company if deadline is None else min(company, deadline)


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim took, and when there is more to take."""

    claims: tuple[Claim, ...]
    next_due: Mapping[str, UnixMs]
    next_expiry: UnixMs | None
    #: When the next deadline of a provider that cannot be asked passes.
    next_overdue: UnixMs | None = None


class _Turns:
    """Which of the next claims are kept for the sweep, by provider: one in `SWEEP_SHARE`, however small the room."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}

    def floor(self, provider: str, room: int) -> int:
        """How many of the next `room` rows are the sweep's, if it has as many due."""
        counted = self._counted.get(provider, 0) + room
        self._counted[provider] = counted % SWEEP_SHARE
        return counted // SWEEP_SHARE


def _claim(connection: sqlite3.Connection, wish: ClaimWish, turns: _Turns) -> Done:
    connection.execute(_EXPIRED, (wish.now,))
    found: list[Any] = []
    overdue: set[int] = set()
    for provider, room in wish.room.items():
        if room > 0 and provider in wish.probed:
            found += _longest_due(connection, provider, wish.now, room)
        elif room > 0:
            floor = turns.floor(provider, room)
            page = 1 if floor and provider in wish.listed else 0
            found += _due(connection, provider, wish, room - page, floor - page)
        elif provider in wish.paused | wish.stuck:
            late = connection.execute(_OVERDUE, (provider, wish.now, MAX_OVERDUE)).fetchall()
            found += late
            overdue.update(key for key, *_ in late)
    by_key = {key: (bool(marked), ring, last_read_at) for key, marked, ring, last_read_at, *_ in found}
    keys = json.dumps(list(by_key))
    if by_key:
        connection.execute(_LEASE, (wish.owner, wish.now + wish.lease_ms, wish.now, keys))
    claims: dict[int, Claim] = {}
    for row in connection.execute(_CLAIMED, (keys,)).fetchall() if by_key else ():
        beside = {} if row[-2] is None else {"request": json.loads(row[-2]), "expect": json.loads(row[-1])}
        key, op = rows.load(row, **beside)
        marked, ring, last_read_at = by_key[key]
        claims[key] = Claim(op, op.schedule.fence, marked, ring, last_read_at, is_overdue=key in overdue)
    expiry = connection.execute(_NEXT_EXPIRY).fetchone()[0]
    return Done(
        Claimed(
            tuple(claims[key] for key in by_key), next_due(connection, wish), expiry, _next_overdue(connection, wish)
        )
    )


def _next_overdue(connection: sqlite3.Connection, wish: ClaimWish) -> UnixMs | None:
    times = []
    for provider in (wish.paused | wish.stuck) & wish.room.keys():
        deadline = connection.execute(_NEXT_DEADLINE, (provider, 0)).fetchone()[0]
        if deadline is not None:
            times.append(deadline)
    return min(times, default=None)


def _due(connection: sqlite3.Connection, provider: str, wish: ClaimWish, room: int, floor: int) -> list[Any]:
    """Due rows in the order of their priority, `floor` of them swept ones if so many are due."""
    swept = connection.execute(_DUE, (provider, Priority.SWEPT, wish.now, room)).fetchall()
    floor = min(len(swept), floor)
    urgent: list[Any] = []
    for priority in range(Priority.CANCEL, Priority.SWEPT):
        most = room - floor - len(urgent)
        if priority == Priority.COLLECT:
            most = min(most, wish.collect_room.get(provider, most))
        urgent += connection.execute(_DUE, (provider, priority, wish.now, most)).fetchall()
    return urgent + swept[: room - len(urgent)]


def _longest_due(connection: sqlite3.Connection, provider: str, now: UnixMs, room: int) -> list[Any]:
    """Due rows of all priorities in turn: one that fails is due later again, so none keeps the probes to itself."""
    due = [row for p in _PRIORITIES for row in connection.execute(_DUE, (provider, p, now, room))]
    return sorted(due, key=lambda row: (row[-1], row[0]))[:room]


def _renew(connection: sqlite3.Connection, renewals: Sequence[Renewal]) -> Done:
    kept = []
    for renewal in renewals:
        values = (renewal.until, renewal.owner, renewal.fence, renewal.operation_id)
        kept.append(connection.execute(_RENEW, values).rowcount == 1)
    return Done(kept)


def _release_all(connection: sqlite3.Connection, _: None) -> Done:
    """Release every lease: under the state directory's lock no other owner can be alive."""
    released = 0
    for table in ("schedule", "sweeps"):
        sql = f"UPDATE {table} SET lease_owner = NULL, lease_until = NULL WHERE lease_owner IS NOT NULL"
        released += connection.execute(sql).rowcount
    return Done(released)


@dataclass(frozen=True, slots=True)
class CutWaits:
    """The longest wait that is ever planned at each provider, ms, and for a lease."""

    now: UnixMs
    longest_ms: Mapping[str, int]
    lease_ms: int


#: What is due at its state's own deadline stays: that is wall time, however the clock went.
_CUT_DUE: Final = (
    "UPDATE schedule SET due_at = ? WHERE provider = ? AND due_at > ? AND (deadline_at IS NULL OR due_at < deadline_at)"
)
_CUT_LEASES: Final = "UPDATE schedule SET lease_until = ? WHERE lease_until > ?"
_CUT_SWEEPS: Final = "UPDATE sweeps SET due_at = ? WHERE provider = ? AND due_at > ?"
_CUT_SWEEP_LEASES: Final = "UPDATE sweeps SET lease_until = ? WHERE lease_until > ?"


def _cut_waits(connection: sqlite3.Connection, cut: CutWaits) -> Done:
    latest = cut.now + cut.lease_ms
    count = connection.execute(_CUT_LEASES, (latest, latest)).rowcount
    connection.execute(_CUT_SWEEP_LEASES, (latest, latest))
    for provider, span_ms in cut.longest_ms.items():
        latest = cut.now + span_ms
        count += connection.execute(_CUT_DUE, (latest, provider, latest)).rowcount
        count += connection.execute(_CUT_SWEEPS, (latest, provider, latest)).rowcount
    return Done(count)


def claim_kind() -> Kind:
    """The writes that lease due rows; one a store, since it counts whose turn it is."""
    turns = _Turns()
    return Kind("claim", lambda connection, payloads: [_claim(connection, wish, turns) for wish in payloads])


RENEW: Final = Kind("renew", lambda connection, payloads: [_renew(connection, renewals) for renewals in payloads])
CUT_WAITS: Final = Kind("cut_waits", lambda connection, payloads: [_cut_waits(connection, cut) for cut in payloads])
RELEASE_ALL: Final = Kind("release_all", lambda connection, payloads: [_release_all(connection, p) for p in payloads])

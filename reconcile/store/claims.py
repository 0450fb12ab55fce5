"""Leases: which due rows an owner acts on. Claim and send mark are one write, committed before the action starts."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reconcile.model import Operation, UnixMs
from reconcile.states import Priority
from reconcile.store import rows
from reconcile.store.writer import Done, Kind

#: Of the rows claimed at once, the share kept for sweeping while more urgent work waits: one in eight, arbitrary,
#: so that a flood of rung jobs cannot starve those whose webhook never came.
SWEEP_SHARE: Final = 8


@dataclass(frozen=True, slots=True)
class Claim:
    """One leased row: what to act on, the fence its answer must bear, and what stood open before."""

    operation: Operation
    fence: int
    #: A send mark that an earlier owner left: that request may have arrived.
    open_mark: bool
    #: What rang the row, if anything did.
    ring: str | None


@dataclass(frozen=True, slots=True)
class ClaimWish:
    """How many rows of each provider the owner can take now."""

    owner: str
    now: UnixMs
    lease_ms: int
    room: Mapping[str, int]


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
    "SELECT key, mark_at IS NOT NULL, ring FROM schedule WHERE lease_owner IS NULL AND provider = ? AND priority = ?"
    " AND due_at <= ? ORDER BY due_at, key LIMIT ?"
)
_LEASE: Final = (
    "UPDATE schedule SET lease_owner = ?, lease_until = ?, fence = fence + 1, ring = NULL,"
    " mark_at = CASE WHEN marks_on_claim AND mark_at IS NULL THEN ? ELSE mark_at END"
    " WHERE key IN (SELECT value FROM json_each(?))"
)
_CLAIMED: Final = (
    rows.SELECT.replace(" FROM ", ", t.request, t.expect FROM ", 1)
    + "LEFT JOIN starts t ON t.operation_key = o.key WHERE o.key IN (SELECT value FROM json_each(?)) ORDER BY o.key"
)
_NEXT_DUE: Final = "SELECT min(due_at) FROM schedule WHERE lease_owner IS NULL AND provider = ? AND priority = ?"
_NEXT_EXPIRY: Final = "SELECT min(lease_until) FROM schedule WHERE lease_owner IS NOT NULL"
_PRIORITIES: Final = range(Priority.CANCEL, Priority.SWEPT + 1)


def next_due(connection: sqlite3.Connection, providers: Sequence[str]) -> dict[str, UnixMs]:
    """When each provider's next unleased row is due; a provider without one is absent."""
    found: dict[str, UnixMs] = {}
    for provider in providers:
        times = [connection.execute(_NEXT_DUE, (provider, p)).fetchone()[0] for p in _PRIORITIES]
        if known := [t for t in times if t is not None]:
            found[provider] = min(known)
    return found


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim took, and when there is more to take."""

    claims: tuple[Claim, ...]
    next_due: Mapping[str, UnixMs]
    next_expiry: UnixMs | None


def _claim(connection: sqlite3.Connection, wish: ClaimWish) -> Done:
    connection.execute(_EXPIRED, (wish.now,))
    found: list[tuple[int, bool, str | None]] = []
    for provider, room in wish.room.items():
        found += _due(connection, provider, wish.now, room)
    by_key = {key: (bool(marked), ring) for key, marked, ring in found}
    keys = json.dumps(list(by_key))
    if by_key:
        connection.execute(_LEASE, (wish.owner, wish.now + wish.lease_ms, wish.now, keys))
    claims = []
    for row in connection.execute(_CLAIMED, (keys,)).fetchall() if by_key else ():
        key, op = rows.load(row)
        request, expect = row[-2:]
        op = replace(op, request=json.loads(request), expect=json.loads(expect))
        marked, ring = by_key[key]
        claims.append(Claim(op, op.schedule.fence, marked, ring))
    expiry = connection.execute(_NEXT_EXPIRY).fetchone()[0]
    return Done(Claimed(tuple(claims), next_due(connection, list(wish.room)), expiry))


def _due(connection: sqlite3.Connection, provider: str, now: UnixMs, room: int) -> list[Any]:
    """Due rows in the order of their priority, with a floor share for the sweep."""
    if room <= 0:
        return []
    swept = connection.execute(_DUE, (provider, Priority.SWEPT, now, room)).fetchall()
    floor = min(len(swept), max(1, room // SWEEP_SHARE))
    urgent: list[Any] = []
    for priority in range(Priority.CANCEL, Priority.SWEPT):
        urgent += connection.execute(_DUE, (provider, priority, now, room - floor - len(urgent))).fetchall()
    return urgent + swept[: room - len(urgent)]


def _renew(connection: sqlite3.Connection, renewal: Renewal) -> Done:
    cursor = connection.execute(
        "UPDATE schedule SET lease_until = ? WHERE lease_owner = ? AND fence = ?"
        " AND key = (SELECT key FROM operations WHERE operation_id = ?)",
        (renewal.until, renewal.owner, renewal.fence, renewal.operation_id),
    )
    return Done(cursor.rowcount == 1)


def _release_all(connection: sqlite3.Connection, _: None) -> Done:
    """Release every lease: under the state directory's lock no other owner can be alive."""
    cursor = connection.execute(
        "UPDATE schedule SET lease_owner = NULL, lease_until = NULL WHERE lease_owner IS NOT NULL"
    )
    return Done(cursor.rowcount)


CLAIM: Final = Kind("claim", lambda connection, payloads: [_claim(connection, wish) for wish in payloads])
RENEW: Final = Kind("renew", lambda connection, payloads: [_renew(connection, renewal) for renewal in payloads])
RELEASE_ALL: Final = Kind("release_all", lambda connection, payloads: [_release_all(connection, p) for p in payloads])

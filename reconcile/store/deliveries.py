"""The outbox: what callbacks are told, written with the move that it tells of, and how each delivery fares.

A delivery is taken before it is sent, so that nobody else sends it meanwhile; whoever took it and died leaves it to
the next start, or to the time at which it comes due again. So one that was sent is sent again rather than lost, with
the same id and the same bytes.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.callback import CallbackEvent, Fate
from reconcile.intents import CallbackWish
from reconcile.model import UnixMs
from reconcile.notice import Notice
from reconcile.notices import of_given_up
from reconcile.store import notices
from reconcile.store.reading import Reader
from reconcile.store.writer import Done, GroupCommit, Kind

#: The reason of the notice that tells of deliveries which nobody took.
EXHAUSTED: Final = "callback_exhausted"
#: Deliveries that a notice names, of however many. 20: arbitrary; an operation has few.
MAX_NAMED: Final = 20


@dataclass(frozen=True, slots=True)
class Announcement:
    """A delivery before it is written: frozen from here on."""

    delivery_id: str
    operation_key: int
    wish: CallbackWish
    event: CallbackEvent
    body: bytes
    at: UnixMs


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery that was taken to be sent."""

    delivery_id: str
    operation_id: str
    callback: str
    url: str
    type: str
    body: bytes
    #: Attempts of which it is known what they came to.
    attempts: int


@dataclass(frozen=True, slots=True)
class Taking:
    """How many deliveries of each callback can be sent now; each is one's own up to `until`."""

    now: UnixMs
    until: UnixMs
    room: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What an attempt came to."""

    delivery_id: str
    at: UnixMs
    fate: Fate


@dataclass(frozen=True, slots=True)
class Cut:
    """Waits longer than `longest_ms` are cut; at a start also what an earlier process had taken comes due."""

    now: UnixMs
    longest_ms: int
    is_start: bool


@dataclass(frozen=True, slots=True)
class Redelivery:
    """A person lets the deliveries that a notice speaks of be tried anew."""

    notice_id: str
    by: str
    because: str
    at: UnixMs


_INSERT: Final = (
    "INSERT INTO deliveries (delivery_id, operation_key, callback, url, type, body, created_at, state, due_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', ?)"
)
_NEXT: Final = (
    "SELECT min((SELECT min(d.due_at) FROM deliveries d WHERE d.state = 'waiting' AND d.callback = j.value))"
    " FROM json_each(?) j"
)
_DUE: Final = (
    "SELECT d.delivery_id, o.operation_id, d.callback, d.url, d.type, d.body, d.attempts FROM deliveries d"
    " JOIN operations o ON o.key = d.operation_key WHERE d.state = 'waiting' AND d.callback = ? AND d.due_at <= ?"
    " ORDER BY d.due_at, d.created_at, d.delivery_id LIMIT ?"
)
_TAKE: Final = "UPDATE deliveries SET is_taken = 1, due_at = ? WHERE delivery_id IN (SELECT value FROM json_each(?))"
#: A late answer counts too: whoever took it meanwhile only repeats it.
_RECORD: Final = (
    "UPDATE deliveries SET state = ?, attempts = ?, due_at = ?, is_taken = 0, last_at = ?, last_status = ?,"
    " last_error = ? WHERE delivery_id = ? AND state = 'waiting' RETURNING operation_key"
)
#: What a clock ahead has written waits as long as was meant, from now on; its last attempt was not later than now.
_SHIFT: Final = (
    "UPDATE deliveries SET due_at = min(due_at, ?1 + max(0, due_at - coalesce(last_at, created_at))),"
    " last_at = CASE WHEN last_at > ?1 THEN ?1 ELSE last_at END"
    " WHERE state = 'waiting' AND coalesce(last_at, created_at) > ?1"
)
_CUT: Final = "UPDATE deliveries SET due_at = ?1 WHERE state = 'waiting' AND due_at > ?1"
_UNTAKE: Final = "UPDATE deliveries SET due_at = ?, is_taken = 0 WHERE state = 'waiting' AND is_taken = 1"
_EXHAUSTED_OF: Final = (
    "SELECT d.delivery_id, d.callback, d.type, d.attempts, d.last_status, d.last_error FROM deliveries d"
    f" WHERE d.operation_key = ? AND d.state = 'exhausted' ORDER BY d.created_at, d.delivery_id LIMIT {MAX_NAMED}"
)
_ID_OF: Final = "SELECT operation_id FROM operations WHERE key = ?"
_NOTICE: Final = (
    f"SELECT operation_key FROM notices WHERE notice_id = ? AND reason = '{EXHAUSTED}' AND acknowledged_at IS NULL"
)
_REDELIVER: Final = (
    "UPDATE deliveries SET state = 'waiting', attempts = 0, due_at = ? WHERE operation_key = ? AND state = 'exhausted'"
)
_FATES: Final = "SELECT callback, state, count(*) FROM deliveries GROUP BY callback, state ORDER BY callback, state"


class Deliveries:
    """The outbox as everyone outside the store sees it. All may raise StoreError."""

    def __init__(self, group: GroupCommit, reader: Reader, scanner: Reader) -> None:
        self._group = group
        self._reader = reader
        self._scanner = scanner

    async def next_due(self, names: Sequence[str]) -> UnixMs | None:
        """When the next delivery of one of these callbacks comes due."""
        found: UnixMs | None = None
        for (due_at,) in await self._reader.execute_fetchall(_NEXT, (json.dumps(list(names)),)):
            found = due_at
        return found

    async def take(self, wish: Taking) -> list[Delivery]:
        """Take what is due and has room, the longest due first."""
        taken: list[Delivery] = await self._group.write(TAKE, wish)
        return taken

    async def record(self, recorded: Recorded) -> None:
        """Keep what an attempt came to; with it the notice, where no other follows."""
        await self._group.write(RECORD, recorded)

    async def cut(self, cut: Cut) -> None:
        """Cut waits longer than any that is planned: they were written by a clock that was ahead."""
        await self._group.write(CUT, cut)

    async def redeliver(self, wish: Redelivery) -> bool:
        """Try anew what a notice speaks of, and close it; False where no such notice waits."""
        return bool(await self._group.write(REDELIVER, wish))

    async def counts(self) -> dict[str, dict[str, int]]:
        """How many deliveries are kept by callback and state; on the connection for long reads."""
        counts: dict[str, dict[str, int]] = {}
        for callback, state, count in await self._scanner.execute_fetchall(_FATES):
            counts.setdefault(callback, {})[state] = count
        return counts


def write(connection: sqlite3.Connection, announcements: Sequence[Announcement]) -> None:
    """Put deliveries into the outbox, in the transaction of what they tell of; each is due at once."""
    connection.executemany(
        _INSERT,
        [
            (one.delivery_id, one.operation_key, one.wish.name, one.wish.url, one.event.value, one.body, one.at, one.at)
            for one in announcements
        ],
    )


def _take(connection: sqlite3.Connection, wish: Taking) -> Done:
    taken = [
        Delivery(*row)
        for name, room in wish.room.items()
        for row in connection.execute(_DUE, (name, wish.now, room)).fetchall()
    ]
    connection.execute(_TAKE, (wish.until, json.dumps([one.delivery_id for one in taken])))
    return Done(taken)


def _record(connection: sqlite3.Connection, recorded: Recorded) -> Done:
    fate = recorded.fate
    values = (fate.state, fate.attempts, fate.due_at, recorded.at, fate.status, fate.error, recorded.delivery_id)
    found = connection.execute(_RECORD, values).fetchall()
    if found and fate.state == "exhausted":
        notices.tell(connection, [_notice(connection, found[0][0], recorded.at)])
    return Done()


def _notice(connection: sqlite3.Connection, operation_key: int, now: UnixMs) -> Notice:
    operation_id = connection.execute(_ID_OF, (operation_key,)).fetchone()[0]
    given_up = [
        dict(zip(("delivery_id", "callback", "type", "attempts", "last_status", "last_error"), row, strict=True))
        for row in connection.execute(_EXHAUSTED_OF, (operation_key,))
    ]
    return of_given_up(operation_id, given_up, now)


def _cut(connection: sqlite3.Connection, cut: Cut) -> Done:
    connection.execute(_SHIFT, (cut.now,))
    connection.execute(_CUT, (cut.now + cut.longest_ms,))
    if cut.is_start:
        connection.execute(_UNTAKE, (cut.now,))
    return Done(delivers=True)


def _redeliver(connection: sqlite3.Connection, wish: Redelivery) -> Done:
    found = connection.execute(_NOTICE, (wish.notice_id,)).fetchone()
    if found is None:
        return Done(False)
    connection.execute(_REDELIVER, (wish.at, found[0]))
    notices.acknowledge(connection, wish.notice_id, by=wish.by, because=wish.because, at=wish.at)
    return Done(True, delivers=True)


def _kind(name: str, run: Any) -> Kind:
    return Kind(name, lambda connection, payloads: [run(connection, payload) for payload in payloads])


TAKE: Final = _kind("take_deliveries", _take)
RECORD: Final = _kind("record_delivery", _record)
CUT: Final = _kind("cut_deliveries", _cut)
REDELIVER: Final = _kind("redeliver", _redeliver)

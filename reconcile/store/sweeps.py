"""The sweeps' cursors, one leased an account; what they have to see; and due times as a provider's pace changes."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconcile.absence import Served
from reconcile.model import UnixMs
from reconcile.states import LISTED, Priority
from reconcile.store import list_pages
from reconcile.store.absence import SERVED, as_pairs
from reconcile.store.evidence import Rules
from reconcile.store.list_pages import PageKept, PageRecord
from reconcile.store.reading import Reader
from reconcile.store.writer import Done, GroupCommit, Kind

#: Rows that one look at what a sweep has not shown reads at once. 10,000: arbitrary, some ms.
SLICE: Final = 10_000
_LISTED: Final = ", ".join(repr(state.value) for state in sorted(LISTED))
#: Key, made at, accepted at.
OpenJob = tuple[int, UnixMs, UnixMs | None]


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One account's cursor as it stands between sweeps."""

    due_at: UnixMs
    errors: int
    #: Requests that the last whole sweep came to; 0: none yet.
    pages: int
    ended_at: UnixMs | None


@dataclass(frozen=True, slots=True)
class SweepWish:
    """An owner wants a due cursor."""

    provider: str
    owner: str
    now: UnixMs
    lease_ms: int


@dataclass(frozen=True, slots=True)
class SweepEnd:
    """A sweep is over: when the next is due, and what is remembered of this one. `pages` None: it was cut short."""

    provider: str
    owner: str
    fence: int
    due_at: UnixMs
    errors: int
    pages: int | None
    at: UnixMs


@dataclass(frozen=True, slots=True)
class Begin:
    """From now on the list carries the polls. `due_at`: of a cursor that does not exist yet."""

    provider: str
    due_at: UnixMs


@dataclass(frozen=True, slots=True)
class Spread:
    """Rows that wait for longer than the cap are polled within it again; `draw` turns the spread by its share."""

    provider: str
    at: UnixMs
    base_ms: int
    cap_ms: int
    draw: float
    ends_sweep: bool


_CLAIM: Final = (
    "UPDATE sweeps SET lease_owner = ?, lease_until = ?, fence = fence + 1 WHERE provider = ? AND due_at <= ?"
    " AND (lease_owner IS NULL OR lease_until <= ? OR lease_owner = ?) RETURNING fence"
)
_FINISH: Final = (
    "UPDATE sweeps SET due_at = ?, errors = ?, pages = coalesce(?, pages), ended_at = ?, lease_owner = NULL,"
    " lease_until = NULL WHERE provider = ? AND lease_owner = ? AND fence = ?"
)
#: What failed waits for its own backoff, or for what the provider asked for.
_MAKE_DUE: Final = (
    "UPDATE schedule SET due_at = min(due_at, ?) WHERE lease_owner IS NULL AND errors = 0 AND gone_reads = 0"
    f" AND key IN (SELECT o.key FROM json_each(?) j JOIN operations o ON o.key = j.value WHERE o.state IN ({_LISTED}))"
)
_BEGIN: Final = "INSERT INTO sweeps (provider, due_at) VALUES (?, ?) ON CONFLICT (provider) DO NOTHING"
#: A job that waits for input keeps its own time, at which its question is put again; so does one that fails or is rung.
_CARRY: Final = (
    "UPDATE schedule SET due_at = deadline_at WHERE provider = ? AND priority = ? AND lease_owner IS NULL"
    " AND ring IS NULL AND errors = 0 AND gone_reads = 0 AND deadline_at > due_at"
    " AND key IN (SELECT key FROM operations WHERE state IN ('accepted', 'observing'))"
)
#: The product with a prime scatters neighbouring keys over the span. What failed waits for its own backoff.
_SPREAD: Final = (
    "UPDATE schedule SET due_at = ? + (key * 104729 + ?) % ? WHERE provider = ? AND priority = ?"
    " AND lease_owner IS NULL AND due_at > ? AND errors = 0 AND gone_reads = 0"
    f" AND key IN (SELECT key FROM operations WHERE state IN ({_LISTED}))"
)
_OPEN: Final = (
    "SELECT s.provider, count(*) FROM schedule s JOIN operations o ON o.key = s.key"
    f" WHERE o.state IN ({_LISTED}) AND {SERVED} GROUP BY s.provider"
)
#: CROSS: in the order of keys from the first wanted on, where a list of states would be gone through for each slice.
_WATCHED: Final = (
    "SELECT s.key, o.created_at, o.started_at FROM schedule s CROSS JOIN operations o ON o.key = s.key"
    f" WHERE s.provider = ?2 AND o.state IN ({_LISTED}) AND {SERVED} AND s.key > ?3 ORDER BY s.key LIMIT {SLICE}"
)
#: As one row: each row that sqlite3 hands out costs the interpreter's lock.
_SCOPE: Final = (
    "SELECT json_group_array(key), min(created_at) FROM (SELECT s.key AS key, o.created_at AS created_at"
    " FROM schedule s CROSS JOIN operations o ON o.key = s.key"
    f" WHERE s.provider = ?2 AND o.state IN ({_LISTED}) AND {SERVED} AND s.key > ?3 ORDER BY s.key LIMIT {SLICE})"
)
_STILL_WATCHED: Final = (
    "SELECT o.key FROM json_each(?2) w CROSS JOIN operations o ON o.key = w.value"
    f" WHERE o.state IN ({_LISTED}) AND {SERVED}"
)


def _claim(connection: sqlite3.Connection, wish: SweepWish) -> Done:
    values = (wish.owner, wish.now + wish.lease_ms, wish.provider, wish.now, wish.now, wish.owner)
    row = connection.execute(_CLAIM, values).fetchone()
    return Done(None if row is None else int(row[0]))


def _finish(connection: sqlite3.Connection, end: SweepEnd) -> Done:
    values = (end.due_at, end.errors, end.pages, end.at, end.provider, end.owner, end.fence)
    return Done(connection.execute(_FINISH, values).rowcount == 1, due_at=end.due_at)


def _make_due(connection: sqlite3.Connection, wish: tuple[Sequence[int], UnixMs]) -> Done:
    keys, at = wish
    connection.execute(_MAKE_DUE, (at, json.dumps(list(keys))))
    return Done(due_at=at)


def _begin(connection: sqlite3.Connection, begin: Begin) -> Done:
    connection.execute(_BEGIN, (begin.provider, begin.due_at))
    connection.execute(_CARRY, (begin.provider, Priority.SWEPT))
    row = connection.execute("SELECT due_at FROM sweeps WHERE provider = ?", (begin.provider,)).fetchone()
    return Done(int(row[0]), due_at=int(row[0]))


def _hasten(connection: sqlite3.Connection, wish: tuple[str, UnixMs]) -> Done:
    provider, due_at = wish
    connection.execute("UPDATE sweeps SET due_at = min(due_at, ?) WHERE provider = ?", (due_at, provider))
    return Done(due_at=due_at)


def _spread(connection: sqlite3.Connection, wish: Spread) -> Done:
    span = wish.cap_ms - wish.base_ms + 1
    turned = int(wish.draw * span)
    first, last = wish.at + wish.base_ms, wish.at + wish.cap_ms
    moved = connection.execute(_SPREAD, (first, turned, span, wish.provider, Priority.SWEPT, last)).rowcount
    if wish.ends_sweep:
        connection.execute("DELETE FROM sweeps WHERE provider = ?", (wish.provider,))
    return Done(moved, due_at=first if moved else None)


CLAIM: Final = Kind("claim_sweep", lambda connection, payloads: [_claim(connection, wish) for wish in payloads])
FINISH: Final = Kind("finish_sweep", lambda connection, payloads: [_finish(connection, end) for end in payloads])
MAKE_DUE: Final = Kind("make_due", lambda connection, payloads: [_make_due(connection, wish) for wish in payloads])
BEGIN: Final = Kind("begin_sweeps", lambda connection, payloads: [_begin(connection, begin) for begin in payloads])
HASTEN: Final = Kind("hasten_sweep", lambda connection, payloads: [_hasten(connection, wish) for wish in payloads])
SPREAD: Final = Kind("spread", lambda connection, payloads: [_spread(connection, wish) for wish in payloads])


class Sweeps:
    """The store as the sweeper sees it."""

    def __init__(self, group: GroupCommit, scanner: Reader, rules: Rules) -> None:
        self._group = group
        self._scanner = scanner
        self._page = list_pages.kind(rules)

    # ---- writes ----

    async def claim(self, wish: SweepWish) -> int | None:
        """Lease a due cursor; its fence, None where it is not due or another's. Raises: StoreError."""
        fence: int | None = await self._group.write(CLAIM, wish)
        return fence

    async def keep_page(self, page: PageRecord) -> PageKept:
        """Bring what a page shows to its operations. Raises: StoreError."""
        kept: PageKept = await self._group.write(self._page, page)
        return kept

    async def finish(self, end: SweepEnd) -> bool:
        """End a sweep; False where its lease was lost. Raises: StoreError."""
        return bool(await self._group.write(FINISH, end))

    async def make_due(self, keys: Sequence[int], at: UnixMs) -> None:
        """Let jobs that nobody holds and whose reads do not fail be read by themselves, now. Raises: StoreError."""
        await self._group.write(MAKE_DUE, (keys, at))

    async def begin(self, begin: Begin) -> UnixMs:
        """Hand a provider's polls to its list, in one write; when the first sweep is due. Raises: StoreError."""
        return int(await self._group.write(BEGIN, begin))

    async def hasten(self, provider: str, due_at: UnixMs) -> None:
        """Let the next sweep come no later than this. Raises: StoreError."""
        await self._group.write(HASTEN, (provider, due_at))

    async def spread(self, wish: Spread) -> int:
        """Let a provider's jobs be polled within the cap again; how many rows moved. Raises: StoreError."""
        return int(await self._group.write(SPREAD, wish))

    # ---- reads, on the connection for long ones ----

    async def rows(self) -> dict[str, SweepRow]:
        """Every cursor, by provider. Raises: StoreError."""
        found = await self._scanner.execute_fetchall("SELECT provider, due_at, errors, pages, ended_at FROM sweeps")
        return {provider: SweepRow(*values) for provider, *values in found}

    async def open_jobs(self, served: Served) -> dict[str, int]:
        """How many jobs each provider has whose polls a list can carry. Raises: StoreError."""
        return dict(await self._scanner.execute_fetchall(_OPEN, (as_pairs(served),)))

    async def watched(self, provider: str, served: Served, *, after: int) -> list[OpenJob]:
        """One slice of open jobs, in the order of keys. Raises: StoreError."""
        found = await self._scanner.execute_fetchall(
            _WATCHED,
            (
                as_pairs(served),
                provider,
                after,
            ),
        )
        return [(int(key), created_at, started_at) for key, created_at, started_at in found]

    async def scope(self, provider: str, served: Served, *, after: int) -> tuple[list[int], UnixMs]:
        """One slice of open jobs as their keys, in order, and when the oldest was made. Raises: StoreError."""
        ((keys, oldest_at),) = await self._scanner.execute_fetchall(_SCOPE, (as_pairs(served), provider, after))
        return sorted(json.loads(keys)), oldest_at or 0

    async def still_watched(self, keys: Sequence[int], served: Served) -> frozenset[int]:
        """Which of these operations have an open job that a list can carry. Raises: StoreError."""
        return frozenset(
            int(key)
            for (key,) in await self._scanner.execute_fetchall(
                _STILL_WATCHED,
                (
                    as_pairs(served),
                    json.dumps(keys),
                ),
            )
        )

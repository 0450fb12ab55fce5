"""List sweeps: one leased cursor an account, its pages applied set-wide, and due times as a provider's pace changes.

A page that tells nothing new writes nothing at all. What a page shows is evidence that needs no lease of a row.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reconcile.evidence import JobRead
from reconcile.listing import Stands, is_news
from reconcile.model import JsonObject, Observation, Progress, UnixMs, Verdict
from reconcile.states import LISTED, Priority, State
from reconcile.store.evidence import Applier, Arrival, Judge
from reconcile.store.kept import ObservationRecord, RequestRecord
from reconcile.store.reading import Reader
from reconcile.store.writer import Done, GroupCommit, Kind

#: Rows that one look at what a sweep has not shown reads at once. 10,000: arbitrary, some ms.
SLICE: Final = 10_000
#: Raw bytes kept of a listed job. 64 KiB: as of any read.
MAX_RAW: Final = 65_536
#: Steps of the golden ratio fall far apart: one draw a page gives each job on it one of its own.
_GOLDEN: Final = 0.6180339887498949
_LISTED: Final = ", ".join(repr(state.value) for state in sorted(LISTED))


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One account's cursor as it stands between sweeps."""

    due_at: UnixMs
    errors: int
    #: Requests that the last whole sweep came to; 0: none yet.
    pages: int
    ended_at: UnixMs | None


@dataclass(frozen=True, slots=True)
class Scope:
    """What a sweep sets out to see: the open jobs as they are known when it begins."""

    open_jobs: int
    #: When the oldest of their operations was made.
    oldest_at: UnixMs | None
    last_key: int


@dataclass(frozen=True, slots=True)
class SweepWish:
    """An owner wants a due cursor."""

    provider: str
    owner: str
    now: UnixMs
    lease_ms: int


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One job on a page: what was read, what it means, and the JSON that it was read from."""

    observation: Observation
    verdict: Verdict
    entry: JsonObject


@dataclass(frozen=True, slots=True)
class PageRecord:
    """One page on its way into the store. `renew_until`: the lease is to be renewed with it."""

    provider: str
    owner: str
    fence: int
    began_at: UnixMs
    at: UnixMs
    draw: float
    request: RequestRecord
    #: From this the ids of its observations are made.
    page_id: str
    jobs: tuple[ListedJob, ...]
    renew_until: UnixMs | None = None


@dataclass(frozen=True, slots=True)
class PageKept:
    """What a page came to."""

    #: The lease still holds; else its facts were kept and the sweep is another's.
    is_held: bool
    #: Keys of the operations that it showed and that were watched when the sweep began.
    seen: tuple[int, ...]


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
_RENEW: Final = "UPDATE sweeps SET lease_until = ? WHERE provider = ? AND lease_owner = ? AND fence = ?"
_IS_HELD: Final = "SELECT 1 FROM sweeps WHERE provider = ? AND lease_owner = ? AND fence = ?"
#: CROSS: the page is the outer loop, each of its ids one look into the index.
_SHOWN: Final = (
    "SELECT j.key, o.key, o.operation_id, o.state, o.completed_at, o.remote_status, o.living ->> '$.progress',"
    " o.living ->> '$.total_items', s.errors, s.gone_reads, s.last_read_at, s.lease_owner IS NOT NULL"
    " FROM json_each(?) j CROSS JOIN operations o ON o.provider = ? AND o.remote_job_id = j.value"
    " LEFT JOIN schedule s ON s.key = o.key ORDER BY j.key, o.key"
)
_FINISH: Final = (
    "UPDATE sweeps SET due_at = ?, errors = ?, pages = coalesce(?, pages), ended_at = ?, lease_owner = NULL,"
    " lease_until = NULL WHERE provider = ? AND lease_owner = ? AND fence = ?"
)
_MAKE_DUE: Final = (
    "UPDATE schedule SET due_at = min(due_at, ?) WHERE lease_owner IS NULL AND key IN (SELECT value FROM json_each(?))"
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
_SCOPE: Final = (
    "SELECT count(*), min(o.created_at), max(s.key) FROM schedule s JOIN operations o ON o.key = s.key"
    f" WHERE s.provider = ? AND o.state IN ({_LISTED})"
)
_OPEN: Final = (
    "SELECT s.provider, count(*) FROM schedule s JOIN operations o ON o.key = s.key"
    f" WHERE o.state IN ({_LISTED}) GROUP BY s.provider"
)
_WATCHED: Final = (
    "SELECT s.key, o.started_at FROM schedule s JOIN operations o ON o.key = s.key"
    f" WHERE s.provider = ? AND o.state IN ({_LISTED}) AND s.key > ? AND s.key <= ? ORDER BY s.key LIMIT {SLICE}"
)


def _claim(connection: sqlite3.Connection, wish: SweepWish) -> Done:
    values = (wish.owner, wish.now + wish.lease_ms, wish.provider, wish.now, wish.now, wish.owner)
    row = connection.execute(_CLAIM, values).fetchone()
    return Done(None if row is None else int(row[0]))


def _keep_page(connection: sqlite3.Connection, page: PageRecord, judge: Judge) -> Done:
    lease = (page.provider, page.owner, page.fence)
    if page.renew_until is not None:
        is_held = connection.execute(_RENEW, (page.renew_until, *lease)).rowcount == 1
    else:
        is_held = connection.execute(_IS_HELD, lease).fetchone() is not None
    seen, arrivals = _read_page(connection, page)
    kept = PageKept(is_held, tuple(seen))
    if not arrivals:
        return Done(kept)
    applier = Applier(connection, judge)
    applier.load([arrival.operation_id for arrival in arrivals])
    done = [applier.apply(arrival) for arrival in arrivals]
    applier.flush()
    due = [one.due_at for one in done if one.due_at is not None]
    return Done(kept, tuple(change for one in done for change in one.changes), min(due, default=None))


def _read_page(connection: sqlite3.Connection, page: PageRecord) -> tuple[list[int], list[Arrival]]:
    """Which operations the page shows, and what of it is news. A job that stands twice on a page is read once."""
    jobs: dict[str, ListedJob] = {}
    for job in page.jobs:
        jobs.setdefault(str(job.observation.remote_job_id), job)
    names = list(jobs)
    seen: list[int] = []
    arrivals: list[Arrival] = []
    for index, key, operation_id, state, completed_at, *known in connection.execute(
        _SHOWN, (json.dumps(names), page.provider)
    ).fetchall():
        if state in LISTED or (completed_at or 0) >= page.began_at:
            seen.append(key)
        job, stands = jobs[names[index]], _stands(state, *known)
        if is_news(stands, job.observation, job.verdict, sent_at=page.request.sent_at):
            arrivals.append(_as_arrival(page, operation_id, job, index))
    return seen, arrivals


def _stands(state: str, status: str | None, progress: str | None, *rest: Any) -> Stands:
    total, errors, gone_reads, last_read_at, is_leased = rest
    shown = Progress(**json.loads(progress)) if progress else None
    return Stands(State(state), status, shown, total, errors, gone_reads, last_read_at, bool(is_leased))


def _as_arrival(page: PageRecord, operation_id: str, job: ListedJob, index: int) -> Arrival:
    observation_id = f"obs_{page.page_id}_{index}"
    raw = json.dumps(job.entry, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")[:MAX_RAW]
    return Arrival(
        operation_id,
        JobRead(job.observation),
        actor=f"sweep:{page.provider}",
        cause=f"observation:{observation_id}",
        at=page.at,
        draw=(page.draw + index * _GOLDEN) % 1,
        requests=(replace(page.request, request_id=f"req_{page.page_id}_{index}"),),
        observation=ObservationRecord(observation_id, "list", raw, job.observation),
    )


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

    def __init__(self, group: GroupCommit, scanner: Reader, judge: Judge) -> None:
        self._group = group
        self._scanner = scanner
        self._page = Kind(
            "list_page", lambda connection, payloads: [_keep_page(connection, page, judge) for page in payloads]
        )

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
        """Let rows that are free be read by themselves, now. Raises: StoreError."""
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

    async def open_jobs(self) -> dict[str, int]:
        """How many jobs each provider has whose polls a list can carry. Raises: StoreError."""
        return dict(await self._scanner.execute_fetchall(_OPEN))

    async def scope(self, provider: str) -> Scope:
        """What a sweep has to see. Raises: StoreError."""
        ((open_jobs, oldest_at, last_key),) = await self._scanner.execute_fetchall(_SCOPE, (provider,))
        return Scope(int(open_jobs), oldest_at, last_key or 0)

    async def watched(self, provider: str, *, after: int, last: int) -> list[tuple[int, UnixMs | None]]:
        """One slice of open jobs as (key, accepted at), in the order of keys. Raises: StoreError."""
        found = await self._scanner.execute_fetchall(_WATCHED, (provider, after, last))
        return [(int(key), started_at) for key, started_at in found]

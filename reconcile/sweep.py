"""List-page sweeps: one walk over an account's list in place of a read of each of its open jobs.

A walk lives in memory, since whoever starts anew only reads a few pages twice; when the next one is due stands in the
file before the wait begins. Nothing is concluded from a job that a list does not show: it is read by its id.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from reconcile import listing, schedule
from reconcile.client import Client, Exchange
from reconcile.contract import Contract, Lookup
from reconcile.errors import StoreBroken, StoreBusy, StoreError
from reconcile.evidence import ReadFailed
from reconcile.ingest import Ingest
from reconcile.model import UnixMs
from reconcile.paces import Paces, Watch
from reconcile.peer import Peer
from reconcile.provider import Page, Purpose
from reconcile.schedule import Pace
from reconcile.seams import Clock, Dice
from reconcile.store.store import Store
from reconcile.store.sweeps import Begin, Scope, Spread, SweepEnd, SweepRow, SweepWish

#: How long a sweep's lease lasts, and the age at which a page's write renews it, ms: as of the rows (worker.py).
LEASE_MS: Final = 60_000
RENEW_MS: Final = 20_000
#: How long a page that could be read waits for a slot while more urgent work takes them all, ms. 60 s: arbitrary, so
#: that a flood of rung jobs cannot starve those whose webhook never came.
PATIENCE_MS: Final = 60_000
#: Wait after the store refused a write, ms. 1 s: arbitrary; a full disk does not clear faster.
STORE_BUSY_MS: Final = 1_000


@dataclass(slots=True)
class _Walk:
    """One sweep under way."""

    fence: int
    trace_id: str
    began_at: UnixMs
    renewed_at: UnixMs
    scope: Scope
    #: A list is read where its provider is now.
    origin: str | None = None
    cursor: str | None = None
    pages: int = 0
    cursors: set[str] = field(default_factory=set)
    #: One bit an operation's key: a million jobs are 125 kB.
    _seen: bytearray = field(default_factory=bytearray)
    _seen_count: int = 0

    @property
    def has_seen_all(self) -> bool:
        """Whether every job that was open when it began has been shown."""
        return self._seen_count >= self.scope.open_jobs

    def has_seen(self, key: int) -> bool:
        """Whether the job of this operation was shown."""
        byte = key >> 3
        return byte < len(self._seen) and bool(self._seen[byte] >> (key & 7) & 1)

    def see(self, keys: tuple[int, ...]) -> None:
        """Remember what a page showed; a job that is shown again counts once."""
        if not self._seen:
            self._seen = bytearray((self.scope.last_key >> 3) + 1)
        for key in keys:
            if key <= self.scope.last_key and not self.has_seen(key):
                self._seen[key >> 3] |= 1 << (key & 7)
                self._seen_count += 1

    def turn(self, page: Page, lookup: Lookup) -> bool:
        """Go to the next page; False where there is none to read. A cursor that comes again leads round in a circle."""
        circles = page.next is not None and page.next in self.cursors
        cap = listing.max_pages(self.scope.open_jobs, lookup)
        oldest_at = self.scope.oldest_at
        is_past = oldest_at is not None and listing.shows_older(page, oldest_at, lookup)
        if page.next is None or circles or self.has_seen_all or is_past or self.pages >= cap:
            return False
        self.cursor = page.next
        self.cursors.add(page.next)
        return True


@dataclass(slots=True)
class _Cursor:
    """One account's cursor."""

    due_at: UnixMs
    walk: _Walk | None = None
    #: When what `needed` says was learned.
    ended_at: UnixMs | None = None
    is_running: bool = False


class Sweeper:
    """Reads lists, and keeps the due times in the file as each provider's pace asks. Driven by the worker's loop."""

    def __init__(
        self,
        *,
        owner: str,
        peers: Mapping[str, Peer],
        paces: Paces,
        store: Store,
        client: Client,
        ingest: Ingest,
        clock: Clock,
        dice: Dice,
        log: Any,
    ) -> None:
        self._owner = owner
        self._peers = peers
        self._paces = paces
        self._store = store
        self._client = client
        self._ingest = ingest
        self._clock = clock
        self._dice = dice
        self._log = log
        self._cursors: dict[str, _Cursor] = {}

    async def recall(self) -> None:
        """Take up what the file knows; before the worker runs. Raises: StoreError."""
        known = await self._store.known_providers()
        rows = await self._store.sweeps.rows()
        open_jobs = await self._store.sweeps.open_jobs()
        for name, watch in self._paces.watches.items():
            watch.recent_ends = known[name].recent_ends if name in known else ""
            watch.open_jobs = open_jobs.get(name, 0)
            if (row := rows.get(name)) is not None:
                self._recall_sweep(name, watch, row)
            else:
                # Rows may have been left at a sweep interval by a process that was killed as health was lost.
                watch.in_file = Pace.SWEPT if watch.open_jobs else watch.goal

    def _recall_sweep(self, name: str, watch: Watch, row: SweepRow) -> None:
        watch.has_sweep, watch.errors, watch.needed = True, row.errors, row.pages
        watch.in_file = Pace.LISTED if row.errors < listing.ERRORS_TO_LEAVE else Pace.SWEPT
        self._cursors[name] = _Cursor(row.due_at, ended_at=row.ended_at)

    # ---- pace ----

    async def settle(self) -> UnixMs | None:
        """Bring the file's due times to each provider's pace; the time to try again, where that did not go.

        Raises: StoreBroken.
        """
        now = self._clock.now()
        for name, watch in self._paces.watches.items():
            self._forget_old(name, watch, now)
            try:
                if watch.goal is not watch.in_file or watch.has_sweep != watch.is_worth_a_sweep:
                    await self._settle(name, watch, now)
                await self._hasten(name, watch, now)
            except StoreBroken:
                raise
            except StoreError as fault:
                self._log.warning("pace_not_kept", provider=name, error=str(fault))
                return now + STORE_BUSY_MS
        return None

    def _forget_old(self, name: str, watch: Watch, now: UnixMs) -> None:
        """What made a list not worth reading may have passed."""
        cursor = self._cursors.get(name)
        if watch.has_sweep or cursor is None or cursor.ended_at is None:
            return
        if now >= cursor.ended_at + listing.BELIEVED_MS:
            watch.needed = 0

    async def _hasten(self, name: str, watch: Watch, now: UnixMs) -> None:
        """A sweep that was put off while webhooks arrived does not wait so long once they fail to."""
        cursor, poll = self._cursors.get(name), watch.contract.poll
        waits_long = watch.has_sweep and cursor is not None and cursor.due_at > now + poll.cap_ms
        if cursor is None or not waits_long or watch.is_healthy or watch.errors:
            return
        due_at = now + schedule.poll_delay_ms(poll, schedule.MAX_DOUBLINGS, draw=self._dice.draw())
        await self._store.sweeps.hasten(name, due_at)
        cursor.due_at = due_at

    async def _settle(self, name: str, watch: Watch, now: UnixMs) -> None:
        goal, was, poll = watch.goal, watch.in_file, watch.contract.poll
        if goal is Pace.LISTED:
            due_at = now + schedule.poll_delay_ms(poll, 1, draw=self._dice.draw())
            due_at = await self._store.sweeps.begin(Begin(name, due_at))
            cursor = self._cursors.setdefault(name, _Cursor(due_at))
            cursor.due_at = due_at
            watch.has_sweep = True
        else:
            ends_sweep = watch.has_sweep and not watch.is_worth_a_sweep
            if was is not Pace.POLLED or ends_sweep:
                draw = self._dice.draw()
                await self._store.sweeps.spread(Spread(name, now, poll.base_ms, poll.cap_ms, draw, ends_sweep))
            if ends_sweep:
                watch.has_sweep, watch.errors = False, 0
                self._cursors[name].walk = None  # one that is under way finds its lease gone
        watch.in_file = goal
        self._log.info("pace_changed", provider=name, pace=goal, was=was, open_jobs=watch.open_jobs)

    def clock_stepped(self) -> None:
        """The wall clock was set: no sweep waits for longer than any that is planned; the file's were cut alike."""
        now = self._clock.now()
        for name, cursor in self._cursors.items():
            poll = self._contract(name).poll
            cursor.due_at = min(cursor.due_at, now + max(poll.cap_ms, poll.sweep_ms))

    # ---- what the worker's loop asks ----

    def ready(self, now: UnixMs, *, waited_ms: int = 0) -> list[str]:
        """Providers whose list can be read on, and could have been for `waited_ms`."""
        return [
            name
            for name, cursor in sorted(self._cursors.items())
            if self._paces.watches[name].has_sweep and not cursor.is_running and cursor.due_at + waited_ms <= now
        ]

    def next_at(self, now: UnixMs) -> UnixMs | None:
        """When a list that waits is due next, or has waited for a slot for long enough."""
        waiting = [
            cursor.due_at if cursor.due_at > now else cursor.due_at + PATIENCE_MS
            for name, cursor in self._cursors.items()
            if self._paces.watches[name].has_sweep and not cursor.is_running
        ]
        return min((at for at in waiting if at > now), default=None)

    async def go_on(self, name: str, *, may_go_on: Callable[[], bool]) -> None:
        """Read pages of one account until its sweep is over, or its slot is wanted by others. Raises: StoreBroken."""
        cursor = self._cursors[name]
        cursor.is_running = True
        try:
            while await self._step(name, cursor) and may_go_on():
                pass
        except StoreBroken:
            raise
        except StoreBusy as fault:
            self._drop(cursor)
            self._log.warning("sweep_not_recorded", provider=name, error=str(fault))
        except Exception:  # noqa: BLE001 - the rim: a fault of ours must not keep a list from being given up
            self._log.exception("sweep_failed", provider=name)
            await self._cut_short_by_us(name, cursor)
        finally:
            cursor.is_running = False

    def _drop(self, cursor: _Cursor) -> None:
        """Nothing of it is known to be kept: it begins anew."""
        cursor.walk, cursor.due_at = None, self._clock.now() + STORE_BUSY_MS

    async def _cut_short_by_us(self, name: str, cursor: _Cursor) -> None:
        walk = cursor.walk
        self._drop(cursor)
        if walk is None:
            return
        try:
            await self._cut_short(name, cursor, walk, ReadFailed("our_fault"))
        except StoreError as fault:
            self._log.warning("sweep_not_recorded", provider=name, error=str(fault))

    # ---- one page ----

    async def _step(self, name: str, cursor: _Cursor) -> bool:
        """Read one page; whether another follows. Raises: StoreError."""
        walk = cursor.walk or await self._begin(name, cursor)
        terms = self._contract(name).lookup
        if walk is None or terms is None:
            return False
        page, exchange = await self._read(name, walk)
        if isinstance(page, ReadFailed):
            await self._cut_short(name, cursor, walk, page)
            return False
        if not await self._keep(name, walk, page, exchange):
            self._log.warning("lease_lost", sweep=name, fence=walk.fence)
            self._drop(cursor)
            return False
        if not walk.turn(page, terms):
            await self._finish(name, cursor, walk, terms)
            return False
        cursor.due_at = self._clock.now()
        return True

    async def _begin(self, name: str, cursor: _Cursor) -> _Walk | None:
        now = self._clock.now()
        fence = await self._store.sweeps.claim(SweepWish(name, self._owner, now, LEASE_MS))
        if fence is None:  # another owner sweeps, or has done so just now
            row = (await self._store.sweeps.rows()).get(name)
            cursor.due_at = max(row.due_at if row else 0, now + self._contract(name).poll.base_ms)
            return None
        scope = await self._store.sweeps.scope(name)
        self._paces.watches[name].open_jobs = scope.open_jobs
        cursor.walk = _Walk(fence, self._dice.trace_id(), now, now, scope)
        return cursor.walk

    async def _read(self, name: str, walk: _Walk) -> tuple[Page | ReadFailed, Exchange]:
        peer = self._peers[name]
        request = replace(peer.provider.list_page(walk.cursor), purpose=Purpose.LIST)
        exchange = await self._client.send(peer, walk, request)
        walk.pages += 1
        if exchange.response is None:
            return ReadFailed(exchange.error_class or "unknown"), exchange
        return peer.provider.read_list(exchange.response), exchange

    async def _keep(self, name: str, walk: _Walk, page: Page, exchange: Exchange) -> bool:
        now = self._clock.now()
        renews = now - walk.renewed_at >= RENEW_MS
        kept = await self._ingest.page(
            name,
            page,
            exchange,
            owner=self._owner,
            fence=walk.fence,
            began_at=walk.began_at,
            renew_ms=LEASE_MS if renews else 0,
        )
        walk.renewed_at = now if renews else walk.renewed_at
        walk.see(kept.seen)
        return kept.is_held

    # ---- the end of a sweep ----

    async def _finish(self, name: str, cursor: _Cursor, walk: _Walk, terms: Lookup) -> None:
        unseen = 0 if walk.has_seen_all else await self._read_the_rest(name, walk, terms)
        watch, now = self._paces.watches[name], self._clock.now()
        delay = self._delay(watch, schedule.MAX_DOUBLINGS, sweeping=watch.is_healthy)
        await self._close(name, cursor, walk, due_at=now + delay, errors=0, pages=walk.pages + unseen)
        watch.needed = walk.pages + unseen
        self._log.info(
            "list_swept",
            provider=name,
            open_jobs=walk.scope.open_jobs,
            pages=walk.pages,
            not_shown=unseen,
            took_ms=now - walk.began_at,
        )

    async def _read_the_rest(self, name: str, walk: _Walk, terms: Lookup) -> int:
        """Let what the list did not show be read by its id; how many jobs that were."""
        known_before = walk.began_at - terms.lag_ms
        after, count = 0, 0
        while found := await self._store.sweeps.watched(name, after=after, last=walk.scope.last_key):
            after = found[-1][0]
            keys = [key for key, at in found if not walk.has_seen(key) and (at is None or at <= known_before)]
            if keys:
                await self._store.sweeps.make_due(keys, self._clock.now())
            count += len(keys)
        return count

    async def _cut_short(self, name: str, cursor: _Cursor, walk: _Walk, why: ReadFailed) -> None:
        """A page that could not be read ends the sweep; nothing follows from what it would have shown."""
        watch, now = self._paces.watches[name], self._clock.now()
        errors = watch.errors + int(why.counts)  # 401 and 403 speak of the account, not of its list
        delay = self._delay(watch, max(1, errors), retry_after_ms=why.retry_after_ms)
        await self._close(name, cursor, walk, due_at=now + delay, errors=errors, pages=None)
        self._log.warning("list_failed", provider=name, error_class=why.error_class, pages=walk.pages, in_a_row=errors)

    async def _close(
        self, name: str, cursor: _Cursor, walk: _Walk, *, due_at: UnixMs, errors: int, pages: int | None
    ) -> None:
        now = self._clock.now()
        if not await self._store.sweeps.finish(SweepEnd(name, self._owner, walk.fence, due_at, errors, pages, now)):
            self._log.warning("lease_lost", sweep=name, fence=walk.fence)
        cursor.walk, cursor.due_at, cursor.ended_at = None, due_at, now
        self._paces.watches[name].errors = errors

    def _delay(self, watch: Watch, n: int, *, sweeping: bool = False, retry_after_ms: int | None = None) -> int:
        return schedule.poll_delay_ms(
            watch.contract.poll, n, draw=self._dice.draw(), sweeping=sweeping, retry_after_ms=retry_after_ms
        )

    def _contract(self, name: str) -> Contract:
        return self._peers[name].provider.contract

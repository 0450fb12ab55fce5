"""List-page sweeps: one walk over an account's list in place of a read of each of its open jobs.

A walk lives in memory, since whoever starts anew only reads a few pages twice; when the next one is due stands in the
file before the wait begins. Nothing is concluded from a job that a list does not show: it is read by its id.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from reconcile import listing, schedule
from reconcile.absence import Served
from reconcile.client import Client, Exchange
from reconcile.contract import Contract, Lookup
from reconcile.errors import StoreBroken, StoreBusy, StoreError
from reconcile.evidence import ReadFailed
from reconcile.ingest import Ingest
from reconcile.leases import LEASE_MS, RENEW_MS, STORE_BUSY_MS
from reconcile.model import UnixMs
from reconcile.paces import Paces
from reconcile.peer import Peer
from reconcile.provider import Page, Purpose
from reconcile.seams import Clock, Dice
from reconcile.store.store import Store
from reconcile.store.sweeps import SweepEnd, SweepWish
from reconcile.walk import Cursor, Scope, Walk

#: Jobs not shown yet, at most, of which it is asked before the next page whether they are waited for still. 100:
#: arbitrary, a page of them; where more are missing, another page is worth its request anyway.
FEW: Final = 100


class Sweeper:
    """Reads lists; which and from when on is PaceKeeper's. Driven by the worker's loop."""

    def __init__(
        self,
        *,
        owner: str,
        peers: Mapping[str, Peer],
        served: Served,
        paces: Paces,
        cursors: Mapping[str, Cursor],
        store: Store,
        client: Client,
        ingest: Ingest,
        clock: Clock,
        dice: Dice,
        log: Any,
    ) -> None:
        self._owner = owner
        self._peers = peers
        self._served = served
        self._paces = paces
        self._cursors = cursors
        self._store = store
        self._client = client
        self._ingest = ingest
        self._clock = clock
        self._dice = dice
        self._log = log

    # ---- what the worker's loop asks ----

    def ready(self, now: UnixMs) -> list[str]:
        """Providers whose list can be read on."""
        return sorted(name for name, due_at in self._waiting().items() if due_at <= now)

    def next_at(self, now: UnixMs) -> UnixMs | None:
        """When a list that waits is due next."""
        return min((at for at in self._waiting().values() if at > now), default=None)

    def _waiting(self) -> dict[str, UnixMs]:
        """When each list that nobody reads just now is due."""
        return {
            name: cursor.due_at
            for name, cursor in self._cursors.items()
            if self._paces.watches[name].has_sweep and not cursor.is_running
        }

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
            self._paces.watches[name].familiar.end_page()  # of one that could not be kept nothing was learned

    def _drop(self, cursor: Cursor) -> None:
        """Nothing of it is known to be kept: it begins anew."""
        cursor.walk, cursor.due_at = None, self._clock.now() + STORE_BUSY_MS

    async def _cut_short_by_us(self, name: str, cursor: Cursor) -> None:
        walk = cursor.walk
        self._drop(cursor)
        if walk is None:
            return
        try:
            await self._cut_short(name, cursor, walk, ReadFailed("our_fault"))
        except StoreError as fault:
            self._log.warning("sweep_not_recorded", provider=name, error=str(fault))

    # ---- one page ----

    async def _step(self, name: str, cursor: Cursor) -> bool:
        """Read one page; whether another follows. Raises: StoreError."""
        walk = cursor.walk or await self._begin(name, cursor)
        terms = self._contract(name).lookup
        if walk is None or terms is None:
            return False
        page, exchange = await self._read(name, walk)
        if isinstance(page, ReadFailed):
            await self._cut_short(name, cursor, walk, page)
            return False
        walk.see(page.known)
        if not await self._keep(name, walk, page, exchange):
            self._log.warning("lease_lost", sweep=name, fence=walk.fence)
            self._drop(cursor)
            return False
        if page.next is not None and 0 < len(walk.scope.unseen) <= FEW:
            await self._forget_who_left(walk)
        if not walk.turn(page, terms):
            await self._finish(name, cursor, walk, terms)
            return False
        cursor.due_at = self._clock.now()
        return True

    async def _begin(self, name: str, cursor: Cursor) -> Walk | None:
        now = self._clock.now()
        fence = await self._store.sweeps.claim(SweepWish(name, self._owner, now, LEASE_MS))
        if fence is None:  # another owner sweeps, or has done so just now
            row = (await self._store.sweeps.rows()).get(name)
            cursor.due_at = max(row.due_at if row else 0, now + self._contract(name).poll.base_ms)
            return None
        scope = await self._scope(name)
        self._paces.watches[name].open_jobs = scope.open_jobs
        cursor.walk = Walk(fence, self._dice.trace_id(), now, now, scope)
        return cursor.walk

    async def _read(self, name: str, walk: Walk) -> tuple[Page | ReadFailed, Exchange]:
        """A page; known are the operations of those of its jobs that it says of what it said before."""
        peer, familiar = self._peers[name], self._paces.watches[name].familiar
        request = replace(peer.provider.list_page(walk.cursor), purpose=Purpose.LIST)
        exchange = await self._client.send(peer, walk, request)
        walk.pages += 1
        if exchange.response is None:
            return ReadFailed(exchange.error_class or "unknown"), exchange
        return peer.provider.read_list(exchange.response, familiar.key_of), exchange

    async def _keep(self, name: str, walk: Walk, page: Page, exchange: Exchange) -> bool:
        now = self._clock.now()
        renews = now - walk.renewed_at >= RENEW_MS
        if not (page.jobs or renews):
            return True  # nothing to keep; a lease that was lost shows with the next page that has, or at the end
        familiar = self._paces.watches[name].familiar
        familiar.begin_page()
        kept = await self._ingest.page(
            name,
            page,
            exchange,
            owner=self._owner,
            fence=walk.fence,
            served=self._served,
            renew_ms=LEASE_MS if renews else 0,
        )
        walk.renewed_at = now if renews else walk.renewed_at
        walk.see(kept.seen)
        shown = zip(reversed(page.jobs), reversed(page.entries), strict=False)
        entries = {str(job.remote_job_id): entry for job, entry in shown}  # of one that came twice the first was judged
        familiar.learn((job_id, key, entries[job_id]) for job_id, key in kept.known if job_id in entries)
        return kept.is_held

    async def _scope(self, name: str) -> Scope:
        scope, after = Scope(), 0
        while True:
            keys, oldest_at = await self._store.sweeps.scope(name, self._served, after=after)
            if not keys:
                return scope
            scope.add(keys, oldest_at)
            after = keys[-1]

    async def _forget_who_left(self, walk: Walk) -> None:
        """What ended by another road meanwhile may never be shown: no page is read for its sake."""
        unseen = list(walk.scope.unseen)
        watched = await self._store.sweeps.still_watched(unseen, self._served)
        walk.see(key for key in unseen if key not in watched)

    # ---- the end of a sweep ----

    async def _finish(self, name: str, cursor: Cursor, walk: Walk, terms: Lookup) -> None:
        unseen = 0 if walk.has_seen_all else await self._read_the_rest(name, walk, terms)
        watch, now = self._paces.watches[name], self._clock.now()
        draw = self._dice.draw()
        delay = schedule.poll_delay_ms(
            watch.contract.poll, schedule.MAX_DOUBLINGS, draw=draw, sweeping=watch.is_healthy
        )
        # From its beginning on, so that a long list is not read later for its length; half of the wait is left.
        due_at = max(walk.began_at + delay, now + delay // 2)
        await self._close(name, cursor, walk, due_at=due_at, errors=0, pages=walk.pages + unseen)
        watch.needed = walk.pages + unseen
        self._log.info(
            "list_swept",
            provider=name,
            open_jobs=walk.scope.open_jobs,
            pages=walk.pages,
            not_shown=unseen,
            took_ms=now - walk.began_at,
        )

    async def _read_the_rest(self, name: str, walk: Walk, terms: Lookup) -> int:
        """Let what the list did not show be read by its id; how many jobs that were."""
        known_before = walk.began_at - terms.lag_ms
        after, count = 0, 0
        while part := await self._store.sweeps.watched(name, self._served, after=after):
            after = part[-1][0]
            keys = [key for key, _, at in part if key in walk.scope.unseen and (at is None or at <= known_before)]
            if keys:
                await self._store.sweeps.make_due(keys, self._clock.now())
            count += len(keys)
        return count

    async def _cut_short(self, name: str, cursor: Cursor, walk: Walk, why: ReadFailed) -> None:
        """A page that could not be read ends the sweep; nothing follows from what it would have shown.

        Whatever the answer was it counts: 401 and 403 too may be meant for the list alone, while jobs can be read.
        """
        watch, now = self._paces.watches[name], self._clock.now()
        errors = watch.errors + 1
        poll = listing.retry_plan(watch.contract.poll, errors)
        delay = schedule.poll_delay_ms(poll, errors, draw=self._dice.draw(), retry_after_ms=why.retry_after_ms)
        await self._close(name, cursor, walk, due_at=now + delay, errors=errors, pages=None)
        self._log.warning("list_failed", provider=name, error_class=why.error_class, pages=walk.pages, in_a_row=errors)

    async def _close(
        self, name: str, cursor: Cursor, walk: Walk, *, due_at: UnixMs, errors: int, pages: int | None
    ) -> None:
        now = self._clock.now()
        if not await self._store.sweeps.finish(SweepEnd(name, self._owner, walk.fence, due_at, errors, pages, now)):
            self._log.warning("lease_lost", sweep=name, fence=walk.fence)
        cursor.walk, cursor.due_at, cursor.ended_at = None, due_at, now
        self._paces.watches[name].errors = errors

    def _contract(self, name: str) -> Contract:
        return self._peers[name].provider.contract

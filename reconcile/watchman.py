"""Looks around now and then: which conditions people should know of, and whether the wall clock was set.

Level-triggered like everything else: each look computes what stands now, and the store tells opening from closing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from reconcile import absence, limits, notices
from reconcile.absence import Served
from reconcile.errors import StoreBroken, StoreError
from reconcile.files import Files
from reconcile.leases import LEASE_MS
from reconcile.model import UnixMs
from reconcile.notice import Notice
from reconcile.peer import Peer
from reconcile.seams import Clock, Supervisor
from reconcile.store.store import Store

#: Seconds between two looks at the clock, and between two at everything. 15 s and 60 s: arbitrary; a step of the clock
#: delays what is due by no more than the first, and no condition that is looked for is a matter of seconds.
CLOCK_SECONDS: Final = 15
LOOK_SECONDS: Final = 60

#: More conditions, from whoever knows of them.
Source = Callable[[UnixMs], Iterable[Notice]]


class Watchman:
    """One task; `wake` makes it look at once."""

    def __init__(
        self,
        *,
        store: Store,
        peers: Mapping[str, Peer],
        files: Files,
        clock: Clock,
        supervisor: Supervisor,
        served: Served | None,
        sources: Iterable[Source],
        on_step: Callable[[], None],
        log: Any,
    ) -> None:
        self._store = store
        self._peers = peers
        self._files = files
        self._clock = clock
        self._supervisor = supervisor
        #: None: everything that is open may be asked about, and stays so, since the configuration is read once.
        self._served = served
        self._sources = tuple(sources)
        self._on_step = on_step
        self._log = log
        self._wake = asyncio.Event()
        self._standing: dict[str, tuple[str, Any]] | None = None
        self._looked_at = clock.now(), clock.monotonic()

    def wake(self) -> None:
        """Something changed that people may have to know."""
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Look around until `stop` (whoever sets it also calls `wake`). Raises: StoreBroken."""
        look_at = self._clock.monotonic()
        while not stop.is_set():
            was_woken = self._wake.is_set()
            self._wake.clear()
            try:
                await self.check_clock()
                if was_woken or self._clock.monotonic() >= look_at:
                    await self.look()
                    look_at = self._clock.monotonic() + LOOK_SECONDS
            except StoreBroken:
                raise
            except (StoreError, OSError) as fault:
                self._log.warning("notices_not_kept", error=str(fault))  # the next look tries again
            try:
                async with asyncio.timeout(CLOCK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass

    # ---- conditions ----

    async def look(self) -> None:
        """Bring the notices to what stands now. Raises: StoreError."""
        now = self._clock.now()
        standing = {notice.notice_id: notice for notice in await self._conditions(now)}
        seen = {name: (notice.message, notice.evidence) for name, notice in standing.items()}
        if seen == self._standing:
            return
        opened, closed = await self._store.stand(tuple(standing.values()))
        self._standing = seen
        for name in opened:
            self._log.warning("notice_opened", notice=name, message=standing[name].message)
        for name in closed:
            self._log.info("notice_closed", notice=name)

    async def _conditions(self, now: UnixMs) -> list[Notice]:
        found: list[Notice | None] = [notices.of_pause(name, peer.pause, now) for name, peer in self._peers.items()]
        found.append(notices.of_disk(await self._supervisor.offload(self._files.free_bytes), now))
        for name, peer in self._peers.items():
            kept_ms = peer.provider.contract.results_kept_ms
            if kept_ms is not None:
                soon = await self._store.results_expiring(name, before=now + kept_ms // notices.EXPIRING_SHARE)
                found += [notices.of_result(op, now) for op in soon]
        if self._served is not None:
            found += absence.notices(self._served, await self._store.open_at(), now=now)
        for source in self._sources:
            found += source(now)
        return [notice for notice in found if notice is not None]

    # ---- the clock ----

    async def check_clock(self) -> None:
        """Find out whether the wall clock was set since the last look; undo what that delays. Raises: StoreError."""
        now = self._clock.now(), self._clock.monotonic()
        step_ms = _step_ms(self._looked_at, now)
        if abs(step_ms) > notices.CLOCK_STEP_MS:
            self._log.warning("clock_stepped", by_ms=step_ms)
            for peer in self._peers.values():
                # One that was set since then, by the clock as it stands now, is as long as it should be.
                since = max(peer.paused_at or self._looked_at, self._looked_at, key=lambda at: at[1])
                peer.pause, peer.paused_at = limits.shifted(peer.pause, _step_ms(since, now)), now
            if step_ms < 0:
                await self.cut_waits()
            self._on_step()
            await self._store.tell([notices.of_clock(step_ms, now[0])])
        self._looked_at = now

    async def cut_waits(self) -> None:
        """Cut waits longer than any that we plan: they were written by a clock that was ahead. Raises: StoreError."""
        now = self._clock.now()
        for peer in self._peers.values():
            peer.pause = limits.not_longer(peer.pause, now_ms=now)
        longest_ms = {name: _longest_ms(peer) for name, peer in self._peers.items()}
        await self._store.cut_waits(now, longest_ms, LEASE_MS)


def _step_ms(before: tuple[UnixMs, float], now: tuple[UnixMs, float]) -> int:
    """By how much the wall clock was set between two looks at both clocks, ms."""
    return now[0] - before[0] - round((now[1] - before[1]) * 1000)


def _longest_ms(peer: Peer) -> int:
    """The longest usual wait at this provider, ms. What was told to wait longer comes early; a pause still holds it."""
    poll = peer.provider.contract.poll
    return max(poll.cap_ms, poll.sweep_ms)

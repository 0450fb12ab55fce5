"""Each provider's pace brought to the file: when its jobs are due by themselves, and whether its list is read for them.

What the pace should be is decided in paces.py, in memory; here it is written down, and what a start finds is taken up.
"""

from typing import Any

from reconcile import listing, schedule
from reconcile.absence import Served
from reconcile.errors import StoreBroken, StoreError
from reconcile.leases import STORE_BUSY_MS
from reconcile.model import UnixMs
from reconcile.paces import Paces, Watch
from reconcile.schedule import Pace
from reconcile.seams import Clock, Dice
from reconcile.store.store import Store
from reconcile.store.sweeps import Begin, Spread, SweepRow
from reconcile.walk import Cursor


class PaceKeeper:
    """Keeps due times in the file as each provider's pace asks. Driven by the worker's loop."""

    def __init__(self, *, served: Served, paces: Paces, store: Store, clock: Clock, dice: Dice, log: Any) -> None:
        self._served = served
        self._paces = paces
        self._store = store
        self._clock = clock
        self._dice = dice
        self._log = log
        #: Of each account whose list is, or was, read. The sweeper sets times and walks in them, and adds none.
        self.cursors: dict[str, Cursor] = {}
        #: Whose pace in the file is not known, and was taken for the slowest.
        self._guessed: set[str] = set()

    async def recall(self) -> None:
        """Take up what the file knows; before the worker runs. Raises: StoreError."""
        known = await self._store.known_providers()
        rows = await self._store.sweeps.rows()
        open_jobs = await self._store.sweeps.open_jobs(self._served)
        for name, watch in self._paces.watches.items():
            watch.recent_ends = known[name].recent_ends if name in known else ""
            watch.open_jobs = open_jobs.get(name, 0)
            if (row := rows.get(name)) is not None:
                self._recall_sweep(name, watch, row)
            else:
                # Rows may have been left at a sweep interval by a process that was killed as health was lost.
                watch.in_file = Pace.SWEPT if watch.open_jobs else watch.goal
                self._guessed.add(name)

    def _recall_sweep(self, name: str, watch: Watch, row: SweepRow) -> None:
        watch.has_sweep, watch.errors, watch.needed = True, row.errors, row.pages
        watch.in_file = Pace.LISTED if row.errors < listing.ERRORS_TO_LEAVE else Pace.SWEPT
        self.cursors[name] = Cursor(row.due_at, ended_at=row.ended_at)

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
        cursor = self.cursors.get(name)
        if watch.has_sweep or cursor is None or cursor.ended_at is None:
            return
        if now >= cursor.ended_at + listing.BELIEVED_MS:
            watch.needed = 0

    async def _hasten(self, name: str, watch: Watch, now: UnixMs) -> None:
        """A sweep that was put off while webhooks arrived does not wait so long once they fail to."""
        cursor, poll = self.cursors.get(name), watch.contract.poll
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
            cursor = self.cursors.setdefault(name, Cursor(due_at))
            cursor.due_at = due_at
            watch.has_sweep = True
        else:
            ends_sweep = watch.has_sweep and not watch.is_worth_a_sweep
            if was is not Pace.POLLED or ends_sweep:
                draw = self._dice.draw()
                await self._store.sweeps.spread(Spread(name, now, poll.base_ms, poll.cap_ms, draw, ends_sweep))
            if ends_sweep:
                watch.has_sweep, watch.errors = False, 0
                self.cursors[name].walk = None  # one that is under way finds its lease gone
        watch.in_file = goal
        nothing_is_new = goal is was or (goal is Pace.POLLED and name in self._guessed)
        self._guessed.discard(name)
        if not nothing_is_new:
            self._log.info("pace_changed", provider=name, pace=goal, was=was, open_jobs=watch.open_jobs)

    def clock_stepped(self) -> None:
        """The wall clock was set: no sweep waits for longer than any that is planned; the file's were cut alike."""
        now = self._clock.now()
        for name, cursor in self.cursors.items():
            poll = self._paces.watches[name].contract.poll
            cursor.due_at = min(cursor.due_at, now + max(poll.cap_ms, poll.sweep_ms))

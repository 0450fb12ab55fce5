"""Due rows to actions: lease what is due, do the one thing its state names, hand back what came of it as evidence.

No job has a task, timer or loop of its own: a task lives as long as one running action. Between actions everything
stands in the rows; a restart, a crash and a second worker all find the same thing: a row that is due.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from reconcile import limits
from reconcile.actions import Act, Rooms
from reconcile.client import Client
from reconcile.collect import Collector
from reconcile.errors import LeaseLost, StoreBroken, StoreError
from reconcile.files import Files
from reconcile.ingest import Ingest
from reconcile.leases import LEASE_MS, RENEW_MS, STORE_BUSY_MS
from reconcile.limits import Pause
from reconcile.model import Operation, UnixMs
from reconcile.pace_keeper import PaceKeeper
from reconcile.peer import Peer
from reconcile.seams import Clock, Supervisor
from reconcile.states import State
from reconcile.store.claims import Claim, ClaimWish, Renewal
from reconcile.store.store import Store
from reconcile.sweep import Sweeper

#: Seconds that running actions get at a stop. 20: below the unit's TimeoutStopSec (45), above most requests.
GRACE_SECONDS: Final = 20
#: How long all slots of a provider may be held by the same actions before its deadlines fire without their last read,
#: seconds. 60: arbitrary, two reads long; four slow transfers must not hold up every deadline of a provider.
STUCK_SECONDS: Final = 60
#: How long a slot that was freed waits for others, ms, while only such slots are waited for: a claim then takes several
#: rows. 20: arbitrary, what a quick answer takes.
FREED_MS: Final = 20
#: Wait where nothing is planned, ms; whatever comes due earlier wakes the loop. 1 h: arbitrary.
IDLE_MS: Final = 3_600_000


class Worker:
    """One owner of leases. `run` loops until `stop`; `wake` is told of every time that comes due."""

    def __init__(
        self,
        *,
        owner: str,
        peers: Mapping[str, Peer],
        store: Store,
        client: Client,
        ingest: Ingest,
        collector: Collector,
        files: Files,
        pace_keeper: PaceKeeper,
        sweeper: Sweeper,
        clock: Clock,
        supervisor: Supervisor,
        log: Any,
        on_pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._owner = owner
        self._peers = peers
        self._store = store
        self._rooms = Rooms(client, ingest, collector, files, clock, log)
        self._pace_keeper = pace_keeper
        self._sweeper = sweeper
        self._clock = clock
        self._supervisor = supervisor
        self._log = log
        #: Told of every pause that was opened, grew longer or ended.
        self._on_pause = on_pause
        self._renew_at = 0
        #: By operation and fence: a row may be leased again while an action that lost it still ends.
        self._running: dict[tuple[str, int], Claim] = {}
        #: Slots that actions hold, by provider: from the claim until nothing more is asked under it.
        self._slots: Counter[str] = Counter()
        #: Actions that hold none any more: their answer is on its way to the file, and ends the lease there.
        self._answering: set[tuple[str, int]] = set()
        #: What is under way: actions by operation and fence, the reading of lists by provider.
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        #: Providers whose list is being read; each takes one slot.
        self._sweeping: set[str] = set()
        #: Providers whose list was asked after all rows so far: a row probes their pause next, where one is due.
        self._listed_last: set[str] = set()
        self._wake = asyncio.Event()
        #: What woke the loop waits for no company.
        self._hurry = asyncio.Event()
        #: Providers with due rows, or a due list, that found no slot.
        self._starved: set[str] = set()
        self._sleeping_until: UnixMs | None = None
        #: When an action of a provider last began or ended, in monotonic seconds.
        self._turned_at: dict[str, float] = {}
        #: The pauses that the file holds.
        self._kept: dict[str, Pause] = {}

    async def recall_pauses(self) -> None:
        """Take up the pauses that an earlier process kept; before `run`."""
        self._kept = await self._store.pauses()
        for name, peer in self._peers.items():
            if name in self._kept and peer.absence is None:
                peer.pause = limits.after_restart(self._kept[name], now_ms=self._clock.now())

    def wake(self, due_at: UnixMs) -> None:
        """Something comes due at `due_at`: wake the loop if that is sooner than it would."""
        if self._sleeping_until is None or due_at < self._sleeping_until:
            self._wake_now()

    def _wake_now(self) -> None:
        self._hurry.set()
        self._wake.set()

    def clock_stepped(self) -> None:
        """The wall clock was set: what was planned by it is planned anew."""
        self._renew_at = 0
        self._pace_keeper.clock_stepped()
        self._wake_now()

    async def run(self, stop: asyncio.Event) -> None:
        """Claim and act until `stop` (whoever sets it also calls `wake`); then let running actions end.

        Raises: StoreBroken.
        """
        self._renew_at = self._clock.now() + RENEW_MS
        while not stop.is_set():
            self._wake.clear()
            self._hurry.clear()
            if self._running and self._clock.now() >= self._renew_at:
                await self._renew()
            if self._clock.now() >= self._renew_at:
                self._renew_at = self._clock.now() + RENEW_MS
            until = await self._pass(stop)
            await self._sleep(min(until, self._renew_at) if self._running else until)
        await self._wind_down()
        await self._keep_pauses()

    async def _wind_down(self) -> None:
        """Let running actions end; what takes too long is dropped, its send mark tells the next start what it was."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(list(self._tasks.values()), timeout=GRACE_SECONDS)
        for task in late:
            self._log.warning("action_dropped", task=task.get_name())
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _pass(self, stop: asyncio.Event) -> UnixMs:
        """Lease what is due and start its actions; gives the time to look again."""
        await self._keep_pauses()
        again_at = await self._pace_keeper.settle()
        now = self._clock.now()
        self._start_sweeps(stop, now, self._lists_first(now))
        room = {name: self._room(peer, now) for name, peer in self._peers.items()}
        paused = frozenset(name for name, peer in self._peers.items() if not limits.may_send(peer.pause, now))
        to_collect = {name: self._room_to_collect(peer, now) for name, peer in self._peers.items()}
        probed = frozenset(name for name, peer in self._peers.items() if peer.pause.is_open and name not in paused)
        full = {name: self._stuck_in(name) for name, left in room.items() if left <= 0 and name not in paused}
        stuck = frozenset(name for name, seconds in full.items() if seconds <= 0)
        listed = frozenset(self._sweeper.ready(now))
        try:
            claimed = await self._store.claim(
                ClaimWish(self._owner, now, LEASE_MS, room, to_collect, paused, stuck, probed, listed)
            )
        except StoreBroken:
            raise
        except StoreError as fault:
            self._log.warning("claim_refused", error=str(fault))
            return now + STORE_BUSY_MS
        # Also where a stop came meanwhile: a claim may have marked its row as about to be sent, and must send it.
        for claim in claimed.claims:
            self._start(claim)
        self._start_sweeps(stop, now, self._sweeper.ready(now))
        times = [self._look_again(name, due_at) for name, due_at in claimed.next_due.items()]
        self._starved = self._without_slot(claimed.next_due)
        times += [self._peers[name].pause.until_ms for name in paused]
        times += [claimed.next_expiry, claimed.next_overdue, again_at, self._sweeper.next_at(now)]
        times += [now + math.ceil(seconds * 1000) for name, seconds in full.items() if name not in stuck]
        return min((t for t in times if t is not None), default=now + IDLE_MS)

    async def _keep_pauses(self) -> None:
        """Write down the pauses that were opened, grew longer or ended since the last pass."""
        pauses = {
            name: peer.pause if peer.pause.is_open else limits.NO_PAUSE
            for name, peer in self._peers.items()
            if peer.absence is None  # nothing is asked, so nothing is learned of a pause that it had
        }
        changed = {name: pause for name, pause in pauses.items() if pause != self._kept.get(name, limits.NO_PAUSE)}
        if not changed:
            return
        try:
            await self._store.keep_pauses(changed, self._clock.now())
        except StoreBroken:
            raise
        except StoreError as fault:
            # The next pass tries again; meanwhile the pause holds all the same.
            self._log.warning("pauses_not_kept", providers=sorted(changed), error=str(fault))
            return
        self._kept |= changed
        self._on_pause()

    def _look_again(self, name: str, next_at: UnixMs) -> UnixMs | None:
        """When a provider's next row can be taken; None: when a running action ends, which wakes the loop."""
        peer, now = self._peers[name], self._clock.now()
        return next_at if next_at > now or self._room(peer, now) > 0 else None

    def _without_slot(self, next_due: Mapping[str, UnixMs]) -> set[str]:
        """Providers that could be asked more, had they a slot; for those with one `run` comes back by itself."""
        now = self._clock.now()
        rows = {name for name, due_at in next_due.items() if due_at <= now}
        lists = set(self._sweeper.ready(now))
        return {name for name in rows | lists if self._room(self._peers[name], now) <= 0}

    def _room(self, peer: Peer, now: UnixMs) -> int:
        concurrency = peer.provider.contract.limits.concurrency
        return max(0, limits.max_in_flight(peer.pause, concurrency, now) - self._busy(peer.name))

    def _room_to_collect(self, peer: Peer, now: UnixMs) -> int:
        """How many more results may be fetched: a slot is left, so that long transfers hold up no cancel or create."""
        slots = limits.max_in_flight(peer.pause, peer.provider.contract.limits.concurrency, now)
        under_way = sum(
            claim.operation.provider == peer.name and claim.operation.state is State.RESULT_COLLECTING
            for claim in self._running.values()
        )
        return max(0, max(1, slots - 1) - under_way)

    def _stuck_in(self, provider: str) -> float:
        """Seconds until its slots, all taken, count as stuck; each action that begins or ends sets them back."""
        now = self._clock.monotonic()
        return self._turned_at.setdefault(provider, now) + STUCK_SECONDS - now

    def _busy(self, provider: str) -> int:
        return self._slots[provider] + (provider in self._sweeping)

    async def _sleep(self, until: UnixMs) -> None:
        self._sleeping_until = until
        waits = max(0, until - self._clock.now()) / 1000
        try:
            async with asyncio.timeout(waits):
                await self._wake.wait()
                async with asyncio.timeout(FREED_MS / 1000):
                    await self._hurry.wait()
        except TimeoutError:
            pass
        finally:
            self._sleeping_until = None

    def _freed(self, op: Operation) -> None:
        """A slot is free: wake the loop if it is waited for, once half of them are free or a moment passed.

        What the action left due tells by itself, with the commit that wrote it.
        """
        peer, now = self._peers[op.provider], self._clock.now()
        self._turned_at[peer.name] = self._clock.monotonic()
        kept = self._kept.get(peer.name, limits.NO_PAUSE)
        if peer.pause is not kept and peer.pause != kept:
            self._wake_now()  # it bounds everything
        elif peer.name in self._starved:
            slots = limits.max_in_flight(peer.pause, peer.provider.contract.limits.concurrency, now)
            if 2 * self._room(peer, now) >= slots:
                self._hurry.set()
            self._wake.set()

    def _lists_first(self, now: UnixMs) -> list[str]:
        """Lists that probe a pause before the rows do.

        A paused provider has one probe at a time, and its list and its rows take turns: either may be refused alone,
        and a look-up that asks the list as well may be due each time.
        """
        ready = self._sweeper.ready(now)
        return [name for name in ready if self._peers[name].pause.is_open and name not in self._listed_last]

    def _start_sweeps(self, stop: asyncio.Event, now: UnixMs, names: Sequence[str]) -> None:
        """Give a free slot to each of these lists, which are due."""
        for name in names:
            if self._room(self._peers[name], now) <= 0:
                continue
            self._sweeping.add(name)
            self._listed_last.add(name)
            self._turned_at[name] = self._clock.monotonic()
            self._tasks[name, 0] = self._supervisor.start(f"sweep:{name}", self._sweep(name, stop))

    async def _sweep(self, name: str, stop: asyncio.Event) -> None:
        """Read a list as long as nobody else wants the slot."""
        peer = self._peers[name]
        try:
            await self._sweeper.go_on(
                name, may_go_on=lambda: not stop.is_set() and self._room(peer, self._clock.now()) > 0
            )
        finally:
            self._sweeping.discard(name)
            self._tasks.pop((name, 0), None)
            self._turned_at[name] = self._clock.monotonic()
            self._wake_now()

    def _start(self, claim: Claim) -> None:
        op = claim.operation
        key = op.operation_id, claim.fence
        self._running[key] = claim
        self._slots[op.provider] += 1
        self._listed_last.discard(op.provider)
        self._turned_at[op.provider] = self._clock.monotonic()
        self._tasks[key] = self._supervisor.start(f"action:{op.operation_id}", self._run_action(claim))

    async def _run_action(self, claim: Claim) -> None:
        op, key = claim.operation, (claim.operation.operation_id, claim.fence)

        def leave_slot() -> None:
            # What was answered may wait for company on its way to the file: others can be asked meanwhile.
            if key not in self._answering:
                self._answering.add(key)
                self._slots[op.provider] -= 1
                self._freed(op)

        act = Act(self._peers[op.provider], claim, self._rooms, owner=self._owner, on_asked=leave_slot)
        try:
            await act.run()
        except StoreBroken:
            raise  # the writer's own task ends the process
        except LeaseLost as fault:
            self._log.warning("lease_lost", operation_id=op.operation_id, error=str(fault))
        except (StoreError, OSError) as fault:
            # Nothing of it was kept; the lease runs out and the action is done again.
            self._log.warning("action_not_recorded", operation_id=op.operation_id, error=str(fault))
        except Exception:  # noqa: BLE001 - the rim
            # A fault of ours is evidence too, or budget and deadline would never bite.
            self._log.exception("action_failed", operation_id=op.operation_id, trace_id=op.trace_id)
            await self._tell_own_fault(act, op)
        finally:
            del self._running[key]
            self._tasks.pop(key, None)
            leave_slot()
            self._answering.discard(key)
            if op.state is State.RESULT_COLLECTING:
                self._wake_now()  # transfers have a bound of their own

    async def _tell_own_fault(self, act: Act, op: Operation) -> None:
        try:
            await act.fail()
        except StoreError as fault:
            self._log.warning("action_not_recorded", operation_id=op.operation_id, error=str(fault))

    async def _renew(self) -> None:
        until = self._clock.now() + LEASE_MS
        running = list(self._running.values())
        renewals = [Renewal(claim.operation.operation_id, self._owner, claim.fence, until) for claim in running]
        try:
            kept = await self._store.renew(renewals)
        except StoreError as fault:
            self._log.warning("leases_not_renewed", count=len(running), error=str(fault))
            return
        # One that has answered meanwhile ended its lease itself; where it had lost it, its answer tells.
        asking = self._running.keys() - self._answering
        for claim, is_kept in zip(running, kept, strict=True):
            if not is_kept and (claim.operation.operation_id, claim.fence) in asking:
                self._log.warning("lease_lost", operation_id=claim.operation.operation_id, fence=claim.fence)

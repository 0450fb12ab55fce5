"""Callbacks on their way: what is due is taken, sent, and what came of it recorded; a task like the others.

Nothing in memory matters: a delivery waits in its row until a 2xx, a 410, or its last attempt. Killed between sending
and recording, it is sent again, with the same id and the same bytes. Each callback has slots of its own, so that one
whose target hangs holds up nobody else.
"""

import asyncio
from typing import Any, Final

from reconcile import callback
from reconcile.callback import Callbacks, Fate
from reconcile.courier import ATTEMPT_SECONDS, Courier
from reconcile.errors import StoreBroken, StoreError
from reconcile.leases import STORE_BUSY_MS
from reconcile.model import UnixMs
from reconcile.seams import Clock, Dice, Meters, Supervisor
from reconcile.store.deliveries import Cut, Deliveries, Delivery, Recorded, Taking

#: Deliveries to one callback under way at once. 4: arbitrary; a target that hangs costs so many open connections.
PER_CALLBACK: Final = 4
#: How long a taken delivery is one attempt's own, ms: longer than an attempt can last, and its record's way into the
#: file. After that it is due again, whoever had it.
TAKEN_MS: Final = ATTEMPT_SECONDS * 1000 + 30_000
#: Seconds that attempts under way get at a stop. 20: as the worker's actions get.
GRACE_SECONDS: Final = 20
#: Wait where nothing is planned, ms; whatever comes due earlier wakes the loop. 1 h: arbitrary.
IDLE_MS: Final = 3_600_000


class Outbox:
    """One task; `wake` makes it look at once."""

    def __init__(
        self,
        *,
        deliveries: Deliveries,
        callbacks: Callbacks,
        courier: Courier,
        clock: Clock,
        dice: Dice,
        supervisor: Supervisor,
        meters: Meters,
        log: Any,
    ) -> None:
        self._deliveries = deliveries
        self._callbacks = callbacks
        self._courier = courier
        self._clock = clock
        self._dice = dice
        self._supervisor = supervisor
        self._meters = meters
        self._log = log
        self._wake = asyncio.Event()
        self._is_stepped = False
        #: How many attempts of each callback are under way.
        self._busy: dict[str, int] = {}
        #: Callbacks whose last attempt failed: that is a warning once, not each time.
        self._failing: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Something was put into the outbox, or the daemon stops."""
        self._wake.set()

    def clock_stepped(self) -> None:
        """The wall clock was set: waits that were written by one that was ahead are cut."""
        self._is_stepped = True
        self._wake.set()

    async def recover(self) -> None:
        """What an earlier process had under way is due now; only under the state directory's lock. Raises: StoreError.

        Also says whose deliveries wait although the configuration does not have them any more.
        """
        await self._deliveries.cut(Cut(self._clock.now(), callback.LONGEST_MS, is_start=True))
        for name, counts in (await self._deliveries.counts()).items():
            if counts.get("waiting") and self._callbacks.named(name) is None:
                self._log.warning("callback_missing", callback=name, deliveries=counts["waiting"])

    async def run(self, stop: asyncio.Event) -> None:
        """Send what is due until `stop` (whoever sets it also calls `wake`); then let attempts under way end.

        Raises: StoreBroken.
        """
        while not stop.is_set():
            self._wake.clear()
            try:
                until = await self._pass()
            except StoreBroken:
                raise
            except StoreError as fault:
                self._log.warning("deliveries_not_taken", error=str(fault))
                until = self._clock.now() + STORE_BUSY_MS
            await self._sleep(until)
        await self._wind_down()

    async def close(self) -> None:
        """Close the connections; only once `run` has ended."""
        await self._courier.close()

    async def _pass(self) -> UnixMs:
        """Take what is due and has room, and send it; gives the time to look again."""
        now = self._clock.now()
        if self._is_stepped:
            await self._deliveries.cut(Cut(now, callback.LONGEST_MS, is_start=False))
            self._is_stepped = False
        room = {name: free for name in self._callbacks.names if (free := PER_CALLBACK - self._busy.get(name, 0)) > 0}
        due_at = await self._deliveries.next_due(list(room))
        if due_at is None:
            return now + IDLE_MS
        if due_at > now:
            return due_at
        for delivery in await self._deliveries.take(Taking(now, now + TAKEN_MS, room)):
            self._start(delivery)
        return now  # what is due beside these is seen in the next pass, once there is room

    def _start(self, delivery: Delivery) -> None:
        self._busy[delivery.callback] = self._busy.get(delivery.callback, 0) + 1
        task = self._supervisor.start(f"callback:{delivery.delivery_id}", self._deliver(delivery))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, delivery: Delivery) -> None:
        """One attempt, and its record."""
        try:
            target = self._callbacks.named(delivery.callback)
            assert target is not None  # noqa: S101 - only what is configured is taken
            attempt = await self._courier.deliver(target, delivery)
            now = self._clock.now()
            fate = callback.after(attempt, attempts=delivery.attempts, now=now, draw=self._dice.draw())
            await self._deliveries.record(Recorded(delivery.delivery_id, now, fate))
            self._tell(delivery, fate)
        except StoreError as fault:
            # It stays taken for a while and is sent again: what came of it is not known to the file.
            self._log.warning("delivery_not_recorded", delivery_id=delivery.delivery_id, error=str(fault))
        finally:
            self._busy[delivery.callback] -= 1
            self._wake.set()

    def _tell(self, delivery: Delivery, fate: Fate) -> None:
        self._meters.count("callbacks", callback=delivery.callback, result=fate.state)
        told = {
            "delivery_id": delivery.delivery_id,
            "operation_id": delivery.operation_id,
            "callback": delivery.callback,
            "type": delivery.type,
            "attempt": fate.attempts,
        }
        if fate.state == "delivered":
            self._failing.discard(delivery.callback)
            self._log.info("callback_delivered", **told, status=fate.status)
        elif fate.state == "exhausted":
            self._log.warning("callback_exhausted", **told, error=fate.error)
        elif delivery.callback in self._failing:
            self._log.info("callback_failed", **told, error=fate.error, due_at_ms=fate.due_at)
        else:
            self._failing.add(delivery.callback)
            self._log.warning("callback_failed", **told, error=fate.error, due_at_ms=fate.due_at)

    async def _sleep(self, until: UnixMs) -> None:
        waits = max(0, until - self._clock.now()) / 1000
        try:
            async with asyncio.timeout(waits):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _wind_down(self) -> None:
        """Let attempts under way end; one that takes too long is dropped, and the next start sends it again."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=GRACE_SECONDS)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

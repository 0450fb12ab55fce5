"""The stand-in's sender of webhooks: waits for the world's next event, signs it, posts it, tells the world the answer.

When to send, how often and what is in the world; here is only the carrying. Signed as Standard Webhooks by the same
pure function that the daemon's own callbacks use, so tests must hold deliveries to somebody else's verifier.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import aiohttp
from structlog.typing import FilteringBoundLogger

from daemon.standin.deliveries import Delivery
from daemon.standin.world import World
from reconcile.seams import Clock, Supervisor
from reconcile.signatures import Key, read_secret, sign_standard

#: What the provider calls itself.
USER_AGENT: Final = "OpenAI/1.0 (+https://platform.openai.com/docs/webhooks)"
#: Deliveries under way at once. Arbitrary; one slow answer must not hold up the others.
MAX_AT_ONCE: Final = 16

#: Waits until the event is set or so many seconds are over; None: for the event alone.
Pause = Callable[[asyncio.Event, float | None], Awaitable[None]]


async def pause(wake: asyncio.Event, seconds: float | None) -> None:
    """The `Pause` of a running server."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wake.wait()


def signed_headers(body: bytes, *, event_id: str, at_seconds: int, keys: Sequence[Key]) -> dict[str, str]:
    """All headers of a delivery; the timestamp is that of this attempt, the id that of the event."""
    signed = sign_standard(body, event_id=event_id, timestamp_seconds=at_seconds, keys=keys)
    return {"content-type": "application/json", "user-agent": USER_AGENT, **signed}


class WebhookSender:
    """Carries one world's webhooks to one URL."""

    def __init__(
        self,
        world: World,
        clock: Clock,
        supervisor: Supervisor,
        *,
        url: str,
        secret: str,
        log: FilteringBoundLogger,
        pause: Pause = pause,
    ) -> None:
        """Raises: SecretInvalid."""
        self._world, self._clock, self._supervisor = world, clock, supervisor
        self._url, self._keys, self._log, self._pause = url, (read_secret(secret),), log, pause
        self._wake = asyncio.Event()
        self._places = asyncio.Semaphore(MAX_AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()

    def poke(self) -> None:
        """Look again: something may be due earlier than was thought."""
        self._wake.set()

    async def run(self, session: aiohttp.ClientSession) -> None:
        """Deliver until cancelled; what is under way then is broken off."""
        try:
            while True:
                self._wake.clear()
                for delivery in self._world.events_due(self._clock.now()):
                    await self._places.acquire()
                    task = self._supervisor.start("standin_delivery", self._deliver(session, delivery))
                    self._under_way.add(task)
                    task.add_done_callback(self._done)
                now_ms = self._clock.now()
                next_ms = self._world.next_event_at(now_ms)
                await self._pause(self._wake, None if next_ms is None else max(0, next_ms - now_ms) / 1000)
        finally:
            for task in self._under_way:
                task.cancel()
            if self._under_way:
                await asyncio.wait(self._under_way)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._places.release()
        self.poke()

    async def _deliver(self, session: aiohttp.ClientSession, delivery: Delivery) -> None:
        log = self._log.bind(job_id=delivery.job_id, webhook_id=delivery.event_id)
        headers = signed_headers(
            delivery.body, event_id=delivery.event_id, at_seconds=self._clock.now() // 1000, keys=self._keys
        )
        answer: int | str
        try:
            # A redirect is an answer like any other, and no 2xx: following it would carry the body elsewhere.
            async with session.post(self._url, data=delivery.body, headers=headers, allow_redirects=False) as response:
                answer = response.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            answer = type(error).__name__
        taken = isinstance(answer, int) and 200 <= answer < 300
        self._world.delivered(delivery.event_id, taken, self._clock.now())
        if taken:
            log.info("standin_webhook_taken", answer=answer)
        else:
            log.warning("standin_webhook_refused", answer=answer)

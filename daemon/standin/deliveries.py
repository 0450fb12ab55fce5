"""Webhooks on their way: which is due when, and when a refused one is tried again. Pure, the time handed in.

A delivery that was handed out is nobody's until `settled` says how it went; so one event is never tried twice at once.
"""

import dataclasses
import heapq
from typing import Final

#: From the first refusal to the next try, milliseconds; doubled for each further one up to the cap. 5 s is the first
#: step of the Standard Webhooks example schedule, the cap is arbitrary.
FIRST_RETRY_MS: Final = 5_000
MAX_RETRY_MS: Final = 3_600_000
#: After this nothing is tried any more: 72 h, as reported of the provider.
GIVE_UP_MS: Final = 72 * 3_600_000
#: Between the two deliveries of a doubled webhook. Arbitrary.
REPEAT_MS: Final = 500


@dataclasses.dataclass(frozen=True)
class Delivery:
    """One attempt to make: `event_id` goes into the `webhook-id` header and is the same in every attempt."""

    event_id: str
    body: bytes
    at_ms: int
    job_id: str


@dataclasses.dataclass(slots=True)
class EventRecord:
    """What became of one event so far."""

    event_id: str
    job_id: str
    body: bytes
    #: When it came to be due first.
    first_ms: int
    #: How often it is still to be taken.
    wanted: int
    attempts: int = 0
    #: How often it was answered 2xx.
    taken: int = 0
    #: Refusals since it was last taken.
    refused: int = 0
    given_up: bool = False


class Deliveries:
    """The queue of events that are to be delivered."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._due: list[tuple[int, int, str]] = []
        self._count = 0
        self.records: dict[str, EventRecord] = {}

    def add(self, delivery: Delivery, *, copies: int) -> None:
        """Queue a new event, to be taken `copies` times."""
        record = EventRecord(delivery.event_id, delivery.job_id, delivery.body, delivery.at_ms, copies)
        self.records[delivery.event_id] = record
        self._push(delivery.at_ms, delivery.event_id)

    def _push(self, at_ms: int, event_id: str) -> None:
        self._count += 1
        heapq.heappush(self._due, (at_ms, self._count, event_id))

    def next_at(self) -> int | None:
        """When the next attempt is due."""
        return self._due[0][0] if self._due else None

    def due(self, now_ms: int) -> list[Delivery]:
        """Hand out what is due; each must come back through `settled`."""
        found: list[Delivery] = []
        while self._due and self._due[0][0] <= now_ms:
            at_ms, _, event_id = heapq.heappop(self._due)
            record = self.records[event_id]
            record.attempts += 1
            found.append(Delivery(event_id, record.body, at_ms, record.job_id))
        return found

    def settled(self, event_id: str, ok: bool, now_ms: int) -> None:
        """Take the answer to an attempt: done, once more, or again later."""
        record = self.records[event_id]
        if ok:
            record.taken += 1
            record.wanted -= 1
            record.refused = 0
            if record.wanted > 0:
                self._push(now_ms + int(REPEAT_MS / self._speed), event_id)
            return
        record.refused += 1
        if now_ms - record.first_ms >= GIVE_UP_MS / self._speed:
            record.given_up = True
            return
        delay_ms = min(FIRST_RETRY_MS * 2 ** min(record.refused - 1, 20), MAX_RETRY_MS)
        self._push(now_ms + int(delay_ms / self._speed), event_id)

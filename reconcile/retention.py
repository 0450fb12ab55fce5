"""What is kept for how long (interface: kept how long), and the loop that prunes the rest, slice by slice.

Between two slices the writer is left to everybody else: pruning is never in a hurry. Where it is cut off, by a stop or
a kill, the next round goes on; every slice leaves a file that is whole.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from reconcile.files import Files
from reconcile.model import UnixMs
from reconcile.rest import rest
from reconcile.seams import Clock
from reconcile.store.pruned_events import EventPruning, IdsKept
from reconcile.store.pruning import Leaving, Pruned, Pruning
from reconcile.store.record import Record

_DAY_MS: Final = 86_400_000
#: Event ids are kept at least this long, ms. 7 d: the interface's own; longer where a provider repeats for longer.
MIN_IDS_MS: Final = 7 * _DAY_MS
#: Deliveries that no operation was found for are kept this long, ms. 30 d: the interface's own.
UNMATCHED_MS: Final = 30 * _DAY_MS
#: Seconds of a round that pruning takes at most. 1800: half a round, so that no checkpoint waits for a backlog, with
#: which the next round goes on.
LONGEST_SECONDS: Final = 1800


@dataclass(slots=True)
class _Round:
    """How long one round may take, by the monotonic clock, and what it came to."""

    until: float
    operations: int = 0
    events: int = 0
    event_ids: int = 0


class Retention:
    """Prunes what has been kept for long enough. `retries_ms`: the longest retry of each provider whose is known."""

    def __init__(
        self,
        *,
        record: Record,
        files: Files,
        clock: Clock,
        finished_ms: int,
        retries_ms: Mapping[str, int],
        longest_retry_ms: int,
        log: Any,
    ) -> None:
        self._record = record
        self._files = files
        self._clock = clock
        self._finished_ms = finished_ms
        self._retries_ms = retries_ms
        self._longest_retry_ms = longest_retry_ms
        self._log = log

    async def prune(self, stop: asyncio.Event) -> None:
        """Prune what may go, for so long at most; cut off at once by `stop`. Raises: StoreError, OSError."""
        now, done = self._clock.now(), _Round(self._clock.monotonic() + LONGEST_SECONDS)
        ids = self._ids_kept(now)
        try:
            unsettled = await self._record.oldest_unsettled()
            await self._operations(Pruning(now, _before(now - self._finished_ms, unsettled), ids), done, stop)
            stale = EventPruning(_before(now - UNMATCHED_MS, unsettled), ids)
            done.events = await self._in_slices(lambda: self._record.prune_events(stale), done, stop)
            done.event_ids = await self._in_slices(lambda: self._record.prune_event_ids(ids), done, stop)
        finally:
            if done.operations or done.events or done.event_ids:
                counts = {"operations": done.operations, "events": done.events, "event_ids": done.event_ids}
                self._log.info("pruned", **counts)

    async def _operations(self, wish: Pruning, done: _Round, stop: asyncio.Event) -> None:
        async def one_slice() -> int:
            nonlocal wish
            pruned = await self._record.prune(wish)
            wish = replace(wish, after=pruned.after, passed_over=pruned.passed_over)
            done.operations += pruned.count
            self._tell_refused(pruned)
            await self._remove_files(pruned.leaving)
            return int(pruned.has_gone_on)

        await self._in_slices(one_slice, done, stop)

    def _tell_refused(self, pruned: Pruned) -> None:
        for one in pruned.refused:
            self._log.warning("not_pruned", operation_id=one.operation_id, error=one.error)

    async def _in_slices(self, one_slice: Callable[[], Awaitable[int]], done: _Round, stop: asyncio.Event) -> int:
        """Slice by slice until one takes nothing, or the time is over; the sum of what they took."""
        sum_of_all = 0
        while not stop.is_set() and self._clock.monotonic() < done.until:
            began = self._clock.monotonic()
            count = await one_slice()
            if count == 0:
                break
            sum_of_all += count
            await rest(self._clock.monotonic() - began, stop)
        return sum_of_all

    async def _remove_files(self, leaving: tuple[Leaving, ...]) -> None:
        """After their rows: a crash in between leaves files that no row names, which the next tidying finds."""
        refs = [ref for one in leaving for ref in (f"results/{one.operation_id}", *one.inputs)]
        if refs:
            await self._files.remove_all(refs)

    def _ids_kept(self, now: int) -> IdsKept:
        return IdsKept(
            {name: now - max(MIN_IDS_MS, longest) for name, longest in self._retries_ms.items()},
            now - max(MIN_IDS_MS, self._longest_retry_ms),
        )


def _before(moment: UnixMs, unsettled: UnixMs | None) -> UnixMs:
    """While a lost create is looked for, however long, what ended or came meanwhile stays.

    The one says whose the jobs in a list are (B2), the other may be the event of its job (B5).
    """
    return moment if unsettled is None else min(moment, unsettled)

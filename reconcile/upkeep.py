"""What keeps the record and the state directory in order: checkpoints, pruning, and files and item rows that no row
names.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from reconcile.collect import Collector
from reconcile.errors import StoreBroken, StoreError
from reconcile.files import Files
from reconcile.notary import Notary
from reconcile.retention import Retention
from reconcile.seams import Clock
from reconcile.states import State
from reconcile.store.store import Store
from reconcile.unnamed import UNCLAIMED, Found, Unnamed

#: Seconds between two rounds. 1 h: what may be lost at the end of a chain without a trace is at most so young.
ROUND_SECONDS: Final = 3600
#: Removed files that the log names, of however many. 5: arbitrary, enough to see which operations they were of.
FEW: Final = 5
#: Seconds for the checkpoint at the stop. 5: arbitrary, far below the stop time of a service; the next start goes on.
LAST_SECONDS: Final = 5


class Upkeep:
    """Tidies after the start, then signs, prunes and tidies each hour, and signs once more at the stop.

    Its parts fail each for itself: what stands in the way of one keeps no other from its turn.
    """

    def __init__(
        self,
        *,
        store: Store,
        files: Files,
        collector: Collector,
        notary: Notary,
        retention: Retention,
        clock: Clock,
        log: Any,
    ) -> None:
        self._files = files
        self._collector = collector
        self._notary = notary
        self._retention = retention
        self._clock = clock
        self._log = log
        self._unnamed = Unnamed(store, files)
        #: What stood there at the start.
        self._found = Found((), ())
        #: What the last round found that no row names.
        self._suspects: frozenset[str] = frozenset()

    async def look(self) -> None:
        """Note what stands in the state directory, for the tidying after the start. Raises: OSError.

        Under the directory's lock, before anything new comes in: later a file may stand there ahead of its row.
        """
        self._found = await self._unnamed.look()

    async def run(self, stop: asyncio.Event) -> None:
        """Tidy; then a round now, since nobody knows how the last process ended, and one each hour.

        Raises: StoreBroken.
        """
        await self.tidy(stop)
        while not stop.is_set():
            next_at = self._clock.monotonic() + ROUND_SECONDS
            await self._round(stop)
            try:
                async with asyncio.timeout(max(0.0, next_at - self._clock.monotonic())):
                    await stop.wait()
            except TimeoutError:
                pass

    async def close(self) -> None:
        """Sign what the last round could not see; only when nothing new is written any more."""
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._notary.sign()
        except (StoreError, TimeoutError) as fault:
            self._log.warning("no_last_checkpoint", error=str(fault) or "no time was left")

    async def tidy(self, stop: asyncio.Event) -> None:
        """Remove what the start found that no row names; once, since it has all gone or got a row then.

        Raises: StoreBroken.
        """
        await self._part("tidy", lambda: self._tidy_found(stop))

    async def _round(self, stop: asyncio.Event) -> None:
        is_signed = await self._part("sign", lambda: self._notary.sign(stop))
        if is_signed and not stop.is_set():  # only what is signed may be pruned
            await self._part("prune", lambda: self._retention.prune(stop))
        if not stop.is_set():
            await self._part("tidy", lambda: self._tidy_again(stop))

    async def _part(self, name: str, part: Callable[[], Awaitable[object]]) -> bool:
        """Whether it came to its end. Raises: StoreBroken."""
        try:
            await part()
        except StoreBroken:
            raise
        except (StoreError, OSError) as fault:
            self._log.warning("upkeep_failed", part=name, error=str(fault))  # the next round tries again
            return False
        return True

    # ---- files ----

    async def _tidy_found(self, stop: asyncio.Event) -> None:
        """Inputs and results that no operation names, and what earlier tries left."""
        async for refs in self._unnamed.files(self._found):
            if stop.is_set():
                return
            await self._remove(refs)
        async for op, _ in self._unnamed.tries(self._found, least=2):
            if stop.is_set():
                return
            if op.state is not State.RESULT_COLLECTING:
                await self._collector.tidy(op)

    async def _tidy_again(self, stop: asyncio.Event) -> None:
        """Remove what two rounds in a row found unnamed: a file stands there before the row that names it commits."""
        unnamed = await self._files.offload(self._files.leftovers)
        async for refs in self._unnamed.files(await self._unnamed.look()):
            if stop.is_set():
                return
            unnamed += refs
        again = [ref for ref in unnamed if ref in self._suspects]
        self._suspects = frozenset(unnamed).difference(again)
        await self._remove(again)

    async def _remove(self, refs: list[str]) -> None:
        """Remove files that no row names, and tell: whoever brought them here would look for them.

        Of a file that was restored they may be of the lost time: they are put with the others of it.
        """
        kept = [ref for ref in refs if not ref.startswith("tmp/")] if self._files.path(UNCLAIMED).is_dir() else []
        if kept:
            await self._files.offload(lambda: self._files.set_aside(kept, UNCLAIMED))
            self._log.info("files_unclaimed", count=len(kept), first=kept[:FEW])
        if gone := [ref for ref in refs if ref not in kept]:
            await self._files.remove_all(gone)
            self._log.info("files_removed", count=len(gone), first=gone[:FEW])

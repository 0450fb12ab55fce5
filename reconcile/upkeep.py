"""What keeps the record and the state directory in order: checkpoints, pruning, and files and item rows that no row
names.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from reconcile.collect import Collector
from reconcile.desk import INPUT_PREFIX
from reconcile.errors import StoreBroken, StoreError
from reconcile.files import Files
from reconcile.notary import Notary
from reconcile.retention import Retention
from reconcile.states import State
from reconcile.store.store import Store

#: Seconds between two rounds. 1 h: what may be lost at the end of a chain without a trace is at most so young.
ROUND_SECONDS: Final = 3600
#: Seconds for the checkpoint at the stop. 5: arbitrary, far below the stop time of a service; the next start goes on.
LAST_SECONDS: Final = 5
#: Operations that one look asks the file for. 500: arbitrary, a few ms.
SLICE: Final = 500


@dataclass(frozen=True, slots=True)
class Found:
    """What stood in the state directory before anything new came in."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]


class Upkeep:
    """Looks at the start, under the state directory's lock, and tidies in the background: old files may be many."""

    def __init__(
        self,
        *,
        store: Store,
        files: Files,
        collector: Collector,
        notary: Notary,
        retention: Retention,
        log: Any,
    ) -> None:
        self._store = store
        self._files = files
        self._collector = collector
        self._notary = notary
        self._retention = retention
        self._log = log
        #: What the last round found that no row names.
        self._unnamed: frozenset[str] = frozenset()

    async def run(self, stop: asyncio.Event) -> None:
        """A round now, since nobody knows how the last process ended, and one each hour. Raises: StoreBroken."""
        while not stop.is_set():
            await self._round(stop)
            try:
                async with asyncio.timeout(ROUND_SECONDS):
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

    async def _round(self, stop: asyncio.Event) -> None:
        try:
            await self._notary.sign()  # first: only what is signed may be pruned
            await self._retention.prune(stop)
            if not stop.is_set():
                await self._tidy_again()
        except StoreBroken:
            raise
        except (StoreError, OSError) as fault:
            self._log.warning("upkeep_failed", error=str(fault))  # the next round tries again

    def look(self) -> Found:
        """Name what is there; only before anything new comes in, else a file may be ahead of its row."""
        return Found(tuple(self._files.names("spool")), tuple(self._files.names("results")))

    async def tidy(self, found: Found) -> None:
        """Remove inputs and results that no operation names, and what earlier tries left. Raises: StoreError."""
        for ref in await self._without_row(found):
            self._files.remove(ref)
        for operation_id in found.results:
            if len(self._files.names(f"results/{operation_id}")) > 1:
                op = await self._store.get(operation_id)
                if op is not None and op.state is not State.RESULT_COLLECTING:
                    await self._collector.tidy(op)

    async def _tidy_again(self) -> None:
        """Remove what two rounds in a row found unnamed: a file stands there before the row that names it commits."""
        unnamed = await self._files.offload(self._files.leftovers)
        unnamed += await self._without_row(await self._files.offload(self.look))
        again = [ref for ref in unnamed if ref in self._unnamed]
        await self._files.remove_all(again)
        self._unnamed = frozenset(unnamed).difference(again)

    async def _without_row(self, found: Found) -> list[str]:
        """Which of the inputs and results no operation names."""
        ids = sorted({name.partition(".")[0] for name in found.inputs} | set(found.results))
        missing: set[str] = set()
        for start in range(0, len(ids), SLICE):
            missing |= await self._store.missing(ids[start : start + SLICE])
        refs = [f"results/{operation_id}" for operation_id in found.results if operation_id in missing]
        for name in found.inputs:
            operation_id, _, kind = name.partition(".")
            if operation_id in missing or (kind.startswith(INPUT_PREFIX) and not await self._is_given(name)):
                refs.append(f"spool/{name}")
        return refs

    async def _is_given(self, name: str) -> bool:
        """Whether a file of spool/ is the input that its operation was given last."""
        op = await self._store.get(name.partition(".")[0])
        return op is not None and op.input is not None and op.input.ref == f"spool/{name}"

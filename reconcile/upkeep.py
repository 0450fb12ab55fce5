"""What keeps the record and the state directory in order: checkpoints, and files and item rows that no row names."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from reconcile.collect import Collector
from reconcile.desk import INPUT_PREFIX
from reconcile.errors import StoreBroken, StoreError
from reconcile.files import Files
from reconcile.notary import Notary
from reconcile.states import State
from reconcile.store.store import Store

#: Seconds between two rounds. 1 h: what may be lost at the end of a chain without a trace is at most so young.
ROUND_SECONDS: Final = 3600
#: Seconds for the checkpoint at the stop. 5: arbitrary, far below the stop time of a service; the next start goes on.
LAST_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Found:
    """What stood in the state directory before anything new came in."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]


class Upkeep:
    """Looks at the start, under the state directory's lock, and tidies in the background: old files may be many."""

    def __init__(self, *, store: Store, files: Files, collector: Collector, notary: Notary, log: Any) -> None:
        self._store = store
        self._files = files
        self._collector = collector
        self._notary = notary
        self._log = log

    async def run(self, stop: asyncio.Event) -> None:
        """A round now, since nobody knows how the last process ended, and one each hour. Raises: StoreBroken."""
        while not stop.is_set():
            await self._round()
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

    async def _round(self) -> None:
        try:
            await self._notary.sign()
        except StoreBroken:
            raise
        except (StoreError, OSError) as fault:
            self._log.warning("upkeep_failed", error=str(fault))  # the next round tries again

    def look(self) -> Found:
        """Name what is there; only before anything new comes in, else a file may be ahead of its row."""
        return Found(tuple(self._files.names("spool")), tuple(self._files.names("results")))

    async def tidy(self, found: Found) -> None:
        """Remove inputs and results that no operation names, and what earlier tries left. Raises: StoreError."""
        for name in found.inputs:
            operation_id, _, kind = name.partition(".")
            op, ref = await self._store.get(operation_id), f"spool/{name}"
            is_given_later = kind.startswith(INPUT_PREFIX)
            if op is None or (is_given_later and (op.input is None or op.input.ref != ref)):
                self._files.remove(ref)
        for operation_id in found.results:
            op = await self._store.get(operation_id)
            if op is None:
                self._files.remove(f"results/{operation_id}")
            elif op.state is not State.RESULT_COLLECTING and len(self._files.names(f"results/{operation_id}")) > 1:
                await self._collector.tidy(op)

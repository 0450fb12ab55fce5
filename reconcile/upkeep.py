"""What keeps the state directory in order: files and item rows that a crash left behind and no row names."""

from dataclasses import dataclass

from reconcile.collect import Collector
from reconcile.desk import INPUT_PREFIX
from reconcile.files import Files
from reconcile.states import State
from reconcile.store.store import Store


@dataclass(frozen=True, slots=True)
class Found:
    """What stood in the state directory before anything new came in."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]


class Upkeep:
    """Looks at the start, under the state directory's lock, and tidies in the background: old files may be many."""

    def __init__(self, *, store: Store, files: Files, collector: Collector) -> None:
        self._store = store
        self._files = files
        self._collector = collector

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

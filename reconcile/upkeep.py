"""What keeps the state directory in order: files and item rows that a crash left behind and no row names."""

from reconcile.collect import Collector
from reconcile.files import Files
from reconcile.states import State
from reconcile.store.store import Store


class Upkeep:
    """Runs at start, under the state directory's lock, before anything new comes in."""

    def __init__(self, *, store: Store, files: Files, collector: Collector) -> None:
        self._store = store
        self._files = files
        self._collector = collector

    async def tidy(self) -> None:
        """Remove inputs and results of no operation, and what earlier tries to collect left. Raises: StoreError."""
        for name in self._files.names("spool"):
            if await self._store.get(name.removesuffix(".jsonl")) is None:
                self._files.remove(f"spool/{name}")
        for operation_id in self._files.names("results"):
            op = await self._store.get(operation_id)
            if op is None:
                self._files.remove(f"results/{operation_id}")
            elif op.state is not State.RESULT_COLLECTING:
                await self._collector.tidy(op)

"""Which files of the state directory no row names: inputs in spool/, results, and what earlier tries of them left.

Asked for in slices, each listed off the event loop. What is to be done with such a file is not decided here.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final

from reconcile.desk import INPUT_PREFIX
from reconcile.files import Files
from reconcile.model import Operation
from reconcile.store.store import Store

#: Where files go that no operation of a restored backup names: results of the lost time may not be had anywhere else.
#: As long as it stands there, none is removed.
UNCLAIMED: Final = "unclaimed"
#: Operations that the file is asked for at once. 500: arbitrary, a few ms.
AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Found:
    """What stood in the state directory at one moment: names in spool/ and in results/."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]


class Unnamed:
    """Compares files with rows."""

    def __init__(self, store: Store, files: Files) -> None:
        self._store = store
        self._files = files

    async def look(self) -> Found:
        """Name what is there; a file that is looked at while others work may be ahead of its row."""

        def names() -> Found:
            return Found(tuple(self._files.names("spool")), tuple(self._files.names("results")))

        return await self._files.offload(names)

    async def files(self, found: Found) -> AsyncIterator[list[str]]:
        """The inputs and results of no operation, and inputs that their operation was not given. Raises: StoreError."""
        inputs = {i: list(of_one) for i, of_one in groupby(sorted(found.inputs, key=_operation_of), _operation_of)}
        results = frozenset(found.results)
        for ids in _slices(sorted(inputs.keys() | results)):
            missing = await self._store.missing(ids)
            refs = [f"results/{operation_id}" for operation_id in ids if operation_id in missing & results]
            names = [name for operation_id in ids for name in inputs.get(operation_id, ())]
            refs += [f"spool/{n}" for n in names if _operation_of(n) in missing or not await self._is_given(n)]
            yield refs

    async def tries(self, found: Found, *, least: int = 1) -> AsyncIterator[tuple[Operation, list[str]]]:
        """Of each operation with so many tries at its result or more, those that are not its result.

        Raises: StoreError.
        """
        for ids in _slices(found.results):
            tries = await self._files.offload(partial(self._tries_of, ids))
            for operation_id, names in zip(ids, tries, strict=True):
                op = await self._store.get(operation_id) if len(names) >= least else None
                if op is None:
                    continue
                kept = {file.split("/")[2] for file in (op.result.files if op.result is not None else ())}
                refs = [f"results/{operation_id}/{name}" for name in names if name not in kept]
                if refs:
                    yield op, refs

    def _tries_of(self, ids: Sequence[str]) -> list[list[str]]:
        return [self._files.names(f"results/{operation_id}") for operation_id in ids]

    async def _is_given(self, name: str) -> bool:
        """Whether a file of spool/ is a start's own, or the input that its operation was given last."""
        operation_id, _, kind = name.partition(".")
        if not kind.startswith(INPUT_PREFIX):
            return True
        op = await self._store.get(operation_id)
        return op is not None and op.input is not None and op.input.ref == f"spool/{name}"


def _operation_of(name: str) -> str:
    return name.partition(".")[0]


def _slices(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), AT_ONCE):
        yield ids[start : start + AT_ONCE]

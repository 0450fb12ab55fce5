"""The stores that the suite is held against, and how each is opened. Nothing else knows what lies under a store."""

import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.conformance.owner import Owner, Place
from tests.reconcile.store.ground import opened

#: A file system in memory, where there is one: no power is cut here, and thousands of fsyncs would only take time.
MEMORY: Final = Path("/dev/shm")
#: A fresh place with each call, for as long as the block lasts.
Places = contextlib.AbstractContextManager[Callable[[], Place]]


@dataclass(frozen=True)
class SqliteFile:
    """A record in one SQLite file."""

    path: Path

    def opened(self, **terms: Any) -> contextlib.AbstractAsyncContextManager[Owner]:
        """An owner of the file; `terms` as `Place.opened` names them."""
        return opened(self.path, **terms)


@contextlib.contextmanager
def _sqlite_files() -> Iterator[Callable[[], Place]]:
    numbers = itertools.count()
    with tempfile.TemporaryDirectory(prefix="reconciled-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield lambda: SqliteFile(Path(folder) / f"{next(numbers)}.db")


DRIVERS: Final[dict[str, Callable[[], Places]]] = {"sqlite": _sqlite_files}

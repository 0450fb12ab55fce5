"""What the simulated stories share: a folder for many small worlds, and a heap that is cheap to search."""

import gc
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

#: A file system in memory, where there is one. No power is cut in these worlds, so nothing hangs on a real disk, and
#: thousands of fsyncs on one would only take time.
MEMORY = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where worlds are made; gone afterwards."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="reconciled-simulation-", dir=MEMORY))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="session", autouse=True)
def frozen_heap() -> Iterator[None]:
    """Each life ends with a garbage collection: let it pass over the modules."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()

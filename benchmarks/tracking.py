"""Jobs followed to their end by reads of each, and by list pages (P8 to P11, P13)."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks import by_lists, by_reads
from benchmarks.table import Figure


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Against clients that ask the same provider for the same and keep nothing."""
    yield from by_lists.measure(folder, quick=quick)
    yield from by_reads.measure(folder, quick=quick)

"""Counters and histograms in memory."""

from collections import Counter
from collections.abc import Mapping


class Counts:
    """Counts by name and labels."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._sums: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter."""
        self._counts[name, tuple(sorted(labels.items()))] += amount

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put a value into a histogram; its count and sum are kept."""
        key = (name, tuple(sorted(labels.items())))
        self._counts[key] += 1
        self._sums[key] += value  # type: ignore[assignment]

    def total(self, name: str, **labels: str) -> int:
        """The sum over all label sets that hold `labels`."""
        wanted = labels.items()
        return sum(n for (known, have), n in self._counts.items() if known == name and wanted <= dict(have).items())

    def all(self) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], int]:
        """Every counter."""
        return dict(self._counts)

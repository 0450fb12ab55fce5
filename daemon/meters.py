"""Counters and histograms in memory; what each means stands in reconcile/meter_families.py."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from reconcile.meter_families import METERS, Labels, Spread

_Series = tuple[str, Labels]


class Counts:
    """Counts and spreads by name and labels, since the start of the process."""

    def __init__(self) -> None:
        self._counts: Counter[_Series] = Counter()
        self._buckets: dict[_Series, list[int]] = {}
        self._sums: defaultdict[_Series, float] = defaultdict(float)
        #: Each series by its labels in the order in which somebody names them: they are sorted once.
        self._series: dict[_Series, _Series] = {}

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to a counter."""
        self._counts[self._of(name, labels)] += amount

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put a value into a histogram, into the first bucket whose upper bound it does not pass."""
        key, bounds = self._of(name, labels), METERS[name].buckets
        buckets = self._buckets.get(key)
        if buckets is None:
            buckets = self._buckets[key] = [0] * (len(bounds) + 1)
        buckets[bisect_left(bounds, value)] += 1
        self._sums[key] += value

    def _of(self, name: str, labels: Mapping[str, str]) -> _Series:
        given = (name, tuple(labels.items()))
        series = self._series.get(given)
        if series is None:
            series = self._series[given] = (name, tuple(sorted(labels.items())))
        return series

    def total(self, name: str, **labels: str) -> int:
        """The sum over all label sets that hold `labels`; of a histogram, how many values."""
        wanted = labels.items()
        sizes = [*self._counts.items(), *((series, sum(buckets)) for series, buckets in self._buckets.items())]
        return sum(n for (known, have), n in sizes if known == name and wanted <= dict(have).items())

    def all(self) -> Mapping[_Series, int]:
        """Every counter."""
        return dict(self._counts)

    def read(self) -> Iterator[tuple[str, Labels, int | Spread]]:
        """Every counter and histogram as it stands."""
        for (name, labels), n in self._counts.items():
            yield name, labels, n
        for (name, labels), buckets in self._buckets.items():
            yield name, labels, Spread(tuple(buckets), self._sums[name, labels])

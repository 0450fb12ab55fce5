"""One table for all that was measured: each figure beside what it has to reach."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure.

    `bound` is what it must reach, None where it is only reported; `is_floor` where more is better.
    """

    name: str
    what: str
    value: float
    bound: float | None = None
    unit: str = "x"
    is_floor: bool = False
    #: What it was made of: the absolute numbers of both sides.
    made_of: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the bound is kept; a figure without one is."""
        if self.bound is None:
            return True
        return self.value >= self.bound if self.is_floor else self.value <= self.bound


def show(figures: Iterable[Figure]) -> str:
    """The table, a line a figure."""
    rows = [("", "measured", "must", "", "what", "made of")]
    for figure in figures:
        sign = "" if figure.bound is None else ">= " if figure.is_floor else "<= "
        bound = "-" if figure.bound is None else f"{sign}{figure.bound:g}"
        told = f"{figure.value:.3g} {figure.unit}"
        rows.append((figure.name, told, bound, "" if figure.is_met else "MISSED", figure.what, figure.made_of))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join("  ".join((*map(str.ljust, row, widths), row[5])).rstrip() for row in rows)


def tell(text: str) -> None:
    """Progress, on stderr, so that the table alone is on stdout."""
    print(text, file=sys.stderr, flush=True)

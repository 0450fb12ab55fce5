"""How far a walk has come: for the person who waits, and for the place that a damaged page is told by."""

from collections.abc import Callable
from typing import Final

#: Steps between two tellings. 20,000: several a second where a walk is fast; arbitrary.
_STRIDE: Final = 20_000


class Whereabouts:
    """Counts rows and heads that were walked, of about `whole`; `tell(done, whole)` hears of it now and then."""

    def __init__(self, tell: Callable[[int, int], None]) -> None:
        self._tell = tell
        self._next = _STRIDE
        self.done = 0
        self.whole = 0
        #: Where the walk stands; `str` spells it, once that is asked for.
        self.near: object = "its beginning"

    def step(self, rows: int = 1) -> None:
        """So many more."""
        self.done += rows
        if self.done >= self._next:
            self._next = self.done + _STRIDE
            self._tell(self.done, max(self.whole, self.done))

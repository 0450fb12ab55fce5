"""What is handed in so that the whole daemon can run under a virtual clock: time, dice, tasks, counters.

Only protocols live here; the real ones are in daemon/runtime.py, the simulated ones in tests/simulation.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from reconcile.meter_families import Labels, Spread

T = TypeVar("T")


class Clock(Protocol):
    """Wall time for what is written down, monotonic time for what is measured."""

    def now(self) -> int:
        """Unix time in milliseconds, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""
        ...


class Dice(Protocol):
    """All randomness: jitter, ids, tokens."""

    def draw(self) -> float:
        """A number in [0, 1)."""
        ...

    def identifier(self, prefix: str) -> str:
        """`prefix` and 128 random bits in lower-case letters and digits."""
        ...

    def seed(self) -> bytes:
        """32 random bytes, out of which a key grows."""
        ...

    def trace_id(self) -> str:
        """32 hex digits, not all zero (W3C trace context)."""
        ...


class Supervisor(Protocol):
    """The one place that starts tasks and threads."""

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run `work` as a named task; an exception that leaves it is logged with its traceback."""
        ...

    async def offload(self, function: Callable[[], T]) -> T:
        """Run a short blocking function (file system calls) off the event loop."""
        ...


class Meters(Protocol):
    """Counters and histograms for operators; meter_families.METERS says what each name means."""

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add `amount` to the counter `name`."""
        ...

    def total(self, name: str, **labels: str) -> int:
        """The counter `name`, summed over all label sets that hold `labels`; since the start of the process."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put `value` into the histogram `name`."""
        ...

    def read(self) -> Iterable[tuple[str, Labels, int | Spread]]:
        """Every counter and histogram as it stands: name, labels, value."""
        ...

"""The simulated clock, dice, supervisor and meters: reconcile/seams.py under a VirtualLoop."""

import asyncio
import base64
import collections
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from reconcile.meter_families import Labels, Spread
from tests.simulation.loop import VirtualLoop

T = TypeVar("T")
Series = tuple[str, tuple[tuple[str, str], ...]]


class VirtualClock:
    """Wall time = `epoch_ms` at loop time zero, plus an offset that a test may step; monotonic time = loop time."""

    def __init__(self, loop: VirtualLoop, epoch_ms: int, wall_offset_ms: int = 0) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms
        self.wall_offset_ms = wall_offset_ms

    def now(self) -> int:
        """Unix time in milliseconds."""
        return self._epoch_ms + self.wall_offset_ms + round(self._loop.time() * 1000)

    def monotonic(self) -> float:
        """Virtual seconds; not moved by step_wall."""
        return self._loop.time()

    def step_wall(self, ms: int) -> None:
        """An operator, or NTP, sets the wall clock."""
        self.wall_offset_ms += ms


class SeededDice:
    """Every draw follows from the seed."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(seed)
        self._seed = random.Random(f"{seed}/seed").randbytes(32)

    def draw(self) -> float:
        """A number in [0, 1)."""
        return self._random.random()

    def identifier(self, prefix: str) -> str:
        """`prefix` and 26 letters and digits."""
        return prefix + base64.b32encode(self._random.randbytes(16)).decode().rstrip("=").lower()

    def seed(self) -> bytes:
        """32 bytes; the same each time, so that no other draw depends on whether it was asked for."""
        return self._seed

    def trace_id(self) -> str:
        """32 hex digits, not all zero."""
        return f"{self._random.getrandbits(128) or 1:032x}"


class DirectSupervisor:
    """Tasks on the loop, remembered while they run; blocking functions inline, answered in a later step."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.running: dict[asyncio.Task[None], str] = {}
        self.failures: list[tuple[str, BaseException]] = []

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run `work` as a task; an exception that leaves it is kept in `failures`."""
        task = self._loop.create_task(work, name=name)
        self.running[task] = name
        task.add_done_callback(self._ended)
        return task

    async def offload(self, function: Callable[[], T]) -> T:
        """Run `function` now; the caller goes on in a later step."""
        return await self._loop.deliver(function)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        name = self.running.pop(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.failures.append((name, error))


class CountingMeters:
    """Counters and observations in plain dictionaries."""

    def __init__(self) -> None:
        self.counts: collections.Counter[Series] = collections.Counter()
        self.observations: collections.defaultdict[Series, list[float]] = collections.defaultdict(list)

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add to one counter."""
        self.counts[name, tuple(sorted(labels.items()))] += amount

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Keep one value."""
        self.observations[name, tuple(sorted(labels.items()))].append(value)

    def read(self) -> list[tuple[str, Labels, int | Spread]]:
        """The counters alone: nobody scrapes a simulated daemon."""
        return [(name, labels, n) for (name, labels), n in self.counts.items()]

    def total(self, name: str, **labels: str) -> int:
        """The sum of `name` over all series that bear `labels`."""
        return sum(
            n for (kind, series), n in self.counts.items() if kind == name and labels.items() <= dict(series).items()
        )

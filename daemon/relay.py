"""Passes on what is told before its hearer is made: the rooms of a daemon are put together one after the other."""

from collections.abc import Callable


class Relay:
    """Due times for the worker, pauses for the watchman, deliveries for the outbox, steps of the clock for both."""

    wake: Callable[[int], None] | None = None
    look: Callable[[], None] | None = None
    deliver: Callable[[], None] | None = None
    steps: tuple[Callable[[], None], ...] = ()

    def __call__(self, due_at: int) -> None:
        """Something comes due."""
        if self.wake is not None:
            self.wake(due_at)

    def pause_changed(self) -> None:
        """A provider's pause was opened, grew longer or ended."""
        if self.look is not None:
            self.look()

    def delivery_waits(self) -> None:
        """The outbox has something to look at."""
        if self.deliver is not None:
            self.deliver()

    def clock_stepped(self) -> None:
        """The wall clock was set."""
        for step in self.steps:
            step()

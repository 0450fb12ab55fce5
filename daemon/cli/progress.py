"""A line that tells how far something has come, rewritten in place on a terminal and nowhere else."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

from rich.progress import BarColumn, ProgressColumn, Task, TaskProgressColumn
from rich.progress import Progress as Display
from rich.text import Text

from daemon.cli.terminal import can_move, console
from daemon.runtime import SystemClock

#: Seconds before anything is shown. Arbitrary: what is done by then needs no line.
_AFTER_SECONDS: Final = 0.2
#: Redrawn so often a second. 5: arbitrary, often enough to be seen moving.
_A_SECOND: Final = 5
#: Columns of the bar. Arbitrary, half of the least terminal's are left to the words.
_BAR: Final = 20


class _Far(ProgressColumn):
    """How much is done of how much, and how much in a second."""

    def __init__(self, spelled: Callable[[float], str], noun: str) -> None:
        super().__init__()
        self._spelled, self._noun = spelled, noun

    def render(self, task: Task) -> Text:
        """As rich asks for it."""
        rate = task.completed / task.elapsed if task.elapsed else 0.0
        far = f"{self._spelled(task.completed)} of {self._spelled(task.total or 0)}{self._noun}"
        return Text(f"{far}, {self._spelled(rate)} a second", no_wrap=True, overflow="ellipsis")


class Progress:
    """`tell` it how far; the line is gone when the block is left."""

    def __init__(
        self,
        noun: str,
        out: TextIO | None = None,
        *,
        spelled: Callable[[float], str] | None = None,
        is_shown: bool = True,
    ) -> None:
        """`spelled`: how an amount is told, where not as a number of `noun`."""
        out = out or sys.stderr
        self._tells = is_shown and can_move(out)
        self._display = Display(
            TaskProgressColumn(),
            BarColumn(_BAR),
            _Far(spelled or (lambda amount: f"{amount:,.0f}"), "" if spelled else f" {noun}"),
            console=console(out),
            refresh_per_second=_A_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._display.add_task("")
        self._clock = SystemClock()
        self._began = self._clock.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        if self._display.live.is_started:
            self._display.stop()

    def tell(self, done: int, whole: int) -> None:
        """So many of about `whole` are done."""
        if not self._tells or self._clock.monotonic() - self._began < _AFTER_SECONDS:
            return
        self._display.update(self._task, completed=done, total=max(whole, 1))
        self._display.start()

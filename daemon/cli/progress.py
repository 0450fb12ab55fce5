"""A line that tells how far something has come, rewritten in place on a terminal and nowhere else."""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

from daemon.cli.terminal import can_move
from daemon.runtime import SystemClock

#: Seconds between two lines. Arbitrary: often enough to be seen moving.
_EVERY_SECONDS: Final = 0.2
#: Back to the beginning of the line, and nothing behind that.
_CLEAR: Final = "\r\x1b[K"


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
        self._spelled = spelled or (lambda amount: f"{amount:,.0f}")
        self._noun = "" if spelled else f" {noun}"
        self._out = out
        self._clock = SystemClock()
        self._began = self._told_at = self._clock.monotonic()
        self._stands = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        if self._stands:
            self._out.write(_CLEAR)
            self._out.flush()

    def tell(self, done: int, whole: int) -> None:
        """So many of about `whole` are done."""
        now = self._clock.monotonic()
        if now - self._told_at < _EVERY_SECONDS or not self._tells:
            return
        self._told_at, self._stands = now, True
        rate, spelled = done / (now - self._began), self._spelled
        self._out.write(
            f"{_CLEAR}{done * 100 // max(whole, 1)} %  {spelled(done)} of {spelled(whole)}{self._noun},"
            f" {spelled(rate)} a second"
        )
        self._out.flush()

"""When systemd's watchdog may be told that all is well: the loop turns, and the writer gets on or has nothing to do.

The word comes from the event loop itself, so that a loop which hangs says nothing (C46); a writer that hangs on its
thread lets the loop turn, and is looked at here. Pure but for `Heart`: what the writer has come to is handed in.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from daemon.notify import Notifier
from reconcile.seams import Clock
from reconcile.store.writer import Pulse

#: Words within one watchdog time. 3: sd_watchdog_enabled(3) asks for two; one may be lost, or late on a busy machine.
WORDS: Final = 3
#: How much longer a start asks for each time, and how often, seconds. 60 and 10: arbitrary; a start that hangs is ended
#: a minute later, and five words may be lost on the way.
MORE_SECONDS: Final = 60
MORE_EVERY_SECONDS: Final = 10
#: The shortest watchdog time that is kept to, seconds. 0.1: arbitrary; a shorter one nobody means, and to keep to it
#: would cost a processor.
LEAST_SECONDS: Final = 0.1
#: As systemd spells a watchdog time. 12 digits: eleven days, more than anybody sets.
_MICROSECONDS: Final = re.compile(r"[0-9]{1,12}")


@dataclass(slots=True)
class Watchdog:
    """Whether to say the word. `patience` is systemd's own: a batch in hand for longer means that the writer hangs.

    An fsync that takes seconds is slow, not stuck (F22): nothing less than the whole time counts.
    """

    patience: float
    _seen: Pulse = field(default=Pulse(0, is_busy=False))
    _since: float | None = None

    def may_say(self, pulse: Pulse, now: float) -> bool:
        """Look at the writer at `now`, monotonic seconds."""
        if not pulse.is_busy:
            self._since = None
        elif self._since is None or pulse.ended != self._seen.ended:
            self._since = now
        self._seen = pulse
        return self._since is None or now - self._since <= self.patience


def patience_of(environ: Mapping[str, str], pid: int) -> float | None:
    """Seconds of the watchdog that systemd keeps for this process (sd_watchdog_enabled(3)); None: it keeps none."""
    spelled, meant = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID")
    is_ours = meant is None or meant == str(pid)
    usable = is_ours and _MICROSECONDS.fullmatch(spelled) is not None and int(spelled) > 0
    return max(int(spelled) / 1_000_000, LEAST_SECONDS) if usable else None


class Heart:
    """Says it, until it is stopped. Made where `patience_of` tells that somebody waits for it."""

    def __init__(self, patience: float, notifier: Notifier, clock: Clock, pulse: Callable[[], Pulse]) -> None:
        self._watchdog = Watchdog(patience)
        self._notifier = notifier
        self._clock = clock
        self._pulse = pulse

    async def beat(self, stop: asyncio.Event) -> None:
        """At once, and `WORDS` times in each watchdog time, as long as all is well."""
        while not stop.is_set():
            if self._watchdog.may_say(self._pulse(), self._clock.monotonic()):
                self._notifier.send("WATCHDOG=1")
            await _pause(self._watchdog.patience / WORDS, stop)


async def ask_for_time(notifier: Notifier, stop: asyncio.Event) -> None:
    """While a start or its recovery takes long: more time, so long as the loop turns."""
    while not stop.is_set():
        notifier.send(f"EXTEND_TIMEOUT_USEC={MORE_SECONDS * 1_000_000}")
        await _pause(MORE_EVERY_SECONDS, stop)


async def _pause(seconds: float, stop: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        pass

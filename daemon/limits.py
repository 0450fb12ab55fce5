"""The process's own limits: all the descriptors it may have, and one log line where the loop would write thousands."""

import asyncio
import gc
import resource
from typing import Any, Final

from reconcile.seams import Clock

#: Objects made since the last collection that bring the next. 50,000: with Python's 700 a tenth of the time went into
#: collecting under a flood of webhooks, and with 10,000 under two hundred reads at once, which hold as many (measured).
YOUNG_OBJECTS: Final = 50_000
#: Between two lines about the same trouble of the loop, ms. 10 s: arbitrary; without descriptors there are thousands.
QUIET_MS: Final = 10_000


def raise_file_limit() -> None:
    """Use the hard limit: each waiter and each idle stranger on the public listener holds a descriptor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def calm_garbage_collection() -> None:
    """Leave what a start has made alone, and look for garbage less often.

    What a request makes is freed by its count; only what refers to itself waits for the collector, and little does.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


class LoopErrors:
    """asyncio's exception handler: into the log like everything else, each kind at most once in `QUIET_MS`."""

    def __init__(self, log: Any, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._told: dict[str, int] = {}

    def __call__(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message, now = str(context.get("message")), self._clock.now()
        if now - self._told.get(message, -QUIET_MS) >= QUIET_MS:
            self._told[message] = now
            self._log.error("loop_error", message=message, exc_info=context.get("exception"))

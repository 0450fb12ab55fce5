"""The process's own limits: all the descriptors it may have, and one log line where the loop would write thousands."""

import asyncio
import resource
from typing import Any, Final

from reconcile.seams import Clock

#: Between two lines about the same trouble of the loop, ms. 10 s: arbitrary; without descriptors there are thousands.
QUIET_MS: Final = 10_000


def raise_file_limit() -> None:
    """Use the hard limit: each waiter and each idle stranger on the public listener holds a descriptor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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

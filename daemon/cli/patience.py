"""How long a daemon that cannot be asked is asked again."""

import asyncio
import sys
from collections.abc import Callable
from typing import Final

from daemon.local_api import Refused, Unreachable
from daemon.runtime import SystemClock
from daemon.shapes import clean

#: Seconds for which a daemon that went away is asked again. 60: a restart takes seconds, an upgrade less than a minute.
PATIENCE_SECONDS: Final = 60
#: Seconds between two such questions. Arbitrary.
AGAIN_SECONDS: Final = 0.5


def tell_away(what: str) -> None:
    """On stderr, that the daemon cannot be asked just now."""
    print(f"reconciled: {what}", file=sys.stderr, flush=True)


class Patience:
    """How long a daemon is asked again; what it was away for is told once."""

    def __init__(self, tell: Callable[[str], None] = tell_away, *, seconds: float | None = None) -> None:
        self._tell = tell
        self._seconds = PATIENCE_SECONDS if seconds is None else seconds
        self._clock = SystemClock()
        self._gone_since: float | None = None

    def is_back(self) -> None:
        """It has answered."""
        self._gone_since = None

    async def wait(self, fault: Unreachable | Refused) -> None:
        """Until it may be asked again. Raises: Refused, where asking again is no use; Unreachable, once it is over."""
        if isinstance(fault, Refused) and fault.status != 503:
            raise fault
        if self._gone_since is None:
            self._gone_since = self._clock.monotonic()
            self._tell(f"{clean(fault)} Asking again for {self._seconds} s.")
        elif self._clock.monotonic() - self._gone_since >= self._seconds:
            raise Unreachable(str(fault)) from fault
        await asyncio.sleep(AGAIN_SECONDS)

"""Following one operation: its story row by row, or just its end; a daemon that restarts meanwhile is waited for."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from daemon import words
from daemon.local_api import LocalApi, Refused, Unreachable
from daemon.runtime import SystemClock

#: Seconds of one held call while waiting; the command goes on until the end.
WAIT_SECONDS: Final = 30
#: Seconds for which a daemon that went away is asked again. 60: a restart takes seconds, an upgrade less than a minute.
PATIENCE_SECONDS: Final = 60
#: Seconds between two such questions. Arbitrary.
AGAIN_SECONDS: Final = 0.5


@asynccontextmanager
async def going_on(operation_id: str) -> AsyncIterator[None]:
    """Whoever stops following is told that the work does not stop."""
    try:
        yield
    except (asyncio.CancelledError, Unreachable):
        name = words.clean(operation_id)
        print(f"{name} goes on without you: reconciled show {name}", file=sys.stderr, flush=True)
        raise


async def story(api: LocalApi, operation_id: str, path: str, *, quiet: bool) -> dict[str, Any]:
    """Print each history row as it comes; ends at the end, or when a person is needed."""
    seen = 0
    async with going_on(operation_id):
        while True:
            # The body first, its rows after it: once nothing more will come by itself, no call is held for more.
            body = await _asked(api, path)
            is_over = body["done"] or body["attention"]
            seconds = 0 if is_over else WAIT_SECONDS
            page = await _asked(api, f"{path}/history?cursor={seen}&limit=500&wait={seconds}", seconds=seconds)
            for row in page["history"]:
                seen = row["seq"]
                if not quiet:
                    print(words.history_row(row), file=sys.stderr, flush=True)
            if is_over and page["next_cursor"] is None:
                return body


async def end(api: LocalApi, operation_id: str, path: str, *, most_seconds: float | None) -> dict[str, Any]:
    """The body at the end, when a person is needed, or when `most_seconds` are over."""
    clock = SystemClock()
    began = clock.monotonic()
    async with going_on(operation_id):
        while True:
            left = None if most_seconds is None else max(0.0, most_seconds - (clock.monotonic() - began))
            seconds = WAIT_SECONDS if left is None else min(WAIT_SECONDS, max(1, round(left)))
            body = await _asked(api, f"{path}?wait={seconds}", seconds=seconds)
            is_over = body["done"] or body["attention"]
            if is_over or (most_seconds is not None and clock.monotonic() - began >= most_seconds):
                return body


async def _asked(api: LocalApi, path: str, *, seconds: float = 0) -> dict[str, Any]:
    """One question, asked again while the daemon is away. Raises: Refused, Unreachable."""
    clock = SystemClock()
    gone_since: float | None = None
    while True:
        try:
            return await api.call("GET", path, seconds=seconds)
        except (Unreachable, Refused) as fault:
            if isinstance(fault, Refused) and fault.status != 503:
                raise
            if gone_since is None:
                gone_since = clock.monotonic()
                print(
                    f"reconciled: {words.clean(fault)} Asking again for {PATIENCE_SECONDS} s.",
                    file=sys.stderr,
                    flush=True,
                )
            elif clock.monotonic() - gone_since >= PATIENCE_SECONDS:
                raise Unreachable(str(fault)) from fault
        await asyncio.sleep(AGAIN_SECONDS)

"""What the faces of all shapes do with a connection: stream lines, hold an answer back, hang up without one."""

import asyncio
from collections.abc import Iterator
from typing import Final

from aiohttp import web

from daemon.standin.webhook_sender import Pause
from reconcile.seams import Clock

#: Bytes moved at once. Arbitrary.
CHUNK_BYTES: Final = 64 * 1024
#: What an answer that asks for patience asks for, seconds. Arbitrary.
RETRY_AFTER_SECONDS: Final = 1


def chunks(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of about `CHUNK_BYTES`."""
    waiting = bytearray()
    for line in lines:
        waiting += line
        if len(waiting) >= CHUNK_BYTES:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


def wants_retry_after(status: int) -> bool:
    """Whether an answer with this status says when to come again: a limit does, and an overload (503, 529)."""
    return status in {429, 503, 529}


async def hold_back(clock: Clock, pause: Pause, until_ms: int) -> None:
    """Return when the clock shows `until_ms`."""
    while (left_ms := until_ms - clock.now()) > 0:
        await pause(asyncio.Event(), left_ms / 1000)


def hang_up(request: web.Request) -> web.Response:
    """Close the connection with no answer on it; what is returned reaches nobody."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()

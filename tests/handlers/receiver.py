"""A receiver of callbacks on loopback: it answers as it is told, and keeps what came."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.handlers.ground import PATIENCE

#: As an answer: nothing ever comes; or the connection is dropped once all was read.
HANG, DROP = "hang", "drop"
Reply = int | str | web.StreamResponse


@dataclass(frozen=True)
class Got:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def event_id(self) -> str:
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """What it answers next, the last one for ever; and what it got."""

    replies: list[Reply] = field(default_factory=lambda: [200])
    got: list[Got] = field(default_factory=list)
    port: int = 0
    _came: asyncio.Event = field(default_factory=asyncio.Event)
    _leave: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks/"

    async def until(self, count: int) -> list[Got]:
        """What came, once it is so many."""
        async with asyncio.timeout(PATIENCE):
            while len(self.got) < count:
                self._came.clear()
                await self._came.wait()
        return self.got

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.got.append(Got(request.path_qs, dict(request.headers), await request.read()))
        self._came.set()
        reply: Any = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if reply == HANG:
            await self._leave.wait()
        if reply == DROP:
            assert request.transport is not None
            request.transport.close()
        return (
            reply
            if isinstance(reply, web.StreamResponse)
            else web.Response(status=reply if isinstance(reply, int) else 200)
        )


@asynccontextmanager
async def receiving(*replies: Reply) -> AsyncIterator[Receiver]:
    """A receiver that listens; with its answers, else 200 for ever."""
    receiver = Receiver(list(replies) or [200])
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.port = runner.addresses[0][1]
    try:
        yield receiver
    finally:
        receiver._leave.set()
        await runner.cleanup()

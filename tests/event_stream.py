"""Server-sent events as a reader takes them, by the standard's own rules and none of the product's code."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

#: Nothing in a test takes that long. Seconds.
PATIENCE = 30


@dataclass(frozen=True)
class Event:
    """One dispatched event; `id` is the last one that was given, as a reader would resume by it."""

    name: str
    data: Any
    id: str | None


@dataclass
class EventStream:
    """One open stream."""

    response: aiohttp.ClientResponse
    last_id: str | None = None
    comments: int = 0
    _lines: list[str] = field(default_factory=list)

    @property
    def status(self) -> int:
        return self.response.status

    async def next(self, seconds: float = PATIENCE) -> Event | None:
        """The next event; None once the stream has ended in peace. Raises: aiohttp.ClientError, where it was cut."""
        async with asyncio.timeout(seconds):
            while True:
                line = await self.response.content.readline()
                if not line:
                    return None
                text = line.decode("utf-8").rstrip("\n")
                if text.startswith(":"):
                    self.comments += 1
                elif text:
                    self._lines.append(text)
                elif (event := self._dispatch()) is not None:
                    return event

    async def take(self, count: int, *, seconds: float = PATIENCE) -> list[Event]:
        """So many events, none of them later than so many seconds after the one before."""
        found = []
        for _ in range(count):
            event = await self.next(seconds)
            assert event is not None, "the stream ended"
            found.append(event)
        return found

    async def rest(self) -> list[Event]:
        """All events until the stream ends in peace."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found

    def _dispatch(self) -> Event | None:
        name, data = "message", []
        for line in self._lines:
            key, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if key == "event":
                name = value
            elif key == "data":
                data.append(value)
            elif key == "id":
                self.last_id = value
        self._lines = []
        return Event(name, json.loads("\n".join(data)), self.last_id) if data else None


@asynccontextmanager
async def listening(
    session: aiohttp.ClientSession, url: str, token: str, last_id: str | int | None = None
) -> AsyncIterator[EventStream]:
    """A stream, opened as a reader does that was there before, or was not."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    if last_id is not None:
        headers["Last-Event-ID"] = str(last_id)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE)
    async with session.get(url, headers=headers, timeout=timeout) as response:
        yield EventStream(response, last_id=None if last_id is None else str(last_id))

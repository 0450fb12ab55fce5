"""Server-sent events: what is committed, as it is committed; a reader that was cut off goes on where it was.

A stream listens first and reads the file then, so that between the two there is neither a hole nor anything twice.
From then on it asks the database nothing but, once for all readers, which candidates of a lost create still stand.
What waits for a reader is bounded: one that falls behind is let go, and resumes by its `Last-Event-ID`.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final

from aiohttp import web

from handlers.api import frames
from handlers.api.deps import LocalDeps
from handlers.api.past import Past
from handlers.api.query import found, number_of, take_only
from reconcile.changes import Stream
from reconcile.errors import RequestInvalid, StoreError

#: Seconds of silence after which a comment is sent (interface): proxies cut what is silent, usually after 60.
KEEP_ALIVE_SECONDS: Final = 15
#: Seconds in which a reader must take what is sent. 30: arbitrary, twice the comment; one that takes nothing is gone.
SEND_SECONDS: Final = 30
_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would hold events back until a buffer is full
    "X-Content-Type-Options": "nosniff",
}


class Streams:
    """Routes under /events."""

    def __init__(self, deps: LocalDeps) -> None:
        self._deps = deps
        self._frames = frames.Frames(deps)
        self._past = Past(deps)

    async def all(self, request: web.Request) -> web.StreamResponse:
        """GET: what happens to any operation, after `Last-Event-ID` or from now on."""
        take_only(request)
        after = _last_event_id(request)
        newest = await self._deps.store.consumers.last_position()
        return await self._send(request, self._of_all(after, newest))

    async def one(self, request: web.Request) -> web.StreamResponse:
        """GET: one operation's history after `Last-Event-ID` or from its beginning, and on to its end."""
        take_only(request)
        after = _last_event_id(request)
        op = await found(self._deps.store, request.match_info["operation_id"])
        newest = await self._deps.store.consumers.last_position()
        if op.is_terminal and after is not None and after <= newest:
            rest = await self._deps.store.consumers.history_of(op.operation_id, after=after, limit=1)
            if not rest:  # an answer of 200 that ends would be asked for again, for ever
                return web.Response(status=204, headers={"Cache-Control": "no-store"})
        return await self._send(request, self._of_one(op.operation_id, after, newest))

    async def _send(self, request: web.Request, pieces: AsyncGenerator[bytes, None]) -> web.StreamResponse:
        if request.method == "HEAD":
            return web.Response(headers=_HEADERS)
        answer = web.StreamResponse(headers=_HEADERS)
        try:
            async with aclosing(pieces):
                await answer.prepare(request)
                await answer.write(frames.COMMENT)  # the head goes out with the first bytes
                async for piece in pieces:
                    async with asyncio.timeout(SEND_SECONDS):
                        await answer.write(piece)
            await answer.write_eof()
        except (ConnectionError, TimeoutError):
            _cut(request)
        except StoreError as fault:
            # The head is out, and nothing but a cut can tell that this is not the end.
            self._deps.log.warning("request_not_read", path=request.path, error=str(fault))
            _cut(request)
        except Exception:  # the rim: an answer that has begun can be turned into no other
            self._deps.log.exception("request_failed", path=request.path)
            _cut(request)
        return answer

    # ---- what is sent ----

    async def _of_all(self, after: int | None, newest: int) -> AsyncGenerator[bytes, None]:
        consumers = self._deps.store.consumers
        if after is not None and after > newest:
            yield frames.other_record(newest, newest)
            after = newest
        while True:
            with self._deps.changes.stream() as live:
                newest = await consumers.last_position()
                cursor = newest if after is None else after
                if after is None:
                    yield frames.place(cursor)
                while cursor < newest:
                    page = await self._past.of_all(cursor, newest, KEEP_ALIVE_SECONDS)
                    if page is None:
                        yield frames.COMMENT
                        continue
                    last = page.positions[-1] if page.positions else newest
                    if not page.is_full:
                        last = max(last, newest)
                    if last - cursor > len(page.positions):
                        yield _gap(cursor, page.positions, last)
                    for piece in page.pieces:
                        yield piece
                    cursor = last
                if live.is_lost:  # it fell behind while it read the file: it goes on reading there
                    after = cursor
                    continue
                async with aclosing(self._live(live, cursor)) as pieces:
                    async for piece in pieces:
                        yield piece
                return

    async def _of_one(self, operation_id: str, after: int | None, newest: int) -> AsyncGenerator[bytes, None]:
        cursor = after or 0
        if cursor > newest:
            yield frames.other_record(newest, None)
            cursor = 0
        while True:
            with self._deps.changes.stream(operation_id) as live:
                before = await self._deps.store.get(operation_id)
                has_more = True
                while has_more:
                    page = await self._past.of_one(operation_id, cursor, KEEP_ALIVE_SECONDS)
                    if page is None:
                        yield frames.COMMENT
                        continue
                    for piece in page.pieces:
                        yield piece
                    cursor, has_more = page.positions[-1] if page.positions else cursor, page.is_full
                if live.is_lost:
                    continue
                op = await self._deps.store.get(operation_id)
                if op is None or before is None:  # pruned meanwhile
                    return
                yield await self._frames.operation(op)
                if not before.is_terminal:
                    async with aclosing(self._live(live, cursor, to_the_end=True)) as pieces:
                        async for piece in pieces:
                            yield piece
                return

    async def _live(self, live: Stream, cursor: int, *, to_the_end: bool = False) -> AsyncGenerator[bytes, None]:
        """What is told from now on, until the daemon stops, the reader is too slow or, where asked, the end."""
        while not (live.is_lost or live.is_closed):
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    batches = await live.next()
            except TimeoutError:
                yield frames.COMMENT
                continue
            for batch in batches:
                for piece in await self._frames.of(batch, cursor):
                    yield piece
                if to_the_end and batch.is_end:
                    return


def _gap(cursor: int, found: Sequence[int], last: int) -> bytes:
    """What of the positions after the cursor, up to the last, was not found."""
    held = set(found)
    first = next(position for position in range(cursor + 1, last + 1) if position not in held)
    end = next(position for position in range(last, cursor, -1) if position not in held)
    told = found[0] - 1 if found else last
    return frames.pruned(first, end, last - cursor - len(found), told)


def _last_event_id(request: web.Request) -> int | None:
    """The position after which a reader goes on; None where it has none yet. Raises: RequestInvalid."""
    values = request.headers.getall("Last-Event-ID", [])
    if not any(values):
        return None
    position = number_of(values[0]) if len(values) == 1 else None
    if position is None:
        raise RequestInvalid("/Last-Event-ID", "one header with a history position, such as 1042", status=400)
    return position


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()

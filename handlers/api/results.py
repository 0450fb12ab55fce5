"""Results: items by page or by id, and the collected bytes as they are."""

import os
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any, BinaryIO, Final

from aiohttp import web

from handlers import bodies, refusals
from handlers.answer import answer
from handlers.api.deps import LocalDeps
from handlers.api.query import cursor_for, found, id_of_cursor, limit_of, take_only, text_of
from handlers.api.ranges import NotSatisfiable, Stretch, asked_for
from handlers.problem import Refused
from reconcile.errors import RequestInvalid, Unreadable
from reconcile.model import ResultInfo
from reconcile.quoted import quoted
from reconcile.read_json import read_json
from reconcile.states import ENDED_REMOTELY
from reconcile.store.items import OUTCOMES

#: Bytes of a result that are read, and sent, at once. 256 KiB: arbitrary; a thread's turn costs little beside it.
PIECE: Final = 262_144
_HEADERS: Final = {
    "Content-Type": "application/octet-stream",
    "X-Content-Type-Options": "nosniff",
    "Accept-Ranges": "bytes",
}


class Results:
    """Routes under an operation's /items and /result."""

    def __init__(self, deps: LocalDeps) -> None:
        self._deps = deps

    async def items(self, request: web.Request) -> web.Response:
        """GET: items in the order of their ids."""
        take_only(request, "outcome", "limit", "cursor")
        op = await found(self._deps.store, request.match_info["operation_id"])
        limit = limit_of(request)
        outcome = text_of(request, "outcome")
        if outcome is not None and outcome not in OUTCOMES:
            raise RequestInvalid("/outcome", f"must be one of {', '.join(sorted(OUTCOMES))}", status=400)
        after = id_of_cursor(request)
        if op.collect_attempt == 0 and outcome == bodies.absent_outcome(op):
            outcome = None  # no result names any item: each submitted id took the end's own word
        views = await self._deps.store.items(op, after=after, limit=limit + 1, outcome=outcome)
        page = views[:limit]
        cursor = cursor_for(page[-1].item_id) if len(views) > limit else None
        return answer({"items": [bodies.item(view, op) for view in page], "next_cursor": cursor})

    async def item(self, request: web.Request) -> web.Response:
        """GET: one item with every line that bears its id."""
        take_only(request)
        op = await found(self._deps.store, request.match_info["operation_id"])
        view = await self._deps.store.item(op, request.match_info["item_id"])
        if view is None:
            item_id = quoted(request.match_info["item_id"])
            raise Refused(refusals.NO_ITEM, item_id=item_id, operation_id=op.operation_id)
        lines = []
        if op.result is not None:
            places = await self._deps.store.places(op, view.item_id)
            files, names = self._deps.files, op.result.files
            reads = [partial(files.read, names[at.file], at.start, at.length) for at in places]
            lines = [_line(await files.offload(read)) for read in reads]
        return answer({**bodies.item(view, op), "lines": lines})

    async def result(self, request: web.Request) -> web.StreamResponse:
        """GET: the collected bytes, all files that are the result in order, or the one range that is asked for."""
        take_only(request)
        op = await found(self._deps.store, request.match_info["operation_id"])
        if op.result is None:
            is_over = op.is_terminal or op.state in ENDED_REMOTELY
            why = refusals.NO_RESULT if is_over else refusals.NO_RESULT_YET
            raise Refused(why, operation_id=op.operation_id)
        result = op.result
        try:
            stretch = _stretch(request, result)
        except NotSatisfiable as fault:
            beyond = {"Content-Range": f"bytes */{result.bytes}"}
            raise Refused(refusals.NO_SUCH_RANGE, headers=beyond, bytes=result.bytes) from fault
        with ExitStack() as opened:
            # All of them before the head is sent: until then a fault can still be told.
            files = await self._deps.files.offload(lambda: self._opened(opened, result.served))
            return await self._send(request, files, stretch, result)

    def _opened(self, opened: ExitStack, names: Iterable[str]) -> list[BinaryIO]:
        return [opened.enter_context(self._deps.files.open(name)) for name in names]

    async def _send(
        self, request: web.Request, files: Iterable[BinaryIO], stretch: Stretch | None, result: ResultInfo
    ) -> web.StreamResponse:
        """The stretch of the files, read off the loop; None: all of them."""
        answer = web.StreamResponse(headers={**_HEADERS, "ETag": _tag(result)})
        start, left = (0, result.bytes) if stretch is None else (stretch.start, stretch.length)
        answer.content_length = left
        if stretch is not None:
            answer.set_status(206)
            answer.headers["Content-Range"] = f"bytes {start}-{start + left - 1}/{result.bytes}"
        await answer.prepare(request)
        if request.method == "HEAD":
            return answer
        for file in files:
            if not left:
                break
            start = await self._deps.files.offload(partial(_skip, file, start))
            while left and (piece := await self._deps.files.offload(partial(file.read, min(PIECE, left)))):
                await answer.write(piece)
                left -= len(piece)
        if left and request.transport is not None:
            request.transport.abort()  # a file is shorter than it was: nothing but a cut can tell that this is not all
            return answer
        await answer.write_eof()
        return answer


def _stretch(request: web.Request, result: ResultInfo) -> Stretch | None:
    """What a GET asks for; a HEAD is told of the whole (RFC 9110). Raises: NotSatisfiable."""
    if request.method != "GET":
        return None
    ranges, if_range = (request.headers.getall(name, []) for name in ("Range", "If-Range"))
    return asked_for(ranges, if_range, size=result.bytes, tag=_tag(result))


def _tag(result: ResultInfo) -> str:
    """The same tag is the same bytes."""
    return f'"{result.sha256}"'


def _skip(file: BinaryIO, start: int) -> int:
    """Pass over the bytes before the first wanted one; how many of them lie in the files after this one."""
    size = os.fstat(file.fileno()).st_size
    file.seek(min(start, size))
    return max(0, start - size)


def _line(data: bytes) -> Any:
    """A result line as JSON; one that is not is shown as text."""
    try:
        return read_json(data)
    except Unreadable:
        return data.decode("utf-8", "replace")

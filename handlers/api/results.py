"""Results: items by page or by id, and the collected bytes as they are."""

import asyncio
from contextlib import ExitStack
from typing import Any, Final

from aiohttp import web

from handlers import bodies, refusals
from handlers.api.deps import LocalDeps
from handlers.api.query import count_of, cursor_for, found, id_of_cursor, take_only, text_of
from handlers.problem import Refused
from reconcile.errors import RequestInvalid, Unreadable
from reconcile.files import CHUNK
from reconcile.quoted import quoted
from reconcile.read_json import read_json
from reconcile.states import ENDED_REMOTELY
from reconcile.store.items import OUTCOMES

MAX_LIMIT: Final = 500


class Results:
    """Routes under an operation's /items and /result."""

    def __init__(self, deps: LocalDeps) -> None:
        self._deps = deps

    async def items(self, request: web.Request) -> web.Response:
        """GET: items in the order of their ids."""
        take_only(request, "outcome", "limit", "cursor")
        op = await found(self._deps.store, request.match_info["operation_id"])
        limit = count_of(request, "limit", 50, MAX_LIMIT, least=1)
        outcome = text_of(request, "outcome")
        if outcome is not None and outcome not in OUTCOMES:
            raise RequestInvalid("/outcome", f"must be one of {', '.join(sorted(OUTCOMES))}", status=400)
        after = id_of_cursor(request)
        if op.collect_attempt == 0 and outcome == bodies.absent_outcome(op):
            outcome = None  # no result names any item: each submitted id took the end's own word
        views = await self._deps.store.items(op, after=after, limit=limit + 1, outcome=outcome)
        page = views[:limit]
        cursor = cursor_for(page[-1].item_id) if len(views) > limit else None
        return web.json_response({"items": [bodies.item(view, op) for view in page], "next_cursor": cursor})

    async def item(self, request: web.Request) -> web.Response:
        """GET: one item with every line that bears its id."""
        op = await found(self._deps.store, request.match_info["operation_id"])
        view = await self._deps.store.item(op, request.match_info["item_id"])
        if view is None:
            item_id = quoted(request.match_info["item_id"])
            raise Refused(refusals.NO_ITEM, item_id=item_id, operation_id=op.operation_id)
        lines = []
        if op.result is not None:
            places = await self._deps.store.places(op, view.item_id)
            lines = [_line(self._deps.files.read(op.result.files[at.file], at.start, at.length)) for at in places]
        return web.json_response({**bodies.item(view, op), "lines": lines})

    async def result(self, request: web.Request) -> web.StreamResponse:
        """GET: the collected bytes, all files in order."""
        op = await found(self._deps.store, request.match_info["operation_id"])
        if op.result is None:
            is_over = op.is_terminal or op.state in ENDED_REMOTELY
            why = refusals.NO_RESULT if is_over else refusals.NO_RESULT_YET
            raise Refused(why, operation_id=op.operation_id)
        answer = web.StreamResponse(
            headers={"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff"}
        )
        answer.content_length = op.result.bytes
        with ExitStack() as opened:
            # All of them before the head is sent: until then a fault can still be told.
            files = [opened.enter_context(self._deps.files.open(name)) for name in op.result.files]
            await answer.prepare(request)
            for file in files:
                while chunk := file.read(CHUNK):
                    await answer.write(chunk)
                    await asyncio.sleep(0)  # one large result must not hold up everyone else
            await answer.write_eof()
        return answer


def _line(data: bytes) -> Any:
    """A result line as JSON; one that is not is shown as text."""
    try:
        return read_json(data)
    except Unreadable:
        return data.decode("utf-8", "replace")

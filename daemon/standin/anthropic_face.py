"""The stand-in as an Anthropic server: the Message Batches calls over HTTP, beside those of the other shape.

Translates and decides nothing: what a call means is in anthropic_calls.py, what it looks like in anthropic_bodies.py.
Any key that is not empty is a good one.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import hdrs, web

from daemon.standin.account import AnswerLost
from daemon.standin.anthropic_bodies import Body, MessagesError
from daemon.standin.anthropic_calls import DEFAULT_PAGE
from daemon.standin.webhook_sender import Pause, pause
from daemon.standin.wire import CHUNK_BYTES, RETRY_AFTER_SECONDS, chunks, hang_up, hold_back, wants_retry_after
from daemon.standin.world import World
from reconcile.seams import Clock

#: Bytes of one create body: the provider's documented limit.
MAX_BODY_BYTES: Final = 256 * 1000 * 1000
#: The versions of the API that the provider's documents name.
VERSIONS: Final = ("2026-10-21", "2023-06-01", "2023-01-01")
REQUEST_ID: Final = web.RequestKey("request_id", str)
REQUEST_ID_HEADER: Final = "request-id"
PATH: Final = "/v1/messages/batches"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def add_message_batches(
    app: web.Application,
    world: World,
    clock: Clock,
    *,
    pause: Pause = pause,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> None:
    """Let a server answer the Message Batches calls of `world` too."""
    face = _Face(world, clock, pause, max_body_bytes)
    routes = (
        ("POST", PATH, face.create),
        ("GET", PATH, face.list_page),
        ("GET", f"{PATH}/{{job_id}}", face.read),
        ("POST", f"{PATH}/{{job_id}}/cancel", face.cancel),
        ("GET", f"{PATH}/{{job_id}}/results", face.results),
    )
    for method, path, handler in routes:
        app.router.add_route(method, path, _answering(handler, world))


def _answering(handler: Handler, world: World) -> Handler:
    """A handler with every refusal in the provider's shape, key and version asked for first, the request named."""

    async def answer(request: web.Request) -> web.StreamResponse:
        request_id = request[REQUEST_ID] = world.ids("req_")
        try:
            _check_headers(request)
            response = await handler(request)
        except MessagesError as error:
            response = web.json_response(error.body(request_id), status=error.status)
            if wants_retry_after(error.status):
                response.headers[hdrs.RETRY_AFTER] = str(RETRY_AFTER_SECONDS)
        except AnswerLost:
            response = hang_up(request)
        if not response.prepared:
            response.headers[REQUEST_ID_HEADER] = request_id
        return response

    return answer


def _check_headers(request: web.Request) -> None:
    """Raises: MessagesError 401 without a key, 400 without a version that exists."""
    scheme, _, token = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    has_token = scheme.lower() == "bearer" and token.strip()
    if not has_token and not request.headers.get("x-api-key", "").strip():
        raise MessagesError(401, "x-api-key header is required")
    version = request.headers.get("anthropic-version")
    if version is None:
        raise MessagesError(400, "anthropic-version: header is required")
    if version not in VERSIONS:
        raise MessagesError(400, f"anthropic-version: this server knows {', '.join(VERSIONS)}")


class _Face:
    """The handlers of one world's Message Batches calls."""

    def __init__(self, world: World, clock: Clock, pause: Pause, max_body_bytes: int) -> None:
        self._batches, self._scenario_of = world.message_batches, world.scenario_of
        self._clock, self._pause, self._max_body_bytes = clock, pause, max_body_bytes

    async def create(self, request: web.Request) -> web.Response:
        """POST /v1/messages/batches"""
        try:
            asked = json.loads(await self._read(request))
        except (ValueError, RecursionError) as error:
            raise MessagesError(400, "The request body is not valid JSON.") from error
        began_ms = self._clock.now()
        body = self._batches.create(asked, began_ms, _origin(request))
        scenario = self._scenario_of(str(body["id"]))
        await hold_back(self._clock, self._pause, began_ms + scenario.create_answer_after_ms)
        return _json(body)

    async def _read(self, request: web.Request) -> bytes:
        # Not request.read(): its cap is one for the whole server, and this shape carries its items in the body.
        found = bytearray()
        async for chunk in request.content.iter_chunked(CHUNK_BYTES):
            found += chunk
            if len(found) > self._max_body_bytes:
                raise MessagesError(413, "Request exceeds the maximum size")
        return bytes(found)

    async def list_page(self, request: web.Request) -> web.Response:
        """GET /v1/messages/batches"""
        asked = request.query.get("limit", str(DEFAULT_PAGE))
        if not (asked.isascii() and asked.isdecimal() and len(asked) < 9):
            raise MessagesError(400, "limit: Input should be a valid integer")
        body = self._batches.list_page(
            int(asked),
            self._clock.now(),
            after_id=request.query.get("after_id"),
            before_id=request.query.get("before_id"),
            origin=_origin(request),
        )
        return _json(body)

    async def read(self, request: web.Request) -> web.Response:
        """GET /v1/messages/batches/{message_batch_id}"""
        return _json(self._batches.read(request.match_info["job_id"], self._clock.now(), _origin(request)))

    async def cancel(self, request: web.Request) -> web.Response:
        """POST /v1/messages/batches/{message_batch_id}/cancel"""
        return _json(self._batches.cancel(request.match_info["job_id"], self._clock.now(), _origin(request)))

    async def results(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/messages/batches/{message_batch_id}/results"""
        lines = self._batches.results(request.match_info["job_id"], self._clock.now())
        response = web.StreamResponse(
            headers={hdrs.CONTENT_TYPE: "application/x-jsonl", REQUEST_ID_HEADER: request[REQUEST_ID]}
        )
        await response.prepare(request)
        for chunk in chunks(lines):
            await response.write(chunk)
        await response.write_eof()
        return response


def _origin(request: web.Request) -> str:
    """This server's address as its caller knows it."""
    return f"{request.scheme}://{request.host}"


def _json(body: Body) -> web.Response:
    return web.json_response(body)

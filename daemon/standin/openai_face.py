"""The stand-in as an OpenAI server: the Files and Batch calls over HTTP, and the sender of its webhooks.

Translates and decides nothing: what a call means is in world.py, what it looks like in openai_bodies.py. Any key that
is not empty is a good one.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import aiohttp
from aiohttp import hdrs, web
from structlog.typing import FilteringBoundLogger

from daemon.standin.account import AnswerLost
from daemon.standin.openai_bodies import ApiError, Body, unauthorized
from daemon.standin.webhook_sender import Pause, WebhookSender, pause
from daemon.standin.wire import CHUNK_BYTES, RETRY_AFTER_SECONDS, chunks, hang_up, hold_back, wants_retry_after
from daemon.standin.world import DEFAULT_PAGE, World
from reconcile.seams import Clock, Supervisor

#: Bytes in one uploaded file: the provider's documented limit for a batch's input.
MAX_UPLOAD_BYTES: Final = 200 * 1000 * 1000
#: Bytes in a form field that is not the file. Arbitrary.
MAX_FIELD_BYTES: Final = 4096
REQUEST_ID: Final = "x-request-id"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(
    world: World,
    clock: Clock,
    supervisor: Supervisor,
    *,
    webhook_url: str | None,
    webhook_secret: str | None,
    session_factory: Callable[[], aiohttp.ClientSession],
    log: FilteringBoundLogger,
    pause: Pause = pause,
    max_upload_bytes: int = MAX_UPLOAD_BYTES,
) -> web.Application:
    """The server of one world's OpenAI calls. Webhooks are sent while it runs, if there is a URL and a secret for them.

    Raises:
        SecretInvalid: the secret is not one.
    """
    sender = None
    if webhook_url is not None and webhook_secret is not None:
        sender = WebhookSender(world, clock, supervisor, url=webhook_url, secret=webhook_secret, log=log, pause=pause)
    face = _Face(world, clock, sender, pause, max_upload_bytes)

    async def sending(_: web.Application) -> AsyncIterator[None]:
        if sender is None:
            yield
            return
        async with session_factory() as session:
            task = supervisor.start("standin_webhooks", sender.run(session))
            yield
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    app = web.Application(middlewares=[_answer_wrong_paths])
    app.cleanup_ctx.append(sending)
    routes = (
        ("POST", "/v1/files", face.upload),
        ("GET", "/v1/files/{file_id}", face.file),
        ("GET", "/v1/files/{file_id}/content", face.content),
        ("POST", "/v1/batches", face.create),
        ("GET", "/v1/batches", face.list_page),
        ("GET", "/v1/batches/{job_id}", face.read),
        ("POST", "/v1/batches/{job_id}/cancel", face.cancel),
    )
    for method, path, handler in routes:
        app.router.add_route(method, path, _answering(handler, world))
    return app


@web.middleware
async def _answer_wrong_paths(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Not the provider's error object: this speaks of the path, not of a job, and a client must see the difference."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        page = "<html><body>404 page not found</body></html>"
        return web.Response(text=page, content_type="text/html", status=404)


def _answering(handler: Handler, world: World) -> Handler:
    """A handler with every refusal in the provider's shape, a key asked for before anything else, the request named."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
            if scheme.lower() != "bearer" or not key.strip():
                raise unauthorized()
            response = await handler(request)
        except ApiError as error:
            response = web.json_response(error.body(), status=error.status)
            if wants_retry_after(error.status):
                response.headers[hdrs.RETRY_AFTER] = str(RETRY_AFTER_SECONDS)
        except AnswerLost:
            response = hang_up(request)
        except web.HTTPRequestEntityTooLarge:
            response = web.json_response(ApiError(413, "The request body is too large.").body(), status=413)
        if not response.prepared:
            response.headers[REQUEST_ID] = world.ids("req_")
        return response

    return answer


class _Face:
    """The handlers of one world's calls."""

    def __init__(
        self, world: World, clock: Clock, sender: WebhookSender | None, pause: Pause, max_upload_bytes: int
    ) -> None:
        self._world, self._clock, self._sender, self._pause = world, clock, sender, pause
        self._max_upload_bytes = max_upload_bytes

    def _poke(self) -> None:
        if self._sender is not None:
            self._sender.poke()

    async def upload(self, request: web.Request) -> web.Response:
        """POST /v1/files"""
        purpose, filename, data = await self._read_form(request)
        if data is None:
            raise ApiError(400, "Missing required parameter: 'file'.", param="file", code="missing_required_parameter")
        if purpose is None:
            text = "Missing required parameter: 'purpose'."
            raise ApiError(400, text, param="purpose", code="missing_required_parameter")
        return _json(self._world.upload(data, purpose, self._clock.now(), filename=filename))

    async def _read_form(self, request: web.Request) -> tuple[str | None, str, bytes | None]:
        """The purpose, the file's name and its bytes; the parts may come in any order, others are passed over."""
        if request.content_type != "multipart/form-data":
            raise ApiError(400, "The request body is not multipart/form-data.")
        purpose: str | None = None
        filename, data = "", None
        try:
            async for part in await request.multipart():
                if not isinstance(part, aiohttp.BodyPartReader):
                    raise ApiError(400, "The form is nested.")
                if part.name == "file":
                    filename, data = part.filename or "", await _read_part(part, self._max_upload_bytes)
                else:
                    value = await _read_part(part, MAX_FIELD_BYTES)
                    purpose = value.decode("utf-8", "replace") if part.name == "purpose" else purpose
        except ValueError as error:  # what aiohttp makes of a broken form
            raise ApiError(400, "The form cannot be read.") from error
        return purpose, filename, data

    async def file(self, request: web.Request) -> web.Response:
        """GET /v1/files/{file_id}"""
        return _json(self._world.file(request.match_info["file_id"], self._clock.now()))

    async def content(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/files/{file_id}/content"""
        content = self._world.content(request.match_info["file_id"], self._clock.now())
        headers = {hdrs.CONTENT_TYPE: "application/octet-stream", REQUEST_ID: self._world.ids("req_")}
        response = web.StreamResponse(headers=headers)
        response.content_length = content.size
        await response.prepare(request)
        for chunk in chunks(content.lines()):
            await response.write(chunk)
        await response.write_eof()
        return response

    async def create(self, request: web.Request) -> web.Response:
        """POST /v1/batches"""
        try:
            asked = json.loads(await request.read())
        except (ValueError, RecursionError) as error:
            raise ApiError(400, "We could not parse the JSON body of your request.") from error
        began_ms = self._clock.now()
        try:
            body = self._world.create(asked, began_ms)
        finally:
            self._poke()
        scenario = self._world.scenario_of(str(body["id"]))
        await hold_back(self._clock, self._pause, began_ms + scenario.create_answer_after_ms)
        return _json(body)

    async def read(self, request: web.Request) -> web.Response:
        """GET /v1/batches/{job_id}"""
        return _json(self._world.read(request.match_info["job_id"], self._clock.now()))

    async def list_page(self, request: web.Request) -> web.Response:
        """GET /v1/batches"""
        asked = request.query.get("limit", str(DEFAULT_PAGE))
        if not (asked.isascii() and asked.isdecimal() and len(asked) < 9):
            raise ApiError(400, "Invalid type for 'limit': expected an integer.", param="limit", code="invalid_type")
        return _json(self._world.list_page(int(asked), request.query.get("after"), self._clock.now()))

    async def cancel(self, request: web.Request) -> web.Response:
        """POST /v1/batches/{job_id}/cancel"""
        body = self._world.cancel(request.match_info["job_id"], self._clock.now())
        self._poke()
        return _json(body)


def _json(body: Body) -> web.Response:
    return web.json_response(body)


async def _read_part(part: aiohttp.BodyPartReader, max_bytes: int) -> bytes:
    found = bytearray()
    while chunk := await part.read_chunk(CHUNK_BYTES):
        found += chunk
        if len(found) > max_bytes:
            raise ApiError(
                413, f"The {part.name} is too large: at most {max_bytes} bytes are allowed.", param=part.name
            )
    return bytes(found)

"""The providers' servers: a face for declared accounts, one that watches and spoils every answer, a sender of webhooks.

The watch notes what arrived and what was truly answered before anything is spoiled. Mischief keeps to what a real
provider may do to itself: a create is only refused (4xx) where nothing was made of it.
"""

import asyncio
import contextlib
import contextvars
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from aiohttp import web

from reconcile.seams import Clock
from tests.simulation.histories.accounts import DeclaredAccount, Event, Refused, signed
from tests.simulation.histories.scripts import Draws

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: The trace id of the request that is being answered; accounts that cannot be told it otherwise read it here.
TRACE: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="")
CREATE_PATHS: Final = frozenset({"/v1/jobs", "/v1/batches", "/v1/messages/batches"})
HTML: Final = "<html><body><h1>502 Bad Gateway</h1></body></html>"


@dataclass(slots=True)
class Arrival:
    """One request that reached a provider. `status`: as it was truly answered; None: never."""

    host: str
    at_ms: int
    method: str
    path: str
    trace_id: str
    is_authenticated: bool
    body: bytes = b""
    token: str | None = None
    status: int | None = None
    #: What was answered in its place; empty: nothing, the true answer left.
    mischief: str = ""
    wait_seconds: int = 0

    @property
    def is_create(self) -> bool:
        """Whether it would make a job."""
        return self.method == "POST" and self.path in CREATE_PATHS


class _Again:
    """A body that was read, for a handler that reads it as a stream."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        """In one piece."""
        yield self._body

    async def read(self, _: int = -1) -> bytes:
        """All of it, once."""
        body, self._body = self._body, b""
        return body

    async def readany(self) -> bytes:
        """The same."""
        return await self.read()

    def is_eof(self) -> bool:
        """It was read to its end."""
        return True


class Watch:
    """What one provider's server saw, and what it did to its answers."""

    def __init__(self, host: str, authorization: tuple[str, str], dice: Draws) -> None:
        self.host = host
        self.arrivals: list[Arrival] = []
        #: How often, of 1, an answer is spoiled just now.
        self.badness: Callable[[], float] = lambda: 0.0
        #: All of it is down just now.
        self.is_down: Callable[[], bool] = lambda: False
        #: Told of each thing that was done, for the ledger.
        self.on_mischief: Callable[[str, str], None] = lambda _name, _trace: None
        self._authorization = authorization
        self._dice = dice

    def over(self, app: web.Application, now: Callable[[], int]) -> web.Application:
        """The same server, watched."""

        @web.middleware
        async def watching(request: web.Request, handler: Handler) -> web.StreamResponse:
            trace = request.headers.get("traceparent", "").split("-")
            name, value = self._authorization
            arrival = Arrival(
                self.host,
                now(),
                request.method,
                request.path,
                trace[1] if len(trace) == 4 else "",
                request.headers.get(name) == value,
            )
            self.arrivals.append(arrival)
            TRACE.set(arrival.trace_id)
            if arrival.is_create:
                arrival.body = await request.read()
                request._payload = _Again(arrival.body)  # type: ignore[assignment]
                arrival.token = request.headers.get("Idempotency-Key")
            return await self._answered(request, handler, arrival)

        app.middlewares.insert(0, watching)
        return app

    async def _answered(self, request: web.Request, handler: Handler, arrival: Arrival) -> web.StreamResponse:
        if self.is_down():
            return self._instead(arrival, "down", web.Response(status=503, text="down for maintenance"))
        is_bad = self._dice.chance(self.badness())
        if is_bad and self._dice.chance(0.5):
            name = self._dice.pick(BEFORE_CREATE if arrival.is_create else BEFORE)
            return self._instead(arrival, name, _before(name, self._dice))
        response = await handler(request)
        arrival.status = response.status
        if is_bad and not response.prepared:
            name = self._dice.pick(AFTER)
            return self._instead(arrival, name, _after(name, response))
        return response

    def _instead(self, arrival: Arrival, name: str, response: web.StreamResponse) -> web.StreamResponse:
        arrival.mischief = name
        if name.endswith("_wait"):
            arrival.wait_seconds = int(response.headers["Retry-After"])
        if arrival.status is None:
            arrival.status = response.status
        self.on_mischief(name, arrival.trace_id)
        return response


#: What is answered without anything being done.
BEFORE_CREATE: Final = ("500", "503", "503_wait", "429", "429_wait", "429_date", "429_absurd", "401", "404_page", "302")
BEFORE: Final = (*BEFORE_CREATE, "404_own", "408", "403")
#: What is answered once all was done.
AFTER: Final = (
    "500_after", "502_page", "200_page", "200_empty", "cut_json", "a_list", "nulls", "wrong_types", "deep",
    "not_a_number",
)  # fmt: skip


def _before(name: str, dice: Draws) -> web.Response:
    status, _, how = name.partition("_")
    headers = {}
    match how:
        case "wait":
            headers["Retry-After"] = str(dice.whole(2, 20))
        case "date":
            headers["Retry-After"] = "Wed, 21 Oct 2015 07:28:00 GMT"
        case "absurd":
            headers["Retry-After"] = dice.pick(("-5", "soon", "1e3", "12.5.1", ""))
        case "page":
            return web.Response(status=int(status), text=HTML, content_type="text/html")
        case "own":
            return web.json_response({"error": {"code": "not_found", "message": "No such job."}}, status=int(status))
    if status == "302":
        headers["Location"] = "https://elsewhere.test/login"
    return web.json_response({"error": {"code": f"e_{status}"}}, status=int(status), headers=headers)


def _after(name: str, response: web.StreamResponse) -> web.Response:
    body = response.body if isinstance(response, web.Response) and isinstance(response.body, bytes) else b"{}"
    match name:
        case "500_after":
            return web.json_response({"error": {"code": "e_500"}}, status=500)
        case "502_page":
            return web.Response(status=502, text=HTML, content_type="text/html")
        case "200_page":
            return web.Response(text=HTML, content_type="text/html")
        case "200_empty":
            return web.Response(content_type="application/json")
        case "cut_json":
            return _json(body[: len(body) // 2])
        case "a_list":
            return _json(b"[" + body + b"]")
        case "nulls":
            return _json(b'{"id": null, "state": null, "status": null, "data": null, "processing_status": null}')
        case "wrong_types":
            return _json(b'{"id": 7.5, "state": ["done"], "status": {"x": 1}, "data": 1, "processing_status": true}')
        case "deep":
            return _json(b'{"id": ' + b"[" * 400 + b"]" * 400 + b"}")
        case _:
            return _json(b'{"id": NaN, "state": 1e999}')


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def declared_face(account: DeclaredAccount, clock: Clock, sender: "Sender | None") -> web.Application:
    """The server of one declared account."""
    face = _Face(account, clock, sender)
    app = web.Application()
    for method, path, call in (
        ("POST", "/v1/jobs", face.create),
        ("GET", "/v1/jobs", face.look),
        ("GET", "/v1/jobs/{job}", face.read),
        ("DELETE", "/v1/jobs/{job}", face.cancel),
        ("POST", "/v1/jobs/{job}/input", face.give),
        ("GET", "/v1/jobs/{job}/result", face.result),
    ):
        app.router.add_route(method, path, face.answering(call))
    return app


class _Face:
    """The calls of one declared account."""

    def __init__(self, account: DeclaredAccount, clock: Clock, sender: "Sender | None") -> None:
        self._account, self._clock, self._sender = account, clock, sender

    def answering(self, call: Callable[[web.Request], Awaitable[Any]]) -> Handler:
        """A handler, its refusals in the provider's shape."""

        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                told = await call(request)
            except Refused as refusal:
                return web.json_response(refusal.body, status=refusal.status)
            self._poke()
            return web.json_response(told)

        return answer

    def _poke(self) -> None:
        if self._sender is not None:
            self._sender.poke()

    async def create(self, request: web.Request) -> Any:
        """POST /v1/jobs"""
        body = json.loads(await request.read())
        token = request.headers.get("Idempotency-Key") or body.get("client_token")
        job, told = self._account.create(body, token, TRACE.get(), self._clock.now())
        if job is not None and job.script.answers_after_ms:
            self._poke()
            await asyncio.sleep(job.script.answers_after_ms / 1000)
        return told

    async def look(self, request: web.Request) -> Any:
        """GET /v1/jobs"""
        return {"jobs": [{"id": job.id} for job in self._account.found(request.query["ref"], self._clock.now())]}

    async def read(self, request: web.Request) -> Any:
        """GET /v1/jobs/{job}"""
        job = self._account.read(request.match_info["job"], self._clock.now())
        told = job.body(self._clock.now())
        if job.script.reads_take_ms:
            await asyncio.sleep(job.script.reads_take_ms / 1000)
        return told

    async def cancel(self, request: web.Request) -> Any:
        """DELETE /v1/jobs/{job}"""
        return self._account.cancel(request.match_info["job"], self._clock.now()).body(self._clock.now())

    async def give(self, request: web.Request) -> Any:
        """POST /v1/jobs/{job}/input"""
        await request.read()
        return self._account.give_input(request.match_info["job"], self._clock.now()).body(self._clock.now())

    async def result(self, request: web.Request) -> Any:
        """GET /v1/jobs/{job}/result"""
        return self._account.result(request.match_info["job"], self._clock.now())


class Sender:
    """Carries one account's webhooks to one URL; what is under way when it is stopped was not taken."""

    def __init__(self, account: DeclaredAccount, clock: Clock, *, url: str, secret: str) -> None:
        self._account, self._clock, self._url, self._secret = account, clock, url, secret
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def poke(self) -> None:
        """Look again: something may be due sooner."""
        self._wake.set()

    @contextlib.asynccontextmanager
    async def sending(self, session: aiohttp.ClientSession) -> AsyncIterator[None]:
        """Send while the block runs."""
        task = asyncio.get_running_loop().create_task(self._run(session))
        yield
        for each in (task, *self._tasks):
            each.cancel()
        await asyncio.wait({task, *self._tasks})

    async def _run(self, session: aiohttp.ClientSession) -> None:
        while True:
            self._wake.clear()
            for number, event in self._account.due(self._clock.now()):
                task = asyncio.get_running_loop().create_task(self._send(session, number, event))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            next_ms = self._account.next_at()
            seconds = None if next_ms is None else max(0, next_ms - self._clock.now()) / 1000
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()

    async def _send(self, session: aiohttp.ClientSession, number: int, event: Event) -> None:
        headers = signed(self._account.creed, event, self._secret, self._clock.now() // 1000)
        is_taken = False
        try:
            async with session.post(self._url, data=event.body, headers=headers, allow_redirects=False) as answer:
                is_taken = 200 <= answer.status < 300
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass
        finally:
            self._account.settled(number, is_taken=is_taken, now_ms=self._clock.now())
            self.poke()

"""What came to a provider's server, whoever the provider is, and what it was truly answered with."""

import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: The trace id of the request that is being answered; accounts that cannot be told it otherwise read it here.
TRACE: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="")
_CREATE_PATHS: Final = frozenset({"/v1/jobs", "/v1/batches", "/v1/messages/batches"})


class Asking:
    """What a request asks for, as its method and its path say it."""

    __slots__ = ()
    method: str
    path: str

    @property
    def is_create(self) -> bool:
        """Whether it would make a job."""
        return self.method == "POST" and self.path in _CREATE_PATHS

    @property
    def is_cancel(self) -> bool:
        """Whether it would cancel one."""
        return self.method == "DELETE" or self.path.endswith("/cancel")

    @property
    def is_input(self) -> bool:
        """Whether it would give a job what it waits for."""
        return self.path.endswith("/input")

    @property
    def is_list(self) -> bool:
        """Whether it reads a page of all jobs."""
        return self.method == "GET" and self.path.endswith("batches")


@dataclass(slots=True)
class Arrival(Asking):
    """One request that reached a provider; `body` and `token` are kept of creates only."""

    at_ms: int
    method: str
    path: str
    trace_id: str
    is_authenticated: bool
    body: bytes = b""
    token: str | None = None
    #: As it was truly answered. None until then; no answer leaves a process that was killed meanwhile.
    status: int | None = None
    #: What was answered in its place; empty: nothing, the true answer left.
    mischief: str = ""
    wait_seconds: int = 0


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
    """Stands before one provider's server and notes every request before anything else sees it."""

    def __init__(self, authorization: tuple[str, str]) -> None:
        """`authorization`: the header that each request has to bear, and its value."""
        self.arrivals: list[Arrival] = []
        self._authorization = authorization

    def over(self, app: web.Application, now: Callable[[], int]) -> web.Application:
        """The same server, watched."""

        @web.middleware
        async def watching(request: web.Request, handler: Handler) -> web.StreamResponse:
            trace = request.headers.get("traceparent", "").split("-")
            name, value = self._authorization
            arrival = Arrival(
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
            return await self.answered(request, handler, arrival)

        app.middlewares.insert(0, watching)
        return app

    async def answered(self, request: web.Request, handler: Handler, arrival: Arrival) -> web.StreamResponse:
        """As the server answers."""
        response = await handler(request)
        arrival.status = response.status
        return response

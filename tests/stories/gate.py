"""A door before the provider: it notes each request as it arrives, and may answer, hold or drop it by itself.

It stands on the port that the daemon is told of and passes on to the stand-in behind it, so that a story can have a
provider that is down, slow or refusing, without the stand-in having to know of it.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from aiohttp import hdrs, web

from daemon.standin.wire import hang_up
from daemon.standin.world import World
from tests.stories.stage import Home, provider

#: Headers that belong to one connection, not to the message.
_HOP: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})
CREATE_PATHS: Final = ("/v1/batches", "/v1/messages/batches")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request as it arrived; `at` is unix ms."""

    at: int
    method: str
    path: str
    body: bytes = field(repr=False)

    @property
    def is_create(self) -> bool:
        """Whether it asks for a new job."""
        return self.method == "POST" and self.path in CREATE_PATHS

    def is_read_of(self, job_id: str) -> bool:
        """Whether it asks how that job stands."""
        return self.method == "GET" and self.path.endswith(f"/batches/{job_id}")


#: What befalls an arrival; None: it is passed on.
Befalls = Callable[[Arrival], Awaitable[web.Response | None]]


async def lets_all_in(_: Arrival) -> None:
    """Nothing befalls anybody."""


def answers(fitting: Callable[[Arrival], bool], *replies: web.Response) -> Befalls:
    """Answer the first fitting arrivals with `replies` in turn."""
    left = list(replies)

    async def befalls(arrival: Arrival) -> web.Response | None:
        return left.pop(0) if left and fitting(arrival) else None

    return befalls


@dataclass(slots=True)
class Gate:
    """What arrived, and what is to befall the next arrival."""

    befalls: Befalls = lets_all_in
    arrivals: list[Arrival] = field(default_factory=list)
    #: Of those, the creates that were passed on.
    creates_let_in: int = 0

    def creates(self) -> int:
        """How many creates arrived, passed on or not."""
        return sum(arrival.is_create for arrival in self.arrivals)

    def reads_of(self, job_id: str) -> list[int]:
        """When a job was read."""
        return [arrival.at for arrival in self.arrivals if arrival.is_read_of(job_id)]


@asynccontextmanager
async def behind_a_gate(home: Home, world: World, gate: Gate) -> AsyncIterator[None]:
    """The provider, and the gate on the port that the daemon knows."""
    async with provider(home, world, port=home.behind), aiohttp.ClientSession(auto_decompress=False) as session:

        async def passing(request: web.Request) -> web.StreamResponse:
            at, body = time.time_ns() // 1_000_000, await request.read()
            arrival = Arrival(at, request.method, request.path, body)
            gate.arrivals.append(arrival)
            answer = await gate.befalls(arrival)
            if answer is not None:
                return answer
            gate.creates_let_in += arrival.is_create
            return await _passed_on(session, home, request, body)

        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", passing)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", home.standin).start()
            yield
        finally:
            await runner.cleanup()


async def _passed_on(session: aiohttp.ClientSession, home: Home, request: web.Request, body: bytes) -> web.Response:
    """The provider's own answer; where it hangs up, so does the gate."""
    url = f"http://127.0.0.1:{home.behind}{request.path_qs}"
    headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
    try:
        async with session.request(request.method, url, data=body or None, headers=headers) as answer:
            data = await answer.read()
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
            return web.Response(status=answer.status, body=data, headers=kept)
    except aiohttp.ServerDisconnectedError:
        return hang_up(request)


def refusal(status: int, *, retry_after: int | None = None) -> web.Response:
    """An answer of a provider that takes nothing now; the body is nobody's own error."""
    headers = {} if retry_after is None else {hdrs.RETRY_AFTER: str(retry_after)}
    return web.json_response(
        {"error": {"message": "not now", "type": "refused", "code": None}}, status=status, headers=headers
    )

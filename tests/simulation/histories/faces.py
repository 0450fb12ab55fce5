"""The server of a declared account, and the sender of its webhooks."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web

from reconcile.seams import Clock
from tests.simulation.histories.accounts import DeclaredAccount, Event, Refused, signed
from tests.simulation.watch import TRACE, Handler


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

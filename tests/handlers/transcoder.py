"""A transcoder of the tests' own, as the README's first example declares it: a real server on loopback.

It is unlike the stand-in: other names, other headers, errors in HTML, states that nobody declared, its own webhooks.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

TOKEN = "canary-media-token"
HOOK_SECRET = "a secret of the transcoder, 32 b"


@dataclass
class Transcoder:
    """Jobs by id, what was asked, and what goes wrong next."""

    #: Where it sends its webhooks; None: nowhere.
    hook: str | None = None
    #: The states that the next reads of a job show, one each; the last stays.
    states: list[str] = field(default_factory=lambda: ["encoding"])
    renditions: list[dict[str, Any]] = field(default_factory=lambda: [{"name": "720p", "state": "done"}])
    #: Creates whose answers are lost on the way back.
    loses: int = 0
    #: Answers that come in place of a read, one each.
    instead: list[web.Response] = field(default_factory=list)
    jobs: dict[str, str] = field(default_factory=dict)
    creates: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    cancelled: int = 0

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._known])
        app.router.add_post("/v1/transcode", self._create)
        app.router.add_get("/v1/jobs/{job}", self._read)
        app.router.add_delete("/v1/jobs/{job}", self._cancel)
        return app

    @web.middleware
    async def _known(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.raw_path}")
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401, text="<html>who are you?</html>", content_type="text/html")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _create(self, request: web.Request) -> web.StreamResponse:
        self.creates.append((dict(request.headers), await request.read()))
        key = request.headers["Idempotency-Key"]
        job = self.jobs.setdefault(key, f"job/{len(self.jobs)}")
        if self.loses:
            self.loses -= 1
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"job": {"id": job}}, status=202)

    async def _read(self, request: web.Request) -> web.StreamResponse:
        if self.instead:
            return self.instead.pop(0)
        return web.json_response(self.body(request.match_info["job"]))

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        self.cancelled += 1
        return web.json_response({"job": {"id": request.match_info["job"], "state": "encoding"}}, status=202)

    def body(self, job: str) -> Any:
        """The job as a read shows it."""
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        told: dict[str, Any] = {"id": job, "state": state, "percent": 40.5, "look_again_seconds": 0.01}
        if state in ("ready", "finished", "stopped"):
            told["output"] = {"renditions": self.renditions, "minutes": 3.5}
        if state == "broken":
            told["why"] = {"code": "E_CODEC", "message": "unsupported codec"}
        return {"job": told}

    async def tell(self, job: str, state: str, *, delivery: str = "d-1", at: int, secret: str = HOOK_SECRET) -> int:
        """One webhook; the status that it was answered with."""
        assert self.hook is not None
        body = json.dumps({"delivery": delivery, "job": {"id": job, "state": state}}).encode()
        signed = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        headers = {"X-Media-Signature": signed, "X-Media-Timestamp": str(at)}
        async with aiohttp.ClientSession() as session, session.post(self.hook, data=body, headers=headers) as answer:
            return answer.status

"""A CI system of the tests' own, as the README's second example declares it: polled, with approvals and reports."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

TOKEN = "canary-ci-token"
REPORT = b'<?xml version="1.0"?>\n<testsuite tests="3" failures="0">\n  <testcase name="a"/>\n</testsuite>\n'


@dataclass
class Ci:
    """Runs by their number, and what goes wrong next."""

    phase: str = "running"
    conclusion: str | None = None
    #: What an approval makes of a run.
    then: str | None = "green"
    #: What an abort makes of it; None: it came too late and changes nothing.
    aborts_to: str | None = "aborted"
    loses: int = 0
    #: Creates that arrive and are answered with a page of the web server.
    breaks: int = 0
    #: Status, headers and body of a report, each time it is fetched.
    report: tuple[int, Mapping[str, str], Any] = (200, {"Content-Type": "application/xml"}, REPORT)
    instead: list[web.Response] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    approvals: list[Any] = field(default_factory=list)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._known])
        app.router.add_post("/api/runs", self._create)
        app.router.add_get("/api/runs", self._find)
        app.router.add_get("/api/runs/{run}", self._read)
        app.router.add_get("/api/runs/{run}/report", self._report)
        app.router.add_post("/api/runs/{run}/abort", self._abort)
        app.router.add_post("/api/runs/{run}/approval", self._approve)
        return app

    def count(self, start: str) -> int:
        return sum(line.startswith(start) for line in self.asked)

    @web.middleware
    async def _known(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.raw_path}")
        self.headers.append(dict(request.headers))
        if request.headers.get("X-CI-Token") != TOKEN:
            raise web.HTTPUnauthorized
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _create(self, request: web.Request) -> web.StreamResponse:
        self.runs.append({"run": 100 + len(self.runs), **json.loads(await request.read())})
        if self.breaks:
            self.breaks -= 1
            return web.Response(status=502, text="<html>bad gateway</html>", content_type="text/html")
        if self.loses:
            self.loses -= 1
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"run": self.runs[-1]["run"], "phase": "queued"}, status=201)

    async def _find(self, request: web.Request) -> web.StreamResponse:
        wanted = request.query["external_id"]
        return web.json_response({"runs": [run for run in self.runs if run["external_id"] == wanted]})

    async def _read(self, request: web.Request) -> web.StreamResponse:
        if self.instead:
            return self.instead.pop(0)
        run = int(request.match_info["run"])
        return web.json_response({"run": run, "phase": self.phase, "conclusion": self.conclusion})

    async def _report(self, _: web.Request) -> web.StreamResponse:
        status, headers, body = self.report
        return web.Response(status=status, headers=headers, body=body)

    async def _abort(self, _: web.Request) -> web.StreamResponse:
        if self.aborts_to is None:
            return web.json_response({"title": "the run has ended"}, status=409)
        self.phase, self.conclusion = "finishing", self.aborts_to
        return web.json_response({}, status=202)

    async def _approve(self, request: web.Request) -> web.StreamResponse:
        self.approvals.append(await request.json())
        self.phase, self.conclusion = "finishing", self.then
        return web.Response(status=204)

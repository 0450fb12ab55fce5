"""A provider that honours a token: the same create again is answered with the same job."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from daemon.standin.wire import hang_up
from tests.stories.stage import Home, free_port

NAME: Final = "tokens"
_CONFIG: Final = """\
[providers.tokens]
kind = "http"
base_url = "http://127.0.0.1:{port}"
headers = {{ Authorization = {{ env = "STORY_KEY", prefix = "Bearer " }} }}
[providers.tokens.create]
request = "POST /jobs"
idempotency = {{ header = "X-Token" }}
job_id = "$.id"
[providers.tokens.status]
request = "GET /jobs/{{job_id}}"
state = "$.state"
pending = ["running"]
succeeded = ["done"]
[providers.tokens.result]
from = "$.output"
[providers.tokens.poll]
base = "200ms"
cap = "400ms"
[providers.tokens.limits]
requests_per_second = 1000
"""


@dataclass(slots=True)
class TokenProvider:
    """What it knows: the job that was made for each token. The first create of each is taken and never answered."""

    port: int = field(default_factory=free_port)
    creates: int = 0
    bodies: set[bytes] = field(default_factory=set)
    jobs: dict[str, str] = field(default_factory=dict)
    _reads: dict[str, int] = field(default_factory=dict)

    def declare(self, home: Home) -> None:
        """Tell a daemon of it."""
        with home.config.open("a") as file:
            file.write(_CONFIG.format(port=self.port))

    async def _create(self, request: web.Request) -> web.Response:
        token, body = request.headers["X-Token"], await request.read()
        self.creates += 1
        self.bodies.add(body)
        if token not in self.jobs:
            self.jobs[token] = f"job-{len(self.jobs)}"
            return hang_up(request)
        return web.json_response({"id": self.jobs[token], "state": "running"}, status=202)

    async def _read(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self._reads[name] = self._reads.get(name, 0) + 1
        is_done = self._reads[name] > 1
        return web.json_response(
            {"id": name, "state": "done", "output": {"text": "an answer"}}
            if is_done
            else {"id": name, "state": "running"}
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen until the block is left."""
        app = web.Application()
        app.router.add_post("/jobs", self._create)
        app.router.add_get("/jobs/{name}", self._read)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self.port).start()
            yield
        finally:
            await asyncio.shield(runner.cleanup())

"""Makes one kept state directory, by the code of whatever checkout stands first on PYTHONPATH.

    git worktree add /tmp/old COMMIT
    PYTHONPATH=/tmp/old .venv/bin/python -P tests/upgrade/make.py tests/fixtures/schemas/NAME

The daemon of that commit is assembled under its own virtual clock, with seeded ids, against a provider that treats each
operation as its name says; it is killed in the middle of the last start. So every run gives the same rows. Run by hand,
once a schema; it uses only what every commit had.
"""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import importlib
import importlib.util
import json
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import aiohttp
import structlog
from aiohttp import web

from daemon.config import parse
from reconcile.store.writer import Hooks
from tests.simulation.inline_sqlite import InlineSqlite
from tests.simulation.loop import Crash, VirtualLoop, dispose
from tests.simulation.seams import CountingMeters, DirectSupervisor, SeededDice, VirtualClock
from tests.simulation.transports import MemoryNetwork

EPOCH_MS: Final = 1_800_000_000_000
DAEMON, PROVIDER, API = "daemon.test", "provider.test", "http://daemon.test:8787"
KEYS: Final = {
    "KEY": "sk-simulated-key",
    "BUSY": "sk-busy-key",
    "SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "CI": "whsec_bmV3LXNlY3JldC1vZi10aGUtcmVjZWl2ZXItMDAwMQ==",
}
#: What stays of a state directory; the token and the lock belong to one machine.
KEPT: Final = ("reconciled.db", "spool", "results")
ITEM_IDS: Final = ("item-00000000", "item-00000001", "item-00000002")

#: The state in which each operation is to be found, by its name; those of the last three rows where the code had them.
EARLY: Final = (
    "succeeded", "completed_with_errors", "failed", "refused", "result_validation_failed", "result_timed_out",
    "result_unavailable", "create_unresolved", "observation_failed", "cancelled",
)  # fmt: skip
LATE: Final = ("observing", "strange", "create_unknown", "absent", "twins", "result_collecting")
HELD: Final = ("create_pending_marked", "create_pending_marked_absent")
CANCELLED: Final = ("cancelling", "cancel_requested", "cancellation_unconfirmed")
SPANS: Final[Mapping[str, Mapping[str, str]]] = {
    "result_timed_out": {"result_within": "60s"},
    "create_unresolved": {"create_within": "30s"},
    "cancellation_unconfirmed": {"cancel_within": "40s"},
}
JOB_STATUS: Final[Mapping[str, str]] = {
    "succeeded": "completed",
    "completed_with_errors": "completed",
    "result_validation_failed": "completed",
    "result_unavailable": "completed",
    "result_collecting": "completed",
    "failed": "failed",
    "strange": "awaiting_capacity",
}
#: Who is called back, where the code had callbacks: an address, so that no name has to be looked up.
RECEIVER, RECEIVER_PORT = "127.0.0.1", 9100
CALLBACK_URL: Final = f"http://{RECEIVER}:{RECEIVER_PORT}/hooks/"
HAS_CALLBACKS: Final = importlib.util.find_spec("daemon.callback_config") is not None
#: What the receiver answers about each operation that wants to be told of, by its name; the rest is told to nobody.
ANSWERS: Final = {
    "succeeded": 200,
    "completed_with_errors": 500,
    "failed": 410,
    "result_timed_out": 200,
    "observing": 200,
}


def config(state_dir: Path) -> dict[str, Any]:
    """Two accounts of one provider; the second is told to come again later."""
    account = {
        "kind": "openai_batch",
        "base_url": f"https://{PROVIDER}/v1",
        "webhook_secrets": [{"env": "SECRET"}],
        "poll": {"base": "2s", "cap": "20s", "sweep": "30s"},
        "limits": {"concurrency": 16},
    }
    keys = {"openai": {"env": "KEY"}, "busy": {"env": "BUSY"}}
    callbacks = {"ci": {"url": CALLBACK_URL, "secrets": [{"env": "CI"}]}}
    return {
        "state_dir": str(state_dir),
        **({"callbacks": callbacks} if HAS_CALLBACKS else {}),
        "providers": {name: {**account, "api_key": key} for name, key in keys.items()},
    }


class Desk:
    """The provider: what a job does is its operation's name."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.uploads = 0
        self.is_cancelled: set[str] = set()

    def app(self) -> web.Application:
        """Its calls."""
        app = web.Application()
        app.add_routes(
            [
                web.post("/v1/files", self.upload),
                web.get("/v1/files/{file_id}/content", self.content),
                web.post("/v1/batches", self.create),
                web.get("/v1/batches", self.list_page),
                web.get("/v1/batches/{job_id}", self.read),
                web.post("/v1/batches/{job_id}/cancel", self.cancel),
            ]
        )
        return app

    async def upload(self, request: web.Request) -> web.Response:
        """An input file; the busy account takes none."""
        await request.read()
        if request.headers["Authorization"] == f"Bearer {KEYS['BUSY']}":
            return _refusal(429, "rate_limit_exceeded", {"Retry-After": "600"})
        self.uploads += 1
        return web.json_response({"id": f"file-in-{self.uploads}", "object": "file", "purpose": "batch"})

    async def create(self, request: web.Request) -> web.Response:
        """A batch, or what befalls it."""
        body = json.loads(await request.read())
        name = body["metadata"]["story"]
        if name == "refused":
            return _refusal(400, "invalid_value")
        if not name.endswith("absent") and name != "create_unresolved":
            self._add(name, body)
        if name == "twins":
            self._add(name, body, number=2)
        if name.startswith("create_pending_marked"):
            await asyncio.Event().wait()
        if name in ("create_unknown", "absent", "twins", "create_unresolved"):
            assert request.transport is not None
            request.transport.close()
        return web.json_response(self.jobs.get(f"batch_{name}_1", {}))

    def _add(self, name: str, body: Mapping[str, Any], *, number: int = 1) -> None:
        self.jobs[f"batch_{name}_{number}"] = {
            "id": f"batch_{name}_{number}",
            "object": "batch",
            "status": "validating",
            "created_at": EPOCH_MS // 1000,
            "completion_window": "24h",
            **body,
        }

    async def list_page(self, _: web.Request) -> web.Response:
        """All jobs but one that is not listed yet."""
        shown = [self._seen(job) for job in self.jobs.values() if job["metadata"]["story"] != "create_unknown"]
        return web.json_response({"object": "list", "data": shown, "has_more": False})

    async def read(self, request: web.Request) -> web.Response:
        """A batch as its name says; one that somebody else made is not shown in time."""
        if request.match_info["job_id"] == "batch_of_somebody":
            await asyncio.Event().wait()
        job = self.jobs[request.match_info["job_id"]]
        if job["metadata"]["story"] == "observation_failed":
            return _refusal(404, "not_found")
        return web.json_response(self._seen(job))

    def _seen(self, job: Mapping[str, Any]) -> dict[str, Any]:
        name = job["metadata"]["story"]
        status = JOB_STATUS.get(name, "in_progress")
        if job["id"] in self.is_cancelled:
            status = "cancelled" if name == "cancelled" else "cancelling"
        seen = {**job, "status": status, "request_counts": {"total": len(ITEM_IDS), "completed": 1, "failed": 0}}
        if status in ("completed", "cancelled"):
            seen["output_file_id"] = f"file-out-{name}"
        if name == "failed":
            seen["errors"] = {"data": [{"code": "invalid_json_line", "message": "Line 1 is not JSON.", "line": 1}]}
        return seen

    async def cancel(self, request: web.Request) -> web.Response:
        """Accepted, refused, or never answered."""
        job = self.jobs[request.match_info["job_id"]]
        name = job["metadata"]["story"]
        if name == "cancel_requested":
            await asyncio.Event().wait()
        if name == "cancellation_unconfirmed":
            return _refusal(409, "cannot_cancel")
        self.is_cancelled.add(job["id"])
        return web.json_response({**self._seen(job), "status": "cancelling"})

    async def content(self, request: web.Request) -> web.Response:
        """A result file, one line an item."""
        name = request.match_info["file_id"].removeprefix("file-out-")
        if name == "result_collecting":
            await asyncio.Event().wait()
        if name == "result_unavailable":
            return _refusal(404, "not_found")
        ids = {"result_validation_failed": ITEM_IDS[:1] * 2, "cancelled": ITEM_IDS[:1]}.get(name, ITEM_IDS)
        bad = ITEM_IDS[2] if name == "completed_with_errors" else None
        lines = [_line(item_id, ok=item_id != bad) for item_id in ids]
        return web.Response(body=b"".join(lines), content_type="application/octet-stream")


def _refusal(status: int, code: str, headers: Mapping[str, str] | None = None) -> web.Response:
    error = {"message": f"The provider says {code}.", "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response({"error": error}, status=status, headers=headers)


def _line(item_id: str, *, ok: bool) -> bytes:
    response = {"status_code": 200 if ok else 400, "request_id": f"req_{item_id}", "body": {"output": "said"}}
    return (
        json.dumps({"id": f"line_{item_id}", "custom_id": item_id, "response": response, "error": None}).encode()
        + b"\n"
    )


class People:
    """Those who talk to the daemon: a client, and the sender of webhooks."""

    def __init__(self, session: aiohttp.ClientSession, now_ms: Any) -> None:
        self.session = session
        self.now_ms = now_ms
        self.ids: dict[str, str] = {}

    async def start(self, name: str, *, provider: str = "openai", **more: Any) -> int:
        """Start an operation; its status code."""
        body: dict[str, Any] = {
            "provider": provider,
            "caller": "release-engineer",
            "labels": {"story": name},
            "request": {"endpoint": "/v1/responses", "metadata": {"story": name}},
            "items": [
                {"custom_id": item_id, "url": "/v1/responses", "body": {"model": "example-model", "input": name}}
                for item_id in ITEM_IDS
            ],
            **SPANS.get(name, {}),
            **({"callback_url": f"{CALLBACK_URL}{name}"} if HAS_CALLBACKS and name in ANSWERS else {}),
            **more,
        }
        body = {key: value for key, value in body.items() if value is not None}
        async with self.session.post(f"{API}/v1/operations", json=body, headers={"Idempotency-Key": name}) as answer:
            found = await answer.json(content_type=None)
            self.ids[name] = found.get("operation_id", "")
            return answer.status

    async def cancel(self, name: str) -> int:
        """Ask for a cancel; its status code, 404 or 405 where the code had no cancel."""
        body = {"by": "release-engineer", "reason": "not needed any more", "effect": "no more items run"}
        async with self.session.post(f"{API}/v1/operations/{self.ids[name]}/cancel", json=body) as answer:
            return answer.status

    async def claim(self, name: str) -> int:
        """Take a completion for a consumer; its status code, 404 or 405 where the code had no claims."""
        headers = {"Idempotency-Key": f"claim-{name}"}
        url = f"{API}/v1/operations/{self.ids[name]}/claim"
        async with self.session.post(url, json={"consumer": "billing"}, headers=headers) as answer:
            return answer.status

    async def ring(self, event_id: str, body: bytes) -> None:
        """Deliver one signed webhook."""
        seconds = self.now_ms() // 1000
        key = base64.b64decode(KEYS["SECRET"].removeprefix("whsec_"))
        signed = hmac.new(key, f"{event_id}.{seconds}.".encode() + body, hashlib.sha256).digest()
        headers = {
            "webhook-id": event_id,
            "webhook-timestamp": str(seconds),
            "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
            "content-type": "application/json",
        }
        url = f"http://{DAEMON}:8786/webhooks/openai"
        async with self.session.post(url, data=body, headers=headers) as answer:
            assert answer.status == 200, answer.status


def _receiver() -> web.Application:
    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=ANSWERS[request.path.rpartition("/")[2]])

    app = web.Application()
    app.router.add_post("/hooks/{name}", take)
    return app


def _event(job_id: str) -> bytes:
    body = {"id": f"evt_{job_id}", "object": "event", "type": "batch.completed", "created_at": EPOCH_MS // 1000}
    return json.dumps({**body, "data": {"id": job_id}}).encode()


class Life:
    """One life of the daemon, from an empty state directory to the kill."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.loop = VirtualLoop()
        self.network = MemoryNetwork(self.loop)
        self.clock = VirtualClock(self.loop, EPOCH_MS)
        self.supervisor = DirectSupervisor(self.loop)
        self.dies_at_a_commit = False
        # A coroutine that is thrown away runs its `finally`, and must not find the dead process's files.
        self.away = state_dir.with_name("away")
        self.loop.last_rites.append(self._take_away)

    def run(self) -> Path:
        """Everything up to the kill; where its files then stand."""
        with contextlib.suppress(Crash):
            self.loop.run_until_complete(self._main())
        dispose(self.loop)
        return self.away

    def _take_away(self) -> None:
        self.state_dir.rename(self.away)

    async def _main(self) -> None:
        seams = _assembly().Seams(
            clock=self.clock,
            dice=SeededDice("upgrade"),
            supervisor=self.supervisor,
            meters=CountingMeters(),
            opener=InlineSqlite(self.loop),
            connector=self.network.connector,
            log=structlog.wrap_logger(None, processors=[_dropped]),
            hooks=Hooks(after_commit=self._after_commit),
        )
        settings = parse(config(self.state_dir), KEYS, file="made.toml")
        daemon = await _assembly().assemble(settings, seams, local_hosts=frozenset({f"{DAEMON}:8787"}))
        self.supervisor.start("writer", daemon.store.run())
        for name in ("worker", "watchman", "outbox"):
            if hasattr(daemon, name):
                self.supervisor.start(name, getattr(daemon, name).run(asyncio.Event()))
        async with AsyncExitStack() as stack:
            for app, host, port in (
                (Desk().app(), PROVIDER, 443),
                (_receiver(), RECEIVER, RECEIVER_PORT),
                (daemon.local, DAEMON, 8787),
                (daemon.public, DAEMON, 8786),
            ):
                await stack.enter_async_context(self._served(app, host, port))
            headers = {"Authorization": f"Bearer {daemon.token}"}
            session = aiohttp.ClientSession(connector=self.network.connector(), headers=headers)
            await self._story(People(await stack.enter_async_context(session), self.clock.now))

    @asynccontextmanager
    async def _served(self, app: web.Application, host: str, port: int) -> AsyncIterator[None]:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        assert runner.server is not None
        self.network.serve(host, port, runner.server)
        yield

    async def _story(self, people: People) -> None:
        for name in EARLY:
            assert await people.start(name) == 202
        await asyncio.sleep(5)
        await people.cancel("cancelled")
        await people.ring("evt_unmatched", _event("batch_of_nobody"))
        await asyncio.sleep(600)
        if HAS_CALLBACKS:
            await people.claim("succeeded")
        for name in (*LATE, *CANCELLED):
            assert await people.start(name) == 202
        assert await people.start("create_pending_busy", provider="busy", create_within="2h") == 202
        await people.start("accepted", remote_job_id="batch_of_somebody", items=None, request=None)
        await asyncio.sleep(5)
        for name in CANCELLED:
            await people.cancel(name)
        for name in HELD:
            assert await people.start(name) == 202
        await asyncio.sleep(5)
        for event_id, body in (("evt_rings", _event("batch_observing_1")), ("evt_unreadable", b"[")):
            await people.ring(event_id, body)
            await people.ring(event_id, body)
        self.dies_at_a_commit = True
        await people.start("create_pending")

    def _after_commit(self, _: object) -> None:
        if self.dies_at_a_commit and self._is_started("create_pending"):
            self.loop.crash()

    def _is_started(self, key: str) -> bool:
        uri = f"{(self.state_dir / 'reconciled.db').as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            return bool(connection.execute("SELECT 1 FROM client_keys WHERE client_key = ?", (key,)).fetchall())


def _assembly() -> ModuleType:
    """Where the daemon was put together: in its service, later in a room of its own."""
    try:
        return importlib.import_module("daemon.assembly")
    except ImportError:
        return importlib.import_module("daemon.service")


def _dropped(*_: object) -> Any:
    raise structlog.DropEvent


def make(target: Path) -> None:
    """Run the story and keep what is left of it under `target`."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "state"
        made.mkdir()
        state_dir = Life(made).run()
        with contextlib.closing(sqlite3.connect(state_dir / "reconciled.db", isolation_level=None)) as connection:
            for statement in (
                "PRAGMA journal_mode = DELETE",
                "PRAGMA page_size = 1024",
                "VACUUM",
                "PRAGMA journal_mode = WAL",
            ):
                connection.execute(statement).fetchall()
        target.mkdir(parents=True)
        for name in KEPT:
            kept = state_dir / name
            (shutil.copytree if kept.is_dir() else shutil.copyfile)(kept, target / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]))

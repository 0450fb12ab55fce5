"""The ground that the faces are tested on: the real daemon, assembled as in production, on a folder of the test's own.

Only time and dice are the test's: the clock stands still until it is moved, or told to run. Files, SQLite, sockets and
the outgoing client are the real ones. Rows are looked at through a second, read-only connection.
"""

import asyncio
import base64
import hashlib
import hmac
import io
import json
import random
import re
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import structlog
from aiohttp import web
from aiohttp.abc import AbstractResolver
from structlog.testing import LogCapture

from daemon.assembly import Daemon, assemble
from daemon.config import Config, parse
from daemon.meters import Counts
from daemon.provider_config import ProviderConfig
from daemon.rooms import Seams
from daemon.runtime import SystemResolver, open_sqlite
from handlers.access import own_hosts
from reconcile.evidence import Accepted, Collected, CreateUnknown, Evidence, JobRead, StepDone
from reconcile.model import Change, Observation, Operation, ResultInfo, ResultRef, Summary
from reconcile.store.claims import ClaimWish
from reconcile.store.evidence import Arrival
from reconcile.store.writer import Hooks

FIXTURES = Path(__file__).parent.parent / "fixtures"
EXPECT: dict[str, Any] = json.loads((FIXTURES / "EXPECT.json").read_text(encoding="utf-8"))
#: The secret of the field cases; its bytes are `reconciled-field-case-secret-01`.
SECRET = "whsec_cmVjb25jaWxlZC1maWVsZC1jYXNlLXNlY3JldC0wMQ=="
OTHER_SECRET = "whsec_b3RoZXItcHJvdmlkZXItc2VjcmV0LTAwMDAwMDAwMDI="
API_KEY = "sk-canary-0123456789abcdef"
#: 2026-11-29T12:00:00Z.
NOON = 1_795_953_600_000
#: Nothing here takes that long; a test that hangs is told apart from a slow machine. Seconds.
PATIENCE = 20
T = TypeVar("T")

START: dict[str, Any] = {
    "provider": "openai",
    "request": {"endpoint": "/v1/responses"},
    "items": [{"custom_id": "a", "url": "/v1/responses", "body": {"model": "m", "input": "i"}}],
}


class HandClock:
    """Wall time that a test moves; after `run` it also passes by itself. Monotonic time is the machine's."""

    def __init__(self, now_ms: int = NOON) -> None:
        self._at = now_ms
        self._runs_since: float | None = None

    def now(self) -> int:
        if self._runs_since is None:
            return self._at
        return self._at + int((time.monotonic() - self._runs_since) * 1000)

    def monotonic(self) -> float:
        return time.monotonic()

    def set(self, now_ms: int) -> None:
        self._at = now_ms
        if self._runs_since is not None:
            self._runs_since = time.monotonic()

    def advance(self, ms: int) -> None:
        self.set(self.now() + ms)

    def run(self) -> None:
        self._runs_since = time.monotonic()


class SeededDice:
    """Every draw and id follows from the seed."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._seed = random.Random(f"{seed}/seed").randbytes(32)

    def draw(self) -> float:
        return self._random.random()

    def identifier(self, prefix: str) -> str:
        return f"{prefix}{self._random.getrandbits(128):032x}"

    def seed(self) -> bytes:
        return self._seed

    def trace_id(self) -> str:
        return f"{self._random.getrandbits(128) or 1:032x}"


class TaskStarter:
    """Starts tasks and keeps what escapes from them."""

    def __init__(self) -> None:
        self.failures: list[BaseException] = []

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    async def offload(self, function: Callable[[], T]) -> T:
        return await asyncio.to_thread(function)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        fault = None if task.cancelled() else task.exception()
        if fault is not None:
            self.failures.append(fault)


@dataclass(frozen=True)
class Answer:
    """A whole HTTP answer as it came over the wire."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    raw: bytes

    def json(self) -> Any:
        return strict_json(self.body)


@dataclass
class Ground:
    """One running daemon and the ways a test looks at it."""

    folder: Path
    config: Config
    daemon: Daemon
    clock: HandClock
    meters: Counts
    capture: LogCapture
    supervisor: TaskStarter
    public_port: int
    local_port: int
    session: aiohttp.ClientSession

    # ---- outside ----

    async def hook(
        self, body: bytes, headers: Mapping[str, str], *, provider: str = "openai", method: str = "POST"
    ) -> Answer:
        """One delivery to the public listener."""
        url = f"http://127.0.0.1:{self.public_port}/webhooks/{provider}"
        async with self.session.request(method, url, data=body, headers=headers) as response:
            return Answer(response.status, dict(response.headers), await response.read(), b"")

    async def api(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        token: bool = True,
    ) -> Answer:
        """One call of the local API; `body` goes out as JSON."""
        sent = {"Authorization": f"Bearer {self.daemon.token}"} if token else {}
        if body is not None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        url = f"http://127.0.0.1:{self.local_port}{path}"
        payload = io.BytesIO(data) if data is not None and len(data) > 1_000_000 else data
        async with self.session.request(method, url, data=payload, headers={**sent, **(headers or {})}) as response:
            return Answer(response.status, dict(response.headers), await response.read(), b"")

    async def start(self, **fields: Any) -> str:
        """A new operation through the API; its id."""
        answer = await self.api("POST", "/v1/operations", body={**START, **fields})
        assert answer.status == 202, answer
        return str(answer.json()["operation_id"])

    async def get(self, path: str) -> Any:
        answer = await self.api("GET", path)
        assert answer.status == 200, answer
        return answer.json()

    # ---- who waits ----

    async def until_waiting(self, count: int = 1) -> None:
        """Until so many waiters are registered, each once for every operation that it asks about."""

        async def are_there() -> bool:
            return sum(map(len, self.daemon.changes._watches.values())) >= count

        await until(are_there)

    async def until_streaming(self) -> None:
        """Until a stream, of one operation or of all, is told what happens from now on."""

        async def is_there() -> bool:
            return bool(self.daemon.changes._streams)

        await until(is_there)

    async def until_feed_waits(self) -> None:
        """Until a reader of the completions has found nothing and waits for the next end."""

        async def is_there() -> bool:
            return bool(self.daemon.changes.next_end()._waiters)

        await until(is_there)

    # ---- evidence ----

    async def apply(self, operation_id: str, evidence: Evidence) -> Change:
        """Evidence that needs no lease."""
        change: Change = await self.daemon.store.apply(
            Arrival(
                operation_id,
                evidence,
                actor="worker:1",
                cause=f"start:{operation_id}",
                at=self.clock.now(),
                draw=0.5,
            )
        )
        return change

    async def act(self, evidence: Evidence, *, room: int = 8) -> list[Change]:
        """Lease what is due as a worker would, and answer each row with `evidence`."""
        wish = ClaimWish("boot_test", self.clock.now(), 60_000, dict.fromkeys(self.config.providers, room))
        claimed = await self.daemon.store.claim(wish)
        return [
            await self.daemon.ingest.fact(
                claim.operation,
                evidence,
                actor="worker:1",
                cause=f"start:{claim.operation.operation_id}",
                fence=claim.fence,
            )
            for claim in claimed.claims
        ]

    async def operation(self, state: str, job: str | None, **fields: Any) -> str:
        """An operation brought to `state` by evidence; the worker must be off."""
        operation_id = await self.start(**fields)
        await self.apply(operation_id, StepDone("upload", f"file-{operation_id[-6:]}"))
        if state == "create_pending":
            return operation_id
        if state == "create_unknown":
            await self.apply(operation_id, CreateUnknown("timeout"))
            return operation_id
        await self.apply(operation_id, Accepted(Observation("in_progress", remote_job_id=job)))
        if state != "observing":
            await self.apply(operation_id, JobRead(done(job)))
        if state not in ("observing", "result_collecting"):
            await self.apply(operation_id, collected(state))
        assert (await self.row(operation_id)).state == state
        return operation_id

    async def accept(self, operation_id: str, job: str) -> None:
        """Upload and create have been answered; the job runs."""
        await self.apply(operation_id, StepDone("upload", f"file-{operation_id[-6:]}"))
        await self.apply(operation_id, Accepted(Observation("in_progress", remote_job_id=job)))

    # ---- inside ----

    async def row(self, operation_id: str) -> Operation:
        op = await self.daemon.store.get(operation_id)
        assert op is not None
        return op

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows as another, read-only connection sees them."""
        connection = sqlite3.connect(f"file:{self.folder / 'reconciled.db'}?mode=ro", uri=True)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    def events(self) -> list[tuple[str, int]]:
        """The kept deliveries as (disposition, duplicates), in the order of keeping."""
        return [(row[0], row[1]) for row in self.rows("SELECT disposition, duplicates FROM events ORDER BY key")]

    def due_at(self, operation_id: str) -> int:
        sql = "SELECT s.due_at FROM schedule s JOIN operations o ON o.key = s.key WHERE o.operation_id = ?"
        return int(self.rows(sql, operation_id)[0][0])

    def everything(self) -> str:
        """A digest of every row of every table: equal before and after what must change nothing."""
        connection = sqlite3.connect(f"file:{self.folder / 'reconciled.db'}?mode=ro", uri=True)
        try:
            return hashlib.sha256("\n".join(connection.iterdump()).encode()).hexdigest()
        finally:
            connection.close()

    @property
    def logged(self) -> list[Any]:
        return self.capture.entries

    def reasons(self) -> list[str]:
        """Why deliveries were refused, as the log has it."""
        return [str(entry["reason"]) for entry in self.logged if entry["event"] == "webhook_refused"]


def done(job: str | None) -> Observation:
    """A read of a job that completed with one item."""
    return Observation(
        "completed",
        remote_job_id=job,
        remote_status="completed",
        results=(ResultRef("file-out"),),
        finished_items=1,
        total_items=1,
    )


def collected(state: str) -> Collected:
    """What collection found, where the end is `state`."""
    summary = {
        "succeeded": Summary(total=1, succeeded=1),
        "failed": Summary(total=1, failed=1),
        "completed_with_errors": Summary(total=2, succeeded=1, failed=1),
        "result_validation_failed": Summary(total=1, missing=1),
    }[state]
    return Collected(ResultInfo(attempt=1, bytes=0, sha256="0" * 64, content_type=None, items=summary.total), summary)


# ---- the daemon ------------------------------------------------------------------------------------------------


def provider(base_url: str = "http://127.0.0.1:9/v1", *, keys: int = 1, name: str = "HOOK", **more: Any) -> Any:
    """One `[providers.NAME]`, with so many webhook secrets in the environment."""
    return {
        "kind": "openai_batch",
        "base_url": base_url,
        "api_key": {"env": "API_KEY"},
        "webhook_secrets": [{"env": f"{name}_{n}"} for n in range(keys)],
        **more,
    }


@asynccontextmanager
async def running(
    folder: Path,
    *,
    secrets: Sequence[str] = (SECRET,),
    providers: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    sections: Mapping[str, Any] | None = None,
    clock: HandClock | None = None,
    worker: bool = False,
    outbox: bool = False,
    seed: int = 1,
    hooks: Hooks | None = None,
    more_providers: Mapping[str, ProviderConfig] | None = None,
    resolver: Callable[[], AbstractResolver] = SystemResolver,
) -> AsyncIterator[Ground]:
    """The daemon with both listeners and its writer, and, where asked for, its worker and its outbox.

    `more_providers`: kinds of a test's own, which no configuration can name.
    """
    known = {"API_KEY": API_KEY, **{f"HOOK_{n}": secret for n, secret in enumerate(secrets)}, **(environ or {})}
    document = {
        "state_dir": str(folder),
        "providers": providers if providers is not None else {"openai": provider(keys=len(secrets))},
        **(sections or {}),
    }
    make_folder(folder)
    config = parse(document, known, file="test.toml")
    config = replace(config, providers={**config.providers, **(more_providers or {})})
    capture, meters, supervisor, hand = LogCapture(), Counts(), TaskStarter(), clock or HandClock()
    log = structlog.wrap_logger(
        structlog.PrintLogger(), processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(0)
    )
    seams = Seams(
        clock=hand,
        dice=SeededDice(seed),
        supervisor=supervisor,
        meters=meters,
        opener=open_sqlite,
        connector=lambda: aiohttp.TCPConnector(keepalive_timeout=4, limit=0),
        log=log,
        hooks=hooks or Hooks(),
        resolver=resolver,
    )
    sockets = [_bound() for _ in range(2)]
    public_port, local_port = (sock.getsockname()[1] for sock in sockets)
    async with AsyncExitStack() as stack:
        for sock in sockets:
            stack.callback(sock.close)
        daemon = await assemble(config, seams, local_hosts=own_hosts("127.0.0.1", local_port))
        stack.push_async_callback(daemon.store.close)
        stack.push_async_callback(daemon.client.close)
        stack.push_async_callback(daemon.outbox.close)
        writer = supervisor.start("writer", daemon.store.run())
        stack.push_async_callback(_stopped, writer, daemon.store.stop)
        await daemon.recover()
        stop = asyncio.Event()
        tidying = supervisor.start("upkeep", daemon.upkeep.tidy(stop))  # its rounds are for tests to ask for
        stack.push_async_callback(_stopped, tidying)
        if worker:
            at_work = supervisor.start("worker", daemon.worker.run(stop))
            stack.push_async_callback(_stopped, at_work, stop.set, lambda: daemon.worker.wake(0))
        if outbox:
            sending = supervisor.start("outbox", daemon.outbox.run(stop))
            stack.push_async_callback(_stopped, sending, stop.set, daemon.outbox.wake)
        for app, sock in zip((daemon.public, daemon.local), sockets, strict=True):
            runner = web.AppRunner(
                app,
                access_log=None,
                handle_signals=False,
                shutdown_timeout=0.1,
                handler_cancellation=app is daemon.local,  # as daemon/listeners.py has it
            )
            stack.push_async_callback(runner.cleanup)
            await runner.setup()
            await web.SockSite(runner, sock).start()
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        session = await stack.enter_async_context(aiohttp.ClientSession(auto_decompress=False, timeout=timeout))
        yield Ground(
            folder=folder,
            config=config,
            daemon=daemon,
            clock=hand,
            meters=meters,
            capture=capture,
            supervisor=supervisor,
            public_port=public_port,
            local_port=local_port,
            session=session,
        )
    assert not supervisor.failures


async def _stopped(task: "asyncio.Task[None]", *tell: Callable[[], None]) -> None:
    for each in tell:
        each()
    await asyncio.wait({task})


def make_folder(folder: Path) -> None:
    """The state directory as the daemon itself makes it."""
    folder.mkdir(mode=0o700, exist_ok=True)


def _bound() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.bind(("127.0.0.1", 0))
    return sock


# ---- deliveries ------------------------------------------------------------------------------------------------


def signed(
    body: bytes,
    *,
    event_id: str = "msg_1",
    at_ms: int = NOON,
    timestamp: str | None = None,
    secret: str = SECRET,
) -> dict[str, str]:
    """The headers of a delivery, by the standard's own words and none of the product's code."""
    stamp = str(at_ms // 1000) if timestamp is None else timestamp
    return {
        "webhook-id": event_id,
        "webhook-timestamp": stamp,
        "webhook-signature": "v1," + mac(body, event_id, stamp, secret),
    }


def mac(body: bytes, event_id: str, stamp: str, secret: str = SECRET) -> str:
    """base64 of HMAC-SHA256 over `id.timestamp.body`."""
    bare = secret.removeprefix("whsec_").rstrip("=")
    key = base64.b64decode(bare + "=" * (-len(bare) % 4))
    over = f"{event_id}.{stamp}.".encode() + body
    return base64.b64encode(hmac.digest(key, over, hashlib.sha256)).decode()


def event(job: str, word: str = "completed", **more: Any) -> bytes:
    """An OpenAI event about a batch."""
    return json.dumps({"object": "event", "type": f"batch.{word}", "data": {"id": job}, **more}).encode()


# ---- the wire --------------------------------------------------------------------------------------------------


def request_bytes(
    method: str, target: str, headers: Sequence[tuple[str, str | bytes]], body: bytes = b"", *, host: str = "x"
) -> bytes:
    """A request as bytes, for what no client would send. `Host` and `Connection: close` are added."""
    lines = [f"{method} {target} HTTP/1.1".encode("latin-1")]
    for name, value in (("Host", host), *headers, ("Connection", "close")):
        given = value if isinstance(value, bytes) else value.encode("utf-8")
        lines.append(name.encode("latin-1") + b": " + given)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def exchange(port: int, data: bytes, *, seconds: float = PATIENCE) -> Answer:
    """Send bytes, read until the other side closes, and take the answer apart."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(seconds):
            raw = await read_answer(reader)
    finally:
        writer.close()
    return split(raw)


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """One answer: its head, and as much body as it announces."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *([0-9]+)", head)
    try:
        return head + (await reader.readexactly(int(length[1])) if length else await reader.read())
    except asyncio.IncompleteReadError as fault:  # the answer to a HEAD
        return head + fault.partial


def split(raw: bytes) -> Answer:
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.strip().title(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answer(int(first.split()[1]), headers, body, raw)


def without_date(raw: bytes) -> bytes:
    """An answer without the one header that may differ between two of the same."""
    return re.sub(rb"(?i)\r\ndate: [^\r]*", b"", raw)


def strict_json(data: bytes) -> Any:
    """JSON as a strict reader takes it: no NaN, no Infinity."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(data.decode("utf-8"), parse_constant=refuse)


async def until(claim: Callable[[], Coroutine[Any, Any, bool]], *, seconds: float = PATIENCE) -> None:
    """Wait until `claim` holds; it is asked again each few ms, since what it waits for happens on other sockets."""
    async with asyncio.timeout(seconds):
        while not await claim():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


def with_poll(document: Any, **numbers: Any) -> Any:
    """A provider with quick polls and no rate to speak of, for tests in which real time passes."""
    quick = {"base": "2ms", "cap": "4ms", "sweep": "4ms", **numbers}
    return {**document, "poll": quick, "limits": {"requests_per_second": 5000, "concurrency": 8}}


def with_state(op: Operation, **values: Any) -> Operation:
    """The row with other values."""
    return replace(op, **values)

"""`reconciled demo`: the daemon and a stand-in provider as two processes, each job's story told as it happens."""

import asyncio
import base64
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from daemon import local_api
from daemon.api_config import TOKEN_FILE
from daemon.local_api import LocalApi, Place
from daemon.logs import make_log
from daemon.runtime import SystemClock, SystemDice, TaskSupervisor
from daemon.shapes import clean
from reconcile.redact import Redactor

DESCRIPTION: Final = (
    "Start the daemon on a temporary file and a stand-in provider, submit a job for each scenario, and tell each"
    " story as it happens. Exits 0 only if every one ended as it should."
)
#: Seconds after which the demo gives up. 60: the stories take about ten.
PATIENCE_SECONDS: Final = 60
_CONFIG: Final = """\
state_dir = "{state_dir}"
[webhooks]
listen = "127.0.0.1:{hooks}"
[api]
listen = "127.0.0.1:{api}"
[providers.standin]
kind = "openai_batch"
base_url = "http://127.0.0.1:{standin}/v1"
api_key = {{ env = "RECONCILED_DEMO_KEY" }}
webhook_secrets = [ {{ env = "RECONCILED_WEBHOOK_SECRET" }} ]
[providers.standin.poll]
base = "6s"
cap = "9s"
sweep = "9s"
"""


@dataclass(frozen=True, slots=True)
class Story:
    """One scenario as the demo shows it: what should come out, and whether an event should have rung."""

    name: str
    tells: str
    outcome: str
    rings: bool


STORIES: Final = (
    Story("normal", "the webhook arrives; it only rings, a read confirms the end", "succeeded", rings=True),
    Story("duplicate-webhook", "the webhook arrives twice; one effect", "succeeded", rings=True),
    Story("lost-webhook", "the webhook never comes; the sweep finds the end", "succeeded", rings=False),
    Story("partial-failure", "the job completes, some items did not", "completed_with_errors", rings=True),
)
NAMES: Final = tuple(story.name for story in STORIES)


def run(names: Sequence[str] | None) -> int:
    """Run the stories; 0 only if each ended as it should."""
    chosen = [story for story in STORIES if not names or story.name in names]
    return asyncio.run(_run(chosen))


async def _run(stories: Sequence[Story]) -> int:
    print("starting the daemon and a stand-in provider, which takes a few seconds", flush=True)
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reconciled-demo-")))
        api = await stack.enter_async_context(_processes(folder))
        print("two processes are running: the daemon and a stand-in provider\n", flush=True)
        ids = {story.name: await _submit(api, story) for story in stories}
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await _tell(api, ids)
        except TimeoutError:
            print(f"gave up after {PATIENCE_SECONDS} s")
        return await _judge(api, stories, ids)


@asynccontextmanager
async def _processes(folder: Path) -> AsyncIterator[LocalApi]:
    """The two processes, ended in order; their logs stand in the temporary folder until then."""
    hooks, api, standin = _free_ports(3)
    secret = "whsec_" + _base64_secret()
    environ = {**os.environ, "RECONCILED_DEMO_KEY": "demo-key-of-nobody", "RECONCILED_WEBHOOK_SECRET": secret}
    config = folder / "reconciled.toml"
    state_dir = folder / "state"
    config.write_text(_CONFIG.format(state_dir=state_dir, hooks=hooks, api=api, standin=standin))
    provider = ("simulate", "--listen", f"127.0.0.1:{standin}", "--speed", "1")
    webhook = ("--webhook-url", f"http://127.0.0.1:{hooks}/webhooks/standin")
    async with (
        _process(folder / "standin.log", environ, *provider, *webhook) as stranger,
        _process(folder / "daemon.log", environ, "serve", "--config", str(config)) as daemon,
    ):
        await stranger.ready(lambda: _listens(standin))
        await daemon.ready(lambda: _answers(f"http://127.0.0.1:{api}", state_dir / TOKEN_FILE))
        place = Place(f"http://127.0.0.1:{api}", (state_dir / TOKEN_FILE).read_text().strip())
        async with local_api.connect(place) as client:
            yield client


@dataclass(frozen=True, slots=True)
class _Running:
    """One of the two processes, and the file it writes to."""

    process: asyncio.subprocess.Process
    log: Path

    async def ready(self, is_ready: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it is. Raises: SystemExit, with what the process wrote."""
        for _ in range(200):
            if self.process.returncode is not None:
                raise SystemExit(f"a process ended at once:\n{self.log.read_text()}")
            if await is_ready():
                return
            await asyncio.sleep(0.1)
        raise SystemExit(f"a process did not become ready:\n{self.log.read_text()}")


@asynccontextmanager
async def _process(log: Path, environ: dict[str, str], *arguments: str) -> AsyncIterator[_Running]:
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "daemon", *arguments, stdout=stream, stderr=stream, env=environ
        )
    try:
        yield _Running(process, log)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


async def _answers(url: str, token_file: Path) -> bool:
    """Whether the daemon is ready."""
    if not token_file.exists():
        return False
    try:
        async with local_api.connect(Place(url, token_file.read_text().strip())) as api:
            await api.call("GET", "/readyz")
    except (local_api.Unreachable, local_api.Refused):
        return False
    return True


async def _listens(port: int) -> bool:
    """Whether the stand-in takes connections: a job sent before would only meet a refusal and be sent again later."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def _submit(api: LocalApi, story: Story) -> str:
    items = [
        {
            "custom_id": f"{story.name}:{n}",
            "method": "POST",
            "url": "/v1/responses",
            "body": {"model": "example-model", "input": f"question {n}"},
        }
        for n in range(5)
    ]
    request = {"endpoint": "/v1/responses", "metadata": {"standin_scenario": story.name}}
    body = await api.call(
        "POST", "/v1/operations", body={"provider": "standin", "request": request, "items": items, "caller": "demo"}
    )
    return str(body["operation_id"])


async def _tell(api: LocalApi, ids: dict[str, str]) -> None:
    """Print each history row of each operation as it appears, until all have ended."""
    began = SystemClock().monotonic()
    supervisor = TaskSupervisor(make_log(Redactor([])))
    tellers = [supervisor.start(name, _tell_one(api, name, operation_id, began)) for name, operation_id in ids.items()]
    try:
        await asyncio.wait(tellers)
    finally:
        for teller in tellers:
            teller.cancel()


async def _tell_one(api: LocalApi, name: str, operation_id: str, began: float) -> None:
    seen, body = 0, {"done": False, "attention": None}
    while not (body["done"] or body["attention"]):
        path = f"/v1/operations/{operation_id}"
        page = await api.call("GET", f"{path}/history?cursor={seen}&wait=30", seconds=30)
        for row in page["history"]:
            seen = row["seq"]
            print(f"{SystemClock().monotonic() - began:6.1f} s  {name:18} {_told(row)}", flush=True)
        body = await api.call("GET", path)


def _told(row: dict[str, Any]) -> str:
    move = f"{row['to']}" if row["kind"] == "move" else f"({row['kind']})"
    return clean(f"{move:22} {row['reason']}")


async def _judge(api: LocalApi, stories: Sequence[Story], ids: dict[str, str]) -> int:
    print()
    right = True
    for story in stories:
        body = await api.call("GET", f"/v1/operations/{ids[story.name]}")
        rows = (await api.call("GET", f"/v1/operations/{ids[story.name]}/history"))["history"]
        rang = any(" rang)" in row["reason"] for row in rows)
        as_told = body["outcome"] == story.outcome and rang == story.rings
        right = right and as_told
        mark = "as it should" if as_told else f"NOT as it should: {story.outcome}, {'rung' if story.rings else 'swept'}"
        counts = body["summary"] or {}
        found = "rung" if rang else "found by the sweep"
        print(
            f"{story.name:18} {body['outcome']!s:22} {counts.get('succeeded', 0)} of {counts.get('total', 0)}, {found}"
        )
        print(f"{'':18} {story.tells}: {mark}")
    if "duplicate-webhook" in ids:
        hooks = (await api.call("GET", "/v1/status"))["providers"]["standin"]["webhooks"]
        right = right and hooks["duplicate"] >= 1
        print(f"\nwebhooks: {hooks['accepted']} accepted, {hooks['duplicate']} duplicate")
    print("every story ended as it should" if right else "a story did not end as it should")
    return 0 if right else 1


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(sock.getsockname()[1]) for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def _base64_secret() -> str:
    return base64.b64encode(bytes.fromhex(SystemDice().identifier("") + SystemDice().identifier(""))).decode()

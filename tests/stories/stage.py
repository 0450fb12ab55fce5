"""The stage of a story: a provider, a daemon and a client, each as others meet it: over real sockets, as a process.

Nothing here sleeps and hopes: that a daemon is ready is asked of `/readyz`, that a job has ended of `?wait=`. A
process that a story started is ended by its own id, however the story goes.
"""

import asyncio
import itertools
import json
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import aiohttp

from daemon.logs import make_log
from daemon.runtime import SystemClock, SystemDice, TaskSupervisor
from daemon.standin.serve import StandinOptions, run_standin
from daemon.standin.world import World
from reconcile.redact import Redactor
from tests.stories.work import ITEMS as ITEMS
from tests.stories.work import MESSAGES, STANDIN, WORK

#: Seconds after which a story is given up. Arbitrary, far above what any step takes on a slow machine.
PATIENCE: Final = 60
#: Seconds between two questions where nothing can be waited for. Arbitrary.
ASK_AGAIN: Final = 0.02
PROVIDER: Final = STANDIN
TOKEN: Final = "the-token-of-the-story"
SECRET: Final = "whsec_b7xnJUexacqopxJKYD3e3rj9tavgs+nAat47lc7+BGM="
ROOT: Final = Path(__file__).parents[2]

_CONFIG: Final = """\
state_dir = "{state_dir}"
[webhooks]
listen = "127.0.0.1:{hooks}"
[api]
listen = "127.0.0.1:{api}"
token = {{ env = "STORY_TOKEN" }}
[providers.{provider}]
kind = "openai_batch"
base_url = "http://127.0.0.1:{standin}/v1"
api_key = {{ env = "STORY_KEY" }}
webhook_secrets = [ {{ env = "STORY_SECRET" }} ]
[providers.{provider}.poll]
base = "{base}"
cap = "{cap}"
sweep = "{cap}"
[providers.{provider}.limits]
requests_per_second = 1000
"""
#: The same stand-in once more, as the other shape that it speaks.
_MESSAGES: Final = """\
[providers.{provider}]
kind = "anthropic_batches"
base_url = "http://{host}:{standin}/v1"
api_key = {{ env = "STORY_KEY" }}
[providers.{provider}.poll]
base = "{base}"
cap = "{cap}"
sweep = "{cap}"
[providers.{provider}.limits]
requests_per_second = 1000
"""


# ---- places ------------------------------------------------------------------------------------------------------


def _ports() -> Iterator[int]:
    """Numbers below those that Linux gives to outgoing connections, so that none of these takes a port in between."""
    return itertools.cycle(range(20_000 + os.getpid() * 97 % 10_000, 32_000))


_NUMBERS: Final = _ports()


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    while True:
        port = next(_NUMBERS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


@dataclass(frozen=True, slots=True)
class Home:
    """Where one daemon lives: its configuration, state directory and ports, the same in every life of it."""

    folder: Path
    hooks: int = field(default_factory=free_port)
    api: int = field(default_factory=free_port)
    standin: int = field(default_factory=free_port)
    #: Where the stand-in listens if something stands before it (gate.py).
    behind: int = field(default_factory=free_port)

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.folder / "reconciled.toml"

    @property
    def state_dir(self) -> Path:
        """The state directory."""
        return self.folder / "state"

    @property
    def database(self) -> Path:
        """The one file that everything stands in."""
        return self.state_dir / "reconciled.db"

    @property
    def api_url(self) -> str:
        """The local API."""
        return f"http://127.0.0.1:{self.api}"

    @property
    def webhook_url(self) -> str:
        """Where the provider sends its events."""
        return f"http://127.0.0.1:{self.hooks}/webhooks/{PROVIDER}"

    def rows(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        """What stands in the file, by a connection that cannot write."""
        with closing(sqlite3.connect(f"{self.database.as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(sql, parameters)]


def settle(folder: Path, *, base: str = "1s", cap: str = "2s", messages: str | None = None) -> Home:
    """A new home with its configuration; `base` and `cap` bound how often a job is read unasked.

    `messages`: the host by which the stand-in is also configured as a provider of Message Batches.
    """
    home = Home(folder)
    folder.mkdir(parents=True, exist_ok=True)
    home.config.write_text(
        _CONFIG.format(
            state_dir=home.state_dir,
            hooks=home.hooks,
            api=home.api,
            standin=home.standin,
            provider=PROVIDER,
            base=base,
            cap=cap,
        )
    )
    if messages is not None:
        with home.config.open("a") as file:
            file.write(_MESSAGES.format(provider=MESSAGES, host=messages, standin=home.standin, base=base, cap=cap))
    return home


# ---- processes ---------------------------------------------------------------------------------------------------


class Alive(Protocol):
    """A process of which it can be told whether it still runs."""

    @property
    def is_alive(self) -> bool:
        """Whether it does, as far as we have heard."""
        ...


@dataclass(frozen=True, slots=True)
class Actor:
    """A process of the story, and what it says."""

    process: asyncio.subprocess.Process
    log: Path

    @property
    def is_alive(self) -> bool:
        """Whether it still runs, as far as we have heard."""
        return self.process.returncode is None

    @property
    def said(self) -> str:
        """All that it wrote to stdout and stderr."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    async def end(self) -> int:
        """Wait until it has ended by itself; its exit status, negative for a signal."""
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    async def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; its exit status."""
        if self.is_alive:
            self.process.send_signal(by)
        return await self.end()


@asynccontextmanager
async def acting(home: Home, *arguments: str) -> AsyncIterator[Actor]:
    """`python -m ARGUMENTS` in the environment of the story; killed on the way out if it still runs."""
    environ = {**os.environ, "STORY_TOKEN": TOKEN, "STORY_KEY": "key-of-nobody", "STORY_SECRET": SECRET}
    environ |= {"RECONCILED_WEBHOOK_SECRET": SECRET, "PYTHONPATH": str(ROOT)}
    log = _new_log(home.folder)
    with log.open("wb") as stream:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *arguments, stdout=stream, stderr=stream, env=environ, cwd=home.folder
        )
    try:
        yield Actor(process, log)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _new_log(folder: Path) -> Path:
    return folder / f"{len(list(folder.glob('*.log')))}.log"


def serving(home: Home) -> AbstractAsyncContextManager[Actor]:
    """The daemon as its users start it, not yet ready."""
    return acting(home, "daemon", "serve", "--config", str(home.config))


def simulating(home: Home, *, speed: float, scenario: str = "normal") -> AbstractAsyncContextManager[Actor]:
    """The stand-in provider as a process of its own, which sends its webhooks to the daemon."""
    listen = ("--listen", f"127.0.0.1:{home.standin}", "--webhook-url", home.webhook_url)
    return acting(home, "daemon", "simulate", *listen, "--speed", str(speed), "--scenario", scenario)


@asynccontextmanager
async def playing(home: Home, *, speed: float, scenario: str = "normal") -> AsyncIterator[tuple[Actor, "Client"]]:
    """Two processes, the provider and the ready daemon, and a client of the daemon."""
    async with (
        simulating(home, speed=speed, scenario=scenario) as simulation,
        serving(home) as daemon,
        client_of(home) as client,
    ):
        await client.until_ready(daemon)
        await client.until_provider_answers(simulation)
        yield daemon, client


@asynccontextmanager
async def provider(home: Home, world: World, *, port: int | None = None) -> AsyncIterator[None]:
    """The stand-in provider on a real socket of this process, so that its `world` can be asked for the truth."""
    stop, ready = asyncio.Event(), asyncio.Event()
    with _new_log(home.folder).open("w", encoding="utf-8") as stream:
        log = make_log(Redactor([SECRET]), stream=stream)
        supervisor = TaskSupervisor(log)
        options = StandinOptions(port=port or home.standin, webhook_url=home.webhook_url, webhook_secret=SECRET)
        task = supervisor.start(
            "provider",
            run_standin(
                options,
                clock=SystemClock(),
                dice=SystemDice(),
                supervisor=supervisor,
                log=log,
                stop=stop,
                on_ready=lambda _: ready.set(),
                world=world,
            ),
        )
        try:
            async with asyncio.timeout(PATIENCE):
                await ready.wait()
            yield
        finally:
            stop.set()
            await task


# ---- the client --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the local API."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Client:
    """Somebody who holds the token. Each call has a connection of its own, so none outlives a killed daemon."""

    def __init__(self, home: Home, session: aiohttp.ClientSession) -> None:
        self._home, self._session = home, session

    async def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Answer:
        """One call, whatever its answer. Raises: aiohttp.ClientError, where there is none."""
        headers = {"Authorization": f"Bearer {TOKEN}"} | ({"Idempotency-Key": key} if key else {})
        async with self._session.request(method, self._home.api_url + path, json=body, headers=headers) as answer:
            data = await answer.read()
            return Answer(answer.status, answer.headers, json.loads(data) if _is_json(answer) else data)

    async def get(self, path: str) -> Any:
        """The body of a GET that must go well."""
        answer = await self.call("GET", path)
        assert answer.status == 200, (path, answer)
        return answer.body

    async def until_ready(self, daemon: Alive) -> None:
        """Ask `/readyz` until the daemon is ready. Raises: aiohttp.ClientError, if it was killed before."""

        async def is_ready() -> bool:
            return (await self.call("GET", "/readyz")).status == 200

        await self._until(daemon, is_ready)

    async def until_provider_answers(self, simulation: Actor) -> None:
        """Ask the provider for its list until it answers."""

        async def answers() -> bool:
            return bool(await self.of_provider("batches"))

        await self._until(simulation, answers)

    async def _until(self, actor: Alive, is_so: Callable[[], Awaitable[bool]]) -> None:
        """Ask a process that was started just now until it is as asked, or has ended."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    if await is_so():
                        return
                except aiohttp.ClientError:
                    if not actor.is_alive:
                        raise
                await asyncio.sleep(ASK_AGAIN)

    async def start(
        self,
        key: str | None = None,
        *,
        scenario: str | None = None,
        provider: str = PROVIDER,
        items: int = ITEMS,
        **more: Any,
    ) -> Answer:
        """Start a batch of a few items; `key` is the idempotency key."""
        return await self.call("POST", "/v1/operations", {**WORK[provider](scenario, items), **more}, key=key)

    async def started(self, **how: Any) -> str:
        """The id of an operation that was started just now."""
        answer = await self.start(**how)
        assert answer.status == 202, answer
        return str(answer.body["operation_id"])

    async def end_of(self, operation_id: str) -> dict[str, Any]:
        """The operation once it has ended, or needs a person."""
        body: dict[str, Any] = await self.get(f"/v1/operations/{operation_id}?wait={PATIENCE}")
        assert body["wait"]["result"] != "timed_out", body
        return body

    async def until(self, operation_id: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The operation once it is as asked; looked at anew with each row of its history."""
        seen = 0
        async with asyncio.timeout(PATIENCE):
            while True:
                body: dict[str, Any] = await self.get(f"/v1/operations/{operation_id}")
                if is_so(body):
                    return body
                rows = await self.get(f"/v1/operations/{operation_id}/history?cursor={seen}&wait=5")
                seen = max([seen, *(row["seq"] for row in rows["history"])])

    async def until_seen(self, operation_id: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The operation once it is as asked, where no row of its history tells of that; it must not end before."""
        async with asyncio.timeout(PATIENCE):
            while not is_so(body := await self.get(f"/v1/operations/{operation_id}")):
                assert not body["done"], body
                await asyncio.sleep(ASK_AGAIN)
            return dict(body)

    async def history(self, operation_id: str) -> list[dict[str, Any]]:
        """All history rows of an operation."""
        body = await self.get(f"/v1/operations/{operation_id}/history?limit=500")
        return list(body["history"])

    async def webhooks(self, **least: int) -> dict[str, Any]:
        """How the provider's deliveries were taken, as the status page says, once it counts as many as named."""
        async with asyncio.timeout(PATIENCE):
            while True:
                taken: dict[str, Any] = (await self.get("/v1/status"))["providers"][PROVIDER]["webhooks"]
                if all(taken[name] >= number for name, number in least.items()):
                    return taken
                await asyncio.sleep(ASK_AGAIN)

    async def of_provider(self, path: str) -> Any:
        """What the provider itself says, asked past the daemon; result lines as a list."""
        url = f"http://127.0.0.1:{self._home.standin}/v1/{path}"
        headers = {"Authorization": "Bearer key-of-nobody", "anthropic-version": "2023-06-01"}
        async with self._session.get(url, headers=headers) as answer:
            data = await answer.read()
            assert answer.status == 200, data
            return json.loads(data) if _is_json(answer) else [json.loads(line) for line in data.splitlines()]

    async def deliver(self, body: bytes, headers: Mapping[str, str]) -> int:
        """Send a webhook; the status it was answered with."""
        return (await self.deliver_at_length(body, headers))[0]

    async def deliver_at_length(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
        """Send a webhook; the status and the headers of its answer."""
        async with self._session.post(self._home.webhook_url, data=body, headers=headers) as answer:
            return answer.status, answer.headers


@asynccontextmanager
async def client_of(home: Home) -> AsyncIterator[Client]:
    """A client of whatever daemon lives there."""
    timeout = aiohttp.ClientTimeout(total=2 * PATIENCE)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True), timeout=timeout) as session:
        yield Client(home, session)


def _is_json(answer: aiohttp.ClientResponse) -> bool:
    return answer.content_type in ("application/json", "application/problem+json")


def moves(history: list[dict[str, Any]]) -> list[str]:
    """The states that a history went through."""
    return [row["to"] for row in history if row["kind"] == "move"]

"""The bench for tests of the stand-in over sockets: its server, a clock that is moved by hand, a webhook's receiver
and the official SDKs pointed at it; and the strict checker of its bodies, with proof that it is one.

The SDKs take almost anything without a word, so bodies are checked a second time, strictly: right types, known words,
no field that the provider does not have.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final, TypeVar

import aiohttp
import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer
from anthropic import AsyncAnthropic
from anthropic.types import Message
from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse
from openai import AsyncOpenAI
from openai.types import Batch
from pydantic import BaseModel, TypeAdapter, ValidationError

from daemon.standin.anthropic_face import add_message_batches
from daemon.standin.openai_face import build_app
from daemon.standin.scenarios import SCENARIO_KEY, SCENARIOS, Scenario
from daemon.standin.world import World

SECRET = "whsec_b7xnJUexacqopxJKYD3e3rj9tavgs+nAat47lc7+BGM="
NORMAL = SCENARIOS["normal"]
#: Nothing here waits that long; a test that hangs is told apart from a slow machine. Seconds.
PATIENCE = 20
NOTHING: Final[dict[str, Any]] = {}
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


# What is handed in.


class ManualClock:
    """Time that a test moves. It begins at the real now, because the verifiers of other people look at theirs."""

    def __init__(self) -> None:
        self.now_ms = int(time.time()) * 1000
        self._wakes: set[asyncio.Event] = set()
        self._waits: asyncio.Queue[float | None] = asyncio.Queue()

    def now(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1000

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        for wake in self._wakes:
            wake.set()

    async def pause(self, wake: asyncio.Event, seconds: float | None) -> None:
        """Whoever waits here is woken by each move of the clock, and by nothing that passes by itself."""
        self._wakes.add(wake)
        self._waits.put_nowait(seconds)
        await wake.wait()

    async def is_waited(self, seconds: float) -> None:
        """Until somebody waits for just so long."""
        while await asyncio.wait_for(self._waits.get(), PATIENCE) != seconds:
            pass


class CountingDice:
    def __init__(self) -> None:
        self._numbers = count(1)

    def draw(self) -> float:
        return 0.5

    def identifier(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers):06d}"

    def seed(self) -> bytes:
        return bytes(32)

    def trace_id(self) -> str:
        return f"{next(self._numbers):032x}"


class TaskStarter:
    def __init__(self) -> None:
        #: Deliveries of webhooks that were begun and not yet waited for.
        self.deliveries: asyncio.Queue[asyncio.Task[None]] = asyncio.Queue()

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work, name=name)
        if name == "standin_delivery":
            self.deliveries.put_nowait(task)
        return task

    async def offload(self, function: Callable[[], T]) -> T:
        return function()


class Receiver:
    """A webhook's other end: keeps what came and answers as told."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self._came: asyncio.Queue[tuple[dict[str, str], bytes]] = asyncio.Queue()

    async def take(self, request: web.Request) -> web.Response:
        self._came.put_nowait((dict(request.headers), await request.read()))
        status = self.answers.pop(0) if self.answers else 200
        return web.Response(status=status, headers={"location": "/elsewhere"} if status in {301, 307} else None)

    async def next(self) -> tuple[dict[str, str], bytes]:
        return await asyncio.wait_for(self._came.get(), PATIENCE)

    def is_empty(self) -> bool:
        return self._came.empty()


class Bench:
    """A running stand-in, its clock, its world, a receiver and the SDKs pointed at it."""

    def __init__(
        self, world: World, clock: ManualClock, starter: TaskStarter, receiver: Receiver, client: AsyncOpenAI, url: str
    ) -> None:
        self.world, self.clock, self.receiver, self.client, self.url = world, clock, receiver, client, url
        self._starter = starter
        self.anthropic: AsyncAnthropic
        self.stop_receiver: Callable[[], Awaitable[None]]

    async def start_job(
        self, names: list[str], *, endpoint: str = "/v1/responses", scenario: str | None = None
    ) -> Batch:
        file = await self.client.files.create(file=("in.jsonl", input_of(names, endpoint)), purpose="batch")
        metadata = {"job": "1"} | ({} if scenario is None else {SCENARIO_KEY: scenario})
        return await self.client.batches.create(
            input_file_id=file.id,
            endpoint=endpoint,  # type: ignore[arg-type]  # a literal there, a table's row here
            completion_window="24h",
            metadata=metadata,
        )

    async def delivery_begun(self) -> None:
        """Until a webhook is under way."""
        self._starter.deliveries.put_nowait(await asyncio.wait_for(self._starter.deliveries.get(), PATIENCE))

    async def settled(self) -> None:
        """Until each webhook that was begun has been answered, in the world's books too."""
        while not self._starter.deliveries.empty():
            await asyncio.wait_for(self._starter.deliveries.get_nowait(), PATIENCE)


def input_of(names: list[str], endpoint: str = "/v1/responses") -> bytes:
    lines = [
        {"custom_id": name, "method": "POST", "url": endpoint, "body": {"model": "example-model", "input": "hello"}}
        for name in names
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@asynccontextmanager
async def running(
    scenario: Scenario = NORMAL, message_batches: dict[str, Any] = NOTHING, **more: Any
) -> AsyncIterator[Bench]:
    """The bench, for as long as it is needed; `more` and `message_batches` go to the two faces."""
    clock, starter, receiver = ManualClock(), TaskStarter(), Receiver()
    hooks = web.Application()
    hooks.router.add_post("/hooks", receiver.take)
    world = World(scenario, ids=CountingDice().identifier)
    async with TestServer(hooks) as hook_server:
        app = build_app(
            world,
            clock,
            starter,
            webhook_url=str(hook_server.make_url("/hooks")),
            webhook_secret=SECRET,
            session_factory=aiohttp.ClientSession,
            log=structlog.get_logger(),
            pause=clock.pause,
            **more,
        )
        add_message_batches(app, world, clock, pause=clock.pause, **message_batches)
        async with TestServer(app) as server:
            url = str(server.make_url("/v1"))
            address = str(server.make_url("")).rstrip("/")
            async with (
                AsyncOpenAI(
                    api_key="sk-any", base_url=url, max_retries=0, webhook_secret=SECRET, timeout=PATIENCE
                ) as client,
                AsyncAnthropic(api_key="sk-ant-any", base_url=address, max_retries=0, timeout=PATIENCE) as anthropic,
            ):
                bench = Bench(world, clock, starter, receiver, client, url)
                bench.anthropic, bench.stop_receiver = anthropic, hook_server.close
                yield bench


# The strict checker, and proof that it is one.


def strictly(kind: type[M], body: object) -> M:
    """`body` as the SDK's type: no coercion, only words of the enums, no field that the type does not name.

    As JSON, for only there is a string with a moment in it of the right type.
    """
    found = TypeAdapter(kind).validate_json(json.dumps(body), strict=True)
    unknown = list(_extras(found, kind.__name__))
    if unknown:
        raise ValueError(f"not in the SDK's types: {', '.join(unknown)}")
    return found


def _extras(found: object, where: str) -> Iterator[str]:
    if isinstance(found, BaseModel):
        yield from (f"{where}.{name}" for name in found.model_extra or {})
        for name in type(found).model_fields:
            yield from _extras(getattr(found, name), f"{where}.{name}")
    elif isinstance(found, list):
        for number, each in enumerate(found):
            yield from _extras(each, f"{where}[{number}]")


@pytest.mark.parametrize(
    "change",
    [
        {"status": "paused_by_policy"},
        {"object": "list"},
        {"created_at": "1795953600"},
        {"created_at": 1795953600.5},
        {"metadata": {"a": 1}},
        {"request_counts": {"total": 1}},
        {"errors": {"object": "list", "data": [{"line": "3"}]}},
        {"usage": {"total_tokens": 1}},
        {"not_a_field": 1},
        {"request_counts": {"total": 1, "completed": 1, "failed": 0, "expired": 0}},
        {"id": None},
    ],
)
def test_the_checker_refuses_what_the_sdk_would_let_pass(change: dict[str, object]) -> None:
    world = World(NORMAL, ids=CountingDice().identifier)
    body = world.read(world.seed_job(items=1, now_ms=0), 10**6)
    strictly(Batch, body)
    Batch.construct(**(body | change))  # type: ignore[arg-type]  # what the SDK does: no complaint
    with pytest.raises((ValidationError, ValueError)):
        strictly(Batch, body | change)


@pytest.mark.parametrize(
    "change",
    [
        {"processing_status": "paused_by_policy"},
        {"type": "batch"},
        {"created_at": "tomorrow"},
        {"created_at": True},
        {"request_counts": {"processing": 1}},
        {"results_url": 7},
        {"metadata": {}},
        {"id": None},
    ],
)
def test_the_checker_refuses_a_message_batch_that_is_none(change: dict[str, object]) -> None:
    world = World(NORMAL, ids=CountingDice().identifier)
    body = world.message_batches.read(world.message_batches.seed_job(items=1, now_ms=0), 10**6)
    strictly(MessageBatch, body)
    MessageBatch.construct(**(body | change))  # type: ignore[arg-type]  # what the SDK does: no complaint
    with pytest.raises((ValidationError, ValueError)):
        strictly(MessageBatch, body | change)


def test_the_checker_looks_into_a_result_line() -> None:
    world = World(NORMAL, ids=CountingDice().identifier)
    (line,) = world.message_batches.results(world.message_batches.seed_job(items=1, now_ms=0), 10**6)
    body = json.loads(line)
    strictly(MessageBatchIndividualResponse, body)
    strictly(Message, body["result"]["message"])
    body["result"]["message"]["mood"] = "good"
    with pytest.raises(ValueError, match="mood"):
        strictly(MessageBatchIndividualResponse, body)

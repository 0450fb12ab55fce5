"""The real clock, dice, supervisor and resolver: the one room where time, randomness, tasks and threads come from."""

import asyncio
import contextlib
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import aiohttp
import aiosqlite
from aiohttp.abc import AbstractResolver, ResolveResult

from reconcile.client import KEEPALIVE_SECONDS

T = TypeVar("T")


class SystemClock:
    """The machine's wall clock and its monotonic clock."""

    def now(self) -> int:
        """Unix ms, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()


class SystemDice:
    """The operating system's randomness; for what is nobody's secret, numbers that grow out of it once."""

    def __init__(self) -> None:
        self._jitter = random.Random(secrets.randbits(256))  # noqa: S311 - it spreads waits, and asks the kernel nothing

    def draw(self) -> float:
        """A number in [0, 1)."""
        return self._jitter.random()

    def identifier(self, prefix: str) -> str:
        """`prefix` and 128 random bits, hex."""
        return prefix + secrets.token_hex(16)

    def seed(self) -> bytes:
        """32 random bytes."""
        return secrets.token_bytes(32)

    def trace_id(self) -> str:
        """32 hex digits, not all zero."""
        return f"{secrets.randbits(127) + 1:032x}"


class TaskSupervisor:
    """Starts named tasks and logs what escapes from them."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run `work` as a task; an exception that leaves it is logged with its traceback."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        return task

    async def offload(self, function: Callable[[], T]) -> T:
        """Run a short blocking function in a thread."""
        return await asyncio.to_thread(function)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        fault = task.exception()
        if fault is not None:
            self._log.error("task_failed", task=task.get_name(), exc_info=fault)


class SystemResolver(AbstractResolver):
    """The machine's own resolver, a thread for each name that is looked up just now.

    A name server that hangs so costs one thread a name, holds up no other name and no file, and no stop either.
    """

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, int], asyncio.Future[list[ResolveResult] | OSError]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Every address of a name, in the order in which they should be tried. Raises: OSError."""
        key = (host, port)
        if key not in self._under_way:
            loop = asyncio.get_running_loop()
            answered: asyncio.Future[list[ResolveResult] | OSError] = loop.create_future()
            answered.add_done_callback(lambda _: self._under_way.pop(key, None))
            self._under_way[key] = answered
            asked = threading.Thread(target=_ask, args=(loop, answered, host, port, family), daemon=True)
            asked.start()
        answer = await asyncio.shield(self._under_way[key])
        if isinstance(answer, OSError):
            raise answer
        return answer

    async def close(self) -> None:
        """Nothing is held."""


def _ask(
    loop: asyncio.AbstractEventLoop,
    answered: "asyncio.Future[list[ResolveResult] | OSError]",
    host: str,
    port: int,
    family: socket.AddressFamily,
) -> None:
    """On a thread of its own; an answer that comes when the loop is closed is nobody's."""
    answer: list[ResolveResult] | OSError
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
        answer = [
            ResolveResult(hostname=host, host=str(place[0]), port=port, family=kind, proto=proto, flags=0)
            for kind, _, proto, _, place in found
        ]
    except (OSError, ValueError) as fault:  # ValueError: a name that IDNA does not know
        answer = fault if isinstance(fault, OSError) else OSError(str(fault))
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(answered.set_result, answer)


def open_connector() -> aiohttp.BaseConnector:
    """Connections to whoever is asked; how many there may be at once is each provider's own limit."""
    return aiohttp.TCPConnector(keepalive_timeout=KEEPALIVE_SECONDS, limit=0)


async def open_sqlite(database: str, *, uri: bool = False, factory: Any = None) -> Any:
    """An aiosqlite connection in autocommit mode, on a thread of its own."""
    more = {} if factory is None else {"factory": factory}
    connection = aiosqlite.connect(database, uri=uri, isolation_level=None, cached_statements=256, **more)
    try:
        return await connection
    except BaseException:
        # aiosqlite tells its thread to end and does not wait: a loop that is closed meanwhile makes the thread print
        # a traceback under our one sentence.
        await asyncio.to_thread(connection._thread.join)  # noqa: SLF001 - it has no public way to wait
        raise

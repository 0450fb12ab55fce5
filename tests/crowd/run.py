"""A crowd that waits: 5,000 waiters and 1,000 streams on one daemon process, and what they cost it.

    python -m tests.crowd.run [--waiters N] [--streams N] [--idle SECONDS]

The daemon is a process of its own, its provider the stand-in; its jobs run for ever, so that nothing happens until they
are cancelled. Connections are counted in the kernel's table, memory in `/proc`, statements by SQLite's own trace.

Exit 0 only if all were connected at once, they cost less than 200 MiB, asked the database nothing while nothing
happened, and each was told of what then happened to what it watches.
"""

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from daemon.runtime import SystemDice
from daemon.standin.scenarios import find_scenario
from daemon.standin.world import World
from tests.stories.seamed import statements_in
from tests.stories.stage import PATIENCE, TOKEN, Client, Home, acting, client_of, provider, settle

#: What the crowd may add to the daemon's memory, MiB (requirements of the house).
MAX_GROWTH: Final = 200
OPERATIONS: Final = 50
#: Of so many waiters one waits for ten operations at once, and of so many streams one is of one operation.
MANY_EACH: Final = 5
OWN_EACH: Final = 2
#: Connections that are being opened at a time: as many as the listener's queue takes.
AT_A_TIME: Final = 100
ESTABLISHED: Final = "01"
_END: Final = b'"to":"cancelled"'


@dataclass
class Visitor:
    """One connection, what it watches, and what came of it."""

    path: str
    watches: frozenset[str]
    is_stream: bool
    writer: asyncio.StreamWriter | None = None
    told: bytearray = field(default_factory=bytearray)
    ended_after: float | None = None
    ends: int = 0
    _looked_at: int = 0

    async def come(self, home: Home) -> asyncio.StreamReader:
        """Connect and ask."""
        reader, self.writer = await asyncio.open_connection("127.0.0.1", home.api, limit=4096)
        head = f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{home.api}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        self.writer.write(head.encode())
        return reader

    async def listen(self, reader: asyncio.StreamReader, began: Callable[[], float]) -> None:
        """Take all that comes, until the other side has no more to say."""
        while data := await reader.read(65_536):
            self.told += data
            if self._has_all():
                self.ended_after = began()
                return

    def _has_all(self) -> bool:
        if not self.is_stream:
            return b"\r\n\r\n" in self.told and self.told.endswith(b"}")
        self.ends += self.told.count(_END, max(0, self._looked_at - len(_END) + 1))
        self._looked_at = len(self.told)
        return self.ends >= len(self.watches)


def kernel_count(port: int) -> int:
    """Connections of that local port that the kernel holds as established."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    return sum(1 for line in lines if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == ESTABLISHED)


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """Time on a processor that a process has had, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def visitors(operations: Sequence[str], waiters: int, streams: int) -> list[Visitor]:
    """Who comes: waiters for one and for ten, streams of one and of all."""
    found = []
    for n in range(waiters):
        if n % MANY_EACH:
            name = operations[n % len(operations)]
            found.append(Visitor(f"/v1/operations/{name}?wait=600", frozenset({name}), is_stream=False))
        else:
            names = [operations[(n + step) % len(operations)] for step in range(10)]
            ids = "&".join(f"id={name}" for name in names)
            found.append(Visitor(f"/v1/wait?{ids}&mode=any&wait=600", frozenset(names), is_stream=False))
    for n in range(streams):
        if n % OWN_EACH:
            name = operations[n % len(operations)]
            found.append(Visitor(f"/v1/operations/{name}/events", frozenset({name}), is_stream=True))
        else:
            found.append(Visitor("/v1/events", frozenset(operations), is_stream=True))
    return found


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it is so."""
    async with asyncio.timeout(PATIENCE):
        while not await is_so():  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0.05)


async def run(home: Home, waiters: int, streams: int, idle: float) -> list[str]:
    """The whole visit; what was not as it should be."""
    statements = home.folder / "statements"
    arguments = ("--config", str(home.config), "--statements", str(statements))
    async with (
        provider(home, World(find_scenario("never-ends"), ids=SystemDice().identifier)),
        acting(home, "tests.stories.seamed", *arguments) as daemon,
        client_of(home) as client,
    ):
        await client.until_ready(daemon)
        operations = [await client.started(items=1) for _ in range(OPERATIONS)]
        for name in operations:
            await client.until(name, lambda body: body["remote_job_id"] is not None)
        pid = daemon.process.pid
        await asyncio.sleep(2)  # its last writes
        quiet, before = statements_in(statements), rss_mib(pid)
        await asyncio.sleep(idle)
        alone = statements_in(statements) - quiet

        crowd = visitors(operations, waiters, streams)
        began = 0.0
        listening: list[asyncio.Task[None]] = []
        gate = asyncio.Semaphore(AT_A_TIME)

        async def come(visitor: Visitor) -> None:
            async with gate:
                reader = await visitor.come(home)
            listening.append(asyncio.create_task(visitor.listen(reader, lambda: time.monotonic() - began)))

        came = time.monotonic()
        async with asyncio.TaskGroup() as coming:
            for visitor in crowd:
                coming.create_task(come(visitor))
        await until(lambda: _all_stand(home, crowd))
        await _settled(statements)
        here, with_crowd = kernel_count(home.api), rss_mib(pid)
        print(f"{here} connections of {len(crowd)} stand after {time.monotonic() - came:.1f} s", flush=True)
        growth = with_crowd - before
        print(f"memory {before:.1f} -> {with_crowd:.1f} MiB: {growth:.1f}, {growth * 1024 / len(crowd):.1f} KiB each")

        quiet, cpu = statements_in(statements), cpu_seconds(pid)
        await asyncio.sleep(idle)
        asked, spent = statements_in(statements) - quiet, cpu_seconds(pid) - cpu
        print(f"{idle:g} s of silence: {asked} statements ({alone} without a crowd), {spent / idle:.1%} of a processor")

        began, cpu = time.monotonic(), cpu_seconds(pid)
        await _cancel(client, operations)
        _, late = await asyncio.wait(listening, timeout=PATIENCE)
        for task in late:
            task.cancel()
        untold = [visitor for visitor in crowd if visitor.ended_after is None]
        times = sorted(visitor.ended_after or PATIENCE for visitor in crowd)
        print(f"told: {len(crowd) - len(untold)} of {len(crowd)}, the last after {times[-1]:.1f} s,", flush=True)
        print(f"with {cpu_seconds(pid) - cpu:.1f} s of the daemon's time on a processor", flush=True)
        print(f"memory at the end {rss_mib(pid):.1f} MiB", flush=True)
        for visitor in crowd:
            if visitor.writer is not None:
                visitor.writer.close()
        wrong = [f"{visitor.path} was not told" for visitor in untold[:5]]
        wrong += [] if here >= len(crowd) else [f"only {here} connections stood at once"]
        wrong += [] if growth < MAX_GROWTH else [f"the crowd costs {growth:.1f} MiB"]
        wrong += [] if asked <= max(alone, idle) else [f"{asked} statements in {idle:g} s of silence"]
        status = await daemon.stop()
        return wrong + ([] if status == 0 else [f"the daemon ended with {status}"])


async def _all_stand(home: Home, crowd: Sequence[Visitor]) -> bool:
    """The kernel has every connection, and every stream has begun."""
    return kernel_count(home.api) >= len(crowd) and all(b"event:" in v.told for v in crowd if v.is_stream)


async def _settled(statements: Path) -> None:
    """Until each waiter has asked for what it waits for: nothing more is asked for a while."""
    last = -1
    while (now := statements_in(statements)) != last:
        last = now
        await asyncio.sleep(1)


async def _cancel(client: Client, operations: Sequence[str]) -> None:
    for name in operations:
        body = {"by": "the crowd's host", "reason": "it is late", "effect": "all go home"}
        answer = await client.call("POST", f"/v1/operations/{name}/cancel", body)
        assert answer.status == 202, answer


def main() -> int:
    """Invite, count, send home."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--waiters", type=int, default=5_000)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--idle", type=float, default=15)
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        home = settle(Path(folder), base="10m", cap="10m")
        wrong = asyncio.run(run(home, arguments.waiters, arguments.streams, arguments.idle))
    print(json.dumps({"wrong": wrong}) if wrong else "all as it should be", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""`reconciled serve` with one seam exchanged, where a story needs what no configuration can ask for.

Run as `python -m tests.stories.seamed --config FILE`, and where a story needs it:

* `--clock-speed 30`: its clocks run thirty times as fast as ours, since `--clock-from` (unix ms; else its start), which
  a second life is given again lest time go back. What it sleeps is our time, so between two of its reads more time
  passes for it than it meant to wait, never less.
* `--hosts FILE`: names are looked up in that file first (`ADDRESS NAME` a line, read at each look-up), then as ever.
* `--statements FILE`: how many statements its database ran, as SQLite itself reports them, stands in that file: eight
  bytes a connection, little-endian, at every moment.
"""

import argparse
import asyncio
import itertools
import mmap
import os
import socket
import sqlite3
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from daemon.config import load
from daemon.logs import make_log
from daemon.meters import Counts
from daemon.rooms import Seams
from daemon.runtime import SystemClock, SystemDice, TaskSupervisor, open_sqlite
from daemon.service import serve
from reconcile.model import UnixMs
from reconcile.redact import Redactor


@dataclass(frozen=True, slots=True)
class HurriedClock:
    """A clock that goes `speed` times as fast as the system's since `since`, unix ms."""

    speed: float
    since: UnixMs
    _clock: SystemClock = field(default_factory=SystemClock)

    def now(self) -> UnixMs:
        """Unix ms, ahead of the world's."""
        return self.since + int((self._clock.now() - self.since) * self.speed)

    def monotonic(self) -> float:
        """Seconds."""
        return self._clock.monotonic() * self.speed


class HostsFile(AbstractResolver):
    """A resolver with a hosts file of the story's own; a name that is not in it is asked for as ever."""

    def __init__(self, hosts: Path) -> None:
        self._hosts = hosts
        self._others = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The file's address, or the system's answer. Raises: OSError, where there is none."""
        lines = self._hosts.read_text().splitlines() if self._hosts.exists() else []
        known = {name: address for address, name in map(str.split, lines)}
        if host not in known:
            return await self._others.resolve(host, port, family)
        flags = socket.AI_NUMERICHOST
        return [ResolveResult(hostname=host, host=known[host], port=port, family=family, proto=0, flags=flags)]

    async def close(self) -> None:
        """Nothing is held."""


class CountedSqlite:
    """Opens connections, and writes how many statements each has run where another process can read it."""

    def __init__(self, statements: Path) -> None:
        statements.write_bytes(bytes(mmap.PAGESIZE))
        with statements.open("r+b") as file:
            self._counts = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._slots = itertools.count(0, 8)

    async def __call__(self, database: str, *, uri: bool = False, factory: Any = None) -> Any:
        """The open connection."""

        def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = (factory or sqlite3.Connection)(*args, **kwargs)
            slot, count = next(self._slots), itertools.count(1)
            connection.set_trace_callback(lambda _: struct.pack_into("<Q", self._counts, slot, next(count)))
            return connection

        return await open_sqlite(database, uri=uri, factory=connect)


def statements_in(statements: Path) -> int:
    """How many statements such a daemon has run so far, all its connections together."""
    return sum(count for (count,) in struct.iter_unpack("<Q", statements.read_bytes()))


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--clock-speed", type=float, default=1)
    parser.add_argument("--clock-from", type=int, default=SystemClock().now())
    parser.add_argument("--hosts", type=Path)
    parser.add_argument("--statements", type=Path)
    arguments = parser.parse_args()
    config = load(arguments.config, os.environ)
    log = make_log(Redactor(config.secrets))
    hosts: Path | None = arguments.hosts

    def connector() -> aiohttp.BaseConnector:
        resolver = HostsFile(hosts) if hosts is not None else None
        return aiohttp.TCPConnector(keepalive_timeout=4, limit=0, resolver=resolver)

    seams = Seams(
        clock=HurriedClock(arguments.clock_speed, arguments.clock_from),
        dice=SystemDice(),
        supervisor=TaskSupervisor(log),
        meters=Counts(),
        opener=open_sqlite if arguments.statements is None else CountedSqlite(arguments.statements),
        connector=connector,
        log=log,
    )
    asyncio.run(serve(config, seams))


if __name__ == "__main__":
    main()

"""Openers that stand in for `aiosqlite.connect`: one inline in the loop's thread, one on aiosqlite's real thread.

Both are called like the production opener and give a connection with `commit`, `execute_fetchall` and `close`. Both
register with the loop's last rites, so that a store of a crashed life refuses before it touches the file.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import aiosqlite
import aiosqlite.core

from tests.simulation.loop import VirtualLoop

T = TypeVar("T")


class Dead(BaseException):
    """The process that owned this handle was killed; no `except Exception` may take it for a database error."""


class InlineConnection:
    """The same sqlite3 calls as on aiosqlite's thread, made at once; the result comes by a later step."""

    def __init__(self, opener: "InlineSqlite", raw: sqlite3.Connection) -> None:
        self._opener = opener
        self._raw = raw

    async def commit(self) -> None:
        """End the transaction through the factory's own `commit`, hooks and all."""
        await self._opener.run(self._raw.commit)

    async def execute_fetchall(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run one statement and return all its rows."""
        return await self._opener.run(lambda: self._raw.execute(sql, parameters).fetchall())

    async def close(self) -> None:
        """Close the handle; what was not committed is rolled back."""
        await self._opener.run(self._raw.close)


class InlineSqlite:
    """`open` for worlds: `await InlineSqlite(loop)(path, uri=..., factory=...)`."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._handles: list[sqlite3.Connection] = []
        self.dead = False
        loop.last_rites.append(self.kill)

    async def __call__(
        self, database: str, *, uri: bool = False, factory: type[sqlite3.Connection] | None = None
    ) -> InlineConnection:
        """Open `database` in autocommit mode, as production does."""
        raw = await self.run(lambda: _open(database, uri=uri, factory=factory))
        self._handles.append(raw)
        return InlineConnection(self, raw)

    async def run(self, function: Callable[[], T]) -> T:
        """Refuse if dead; else call now and answer in a later step."""
        if self.dead:
            raise Dead
        return await self._loop.deliver(function)

    def kill(self) -> None:
        """Close the handles without committing, and refuse from now on."""
        self.dead = True
        for handle in self._handles:
            handle.close()


class ThreadedConnection:
    """aiosqlite's own connection behind the dead switch."""

    def __init__(self, opener: "ThreadedSqlite", real: aiosqlite.Connection) -> None:
        self._opener = opener
        self._real = real

    async def commit(self) -> None:
        """End the transaction on the thread."""
        self._opener.refuse_if_dead()
        await self._real.commit()

    async def execute_fetchall(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run one statement on the thread."""
        self._opener.refuse_if_dead()
        return list(await self._real.execute_fetchall(sql, parameters))

    async def close(self) -> None:
        """Close the handle and end the thread."""
        self._opener.refuse_if_dead()
        await self._real.close()


class _CountedQueue:
    """aiosqlite's inbox, counting the answers it will owe."""

    def __init__(self, opener: "ThreadedSqlite", real: Any) -> None:
        self._opener = opener
        self._real = real

    def put_nowait(self, item: "tuple[asyncio.Future[Any] | None, Callable[[], Any]]") -> None:
        self._opener.asked += item[0] is not None
        self._real.put_nowait(item)


class ThreadedSqlite:
    """The cross-check: real aiosqlite, real threads, and a loop that waits after each step for what they owe."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._connections: list[aiosqlite.Connection] = []
        self.asked = 0
        self.dead = False
        loop.owes = lambda: self.asked > loop.delivered
        loop.last_rites.append(self.kill)

    async def __call__(
        self, database: str, *, uri: bool = False, factory: type[sqlite3.Connection] | None = None
    ) -> ThreadedConnection:
        """Open `database` on a thread of its own."""
        self.refuse_if_dead()
        real = aiosqlite.Connection(lambda: _open(database, uri=uri, factory=factory), iter_chunk_size=64)
        real._tx = _CountedQueue(self, real._tx)  # type: ignore[assignment]
        self._connections.append(real)
        return ThreadedConnection(self, await real)

    def refuse_if_dead(self) -> None:
        """Raise Dead after a crash."""
        if self.dead:
            raise Dead

    def kill(self) -> None:
        """Close the handles on their threads without committing, and wait for the threads' end."""
        self.dead = True
        for real in self._connections:

            def close(real: aiosqlite.Connection = real) -> object:
                if real._connection is not None:
                    real._connection.close()
                    real._connection = None
                return aiosqlite.core._STOP_RUNNING_SENTINEL

            real._tx.put_nowait((None, close))
            real._thread.join()


def _open(database: str, *, uri: bool, factory: type[sqlite3.Connection] | None) -> sqlite3.Connection:
    return sqlite3.connect(
        database, uri=uri, factory=factory or sqlite3.Connection, isolation_level=None, cached_statements=256
    )

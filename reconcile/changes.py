"""Committed changes, handed to whoever waits for them: no waiter asks the database again."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from reconcile.model import Change, Operation


class Watch:
    """One waiter's view of one operation: the newest state that was committed since it began to watch."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._latest: Operation | None = None

    def put(self, op: Operation) -> None:
        """A newer state was committed."""
        self._latest = op
        self._changed.set()

    def close(self) -> None:
        """Nothing more will come."""
        self._latest = None
        self._changed.set()

    async def next(self) -> Operation | None:
        """The newest state, once there is one newer than the last that was given; None: the daemon stops."""
        await self._changed.wait()
        self._changed.clear()
        return self._latest


class Changes:
    """Who watches which operation. Lives in memory: a waiter that is cut off asks again and misses nothing."""

    def __init__(self) -> None:
        self._watches: dict[str, list[Watch]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Let every waiter go, now and from now on: the daemon stops."""
        self._is_closed = True
        for watches in self._watches.values():
            for watch in watches:
                watch.close()

    def publish(self, change: Change) -> None:
        """Hand a committed change to its watchers."""
        for watch in self._watches.get(change.operation.operation_id, ()):
            watch.put(change.operation)

    @contextmanager
    def watch(self, operation_id: str) -> Iterator[Watch]:
        """Watch an operation. Read its row only inside, else a change between the two is missed."""
        watch = Watch()
        if self._is_closed:
            watch.close()
        watches = self._watches.setdefault(operation_id, [])
        watches.append(watch)
        try:
            yield watch
        finally:
            watches.remove(watch)
            if not watches:
                del self._watches[operation_id]

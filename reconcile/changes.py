"""Committed changes, handed to whoever waits for them: no waiter and no stream asks the database again."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from reconcile.history_row import HistoryRow
from reconcile.model import Change, Operation

W = TypeVar("W")

#: Things that wait for one reader before it counts as too slow. 1,000: arbitrary, two full pages of a history; they are
#: shared by all readers, so this bounds how long a slow one holds on to them, not what each costs.
MAX_WAITING: Final = 1_000


class Watch:
    """One waiter's view of some operations: the newest state of each that was committed since it began to watch."""

    __slots__ = ("_changed", "_is_closed", "_latest")

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._latest: dict[str, Operation] = {}
        self._is_closed = False

    def put(self, op: Operation) -> None:
        """A newer state was committed."""
        self._latest[op.operation_id] = op
        self._changed.set()

    def close(self) -> None:
        """Nothing more will come."""
        self._is_closed = True
        self._changed.set()

    async def next(self) -> Operation | None:
        """A newest state, once there is one newer than the last that was given; None: the daemon stops."""
        while not self._latest and not self._is_closed:
            self._changed.clear()
            await self._changed.wait()
        return None if self._is_closed else self._latest.pop(next(iter(self._latest)))


class Told:
    """One thing that streams tell: a history row, or an operation of which something new is known."""

    __slots__ = ("frame", "operation_id", "what")

    def __init__(self, what: HistoryRow | Operation) -> None:
        self.what = what
        self.operation_id = what.operation_id
        #: As it goes out: made for its first reader, the same for all of them.
        self.frame: bytes | None = None


class Batch:
    """What one commit told: its rows in the order of their positions, then how the operations stand now."""

    __slots__ = ("chunks", "first_position", "is_end", "told")

    def __init__(self, told: Sequence[Told]) -> None:
        self.told = told
        first = told[0].what if told else None
        #: None where it tells no row.
        self.first_position = first.position if isinstance(first, HistoryRow) else None
        self.is_end = any(isinstance(one.what, Operation) and one.what.is_terminal for one in told)
        #: As it goes out whole, in pieces: made for its first reader, the same for all of them.
        self.chunks: tuple[bytes, ...] | None = None

    def of(self, operation_id: str) -> "Batch":
        """What of it is about one operation."""
        return Batch([one for one in self.told if one.operation_id == operation_id])


class Stream:
    """One reader's view of what is told, in order. One that falls too far behind is lost: it reads the file again."""

    __slots__ = ("_changed", "_size", "_waiting", "is_closed", "is_lost")

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._waiting: list[Batch] = []
        self._size = 0
        #: The daemon stops: nothing more will come.
        self.is_closed = False
        #: More waited for the reader than is kept for one.
        self.is_lost = False

    def put(self, batch: Batch) -> None:
        """A commit has told something. One commit always fits, however much it told."""
        if self._size >= MAX_WAITING:
            self.lose()
        elif not self.is_lost:
            self._waiting.append(batch)
            self._size += len(batch.told)
        self._changed.set()

    def lose(self) -> None:
        """What waits is dropped, and nothing more is kept for it."""
        self.is_lost = True
        self._waiting, self._size = [], 0
        self._changed.set()

    def close(self) -> None:
        """Nothing more will come."""
        self.is_closed = True
        self._changed.set()

    async def next(self) -> list[Batch]:
        """What was told since the last time, once there is something; empty where it is lost or closed."""
        await self._changed.wait()
        batches, self._waiting, self._size = self._waiting, [], 0
        if not (self.is_lost or self.is_closed):
            self._changed.clear()
        return batches


class Changes:
    """Who watches which operation. Lives in memory: a waiter that is cut off asks again and misses nothing."""

    def __init__(self) -> None:
        self._watches: dict[str, dict[Watch, None]] = {}
        #: By the operation they are about; "" stands for all of them.
        self._streams: dict[str, dict[Stream, None]] = {}
        self._end = asyncio.Event()
        #: The daemon stops: nobody is told anything any more.
        self.is_closed = False

    def close(self) -> None:
        """Let every waiter and every stream go, now and from now on: the daemon stops."""
        self.is_closed = True
        self._end.set()
        for watches in self._watches.values():
            for watch in watches:
                watch.close()
        for streams in self._streams.values():
            for stream in streams:
                stream.close()

    def publish(self, change: Change) -> None:
        """Hand a committed change to its watchers."""
        for watch in self._watches.get(change.operation.operation_id, ()):
            watch.put(change.operation)
        if change.operation.is_terminal and not self.is_closed:
            self._end.set()
            self._end = asyncio.Event()

    def next_end(self) -> asyncio.Event:
        """Set once an operation ends from now on, or the daemon stops."""
        return self._end

    def tell(self, changes: Sequence[Change]) -> None:
        """Hand all that one commit changed to the streams, in the order of history positions."""
        if not self._streams:
            return
        told = _told(changes)
        if not told:
            return
        batch = Batch(told)
        for stream in self._streams.get("", ()):
            stream.put(batch)
        for operation_id in dict.fromkeys(one.operation_id for one in told):
            if streams := self._streams.get(operation_id):
                own = batch.of(operation_id)
                for stream in streams:
                    stream.put(own)

    def lose_streams(self) -> None:
        """Something could not be told: no stream may go on as if nothing were missing."""
        for streams in self._streams.values():
            for stream in streams:
                stream.lose()

    @contextmanager
    def watch(self, *operation_ids: str) -> Iterator[Watch]:
        """Watch operations. Read their rows only inside, else a change between the two is missed."""
        watch = Watch()
        if self.is_closed:
            watch.close()
        for operation_id in operation_ids:
            self._watches.setdefault(operation_id, {})[watch] = None
        try:
            yield watch
        finally:
            for operation_id in operation_ids:
                _leave(self._watches, operation_id, watch)

    @contextmanager
    def stream(self, operation_id: str = "") -> Iterator[Stream]:
        """Listen to one operation, or to all. Read the file only inside, else what is told between is missed."""
        stream = Stream()
        if self.is_closed:
            stream.close()
        self._streams.setdefault(operation_id, {})[stream] = None
        try:
            yield stream
        finally:
            _leave(self._streams, operation_id, stream)


def _told(changes: Sequence[Change]) -> list[Told]:
    """The rows as they were numbered, whatever order their writes came in, and one newest state of each operation.

    The states stand behind all rows, so that none is older than a row before it.
    """
    rows = sorted((row for change in changes for row in change.rows), key=lambda row: row.position)
    newest: dict[str, Operation] = {}
    for change in changes:
        op = change.operation
        if change.is_news or (change.rows and op.is_terminal):
            known = newest.get(op.operation_id)
            if known is None or op.seq >= known.seq:
                newest[op.operation_id] = op
    return [Told(row) for row in rows] + [Told(op) for op in newest.values()]


def _leave(waiting: dict[str, dict[W, None]], name: str, one: W) -> None:
    del waiting[name][one]
    if not waiting[name]:
        del waiting[name]

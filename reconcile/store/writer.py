"""The one writer: all writes that wait are committed in one transaction, and each caller hears back after it.

The road is public: aiosqlite opens a connection of our own class and `await db.commit()` is its one hop to SQLite's
thread; our `commit` runs the whole batch there. Writes of one kind run as one set in one savepoint. A set that fails
is rolled back and repeated one write to a savepoint, so that a bad write harms no neighbour. Where SQLite itself
ended the transaction (full disk), the batch is lost as a whole: nothing of it is run in autocommit.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from reconcile.errors import StoreBroken, StoreBusy, StoreError
from reconcile.model import Change, UnixMs
from reconcile.store.faults import as_refusal, as_store_error, is_batch_lost, is_broken
from reconcile.store.schema import Connection, Opener, prepare_writer

#: Writes in one transaction at most. 512: larger batches were measured to gain nothing and to delay the first caller.
MAX_BATCH: Final = 512
#: Turns of the loop without another write after which a batch is closed. 3: what has reached a socket needs two of them
#: to become a write. Measured with 32 senders: batches of 20 in place of 9; each costs a third of a millisecond.
QUIET_TURNS: Final = 3
#: Seconds that a batch is open for at most, where no turn is quiet. 50 ms: arbitrary; filled up, it took half a second.
OPEN_SECONDS: Final = 0.05
#: Seconds from a commit until the log is brought into the file, between two batches. 1: in place of SQLite's own way,
#: which makes the commit wait that happens to reach a thousand pages (measured: half of the time of all commits).
MERGE_SECONDS: Final = 1.0
#: Seconds that a write nobody waits for waits for others. 10 ms: arbitrary; one that is waited for takes it along.
PATIENCE_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Done:
    """What one write came to: its answer, the changes that others wait for, and the earliest time it made due.

    `unmatched` names the provider of a delivery that no operation was found for.
    """

    result: Any = None
    changes: tuple[Change, ...] = ()
    due_at: UnixMs | None = None
    unmatched: str | None = None
    #: The outbox has something to look at, beside what the changes tell.
    delivers: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """Writes that run as one set: `run(connection, payloads)` gives a `Done` for each payload, in order."""

    name: str
    run: Callable[[sqlite3.Connection, Sequence[Any]], list[Done]]


@dataclass(slots=True)
class _Write:
    kind: Kind
    payload: Any
    #: Its caller's; None: the caller has heard.
    future: "asyncio.Future[Done] | None"
    outcome: Done | StoreError | None = None


#: Entered around each commit, with the number of its writes; left with the fault of a batch that was lost.
Measured = Callable[[int], AbstractContextManager[object]]


def unmeasured(_: int) -> AbstractContextManager[object]:
    """Nobody wants to know."""
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Pulse:
    """The writer at one moment: how many batches and merges it has brought to whatever end, and whether one waits."""

    ended: int
    is_busy: bool


@dataclass(slots=True)
class Hooks:
    """Fault points for tests; each runs on SQLite's thread, inside the batch. None in production."""

    before_begin: Callable[[sqlite3.Connection], None] | None = None
    before_commit: Callable[[sqlite3.Connection], None] | None = None
    after_commit: Callable[[sqlite3.Connection], None] | None = None


@dataclass(slots=True)
class _Inbox:
    """How a batch reaches SQLite's thread: put here before the hop, read there."""

    hooks: Hooks
    batch: list[_Write] = field(default_factory=list)
    #: The schema that the file had when it was opened; 0: a fresh one.
    found_schema: int = 0


class BatchConnection(sqlite3.Connection):
    """A connection whose `commit` runs the waiting batch between BEGIN IMMEDIATE and COMMIT."""

    inbox: _Inbox

    def commit(self) -> None:
        """Run the batch and set each outcome. Raises: StoreBusy, StoreBroken, where the batch was lost whole."""
        batch, self.inbox.batch = self.inbox.batch, []
        try:
            self._run(batch)
        except Exception as fault:  # the rim: whatever it was, no transaction may stay open
            self._roll_back(fault)
            raise as_store_error(fault) from fault

    def _run(self, batch: list[_Write]) -> None:
        hooks = self.inbox.hooks
        if hooks.before_begin:
            hooks.before_begin(self)
        self.execute("BEGIN IMMEDIATE")
        by_kind: dict[str, list[_Write]] = {}
        for write in batch:
            by_kind.setdefault(write.kind.name, []).append(write)
        for writes in by_kind.values():
            self._run_set(writes)
        if hooks.before_commit:
            hooks.before_commit(self)
        self.execute("COMMIT")
        if hooks.after_commit:
            hooks.after_commit(self)

    def _run_set(self, writes: list[_Write]) -> None:
        if self._try(writes) is None or len(writes) == 1:
            return
        for write in writes:
            write.outcome = None
            self._try([write])

    def _try(self, writes: list[_Write]) -> Exception | None:
        """Run `writes` as one set in a savepoint; on a fault that concerns only them, undo them and say why."""
        self.execute("SAVEPOINT a_set")
        try:
            done = writes[0].kind.run(self, [write.payload for write in writes])
            self.execute("RELEASE a_set")
        except Exception as fault:  # noqa: BLE001 - the rim: whatever a write throws, its neighbours must not pay
            self._raise_if_batch_is_lost(fault)
            self.execute("ROLLBACK TO a_set")
            self.execute("RELEASE a_set")
            for write in writes:
                write.outcome = as_refusal(fault)
            return fault
        for write, outcome in zip(writes, done, strict=True):
            write.outcome = outcome
        return None

    def _raise_if_batch_is_lost(self, fault: Exception) -> None:
        if not self.in_transaction:
            raise sqlite3.OperationalError("the transaction was ended by SQLite") from fault
        if is_batch_lost(self, fault):
            raise fault

    def _roll_back(self, fault: Exception) -> None:
        try:
            if self.in_transaction:
                self.execute("ROLLBACK")
        except sqlite3.Error as second:
            raise StoreBroken(f"a batch could be neither committed ({fault}) nor rolled back") from second


class GroupCommit:
    """The writer task's half on the event loop: a queue of writes, and one transaction after another."""

    def __init__(
        self, connection: Connection, inbox: _Inbox, on_done: Callable[[list[Done]], None], measured: Measured
    ) -> None:
        self._connection = connection
        self._measured = measured
        self._inbox = inbox
        self._on_done = on_done
        self._waiting: list[_Write] = []
        self._wake = asyncio.Event()
        self._closing = False
        self._in_hand: list[_Write] = []
        self._ended = asyncio.Event()
        self._ended.set()
        self.broken: StoreBroken | None = None
        self.commits = 0
        self._ended_batches = 0
        self._is_merge_due = False
        self._merge_timer: asyncio.TimerHandle | None = None

    @property
    def found_schema(self) -> int:
        """The schema that the file had when it was opened; 0: a fresh one."""
        return self._inbox.found_schema

    @property
    def is_open(self) -> bool:
        """Whether writes are taken."""
        return self.broken is None and not self._closing

    @property
    def pulse(self) -> Pulse:
        """How far the writer has come."""
        return Pulse(self._ended_batches, is_busy=bool(self._in_hand or self._waiting))

    async def write(self, kind: Kind, payload: Any, *, is_patient: bool = False) -> Any:
        """Hand in one write and wait for the commit that holds it; a patient one waits for company first.

        Raises: StoreError.
        """
        if not self.is_open:
            raise self.broken or StoreBusy("the store is closing")
        future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        if not is_patient:
            self._wake.set()
        elif not self._waiting:
            future.get_loop().call_later(PATIENCE_SECONDS, self._wake.set)
        self._waiting.append(_Write(kind, payload, future))
        try:
            return (await future).result
        finally:
            del future  # an error leads to this frame

    async def run(self) -> None:
        """Commit what waits until `stop`. Raises: StoreBroken, when a commit's outcome is unknown."""
        self._ended.clear()
        try:
            await self._loop()
        finally:
            # However the loop ends, no caller is left waiting for an answer that nobody will give.
            self._closing = True
            left, self._in_hand, self._waiting = [*self._in_hand, *self._waiting], [], []
            for write in left:  # what a write of the batch in hand came to may never have been committed
                write.outcome = self.broken or StoreBroken("the writer ended; it is not known whether this was kept")
                _settle(write)
            self._ended.set()

    async def _loop(self) -> None:
        while not (self._closing and not self._waiting):
            await self._wake.wait()
            self._wake.clear()
            await self._let_in()
            self._in_hand, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            if self._waiting:
                self._wake.set()
            if self._in_hand:  # else what it was woken for has gone along with others
                await self._commit(self._in_hand)
                self._ended_batches += 1
                self._in_hand = []
            await self._merge()

    async def _let_in(self) -> None:
        """Wait for those who are on their way already: a commit for many costs little more than one for a few."""
        clock, quiet = asyncio.get_running_loop().time, 0
        closes_at = clock() + OPEN_SECONDS
        while quiet < QUIET_TURNS and len(self._waiting) < MAX_BATCH and clock() < closes_at:
            before = len(self._waiting)
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == before else 0

    async def _merge(self) -> None:
        """Bring the log into the file where that is due (N43: the one connection that does). Raises: StoreBroken.

        What cannot be merged now stands in the log as safely, and is tried again after the next commit.
        """
        if not self._is_merge_due or self._closing:  # at the end SQLite merges by itself
            return
        self._is_merge_due, self._merge_timer = False, None
        try:
            await self._connection.execute_fetchall("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as fault:
            if is_broken(fault):
                self.broken = StoreBroken(f"what was committed cannot be brought into the file: {fault}")
                raise self.broken from fault
        self._ended_batches += 1  # on a slow disk it takes as long as a batch does, and is as good a sign of life

    def _call_for_merge(self) -> None:
        self._is_merge_due = True
        self._wake.set()

    async def ended(self) -> None:
        """Wait until `run`, if it was started, has come to its end."""
        await self._ended.wait()

    def stop(self) -> None:
        """Take no further write; `run` ends when the queue is empty."""
        self._closing = True
        self._wake.set()
        if self._merge_timer is not None:
            self._merge_timer.cancel()

    async def _commit(self, batch: list[_Write]) -> None:
        self._inbox.batch = batch
        try:
            with self._measured(len(batch)):
                await self._connection.commit()
        except StoreBroken as broken:
            self.broken = broken
            for write in [*batch, *self._waiting]:
                write.outcome = broken
            raise
        except StoreError as lost:
            lost.with_traceback(None)  # it leads through the hop, whose future leads back; the cause has its own
            for write in batch:
                write.outcome = lost
                _settle(write)
            return
        self.commits += 1
        if self._merge_timer is None:
            self._merge_timer = asyncio.get_running_loop().call_later(MERGE_SECONDS, self._call_for_merge)
        try:
            self._on_done([write.outcome for write in batch if isinstance(write.outcome, Done)])
        finally:
            for write in batch:
                _settle(write)


def _settle(write: _Write) -> None:
    """Tell the caller, and keep nothing that leads to what it was told.

    An error's traceback leads to the write: both would stay until garbage is looked for.
    """
    future, outcome = write.future, write.outcome
    write.future = write.outcome = None
    if future is None or future.done():  # its caller went away; what was committed stays committed
        return
    if isinstance(outcome, Done):
        future.set_result(outcome)
    else:
        future.set_exception(outcome or StoreBusy("the write was not run"))


async def open_writer(
    opener: Opener, path: str, hooks: Hooks, on_done: Callable[[list[Done]], None], measured: Measured
) -> tuple[GroupCommit, Connection]:
    """Open and migrate the file, and give the group commit on it. Raises: SchemaTooNew, sqlite3.Error."""
    inbox = _Inbox(hooks)

    def connect(*args: Any, **kwargs: Any) -> BatchConnection:
        connection = BatchConnection(*args, **kwargs)
        connection.inbox = inbox
        try:
            inbox.found_schema = prepare_writer(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    connection = await opener(path, factory=connect)
    return GroupCommit(connection, inbox, on_done, measured), connection

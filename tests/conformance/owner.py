"""An owner: one process with the record open, what its commits told, and the faults that a driver can plant under it.

Everything a test waits for is set by the code under test; `PATIENCE` only ends a test whose promise was broken.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from reconcile.contract import Contract
from reconcile.evidence import Evidence
from reconcile.model import Change, Operation
from reconcile.store.claims import Claim, Claimed, ClaimWish, Renewal
from reconcile.store.evidence import Announce, Judge
from reconcile.store.starts import Started
from reconcile.store.store import Store
from reconcile.store.writer import Done
from tests.conformance.values import LEASE, arrival, record
from tests.reconcile.rows import CONTRACT, NOW

#: Seconds after which something that should have happened is held not to happen any more.
PATIENCE: Final = 5.0
WRITER: Final = "the writer"
#: The two sides of a commit.
Edge = Literal["before", "after"]
EDGES: Final[tuple[Edge, ...]] = ("before", "after")


class Killed(BaseException):
    """The process ended here: no `except Exception` may take it for an answer of the database."""


# ---- what a driver gives ----


class Held(Protocol):
    """A commit that is held back."""

    async def reached(self) -> None:
        """Wait until it stands there."""
        ...

    def open(self) -> None:
        """Let it go on, and every later one."""
        ...


class Faults(Protocol):
    """What can happen to one owner's commits; each concerns the next one, and `commit` names a later one."""

    def kill(self, edge: Edge, *, commit: int = 1) -> None:
        """The process ends there: `Killed` leaves `Store.run`, and nobody hears an answer."""
        ...

    def refuse(self) -> None:
        """The database takes the whole batch back for a cause that may pass, such as a full disk."""
        ...

    def lose(self, edge: Edge) -> None:
        """The database fails so that nobody can tell whether the batch was kept."""
        ...

    def hold(self, edge: Edge) -> Held:
        """It waits there until it is let go."""
        ...


class Place(Protocol):
    """Where one record stands, and may be opened: for the first time, after another owner, or beside it."""

    def opened(
        self,
        *,
        contract: Contract = CONTRACT,
        judge: Judge | None = None,
        announce: Announce = ...,
        on_done: Callable[[Sequence[Done]], None] = ...,
    ) -> "AbstractAsyncContextManager[Owner]":
        """An owner whose writer runs until the block is left."""
        ...


# ---- the owner ----


@dataclass(kw_only=True)
class Owner:
    """One open store, and what its commits told."""

    store: Store
    writer: "asyncio.Task[None]"
    faults: Faults
    heard: list[list[Done]] = field(default_factory=list)
    _fault_was_seen: bool = False

    async def start(self, *operations: Operation) -> None:
        """Put operations as they are into the record."""
        for answer in await together(*(self.store.start(record(op)) for op in operations)):
            assert isinstance(answer, Started), answer

    async def get(self, n: int = 1) -> Operation:
        """The n-th operation as it stands."""
        op = await self.store.get(f"op_{n}")
        assert op is not None
        return op

    async def apply(self, n: int, evidence: Evidence, **over: Any) -> Change:
        """Bring evidence to the n-th operation."""
        change: Change = await self.store.apply(arrival(n, evidence, **over))
        return change

    async def claim(self, owner: str = "A", *, now: int = NOW, room: int = 10, provider: str = "test") -> Claimed:
        """Claim due rows of one provider."""
        return await self.store.claim(ClaimWish(owner, now, LEASE, {provider: room}))

    async def claim_one(self, owner: str = "A", *, now: int = NOW) -> Claim:
        """Claim the one row that is due."""
        claimed = await self.claim(owner, now=now)
        assert len(claimed.claims) == 1
        return claimed.claims[0]

    async def keeps(self, who: str, fence: int, n: int = 1, *, until: int = NOW + LEASE) -> bool:
        """Whether that lease of the n-th operation is held, which this asks by keeping it until then."""
        (kept,) = await self.store.renew([Renewal(f"op_{n}", who, fence, until)])
        return kept

    async def history(self, n: int = 1) -> list[tuple[str, str | None]]:
        """The n-th operation's history as (kind, to_state)."""
        return [(row.kind, row.to_state) for row in await self.store.history(f"op_{n}")]

    async def fault(self) -> BaseException | None:
        """Wait until the writer's loop has ended, and say with what."""
        self._fault_was_seen = True
        done, _ = await asyncio.wait({self.writer}, timeout=PATIENCE)
        assert done, "the writer's loop goes on"
        return None if self.writer.cancelled() else self.writer.exception()

    async def end(self) -> None:
        """Stop, let what waits be committed, close; a fault of the writer that no test asked for is raised."""
        self.store.stop()
        done, _ = await asyncio.wait({self.writer}, timeout=PATIENCE)
        if not done:
            self.writer.cancel()
        await self.store.close()
        assert done, "the writer's loop did not end"
        if not (self._fault_was_seen or self.writer.cancelled()) and (fault := self.writer.exception()):
            raise fault


# ---- many callers at once ----


async def together(*writes: Coroutine[Any, Any, Any]) -> list[Any]:
    """Hand in all writes before the writer looks, and give each one's result or exception, in order."""
    tasks = [asyncio.create_task(write) for write in writes]
    return await answers(tasks)


async def answers(tasks: "Sequence[asyncio.Task[Any]]") -> list[Any]:
    """Each task's result or exception; a task that is never answered fails the test and is thrown away."""
    ends = asyncio.get_running_loop().time() + PATIENCE
    waiting = set(tasks)
    while waiting and asyncio.get_running_loop().time() < ends:
        done, waiting = await asyncio.wait(waiting, timeout=0.5)
        if not done and WRITER not in {task.get_name() for task in asyncio.all_tasks()}:
            break  # nobody is left who could answer
    for task in waiting:
        task.cancel()
    assert not waiting, f"{len(waiting)} of {len(tasks)} callers were never answered"
    return [task.exception() or task.result() for task in tasks]


async def killed(owner: Owner, *writes: Coroutine[Any, Any, Any]) -> list[Any]:
    """Hand in writes whose batch kills the process, see it die, and give what callers were told before that."""
    tasks = [asyncio.create_task(write) for write in writes]
    fault = await owner.fault()
    for _ in range(5):
        await asyncio.sleep(0)
    told = [task.result() for task in tasks if task.done() and not task.exception()]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert isinstance(fault, Killed), fault
    return told

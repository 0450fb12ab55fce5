"""Reads of single operations that share a hop to SQLite's thread: each gets its own row, whoever else goes away."""

import asyncio
import json
from typing import Any

import pytest

from reconcile.errors import StoreBusy
from reconcile.store.rows import COLUMNS
from reconcile.store.single_reads import MOST, SingleReads

ID = COLUMNS.index("operation_id")


class Slow:
    """A reader that answers when it is told to; it holds every operation but those that begin with "no"."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.gates: list[asyncio.Event] = []
        self.fault: Exception | None = None

    async def execute_fetchall(self, _: str, parameters: tuple[str]) -> Any:
        names = json.loads(parameters[0])
        self.asked.append(names)
        self.gates.append(asyncio.Event())
        await self.gates[-1].wait()
        if self.fault is not None:
            raise self.fault
        rows: list[list[Any]] = [[None] * len(COLUMNS) for _ in names]
        for row, name in zip(rows, names, strict=True):
            row[ID] = name
        return [(json.dumps([row for row in rows if not row[ID].startswith("no")]),)]


async def turns() -> None:
    """Let everybody go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def reads(slow: Slow) -> SingleReads:
    return SingleReads(slow)  # type: ignore[arg-type]


async def test_who_asks_while_a_read_runs_shares_the_next_one(slow: Slow, reads: SingleReads) -> None:
    """The first goes at once; the others do not go one by one."""
    tasks = [asyncio.ensure_future(reads.get(name)) for name in ("a", "b", "none", "c")]
    await turns()
    assert slow.asked == [["a"]]
    slow.gates[0].set()
    await turns()
    assert slow.asked == [["a"], ["b", "none", "c"]]
    slow.gates[1].set()

    found = await asyncio.gather(*tasks)

    assert [row and row[ID] for row in found] == ["a", "b", None, "c"]


async def test_a_read_begins_no_sooner_than_it_was_asked_for(slow: Slow, reads: SingleReads) -> None:
    """Whoever has just been told of a change must not be shown what a read before it saw."""
    first = asyncio.ensure_future(reads.get("a"))
    await turns()
    second = asyncio.ensure_future(reads.get("a"))
    slow.gates[0].set()
    await turns()
    assert first.done()
    assert not second.done()
    slow.gates[1].set()
    assert (await second)[ID] == "a"


async def test_a_crowd_is_read_in_portions(slow: Slow, reads: SingleReads) -> None:
    """No read takes more than its most, and each comes to its turn."""
    tasks = [asyncio.ensure_future(reads.get(f"op_{number}")) for number in range(2 * MOST + 5)]
    await turns()
    while not all(task.done() for task in tasks):
        slow.gates[-1].set()
        await turns()
    assert [len(names) for names in slow.asked] == [1, MOST, MOST, 4]
    assert [(await task)[ID] for task in tasks] == [f"op_{number}" for number in range(2 * MOST + 5)]


@pytest.mark.parametrize("gone", [0, 1, 2], ids=["who reads", "who leads next", "who waits"])
@pytest.mark.parametrize("is_between", [False, True], ids=["meanwhile", "as it is handed on"])
async def test_who_goes_away_keeps_nobody_else_waiting(
    slow: Slow, reads: SingleReads, gone: int, is_between: bool
) -> None:
    """A client may close its connection at any moment, also at the very one at which it is told to read for others."""
    tasks = [asyncio.ensure_future(reads.get(name)) for name in "abc"]
    await turns()
    if is_between:
        slow.gates[0].set()
        await asyncio.wait({tasks[0]})
    tasks[gone].cancel()
    for _ in range(3):
        await turns()
        for gate in slow.gates:
            gate.set()
    later = asyncio.ensure_future(reads.get("later"))
    for _ in range(3):
        await turns()
        for gate in slow.gates:
            gate.set()
    found = await asyncio.wait_for(asyncio.gather(*tasks, later, return_exceptions=True), 5)
    was_answered = is_between and gone == 0
    kept = [name for n, name in enumerate("abc") if n != gone or was_answered]
    assert [row[ID] for row in found if isinstance(row, list)] == [*kept, "later"]


async def test_a_read_that_fails_is_told_to_everybody_in_it_and_to_nobody_else(slow: Slow, reads: SingleReads) -> None:
    """The next read tries again."""
    tasks = [asyncio.ensure_future(reads.get(name)) for name in "abc"]
    await turns()
    slow.gates[0].set()
    await turns()
    slow.fault = StoreBusy("just now")
    slow.gates[1].set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in found] == [list, StoreBusy, StoreBusy]

    slow.fault = None
    again = asyncio.ensure_future(reads.get("b"))
    await turns()
    slow.gates[2].set()
    assert (await again)[ID] == "b"

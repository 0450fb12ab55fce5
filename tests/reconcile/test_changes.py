"""What one commit told, as streams are told it: rows by position, then the newest state of each operation."""

from dataclasses import replace
from typing import Any

from reconcile.changes import MAX_WAITING, Batch, Changes, Told
from reconcile.history_row import HistoryRow
from reconcile.model import Change, Operation
from reconcile.states import State
from tests.reconcile.rows import in_state


def op(name: str, seq: int, state: State = State.OBSERVING) -> Operation:
    return replace(in_state(state), operation_id=name, seq=seq)


def row(position: int, name: str) -> HistoryRow:
    return HistoryRow(position, name, 1, 0, "clock", "fact", None, None, "start:x", None, "", {}, "")


def change(of: Operation, *positions: int, **over: Any) -> Change:
    return Change(of, rows=tuple(row(n, of.operation_id) for n in positions), **over)


async def told(*changes: Change, name: str = "") -> list[int | tuple[str, int]]:
    """What a stream is told of one commit: positions, and (operation, seq) for a state."""
    feed = Changes()
    with feed.stream(name) as stream:
        feed.tell(changes)
        stream.close()
        batches = await stream.next()
    whats = [one.what for batch in batches for one in batch.told]
    return [what.position if isinstance(what, HistoryRow) else (what.operation_id, what.seq) for what in whats]


async def test_rows_are_told_by_position_whatever_order_their_writes_came_in() -> None:
    assert await told(change(op("b", 2), 3, 4), change(op("a", 2), 1, 2), change(op("b", 3), 5)) == [1, 2, 3, 4, 5]


async def test_states_are_told_behind_all_rows_and_only_the_newest_of_each() -> None:
    changes = [
        change(op("a", 3), 2, is_news=True),
        change(op("a", 2), 1, is_news=True),
        change(op("b", 1), is_news=True),
    ]
    assert await told(*changes) == [1, 2, ("a", 3), ("b", 1)]


async def test_an_end_is_told_with_the_state_and_other_moves_are_not() -> None:
    ended = op("a", 2, State.SUCCEEDED)
    assert await told(change(op("a", 1), 1)) == [1]
    assert await told(change(ended, 1)) == [1, ("a", 2)]
    assert await told(change(ended)) == []


async def test_a_stream_of_one_operation_is_told_of_no_other() -> None:
    changes = [change(op("a", 1), 1, is_news=True), change(op("b", 1), 2, is_news=True)]
    assert await told(*changes, name="b") == [2, ("b", 1)]
    assert await told(*changes, name="c") == []


async def test_one_commit_always_fits_and_what_comes_behind_a_full_one_loses_the_reader() -> None:
    large = Batch([Told(row(n, "a")) for n in range(2 * MAX_WAITING)])
    feed = Changes()
    with feed.stream() as slow, feed.stream() as quick:
        slow.put(large)
        assert not slow.is_lost
        assert await slow.next() == [large]
        for _ in range(2):
            slow.put(large)
        quick.put(large)
        assert slow.is_lost
        assert await slow.next() == []
        assert not quick.is_lost
    assert feed._streams == {}

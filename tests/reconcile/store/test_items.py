"""Items: how a collected attempt adds up against what was sent, what is shown of it, and what is cleared away."""

from pathlib import Path
from typing import Any

import pytest

from reconcile.errors import WriteRefused
from reconcile.evidence import Collected
from reconcile.model import Summary
from reconcile.states import State
from reconcile.store.items import MAX_NAMED, SLICE, Absentees, Doubled, ItemRow, ItemSlice, ItemView, Place
from reconcile.store.starts import SubmittedItem
from tests.reconcile.rows import info
from tests.reconcile.store.ground import Ground, opened, operation, record

S = State


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file comes to stand."""
    return tmp_path / "reconciled.db"


def _line(item_id: str, line: int, outcome: str = "succeeded", reason: str = "", file: int = 0) -> ItemRow:
    return ItemRow(item_id, line, outcome, reason, file, 100 * line, 90)


async def _submit(ground: Ground, *ids: str, n: int = 1) -> None:
    sent = [SubmittedItem(item_id, 10 * line, 9) for line, item_id in enumerate(ids)]
    await ground.store.start(record(operation(n, S.RESULT_COLLECTING), items=sent))


async def _collect(ground: Ground, *rows: ItemRow, attempt: int = 1, n: int = 1) -> None:
    await ground.store.index(ItemSlice(f"op_{n}", attempt, rows))


async def _mark_doubled(ground: Ground, attempt: int = 1, n: int = 1) -> list[int]:
    marked, after = [], ""
    while ids := await ground.store.doubled_ids(f"op_{n}", attempt, after=after):
        await ground.store.mark_doubled(Doubled(f"op_{n}", attempt, ids))
        marked.append(len(ids))
        after = ids[-1]
    return marked


async def _fill_absent(ground: Ground, outcome: str = "missing", attempt: int = 1, n: int = 1) -> list[int]:
    written: list[int] = []
    last = ""
    while True:
        count, last = await ground.store.index_absent(Absentees(f"op_{n}", attempt, outcome, last))
        if count == 0:
            return written
        written.append(count)


def _rows(ground: Ground, attempt: int, n: int = 1) -> list[tuple[Any, ...]]:
    return ground.look(
        "SELECT item_id, line, outcome FROM items JOIN operations o ON o.key = operation_key"
        " WHERE attempt = ? AND operation_id = ? ORDER BY item_id, line",
        attempt,
        f"op_{n}",
    )


# ---- the balance ----


async def test_items_are_counted_once_by_their_ids(path: Path) -> None:
    async with opened(path) as ground:
        await _submit(ground, "ok", "bad", "late", "twice", "gone", "stopped")
        await _collect(
            ground,
            _line("ok", 1),
            _line("bad", 2, "failed", "http_400"),
            _line("twice", 3),
            _line("late", 4, "expired"),
            _line("stopped", 5, "cancelled"),
            _line("stranger", 6),
            _line("twice", 7, "failed"),
        )
        assert await _mark_doubled(ground) == [1]
        assert await _fill_absent(ground) == [1]
        tally = await ground.store.tally("op_1", 1)
        counts = {outcome: n for outcome, n in tally.by_outcome.items() if n}
        assert counts == {"succeeded": 1, "failed": 2, "expired": 1, "cancelled": 1, "missing": 1}
        assert sum(counts.values()) == 6, "the ids that were sent, each once"
        assert (tally.duplicate, tally.unknown, tally.missing) == (("twice",), ("stranger",), ("gone",))
        assert tally.found == 5


async def test_a_strange_id_that_stands_twice_is_in_no_count(path: Path) -> None:
    async with opened(path) as ground:
        await _submit(ground, "ok")
        await _collect(ground, _line("ok", 1), _line("stranger", 2), _line("stranger", 3), _line("other", 4, "expired"))
        await _mark_doubled(ground)
        tally = await ground.store.tally("op_1", 1)
        assert {outcome: n for outcome, n in tally.by_outcome.items() if n} == {"succeeded": 1}
        assert (tally.duplicate, tally.unknown) == (("stranger",), ("other", "stranger"))
        assert tally.found == 1


async def test_without_submitted_ids_no_id_is_strange(path: Path) -> None:
    async with opened(path) as ground:
        await _submit(ground)
        await _collect(ground, _line("a", 1), _line("b", 2, "failed"), _line("a", 3))
        await _mark_doubled(ground)
        assert await _fill_absent(ground) == []
        tally = await ground.store.tally("op_1", 1)
        assert tally.by_outcome == {"failed": 2}
        assert (tally.duplicate, tally.unknown, tally.missing, tally.found) == (("a",), (), (), 2)


async def test_another_attempt_and_another_operation_are_in_no_count(path: Path) -> None:
    async with opened(path) as ground:
        await _submit(ground, "a", "b")
        await _submit(ground, "a", "b", n=2)
        await _collect(ground, _line("a", 1, "failed"), attempt=1)
        await _collect(ground, _line("a", 1), _line("b", 2), attempt=2)
        await _collect(ground, _line("a", 1, "expired"), n=2, attempt=2)
        tally = await ground.store.tally("op_1", 2)
        assert tally.by_outcome == {"succeeded": 2}
        assert (tally.duplicate, tally.unknown, tally.missing, tally.found) == ((), (), (), 2)


async def test_a_slice_that_is_written_again_counts_once(path: Path) -> None:
    async with opened(path) as ground:
        await _submit(ground, "a", "b")
        for _ in range(2):
            await _collect(ground, _line("a", 1), _line("b", 2, "failed"))
        tally = await ground.store.tally("op_1", 1)
        assert tally.by_outcome == {"succeeded": 1, "failed": 1}
        assert tally.duplicate == ()


async def test_doubled_ids_are_told_in_slices_and_marked_with_all_their_lines(path: Path) -> None:
    async with opened(path) as ground:
        ids = [f"item_{n:05}" for n in range(SLICE + 3)]
        await _submit(ground, *ids)
        for attempt in (1, 2):
            for offset in (0, SLICE + 3):
                lines = [_line(item_id, offset + n + 1) for n, item_id in enumerate(ids)]
                await _collect(ground, *lines, attempt=attempt)
        assert await _mark_doubled(ground) == [SLICE, 3]
        assert {row[2] for row in _rows(ground, 1)} == {"failed"}
        assert len(_rows(ground, 1)) == 2 * len(ids)
        assert {row[2] for row in _rows(ground, 2)} == {"succeeded"}
        assert (await ground.store.tally("op_1", 1)).by_outcome == {"failed": len(ids)}


async def test_an_item_that_failed_once_for_a_reason_of_that_name_is_not_doubled(path: Path) -> None:
    async with opened(path) as ground:
        await _submit(ground, "a")
        await _collect(ground, _line("a", 1, "failed", "duplicate_id"))
        await _mark_doubled(ground)
        assert (await ground.store.tally("op_1", 1)).duplicate == ()


async def test_items_of_an_operation_that_does_not_exist_are_refused(path: Path) -> None:
    async with opened(path) as ground:
        for write in (
            ground.store.index(ItemSlice("op_7", 1, (_line("a", 1),))),
            ground.store.mark_doubled(Doubled("op_7", 1, ("a",))),
        ):
            with pytest.raises(WriteRefused, match="op_7"):
                await write


async def test_the_absent_are_written_in_slices_until_none_is_left(path: Path) -> None:
    async with opened(path) as ground:
        ids = [f"item_{n:05}" for n in range(2 * SLICE + 7)]
        await _submit(ground, *ids)
        await _collect(ground, _line("item_00003", 1), _line("item_00500", 2))
        assert await _fill_absent(ground, "expired") == [SLICE, SLICE, 5]
        assert await ground.store.index_absent(Absentees("op_1", 1, "expired")) == (0, "")
        tally = await ground.store.tally("op_1", 1)
        assert tally.by_outcome == {"succeeded": 2, "expired": len(ids) - 2}
        assert (tally.missing, tally.found) == ((), 2)


async def test_only_the_first_of_many_problems_are_named_but_all_are_counted(path: Path) -> None:
    async with opened(path) as ground:
        many = MAX_NAMED + 20
        await _submit(ground, *(f"twice_{n:04}" for n in range(many)), *(f"gone_{n:04}" for n in range(many)))
        for offset in (0, many):
            await _collect(ground, *(_line(f"twice_{n:04}", offset + n + 1) for n in range(many)))
        await _collect(ground, *(_line(f"strange_{n:04}", 2 * many + n + 1) for n in range(many)))
        await _mark_doubled(ground)
        await _fill_absent(ground)
        tally = await ground.store.tally("op_1", 1)
        assert {outcome: n for outcome, n in tally.by_outcome.items() if n} == {"failed": many, "missing": many}
        assert tally.duplicate == tuple(f"twice_{n:04}" for n in range(MAX_NAMED))
        assert tally.unknown == tuple(f"strange_{n:04}" for n in range(MAX_NAMED))
        assert tally.missing == tuple(f"gone_{n:04}" for n in range(MAX_NAMED))


# ---- what is shown ----


async def _served(ground: Ground, attempt: int) -> Any:
    """The operation once the attempt has been taken as its result."""
    await ground.apply(1, Collected(info(attempt=attempt), Summary(total=3, succeeded=3)))
    op = await ground.get()
    assert op.collect_attempt == attempt
    return op


async def test_before_a_result_the_submitted_ids_are_shown_and_a_half_written_attempt_is_not(path: Path) -> None:
    async with opened(path) as ground:
        await _submit(ground, "b", "a")
        await _collect(ground, _line("a", 1, "failed"))
        op = await ground.get()
        assert [(i.item_id, i.outcome) for i in await ground.store.items(op)] == [
            ("a", "submitted"),
            ("b", "submitted"),
        ]


async def test_items_are_paged_in_the_order_of_their_ids(path: Path) -> None:
    async with opened(path) as ground:
        ids = ["d", "b", "a", "c", "e"]
        await _submit(ground, *ids)
        await _collect(ground, *(_line(item_id, n + 1) for n, item_id in enumerate(ids)))
        op = await _served(ground, 1)
        first = await ground.store.items(op, limit=2)
        second = await ground.store.items(op, limit=2, after="b")
        third = await ground.store.items(op, limit=2, after="d")
        assert [i.item_id for i in (*first, *second, *third)] == ["a", "b", "c", "d", "e"]
        assert first[0] == ItemView("a", "succeeded", "")
        assert await ground.store.items(op, after="e") == []


async def test_a_doubled_id_is_one_failed_item_with_both_its_places(path: Path) -> None:
    async with opened(path) as ground:
        await _submit(ground, "a", "b")
        await _collect(ground, _line("a", 1), _line("b", 2), _line("a", 3, file=1))
        await _mark_doubled(ground)
        op = await _served(ground, 1)
        doubled = ItemView("a", "failed", "duplicate_id")
        assert await ground.store.places(op, "a") == [Place(0, 100, 90), Place(1, 300, 90)]
        assert await ground.store.item(op, "a") == doubled
        assert (await ground.store.items(op))[0] == doubled
        assert await ground.store.items(op, outcome="failed") == [doubled]
        assert [i.item_id for i in await ground.store.items(op, outcome="succeeded")] == ["b"]


async def test_a_page_of_one_outcome_holds_that_outcome_only_and_goes_on_where_it_ended(path: Path) -> None:
    async with opened(path) as ground:
        outcomes = ["succeeded", "failed", "expired", "failed", "cancelled", "failed"]
        ids = [f"item_{n}" for n in range(7)]
        await _submit(ground, *ids)
        await _collect(ground, *(_line(ids[n], n + 1, outcome) for n, outcome in enumerate(outcomes)))
        await _fill_absent(ground)
        op = await _served(ground, 1)

        async def shown(outcome: str, **over: Any) -> list[str]:
            return [item.item_id for item in await ground.store.items(op, outcome=outcome, **over)]

        assert await shown("failed", limit=2) == ["item_1", "item_3"]
        assert await shown("failed", limit=2, after="item_3") == ["item_5"]
        assert await shown("missing") == ["item_6"]
        assert await shown("expired") == ["item_2"]
        (missing,) = await ground.store.items(op, outcome="missing")
        assert await ground.store.places(op, missing.item_id) == []


async def test_an_item_that_is_not_there_is_none(path: Path) -> None:
    async with opened(path) as ground:
        await _submit(ground, "a")
        op = await ground.get()
        assert await ground.store.item(op, "nobody") is None
        assert (await ground.store.item(op, "a")) is not None


async def test_wildcards_and_quotes_in_ids_are_plain_text(path: Path) -> None:
    async with opened(path) as ground:
        ids = ["%", "_", "a'b", 'c"d', "e;--", "é\n"]
        await _submit(ground, *ids)
        await _collect(ground, *(_line(item_id, n + 1) for n, item_id in enumerate(ids)))
        op = await _served(ground, 1)
        for item_id in ids:
            item = await ground.store.item(op, item_id)
            assert item is not None
            assert item.item_id == item_id
        assert (await ground.store.tally("op_1", 1)).by_outcome == {"succeeded": len(ids)}


# ---- what is cleared away ----


async def test_pruning_keeps_the_named_attempt_the_submitted_ids_and_other_operations(path: Path) -> None:
    async with opened(path) as ground:
        await _submit(ground, "a", "b")
        await _submit(ground, "a", n=2)
        for attempt in (1, 2, 3):
            await _collect(ground, _line("a", 1), _line("b", 2), attempt=attempt)
            await _collect(ground, _line("a", 1), attempt=attempt, n=2)
        assert await ground.store.prune_items("op_1", 2) == 4
        assert await ground.store.prune_items("op_1", 2) == 0
        assert [_rows(ground, attempt) for attempt in (1, 3)] == [[], []]
        assert _rows(ground, 2) == [("a", 1, "succeeded"), ("b", 2, "succeeded")]
        assert _rows(ground, 0) == [("a", 2 - 1, "submitted"), ("b", 2, "submitted")]
        assert [len(_rows(ground, attempt, n=2)) for attempt in (0, 1, 2, 3)] == [1, 1, 1, 1]


async def test_pruning_goes_in_slices(path: Path) -> None:
    async with opened(path) as ground:
        ids = [f"item_{n:05}" for n in range(SLICE + 3)]
        await _submit(ground, *ids)
        await _collect(ground, *(_line(item_id, n + 1) for n, item_id in enumerate(ids)))
        await _collect(ground, _line("item_00001", 1), attempt=2)
        assert [await ground.store.prune_items("op_1", 2) for _ in range(3)] == [SLICE, 3, 0]
        assert len(_rows(ground, 2)) == 1
        assert len(_rows(ground, 0)) == len(ids)


async def test_pruning_before_any_result_drops_every_attempt_and_no_submitted_id(path: Path) -> None:
    async with opened(path) as ground:
        await _submit(ground, "a")
        await _collect(ground, _line("a", 1))
        assert await ground.store.prune_items("op_1", 0) == 1
        assert _rows(ground, 0) == [("a", 1, "submitted")]

"""Retention: what ended goes whole behind a signed checkpoint; what is open or unsigned stays (N44)."""

from typing import Any, Final

import pytest

from reconcile.callback import CallbackEvent, Fate
from reconcile.intents import CallbackWish
from reconcile.model import Operation, UnixMs
from reconcile.notice import Notice
from reconcile.states import TERMINAL, State
from reconcile.store.deliveries import Recorded, Taking
from reconcile.store.items import ItemRow, ItemSlice
from reconcile.store.pruned_events import EventPruning, IdsKept
from reconcile.store.pruning import WasPruned
from reconcile.store.starts import SubmittedItem
from tests.conformance.owner import EDGES, Edge, Owner, Place, killed, together
from tests.conformance.record import (
    IDS,
    all_history,
    check_checkpoint,
    check_record,
    everything,
    operations,
    prune,
    sign,
)
from tests.conformance.values import event, exchange, operation, read, record
from tests.reconcile.rows import DAY, HOUR, NOW

S = State
#: Operations are kept for so long in these tests.
KEPT: Final = 90 * DAY
WISH: Final = CallbackWish("hook", "https://hook.example/x")


async def _ended(owner: Owner, n: int, age: int = 100 * DAY, word: str = "failed", **over: Any) -> None:
    """An operation that ended so long ago, with something hanging on it."""
    at = NOW - age
    items = (SubmittedItem("a", 0, 1), SubmittedItem("b", 1, 1))
    start = record(operation(n, created_at=at - HOUR, **over), client_key=f"key_{n}", content="c", items=items)
    await owner.store.start(start)
    await owner.store.receive(event(f"evt_{n}", "running", f"job_{n}", received_at=at - 1))
    await owner.apply(n, read(word, n), at=at, **exchange(str(n)))
    await owner.store.index(ItemSlice(f"op_{n}", 1, (ItemRow("a", 1, "failed", "", 0, 0, 1),)))


async def _left(owner: Owner) -> list[str]:
    return [op.operation_id for op in await operations(owner.store)]


# ---- what goes ----


async def test_just_what_ended_long_enough_ago_goes_with_all_that_hangs_on_it(place: Place) -> None:
    async with place.opened() as owner:
        for n, age in ((1, KEPT + 1), (2, KEPT), (3, KEPT - 1), (4, 0), (5, 200 * DAY)):
            await _ended(owner, n, age)
        await owner.start(operation(6, created_at=NOW - 300 * DAY))
        await sign(owner)
        before = await everything(owner)
        done = await prune(owner)
        assert {one.operation_id for part in done for one in part.leaving} == {"op_1", "op_2", "op_5"}
        assert sum(part.count for part in done) == 3
        assert [one for part in done for one in part.refused] == []
        after = await everything(owner)
        assert await _left(owner) == ["op_3", "op_4", "op_6"]
        for name in ("histories", "observations", "grounds", "items", "submitted"):
            assert after[name] == {op: before[name][op] for op in ("op_3", "op_4", "op_6")}, name
        assert after["events"] == before["events"], "what was counted stays counted"
        for n in (1, 2, 5):
            assert await owner.store.get(f"op_{n}") is None
            assert await owner.store.history(f"op_{n}") == []
            assert await owner.store.observations(f"op_{n}") == []
            assert (await owner.store.tally(f"op_{n}", 0)).by_outcome == {}
            assert await owner.store.was_pruned(f"op_{n}") == WasPruned(NOW)
        assert await owner.store.was_pruned("op_3") is None
        assert await owner.store.was_pruned("op_77") is None
        await check_record(owner, was_pruned=True)
        assert (await prune(owner))[-1].has_gone_on is False
    async with place.opened() as owner:
        assert await everything(owner) == after
        assert await owner.store.was_pruned("op_1") == WasPruned(NOW)


@pytest.mark.parametrize("state", sorted(set(S) - TERMINAL))
async def test_an_open_operation_never_goes_however_old_it_is(place: Place, state: State) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, state, created_at=NOW - 999 * DAY))
        await sign(owner)
        before = await everything(owner)
        await prune(owner, ended_before=NOW + 999 * DAY)
        assert await everything(owner) == before


async def test_nothing_goes_that_no_checkpoint_has_signed(place: Place) -> None:
    async with place.opened() as owner:
        await _ended(owner, 1)
        await prune(owner)
        assert await _left(owner) == ["op_1"]
        await sign(owner)
        await owner.apply(1, read("done"))  # late evidence, not signed yet
        await prune(owner)
        assert await _left(owner) == ["op_1"]
        for notice in await owner.store.notices():
            await owner.store.acknowledge(notice.notice_id, by="ops", because="seen", at=NOW)
        await sign(owner)
        await prune(owner)
        assert await _left(owner) == []


async def test_gathered_heads_are_no_signature(place: Place) -> None:
    async with place.opened() as owner:
        await _ended(owner, 1)
        await owner.store.record.gather_heads(1, after=0, upto=await owner.store.record.last_position())
        assert [one for part in await prune(owner) for one in part.refused] == [], "it was tried"
        assert await _left(owner) == ["op_1"]


async def test_what_a_person_has_yet_to_see_stays_until_that_is_as_old(place: Place) -> None:
    async with place.opened() as owner:
        for n in (1, 2, 3):
            await _ended(owner, n)
        told = [Notice("contradiction", since, "m", operation_id=f"op_{n}") for n, since in ((1, NOW), (2, NOW - KEPT))]
        await owner.store.tell(told)
        await sign(owner)
        await prune(owner)
        assert await _left(owner) == ["op_1"]
        await owner.store.acknowledge(told[0].notice_id, by="ops", because="seen", at=NOW)
        await prune(owner)
        assert await _left(owner) == []
        assert await owner.store.notices() == []


def _announce(op: Operation, told: CallbackEvent, _: UnixMs) -> bytes | None:
    return told.value.encode()


async def test_what_a_callback_is_still_to_be_told_of_stays(place: Place) -> None:
    async with place.opened(announce=_announce) as owner:
        await _ended(owner, 1, callback=WISH)
        (sent,) = await owner.store.deliveries.take(Taking(NOW - 100 * DAY, NOW, {"hook": 1}))
        await sign(owner)
        await prune(owner)
        assert await _left(owner) == ["op_1"]
        await owner.store.deliveries.record(Recorded(sent.delivery_id, NOW, Fate("delivered", 1, None, 200, None)))
        await prune(owner)
        assert await _left(owner) == []


# ---- killed ----


@pytest.mark.parametrize("edge", EDGES)
async def test_killed_in_the_middle_of_a_round_all_of_each_is_there_or_none_and_the_next_round_ends_it(
    place: Place, edge: Edge
) -> None:
    async with place.opened() as owner:
        for n in range(1, 40):
            await _ended(owner, n)
        await _ended(owner, 99, 0)
        await sign(owner)
        before = await everything(owner)
        owner.faults.kill(edge, commit=2)
        await killed(owner, prune(owner))
    async with place.opened() as owner:
        left = await _left(owner)
        assert 1 < len(left) < 40
        shown = await everything(owner)
        for name in ("histories", "observations", "grounds", "items", "submitted"):
            assert shown[name] == {op: before[name][op] for op in left}, name
        for n in range(1, 40):
            assert (await owner.store.was_pruned(f"op_{n}") is None) == (f"op_{n}" in left)
        await check_record(owner, was_pruned=True)
        await prune(owner)
        assert await _left(owner) == ["op_99"]
        await sign(owner)
        await check_checkpoint(owner, before["checkpoint"])


async def test_a_large_one_goes_in_slices_and_is_shown_to_nobody_meanwhile(place: Place) -> None:
    async with place.opened() as owner:
        await _ended(owner, 1)
        many = tuple(ItemRow(f"item_{n}", n, "failed", "", 0, 0, 1) for n in range(1, 1001))
        await owner.store.index(ItemSlice("op_1", 1, many))
        await sign(owner)
        owner.faults.kill("after", commit=2)
        await killed(owner, prune(owner))
    async with place.opened() as owner:
        assert await owner.store.get("op_1") is None
        assert await _left(owner) == []
        assert await all_history(owner.store) == []
        assert await owner.store.was_pruned("op_1") == WasPruned(None)
        assert (await owner.store.start(record(operation(2), client_key="key_1", content="other"))).is_new
        await prune(owner)
        assert await owner.store.was_pruned("op_1") == WasPruned(NOW)
        assert await _left(owner) == ["op_2"]


# ---- what is known of what went ----


async def test_a_list_goes_on_after_an_operation_that_is_gone(place: Place) -> None:
    async with place.opened() as owner:
        for n in (1, 2, 3):
            await _ended(owner, n, 100 * DAY if n > 1 else 0)
        await sign(owner)
        await prune(owner)
        assert await owner.store.has_place("op_2")
        assert not await owner.store.has_place("op_9")
        await owner.start(operation(4))
        assert [op.operation_id for op in await owner.store.find(after="op_2", limit=9, is_open=None)] == ["op_1"]
        assert [op.operation_id for op in await owner.store.find(after=None, limit=9, is_open=None)] == ["op_4", "op_1"]


async def test_a_key_and_a_job_of_what_went_are_free(place: Place) -> None:
    async with place.opened() as owner:
        await _ended(owner, 1)
        await sign(owner)
        await prune(owner)
        started = await owner.store.start(record(operation(2, remote_job_id="job_1"), client_key="key_1", content="x"))
        assert started.is_new


async def test_a_late_repeat_of_a_pruned_delivery_is_a_duplicate_for_as_long_as_it_may_come(place: Place) -> None:
    """And the same id with other content is noticed still; its count goes on."""
    known = IdsKept({"test": NOW - 200 * DAY}, NOW - 200 * DAY)
    async with place.opened() as owner:
        for n, age in ((1, 10 * DAY), (2, 5 * DAY)):
            await owner.store.receive(event(f"evt_{n}", job="nobody", received_at=NOW - age))
        assert await owner.store.record.prune_events(EventPruning(NOW - 6 * DAY, known)) == 1
        assert await owner.store.record.prune_events(EventPruning(NOW - 6 * DAY, known)) == 0
        counts = (await owner.store.event_counts())["test"]
        assert (counts["accepted"], counts["duplicate"], counts["unmatched"]) == (2, 0, 2)
    async with place.opened() as owner:
        assert await owner.store.receive(event("evt_1", job="nobody")) == "duplicate"
        counts = (await owner.store.event_counts())["test"]
        assert (counts["accepted"], counts["duplicate"]) == (2, 1)
        assert await owner.store.record.prune_event_ids(known) == 0
        assert await owner.store.receive(event("evt_1", job="nobody")) == "duplicate"
        assert await owner.store.receive(event("evt_1", "done", job="nobody")) == "new", "the same id, other content"
        assert await owner.store.record.prune_event_ids(IDS) == 1
        assert await owner.store.receive(event("evt_1", job="nobody")) == "new"


async def test_events_of_a_pruned_operation_are_known_still(place: Place) -> None:
    async with place.opened() as owner:
        await _ended(owner, 1)
        await owner.store.receive(event("late", "failed", "job_1", received_at=NOW - DAY))
        await sign(owner)
        await prune(owner)
        assert await _left(owner) == []
        before = await everything(owner)
        (old, late) = await together(
            owner.store.receive(event("evt_1", "running", "job_1")),
            owner.store.receive(event("late", "failed", "job_1")),
        )
        assert late == "duplicate", "younger than any repeat"
        assert old == "new", "its id is free: none can come any more"
        assert (await everything(owner))["events"]["test"]["duplicate"] == before["events"]["test"]["duplicate"] + 1


async def test_a_delivery_that_an_operation_was_found_for_stays_as_long_as_that(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        await owner.store.receive(event("evt", received_at=NOW - 300 * DAY))
        assert await owner.store.record.prune_events(EventPruning(NOW, IDS)) == 0
        assert await owner.store.receive(event("evt")) == "duplicate"


async def test_the_oldest_create_whose_job_is_looked_for_is_known(place: Place) -> None:
    async with place.opened() as owner:
        assert await owner.store.record.oldest_unsettled() is None
        await owner.start(
            operation(1, S.CREATE_UNKNOWN, created_at=NOW - 5), operation(2, S.CREATE_PENDING, created_at=NOW - 7)
        )
        await owner.start(operation(3, created_at=NOW - 9))
        assert await owner.store.record.oldest_unsettled() == NOW - 7

"""What consumers read and take: positions that lead through all of it once, places, and one taker (N29 N26 N44)."""

import asyncio
from typing import Final

import pytest

from reconcile.callback import CallbackEvent, Fate
from reconcile.errors import WriteRefused
from reconcile.history_row import HistoryRow
from reconcile.intents import CallbackWish
from reconcile.model import Operation, UnixMs
from reconcile.states import TERMINAL, State
from reconcile.store.completion_claims import CompletionClaim
from reconcile.store.consumers import Place as Stand
from reconcile.store.deliveries import Cut, Delivery, Recorded, Redelivery, Taking
from tests.conformance.owner import Owner, Place, together
from tests.conformance.record import all_history, check_record, prune, sign
from tests.conformance.values import LEASE, arrival, operation, read
from tests.reconcile.rows import DAY, MINUTE, NOW

S = State
WISH: Final = CallbackWish("hook", "https://hook.example/x")


async def _ended(owner: Owner, *numbers: int, age: int = 0) -> None:
    """Operations that failed so long ago, one after another."""
    for n in numbers:
        await owner.start(operation(n, created_at=NOW - age - DAY))
        await owner.apply(n, read("failed", n), at=NOW - age)


# ---- positions ----


@pytest.mark.parametrize("page", [1, 2, 7, 200])
async def test_pages_after_a_position_lead_through_all_history_once(place: Place, page: int) -> None:
    async with place.opened() as owner:
        for n in range(1, 6):
            await _ended(owner, n)
        whole = await owner.store.consumers.history_of_all(after=0)
        assert [row.position for row in whole] == list(range(1, 11))
        seen: list[HistoryRow] = []
        while some := await owner.store.consumers.history_of_all(after=seen[-1].position if seen else 0, limit=page):
            assert len(some) <= page
            seen += some
        assert seen == whole
        own = [row for row in whole if row.operation_id == "op_3"]
        assert await owner.store.consumers.history_of("op_3", after=0) == own
        assert await owner.store.consumers.history_of("op_3", after=own[0].position) == own[1:]
        assert await owner.store.consumers.history_of("op_3", after=own[-1].position) == []
        assert await owner.store.consumers.last_position() == 10


async def test_ends_come_in_the_order_in_which_they_ended_each_once(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(*(operation(n) for n in range(1, 6)))
        for n in (4, 1, 5, 2):
            await owner.apply(n, read("failed", n))
        await owner.apply(4, read("done", 4))  # a contradiction is no second end
        ends = await owner.store.consumers.completions(after=0, limit=10)
        assert [end.operation.operation_id for end in ends] == ["op_4", "op_1", "op_5", "op_2"]
        assert [end.place.position for end in ends] == [6, 7, 8, 9]
        for end in ends:
            assert end.operation == await owner.store.get(end.place.operation_id)
            assert await owner.store.consumers.knows(end.place)
        assert await owner.store.consumers.completions(after=7, limit=1) == ends[2:3]
    async with place.opened() as owner:
        assert await owner.store.consumers.completions(after=0, limit=10) == ends


async def test_positions_go_on_where_they_were_after_a_restart_and_after_pruning(place: Place) -> None:
    """None is ever given twice, the newest least of all: a consumer that has read up to it would miss what follows."""
    async with place.opened() as owner:
        await _ended(owner, 1, age=100 * DAY)
        await _ended(owner, 2, 3, age=99 * DAY)
        last = await owner.store.consumers.last_position()
        await sign(owner)
        assert sum(done.count for done in await prune(owner)) == 3
        assert await all_history(owner.store) == []
        assert await owner.store.consumers.last_position() == last == 6
    async with place.opened() as owner:
        assert await owner.store.consumers.last_position() == last
        await owner.start(operation(4))
        assert [row.position for row in await all_history(owner.store)] == [last + 1]
        await check_record(owner, was_pruned=True)


async def test_what_is_pruned_leaves_a_gap_and_moves_nobody(place: Place) -> None:
    async with place.opened() as owner:
        await _ended(owner, 1)
        await _ended(owner, 2, age=100 * DAY)
        await _ended(owner, 3)
        before = await all_history(owner.store)
        await sign(owner)
        await prune(owner)
        assert await all_history(owner.store) == [row for row in before if row.operation_id != "op_2"]
        ends = await owner.store.consumers.completions(after=0, limit=10)
        assert [(end.place.position, end.operation.operation_id) for end in ends] == [(2, "op_1"), (6, "op_3")]


async def test_a_place_is_known_by_what_stands_there(place: Place) -> None:
    async with place.opened() as owner:
        await _ended(owner, 1, age=100 * DAY)
        await _ended(owner, 2)
        (first, second) = await owner.store.consumers.completions(after=0, limit=9)
        knows, digest = owner.store.consumers.knows, first.place.hash
        assert await knows(Stand(2, digest[:16], "op_1"))
        assert not await knows(Stand(2, "0" * 16, "op_1"))
        assert not await knows(Stand(99, digest[:16], "op_1"))
        await sign(owner)
        await prune(owner)
        assert await knows(Stand(2, digest[:16], "op_1"))
        assert await knows(second.place)
        assert not await knows(Stand(2, digest[:16], "op_of_another_record"))
        assert not await knows(Stand(99, digest[:16], "op_1"))


# ---- one taker ----


def claim(n: int = 1, consumer: str = "mailer", key: str | None = None, at: int = NOW) -> CompletionClaim:
    return CompletionClaim(f"op_{n}", consumer, f"client:{consumer}", at, key)


async def test_of_many_claims_at_once_one_is_taken(place: Place) -> None:
    async with place.opened() as owner, place.opened() as other:
        await _ended(owner, 1)
        takes = [owner.store.consumers.take, other.store.consumers.take]
        taken = await asyncio.gather(*(takes[n % 2](claim(key=f"key-{n}", at=NOW + n)) for n in range(50)))
        (mine,) = [one for one in taken if one.is_yours]
        assert {one.at for one in taken} == {mine.at}
        take = owner.store.consumers.take
        assert await take(claim(key=f"key-{mine.at - NOW}", at=NOW + DAY)) == mine
        assert not (await take(claim(key="another"))).is_yours
        assert not (await take(claim(key=None))).is_yours
        assert (await take(claim(consumer="another"))).is_yours


async def test_a_claim_without_a_key_is_nobodys_to_repeat(place: Place) -> None:
    async with place.opened() as owner:
        await _ended(owner, 1)
        assert (await owner.store.consumers.take(claim(key=None))).is_yours
    async with place.opened() as owner:
        assert not (await owner.store.consumers.take(claim(key=None))).is_yours
        assert not (await owner.store.consumers.take(claim(key="key"))).is_yours


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
async def test_what_has_not_ended_is_not_taken(place: Place, state: State) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, state))
        with pytest.raises(WriteRefused):
            await owner.store.consumers.take(claim())
        with pytest.raises(WriteRefused):
            await owner.store.consumers.take(claim(2))


# ---- the outbox ----


def announce(op: Operation, told: CallbackEvent, _: UnixMs) -> bytes | None:
    """What a callback would be told."""
    return f"{told.value} {op.operation_id} {op.state}".encode()


async def _take(owner: Owner, *, now: int = NOW, room: int = 9) -> list[Delivery]:
    return await owner.store.deliveries.take(Taking(now, now + LEASE, {"hook": room}))


async def test_an_end_is_put_into_the_outbox_with_its_move_and_every_attempt_is_the_same(place: Place) -> None:
    async with place.opened(announce=announce) as owner:
        await owner.start(operation(1, callback=WISH), operation(2))
        await together(*(owner.store.apply(arrival(n, read("failed", n))) for n in (1, 2)))
        assert await owner.store.deliveries.next_due(["hook"]) == NOW
        (first,) = await _take(owner)
        assert (first.operation_id, first.url, first.type) == ("op_1", WISH.url, "operation.done")
        assert first.body == b"operation.done op_1 failed"
        assert await _take(owner) == [], "somebody else sends it meanwhile"
        await owner.store.deliveries.record(Recorded(first.delivery_id, NOW, Fate("waiting", 1, NOW + 5, 500, None)))
        assert await _take(owner, now=NOW + 4) == []
        (second,) = await _take(owner, now=NOW + 5)
        assert (second.delivery_id, second.body, second.attempts) == (first.delivery_id, first.body, 1)
        await owner.apply(1, read("done"))  # a contradiction is told to nobody
    async with place.opened(announce=announce) as owner:
        await owner.store.deliveries.cut(Cut(NOW + 6, DAY, is_start=True))
        (third,) = await _take(owner, now=NOW + 6)
        assert (third.delivery_id, third.body) == (first.delivery_id, first.body)
        fate = Fate("delivered", 2, None, 200, None)
        await owner.store.deliveries.record(Recorded(third.delivery_id, NOW + 7, fate))
        assert await _take(owner, now=NOW + DAY) == []
        assert await owner.store.deliveries.counts() == {"hook": {"delivered": 1}}


async def test_a_delivery_that_nobody_took_is_told_and_is_tried_anew_when_a_person_says_so(place: Place) -> None:
    async with place.opened(announce=announce) as owner:
        await owner.start(operation(1, callback=WISH))
        await owner.apply(1, read("failed"))
        (sent,) = await _take(owner)
        fate = Fate("exhausted", 8, None, 500, "http_500")
        await owner.store.deliveries.record(Recorded(sent.delivery_id, NOW, fate))
        assert await _take(owner, now=NOW + DAY) == []
        (notice,) = await owner.store.notices()
        assert (notice.reason, notice.operation_id) == ("callback_exhausted", "op_1")
        wish = Redelivery(notice.notice_id, "ops", "fixed", NOW + MINUTE)
        assert await owner.store.deliveries.redeliver(wish)
        assert not await owner.store.deliveries.redeliver(wish)
        assert await owner.store.notices() == []
        (again,) = await _take(owner, now=NOW + MINUTE)
        assert (again.delivery_id, again.body, again.attempts) == (sent.delivery_id, sent.body, 0)

"""Two owners on one record, as when the lock that should part them is gone: fences hold alone (N24 N17 N30).

Each of these is two processes' worth of stores; the second never sees what the first has in memory.
"""

from collections import Counter

from reconcile.errors import KeyReused
from reconcile.evidence import CancelAsked, ReadFailed
from reconcile.states import State
from reconcile.store.claims import ClaimWish
from reconcile.store.sweeps import Begin, SweepEnd, SweepWish
from tests.conformance.owner import Place, killed, together
from tests.conformance.record import all_history, check_record, everything
from tests.conformance.values import LEASE, accepted, arrival, event, operation, read, record
from tests.reconcile.rows import NOW

S = State


async def test_what_one_was_answered_the_other_sees(place: Place) -> None:
    async with place.opened() as one, place.opened() as two:
        await one.start(operation(1, S.CREATE_PENDING))
        await two.apply(1, accepted("job_1", "running"))
        assert (await one.get()).state is S.OBSERVING
        await one.apply(1, read("failed"))
        assert (await two.get()).state is S.FAILED
        assert await everything(one) == await everything(two)


async def test_they_number_one_history_together(place: Place) -> None:
    async with place.opened() as one, place.opened() as two:
        await one.start(operation(1), operation(2))
        writes = [
            owner.store.apply(arrival(n, read(word, n)))
            for n, word in ((1, "waiting"), (2, "waiting"), (1, "running"), (2, "running"), (1, "done"), (2, "done"))
            for owner in (one, two)
        ]
        answers = await together(*writes)
        assert [a for a in answers if isinstance(a, BaseException)] == []
        starts = [owner.store.start(record(operation(n))) for n in range(3, 23) for owner in ((one, two)[n % 2],)]
        await together(*starts)
        assert await all_history(one.store) == await all_history(two.store)
        await check_record(one)
        await check_record(two)


async def test_each_decides_on_the_row_as_it_stands_not_as_it_last_saw_it(place: Place) -> None:
    async with place.opened() as one, place.opened() as two:
        await one.start(operation(1, S.CREATE_PENDING))
        await two.get()
        await one.apply(1, accepted("job_a"))
        change = await two.apply(1, accepted("job_b"))
        assert change.operation.state is S.CONTRACT_VIOLATION
        op = await one.get()
        assert (op.remote_job_id, op.candidates) == ("job_a", ("job_b",))
        await check_record(two)


async def test_one_key_starts_one_operation_whoever_is_asked(place: Place) -> None:
    async with place.opened() as one, place.opened() as two:
        wishes = [record(operation(n), client_key="k", content="c") for n in range(20)]
        answers = await together(*((one, two)[n % 2].store.start(wish) for n, wish in enumerate(wishes)))
        assert Counter(a.is_new for a in answers) == {True: 1, False: 19}
        assert len({a.operation.operation_id for a in answers}) == 1
        (other,) = await together(two.store.start(record(operation(30), client_key="k", content="other")))
        assert type(other) is KeyReused


async def test_one_delivery_is_new_once_whoever_takes_it(place: Place) -> None:
    async with place.opened() as one, place.opened() as two:
        await one.start(operation(1))
        answers = await together(*((one, two)[n % 2].store.receive(event("evt")) for n in range(20)))
        assert Counter(answers) == {"new": 1, "duplicate": 19}
        assert (await two.store.event_counts())["test"]["duplicate"] == 19


async def test_a_late_owner_s_answer_is_refused_whichever_store_brings_it(place: Place) -> None:
    async with place.opened() as one, place.opened() as two:
        await one.start(operation(1))
        old = await one.claim_one("A")
        assert (await two.claim("B", now=NOW + LEASE - 1)).claims == ()
        new = await two.claim_one("B", now=NOW + LEASE)
        late = await one.apply(1, ReadFailed("http_500"), fence=old.fence, at=NOW + LEASE)
        assert [entry.kind for entry in late.entries] == ["refused"]
        assert late.is_late
        assert not await one.keeps("A", old.fence)
        assert await two.keeps("B", new.fence, until=NOW + 2 * LEASE)
        assert (await two.get()).schedule.errors == 0
        done = await two.apply(1, read("done"), fence=new.fence, at=NOW + LEASE)
        assert done.operation.state is S.RESULT_COLLECTING


async def test_a_wish_that_one_takes_while_the_other_reads_is_not_put_off_by_the_answer(place: Place) -> None:
    async with place.opened() as one, place.opened() as two:
        await one.start(operation(1))
        claim = await one.claim_one("A")
        await two.apply(1, CancelAsked("cancel_9", "client:ci", "why", "stops"), at=NOW + 5)
        await one.apply(1, read("running"), fence=claim.fence, at=NOW + 9)
        op = await two.get()
        assert op.state is S.CANCEL_REQUESTED
        assert op.schedule.due_at <= NOW + 9


async def test_one_that_is_killed_leaves_the_other_all_that_was_committed_and_nothing_else(place: Place) -> None:
    async with place.opened() as two:
        async with place.opened() as one:
            await one.start(*(operation(n) for n in range(1, 5)))
            (held,) = (await one.claim("A", room=1)).claims
            one.faults.kill("before")
            assert await killed(one, one.store.claim(ClaimWish("A", NOW, LEASE, {"test": 3}))) == []
        others = (await two.claim("B")).claims
        assert len(others) == 3, "a lease that was never committed holds nobody off"
        assert (await two.claim("B", now=NOW + LEASE - 1)).claims == ()
        ids = {c.operation.operation_id for c in (await two.claim("B", now=NOW + LEASE)).claims}
        assert held.operation.operation_id in ids


# ---- a sweep's cursor is leased as a row is ----


async def test_a_cursor_has_one_holder_and_a_higher_fence_each_time(place: Place) -> None:
    async with place.opened() as one, place.opened() as two:
        assert await one.store.sweeps.claim(SweepWish("test", "A", NOW, LEASE)) is None, "there is none"
        assert await one.store.sweeps.begin(Begin("test", NOW)) == NOW
        assert await two.store.sweeps.begin(Begin("test", NOW + 9)) == NOW, "it stands already"
        assert await one.store.sweeps.claim(SweepWish("test", "A", NOW - 1, LEASE)) is None, "it is not due"
        first = await one.store.sweeps.claim(SweepWish("test", "A", NOW, LEASE))
        assert first is not None
        assert await two.store.sweeps.claim(SweepWish("test", "B", NOW + LEASE - 1, LEASE)) is None
        second = await two.store.sweeps.claim(SweepWish("test", "B", NOW + LEASE, LEASE))
        assert second is not None
        assert second > first
        late = SweepEnd("test", "A", first, NOW + 99 * LEASE, 7, 5, NOW + LEASE)
        assert not await one.store.sweeps.finish(late)
        row = (await two.store.sweeps.rows())["test"]
        assert (row.due_at, row.errors) == (NOW, 0)
        assert await two.store.sweeps.finish(SweepEnd("test", "B", second, NOW + 3 * LEASE, 0, 2, NOW + LEASE))
        row = (await one.store.sweeps.rows())["test"]
        assert (row.due_at, row.errors, row.pages, row.ended_at) == (NOW + 3 * LEASE, 0, 2, NOW + LEASE)


async def test_a_released_cursor_s_former_holder_ends_nothing(place: Place) -> None:
    async with place.opened() as owner:
        await owner.store.sweeps.begin(Begin("test", NOW))
        fence = await owner.store.sweeps.claim(SweepWish("test", "A", NOW, LEASE))
        assert fence is not None
        assert await owner.store.release_all() == 1
        assert not await owner.store.sweeps.finish(SweepEnd("test", "A", fence, NOW + LEASE, 1, None, NOW))
        again = await owner.store.sweeps.claim(SweepWish("test", "A", NOW, LEASE))
        assert again is not None
        assert again > fence

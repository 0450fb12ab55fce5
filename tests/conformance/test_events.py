"""Deliveries: one effect each, whenever they come, and none for a job that is not known yet is lost (N17 N19 N18)."""

import pytest

from reconcile.model import EntryKind
from reconcile.states import Priority, State
from tests.conformance.owner import Owner, Place, killed, together
from tests.conformance.record import check_record, everything
from tests.conformance.values import accepted, arrival, event, operation, read, record
from tests.reconcile.rows import MINUTE, NO_READ, NOW

S = State
LATER = NOW + 30 * MINUTE


async def _counted(owner: Owner) -> tuple[int, int, int]:
    """Deliveries taken, repeats among them, and those that no operation was found for."""
    counts = (await owner.store.event_counts())["test"]
    return counts["accepted"], counts["duplicate"], counts["unmatched"]


# ---- one effect ----


@pytest.mark.parametrize("times", [2, 3, 100])
@pytest.mark.parametrize("batches", [1, 2])
async def test_a_delivery_that_comes_again_has_one_effect(place: Place, times: int, batches: int) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, due_at=LATER))
        if batches == 1:
            answers = await together(*[owner.store.receive(event("evt")) for _ in range(times)])
        else:
            answers = [await owner.store.receive(event("evt")) for _ in range(times)]
        assert answers == ["new"] + ["duplicate"] * (times - 1)
        assert await _counted(owner) == (1, times - 1, 0)
        claim = await owner.claim_one()
        assert claim.ring == "event:evt"
        await owner.apply(1, read("running"), fence=claim.fence, at=NOW + 1)
        rests = (await owner.get()).schedule
    async with place.opened() as owner:
        assert await owner.store.receive(event("evt", received_at=NOW + 2)) == "duplicate"
        assert (await owner.get()).schedule == rests, "a repeat rang the row"


async def test_an_end_told_twice_moves_the_operation_once_where_jobs_cannot_be_read(place: Place) -> None:
    async with place.opened(contract=NO_READ) as owner:
        await owner.start(operation(1))
        answers = await together(*[owner.store.receive(event("evt", "done")) for _ in range(2)])
        assert answers == ["new", "duplicate"]
        assert await owner.store.receive(event("evt", "done")) == "duplicate"
        assert await owner.history() == [("move", "observing"), ("move", "result_collecting")]
        await check_record(owner)


async def test_the_same_id_of_two_providers_is_two_deliveries(place: Place) -> None:
    async with place.opened() as owner:
        assert await owner.store.receive(event("evt")) == "new"
        assert await owner.store.receive(event("evt", provider="other")) == "new"


@pytest.mark.parametrize("batches", [1, 2])
async def test_the_same_id_with_other_content_is_a_contradiction_and_rings(place: Place, batches: int) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, due_at=LATER))
        first, second = event("evt", "running"), event("evt", "failed")
        if batches == 1:
            answers = await together(owner.store.receive(first), owner.store.receive(second))
        else:
            answers = [await owner.store.receive(first), await owner.store.receive(second)]
        assert answers == ["new", "new"]
        op = await owner.get()
        assert (op.state, op.contradictions) == (S.OBSERVING, 1)
        assert op.schedule.due_at <= NOW
        assert (await owner.history())[-1][0] == EntryKind.CONTRADICTION
        assert await owner.store.receive(second) == "duplicate"
        assert (await owner.get()).contradictions == 1
        (notice,) = await owner.store.notices()
        assert notice.operation_id == "op_1"


async def test_a_body_that_cannot_be_read_is_counted_and_touches_nothing(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, due_at=LATER))
        before = await everything(owner)
        assert await owner.store.receive(event("evt", observation=None)) == "new"
        assert await owner.store.receive(event("evt", observation=None)) == "duplicate"
        assert {**await everything(owner), "events": 0} == {**before, "events": 0}
        assert await _counted(owner) == (1, 1, 0)


# ---- before its job is known ----


@pytest.mark.parametrize("road", ["create", "adoption", "one batch", "one batch, turned round"])
async def test_a_delivery_for_a_job_that_is_not_known_yet_rings_once_it_is(place: Place, road: str) -> None:
    async with place.opened() as owner:
        early = event("evt", job="job_1")
        if road == "adoption":
            await owner.store.receive(early)
            assert await _counted(owner) == (1, 0, 1)
            await owner.start(operation(1, S.ACCEPTED, due_at=LATER))
        else:
            await owner.start(operation(1, S.CREATE_PENDING, due_at=LATER))
            writes = [owner.store.receive(early), owner.store.apply(arrival(1, accepted("job_1")))]
            if road == "create":
                await writes[0]
                await writes[1]
            else:
                await together(*(writes if road == "one batch" else writes[::-1]))
        assert await _counted(owner) == (1, 0, 0)
        op = await owner.get()
        assert op.remote_job_id == "job_1"
        assert (op.schedule.due_at <= NOW, op.schedule.priority) == (True, Priority.RUNG)
        assert await owner.store.receive(early) == "duplicate"


async def test_without_a_kept_delivery_an_accepted_job_is_read_later(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, S.CREATE_PENDING))
        await owner.store.receive(event("evt", job="another"))
        await owner.store.receive(event("evt_2", job="job_1", provider="other"))
        await owner.apply(1, accepted("job_1"))
        assert (await owner.get()).schedule.due_at > NOW


async def test_a_kept_delivery_is_the_evidence_where_jobs_cannot_be_read(place: Place) -> None:
    async with place.opened(contract=NO_READ) as owner:
        await owner.start(operation(1, S.CREATE_PENDING))
        await owner.store.receive(event("evt", "failed", job="job_1"))
    async with place.opened(contract=NO_READ) as owner:
        await owner.apply(1, accepted("job_1"))
        assert (await owner.get()).state is S.FAILED
        await check_record(owner)


async def test_killed_between_the_job_and_its_kept_delivery_neither_is_there(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, S.CREATE_PENDING))
        await owner.store.receive(event("evt", job="job_1"))
        owner.faults.kill("before")
        await killed(owner, owner.store.apply(arrival(1, accepted("job_1"))))
    async with place.opened() as owner:
        assert (await owner.get()).remote_job_id is None
        assert await _counted(owner) == (1, 0, 1)
        await owner.apply(1, accepted("job_1"))
        assert await _counted(owner) == (1, 0, 0)
        assert (await owner.get()).schedule.due_at <= NOW


async def test_an_acknowledged_delivery_is_there_after_a_crash_and_one_that_was_not_may_come_again(
    place: Place,
) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, due_at=LATER))
        assert await owner.store.receive(event("acknowledged")) == "new"
        owner.faults.kill("before")
        assert await killed(owner, owner.store.receive(event("lost"))) == []
    async with place.opened() as owner:
        assert await owner.store.receive(event("acknowledged")) == "duplicate"
        assert await owner.store.receive(event("lost")) == "new"


# ---- a ring is not lost ----


async def test_a_ring_never_puts_a_row_off_or_makes_it_less_urgent(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, due_at=NOW - 5, priority=Priority.CANCEL))
        await owner.store.receive(event("evt"))
        schedule = (await owner.get()).schedule
        assert (schedule.due_at, schedule.priority) == (NOW - 5, Priority.CANCEL)


@pytest.mark.parametrize("batches", [1, 2])
async def test_a_ring_during_a_leased_read_survives_the_answer(place: Place, batches: int) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        claim = await owner.claim_one()
        assert claim.ring is None
        ring = owner.store.receive(event("evt", received_at=NOW + 5))
        answer = owner.store.apply(arrival(1, read("running"), fence=claim.fence, at=NOW + 9))
        if batches == 1:
            await together(ring, answer)
        else:
            await ring
            await answer
        again = await owner.claim_one(now=NOW + 9)
        assert again.ring == "event:evt", "another read must follow, and say why"


async def test_a_ring_is_told_to_the_next_owner_once(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, due_at=LATER))
        await owner.store.receive(event("evt"))
        assert (await owner.claim_one()).ring == "event:evt"
        await owner.store.release_all()
        assert (await owner.claim_one()).ring is None


async def test_whoever_sleeps_is_told_when_a_rung_row_is_due(place: Place) -> None:
    async with place.opened() as owner:
        await owner.store.start(record(operation(1, due_at=LATER)))
        await owner.store.receive(event("evt"))
        await owner.store.receive(event("nobody", job="nobody"))
        assert [done.due_at for (done,) in owner.heard] == [LATER, NOW, None]
        assert [done.unmatched for (done,) in owner.heard] == [None, None, "test"]

"""Fences: what an owner whose lease was taken over does is refused and recorded, what it learnt is kept (N24)."""

from dataclasses import replace
from typing import Any

import pytest

from reconcile.decisions import Decision
from reconcile.evidence import (
    AboutToSend,
    CancelAsked,
    CollectFailed,
    CreateNotAccepted,
    CreateUnknown,
    DeadlinePassed,
    Evidence,
    FinishedAtOnce,
    JobGone,
    PersonDecided,
    ReadFailed,
    StepDone,
)
from reconcile.model import Observation
from reconcile.states import State
from tests.conformance.owner import Owner, Place, together
from tests.conformance.record import check_record
from tests.conformance.values import LEASE, accepted, arrival, exchange, operation, read
from tests.reconcile.rows import CONTRACT, DAY, NOW

S = State
CANCEL_ASKED = CancelAsked("cancel_9", "client:ci", "not needed", "stops the job")


# ---- whose row it is ----


async def test_an_answer_releases_its_row(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        claim = await owner.claim_one()
        await owner.apply(1, read("running"), fence=claim.fence)
        assert not await owner.keeps("A", claim.fence)
        assert (await owner.claim("B", now=NOW)).next_expiry is None
        assert (await owner.get()).schedule.fence == claim.fence


async def test_an_answer_in_the_middle_of_an_action_keeps_the_lease(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, S.CREATE_PENDING))
        claim = await owner.claim_one()
        await owner.apply(1, StepDone("upload", "file-1"), fence=claim.fence, holds=True)
        assert (await owner.claim("B")).next_expiry == NOW + LEASE
        assert await owner.keeps("A", claim.fence)
        assert (await owner.get()).schedule.mark_at == NOW
        change = await owner.apply(1, accepted("job_1", "running"), fence=claim.fence)
        assert change.operation.state is S.OBSERVING
        assert not await owner.keeps("A", claim.fence)
        assert (await owner.get()).schedule.mark_at is None


async def test_what_needs_no_lease_does_not_end_another_s(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        claim = await owner.claim_one()
        change = await owner.apply(1, CANCEL_ASKED, at=NOW + 5)
        assert change.operation.state is S.CANCEL_REQUESTED
        assert await owner.keeps("A", claim.fence)
        await owner.apply(1, read("running"), fence=claim.fence, at=NOW + 9)
        assert not await owner.keeps("A", claim.fence)
        assert (await owner.get()).schedule.due_at <= NOW + 9, "the cancel that came during the read was put off"


async def _taken_over(owner: Owner, state: State = S.OBSERVING, **over: Any) -> tuple[int, int]:
    """Operation 1, leased by A, whose lease ran out, and now by B; gives both fences."""
    await owner.start(operation(1, state, **over))
    old = await owner.claim_one("A")
    new = await owner.claim_one("B", now=NOW + LEASE)
    return old.fence, new.fence


LATE = NOW + LEASE + 5


@pytest.mark.parametrize(
    ("state", "evidence"),
    [
        (S.OBSERVING, read("done")),
        (S.OBSERVING, read("running")),
        (S.OBSERVING, ReadFailed("http_500")),
        (S.OBSERVING, JobGone()),
        (S.CREATE_PENDING, AboutToSend()),
        (S.CREATE_PENDING, StepDone("upload", "file-1")),
        (S.CREATE_PENDING, CreateUnknown("timeout")),
        (S.CREATE_PENDING, CreateNotAccepted("http_429")),
        (S.RESULT_COLLECTING, CollectFailed("http_500", is_final=True)),
        (S.RESULT_TIMED_OUT, DeadlinePassed("attention")),
    ],
)
async def test_an_action_of_an_owner_that_lost_its_lease_is_refused_and_recorded(
    place: Place, state: State, evidence: Evidence
) -> None:
    async with place.opened() as owner:
        old, new = await _taken_over(owner, state)
        before = await owner.get()
        change = await owner.apply(1, evidence, fence=old, at=LATE, **exchange("late"))
        after = await owner.get()
        assert replace(after, seq=before.seq, head=before.head, schedule=before.schedule) == before
        assert change.operation.state is state
        assert [entry.kind for entry in change.entries] == ["refused"]
        assert await owner.history() == [("move", state.value), ("refused", None)]
        assert (await owner.store.history("op_1"))[-1].cause == "observation:obs_late"
        (seen,) = await owner.store.observations("op_1")
        assert seen.observation_id == "obs_late"
        (sent,) = (await owner.store.grounds(["op_1"]))["op_1"].requests
        assert sent.request_id == "req_late"
        due_at, priority = before.schedule.due_at, before.schedule.priority
        assert replace(after.schedule, due_at=due_at, priority=priority) == before.schedule
        assert await owner.keeps("B", new, until=NOW + 2 * LEASE)
        assert (await owner.claim("C", now=LATE)).next_expiry == NOW + 2 * LEASE
        await check_record(owner)


async def test_an_answer_that_comes_after_the_end_is_told_as_that(place: Place) -> None:
    """A person gave up while it was under way: no lease was lost, and nothing is read again."""
    async with place.opened() as owner:
        await owner.start(operation(1, S.CANCELLATION_UNCONFIRMED))
        claim = await owner.claim_one()
        gave_up = PersonDecided("dec_1", Decision.GIVE_UP, "person:ann", "enough")
        assert (await owner.apply(1, gave_up, at=NOW + 5)).operation.state is S.ABANDONED
        await owner.apply(1, read("running"), fence=claim.fence, at=NOW + 9, **exchange("late"))
        reason = (await owner.store.history("op_1"))[-1].reason
        assert reason == "JobRead of a request that was under way as the operation ended: kept"
        await check_record(owner)


async def test_facts_of_a_lost_lease_are_kept_with_the_version_of_the_contract_too(place: Place) -> None:
    async with place.opened() as owner:
        old, _ = await _taken_over(owner, contract_version=6)
        await owner.apply(1, read("done"), fence=old, at=LATE, **exchange("late", Observation("done")))
        (seen,) = await owner.store.observations("op_1")
        assert seen.contract_version == CONTRACT.version


async def test_facts_of_a_lost_lease_make_the_row_due_again_after_the_answer_under_way(place: Place) -> None:
    async with place.opened() as owner:
        old, new = await _taken_over(owner)
        await owner.apply(1, read("done"), fence=old, at=LATE)
        await owner.apply(1, read("running"), fence=new, at=LATE + 5)
        assert (await owner.get()).schedule.due_at <= LATE + 5
        assert (await owner.get()).state is S.OBSERVING


@pytest.mark.parametrize("evidence", [accepted("job_1", "running"), FinishedAtOnce(Observation("done", "job_1"))])
async def test_a_job_id_is_kept_although_its_finder_lost_the_lease(place: Place, evidence: Evidence) -> None:
    async with place.opened() as owner:
        old, new = await _taken_over(owner, S.CREATE_PENDING)
        change = await owner.apply(1, evidence, fence=old, at=LATE, **exchange("late"))
        assert change.operation.remote_job_id == "job_1"
        op = await owner.get()
        assert op.remote_job_id == "job_1"
        assert op.state in (S.OBSERVING, S.RESULT_COLLECTING)
        assert await owner.keeps("B", new, until=NOW + 2 * LEASE), "the new owner lost its lease"
        await owner.apply(1, CreateUnknown("timeout"), fence=new, at=LATE + 5)
        assert (await owner.get()).remote_job_id == "job_1"
        assert (await owner.get()).schedule.due_at <= LATE + 5
        await check_record(owner)


async def test_two_owners_that_each_bring_a_job_id_are_a_contract_violation_with_both(place: Place) -> None:
    async with place.opened() as owner:
        old, new = await _taken_over(owner, S.CREATE_PENDING)
        await together(
            owner.store.apply(arrival(1, accepted("job_a"), fence=old, at=LATE)),
            owner.store.apply(arrival(1, accepted("job_b"), fence=new, at=LATE)),
        )
        op = await owner.get()
        assert op.state is S.CONTRACT_VIOLATION
        assert op.remote_job_id == "job_a"
        assert op.candidates == ("job_b",)
        await check_record(owner)


@pytest.mark.parametrize("lost_by", ["answered", "released", "never leased"])
async def test_a_fence_without_a_lease_is_outdated(place: Place, lost_by: str) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        fence = 0
        if lost_by != "never leased":
            fence = (await owner.claim_one()).fence
        if lost_by == "answered":
            await owner.apply(1, read("running"), fence=fence)
        if lost_by == "released":
            assert await owner.store.release_all() == 1
        change = await owner.apply(1, read("done"), fence=fence, at=NOW + 1)
        assert change.operation.state is S.OBSERVING
        assert [entry.kind for entry in change.entries] == ["refused"]
        assert (await owner.get()).schedule.due_at <= NOW + 1, "what it may have seen is not read again"
        assert not await owner.keeps("A", fence)


async def test_a_second_answer_under_one_lease_is_outdated_in_the_same_batch_too(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        claim = await owner.claim_one()
        first, second = await together(
            owner.store.apply(arrival(1, read("running"), fence=claim.fence)),
            owner.store.apply(arrival(1, read("done"), fence=claim.fence)),
        )
        assert first.entries == ()
        assert [entry.kind for entry in second.entries] == ["refused"]
        assert (await owner.get()).state is S.OBSERVING


async def test_a_lease_that_ran_out_but_was_not_taken_over_still_acts(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        claim = await owner.claim_one()
        change = await owner.apply(1, read("done"), fence=claim.fence, at=NOW + 5 * LEASE)
        assert change.operation.state is S.RESULT_COLLECTING


async def test_facts_of_a_lost_lease_do_not_bring_an_ended_operation_back(place: Place) -> None:
    async with place.opened() as owner:
        old, new = await _taken_over(owner)
        await together(
            owner.store.apply(arrival(1, read("failed"), fence=new, at=LATE)),
            owner.store.apply(arrival(1, read("done"), fence=old, at=LATE)),
        )
        assert (await owner.get()).state is S.FAILED
        assert (await owner.claim("C", now=NOW + DAY)).claims == ()
        assert await owner.store.due_backlog(NOW + DAY) == {}
        await check_record(owner)

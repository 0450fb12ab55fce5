"""Evidence: decided on the row as it stands, written whole or not at all, and guarded by the fence of the lease."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconcile.errors import WriteRefused
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
    ReadFailed,
    StepDone,
)
from reconcile.model import Change, Observation, Progress
from reconcile.states import State
from tests.reconcile.rows import BASE, CONTRACT, DAY, MINUTE, NOW
from tests.reconcile.store.ground import (
    LEASE,
    Ground,
    Killed,
    Statements,
    accepted,
    arrival,
    event,
    exchange,
    killed,
    opened,
    operation,
    raising,
    read,
    together,
)

S = State
CANCEL_ASKED = CancelAsked("cancel_9", "client:ci", "not needed", "stops the job")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file comes to stand."""
    return tmp_path / "reconciled.db"


# ---- in order ----


async def test_two_arrivals_of_one_batch_are_decided_in_order_each_on_the_row_the_first_left(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        commits = ground.store.commits
        changes: list[Change] = await together(
            ground.store.apply(arrival(1, accepted("job_1", "running"))),
            ground.store.apply(arrival(1, read("done"))),
            ground.store.apply(arrival(1, read("failed"))),
        )
        assert ground.store.commits == commits + 1
        assert [c.operation.state for c in changes] == [S.OBSERVING, S.RESULT_COLLECTING, S.RESULT_COLLECTING]
        assert [c.operation.contradictions for c in changes] == [0, 0, 1]
        assert [c.operation.seq for c in changes] == [3, 4, 5]
        assert await ground.get() == changes[-1].operation
        ground.check_chains()


async def test_the_order_of_a_batch_is_the_order_of_its_arrivals(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await together(
            ground.store.apply(arrival(1, read("failed"))),
            ground.store.apply(arrival(1, read("done"))),
        )
        op = await ground.get()
        assert (op.state, op.contradictions) == (S.FAILED, 1)


async def test_arrivals_of_several_operations_in_one_batch_do_not_mix(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(*(operation(n) for n in range(20)))
        words = ["running", "done", "failed", "cancelled"]
        await together(*(ground.store.apply(arrival(n, read(words[n % 4], n))) for n in range(20)))
        states = [S.OBSERVING, S.RESULT_COLLECTING, S.FAILED, S.CANCELLED]
        assert [(await ground.get(n)).state for n in range(20)] == states * 5
        ground.check_chains()


async def test_counters_of_one_batch_add_up(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        reads = [ground.store.apply(arrival(1, ReadFailed("http_500"), **exchange(str(n)))) for n in range(3)]
        await together(*reads)
        row = ground.schedule()
        assert (row["errors"], row["reads"], row["last_read_at"]) == (3, 3, NOW)


async def test_evidence_for_an_operation_that_does_not_exist_is_refused(path: Path) -> None:
    async with opened(path) as ground:
        with pytest.raises(WriteRefused, match="op_7"):
            await ground.apply(7, read("running", 7))


# ---- what is written ----


async def test_a_decision_leaves_row_history_observation_and_request(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        seen = Observation("done", "job_1", remote_status="completed", progress=Progress(completed=3, total=3))
        change = await ground.apply(1, replace(read("done"), observation=seen), **exchange("1", seen))
        assert await ground.get() == change.operation
        history = (await ground.store.history("op_1"))[-1]
        assert (history.from_state, history.to_state) == ("observing", "result_collecting")
        assert (history.cause, history.actor, history.at) == ("observation:obs_1", "worker", NOW)
        assert history.remote_job_id == "job_1"
        (kept,) = await ground.store.observations("op_1")
        assert (kept.observation_id, kept.road, kept.word, kept.remote_status) == (
            "obs_1",
            "status",
            "done",
            "completed",
        )
        assert (kept.verdict, kept.known, kept.request_id) == ("DONE", 1, "req_1")
        assert kept.raw == b'{"raw": true}'
        assert ground.look("SELECT * FROM requests") == [
            ("req_1", 1, "status", 1, NOW - 5, NOW, 200, None, None, "key"),
        ]
        ground.check_chains()


async def test_a_word_that_is_not_documented_is_kept_as_such(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await ground.apply(1, read("brand_new"), **exchange("1", Observation("brand_new")))
        (kept,) = await ground.store.observations("op_1")
        assert (kept.verdict, kept.known) == ("PENDING", 0)


async def test_an_observation_is_kept_with_the_version_of_the_contract_that_judged_it(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, contract_version=6))  # started under an earlier release
        await ground.apply(1, read("done"), **exchange("1", Observation("done")))
        (kept,) = await ground.store.observations("op_1")
        assert kept.contract_version == CONTRACT.version == 7


TABLES_OF_ONE_DECISION = ("operations", "schedule", "history", "observations", "requests")


@pytest.mark.parametrize("evidence", [read("done"), read("failed"), read("waiting")])
async def test_killed_before_the_commit_nothing_of_a_decision_is_there(path: Path, evidence: Evidence) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        before = ground.dump()
        ground.hooks.before_commit = raising(Killed())
        await killed(ground, ground.store.apply(arrival(1, evidence, **exchange("1"))))
    async with opened(path) as ground:
        assert ground.dump() == before


@pytest.mark.parametrize("evidence", [read("done"), read("failed"), read("waiting")])
async def test_killed_after_the_commit_all_of_a_decision_is_there(path: Path, evidence: Evidence) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        before = ground.dump(*TABLES_OF_ONE_DECISION)
        ground.hooks.after_commit = raising(Killed())
        await killed(ground, ground.store.apply(arrival(1, evidence, **exchange("1"))))
    async with opened(path) as ground:
        after = ground.dump(*TABLES_OF_ONE_DECISION)
        assert [table for table in before if before[table] == after[table]] == []
        ground.check_chains()


@pytest.mark.parametrize(
    ("state", "evidence", "end"),
    [
        (S.OBSERVING, read("failed"), S.FAILED),
        (S.OBSERVING, read("cancelled"), S.CANCELLED),
        (S.CREATE_PENDING, CANCEL_ASKED, S.CANCELLED),
        (S.RESULT_TIMED_OUT, DeadlinePassed("attention"), S.TIMED_OUT),
        (S.OBSERVATION_FAILED, DeadlinePassed("attention"), S.ABANDONED),
    ],
)
async def test_an_operation_that_has_ended_has_no_schedule(
    path: Path, state: State, evidence: Evidence, end: State
) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, state), operation(2))
        ground.heard.clear()
        change = await ground.apply(1, evidence, at=NOW + 7 * DAY)
        assert change.operation.state is end
        assert ground.schedule(1) == {}
        assert ground.schedule(2) != {}
        assert ground.heard[0][0].due_at is None
        claimed = await ground.claim(now=NOW + 30 * DAY)
        assert [claim.operation.operation_id for claim in claimed.claims] == ["op_2"]


async def test_an_end_and_a_contradiction_of_one_batch_leave_no_schedule(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        claim = await ground.claim_one()
        await together(
            ground.store.apply(arrival(1, read("running"), fence=claim.fence, holds=True)),
            ground.store.apply(arrival(1, read("failed"), fence=claim.fence)),
            ground.store.apply(arrival(1, read("done"))),
            ground.store.receive(event("evt", "done")),
        )
        assert ground.schedule() == {}
        assert (await ground.get()).contradictions == 2
        ground.check_chains()


async def test_a_poll_that_tells_nothing_new_writes_nothing_but_its_next_time(path: Path) -> None:
    wide = ("operations", "history", "observations", "requests", "starts", "events", "items", "client_keys")
    async with opened(path) as ground:
        await ground.start(operation(1))
        claim = await ground.claim_one()
        before, statements = ground.dump(*wide), Statements()
        ground.hooks.before_begin = statements
        await ground.apply(1, read("running"), fence=claim.fence, at=NOW + 1, **exchange("1", Observation("running")))
        assert ground.dump(*wide) == before
        assert [sql for table in wide for sql in statements.writes_to(table)] == []
        assert len(statements.writes_to("schedule")) == 1
        row = ground.schedule()
        assert row["due_at"] >= NOW + 1 + BASE
        assert (row["polls"], row["reads"], row["last_read_at"], row["lease_owner"]) == (1, 1, NOW + 1, None)


async def test_an_error_in_a_row_of_good_polls_leaves_no_trace_but_counters(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await ground.apply(1, ReadFailed("http_500"))
        assert ground.schedule()["errors"] == 1
        await ground.apply(1, read("running"))
        assert ground.schedule()["errors"] == 0
        assert await ground.history() == [("move", "observing")]


async def test_a_row_keeps_when_it_was_last_read(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await ground.apply(1, read("running"), **exchange("1"))
        await ground.apply(1, CANCEL_ASKED, at=NOW + MINUTE)
        assert ground.schedule()["last_read_at"] == NOW


async def test_a_wish_that_is_refused_writes_nothing(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.RESULT_COLLECTING))
        await ground.claim_one()
        before = ground.dump()
        change = await ground.apply(1, CANCEL_ASKED)
        assert change.refusal
        assert ground.dump() == before


async def test_a_job_that_another_operation_holds_is_never_taken_and_a_person_is_shown_both(path: Path) -> None:
    """N5, B4: two operations of ours cannot have made one job."""
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2, S.CREATE_PENDING))
        await ground.apply(2, accepted("job_1"))
        op = await ground.get(2)
        assert (op.state, op.remote_job_id, op.candidates) == (S.CONTRACT_VIOLATION, None, ("job_1",))
        last = (await ground.store.history("op_2"))[-1]
        assert last.facts["held_by"] == "op_1"
        assert (await ground.get(1)).state is S.OBSERVING
        ground.check_chains()


async def test_a_job_of_an_operation_that_was_given_up_can_be_taken(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.RESULT_TIMED_OUT), operation(2, S.CREATE_PENDING))
        await ground.apply(1, DeadlinePassed("attention"), at=NOW + 7 * DAY)
        change = await ground.apply(2, accepted("job_1"))
        assert change.operation.remote_job_id == "job_1"


# ---- leases ----


async def test_an_answer_releases_its_row(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        claim = await ground.claim_one()
        await ground.apply(1, read("running"), fence=claim.fence)
        row = ground.schedule()
        assert (row["lease_owner"], row["lease_until"], row["fence"]) == (None, None, claim.fence)


async def test_an_answer_in_the_middle_of_an_action_keeps_the_lease(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        claim = await ground.claim_one()
        await ground.apply(1, StepDone("upload", "file-1"), fence=claim.fence, holds=True)
        row = ground.schedule()
        assert (row["lease_owner"], row["lease_until"], row["mark_at"]) == ("A", NOW + LEASE, NOW)
        change = await ground.apply(1, accepted("job_1", "running"), fence=claim.fence)
        assert change.operation.state is S.OBSERVING
        assert ground.schedule()["lease_owner"] is None
        assert ground.schedule()["mark_at"] is None


async def test_what_needs_no_lease_does_not_end_another_s(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        claim = await ground.claim_one()
        change = await ground.apply(1, CANCEL_ASKED, at=NOW + 5)
        assert change.operation.state is S.CANCEL_REQUESTED
        row = ground.schedule()
        assert (row["lease_owner"], row["fence"]) == ("A", claim.fence)
        await ground.apply(1, read("running"), fence=claim.fence, at=NOW + 9)
        row = ground.schedule()
        assert row["lease_owner"] is None
        assert row["due_at"] <= NOW + 9, "the cancel that came during the read was put off"


async def _taken_over(ground: Ground, state: State = S.OBSERVING, **over: Any) -> tuple[int, int]:
    """Operation 1, leased by A, whose lease ran out, and now by B; gives both fences."""
    await ground.start(operation(1, state, **over))
    old = await ground.claim_one("A")
    new = await ground.claim_one("B", now=NOW + LEASE)
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
    path: Path, state: State, evidence: Evidence
) -> None:
    async with opened(path) as ground:
        old, new = await _taken_over(ground, state)
        before, row = await ground.get(), ground.schedule()
        change = await ground.apply(1, evidence, fence=old, at=LATE, **exchange("late"))
        after, now = await ground.get(), ground.schedule()
        assert replace(after, seq=before.seq, head=before.head, schedule=before.schedule) == before
        assert change.operation.state is state
        assert [entry.kind for entry in change.entries] == ["refused"]
        assert await ground.history() == [("move", state.value), ("refused", None)]
        assert (await ground.store.history("op_1"))[-1].cause == "observation:obs_late"
        (seen,) = await ground.store.observations("op_1")
        assert seen.observation_id == "obs_late"
        assert ground.look("SELECT request_id FROM requests") == [("req_late",)]
        untouched = ("lease_owner", "lease_until", "fence", "polls", "errors", "gone_reads", "mark_at")
        assert {name: now[name] for name in untouched} == {name: row[name] for name in untouched}
        assert now["fence"] == new
        ground.check_chains()


async def test_facts_of_a_lost_lease_are_kept_with_the_version_of_the_contract_too(path: Path) -> None:
    async with opened(path) as ground:
        old, _ = await _taken_over(ground, contract_version=6)
        await ground.apply(1, read("done"), fence=old, at=LATE, **exchange("late", Observation("done")))
        (seen,) = await ground.store.observations("op_1")
        assert seen.contract_version == CONTRACT.version


async def test_facts_of_a_lost_lease_make_the_row_due_again_after_the_answer_under_way(path: Path) -> None:
    async with opened(path) as ground:
        old, new = await _taken_over(ground)
        await ground.apply(1, read("done"), fence=old, at=LATE)
        await ground.apply(1, read("running"), fence=new, at=LATE + 5)
        assert ground.schedule()["due_at"] <= LATE + 5
        assert (await ground.get()).state is S.OBSERVING


@pytest.mark.parametrize("evidence", [accepted("job_1", "running"), FinishedAtOnce(Observation("done", "job_1"))])
async def test_a_job_id_is_kept_although_its_finder_lost_the_lease(path: Path, evidence: Evidence) -> None:
    async with opened(path) as ground:
        old, new = await _taken_over(ground, S.CREATE_PENDING)
        change = await ground.apply(1, evidence, fence=old, at=LATE, **exchange("late"))
        assert change.operation.remote_job_id == "job_1"
        op = await ground.get()
        assert op.remote_job_id == "job_1"
        assert op.state in (S.OBSERVING, S.RESULT_COLLECTING)
        row = ground.schedule()
        assert (row["lease_owner"], row["fence"]) == ("B", new), "the new owner lost its lease"
        await ground.apply(1, CreateUnknown("timeout"), fence=new, at=LATE + 5)
        assert (await ground.get()).remote_job_id == "job_1"
        assert ground.schedule()["due_at"] <= LATE + 5
        ground.check_chains()


async def test_two_owners_that_each_bring_a_job_id_are_a_contract_violation_with_both(path: Path) -> None:
    async with opened(path) as ground:
        old, new = await _taken_over(ground, S.CREATE_PENDING)
        await together(
            ground.store.apply(arrival(1, accepted("job_a"), fence=old, at=LATE)),
            ground.store.apply(arrival(1, accepted("job_b"), fence=new, at=LATE)),
        )
        op = await ground.get()
        assert op.state is S.CONTRACT_VIOLATION
        assert op.remote_job_id == "job_a"
        assert op.candidates == ("job_b",)
        ground.check_chains()


@pytest.mark.parametrize("lost_by", ["answered", "released", "never leased"])
async def test_a_fence_without_a_lease_is_outdated(path: Path, lost_by: str) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        fence = 0
        if lost_by != "never leased":
            fence = (await ground.claim_one()).fence
        if lost_by == "answered":
            await ground.apply(1, read("running"), fence=fence)
        if lost_by == "released":
            assert await ground.store.release_all() == 1
        change = await ground.apply(1, read("done"), fence=fence, at=NOW + 1)
        assert change.operation.state is S.OBSERVING
        assert [entry.kind for entry in change.entries] == ["refused"]
        row = ground.schedule()
        assert row["due_at"] <= NOW + 1, "what it may have seen is not read again"
        assert row["lease_owner"] is None


async def test_a_second_answer_under_one_lease_is_outdated_in_the_same_batch_too(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        claim = await ground.claim_one()
        first, second = await together(
            ground.store.apply(arrival(1, read("running"), fence=claim.fence)),
            ground.store.apply(arrival(1, read("done"), fence=claim.fence)),
        )
        assert first.entries == ()
        assert [entry.kind for entry in second.entries] == ["refused"]
        assert (await ground.get()).state is S.OBSERVING


async def test_a_lease_that_ran_out_but_was_not_taken_over_still_acts(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        claim = await ground.claim_one()
        change = await ground.apply(1, read("done"), fence=claim.fence, at=NOW + 5 * LEASE)
        assert change.operation.state is S.RESULT_COLLECTING


async def test_facts_of_a_lost_lease_do_not_bring_an_ended_operation_back(path: Path) -> None:
    async with opened(path) as ground:
        old, new = await _taken_over(ground)
        await together(
            ground.store.apply(arrival(1, read("failed"), fence=new, at=LATE)),
            ground.store.apply(arrival(1, read("done"), fence=old, at=LATE)),
        )
        assert (await ground.get()).state is S.FAILED
        assert ground.schedule() == {}
        ground.check_chains()

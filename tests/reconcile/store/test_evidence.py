"""Evidence: decided on the row as it stands, written whole or not at all. Its fences: tests/conformance."""

from dataclasses import replace
from pathlib import Path

import pytest

from reconcile.errors import WriteRefused
from reconcile.evidence import (
    CancelAsked,
    DeadlinePassed,
    Evidence,
    ReadFailed,
)
from reconcile.model import Change, Observation, Progress
from reconcile.states import State
from tests.reconcile.rows import BASE, CONTRACT, DAY, MINUTE, NOW
from tests.reconcile.store.ground import (
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

"""Deliveries: kept once, one effect each, rung at once or as soon as their job is known, and cheap."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconcile.decisions import Decision
from reconcile.evidence import CollectFailed, DeadlinePassed, FinishedAtOnce, JobGone, PersonDecided
from reconcile.model import EntryKind, Observation, Verdict, VerdictKind
from reconcile.states import Priority, State
from tests.reconcile.rows import DAY, MINUTE, NO_READ, NOW
from tests.reconcile.store.ground import (
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
    record,
    together,
)

S = State
LATER = NOW + 30 * MINUTE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file comes to stand."""
    return tmp_path / "reconciled.db"


async def _receive(ground: Ground, *events: Any) -> list[Any]:
    return await together(*(ground.store.receive(e) for e in events))


def _kept(ground: Ground) -> list[tuple[Any, ...]]:
    """Events as (id, operation id, disposition, duplicates), in the order of keeping."""
    return ground.look(
        "SELECT event_id, operation_id, disposition, duplicates FROM events e"
        " LEFT JOIN operations o ON o.key = e.operation_key ORDER BY e.key"
    )


# ---- once ----


@pytest.mark.parametrize("times", [2, 3, 100])
async def test_an_event_that_comes_again_in_one_batch_has_one_effect(path: Path, times: int) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, due_at=LATER))
        commits = ground.store.commits
        answers = await _receive(ground, *[event("evt")] * times)
        assert ground.store.commits == commits + 1
        assert answers == ["new"] + ["duplicate"] * (times - 1)
        assert _kept(ground) == [("evt", "op_1", "rings", times - 1)]


async def test_an_event_that_comes_again_in_later_batches_and_after_a_restart_has_one_effect(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        assert await _receive(ground, event("evt")) == ["new"]
        claim = await ground.claim_one()
        await ground.apply(1, read("running"), fence=claim.fence, at=NOW + 1)
        rests = ground.schedule()
        assert await _receive(ground, event("evt", received_at=NOW + 2)) == ["duplicate"]
        assert await _receive(ground, *[event("evt", received_at=NOW + 3)] * 2) == ["duplicate"] * 2
        assert ground.schedule() == rests, "a repeat rang the row"
    async with opened(path) as ground:
        assert await _receive(ground, *[event("evt", received_at=NOW + 4)] * 2) == ["duplicate"] * 2
        assert ground.schedule() == rests, "a repeat rang the row"
        assert _kept(ground) == [("evt", "op_1", "rings", 5)]


async def test_repeats_among_many_are_counted_one_by_one(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        sent = [event(f"evt_{n % 83}") for n in range(300)]
        answers = await _receive(ground, *sent)
        assert answers == ["new"] * 83 + ["duplicate"] * 217
        counted = ground.look("SELECT event_id, duplicates FROM events ORDER BY key")
        assert counted == [(f"evt_{n}", 3 if n < 51 else 2) for n in range(83)]
        again = await _receive(ground, *sent[:83])
        assert set(again) == {"duplicate"}
        assert ground.one("SELECT sum(duplicates) FROM events") == 300


async def test_an_end_told_twice_by_a_provider_without_a_read_moves_the_operation_once(path: Path) -> None:
    async with opened(path, contract=NO_READ) as ground:
        await ground.start(operation(1))
        assert await _receive(ground, event("evt", "done"), event("evt", "done")) == ["new", "duplicate"]
        assert await _receive(ground, event("evt", "done")) == ["duplicate"]
        assert await ground.history() == [("move", "observing"), ("move", "result_collecting")]
        assert (await ground.get()).unconfirmed


async def test_the_same_id_of_two_providers_is_two_events(path: Path) -> None:
    async with opened(path) as ground:
        assert await _receive(ground, event("evt"), event("evt", provider="other")) == ["new", "new"]


async def test_the_body_is_kept_as_it_came(path: Path) -> None:
    async with opened(path) as ground:
        await _receive(ground, event("evt", body=b"\x00\xff not json"))
        assert ground.look("SELECT body FROM events") == [(b"\x00\xff not json",)]


async def test_a_body_that_cannot_be_read_is_kept_and_touches_nothing(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, due_at=LATER))
        before = ground.dump("operations", "schedule", "history")
        unreadable = event("evt", observation=None)
        assert await _receive(ground, unreadable, unreadable) == ["new", "duplicate"]
        assert _kept(ground) == [("evt", None, "unreadable", 1)]
        assert ground.dump("operations", "schedule", "history") == before


# ---- the same id with other content ----


@pytest.mark.parametrize("batches", [1, 2])
async def test_an_id_that_comes_with_other_content_is_a_contradiction_and_rings(path: Path, batches: int) -> None:
    first, other = event("evt", "running"), event("evt", "done", received_at=NOW + 7)
    async with opened(path) as ground:
        await ground.start(operation(1, due_at=LATER))
        if batches == 1:
            assert await _receive(ground, first, other) == ["new", "new"]
        else:
            assert [*await _receive(ground, first), *await _receive(ground, other)] == ["new", "new"]
        assert _kept(ground) == [("evt", "op_1", "rings", 0), ("evt", "op_1", "contradiction", 0)]
        op = await ground.get()
        assert (op.state, op.contradictions) == (S.OBSERVING, 1)
        assert (await ground.history())[1:] == [("contradiction", None)]
        assert ground.schedule()["due_at"] <= NOW + 7
        ground.check_chains()


async def test_the_other_content_rings_by_itself(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await _receive(ground, event("evt", "running"))
        claim = await ground.claim_one()
        await ground.apply(1, read("running"), fence=claim.fence)
        assert ground.schedule()["due_at"] > NOW + 7
        await _receive(ground, event("evt", "done", received_at=NOW + 7))
        assert ground.schedule()["due_at"] == NOW + 7


async def test_other_content_that_comes_again_is_a_duplicate_of_its_own(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        first, other = event("evt", "running"), event("evt", "done")
        assert await _receive(ground, first, other, other, first) == ["new", "new", "duplicate", "duplicate"]
        assert await _receive(ground, other) == ["duplicate"]
        assert [row[3] for row in _kept(ground)] == [1, 2]
        assert (await ground.get()).contradictions == 1


async def test_a_third_content_is_a_second_contradiction(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await _receive(ground, *(event("evt", word) for word in ("running", "done", "failed")))
        assert (await ground.get()).contradictions == 2
        assert [row[2] for row in _kept(ground)] == ["rings", "contradiction", "contradiction"]


async def test_other_content_is_a_contradiction_although_its_job_became_known_later(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        await _receive(ground, event("evt", "running"), event("evt", "done"))
        await ground.apply(1, accepted("job_1"))
        assert (await ground.get()).contradictions == 1
        assert [row[2] for row in _kept(ground)] == ["rings", "contradiction"]


# ---- before the job is known ----


async def test_an_event_for_an_unknown_job_stays_visible(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        before = ground.dump("operations", "schedule", "history")
        await _receive(ground, event("evt", job="stranger"))
        assert _kept(ground) == [("evt", None, "unmatched", 0)]
        counts = await ground.store.event_counts()
        assert counts == {"test": {"accepted": 1, "duplicate": 0, "unmatched": 1, "last_at": NOW}}
        assert ground.dump("operations", "schedule", "history") == before


async def test_an_event_of_another_provider_for_a_job_of_the_same_name_is_not_ours(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await _receive(ground, event("evt", provider="other"))
        assert _kept(ground) == [("evt", None, "unmatched", 0)]


@pytest.mark.parametrize("how", ["accepted", "late", "at once"])
async def test_a_kept_event_rings_in_the_transaction_that_makes_its_job_known(path: Path, how: str) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        claim = await ground.claim_one()
        await _receive(ground, event("evt_1"), event("evt_2"), event("other", job="job_2"))
        evidence = FinishedAtOnce(Observation("done", "job_1")) if how == "at once" else accepted("job_1", "running")
        fence = claim.fence - 1 if how == "late" else claim.fence
        commits = ground.store.commits
        await ground.apply(1, evidence, fence=fence, at=NOW + MINUTE)
        assert ground.store.commits == commits + 1
        assert [row[:2] for row in _kept(ground)] == [("evt_1", "op_1"), ("evt_2", "op_1"), ("other", None)]
        assert (await ground.get()).remote_job_id == "job_1"
        assert ground.schedule()["due_at"] <= NOW + MINUTE
        ground.check_chains()


async def test_a_kept_event_of_a_job_that_is_accepted_as_ended_is_matched_and_schedules_nothing(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        await _receive(ground, event("evt_1", "failed"), event("evt_2", "done"))
        await ground.apply(1, accepted("job_1", "failed"))
        op = await ground.get()
        assert (op.state, op.contradictions) == (S.FAILED, 1)
        assert [row[:2] for row in _kept(ground)] == [("evt_1", "op_1"), ("evt_2", "op_1")]
        assert ground.schedule() == {}
        ground.check_chains()


async def test_a_kept_event_of_another_provider_is_not_taken_for_a_job_of_the_same_name(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        await _receive(ground, event("evt", provider="other"))
        await ground.apply(1, accepted("job_1", "running"))
        await ground.start(operation(2, S.ACCEPTED, adopted=True, remote_job_id="job_2"))
        assert _kept(ground) == [("evt", None, "unmatched", 0)]
        assert ground.schedule()["due_at"] > NOW


async def test_without_a_kept_event_an_accepted_job_is_read_later(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        claim = await ground.claim_one()
        await ground.apply(1, accepted("job_1", "running"), fence=claim.fence)
        assert ground.schedule()["due_at"] > NOW


@pytest.mark.parametrize("order", ["event first", "answer first"])
async def test_an_event_and_its_create_answer_in_one_batch_find_each_other(path: Path, order: str) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        claim = await ground.claim_one()
        commits = ground.store.commits
        writes = [
            ground.store.receive(event("evt", received_at=NOW + 5)),
            ground.store.apply(arrival(1, accepted("job_1", "running"), fence=claim.fence, at=NOW + 5)),
        ]
        await together(*(writes if order == "event first" else reversed(writes)))
        assert ground.store.commits == commits + 1
        assert _kept(ground) == [("evt", "op_1", "rings", 0)]
        assert ground.schedule()["due_at"] == NOW + 5


async def test_killed_between_the_job_id_and_its_kept_event_neither_is_in_the_file(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        await _receive(ground, event("evt"))
        before = ground.dump()
        ground.hooks.before_commit = raising(Killed())
        await killed(ground, ground.store.apply(arrival(1, accepted("job_1"))))
    async with opened(path) as ground:
        assert ground.dump() == before
        await ground.apply(1, accepted("job_1"), at=NOW + 1)
        assert _kept(ground) == [("evt", "op_1", "rings", 0)]
        assert ground.schedule()["due_at"] <= NOW + 1


async def test_an_acceptance_is_told_of_although_a_kept_event_followed_it(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        await _receive(ground, event("evt"))
        ground.heard.clear()
        await ground.apply(1, accepted("job_1", "running"))
        told = [entry.to_state for done in ground.heard[-1] for change in done.changes for entry in change.entries]
        assert told == [to for _, to in (await ground.history())[1:]]
        assert S.ACCEPTED in told


async def test_a_kept_event_is_itself_the_evidence_where_jobs_cannot_be_read(path: Path) -> None:
    async with opened(path, contract=NO_READ) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        await _receive(ground, event("evt_1", "running"), event("evt_2", "done"), event("evt_3", "failed"))
        await ground.apply(1, accepted("job_1"))
        op = await ground.get()
        assert (op.state, op.unconfirmed, op.contradictions) == (S.RESULT_COLLECTING, True, 1)
        causes = [(row.to_state, row.cause) for row in await ground.store.history("op_1")]
        assert (S.RESULT_COLLECTING, "event:evt_2") in causes
        assert causes[-1] == (None, "event:evt_3")
        ground.check_chains()


async def test_a_kept_event_is_applied_when_its_job_is_adopted(path: Path) -> None:
    async with opened(path) as ground:
        await _receive(ground, event("evt"))
        await ground.start(operation(1, S.ACCEPTED, adopted=True, due_at=LATER))
        assert _kept(ground) == [("evt", "op_1", "rings", 0)]
        assert ground.schedule()["due_at"] <= NOW


async def test_a_kept_event_is_the_evidence_of_an_adopted_job_that_cannot_be_read(path: Path) -> None:
    async with opened(path, contract=NO_READ) as ground:
        await _receive(ground, event("evt", "done"))
        await ground.start(operation(1, S.ACCEPTED, adopted=True))
        op = await ground.get()
        assert (op.state, op.unconfirmed) == (S.RESULT_COLLECTING, True)


async def test_a_kept_event_of_a_job_that_a_person_chose_in_place_of_another_rings(path: Path) -> None:
    """It came while two jobs stood for the operation, and concerned neither that was held."""
    async with opened(path) as ground:
        await ground.start(operation(1, S.CONTRACT_VIOLATION, candidates=("job_x",)))
        await _receive(ground, event("evt_x", "done", "job_x"), event("evt_y", "done", "job_y"))
        assert [row[1] for row in _kept(ground)] == [None, None]
        await ground.apply(1, PersonDecided("d_1", Decision.CHOOSE_JOB, "ann", "that one", remote_job_id="job_x"))
        assert _kept(ground) == [("evt_x", "op_1", "rings", 0), ("evt_y", None, "unmatched", 0)]
        assert (ground.schedule()["due_at"], ground.schedule()["priority"]) == (NOW, Priority.RUNG)
        ground.check_chains()


async def test_a_kept_event_is_the_evidence_of_a_chosen_job_that_cannot_be_read(path: Path) -> None:
    async with opened(path, contract=NO_READ) as ground:
        await ground.start(operation(1, S.CONTRACT_VIOLATION, candidates=("job_x",)))
        await _receive(ground, event("evt_x", "done", "job_x"))
        await ground.apply(1, PersonDecided("d_1", Decision.CHOOSE_JOB, "ann", "that one", remote_job_id="job_x"))
        after = await ground.get()
        assert (after.state, after.remote_job_id, after.unconfirmed) == (S.RESULT_COLLECTING, "job_x", True)


async def test_an_end_that_was_told_of_the_former_job_is_none_of_the_chosen_one(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CONTRACT_VIOLATION, candidates=("job_x",)))
        await _receive(ground, event("evt_1", "done", "job_1", verdict=Verdict(VerdictKind.DONE, "done")))
        await ground.apply(1, PersonDecided("d_1", Decision.CHOOSE_JOB, "ann", "that one", remote_job_id="job_x"))
        for minute in range(1, 6):
            await ground.apply(1, JobGone(), at=NOW + minute * MINUTE)
        assert (await ground.get()).state is S.OBSERVATION_FAILED


async def test_kept_events_that_share_an_id_are_a_contradiction_of_the_adopted_job(path: Path) -> None:
    async with opened(path) as ground:
        await _receive(ground, event("evt", "running"), event("evt", "done"))
        await ground.start(operation(1, S.ACCEPTED, adopted=True))
        assert (await ground.get()).contradictions == 1
        assert [row[2] for row in _kept(ground)] == ["rings", "contradiction"]


# ---- after the end ----


async def _ended(ground: Ground, state: State) -> None:
    """Bring operation 1 to an end by the evidence that leads there."""
    match state:
        case S.FAILED:
            await ground.start(operation(1))
            await ground.apply(1, read("failed"))
        case S.CANCELLED:
            await ground.start(operation(1))
            await ground.apply(1, read("cancelled"))
        case S.TIMED_OUT | S.ABANDONED:
            given_up = S.RESULT_TIMED_OUT if state is S.TIMED_OUT else S.OBSERVATION_FAILED
            await ground.start(operation(1, given_up))
            await ground.apply(1, DeadlinePassed("attention"), at=NOW + 7 * DAY)
    assert (await ground.get()).state is state


@pytest.mark.parametrize(("state", "word"), [(S.FAILED, "failed"), (S.CANCELLED, "cancelled")])
async def test_an_event_that_tells_the_same_end_again_is_kept_and_changes_nothing(
    path: Path, state: State, word: str
) -> None:
    async with opened(path) as ground:
        await _ended(ground, state)
        before = ground.dump("operations", "schedule", "history", "observations")
        assert await _receive(ground, event("evt", word)) == ["new"]
        assert _kept(ground) == [("evt", "op_1", "kept", 0)]
        assert ground.dump("operations", "schedule", "history", "observations") == before


@pytest.mark.parametrize(
    ("state", "word"), [(S.FAILED, "done"), (S.CANCELLED, "failed"), (S.TIMED_OUT, "done"), (S.ABANDONED, "done")]
)
async def test_an_event_that_tells_another_end_is_a_contradiction(path: Path, state: State, word: str) -> None:
    async with opened(path) as ground:
        await _ended(ground, state)
        before = await ground.get()
        await _receive(ground, event("evt", word), event("evt", word))
        after = await ground.get()
        assert replace(after, contradictions=0, seq=before.seq, head=before.head) == before
        assert after.contradictions == 1
        assert (await ground.history())[-1] == ("contradiction", None)
        assert ground.schedule() == {}
        ground.check_chains()


async def test_an_event_while_results_are_collected_is_kept_and_moves_no_due_time(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.RESULT_COLLECTING))
        claim = await ground.claim_one()
        await ground.apply(1, CollectFailed("http_500"), fence=claim.fence)
        before, row = ground.dump("operations", "history"), ground.schedule()
        await _receive(ground, event("evt", "ended", received_at=NOW + 1))
        assert ground.dump("operations", "history") == before
        assert ground.schedule()["due_at"] == row["due_at"]
        assert _kept(ground) == [("evt", "op_1", "kept", 0)]


@pytest.mark.parametrize("state", [S.TIMED_OUT, S.ABANDONED])
@pytest.mark.parametrize("holder_is_older", [True, False])
async def test_an_event_concerns_the_operation_that_still_holds_the_job(
    path: Path, state: State, holder_is_older: bool
) -> None:
    async with opened(path) as ground:
        if holder_is_older:
            await ground.start(operation(2, S.CREATE_PENDING))
            await _ended(ground, state)
        else:
            await _ended(ground, state)
            await ground.start(operation(2, S.CREATE_PENDING))
        await ground.apply(2, accepted("job_1", "running"))
        before = await ground.get(1)
        await _receive(ground, event("evt", "done"))
        assert _kept(ground) == [("evt", "op_2", "rings", 0)]
        assert ground.schedule(2)["due_at"] == NOW
        assert await ground.get(1) == before


# ---- rings ----


@pytest.mark.parametrize(
    "state",
    [
        S.ACCEPTED,
        S.OBSERVING,
        S.BLOCKED,
        S.INPUT_GIVEN,
        S.CANCEL_REQUESTED,
        S.CANCELLING,
        S.CANCELLATION_UNCONFIRMED,
        S.RESULT_TIMED_OUT,
        S.OBSERVATION_FAILED,
    ],
)
async def test_a_ring_writes_the_event_and_the_due_time_and_nothing_else(path: Path, state: State) -> None:
    quiet = ("operations", "starts", "history", "observations", "requests", "items", "client_keys")
    async with opened(path) as ground:
        await ground.start(operation(1, state, due_at=LATER, priority=Priority.SWEPT, polls=3, errors=2))
        before, row, statements = ground.dump(*quiet), ground.schedule(), Statements()
        ground.hooks.before_begin = statements
        await _receive(ground, event("evt", "done", received_at=NOW + 5))
        assert ground.dump(*quiet) == before
        assert [sql for table in quiet for sql in statements.writes_to(table)] == []
        rung = {"due_at": NOW + 5, "priority": Priority.RUNG, "ring": "event:evt"}
        assert ground.schedule() == {**row, **rung}


async def test_a_ring_never_puts_a_row_off_or_makes_it_less_urgent(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CANCEL_REQUESTED, due_at=NOW - 5, priority=Priority.CANCEL))
        await _receive(ground, event("evt", received_at=NOW + 5))
        row = ground.schedule()
        assert (row["due_at"], row["priority"]) == (NOW - 5, Priority.CANCEL)


async def test_several_rings_of_one_batch_ring_each_row(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(*(operation(n, due_at=LATER) for n in range(30)))
        await _receive(ground, *(event(f"evt_{n}", job=f"job_{n % 30}") for n in range(90)))
        assert ground.one("SELECT count(*) FROM schedule WHERE due_at = ? AND ring IS NOT NULL", NOW) == 30


@pytest.mark.parametrize("times", [(1, 5, 9), (9, 5, 1), (5, 1, 9)])
async def test_of_several_rings_of_one_job_in_one_batch_the_first_to_come_counts(
    path: Path, times: tuple[int, ...]
) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, due_at=LATER))
        await _receive(ground, *(event(f"evt_{at}", received_at=NOW + at) for at in times))
        row = ground.schedule()
        assert (row["due_at"], row["ring"]) == (NOW + 1, "event:evt_1")


async def test_whoever_sleeps_is_told_when_a_rung_row_is_due(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, due_at=LATER))
        ground.heard.clear()
        await _receive(ground, event("evt", received_at=NOW + 5), event("evt", received_at=NOW + 5))
        assert [done.due_at for done in ground.heard[0]] == [NOW + 5, None]


async def test_a_ring_is_told_to_the_next_owner_once(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, due_at=LATER))
        await _receive(ground, event("evt"))
        claim = await ground.claim_one()
        assert claim.ring == "event:evt"
        await ground.apply(1, read("running"), fence=claim.fence)
        due_at = ground.schedule()["due_at"]
        assert due_at > NOW, "the ring was answered by this read"
        assert (await ground.claim_one(now=due_at)).ring is None


@pytest.mark.parametrize("batches", [1, 2])
async def test_a_ring_during_a_leased_read_survives_the_answer(path: Path, batches: int) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        claim = await ground.claim_one()
        ring = ground.store.receive(event("evt", received_at=NOW + 5))
        answer = ground.store.apply(
            arrival(1, read("running"), fence=claim.fence, at=NOW + 9, draw=0.5, **exchange("1"))
        )
        if batches == 1:
            await together(ring, answer)
        else:
            await together(ring)
            row = ground.schedule()
            assert (row["lease_owner"], row["fence"]) == ("A", claim.fence), "the ring touched the lease"
            await together(answer)
        row = ground.schedule()
        assert (row["lease_owner"], row["priority"]) == (None, Priority.RUNG)
        assert row["due_at"] <= NOW + 9
        again = await ground.claim_one("B", now=NOW + 9)
        assert again.ring == "event:evt"


async def test_a_ring_that_comes_after_the_answer_in_one_batch_makes_the_row_due(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        claim = await ground.claim_one()
        await together(
            ground.store.apply(arrival(1, read("running"), fence=claim.fence, at=NOW + 9)),
            ground.store.receive(event("evt", received_at=NOW + 10)),
        )
        assert ground.schedule()["due_at"] <= NOW + 10


async def test_a_ring_during_a_lease_that_runs_out_is_told_to_who_takes_over(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await ground.claim_one("A")
        await _receive(ground, event("evt", received_at=NOW + 5))
        assert (await ground.claim_one("B", now=NOW + 60_000)).ring == "event:evt"


@pytest.mark.parametrize(
    "ring",
    [
        lambda ground: ground.store.receive(event("evt", "running", received_at=NOW + 5)),
        lambda ground: ground.store.receive(event("known", "failed", received_at=NOW + 5)),  # other content
        lambda ground: ground.apply(1, read("running"), fence=0, at=NOW + 5),  # a lost lease's facts
    ],
)
async def test_whatever_rings_a_leased_row_survives_the_answer(path: Path, ring: Callable[[Ground], Any]) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await _receive(ground, event("known", "running"))
        claim = await ground.claim_one()
        await together(ring(ground))
        await ground.apply(1, read("running"), fence=claim.fence, at=NOW + 9)
        assert ground.schedule()["due_at"] <= NOW + 9


async def test_a_ring_is_no_reason_to_hold_back_what_ends_the_operation(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        claim = await ground.claim_one()
        await _receive(ground, event("evt", "failed"))
        await ground.apply(1, read("failed"), fence=claim.fence)
        assert ground.schedule() == {}
        assert (await ground.claim(now=LATER)).claims == ()


# ---- killed ----


async def test_a_delivery_that_was_not_acknowledged_has_its_effect_when_it_is_sent_again(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, due_at=LATER))
        before = ground.dump()
        ground.hooks.before_commit = raising(Killed())
        await killed(ground, ground.store.receive(event("evt")))
    async with opened(path) as ground:
        assert ground.dump() == before
        assert await _receive(ground, event("evt")) == ["new"]
        assert ground.schedule()["due_at"] == NOW


async def test_a_delivery_whose_acknowledgement_was_lost_is_a_duplicate_when_it_is_sent_again(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        ground.hooks.after_commit = raising(Killed())
        await killed(ground, ground.store.receive(event("evt")))
    async with opened(path) as ground:
        assert await _receive(ground, event("evt")) == ["duplicate"]
        assert _kept(ground) == [("evt", "op_1", "rings", 1)]


async def test_rings_of_a_batch_with_judged_events_stand_beside_them(path: Path) -> None:
    async with opened(path) as ground:
        await _ended(ground, S.FAILED)
        await ground.start(operation(2, due_at=LATER))
        ground.heard.clear()
        answers = await _receive(
            ground, event("a", "done"), event("b", job="job_2"), event("c", job="nobody"), event("a", "done")
        )
        assert answers == ["new", "new", "new", "duplicate"]
        assert [row[2] for row in _kept(ground)] == ["kept", "rings", "unmatched"]
        told = [[entry.kind for change in done.changes for entry in change.entries] for done in ground.heard[0]]
        assert told == [[EntryKind.CONTRADICTION], [], [], []]
        ground.check_chains()


async def test_a_start_and_an_event_for_its_job_in_one_batch_find_each_other(path: Path) -> None:
    async with opened(path) as ground:
        await together(
            ground.store.start(record(operation(1, S.ACCEPTED, adopted=True, due_at=LATER))),
            ground.store.receive(event("evt")),
        )
        assert _kept(ground) == [("evt", "op_1", "rings", 0)]
        assert ground.schedule()["due_at"] == NOW

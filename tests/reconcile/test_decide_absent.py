"""A provider that nothing may be asked of: what its due rows become, and what the first request after it means."""

from dataclasses import replace
from typing import Final

import pytest

from reconcile.decide import decide, next_action
from reconcile.decisions import Decision, open_to
from reconcile.evidence import (
    CancelAnswer,
    CancelAnswered,
    JobGone,
    PersonDecided,
    ProviderAbsent,
    ReadFailed,
)
from reconcile.intents import InputIntent
from reconcile.model import Absence, Attention, Operation
from reconcile.states import State
from tests.reconcile.rows import (
    BASE,
    CANCEL,
    CONSUMING,
    CONTRACT,
    DAY,
    HIGHEST,
    HOUR,
    INPUT,
    MINUTE,
    NOW,
    SWEEP,
    assert_cell,
    in_state,
    read,
    row,
    step,
)

S = State
GONE: Final = ProviderAbsent(Absence.MISSING, "put it back")
MOVED: Final = ProviderAbsent(Absence.MOVED, "name the old address")


def absent(reason: str = "provider_missing") -> Operation:
    """A row whose provider was absent when it was last due."""
    return in_state(S.OBSERVATION_FAILED, attention=Attention(reason, NOW - HOUR, "put it back"))


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="stays",
        watching={
            S.ACCEPTED: "observation_failed",
            S.OBSERVING: "observation_failed",
            S.BLOCKED: "observation_failed",
            S.INPUT_GIVEN: "stays",
        },
        cancelling="stays",
        stopped="stays",
        results="stays",
        terminal="-",
        unresolved="stays",
        violation="stays",
    ),
)
@pytest.mark.parametrize("evidence", [GONE, MOVED], ids=["missing", "moved"])
def test_a_due_row_of_an_absent_provider(state: State, cell: str, evidence: ProviderAbsent) -> None:
    op = in_state(state)
    change = step(op, evidence)
    assert_cell(op, change, cell)
    if cell != "observation_failed":
        assert change.entries == ()


@pytest.mark.parametrize(("evidence", "reason"), [(GONE, "provider_missing"), (MOVED, "provider_moved")])
@pytest.mark.parametrize("state", [S.ACCEPTED, S.OBSERVING, S.BLOCKED])
def test_the_question_bears_the_word_and_says_what_puts_it_right(
    state: State, evidence: ProviderAbsent, reason: str
) -> None:
    after = step(in_state(state), evidence).operation
    assert after.attention == Attention(reason, NOW, evidence.message)
    assert (after.schedule.due_at, after.schedule.deadline_at) == (NOW + 7 * DAY // 2, NOW + 7 * DAY)


def test_an_input_whose_answer_was_lost_waits_for_a_read_that_nobody_can_make() -> None:
    lost = InputIntent("input_1", "client:ci", NOW - MINUTE, answer="unknown")
    assert step(in_state(S.INPUT_GIVEN, input=lost), GONE).operation.state is S.OBSERVATION_FAILED


def test_an_input_that_was_not_sent_is_kept() -> None:
    after = step(in_state(S.INPUT_GIVEN, mark_at=NOW), GONE).operation
    assert (after.input, after.schedule.mark_at, next_action(after)) == (INPUT, None, "send_input")


@pytest.mark.parametrize(
    "state",
    [
        S.CREATE_PENDING,
        S.CREATE_UNKNOWN,
        S.INPUT_GIVEN,
        S.CANCEL_REQUESTED,
        S.CANCELLING,
        S.CANCELLATION_UNCONFIRMED,
        S.RESULT_COLLECTING,
    ],
)
@pytest.mark.parametrize(("draw", "wait"), [(0.0, BASE), (HIGHEST, SWEEP)])
def test_what_stays_is_looked_at_again_within_the_sweep_interval(state: State, draw: float, wait: int) -> None:
    """Its own deadline comes sooner where that is sooner."""
    far = replace(in_state(state).deadlines, create=NOW + HOUR, cancel=NOW + HOUR)
    after = step(in_state(state, deadlines=far), GONE, draw=draw).operation
    assert after.schedule.due_at == NOW + wait
    near = replace(far, **{str(after.state_deadline_name): NOW + MINUTE // 6})
    assert step(in_state(state, deadlines=near), GONE, draw=draw).operation.schedule.due_at == NOW + MINUTE // 6


@pytest.mark.parametrize(
    ("state", "deadline", "to"),
    [
        (S.CREATE_PENDING, "create", "failed"),
        (S.CREATE_UNKNOWN, "create", "create_unresolved"),
        (S.INPUT_GIVEN, "result", "result_timed_out"),
        (S.CANCEL_REQUESTED, "cancel", "cancellation_unconfirmed"),
        (S.CANCELLING, "cancel", "cancellation_unconfirmed"),
        (S.CANCELLATION_UNCONFIRMED, "attention", "abandoned"),
        (S.RESULT_COLLECTING, "collect", "result_unavailable"),
        (S.CREATE_UNRESOLVED, "attention", "abandoned"),
        (S.CONTRACT_VIOLATION, "attention", "abandoned"),
        (S.OBSERVATION_FAILED, "attention", "abandoned"),
        (S.RESULT_TIMED_OUT, "attention", "timed_out"),
        (S.RESULT_UNAVAILABLE, "attention", "abandoned"),
        (S.RESULT_VALIDATION_FAILED, "attention", "abandoned"),
    ],
)
def test_deadlines_run_without_a_last_read(state: State, deadline: str, to: str) -> None:
    op = in_state(state)
    passed = replace(op, deadlines=replace(op.deadlines, **{deadline: NOW}))
    change = step(passed, GONE)
    assert change.operation.state == to
    assert change.entries[-1].cause == f"deadline:{deadline}"
    told = [entry.reason for entry in change.entries[:-1] if "was not asked" in entry.reason]
    waits_for_a_person = deadline == "attention" and state is not S.CANCELLATION_UNCONFIRMED
    assert told == ([] if waits_for_a_person else ["test was not asked (provider_missing): put it back"])


@pytest.mark.parametrize("state", [S.ACCEPTED, S.OBSERVING, S.BLOCKED])
def test_a_job_whose_time_was_up_too_is_told_as_what_it_is_an_absent_provider(state: State) -> None:
    """Nobody has asked since: no last read could be made, and the person is told what keeps it from being made."""
    op = in_state(state)
    passed = replace(op, deadlines=replace(op.deadlines, result=NOW, input=NOW if state is S.BLOCKED else None))
    assert step(passed, GONE).operation.state is S.OBSERVATION_FAILED


def test_a_create_that_never_left_fails_as_never_sent_whatever_mark_the_claim_set() -> None:
    op = in_state(S.CREATE_PENDING, mark_at=NOW, marks_on_claim=True)
    after = step(op, GONE).operation
    assert after.schedule.mark_at is None
    late = replace(after, deadlines=replace(after.deadlines, create=NOW + MINUTE))
    failed = step(late, GONE, now=NOW + MINUTE).operation
    assert (failed.state, failed.error.code if failed.error else None) == (S.FAILED, "never_sent")


def test_a_create_that_a_person_let_be_sent_again_may_have_arrived_the_first_time() -> None:
    op = in_state(S.CREATE_PENDING, resends=1)
    assert step(replace(op, deadlines=replace(op.deadlines, create=NOW)), GONE).operation.state is S.CREATE_UNKNOWN


def test_a_cancel_that_did_not_leave_is_still_to_be_sent() -> None:
    after = step(in_state(S.CANCEL_REQUESTED, mark_at=NOW), GONE).operation
    assert (after.cancel, after.schedule.mark_at, next_action(after)) == (CANCEL, None, "send_cancel")
    assert after.schedule.marks_on_claim
    assert step(after, CancelAnswered(CancelAnswer.ACCEPTED)).operation.state is S.CANCELLING


def test_the_only_fetch_that_the_provider_allows_did_not_leave() -> None:
    after = step(in_state(S.RESULT_COLLECTING, mark_at=NOW), GONE, CONSUMING).operation
    assert (after.state, after.schedule.mark_at, after.schedule.marks_on_claim) == (S.RESULT_COLLECTING, None, True)


def test_a_question_of_its_own_is_not_renamed() -> None:
    op = in_state(S.OBSERVATION_FAILED)
    after = step(op, GONE).operation
    assert after.attention == op.attention
    assert (after.schedule.due_at, after.schedule.deadline_at) == (NOW - HOUR + (6 * DAY + HOUR) // 2, NOW + 6 * DAY)


def test_a_provider_that_came_back_at_another_address_is_told_as_that() -> None:
    change = step(absent(), MOVED)
    assert change.operation.attention == Attention("provider_moved", NOW - HOUR, "name the old address")
    assert [entry.reason for entry in change.entries] == ["name the old address"]
    assert step(change.operation, MOVED).entries == ()
    assert step(absent("provider_moved"), GONE).operation.attention == Attention(
        "provider_missing", NOW - HOUR, "put it back"
    )


def test_who_resumes_while_it_is_absent_is_asked_the_same_again() -> None:
    said = PersonDecided("decision_1", Decision.RESUME, "ann", "try")
    resumed = decide(absent(), CONTRACT, said, now=NOW, draw=0.0, cause="decision:decision_1").operation
    assert resumed.state is S.OBSERVING
    again = step(resumed, GONE).operation
    assert (again.state, again.attention) == (S.OBSERVATION_FAILED, Attention("provider_missing", NOW, "put it back"))


def test_what_is_offered_meanwhile_says_what_it_is_worth() -> None:
    told = {offer.decision.value: offer.effect for offer in open_to(absent(), CONTRACT)}
    assert sorted(told) == ["cancel", "give_up", "resume"]
    assert "the same question comes back" in told["resume"]
    assert "the cancel waits" in told["cancel"]
    plain = {offer.decision.value: offer.effect for offer in open_to(in_state(S.OBSERVATION_FAILED), CONTRACT)}
    assert not any("nothing may be asked" in effect for effect in plain.values())


# ---- put right -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", ["provider_missing", "provider_moved"])
@pytest.mark.parametrize(
    ("word", "to"),
    [("running", "observing"), ("waiting", "blocked"), ("ended", "result_collecting"), ("cancelled", "cancelled")],
)
def test_the_first_read_moves_it_on(reason: str, word: str, to: str) -> None:
    assert step(absent(reason), read(word)).operation.state == to


def test_a_first_read_that_fails_is_made_again_and_costs_the_usual_budget() -> None:
    after = step(absent(), ReadFailed("http_500")).operation
    assert (after.state, after.schedule.errors, after.attention) == (S.OBSERVING, 1, None)
    assert after.schedule.due_at == NOW + BASE
    spent = replace(after, schedule=replace(after.schedule, errors=19))
    asked = step(spent, ReadFailed("http_500")).operation
    assert (asked.state, asked.attention.reason if asked.attention else None) == (S.OBSERVATION_FAILED, "errors")


def test_a_job_that_is_gone_by_then_is_asked_for_a_whole_run_and_told_as_gone() -> None:
    op = absent("provider_moved")
    for n in range(5):
        assert op.state is (S.OBSERVING if n else S.OBSERVATION_FAILED)
        op = step(op, JobGone(), now=NOW + n * MINUTE).operation
    assert (op.state, op.attention.reason if op.attention else None) == (S.OBSERVATION_FAILED, "gone")


@pytest.mark.parametrize("evidence", [ReadFailed("http_500"), JobGone()])
def test_any_other_question_stands_whatever_a_read_comes_to(evidence: ReadFailed | JobGone) -> None:
    op = in_state(S.OBSERVATION_FAILED)
    assert step(op, evidence).operation.state is S.OBSERVATION_FAILED


def test_a_job_whose_result_deadline_passed_meanwhile_is_read_and_then_timed_out() -> None:
    op = absent()
    op = replace(op, deadlines=replace(op.deadlines, result=NOW - HOUR))
    running = step(op, read("running")).operation
    assert running.state is S.OBSERVING
    assert running.schedule.due_at == NOW - HOUR
    assert step(running, read("running")).operation.state is S.RESULT_TIMED_OUT

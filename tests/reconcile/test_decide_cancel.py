"""The evidence table, rows of a cancel by a person and of its answer."""

from dataclasses import replace

import pytest

from reconcile.contract import Contract
from reconcile.draft import next_action
from reconcile.evidence import (
    Accepted,
    CancelAnswer,
    CancelAnswered,
    CancelAsked,
    CreateNotAccepted,
    JobGone,
    ReadFailed,
)
from reconcile.model import EntryKind, Observation, Operation, Summary
from reconcile.states import Priority, State
from tests.reconcile.rows import (
    ALL_STATES,
    BASE,
    CANCEL,
    CANCELLING,
    CONTRACT,
    CREATING,
    HIGHEST,
    HOUR,
    MINUTE,
    NO_CANCEL,
    NOW,
    RESULTS,
    STOPPED,
    SWEEP,
    TERMINAL,
    WATCHING,
    assert_cell,
    in_state,
    read,
    row,
    step,
)

S = State
SENT = NOW - 5_000
ASKED = CancelAsked("cancel_2", "person:ann", "too dear", "stops the job")
SETTLES_NOTHING = (CancelAnswer.REFUSED, CancelAnswer.NOT_FOUND, CancelAnswer.TOO_LATE)

# ---- cancel by a person ----


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating={S.CREATE_PENDING: "cancelled", S.CREATE_UNKNOWN: "stays"},
        watching="cancel_requested",
        cancelling="the same answer",
        stopped="cancel_requested",
        results="409",
        terminal="409",
        unresolved="409",
        violation="409",
    ),
)
def test_a_person_asks_for_a_cancel(state: State, cell: str) -> None:
    op = in_state(state)
    assert_cell(op, step(op, ASKED, cause="cancel:cancel_2"), cell)


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="the same answer",
        watching="cancel_requested",
        cancelling="the same answer",
        stopped="cancel_requested",
        results="409",
        terminal="the same answer",
        unresolved="409",
        violation="409",
    ),
)
def test_a_person_asks_for_a_cancel_where_one_was_asked_before(state: State, cell: str) -> None:
    """What is watched again after a cancel was withdrawn takes a new intent."""
    op = in_state(state, cancel=CANCEL, mark_at=SENT if state in CREATING else None)
    assert_cell(op, step(op, ASKED), cell)


def test_a_create_that_may_have_left_is_not_cancelled_by_a_wish() -> None:
    """E6, N15: the intent waits for the job id, and nothing claims that it was done."""
    op = in_state(S.CREATE_PENDING, mark_at=SENT)
    change = step(op, ASKED, cause="cancel:cancel_2")
    assert_cell(op, change, "stays")
    assert change.operation.cancel is not None
    assert change.operation.schedule.mark_at == SENT
    assert [e.kind for e in change.entries] == [EntryKind.FACT]
    assert change.operation.deadlines.cancel is None


def test_a_create_that_was_not_accepted_is_surely_unsent_and_can_be_withdrawn() -> None:
    op = step(in_state(S.CREATE_PENDING, mark_at=SENT), CreateNotAccepted("http_401")).operation
    assert step(op, ASKED).operation.state is S.CANCELLED


@pytest.mark.parametrize("state", [*WATCHING, *STOPPED])
def test_the_intent_is_recorded_and_its_deadline_runs_before_anything_is_sent(state: State) -> None:
    """E1."""
    op = in_state(state)
    change = step(op, ASKED, cause="cancel:cancel_2")
    after = change.operation
    intent = after.cancel
    assert intent is not None
    assert (intent.cancel_id, intent.by, intent.reason, intent.effect, intent.requested_at, intent.answer) == (
        "cancel_2",
        "person:ann",
        "too dear",
        "stops the job",
        NOW,
        None,
    )
    assert intent.may_remain == "items done and billed"
    assert after.deadlines.cancel == NOW + 11 * MINUTE
    assert after.deadlines.result == op.deadlines.result
    assert after.schedule.due_at == NOW
    assert after.schedule.priority == Priority.CANCEL
    assert after.schedule.marks_on_claim
    assert next_action(after) == "send_cancel"
    assert change.entries[0].cause == "cancel:cancel_2"
    assert "person:ann" in change.entries[0].reason


def test_a_cancel_deadline_that_the_caller_gave_counts_from_the_intent() -> None:
    op = in_state(S.OBSERVING)
    op = replace(op, spans=replace(op.spans, cancel_ms=2 * MINUTE))
    assert step(op, ASKED).operation.deadlines.cancel == NOW + 2 * MINUTE


@pytest.mark.parametrize("state", [*WATCHING, *STOPPED, S.CREATE_UNKNOWN])
def test_where_the_provider_has_no_cancel_the_wish_is_refused(state: State) -> None:
    op = in_state(state)
    assert_cell(op, step(op, ASKED, NO_CANCEL), "409")


def test_what_was_surely_never_sent_is_withdrawn_even_where_the_provider_has_no_cancel() -> None:
    op = in_state(S.CREATE_PENDING)
    change = step(op, ASKED, NO_CANCEL)
    assert change.operation.outcome == "cancelled"
    assert change.operation.summary == Summary(total=3, cancelled=3)  # N10: with counts
    assert step(in_state(S.CREATE_PENDING, mark_at=SENT), ASKED, NO_CANCEL).refusal is not None


@pytest.mark.parametrize("state", [*RESULTS, *TERMINAL])
def test_a_refused_cancel_says_that_it_came_after_the_end(state: State) -> None:
    refusal = step(in_state(state), ASKED).refusal
    assert refusal is not None
    assert "ended" in refusal


@pytest.mark.parametrize("cancel", [None, CANCEL])
def test_a_cancel_of_an_unresolved_create_names_what_can_be_decided(cancel: object) -> None:
    refusal = step(in_state(S.CREATE_UNRESOLVED, cancel=cancel), ASKED).refusal
    assert refusal is not None
    assert "give_up" in refusal
    assert "adopt_job" in refusal


# ---- cancel answer: accepted / refused, not found, too late ----


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="-",
        watching="-",
        cancelling={**dict.fromkeys(CANCELLING, "stays"), S.CANCEL_REQUESTED: "cancelling"},
        stopped="-",
        results="-",
        terminal="kept",
    ),
)
def test_a_cancel_is_accepted(state: State, cell: str) -> None:
    """Which is a request under way: only the provider's word ends the job (D2)."""
    op = in_state(state, mark_at=SENT if state is S.CANCEL_REQUESTED else None)
    change = step(op, CancelAnswered(CancelAnswer.ACCEPTED))
    assert_cell(op, change, cell)
    if cell == "cancelling":
        after = change.operation
        assert after.cancel is not None
        assert after.cancel.answer == "accepted"
        assert after.schedule.mark_at is None
        assert after.deadlines.cancel == op.deadlines.cancel
        assert not after.schedule.marks_on_claim


@pytest.mark.parametrize(("draw", "due"), [(0.0, NOW + BASE), (HIGHEST, NOW + 2 * BASE)])
def test_after_an_accepted_cancel_polling_is_quick_again(draw: float, due: int) -> None:
    op = in_state(S.CANCEL_REQUESTED, mark_at=SENT, polls=9)
    after = step(op, CancelAnswered(CancelAnswer.ACCEPTED), draw=draw).operation
    assert after.schedule.due_at == due
    assert next_action(after) == "poll"


@pytest.mark.parametrize(
    ("word", "to"), [("ended", "result_collecting"), ("cancelled", "cancelled"), ("failed", "failed")]
)
def test_an_end_in_the_cancel_answer_is_believed_after_its_acceptance(word: str, to: str) -> None:
    op = in_state(S.CANCEL_REQUESTED, mark_at=SENT)
    change = step(op, CancelAnswered(CancelAnswer.ACCEPTED, observation=Observation(word, "job_1")))
    assert [e.to_state for e in change.entries] == [S.CANCELLING, State(to)]


@pytest.mark.parametrize("word", ["ended", "cancelled", "failed", "running", "forgotten"])
def test_a_cancel_answer_about_another_job_is_no_answer(word: str) -> None:
    """Nothing of it is believed; one read of our own job tells, and no second cancel is sent."""
    op = in_state(S.CANCEL_REQUESTED, mark_at=SENT, due_at=NOW + HOUR)
    change = step(op, CancelAnswered(CancelAnswer.ACCEPTED, observation=Observation(word, "job_2")))
    after = change.operation
    assert_cell(op, change, "stays")
    assert after.cancel is not None
    assert after.cancel.answer == "unknown"
    assert (after.remote_status, after.schedule.mark_at, after.schedule.due_at) == (op.remote_status, None, NOW)
    assert next_action(after) == "poll"
    assert "job_2" in change.entries[0].reason
    assert step(after, read("running")).operation.state is S.CANCELLING


@pytest.mark.parametrize("answer", SETTLES_NOTHING)
@pytest.mark.parametrize(
    ("state", "cell"),
    row(creating="-", watching="-", cancelling="stays", stopped="-", results="-", terminal="kept"),
)
def test_a_cancel_is_answered_by_a_no(state: State, cell: str, answer: CancelAnswer) -> None:
    op = in_state(state, mark_at=SENT if state is S.CANCEL_REQUESTED else None)
    assert_cell(op, step(op, CancelAnswered(answer, "http_409")), cell)


def refused(answer: CancelAnswer) -> Operation:
    """A row whose cancel was answered so."""
    op = in_state(S.CANCEL_REQUESTED, mark_at=SENT, marks_on_claim=True, due_at=NOW + HOUR)
    return step(op, CancelAnswered(answer, "http_409")).operation


@pytest.mark.parametrize("answer", [*SETTLES_NOTHING, CancelAnswer.UNKNOWN])
def test_after_a_no_or_no_answer_there_is_one_read_and_no_second_cancel(answer: CancelAnswer) -> None:
    op = refused(answer)
    assert op.state is S.CANCEL_REQUESTED
    assert op.schedule.mark_at is None
    assert op.schedule.due_at == NOW
    assert next_action(op) == "poll"
    assert not op.schedule.marks_on_claim
    assert op.cancel is not None
    assert op.cancel.answer == answer.value


@pytest.mark.parametrize("answer", [*SETTLES_NOTHING, CancelAnswer.UNKNOWN])
@pytest.mark.parametrize(
    ("word", "to"),
    [("ended", "result_collecting"), ("cancelled", "cancelled"), ("failed", "failed"), ("window_closed", "failed")],
)
def test_the_one_read_after_a_no_finds_its_end(answer: CancelAnswer, word: str, to: str) -> None:
    assert step(refused(answer), read(word)).operation.state == to


@pytest.mark.parametrize("answer", SETTLES_NOTHING)
@pytest.mark.parametrize("word", ["running", "waiting", "a word of tomorrow"])
def test_the_one_read_after_a_no_finds_a_job_that_runs_on(answer: CancelAnswer, word: str) -> None:
    change = step(refused(answer), read(word), draw=HIGHEST)
    after = change.operation
    assert after.state is S.CANCELLATION_UNCONFIRMED
    assert after.attention is not None
    assert after.attention.reason == "refused"
    assert after.schedule.due_at == NOW + SWEEP


@pytest.mark.parametrize("word", ["running", "waiting", "a word of tomorrow"])
def test_the_one_read_after_a_lost_answer_finds_a_job_that_may_be_cancelling(word: str) -> None:
    op = refused(CancelAnswer.UNKNOWN)
    change = step(op, read(word))
    assert change.operation.state is S.CANCELLING
    assert change.operation.deadlines.cancel == op.deadlines.cancel


@pytest.mark.parametrize("word", ["running", "waiting"])
def test_a_read_before_the_cancel_was_answered_leaves_it_to_be_sent(word: str) -> None:
    """A ring or a list page may come first."""
    change = step(in_state(S.CANCEL_REQUESTED), read(word))
    assert change.operation.state is S.CANCEL_REQUESTED
    assert next_action(change.operation) == "send_cancel"


# ---- cancel answer: not accepted / unknown ----


@pytest.mark.parametrize("answer", [CancelAnswer.NOT_ACCEPTED, CancelAnswer.UNKNOWN])
@pytest.mark.parametrize(
    ("state", "cell"),
    row(creating="-", watching="-", cancelling="stays", stopped="-", results="-", terminal="-"),
)
def test_a_cancel_gets_no_answer_that_counts(state: State, cell: str, answer: CancelAnswer) -> None:
    op = in_state(state, mark_at=SENT if state is S.CANCEL_REQUESTED else None)
    assert_cell(op, step(op, CancelAnswered(answer, "timeout")), cell)


def test_a_cancel_that_was_not_accepted_is_sent_again_after_the_pause() -> None:
    op = in_state(S.CANCEL_REQUESTED, mark_at=SENT)
    after = step(op, CancelAnswered(CancelAnswer.NOT_ACCEPTED, "http_429", 90_000)).operation
    assert after.schedule.mark_at is None
    assert after.schedule.due_at == NOW + 90_000
    assert next_action(after) == "send_cancel"
    assert after.schedule.marks_on_claim
    assert after.cancel is not None
    assert after.cancel.answer is None
    assert after.deadlines == op.deadlines


def test_a_cancel_that_is_never_accepted_is_escalated_at_its_deadline() -> None:
    """E3: never a claimed cancel."""
    op = in_state(S.CANCEL_REQUESTED, mark_at=SENT)
    late = NOW + 10 * MINUTE
    after = step(op, CancelAnswered(CancelAnswer.NOT_ACCEPTED, "http_429", HOUR), now=late).operation
    assert after.state is S.CANCELLATION_UNCONFIRMED


@pytest.mark.parametrize("state", ALL_STATES)
@pytest.mark.parametrize("answer", list(CancelAnswer))
def test_no_cancel_answer_makes_an_operation_cancelled(state: State, answer: CancelAnswer) -> None:
    """N15."""
    op = in_state(state)
    after = step(op, CancelAnswered(answer)).operation
    assert after.state is not S.CANCELLED or op.state is S.CANCELLED


def test_a_gone_job_or_an_error_while_cancelling_is_no_cancel() -> None:
    for evidence in (ReadFailed("http_404"), JobGone()):
        for state in CANCELLING:
            assert step(in_state(state), evidence).operation.state is state


# ---- contract_violation ----


@pytest.mark.parametrize("contract", [CONTRACT, NO_CANCEL])
@pytest.mark.parametrize("cancel", [None, CANCEL])
def test_in_contract_violation_nothing_is_asked_of_the_provider(contract: Contract, cancel: object) -> None:
    op = in_state(S.CONTRACT_VIOLATION, cancel=cancel)
    assert_cell(op, step(op, ASKED, contract), "409")
    assert_cell(op, step(op, CancelAnswered(CancelAnswer.ACCEPTED), contract), "kept")
    assert_cell(op, step(op, Accepted(Observation("ended", "job_2")), contract), "kept")


def test_a_cancel_that_is_asked_again_takes_no_ring_away() -> None:
    """A row that an event made due is served before what only the sweep would reach, whoever asks meanwhile."""
    rung = in_state(S.CANCELLING, due_at=NOW - 1, priority=Priority.RUNG)
    after = step(rung, CancelAsked("can_2", "bob", "again", "no more items")).operation
    assert (after.schedule.due_at, after.schedule.priority) == (NOW - 1, Priority.RUNG)


def test_a_cancel_that_waits_for_a_create_which_made_no_job_withdraws_it() -> None:
    """E6: nothing is made anew only to be cancelled."""
    op = in_state(S.CREATE_PENDING, mark_at=NOW)
    asked = step(op, CancelAsked("can_1", "ann", "not needed", "no work is done")).operation
    assert asked.state is S.CREATE_PENDING
    change = step(asked, CreateNotAccepted("http_429"))
    assert_cell(asked, change, "cancelled")
    assert next_action(change.operation) is None
    resent = replace(asked, resends=1)
    assert step(resent, CreateNotAccepted("http_429")).operation.state is S.CREATE_PENDING, "the first may have arrived"

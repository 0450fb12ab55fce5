"""The evidence table, rows of an input by a person and of its answer."""

import pytest

from reconcile.draft import next_action
from reconcile.evidence import InputAnswer, InputAnswered, InputAsked
from reconcile.states import State
from tests.reconcile.rows import (
    ALL_STATES,
    HOUR,
    INPUT,
    NO_INPUT,
    NOW,
    WATCHING,
    assert_cell,
    in_state,
    read,
    row,
    step,
)

S = State
SENT = NOW - 5_000
GIVEN = InputAsked("input_2", "client:ci")

# ---- input by a person ----


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="409",
        watching={**dict.fromkeys(WATCHING, "409"), S.BLOCKED: "input_given"},
        cancelling="409",
        stopped="409",
        results="409",
        terminal="409",
        unresolved="409",
        violation="409",
    ),
)
def test_a_client_gives_input(state: State, cell: str) -> None:
    op = in_state(state)
    assert_cell(op, step(op, GIVEN, cause="input:input_2"), cell)


def test_input_is_recorded_before_it_is_sent_and_sent_once() -> None:
    change = step(in_state(S.BLOCKED), GIVEN, cause="input:input_2")
    after = change.operation
    assert after.input is not None
    assert (after.input.input_id, after.input.by, after.input.given_at) == ("input_2", "client:ci", NOW)
    assert after.input.answer is None
    assert next_action(after) == "send_input"
    assert after.schedule.due_at == NOW
    assert after.schedule.marks_on_claim
    assert after.attention is None
    assert after.deadlines.input is None
    assert change.entries[0].cause == "input:input_2"


@pytest.mark.parametrize("state", ALL_STATES)
def test_where_the_provider_takes_no_input_it_is_refused_everywhere(state: State) -> None:
    op = in_state(state)
    assert_cell(op, step(op, GIVEN, NO_INPUT), "409")


# ---- input answer: accepted / refused / not accepted / unknown ----


@pytest.mark.parametrize(
    ("answer", "in_input_given"),
    [
        (InputAnswer.ACCEPTED, "observing"),
        (InputAnswer.REFUSED, "blocked"),
        (InputAnswer.NOT_ACCEPTED, "stays"),
        (InputAnswer.UNKNOWN, "stays"),
    ],
)
@pytest.mark.parametrize("state", ALL_STATES)
def test_an_input_is_answered(state: State, answer: InputAnswer, in_input_given: str) -> None:
    """In every other state the answer comes too late to mean anything."""
    op = in_state(state, mark_at=SENT if state is S.INPUT_GIVEN else None)
    change = step(op, InputAnswered(answer, "http_422"))
    assert_cell(op, change, in_input_given if state is S.INPUT_GIVEN else "-")
    if state is S.INPUT_GIVEN:
        assert change.operation.schedule.mark_at is None


def test_a_refused_input_is_shown_in_the_question() -> None:
    after = step(in_state(S.INPUT_GIVEN, mark_at=SENT), InputAnswered(InputAnswer.REFUSED, "http_422")).operation
    assert after.attention is not None
    assert after.attention.reason == "input_required"
    assert "http_422" in after.attention.message
    assert after.deadlines.input == NOW + 24 * HOUR


def test_an_input_that_was_not_accepted_is_sent_again() -> None:
    op = in_state(S.INPUT_GIVEN, mark_at=SENT)
    after = step(op, InputAnswered(InputAnswer.NOT_ACCEPTED, "http_429", 90_000)).operation
    assert next_action(after) == "send_input"
    assert after.schedule.due_at == NOW + 90_000
    assert after.schedule.marks_on_claim
    assert after.input == INPUT


@pytest.mark.parametrize(
    ("word", "to", "reason"),
    [
        ("waiting", "blocked", "input_unknown"),
        ("running", "observing", None),
        ("a word of tomorrow", "observing", None),
        ("ended", "result_collecting", None),
        ("failed", "failed", None),
    ],
)
def test_an_input_whose_answer_was_lost_is_read_for_once(word: str, to: str, reason: str | None) -> None:
    op = in_state(S.INPUT_GIVEN, mark_at=SENT, due_at=NOW + HOUR)
    op = step(op, InputAnswered(InputAnswer.UNKNOWN, "timeout")).operation
    assert (next_action(op), op.schedule.due_at) == ("poll", NOW)
    assert not op.schedule.marks_on_claim
    after = step(op, read(word)).operation
    assert after.state == to
    assert (after.attention.reason if after.attention else None) == reason

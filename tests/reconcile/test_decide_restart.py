"""What a restart finds: a mark without an answer, or none. A restored backup: test_decide_restored.py."""

import pytest

from reconcile.contract import Contract
from reconcile.draft import next_action
from reconcile.evidence import CancelAnswer, CancelAnswered, FoundAtStart, FoundInBackup, InputAnswer, InputAnswered
from reconcile.states import State
from tests.reconcile.rows import (
    CANCEL,
    CANCELLING,
    CONSUMING,
    CONTRACT,
    CREATING,
    HOUR,
    INPUT,
    NOW,
    STOPPED,
    TERMINAL,
    assert_cell,
    in_state,
    read,
    row,
    running,
    step,
)

S = State
SENT = NOW - 5_000


# ---- what a restart finds ----


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating={S.CREATE_PENDING: "create_unknown", S.CREATE_UNKNOWN: "stays"},
        watching="stays",
        cancelling="stays",
        stopped="stays",
        results="stays",
        terminal="-",
    ),
)
def test_a_restart_finds_a_mark_without_an_answer(state: State, cell: str) -> None:
    op = in_state(state, mark_at=SENT)
    change = step(op, FoundAtStart(), cause="start:1")
    assert_cell(op, change, cell)
    assert all(e.cause == "start:1" for e in change.entries)


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="stays",
        watching="stays",
        cancelling="stays",
        stopped="stays",
        results="stays",
        terminal="-",
    ),
)
@pytest.mark.parametrize("is_repeatable", [True, False])
@pytest.mark.parametrize("contract", [CONTRACT, CONSUMING])
def test_a_restart_finds_no_mark(state: State, cell: str, is_repeatable: bool, contract: Contract) -> None:
    op = in_state(state)
    change = step(op, FoundAtStart(is_repeatable=is_repeatable), contract)
    assert_cell(op, change, cell)
    assert change.entries == ()
    if state not in TERMINAL:
        assert next_action(change.operation) == next_action(op)
        assert change.operation.cancel == op.cancel
        assert change.operation.input == op.input


def test_an_upload_that_a_restart_cut_off_is_done_again() -> None:
    """No mark stands before the create's own send."""
    op = in_state(S.CREATE_PENDING, steps={})
    after = step(op, FoundAtStart()).operation
    assert (after.state, next_action(after)) == (S.CREATE_PENDING, "submit")


@pytest.mark.parametrize("state", [S.CANCEL_REQUESTED, S.INPUT_GIVEN])
def test_a_repeatable_send_is_sent_again_after_a_restart(state: State) -> None:
    op = in_state(state, mark_at=SENT, due_at=NOW + HOUR)
    after = step(op, FoundAtStart(is_repeatable=True)).operation
    assert after.schedule.mark_at is None
    assert after.schedule.due_at == NOW
    assert next_action(after) == next_action(op)
    assert after.schedule.marks_on_claim


@pytest.mark.parametrize(
    ("state", "word", "to", "reason"),
    [
        (S.CANCEL_REQUESTED, "running", "cancelling", None),
        (S.CANCEL_REQUESTED, "waiting", "cancelling", None),
        (S.CANCEL_REQUESTED, "ended", "result_collecting", None),
        (S.CANCEL_REQUESTED, "cancelled", "cancelled", None),
        (S.INPUT_GIVEN, "waiting", "blocked", "input_unknown"),
        (S.INPUT_GIVEN, "running", "observing", None),
        (S.INPUT_GIVEN, "ended", "result_collecting", None),
    ],
)
@pytest.mark.parametrize("found", [FoundAtStart(), FoundInBackup(NOW - HOUR)])
def test_a_send_that_is_not_repeatable_is_read_for_once(
    state: State, word: str, to: str, reason: str | None, found: FoundAtStart | FoundInBackup
) -> None:
    op = in_state(state, mark_at=SENT if isinstance(found, FoundAtStart) else None, due_at=NOW + HOUR)
    op = step(op, found).operation
    assert op.state is state
    assert op.schedule.mark_at is None
    assert op.schedule.due_at == NOW
    assert next_action(op) == "poll"
    assert not op.schedule.marks_on_claim
    after = step(op, read(word)).operation
    assert after.state == to
    assert (after.attention.reason if after.attention else None) == reason


def test_a_consuming_fetch_that_a_restart_cut_off_is_unavailable() -> None:
    """F5: it is made once."""
    op = in_state(S.RESULT_COLLECTING, mark_at=SENT)
    after = step(op, FoundAtStart(is_repeatable=True), CONSUMING).operation
    assert after.state is S.RESULT_UNAVAILABLE


def test_a_plain_fetch_that_a_restart_cut_off_is_made_again() -> None:
    op = in_state(S.RESULT_COLLECTING, mark_at=SENT, due_at=NOW + HOUR)
    after = step(op, FoundAtStart()).operation
    assert after.state is S.RESULT_COLLECTING
    assert after.schedule.mark_at is None
    assert after.schedule.due_at == NOW
    assert next_action(after) == "collect"


@pytest.mark.parametrize("state", CREATING)
def test_a_restart_throws_away_no_cancel_that_waits(state: State) -> None:
    op = in_state(state, mark_at=SENT, cancel=CANCEL)
    assert step(op, FoundAtStart()).operation.cancel == CANCEL


def test_an_answer_that_comes_after_the_restart_had_asked_is_believed() -> None:
    op = step(in_state(S.CANCEL_REQUESTED, mark_at=SENT), FoundAtStart()).operation
    assert step(op, CancelAnswered(CancelAnswer.ACCEPTED)).operation.state is S.CANCELLING
    given = step(in_state(S.INPUT_GIVEN, mark_at=SENT), FoundAtStart()).operation
    assert step(given, InputAnswered(InputAnswer.ACCEPTED)).operation.state is S.OBSERVING


def test_the_rows_these_tests_start_from_wait_for_what_their_state_names() -> None:
    assert in_state(S.INPUT_GIVEN).input == INPUT
    for state in CANCELLING:
        assert in_state(state).cancel == CANCEL
    for state in (*STOPPED, S.CREATE_UNRESOLVED):
        assert set(running(in_state(state))) >= {"create", "attention"}

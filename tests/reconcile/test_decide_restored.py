"""What the first start of a restored backup makes of its rows: what may have been sent since counts as sent."""

from dataclasses import replace
from typing import Any

import pytest

from reconcile.contract import Contract, Lookup
from reconcile.decisions import Decision, open_to
from reconcile.draft import next_action
from reconcile.evidence import Accepted, CreateNotAccepted, DeadlinePassed, FoundInBackup, LookedAgain, LookupFound
from reconcile.model import Change, EntryKind, Observation, Operation
from reconcile.rules.waiting import is_unsent
from reconcile.states import State
from tests.reconcile.rows import (
    CANCEL,
    CANCELLING,
    CONSUMING,
    CONTRACT,
    CREATING,
    HOUR,
    INPUT,
    MINUTE,
    NOW,
    TERMINAL,
    assert_cell,
    in_state,
    read,
    row,
    step,
)

S = State
MADE_AT = NOW - HOUR
#: As the words spell it.
SPELLED = "2027-01-15T07:00:00Z"
RESTORED = FoundInBackup(MADE_AT)
REPEATABLE = FoundInBackup(MADE_AT, is_repeatable=True)


def restored(op: Operation, evidence: FoundInBackup = RESTORED, contract: Contract = CONTRACT) -> Operation:
    """The row once the first start has seen it."""
    return step(op, evidence, contract).operation


def reasons(change: Change) -> list[str]:
    """What the history says of it."""
    return [entry.reason for entry in change.entries]


@pytest.mark.parametrize("mark_at", [None, NOW - 2 * HOUR])
@pytest.mark.parametrize("evidence", [RESTORED, REPEATABLE])
@pytest.mark.parametrize(
    ("contract", "state", "cell"),
    [
        (contract, *param.values)
        for contract, fetch in ((CONTRACT, "stays"), (CONSUMING, "result_unavailable"))
        for param in row(
            creating={S.CREATE_PENDING: "create_unknown", S.CREATE_UNKNOWN: "stays"},
            watching="stays",
            cancelling="stays",
            stopped="stays",
            results={
                S.RESULT_COLLECTING: fetch,
                S.RESULT_UNAVAILABLE: "stays",
                S.RESULT_VALIDATION_FAILED: "stays",
            },
            terminal="-",
        )
    ],
)
def test_what_may_have_been_sent_counts_as_sent(
    state: State, cell: str, contract: Contract, evidence: FoundInBackup, mark_at: int | None
) -> None:
    op = in_state(state, mark_at=mark_at)
    change = step(op, evidence, contract)
    assert_cell(op, change, cell)
    assert all(SPELLED in reason and "restored backup" in reason for reason in reasons(change))
    is_told = state in (
        S.CREATE_PENDING,
        S.CREATE_UNKNOWN,
        S.CREATE_UNRESOLVED,
        S.CANCEL_REQUESTED,
        S.CANCELLATION_UNCONFIRMED,
        S.INPUT_GIVEN,
    )
    assert bool(change.entries) == (is_told or cell == "result_unavailable")
    if state not in TERMINAL:
        assert change.operation.cancel == op.cancel or state is S.CANCEL_REQUESTED
        assert change.operation.input == op.input or state is S.INPUT_GIVEN


@pytest.mark.parametrize("state", [state for state in S if state not in TERMINAL])
@pytest.mark.parametrize("more", [{}, {"cancel": CANCEL}, {"input": INPUT}])
@pytest.mark.parametrize("evidence", [RESTORED, REPEATABLE])
def test_a_start_that_was_killed_and_goes_on_says_nothing_new(
    state: State, more: dict[str, Any], evidence: FoundInBackup
) -> None:
    """But for what is sent again as it may be: that is said each time, and is still not sent by then."""
    first = step(in_state(state, **more), evidence)
    once, twice = first.operation, step(first.operation, evidence)
    assert twice.operation.state is once.state
    assert twice.operation.attention == once.attention
    is_sent_again = evidence is REPEATABLE and state in (S.CANCEL_REQUESTED, S.INPUT_GIVEN)
    assert reasons(twice) == (reasons(first) if is_sent_again else [])
    assert next_action(twice.operation) == next_action(once)


# ---- creates ----


def test_a_create_whose_time_was_over_long_ago_is_looked_up_and_did_not_fail() -> None:
    op = in_state(S.CREATE_PENDING, steps={}, deadlines=replace(in_state(S.CREATE_PENDING).deadlines, create=MADE_AT))
    op = restored(op)
    assert not is_unsent(op)
    assert (op.state, next_action(op)) == (S.CREATE_UNKNOWN, "reconcile_create")
    assert op.schedule.due_at <= NOW
    after = step(op, LookupFound((), is_whole=False)).operation
    assert after.state is S.CREATE_UNRESOLVED
    assert after.error is None


RESEND = replace(CONTRACT, on_absent="resend")
BY_COUNT = replace(CONTRACT, adopt="by_count", lookup=Lookup(is_sure=False))


@pytest.mark.parametrize("state", CREATING)
def test_a_permission_to_send_again_may_be_spent(state: State) -> None:
    absent = LookupFound((), is_whole=True)
    for op, expected in ((in_state(state), S.CREATE_PENDING), (restored(in_state(state)), S.CREATE_UNKNOWN)):
        unknown = replace(op, state=S.CREATE_UNKNOWN, unknown_since=NOW - HOUR, candidates=())
        after = step(unknown, absent, RESEND).operation
        assert (after.state, after.resends) == (expected, int(expected is S.CREATE_PENDING))


@pytest.mark.parametrize("state", CREATING)
def test_the_only_job_of_the_right_size_may_be_of_a_start_that_is_not_known_here(state: State) -> None:
    only = LookupFound(("job_x",), is_sure=False, same_size=("job_x",), is_only_lost=True)
    for op, expected in ((in_state(state), S.ACCEPTED), (restored(in_state(state)), S.CREATE_UNKNOWN)):
        unknown = replace(op, state=S.CREATE_UNKNOWN, unknown_since=NOW - HOUR, candidates=())
        after = step(unknown, only, BY_COUNT).operation
        assert after.state is expected
        assert (after.candidates == ("job_x",)) == (expected is S.CREATE_UNKNOWN)


def test_nothing_found_leads_to_a_person_who_is_told_why_in_words() -> None:
    change = step(in_state(S.CREATE_PENDING), RESTORED, cause="start:1")
    told = "the create may have been sent since; it is looked up, not sent again"
    assert reasons(change) == [f"this file is a restored backup of {SPELLED}: {told}"]
    assert [entry.cause for entry in change.entries] == ["start:1"]
    late = step(change.operation, LookupFound(()), now=NOW + HOUR).operation
    assert late.state is S.CREATE_UNRESOLVED
    resend = next(offer for offer in open_to(late, CONTRACT) if offer.decision is Decision.RESEND)
    assert "runs twice" in resend.effect


def test_a_question_that_may_have_been_decided_says_so() -> None:
    op = restored(in_state(S.CREATE_UNRESOLVED))
    assert op.attention is not None
    told = f"this file is a restored backup of {SPELLED}: it may have been decided since to send the create again"
    assert op.attention.message.endswith(told)
    assert op.restored
    op = restored(in_state(S.CANCELLATION_UNCONFIRMED))
    assert op.attention is not None
    assert "to send the cancel again" in op.attention.message
    assert not op.restored


def test_after_two_creates_that_the_original_may_have_sent_the_account_is_looked_through_once_more() -> None:
    op = step(restored(in_state(S.CREATE_PENDING)), Accepted(Observation("ended", "job_1"), by_lookup=True)).operation
    assert op.state is S.RESULT_COLLECTING
    assert op.restored
    two = step(op, LookedAgain(("job_1", "job_2"))).operation
    assert (two.state, two.candidates) == (S.CONTRACT_VIOLATION, ("job_2",))
    one = step(op, LookedAgain(("job_1",)))
    why = "since the create may have been sent again before the restore"
    assert reasons(one) == [f"the account was looked through once more {why}: no second job shows"]


# ---- cancels ----


@pytest.mark.parametrize("state", CREATING)
def test_a_cancel_that_waits_for_the_job_may_have_been_sent(state: State) -> None:
    """N15: once the job is found, it is read and not cancelled a second time."""
    op = restored(in_state(state, cancel=CANCEL))
    assert op.cancel is not None
    assert op.cancel.answer == "unknown"
    op = step(op, Accepted(Observation("running", "job_1"), by_lookup=True)).operation
    assert op.state is S.CANCEL_REQUESTED
    assert next_action(op) == "poll"
    assert not op.schedule.marks_on_claim
    assert op.schedule.due_at <= NOW
    assert step(op, read("cancelled")).operation.state is S.CANCELLED
    running = step(op, read("running")).operation
    assert running.state is S.CANCELLING
    late = step(running, DeadlinePassed("cancel", last_read=True), now=NOW + HOUR).operation
    assert late.state is S.CANCELLATION_UNCONFIRMED


def test_a_cancel_that_waits_and_may_be_sent_twice_is_sent() -> None:
    op = restored(in_state(S.CREATE_PENDING, cancel=CANCEL), REPEATABLE)
    assert op.cancel == CANCEL
    op = step(op, Accepted(Observation("running", "job_1"), by_lookup=True)).operation
    assert (op.state, next_action(op)) == (S.CANCEL_REQUESTED, "send_cancel")


def test_who_decides_is_told_that_the_waiting_cancel_may_have_been_sent() -> None:
    op = restored(in_state(S.CREATE_UNRESOLVED, cancel=CANCEL, deadlines=in_state(S.CREATE_UNRESOLVED).deadlines))
    adopt = next(offer for offer in open_to(op, CONTRACT) if offer.decision is Decision.ADOPT_JOB)
    assert "may have been sent already" in adopt.effect


@pytest.mark.parametrize("state", [S.CANCEL_REQUESTED, S.INPUT_GIVEN])
def test_what_may_be_sent_twice_is_sent_and_told(state: State) -> None:
    op = in_state(state, due_at=NOW + HOUR)
    change = step(op, REPEATABLE)
    assert next_action(change.operation) == next_action(op)
    assert change.operation.schedule.due_at == NOW
    assert change.operation.schedule.marks_on_claim
    assert [entry.kind for entry in change.entries] == [EntryKind.FACT]


def test_a_cancel_that_was_answered_stands_as_it_was() -> None:
    for state in CANCELLING:
        op = in_state(state, cancel=replace(CANCEL, answer="accepted"))
        assert restored(op).cancel == op.cancel


def test_no_cancel_withdraws_a_create_that_a_person_let_be_sent_again() -> None:
    """Where that one is not accepted, the original's may have arrived all the same."""
    op = restored(in_state(S.CREATE_PENDING, cancel=CANCEL))
    again = replace(op, state=S.CREATE_PENDING, resends=1)
    after = step(again, CreateNotAccepted("http_429"), now=NOW + MINUTE).operation
    assert after.state is S.CREATE_PENDING

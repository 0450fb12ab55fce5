"""The evidence table, row of the deadlines; the deadlines table; what a restart finds."""

from dataclasses import replace
from typing import Any

import pytest

from reconcile.contract import Contract
from reconcile.draft import next_action
from reconcile.evidence import (
    Accepted,
    CancelAsked,
    CreateNotAccepted,
    CreateUnknown,
    DeadlinePassed,
    EventSeen,
    JobGone,
    LookupFound,
    ReadFailed,
)
from reconcile.model import EntryKind, Observation, Operation, Summary
from reconcile.states import State
from tests.reconcile.rows import (
    ALL_STATES,
    CONTRACT,
    DAY,
    DEADLINE_NAMES,
    DEADLINES_OF,
    HOUR,
    MINUTE,
    NOW,
    REASONS_OF,
    TERMINAL,
    WATCHING,
    assert_cell,
    in_state,
    read,
    running,
    step,
)

S = State
SENT = NOW - 5_000


def its_end(op: Operation) -> tuple[str, int]:
    """The deadline that ends the waiting in the row's state: its name and its time."""
    times = {n: v for n, v in running(op).items() if n in DEADLINES_OF[op.state.value]}
    name = min(times, key=lambda n: times[n])
    return name, times[name]


# ---- a deadline of the state ----

#: state: where its deadline leads, as the states table says it; a create without a send mark is the second line.
LEADS_TO = {
    "create_pending": "create_unknown",
    "create_unknown": "create_unresolved",
    "accepted": "result_timed_out",
    "observing": "result_timed_out",
    "blocked": "result_timed_out",
    "input_given": "result_timed_out",
    "cancel_requested": "cancellation_unconfirmed",
    "cancelling": "cancellation_unconfirmed",
    "result_collecting": "result_unavailable",
    "create_unresolved": "abandoned",
    "contract_violation": "abandoned",
    "observation_failed": "abandoned",
    "result_timed_out": "timed_out",
    "cancellation_unconfirmed": "abandoned",
    "result_unavailable": "abandoned",
    "result_validation_failed": "abandoned",
}


@pytest.mark.parametrize("late", [0, 3 * DAY])
@pytest.mark.parametrize(("name", "to"), LEADS_TO.items())
def test_the_deadline_of_a_state_leads_to_what_the_table_says(name: str, to: str, late: int) -> None:
    op = in_state(State(name), mark_at=SENT if name == "create_pending" else None)
    deadline, at = its_end(op)
    change = step(op, DeadlinePassed(deadline, last_read=True), now=at + late)
    assert_cell(op, change, to)
    assert [(e.kind, e.cause) for e in change.entries] == [(EntryKind.MOVE, f"deadline:{deadline}")]


def test_a_create_that_was_never_sent_fails_at_its_deadline_and_says_so() -> None:
    op = in_state(S.CREATE_PENDING)
    change = step(op, DeadlinePassed("create"), now=NOW + 14 * MINUTE)
    assert_cell(op, change, "failed")
    assert change.operation.error is not None
    assert change.operation.error.code == "never_sent"
    assert change.operation.summary == Summary(total=3, failed=3)  # N12: each submitted id has a word
    assert change.entries[0].cause == "deadline:create"


def test_a_create_that_was_never_accepted_fails_at_its_deadline_and_says_what_it_came_to() -> None:
    """Whoever has to mend a key or an address reads it where the operation failed."""
    op = in_state(S.CREATE_PENDING, mark_at=NOW)
    for _ in range(3):
        op = step(op, CreateNotAccepted("http_401")).operation
    failed = step(op, DeadlinePassed("create"), now=NOW + 14 * MINUTE).operation
    assert failed.error is not None
    assert failed.error.code == "never_sent"
    assert "not accepted in 3 tries, the last came to http_401" in failed.error.message


@pytest.mark.parametrize("name", LEADS_TO)
def test_before_its_time_a_deadline_changes_nothing(name: str) -> None:
    op = in_state(State(name))
    if op.attention is not None:
        op = replace(op, attention=replace(op.attention, reminded_at=NOW))
    deadline, at = its_end(op)
    change = step(op, DeadlinePassed(deadline, last_read=True), now=at - 1)
    assert_cell(op, change, "-")
    assert change.entries == ()


@pytest.mark.parametrize("deadline", DEADLINE_NAMES)
@pytest.mark.parametrize("state", ALL_STATES)
def test_a_deadline_that_is_not_the_states_own_changes_nothing(state: State, deadline: str) -> None:
    """While cancelling, the result deadline does not fire; after an acceptance the create's does not."""
    op = in_state(state)
    if deadline in DEADLINES_OF.get(state.value, ()):
        return
    op = replace(op, deadlines=replace(op.deadlines, **{deadline: NOW - DAY}))
    change = step(op, DeadlinePassed(deadline, last_read=True))
    assert_cell(op, change, "-")


@pytest.mark.parametrize("state", WATCHING)
def test_before_the_result_times_out_comes_one_last_read(state: State) -> None:
    """C5."""
    op = in_state(state, due_at=NOW + 30 * HOUR)
    name, at = its_end(op)
    change = step(op, DeadlinePassed(name), now=at)
    assert_cell(op, change, "stays")
    assert change.operation.schedule.due_at <= at


@pytest.mark.parametrize("word", ["ended", "done", "cancelled+files"])
@pytest.mark.parametrize("state", WATCHING)
def test_a_last_read_that_shows_an_end_is_believed(state: State, word: str) -> None:
    op = in_state(state)
    _, at = its_end(op)
    assert step(op, read(word), now=at + 1).operation.state is S.RESULT_COLLECTING


@pytest.mark.parametrize(
    "evidence",
    [
        read("running"),
        read("a word of tomorrow"),
        ReadFailed("http_500"),
        ReadFailed("paused", counts=False),
        JobGone(),
    ],
    ids=["pending", "unknown", "error", "paused", "gone"],
)
def test_a_last_read_that_shows_no_end_times_the_result_out(evidence: Any) -> None:
    """Told as a question about the result, never as a failure of the job."""
    op = in_state(S.OBSERVING)
    _, at = its_end(op)
    change = step(op, evidence, now=at)
    after = change.operation
    assert after.state is S.RESULT_TIMED_OUT
    assert after.attention is not None
    assert after.attention.reason == "result"
    assert after.error is None
    assert after.deadlines.attention == at + 7 * DAY
    assert (after.schedule.due_at, after.schedule.deadline_at) == (at + 7 * DAY // 2, at + 7 * DAY)
    assert next_action(after) is None
    assert [e.cause for e in change.entries] == ["deadline:result"]


# ---- a question that nobody answers ----

QUESTIONS = [state for state in ALL_STATES if state.value in REASONS_OF]


@pytest.mark.parametrize("state", QUESTIONS)
def test_a_question_is_put_once_more_when_half_of_its_time_is_over(state: State) -> None:
    """G8: once, as a fact of the history, and nothing moves by it."""
    op = in_state(state)
    name, at = its_end(op)
    half = NOW - HOUR + (at - (NOW - HOUR)) // 2
    early = step(op, DeadlinePassed(name), now=half - 1)
    assert (early.entries, early.reminds) == ((), False)
    change = step(early.operation, DeadlinePassed(name), now=half)
    assert_cell(op, change, "kept")
    assert [e.kind for e in change.entries] == [EntryKind.FACT]
    assert change.reminds
    assert change.operation.attention is not None
    assert change.operation.attention.reminded_at == half
    again = step(change.operation, DeadlinePassed(name), now=half + 1)
    assert (again.entries, again.reminds) == ((), False)


@pytest.mark.parametrize("state", [s for s in QUESTIONS if s not in (S.BLOCKED, S.CANCELLATION_UNCONFIRMED)])
def test_where_nothing_is_read_any_more_the_row_is_due_when_the_question_is_put_again(state: State) -> None:
    op = in_state(state)
    name, at = its_end(op)
    half = NOW - HOUR + (at - (NOW - HOUR)) // 2
    assert step(op, DeadlinePassed(name)).operation.schedule.due_at == half
    reminded = step(op, DeadlinePassed(name), now=half).operation
    assert reminded.schedule.due_at == reminded.schedule.deadline_at == at


@pytest.mark.parametrize(("first", "reason"), [("input", "input"), ("result", "result")])
def test_a_blocked_job_times_out_by_whichever_deadline_comes_first(first: str, reason: str) -> None:
    op = in_state(S.BLOCKED)
    other = {"input": "result", "result": "input"}[first]
    op = replace(op, deadlines=replace(op.deadlines, **{first: NOW, other: NOW + HOUR}))
    assert_cell(op, step(op, DeadlinePassed(other, last_read=True), now=NOW), "-")
    after = step(op, DeadlinePassed(first, last_read=True), now=NOW).operation
    assert after.state is S.RESULT_TIMED_OUT
    assert after.attention is not None
    assert after.attention.reason == reason


@pytest.mark.parametrize("state", [S.CANCEL_REQUESTED, S.CANCELLING])
@pytest.mark.parametrize("evidence", [read("running"), read("waiting"), ReadFailed("http_500"), JobGone()])
def test_a_cancel_without_the_providers_word_is_unconfirmed_at_its_deadline(state: State, evidence: Any) -> None:
    op = in_state(state)
    after = step(op, evidence, now=NOW + 10 * MINUTE).operation
    assert after.state is S.CANCELLATION_UNCONFIRMED
    assert after.attention is not None
    assert after.attention.reason == "cancellation_unconfirmed"


@pytest.mark.parametrize("state", [S.CANCEL_REQUESTED, S.CANCELLING])
def test_while_cancelling_a_passed_result_deadline_does_not_fire(state: State) -> None:
    op = in_state(state)
    op = replace(op, deadlines=replace(op.deadlines, result=NOW - DAY))
    assert step(op, read("running")).operation.state is state
    assert step(op, ReadFailed("http_500")).operation.state is state


def test_a_create_unknown_is_looked_up_until_its_deadline_and_then_a_person_is_asked() -> None:
    op, at = in_state(S.CREATE_UNKNOWN), NOW + 14 * MINUTE
    assert step(op, LookupFound(()), now=at - 1).operation.state is S.CREATE_UNKNOWN
    after = step(op, LookupFound(()), now=at).operation
    assert after.state is S.CREATE_UNRESOLVED
    assert after.attention is not None
    assert after.attention.reason == "create_unresolved"
    assert after.deadlines.attention == at + 7 * DAY
    assert next_action(after) is None


def test_a_look_up_that_failed_has_not_looked_so_the_deadline_waits_for_one_that_did_or_for_five_in_a_row() -> None:
    op, at = in_state(S.CREATE_UNKNOWN), NOW + HOUR
    for _ in range(4):
        op = step(op, ReadFailed("http_500"), now=at).operation
        assert op.state is S.CREATE_UNKNOWN
    assert step(op, ReadFailed("http_500"), now=at).operation.state is S.CREATE_UNRESOLVED


def test_giving_up_is_named_apart_from_running_out_of_time() -> None:
    timed_out = step(in_state(S.RESULT_TIMED_OUT), DeadlinePassed("attention"), now=NOW + 6 * DAY).operation
    assert timed_out.outcome == "timed_out"
    abandoned = step(in_state(S.OBSERVATION_FAILED), DeadlinePassed("attention"), now=NOW + 6 * DAY).operation
    assert abandoned.outcome == "abandoned"
    assert timed_out.completed_at == NOW + 6 * DAY


@pytest.mark.parametrize("state", TERMINAL)
@pytest.mark.parametrize("deadline", DEADLINE_NAMES)
def test_no_deadline_moves_an_ended_operation(state: State, deadline: str) -> None:
    op = in_state(state)
    op = replace(op, deadlines=replace(op.deadlines, **{deadline: NOW - DAY}))
    assert_cell(op, step(op, DeadlinePassed(deadline, last_read=True)), "-")


# ---- the deadlines table: what starts, and what moves nothing ----


@pytest.mark.parametrize("days", [0, 1, 400])
def test_a_late_daemon_changes_no_deadline_that_was_set(days: int) -> None:
    """Wall clock, independent of attempts: many tries later each still stands where it was set."""
    op = in_state(S.OBSERVING)
    before = op.deadlines
    for n in range(19):
        op = step(op, ReadFailed("http_500"), now=NOW + n).operation
    assert op.deadlines == before
    if days == 400:
        assert step(op, read("ended"), now=NOW + days * DAY).operation.state is S.RESULT_COLLECTING


def test_create_deadline_and_result_deadline_do_not_move_each_other() -> None:
    """B3."""
    op = in_state(S.CREATE_PENDING, mark_at=SENT)
    unknown = step(op, CreateUnknown("timeout")).operation
    assert running(unknown) == {"create": NOW + 14 * MINUTE}
    asked = step(unknown, CreateNotAccepted("http_429")).operation
    assert running(asked) == {"create": NOW + 14 * MINUTE}
    event = EventSeen(Observation("running", "job_1"), is_ours=True)
    assert running(step(asked, event).operation) == {"create": NOW + 14 * MINUTE}


@pytest.mark.parametrize(
    ("contract", "start", "evidence", "name", "span"),
    [
        (CONTRACT, S.CREATE_PENDING, "accepted", "result", 26 * HOUR),
        (CONTRACT, S.OBSERVING, "blocked", "input", 24 * HOUR),
        (CONTRACT, S.OBSERVING, "cancel", "cancel", 11 * MINUTE),
        (CONTRACT, S.OBSERVING, "end", "collect", 24 * HOUR),
        (replace(CONTRACT, results_kept_ms=10 * MINUTE), S.OBSERVING, "end", "collect", 10 * MINUTE),
        (replace(CONTRACT, results_kept_ms=30 * DAY), S.OBSERVING, "end", "collect", 24 * HOUR),
        (CONTRACT, S.CREATE_PENDING, "two", "attention", 7 * DAY),
        (CONTRACT, S.CANCEL_REQUESTED, "deadline", "attention", 7 * DAY),
        (replace(CONTRACT, attention_within_ms=HOUR), S.CREATE_PENDING, "two", "attention", HOUR),
    ],
)
def test_each_deadline_counts_from_its_own_moment(
    contract: Contract, start: State, evidence: str, name: str, span: int
) -> None:
    said: dict[str, Any] = {
        "accepted": Accepted(Observation("running", "job_1")),
        "blocked": read("waiting"),
        "cancel": CancelAsked("c", "client:ci", "r", "e"),
        "end": read("ended"),
        "two": LookupFound(("job_1", "job_2")),
        "deadline": DeadlinePassed("cancel"),
    }
    at = NOW + 10 * MINUTE
    after = step(in_state(start), said[evidence], contract, now=at).operation
    assert running(after)[name] == at + span


def test_a_question_that_is_answered_by_the_job_leaves_no_deadline_behind() -> None:
    after = step(in_state(S.OBSERVATION_FAILED), read("running")).operation
    assert after.state is S.OBSERVING
    assert after.attention is None
    assert after.deadlines.attention is None
    unblocked = step(in_state(S.BLOCKED), read("running")).operation
    assert unblocked.deadlines.input is None
    assert unblocked.attention is None


@pytest.mark.parametrize("state", ALL_STATES)
def test_no_open_row_is_due_later_than_its_deadline(state: State) -> None:
    """Whatever wait a provider asks for."""
    if state in TERMINAL:
        return
    for evidence in (ReadFailed("http_503", 400 * DAY), read("running"), LookupFound(()), CreateNotAccepted("x", DAY)):
        after = step(in_state(state), evidence, draw=0.99).operation
        if after.state is state:
            assert after.schedule.due_at <= its_end(after)[1]


@pytest.mark.parametrize(("state", "deadline"), [(S.CANCEL_REQUESTED, "cancel"), (S.INPUT_GIVEN, "result")])
def test_a_claim_that_sent_nothing_leaves_no_mark_that_reads_as_sent(state: State, deadline: str) -> None:
    """The provider was paused between the claim, which set the mark, and the action: the call is still to be made."""
    claimed = in_state(state, mark_at=NOW, marks_on_claim=True, due_at=NOW)
    after = step(claimed, DeadlinePassed(deadline, last_read=True)).operation
    assert (after.state, after.schedule.mark_at, after.schedule.due_at) == (state, None, NOW)

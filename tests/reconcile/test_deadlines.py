"""Which deadlines a state starts, by the deadlines table; typed by hand."""

from dataclasses import replace

import pytest

from reconcile.deadlines import at_start, on_entry
from reconcile.model import Deadlines, Spans
from reconcile.states import State
from tests.reconcile.rows import ALL_STATES, CONTRACT, DAY, HOUR, MINUTE, NO_CANCEL, NOW, in_state

S = State
LATER = NOW + 5 * MINUTE
#: state: (the deadline that entering it starts, how long after)
STARTED = {
    S.ACCEPTED: ("result", 26 * HOUR),
    S.BLOCKED: ("input", 24 * HOUR),
    S.CANCEL_REQUESTED: ("cancel", 11 * MINUTE),
    S.RESULT_COLLECTING: ("collect", 24 * HOUR),
    S.CREATE_UNRESOLVED: ("attention", 7 * DAY),
    S.CONTRACT_VIOLATION: ("attention", 7 * DAY),
    S.OBSERVATION_FAILED: ("attention", 7 * DAY),
    S.RESULT_TIMED_OUT: ("attention", 7 * DAY),
    S.CANCELLATION_UNCONFIRMED: ("attention", 7 * DAY),
    S.RESULT_UNAVAILABLE: ("attention", 7 * DAY),
    S.RESULT_VALIDATION_FAILED: ("attention", 7 * DAY),
}
NONE_RUN = Deadlines(create=NOW + MINUTE)


@pytest.mark.parametrize("state", ALL_STATES)
def test_entering_a_state_starts_its_own_deadline_and_no_other(state: State) -> None:
    op = in_state(S.OBSERVING, deadlines=NONE_RUN)
    started = on_entry(op, state, CONTRACT, LATER)
    if state in STARTED:
        name, span = STARTED[state]
        assert started == replace(NONE_RUN, **{name: LATER + span})
    else:
        assert started == NONE_RUN


def test_the_defaults_are_the_pages() -> None:
    assert (CONTRACT.create_within_ms, CONTRACT.input_within_ms) == (15 * MINUTE, 24 * HOUR)
    assert (CONTRACT.attention_within_ms, CONTRACT.collect_within_ms) == (7 * DAY, 24 * HOUR)
    assert (CONTRACT.collect_budget, CONTRACT.poll.error_budget) == (8, 20)


def test_a_cancel_where_the_provider_documents_nothing_waits_fifteen_minutes() -> None:
    op = in_state(S.OBSERVING, deadlines=NONE_RUN)
    assert on_entry(op, S.CANCEL_REQUESTED, NO_CANCEL, LATER).cancel == LATER + 15 * MINUTE


@pytest.mark.parametrize(
    ("state", "name"), [(S.ACCEPTED, "result"), (S.BLOCKED, "input"), (S.CANCEL_REQUESTED, "cancel")]
)
@pytest.mark.parametrize("span", [1, 0, 90 * DAY])
def test_a_span_that_the_caller_gave_outweighs_the_contracts(state: State, name: str, span: int) -> None:
    spans = Spans(result_ms=span, input_ms=span, cancel_ms=span)
    op = in_state(S.OBSERVING, deadlines=NONE_RUN, spans=spans)
    assert getattr(on_entry(op, state, CONTRACT, LATER), name) == LATER + span


def test_a_result_deadline_that_runs_since_the_start_is_not_moved_by_the_acceptance() -> None:
    op = in_state(S.CREATE_PENDING, deadlines=replace(NONE_RUN, result=NOW), spans=Spans(result_ms=HOUR))
    assert on_entry(op, S.ACCEPTED, CONTRACT, LATER).result == NOW


@pytest.mark.parametrize("state", ALL_STATES)
def test_entering_a_state_never_moves_create_and_result_and_ends_what_only_the_last_state_needed(state: State) -> None:
    """B3."""
    full = Deadlines(create=1, result=2, cancel=3, input=4, collect=5, attention=6)
    after = on_entry(in_state(S.BLOCKED, deadlines=full), state, CONTRACT, LATER)
    own = STARTED.get(state, ("", 0))[0]
    assert (after.create, after.result) == (1, 2)
    for name in ("input", "collect", "attention"):
        assert getattr(after, name) == (LATER + STARTED[state][1] if name == own else None)
    assert after.cancel == (LATER + 11 * MINUTE if own == "cancel" else 3)


def test_a_start_begins_the_create_deadline_and_the_results_only_where_the_caller_gave_it() -> None:
    assert at_start(NOW, create_ms=15 * MINUTE, result_ms=None) == Deadlines(create=NOW + 15 * MINUTE)
    given = at_start(NOW, create_ms=MINUTE, result_ms=HOUR)
    assert given == Deadlines(create=NOW + MINUTE, result=NOW + HOUR)
    assert at_start(NOW, create_ms=MINUTE, result_ms=0).result == NOW


@pytest.mark.parametrize(
    ("kept_until", "end"),
    [(None, 24 * HOUR), (10 * MINUTE, 10 * MINUTE), (30 * DAY, 24 * HOUR), (-MINUTE, -MINUTE)],
)
def test_collection_is_tried_as_long_as_the_provider_keeps_the_result(kept_until: int | None, end: int) -> None:
    """J7: counted from the end of the job, not from when we heard of it."""
    op = in_state(S.OBSERVING, results_kept_until=None if kept_until is None else LATER + kept_until)
    assert on_entry(op, S.RESULT_COLLECTING, CONTRACT, LATER).collect == LATER + end

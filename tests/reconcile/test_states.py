"""The state machine's tables against the design page, typed by hand."""

import itertools

import pytest

from reconcile import states
from reconcile.draft import next_action
from reconcile.states import ACTIONS, DEADLINE_OF, REASON_OF, STATUS_OF, TRANSITIONS, State, is_legal
from tests.reconcile.rows import ALL_STATES, ARROWS, in_state

#: state: (status, next action, deadline), as the page's columns stand. An action of None is a person's, or nobody's.
TABLE = {
    "create_pending": ("pending", "submit", "create"),
    "create_unknown": ("pending", "reconcile_create", "create"),
    "accepted": ("working", "poll", "result"),
    "observing": ("working", "poll", "result"),
    "blocked": ("blocked", "poll", "input"),
    "input_given": ("working", "send_input", "result"),
    "cancel_requested": ("working", "send_cancel", "cancel"),
    "cancelling": ("working", "poll", "cancel"),
    "result_collecting": ("working", "collect", "collect"),
    "create_unresolved": ("blocked", None, "attention"),
    "contract_violation": ("blocked", None, "attention"),
    "observation_failed": ("blocked", None, "attention"),
    "result_timed_out": ("blocked", None, "attention"),
    "cancellation_unconfirmed": ("blocked", "poll", "attention"),
    "result_unavailable": ("blocked", None, "attention"),
    "result_validation_failed": ("blocked", None, "attention"),
    "succeeded": ("done", None, None),
    "completed_with_errors": ("done", None, None),
    "failed": ("failed", None, None),
    "cancelled": ("failed", None, None),
    "timed_out": ("failed", None, None),
    "abandoned": ("failed", None, None),
}
TERMINAL = {"succeeded", "completed_with_errors", "failed", "cancelled", "timed_out", "abandoned"}


def test_the_states_are_these_twenty_two() -> None:
    assert {s.value for s in State} == set(TABLE)
    assert len(State) == 22
    assert set(ALL_STATES) == set(State)


@pytest.mark.parametrize("name", TABLE)
def test_each_state_has_its_status_its_action_and_its_deadline(name: str) -> None:
    state = State(name)
    assert (STATUS_OF[state].value, ACTIONS[state], DEADLINE_OF[state]) == TABLE[name]


@pytest.mark.parametrize("name", TABLE)
def test_each_state_leaves_to_exactly_these(name: str) -> None:
    assert {s.value for s in TRANSITIONS[State(name)]} == ARROWS[name]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(TABLE, TABLE)))
def test_each_pair_of_states_is_an_arrow_or_is_none(source: str, target: str) -> None:
    assert is_legal(State(source), State(target)) == (target in ARROWS[source])


def test_every_table_speaks_of_every_state() -> None:
    for table in (TRANSITIONS, ACTIONS, STATUS_OF, DEADLINE_OF):
        assert set(table) == set(State)


def test_no_arrow_reaches_succeeded_but_from_result_collecting() -> None:
    assert {s.value for s in State if State.SUCCEEDED in TRANSITIONS[s]} == {"result_collecting"}


def test_every_open_state_leaves_to_contract_violation() -> None:
    """But itself; a job named twice is a fact wherever it is noticed."""
    sources = {s.value for s in State if State.CONTRACT_VIOLATION in TRANSITIONS[s]}
    assert sources == set(TABLE) - TERMINAL - {"contract_violation"}


def test_nothing_leaves_a_terminal_state_and_nothing_leads_to_itself() -> None:
    assert {s.value for s in State if not TRANSITIONS[s]} == TERMINAL
    assert {s.value for s in states.TERMINAL} == TERMINAL
    assert [s for s in State if s in TRANSITIONS[s]] == []


def test_timed_out_is_reached_from_result_timed_out_alone() -> None:
    assert [s.value for s in State if State.TIMED_OUT in TRANSITIONS[s]] == ["result_timed_out"]


def test_every_state_can_be_reached_and_every_open_state_can_end() -> None:
    reached, frontier = {"create_pending"}, ["create_pending"]
    while frontier:
        for to in TRANSITIONS[State(frontier.pop())]:
            if to.value not in reached:
                reached.add(to.value)
                frontier.append(to.value)
    assert reached == set(TABLE)


def test_the_groups_are_the_columns_of_the_evidence_table() -> None:
    assert {s.value for s in states.CREATING} == {"create_pending", "create_unknown"}
    assert {s.value for s in states.WATCHING} == {"accepted", "observing", "blocked", "input_given"}
    assert {s.value for s in states.CANCELLING} == {"cancel_requested", "cancelling", "cancellation_unconfirmed"}
    assert {s.value for s in states.STOPPED} == {"result_timed_out", "observation_failed"}
    assert {s.value for s in states.ENDED_REMOTELY} == {
        "result_collecting",
        "result_unavailable",
        "result_validation_failed",
    }


def test_a_verified_event_rings_where_a_job_is_still_watched_or_waited_for() -> None:
    assert {s.value for s in states.RINGS} == {
        "accepted",
        "observing",
        "blocked",
        "input_given",
        "cancel_requested",
        "cancelling",
        "cancellation_unconfirmed",
        "result_timed_out",
        "observation_failed",
    }


def test_every_blocked_state_has_a_question_and_a_deadline() -> None:
    blocked = {name for name, (status, _, _) in TABLE.items() if status == "blocked"}
    assert {s.value for s in REASON_OF} == blocked
    assert all(DEADLINE_OF[State(name)] is not None for name in blocked)


def test_cancels_are_served_first_and_swept_rows_last() -> None:
    """The order within a provider's rate: cancel, create, rung, collect, swept."""
    p = states.Priority
    assert p.CANCEL < p.CREATE < p.RUNG < p.COLLECT < p.SWEPT


@pytest.mark.parametrize("name", TABLE)
def test_an_ordinary_row_does_what_its_state_names(name: str) -> None:
    assert next_action(in_state(State(name))) == TABLE[name][1]

"""What a person's decision does: every decision in every state, typed by hand from the design page.

`decided` checks each one against the invariants of rows.py; only deadlines may begin anew, and only those that the
page names.
"""

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.contract import Contract
from reconcile.decide import decide
from reconcile.decisions import Decision, open_to
from reconcile.draft import next_action
from reconcile.evidence import (
    Accepted,
    CancelAnswer,
    CancelAnswered,
    CancelAsked,
    Collected,
    CollectFailed,
    CreateRejected,
    CreateUnknown,
    DeadlinePassed,
    Evidence,
    JobGone,
    LookupFound,
    PersonDecided,
    ReadFailed,
)
from reconcile.model import (
    Change,
    Entry,
    EntryKind,
    Observation,
    Operation,
    Problems,
    RemoteError,
    Spans,
    Summary,
    Verdict,
    VerdictKind,
)
from reconcile.states import Action, State
from tests.reconcile import rows
from tests.reconcile.rows import (
    ALL_CONTRACTS,
    ALL_STATES,
    ARROWS,
    BASE,
    CANCEL,
    CONSUMING,
    CONTRACT,
    DAY,
    DEADLINE_NAMES,
    FILES,
    HOUR,
    MINUTE,
    NO_CANCEL,
    NOW,
    TERMINAL,
    assert_cell,
    in_state,
    info,
    read,
    running,
    step,
)

S = State
K = VerdictKind
RESULT_QUESTIONS: Final = (S.RESULT_UNAVAILABLE, S.RESULT_VALIDATION_FAILED)
SOME: Final = Summary(3, succeeded=1, failed=1, missing=1)

#: Where each decision leads, by the state it is open in; everywhere else it is 409.
TABLE: Final[dict[str, dict[str, str]]] = {
    "adopt_job": {"create_unresolved": "accepted"},
    "look_again": {"create_unresolved": "create_unknown"},
    "resend": {"create_unresolved": "create_pending"},
    "choose_job": {"contract_violation": "observing"},
    "resume": {"observation_failed": "observing", "result_timed_out": "observing"},
    "cancel": {
        "observation_failed": "cancel_requested",
        "result_timed_out": "cancel_requested",
        "blocked": "cancel_requested",
    },
    "cancel_again": {"cancellation_unconfirmed": "cancel_requested"},
    "keep": {"cancellation_unconfirmed": "observing"},
    "collect_again": {"result_unavailable": "result_collecting", "result_validation_failed": "result_collecting"},
    "accept": {
        "result_unavailable": "completed_with_errors",
        "result_validation_failed": "completed_with_errors",
    },
    "give_up": {
        "create_unresolved": "abandoned",
        "contract_violation": "abandoned",
        "observation_failed": "abandoned",
        "result_timed_out": "abandoned",
        "blocked": "abandoned",
        "cancellation_unconfirmed": "abandoned",
        "result_unavailable": "abandoned",
        "result_validation_failed": "abandoned",
    },
}
CELLS: Final = [
    pytest.param(word, state, TABLE[word].get(state.value, "409"), id=f"{word} in {state.value}")
    for word in TABLE
    for state in ALL_STATES
]
#: The deadlines that a decision begins anew although they run; `cancel` of a row that had none is no such.
ANEW: Final[dict[str, set[str]]] = {
    "look_again": {"create"},
    "resend": {"create"},
    "resume": {"result"},
    "keep": {"cancel"},
    "cancel_again": {"cancel"},
}


def asking(state: State, **over: Any) -> Operation:
    """A row in a state, and where a result is in question, one of which something was collected."""
    if state in RESULT_QUESTIONS:
        over = {"result": info(items=2), "summary": SOME, **over}
    return in_state(state, **over)


def decided(
    op: Operation,
    word: str,
    contract: Contract = CONTRACT,
    *,
    job: str | None = "job_1",
    within_ms: int | None = None,
    now: int = NOW,
    draw: float = 0.0,
) -> Change:
    """One decision, checked against everything that must hold of any."""
    evidence = PersonDecided("d1", Decision(word), "person:ann", "it is needed", job, within_ms)
    change = decide(op, contract, evidence, now=now, draw=draw, cause="decision:d1")
    check_decision(op, change, word, now)
    return change


def check_decision(before: Operation, change: Change, word: str, now: int) -> None:
    """N5, N7, N8, N9, N23, N27, N32, D2, D4."""
    after = change.operation
    if change.refusal is not None:
        assert change.refusal.startswith(word)
        assert after == before
        assert change.entries == ()
        return
    rows._check_moves(before, change)
    rows._check_fold(before, change)
    assert before.state not in TERMINAL
    assert {e.kind for e in change.entries} == {EntryKind.FACT, EntryKind.MOVE}
    assert all(e.cause and e.reason for e in change.entries)
    _check_it_is_told(change, word)
    if before.remote_job_id is not None and word != "choose_job":
        assert after.remote_job_id == before.remote_job_id
    _check_deadlines(before, after, word, now)
    assert after.completed_at == (now if after.state in TERMINAL else None)
    if after.state in TERMINAL:
        assert after.attention is None
        assert next_action(after) is None
    else:
        rows._check_somebody_acts(before, after, now)
        assert next_action(after) is not None
    for name in ("token", "trace_id", "fingerprint", "request", "steps", "input_ref", "created_at"):
        assert getattr(after, name) == getattr(before, name)


def _check_it_is_told(change: Change, word: str) -> None:
    """N32: a decision is a row of its own, with by and reason."""
    told = change.entries[0]
    assert told.kind is EntryKind.FACT
    assert (told.facts["decision"], told.facts["by"]) == (word, "person:ann")
    assert "person:ann" in told.reason
    assert "it is needed" in told.reason
    assert told.cause == "decision:d1"


def _check_deadlines(before: Operation, after: Operation, word: str, now: int) -> None:
    """None that runs is moved but those that the page begins anew (B3); one that is over is not fired twice (N22)."""
    was, are = running(before), running(after)
    for name in ("create", "result", "cancel"):
        if name in was and name not in ANEW.get(word, set()):
            other_job = name == "cancel" and before.remote_job_id != after.remote_job_id
            spent = name == "result" and was[name] <= now and word in ("adopt_job", "choose_job", "keep")
            if not (spent or other_job or after.state is S.CANCEL_REQUESTED):
                assert are.get(name) == was[name], name
    if after.state in (S.ACCEPTED, S.OBSERVING) and word != "resume":
        assert are["result"] > now


def moves(change: Change) -> list[tuple[str, str]]:
    """(to, cause) of each move."""
    return [(str(e.to_state), e.cause) for e in change.entries if e.kind is EntryKind.MOVE]


def last(change: Change) -> Entry:
    """The last history row."""
    return change.entries[-1]


# ---- every decision, every state ----


@pytest.mark.parametrize(("word", "state", "cell"), CELLS)
def test_a_decision_is_open_where_the_page_says_and_409_elsewhere(word: str, state: State, cell: str) -> None:
    """N32."""
    op = asking(state)
    change = decided(op, word)
    if cell == "409":
        assert_cell(op, change, "409")
    else:
        assert change.refusal is None
        assert change.operation.state == cell
        assert moves(change)[-1] == (cell, "decision:d1")


def test_these_are_all_decisions_and_each_arrow_is_in_the_table() -> None:
    assert set(TABLE) == {d.value for d in Decision}
    for word, cells in TABLE.items():
        for state, to in cells.items():
            assert to in ARROWS[state], word


@pytest.mark.parametrize(("word", "state", "cell"), CELLS)
@pytest.mark.parametrize("contract", ALL_CONTRACTS)
def test_what_is_offered_can_be_decided_and_what_is_not_cannot(
    word: str, state: State, cell: str, contract: Contract
) -> None:
    """The inbox and the decision never disagree; history keeps the promise that was read (N32)."""
    op = asking(state)
    offers = {offer.decision.value: offer.effect for offer in open_to(op, contract)}
    change = decided(op, word, contract)
    assert (change.refusal is None) == (word in offers)
    if change.refusal is None:
        assert change.entries[0].facts["effect"] == offers[word]


@pytest.mark.parametrize(("word", "state", "cell"), [c for c in CELLS if c.values[2] != "409"])
def test_a_decision_made_twice_is_409_the_second_time(word: str, state: State, cell: str) -> None:
    """N32: the first one answered the question."""
    after = decided(asking(state), word).operation
    assert decided(after, word).refusal is not None


def test_a_refusal_says_what_is_open_instead() -> None:
    assert decided(in_state(S.CREATE_UNRESOLVED), "resume").refusal == (
        "resume is not open here; open are adopt_job, look_again, resend, give_up"
    )
    assert decided(in_state(S.OBSERVING), "give_up").refusal == "give_up is not open: nothing waits for a person here"
    assert decided(in_state(S.FAILED), "resume").refusal == "resume is not open: the operation has ended as failed"


# ---- create_unresolved ----


def test_a_named_job_is_held_and_read() -> None:
    op = in_state(S.CREATE_UNRESOLVED, candidates=("job_7", "job_8"))
    change = decided(op, "adopt_job", job="job_7")
    after = change.operation
    assert (after.state, after.remote_job_id, after.started_at) == (S.ACCEPTED, "job_7", NOW)
    assert after.candidates == ("job_8",)
    assert after.deadlines.result == NOW + 26 * HOUR
    assert next_action(after) is Action.POLL
    assert after.schedule.due_at == NOW + BASE
    assert last(change).facts["remote_job_id"] == "job_7"


@pytest.mark.parametrize("job", [None, ""])
@pytest.mark.parametrize(("word", "state"), [("adopt_job", S.CREATE_UNRESOLVED), ("choose_job", S.CONTRACT_VIOLATION)])
def test_a_decision_about_a_job_names_it(word: str, state: State, job: str | None) -> None:
    op = in_state(state)
    change = decided(op, word, job=job)
    assert_cell(op, change, "409")
    assert change.refusal == f"{word} needs a remote_job_id"


@pytest.mark.parametrize("word", ["adopt_job", "choose_job"])
def test_a_cancel_that_waited_for_the_job_is_sent_to_the_named_one(word: str) -> None:
    """E6: an acceptance is a row of its own."""
    state = S.CREATE_UNRESOLVED if word == "adopt_job" else S.CONTRACT_VIOLATION
    op = in_state(state, cancel=CANCEL, remote_job_id=None, candidates=("job_7", "job_8"))
    change = decided(op, word, job="job_7")
    assert moves(change) == [("accepted", "decision:d1"), ("cancel_requested", "cancel:cancel_1")]
    after = change.operation
    assert after.cancel == CANCEL
    assert after.deadlines.cancel == NOW + 11 * MINUTE
    assert next_action(after) is Action.SEND_CANCEL


@pytest.mark.parametrize("spans", [Spans(), Spans(create_ms=3 * MINUTE)])
def test_looking_again_has_a_create_deadline_of_its_own(spans: Spans) -> None:
    op = in_state(S.CREATE_UNRESOLVED, spans=spans)
    op = replace(op, deadlines=replace(op.deadlines, create=NOW - DAY))
    after = decided(op, "look_again").operation
    assert after.deadlines.create == NOW + (15 * MINUTE if spans.create_ms is None else 3 * MINUTE)
    assert next_action(after) is Action.RECONCILE_CREATE
    assert after.schedule.due_at == NOW
    again = step(after, LookupFound(()), now=NOW + 20 * MINUTE).operation
    assert again.state is S.CREATE_UNRESOLVED


def test_a_resend_is_the_same_create_and_history_names_who_allowed_it() -> None:
    """N2, N3."""
    op = in_state(S.CREATE_UNRESOLVED, mark_at=NOW - HOUR, steps={"upload": "file-1"}, candidates=("job_7",))
    op = replace(op, deadlines=replace(op.deadlines, create=NOW - DAY))
    change = decided(op, "resend")
    after = change.operation
    assert (after.token, after.steps, after.candidates) == (op.token, {"upload": "file-1"}, ("job_7",))
    assert after.schedule.mark_at is None
    assert after.deadlines.create == NOW + 15 * MINUTE
    assert next_action(after) is Action.SUBMIT
    assert after.schedule.due_at == NOW
    assert last(change).facts["resend_allowed_by"] == "person:ann"
    assert step(after, Accepted(Observation("queued", "job_9"))).operation.remote_job_id == "job_9"


# ---- contract_violation ----


def two_jobs(**over: Any) -> Operation:
    """A second job was named for the create while the first was watched."""
    return in_state(S.CONTRACT_VIOLATION, candidates=("job_2",), **over)


def test_nothing_moves_until_the_job_is_chosen() -> None:
    """N31: then it is watched again."""
    op = two_jobs()
    assert next_action(op) is None
    for evidence in (read("ended"), ReadFailed("http_500"), Accepted(Observation("running", "job_3"))):
        assert step(op, evidence).operation.state is S.CONTRACT_VIOLATION
    for word in TABLE:
        if word not in ("choose_job", "give_up"):
            assert_cell(op, decided(op, word), "409")
    assert next_action(decided(op, "choose_job", job="job_1").operation) is Action.POLL


def test_the_job_that_was_held_goes_on_being_observed() -> None:
    change = decided(two_jobs(), "choose_job", job="job_1")
    after = change.operation
    assert (after.state, after.remote_job_id, after.remote_status) == (S.OBSERVING, "job_1", "running")
    assert after.candidates == ("job_2",)
    assert last(change).facts["others"] == ["job_2"]


def test_the_other_job_is_accepted_and_both_ids_stay_in_history() -> None:
    """N5: written anew only by a person; what was read of the first is not said of the second."""
    op = two_jobs(total_items=3, verdict=Verdict(K.DONE, "done"), results=FILES, error=RemoteError("e", "m"))
    change = decided(op, "choose_job", job="job_2")
    after = change.operation
    assert (after.state, after.remote_job_id, after.started_at) == (S.ACCEPTED, "job_2", NOW)
    assert after.candidates == ("job_1",)
    assert (after.remote_status, after.progress, after.total_items) == (None, None, None)
    assert (after.verdict, after.results, after.error) == (None, (), None)
    facts = last(change).facts
    assert (facts["held"], facts["remote_job_id"], facts["others"]) == ("job_1", "job_2", ["job_1"])


def test_of_several_jobs_with_our_marker_one_is_accepted() -> None:
    unknown = in_state(S.CREATE_UNKNOWN)
    op = step(unknown, LookupFound(("job_7", "job_8"))).operation
    assert op.state is S.CONTRACT_VIOLATION
    after = decided(op, "choose_job", job="job_8").operation
    assert (after.state, after.remote_job_id, after.candidates) == (S.ACCEPTED, "job_8", ("job_7",))


def test_where_jobs_are_shown_one_of_them_is_chosen() -> None:
    change = decided(two_jobs(), "choose_job", job="job_3")
    assert_cell(two_jobs(), change, "409")
    assert change.refusal is not None
    assert "'job_1', 'job_2'" in change.refusal
    assert decided(in_state(S.CONTRACT_VIOLATION), "choose_job", job="job_3").operation.remote_job_id == "job_3"


def test_a_cancel_under_way_is_neither_sent_again_nor_said_of_another_job() -> None:
    """N15: one send for one intent."""
    cancelling = in_state(S.CANCELLING, cancel=replace(CANCEL, answer="accepted"))
    op = step(cancelling, Accepted(Observation("running", "job_2"))).operation
    assert op.state is S.CONTRACT_VIOLATION
    first = decided(op, "choose_job", job="job_1").operation
    assert (first.state, first.cancel) == (S.OBSERVING, cancelling.cancel)
    other = decided(op, "choose_job", job="job_2").operation
    assert (other.state, other.cancel, other.deadlines.cancel) == (S.ACCEPTED, None, None)


# ---- observation_failed, result_timed_out, blocked ----


@pytest.mark.parametrize("state", [S.OBSERVATION_FAILED, S.RESULT_TIMED_OUT])
def test_resuming_gives_budget_and_deadline_anew(state: State) -> None:
    op = in_state(state, errors=20, gone_reads=5, gone_since=NOW - HOUR)
    op = replace(op, deadlines=replace(op.deadlines, result=NOW - HOUR))
    after = decided(op, "resume").operation
    assert after.deadlines.result == NOW + 26 * HOUR
    assert (after.schedule.errors, after.schedule.gone_reads, after.schedule.gone_since) == (0, 0, None)
    assert next_action(after) is Action.POLL
    assert after.schedule.due_at == NOW  # as the decision's effect says: the job is read again
    for n in range(19):
        after = step(after, ReadFailed("http_500"), now=NOW + n * MINUTE).operation
    assert after.state is S.OBSERVING
    assert decided(op, "resume", within_ms=2 * HOUR).operation.deadlines.result == NOW + 2 * HOUR


def test_a_resumed_job_that_never_ends_asks_again_at_its_new_deadline() -> None:
    """N22, N23."""
    op = decided(in_state(S.RESULT_TIMED_OUT), "resume", within_ms=2 * HOUR).operation
    assert step(op, DeadlinePassed("result", last_read=True), now=NOW + 2 * HOUR - 1).operation.state is S.OBSERVING
    assert step(op, DeadlinePassed("result", last_read=True), now=NOW + 2 * HOUR).operation.state is S.RESULT_TIMED_OUT


@pytest.mark.parametrize("state", [S.OBSERVATION_FAILED, S.RESULT_TIMED_OUT, S.BLOCKED])
def test_a_cancel_takes_the_road_of_any_other(state: State) -> None:
    """E1, E5: all but the words of the intent is as the cancel call leaves it."""
    after = decided(in_state(state), "cancel").operation
    called = step(in_state(state), CancelAsked("d1", "person:ann", "it is needed", "e"), cause="cancel:d1").operation
    assert after.cancel is not None
    assert after.cancel.effect == {o.decision.value: o.effect for o in open_to(in_state(state), CONTRACT)}["cancel"]
    assert after.cancel.may_remain == "items done and billed"
    assert after.attention == called.attention is None
    assert replace(after, cancel=replace(after.cancel, effect="e")) == called


@pytest.mark.parametrize("state", [S.OBSERVATION_FAILED, S.RESULT_TIMED_OUT, S.BLOCKED, S.CANCELLATION_UNCONFIRMED])
def test_a_provider_without_a_cancel_is_not_asked_for_one(state: State) -> None:
    op = in_state(state)
    word = "cancel_again" if state is S.CANCELLATION_UNCONFIRMED else "cancel"
    assert_cell(op, decided(op, word, NO_CANCEL), "409")


# ---- cancellation_unconfirmed ----


def test_cancelling_again_is_a_new_intent_with_a_new_deadline() -> None:
    """N15: sends <= 1 for each intent, and this is another."""
    op = in_state(S.CANCELLATION_UNCONFIRMED, cancel=replace(CANCEL, answer="refused"), mark_at=None)
    op = replace(op, deadlines=replace(op.deadlines, cancel=NOW - HOUR))
    after = decided(op, "cancel_again").operation
    assert after.cancel is not None
    assert (after.cancel.cancel_id, after.cancel.by, after.cancel.requested_at, after.cancel.answer) == (
        "d1",
        "person:ann",
        NOW,
        None,
    )
    assert after.deadlines.cancel == NOW + 11 * MINUTE
    assert next_action(after) is Action.SEND_CANCEL
    assert after.schedule.marks_on_claim


def test_a_result_that_is_fetched_again_has_a_whole_budget_of_tries() -> None:
    """The decision's effect says so: what failed before the question counts no more."""
    after = decided(in_state(S.RESULT_UNAVAILABLE, errors=7, gone_reads=2), "collect_again").operation
    assert (after.schedule.errors, after.schedule.gone_reads) == (0, 0)


def test_keeping_withdraws_the_cancel() -> None:
    op = in_state(S.CANCELLATION_UNCONFIRMED, cancel=replace(CANCEL, answer="unknown"))
    after = decided(op, "keep").operation
    assert (after.cancel, after.deadlines.cancel) == (None, None)
    assert after.deadlines.result == op.deadlines.result
    assert next_action(after) is Action.POLL
    ended = step(step(after, read("ended")).operation, Collected(info(), rows.ALL_GOOD)).operation
    assert ended.state is S.SUCCEEDED
    assert step(after, read("cancelled")).operation.state is S.CANCELLED
    assert step(after, CancelAsked("cancel_3", "client:ci", "r", "e")).operation.state is S.CANCEL_REQUESTED


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("keep", S.CANCELLATION_UNCONFIRMED),
        ("choose_job", S.CONTRACT_VIOLATION),
        ("adopt_job", S.CREATE_UNRESOLVED),
    ],
)
def test_a_result_deadline_that_is_over_is_not_fired_at_once_again(word: str, state: State) -> None:
    """N22: who sends the job back to be watched means it; one that still runs is not moved (B3)."""
    op = in_state(state)
    over = replace(op, deadlines=replace(op.deadlines, result=NOW))
    assert decided(over, word).operation.deadlines.result == NOW + 26 * HOUR
    runs = replace(op, deadlines=replace(op.deadlines, result=NOW + 1))
    assert decided(runs, word).operation.deadlines.result == NOW + 1


# ---- result_unavailable, result_validation_failed ----


@pytest.mark.parametrize("state", RESULT_QUESTIONS)
def test_collecting_again_has_a_new_budget_and_really_tries(state: State) -> None:
    op = asking(state, results=FILES, results_gone=True, errors=8, collect_attempt=4)
    after = decided(op, "collect_again").operation
    assert after.deadlines.collect == NOW + DAY
    assert (after.schedule.errors, after.schedule.mark_at, after.schedule.due_at) == (0, None, NOW)
    assert (after.results, after.results_gone, after.verdict) == (FILES, False, op.verdict)
    assert next_action(after) is Action.COLLECT
    for _ in range(7):
        after = step(after, CollectFailed("http_404")).operation
    assert after.state is S.RESULT_COLLECTING
    assert step(after, Collected(info(), rows.ALL_GOOD)).operation.state is S.SUCCEEDED


@pytest.mark.parametrize("state", RESULT_QUESTIONS)
def test_a_consuming_fetch_is_not_made_again(state: State) -> None:
    """N16."""
    assert_cell(asking(state), decided(asking(state), "collect_again", CONSUMING), "409")


@pytest.mark.parametrize(
    ("kind", "summary", "end", "code"),
    [
        (K.DONE, SOME, "completed_with_errors", None),
        (K.DONE, rows.ALL_GOOD, "completed_with_errors", None),
        (K.DONE_UNKNOWN_OUTCOME, SOME, "completed_with_errors", None),
        (K.DONE_UNKNOWN_OUTCOME, Summary(3, failed=2, missing=1), "failed", "no_item_succeeded"),
        (K.EXPIRED, SOME, "completed_with_errors", None),
        (K.EXPIRED, Summary(3, failed=1, expired=2), "failed", "expired"),
        (K.CANCELLED, SOME, "cancelled", None),
        (K.FAILED, SOME, "failed", "w"),
    ],
)
@pytest.mark.parametrize("state", RESULT_QUESTIONS)
def test_accepting_ends_by_the_verdict_with_all_that_was_counted(
    state: State, kind: VerdictKind, summary: Summary, end: str, code: str | None
) -> None:
    """N10, N12."""
    result = info(items=2, problems=Problems(missing=("a",)))
    op = asking(state, verdict=Verdict(kind, "w", may_hold_results=True), summary=summary, result=result)
    after = decided(op, "accept").operation
    assert (after.state, after.outcome) == (end, end)
    assert (after.summary, after.result) == (summary, result)
    assert (after.error.code if after.error else None) == code


@pytest.mark.parametrize("state", RESULT_QUESTIONS)
@pytest.mark.parametrize(
    ("kind", "items", "finished", "summary", "end"),
    [
        (K.CANCELLED, 3, None, Summary(3, cancelled=3), "cancelled"),
        (K.EXPIRED, 3, None, Summary(3, expired=3), "failed"),
        (K.FAILED, 3, 0, Summary(3, failed=3), "failed"),
        (K.EXPIRED, 3, 2, Summary(3, expired=1, missing=2), "failed"),
        (K.CANCELLED, 3, 9, Summary(3, missing=3), "cancelled"),
        (K.CANCELLED, None, 2, None, "cancelled"),
    ],
)
def test_an_end_that_is_no_success_is_accepted_without_a_result(
    state: State, kind: VerdictKind, items: int | None, finished: int | None, summary: Summary | None, end: str
) -> None:
    """What the provider says it finished is missing here: nobody claims that it expired or was cancelled."""
    said = Verdict(kind, "w", may_hold_results=True)
    op = in_state(state, verdict=said, input_items=items, finished_items=finished)
    after = decided(op, "accept").operation
    assert (after.state, after.summary) == (end, summary)


def test_an_adopted_job_is_counted_by_what_its_provider_said() -> None:
    said = Verdict(K.CANCELLED, "w", may_hold_results=True)
    op = in_state(S.RESULT_UNAVAILABLE, verdict=said, input_items=None, total_items=5, finished_items=1)
    assert decided(op, "accept").operation.summary == Summary(5, cancelled=4, missing=1)


@pytest.mark.parametrize("state", RESULT_QUESTIONS)
def test_a_success_that_nobody_could_read_is_not_accepted(state: State) -> None:
    never_read = in_state(state)
    empty = in_state(state, result=info(items=0), summary=Summary(3, missing=3))
    for op in (never_read, empty):
        assert_cell(op, decided(op, "accept"), "409")


# ---- give_up ----


@pytest.mark.parametrize("state", [State(s) for s in TABLE["give_up"]])
def test_what_comes_after_giving_up_is_a_contradiction(state: State) -> None:
    """J6: an end that was not known before."""
    after = decided(asking(state), "give_up").operation
    assert (after.state, after.outcome) == (S.ABANDONED, "abandoned")
    late = step(after, read("failed")).operation
    assert (late.state, late.contradictions) == (S.ABANDONED, 1)


# ---- whatever is decided ----

everything = st.builds(
    PersonDecided,
    st.just("d1"),
    st.sampled_from(Decision),
    st.just("person:ann"),
    st.just("it is needed"),
    st.sampled_from([None, "", "job_1", "job_2", "job_3"]),
    st.none() | st.integers(-HOUR, 400 * DAY),
)
moments = st.integers(-2 * DAY, 30 * DAY).map(lambda ms: NOW + ms)
summaries = st.tuples(*[st.integers(0, 3)] * 5).map(lambda c: Summary(sum(c), *c))
verdicts = st.builds(Verdict, st.sampled_from(VerdictKind), st.just("w"), may_hold_results=st.booleans())


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    """A row as some life may have left it."""
    op = in_state(
        draw(st.sampled_from(ALL_STATES)),
        mark_at=draw(st.none() | st.just(NOW - 1)),
        errors=draw(st.integers(0, 25)),
        due_at=draw(moments),
        input_items=draw(st.none() | st.integers(0, 3)),
        total_items=draw(st.none() | st.integers(0, 3)),
        finished_items=draw(st.none() | st.integers(0, 9)),
        candidates=draw(st.sampled_from([(), ("job_2",), ("job_2", "job_3")])),
    )
    if draw(st.booleans()):
        answer = draw(st.none() | st.sampled_from(CancelAnswer).map(str))
        op = replace(op, cancel=replace(CANCEL, answer=answer))
    if op.verdict is not None:
        op = replace(op, verdict=draw(st.none() | verdicts))
        summary = draw(st.none() | summaries)
        op = replace(op, summary=summary, result=None if summary is None else info(items=draw(st.integers(0, 3))))
    passed = {n: draw(moments) for n in running(op)}
    return replace(op, deadlines=replace(op.deadlines, **passed))


@settings(max_examples=1500, deadline=None)
@given(
    op=operations(),
    evidence=everything,
    contract=st.sampled_from(ALL_CONTRACTS),
    now=moments,
    draw=st.floats(0, 1, exclude_max=True),
)
def test_any_decision_on_any_row_keeps_every_rule(
    op: Operation, evidence: PersonDecided, contract: Contract, now: int, draw: float
) -> None:
    """Never an exception, never a refused move, never a success; what is open is what is offered."""
    change = decide(op, contract, evidence, now=now, draw=draw, cause="decision:d1")
    check_decision(op, change, evidence.decision.value, now)
    assert change == decide(op, contract, evidence, now=now, draw=draw, cause="decision:d1")
    if change.refusal is None:
        assert change.operation.state is not S.SUCCEEDED
        assert evidence.decision in {offer.decision for offer in open_to(op, contract)}


noise: st.SearchStrategy[Evidence] = st.one_of(
    st.sampled_from(["queued", "running", "waiting", "ended", "failed", "cancelled+files"]).map(read),
    st.builds(ReadFailed, st.just("http_500")),
    st.builds(JobGone),
    st.builds(CreateUnknown, st.just("timeout")),
    st.builds(Accepted, st.builds(Observation, st.just("running"), st.sampled_from(["job_1", "job_2"]))),
    st.builds(LookupFound, st.sampled_from([(), ("job_7",), ("job_7", "job_8")])),
    st.builds(CancelAsked, st.just("cancel_9"), st.just("client:ci"), st.just("r"), st.just("e")),
    st.builds(CancelAnswered, st.sampled_from(CancelAnswer)),
    st.builds(Collected, st.builds(info), st.sampled_from([rows.ALL_GOOD, SOME])),
    st.builds(CollectFailed, st.just("http_404"), is_final=st.booleans()),
    st.builds(DeadlinePassed, st.sampled_from(DEADLINE_NAMES), last_read=st.booleans()),
)


@settings(max_examples=500, deadline=None)
@given(
    contract=st.sampled_from(ALL_CONTRACTS),
    life=st.lists(st.tuples(noise | everything, st.integers(0, 2 * DAY)), max_size=30),
)
def test_a_life_with_people_in_it_never_leaves_the_table(contract: Contract, life: list[tuple[Evidence, int]]) -> None:
    """At most one end, and every job id that was ever held was named by the provider once or by a person."""
    op, now, ends, held = in_state(S.CREATE_PENDING), NOW, 0, set()
    chosen: set[str | None] = set()
    for evidence, gap in life:
        now += gap
        change = decide(op, contract, evidence, now=now, draw=0.0, cause="decision:d1")
        if isinstance(evidence, PersonDecided):
            check_decision(op, change, evidence.decision.value, now)
            if change.refusal is None:
                chosen |= {change.operation.remote_job_id}
        else:
            rows.check_change(op, change, now)
        assert not [e for e in change.entries if e.kind is EntryKind.REFUSED]
        ends += sum(1 for e in change.entries if e.kind is EntryKind.MOVE and e.to_state in TERMINAL)
        op = change.operation
        held |= {op.remote_job_id} - {None}
    assert len(held - chosen) <= 1
    assert ends == (1 if op.state in TERMINAL else 0)


def test_after_a_resend_nothing_is_surely_unsent() -> None:
    """N11, N15: the first create may have arrived, whatever becomes of the second."""
    op = decided(in_state(S.CREATE_UNRESOLVED), "resend").operation
    late = step(op, DeadlinePassed("create"), now=NOW + HOUR).operation
    assert (late.state, late.error) == (S.CREATE_UNKNOWN, None)
    assert step(op, CreateRejected(RemoteError("e", "m"))).operation.state is S.CREATE_UNKNOWN
    wish = CancelAsked("cancel_3", "client:ci", "r", "e")
    waits = step(op, wish).operation
    assert (waits.state, waits.cancel is not None) == (S.CREATE_PENDING, True)

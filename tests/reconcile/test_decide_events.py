"""The evidence table, rows of a job that is gone and of verified events; one meaning on every road."""

from dataclasses import replace
from typing import Any

import pytest

from reconcile.collect import is_not_ready
from reconcile.contract import Contract
from reconcile.draft import next_action
from reconcile.evidence import (
    Accepted,
    CancelAnswer,
    CancelAnswered,
    EventSeen,
    FinishedAtOnce,
    JobGone,
    JobRead,
    ReadFailed,
)
from reconcile.model import EntryKind, Observation, Operation, ResultRef, Verdict, VerdictKind
from reconcile.states import Priority, State
from tests.reconcile.rows import (
    ALL_STATES,
    CANCELLING,
    CONTRACT,
    CREATING,
    DAY,
    GONE_IS_CANCELLED,
    HOUR,
    INPUT,
    MINUTE,
    NO_READ,
    NOW,
    OTHER_END,
    RESULTS,
    SAME_END,
    STOPPED,
    TERMINAL,
    WATCHING,
    Cell,
    assert_cell,
    in_state,
    read,
    row,
    step,
)

S = State

# ---- read: gone ----


def four_reads_in(state: State, **over: Any) -> Operation:
    """A row whose job was gone four times in a row, the first time two minutes ago."""
    return in_state(state, gone_reads=4, gone_since=NOW - 2 * MINUTE, **over)


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="-",
        watching="observation_failed",
        cancelling={**dict.fromkeys(CANCELLING, "cancellation_unconfirmed"), S.CANCELLATION_UNCONFIRMED: "stays"},
        stopped="stays",
        results={
            S.RESULT_COLLECTING: "result_unavailable",
            S.RESULT_UNAVAILABLE: "stays",
            S.RESULT_VALIDATION_FAILED: "stays",
        },
        terminal="kept",
    ),
)
def test_a_job_is_gone_for_a_whole_run(state: State, cell: str) -> None:
    """Where the state already says it, or has no arrow to what the row names, it stays."""
    given = replace(INPUT, answer="unknown") if state is S.INPUT_GIVEN else None
    op = four_reads_in(state, input=given)
    change = step(op, JobGone())
    assert_cell(op, change, cell)
    if cell == "observation_failed":
        assert change.operation.attention is not None
        assert change.operation.attention.reason == "gone"


@pytest.mark.parametrize("reads", [4, 400])
@pytest.mark.parametrize("state", CANCELLING)
def test_a_cancelled_job_that_stays_gone_is_read_no_quicker_than_any_other(state: State, reads: int) -> None:
    """N21: a whole run tells nothing more where a person is asked already, and the reads go on at their distance."""
    op = in_state(state, gone_reads=reads, gone_since=NOW - 2 * MINUTE)
    assert step(op, JobGone()).operation.schedule.due_at >= NOW + CONTRACT.poll.base_ms


@pytest.mark.parametrize("word", ["done", "ended", "failed+files", "cancelled+files", "window_closed+files"])
@pytest.mark.parametrize("state", [S.ACCEPTED, S.OBSERVING, S.BLOCKED])
def test_a_job_is_gone_after_an_event_announced_its_end(state: State, word: str) -> None:
    announced = Verdict(CONTRACT.words[word].kind, word, may_hold_results=CONTRACT.words[word].may_hold_results)
    op = four_reads_in(state)
    change = step(op, JobGone(announced=word))
    assert_cell(op, change, "result_collecting")
    assert change.operation.verdict == announced


@pytest.mark.parametrize("word", ["failed+files", "cancelled+files", "window_closed+files"])
def test_what_an_end_left_is_unknown_until_it_is_read(word: str) -> None:
    """E4, N11: an event tells of no results, and that is not the same as telling that there are none."""
    verdict = Verdict(CONTRACT.words[word].kind, word, may_hold_results=True)
    told = step(four_reads_in(S.OBSERVING), JobGone(announced=word)).operation
    assert is_not_ready(told, verdict)
    files = (ResultRef("file_1"),)
    after = step(told, read(word, results=files)).operation
    assert (after.state, after.results) == (S.RESULT_COLLECTING, files)
    none = step(told, read(word)).operation
    assert (none.state, is_not_ready(none, verdict)) == (S.RESULT_COLLECTING, False)
    for_ever = step(
        replace(told, schedule=replace(told.schedule, gone_reads=4, gone_since=NOW - 2 * MINUTE)), JobGone()
    )
    assert for_ever.operation.state is S.RESULT_UNAVAILABLE


@pytest.mark.parametrize("word", ["running", "never heard of"])
def test_a_word_that_is_no_end_leaves_a_gone_job_to_a_person(word: str) -> None:
    """The contract may have changed since the event was judged."""
    op = four_reads_in(S.OBSERVING)
    assert_cell(op, step(op, JobGone(announced=word)), "observation_failed")


@pytest.mark.parametrize("state", CANCELLING)
def test_a_job_is_gone_while_cancelling_where_the_contract_says_that_gone_means_cancelled(state: State) -> None:
    op = four_reads_in(state)
    assert_cell(op, step(op, JobGone(), GONE_IS_CANCELLED), "cancelled")


@pytest.mark.parametrize("state", WATCHING)
def test_gone_means_cancelled_only_for_a_job_that_somebody_cancelled(state: State) -> None:
    given = replace(INPUT, answer="unknown") if state is S.INPUT_GIVEN else None
    op = four_reads_in(state, input=given)
    assert_cell(op, step(op, JobGone(), GONE_IS_CANCELLED), "observation_failed")


@pytest.mark.parametrize("state", [S.ACCEPTED, S.OBSERVING, S.BLOCKED, *CANCELLING, *RESULTS])
@pytest.mark.parametrize(("reads", "since"), [(3, NOW - HOUR), (4, NOW - 2 * MINUTE + 1), (0, None)])
def test_a_run_that_is_too_few_or_too_short_moves_nothing(state: State, reads: int, since: int | None) -> None:
    """Five reads in a row over two minutes at least: less is replication lag."""
    op = in_state(state, gone_reads=reads, gone_since=since)
    change = step(op, JobGone())
    assert_cell(op, change, "stays")
    assert change.operation.schedule.errors == 0


@pytest.mark.parametrize("state", [S.OBSERVING, S.CANCELLING])
def test_each_run_of_gone_is_judged_by_itself(state: State) -> None:
    """A good read, or an answer that says nothing, ends the run."""
    for between in (read("running"), ReadFailed("http_500")):
        op, now = in_state(state), NOW
        for _ in range(3):
            for _ in range(4):
                now += 35_000
                op = step(op, JobGone(), now=now).operation
            now += 35_000
            op = step(op, between, now=now).operation
            assert op.schedule.gone_reads == 0
        assert op.state is state


def test_each_run_of_gone_is_judged_by_itself_while_collecting() -> None:
    op = in_state(S.RESULT_COLLECTING, gone_reads=4, gone_since=NOW - HOUR)
    op = step(op, read("ended")).operation
    assert step(op, JobGone()).operation.state is S.RESULT_COLLECTING


def test_gone_is_no_part_of_the_error_budget() -> None:
    op, now = in_state(S.OBSERVING, errors=19), NOW
    for _ in range(4):
        now += 1_000
        op = step(op, JobGone(), now=now).operation
    assert op.schedule.errors == 19
    assert op.state is S.OBSERVING


def test_a_whole_run_from_its_first_read_on() -> None:
    op, now = in_state(S.ACCEPTED), NOW
    for _ in range(5):
        assert op.state is S.ACCEPTED
        op = step(op, JobGone(), now=now).operation
        assert op.schedule.due_at > now
        now += 30_000
    assert op.state is S.OBSERVATION_FAILED


@pytest.mark.parametrize("state", [S.ACCEPTED, S.BLOCKED, S.OBSERVATION_FAILED])
def test_a_word_that_means_gone_is_a_read_of_a_gone_job_and_not_of_a_running_one(state: State) -> None:
    op = in_state(state)
    assert_cell(op, step(op, read("forgotten")), "stays")


# ---- verified event ----


@pytest.mark.parametrize("word", ["running", "waiting", "ended", "failed", "cancelled", None])
@pytest.mark.parametrize(
    ("state", "cell"),
    row(creating="kept", watching="stays", cancelling="stays", stopped="stays", results="kept", terminal="kept"),
)
def test_a_verified_event_rings_and_moves_nothing(state: State, cell: str, word: str | None) -> None:
    """J1: its evidence is kept; only a read is believed."""
    if state in TERMINAL and word in ("ended", "failed", "cancelled"):
        word = SAME_END.get(state)
    op = in_state(state, due_at=NOW + 5 * MINUTE)
    change = step(op, EventSeen(Observation(word, "job_1")), cause="event:7")
    assert_cell(op, change, cell)
    rings = state in (*WATCHING, *CANCELLING)
    if rings:
        assert change.operation.schedule.due_at == NOW
    elif state not in STOPPED:
        assert change.operation.schedule.due_at == op.schedule.due_at or next_action(op) is None


@pytest.mark.parametrize("state", STOPPED)
def test_a_verified_event_rings_for_one_confirming_read_where_polling_has_stopped(state: State) -> None:
    op = in_state(state, due_at=NOW + 5 * MINUTE)
    assert step(op, EventSeen(Observation("ended", "job_1"))).operation.schedule.due_at == NOW


@pytest.mark.parametrize("state", [S.ACCEPTED, S.OBSERVING, S.BLOCKED, S.CANCELLING])
def test_rung_jobs_are_served_before_swept_ones(state: State) -> None:
    """J1."""
    after = step(in_state(state, due_at=NOW + HOUR), EventSeen(Observation("ended", "job_1"))).operation
    assert after.schedule.priority == Priority.RUNG


@pytest.mark.parametrize("contract", [CONTRACT, NO_READ])
@pytest.mark.parametrize("state", TERMINAL)
def test_a_verified_event_with_an_end_that_differs_is_a_contradiction(state: State, contract: Contract) -> None:
    op = in_state(state)
    assert_cell(op, step(op, EventSeen(Observation(OTHER_END[state], "job_1")), contract), "contradiction")


@pytest.mark.parametrize("state", CREATING)
def test_a_verified_event_with_our_marker_is_a_candidate_and_is_read_now(state: State) -> None:
    op = in_state(state, due_at=NOW + 5 * MINUTE)
    change = step(op, EventSeen(Observation("ended", "job_7"), is_ours=True))
    assert_cell(op, change, "kept")
    assert change.operation.candidates == ("job_7",)
    assert change.operation.schedule.due_at == NOW


@pytest.mark.parametrize("state", ALL_STATES)
def test_an_event_id_that_comes_again_with_other_content_is_kept_as_a_contradiction_and_rings(state: State) -> None:
    """N17."""
    op = in_state(state, due_at=NOW + 5 * MINUTE)
    change = step(op, EventSeen(Observation("failed", "job_1"), is_other_content=True))
    if state is not S.CONTRACT_VIOLATION:
        assert_cell(op, change, "contradiction")
    if state in (*WATCHING, *CANCELLING):
        assert change.operation.schedule.due_at == NOW


# ---- verified event where the contract has no read ----


def _no_read_cells(watching: Cell, cancelling: Cell, stopped: Cell, results: Cell, terminal: Cell) -> list[Any]:
    return row(
        creating="kept",
        watching=watching,
        cancelling=cancelling,
        stopped=stopped,
        results=results,
        terminal=terminal,
    )


@pytest.mark.parametrize(
    ("state", "cell"),
    _no_read_cells(
        {S.ACCEPTED: "observing", S.OBSERVING: "stays", S.BLOCKED: "observing", S.INPUT_GIVEN: "stays"},
        "stays",
        {S.OBSERVATION_FAILED: "observing", S.RESULT_TIMED_OUT: "stays"},
        "contradiction",
        "contradiction",
    ),
)
def test_an_event_without_a_read_says_pending(state: State, cell: str) -> None:
    op = in_state(state)
    assert_cell(op, step(op, EventSeen(Observation("running", "job_1")), NO_READ), cell)


@pytest.mark.parametrize(
    ("state", "cell"),
    _no_read_cells(
        "result_collecting",
        "result_collecting",
        "result_collecting",
        "kept",
        {**dict.fromkeys(TERMINAL, "kept"), S.TIMED_OUT: "contradiction", S.ABANDONED: "contradiction"},
    ),
)
def test_an_event_without_a_read_says_an_end_and_is_marked_unconfirmed(state: State, cell: str) -> None:
    """C8: the verified event stands, and the result says that it was not confirmed."""
    op = in_state(state)
    change = step(op, EventSeen(Observation(SAME_END.get(state, "ended"), "job_1")), NO_READ)
    assert_cell(op, change, cell)
    assert change.operation.unconfirmed == (cell == "result_collecting")


@pytest.mark.parametrize("state", CREATING)
def test_an_event_with_our_marker_is_as_a_create_accepted_where_no_read_exists(state: State) -> None:
    event = EventSeen(Observation("ended", "job_7"), is_ours=True)
    change = step(in_state(state), event, NO_READ, cause="event:7")
    assert [e.to_state for e in change.entries] == [S.ACCEPTED, S.RESULT_COLLECTING]
    assert change.operation.remote_job_id == "job_7"


@pytest.mark.parametrize("state", CREATING)
def test_an_end_that_only_such_an_event_told_is_marked_unconfirmed_too(state: State) -> None:
    event = EventSeen(Observation("ended", "job_7"), is_ours=True)
    assert step(in_state(state), event, NO_READ).operation.unconfirmed


# ---- one meaning on every road ----


@pytest.mark.parametrize("word", [*CONTRACT.words, "a word of tomorrow", None, "DONE", " done"])
def test_the_same_word_means_the_same_on_every_road(word: str | None) -> None:
    """N14."""
    seen = Observation(word, "job_1")
    changes = [
        step(in_state(S.OBSERVING), JobRead(seen)),
        step(in_state(S.OBSERVING), EventSeen(seen)),
        step(in_state(S.OBSERVING), EventSeen(seen), NO_READ),
        step(in_state(S.CREATE_PENDING), Accepted(seen)),
        step(in_state(S.CREATE_PENDING), FinishedAtOnce(seen)),
        step(in_state(S.CANCEL_REQUESTED), CancelAnswered(CancelAnswer.ACCEPTED, observation=seen)),
    ]
    verdicts = [c.verdict for c in changes]
    assert verdicts[0] is not None
    assert verdicts == [verdicts[0]] * len(verdicts)
    if word not in CONTRACT.words:
        assert verdicts[0].kind is VerdictKind.PENDING
        assert not verdicts[0].known


# ---- contract_violation ----


@pytest.mark.parametrize("word", [*CONTRACT.words, "a word of tomorrow", None])
def test_in_contract_violation_every_read_is_kept_and_moves_nothing(word: str | None) -> None:
    """N31."""
    op = in_state(S.CONTRACT_VIOLATION)
    for evidence in (read(word), EventSeen(Observation(word, "job_1")), Accepted(Observation(word, "job_9"))):
        change = step(op, evidence)
        assert_cell(op, change, "kept")
        assert [e.kind for e in change.entries] == [EntryKind.FACT]
        assert next_action(change.operation) is None
        # Half of its time: a person is asked again.
        assert change.operation.schedule.due_at == NOW - HOUR + (6 * DAY + HOUR) // 2

"""The evidence table, rows of what is read or told of a job: an end, pending, blocked, an error, gone, an event."""

from dataclasses import replace

import pytest

from reconcile.contract import WebhookTerms
from reconcile.draft import next_action
from reconcile.evidence import CollectFailed, EventSeen, JobGone, JobRead, ReadFailed
from reconcile.model import EntryKind, Observation, Progress, RemoteError, Summary
from reconcile.schedule import Pace
from reconcile.states import Priority, State
from tests.reconcile.rows import (
    BASE,
    CANCEL,
    CANCELLING,
    CAP,
    CONTRACT,
    CREATING,
    DAY,
    FILES,
    HIGHEST,
    HOUR,
    INPUT,
    MINUTE,
    NOW,
    OTHER_END,
    SAME_END,
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
#: Each verdict's own state: through collection wherever results may exist, else straight to its end.
ENDS = {
    "done": "result_collecting",
    "ended": "result_collecting",
    "failed": "failed",
    "failed+files": "result_collecting",
    "cancelled": "cancelled",
    "cancelled+files": "result_collecting",
    "window_closed": "failed",
    "window_closed+files": "result_collecting",
}

# ---- read: an end ----


@pytest.mark.parametrize(("word", "its_state"), ENDS.items())
@pytest.mark.parametrize("state", [*WATCHING, *CANCELLING, *STOPPED])
def test_a_read_shows_an_end(state: State, word: str, its_state: str) -> None:
    """From `result_timed_out` too: giving up is not the end (J6)."""
    op = in_state(state)
    change = step(op, read(word, results=FILES))
    assert_cell(op, change, its_state)
    assert change.operation.verdict is not None
    assert change.operation.verdict.word == word
    assert change.operation.results == FILES
    assert [e.kind for e in change.entries] == [EntryKind.MOVE]
    assert change.entries[0].cause == "observation:1"
    if its_state == "result_collecting":
        assert change.operation.schedule.due_at == NOW
        assert change.operation.schedule.priority == Priority.COLLECT
        assert change.operation.deadlines.collect == NOW + 24 * HOUR


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="-",
        watching="result_collecting",
        cancelling="result_collecting",
        stopped="result_collecting",
        results="kept",
        terminal={
            **dict.fromkeys(TERMINAL, "kept"),
            S.TIMED_OUT: "contradiction",
            S.ABANDONED: "contradiction",
        },
    ),
)
def test_a_read_shows_the_same_end_again(state: State, cell: str) -> None:
    """An operation that was given up knows no end: any is another one."""
    op = in_state(state)
    assert_cell(op, step(op, read(SAME_END.get(state, "ended"))), cell)


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="-",
        watching="failed",
        cancelling="failed",
        stopped="failed",
        results="contradiction",
        terminal="contradiction",
    ),
)
def test_a_read_shows_another_end(state: State, cell: str) -> None:
    op = in_state(state)
    change = step(op, read(OTHER_END.get(state, "failed"), results=FILES))
    assert_cell(op, change, cell)
    if cell == "contradiction":
        after = change.operation
        assert (after.verdict, after.results, after.error) == (op.verdict, op.results, op.error)


@pytest.mark.parametrize("state", [S.FAILED, S.CANCELLED])
def test_an_end_read_after_an_end_that_no_job_had_is_a_contradiction(state: State) -> None:
    """Never sent, or withdrawn before any send: yet a job has ended."""
    op = in_state(state, verdict=None, remote_job_id=None)
    assert_cell(op, step(op, read("cancelled")), "contradiction")


@pytest.mark.parametrize("state", CANCELLING)
@pytest.mark.parametrize("word", ["ended", "done", "failed", "cancelled", "window_closed"])
def test_an_end_after_a_cancel_request_tells_the_order(state: State, word: str) -> None:
    """E2: success after a cancel request is what happened, in order."""
    change = step(in_state(state), read(word))
    assert f"{CANCEL.by} had asked for a cancel before that" in change.entries[-1].reason
    assert change.operation.cancel is not None


def test_a_failed_job_has_its_own_error_and_its_items_count_as_failed() -> None:
    error = RemoteError("invalid_json_line", "Line 3.")
    after = step(in_state(S.OBSERVING), read("failed", error=error)).operation
    assert after.error == error
    assert after.summary == Summary(total=3, failed=3)
    assert after.completed_at == NOW


def test_an_expired_job_that_can_hold_no_results_ends_failed_as_expired() -> None:
    after = step(in_state(S.OBSERVING), read("window_closed")).operation
    assert after.outcome == "failed"
    assert after.summary == Summary(total=3, expired=3)
    assert after.error is not None
    assert after.error.code == "expired"


def test_an_end_read_in_collection_again_brings_the_results_it_did_not_name_before() -> None:
    """Counts without a file id: the job is read again, then the next try."""
    op = in_state(S.RESULT_COLLECTING, due_at=NOW + HOUR, errors=2)
    change = step(op, read("ended", results=FILES))
    assert_cell(op, change, "kept")
    assert change.operation.results == FILES
    assert change.operation.schedule.due_at == NOW


# ---- read: pending, known or not ----


@pytest.mark.parametrize("word", ["running", "a word of tomorrow", None, ""])
@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="-",
        watching={S.ACCEPTED: "observing", S.OBSERVING: "stays", S.BLOCKED: "observing", S.INPUT_GIVEN: "stays"},
        cancelling="stays",
        stopped={S.OBSERVATION_FAILED: "observing", S.RESULT_TIMED_OUT: "stays"},
        results="contradiction",
        terminal="contradiction",
    ),
)
def test_a_read_shows_a_job_that_is_pending(state: State, cell: str, word: str | None) -> None:
    op = in_state(state)
    assert_cell(op, step(op, read(word)), cell)


@pytest.mark.parametrize("state", [S.ACCEPTED, S.OBSERVING, S.BLOCKED, S.CANCELLING, S.CANCELLATION_UNCONFIRMED])
@pytest.mark.parametrize("word", ["running", "waiting"])
def test_any_good_read_resets_the_errors_and_the_run_of_gone(state: State, word: str) -> None:
    """C6."""
    op = in_state(state, errors=19, gone_reads=4, gone_since=NOW - HOUR)
    schedule = step(op, read(word)).operation.schedule
    assert (schedule.errors, schedule.gone_reads, schedule.gone_since) == (0, 0, None)


def test_polls_of_a_job_that_does_not_change_grow_apart_up_to_the_cap() -> None:
    op, gaps = in_state(S.OBSERVING, remote_status="queued"), []
    for _ in range(7):
        op = step(op, read("running"), draw=HIGHEST).operation
        gaps.append(op.schedule.due_at - NOW)
    assert gaps == [2 * BASE, 4 * BASE, 8 * BASE, 16 * BASE, CAP, CAP, CAP]
    assert step(op, read("queued"), draw=HIGHEST).operation.schedule.due_at == NOW + 2 * BASE
    assert step(op, read("running"), draw=0.0).operation.schedule.due_at == NOW + BASE


@pytest.mark.parametrize("pace", list(Pace))
@pytest.mark.parametrize("state", [S.ACCEPTED, S.OBSERVING, S.BLOCKED])
def test_a_read_that_disagrees_with_its_event_brings_the_next_one_back_to_base(state: S, pace: Pace) -> None:
    op = in_state(state, polls=8)
    rung = JobRead(Observation("running", "job_1"), rung_by="event:evt_1")
    assert step(op, rung, draw=0.0, pace=pace).operation.schedule.due_at == NOW + BASE
    assert step(op, rung, draw=HIGHEST, pace=pace).operation.schedule.due_at == NOW + 2 * BASE


HOOKS = WebhookTerms(scheme="standard", tolerance_seconds=300, retries_ms=HOUR)


def test_a_read_at_the_end_of_a_pause_that_shows_an_end_was_found_by_no_event() -> None:
    for rung_by, found in (("event:evt_1", False), ("pause:test", True), (None, True)):
        end = JobRead(Observation("done", "job_1"), rung_by=rung_by)
        change = step(in_state(S.OBSERVATION_FAILED), end, contract=replace(CONTRACT, webhook=HOOKS))
        assert change.end_seen is not None
        assert change.end_seen.is_missed is found
        (reason,) = [entry.reason for entry in change.entries]
        assert ("found by polling: no webhook had told of it" in reason) is (rung_by is None)


@pytest.mark.parametrize("state", [S.ACCEPTED, S.OBSERVING, S.OBSERVATION_FAILED, S.CANCELLING])
@pytest.mark.parametrize("rung_by", [None, "event:evt_1"])
def test_an_end_that_the_first_read_of_a_job_shows_was_neither_announced_nor_missed(
    state: S, rung_by: str | None
) -> None:
    """J5: adopted, named by a person or looked up, the job may have ended long before we heard of it."""
    end = JobRead(Observation("done", "job_1", provider_at=NOW - HOUR), rung_by=rung_by)
    unread = in_state(state, remote_status=None)
    change = step(unread, end, contract=replace(CONTRACT, webhook=HOOKS))
    assert change.operation.state is S.RESULT_COLLECTING
    assert change.end_seen is None
    assert not change.operation.end_missed


def test_an_end_that_only_an_event_can_tell_was_announced_though_the_job_was_never_read() -> None:
    told = EventSeen(Observation("done", "job_1"))
    contract = replace(CONTRACT, webhook=HOOKS, has_read=False)
    change = step(in_state(S.ACCEPTED, remote_status=None), told, contract=contract)
    assert change.end_seen is not None
    assert (change.end_seen.is_expected, change.end_seen.is_missed) == (True, False)


def test_with_healthy_webhooks_polls_are_spread_up_to_the_sweep() -> None:
    after = step(in_state(S.OBSERVING), read("running"), draw=HIGHEST, pace=Pace.SWEPT).operation
    assert after.schedule.due_at == NOW + SWEEP


@pytest.mark.parametrize("state", [S.ACCEPTED, S.OBSERVING, S.BLOCKED])
def test_where_the_list_is_read_for_all_a_job_is_due_by_itself_only_at_its_deadline(state: S) -> None:
    before = in_state(state)
    after = step(before, read("running"), draw=0.0, pace=Pace.LISTED).operation
    assert NOW < after.schedule.due_at == after.schedule.deadline_at


@pytest.mark.parametrize("pace", list(Pace))
@pytest.mark.parametrize(("state", "most"), [(S.CANCELLING, 2 * BASE), (S.CANCELLATION_UNCONFIRMED, SWEEP)])
def test_a_job_that_is_being_cancelled_is_read_by_itself_and_quickly_whatever_else_tells_of_others(
    state: S, most: int, pace: Pace
) -> None:
    """Both ends of the span: at its lowest draw every span is the same."""
    assert step(in_state(state), read("running"), draw=0.0, pace=pace).operation.schedule.due_at == NOW + BASE
    assert step(in_state(state), read("running"), draw=HIGHEST, pace=pace).operation.schedule.due_at == NOW + most


@pytest.mark.parametrize("state", [S.RESULT_TIMED_OUT, S.OBSERVATION_FAILED])
def test_a_read_that_was_rung_and_failed_is_owed_still_up_to_the_budget(state: S) -> None:
    """J6: the event told an end; one lost answer must not cost it. A read that nobody rang for is not repeated."""
    op = in_state(state, priority=Priority.RUNG)
    for n in range(1, 20):
        op = step(op, ReadFailed("timeout"), draw=0.0).operation
        assert (op.schedule.errors, op.schedule.priority) == (n, Priority.RUNG)
        assert op.schedule.due_at == NOW + BASE
    given_up = step(op, ReadFailed("timeout")).operation
    assert given_up.schedule.priority == Priority.SWEPT
    assert given_up.schedule.due_at > NOW + HOUR
    assert given_up.schedule.errors == 0  # the next ring has a budget of its own
    assert step(in_state(state), ReadFailed("timeout")).operation.schedule.due_at > NOW + HOUR


@pytest.mark.parametrize("state", [S.RESULT_TIMED_OUT, S.OBSERVATION_FAILED])
def test_a_read_that_was_rung_is_owed_still_after_one_answer_that_knows_no_such_job(state: S) -> None:
    after = step(in_state(state, priority=Priority.RUNG), JobGone("http_404"), draw=0.0).operation
    assert (after.state, after.schedule.priority, after.schedule.due_at) == (state, Priority.RUNG, NOW + BASE)
    assert step(in_state(state), JobGone("http_404")).operation.schedule.due_at > NOW + HOUR


def test_a_failed_read_is_tried_again_by_itself_although_the_list_is_read_for_all() -> None:
    after = step(in_state(S.OBSERVING), ReadFailed("timeout"), draw=0.0, pace=Pace.LISTED).operation
    assert after.schedule.due_at == NOW + BASE


@pytest.mark.parametrize(("hint", "gap"), [(1, BASE), (45_000, 45_000), (HOUR, CAP)])
def test_a_hint_in_the_body_is_kept_between_base_and_cap(hint: int, gap: int) -> None:
    change = step(in_state(S.OBSERVING), JobRead(Observation("running", "job_1"), hint_ms=hint))
    assert change.operation.schedule.due_at == NOW + gap


def test_progress_of_a_hundred_is_shown_and_is_no_end() -> None:
    """D2."""
    progress = Progress(percent=100, completed=3, total=3)
    change = step(in_state(S.OBSERVING), read("running", progress=progress))
    assert_cell(in_state(S.OBSERVING), change, "stays")
    assert change.operation.progress == progress
    assert change.is_news


def test_a_read_that_repeats_the_last_is_no_news_and_makes_no_history() -> None:
    """C9."""
    op = step(in_state(S.OBSERVING), read("queued")).operation
    change = step(op, read("queued"))
    assert not change.is_news
    assert change.entries == ()


def test_between_two_tries_to_collect_the_same_end_read_again_is_no_news() -> None:
    """C9: the failed tries are the fetch's, not the read's, and an end that tells no progress is no news of it."""
    shown = Progress(percent=40, completed=2, total=5)
    op = step(in_state(S.OBSERVING), read("running", progress=shown)).operation
    op = step(op, read("cancelled+files")).operation
    assert op.state is S.RESULT_COLLECTING
    op = step(op, CollectFailed("no_result_named")).operation
    change = step(op, read("cancelled+files"))
    assert not change.is_news
    assert change.entries == ()
    assert change.operation.progress == shown


# ---- read: blocked ----


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="-",
        watching={S.ACCEPTED: "blocked", S.OBSERVING: "blocked", S.BLOCKED: "stays", S.INPUT_GIVEN: "stays"},
        cancelling="stays",
        stopped={S.OBSERVATION_FAILED: "blocked", S.RESULT_TIMED_OUT: "stays"},
        results="contradiction",
        terminal="contradiction",
    ),
)
def test_a_read_shows_a_job_that_is_blocked(state: State, cell: str) -> None:
    op = in_state(state)
    change = step(op, read("waiting"))
    assert_cell(op, change, cell)
    if cell == "blocked":
        after = change.operation
        assert after.attention is not None
        assert after.attention.reason == "input_required"
        assert after.deadlines.input == NOW + 24 * HOUR
        assert after.deadlines.result == op.deadlines.result


@pytest.mark.parametrize("state", CANCELLING)
def test_a_blocked_word_is_shown_while_cancelling(state: State) -> None:
    assert step(in_state(state), read("waiting")).operation.remote_status == "waiting"


def test_a_blocked_job_is_polled_slowly_and_its_input_deadline_is_not_started_again() -> None:
    op = in_state(S.BLOCKED, remote_status="waiting")
    after = step(op, read("waiting"), draw=HIGHEST).operation
    assert after.schedule.due_at == NOW + SWEEP
    assert after.deadlines == op.deadlines


# ---- in input_given, until its send is answered ----


@pytest.mark.parametrize(
    "evidence",
    [read("running"), read("a word of tomorrow"), read("waiting"), ReadFailed("http_500"), JobGone()],
    ids=lambda e: type(e).__name__,
)
def test_until_the_send_is_answered_a_read_that_is_no_end_does_not_lose_the_input(evidence: JobRead) -> None:
    """Whatever the counters say: else the person's input would be lost."""
    op = in_state(S.INPUT_GIVEN, errors=19, gone_reads=4, gone_since=NOW - HOUR)
    change = step(op, evidence, draw=HIGHEST)
    assert_cell(op, change, "stays")
    assert change.operation.schedule.due_at == op.schedule.due_at
    assert change.operation.input == INPUT
    assert next_action(change.operation) == "send_input"


# ---- read: error ----


@pytest.mark.parametrize(
    ("state", "cell"),
    row(creating="stays", watching="stays", cancelling="stays", stopped="stays", results="-", terminal="-"),
)
def test_a_read_fails(state: State, cell: str) -> None:
    """It never says anything of the job (C6)."""
    op = in_state(state)
    change = step(op, ReadFailed("http_500"))
    assert_cell(op, change, cell)
    errors = 1 if state in (*WATCHING, *CANCELLING) else 0
    if state not in CREATING:
        assert change.operation.schedule.errors == errors


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="stays",
        watching={**dict.fromkeys(WATCHING, "observation_failed"), S.INPUT_GIVEN: "observation_failed"},
        cancelling="stays",
        stopped="stays",
        results="-",
        terminal="-",
    ),
)
def test_a_read_fails_at_the_end_of_the_error_budget(state: State, cell: str) -> None:
    """Twenty in a row; while cancelling the deadline decides. An input's send has been answered here."""
    given = replace(INPUT, answer="unknown") if state is S.INPUT_GIVEN else None
    op = in_state(state, errors=19, input=given)
    change = step(op, ReadFailed("http_500"))
    assert_cell(op, change, cell)
    if cell == "observation_failed":
        assert change.operation.attention is not None
        assert change.operation.attention.reason == "errors"
    if state in CANCELLING:
        assert change.operation.schedule.errors == 20


def test_nineteen_errors_in_a_row_and_a_good_read_leave_no_trace() -> None:
    op = in_state(S.OBSERVING)
    for _ in range(2):
        for n in range(1, 20):
            op = step(op, ReadFailed("timeout")).operation
            assert op.schedule.errors == n
        op = step(op, read("running")).operation
    assert op.state is S.OBSERVING
    assert op.schedule.errors == 0


def test_an_error_that_speaks_of_the_provider_costs_the_job_nothing() -> None:
    """401, 403, a pause (N35)."""
    op = in_state(S.OBSERVING, errors=19)
    for _ in range(30):
        op = step(op, ReadFailed("http_401", counts=False)).operation
    assert op.state is S.OBSERVING
    assert op.schedule.errors == 19


@pytest.mark.parametrize("state", [S.ACCEPTED, S.OBSERVING, S.CANCELLING, S.CREATE_UNKNOWN])
def test_errors_in_a_row_are_retried_by_a_growing_backoff(state: State) -> None:
    """In `create_unknown` a read that fails is as a look-up that finds none: by backoff."""
    op, gaps = in_state(state), []
    for _ in range(4):
        op = step(op, ReadFailed("http_500"), draw=HIGHEST).operation
        gaps.append(op.schedule.due_at - NOW)
    assert gaps == [2 * BASE, 4 * BASE, 8 * BASE, 16 * BASE]


@pytest.mark.parametrize(("wait", "gap"), [(1, BASE), (90_000, 90_000), (30 * MINUTE, 30 * MINUTE), (9 * HOUR, HOUR)])
@pytest.mark.parametrize("counts", [True, False])
def test_retry_after_is_kept_between_base_and_an_hour(wait: int, gap: int, counts: bool) -> None:
    after = step(in_state(S.OBSERVING), ReadFailed("http_429", wait, counts=counts)).operation
    assert after.schedule.due_at == NOW + gap


def test_the_first_error_of_a_run_is_news_and_the_next_are_counted() -> None:
    first = step(in_state(S.OBSERVING), ReadFailed("http_500"))
    assert first.is_news
    assert not step(first.operation, ReadFailed("http_500")).is_news


@pytest.mark.parametrize(
    ("ended_at", "until"), [(None, 10 * MINUTE), (NOW - MINUTE, 9 * MINUTE), (NOW + DAY, 10 * MINUTE)]
)
def test_a_result_has_a_clock_of_its_own_from_the_end_that_the_provider_names(ended_at: int | None, until: int) -> None:
    """J7: a provider whose clock is ahead gains nothing by it."""
    end = JobRead(Observation("done", "job_1", provider_at=ended_at))
    short = replace(CONTRACT, results_kept_ms=10 * MINUTE)
    after = step(in_state(S.OBSERVING), end, contract=short).operation
    assert after.results_kept_until == after.deadlines.collect == NOW + until
    assert step(in_state(S.OBSERVING), end).operation.results_kept_until is None


def test_a_run_of_gone_answers_that_a_clock_ahead_began_is_no_longer_for_that() -> None:
    """N34: five reads over two minutes, whatever the clock said before it was set back."""
    op = in_state(S.OBSERVING, gone_reads=4, gone_since=NOW + DAY)
    op = step(op, JobGone()).operation
    assert op.state is S.OBSERVING
    assert step(op, JobGone(), now=NOW + 2 * MINUTE).operation.state is S.OBSERVATION_FAILED

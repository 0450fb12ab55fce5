"""The evidence table, rows of collection, and how each verdict ends by its items."""

import pytest

from reconcile.draft import next_action
from reconcile.evidence import Collected, CollectFailed, JobRead, ReadFailed, ResultIsFailure
from reconcile.model import EntryKind, Observation, Problems, RemoteError, Summary, Verdict, VerdictKind
from reconcile.replacing import replace
from reconcile.states import Priority, State
from tests.reconcile.rows import (
    ALL_GOOD,
    BASE,
    CANCEL,
    CAP,
    CONSUMING,
    DAY,
    HIGHEST,
    HOUR,
    NOW,
    RESULTS,
    assert_cell,
    in_state,
    info,
    read,
    row,
    step,
)

S = State
K = VerdictKind
MIXED = Summary(total=3, succeeded=2, failed=1)
NONE_GOOD = Summary(total=3, failed=3)
FAILURE = RemoteError("oom", "Out of memory.")


def _collecting_becomes(end: str) -> list[object]:
    """The row: `result_*` alone has a cell, and only `result_collecting` collects."""
    return row(
        creating="-",
        watching="-",
        cancelling="-",
        stopped="-",
        results={S.RESULT_COLLECTING: end, S.RESULT_UNAVAILABLE: "-", S.RESULT_VALIDATION_FAILED: "-"},
        terminal="-",
    )


@pytest.mark.parametrize(("state", "cell"), _collecting_becomes("succeeded"))
def test_a_result_is_collected_and_every_item_succeeded(state: State, cell: str) -> None:
    op = in_state(state)
    assert_cell(op, step(op, Collected(info(), ALL_GOOD), cause="request:8"), cell)


@pytest.mark.parametrize(("state", "cell"), _collecting_becomes("result_validation_failed"))
def test_a_result_is_collected_and_breaks_the_contract(state: State, cell: str) -> None:
    op = in_state(state)
    assert_cell(op, step(op, Collected(info(problems=Problems(duplicate=("a",))), ALL_GOOD)), cell)


def test_a_result_that_is_collected_again_is_the_one_that_is_served() -> None:
    """Its items stand under the new try; those of the one before it are dropped."""
    broken = step(in_state(S.RESULT_COLLECTING), Collected(info(problems=Problems(duplicate=("a",))), ALL_GOOD))
    again = replace(broken.operation, state=S.RESULT_COLLECTING)
    after = step(again, Collected(info(attempt=2), ALL_GOOD)).operation
    assert after.result is not None
    assert (after.collect_attempt, after.result.attempt) == (2, 2)


def test_a_job_that_shows_itself_again_after_an_unread_end_is_believed_when_it_names_nothing() -> None:
    after = step(in_state(S.RESULT_COLLECTING, end_unread=True), read("ended")).operation
    assert (after.results, after.end_unread) == ((), False)


@pytest.mark.parametrize(("state", "cell"), _collecting_becomes("failed"))
def test_the_answer_is_the_jobs_own_failure(state: State, cell: str) -> None:
    op = in_state(state)
    change = step(op, ResultIsFailure(FAILURE))
    assert_cell(op, change, cell)
    if cell == "failed":
        assert change.operation.error == FAILURE


@pytest.mark.parametrize(("state", "cell"), _collecting_becomes("result_unavailable"))
def test_a_result_cannot_be_fetched_and_the_budget_is_spent(state: State, cell: str) -> None:
    op = in_state(state, errors=7)
    assert_cell(op, step(op, CollectFailed("http_404")), cell)


@pytest.mark.parametrize(("state", "cell"), _collecting_becomes("result_unavailable"))
def test_a_result_that_the_provider_dropped_is_unavailable_at_once(state: State, cell: str) -> None:
    op = in_state(state)
    assert_cell(op, step(op, CollectFailed("http_410", is_final=True)), cell)


@pytest.mark.parametrize(("state", "cell"), _collecting_becomes("stays"))
def test_a_result_cannot_be_fetched_yet(state: State, cell: str) -> None:
    op = in_state(state)
    assert_cell(op, step(op, CollectFailed("http_404")), cell)


# ---- by verdict and items (F3, N10) ----


@pytest.mark.parametrize(
    ("verdict", "summary", "end"),
    [
        (K.DONE, ALL_GOOD, "succeeded"),
        (K.DONE, MIXED, "completed_with_errors"),
        (K.DONE, NONE_GOOD, "failed"),
        (K.DONE_UNKNOWN_OUTCOME, ALL_GOOD, "succeeded"),
        (K.DONE_UNKNOWN_OUTCOME, MIXED, "completed_with_errors"),
        (K.DONE_UNKNOWN_OUTCOME, NONE_GOOD, "failed"),
        (K.CANCELLED, ALL_GOOD, "cancelled"),
        (K.CANCELLED, MIXED, "cancelled"),
        (K.CANCELLED, NONE_GOOD, "cancelled"),
        (K.FAILED, MIXED, "failed"),
        (K.FAILED, NONE_GOOD, "failed"),
        (K.EXPIRED, MIXED, "completed_with_errors"),
        (K.EXPIRED, Summary(total=3, succeeded=1, expired=2), "completed_with_errors"),
        (K.EXPIRED, Summary(total=3, expired=3), "failed"),
    ],
)
def test_the_verdict_that_led_to_collection_ends_by_its_items(verdict: K, summary: Summary, end: str) -> None:
    op = in_state(S.RESULT_COLLECTING, verdict=Verdict(verdict, "w", may_hold_results=True))
    change = step(op, Collected(info(attempt=2), summary), cause="request:8")
    after = change.operation
    assert after.state == end
    assert after.outcome == end
    assert after.completed_at == NOW
    assert after.summary == summary
    assert after.result == info(attempt=2)
    moves = [e for e in change.entries if e.kind is EntryKind.MOVE]
    assert [(m.from_state, m.cause, m.facts.get("outcome")) for m in moves] == [(S.RESULT_COLLECTING, "request:8", end)]


def test_an_expired_job_without_a_good_item_ends_failed_as_expired() -> None:
    op = in_state(S.RESULT_COLLECTING, verdict=Verdict(K.EXPIRED, "window_closed+files", may_hold_results=True))
    after = step(op, Collected(info(items=0), Summary(total=3, expired=3))).operation
    assert after.error is not None
    assert after.error.code == "expired"


def test_a_failed_end_always_names_an_error_and_keeps_the_providers_own() -> None:
    op = in_state(S.RESULT_COLLECTING)
    assert step(op, Collected(info(), NONE_GOOD)).operation.error is not None
    own = in_state(S.RESULT_COLLECTING, verdict=Verdict(K.FAILED, "failed+files"), error=FAILURE)
    assert step(own, Collected(info(), NONE_GOOD)).operation.error == FAILURE


def test_a_partial_inline_result_completes_with_errors() -> None:
    """One item, failed, its output kept."""
    op = in_state(S.RESULT_COLLECTING)
    evidence = Collected(info(items=1), Summary(total=1, failed=1), is_partial=True)
    assert step(op, evidence).operation.state is S.COMPLETED_WITH_ERRORS


def test_a_missing_item_is_no_success_and_no_failure_of_the_job() -> None:
    """F4, J3."""
    op = in_state(S.RESULT_COLLECTING)
    problems = Problems(missing=("b",))
    change = step(op, Collected(info(problems=problems), Summary(total=3, succeeded=2, missing=1)))
    after = change.operation
    assert after.state is S.RESULT_VALIDATION_FAILED
    assert after.outcome is None
    assert after.error is None
    assert after.attention is not None
    assert after.attention.reason == "result_validation_failed"
    assert after.deadlines.attention == NOW + 7 * DAY
    assert after.summary is not None
    assert after.summary.missing == 1


def test_counts_of_the_provider_that_differ_are_a_fact_and_the_ids_decide() -> None:
    op = in_state(S.RESULT_COLLECTING, finished_items=4)
    change = step(op, Collected(info(items=3), ALL_GOOD))
    assert change.operation.state is S.SUCCEEDED
    assert [e.kind for e in change.entries] == [EntryKind.MOVE, EntryKind.FACT]
    assert "4" in change.entries[1].reason


def test_lines_for_items_that_never_ran_are_no_difference_from_the_providers_count() -> None:
    """A batch that expired with one of its three items done counts one, and gives each a line."""
    expired = Verdict(VerdictKind.EXPIRED, "expired", may_hold_results=True)
    op = in_state(S.RESULT_COLLECTING, verdict=expired, finished_items=1)
    change = step(op, Collected(info(items=3), Summary(total=3, succeeded=1, expired=2)))
    assert change.operation.state is S.COMPLETED_WITH_ERRORS
    assert [e.kind for e in change.entries] == [EntryKind.MOVE]


def test_a_success_after_a_cancel_request_is_reported_as_what_happened() -> None:
    """E2."""
    op = in_state(S.RESULT_COLLECTING, cancel=CANCEL)
    after = step(op, Collected(info(), ALL_GOOD)).operation
    assert after.outcome == "succeeded"
    assert after.cancel == CANCEL


# ---- collect: 8 failures in a row, 24 h, or expiry ----


def test_eight_failures_in_a_row_spend_the_budget_and_each_is_recorded() -> None:
    op, gaps = in_state(S.RESULT_COLLECTING), []
    for n in range(1, 8):
        change = step(op, CollectFailed("http_404"), draw=HIGHEST)
        op = change.operation
        assert op.state is S.RESULT_COLLECTING
        assert op.schedule.errors == n
        assert len(change.entries) == 1
        gaps.append(op.schedule.due_at - NOW)
    assert gaps == [2 * BASE, 4 * BASE, 8 * BASE, 16 * BASE, CAP, CAP, CAP]
    after = step(op, CollectFailed("http_404")).operation
    assert after.state is S.RESULT_UNAVAILABLE
    assert after.attention is not None
    assert after.attention.reason == "result_unavailable"
    assert after.error is None


def test_the_job_is_read_again_between_two_tries_and_that_is_no_good_try() -> None:
    """404, 403, counts without a file id, a short body."""
    op = in_state(S.RESULT_COLLECTING, errors=7)
    op = step(op, read("ended")).operation
    assert op.schedule.errors == 7
    assert step(op, CollectFailed("http_404")).operation.state is S.RESULT_UNAVAILABLE


def test_a_failed_read_while_collecting_costs_no_try_and_moves_nothing() -> None:
    op = in_state(S.RESULT_COLLECTING, errors=7)
    assert_cell(op, step(op, ReadFailed("http_500")), "-")
    assert step(op, ReadFailed("http_500")).operation.schedule.errors == 7


def test_our_own_disk_spends_time_and_no_tries() -> None:
    """An hour without disk or descriptors must not leave each job that ended in it to a person."""
    op, gaps = in_state(S.RESULT_COLLECTING), []
    for n in range(1, 31):
        op = step(op, CollectFailed("our_disk", is_ours=True), draw=HIGHEST).operation
        assert (op.state, op.schedule.errors) == (S.RESULT_COLLECTING, n)
        gaps.append(op.schedule.due_at - NOW)
    assert gaps[-1] == CAP
    tried = op
    for _ in range(7):
        tried = step(tried, CollectFailed("http_500")).operation
        assert tried.state is S.RESULT_COLLECTING
    assert step(tried, CollectFailed("http_500")).operation.state is S.RESULT_UNAVAILABLE
    end = op.deadlines.collect
    assert end is not None
    assert step(op, CollectFailed("our_disk", is_ours=True), now=end).operation.state is S.RESULT_UNAVAILABLE


@pytest.mark.parametrize(("wait", "gap"), [(1, BASE), (90_000, 90_000), (9 * HOUR, HOUR)])
def test_the_next_try_keeps_retry_after_and_its_mark_is_cleared(wait: int, gap: int) -> None:
    op = in_state(S.RESULT_COLLECTING, mark_at=NOW - 1)
    after = step(op, CollectFailed("http_429", wait)).operation
    assert after.schedule.due_at == NOW + gap
    assert after.schedule.mark_at is None


def test_a_try_that_fails_after_twenty_four_hours_is_the_last() -> None:
    op = in_state(S.RESULT_COLLECTING)
    end = op.deadlines.collect
    assert end is not None
    assert step(op, CollectFailed("http_404"), now=end - 1).operation.state is S.RESULT_COLLECTING
    assert step(op, CollectFailed("http_404"), now=end).operation.state is S.RESULT_UNAVAILABLE


def test_a_consuming_fetch_is_marked_by_the_claim_that_starts_it() -> None:
    """F5: before a request with an effect a send mark is committed."""
    after = step(in_state(S.OBSERVING), read("done"), CONSUMING).operation
    assert after.state is S.RESULT_COLLECTING
    assert after.schedule.marks_on_claim
    assert not step(in_state(S.OBSERVING), read("done")).operation.schedule.marks_on_claim


def test_collection_is_next_at_once_in_its_own_place_of_the_order() -> None:
    after = step(in_state(S.OBSERVING), read("ended"), draw=HIGHEST).operation
    assert (next_action(after), after.schedule.due_at) == ("collect", NOW)
    assert after.schedule.priority == Priority.COLLECT


@pytest.mark.parametrize("state", RESULTS)
def test_no_second_word_about_an_ended_job_moves_its_result(state: State) -> None:
    """D2: failed never goes back, and neither does an end."""
    for word in ("running", "waiting", "failed", "cancelled", "a word of tomorrow"):
        op = in_state(state)
        change = step(op, JobRead(Observation(word, "job_1")))
        assert_cell(op, change, "contradiction")
        assert change.operation.verdict == op.verdict

"""How a job ends, from its verdict and its items: F3, F4, N10, N12 and the page's own words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.conclude import absent_word, end_of, without_results
from reconcile.model import Problems, Summary, Verdict, VerdictKind

K = VerdictKind
ENDS = (K.DONE, K.DONE_UNKNOWN_OUTCOME, K.FAILED, K.CANCELLED, K.EXPIRED)
ALL = Summary(total=4, succeeded=4)
SOME = Summary(total=4, succeeded=1, failed=1, cancelled=1, expired=1)
ONE = Summary(total=4, succeeded=1, failed=3)
NONE = Summary(total=4, failed=4)
NONE_EXPIRED = Summary(total=4, expired=4)
NONE_MIXED = Summary(total=4, failed=2, cancelled=1, expired=1)
EMPTY = Summary(total=0)


def end(kind: K, summary: Summary, problems: Problems | None = None, *, is_partial: bool = False) -> str:
    return end_of(Verdict(kind, "w"), summary, problems, is_partial=is_partial).value


@pytest.mark.parametrize(
    ("kind", "everything", "some", "nothing"),
    [
        (K.DONE, "succeeded", "completed_with_errors", "failed"),
        (K.DONE_UNKNOWN_OUTCOME, "succeeded", "completed_with_errors", "failed"),
        (K.CANCELLED, "cancelled", "cancelled", "cancelled"),
        (K.FAILED, "failed", "failed", "failed"),
        (K.EXPIRED, "completed_with_errors", "completed_with_errors", "failed"),
    ],
)
def test_a_verdict_ends_by_its_items(kind: K, everything: str, some: str, nothing: str) -> None:
    assert end(kind, ALL) == everything
    assert end(kind, SOME) == some
    assert end(kind, ONE) == some
    for summary in (NONE, NONE_EXPIRED, NONE_MIXED):
        assert end(kind, summary) == nothing
    assert end(kind, ALL, Problems()) == everything


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize(
    "problems",
    [
        Problems(duplicate=("a",)),
        Problems(unknown=("zz",)),
        Problems(missing=("b",)),
        Problems(unreadable_lines=(4,)),
        Problems(expected=4, found=3),
        Problems(expected=4),
        Problems(broken=("sha256",)),
    ],
    ids=["duplicate", "unknown", "missing", "unreadable", "count", "nothing_found", "broken"],
)
def test_a_result_that_breaks_the_contract_is_no_success_and_no_failure(
    kind: K, is_partial: bool, problems: Problems
) -> None:
    """F4."""
    for summary in (ALL, SOME, NONE):
        assert end(kind, summary, problems, is_partial=is_partial) == "result_validation_failed"


@pytest.mark.parametrize("kind", ENDS)
def test_a_missing_item_breaks_the_contract_even_where_nobody_listed_it(kind: K) -> None:
    """N12."""
    assert end(kind, Summary(total=4, succeeded=3, missing=1)) == "result_validation_failed"
    assert end(kind, Summary(total=1, missing=1), Problems()) == "result_validation_failed"


@pytest.mark.parametrize(
    ("kind", "to"),
    [
        (K.DONE, "completed_with_errors"),
        (K.DONE_UNKNOWN_OUTCOME, "completed_with_errors"),
        (K.CANCELLED, "cancelled"),
        (K.FAILED, "failed"),
    ],
)
def test_a_partial_inline_result_is_a_failed_item_whose_output_is_kept(kind: K, to: str) -> None:
    assert end(kind, Summary(total=1, failed=1), is_partial=True) == to


@pytest.mark.parametrize("kind", [K.DONE, K.DONE_UNKNOWN_OUTCOME])
def test_done_with_no_item_at_all_is_nothing_to_call_a_success(kind: K) -> None:
    assert end(kind, EMPTY) == "result_validation_failed"


def test_an_ended_job_without_items_keeps_its_own_word() -> None:
    assert end(K.CANCELLED, EMPTY) == "cancelled"
    assert end(K.FAILED, EMPTY) == "failed"
    assert end(K.EXPIRED, EMPTY) == "failed"


def test_one_item_is_one_item() -> None:
    """An inline result."""
    assert end(K.DONE, Summary(total=1, succeeded=1)) == "succeeded"
    assert end(K.DONE, Summary(total=1, failed=1)) == "failed"


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (K.EXPIRED, "expired"),
        (K.CANCELLED, "cancelled"),
        (K.FAILED, "failed"),
        (K.DONE, "missing"),
        (K.DONE_UNKNOWN_OUTCOME, "missing"),
        (K.PENDING, "missing"),
        (K.BLOCKED, "missing"),
        (K.GONE, "missing"),
    ],
)
def test_an_id_in_no_result_takes_the_word_of_the_end(kind: K, word: str) -> None:
    assert absent_word(Verdict(kind, "w")) == word


@pytest.mark.parametrize("kind", [K.EXPIRED, K.CANCELLED, K.FAILED])
@pytest.mark.parametrize("items", [0, 1, 50_000])
def test_a_job_that_can_hold_no_results_counts_every_item_by_that_word(kind: K, items: int) -> None:
    """J3: the balance closes."""
    summary = without_results(Verdict(kind, "w"), items)
    assert summary == Summary(total=items, **{kind.value.lower(): items})


def test_where_the_number_of_items_is_not_known_there_is_no_summary() -> None:
    assert without_results(Verdict(K.FAILED, "w"), None) is None


COUNT = st.integers(0, 5)


@given(
    kind=st.sampled_from(ENDS),
    counts=st.tuples(COUNT, COUNT, COUNT, COUNT, COUNT),
    is_partial=st.booleans(),
    broken=st.booleans(),
)
def test_no_mix_of_items_is_called_better_than_it_is(
    kind: K, counts: tuple[int, int, int, int, int], is_partial: bool, broken: bool
) -> None:
    """N10."""
    succeeded, failed, cancelled, expired, missing = counts
    summary = Summary(sum(counts), succeeded, failed, cancelled, expired, missing)
    word = end(kind, summary, Problems(duplicate=("a",)) if broken else None, is_partial=is_partial)
    whole = not broken and missing == 0
    if word == "succeeded":
        assert whole
        assert kind in (K.DONE, K.DONE_UNKNOWN_OUTCOME)
        assert succeeded == summary.total > 0
    if word == "completed_with_errors":
        assert whole
        assert succeeded or is_partial
    if word == "cancelled":
        assert kind is K.CANCELLED
    if not whole:
        assert word == "result_validation_failed"

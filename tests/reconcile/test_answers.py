"""What each HTTP status means on each road, by the rows of the evidence table; every status from 200 to 599."""

import pytest

from reconcile.answers import cancel_refusal, create_refusal, error_class, input_refusal, read_refusal, result_refusal
from reconcile.evidence import (
    CancelAnswer,
    CancelAnswered,
    CollectFailed,
    CreateNotAccepted,
    CreateRejected,
    CreateUnknown,
    InputAnswer,
    InputAnswered,
    JobGone,
    ReadFailed,
)
from reconcile.model import RemoteError
from reconcile.provider import HttpResponse

STATUSES = range(200, 600)
OWN = RemoteError("model_not_found", "No such model.", provider="x")


def answer(status: int, retry_after_ms: int | None = None) -> HttpResponse:
    return HttpResponse(status, {}, b"", retry_after_ms)


def create_word(status: int, *, about_this_request: bool) -> str:
    """The page: rejected is any 4xx not named below; not accepted; unknown is all the rest that accepts nothing."""
    if status in (401, 429):
        return "not_accepted"
    if status in (402, 403, 404, 405):
        return "rejected" if about_this_request else "not_accepted"
    if status in (408, 409):
        return "unknown"
    return "rejected" if 400 <= status <= 499 else "unknown"


@pytest.mark.parametrize("about_this_request", [True, False])
@pytest.mark.parametrize("status", STATUSES)
def test_what_a_create_answer_means(status: int, about_this_request: bool) -> None:
    """B1, N6: 3xx, 5xx, an unreadable 2xx: it may have arrived."""
    kinds = {"rejected": CreateRejected, "not_accepted": CreateNotAccepted, "unknown": CreateUnknown}
    meant = create_refusal(answer(status), OWN, is_about_this_request=about_this_request)
    assert type(meant) is kinds[create_word(status, about_this_request=about_this_request)]
    if isinstance(meant, CreateNotAccepted | CreateUnknown):
        assert meant.error_class == f"http_{status}"


def test_a_rejection_bears_the_providers_own_error_or_names_the_status() -> None:
    own = create_refusal(answer(400), OWN, is_about_this_request=True)
    assert own == CreateRejected(OWN)
    bare = create_refusal(answer(422), None, is_about_this_request=False)
    assert isinstance(bare, CreateRejected)
    assert bare.error.code == "http_422"
    assert bare.error.message


@pytest.mark.parametrize("status", [401, 402, 403, 404, 405, 429])
def test_a_create_that_was_not_accepted_bears_its_retry_after(status: int) -> None:
    assert create_refusal(answer(status, 7_000), None, is_about_this_request=False) == CreateNotAccepted(
        f"http_{status}", 7_000
    )


@pytest.mark.parametrize("is_own_error", [True, False])
@pytest.mark.parametrize("status", STATUSES)
def test_what_a_read_answer_without_a_job_means(status: int, is_own_error: bool) -> None:
    """Gone only in the provider's own words: an HTML page speaks of the path."""
    meant = read_refusal(answer(status, 9_000), is_own_error=is_own_error)
    if status in (404, 410) and is_own_error:
        assert meant == JobGone(f"http_{status}")
    else:
        assert isinstance(meant, ReadFailed)
        assert (meant.error_class, meant.retry_after_ms) == (f"http_{status}", 9_000)


@pytest.mark.parametrize("status", STATUSES)
def test_which_read_errors_cost_the_job_its_budget(status: int) -> None:
    """401 and 403 count for the provider; 5xx, time-outs, 429 and what cannot be read count for the job (C6)."""
    meant = read_refusal(answer(status), is_own_error=False)
    assert isinstance(meant, ReadFailed)
    assert meant.counts == (status not in (401, 403))


def cancel_word(status: int, *, is_own_error: bool) -> str:
    """Never accepted here: that is the adapter's to read. A 403 speaks of the account whoever words it."""
    if status in (401, 403, 429) or (status in (402, 404, 405) and not is_own_error):
        return "not_accepted"
    if status in (404, 410):
        return "not_found"
    if status == 409:
        return "too_late"
    if 400 <= status <= 499 and status != 408:
        return "refused"
    return "unknown"


@pytest.mark.parametrize("is_own_error", [True, False])
@pytest.mark.parametrize("status", STATUSES)
def test_what_a_cancel_answer_means(status: int, is_own_error: bool) -> None:
    meant = cancel_refusal(answer(status, 3_000), is_own_error=is_own_error)
    assert meant == CancelAnswered(
        CancelAnswer(cancel_word(status, is_own_error=is_own_error)), f"http_{status}", 3_000
    )


def input_word(status: int, *, is_own_error: bool) -> str:
    """Never accepted here. What surely was not looked at is sent again; a no in the provider's own words is a no."""
    if status in (401, 403, 429) or (status in (402, 404, 405) and not is_own_error):
        return "not_accepted"
    if 400 <= status <= 499 and status != 408:
        return "refused"
    return "unknown"


@pytest.mark.parametrize("is_own_error", [True, False])
@pytest.mark.parametrize("status", STATUSES)
def test_what_an_input_answer_means(status: int, is_own_error: bool) -> None:
    meant = input_refusal(answer(status, 3_000), is_own_error=is_own_error)
    word = input_word(status, is_own_error=is_own_error)
    assert meant == InputAnswered(InputAnswer(word), f"http_{status}", 3_000)


@pytest.mark.parametrize("status", STATUSES)
def test_a_result_that_cannot_be_fetched_is_tried_again_and_is_never_the_jobs_failure(status: int) -> None:
    """404, 403, counts without file id, short body: the job is read again, then the next try."""
    assert result_refusal(answer(status, 5_000)) == CollectFailed(f"http_{status}", 5_000, is_final=False)


def test_an_answer_is_counted_under_its_status() -> None:
    assert error_class(answer(503)) == "http_503"

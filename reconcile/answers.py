"""What an HTTP answer means to the road that asked, where the provider itself does not say otherwise.

The one question behind each rule is "may it have happened?". An adapter adds only what it can tell from a body:
whether the error is the provider's own, and whether it speaks of this request.
"""

from typing import Final

from reconcile.errors import Unreadable
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
from reconcile.list_page import ListPage, read_list_page
from reconcile.model import RemoteError
from reconcile.provider import HttpResponse, KnownAs

#: Create answers that surely made no job, whatever the body says.
_NEVER_MADE: Final = frozenset({401, 429})
#: The account's or the path's fault, unless the body is the provider's own error about this very request.
ACCOUNT_OR_PATH: Final = frozenset({402, 403, 404, 405})
#: 4xx answers that leave open whether a job was made: request time-out, and conflict with a request under way.
_OPEN: Final = frozenset({408, 409})
#: Answers that speak of the credential, not of the job.
_CREDENTIALS: Final = frozenset({401, 403})

#: Entries of a list page, in sizes of the page that was asked for, up to which it is read. 10: arbitrary; each entry
#: costs the event loop time, and a provider that heeds no size at all would stop it for seconds.
MAX_PAGE_SIZES: Final = 10


def error_class(response: HttpResponse) -> str:
    """The class under which an answer is counted and logged."""
    return f"http_{response.status}"


def create_refusal(
    response: HttpResponse, error: RemoteError | None, *, is_about_this_request: bool
) -> CreateRejected | CreateNotAccepted | CreateUnknown:
    """What an answer that accepts nothing means to a create (B1). `error`: the provider's own, if it gave one."""
    status = response.status
    if status in _NEVER_MADE or (status in ACCOUNT_OR_PATH and not is_about_this_request):
        return CreateNotAccepted(error_class(response), response.retry_after_ms)
    if 400 <= status < 500 and status not in _OPEN:
        return CreateRejected(error or RemoteError(error_class(response), "The provider refused the request."))
    return CreateUnknown(error_class(response))


def read_refusal(response: HttpResponse, *, is_own_error: bool) -> JobGone | ReadFailed:
    """What an answer without a job means to a read: "gone" only in the provider's own words, else an error (C6)."""
    if response.status in (404, 410) and is_own_error:
        return JobGone(error_class(response))
    return ReadFailed(error_class(response), response.retry_after_ms, counts=response.status not in _CREDENTIALS)


def list_page(response: HttpResponse, key: str, *, page_size: int, known_as: KnownAs) -> ListPage | ReadFailed:
    """A list page whose entries stand at `key`; nothing of them is looked at yet."""
    if response.status != 200:
        refusal = read_refusal(response, is_own_error=False)
        return refusal if isinstance(refusal, ReadFailed) else ReadFailed(refusal.error_class)
    most = MAX_PAGE_SIZES * page_size
    try:
        page = read_list_page(response.body, key, known_as, most=most)
    except Unreadable:
        return ReadFailed("unreadable")
    return ReadFailed("page_too_large") if page.count > most else page


def cancel_refusal(response: HttpResponse, *, is_own_error: bool) -> CancelAnswered:
    """What an answer without a job means to a cancel."""
    status = response.status
    if status in _NEVER_MADE or status == 403 or (status in ACCOUNT_OR_PATH and not is_own_error):
        answer = CancelAnswer.NOT_ACCEPTED
    elif status in (404, 410):
        answer = CancelAnswer.NOT_FOUND
    elif status == 409:
        answer = CancelAnswer.TOO_LATE
    elif 400 <= status < 500 and status != 408:
        answer = CancelAnswer.REFUSED
    else:
        answer = CancelAnswer.UNKNOWN
    return CancelAnswered(answer, error_class(response), response.retry_after_ms)


def input_refusal(response: HttpResponse, *, is_own_error: bool) -> InputAnswered:
    """What an answer that takes nothing means to an input: sent again only where surely nobody looked at it."""
    status = response.status
    if status in _NEVER_MADE or status == 403 or (status in ACCOUNT_OR_PATH and not is_own_error):
        answer = InputAnswer.NOT_ACCEPTED
    elif 400 <= status < 500 and status != 408:
        answer = InputAnswer.REFUSED
    else:
        answer = InputAnswer.UNKNOWN
    return InputAnswered(answer, error_class(response), response.retry_after_ms)


def result_refusal(response: HttpResponse) -> CollectFailed:
    """What an answer other than the result means to a fetch: the job is read again, then the next try."""
    return CollectFailed(error_class(response), response.retry_after_ms)

"""What OpenAI's Batch API promises, each number with its source.

Not documented, and therefore relied on nowhere: the order of the list, the status code of a cancel that comes too late.
"""

from collections.abc import Mapping
from typing import Final

from reconcile.contract import CancelTerms, Contract, Limits, Lookup, PollPlan, WebhookTerms, Word
from reconcile.model import VerdictKind

KIND: Final = "openai_batch"


_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

_GUIDE: Final = "https://platform.openai.com/docs/guides/batch"
_REFERENCE: Final = "https://platform.openai.com/docs/api-reference/batch"
_FILES: Final = "https://platform.openai.com/docs/api-reference/files/create"
_WEBHOOKS: Final = "https://platform.openai.com/docs/guides/webhooks"

#: https://platform.openai.com/docs/api-reference/batch/object, field `status`: the whole list.
WORDS: Final[Mapping[str, Word]] = {
    "validating": Word(VerdictKind.PENDING),
    "in_progress": Word(VerdictKind.PENDING),
    "finalizing": Word(VerdictKind.PENDING),  # all items may be counted by now, the files are not there yet
    "cancelling": Word(VerdictKind.PENDING),
    "completed": Word(VerdictKind.DONE_UNKNOWN_OUTCOME),
    "failed": Word(VerdictKind.FAILED),  # the input did not pass validation: nothing ran
    "expired": Word(VerdictKind.EXPIRED, may_hold_results=True),
    "cancelled": Word(VerdictKind.CANCELLED, may_hold_results=True),
}

#: Batches on one list page: the most that the API reference allows.
PAGE_SIZE: Final = 100

CONTRACT: Final = Contract(
    kind=KIND,
    version=1,
    words=WORDS,
    poll=PollPlan(base_ms=30_000, cap_ms=10 * _MINUTE, sweep_ms=15 * _MINUTE),
    limits=Limits(requests_per_second=5, concurrency=4, max_items=50_000, max_input_bytes=200_000_000),
    status_page="https://status.openai.com",
    operation_type="batch",
    result_within_ms=26 * _HOUR,
    idempotency="none",
    lookup=Lookup(is_sure=True, lag_ms=5 * _MINUTE, page_size=PAGE_SIZE),
    cancel=CancelTerms(
        is_repeatable=False,
        may_remain=(
            "Items that were finished by then are done and billed. The uploaded input file, and an output and an error"
            " file where any item ran, stay in the account until somebody deletes them or they expire."
        ),
        within_ms=15 * _MINUTE,
    ),
    webhook=WebhookTerms(scheme="standard", tolerance_seconds=300, retries_ms=72 * _HOUR),
    results_kept_ms=30 * _DAY,
    sources={
        "poll.base_ms": "arbitrary: no page advises an interval; a batch takes minutes to hours",
        "poll.cap_ms": "arbitrary: an end is seen ten minutes late at most, for 144 reads a day",
        "poll.sweep_ms": "arbitrary: what a lost webhook costs; a quarter of the shortest result retention",
        "poll.error_budget": "arbitrary: about three hours at the cap",
        "limits.requests_per_second": "arbitrary: no page states a rate for status calls; low enough for every tier",
        "limits.concurrency": "arbitrary",
        "limits.max_items": _GUIDE,
        "limits.max_input_bytes": f"{_GUIDE}: 200 MB, read as the smaller of its two meanings",
        "result_within_ms": f"{_GUIDE}: a window of 24 h; the two hours on top for validation and files are arbitrary",
        "lookup.lag_ms": "arbitrary: no page says how soon a new batch is listed",
        "lookup.max_pages": "arbitrary: 2,000 batches, as many as one hour may create",
        "lookup.page_size": f"{_REFERENCE}/list: the most that is allowed",
        "cancel.within_ms": f"{_REFERENCE}/cancel: up to 10 minutes; the five on top are arbitrary",
        "webhook.tolerance_seconds": "the official SDK's default, both ways",
        "webhook.retries_ms": _WEBHOOKS,
        "results_kept_ms": f"{_FILES}: files of purpose batch expire after 30 days; `output_expires_after` may shorten",
        "create_within_ms": "arbitrary, the default for every provider",
        "input_within_ms": "not used: a batch is never blocked",
        "attention_within_ms": "a working week, the default for every provider",
        "collect_within_ms": "arbitrary, the default for every provider",
        "collect_budget": "arbitrary, the default for every provider",
    },
)

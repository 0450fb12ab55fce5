"""What Anthropic's Message Batches API promises, each number with its source.

Not documented, and therefore relied on nowhere: what a second cancel or one after the end is answered, whether a batch
was made by a create that was answered 529.
"""

from collections.abc import Mapping
from typing import Final

from reconcile.contract import CancelTerms, Contract, Limits, Lookup, PollPlan, Word
from reconcile.model import VerdictKind

KIND: Final = "anthropic_batches"


_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

_GUIDE: Final = "https://platform.claude.com/docs/en/build-with-claude/batch-processing"
_REFERENCE: Final = "https://platform.claude.com/docs/en/api/messages/batches"

#: https://platform.claude.com/docs/en/api/messages/batches, field `processing_status`, has the first three. The other
#: two are made of its counts, which become final with the end: the provider has one end for all.
WORDS: Final[Mapping[str, Word]] = {
    "in_progress": Word(VerdictKind.PENDING),
    "canceling": Word(VerdictKind.PENDING),
    "ended": Word(VerdictKind.DONE_UNKNOWN_OUTCOME),
    "ended+canceled": Word(VerdictKind.CANCELLED, may_hold_results=True),
    "ended+expired": Word(VerdictKind.EXPIRED, may_hold_results=True),
}

#: Batches on one list page: the most that the API reference allows.
PAGE_SIZE: Final = 1_000

CONTRACT: Final = Contract(
    kind=KIND,
    version=1,
    words=WORDS,
    poll=PollPlan(base_ms=_MINUTE, cap_ms=5 * _MINUTE, sweep_ms=15 * _MINUTE),
    limits=Limits(requests_per_second=0.8, concurrency=4, max_items=100_000, max_input_bytes=256_000_000),
    status_page="https://status.claude.com",
    operation_type="batch",
    result_within_ms=25 * _HOUR,
    idempotency="none",
    lookup=Lookup(is_sure=False, lag_ms=5 * _MINUTE, skew_ms=5 * _MINUTE, page_size=PAGE_SIZE),
    cancel=CancelTerms(
        is_repeatable=False,
        may_remain=(
            "Requests that were finished or under way by then are done and billed. The batch stays in the account until"
            " somebody deletes it, its results for 29 days."
        ),
    ),
    results_kept_ms=28 * _DAY,
    item_marks="off",
    api_key_header="x-api-key",
    api_key_prefix="",
    sources={
        "poll.base_ms": f"{_GUIDE}: its examples ask once a minute",
        "poll.cap_ms": "arbitrary: an end is seen five minutes late at most; most batches take less than an hour",
        "poll.sweep_ms": "arbitrary: no webhook tells of a batch, so only a blocked or doubtful job is read so seldom",
        "poll.error_budget": "arbitrary: about an hour and a half at the cap",
        "limits.requests_per_second": "arbitrary: just below the 50 a minute that the smallest accounts were given",
        "limits.concurrency": "arbitrary",
        "limits.max_items": f"{_REFERENCE}/create",
        "limits.max_input_bytes": f"{_GUIDE}: 256 MB, read as the smaller of its two meanings",
        "result_within_ms": f"{_GUIDE}: a batch expires after 24 h; the hour on top is arbitrary",
        "lookup.lag_ms": "arbitrary: no page says how soon a new batch is listed",
        "lookup.max_pages": "arbitrary: 20,000 batches; the walk ends sooner, at batches older than the operation",
        "lookup.skew_ms": f"{_REFERENCE}/list: newest first; five minutes of clock difference are arbitrary",
        "lookup.page_size": f"{_REFERENCE}/list: the most that is allowed",
        "cancel.within_ms": "arbitrary, the default for every provider: no page says how long a cancel takes",
        "results_kept_ms": f"{_GUIDE}: 29 days after the creation, so 28 after the end at least",
        "create_within_ms": "arbitrary, the default for every provider",
        "input_within_ms": "not used: a batch is never blocked",
        "attention_within_ms": "a working week, the default for every provider",
        "collect_within_ms": "arbitrary, the default for every provider",
        "collect_budget": "arbitrary, the default for every provider",
    },
)

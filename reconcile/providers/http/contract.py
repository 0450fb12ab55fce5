"""The contract that follows from a declaration; what nobody declared has the numbers below."""

from typing import Final

from reconcile.contract import CancelTerms, Contract, Limits, Lookup, PollPlan
from reconcile.providers.http.declaration import Declaration

KIND: Final = "http"

_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE

#: What a cancelled job leaves, where the declaration does not say.
MAY_REMAIN: Final = "The configuration does not say: what the job had done by then may remain, and may cost."
#: How long an API that honours a token is taken to remember it, ms. 24 h: what the best known one documents
#: (https://docs.stripe.com/api/idempotent_requests); the draft of Idempotency-Key leaves it to the server.
TOKEN_KEPT_MS: Final = 24 * _HOUR
#: Webhook timestamps accepted this far from now, seconds: what every Standard Webhooks library uses.
TOLERANCE_SECONDS: Final = 300
#: The longest retry of a sender, ms: the example schedule of Standard Webhooks comes to 75.6 h.
RETRIES_MS: Final = 76 * _HOUR

#: What is known of a provider of this kind that the configuration does not name any more: no word of its bodies, no
#: request. Its operations stand, their deadlines run, and nothing is judged.
UNDECLARED: Final = Contract(
    kind=KIND,
    version=0,
    words={},
    poll=PollPlan(base_ms=5_000, cap_ms=5 * _MINUTE, sweep_ms=10 * _MINUTE),
    limits=Limits(requests_per_second=5, concurrency=4),
    status_page="",
    operation_type="job",
    result_within_ms=24 * _HOUR,
    item_marks="needless",
    sources={
        "poll.base_ms": "arbitrary: a job that runs for seconds is worth a declaration too",
        "poll.cap_ms": "arbitrary: an end is seen five minutes late at most",
        "poll.sweep_ms": "arbitrary: what a lost webhook costs",
        "poll.error_budget": "arbitrary, the default for every provider",
        "limits.requests_per_second": "arbitrary: low enough for an API of which nothing is known",
        "limits.concurrency": "arbitrary",
        "result_within_ms": "arbitrary: a day",
        "create_within_ms": "arbitrary, the default for every provider",
        "input_within_ms": "arbitrary, the default for every provider",
        "attention_within_ms": "a working week, the default for every provider",
        "collect_within_ms": "arbitrary, the default for every provider",
        "collect_budget": "arbitrary, the default for every provider",
    },
)


def contract_of(said: Declaration) -> Contract:
    """The declaration as a contract."""
    sources = dict(UNDECLARED.sources)
    if said.result.kept_ms is not None:
        sources["results_kept_ms"] = "declared"
    if said.create.token is not None:
        sources["token_kept_ms"] = "declared, else what the best known API that honours tokens documents"  # noqa: S105 - no token
    if said.lookup is not None:
        sources["lookup.lag_ms"] = "declared as create.settle, else arbitrary"
        sources["lookup.max_pages"] = "a look-up is one request"
    if said.cancel is not None:
        sources["cancel.within_ms"] = "declared, else arbitrary: the default for every provider"
    if said.webhook is not None:
        sources["webhook.tolerance_seconds"] = "what every Standard Webhooks library uses"
        sources["webhook.retries_ms"] = "the example schedule of Standard Webhooks"
    return Contract(
        kind=KIND,
        version=said.version,
        words=said.status.words,
        poll=UNDECLARED.poll,
        limits=UNDECLARED.limits,
        status_page=said.status_page,
        operation_type=UNDECLARED.operation_type,
        result_within_ms=UNDECLARED.result_within_ms,
        idempotency="none" if said.create.token is None else "replays",
        token_kept_ms=said.create.token_kept_ms if said.create.token is not None else None,
        lookup=Lookup(is_sure=True, lag_ms=5 * _MINUTE, max_pages=1) if said.lookup is not None else None,
        cancel=_cancel(said),
        takes_input=said.input is not None,
        input_is_repeatable=said.input is not None and said.input.is_repeatable,
        webhook=said.webhook.terms if said.webhook is not None else None,
        results_kept_ms=said.result.kept_ms,
        storage_hosts=said.items.hosts if said.items is not None else (),
        item_marks=UNDECLARED.item_marks,
        sources=sources,
    )


def _cancel(said: Declaration) -> CancelTerms | None:
    if said.cancel is None:
        return None
    terms = CancelTerms(is_repeatable=said.cancel.is_repeatable, may_remain=said.cancel.may_remain)
    within_ms = said.cancel.within_ms or terms.within_ms
    return CancelTerms(terms.is_repeatable, terms.may_remain, within_ms)

"""The answers each provider must give before we rely on it (C1). Data only; the adapters fill it in.

Each number that somebody tuned has a line in `sources`; a test refuses a contract where one is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from reconcile.model import Operation, UnixMs, VerdictKind
from reconcile.proof import ProofPlace
from reconcile.states import State

#: Consecutive failed reads before a job is given to a person. 20: arbitrary, about three hours at a 10 min cap.
ERROR_BUDGET: Final = 20
#: How long we try to learn the job id, ms. 15 min: arbitrary, a contract or a caller may change it.
CREATE_WITHIN_MS: Final = 15 * 60_000
#: How long a cancel may stay unconfirmed, ms, where the provider documents nothing. 15 min: arbitrary.
CANCEL_WITHIN_MS: Final = 15 * 60_000
#: How long a blocked job waits for its input, ms. 24 h: arbitrary, a person sleeps in between.
INPUT_WITHIN_MS: Final = 24 * 3_600_000
#: How long a question waits for a person, ms. 7 d: a working week; `attention.within` changes it.
ATTENTION_WITHIN_MS: Final = 7 * 24 * 3_600_000
#: How long collection is tried, ms, and how many failures in a row it survives. 24 h and 8: arbitrary.
COLLECT_WITHIN_MS: Final = 24 * 3_600_000
COLLECT_BUDGET: Final = 8
#: A run of "gone" answers counts from so many reads over so many ms: shorter runs are replication lag (field case C31).
GONE_RUN_READS: Final = 5
GONE_RUN_MS: Final = 2 * 60_000


@dataclass(frozen=True, slots=True)
class Word:
    """What one documented status word means, and whether results may exist although the job did not end well."""

    kind: VerdictKind
    may_hold_results: bool = False


@dataclass(frozen=True, slots=True)
class PollPlan:
    """When a job is read again; all in ms."""

    base_ms: int
    cap_ms: int
    sweep_ms: int
    error_budget: int = ERROR_BUDGET


@dataclass(frozen=True, slots=True)
class Lookup:
    """How a lost create is found again. `is_sure`: what is found cannot be anybody else's job."""

    is_sure: bool
    #: How long the list may lag behind a create, ms.
    lag_ms: int = 0
    #: Pages read in one look-up at most.
    max_pages: int = 20
    #: Set where the list is documented to be newest first: jobs older than the operation by more than this, ms, end
    #: the walk. It allows for two clocks that differ.
    skew_ms: int | None = None
    #: Jobs on one list page; None: there is no list that shows every job of the account.
    page_size: int | None = None


@dataclass(frozen=True, slots=True)
class CancelTerms:
    """What a cancel call promises, and what it leaves behind (E5)."""

    is_repeatable: bool
    may_remain: str
    within_ms: int = CANCEL_WITHIN_MS
    #: A whole run of "gone" while cancelling: unconfirmed, unless the provider documents that gone means cancelled.
    gone_means_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class WebhookTerms:
    """How deliveries are proven; `scheme` names an entry of signatures.SCHEMES."""

    scheme: str
    tolerance_seconds: int
    #: The provider's longest retry, ms: event ids are kept at least this long.
    retries_ms: int
    place: ProofPlace | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates and sizes: ours where the provider documents none."""

    requests_per_second: float
    concurrency: int
    max_items: int | None = None
    max_input_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """One provider's answers. `version` rises whenever a meaning changes; it is stored with each observation (J4)."""

    kind: str
    version: int
    words: Mapping[str, Word]
    poll: PollPlan
    limits: Limits
    status_page: str
    #: What an operation of this kind is called unless its start says otherwise.
    operation_type: str
    #: How long after acceptance the result may take before we stop asking, ms.
    result_within_ms: int
    has_read: bool = True
    #: "replays": the same token is answered with the first answer; "none": not honoured as far as can be verified.
    idempotency: Literal["replays", "none"] = "none"
    #: How long a token is honoured after the create that first bore it, ms; a re-send after that is no retry (N6).
    token_kept_ms: int | None = None
    lookup: Lookup | None = None
    cancel: CancelTerms | None = None
    takes_input: bool = False
    input_is_repeatable: bool = False
    webhook: WebhookTerms | None = None
    result_fetch: Literal["plain", "consuming"] = "plain"
    #: The provider drops results so long after the end, ms; None: never, or not known (J7).
    results_kept_ms: int | None = None
    #: Hosts other than the provider's own that results may be fetched from, without credentials.
    storage_hosts: tuple[str, ...] = ()
    #: The header that bears the key, and what stands before the key in it.
    api_key_header: str = "Authorization"
    api_key_prefix: str = "Bearer "
    create_within_ms: int = CREATE_WITHIN_MS
    input_within_ms: int = INPUT_WITHIN_MS
    attention_within_ms: int = ATTENTION_WITHIN_MS
    collect_within_ms: int = COLLECT_WITHIN_MS
    collect_budget: int = COLLECT_BUDGET
    #: What an operator allows for a create that was not found: "ask" a person, or "resend" it once, after `settle_ms`.
    on_absent: Literal["ask", "resend"] = "ask"
    #: Whether item ids carry a mark of the operation. "needless": something else marks the kind's jobs, or no items do.
    item_marks: Literal["needless", "off", "on"] = "needless"
    #: What an operator allows for a candidate that nothing surely marks: "ask" a person, or take the only one there is.
    adopt: Literal["ask", "by_count"] = "ask"
    #: Where each tuned number comes from, by field path.
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def replays(self) -> bool:
        """Whether a create that bears a token of before is answered as the first one was."""
        return self.idempotency == "replays"

    @property
    def settle_ms(self) -> int:
        """How long after a create became unknown a look-up that does not show it speaks of absence, ms."""
        return self.lookup.lag_ms if self.lookup is not None else 0

    def may_repeat(self, op: Operation, now: UnixMs) -> bool:
        """Whether the create that may have arrived can be sent once more and be answered as the first one was (B2).

        Not where its bytes may be others by now, nor where what was sent before a backup was restored is not known.
        """
        is_the_same = op.contract_version == self.version and not op.restored
        until = self.token_known_until(op)
        return is_the_same and until is not None and now < until

    def token_known_until(self, op: Operation) -> UnixMs | None:
        """Until when the provider is taken to know the token of a create that may have arrived; None: not known (N6).

        It counts from the first send: a later one with the same token begins no new life.
        """
        sent_at = op.token_since
        if sent_at is None:  # of a file from before this was kept; after a re-send nothing nearer is known
            sent_at = op.created_at if op.resends else op.unknown_since
        if not self.replays or self.token_kept_ms is None or sent_at is None:
            return None
        # Nine tenths: two clocks may differ, and a request may take a minute on its way.
        return sent_at + self.token_kept_ms * 9 // 10

    def is_repeatable(self, state: State) -> bool:
        """Whether what `state` sends, or the cancel that waits in it, may be sent twice."""
        if state is State.INPUT_GIVEN:
            return self.input_is_repeatable
        return self.cancel is not None and self.cancel.is_repeatable

    def with_poll(self, **values: int) -> "Contract":
        """The same contract with an operator's own poll numbers."""
        return replace(self, poll=replace(self.poll, **values))

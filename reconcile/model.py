"""The nouns: what is known of an operation, what one observation said, and what a decision changes.

Frozen values only, no behaviour beyond `replace`. Time points end in `_at` and are unix milliseconds UTC (`UnixMs`);
spans end in `_ms`. A *job* is the provider's record, an *operation* is ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from reconcile.health import EndSeen
from reconcile.history_row import HistoryRow
from reconcile.intents import CallbackWish, CancelIntent, InputIntent
from reconcile.light_dataclass import light_dataclass
from reconcile.states import DEADLINE_OF, REASON_OF, TERMINAL, Priority, State

#: Unix time in milliseconds, UTC.
UnixMs = int
JsonObject = dict[str, Any]


class VerdictKind(StrEnum):
    """What a provider's status word means, whatever road brought it."""

    PENDING = "PENDING"
    BLOCKED = "BLOCKED"
    DONE = "DONE"
    DONE_UNKNOWN_OUTCOME = "DONE_UNKNOWN_OUTCOME"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    EXPIRED = "EXPIRED"
    GONE = "GONE"


#: Verdicts after which the provider will do no more for the job. GONE is none of them: it is judged by the contract.
ENDS: Final = frozenset(
    {
        VerdictKind.DONE,
        VerdictKind.DONE_UNKNOWN_OUTCOME,
        VerdictKind.FAILED,
        VerdictKind.CANCELLED,
        VerdictKind.EXPIRED,
    }
)

#: Ends that may be a success; both lead through collection.
SAYS_DONE: Final = frozenset({VerdictKind.DONE, VerdictKind.DONE_UNKNOWN_OUTCOME})


@dataclass(frozen=True, slots=True)
class Verdict:
    """classify's answer. `known` is False for a word the contract does not list: then the kind is PENDING."""

    kind: VerdictKind
    word: str | None
    known: bool = True
    may_hold_results: bool = False

    @property
    def is_end(self) -> bool:
        """Whether the provider says that the job has ended."""
        return self.kind in ENDS


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress for people; it steers nothing (C9). `completed` counts finished items, failed ones too."""

    percent: int | None = None
    phase: str | None = None
    completed: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class RemoteError:
    """An error in the provider's own words."""

    code: str
    message: str
    retryable: bool = False
    provider: str | None = None


@dataclass(frozen=True, slots=True)
class ResultRef:
    """One thing collection has to fetch: `name` is a file id, URL or path; `role` tells outputs from errors."""

    name: str
    role: str = "output"


@light_dataclass(frozen=True, slots=True)
class Observation:
    """One fact read about a job. `word` is what classify reads, `remote_status` the provider's own value."""

    word: str | None
    remote_job_id: str | None = None
    remote_status: str | None = None
    progress: Progress | None = None
    results: tuple[ResultRef, ...] = ()
    results_gone: bool = False  # the provider says that it has dropped the results: no fetch is tried
    #: Items the provider says it has finished. Above 0 while no result is named: the files are not ready yet.
    finished_items: int | None = None
    total_items: int | None = None
    error: RemoteError | None = None
    provider_at: UnixMs | None = None
    created_at: UnixMs | None = None  # when the provider says it made the job; read where a look-up goes by it
    #: What the contract's marker reads on this job (an input file id, our own operation id, ...).
    marker: str | None = None
    named: str | None = None  # the operation whose id it bears beside that: less sure, since people copy what they see


@dataclass(frozen=True, slots=True)
class Summary:
    """Items by outcome; they add up to `total` (J3)."""

    total: int
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Problems:
    """How a collected result breaks the contract; each list is capped where it is gathered."""

    duplicate: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    #: Line numbers, from 1.
    unreadable_lines: tuple[int, ...] = ()
    expected: int | None = None
    found: int | None = None
    #: A broken promise of `expect`: "content_type", "sha256", "json_schema".
    broken: tuple[str, ...] = ()
    #: Succeeded items whose body breaks the promised schema; their own reason says where.
    off_schema: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        counts_differ = self.expected is not None and self.expected != self.found
        return bool(
            self.duplicate or self.unknown or self.missing or self.unreadable_lines or self.broken or counts_differ
        )  # `off_schema` never stands without its word in `broken`


@dataclass(frozen=True, slots=True)
class ResultInfo:
    """What collection recorded (F1): the files under `attempt`, their bytes and checksum, what was found in them."""

    attempt: int
    bytes: int
    sha256: str
    content_type: str | None
    items: int
    files: tuple[str, ...] = ()
    problems: Problems | None = None
    #: Those of `files` that hold the items of a document among the others, for items to be found in: no further bytes.
    indexes: tuple[str, ...] = ()

    @property
    def served(self) -> tuple[str, ...]:
        """The files that are the result: what bytes, checksum and content type speak of."""
        return tuple(name for name in self.files if name not in self.indexes)


@dataclass(frozen=True, slots=True)
class Attention:
    """A question to a person: why the operation waits, and since when."""

    reason: str
    since: UnixMs
    message: str = ""
    #: When half of the time for an answer had passed and the question was put once more.
    reminded_at: UnixMs | None = None


class Absence(StrEnum):
    """Why nothing may be asked about a job, as the configuration stands: the reason of its question and its notice."""

    #: The configuration does not name the provider any more.
    MISSING = "provider_missing"
    #: Its address has another origin than the one that the job was started at.
    MOVED = "provider_moved"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Wall-clock ends of waiting; None: not running."""

    create: UnixMs | None = None
    result: UnixMs | None = None
    cancel: UnixMs | None = None
    input: UnixMs | None = None
    collect: UnixMs | None = None
    attention: UnixMs | None = None


@dataclass(frozen=True, slots=True)
class Spans:
    """How long this operation may wait, in ms; None: the contract's default."""

    create_ms: int | None = None
    result_ms: int | None = None
    cancel_ms: int | None = None
    input_ms: int | None = None


@dataclass(frozen=True)  # no slots: it is copied more often than kept (replacing.py)
class Schedule:
    """The narrow half of the row: when it is due and what stands open. Gone once the operation is terminal."""

    due_at: UnixMs
    priority: int = Priority.SWEPT
    #: When the present state's own deadline fires, whatever else is due.
    deadline_at: UnixMs | None = None
    #: Polls since the last change of the remote status; the n of the backoff counts from 1.
    polls: int = 0
    #: Errors in a row: polls while observing, tries while collecting.
    errors: int = 0
    #: The present run of "gone" answers, and when it began.
    gone_reads: int = 0
    gone_since: UnixMs | None = None
    #: A request with an effect may have left since then and has no answer yet.
    mark_at: UnixMs | None = None
    #: The claim itself must set the mark, because the first request of the next action has an effect.
    marks_on_claim: bool = False
    fence: int = 0


@dataclass(frozen=True)  # no slots: it is copied more often than kept (replacing.py)
class Operation:
    """One durable record of one logical piece of work, as it stands at this moment."""

    operation_id: str
    provider: str
    type: str
    state: State
    token: str
    trace_id: str
    fingerprint: str
    request: JsonObject
    created_at: UnixMs
    schedule: Schedule
    contract_version: int = 1
    #: Scheme, host and port that it was started at; None: of a file from before this was kept, served anywhere.
    origin: str | None = None
    input_ref: str | None = None
    input_items: int | None = None
    caller: str | None = None
    approval: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    expect: JsonObject = field(default_factory=dict)
    spans: Spans = field(default_factory=Spans)
    #: Committed results of submit's steps before the create, e.g. {"upload": "file-..."}.
    steps: Mapping[str, str] = field(default_factory=dict)
    remote_job_id: str | None = None
    remote_status: str | None = None
    progress: Progress | None = None
    started_at: UnixMs | None = None
    completed_at: UnixMs | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)
    #: The end that led to collection, and what it named; kept for the next try and for `accept`.
    verdict: Verdict | None = None
    results: tuple[ResultRef, ...] = ()
    results_gone: bool = False
    #: An event alone told of the end, and the job was gone before any read: what it left is not known.
    end_unread: bool = False
    finished_items: int | None = None
    total_items: int | None = None
    #: When the provider drops the results of the ended job, as far as its contract says (J7).
    results_kept_until: UnixMs | None = None
    collect_attempt: int = 0
    #: Of the failed tries in a row (`schedule.errors`), those to collect that our own disk ended.
    our_faults: int = 0
    #: The provider gave no read that could confirm the end: the verified event stands alone (C8).
    unconfirmed: bool = False
    summary: Summary | None = None
    result: ResultInfo | None = None
    error: RemoteError | None = None
    #: What the last create that was not accepted came to: an answer's class, or why there was none.
    last_refusal: str | None = None
    accepted_despite: str | None = None  # what was wrong with the result that a person took all the same
    cancel: CancelIntent | None = None
    input: InputIntent | None = None
    #: Who is told of its questions and its end.
    callback: CallbackWish | None = None
    attention: Attention | None = None
    #: Jobs that might be this operation's, shown to a person; none of them is held.
    candidates: tuple[str, ...] = ()
    contradictions: int = 0
    parent: str | None = None
    adopted: bool = False
    #: Creates that were allowed after one that may have arrived: from the first on nothing is surely unsent.
    resends: int = 0
    restored: bool = False  # its create was open in a restored backup: every leave to send it again may be spent
    #: After a re-send was accepted, the account was looked through once more for the first one's job.
    resend_checked: bool = False
    #: When the last create became unknown; what a look-up does not show counts as absent only so long after it.
    unknown_since: UnixMs | None = None
    #: When its token first left with a create that may have arrived: whatever is sent after, its life counts from here.
    token_since: UnixMs | None = None
    #: Stands in each item id towards the provider, so that a result tells whose it is; None: the ids go as they came.
    item_mark: str | None = None
    #: Jobs that a look-up showed and whose item ids are somebody else's.
    ruled_out: tuple[str, ...] = ()
    #: The job was taken because it was the only one of so many items: its ids have yet to prove it.
    by_count: bool = False
    #: Its end was read before any event told of it, although the provider sends events (J5).
    end_missed: bool = False
    seq: int = 0
    head: str = ""

    @property
    def is_terminal(self) -> bool:
        """Whether nothing will move it any more."""
        return self.state in TERMINAL

    @property
    def outcome(self) -> str | None:
        """The terminal state's name, None until then."""
        return self.state.value if self.is_terminal else None

    def deadline(self, name: str) -> UnixMs | None:
        """The running deadline of that name."""
        value: UnixMs | None = getattr(self.deadlines, name)
        return value

    @property
    def state_deadline_name(self) -> str | None:
        """The deadline that ends the waiting here: the earlier of input and result while blocked."""
        name = DEADLINE_OF[self.state]
        if self.state is State.BLOCKED:
            running = [n for n in ("input", "result") if self.deadline(n) is not None]
            return min(running, key=lambda n: self.deadline(n) or 0, default="input")
        return name


class EntryKind(StrEnum):
    """What a history row tells."""

    MOVE = "move"
    FACT = "fact"
    REFUSED = "refused"
    CONTRADICTION = "contradiction"


@dataclass(frozen=True, slots=True)
class Entry:
    """One history row before it has a place in the chain. `facts` holds what a fold needs."""

    kind: EntryKind
    from_state: State | None
    to_state: State | None
    cause: str
    reason: str
    facts: JsonObject = field(default_factory=dict)

    @property
    def is_passing(self) -> bool:
        """Whether it enters a question that the same decision answers: nobody waits there, so nobody is told."""
        return self.to_state in REASON_OF and self.facts.get("passing") is True


@dataclass(frozen=True)  # no slots: it is copied more often than kept (replacing.py)
class Change:
    """decide's answer: the row as it becomes and the history it writes."""

    operation: Operation
    entries: tuple[Entry, ...] = ()
    rows: tuple[HistoryRow, ...] = ()  # the same as they stand in the file, filled in as they are written
    #: The observation told something new: it is kept as a row of its own (C9).
    is_news: bool = False
    #: What classify said on the way; `known=False` is logged and counted.
    verdict: Verdict | None = None
    #: How the end came to light, where a read showed it.
    end_seen: EndSeen | None = None
    #: An event told of an end that a read had found before.
    is_late_event: bool = False
    #: How the provider's newest ends came to light, this one included (health.py).
    recent_ends: str | None = None
    #: Half of the time for a person's answer is over: said again (G8).
    reminds: bool = False
    #: It came from an owner that had lost its lease: the facts are kept, the owner must not act on.
    is_late: bool = False
    #: Somebody is told of it by a callback.
    delivers: bool = False
    #: Version of the contract that judged (J4).
    contract_version: int = 0
    #: Why a client's wish was not taken (409); the operation is unchanged then.
    refusal: str | None = None

"""Evidence on its way in: every kind of fact that can reach an operation, whatever brought it.

Each is what one row of the evidence table speaks of; `decide` (rules/) says what it does in each state.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from reconcile.decisions import Decision
from reconcile.light_dataclass import light_dataclass
from reconcile.model import Absence, Observation, RemoteError, ResultInfo, Summary, UnixMs


@dataclass(frozen=True, slots=True)
class Accepted:
    """The create answer, or a look-up, names the job."""

    observation: Observation
    by_lookup: bool = False
    #: When the answer asks to be read next, ms from now.
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class JobIsHeld:
    """The job that is named for this operation's create belongs to another operation already."""

    job_id: str
    by: str


@dataclass(frozen=True, slots=True)
class FinishedAtOnce:
    """The create answer holds the result itself; a job id may be missing (A5)."""

    observation: Observation


@dataclass(frozen=True, slots=True)
class CreateRejected:
    """The provider's own definite no to this very request."""

    error: RemoteError


@dataclass(frozen=True, slots=True)
class CreateNotAccepted:
    """Surely no job was made: never connected, 401, 429, a documented "busy", an account or path fault."""

    error_class: str
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CreateUnknown:
    """The create may or may not have arrived."""

    error_class: str


@dataclass(frozen=True, slots=True)
class StepDone:
    """A submit step before the create succeeded; the create follows under the same lease, so its mark is set."""

    step: str
    value: str


@dataclass(frozen=True, slots=True)
class AboutToSend:
    """A create that no earlier step announced leaves next: its send mark is set."""


@dataclass(frozen=True, slots=True)
class LookupFound:
    """A look-up's answer that is not one sure job: none, or several.

    `is_whole` is False where it had nothing to go by, or did not come to the end of the list: what it does not show may
    be there all the same. The last two are filled in by the store, inside the transaction: which of the jobs other
    operations hold, and whether no other operation can have made one that is not held.
    """

    job_ids: tuple[str, ...]
    is_sure: bool = True
    is_whole: bool = True
    #: Those of the jobs that are known to have as many items as were sent; of the others nobody can tell.
    same_size: tuple[str, ...] = ()
    #: Jobs whose own item ids show that they are somebody else's.
    ruled_out: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    is_only_lost: bool = False
    #: When it left, however late its answer came: it shows the account as it stood then. None: nobody was asked.
    asked_at: UnixMs | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LookedAgain:
    """A look-up after a re-sent create was accepted: the jobs beside the held one that surely are this operation's.

    `is_whole` is False where it left some jobs unseen or in doubt; `error_class`: why it was given up, unseen all.
    """

    others: tuple[str, ...]
    is_whole: bool = True
    error_class: str | None = None


@light_dataclass(frozen=True, slots=True)
class JobRead:
    """An authenticated read of the job: its own status call, or a list page that shows it."""

    observation: Observation
    #: When to ask again: by the body, and by the answer's headers.
    hint_ms: int | None = None
    retry_after_ms: int | None = None
    #: What made it due before its time, for the history's words: "event:ID", "pause:PROVIDER", ...
    rung_by: str | None = None

    @property
    def is_announced(self) -> bool:
        """Whether an event had rung for it."""
        return self.rung_by is not None and self.rung_by.startswith("event:")


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """A request sent to read the job gave no readable answer."""

    error_class: str
    retry_after_ms: int | None = None
    #: False for 401 and 403: they speak of the account, and cost the job no budget.
    counts: bool = True


@dataclass(frozen=True, slots=True)
class JobGone:
    """One answer of a run: the provider says it does not know this job."""

    error_class: str = "http_404"
    #: The word of an end that a verified event told of this job before; after a whole run it leads to collection.
    #: Filled in by the store, inside the transaction.
    announced: str | None = None


@dataclass(frozen=True, slots=True)
class EventSeen:
    """A verified event. `is_ours`: it bears this operation's own marker; `is_other_content`: its id was used before."""

    observation: Observation
    is_ours: bool = False
    is_other_content: bool = False


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A person or client wants the job stopped."""

    cancel_id: str
    by: str
    reason: str
    effect: str


class CancelAnswer(StrEnum):
    """What the cancel call's answer meant."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOT_FOUND = "not_found"
    TOO_LATE = "too_late"
    NOT_ACCEPTED = "not_accepted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CancelAnswered:
    """The answer to our one cancel call."""

    answer: CancelAnswer
    error_class: str | None = None
    retry_after_ms: int | None = None
    observation: Observation | None = None


@dataclass(frozen=True, slots=True)
class InputAsked:
    """A client gives what a blocked job waits for; `ref` is the spool file that holds it, durable already."""

    input_id: str
    by: str
    ref: str | None = None
    sha256: str | None = None


class InputAnswer(StrEnum):
    """What the input call's answer meant."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    NOT_ACCEPTED = "not_accepted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class InputAnswered:
    """The answer to our one input call."""

    answer: InputAnswer
    error_class: str | None = None
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """Everything named was fetched, checked and indexed under `info.attempt`."""

    info: ResultInfo
    summary: Summary
    #: An inline result that the provider itself calls partial.
    is_partial: bool = False
    #: What the start expects and what was found instead, in words; all that is wrong where `breaks_only_promises`.
    differences: tuple[str, ...] = ()
    breaks_only_promises: bool = False


@dataclass(frozen=True, slots=True)
class CollectFailed:
    """One try failed; the job is read again before the next."""

    error_class: str
    retry_after_ms: int | None = None
    #: The provider said that it dropped the result, or a consuming fetch was cut: no further try.
    is_final: bool = False
    #: Our own disk or descriptors stood in the way: the job is blameless, so that time alone ends the tries.
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class ResultIsFailure:
    """The result call answered with the job's own failure."""

    error: RemoteError


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """A state's time is up. `last_read`: a read of the job was tried after that moment, or none may be sent."""

    name: str
    last_read: bool = False


@dataclass(frozen=True, slots=True)
class ProviderAbsent:
    """The row is due, and as the configuration stands nothing may be asked about its job: nothing left.

    `message`: what is so and what puts it right, for a person.
    """

    absence: Absence
    message: str


@dataclass(frozen=True, slots=True)
class FoundAtStart:
    """What a restart finds: `mark` open means the answer to a request with an effect was never recorded.

    `is_repeatable`: the contract lets what was cut off be sent twice.
    """

    is_repeatable: bool = False


@dataclass(frozen=True, slots=True)
class FoundInBackup:
    """What the first start of a restored backup finds: what its original sent since `made_at` is not known.

    `is_repeatable`: the contract lets what waits be sent twice.
    """

    made_at: UnixMs
    is_repeatable: bool = False


@dataclass(frozen=True, slots=True)
class PersonDecided:
    """A person's decision about an operation that waits for one. `within_ms`: how long the job may still take."""

    decision_id: str
    decision: Decision
    by: str
    reason: str
    remote_job_id: str | None = None
    within_ms: int | None = None


Evidence = (
    Accepted
    | JobIsHeld
    | FinishedAtOnce
    | CreateRejected
    | CreateNotAccepted
    | CreateUnknown
    | StepDone
    | AboutToSend
    | LookupFound
    | LookedAgain
    | JobRead
    | ReadFailed
    | JobGone
    | EventSeen
    | CancelAsked
    | CancelAnswered
    | InputAsked
    | InputAnswered
    | Collected
    | CollectFailed
    | ResultIsFailure
    | DeadlinePassed
    | ProviderAbsent
    | FoundAtStart
    | FoundInBackup
    | PersonDecided
)

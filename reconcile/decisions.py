"""What a person may decide where an operation waits for one, and what each decision will do (G8).

Data and one pure filter. The sentences are promises: `rules/deciding.py` does what they say, and nothing that is not
offered here can be decided (N32). What a decision may cost stands in its sentence, since nobody reads a manual first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from reconcile.contract import Contract
from reconcile.model import ENDS, SAYS_DONE, Absence, Operation, UnixMs, VerdictKind
from reconcile.quoted import quoted
from reconcile.schedule import rfc3339
from reconcile.states import State


class Decision(StrEnum):
    """A person's answer to a question."""

    ADOPT_JOB = "adopt_job"
    LOOK_AGAIN = "look_again"
    RESEND = "resend"
    CHOOSE_JOB = "choose_job"
    RESUME = "resume"
    CANCEL = "cancel"
    CANCEL_AGAIN = "cancel_again"
    KEEP = "keep"
    COLLECT_AGAIN = "collect_again"
    ACCEPT = "accept"
    GIVE_UP = "give_up"


@dataclass(frozen=True, slots=True)
class Offer:
    """One decision that is open, and what it will do in plain words."""

    decision: Decision
    effect: str


_D = Decision
#: Decisions that name the job they speak of.
NAMES_A_JOB: Final = frozenset({_D.ADOPT_JOB, _D.CHOOSE_JOB})
#: Decisions that may say how long from now a new deadline runs.
TAKES_A_SPAN: Final = frozenset({_D.RESUME})

_CANCEL: Final = Offer(
    _D.CANCEL,
    "A cancel is sent once, and the job is watched for its end; only the provider's own word ends it as cancelled.",
)
_RESUME: Final = Offer(
    _D.RESUME,
    "The job is read again, with a new error budget and a new result deadline: `within` from now, or else what the"
    " provider's contract allows.",
)
_AFTERWARDS: Final = " What comes to light later is kept as a contradiction; the job can be adopted anew."
_GIVE_UP: Final = Offer(
    _D.GIVE_UP,
    "The operation ends abandoned and is not watched any more; the job may still run and cost." + _AFTERWARDS,
)
#: The job has ended at the provider: it cannot run on, but it is not free of charge for that.
_GIVE_UP_THE_RESULT: Final = Offer(
    _D.GIVE_UP,
    "The operation ends abandoned and no result is fetched any more; the job has ended, and what it did may cost."
    + _AFTERWARDS,
)
_RESULT_QUESTION: Final = (
    Offer(
        _D.COLLECT_AGAIN,
        "The result is fetched and checked again, with a new budget of tries and a new deadline; the job itself is not"
        " run again.",
    ),
    Offer(
        _D.ACCEPT,
        "The result is taken as it is, bad and missing items counted; what is missing is not fetched any more.",
    ),
    _GIVE_UP_THE_RESULT,
)

_LOOK_BY_SENDING: Final = (
    "The job is looked for until a new create deadline. As long as the provider is taken to know the token, the same"
    " create is sent again with it: it is answered with the first job, or makes the job if the first never arrived."
)

#: What can be open in each state that asks a person; `open_to` says what is open for one operation.
OFFERS: Final[Mapping[State, tuple[Offer, ...]]] = {
    State.CREATE_UNRESOLVED: (
        Offer(
            _D.ADOPT_JOB,
            "The operation holds the job that you name and follows it to its end; nothing is created. If that job is"
            " somebody else's, its result counts as this operation's.",
        ),
        Offer(_D.LOOK_AGAIN, "The job is looked for until a new create deadline; nothing is created by that."),
        Offer(
            _D.RESEND,
            "The same create is sent again, with the same token and the same bytes: the work is paid for and runs twice"
            " if the first did arrive.",
        ),
        Offer(
            _D.GIVE_UP,
            "The operation ends abandoned and the job is not looked for any more; if it did arrive, the job may still"
            " run and cost." + _AFTERWARDS,
        ),
    ),
    State.CONTRACT_VIOLATION: (
        Offer(
            _D.CHOOSE_JOB,
            "The operation holds the job that you name and follows it to its end. Any other is left alone and may run"
            " and cost: it can be adopted as an operation of its own and cancelled there.",
        ),
        _GIVE_UP,
    ),
    State.OBSERVATION_FAILED: (_RESUME, _CANCEL, _GIVE_UP),
    State.RESULT_TIMED_OUT: (_RESUME, _CANCEL, _GIVE_UP),
    State.BLOCKED: (_CANCEL, _GIVE_UP),
    State.CANCELLATION_UNCONFIRMED: (
        Offer(
            _D.CANCEL_AGAIN,
            "A new cancel is sent once, with a new cancel deadline; the earlier one may still take effect too.",
        ),
        Offer(
            _D.KEEP,
            "The cancel is withdrawn and the job followed to its end: it runs on and costs, unless the cancel that was"
            " sent still takes effect.",
        ),
        _GIVE_UP,
    ),
    State.RESULT_UNAVAILABLE: _RESULT_QUESTION,
    State.RESULT_VALIDATION_FAILED: _RESULT_QUESTION,
}


def open_to(op: Operation, contract: Contract) -> tuple[Offer, ...]:
    """The decisions that are open for `op` as it stands, each with what it will do; none where nobody is asked."""
    return tuple(
        Offer(offer.decision, _effect(offer, contract) + _rider(offer.decision, op, contract))
        for offer in OFFERS.get(op.state, ())
        if _is_open(offer.decision, op, contract)
    )


def _effect(offer: Offer, contract: Contract) -> str:
    """Where tokens are honoured, to look for a job is to send its create again: that may make it, and is said."""
    by_token = offer.decision is Decision.LOOK_AGAIN and contract.replays
    return _LOOK_BY_SENDING if by_token else offer.effect


def _is_open(decision: Decision, op: Operation, contract: Contract) -> bool:
    match decision:
        case Decision.CANCEL | Decision.CANCEL_AGAIN:
            return contract.cancel is not None
        case Decision.COLLECT_AGAIN:
            return contract.result_fetch != "consuming"  # F5: it was made, or may have been
        case Decision.ACCEPT:
            return has_collected(op) or _says_no_success(op)
        case _:
            return True


#: What a promise is worth while nothing may be asked about the job.
_WHILE_ABSENT: Final = {
    _D.RESUME: " As long as nothing may be asked about the job, the same question comes back instead.",
    _D.CANCEL: " As long as nothing may be asked about the job, the cancel waits, and at its deadline is unconfirmed.",
}


def _rider(decision: Decision, op: Operation, contract: Contract) -> str:
    """What is true of this decision for this operation or this provider only."""
    told = ""
    if decision is Decision.LOOK_AGAIN and contract.lookup is None and not contract.replays:
        told += " This provider has no look-up, so only an event that names the job can find it."
    if decision is Decision.RESEND and contract.replays:
        told += " This provider promises to answer a token that it still knows with the first job instead."
        told += _forgotten(contract.token_known_until(op), is_restored=op.restored)
    if decision in (Decision.CANCEL, Decision.CANCEL_AGAIN) and contract.cancel is not None:
        told += f" What may remain: {contract.cancel.may_remain.rstrip('.')}."
    if decision in (Decision.RESUME, Decision.CANCEL) and _is_absent(op):
        told += _WHILE_ABSENT[decision]
    if decision is Decision.ACCEPT:
        told += f" The operation ends {end_by_accept(op)}."
    if decision in NAMES_A_JOB | {Decision.LOOK_AGAIN, Decision.RESEND} and op.cancel is not None:
        if has_waiting_cancel(op):
            told += " The cancel that waits is sent as soon as the job is held."
        elif decision is Decision.CHOOSE_JOB:
            told += " The cancel that was under way is not sent again."
        else:  # a restored backup: what its original sent is not known
            told += " The cancel that waits may have been sent already: the job is read for it, and none is sent."
    return told


def _forgotten(until: UnixMs | None, *, is_restored: bool) -> str:
    """From when on that promise is worth nothing: whoever decides hours later must not rely on it."""
    if until is None or is_restored:
        return " For how long it knows this one is not known here: forgotten, it runs twice if the first did arrive."
    return (
        f" It is taken to know this one until {rfc3339(until)}; from then on the token may be forgotten, and the work"
        " runs twice if the first did arrive."
    )


def _is_absent(op: Operation) -> bool:
    return op.attention is not None and op.attention.reason in set(Absence)


def job_held_by(job_id: str, holder: str) -> str:
    """Why a job that a person named cannot be held."""
    return f"the job {quoted(job_id)} is held by {holder} already"


def has_waiting_cancel(op: Operation) -> bool:
    """Whether a cancel waits for the job id: its deadline runs only from when it could be sent (E6)."""
    return op.cancel is not None and op.cancel.answer is None and op.deadlines.cancel is None


def has_collected(op: Operation) -> bool:
    """Whether something was found in a result, however bad; an empty or unreadable one shows nothing to accept."""
    return op.result is not None and op.result.items > 0


def end_by_accept(op: Operation) -> State:
    """How accepting ends the operation: by the provider's verdict and what succeeded, and never as a success (N10)."""
    kind = op.verdict.kind if op.verdict is not None else VerdictKind.DONE_UNKNOWN_OUTCOME
    if kind is VerdictKind.CANCELLED:
        return State.CANCELLED
    if kind is VerdictKind.FAILED or op.summary is None or op.summary.succeeded == 0:
        return State.FAILED
    return State.COMPLETED_WITH_ERRORS


def _says_no_success(op: Operation) -> bool:
    return op.verdict is not None and op.verdict.kind in ENDS - SAYS_DONE

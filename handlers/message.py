"""The message of an operation: which situation it is in, the sentence for it (words.py), and what to do next."""

from typing import Final

from handlers import questions, words
from handlers.words import Situation
from reconcile.contract import Contract
from reconcile.model import Operation
from reconcile.quoted import quoted
from reconcile.states import CANCELLING, CREATING, REASON_OF, WATCHING, State

#: Ends that the job came to by itself.
_OWN_ENDS: Final = frozenset({State.SUCCEEDED, State.COMPLETED_WITH_ERRORS, State.FAILED})
_GIVEN_UP: Final = frozenset({State.TIMED_OUT, State.ABANDONED})
_AND_CANCEL_WAITS: Final = {
    Situation.PLAIN: Situation.CANCEL_WAITS,
    Situation.STARTED: Situation.CANCEL_WAITS,
    Situation.HELD: Situation.HELD_AND_CANCEL_WAITS,
    Situation.NOT_ACCEPTED: Situation.NOT_ACCEPTED_AND_CANCEL_WAITS,
}


def message(
    op: Operation, poll_after: int, contract: Contract | None = None, *, held: str | None = None, is_start: bool = False
) -> str:
    """What is so and what to do next, in words for a person or an agent; `is_start`: as the answer to the start."""
    if op.is_terminal:
        return " ".join([_told(op, situation(op), held), *_of_the_end(op)]) + _page(op, contract)
    if op.state in REASON_OF:
        return f"{questions.asked(op, contract)} {questions.what_next(op, contract)}"
    next_step = (words.CALL if is_start else words.GO_ON).format(
        operation_id=op.operation_id, seconds=_counted(poll_after, "second")
    )
    return f"{_told(op, situation(op, held=held, is_start=is_start), held)} {next_step}"


def situation(op: Operation, *, held: str | None = None, is_start: bool = False) -> Situation:
    """Where an operation that asks nobody stands in the table; whatever keeps it from getting through goes first."""
    if op.is_terminal:
        return _at_the_end(op)
    at_best = Situation.STARTED if is_start else Situation.PLAIN
    found = Situation.HELD if held is not None else _failing(op) or at_best
    if found is Situation.STARTED and (op.state, found) not in words.TOLD:
        found = Situation.PLAIN  # an adopted job of which an event had come before
    return _AND_CANCEL_WAITS[found] if op.cancel is not None and op.state in CREATING else found


def _failing(op: Operation) -> Situation | None:
    """Where tries are made and fail."""
    gone, errors = op.schedule.gone_reads, op.schedule.errors
    if op.state is State.CREATE_PENDING and errors and op.last_refusal is not None:
        return Situation.NOT_ACCEPTED
    if op.state is State.RESULT_COLLECTING and errors:
        return Situation.UNFETCHED
    if not (gone or errors) or op.state not in WATCHING | CANCELLING:
        return None
    return Situation.GONE if gone else Situation.UNREAD


def _at_the_end(op: Operation) -> Situation:
    match op.state:
        case State.COMPLETED_WITH_ERRORS if op.accepted_despite is not None:
            return Situation.ACCEPTED_DESPITE
        case State.FAILED if op.error is None:
            return Situation.UNEXPLAINED
        case State.FAILED if op.error is not None and op.error.code == "never_sent":
            return Situation.NEVER_SENT
        case State.CANCELLED if op.remote_job_id is None:
            return Situation.NEVER_SENT
        case State.CANCELLED if op.summary is None or op.summary.total == 0:
            return Situation.UNCOUNTED
        case State.ABANDONED if op.verdict is not None and op.verdict.is_end:
            return Situation.JOB_ENDED
        case State.ABANDONED if op.remote_job_id is None:
            return Situation.JOB_UNKNOWN
        case _:
            return Situation.PLAIN


class _Words:
    """What fills the braces of a sentence about an operation: worked out for those that it has."""

    __slots__ = ("_held", "_op")

    def __init__(self, op: Operation, held: str | None) -> None:
        self._op, self._held = op, held

    def __getitem__(self, name: str) -> object:
        op = self._op
        match name:
            case "provider":
                return op.provider
            case "why":
                return self._held
            case "before":
                status = op.remote_status
                return words.BEFORE.format(remote_status=quoted(status)) if status is not None else ""
            case "times":
                return _counted(op.schedule.gone_reads or op.schedule.errors, "time")
            case "refusal":
                return op.last_refusal
            case "word":
                return quoted(op.verdict.word or "") if op.verdict else "''"
            case "succeeded":
                return op.summary.succeeded if op.summary else 0
            case "items":
                return _counted(op.summary.total if op.summary else 0, "item")
            case "unsuccessful":
                return op.summary.total - op.summary.succeeded if op.summary else 0
            case "despite":
                return quoted(op.accepted_despite or "")
            case "error":
                return quoted(f"{op.error.code}: {op.error.message}") if op.error else "''"
        raise KeyError(name)


def _told(op: Operation, found: Situation, held: str | None) -> str:
    return words.TOLD[op.state, found].format_map(_Words(op, held))


def _of_the_end(op: Operation) -> list[str]:
    """What an end says beside itself: how sure it is, and what became of a cancel that was asked for before it."""
    told = []
    if op.unconfirmed and op.state not in _GIVEN_UP:
        told.append(words.UNCONFIRMED.format(provider=op.provider))
    if op.cancel is None:
        return told
    if op.state in _OWN_ENDS:
        told += [words.LOST_RACE] if op.remote_job_id is not None else []
    elif op.state in _GIVEN_UP:
        told.append(words.CANCEL_UNCONFIRMED)
    elif op.cancel.may_remain:
        told.append(words.MAY_REMAIN.format(may_remain=op.cancel.may_remain))
    return told


def _page(op: Operation, contract: Contract | None) -> str:
    return questions.status_page(op, contract) if op.state is State.TIMED_OUT else ""


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

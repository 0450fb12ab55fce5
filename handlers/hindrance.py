"""Why nothing about an open operation gets through just now, in words: a pause, an absence, tries that failed.

The state says what is to be done next; these sentences say that it is not being done, and what puts that right.
"""

from collections.abc import Mapping
from typing import Final

from reconcile import absence, limits
from reconcile.limits import Pause
from reconcile.model import Operation, UnixMs
from reconcile.peer import Peer
from reconcile.schedule import rfc3339
from reconcile.states import CANCELLING, WATCHING, State

#: What stands still in each state while nothing is sent; a line beside the table of messages (bodies.py).
_STANDS_STILL: Final[Mapping[State, str]] = {
    State.CREATE_PENDING: "The work was recorded and has NOT been accepted yet; it is NOT complete.",
    State.CREATE_UNKNOWN: (
        "The create may or may not have arrived, and the job cannot be looked for; it is NOT complete and must not be"
        " started again."
    ),
    State.INPUT_GIVEN: "The input is kept and waits to be sent; the job is NOT complete.",
    State.CANCEL_REQUESTED: "The cancel is kept and waits; the job is NOT cancelled and NOT complete.",
    State.CANCELLING: "The job is NOT known to be cancelled and is NOT complete.",
    State.RESULT_COLLECTING: (
        "The job has ended, but its results wait to be fetched: it is NOT complete and NOT known to have succeeded."
    ),
}
_UNREAD: Final = "The job is NOT complete and NOT known to be running."


def why_held(peer: Peer | None, op: Operation, now: UnixMs) -> str | None:
    """Why no request about `op` is sent, as the configuration and its provider's pause stand; None: they are."""
    if peer is None or op.is_terminal:
        return None
    if (why := peer.absence_for(op)) is not None:
        return absence.question(why, op.provider, started_at=op.origin, is_at=peer.origin)
    return _paused(op.provider, peer.pause, now)


def _paused(provider: str, pause: Pause, now: UnixMs) -> str | None:
    if pause.until_ms is None:
        return None
    if limits.may_send(pause, now):
        return f"{provider} is being left alone but for one request at a time ({pause.reason})."
    until = rfc3339(pause.until_ms)
    return f"{provider} is being left alone until {until} ({pause.reason}); nothing is sent to it before."


def held(op: Operation, why: str) -> str:
    """What is so where nothing is sent: why, and what stands still for it."""
    return f"{why} {_STANDS_STILL.get(op.state, _UNREAD)}"


def failing(op: Operation) -> str | None:
    """Where tries are made and fail: what they came to, and what is no longer known to be so."""
    gone, errors = op.schedule.gone_reads, op.schedule.errors
    if op.state is State.CREATE_PENDING and errors and op.last_refusal is not None:
        return (
            f"The work was recorded, and {op.provider} has not accepted it: tried {_times(errors)}, the last came to"
            f" {op.last_refusal}. It is tried again, and is NOT complete."
        )
    if op.state not in WATCHING | CANCELLING or not (gone or errors):
        return None
    if gone:
        what = f"{op.provider} has answered {_times(gone)} in a row that it does not know the job"
    else:
        what = f"The job at {op.provider} could not be read {_times(errors)} in a row"
    before = f"; before that it was last said to be {op.remote_status!r}" if op.remote_status is not None else ""
    return f"{what}{before}. {_UNREAD}"


def _times(number: int) -> str:
    return "1 time" if number == 1 else f"{number} times"

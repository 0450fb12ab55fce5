"""What people and clients asked of one operation: a cancel, an input, to be called back. Values that its row keeps.

Time points are unix milliseconds UTC.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CancelIntent:
    """A person's wish to stop the job; recorded before anything is sent (E1)."""

    cancel_id: str
    by: str
    reason: str
    effect: str
    requested_at: int
    answer: str | None = None
    may_remain: str | None = None


@dataclass(frozen=True, slots=True)
class InputIntent:
    """What a client gave to a blocked job; sent once."""

    input_id: str
    by: str
    given_at: int
    answer: str | None = None
    #: The spool file that holds it.
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class CallbackWish:
    """Where a client wants to be told of questions and the end: a URL that was checked against `[callbacks.NAME]`."""

    name: str
    url: str

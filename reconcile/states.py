"""The state machine as tables: which states exist, where each may go, what each does next.

Theory of operation. An operation row is its own programme counter: its state names the one next action and the
one deadline that ends the waiting. Evidence moves it (decide.py), never the act of asking: having sent a cancel is
not `cancelled`, progress of 100 is not `succeeded`. Every arrow to `succeeded` starts in `result_collecting`, so no
end is believed before its items were read. A state without an arrow out is terminal and stays for good.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Our own states; a provider's words are kept apart, in `remote_status` (D1)."""

    CREATE_PENDING = "create_pending"
    CREATE_UNKNOWN = "create_unknown"
    ACCEPTED = "accepted"
    OBSERVING = "observing"
    BLOCKED = "blocked"
    INPUT_GIVEN = "input_given"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLING = "cancelling"
    RESULT_COLLECTING = "result_collecting"
    CREATE_UNRESOLVED = "create_unresolved"
    CONTRACT_VIOLATION = "contract_violation"
    OBSERVATION_FAILED = "observation_failed"
    RESULT_TIMED_OUT = "result_timed_out"
    CANCELLATION_UNCONFIRMED = "cancellation_unconfirmed"
    RESULT_UNAVAILABLE = "result_unavailable"
    RESULT_VALIDATION_FAILED = "result_validation_failed"
    SUCCEEDED = "succeeded"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    ABANDONED = "abandoned"


class Status(StrEnum):
    """The five words that outsiders see (D4)."""

    PENDING = "pending"
    WORKING = "working"
    BLOCKED = "blocked"
    DONE = "done"
    FAILED = "failed"


class Action(StrEnum):
    """What a worker does for a due row. A state without one waits for a person."""

    SUBMIT = "submit"
    RECONCILE_CREATE = "reconcile_create"
    POLL = "poll"
    SEND_INPUT = "send_input"
    SEND_CANCEL = "send_cancel"
    COLLECT = "collect"


class Priority:
    """Order within one provider's rate: the lower number is served first."""

    CANCEL: Final = 0
    CREATE: Final = 1
    RUNG: Final = 2
    COLLECT: Final = 3
    SWEPT: Final = 4


_S = State
#: What every state between the job's acceptance and its end may turn into.
_WATCHED: Final = frozenset(
    {
        _S.CANCEL_REQUESTED,
        _S.RESULT_COLLECTING,
        _S.FAILED,
        _S.CANCELLED,
        _S.RESULT_TIMED_OUT,
        _S.OBSERVATION_FAILED,
        _S.CONTRACT_VIOLATION,
    }
)
_CANCEL_ENDS: Final = frozenset(
    {_S.RESULT_COLLECTING, _S.FAILED, _S.CANCELLED, _S.CANCELLATION_UNCONFIRMED, _S.CONTRACT_VIOLATION}
)
_RESULT_QUESTION: Final = frozenset(
    {
        _S.RESULT_COLLECTING,
        _S.COMPLETED_WITH_ERRORS,
        _S.FAILED,
        _S.CANCELLED,
        _S.ABANDONED,
        _S.CONTRACT_VIOLATION,
    }
)

#: Every legal move. A missing pair is refused and the refusal recorded (D1).
TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    _S.CREATE_PENDING: frozenset(
        {
            _S.ACCEPTED,
            _S.CREATE_UNKNOWN,
            _S.RESULT_COLLECTING,
            _S.FAILED,
            _S.CANCELLED,
            _S.CONTRACT_VIOLATION,
        }
    ),
    _S.CREATE_UNKNOWN: frozenset(
        {_S.ACCEPTED, _S.RESULT_COLLECTING, _S.FAILED, _S.CREATE_UNRESOLVED, _S.CONTRACT_VIOLATION}
    ),
    _S.ACCEPTED: _WATCHED | {_S.OBSERVING, _S.BLOCKED},
    _S.OBSERVING: _WATCHED | {_S.BLOCKED},
    _S.BLOCKED: _WATCHED | {_S.OBSERVING, _S.INPUT_GIVEN, _S.ABANDONED},
    _S.INPUT_GIVEN: _WATCHED | {_S.OBSERVING, _S.BLOCKED},
    _S.CANCEL_REQUESTED: _CANCEL_ENDS | {_S.CANCELLING},
    _S.CANCELLING: _CANCEL_ENDS,
    _S.RESULT_COLLECTING: frozenset(
        {
            _S.SUCCEEDED,
            _S.COMPLETED_WITH_ERRORS,
            _S.FAILED,
            _S.CANCELLED,
            _S.RESULT_UNAVAILABLE,
            _S.RESULT_VALIDATION_FAILED,
            _S.CONTRACT_VIOLATION,
        }
    ),
    _S.CREATE_UNRESOLVED: frozenset(
        {_S.ACCEPTED, _S.CREATE_UNKNOWN, _S.CREATE_PENDING, _S.ABANDONED, _S.CONTRACT_VIOLATION}
    ),
    _S.CONTRACT_VIOLATION: frozenset({_S.ACCEPTED, _S.OBSERVING, _S.ABANDONED}),
    _S.OBSERVATION_FAILED: frozenset(
        {
            _S.OBSERVING,
            _S.BLOCKED,
            _S.CANCEL_REQUESTED,
            _S.RESULT_COLLECTING,
            _S.FAILED,
            _S.CANCELLED,
            _S.ABANDONED,
            _S.CONTRACT_VIOLATION,
        }
    ),
    _S.RESULT_TIMED_OUT: frozenset(
        {
            _S.OBSERVING,
            _S.CANCEL_REQUESTED,
            _S.RESULT_COLLECTING,
            _S.FAILED,
            _S.CANCELLED,
            _S.TIMED_OUT,
            _S.ABANDONED,
            _S.CONTRACT_VIOLATION,
        }
    ),
    _S.CANCELLATION_UNCONFIRMED: frozenset(
        {
            _S.OBSERVING,
            _S.CANCEL_REQUESTED,
            _S.RESULT_COLLECTING,
            _S.FAILED,
            _S.CANCELLED,
            _S.ABANDONED,
            _S.CONTRACT_VIOLATION,
        }
    ),
    _S.RESULT_UNAVAILABLE: _RESULT_QUESTION,
    _S.RESULT_VALIDATION_FAILED: _RESULT_QUESTION,
    _S.SUCCEEDED: frozenset(),
    _S.COMPLETED_WITH_ERRORS: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.TIMED_OUT: frozenset(),
    _S.ABANDONED: frozenset(),
}

#: The one next action of each state; None: a person's, or nobody's any more.
ACTIONS: Final[Mapping[State, Action | None]] = {
    _S.CREATE_PENDING: Action.SUBMIT,
    _S.CREATE_UNKNOWN: Action.RECONCILE_CREATE,
    _S.ACCEPTED: Action.POLL,
    _S.OBSERVING: Action.POLL,
    _S.BLOCKED: Action.POLL,
    _S.INPUT_GIVEN: Action.SEND_INPUT,
    _S.CANCEL_REQUESTED: Action.SEND_CANCEL,
    _S.CANCELLING: Action.POLL,
    _S.RESULT_COLLECTING: Action.COLLECT,
    _S.CREATE_UNRESOLVED: None,
    _S.CONTRACT_VIOLATION: None,
    _S.OBSERVATION_FAILED: None,
    _S.RESULT_TIMED_OUT: None,
    _S.CANCELLATION_UNCONFIRMED: Action.POLL,
    _S.RESULT_UNAVAILABLE: None,
    _S.RESULT_VALIDATION_FAILED: None,
    _S.SUCCEEDED: None,
    _S.COMPLETED_WITH_ERRORS: None,
    _S.FAILED: None,
    _S.CANCELLED: None,
    _S.TIMED_OUT: None,
    _S.ABANDONED: None,
}

STATUS_OF: Final[Mapping[State, Status]] = {
    _S.CREATE_PENDING: Status.PENDING,
    _S.CREATE_UNKNOWN: Status.PENDING,
    _S.ACCEPTED: Status.WORKING,
    _S.OBSERVING: Status.WORKING,
    _S.BLOCKED: Status.BLOCKED,
    _S.INPUT_GIVEN: Status.WORKING,
    _S.CANCEL_REQUESTED: Status.WORKING,
    _S.CANCELLING: Status.WORKING,
    _S.RESULT_COLLECTING: Status.WORKING,
    _S.CREATE_UNRESOLVED: Status.BLOCKED,
    _S.CONTRACT_VIOLATION: Status.BLOCKED,
    _S.OBSERVATION_FAILED: Status.BLOCKED,
    _S.RESULT_TIMED_OUT: Status.BLOCKED,
    _S.CANCELLATION_UNCONFIRMED: Status.BLOCKED,
    _S.RESULT_UNAVAILABLE: Status.BLOCKED,
    _S.RESULT_VALIDATION_FAILED: Status.BLOCKED,
    _S.SUCCEEDED: Status.DONE,
    _S.COMPLETED_WITH_ERRORS: Status.DONE,
    _S.FAILED: Status.FAILED,
    _S.CANCELLED: Status.FAILED,
    _S.TIMED_OUT: Status.FAILED,
    _S.ABANDONED: Status.FAILED,
}

#: The name of the deadline that ends the waiting in each state, as in `Deadlines`; None: terminal.
DEADLINE_OF: Final[Mapping[State, str | None]] = {
    _S.CREATE_PENDING: "create",
    _S.CREATE_UNKNOWN: "create",
    _S.ACCEPTED: "result",
    _S.OBSERVING: "result",
    _S.BLOCKED: "input",
    _S.INPUT_GIVEN: "result",
    _S.CANCEL_REQUESTED: "cancel",
    _S.CANCELLING: "cancel",
    _S.RESULT_COLLECTING: "collect",
    _S.CREATE_UNRESOLVED: "attention",
    _S.CONTRACT_VIOLATION: "attention",
    _S.OBSERVATION_FAILED: "attention",
    _S.RESULT_TIMED_OUT: "attention",
    _S.CANCELLATION_UNCONFIRMED: "attention",
    _S.RESULT_UNAVAILABLE: "attention",
    _S.RESULT_VALIDATION_FAILED: "attention",
    _S.SUCCEEDED: None,
    _S.COMPLETED_WITH_ERRORS: None,
    _S.FAILED: None,
    _S.CANCELLED: None,
    _S.TIMED_OUT: None,
    _S.ABANDONED: None,
}

#: Where a person is asked: the question's reason unless the entry names a narrower one ("gone", "refused", ...).
REASON_OF: Final[Mapping[State, str]] = {
    _S.BLOCKED: "input_required",
    _S.CREATE_UNRESOLVED: "create_unresolved",
    _S.CONTRACT_VIOLATION: "contract_violation",
    _S.OBSERVATION_FAILED: "errors",
    _S.RESULT_TIMED_OUT: "result_timed_out",
    _S.CANCELLATION_UNCONFIRMED: "cancellation_unconfirmed",
    _S.RESULT_UNAVAILABLE: "result_unavailable",
    _S.RESULT_VALIDATION_FAILED: "result_validation_failed",
}

TERMINAL: Final = frozenset(state for state in State if not TRANSITIONS[state])
#: The columns of the evidence table (decide.py).
CREATING: Final = frozenset({_S.CREATE_PENDING, _S.CREATE_UNKNOWN})
WATCHING: Final = frozenset({_S.ACCEPTED, _S.OBSERVING, _S.BLOCKED, _S.INPUT_GIVEN})
CANCELLING: Final = frozenset({_S.CANCEL_REQUESTED, _S.CANCELLING, _S.CANCELLATION_UNCONFIRMED})
STOPPED: Final = frozenset({_S.RESULT_TIMED_OUT, _S.OBSERVATION_FAILED})
ENDED_REMOTELY: Final = frozenset({_S.RESULT_COLLECTING, _S.RESULT_UNAVAILABLE, _S.RESULT_VALIDATION_FAILED})
#: Ends without the job's own end: such an operation holds no job, so that another may adopt it (N5).
GIVEN_UP: Final = frozenset({_S.TIMED_OUT, _S.ABANDONED})
#: Where a list page is as good as a read of its own. A cancelled job is read quicker than a list is.
LISTED: Final = frozenset({_S.ACCEPTED, _S.OBSERVING, _S.BLOCKED})
#: Where a verified event makes the row due at once; elsewhere it is kept and judged by `decide`.
RINGS: Final = WATCHING | CANCELLING | STOPPED


def is_legal(from_state: State, to_state: State) -> bool:
    """Whether `TRANSITIONS` has this arrow."""
    return to_state in TRANSITIONS[from_state]

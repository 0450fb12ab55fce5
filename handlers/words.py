"""Every sentence about an operation that a person or an agent reads: one table, state by situation.

A message is what is so, from the table, and what to do next, from below it. They are written so that no part of a
message about an operation that has not ended can be quoted as its success, and so that each end is called what it was.
tests/handlers/words.txt holds all of them filled in, for whoever reads them as text.

Names in braces are filled by message.py; what a stranger may have written comes within single quotes
(reconcile/quoted.py), and no sentence here has an apostrophe of its own, so that where such words end is never in
doubt.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from reconcile.states import State


class Situation(StrEnum):
    """What beside the state decides what there is to say."""

    PLAIN = "plain"
    #: The answer to the start itself.
    STARTED = "started"
    #: A cancel was asked for and the job's id is not known.
    CANCEL_WAITS = "cancel waits"
    #: Nothing is sent: the provider is left alone, or may not be asked as the configuration stands.
    HELD = "held"
    HELD_AND_CANCEL_WAITS = "held, cancel waits"
    #: Creates were tried, and surely made no job.
    NOT_ACCEPTED = "not accepted"
    NOT_ACCEPTED_AND_CANCEL_WAITS = "not accepted, cancel waits"
    #: Reads come to nothing; or the provider says that it does not know the job.
    UNREAD = "unread"
    GONE = "gone"
    #: Fetching the result fails.
    UNFETCHED = "unfetched"
    #: An end without a count of items, or without a reason.
    UNCOUNTED = "uncounted"
    UNEXPLAINED = "unexplained"
    #: An end without a job: nothing was ever sent.
    NEVER_SENT = "never sent"
    #: A person took the result as it was.
    ACCEPTED_DESPITE = "accepted despite"
    #: Given up while nobody knew whether there is a job; or after the job had ended.
    JOB_UNKNOWN = "job unknown"
    JOB_ENDED = "job ended"


_S, _N = State, Situation
_UNREAD: Final = "Reading the job at {provider} has failed {times} in a row{before}. "
_GONE: Final = "{provider} has answered {times} in a row that it does not know the job{before}. "
_UNKNOWN: Final = "The job is NOT complete and NOT known to be running."
_UNKNOWN_INPUT: Final = "The input is kept; the job is NOT complete and NOT known to be running."
_UNKNOWN_CANCEL: Final = "The job is NOT known to be cancelled, NOT known to be running and NOT complete."
_CANCEL_WAITS: Final = (
    "A cancel was asked for and waits: it is sent to {provider} as soon as the id of the job is known. The work is NOT"
    " cancelled and NOT complete."
)
_CANCEL_WAITS_TOO: Final = " A cancel waits too: the work is NOT cancelled."

#: What is so while nobody is asked, and at the end.
TOLD: Final[Mapping[tuple[State, Situation], str]] = {
    (_S.CREATE_PENDING, _N.STARTED): (
        "The work has started and is NOT complete. It was recorded and is about to be sent to {provider}."
    ),
    (_S.CREATE_PENDING, _N.PLAIN): ("The work was recorded and is about to be sent to {provider}. It is NOT complete."),
    (_S.CREATE_PENDING, _N.CANCEL_WAITS): _CANCEL_WAITS,
    (_S.CREATE_PENDING, _N.HELD): "{why} The work was recorded and is NOT accepted there yet; it is NOT complete.",
    (_S.CREATE_PENDING, _N.HELD_AND_CANCEL_WAITS): (
        "{why} The work was recorded and is NOT accepted there yet; it is NOT complete." + _CANCEL_WAITS_TOO
    ),
    (_S.CREATE_PENDING, _N.NOT_ACCEPTED): (
        "The work was recorded, and {provider} has not accepted it: tried {times}, the last came to {refusal}. It is"
        " tried again, and is NOT complete."
    ),
    (_S.CREATE_PENDING, _N.NOT_ACCEPTED_AND_CANCEL_WAITS): (
        "The work was recorded, and {provider} has not accepted it: tried {times}, the last came to {refusal}. It is"
        " NOT complete." + _CANCEL_WAITS_TOO
    ),
    (_S.CREATE_UNKNOWN, _N.PLAIN): (
        "The create may or may not have arrived at {provider}; the job is being looked for. It is NOT complete and must"
        " not be started again."
    ),
    (_S.CREATE_UNKNOWN, _N.CANCEL_WAITS): (
        "The create may or may not have arrived at {provider}; the job is being looked for, and must not be started"
        " again. " + _CANCEL_WAITS
    ),
    (_S.CREATE_UNKNOWN, _N.HELD): (
        "{why} The create may or may not have arrived, and the job cannot be looked for; it is NOT complete and must"
        " not be started again."
    ),
    (_S.CREATE_UNKNOWN, _N.HELD_AND_CANCEL_WAITS): (
        "{why} The create may or may not have arrived, and the job cannot be looked for; it is NOT complete and must"
        " not be started again." + _CANCEL_WAITS_TOO
    ),
    (_S.ACCEPTED, _N.STARTED): (
        "The job at {provider} is followed from now on and is NOT complete: nothing has been read of it yet."
    ),
    (_S.ACCEPTED, _N.PLAIN): "The job at {provider} is known and has not been read yet. It is NOT complete.",
    (_S.ACCEPTED, _N.HELD): "{why} The job is NOT complete and NOT known to be running.",
    (_S.ACCEPTED, _N.UNREAD): _UNREAD + _UNKNOWN,
    (_S.ACCEPTED, _N.GONE): _GONE + _UNKNOWN,
    (_S.OBSERVING, _N.PLAIN): "The job is running at {provider} and is NOT complete.",
    (_S.OBSERVING, _N.HELD): "{why} The job is NOT complete and NOT known to be running.",
    (_S.OBSERVING, _N.UNREAD): _UNREAD + _UNKNOWN,
    (_S.OBSERVING, _N.GONE): _GONE + _UNKNOWN,
    (_S.INPUT_GIVEN, _N.PLAIN): "The input is being sent to {provider}. The job is NOT complete.",
    (_S.INPUT_GIVEN, _N.HELD): "{why} The input is kept and waits to be sent; the job is NOT complete.",
    (_S.INPUT_GIVEN, _N.UNREAD): _UNREAD + _UNKNOWN_INPUT,
    (_S.INPUT_GIVEN, _N.GONE): _GONE + _UNKNOWN_INPUT,
    (_S.CANCEL_REQUESTED, _N.PLAIN): (
        "A cancel is being sent to {provider}. The job is NOT cancelled yet and NOT complete."
    ),
    (_S.CANCEL_REQUESTED, _N.HELD): "{why} The cancel is kept and waits; the job is NOT cancelled and NOT complete.",
    (_S.CANCEL_REQUESTED, _N.UNREAD): _UNREAD + _UNKNOWN_CANCEL,
    (_S.CANCEL_REQUESTED, _N.GONE): _GONE + _UNKNOWN_CANCEL,
    (_S.CANCELLING, _N.PLAIN): (
        "{provider} was asked to cancel. The job is NOT known to be cancelled and is NOT complete; how it will end is"
        " open."
    ),
    (_S.CANCELLING, _N.HELD): "{why} The job is NOT known to be cancelled and is NOT complete.",
    (_S.CANCELLING, _N.UNREAD): _UNREAD + _UNKNOWN_CANCEL,
    (_S.CANCELLING, _N.GONE): _GONE + _UNKNOWN_CANCEL,
    (_S.RESULT_COLLECTING, _N.PLAIN): (
        "{provider} says the job has ended, in its word {word}; its results are being fetched and checked, so the work"
        " is NOT complete and NOT known to have succeeded."
    ),
    (_S.RESULT_COLLECTING, _N.HELD): (
        "{why} The job has ended, but its results wait to be fetched: the work is NOT complete and NOT known to have"
        " succeeded."
    ),
    (_S.RESULT_COLLECTING, _N.UNFETCHED): (
        "{provider} says the job has ended, in its word {word}; fetching its results has failed {times} in a row and is"
        " tried again, so the work is NOT complete and NOT known to have succeeded."
    ),
    (_S.SUCCEEDED, _N.PLAIN): "The work is complete: {succeeded} of {items} succeeded.",
    (_S.COMPLETED_WITH_ERRORS, _N.PLAIN): (
        "The work has ended with errors, which is no full success: {succeeded} of {items} succeeded, {unsuccessful}"
        " did not."
    ),
    (_S.COMPLETED_WITH_ERRORS, _N.ACCEPTED_DESPITE): (
        "The work has ended, accepted by a person as it is, which is no full success: {succeeded} of {items} succeeded,"
        " {unsuccessful} did not. What was wrong with it: {despite}."
    ),
    (_S.FAILED, _N.PLAIN): "The work has failed. The reason given: {error}.",
    (_S.FAILED, _N.UNEXPLAINED): "The work has failed, and no reason was given.",
    (_S.FAILED, _N.NEVER_SENT): (
        "The work has failed: no job was made at {provider}, and none will be. The reason given: {error}."
    ),
    (_S.CANCELLED, _N.PLAIN): "The work was cancelled; {succeeded} of {items} had succeeded before.",
    (_S.CANCELLED, _N.UNCOUNTED): "The work was cancelled; how much of it had been worked off before is not known.",
    (_S.CANCELLED, _N.NEVER_SENT): (
        "The work was withdrawn before a create was sent to {provider}: no job was made, and nothing was worked off."
    ),
    (_S.TIMED_OUT, _N.PLAIN): (
        "The operation has timed out: we stopped waiting, and nothing is known of an end of the work. The job at"
        " {provider} may still run and cost."
    ),
    (_S.ABANDONED, _N.PLAIN): (
        "The operation was given up, and nothing is known of an end of the work. The job at {provider} may still run"
        " and cost."
    ),
    (_S.ABANDONED, _N.JOB_UNKNOWN): (
        "The operation was given up, and whether {provider} made a job is not known. If it did, the job may still run"
        " and cost."
    ),
    (_S.ABANDONED, _N.JOB_ENDED): (
        "The operation was given up: the job at {provider} has ended, in its word {word}, and its result was not taken."
        " What it did may cost; nothing is known of a success."
    ),
}

#: What a state that asks a person wants to know, by the reason of its question; each reason belongs to one state.
ASKED: Final[Mapping[str, str]] = {
    "create_unresolved": (
        "It is not known whether {provider} made a job for this create. Look at the account there before you decide."
    ),
    "contract_violation": (
        "It is not clear which job at {provider} belongs to this operation. Nothing is sent until a person chooses one."
    ),
    "errors": "The job at {provider} can no longer be read; it may still be running.",
    "gone": ("{provider} says that it does not know the job any more; that tells nothing of how it ended."),
    "provider_missing": "{absence}. The job at {provider} may still be running.",
    "provider_moved": "{absence}. The job at {provider} may still be running.",
    "result_timed_out": "No end was seen in time; the job at {provider} may still be running.",
    "result": ("No end was seen before the result deadline; the job at {provider} may still be running."),
    "input": ("Nobody gave the input in time; the job at {provider} may still be waiting for it, or running."),
    "input_required": "The job at {provider} waits for input. {how_to_give}",
    "input_unknown": (
        "The input may or may not have reached {provider}: its answer was lost, and the job still says that it waits."
        " Given again, it may arrive twice. {how_to_give}"
    ),
    "cancellation_unconfirmed": (
        "{provider} never confirmed the cancel, so the job is NOT known to be cancelled; it may still be running."
    ),
    "refused": ("{provider} did not take the cancel, so the job is NOT cancelled and is still running there."),
    "result_unavailable": ("The job at {provider} has ended, but its result cannot be fetched."),
    "promise_broken": "The job at {provider} has ended, and its result {broken}.",
    "result_validation_failed": ("The result of {provider} breaks the contract and cannot be trusted."),
}

#: How a blocked job is given its input.
INPUT_CALL: Final = "POST /v1/operations/{operation_id}/input gives it, and the job is followed on to its end."
NO_INPUT_CALL: Final = "It can only be given at {provider} itself: we have no call for it."

# ---- why nothing is sent: the `why` of what is held (an absence is told by reconcile/absence.py) ------------------

LEFT_ALONE: Final = "{provider} is being left alone until {until} ({reason}); nothing is sent to it before."
ONE_AT_A_TIME: Final = "{provider} is being left alone but for one request at a time ({reason})."

# ---- what to do next -------------------------------------------------------------------------------------------

#: After a start, as long as nobody is asked: what to call, and when.
CALL: Final = (
    "Do not report success. Call GET /v1/operations/{operation_id}?wait=60 after {seconds}; it answers when the work"
    " has ended, when a person is needed, or after 60 seconds with how it stands."
)
GO_ON: Final = "Do not report success. Check again after {seconds}."
DECIDE: Final = (
    "The work is NOT complete: do not report success, and do not start it again. A person must decide; the decisions"
    " that are open are listed under `attention`."
)
GIVE: Final = "The work is NOT complete: do not report success. Give the input, or cancel it."
GIVE_THERE: Final = "The work is NOT complete: do not report success. Give the input there, or cancel it here."

# ---- what is added ---------------------------------------------------------------------------------------------

#: Before the answer to a start whose key was used before.
REPEATED: Final = "Nothing was started: the idempotency key already stands for this operation."
#: What the provider last said, of a job that is not read any more.
BEFORE: Final = "; before that it was last said to be {remote_status}"
LED_TO_IT: Final = "What led to it: {led_to_it}."
STATUS_PAGE: Final = "See {page} for how {provider} fares."
LOST_RACE: Final = "The job had ended before the cancel that was asked for took effect."
CANCEL_UNCONFIRMED: Final = "The cancel that was asked for was never confirmed."
MAY_REMAIN: Final = "What may remain: {may_remain}"
UNCONFIRMED: Final = "That the job ended was told by a webhook and could not be read from {provider} itself."

# ---- streams: what a `gap` says ----------------------------------------------------------------------------------

#: Told as they are: ID stands for each of the reader's own.
GAP_REMOVED: Final = (
    "History at these positions was removed, as retention.finished says: it was of operations that had ended. It cannot"
    " be told any more. Look up what you still hold as open: GET /v1/operations/ID answers 404 for each of those, which"
    " says nothing of how it ended."
)
GAP_OTHER_RECORD: Final = (
    "This Last-Event-ID lies beyond the newest position: the record is another one than the one that gave it, most"
    " likely a restored backup. What you were told up to here may not stand in it. Read anew what you hold: GET"
    " /v1/operations?open=true, and GET /v1/completions for what has ended."
)

# ---- the inbox: what deciding a notice does ----------------------------------------------------------------------

ACKNOWLEDGED: Final = (
    "The notice leaves the inbox; nothing else changes, and no request is sent. If the same happens anew, it is told"
    " again."
)
REDELIVERED: Final = (
    "Each delivery of this operation that was given up is tried anew, at once and then by the same schedule, with the"
    " same id and the same bytes; the notice leaves the inbox."
)

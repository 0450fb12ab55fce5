"""What a refused call is told, as data: what is so, what was not done, what to do next.

An agent that reads only the detail must know whether anything happened and whether to send it again. No other module
of the local API has sentences of refusal: whoever refuses names a row of this table and what fills its braces. The
names of fields in `errors` are told where they are checked. tests/handlers/words.txt holds all of it, to be read.

What a stranger may have written comes within single quotes (reconcile/quoted.py), so that no sentence here has an
apostrophe.
"""

from dataclasses import dataclass
from typing import Final

#: Seconds after which a refused write may be tried again. 5: arbitrary; disks and locks clear in seconds or not at all.
RETRY_SECONDS: Final = 5


@dataclass(frozen=True, slots=True)
class Refusal:
    """One problem document but for its fields; `detail` is filled by problem.py."""

    status: int
    title: str
    detail: str


_AGAIN: Final = f"Try again after {RETRY_SECONDS} seconds"

# ---- who asks, and where ---------------------------------------------------------------------------------------

WRONG_HOST: Final = Refusal(
    421,
    "Misdirected request",
    "This listener does not answer for that Host. Nothing was done. Ask it by the host and port that it listens at.",
)
FOREIGN_PAGE: Final = Refusal(
    403,
    "Forbidden",
    "Web pages of other origins may not call this API. Nothing was done. Call it from a program, with a token.",
)
NO_TOKEN: Final = Refusal(
    401,
    "Unauthorized",
    "This call bears no token of this daemon. Nothing was done. Send one as Authorization: Bearer TOKEN.",
)
LACKS_RIGHT: Final = Refusal(
    403,
    "Forbidden",
    'The token "{name}" lacks the right "{right}". Nothing was done. Sent again with this token it is refused again:'
    " ask whoever runs the daemon for one that has the right.",
)
NO_PATH: Final = Refusal(404, "Not Found", "There is nothing at this path. Nothing was done. Check how it is spelled.")
NO_METHOD: Final = Refusal(
    405, "Method Not Allowed", "This path takes {allow}, not {method}. Nothing was done. Call it by what it takes."
)

# ---- what was sent ---------------------------------------------------------------------------------------------

WRONG_WRITE: Final = Refusal(
    422, "The request cannot be used", "{fault}. Nothing was stored. Correct it and send it again."
)
WRONG_READ: Final = Refusal(
    400, "The request cannot be used", "{fault}. Nothing was looked up. Correct it and ask again."
)
NO_JSON: Final = Refusal(
    400,
    "The body is not the JSON we accept",
    "The body is not the JSON that is taken here: {reason}. Nothing was stored. Correct it and send it again.",
)
BROKEN_BODY: Final = Refusal(
    400,
    "The body cannot be read",
    "The transfer or content encoding of the body is broken. Nothing was stored. Send it again, whole.",
)
LATE_BODY: Final = Refusal(
    408, "Request Timeout", "The body did not come in time. Nothing was stored. Send it again, whole."
)
LARGE_BODY: Final = Refusal(
    413,
    "The body is too large",
    "The body has more than the {most} bytes that are taken here. Nothing was stored. Send less.",
)
BODY_TYPE: Final = Refusal(
    415,
    "Unsupported Media Type",
    "The Content-Type of the body is none that is taken here. Nothing was stored. Send the body as {ways}.",
)
CODED_FORM: Final = Refusal(
    415,
    "Unsupported Media Type",
    "The form has a Content-Encoding, and none is taken. Nothing was stored. Send the form without it.",
)
PART_TYPE: Final = Refusal(
    415,
    "Unsupported Media Type",
    "The part {name} of the form is of another type than is taken. Nothing was stored. Send it as {kind}, in UTF-8.",
)
CODED_PART: Final = Refusal(
    415,
    "Unsupported Media Type",
    "The part {name} of the form is encoded, and no encoding is taken. Nothing was stored. Send it as it is.",
)
KEY_REUSED: Final = Refusal(
    422,
    "The idempotency key is taken",
    "This idempotency key already started {operation_id} with other content. Nothing was started. Look at that"
    " operation, or send this start under a key of its own.",
)
JOB_HELD: Final = Refusal(
    409,
    "The job is held",
    "This job is already held by {operation_id}. Nothing was started. Follow that operation instead.",
)

# ---- what is asked of an operation or a notice, and is not there or not open --------------------------------------

NO_OPERATION: Final = Refusal(
    404,
    "No such operation",
    "There is no operation {operation_id}. Nothing was done. GET /v1/operations lists those that there are.",
)
_HOW_IT_ENDED: Final = (
    " How it ended can not be told any more. Nothing was done. Asking again does not help; do not report success, and"
    " do not start the work again because of this answer."
)
REMOVED: Final = Refusal(
    404,
    "The operation was removed",
    "The operation {operation_id} had ended, and was removed on {at}, as retention.finished says." + _HOW_IT_ENDED,
)
BEING_REMOVED: Final = Refusal(
    404,
    "The operation is being removed",
    "The operation {operation_id} had ended, and is being removed, as retention.finished says." + _HOW_IT_ENDED,
)
NO_ITEM: Final = Refusal(
    404,
    "No such item",
    "The operation has no item {item_id}. Nothing was done. GET /v1/operations/{operation_id}/items lists those that it"
    " has.",
)
NO_RESULT_YET: Final = Refusal(
    404,
    "No result yet",
    "No end of the job has been seen, so there is no result yet. Do not report success. GET"
    " /v1/operations/{operation_id} tells how it stands.",
)
NO_RESULT: Final = Refusal(
    404,
    "No result",
    "No result of this operation has been collected. Do not report success by this. GET /v1/operations/{operation_id}"
    " tells how it stands.",
)
NO_SUCH_RANGE: Final = Refusal(
    416,
    "Range Not Satisfiable",
    "The result has {bytes} bytes, and none of them lies in this range. Nothing was read. Ask for a range within it,"
    " or for all of it.",
)
FILE_GONE: Final = Refusal(
    410,
    "A file is gone",
    "A row names a file that is not in the state directory any more. Nothing was changed. Asking again does not help:"
    " tell whoever runs the daemon.",
)
NOT_OPEN: Final = Refusal(
    409, "Not open", "{fault}. Nothing was changed. Look at how it stands now before you ask for anything else."
)
NO_NOTICE: Final = Refusal(
    409,
    "Not open",
    "No notice of this id waits in the inbox: it was acknowledged, is over, or never was there. Nothing was changed."
    " GET /v1/inbox lists what waits.",
)
NOTHING_TO_REDELIVER: Final = Refusal(
    409,
    "Not open",
    "No notice of this id waits in the inbox whose deliveries could be tried anew. Nothing was changed, and nothing is"
    " sent. GET /v1/inbox lists what waits.",
)

#: Whatever else aiohttp refuses by itself, under its own status.
OTHER: Final = Refusal(
    400, "Refused", "The request was refused: {reason}. Nothing was stored. Correct it before you send it again."
)

# ---- ends and who takes them -------------------------------------------------------------------------------------

TOO_EARLY: Final = Refusal(
    425, "Too early", "There is nothing to claim yet, and nothing was claimed. {message} Claim it after its end."
)
CLAIMED: Final = Refusal(
    409,
    "Claimed already",
    "The end of this operation was claimed for {consumer} on {at}, by another call than this one. Nothing was claimed"
    " now. Do not do again what follows from this end: that is up to whoever holds the claim.",
)
OTHER_RECORD: Final = Refusal(
    410,
    "The cursor is of another record",
    "This cursor was given by another record than this one, most likely before a backup was restored. Nothing was read."
    " Read again from the beginning, without `after`, and claim each end before you act on it: what your consumer has"
    " claimed is not given to it twice, but for claims that were made after the backup.",
)

# ---- what is our own fault ---------------------------------------------------------------------------------------

NOT_STORED: Final = Refusal(503, "Not stored", f"Nothing was stored. {_AGAIN}, with the same content and key.")
NOT_READABLE: Final = Refusal(503, "Not readable", f"The store cannot be read just now. Nothing was changed. {_AGAIN}.")
NOT_KNOWN: Final = Refusal(
    503,
    "Not known",
    f"It is NOT known whether this was stored. {_AGAIN}, with the same content and key, or look before you do.",
)
FAULT: Final = Refusal(
    500,
    "Internal error",
    "A fault of ours. It is NOT known whether anything was stored: look before you send it again. It was logged under"
    " this trace id.",
)

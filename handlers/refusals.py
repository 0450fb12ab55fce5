"""What a refused call is told, as data: what is so, what was not done, what to do next.

An agent that reads only the detail must know whether anything happened and whether to send it again.
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

WRONG_WRITE: Final = Refusal(
    422, "The request cannot be used", "{fault}. Nothing was stored. Correct it and send it again."
)
WRONG_READ: Final = Refusal(400, "The request cannot be used", "{fault}. Correct it and ask again.")
NO_JSON: Final = Refusal(
    400,
    "The body is not the JSON we accept",
    "The body is not the JSON that is taken here: {reason}. Nothing was stored. Correct it and send it again.",
)
BROKEN_BODY: Final = Refusal(
    400,
    "The body cannot be read",
    "The body's transfer or content encoding is broken. Nothing was stored. Send it again, whole.",
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
NOT_OPEN: Final = Refusal(
    409, "Not open", "{fault}. Nothing was changed. Look at how it stands now before you ask for anything else."
)
NO_PATH: Final = Refusal(404, "Not Found", "There is nothing at this path. Nothing was done.")
NO_METHOD: Final = Refusal(405, "Method Not Allowed", "This path takes {allow}, not {method}. Nothing was done.")
FILE_GONE: Final = Refusal(
    410,
    "A file is gone",
    "A row names a file that is not in the state directory any more. Asking again does not help: tell whoever runs the"
    " daemon.",
)
NOT_STORED: Final = Refusal(503, "Not stored", f"Nothing was stored. {_AGAIN}, with the same content and key.")
NOT_READABLE: Final = Refusal(503, "Not readable", f"The store cannot be read just now. {_AGAIN}; nothing was changed.")
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

"""Exit statuses: scripts hold on to these."""

from collections.abc import Sequence
from typing import Any, Final

SUCCEEDED: Final = 0
FAILED: Final = 1
#: Another call of this consumer has the claim.
CLAIMED_ALREADY: Final = 1
#: The record is not as it was written, or holds no such operation.
NOT_SO: Final = 1
USAGE: Final = 2
NOT_ENDED: Final = 3
NEEDS_A_PERSON: Final = 4
COMPLETED_WITH_ERRORS: Final = 5
#: The daemon could not be asked, or cannot answer now: sysexits' EX_UNAVAILABLE. Asking again may help.
UNAVAILABLE: Final = 69
#: The outcome of a write is unknown (sysexits' EX_IOERR); systemd starts again and the file decides.
STORE_BROKEN: Final = 74
#: What was found cannot be written to stdout (EX_IOERR too).
UNWRITTEN: Final = 74
#: Another daemon runs on the state directory (sysexits' EX_TEMPFAIL).
ALREADY_RUNNING: Final = 75
#: The daemon does not take the token, or the token lacks the right (EX_NOPERM): asking again would not help.
NOT_ALLOWED: Final = 77
#: A configuration that cannot be used (sysexits' EX_CONFIG): starting again would not help.
BAD_CONFIGURATION: Final = 78

#: Answers of the API's that refuse what was asked, and would again.
_REFUSED: Final = frozenset({400, 404, 409, 410, 413, 415, 422})


def of_refusal(status: int) -> int:
    """What a refusal of the API's means for a script: whether the question, the token or the moment was wrong."""
    if status in (401, 403):
        return NOT_ALLOWED
    return USAGE if status in _REFUSED else UNAVAILABLE


def of_operation(body: dict[str, Any]) -> int:
    """What an operation body means for a script."""
    if body["done"]:
        return {"succeeded": SUCCEEDED, "completed_with_errors": COMPLETED_WITH_ERRORS}.get(body["outcome"], FAILED)
    return NEEDS_A_PERSON if body["attention"] else NOT_ENDED


def of_several(bodies: Sequence[dict[str, Any]]) -> int:
    """What several operations mean together: the one that asks most of a reader.

    One that has not ended comes first, then one that needs a person, a failed one, one with errors: 0 says that all
    of them succeeded.
    """
    found = {of_operation(body) for body in bodies}
    ranked = (NOT_ENDED, NEEDS_A_PERSON, FAILED, COMPLETED_WITH_ERRORS, SUCCEEDED)
    return next((status for status in ranked if status in found), SUCCEEDED)

"""Exit statuses: scripts hold on to these."""

from typing import Any, Final

SUCCEEDED: Final = 0
FAILED: Final = 1
#: The record is not as it was written, or holds no such operation.
NOT_SO: Final = 1
USAGE: Final = 2
NOT_ENDED: Final = 3
NEEDS_A_PERSON: Final = 4
COMPLETED_WITH_ERRORS: Final = 5
#: The daemon could not be asked, or refused: sysexits' EX_UNAVAILABLE.
UNAVAILABLE: Final = 69
#: The outcome of a write is unknown (sysexits' EX_IOERR); systemd starts again and the file decides.
STORE_BROKEN: Final = 74
#: Another daemon runs on the state directory (sysexits' EX_TEMPFAIL).
ALREADY_RUNNING: Final = 75
#: A configuration that cannot be used (sysexits' EX_CONFIG): starting again would not help.
BAD_CONFIGURATION: Final = 78


def of_operation(body: dict[str, Any]) -> int:
    """What an operation body means for a script."""
    if body["done"]:
        return {"succeeded": SUCCEEDED, "completed_with_errors": COMPLETED_WITH_ERRORS}.get(body["outcome"], FAILED)
    return NEEDS_A_PERSON if body["attention"] else NOT_ENDED

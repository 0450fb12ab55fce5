"""Keys that are spelled almost as another one: what was meant, in words to go behind what was found."""

from difflib import get_close_matches
from itertools import islice
from typing import Final

#: How alike two keys are, of 1. For a key that is unknown 0.6, difflib's own: the known ones are few. For one that is
#: missing 0.8, arbitrary: those that stand there may belong there, and are less alike than by one letter of five.
_UNKNOWN: Final = 0.6
_MISSING: Final = 0.8
#: Keys of one table that are compared. 1,000: arbitrary; each costs some 10 us, and no table has a tenth.
_COMPARED: Final = 1000


def unknown(key: str, known: set[str]) -> str:
    """The known key that an unknown one was meant to be; nothing where none is alike."""
    near = get_close_matches(key, known, n=1, cutoff=_UNKNOWN)
    return f" (did you mean {near[0]}?)" if near else ""


def missing(key: str, others: set[str]) -> str:
    """The key that stands there in place of a missing one; nothing where none is alike."""
    near = get_close_matches(key, map(str, islice(others, _COMPARED)), n=1, cutoff=_MISSING)
    return f" (or was {near[0]} meant to be it?)" if near else ""

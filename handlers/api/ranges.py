"""Which bytes of a whole are asked for: one range of bytes (RFC 9110, section 14), and whether it still holds.

What is no single range of bytes is answered with the whole, as the RFC allows: nothing wrong can come of that.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: Digits of a number in a range. 18: below 64 bits, and far beyond what any disk holds.
_NUMBER: Final = r"\d{1,18}"
_RANGE: Final = re.compile(rf"bytes=[ \t]*(?P<first>{_NUMBER})?-(?P<last>{_NUMBER})?[ \t]*", re.ASCII | re.IGNORECASE)


class NotSatisfiable(Exception):
    """No byte of the whole lies in the range."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The bytes from `start` on, `length` of them."""

    start: int
    length: int


def asked_for(ranges: Sequence[str], if_range: Sequence[str], *, size: int, tag: str) -> Stretch | None:
    """The one range that `Range` asks for of so many bytes; None: the whole is the answer.

    `if_range`: it holds only for the bytes that bear this tag. Raises: NotSatisfiable.
    """
    parts = _RANGE.fullmatch(ranges[0]) if len(ranges) == 1 else None
    if parts is None or (if_range and list(if_range) != [tag]):
        return None
    first, last = (None if parts[name] is None else int(parts[name]) for name in ("first", "last"))
    if first is None:
        return None if last is None else _the_last(last, size)
    if last is not None and last < first:
        return None
    if first >= size:
        raise NotSatisfiable
    return Stretch(first, (size if last is None else min(last + 1, size)) - first)


def _the_last(count: int, size: int) -> Stretch | None:
    if count == 0:
        raise NotSatisfiable
    length = min(count, size)
    return Stretch(size - length, length) if size else None  # of nothing, the end is the whole

"""A small result beside the operation that it is of: its JSON as a value, so that whoever asks needs no second call."""

from collections.abc import Sequence
from typing import Final

from reconcile.errors import Unreadable
from reconcile.files import Files
from reconcile.model import ResultInfo
from reconcile.read_json import JsonValue, read_json

#: Bytes of a result that stands in an operation's body. 16 KiB: what a caller may not want is little, and one page of
#: a disk's cache or four are all that is read for it.
MAX_INLINE: Final = 16_384


async def value_of(files: Files, result: ResultInfo) -> JsonValue:
    """The one JSON document that a result is, or the list of its lines; None where it is large, no JSON, or not there.

    Read off the loop. That it cannot be read is no fault of whoever asks how an operation stands.
    """
    if not 0 < result.bytes <= MAX_INLINE:
        return None
    try:
        read = await files.offload(lambda: [files.read(name, 0, MAX_INLINE + 1) for name in result.served])
    except OSError:
        return None
    return _parsed(read) if sum(map(len, read)) == result.bytes else None


def _parsed(read: Sequence[bytes]) -> JsonValue:
    held = [data for data in read if data.strip()]
    if len(held) == 1:
        try:
            return read_json(held[0])
        except Unreadable:
            pass  # no document, but maybe lines of them
    try:
        return [read_json(line) for data in held for line in data.split(b"\n") if line.strip()] or None
    except Unreadable:
        return None

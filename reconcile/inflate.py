"""Content codings of a result on its way: gzip taken off piece by piece, and never a cut stream taken for a whole one.

aiohttp's own decoding does not notice where gzip ends too early: a result would come out short, with nothing wrong.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from reconcile.errors import OutcomeUnknown

#: What a fetch says that it takes; an answer in any other coding is a failed try.
ACCEPTED: Final = "gzip"
#: Bytes given out at once. 64 KiB, as files are read: a bomb grows by no more than that before it is counted.
PIECE: Final = 65536
_GZIP: Final = frozenset({"gzip", "x-gzip"})
#: zlib's number for a gzip frame with the largest window.
_GZIP_FRAME: Final = 31


class Plain:
    """No coding: bytes pass."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The bytes as they came."""
        yield data

    def end(self) -> None:
        """Nothing can be missing here: the length or the last chunk told."""


class Gunzip:
    """gzip, of one member or of several in a row (RFC 1952, 2.2)."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_FRAME)
        self._is_begun = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What `data` adds, in pieces of bounded size. Raises: OutcomeUnknown, where it is no gzip."""
        while data:
            self._is_begun = True
            try:
                piece = self._member.decompress(data, PIECE)
            except zlib.error as fault:
                raise OutcomeUnknown("bad_encoding", f"no gzip: {fault}") from fault
            if piece:
                yield piece
            # Where the piece was full, the rest; a member's trailer is not consumed before its last byte is out.
            data = self._member.unconsumed_tail
            if self._member.eof:
                data = self._member.unused_data
                self._member, self._is_begun = zlib.decompressobj(_GZIP_FRAME), False

    def end(self) -> None:
        """Raises: OutcomeUnknown, where the last member is not whole."""
        if self._is_begun:
            raise OutcomeUnknown("cut", "the gzip stream ends too early")


def decoder(codings: Sequence[str]) -> Plain | Gunzip:
    """What takes the codings of an answer off, by its `Content-Encoding` values. Raises: OutcomeUnknown."""
    named = [name for value in codings for name in (part.strip().lower() for part in value.split(",")) if name]
    match [name for name in named if name != "identity"]:
        case []:
            return Plain()
        case [name] if name in _GZIP:
            return Gunzip()
        case _:
            raise OutcomeUnknown("bad_encoding", "a content coding that was not asked for")

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
#: Bytes of gzip that may come for nothing, and for each byte of content beside. 64 KiB: 3,000 empty members; 8: a
#: member costs 20 bytes, and lines of three may be members of their own. Arbitrary, above any honest packer.
MAX_FRAMES: Final = 65_536
MOST_TAKEN: Final = 8
#: Bytes of a member looked at first, doubled from then on. 64: arbitrary; an empty member has 20.
_FIRST_STEP: Final = 64
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
        self._step = _FIRST_STEP
        self._taken = 0
        self._given = 0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What `data` adds, in pieces of bounded size. Raises: OutcomeUnknown, where it is no gzip or all frames."""
        view, at = memoryview(data), 0
        while at < len(view):
            self._is_begun = True
            step = view[at : at + self._step]
            try:
                piece = self._member.decompress(step, PIECE)
            except zlib.error as fault:
                raise OutcomeUnknown("bad_encoding", f"no gzip: {fault}") from fault
            # Where the piece was full, the rest; a member's trailer is not consumed before its last byte is out.
            left = len(self._member.unused_data if self._member.eof else self._member.unconsumed_tail)
            at += len(step) - left
            self._count(len(step) - left, len(piece))
            if piece:
                yield piece
            # zlib copies what follows a member: in short steps at its start, the copies stay below what was taken.
            self._step = min(2 * self._step, PIECE)
            if self._member.eof:
                self._member, self._is_begun, self._step = zlib.decompressobj(_GZIP_FRAME), False, _FIRST_STEP

    def _count(self, taken: int, given: int) -> None:
        """The cap of a result counts what comes out: what gives next to nothing would never reach it (S33)."""
        self._taken += taken
        self._given += given
        if self._taken > MAX_FRAMES + MOST_TAKEN * self._given:
            raise OutcomeUnknown("bad_encoding", "gzip that holds next to nothing: empty members or blocks")

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

"""The Merkle tree of RFC 9162 (section 2.1), SHA-256: one root over many leaves, and a short proof that one is in it.

Leaves are taken one by one: a tree of any size needs the memory of one hash a level.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

#: The root of a tree without leaves.
EMPTY_ROOT: Final = hashlib.sha256(b"").hexdigest()


@dataclass(slots=True)
class _Subtree:
    leaves: int
    digest: bytes
    holds_watched: bool


class Tree:
    """A tree that grows leaf by leaf. `watched`: the index of one leaf whose inclusion path is wanted."""

    def __init__(self, watched: int | None = None) -> None:
        self._watched = watched
        self._path: list[str] = []
        #: Perfect subtrees from the left, each larger than the next.
        self._peaks: list[_Subtree] = []
        self.size = 0

    def add(self, leaf: bytes) -> None:
        """Take the next leaf."""
        self._peaks.append(_Subtree(1, _leaf(leaf), self.size == self._watched))
        self.size += 1
        while len(self._peaks) > 1 and self._peaks[-1].leaves == self._peaks[-2].leaves:
            self._join()

    def finish(self) -> str:
        """The root, hex; no leaf is taken after it."""
        while len(self._peaks) > 1:
            self._join()
        return self._peaks[0].digest.hex() if self._peaks else EMPTY_ROOT

    @property
    def path(self) -> tuple[str, ...]:
        """The hashes, hex, that lead from the watched leaf to the root, from the leaf up; whole after `finish`."""
        return tuple(self._path)

    def _join(self) -> None:
        right, left = self._peaks.pop(), self._peaks.pop()
        if left.holds_watched or right.holds_watched:
            self._path.append((right if left.holds_watched else left).digest.hex())
        holds_watched = left.holds_watched or right.holds_watched
        self._peaks.append(_Subtree(left.leaves + right.leaves, _node(left.digest, right.digest), holds_watched))


def root_by_path(leaf: bytes, index: int, size: int, path: Sequence[str]) -> str | None:
    """The root that a leaf at `index` of `size` leaves has by its path (2.1.3.2); None where they do not fit together.

    Raises: ValueError, for a path that is not hex.
    """
    if not 0 <= index < size:
        return None
    at, last, digest = index, size - 1, _leaf(leaf)
    for step in path:
        if last == 0:
            return None
        sibling = bytes.fromhex(step)
        if at & 1 or at == last:
            digest = _node(sibling, digest)
            while not at & 1 and at:
                at, last = at >> 1, last >> 1
        else:
            digest = _node(digest, sibling)
        at, last = at >> 1, last >> 1
    return digest.hex() if last == 0 else None


def _leaf(data: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + data).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()

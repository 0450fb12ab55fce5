"""A short mark of the operation in every item id that the provider sees, and its taking off again on reading.

It is made of the operation's own id at the start and kept with it: whoever reads a result can tell by any one line
whose job it was. Bytes are stored without it, so that nobody but the provider ever meets it.
"""

from collections import deque
from typing import Final

#: Characters of a mark: the last ones of an operation id, which are random. 12: 48 bits, so that no other operation
#: bears it, and an id that the provider takes 64 characters of still has 51 of its own.
LENGTH: Final = 12
#: Characters that an id grows by.
ADDED: Final = LENGTH + 1
#: Stands before an id that came back without the mark; no id with a colon or a space was ever sent with one.
_STRANGER: Final = "unmarked: "


def of(operation_id: str) -> str:
    """The mark of an operation."""
    return operation_id[-LENGTH:]


def put_on(mark: str, item_id: str) -> str:
    """The id as the provider sees it."""
    return f"{mark}_{item_id}"


def is_on(mark: str, line: bytes) -> bool:
    """Whether a result line, or the beginning of one, bears the mark."""
    return _token(mark) in line


def of_a_stranger(item_id: str) -> str:
    """The id of an item that was never sent with the mark, so that it cannot be taken for the one that was."""
    return f"{_STRANGER}{item_id}"


def _token(mark: str) -> bytes:
    return f"{mark}_".encode()


class TakenOff:
    """A result's bytes on their way in, without the mark; `next_line` says of each line in turn whether it bore it."""

    def __init__(self, mark: str) -> None:
        self._token = _token(mark)
        self._held = b""
        self._is_on_here = False
        self._lines: deque[bool] = deque()

    def feed(self, chunk: bytes) -> bytes:
        """What can be passed on; the beginning of a mark at the end of `chunk` waits for the next one."""
        data = self._held + chunk
        most = min(len(self._token) - 1, len(data))
        held = next((n for n in range(most, 0, -1) if data.endswith(self._token[:n])), 0)
        self._held = data[len(data) - held :]
        return self._pass_on(data[: len(data) - held])

    def end(self) -> bytes:
        """What still waited."""
        held, self._held = self._held, b""
        return self._pass_on(held)

    def next_line(self) -> bool:
        """Whether the next line bore the mark; the one that no newline ended yet comes last."""
        return self._lines.popleft() if self._lines else self._is_on_here

    def _pass_on(self, data: bytes) -> bytes:
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._lines.append(self._is_on_here or self._token in part)
            self._is_on_here = False
        self._is_on_here = self._is_on_here or self._token in rest
        return data.replace(self._token, b"")

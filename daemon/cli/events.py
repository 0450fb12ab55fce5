"""Server-sent events, read from bytes as they come: whole events only, whatever pieces they came in.

As the HTML standard has them: lines end in LF, CR or CRLF, an empty line ends an event, a line that begins with a colon
is a comment (the daemon's heartbeat), and an event without data is none.
"""

import re
from typing import Any, Final, NamedTuple

from daemon.local_api import read_answer

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
#: Bytes of one line. 64 MiB: beyond any body of the API's; what sends more is not the daemon.
MAX_LINE: Final = 64 * 1024 * 1024


class Event(NamedTuple):
    """One event: what it is called, where to go on after it (None: it has no place), and its object."""

    kind: str
    id: str | None
    data: dict[str, Any]


class Garbled(Exception):
    """What came is no event of the API's."""


class Reader:
    """Takes bytes, gives the events that are complete by them."""

    def __init__(self) -> None:
        self._rest = b""
        self._kind = ""
        self._id: str | None = None
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[Event]:
        """The events that end in this piece. Raises: Garbled."""
        self._rest += piece
        events: list[Event] = []
        while (end := _LINE_END.search(self._rest)) is not None:
            if end[0] == b"\r" and end.end() == len(self._rest):
                break  # a LF may follow, and belongs to it
            line, self._rest = self._rest[: end.start()], self._rest[end.end() :]
            if line:
                self._line(line)
            elif (event := self._ended()) is not None:
                events.append(event)
        if len(self._rest) > MAX_LINE:
            raise Garbled("a line of an event is too long")
        return events

    def _line(self, line: bytes) -> None:
        try:
            name, _, value = line.decode("utf-8").partition(":")
        except UnicodeDecodeError as fault:
            raise Garbled("an event is not UTF-8") from fault
        value = value.removeprefix(" ")
        if name == "event":
            self._kind = value
        elif name == "id":
            self._id = value
        elif name == "data":
            self._data.append(value)

    def _ended(self) -> Event | None:
        kind, place, data = self._kind or "message", self._id, self._data
        self._kind, self._id, self._data = "", None, []
        if not data:
            return None
        try:
            told = read_answer("\n".join(data))
        except ValueError as fault:
            raise Garbled("an event's data is not JSON") from fault
        if not isinstance(told, dict):
            raise Garbled("an event's data is no object")
        return Event(kind, place, told)

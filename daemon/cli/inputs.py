"""What `submit` reads from files and from the pipe, and how its faults are told: by file and line."""

import re
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TextIO

from daemon.local_api import WrongUsage
from reconcile.errors import Unreadable
from reconcile.read_json import read_json

#: How the API points at an item: at the beginning of a fault, and where it names the first of two that bear one id.
_POINTER: Final = re.compile(r"^/items/([0-9]+)(/\S+)?(?=: )")
_FIRST: Final = re.compile(r"stands at /items/([0-9]+) already")
#: How it names the line of an item that is no JSON.
_NUMBERED: Final = re.compile(r"^/items/[0-9]+: line ([0-9]+) of the input(?=: )")
#: Seconds after which it is told that a pipe has given nothing yet. 1: arbitrary.
SILENT_SECONDS: Final = 1.0
#: Bytes that are read at once. 256 KiB: arbitrary; a few hundred items.
_PIECE: Final = 262_144


@dataclass(frozen=True, slots=True)
class Input:
    """A file of items, one JSON object a line; it is read while it is sent, and never held."""

    path: Path

    def open(self) -> IO[bytes]:
        """The file, from its beginning. Raises: WrongUsage."""
        with _readable(self.path):
            return self.path.open("rb")

    def size(self) -> int | None:
        """How many bytes it has; None where nobody knows before they are read."""
        return self.path.stat().st_size if self.path.is_file() else None

    def pieces(self, file: IO[bytes]) -> Iterator[bytes]:
        """Its bytes. Raises: WrongUsage."""
        while True:
            with _readable(self.path):
                piece = file.read(_PIECE)
            if not piece:
                return
            yield piece

    def told(self, fault: str) -> str:
        """A fault of the API's, with lines of the file instead of pointers into the body."""
        if (numbered := _NUMBERED.match(fault)) is not None:
            return f"{self.path}, line {numbered[1]}{fault[numbered.end() :]}"
        if not self.path.is_file():  # a pipe cannot be read again
            return fault
        told = _POINTER.sub(lambda m: f"{self.path}, line {self._line(m[1])}{', ' + m[2] if m[2] else ''}", fault)
        return _FIRST.sub(lambda m: f"stands on line {self._line(m[1])} already", told)

    def _line(self, index: str) -> int:
        """The line on which the item of that index stands: blank lines hold none."""
        left = int(index)
        with self.open() as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    if left == 0:
                        return number
                    left -= 1
        return int(index) + 1


def read_request(name: str) -> Any:
    """The JSON in a file, or on stdin where the name is `-`. Raises: WrongUsage."""
    if name != "-":
        return _json(read_file(Path(name)), name)
    hint = "pipe the provider's create body into it, or name a file by --request FILE"
    return _json(_read_stdin("the provider's create body", hint), "stdin")


def read_expected(name: str) -> Any:
    """The JSON in a file; stdin is the request's. Raises: WrongUsage."""
    return _json(read_file(Path(name)), name)


def read_given(name: str) -> bytes:
    """The JSON in a file, or on stdin where the name is `-`, as its bytes. Raises: WrongUsage."""
    data = (
        read_file(Path(name))
        if name != "-"
        else _read_stdin("the input", "pipe the input into it, as JSON, or name a file")
    )
    _json(data, "stdin" if name == "-" else name)
    return data


def _read_stdin(what: str, hint: str) -> bytes:
    with _interruptible():
        _tell_of_reading(what, hint)
        data = sys.stdin.buffer.read()
    if not data.strip():
        raise WrongUsage(f"stdin is empty: {hint}")
    return data


def _tell_of_reading(what: str, hint: str) -> None:
    """Whoever looks is told what is waited for, before it is: on a terminal at once, else once nothing has come."""
    if sys.stdin.isatty():
        told = f"reading {what} from this terminal, as JSON; Ctrl-D ends it"
    elif sys.stderr.isatty() and not _has_something(sys.stdin, SILENT_SECONDS):
        told = f"waiting for {what} on stdin: {hint}"
    else:
        return
    print(f"reconciled: {told}", file=sys.stderr, flush=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Signals end a read that waits: the event loop, which would take them, stands still meanwhile."""
    before: dict[signal.Signals, Any] = {}
    with suppress(ValueError):  # not in the main thread, which gets the signals
        before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_something(stream: TextIO, seconds: float) -> bool:
    """Whether something can be read there by then, or its end; of what is no file, nobody knows before."""
    with suppress(OSError, ValueError):
        return bool(select.select([stream], [], [], seconds)[0])
    return True


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises: WrongUsage, in plain words."""
    with _readable(path):
        return path.read_bytes()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Faults of a file in plain words. Raises: WrongUsage."""
    try:
        yield
    except FileNotFoundError as fault:
        raise WrongUsage(f"{path}: there is no such file") from fault
    except IsADirectoryError as fault:
        raise WrongUsage(f"{path}: this is a directory, not a file") from fault
    except OSError as fault:
        raise WrongUsage(f"{path}: cannot be read: {fault.strerror or fault}") from fault


def _json(data: bytes, where: str) -> Any:
    try:
        return read_json(data)
    except Unreadable as fault:
        raise WrongUsage(f"{where}: {fault.reason}") from fault

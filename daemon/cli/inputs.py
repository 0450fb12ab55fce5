"""What `submit` reads from files and from the pipe, and how its faults are told: by file and line."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from daemon.local_api import WrongUsage
from reconcile.errors import Unreadable
from reconcile.read_json import read_json

#: How the API points at an item: at the beginning of a fault, and where it names the first of two that bear one id.
_POINTER: Final = re.compile(r"^/items/([0-9]+)(/\S+)?(?=: )")
_FIRST: Final = re.compile(r"stands at /items/([0-9]+) already")


@dataclass(frozen=True, slots=True)
class Lines:
    """The items of a file, each with the number of its line."""

    path: Path
    items: Sequence[Any]
    numbers: Sequence[int]

    def told(self, fault: str) -> str:
        """A fault of the API's, with lines of the file instead of pointers into the body."""
        told = _POINTER.sub(lambda m: f"{self.path}, line {self._line(m[1])}{', ' + m[2] if m[2] else ''}", fault)
        return _FIRST.sub(lambda m: f"stands on line {self._line(m[1])} already", told)

    def _line(self, index: str) -> int:
        return self.numbers[int(index)] if int(index) < len(self.numbers) else int(index) + 1


def read_request(name: str) -> Any:
    """The JSON in a file, or on stdin where the name is `-`. Raises: WrongUsage."""
    if name != "-":
        return _json(read_file(Path(name)), name)
    hint = "pipe the provider's create body into it, or name a file by --request FILE"
    return _json(_read_stdin("the request", hint), "stdin")


def read_expected(name: str) -> Any:
    """The JSON in a file; stdin is the request's. Raises: WrongUsage."""
    return _json(read_file(Path(name)), name)


def read_given(name: str) -> bytes:
    """The JSON in a file, or on stdin where the name is `-`, as its bytes. Raises: WrongUsage."""
    data = read_file(Path(name)) if name != "-" else _read_stdin("the input", "pipe the input into it, as JSON")
    _json(data, "stdin" if name == "-" else name)
    return data


def _read_stdin(what: str, hint: str) -> bytes:
    if sys.stdin.isatty():
        print(f"reconciled: reading {what} from this terminal; Ctrl-D ends it", file=sys.stderr)
    data = sys.stdin.buffer.read()
    if not data.strip():
        raise WrongUsage(f"stdin is empty: {hint}")
    return data


def read_lines(path: Path) -> Lines:
    """Items, one JSON value a line; blank lines count as lines only. Raises: WrongUsage."""
    items, numbers = [], []
    for number, line in enumerate(read_file(path).split(b"\n"), start=1):
        if line.strip():
            items.append(_json(line, f"{path}, line {number}"))
            numbers.append(number)
    return Lines(path, items, numbers)


def read_file(path: Path) -> bytes:
    """The bytes of a file. Raises: WrongUsage, in plain words."""
    try:
        return path.read_bytes()
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

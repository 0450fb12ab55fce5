"""How an answer is laid out: facts, a grid, a story. As text each is what a pipe gets; a terminal draws it anew.

What a pipe gets is held on to by scripts: a row a line, no headings, nothing wrapped and nothing cut but the effect of
a decision. Every text passes `clean` on its way out, here and in `daemon.cli.terminal` alike.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rich.cells import cell_len

#: As `reconcile.read_json` refuses in ids: controls, half surrogate pairs, separators, marks that reorder text.
_CONTROLS: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
#: The name of a fact whose value is a long text that belongs to the fact above it.
UNDER: Final = " "
#: Columns before a fact's value, and of a whole line where a long text is wrapped. 100: arbitrary.
INDENT: Final = 19
_WIDTH: Final = 100
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
#: A fact: its name, and its value; without a value it has no line.
Fact = tuple[str, Any]


def clean(value: object) -> str:
    """A stranger's text on one line."""
    return _CONTROLS.sub("�", str(value))


def text(lines: str) -> str:
    """A stranger's lines, each cleaned."""
    return "\n".join(map(clean, lines.split("\n")))


def count(number: int, noun: str) -> str:
    """`1 item`, `2 items`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(amount: float) -> str:
    """An amount of bytes, such as `1.5 MiB`."""
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def padded(cell: str, width: int) -> str:
    """`cell` with blanks up to so many columns of a terminal: a wide character takes two, a combining one none."""
    return cell + " " * (width - cell_len(cell))


@dataclass(frozen=True, slots=True)
class Facts:
    """A fact a line: its name and its value."""

    facts: Sequence[Fact]

    def __str__(self) -> str:
        return "\n".join(line for name, value in self.facts if value for line in self._lines(name, value))

    @staticmethod
    def _lines(name: str, value: object) -> Sequence[str]:
        told = clean(value)
        parts = textwrap.wrap(told, _WIDTH - INDENT) if name == UNDER else [told]
        return [f"{name:{INDENT - 1}} {part}" for part in parts]


class Column(NamedTuple):
    """A column of a grid; its heading is for terminals only."""

    heading: str
    #: Never wrapped: ids, which are copied.
    is_whole: bool = False
    #: Holds our status words, which a terminal colours.
    is_state: bool = False
    #: Left out where a terminal has no room for it: `show` tells it too.
    is_extra: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows in columns that are as wide as their widest cell."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[object]]
    #: What is said where there is no row.
    nothing: str

    def __str__(self) -> str:
        cells = self.cells()
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        lines = ("  ".join(map(padded, row, widths)).rstrip() for row in cells)
        return "\n".join(lines) if cells else self.nothing

    def cells(self) -> list[list[str]]:
        """Every cell, cleaned."""
        return [[clean(cell) for cell in row] for row in self.rows]


class Told(NamedTuple):
    """One row of a history as it is told."""

    at: str
    actor: str
    move: str
    reason: str

    def __str__(self) -> str:
        at, actor, move, reason = map(clean, self)
        return f"{at}  {padded(actor, 18)}  {padded(move, 26)}  {reason}"


@dataclass(frozen=True, slots=True)
class Story:
    """Rows of a history, oldest first."""

    rows: Sequence[Told]

    def __str__(self) -> str:
        return "\n".join(map(str, self.rows))


@dataclass(frozen=True, slots=True)
class Sheets:
    """Several shapes with an empty line between them."""

    parts: Sequence["Shape"]
    #: What is said where there is none.
    nothing: str = ""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.parts)) or self.nothing


@dataclass(frozen=True, slots=True)
class Drawn:
    """Lines for a pipe, which a terminal gets as other shapes."""

    lines: Sequence[str]
    parts: Sequence["Shape"]

    def __str__(self) -> str:
        return "\n".join(map(clean, self.lines))


Shape = Facts | Grid | Story | Sheets | Drawn | str

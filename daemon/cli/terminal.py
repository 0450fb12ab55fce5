"""Drawing on a terminal: columns that fit it, wrapped texts, colours. A pipe gets the shapes' own text instead.

Colours go to a terminal only, whatever FORCE_COLOR says: a file or a pipe holds no escape of ours. NO_COLOR and a dumb
terminal get the same layout without. Nothing is drawn that has not passed `clean`, and nothing of it is read as markup.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TextIO

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from daemon.shapes import UNDER, Column, Drawn, Facts, Grid, Shape, Sheets, Story, Told, clean, text

#: Terminals that understand no escapes.
_DUMB: Final = frozenset({"dumb", "unknown"})
#: Fewest columns that a text which may wrap is left with before rows are stacked. 8: arbitrary, a word.
_LEAST: Final = 8
#: From so many columns on a row of a history stands on one line. 110: arbitrary; below, reasons would be ribbons.
_ONE_LINE: Final = 110
#: From so many on its time stands before it. 60: a time point, a move and an actor.
_ONE_HEAD: Final = 60
_GAP: Final = 2
#: The first word of a status, an outcome or a move, and how it is drawn.
_STYLES: Final = {
    "done": "green",
    "succeeded": "green",
    "completed_with_errors": "yellow",
    "working": "cyan",
    "observing": "cyan",
    "blocked": "bold yellow",
    "failed": "red",
    "cancelled": "magenta",
    "timed_out": "red",
    "abandoned": "red",
    "missing": "red",
    "expired": "yellow",
    "paused": "yellow",
}
#: Facts whose value is a status word, and those that are drawn by their name.
_STATUS_FACTS: Final = frozenset({"status", "outcome"})
_BY_NAME: Final = {"error": "red", "waits for": "bold yellow", "you may decide": "bold", "operation": "bold"}
#: `status (state)`, which is drawn by its state.
_BRACKETED: Final = re.compile(r"[a-z_]+ \(([a-z_]+)\)$")
#: A time point of the API's, whose fractions and `T` a person can do without.
_MOMENT: Final = re.compile(r"\b(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at it."""
    return stream is not None and not stream.closed and stream.isatty()


def can_move(stream: TextIO | None) -> bool:
    """Whether lines on it can be drawn over."""
    return is_terminal(stream) and os.environ.get("TERM", "").strip().lower() not in _DUMB


def console(stream: TextIO) -> Console:
    """What draws on a terminal."""
    has_colour = can_move(stream) and not os.environ.get("NO_COLOR")
    return Console(
        file=stream,
        force_terminal=can_move(stream),
        force_interactive=can_move(stream),
        color_system="auto" if has_colour else None,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def show(shape: Shape) -> None:
    """An answer on stdout, as whoever is there reads it."""
    if is_terminal(sys.stdout):
        draw(console(sys.stdout), shape)
    else:
        print(str(shape), flush=True)


def draw(on: Console, shape: Shape) -> None:
    """An answer on a terminal, with no blanks at the ends of lines: a window that is made narrower would wrap them."""
    for one in drawn(shape, on.width):
        put(on, one)


def put(on: Console, one: RenderableType) -> None:
    """One renderable, in one piece."""
    lines = on.render_lines(one, pad=False)
    on.print(Segments([part for line in lines for part in (*_trimmed(line), Segment.line())]), end="")


def _trimmed(line: Sequence[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = kept[-1]._replace(text=kept[-1].text.rstrip())
    return kept


def drawn(shape: Shape, width: int) -> Iterator[RenderableType]:
    """The shape as rich draws it, in so many columns."""
    match shape:
        case Facts():
            yield _facts(shape, width)
        case Grid():
            yield from _grid(shape, width)
        case Story():
            yield from (told(row, width) for row in shape.rows)
        case Sheets(parts, nothing):
            yield from _apart(parts, width) if parts else (nothing,)
        case Drawn(_, parts):
            yield from _apart(parts, width)
        case str():
            yield Text(text(shape), overflow="fold")


def _apart(parts: Sequence[Shape], width: int) -> Iterator[RenderableType]:
    for number, part in enumerate(parts):
        if number:
            yield ""
        yield from drawn(part, width)


def short(told: str) -> str:
    """Time points as a person reads them."""
    return _MOMENT.sub(r"\1 \2Z", told)


def style_of(told: str) -> str:
    """How a status, an outcome or a move is drawn: by the state in brackets, else by the first word."""
    inside = _BRACKETED.match(told)
    if inside is not None and inside[1] in _STYLES:
        return _STYLES[inside[1]]
    return _STYLES.get(told.removeprefix("→ ").partition(" ")[0], "")


# ---- facts ----


def _facts(shape: Facts, width: int) -> RenderableType:
    rows = [(name, short(clean(value))) for name, value in shape.facts if value]
    names = max((len(name) for name, _ in rows), default=0)
    is_narrow = names + _GAP + max(map(_longest_word, (value for _, value in rows)), default=0) > width
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    if not is_narrow:
        grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for name, value in rows:
        shown = Text(value, style_of(value) if name in _STATUS_FACTS else _BY_NAME.get(name, ""), overflow="fold")
        if not is_narrow:
            grid.add_row(name, shown)
            continue
        if name.strip():
            grid.add_row(Text(name, "dim"))
        grid.add_row(Padding(shown, (0, 0, 0, 2 if name.strip() or name == UNDER else 0)))
    return grid


def _longest_word(value: str) -> int:
    return max(map(cell_len, value.split()), default=0)


# ---- grids ----


def _grid(shape: Grid, width: int) -> Iterable[RenderableType]:
    if not shape.rows:
        return [shape.nothing]
    cells = [[short(cell) for cell in row] for row in shape.cells()]
    texts = [[_cell(shape, row, n) for n in range(len(row))] for row in cells]
    kept = [n for n in range(len(shape.columns)) if any(row[n] for row in cells)]
    widest = {n: max(cell_len(shape.columns[n].heading), *(row[n].cell_len for row in texts)) for n in kept}
    least = {n: widest[n] if _is_whole(shape.columns[n]) else min(_LEAST, widest[n]) for n in kept}
    wanted = [n for n in kept if not shape.columns[n].is_extra]
    for n in kept:  # what can be left out, as far as there is room for it unwrapped
        if shape.columns[n].is_extra and sum(widest[m] + _GAP for m in (*wanted, n)) - _GAP <= width:
            wanted = sorted((*wanted, n))
    if sum(least[n] + _GAP for n in wanted) - _GAP > width:
        return _stacked(shape, texts, kept)
    table = Table(box=None, show_edge=False, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold", expand=False)
    for n in wanted:
        column = shape.columns[n]
        table.add_column(Text(column.heading), no_wrap=_is_whole(column), overflow="fold", min_width=least[n])
    for row in texts:
        table.add_row(*(row[n] for n in wanted))
    return [table]


def _is_whole(column: Column) -> bool:
    return column.is_whole or column.is_state


def _stacked(shape: Grid, rows: Sequence[Sequence[Text]], kept: Sequence[int]) -> Iterator[RenderableType]:
    """Rows that do not fit beside one another: the first cell on a line of its own, the others under it."""
    names = max((len(shape.columns[n].heading) for n in kept[1:]), default=0)
    for row in rows:
        yield Text(row[kept[0]].plain, "bold", overflow="fold")
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        grid.add_column(no_wrap=True, style="dim", min_width=names)
        grid.add_column(overflow="fold")
        for n in kept[1:]:
            if row[n].plain:
                grid.add_row(shape.columns[n].heading, row[n])
        yield Padding(grid, (0, 0, 0, 2))


def _cell(shape: Grid, row: Sequence[str], n: int) -> Text:
    if not shape.columns[n].is_state:
        return Text(row[n], overflow="fold")
    return Text(row[n], style_of(row[n]), overflow="fold")


# ---- histories ----


def told(row: Told, width: int) -> RenderableType:
    """One row of a history: on one line where there is room, else its reason under it."""
    at, actor, move, reason = (short(clean(part)) for part in row)
    if width < _ONE_LINE:
        parts = [(at, "dim"), (move, style_of(move)), (f"({actor})", "dim")]
        if width < _ONE_HEAD:
            parts = [*parts[1:], ("\n  ", ""), parts[0]]
        head = Text("  ").join(Text(*part) for part in parts)
        return Group(head, Padding(Text(reason, overflow="fold"), (0, 0, 0, 4)))
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(min_width=18, no_wrap=True, style="dim")
    grid.add_column(min_width=26, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(at, actor, Text(move, style_of(move)), Text(reason, overflow="fold"))
    return grid


def told_of(operation_id: str, row: Told, width: int) -> RenderableType:
    """A row of one among many histories: whose it is, before it."""
    return Group(Text(clean(operation_id), "bold", overflow="fold"), Padding(told(row, width - 2), (0, 0, 0, 2)))

"""What one sees while one waits, on a terminal: rows that scroll by, and under them how things stand, redrawn in place.

A display hides the cursor while it stands; leaving the block, however it is left, takes the display away and brings the
cursor back. What it shows of others' texts is cleaned, as everywhere.
"""

import codecs
from types import TracebackType
from typing import Any, Final, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from daemon import words
from daemon.cli import terminal
from daemon.cli.events import Event
from daemon.runtime import SystemClock
from daemon.shapes import clean
from reconcile.states import TERMINAL

#: Redrawn so often a second: a second's hand moves, and an idle terminal costs nothing to speak of.
_A_SECOND: Final = 4
#: Columns of the bar at most. Arbitrary.
_BAR: Final = 40
#: Operations that are shown at once; the others are counted. Arbitrary, half of a small terminal.
_SHOWN: Final = 10
#: What a worker does next, in words.
_ACTIONS: Final = {
    "submit": "sends the work",
    "reconcile_create": "looks for the job",
    "poll": "reads the job",
    "send_input": "sends the input",
    "send_cancel": "sends the cancel",
    "collect": "fetches the result",
}


class _Display:
    """A part of the terminal that is redrawn."""

    #: What Ctrl-C does, told as long as one watches.
    hint: str = "Ctrl-C stops the watching, not the work"

    def __init__(self, stream: TextIO) -> None:
        self.console: Console = terminal.console(stream)
        self.clock = SystemClock()
        self._away: str | None = None
        self._began = self.clock.monotonic()
        self._spinner = Spinner("dots" if _speaks_utf8(stream) else "line", style="cyan")
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._live = Live(
            console=self.console,
            get_renderable=self._drawn,
            refresh_per_second=_A_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.__exit__(kind, fault, at)

    def away(self, what: str) -> None:
        """The daemon cannot be asked just now; told until it answers."""
        self._away = what

    def back(self) -> None:
        """It has answered."""
        self._away = None

    def _drawn(self) -> RenderableType:
        lines = self.lines(self.console.width)
        if self._away is not None:
            lines.append(Text(self._away, "yellow", overflow="fold"))
        return Group(*lines, Text(self.hint, "dim", overflow="fold"))

    def lines(self, width: int) -> list[RenderableType]:
        """How things stand now."""
        raise NotImplementedError

    def spinning(self, told: Text, right: str) -> RenderableType:
        """A line that shows that one still watches, with something at its right end."""
        grid = Table.grid(padding=(0, 1, 0, 0), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1, overflow="fold")
        grid.add_column(no_wrap=True, justify="right", style="dim")
        grid.add_row(self._spinner, told, right)
        return grid


class One(_Display):
    """One operation: its rows as they come, its state, what comes next and when, and how far it is."""

    def __init__(self, stream: TextIO, *, body: dict[str, Any] | None = None, tells_rows: bool = True) -> None:
        super().__init__(stream)
        self._tells_rows = tells_rows
        self._body: dict[str, Any] | None = None
        self._since: float | None = None
        if body is not None:
            self._heard(body)

    def event(self, event: Event) -> None:
        """A row scrolls by; a body is what is shown from now on."""
        self.back()
        if event.kind == "operation":
            self._heard(event.data)
            self.lines(self.console.width)  # one that cannot be drawn fails here, and not in the thread that draws
        elif event.kind == "history" and self._tells_rows:
            terminal.put(self.console, terminal.told(words.history_row(event.data), self.console.width))
        elif event.kind == "gap":
            self.console.print(Text(words.gap(event.data), "yellow", overflow="fold"))

    def is_stale(self) -> bool:
        """Whether what was to be done next is past: then there is something newer to ask for."""
        at = None if self._body is None else self._body["next_action_at"]
        seconds = words.seconds_until(at, self.clock.now())
        return seconds is not None and seconds < 0

    def _heard(self, body: dict[str, Any]) -> None:
        self._body = body
        # Whole seconds, cut off: the earliest beginning that they tell is nearest to the true one.
        since = self.clock.monotonic() - body["elapsed_seconds"]
        self._since = since if self._since is None else min(since, self._since)

    def lines(self, width: int) -> list[RenderableType]:
        """State, progress, and what comes next."""
        body = self._body
        if body is None or self._since is None:
            return [self.spinning(Text("asking the daemon"), "")]
        state = f"{body['status']} ({body['state']})" if body["status"] != body["state"] else str(body["status"])
        head = Text.assemble(
            (clean(state), terminal.style_of(body["status"])), f" at {clean(body['provider'])}", overflow="fold"
        )
        lines: list[RenderableType] = [
            Text(clean(body["operation_id"]), "bold", overflow="fold"),
            self.spinning(head, words.span(self.clock.monotonic() - self._since)),
        ]
        if (bar := progress(body["progress"], width)) is not None:
            lines.append(bar)
        lines += [Text(clean(told), overflow="fold") for told in self._next(body)]
        return lines

    def _next(self, body: dict[str, Any]) -> list[str]:
        told = []
        if body["next_action"]:
            action = _ACTIONS.get(body["next_action"], body["next_action"])
            told.append(f"next: {action} {self._when(body['next_action_at'])}")
        name, awaited = _AWAITED.get(body["state"], ("result", "the job's end"))
        if not body["done"] and (at := body["deadlines"].get(name)):
            told.append(f"waits for {awaited} until {words.left(at, self.clock.now())}")
        return [terminal.short(one) for one in told]

    def _when(self, at: str | None) -> str:
        seconds = words.seconds_until(at, self.clock.now())
        if seconds is None:
            return ""
        return f"in {words.span(seconds)}" if seconds >= 1 else "now"


#: The deadline that counts in a state, and what is waited for; elsewhere it is the job's end.
_AWAITED: Final = {
    "create_pending": ("create", "the create's answer"),
    "create_unknown": ("create", "the job to be found"),
    "cancel_requested": ("cancel", "the cancel's confirmation"),
    "cancelling": ("cancel", "the cancel's confirmation"),
    "blocked": ("input", "input"),
}


class Many(_Display):
    """Several operations, the ones last heard of first."""

    def __init__(self, stream: TextIO, *, keeps_ended: bool = False) -> None:
        super().__init__(stream)
        self._keeps_ended = keeps_ended
        self._known: dict[str, dict[str, str]] = {}

    def event(self, event: Event) -> None:
        """A row scrolls by, and moves its operation; a body says more of one."""
        self.back()
        if event.kind == "operation":
            body = event.data
            self._heard(body["operation_id"], body["state"], provider=body["provider"], far=words.counted(body))
        elif event.kind == "history":
            row = event.data
            told = words.history_row(row)
            terminal.put(self.console, terminal.told_of(row["operation_id"], told, self.console.width))
            if row["to"] is not None:
                self._heard(row["operation_id"], row["to"])
        elif event.kind == "gap":
            self.console.print(Text(words.gap(event.data), "yellow", overflow="fold"))
        self.lines(self.console.width)  # as for one: what cannot be drawn fails here

    def _heard(self, operation_id: str, state: str, **more: str) -> None:
        known = {**self._known.pop(operation_id, {"provider": "", "far": ""}), **more, "state": state}
        if state not in TERMINAL or self._keeps_ended:
            self._known[operation_id] = known

    def lines(self, width: int) -> list[RenderableType]:
        """How many stand where, and the newest of them."""
        shown = list(reversed(self._known.items()))[: min(_SHOWN, max(1, self.console.height - 6))]
        states: dict[str, int] = {}
        for known in self._known.values():
            states[known["state"]] = states.get(known["state"], 0) + 1
        told = ", ".join(f"{n} {clean(state)}" for state, n in sorted(states.items())) or "nothing is open"
        lines: list[RenderableType] = [
            self.spinning(Text(told, overflow="fold"), words.span(self.clock.monotonic() - self._began))
        ]
        grid = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(4):
            grid.add_column(overflow="fold")
        for name, known in shown:
            state = Text(clean(known["state"]), terminal.style_of(known["state"]))
            if width < _ROOM:
                lines.append(Text.assemble((clean(name), "bold"), "\n  ", state, f"  {clean(known['far'])}"))
            else:
                grid.add_row(clean(name), Text(clean(known["provider"]), "dim"), state, clean(known["far"]))
        if width >= _ROOM and shown:
            lines.append(grid)
        if len(self._known) > len(shown):
            lines.append(Text(f"and {len(self._known) - len(shown)} more: reconciled list --open", "dim"))
        return lines


#: Columns from which on an operation has one line here. 80: an id takes 35 of them.
_ROOM: Final = 80


def progress(told: dict[str, Any] | None, width: int) -> RenderableType | None:
    """How far a job is as its provider tells it; None where it tells nothing."""
    if not told or not (said := words.progress_of(told)):
        return None
    percent, completed, total = told.get("percent"), told.get("completed"), told.get("total")
    if total and completed is not None:
        share = completed / total
    elif percent is not None:
        share = percent / 100
    else:
        return Text(clean(said), overflow="fold")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    bar = ProgressBar(
        total=1.0,
        completed=min(1.0, max(0.0, share)),
        width=min(_BAR, max(8, width // 3)),
        style="bright_black",
        complete_style="cyan",
        finished_style="green",
    )
    grid.add_row(bar, clean(said))
    return grid


def _speaks_utf8(stream: TextIO) -> bool:
    try:
        return codecs.lookup(stream.encoding or "ascii").name == "utf-8"
    except LookupError:
        return False

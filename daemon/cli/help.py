"""How `--help` teaches: commands by what one wants, an example each, exit statuses; and how wrong usage is told."""

import argparse
import difflib
import re
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

#: What one wants, and the commands for it in the order in which one meets them. A command that stands in no group is
#: listed behind them all.
GROUPS: Final = (
    ("run it", ("demo", "serve", "check", "simulate")),
    ("start work", ("submit", "adopt")),
    ("look", ("list", "show", "watch", "wait", "history", "items", "result", "status")),
    ("act", ("inbox", "decide", "cancel", "input", "claim")),
    ("keep the record", ("audit", "db")),
)
#: Columns that a help is wrapped at, where the terminal is not narrower. 100: arbitrary.
_WIDEST: Final = 100
#: And never narrower than this, whatever a terminal says of itself. 20: arbitrary.
_NARROWEST: Final = 20
#: How `argparse` tells a command that there is not, and one below `audit` or `db`.
_UNKNOWN: Final = re.compile(r"argument (?:COMMAND|ACTION): invalid choice: '([^']*)'")


class Parser(argparse.ArgumentParser):
    """A parser whose help ends in examples and exit statuses.

    Options are never abbreviated: a new one must not change what an old script means.
    """

    def __init__(self, *more: Any, examples: Sequence[str] = (), statuses: str | None = None, **named: Any) -> None:
        super().__init__(*more, **{"allow_abbrev": False, **named})
        self.examples, self.statuses = examples, statuses
        self.commands: Commands | None = None
        #: The option that whoever gives a text without any most likely means.
        self.meant: str | None = None

    def format_help(self) -> str:
        """The help, which a narrow terminal wraps."""
        width = max(_NARROWEST, min(_WIDEST, shutil.get_terminal_size().columns) - 2)
        parts = [super().format_help().rstrip("\n")]
        if self.commands is not None:
            parts[0] = parts[0].replace("positional arguments:\n  COMMAND\n", "").replace("\n\n\n", "\n\n")
            parts.insert(1, self.commands.listing())
        if self.examples:
            parts.append("\n".join([_heading("example", len(self.examples)), *(f"  {one}" for one in self.examples)]))
        if self.statuses is not None:
            told = textwrap.fill(self.statuses, width, initial_indent="  ", subsequent_indent="  ")
            parts.append(f"exit status:\n{told}")
        return "\n\n".join(parts) + "\n"

    def error(self, message: str) -> NoReturn:
        """Wrong usage: what is wrong, and what to do next."""
        if (found := _UNKNOWN.match(message)) is not None:
            near = difflib.get_close_matches(found[1], self._below()[1], n=2)
            meant = f"; did you mean {' or '.join(near)}?" if near else ""
            message = f"there is no command {found[1]!r}{meant}"
        self.exit(2, f"{self.format_usage()}{self.prog}: {message}\nTry: {self.prog} --help\n")

    def left_over(self, arguments: argparse.Namespace, texts: Sequence[str]) -> NoReturn:
        """What the command of these arguments takes none of, told with that command's own usage."""
        dest, below = self._below()
        if (chosen := below.get(getattr(arguments, dest, None) or "")) is not None:
            chosen.left_over(arguments, texts)
        meant = ""
        if self.meant is not None and len(texts) == 1 and not texts[0].startswith("-"):
            meant = f"; did you mean {self.meant} {texts[0]}?"
        self.error(f"unrecognized arguments: {' '.join(texts)}{meant}")

    def _below(self) -> tuple[str, Mapping[str, "Parser"]]:
        """The parsers of the commands below this one, by their names, and where the chosen name stands."""
        for action in self._actions:
            if isinstance(action.choices, Mapping):
                return action.dest, action.choices
        return "", {}


def _heading(noun: str, number: int) -> str:
    return f"{noun}:" if number == 1 else f"{noun}s:"


class Commands:
    """Where commands are added, and how they are listed: by what one wants instead of all in a row."""

    def __init__(self, parser: Parser) -> None:
        self._actions = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
        self.summaries: dict[str, str] = {}
        parser.commands = self

    def add_parser(self, name: str, *, help: str, **named: Any) -> Any:  # noqa: A002 - as argparse calls it
        """As argparse's own; `help` is the line of the listing."""
        self.summaries[name] = help
        return self._actions.add_parser(name, **named)

    def listing(self) -> str:
        """Each command on a line, in its group."""
        grouped = {name for _, names in GROUPS for name in names}
        rest = tuple(name for name in self.summaries if name not in grouped)
        wide = max(map(len, self.summaries))
        blocks = []
        for title, names in (*GROUPS, ("more", rest)):
            lines = [f"  {name:{wide}}  {self.summaries[name]}" for name in names if name in self.summaries]
            blocks += ["\n".join([f"{title}:", *lines])] if lines else []
        return "\n\n".join(blocks)

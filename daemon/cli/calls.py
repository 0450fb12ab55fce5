"""How a command is made: its parser, its call of the local API, the one way to print an answer and to tell a fault."""

import argparse
import asyncio
import getpass
import json
import math
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

from daemon import local_api
from daemon.cli import exits, terminal
from daemon.local_api import LocalApi, Unreachable
from daemon.next_steps import as_commands
from daemon.shapes import Shape, clean
from reconcile.given import SPAN_EXAMPLES, span_ms

#: Most that one page of the API holds.
_PAGE: Final = 500
#: How the API points at a query parameter, and how it says by which to ask instead.
_PARAMETER: Final = re.compile(r"(^|; )/(?=[a-z]+: )([a-z]+)")
_ASKED_BY: Final = re.compile(r"(?<=ask for it by )([a-z]+)=(\w+)")
#: How the help of each command that asks the daemon ends.
_UNASKED: Final = (
    "69 no daemon to ask, or one that cannot answer now, 77 the token is not the daemon's, cannot be read, or lacks the"
    " right."
)
#: Exit statuses of whatever follows an operation, for its help.
ENDS: Final = (
    "0 succeeded, 1 failed, cancelled, timed out or given up, 3 not ended yet, 4 needs a person, 5 completed with"
    f" errors, 2 wrong usage, or refused for what was asked, {_UNASKED}"
)
#: Exit statuses of the other commands that ask the daemon.
ASKED: Final = f"0 done, 2 wrong usage, or refused for what was asked, {_UNASKED}"
#: Exit statuses of a claim.
CLAIMED: Final = (
    "0 claimed, 1 claimed before by this consumer, 3 not done yet, 2 wrong usage, or refused for what was asked,"
    f" {_UNASKED}"
)

Command = Callable[[LocalApi, argparse.Namespace], Awaitable[int]]


def add(
    commands: Any,
    name: str,
    command: Command,
    summary: str,
    epilog: str | None = None,
    *,
    examples: Sequence[str],
    statuses: str = ASKED,
) -> Any:
    """The parser of a new command that talks to the daemon."""
    about = f"{summary[:1].upper()}{summary[1:]}."
    parser = commands.add_parser(
        name, help=summary, description=about, epilog=epilog, examples=examples, statuses=statuses
    )
    local_api.add_arguments(parser)
    parser.set_defaults(run=lambda arguments: asyncio.run(_run(command, arguments)))
    return parser


def seconds(text: str) -> int:
    """A span such as `10m`, for argparse; rounded up, since the API waits for whole seconds."""
    span = span_ms(text)
    if span is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as {SPAN_EXAMPLES}")
    return math.ceil(span / 1000)


def add_label(parser: Any, told: str) -> None:
    """`--label K=V`."""
    parser.add_argument("--label", action="append", type=_label, default=[], metavar="K=V", help=told)


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE, such as team=research")
    return name, value


def labels(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """What `--label` was given. Raises: WrongUsage, where one of them was given two values."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise local_api.WrongUsage(f"--label {name}: given twice, as {found[name]!r} and as {value!r}")
    return found


async def _run(command: Command, arguments: argparse.Namespace) -> int:
    with suppress(RuntimeError, ValueError):  # not in the main thread, which gets the signals
        task = asyncio.current_task()
        if task is not None:  # so that SIGTERM leaves a terminal as it was, as Ctrl-C does
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with local_api.connect(local_api.find(arguments)) as api:
            return await _understood(command, api, arguments)
    except local_api.WrongUsage as fault:
        return _fault(arguments, exits.USAGE, "Wrong usage", str(fault))
    except local_api.Refused as fault:
        return refused(arguments, fault, str(fault))
    except local_api.Unreachable as fault:
        status = exits.NOT_ALLOWED if isinstance(fault, local_api.NotPermitted) else exits.UNAVAILABLE
        return _fault(arguments, status, "The daemon cannot be asked", str(fault))
    except KeyError as fault:  # JSON, but not the body that was asked for
        what = f"the answer has no {fault}; is it the daemon, and of this version?"
        return _fault(arguments, exits.UNAVAILABLE, "The daemon cannot be asked", what)


async def _understood(command: Command, api: LocalApi, arguments: argparse.Namespace) -> int:
    """Run it; what breaks on an answer that was read is told as such, with its type: it may be a bug of ours too.

    A traceback would end with 1, which says of an operation that it failed.
    """
    try:
        return await command(api, arguments)
    except KeyError:
        raise
    except local_api.MISREAD as fault:
        if not api.has_answered:
            raise
        what = f"the answer is not what this version understands ({type(fault).__name__})"
        raise Unreachable(f"{what}; is it the daemon, and of this version?") from fault


def _fault(arguments: argparse.Namespace, status: int, title: str, what: str) -> int:
    """Tell a fault of ours; a script that asked for JSON gets a problem document of the API's shape."""
    if arguments.json:
        print(json.dumps({"type": "about:blank", "title": title, "detail": clean(what)}), flush=True)
    return told(status, what)


def leave_in_order() -> None:
    """From now on SIGTERM unwinds the command as Ctrl-C does: no half of a file stays, and a terminal is as it was."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def refused(arguments: argparse.Namespace, fault: local_api.Refused, what: str) -> int:
    """Tell a refusal; a script that asked for JSON gets the problem document too."""
    if arguments.json:
        print(json.dumps(fault.problem), flush=True)
    return told(exits.of_refusal(fault.status), as_commands(what))


def by_options(fault: local_api.Refused) -> str:
    """A refused filter by the option that gave it, not by the parameter of the API."""
    told = _PARAMETER.sub(r"\1--\2", str(fault))
    return _ASKED_BY.sub(r"--\1 \2", told)


def told(status: int, what: str) -> int:
    """One sentence on stderr, and the exit status to end with."""
    print(f"reconciled: {clean(what)}", file=sys.stderr)
    return status


def login_name(option: str) -> str:
    """Who is logged in here, where `option` does not say. Raises: WrongUsage."""
    try:
        return getpass.getuser()
    except (OSError, KeyError) as fault:
        raise local_api.WrongUsage(f"nobody knows who you are here: say so by {option} NAME") from fault


async def pages(api: LocalApi, path: str, noun: str, *, most: int | None = None) -> dict[str, Any]:
    """A list of the API's from its first page on, up to `most` rows; `next_cursor` says whether there are more."""
    rows: list[Any] = []
    cursor: str | None = ""
    while cursor is not None and (most is None or len(rows) < most):
        limit = _PAGE if most is None else min(_PAGE, most - len(rows))
        from_there = f"&cursor={quote(cursor, safe='')}" if cursor else ""
        page = await api.call("GET", f"{path}limit={limit}{from_there}")
        rows += objects(page, noun)
        cursor = page["next_cursor"]
        if not isinstance(cursor, str | None):
            raise Unreachable("the answer's next_cursor is no text; is it the daemon, and of this version?")
    return {noun: rows, "next_cursor": cursor}


def objects(body: dict[str, Any], noun: str) -> list[dict[str, Any]]:
    """The rows that stand there. Raises: Unreachable, where that is no list of objects; KeyError."""
    rows = body[noun]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Unreachable(f"the answer's {noun} are no list of objects; is it the daemon, and of this version?")
    return rows


def path_of(operation_id: str) -> str:
    """Whatever was given is one segment: no id leads to another path of the API."""
    return f"/v1/operations/{quote(operation_id, safe='')}"


def show(arguments: argparse.Namespace, body: dict[str, Any], spelled: Callable[[dict[str, Any]], Shape]) -> None:
    """Print the API's own body, or how a person reads it."""
    if arguments.json:
        print(json.dumps(body), flush=True)
    else:
        terminal.show(spelled(body))

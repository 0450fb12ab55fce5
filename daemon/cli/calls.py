"""How a command is made: its parser, its call of the local API, the one way to print an answer and to tell a fault."""

import argparse
import asyncio
import getpass
import json
import math
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote

from daemon import local_api, words
from daemon.cli import exits
from daemon.local_api import LocalApi
from reconcile.given import SPAN_EXAMPLES, span_ms

#: Answers that say what is wrong with the question; any other refusal is no wrong usage (a token, a full disk).
_WRONG_USAGE: Final = frozenset({400, 404, 409, 422})
#: Most that one page of the API holds.
_PAGE: Final = 500

Command = Callable[[LocalApi, argparse.Namespace], Awaitable[int]]


def add(commands: Any, name: str, command: Command, summary: str, epilog: str | None = None) -> Any:
    """The parser of a new command that talks to the daemon."""
    parser = commands.add_parser(name, help=summary, description=summary.capitalize() + ".", epilog=epilog)
    local_api.add_arguments(parser)
    parser.set_defaults(run=lambda arguments: asyncio.run(_run(command, arguments)))
    return parser


def seconds(text: str) -> int:
    """A span such as `10m`, for argparse; rounded up, since the API waits for whole seconds."""
    span = span_ms(text)
    if span is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as {SPAN_EXAMPLES}")
    return math.ceil(span / 1000)


async def _run(command: Command, arguments: argparse.Namespace) -> int:
    try:
        async with local_api.connect(local_api.find(arguments)) as api:
            return await command(api, arguments)
    except local_api.WrongUsage as fault:
        return told(exits.USAGE, str(fault))
    except local_api.Refused as fault:
        return refused(arguments, fault, str(fault))
    except local_api.Unreachable as fault:
        return told(exits.UNAVAILABLE, str(fault))
    except KeyError as fault:  # JSON, but not the body that was asked for
        return told(exits.UNAVAILABLE, f"the answer has no {fault}; is it the daemon, and of this version?")


def refused(arguments: argparse.Namespace, fault: local_api.Refused, what: str) -> int:
    """Tell a refusal; a script that asked for JSON gets the problem document too."""
    if arguments.json:
        print(json.dumps(fault.problem))
    return told(exits.USAGE if fault.status in _WRONG_USAGE else exits.UNAVAILABLE, what)


def told(status: int, what: str) -> int:
    """One sentence on stderr, and the exit status to end with."""
    print(f"reconciled: {words.clean(what)}", file=sys.stderr)
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
        rows += page[noun]
        cursor = page["next_cursor"]
    return {noun: rows, "next_cursor": cursor}


def path_of(operation_id: str) -> str:
    """Whatever was given is one segment: no id leads to another path of the API."""
    return f"/v1/operations/{quote(operation_id, safe='')}"


def show(arguments: argparse.Namespace, body: dict[str, Any], spelled: Callable[[dict[str, Any]], str]) -> None:
    """Print the API's own body, or how a person reads it."""
    print(json.dumps(body) if arguments.json else spelled(body), flush=True)

"""Commands for people: look at operations. Each is a call of the local API and a way to print it."""

import argparse
import codecs
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from daemon import local_api, words
from daemon.cli import calls, exits, follow, outputs, terminal
from daemon.local_api import LocalApi
from daemon.shapes import clean, text

#: Operations that a list shows where no --limit is given. 50: as the API does.
_LIMIT: Final = 50


def add_commands(commands: Any) -> None:
    """list, show, history, items, result, status."""
    _add_list(commands)
    show = calls.add(
        commands,
        "show",
        _show,
        "one operation as it stands",
        examples=("reconciled show op_...", "reconciled show op_... --wait"),
        statuses=calls.ENDS,
    )
    show.add_argument("--wait", action="store_true", help="tell its story from the beginning, until the end")
    history = calls.add(
        commands,
        "history",
        _history,
        "why one operation stands where it does",
        examples=("reconciled history op_...",),
    )
    items = calls.add(
        commands,
        "items",
        _items,
        "what became of each item",
        examples=("reconciled items op_... --failed", "reconciled items op_... --outcome missing"),
    )
    which = items.add_mutually_exclusive_group()
    which.add_argument("--outcome", metavar="WORD", help="only those of this outcome, such as cancelled or missing")
    which.add_argument("--failed", action="store_const", dest="outcome", const="failed", help="--outcome failed")
    result = calls.add(
        commands,
        "result",
        _result,
        "the collected bytes as the provider gave them, of a value in a status body its JSON",
        examples=("reconciled result op_... -o result.jsonl",),
    )
    result.add_argument("-o", dest="output", type=Path, metavar="FILE", help="write them there; default: stdout")
    for parser in (show, history, items, result):
        parser.add_argument("id", help="an operation")
    calls.add(commands, "status", _status, "how the daemon fares", examples=("reconciled status",))


def _add_list(commands: Any) -> None:
    listing = calls.add(
        commands,
        "list",
        _list,
        "operations, newest first",
        "Into a pipe goes a line an operation, its id first.",
        examples=(
            "reconciled list --open",
            "reconciled list --attention --provider openai",
            "reconciled list --status failed --label team=research",
            "reconciled list --limit 1 | cut -d' ' -f1",
        ),
    )
    listing.add_argument("--open", action="store_true", help="only those that have not ended")
    listing.add_argument("--attention", action="store_true", help="only those that wait for a person")
    listing.add_argument("--status", metavar="WORD", help="pending, working, blocked, done or failed")
    listing.add_argument("--state", metavar="WORD", help="one state of the table in the README, such as observing")
    listing.add_argument("--provider", metavar="P", help="only those of this provider")
    calls.add_label(listing, "only those with this label; may be repeated")
    listing.add_argument("--limit", type=_number, metavar="N", help=f"at most so many; default {_LIMIT}")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


# ---- one operation ----


async def _show(api: LocalApi, arguments: argparse.Namespace) -> int:
    path = calls.path_of(arguments.id)
    body = await api.call("GET", path)  # that there is such an operation, before anything is said of it
    if arguments.wait:
        body = await follow.story(api, arguments.id, path, quiet=arguments.json)
    calls.show(arguments, body, words.operation)
    return exits.of_operation(body)


async def _history(api: LocalApi, arguments: argparse.Namespace) -> int:
    body = await calls.pages(api, f"{calls.path_of(arguments.id)}/history?", "history")
    calls.show(arguments, body, words.history)
    return 0


async def _items(api: LocalApi, arguments: argparse.Namespace) -> int:
    path, outcome = calls.path_of(arguments.id), arguments.outcome
    only = f"outcome={quote(outcome, safe='')}&" if outcome is not None else ""
    try:
        page = await calls.pages(api, f"{path}/items?{only}", "items")
    except local_api.Refused as fault:
        return calls.refused(arguments, fault, calls.by_options(fault))
    if outcome is None or arguments.json:
        calls.show(arguments, page, words.items)
        return 0
    others = words.other_outcomes(await api.call("GET", path), outcome)
    nothing = f"none {outcome}; {others}" if others else "no items"
    calls.show(arguments, page, lambda body: words.items(body, nothing))
    if page["items"] and others:
        print(f"beside these {clean(others)}", file=sys.stderr)
    return 0


async def _result(api: LocalApi, arguments: argparse.Namespace) -> int:
    path = f"{calls.path_of(arguments.id)}/result"
    if arguments.output is None:
        await api.download(path, _on_terminal() if terminal.is_terminal(sys.stdout) else sys.stdout.buffer.write)
        sys.stdout.flush()
        return 0
    try:
        with outputs.writing(arguments.output) as file:
            await api.download(path, file.write)
    except OSError as fault:
        raise local_api.WrongUsage(f"{arguments.output}: cannot be written: {fault.strerror or fault}") from fault
    return 0


def _on_terminal() -> Callable[[bytes], Any]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return lambda data: sys.stdout.write(text(decoder.decode(data)))


# ---- all of them ----


async def _list(api: LocalApi, arguments: argparse.Namespace) -> int:
    most = arguments.limit or _LIMIT
    try:
        body = await calls.pages(api, f"/v1/operations?{_filters(arguments)}", "operations", most=most)
    except local_api.Refused as fault:
        return calls.refused(arguments, fault, calls.by_options(fault))
    calls.show(arguments, body, words.listed)
    is_as_asked = arguments.limit is not None and not terminal.is_terminal(sys.stdout)  # a script has counted itself
    if body["next_cursor"] is not None and not (arguments.json or is_as_asked):
        print(f"there are more; --limit N shows more than {most}", file=sys.stderr)
    return 0


def _filters(arguments: argparse.Namespace) -> str:
    """The filters as a query, each with its `&` behind it."""
    asked = {name: "true" for name in ("open", "attention") if getattr(arguments, name)}
    asked |= {name: word for name in ("status", "state", "provider") if (word := getattr(arguments, name)) is not None}
    asked |= {f"label.{name}": value for name, value in calls.labels(arguments.label).items()}
    return "".join(f"{quote(name, safe='')}={quote(value, safe='')}&" for name, value in asked.items())


async def _status(api: LocalApi, arguments: argparse.Namespace) -> int:
    calls.show(arguments, await api.call("GET", "/v1/status"), words.status)
    return 0

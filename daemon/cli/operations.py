"""Commands for people: follow and look at operations. Each is a call of the local API and a way to print it."""

import argparse
import codecs
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daemon import local_api, words
from daemon.cli import calls, exits, follow, outputs
from daemon.local_api import LocalApi
from reconcile.given import spelled


def add_commands(commands: Any) -> None:
    """list, show, history, items, result, wait, status."""
    listing = calls.add(commands, "list", _list, "operations, newest first")
    listing.add_argument("--open", action="store_true", help="only those that have not ended")
    listing.add_argument("--limit", type=_number, default=50, metavar="N", help="at most so many; default %(default)s")
    show = calls.add(commands, "show", _show, "one operation as it stands")
    show.add_argument("--wait", action="store_true", help="tell its story from the beginning, until the end")
    history = calls.add(commands, "history", _history, "why one operation stands where it does")
    items = calls.add(commands, "items", _items, "what became of each item")
    items.add_argument("--failed", action="store_true", help="only those that failed")
    result = calls.add(commands, "result", _result, "the collected bytes as the provider gave them")
    result.add_argument("-o", dest="output", type=Path, metavar="FILE", help="write them there; default: stdout")
    wait = calls.add(commands, "wait", _wait, "wait until one operation has ended or needs a person")
    wait.add_argument(
        "--max", type=calls.seconds, metavar="SPAN", help="such as 30s, 10m or 26h; default: as long as it takes"
    )
    for parser in (show, history, items, result, wait):
        parser.add_argument("id")
    calls.add(commands, "status", _status, "how the daemon fares")


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


async def _wait(api: LocalApi, arguments: argparse.Namespace) -> int:
    path = calls.path_of(arguments.id)
    await api.call("GET", path)
    body = await follow.end(api, arguments.id, path, most_seconds=arguments.max)
    if exits.of_operation(body) == exits.NOT_ENDED:
        print(f"not ended after {spelled(arguments.max * 1000)}; it goes on", file=sys.stderr, flush=True)
    calls.show(arguments, body, words.operation)
    return exits.of_operation(body)


async def _history(api: LocalApi, arguments: argparse.Namespace) -> int:
    body = await calls.pages(api, f"{calls.path_of(arguments.id)}/history?", "history")
    calls.show(arguments, body, lambda body: "\n".join(map(words.history_row, body["history"])))
    return 0


async def _items(api: LocalApi, arguments: argparse.Namespace) -> int:
    only = "outcome=failed&" if arguments.failed else ""
    calls.show(arguments, await calls.pages(api, f"{calls.path_of(arguments.id)}/items?{only}", "items"), words.items)
    return 0


async def _result(api: LocalApi, arguments: argparse.Namespace) -> int:
    path = f"{calls.path_of(arguments.id)}/result"
    if arguments.output is None:
        await api.download(path, _on_terminal() if sys.stdout.isatty() else sys.stdout.buffer.write)
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
    return lambda data: sys.stdout.write(words.text(decoder.decode(data)))


# ---- all of them ----


async def _list(api: LocalApi, arguments: argparse.Namespace) -> int:
    only = "open=true&" if arguments.open else ""
    body = await calls.pages(api, f"/v1/operations?{only}", "operations", most=arguments.limit)
    calls.show(arguments, body, words.listed)
    if body["next_cursor"] is not None and not arguments.json:
        print(f"there are more; --limit N shows more than {arguments.limit}", file=sys.stderr)
    return 0


async def _status(api: LocalApi, arguments: argparse.Namespace) -> int:
    calls.show(arguments, await api.call("GET", "/v1/status"), words.status)
    return 0

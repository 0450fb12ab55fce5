"""Commands for people: start, follow and look at operations. Each is a call of the local API and a way to print it."""

import argparse
import asyncio
import codecs
import json
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from daemon import local_api, words
from daemon.cli import exits, follow, inputs, outputs
from daemon.local_api import LocalApi

#: Answers that say what is wrong with the question; any other refusal is no wrong usage (a token, a full disk).
_WRONG_USAGE: Final = frozenset({400, 404, 409, 422})
_SPAN: Final = re.compile(r"([0-9]{1,6})(s|m|h|d)")
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
#: Most that one page of the API holds.
_PAGE: Final = 500

Command = Callable[[LocalApi, argparse.Namespace], Awaitable[int]]


def add_commands(commands: Any) -> None:
    """submit, list, show, history, items, result, wait, status."""
    submit = _add(
        commands,
        "submit",
        _submit,
        "start an operation",
        'Example: echo \'{"endpoint": "/v1/responses"}\' | reconciled submit --provider openai'
        " --input items.jsonl --wait",
    )
    submit.add_argument("--provider", required=True, help="its name in the configuration")
    submit.add_argument(
        "--request", default="-", metavar="FILE", help="the provider's create body, JSON; default: - (stdin)"
    )
    submit.add_argument("--input", type=Path, metavar="FILE.jsonl", help="the items, one JSON object a line")
    submit.add_argument("--idempotency-key", metavar="K", help="repeating the start gives the same operation")
    submit.add_argument("--wait", action="store_true", help="tell the story as it happens, until the end")
    listing = _add(commands, "list", _list, "operations, newest first")
    listing.add_argument("--open", action="store_true", help="only those that have not ended")
    listing.add_argument("--limit", type=_number, default=50, metavar="N", help="at most so many; default %(default)s")
    show = _add(commands, "show", _show, "one operation as it stands")
    show.add_argument("--wait", action="store_true", help="tell its story from the beginning, until the end")
    history = _add(commands, "history", _history, "why one operation stands where it does")
    items = _add(commands, "items", _items, "what became of each item")
    items.add_argument("--failed", action="store_true", help="only those that failed")
    result = _add(commands, "result", _result, "the collected bytes as the provider gave them")
    result.add_argument("-o", dest="output", type=Path, metavar="FILE", help="write them there; default: stdout")
    wait = _add(commands, "wait", _wait, "wait until one operation has ended or needs a person")
    wait.add_argument(
        "--max", type=_seconds, metavar="SPAN", help="such as 30s, 10m or 26h; default: as long as it takes"
    )
    for parser in (show, history, items, result, wait):
        parser.add_argument("id")
    _add(commands, "status", _status, "how the daemon fares")


def _add(commands: Any, name: str, command: Command, summary: str, epilog: str | None = None) -> Any:
    parser = commands.add_parser(name, help=summary, description=summary.capitalize() + ".", epilog=epilog)
    local_api.add_arguments(parser)
    parser.set_defaults(run=lambda arguments: asyncio.run(_run(command, arguments)))
    return parser


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _seconds(text: str) -> int:
    match = _SPAN.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 30s, 10m, 26h or 7d")
    return int(match[1]) * _UNITS[match[2]]


async def _run(command: Command, arguments: argparse.Namespace) -> int:
    try:
        async with local_api.connect(local_api.find(arguments)) as api:
            return await command(api, arguments)
    except local_api.WrongUsage as fault:
        return _told(exits.USAGE, str(fault))
    except local_api.Refused as fault:
        return _refused(arguments, fault, str(fault))
    except local_api.Unreachable as fault:
        return _told(exits.UNAVAILABLE, str(fault))
    except KeyError as fault:  # JSON, but not the body that was asked for
        return _told(exits.UNAVAILABLE, f"the answer has no {fault}; is it the daemon, and of this version?")


def _refused(arguments: argparse.Namespace, fault: local_api.Refused, told: str) -> int:
    if arguments.json:
        print(json.dumps(fault.problem))
    return _told(exits.USAGE if fault.status in _WRONG_USAGE else exits.UNAVAILABLE, told)


def _told(status: int, what: str) -> int:
    print(f"reconciled: {words.clean(what)}", file=sys.stderr)
    return status


# ---- starting ----


async def _submit(api: LocalApi, arguments: argparse.Namespace) -> int:
    lines = inputs.read_lines(arguments.input) if arguments.input is not None else None
    body = {"provider": arguments.provider, "request": inputs.read_request(arguments.request)}
    if lines is not None:
        body["items"] = lines.items
    headers = {"Idempotency-Key": arguments.idempotency_key} if arguments.idempotency_key else None
    try:
        started = await api.call("POST", "/v1/operations", body=body, headers=headers)
    except local_api.Refused as fault:
        return _refused(arguments, fault, lines.told(str(fault)) if lines else str(fault))
    if arguments.wait:
        operation_id = started["operation_id"]
        if not arguments.json:
            print(f"operation {words.clean(operation_id)}", file=sys.stderr, flush=True)
        started = await follow.story(api, operation_id, _path_of(operation_id), quiet=arguments.json)
    _print(arguments, started, words.operation)
    return exits.of_operation(started) if arguments.wait else 0


# ---- one operation ----


async def _show(api: LocalApi, arguments: argparse.Namespace) -> int:
    path = _path_of(arguments.id)
    body = await api.call("GET", path)  # that there is such an operation, before anything is said of it
    if arguments.wait:
        body = await follow.story(api, arguments.id, path, quiet=arguments.json)
    _print(arguments, body, words.operation)
    return exits.of_operation(body)


async def _wait(api: LocalApi, arguments: argparse.Namespace) -> int:
    path = _path_of(arguments.id)
    await api.call("GET", path)
    body = await follow.end(api, arguments.id, path, most_seconds=arguments.max)
    _print(arguments, body, words.operation)
    return exits.of_operation(body)


async def _history(api: LocalApi, arguments: argparse.Namespace) -> int:
    body = await _pages(api, f"{_path_of(arguments.id)}/history?", "history")
    _print(arguments, body, lambda body: "\n".join(map(words.history_row, body["history"])))
    return 0


async def _items(api: LocalApi, arguments: argparse.Namespace) -> int:
    only = "outcome=failed&" if arguments.failed else ""
    _print(arguments, await _pages(api, f"{_path_of(arguments.id)}/items?{only}", "items"), words.items)
    return 0


async def _result(api: LocalApi, arguments: argparse.Namespace) -> int:
    path = f"{_path_of(arguments.id)}/result"
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
    body = await _pages(api, f"/v1/operations?{only}", "operations", most=arguments.limit)
    _print(arguments, body, words.listed)
    if body["next_cursor"] is not None and not arguments.json:
        print(f"there are more; --limit N shows more than {arguments.limit}", file=sys.stderr)
    return 0


async def _status(api: LocalApi, arguments: argparse.Namespace) -> int:
    _print(arguments, await api.call("GET", "/v1/status"), words.status)
    return 0


async def _pages(api: LocalApi, path: str, noun: str, *, most: int | None = None) -> dict[str, Any]:
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


def _path_of(operation_id: str) -> str:
    """Whatever was given is one segment: no id leads to another path of the API."""
    return f"/v1/operations/{quote(operation_id, safe='')}"


def _print(arguments: argparse.Namespace, body: dict[str, Any], spelled: Callable[[dict[str, Any]], str]) -> None:
    print(json.dumps(body) if arguments.json else spelled(body), flush=True)

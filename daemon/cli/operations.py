"""Commands for people: submit, show, history, status. Each is a call of the local API and a way to print it."""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from daemon import local_api, words
from daemon.cli import exits
from daemon.local_api import LocalApi
from reconcile.errors import Unreadable
from reconcile.read_json import read_json

#: Seconds of one held call while waiting; the command goes on until the end.
WAIT_SECONDS: Final = 30
#: Answers that say what is wrong with the question; any other refusal is no wrong usage (a token, a full disk).
_WRONG_USAGE: Final = frozenset({400, 404, 409, 422})

Command = Callable[[LocalApi, argparse.Namespace], Awaitable[int]]


def add_commands(commands: Any) -> None:
    """submit, show, history, status."""
    submit = _add(
        commands,
        "submit",
        _submit,
        "start an operation",
        'Example: echo \'{"endpoint": "/v1/responses"}\' | reconciled submit --provider openai --request -'
        " --input items.jsonl --wait",
    )
    submit.add_argument("--provider", required=True, help="its name in the configuration")
    submit.add_argument("--request", default="-", metavar="FILE", help="the provider's create body, JSON; - for stdin")
    submit.add_argument("--input", type=Path, metavar="FILE.jsonl", help="the items, one JSON object a line")
    submit.add_argument("--idempotency-key", metavar="K", help="repeating the start gives the same operation")
    submit.add_argument("--wait", action="store_true", help="tell the story as it happens, until the end")
    show = _add(commands, "show", _show, "one operation as it stands")
    show.add_argument("id")
    history = _add(commands, "history", _history, "why one operation stands where it does")
    history.add_argument("id")
    _add(commands, "status", _status, "how the daemon fares")


def _add(commands: Any, name: str, command: Command, summary: str, epilog: str | None = None) -> Any:
    parser = commands.add_parser(name, help=summary, description=summary.capitalize() + ".", epilog=epilog)
    local_api.add_arguments(parser)
    parser.set_defaults(run=lambda arguments: asyncio.run(_run(command, arguments)))
    return parser


async def _run(command: Command, arguments: argparse.Namespace) -> int:
    try:
        async with local_api.connect(local_api.find(arguments)) as api:
            return await command(api, arguments)
    except (local_api.Refused, local_api.Unreachable) as fault:
        refused = fault if isinstance(fault, local_api.Refused) else None
        if arguments.json and refused:
            print(json.dumps(refused.problem))
        print(f"reconciled: {words.clean(fault)}", file=sys.stderr)
        return exits.USAGE if refused and refused.status in _WRONG_USAGE else exits.UNAVAILABLE
    except KeyError as fault:  # JSON, but not the body that was asked for
        print(f"reconciled: the answer has no {fault}; is it the daemon, and of this version?", file=sys.stderr)
        return exits.UNAVAILABLE


async def _submit(api: LocalApi, arguments: argparse.Namespace) -> int:
    try:
        body: dict[str, Any] = {"provider": arguments.provider, "request": _json_of(arguments.request)}
        if arguments.input is not None:
            body["items"] = _lines_of(arguments.input)
    except (OSError, Unreadable) as fault:
        print(f"reconciled: {fault}", file=sys.stderr)
        return exits.USAGE
    headers = {"Idempotency-Key": arguments.idempotency_key} if arguments.idempotency_key else None
    started = await api.call("POST", "/v1/operations", body=body, headers=headers)
    if arguments.wait:
        started = await _follow(api, started, quiet=arguments.json)
    _print(arguments, started, words.operation)
    return exits.of_operation(started) if arguments.wait else 0


async def _follow(api: LocalApi, body: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Print each history row as it comes; ends at the end, or when a person is needed."""
    seen = 0
    while True:
        # The body first, its rows after it: once nothing more will come by itself, no call is held for more.
        body = await api.call("GET", body["status_url"])
        is_over = body["done"] or body["attention"]
        seconds = 0 if is_over else WAIT_SECONDS
        path = f"{body['history_url']}?cursor={seen}&limit=500&wait={seconds}"
        page = await api.call("GET", path, seconds=seconds)
        for row in page["history"]:
            seen = row["seq"]
            if not quiet:
                print(words.history_row(row), file=sys.stderr, flush=True)
        if is_over and page["next_cursor"] is None:
            return body


async def _show(api: LocalApi, arguments: argparse.Namespace) -> int:
    body = await api.call("GET", _path_of(arguments.id))
    _print(arguments, body, words.operation)
    return exits.of_operation(body)


async def _history(api: LocalApi, arguments: argparse.Namespace) -> int:
    cursor, rows = "0", []
    while cursor is not None:
        page = await api.call("GET", f"{_path_of(arguments.id)}/history?limit=500&cursor={cursor}")
        rows += page["history"]
        cursor = page["next_cursor"]
    _print(arguments, {"history": rows}, lambda body: "\n".join(map(words.history_row, body["history"])))
    return 0


async def _status(api: LocalApi, arguments: argparse.Namespace) -> int:
    _print(arguments, await api.call("GET", "/v1/status"), words.status)
    return 0


def _path_of(operation_id: str) -> str:
    """Whatever was given is one segment: no id leads to another path of the API."""
    return f"/v1/operations/{quote(operation_id, safe='')}"


def _print(arguments: argparse.Namespace, body: dict[str, Any], spelled: Callable[[dict[str, Any]], str]) -> None:
    print(json.dumps(body) if arguments.json else spelled(body), flush=True)


def _json_of(name: str) -> Any:
    data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    try:
        return read_json(data)
    except Unreadable as fault:
        raise Unreadable(f"{name}: {fault.reason}") from fault


def _lines_of(path: Path) -> list[Any]:
    items = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            try:
                items.append(read_json(line))
            except Unreadable as fault:
                raise Unreadable(f"{path}, line {number}: {fault.reason}") from fault
    return items

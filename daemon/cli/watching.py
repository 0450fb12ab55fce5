"""Commands that stay: wait for operations to end, watch what happens to one or to all of them."""

import argparse
import json
import sys
from contextlib import aclosing
from typing import Any

from daemon import words
from daemon.cli import calls, exits, follow, live, terminal
from daemon.cli.events import Event
from daemon.local_api import LocalApi, WrongUsage
from daemon.shapes import clean
from reconcile.given import spelled


def add_commands(commands: Any) -> None:
    """watch, wait."""
    watch = calls.add(
        commands,
        "watch",
        _watch,
        "follow one operation, or all of them, as things happen",
        "One operation is told from its beginning to its end, or until a person is needed; all of them from now on,"
        " until Ctrl-C. With --json each event is a line: its name, its position, its data.",
        examples=("reconciled watch op_...", "reconciled watch", "reconciled watch --json | jq -c .data.reason"),
        statuses=f"{calls.ENDS} For all of them: 130 at Ctrl-C.",
    )
    watch.add_argument("id", nargs="?", help="an operation; default: all of them")
    wait = calls.add(
        commands,
        "wait",
        _wait,
        "wait until operations have ended or need a person",
        "Of several, all are waited for unless --any is said; the exit status is then that of the one that asks most"
        " of you: not ended, then needs a person, then failed, then with errors.",
        examples=(
            "reconciled wait op_... && reconciled result op_... -o result.jsonl",
            "reconciled wait op_... --max 10m",
            "reconciled wait op_1... op_2... op_3... --any",
        ),
        statuses=calls.ENDS,
    )
    wait.add_argument("ids", nargs="+", metavar="ID", help="operations")
    wait.add_argument(
        "--max", type=calls.seconds, metavar="SPAN", help="such as 30s, 10m or 26h; default: as long as it takes"
    )
    which = wait.add_mutually_exclusive_group()
    which.add_argument("--any", action="store_true", help="of several: until the first of them")
    which.add_argument("--all", action="store_true", help="of several: until each of them; the default")


# ---- wait ----


async def _wait(api: LocalApi, arguments: argparse.Namespace) -> int:
    ids = list(dict.fromkeys(arguments.ids))
    if len(ids) > 1:
        return await _wait_for_several(api, arguments, ids)
    path = calls.path_of(ids[0])
    await api.call("GET", path)
    body = await follow.end(api, ids[0], path, most_seconds=arguments.max, quiet=arguments.json)
    status = exits.of_operation(body)
    _tell_whether_ended(arguments, status, "it goes on")
    calls.show(arguments, body, words.operation)
    return status


async def _wait_for_several(api: LocalApi, arguments: argparse.Namespace, ids: list[str]) -> int:
    mode = "any" if arguments.any else "all"
    answer = await follow.several(api, ids, mode, most_seconds=arguments.max, quiet=arguments.json)
    over = [body for body in answer["operations"] if follow.is_over(body)]
    # Of any, those that are over speak; where none is, or all were asked for, every one does.
    status = exits.of_several(over if arguments.any and over else answer["operations"])
    _tell_whether_ended(arguments, status, "they go on")
    calls.show(arguments, answer, words.listed)
    return status


def _tell_whether_ended(arguments: argparse.Namespace, status: int, goes_on: str) -> None:
    if status == exits.NOT_ENDED and arguments.max is not None:
        print(f"not ended after {spelled(arguments.max * 1000)}; {goes_on}", file=sys.stderr, flush=True)


# ---- watch ----


async def _watch(api: LocalApi, arguments: argparse.Namespace) -> int:
    if arguments.id is not None:
        return await _watch_one(api, arguments)
    async with follow.going_on("the work goes on without you: reconciled list --open"):
        if arguments.json or not terminal.can_move(sys.stdout):
            return await _watch_all(api, _Lines(arguments.json, names=True))
        with live.Many(sys.stdout) as display:
            standing = await calls.pages(api, "/v1/operations?open=true&", "operations")
            for body in reversed(standing["operations"]):
                display.event(Event("operation", None, body))
            return await _watch_all(api, display)


async def _watch_one(api: LocalApi, arguments: argparse.Namespace) -> int:
    if not arguments.id:
        raise WrongUsage("the id is empty; `reconciled watch` without one watches all")
    path = calls.path_of(arguments.id)
    await api.call("GET", path)
    async with follow.going_on(follow.without_you(arguments.id)):
        if arguments.json or not terminal.can_move(sys.stdout):
            body = await follow.streamed(api, path, _Lines(arguments.json, names=False))
        else:
            with live.One(sys.stdout) as display:
                body = await follow.shown(api, path, display)
    if not arguments.json:
        terminal.show(words.operation(body))
    return exits.of_operation(body)


async def _watch_all(api: LocalApi, teller: follow.Teller) -> int:
    async with aclosing(follow.batches(api, "/v1/events", teller, ends=False)) as stream:
        async for batch in stream:
            for event in batch:
                teller.event(event)
    return 0


class _Lines(follow.Quiet):
    """A line an event, for a pipe: rows only, or each event as JSON."""

    def __init__(self, as_json: bool, *, names: bool) -> None:
        self._as_json, self._names = as_json, names

    def event(self, event: Event) -> None:
        """One line on stdout, at once."""
        if self._as_json:
            print(json.dumps({"event": event.kind, "id": event.id, "data": event.data}), flush=True)
        elif event.kind == "history":
            row = words.history_row(event.data)
            print(f"{clean(event.data['operation_id'])}  {row}" if self._names else row, flush=True)
        elif event.kind == "gap":
            print(f"reconciled: {words.gap(event.data)}", file=sys.stderr, flush=True)

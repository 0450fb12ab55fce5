"""Commands that start an operation: submit and adopt. What both take stands beside the request, as in the API."""

import argparse
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from daemon import local_api, words
from daemon.cli import calls, exits, follow, inputs, uploading
from daemon.cli.patience import Patience
from daemon.local_api import LocalApi
from daemon.shapes import clean

#: Seconds for which a daemon that does not listen yet is asked again. 10: arbitrary; a start takes one or two.
PATIENCE_SECONDS: Final = 10
#: Options whose text is a field of the start, word for word: the API reads it and says what is wrong.
_TEXTS: Final = {
    "--caller": ("NAME", "who asks; default: the login name"),
    "--approval": ("TEXT", "by whose leave; kept and shown"),
    "--type": ("WORD", "a word of your own for the kind of work"),
    "--result-within": ("SPAN", "how long until the job must have ended, such as 26h"),
    "--cancel-within": ("SPAN", "how long a cancel may stay unconfirmed, such as 15m"),
    "--callback-url": ("URL", "who is told of questions and the end: a URL under one of [callbacks.NAME]"),
    "--input-within": ("SPAN", "how long the job may wait for input, such as 24h"),
}
_CREATE_WITHIN: Final = ("SPAN", "how long a create may stay unanswered or unfound, such as 15m")


def add_commands(commands: Any) -> None:
    """submit, adopt."""
    submit = calls.add(
        commands,
        "submit",
        _submit,
        "start an operation",
        "The request is the provider's own create body; the items are lines of a file, which may be large: it is read"
        " while it is sent.",
        examples=(
            "reconciled submit --provider openai --request create.json --input items.jsonl --wait",
            'echo \'{"endpoint": "/v1/responses"}\' | reconciled submit --provider openai --input items.jsonl',
            "reconciled submit --provider openai --request create.json --input items.jsonl --idempotency-key monday",
        ),
        statuses=f"0 started; with --wait {calls.ENDS}",
    )
    submit.add_argument("--provider", required=True, help="its name in the configuration")
    submit.add_argument(
        "--request", default="-", metavar="FILE", help="the provider's create body, JSON; default: - (stdin)"
    )
    submit.add_argument("--input", type=Path, metavar="FILE.jsonl", help="the items, one JSON object a line")
    submit.add_argument("--idempotency-key", metavar="K", help="repeating the start gives the same operation")
    adopt = calls.add(
        commands,
        "adopt",
        _adopt,
        "follow a job that somebody else created",
        "Nothing is created; the job is read, and its result collected.",
        examples=("reconciled adopt --provider openai --remote-job-id batch_abc123 --wait",),
        statuses=f"0 adopted; with --wait {calls.ENDS}",
    )
    adopt.add_argument("--provider", required=True, help="its name in the configuration")
    adopt.add_argument("--remote-job-id", required=True, metavar="J", help="the job's id at the provider")
    for parser, texts in ((submit, {**_TEXTS, "--create-within": _CREATE_WITHIN}), (adopt, _TEXTS)):
        for option, (shape, told) in texts.items():
            parser.add_argument(option, metavar=shape, help=told)
        calls.add_label(parser, "kept and shown; may be repeated")
        parser.add_argument("--expect", metavar="FILE", help="what the result must be, JSON: items, content_type, ...")
        parser.add_argument("--wait", action="store_true", help="tell the story as it happens, until the end")


async def _submit(api: LocalApi, arguments: argparse.Namespace) -> int:
    given = inputs.Input(arguments.input) if arguments.input is not None else None
    if given is not None:
        given.open().close()  # that it can be read, before stdin is asked for the request
    body = {**_beside_the_request(arguments), "request": inputs.read_request(arguments.request)}
    headers = {"Idempotency-Key": arguments.idempotency_key} if arguments.idempotency_key else None

    async def start() -> dict[str, Any]:
        if given is None:
            return await api.call("POST", "/v1/operations", body=body, headers=headers)
        return await uploading.start(api, body, given, headers=headers, is_shown=not arguments.json)

    try:
        started = await _patiently(start)
    except local_api.Refused as fault:
        return calls.refused(arguments, fault, given.told(str(fault)) if given else str(fault))
    return await _started(api, arguments, started)


async def _adopt(api: LocalApi, arguments: argparse.Namespace) -> int:
    body = {**_beside_the_request(arguments), "remote_job_id": arguments.remote_job_id}
    started = await _patiently(lambda: api.call("POST", "/v1/operations", body=body))
    return await _started(api, arguments, started)


def _beside_the_request(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of a start that say nothing to the provider; what is not given is left out. Raises: WrongUsage."""
    names = [option.removeprefix("--").replace("-", "_") for option in (*_TEXTS, "--create-within")]
    given = {name: value for name in names if (value := getattr(arguments, name, None)) is not None}
    if "caller" not in given:
        given["caller"] = calls.login_name("--caller")
    if arguments.label:
        given["labels"] = calls.labels(arguments.label)
    if arguments.expect is not None:
        given["expect"] = inputs.read_expected(arguments.expect)
    return {"provider": arguments.provider, **given}


async def _patiently(start: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    """The start, asked again while nothing listens: then it surely did not arrive. Raises: Refused, Unreachable."""
    patience = Patience(seconds=PATIENCE_SECONDS)
    while True:
        try:
            return await start()
        except local_api.NotListening as fault:
            await patience.wait(fault)


async def _started(api: LocalApi, arguments: argparse.Namespace, started: dict[str, Any]) -> int:
    if arguments.wait:
        operation_id = started["operation_id"]
        if not arguments.json:
            print(f"operation {clean(operation_id)}", file=sys.stderr, flush=True)
        started = await follow.story(api, operation_id, calls.path_of(operation_id), quiet=arguments.json)
    calls.show(arguments, started, words.operation)
    return exits.of_operation(started) if arguments.wait else 0

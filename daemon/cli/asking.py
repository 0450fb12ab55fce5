"""Commands for people who want something of an operation: cancel, input, inbox, decide."""

import argparse
import sys
from typing import Any, Final
from urllib.parse import quote

from daemon import words
from daemon.cli import calls, inputs
from daemon.local_api import LocalApi
from daemon.runtime import SystemClock

#: What a cancel is said to be expected to do, where nobody says otherwise.
_EFFECT: Final = "the job stops as soon as the provider can stop it"


def add_commands(commands: Any) -> None:
    """cancel, input, inbox, decide."""
    cancel = calls.add(
        commands,
        "cancel",
        _cancel,
        "ask for a job to be stopped",
        'Example: reconciled cancel op_... --reason "wrong model". A cancel is a wish: the job is cancelled once the'
        " provider says so, and it may still succeed. `reconciled wait ID` tells how it ended.",
    )
    cancel.add_argument("id")
    _add_reason(cancel)
    cancel.add_argument("--effect", default=_EFFECT, help="what you expect of it; default: %(default)s")
    given = calls.add(
        commands,
        "input",
        _input,
        "give a job what it waits for",
        "Example: echo '\"yes\"' | reconciled input op_... -. It is kept before it is promised, and sent once.",
    )
    given.add_argument("id")
    given.add_argument("file", metavar="FILE", help="any JSON; - reads stdin")
    _add_by(given)
    calls.add(
        commands,
        "inbox",
        _inbox,
        "what waits for a person, with what can be decided and what each decision does",
        "Decide by `reconciled decide ID DECISION --reason R`.",
    )
    decide = calls.add(
        commands,
        "decide",
        _decide,
        "decide about an operation or a notice of the inbox",
        "Which decisions are open, and what each does, says `reconciled inbox` or `reconciled show ID`. Examples:"
        ' reconciled decide op_... resume --within 2h --reason "they fixed it";'
        ' reconciled decide op_... adopt_job --remote-job-id batch_... --reason "found in their console";'
        ' reconciled decide provider_paused.openai acknowledge --reason "known outage".',
    )
    decide.add_argument("id", help="an operation, or a notice of the inbox")
    decide.add_argument("decision", metavar="DECISION", help="one of those that are open there")
    _add_reason(decide)
    decide.add_argument("--remote-job-id", metavar="J", help="for adopt_job and choose_job")
    decide.add_argument("--within", metavar="SPAN", help="for resume: how long the job may still take, such as 2h")


def _add_reason(parser: Any) -> None:
    parser.add_argument("--reason", required=True, metavar="R", help="why; kept in the history")
    _add_by(parser)


def _add_by(parser: Any) -> None:
    parser.add_argument("--by", metavar="NAME", help="who; default: the login name")


async def _cancel(api: LocalApi, arguments: argparse.Namespace) -> int:
    wish = {"by": _who(arguments), "reason": arguments.reason, "effect": arguments.effect}
    body = await api.call("POST", f"{calls.path_of(arguments.id)}/cancel", body=wish)
    given = body["cancel"]
    if any(given[name] != wish[name] for name in wish):
        print(words.another_cancel(given), file=sys.stderr, flush=True)
    calls.show(arguments, body, words.operation)
    return 0


async def _input(api: LocalApi, arguments: argparse.Namespace) -> int:
    path = f"{calls.path_of(arguments.id)}/input?by={quote(_who(arguments), safe='')}"
    body = await api.call("POST", path, data=inputs.read_given(arguments.file))
    calls.show(arguments, body, words.operation)
    return 0


async def _inbox(api: LocalApi, arguments: argparse.Namespace) -> int:
    now_ms = SystemClock().now()
    waiting = await calls.pages(api, "/v1/inbox?", "inbox")
    calls.show(arguments, waiting, lambda body: words.inbox(body, now_ms))
    return 0


async def _decide(api: LocalApi, arguments: argparse.Namespace) -> int:
    wish = {"decision": arguments.decision, "by": _who(arguments), "reason": arguments.reason}
    wish |= {"remote_job_id": arguments.remote_job_id} if arguments.remote_job_id is not None else {}
    wish |= {"within": arguments.within} if arguments.within is not None else {}
    body = await api.call("POST", f"/v1/inbox/{quote(arguments.id, safe='')}/decisions", body=wish)
    calls.show(arguments, body, words.operation if "operation_id" in body else words.acknowledged)
    return 0


def _who(arguments: argparse.Namespace) -> str:
    return arguments.by if arguments.by is not None else calls.login_name("--by")

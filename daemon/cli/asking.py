"""Commands for people who want something of an operation: cancel, input, inbox, decide, claim."""

import argparse
import sys
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Final
from urllib.parse import quote

from daemon import words
from daemon.cli import calls, exits, inputs
from daemon.local_api import LocalApi, Refused
from daemon.runtime import SystemClock

#: What a cancel is said to be expected to do, where nobody says otherwise.
_EFFECT: Final = "the job stops as soon as the provider can stop it"


def add_commands(commands: Any) -> None:
    """cancel, input, inbox, decide, claim."""
    cancel = calls.add(
        commands,
        "cancel",
        _cancel,
        "ask for a job to be stopped",
        "A cancel is a wish: the job is cancelled once the provider says so, and it may still succeed. `reconciled wait"
        " ID` tells how it ended.",
        examples=('reconciled cancel op_... --reason "wrong model"',),
    )
    cancel.add_argument("id", help="an operation")
    _add_reason(cancel)
    cancel.add_argument("--effect", default=_EFFECT, help="what you expect of it; default: %(default)s")
    given = calls.add(
        commands,
        "input",
        _input,
        "give a job what it waits for",
        "It is kept before it is promised, and sent once.",
        examples=("reconciled input op_... answer.json", "echo '\"yes\"' | reconciled input op_..."),
    )
    given.add_argument("id", help="an operation")
    given.add_argument("file", nargs="?", default="-", metavar="FILE", help="any JSON; default: - (stdin)")
    _add_by(given)
    calls.add(
        commands,
        "inbox",
        _inbox,
        "what waits for a person, with what can be decided and what each decision does",
        examples=("reconciled inbox", 'reconciled decide op_... give_up --reason "nobody needs it"'),
    )
    decide = calls.add(
        commands,
        "decide",
        _decide,
        "decide about an operation or a notice of the inbox",
        "Which decisions are open, and what each does, says `reconciled inbox` or `reconciled show ID`.",
        examples=(
            'reconciled decide op_... resume --within 2h --reason "they fixed it"',
            'reconciled decide op_... adopt_job --remote-job-id batch_... --reason "found in their console"',
            'reconciled decide provider_paused.openai acknowledge --reason "known outage"',
        ),
    )
    decide.add_argument("id", help="an operation, or a notice of the inbox")
    decide.add_argument("decision", metavar="DECISION", help="one of those that are open there")
    _add_reason(decide)
    decide.add_argument("--remote-job-id", metavar="J", help="for adopt_job and choose_job")
    decide.add_argument("--within", metavar="SPAN", help="for resume: how long the job may still take, such as 2h")
    _add_claim(commands)


def _add_claim(commands: Any) -> None:
    claim = calls.add(
        commands,
        "claim",
        _claim,
        "take an ended operation for one consumer, once",
        "Of all who ask in the name of one consumer a single one is told 0: it does what follows of the end. With the"
        " same key the same answer comes again, so that a lost answer loses nothing.",
        examples=(
            "reconciled claim op_... --consumer mailer --idempotency-key mail-42 && send-mail",
            "reconciled wait op_... && reconciled claim op_... --consumer reports",
        ),
        statuses=calls.CLAIMED,
    )
    claim.add_argument("id", help="an operation")
    claim.add_argument("--consumer", required=True, metavar="C", help="in whose name")
    claim.add_argument("--idempotency-key", metavar="K", help="repeating the claim gives the same answer")


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
    try:
        body = await api.call("POST", f"/v1/inbox/{quote(arguments.id, safe='')}/decisions", body=wish)
    except Refused as fault:
        return calls.refused(arguments, fault, await _open_there(api, arguments, fault) or str(fault))
    calls.show(arguments, body, words.operation if "operation_id" in body else words.acknowledged)
    return 0


async def _open_there(api: LocalApi, arguments: argparse.Namespace, fault: Refused) -> str | None:
    """Where there is no such decision at all: those that are open there, as far as that can be asked."""
    if not str(fault).startswith("/decision: unknown"):
        return None
    with suppress(Refused):
        attention = (await api.call("GET", calls.path_of(arguments.id)))["attention"]
        names = [one["decision"] for one in attention["decisions"]] if attention else []
        near = get_close_matches(arguments.decision, names, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        is_open = f"open there are {', '.join(names)}" if names else "nothing waits for a person there"
        return f"there is no decision {arguments.decision!r}: {is_open}{meant}"
    return None


async def _claim(api: LocalApi, arguments: argparse.Namespace) -> int:
    headers = {"Idempotency-Key": arguments.idempotency_key} if arguments.idempotency_key is not None else None
    wish = {"consumer": arguments.consumer}
    try:
        body = await api.call("POST", f"{calls.path_of(arguments.id)}/claim", body=wish, headers=headers)
    except Refused as fault:
        status = {409: exits.CLAIMED_ALREADY, 425: exits.NOT_ENDED}.get(fault.status)
        if status is None:
            raise
        calls.refused(arguments, fault, str(fault))
        return status
    calls.show(arguments, body, lambda _: words.claimed(arguments.id, arguments.consumer))
    return 0


def _who(arguments: argparse.Namespace) -> str:
    return arguments.by if arguments.by is not None else calls.login_name("--by")

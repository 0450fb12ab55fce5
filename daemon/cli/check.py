"""`reconciled check`: what is wrong with a configuration, and where, with nothing started and nothing written."""

import argparse
import asyncio
import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any, Final

from daemon import probe
from daemon.addresses import SocketPath
from daemon.cli import exits
from daemon.cli.processes import add_config
from daemon.config import Config, warnings_of
from daemon.config_findings import MAX_FAULTS, Findings, look_at
from daemon.document import read_document
from daemon.logs import make_log
from daemon.meters import Counts
from daemon.peers import peers_of
from daemon.probe import Finding, Told
from daemon.runtime import SystemClock, SystemDice, TaskSupervisor, open_connector
from daemon.shapes import clean
from handlers.access import Token
from reconcile.client import Client
from reconcile.errors import ConfigError, CredentialAbsent
from reconcile.files import Files
from reconcile.redact import Redactor
from reconcile.registry import DECLARED

#: Where the README puts the files that the unit's LoadCredential lines name, each under its credential's name.
_CREDENTIALS: Final = "/etc/reconciled/credentials"
#: Where a provider's table holds what proves us to it, and it to us.
_KEYS: Final = ("api_key", "headers")
_PROOFS: Final = ("webhook_secrets", "webhook_token")


def add_commands(commands: Any) -> None:
    """check."""
    parser = commands.add_parser(
        "check",
        help="say what is wrong with a configuration",
        description="Say what is wrong with a configuration and where, without starting or writing anything.",
        epilog="--online asks each provider for a page of its list of jobs, or for a job that cannot exist: nothing is"
        " made, changed or fetched.",
        examples=("reconciled check --config reconciled.toml --online",),
        statuses="0 it can be used, 78 it cannot; with --online 1 where it can, and a provider did not answer as it"
        " should.",
    )
    add_config(parser)
    parser.add_argument("--online", action="store_true", help="also ask each provider one harmless question")
    parser.set_defaults(run=_check)


def _check(arguments: argparse.Namespace) -> int:
    file = str(arguments.config)
    try:
        document = read_document(arguments.config)
    except ConfigError as fault:
        return _wrong(Findings(faults=[fault]), file)
    found = look_at(document, os.environ, file=file)
    if found.faults or found.has_more or found.config is None:
        return _wrong(found, file)
    config = found.config
    print(f"{file} can be used" + (", as far as could be looked." if found.unchecked else "."))
    print("\n".join(_told(found, config)))
    for line in _unchecked(found, file):
        print(line)
    return asyncio.run(_online(found, config)) if arguments.online else exits.SUCCEEDED


def _wrong(found: Findings, file: str) -> int:
    for fault in found.faults:
        print(f"reconciled: {clean(fault)}", file=sys.stderr)
    if found.has_more:
        print(f"There may be more: no more than {MAX_FAULTS} are looked for at once.", file=sys.stderr)
    for line in _unchecked(found, file):
        print(line, file=sys.stderr)
    return exits.BAD_CONFIGURATION


def _unchecked(found: Findings, file: str) -> Iterator[str]:
    """What could not be looked at from here, and from where it can be."""
    for fault in found.unchecked:
        yield f"not checked: {clean(fault)}"
    for table in found.skipped:
        yield f"not checked: {file}: {table}: the rest of this table"
    if any(isinstance(fault, CredentialAbsent) for fault in found.unchecked):
        command = f"CREDENTIALS_DIRECTORY={_CREDENTIALS} reconciled check --config {shlex.quote(file)}"
        yield "Credentials are handed to the service alone. To check them too, as root, with the folder of their files:"
        yield f"  {command}"
    elif found.unchecked:
        yield "Ask again as a user who may read these files."


def _told(found: Findings, config: Config) -> Iterator[str]:
    """What a person would want to know before the start."""
    yield f"state_dir    {config.state_dir.absolute()}"
    yield f"local API    {config.api if isinstance(config.api, SocketPath) else f'http://{config.api}'}"
    first = Token(None, "")
    for token in (first, *config.api_tokens):
        name = "the first token" if token.name is None else f"token {token.name}"
        may = "everything" if len(token.may) == len(first.may) else ", ".join(sorted(token.may))
        yield f"             {name} may: {may}"
    scheme = "http" if config.tls is None else "https"
    yield f"webhooks     {scheme}://{config.webhooks}" + (
        f", from outside {config.public_url}" if config.public_url else ""
    )
    if config.tls is not None:
        over = ", and is over" if config.tls.ends_at.timestamp() * 1000 < SystemClock().now() else ""
        yield f"             its certificate ends at {config.tls.ends_at:%Y-%m-%d %H:%M} UTC{over}"
    for name, provider in sorted(config.providers.items()):
        key = provider.credential_name or "none"
        if found.is_out_of_reach(f"providers.{name}", *_KEYS):
            key = "see below"
        yield f"provider     {name}: {provider.provider.contract.kind} at {provider.base_url}, key: {key}"
        yield f"             {_webhooks_of(found, config, name)}"
    for note in found.notes:
        yield f"note         {note}"
    for event, fields in warnings_of(config):
        where = ", ".join(f"{key} {value}" for key, value in fields.items() if key != "hint")
        yield f"warning      {event} ({where}): {fields['hint']}"


def _webhooks_of(found: Findings, config: Config, name: str) -> str:
    """Where a provider sends its webhooks, or why it sends none."""
    provider, path = config.providers[name], f"/webhooks/{name}"
    contract = provider.provider.contract
    place = f"{config.public_url}{path}" if config.public_url else f"{path} of webhooks.public_url, which is not set"
    if contract.webhook is not None:
        return f"register its webhooks for {place}"
    if found.is_out_of_reach(f"providers.{name}", *_PROOFS):
        return f"register its webhooks for {place}, once what proves them is right: see below"
    if not provider.has_webhooks and contract.kind == DECLARED:
        return "no webhooks: no table `webhook` declares them; its jobs are polled"
    if not provider.has_webhooks:
        return f"no webhooks: {contract.kind} has none; its jobs are polled"
    return "no webhooks: nothing is configured that would prove them; its jobs are polled"


async def _online(found: Findings, config: Config) -> int:
    clock, dice, log = SystemClock(), SystemDice(), make_log(Redactor(config.secrets))
    client = Client(
        connector=open_connector,
        clock=clock,
        dice=dice,
        files=Files(config.state_dir, TaskSupervisor(log)),
        redactor=Redactor(config.secrets),
        max_answer=config.caps.answer,
        meters=Counts(),
        log=log,
    )
    is_well = True
    try:
        for name, peer in peers_of(config).items():
            if found.is_out_of_reach(f"providers.{name}", *_KEYS):
                finding = Finding(Told.NOT_ASKED, "its key could not be read here")
            else:
                finding = await probe.ask(peer, client, clock, dice)
            print(f"online       {name}: {finding.told.value} ({finding.why})", flush=True)
            is_well = is_well and finding.told in (Told.ANSWERED, Told.NOT_ASKED)
    finally:
        await client.close()
    return exits.SUCCEEDED if is_well else exits.FAILED

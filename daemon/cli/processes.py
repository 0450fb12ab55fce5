"""Commands that run something: the daemon, the stand-in provider, the demo."""

import argparse
import asyncio
import faulthandler
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from daemon import demo
from daemon.addresses import Listener
from daemon.cli import exits
from daemon.cli.help import Parser
from daemon.config import load
from daemon.document import DEFAULT_FILE, configuration_file
from daemon.limits import calm_garbage_collection
from daemon.logs import make_log
from daemon.meters import Counts
from daemon.rooms import Seams
from daemon.runtime import SystemClock, SystemDice, TaskSupervisor, open_connector, open_sqlite
from daemon.service import serve
from daemon.shapes import clean
from daemon.standin.scenarios import SCENARIOS
from daemon.standin.serve import StandinOptions, run_standin
from daemon.version import version
from reconcile.errors import (
    AlreadyRunning,
    ConfigError,
    RequestInvalid,
    SchemaTooNew,
    SecretInvalid,
    StoreBroken,
    StoreError,
)
from reconcile.redact import Redactor

__all__ = ["add_commands", "version"]


def add_commands(commands: Any) -> None:
    """serve, simulate, demo."""
    parser = commands.add_parser(
        "serve",
        help="run the daemon",
        description="Run the daemon until SIGTERM.",
        examples=("reconciled serve --config /etc/reconciled/reconciled.toml",),
        statuses="0 stopped, 69 it cannot listen or the file cannot be opened now, 74 the outcome of a write is unknown"
        " (start again), 75 another daemon runs, 78 a bad configuration, or a file of a newer release.",
    )
    add_config(parser)
    parser.set_defaults(run=_serve)

    parser = commands.add_parser(
        "demo",
        help="see it work, with no account",
        description=demo.DESCRIPTION,
        examples=("reconciled demo", "reconciled demo --scenario lost-webhook"),
        statuses="0 every story ended as it should, 1 one did not.",
    )
    parser.add_argument("--scenario", action="append", choices=demo.NAMES, help="only this one; may be repeated")
    parser.set_defaults(run=lambda arguments: demo.run(arguments.scenario))

    parser = commands.add_parser(
        "simulate",
        help="a stand-in provider for your own tests",
        description=(
            "Serve a stand-in provider whose jobs behave as the scenario says: OpenAI's Files and Batch calls and"
            " Anthropic's Message Batches on one address, with any key."
        ),
        epilog=(
            'A job may name its own scenario. OpenAI: metadata {"standin_scenario": "lost-webhook"} in the create.'
            ' Anthropic: "metadata": {"user_id": "standin_scenario=lost-create-response"} in the params of a request.'
        ),
        examples=(
            "reconciled simulate --list",
            "reconciled simulate --scenario lost-webhook --webhook-url http://127.0.0.1:8786/webhooks/standin",
        ),
    )
    parser.add_argument("--listen", default="127.0.0.1:8790", metavar="HOST:PORT", help="default %(default)s")
    parser.add_argument(
        "--scenario",
        default="normal",
        choices=list(SCENARIOS),
        metavar="NAME",
        help="one of --list; default %(default)s",
    )
    parser.add_argument("--webhook-url", metavar="URL", help="where events are sent")
    parser.add_argument(
        "--webhook-secret",
        metavar="SECRET",
        help="whsec_...; better in $RECONCILED_WEBHOOK_SECRET, where `ps` does not show it",
    )
    parser.add_argument("--speed", type=float, default=1.0, help="10: everything ten times as fast")
    parser.add_argument("--list", action="store_true", help="name the scenarios and what each does")
    parser.set_defaults(run=_simulate)


def add_config(parser: Parser) -> None:
    """`--config`, with its defaults."""
    parser.meant = "--config"
    parser.add_argument(
        "--config",
        type=Path,
        default=configuration_file(),
        metavar="FILE",
        help=f"default: $RECONCILED_CONFIG, then {DEFAULT_FILE}",
    )


def _serve(arguments: argparse.Namespace) -> int:
    try:
        config = load(arguments.config, os.environ)
    except ConfigError as fault:
        return _fail(exits.BAD_CONFIGURATION, str(fault))
    log = make_log(Redactor(config.secrets))
    faulthandler.enable()  # a watchdog ends us by SIGABRT: where each thread stood goes to the journal, and no values
    seams = Seams(
        clock=SystemClock(),
        dice=SystemDice(),
        supervisor=TaskSupervisor(log),
        meters=Counts(),
        opener=open_sqlite,
        connector=open_connector,
        log=log,
    )
    try:
        asyncio.run(serve(config, seams, on_ready=lambda *_: calm_garbage_collection(), is_last=True))
    except AlreadyRunning as fault:
        return _fail(exits.ALREADY_RUNNING, str(fault))
    except (ConfigError, SchemaTooNew) as fault:
        return _fail(exits.BAD_CONFIGURATION, str(fault))
    except StoreBroken as fault:
        log.critical("store_broken", error=str(fault))
        return exits.STORE_BROKEN
    except StoreError as fault:
        return _fail(exits.UNAVAILABLE, str(fault))
    except OSError as fault:
        where = f"{fault.filename}: " if fault.filename is not None else ""
        return _fail(exits.UNAVAILABLE, f"{where}{fault.strerror or fault}")
    return 0


def _simulate(arguments: argparse.Namespace) -> int:
    if arguments.list:
        width = max(map(len, SCENARIOS))
        for name, scenario in SCENARIOS.items():
            print(f"{name:{width}}  {scenario.summary}")
        return 0
    listener = Listener.read(arguments.listen)
    if listener is None:
        return _fail(exits.USAGE, f"--listen: {arguments.listen!r} is not HOST:PORT")
    url, secret = arguments.webhook_url, arguments.webhook_secret
    if url is not None and secret is None:
        secret = os.environ.get("RECONCILED_WEBHOOK_SECRET") or None
        if secret is None:
            return _fail(exits.USAGE, "--webhook-url needs a secret to sign with; put it in $RECONCILED_WEBHOOK_SECRET")
    try:
        options = StandinOptions(listener.host, listener.port, arguments.scenario, url, secret, arguments.speed)
        asyncio.run(_standin(options))
    except (ConfigError, RequestInvalid, SecretInvalid) as fault:
        return _fail(exits.USAGE, str(fault))
    except OSError as fault:
        no_address = isinstance(fault, socket.gaierror)
        why = fault.strerror if no_address or not fault.errno else os.strerror(fault.errno)
        return _fail(
            exits.USAGE if no_address else exits.UNAVAILABLE,
            f"cannot listen on {listener.host}:{listener.port}: {why or fault}",
        )
    return 0


async def _standin(options: StandinOptions) -> None:
    log = make_log(Redactor([options.webhook_secret] if options.webhook_secret else []))
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    await run_standin(
        options,
        clock=SystemClock(),
        dice=SystemDice(),
        supervisor=TaskSupervisor(log),
        log=log,
        stop=stop,
        on_ready=lambda url: print(_told_of(options, url), file=sys.stderr, flush=True),
    )


def _told_of(options: StandinOptions, url: str) -> str:
    hooks = f"webhooks go to {options.webhook_url}" if options.webhook_url else "no --webhook-url: no webhooks are sent"
    # Anthropic's clients add /v1 by themselves; the daemon wants it in base_url for either kind.
    return f"stand-in provider ({options.scenario}): OpenAI and Anthropic shape, base_url {url}/v1; {hooks}"


def _fail(status: int, words: str) -> int:
    print(f"reconciled: {clean(words)}", file=sys.stderr)
    return status

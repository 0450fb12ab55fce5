"""The command line: `reconciled COMMAND`. Each file holds a group of commands; exit codes stand in `exits`."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from daemon.cli import exits
from daemon.cli.help import Commands, Parser


def build_parser() -> Parser:
    """All commands; `--help` of each teaches by example."""
    # Imported here: they load half the world, and a Ctrl-C meanwhile should end in `main` as any other does.
    from daemon.cli import asking, audit, check, db, operations, processes, starting, watching
    from daemon.version import version

    parser = Parser(
        prog="reconciled",
        description="Keeps one durable record of each long job at other people's APIs.",
        examples=(
            "reconciled demo                 see it work: it needs no account and no configuration",
            "reconciled submit --help        each command says what it takes, with an example",
        ),
        statuses="0 done as asked, 2 wrong usage, or refused for what was asked, 69 no daemon to ask, or it cannot"
        " answer now, 77 the token is not taken, or lacks the right, 78 a bad configuration; show, wait, watch ID and"
        " --wait: 0 succeeded, 1 ended without, 3 not ended yet, 4 needs a person, 5 completed with errors.",
    )
    parser.add_argument("--version", action="version", version=f"reconciled {version()}")
    commands = Commands(parser)
    processes.add_commands(commands)
    check.add_commands(commands)
    starting.add_commands(commands)
    operations.add_commands(commands)
    watching.add_commands(commands)
    asking.add_commands(commands)
    audit.add_commands(commands)
    db.add_commands(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    _open_what_is_closed()
    _tolerate(sys.stdout, sys.stderr)
    try:
        arguments = _parse(argv)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_unwritten(sys.stdout, sys.stderr)  # the reader went away (`| head`); the status it hid, nobody knows
        status = 128 + signal.SIGPIPE
    except OSError as fault:
        if fault.filename is not None:
            raise
        _leave_unwritten(sys.stdout)
        print(f"reconciled: the output cannot be written: {fault.strerror or fault}", file=sys.stderr)
        status = exits.UNWRITTEN
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except asyncio.CancelledError:
        status = 128 + signal.SIGTERM
    return status


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line. What it says wrong of a command is told with that command's own usage."""
    parser = build_parser()
    arguments, left_over = parser.parse_known_args(argv)
    if left_over:
        parser.left_over(arguments, left_over)
    return arguments


def _open_what_is_closed() -> None:
    """Started with closed streams (`>&-`), a command reads nothing, writes nowhere, and no socket takes the place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - it stays


def _tolerate(*streams: TextIO) -> None:
    """A terminal of another encoding gets what it can show, and no traceback."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _leave_unwritten(*streams: TextIO) -> None:
    """What is still held back goes nowhere: the interpreter would try again on its way out, and say so."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)

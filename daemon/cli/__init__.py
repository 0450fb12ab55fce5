"""The command line: `reconciled COMMAND`. Each file holds a group of commands; exit codes stand in `exits`."""

import argparse
import signal
import sys
from collections.abc import Sequence


def build_parser() -> argparse.ArgumentParser:
    """All commands; `--help` of each teaches by example."""
    # Imported here: they load half the world, and a Ctrl-C meanwhile should end in `main` as any other does.
    from daemon.cli import asking, audit, check, db, operations, processes, starting

    parser = argparse.ArgumentParser(
        prog="reconciled",
        description="Keeps one durable record of each long job at other people's APIs.",
        epilog="Try `reconciled demo` first: it needs no account and no configuration.",
    )
    parser.add_argument("--version", action="version", version=f"reconciled {processes.version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    processes.add_commands(commands)
    check.add_commands(commands)
    starting.add_commands(commands)
    operations.add_commands(commands)
    asking.add_commands(commands)
    audit.add_commands(commands)
    db.add_commands(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    try:
        arguments = build_parser().parse_args(argv)
        status: int = arguments.run(arguments)
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away (`| head`); what the status would have been, nobody knows
        status = 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        status = 130
    return status

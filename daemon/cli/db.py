"""Commands about the database file itself. They open it without the right to write, whether a daemon runs or not."""

import argparse
from pathlib import Path
from typing import Any, Final

from daemon.api_config import TOKEN_FILE
from daemon.cli import calls, exits, record_file
from daemon.cli.progress import Progress
from daemon.local_api import WrongUsage
from daemon.own_secrets import AUDIT_KEY_FILE
from daemon.runtime import SystemClock
from daemon.sections import Section
from daemon.shapes import clean, size
from reconcile.errors import ConfigError, RecordDamaged, SchemaTooNew, StoreBroken, StoreError
from reconcile.store.backup import Copied, back_up

#: What the daemon keeps beside the database, no part of it, as far as it is there.
_BESIDE: Final = ("spool", "results", AUDIT_KEY_FILE, TOKEN_FILE)
#: Said where no configuration tells what else belongs there.
_UNKNOWN: Final = "any other token or key that the configuration places there"


def add_commands(commands: Any) -> None:
    """db backup."""
    parser = commands.add_parser(
        "db",
        help="copy the database, also while the daemon runs",
        description="About the database file.",
        examples=("reconciled db backup --help",),
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, help="what to do with it")
    backup = actions.add_parser(
        "backup",
        help="a copy of the database, also while the daemon runs",
        description=(
            "Copy the database as it stands at this moment to FILE, also while the daemon runs: there whole, or not at"
            " all. The copy is marked: its first start takes what may have been sent since for sent."
        ),
        epilog="Copy what it names as not in it after it: files are made before the rows that name them.",
        examples=("reconciled db backup /var/backups/reconciled.db",),
        statuses="0 copied, 2 wrong usage, or no file of ours or of a newer release, 69 the file cannot be read or"
        " written, 74 the database is damaged, 78 the configuration.",
    )
    backup.add_argument("file", type=Path, metavar="FILE", help="where the copy goes; nothing is ever replaced")
    record_file.add_arguments(backup)
    backup.set_defaults(run=_backup)


def _backup(arguments: argparse.Namespace) -> int:
    calls.leave_in_order()
    target: Path = arguments.file
    try:
        source, top = record_file.find(arguments)
        if not source.is_file():
            raise WrongUsage(f"{source}: there is no such file; --db FILE names another one")
        with Progress("pages") as progress:
            copied = back_up(source, target, made_at=SystemClock().now(), on_progress=progress.tell)
    except (WrongUsage, FileExistsError) as fault:
        return calls.told(exits.USAGE, str(fault))
    except SchemaTooNew as fault:
        return calls.told(exits.USAGE, f"{source}: {fault}")
    except RecordDamaged as fault:
        return calls.told(exits.STORE_BROKEN, f"{source}: {fault}")
    except ConfigError as fault:
        return calls.told(exits.BAD_CONFIGURATION, str(fault))
    except StoreBroken as fault:
        return calls.told(exits.STORE_BROKEN, str(fault))
    except StoreError as fault:
        return calls.told(exits.UNAVAILABLE, str(fault))
    except OSError as fault:
        what = f"{source} cannot be read" if str(fault.filename) == str(source) else f"{target} cannot be written"
        return calls.told(exits.UNAVAILABLE, f"{what}: {fault.strerror or fault}")
    print(_done(source, target, copied, top))
    return 0


def _done(source: Path, target: Path, copied: Copied, top: Section | None) -> str:
    told = f"{clean(target)}: {size(copied.bytes)}, up to history position {copied.position}"
    left = [f"{name}/" if path.is_dir() else name for name in _BESIDE if (path := source.parent / name).exists()]
    if top is not None:
        placed = record_file.placed_beside(source, top)
        left += [clean(name) for name in placed if name.split("/")[0] not in (source.name, *_BESIDE)]
    elif left:
        left.append(_UNKNOWN)
    return f"{told}; not in it: {', '.join(left)} (copy them now, after it)" if left else told

"""Commands that look into the record itself: `audit verify`, `audit export`. They ask no daemon, and write nothing."""

import argparse
import json
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

from daemon.cli import calls, exits, outputs, record_file
from daemon.cli.progress import Progress
from daemon.cli.record_file import Trust
from daemon.local_api import WrongUsage
from daemon.shapes import clean, count, text
from handlers.bodies import rfc3339
from reconcile import exported
from reconcile.checkpoint import SignedCheckpoint, SignedSpan
from reconcile.errors import ConfigError, NotRecorded, RecordDamaged, SchemaTooNew, StoreBusy, StoreError, Unreadable
from reconcile.exported import Checked
from reconcile.store.audit.export import export
from reconcile.store.audit.verify import Verified, verify
from reconcile.store.looking import look_at

_HASH: Final = re.compile(r"[0-9a-f]{64}")


def add_commands(commands: Any) -> None:
    """audit verify, audit export."""
    about = "verify the record, or take one operation's evidence out of it"
    audit = commands.add_parser(
        "audit",
        help=about,
        description=f"{about.capitalize()}.",
        examples=("reconciled audit verify --help", "reconciled audit export --help"),
    )
    kinds = audit.add_subparsers(dest="action", metavar="ACTION", required=True, help="what to do with it")
    parser = kinds.add_parser(
        "verify",
        help="whether the record is as it was written",
        description="Walk the whole record, beside a daemon that runs or without one, and name the first bad row.",
        epilog="What is proven is every history, and with it each operation's state, job, outcome and deadlines."
        " With --key FILE a record without any checkpoint is not: nothing in it is signed with that key."
        " Note the hash of a checkpoint from the log (event `checkpoint`) elsewhere: --checkpoint HASH then shows a"
        " record whose end was cut off.",
        examples=(
            "reconciled audit verify",
            "reconciled audit verify --db /backup/reconciled.db --key audit.pub",
            "reconciled audit verify --export op.json --key audit.pub",
        ),
        statuses="0 it is as it was written, 1 it is not, 2 wrong usage, or this is no file of ours or of a newer"
        " release, 69 it cannot be read now, 78 the configuration.",
    )
    record_file.add_arguments(parser)
    parser.add_argument("--key", type=Path, metavar="FILE", help="the key that must have signed it, public or private")
    parser.add_argument(
        "--checkpoint", type=_hash, action="append", default=[], metavar="HASH", help="must be there; may be repeated"
    )
    parser.add_argument("--export", type=Path, metavar="FILE", help="verify what `audit export` wrote, by itself")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.set_defaults(run=lambda arguments: _run(_verify, arguments))
    parser = kinds.add_parser(
        "export",
        help="one operation's whole evidence as JSON that verifies by itself",
        description="Write one operation's whole evidence as one JSON document: its history as it is hashed, the"
        " checkpoints that signed it, requests, observations, events and items.",
        epilog="`audit verify --export FILE --key PUBLIC` verifies it, anywhere: the history, and what follows from"
        " it.",
        examples=("reconciled audit export op_... -o op.json",),
        statuses="0 written, 1 there is none of that id, or its evidence does not hold, 2 wrong usage, 69 the file"
        " cannot be read now, 78 the configuration.",
    )
    parser.add_argument("id", help="an operation")
    record_file.add_arguments(parser)
    parser.add_argument("-o", dest="output", type=Path, metavar="FILE", help="write it there; default: stdout")
    parser.set_defaults(run=lambda arguments: _run(_export, arguments))


def _hash(text: str) -> str:
    if not _HASH.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the hash of a checkpoint: 64 digits 0-9a-f")
    return text


def _run(command: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    try:
        return command(arguments)
    except WrongUsage as fault:
        return calls.told(exits.USAGE, str(fault))
    except ConfigError as fault:
        return calls.told(exits.BAD_CONFIGURATION, str(fault))


def _look(path: Path, look: Callable[[sqlite3.Connection], Any]) -> Any:
    """What `look` gives of the file. Raises: WrongUsage, where there is no such file of ours; StoreError."""
    try:
        return look_at(path, look)
    except SchemaTooNew as fault:
        raise WrongUsage(f"{path}: {fault}") from fault
    except FileNotFoundError as fault:
        raise WrongUsage(f"{path}: there is no such file") from fault
    except OSError as fault:
        if isinstance(fault, IsADirectoryError | NotADirectoryError):
            raise WrongUsage(f"{path}: {fault.strerror}") from fault
        raise StoreBusy(f"{path} cannot be read: {fault.strerror or fault}") from fault


# ---- verify ----


def _verify(arguments: argparse.Namespace) -> int:
    if arguments.export is not None:
        return _verify_document(arguments)
    file, top = record_file.find(arguments)
    trust = record_file.trust(arguments.key, file, top)
    trusted = () if trust.key is None else (trust.key,)
    calls.leave_in_order()
    try:
        with Progress("rows") as progress:
            found: Verified = _look(
                file,
                lambda connection: verify(connection, trusted=trusted, noted=arguments.checkpoint, tell=progress.tell),
            )
    except RecordDamaged as fault:
        return _bad(arguments, file, str(fault))
    except StoreError as fault:
        return calls.told(exits.UNAVAILABLE, str(fault))
    if found.newest is None and trust.is_named:
        return _bad(arguments, file, _nothing_signed(trust))
    if arguments.json:
        print(json.dumps(_body(file, found, trust)))
    else:
        print(text("\n".join(_lines(file, found, trust))))
    return 0


def _verify_document(arguments: argparse.Namespace) -> int:
    file, trust = arguments.export, record_file.trust(arguments.key, None, None)
    if arguments.db is not None or arguments.config is not None:
        raise WrongUsage("--export asks no database: leave out --db and --config")
    trusted = () if trust.key is None else (trust.key,)
    try:
        found = exported.check(exported.read(file.read_bytes()), trusted=trusted, noted=arguments.checkpoint)
    except OSError as fault:
        raise WrongUsage(f"{file}: cannot be read: {fault.strerror or fault}") from fault
    except Unreadable as fault:
        raise WrongUsage(f"{file}: {fault}") from fault
    except RecordDamaged as fault:
        return _bad(arguments, file, str(fault))
    if found.newest is None and trust.is_named:
        return _bad(arguments, file, _nothing_signed(trust))
    if arguments.json:
        print(json.dumps(_document_body(file, found, trust)))
    else:
        print(text("\n".join(_document_lines(file, found, trust))))
    return 0


def _bad(arguments: argparse.Namespace, file: Path, fault: str) -> int:
    if arguments.json:
        print(json.dumps({"ok": False, "file": str(file), "fault": clean(fault)}))
    return calls.told(exits.NOT_SO, f"{file} is NOT as it was written: {fault}. There may be more; keep the file.")


# ---- export ----


def _export(arguments: argparse.Namespace) -> int:
    file, _ = record_file.find(arguments)
    try:
        # Written whole before anybody sees a byte of it, and begun again where the file has changed under the first.
        with tempfile.TemporaryFile() as part:
            _look(file, lambda connection: _write(connection, arguments.id, part))
            part.seek(0)
            _hand_over(part, arguments.output)
    except NotRecorded as fault:
        return calls.told(exits.NOT_SO, _not_there(fault))
    except RecordDamaged as fault:
        return calls.told(exits.NOT_SO, f"nothing was written, for its evidence does not hold: {fault}")
    except StoreError as fault:
        return calls.told(exits.UNAVAILABLE, str(fault))
    return 0


def _write(connection: sqlite3.Connection, operation_id: str, part: IO[bytes]) -> None:
    part.seek(0)
    part.truncate()
    export(connection, operation_id, part.write)


def _hand_over(part: IO[bytes], output: Path | None) -> None:
    if output is None:
        shutil.copyfileobj(part, sys.stdout.buffer)
        sys.stdout.flush()
        return
    try:
        with outputs.writing(output) as file:
            shutil.copyfileobj(part, file)
    except OSError as fault:
        raise WrongUsage(f"{output}: cannot be written: {fault.strerror or fault}") from fault


def _not_there(fault: NotRecorded) -> str:
    if fault.pruned_at is not None:
        return f"{fault.operation_id} was pruned at {rfc3339(fault.pruned_at)}; its last head is all that is left of it"
    if fault.is_leaving:
        return f"{fault.operation_id} is being pruned: not all of it is left"
    return f"there is no operation {fault.operation_id}"


# ---- words ----


def _lines(file: Path, found: Verified, trust: Trust) -> list[str]:
    pruned = f", {count(found.pruned, 'pruned operation')}" if found.pruned else ""
    checkpoints = "" if found.checkpoints is None else f", {count(found.checkpoints, 'checkpoint')}"
    counted = f"{count(found.rows, 'history row')} of {count(found.operations, 'operation')}"
    first = f"{file} is as it was written: {counted}{checkpoints}{pruned}."
    if found.checkpoints is None:
        return [first, f"It is of schema {found.schema}, which has no checkpoints: nothing shows a cut end."]
    lines = [first, *_signed(found.newest, trust, found.unsigned_rows), *map(_by_another_key, found.of_other_keys)]
    if found.unsigned_prunings:
        lines.append(f"{count(found.unsigned_prunings, 'pruning')} will be signed by the next checkpoint.")
    return lines


def _document_lines(file: Path, found: Checked, trust: Trust) -> list[str]:
    counted = f"{count(found.rows, 'history row')}, {count(found.checkpoints, 'checkpoint')}"
    first = f"The history in {file} holds: {found.operation_id} ({found.state}), {counted}."
    beside = "Its requests, observations, events and items go with it: no hash is over them."
    lines = [first, beside, *_signed(found.newest, trust, found.unsigned_rows)]
    lines += map(_by_another_key, found.of_other_keys)
    if found.of_other_keys:
        others = sum(span.count for span in found.of_other_keys)
        lines.append(f"For what {count(others, 'checkpoint')} of other keys tell, only those keys vouch.")
    return lines


def _signed(newest: SignedCheckpoint | None, trust: Trust, unsigned: int) -> list[str]:
    """How far it is signed, and how sure that is."""
    if newest is None:
        return [_nothing_signed(trust)]
    last = newest.checkpoint
    lines = [f"Checkpoint {last.number} of {rfc3339(last.at)} signs it up to position {last.position}: {newest.hash}."]
    if trust.key is not None:
        lines.append(f"It is signed with the key {newest.public_key} ({trust.source}).")
    else:
        lines.append(
            f"It is signed with the key {newest.public_key}, which only this file vouches for ({trust.source}): give"
            " --key FILE from a second place."
        )
    if unsigned:
        lines.append(f"{count(unsigned, 'row')} came after that: chained, and not signed yet.")
    return lines


def _nothing_signed(trust: Trust) -> str:
    if trust.key is None:
        return "No checkpoint has been signed over it yet: the chain alone holds it together."
    return (
        "No checkpoint is in it, the chain alone holds it together: nothing in it is signed with the key"
        f" {trust.key} ({trust.source})."
    )


def _by_another_key(span: SignedSpan) -> str:
    """Which checkpoints bear another key than the newest."""
    if span.first == span.last:
        return f"Checkpoint {span.first} was signed with the key {span.public_key}."
    return f"Checkpoints {span.first} to {span.last} were signed with the key {span.public_key}."


def _body(file: Path, found: Verified, trust: Trust) -> dict[str, Any]:
    return {
        "ok": True,
        "file": str(file),
        "fault": None,
        "schema": found.schema,
        "rows": found.rows,
        "operations": found.operations,
        "checkpoints": found.checkpoints,
        "pruned": found.pruned,
        "unsigned_prunings": found.unsigned_prunings,
        **_signed_body(found, trust),
    }


def _document_body(file: Path, found: Checked, trust: Trust) -> dict[str, Any]:
    return {
        "ok": True,
        "file": str(file),
        "fault": None,
        "operation_id": found.operation_id,
        "state": found.state,
        "rows": found.rows,
        "checkpoints": found.checkpoints,
        **_signed_body(found, trust),
    }


def _signed_body(found: Verified | Checked, trust: Trust) -> dict[str, Any]:
    newest = found.newest
    last = newest and newest.checkpoint
    return {
        "signed": newest is not None,
        "unsigned_rows": found.unsigned_rows,
        "newest_checkpoint": newest
        and last
        and {
            "number": last.number,
            "at": rfc3339(last.at),
            "position": last.position,
            "hash": newest.hash,
            "public_key": newest.public_key,
        },
        "other_keys": [
            {"first": span.first, "last": span.last, "checkpoints": span.count, "public_key": span.public_key}
            for span in found.of_other_keys
        ],
        "trusted_key": trust.key,
        "trusted_key_source": trust.source,
    }

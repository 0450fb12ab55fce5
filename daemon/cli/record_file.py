"""Where the record stands, and which key should have signed it: by what is said, else by the configuration."""

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daemon.config import audit_key
from daemon.document import DEFAULT_FILE, configuration_file, opened, state_dir_of
from daemon.local_api import WrongUsage
from daemon.own_secrets import AUDIT_KEY_FILE
from daemon.sections import Section
from reconcile.checkpoint import read_public_key
from reconcile.errors import SecretAbsent, SecretInvalid

#: The database in the state directory.
_NAME = "reconciled.db"


@dataclass(frozen=True, slots=True)
class Trust:
    """The public key, base64, that should have signed the newest checkpoint; None: not known. `source` is words."""

    key: str | None
    source: str
    #: Somebody named it, and asks whether it has signed: then a record without any checkpoint has not held.
    is_named: bool = False


def add_arguments(parser: Any) -> None:
    """`--db`, `--config`."""
    parser.add_argument("--db", type=Path, metavar="FILE", help="the file; default: that of the configuration")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"names the state directory and the key; default: $RECONCILED_CONFIG, then {DEFAULT_FILE}",
    )


def find(arguments: argparse.Namespace) -> tuple[Path, Section | None]:
    """The database, and the configuration where one is meant. Raises: WrongUsage, ConfigError."""
    file: Path | None = arguments.db
    if file is not None and arguments.config is None:
        return file, None
    config = arguments.config or configuration_file()
    top = opened(config, os.environ)
    if top is None:
        raise WrongUsage(f"no configuration at {config}; name the file by --db, or give --config")
    return file or state_dir_of(top, os.environ) / _NAME, top


def placed_beside(file: Path, top: Section) -> list[str]:
    """The files that the configuration places beside the database, such as tokens: names as seen from there, sorted.

    Each text of the configuration is taken for a path, since secrets stand in many places and none is left out so.
    """
    folder, bases = file.parent.resolve(), (state_dir_of(top, os.environ), Path())
    found = set[str]()
    for text in _texts([top.given(name) for name in top.names()]):
        for path in {base / text for base in bases}:
            try:
                place = path.parent.resolve() / path.name
                if place.is_relative_to(folder) and path.is_file():
                    found.add(str(place.relative_to(folder)))
            except (OSError, ValueError):  # too long for a path, or with a NUL in it
                continue
    return sorted(found)


def _texts(values: Iterable[Any]) -> Iterator[str]:
    """Every text that stands in them, however deep."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from _texts(value.values())
        elif isinstance(value, list):
            yield from _texts(value)


def trust(key_file: Path | None, file: Path | None, top: Section | None) -> Trust:
    """Whom to trust: the key that is named, else the configured one, else the one beside the file.

    Raises: WrongUsage, where the one that is named cannot be used; ConfigError, where the configured one cannot, unless
    only the daemon is handed it.
    """
    if key_file is not None:
        try:
            return Trust(_key_in(key_file), str(key_file), is_named=True)
        except (OSError, ValueError, SecretInvalid) as fault:
            raise WrongUsage(f"--key {key_file}: {_told(fault)}") from fault
    try:
        configured = None if top is None else audit_key(top.section("audit"), state_dir_of(top, os.environ))
    except SecretAbsent as fault:
        return Trust(None, f"the configured key cannot be read here: {fault}")
    if configured is not None:
        return Trust(configured.public_key, "the configured audit.key")
    beside = None if file is None else file.parent / AUDIT_KEY_FILE
    if beside is None:
        return Trust(None, "no key is known here")
    try:
        return Trust(_key_in(beside), str(beside))
    except FileNotFoundError:
        return Trust(None, "no key is known here")
    except (OSError, ValueError, SecretInvalid) as fault:
        return Trust(None, f"{beside} cannot be read: {_told(fault)}")


def _key_in(path: Path) -> str:
    return read_public_key(path.read_text(encoding="ascii").strip())


def _told(fault: Exception) -> str:
    if isinstance(fault, OSError):
        return fault.strerror or str(fault)
    return "not a key in PEM form" if isinstance(fault, ValueError) else str(fault)

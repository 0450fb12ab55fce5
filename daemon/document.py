"""A configuration file as it stands there, and where the daemon that it describes keeps what is its own."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from daemon.sections import Section, Sources
from reconcile.errors import ConfigError

#: Where the configuration stands unless something else is said.
DEFAULT_FILE: Final = "/etc/reconciled/reconciled.toml"


def variable(name: str) -> str | None:
    """What the environment says; a variable that is set to nothing says as little as one that is not set."""
    return os.environ.get(name) or None


def configuration_file() -> Path:
    """Where the configuration stands, unless an option says otherwise."""
    return Path(variable("RECONCILED_CONFIG") or DEFAULT_FILE)


def read_document(file: Path) -> dict[str, Any]:
    """The file's tables, not looked at yet. Raises: ConfigError."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as fault:
        raise ConfigError(str(file), "", fault.strerror or str(fault), "a readable TOML file") from fault
    except (ValueError, RecursionError) as fault:  # also a number of too many digits, and brackets in brackets
        raise ConfigError(str(file), "", str(fault), "valid TOML in UTF-8") from fault


def opened(file: Path, environ: Mapping[str, str]) -> Section | None:
    """The file's outermost table, for whoever wants a few keys of it; None: there is no such file.

    Raises: ConfigError.
    """
    try:
        return Section(read_document(file), "", Sources(str(file), environ))
    except ConfigError as fault:
        if isinstance(fault.__cause__, FileNotFoundError):
            return None
        raise


def state_dir_of(top: Section, environ: Mapping[str, str]) -> Path:
    """Where a daemon of this configuration keeps what is its own. Raises: ConfigError."""
    return Path(top.text("state_dir", environ.get("STATE_DIRECTORY") or "reconciled-state"))

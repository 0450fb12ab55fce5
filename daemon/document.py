"""A configuration file as it stands there, and where the daemon that it describes keeps what is its own."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from daemon import given_file
from daemon.sections import Section, Sources
from reconcile.errors import ConfigError

#: Where the configuration stands unless something else is said.
DEFAULT_FILE: Final = "/etc/reconciled/reconciled.toml"

#: Levels of tables and lists. 64, as of strangers' JSON: a declared provider's request is the deepest of ours.
MAX_DEPTH: Final = 64
#: Comments and texts, in which a dot is no level. One that is not closed runs to the end: TOML's parser will tell.
_TEXT: Final = re.compile(
    r"""#[^\n]*+|\"{3}(?:\\.|(?!\"{3})[^\\])*+(?:\"{3}|\Z)|'{3}(?:(?!'{3}).)*+(?:'{3}|\Z)"""
    r"""|"(?:\\.|[^"\\\n])*+"?|'[^'\n]*+'?""",
    re.DOTALL,
)
#: A key of more parts than that: Python's parser takes a minute for one of 50,000, so it is not shown any.
_LONG_PATH: Final = re.compile(
    rf"""(?<![A-Za-z0-9_"-])[A-Za-z0-9_"-]++(?:[ \t]*+\.[ \t]*+[A-Za-z0-9_"-]++){{{MAX_DEPTH}}}"""
)


def variable(name: str) -> str | None:
    """What the environment says; a variable that is set to nothing says as little as one that is not set."""
    return os.environ.get(name) or None


def configuration_file() -> Path:
    """Where the configuration stands, unless an option says otherwise."""
    return Path(variable("RECONCILED_CONFIG") or DEFAULT_FILE)


def read_document(file: Path) -> dict[str, Any]:
    """The file's tables, not looked at yet. Raises: ConfigError."""
    try:
        text = given_file.read(file, given_file.MAX_CONFIGURATION).decode("utf-8")
        if _LONG_PATH.search(_TEXT.sub('""', text)) or _is_deep(document := tomllib.loads(text)):
            raise ConfigError(str(file), "", "tables in tables in tables", f"at most {MAX_DEPTH} levels of them")
        return document
    except OSError as fault:
        raise ConfigError(str(file), "", fault.strerror or str(fault), "a readable TOML file") from fault
    except (ValueError, RecursionError) as fault:  # also a number of too many digits, and brackets in brackets
        raise ConfigError(str(file), "", str(fault), "valid TOML in UTF-8") from fault


def _is_deep(value: Any) -> bool:
    """Whether there are more levels than `MAX_DEPTH`; looked at level by level, for recursion would end first."""
    level = [value]
    for _ in range(MAX_DEPTH):
        nested = [each for each in level if isinstance(each, dict | list)]
        level = [below for each in nested for below in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return False
    return any(isinstance(each, dict | list) for each in level)


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

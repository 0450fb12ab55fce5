"""All that can be said of a configuration without starting anything: every fault, and what could not be looked at.

The parser tells the first fault it meets. Here it is asked again and again, each time without what was wrong last; what
is only amiss without that is no fault.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from daemon import own_secrets, unix_socket
from daemon.addresses import SocketPath
from daemon.api_config import TOKEN_FILE
from daemon.config import Config, parse
from reconcile.errors import ConfigError, CredentialAbsent, SettingsAtOdds

#: Faults that are told at most. 100: arbitrary, some screens full; each is found by reading the whole anew.
MAX_FAULTS: Final = 100
#: One part of a key path: a bare key, a quoted one, or an element's place.
_PART: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^.\[\]"]+|\[[0-9]+\]')


@dataclass(slots=True)
class Findings:
    """What is wrong, and what only the service itself could tell."""

    #: The configuration without what is wrong or out of reach; None where too little was left.
    config: Config | None = None
    faults: list[ConfigError] = field(default_factory=list)
    #: Secrets of the service, and files that this user may not read.
    unchecked: list[ConfigError] = field(default_factory=list)
    #: Tables that were left out whole, so that there may be more in them.
    skipped: list[str] = field(default_factory=list)
    #: What a person would want to know of the state directory.
    notes: list[str] = field(default_factory=list)
    #: Whether there may be more faults than are told.
    has_more: bool = False

    def is_out_of_reach(self, table: str, *keys: str) -> bool:
        """Whether what stands at one of these keys, or below it, could not be looked at."""
        unchecked = [_parts(fault.key_path) for fault in self.unchecked]
        return any(parts[: len(at)] == at for key in keys for at in [[*_parts(table), key]] for parts in unchecked)


def look_at(document: Mapping[str, Any], environ: Mapping[str, str], *, file: str) -> Findings:
    """Look at a whole configuration, and at the state directory that it names. Nothing is written."""
    found, left, told = Findings(), deepcopy(dict(document)), set[tuple[str, ...]]()
    while not found.has_more:
        try:
            found.config = parse(left, environ, file=file)
        except ConfigError as fault:
            path = _parts(fault.key_path)
            if not _follows(fault, path, told):
                told.add(tuple(path))
                (found.unchecked if _is_out_of_reach(fault) else found.faults).append(fault)
                found.has_more = len(told) >= MAX_FAULTS
            if _take_out(left, path):
                continue
            # Missing, or of no use without what was taken out: its table goes as a whole.
            if len(path) < 2 or not _take_out(left, path[:-1]):
                break
            found.skipped.append(fault.key_path.rpartition(".")[0])
        else:
            _look_at_places(found, found.config)
            break
    return found


def _follows(fault: ConfigError, path: list[str], told: set[tuple[str, ...]]) -> bool:
    """Whether a fault is only there because of what was told, and taken out, before it: there, below, or beside it."""
    others = map(_parts, fault.others) if isinstance(fault, SettingsAtOdds) else ()
    return any(list(at[: len(place)]) == place for place in (path, *others) for at in told)


def _is_out_of_reach(fault: ConfigError) -> bool:
    return isinstance(fault, CredentialAbsent) or isinstance(fault.__cause__, PermissionError)


def _parts(key_path: str) -> list[str]:
    """The keys on the way to a value; an element of a list stands for the list, whose other places would move."""
    parts = [part for part in _PART.findall(key_path) if not part.startswith("[")]
    return [str(json.loads(part)) if part.startswith('"') else part for part in parts]


def _take_out(table: dict[str, Any], path: list[str]) -> bool:
    *tables, key = path or [""]
    at: Any = table
    for name in tables:
        at = at.get(name) if isinstance(at, dict) else None
    if not isinstance(at, dict) or key not in at:
        return False
    del at[key]
    return True


def _look_at_places(found: Findings, config: Config) -> None:
    folder = config.state_dir
    try:
        mode = folder.stat().st_mode
    except FileNotFoundError:
        found.notes.append(f"{folder.absolute()} is not there yet; the first start makes it")
    except OSError as fault:
        found.faults.append(ConfigError(config.file, "state_dir", f"{folder}: {fault.strerror}", "a directory"))
    else:
        if not stat.S_ISDIR(mode):
            found.faults.append(ConfigError(config.file, "state_dir", f"{folder}, which is none", "a directory"))
        elif not os.access(folder, os.R_OK | os.X_OK):
            found.notes.append(f"{folder.absolute()} cannot be looked into by this user")
        else:
            if mode & 0o077:
                found.notes.append(f"{folder.absolute()} can be looked into by others; it should be of mode 0700")
            _look_at_own_secrets(found, config)
    if isinstance(config.api, SocketPath) and (unfit := unix_socket.fault_of(config.api.path)) is not None:
        _look_at_socket(found, config, config.api.path, unfit)


def _look_at_own_secrets(found: Findings, config: Config) -> None:
    looks: list[Callable[[], object]] = []
    if config.api_token is None and not found.is_out_of_reach("api", "token"):
        looks.append(lambda: own_secrets.own_token(config, config.state_dir / TOKEN_FILE))
    if config.audit_key is None and not found.is_out_of_reach("audit", "key"):
        looks.append(lambda: own_secrets.own_audit_key(config.state_dir / own_secrets.AUDIT_KEY_FILE))
    for look in looks:
        try:
            look()
        except ConfigError as fault:
            found.faults.append(fault)
        except OSError as fault:
            found.notes.append(f"{fault.filename} could not be read: {fault.strerror}")


def _look_at_socket(found: Findings, config: Config, path: Path, unfit: tuple[str, str]) -> None:
    if path.parent.exists():
        found.faults.append(ConfigError(config.file, "api.listen", *unfit))
    else:
        found.notes.append(f"{path.parent} is not there now; it must be at the start (the unit's RuntimeDirectory)")

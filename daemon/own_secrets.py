"""Secrets that the daemon makes for itself on its first start: the API's token, and the key that signs checkpoints."""

import os
from pathlib import Path

from daemon.config import Config
from reconcile.checkpoint import AuditKey
from reconcile.errors import ConfigError, SecretInvalid
from reconcile.seams import Dice

TOKEN_FILE = "api-token"  # noqa: S105 - a file's name
AUDIT_KEY_FILE = "audit.key"


def api_token(config: Config, dice: Dice) -> str:
    """The configured token, else one of our own. Raises: ConfigError, OSError."""
    if config.api_token is not None:
        return config.api_token
    path = config.state_dir / TOKEN_FILE
    return _read(path) or _make(path, dice.identifier("") + dice.identifier(""))


def audit_key(config: Config, dice: Dice) -> AuditKey:
    """The configured key, else one of our own. Raises: ConfigError, OSError."""
    if config.audit_key is not None:
        return config.audit_key
    path = config.state_dir / AUDIT_KEY_FILE
    pem = _read(path)
    try:
        return AuditKey.read(pem or _make(path, AuditKey.made(dice.seed()).pem()))
    except SecretInvalid as fault:
        raise ConfigError(str(path), "", str(fault), "an Ed25519 private key in PEM form") from fault


def _read(path: Path) -> str | None:
    """A secret of ours; None where there is none yet. Raises: ConfigError, OSError."""
    if not path.exists() or not path.stat().st_size:
        return None
    if path.stat().st_mode & 0o077:
        raise ConfigError(str(path), "", "a secret that others can read", "mode 0600")
    return path.read_text(encoding="ascii").strip()


def _make(path: Path, secret: str) -> str:
    """Keep a new secret, readable by its owner only: there whole or not at all. Raises: OSError."""
    temp = path.parent / "tmp" / path.name
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "w", encoding="ascii") as file:  # noqa: PTH123 - by descriptor
        file.write(secret.strip() + "\n")
        file.flush()
        os.fsync(file.fileno())
    temp.rename(path)
    return secret

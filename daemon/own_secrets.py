"""Secrets that the daemon makes for itself on its first start: the API's token, and the key that signs checkpoints."""

from pathlib import Path

from daemon import given_file
from daemon.api_config import TOKEN_EXPECTED, TOKEN_FILE, TWIN_EXPECTED, token_fault, twin
from daemon.config import Config
from handlers.access import Token
from reconcile.checkpoint import AuditKey
from reconcile.errors import ConfigError, SecretInvalid
from reconcile.files import Files
from reconcile.seams import Dice

AUDIT_KEY_FILE = "audit.key"


def api_tokens(config: Config, files: Files, dice: Dice) -> tuple[Token, ...]:
    """The first token, configured or one of our own, and the named ones. Raises: ConfigError, OSError."""
    if config.api_token is not None:
        return (Token(None, config.api_token), *config.api_tokens)
    path = files.path(TOKEN_FILE)
    token = own_token(config, path) or _make(files, TOKEN_FILE, dice.identifier("") + dice.identifier(""))
    return (Token(None, token), *config.api_tokens)


def own_token(config: Config, path: Path) -> str | None:
    """The token that an earlier start made; None where there is none yet. Raises: ConfigError, OSError."""
    token = _read(path)
    if not token:
        return None
    if (found := token_fault(token)) is not None:
        raise ConfigError(str(path), "", found, TOKEN_EXPECTED)
    for other in config.api_tokens:
        if other.value == token:
            raise ConfigError(config.file, f"api.tokens.{other.name}.token", twin(Token(None, "")), TWIN_EXPECTED)
    return token


def audit_key(config: Config, files: Files, dice: Dice) -> AuditKey:
    """The configured key, else one of our own. Raises: ConfigError, OSError."""
    if config.audit_key is not None:
        return config.audit_key
    made = own_audit_key(files.path(AUDIT_KEY_FILE))
    if made is None:
        made = AuditKey.made(dice.seed())
        _make(files, AUDIT_KEY_FILE, made.pem())
    return made


def own_audit_key(path: Path) -> AuditKey | None:
    """The key that an earlier start made; None where there is none yet. Raises: ConfigError, OSError."""
    pem = _read(path)
    try:
        return None if not pem else AuditKey.read(pem)
    except SecretInvalid as fault:
        raise ConfigError(str(path), "", str(fault), "an Ed25519 private key in PEM form") from fault


def _read(path: Path) -> str | None:
    """A secret of ours; None where there is none yet. Raises: ConfigError, OSError."""
    if not path.exists():
        return None
    if path.stat().st_mode & 0o077:
        raise ConfigError(str(path), "", "a secret that others can read", "mode 0600")
    try:
        return given_file.read(path, given_file.MAX_SECRET).decode("ascii").strip() or None
    except OSError as fault:
        if fault.errno is not None:
            raise
        raise ConfigError(str(path), "", str(fault), "the secret as it was written") from fault
    except UnicodeDecodeError:  # whose words show what stands there
        raise ConfigError(str(path), "", "bytes that are no ASCII text", "the secret as it was written") from None


def _make(files: Files, name: str, secret: str) -> str:
    """Keep a new secret, readable by its owner only: there whole or not at all, before anything stands under it.

    Raises: OSError.
    """
    files.keep(name, secret.strip().encode("ascii") + b"\n")
    return secret

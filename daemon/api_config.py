"""`[api]` of the configuration: where the local API listens, which tokens open it, and what each may do."""

from pathlib import Path
from typing import Final

from daemon.addresses import Listener, SocketPath, local_listener
from daemon.sections import Section
from handlers.access import ANONYMOUS, Right, Token
from reconcile.addresses import is_loopback

#: Characters of a token at least. 16: hexadecimal ones, the poorest that people use, then have 64 bits, which a local
#: program that tries ten thousand a second needs millions of years for.
MIN_TOKEN: Final = 16
#: Where the API listens unless the configuration says otherwise.
DEFAULT_API: Final = "127.0.0.1:8787"
#: The token that the daemon makes for itself, in its state directory.
TOKEN_FILE: Final = "api-token"  # noqa: S105 - a file's name
_ANY_INTERFACE: Final = "any_interface"
TOKEN_EXPECTED: Final = (
    f"a token of at least {MIN_TOKEN} characters of printable ASCII, none at its ends a blank, such as"
    " `head -c 32 /dev/urandom | base64` makes"
)
TWIN_EXPECTED: Final = "a value of its own, so that the history can tell who asked"


def api_place(api: Section) -> tuple[Listener | SocketPath, tuple[str, ...]]:
    """Where the local API listens, and which keys change nothing there. Raises: ConfigError.

    It is on this machine, unless the network was asked for by name.
    """
    place = local_listener(api, DEFAULT_API)
    unsafe = api.words("unsafe", _ANY_INTERFACE) or frozenset()
    if isinstance(place, SocketPath) or is_loopback(place.host):
        return place, (("api.unsafe",) if unsafe else ())
    if _ANY_INTERFACE not in unsafe:
        expected = f'a loopback address or unix:/PATH; the network takes unsafe = ["{_ANY_INTERFACE}"] beside it'
        raise api.at_odds("listen", api.shown(str(place)), expected, "unsafe")
    return place, ()


def first_token(api: Section, state_dir: Path) -> str | None:
    """The token that may everything; None: the daemon makes one of its own. Raises: ConfigError."""
    token = api.secret_or_none("token", base=state_dir)
    return None if token is None else _usable(api, token)


def named_tokens(api: Section, state_dir: Path, first: str | None) -> tuple[Token, ...]:
    """`[api.tokens.NAME]`, each with a value of its own. Raises: ConfigError."""
    tokens: list[Token] = []
    for name, section in api.sections("tokens"):
        if name == ANONYMOUS:
            raise section.fault_here(f"the name {name}", "another: the history says so where nobody is named")
        may = section.words("may", *Right)
        if may is not None and not may:
            raise section.fault("may", "an empty list", f"some of {', '.join(Right)}; without `may` it may everything")
        value = _usable(section, section.secret("token", base=state_dir))
        for other in ([Token(None, first)] if first is not None else []) + tokens:
            if other.value == value:
                raise section.fault("token", twin(other), TWIN_EXPECTED)
        tokens.append(Token(name, value, frozenset(map(Right, Right if may is None else may))))
    return tuple(tokens)


def twin(other: Token) -> str:
    """What is wrong with a token whose value another one has."""
    return f"the value of {'the first token' if other.name is None else f'the token {other.name}'}"


def token_fault(token: str) -> str | None:
    """Why nobody could come in by this token, or too many could; None where it is well."""
    if len(token) < MIN_TOKEN:
        return f"a token of {len(token)} characters"
    if not token.isascii() or not token.isprintable():
        return "a token with characters that no header can carry"
    if token != token.strip():
        return "a token with blanks at its ends, which no header keeps"
    return None


def _usable(section: Section, token: str) -> str:
    if (found := token_fault(token)) is not None:
        raise section.fault("token", found, TOKEN_EXPECTED)
    return token

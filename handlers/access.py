"""Who may use the local API, and for what: the listener's own Host, no foreign page, a token, and what it may do."""

import hmac
import ipaddress
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from aiohttp import web
from multidict import CIMultiDictProxy

from handlers import refusals
from handlers.problem import Gate, Refused

#: Answered without a token: liveness tells nothing.
_OPEN: Final = frozenset({"/healthz"})
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
_READS: Final = ("GET", "HEAD")
#: The port that a Host header leaves out.
_HTTP_PORT: Final = 80
#: Who is told to have asked where nobody said so; no token bears this name.
ANONYMOUS: Final = "anonymous"


class Right(StrEnum):
    """What a token may be for."""

    READ = "read"
    START = "start"
    DECIDE = "decide"


@dataclass(frozen=True, slots=True)
class Token:
    """One token that opens the API. `name` None: the first one, which may everything."""

    name: str | None
    value: str = field(repr=False)
    may: frozenset[Right] = frozenset(Right)


_HELD: Final = web.RequestKey("held", Token)
#: Names of all tokens: what the first one's callers say must read as none of them.
_NAMES: Final = web.RequestKey("names", frozenset)


def gate(tokens: Sequence[Token], hosts: Container[str]) -> Gate:
    """Refuses a foreign Host (DNS rebinding), a foreign Origin, whoever holds no token, and what that token may not.

    In that order: who is refused for one reason learns nothing of the next.
    """
    expected = [(token, f"Bearer {token.value}".encode()) for token in tokens]
    names = frozenset(token.name for token in tokens if token.name is not None)

    def pass_or_refuse(request: web.Request) -> None:
        headers = request.headers
        asked = [host.lower() for host in headers.getall("Host", ())]
        if len(asked) != 1 or asked[0] not in hosts:
            raise Refused(refusals.WRONG_HOST)
        if ("Origin" in headers or "Sec-Fetch-Site" in headers) and _is_foreign_page(headers, asked[0]):
            raise Refused(refusals.FOREIGN_PAGE)
        if request.path in _OPEN:
            return
        given = headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        # Each of them, whichever it is: the time tells neither how much was right nor which one it was.
        held = [token for token, value in expected if hmac.compare_digest(given, value)]
        if not held:
            raise Refused(refusals.NO_TOKEN, headers={"WWW-Authenticate": "Bearer"})
        needed = right_for(request)
        if needed not in held[0].may:
            raise Refused(refusals.LACKS_RIGHT, name=held[0].name, right=needed)
        request[_HELD], request[_NAMES] = held[0], names

    return pass_or_refuse


def right_for(request: web.Request) -> Right:
    """The right that a request needs, by its method and path alone, whether or not there is such a thing."""
    if request.method in _READS:
        return Right.READ
    # The route that was found, where one was: a path can be spelled in more than one way.
    resource = request.match_info.route.resource
    path = request.path if resource is None else resource.canonical
    return Right.DECIDE if path.endswith("/decisions") else Right.START


def client_actor(request: web.Request, said: str | None) -> str:
    """The history's word for whoever asks for work: `client:CALLER`, `client:NAME` or `client:NAME/CALLER`."""
    return f"client:{signed(request, said)}"


def person_actor(request: web.Request, said: str) -> str:
    """The history's word for whoever decides: `person:BY` or `person:NAME/BY`."""
    return f"person:{signed(request, said)}"


def caller(request: web.Request, said: str | None) -> str | None:
    """Whose the work is: what was said, else the name of the token; None where neither is known."""
    return said or request[_HELD].name


def signed(request: web.Request, said: str | None) -> str:
    """What was said of oneself, under the name of the token that was held.

    A named token's name always stands first, and no name holds a slash, so that none reads as another. What the first
    token's holder says stands as it is, but for what would read as a named token's: that is put behind a slash.
    """
    name, names = request[_HELD].name, request[_NAMES]
    if name is not None:
        return f"{name}/{said}" if said else name
    if not said:
        return ANONYMOUS
    return f"/{said}" if said.partition("/")[0] in names else said


def own_hosts(host: str, port: int) -> Container[str]:
    """The Host values of a listener: its own name and, on loopback, the other names of loopback.

    One that listens on every interface is also known by any address: a foreign page cannot make a browser believe that
    an address is its own, as it can with a name (DNS rebinding), so that names are taken only as they are configured.
    """
    names = frozenset({host.lower() if ":" not in host else f"[{host.lower()}]", *_LOOPBACK_NAMES})
    own = frozenset(f"{name}:{port}" for name in names) | (names if port == _HTTP_PORT else frozenset())
    return _AnyAddress(own, port) if host in ("0.0.0.0", "::") else own  # noqa: S104 - compared, not bound


#: The Host values of a Unix socket, to which no browser connects: what curl and our own client send.
SOCKET_HOSTS: Final = frozenset({"localhost"})


@dataclass(frozen=True, slots=True)
class _AnyAddress(Container[str]):
    """The names of a listener on every interface: its own, and each address with its port."""

    names: frozenset[str]
    port: int

    def __contains__(self, host: object) -> bool:
        if host in self.names:
            return True
        name, _, port = str(host).rpartition(":")
        if self.port == _HTTP_PORT and port != str(_HTTP_PORT):
            name, port = str(host), str(_HTTP_PORT)
        return port == str(self.port) and _is_address(name)


def _is_address(host: str) -> bool:
    is_bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ipaddress.ip_address(host[1:-1] if is_bracketed else host)
    except ValueError:
        return False
    return is_bracketed == (address.version == 6)


def _is_foreign_page(headers: CIMultiDictProxy[str], own: str) -> bool:
    """Whether a browser says so; its own page is the one under the very Host that it asks now."""
    sites = headers.getall("Sec-Fetch-Site", [])
    origins = [o.removeprefix("http://").removeprefix("https://") for o in headers.getall("Origin", [])]
    return any(site not in ("none", "same-origin") for site in sites) or any(o.lower() != own for o in origins)

"""Who may use the local API: the listener's own Host, no foreign page, and a holder of the token."""

import hmac
from typing import Any, Final

from aiohttp import web

from handlers.problem import Handler, problem

#: Answered without a token: liveness tells nothing.
_OPEN: Final = frozenset({"/healthz"})
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")


def middleware(token: str, hosts: frozenset[str]) -> Any:
    """Refuses a foreign Host (DNS rebinding), a foreign Origin, and whoever does not hold the token, in that order."""
    expected = f"Bearer {token}".encode()

    @web.middleware
    async def access(request: web.Request, handler: Handler) -> web.StreamResponse:
        if len(request.headers.getall("Host", ())) != 1 or request.headers["Host"].lower() not in hosts:
            return problem(421, "Misdirected request", "This listener does not answer for that Host.")
        if _is_foreign_page(request, hosts):
            return problem(403, "Forbidden", "Pages of other origins may not call this API.")
        if request.path not in _OPEN:
            given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(given, expected):
                answer = problem(401, "Unauthorized", "Send the token of the state directory as a bearer token.")
                answer.headers["WWW-Authenticate"] = "Bearer"
                return answer
        return await handler(request)

    return access


def client_actor(request: web.Request, said: str | None) -> str:  # noqa: ARG001 - who holds a token of which name
    """Who asks, as history names it: what they say of themselves."""
    return f"client:{said or 'anonymous'}"


def own_hosts(host: str, port: int) -> frozenset[str]:
    """The Host values of a listener: its own name and, on loopback, the other names of loopback."""
    names = {host if ":" not in host else f"[{host}]", *_LOOPBACK_NAMES}
    return frozenset(f"{name}:{port}" for name in names)


def _is_foreign_page(request: web.Request, hosts: frozenset[str]) -> bool:
    sites = request.headers.getall("Sec-Fetch-Site", [])
    origins = [o.removeprefix("http://").removeprefix("https://") for o in request.headers.getall("Origin", [])]
    return any(site not in ("none", "same-origin") for site in sites) or any(o.lower() not in hosts for o in origins)

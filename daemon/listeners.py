"""The two listeners: how an address is taken, and how each treats those who connect to it.

What they serve is put together elsewhere. The public one meets strangers and is strict with whoever dawdles; the local
one meets holders of the token, who may wait for minutes.
"""

import asyncio
import logging
import socket
import ssl
import warnings
from collections.abc import Container, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_runner import BaseSite

from daemon import unix_socket
from daemon.addresses import Listener, SocketPath
from daemon.config import Config
from handlers.access import SOCKET_HOSTS, own_hosts
from handlers.api.start_form import WARNED_OF
from reconcile.errors import ConfigError

#: Seconds that requests under way at a stop get to end; waits are cut off and may be asked again.
STOP_SECONDS: Final = 2
#: Seconds until a public connection must have sent a whole header, counted from its start and after each answer. 10:
#: S17. aiohttp counts its keep-alive from the start of a connection (3.14), so one number holds for silence, for half
#: a header and for a header that drips; a proxy in front that keeps connections longer opens another.
HEADER_SECONDS: Final = 10
#: Seconds that the unread rest of a public request is read on after the answer. 1: enough for the answer to arrive
#: before the connection is reset; whoever drips on gets no more of us.
LINGER_SECONDS: Final = 1


def raise_what_aiohttp_warns_of() -> None:
    """Of a form's header that it cannot read it warns, on stderr in the stranger's words; our reader catches it.

    Holds for the whole process, so that it is said once, where a daemon is set up in one.
    """
    for category in WARNED_OF:
        warnings.filterwarnings("error", category=category)


@contextmanager
def taken(config: Config) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The local and the public address, taken before anything is opened, so that one that is not free is told first.

    Closed afterwards also where a start fails further on. Raises: ConfigError, OSError.
    """
    with _taken(config.api, config.file) as api, _taken(config.webhooks, config.file) as webhooks:
        yield api, webhooks


@contextmanager
def _taken(place: Listener | SocketPath, file: str) -> Iterator[socket.socket]:
    if isinstance(place, SocketPath) and (unfit := unix_socket.fault_of(place.path)) is not None:
        raise ConfigError(file, "api.listen", *unfit)
    with ExitStack() as stack:
        try:
            sock = stack.enter_context(
                unix_socket.taken(place.path) if isinstance(place, SocketPath) else _bound(place)
            )
        except OSError as fault:
            raise OSError(fault.errno, f"cannot listen on {place}: {fault.strerror}") from fault
        yield sock


def _bound(listener: Listener) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((listener.host, listener.port))
    except OSError:
        sock.close()
        raise
    return sock


def hosts_of(place: Listener | SocketPath, sock: socket.socket) -> Container[str]:
    """The Host values that the local API answers for."""
    return SOCKET_HOSTS if isinstance(place, SocketPath) else own_hosts(place.host, sock.getsockname()[1])


def make_runner(app: web.Application, *, public: bool, log: Any) -> web.AppRunner:
    """A server for `app`, not yet listening; what goes wrong below the handlers is told to `log`."""
    how: dict[str, Any] = (
        # Unpacked by nobody: each Content-Encoding gets its 415 from the handler, also those aiohttp cannot unpack.
        {"auto_decompress": False, "keepalive_timeout": HEADER_SECONDS, "lingering_time": LINGER_SECONDS}
        if public
        # A waiter whose client went away is let go at once. Not so in public: what is being kept stays being kept.
        else {"handler_cancellation": True}
    )
    logger = _server_logger(log, "webhooks" if public else "api")
    return web.AppRunner(
        app, access_log=None, handle_signals=False, shutdown_timeout=STOP_SECONDS, logger=logger, **how
    )


async def listen(runner: web.AppRunner, sock: socket.socket, tls: ssl.SSLContext | None = None) -> str:
    """Serve on a taken address; gives it as a URL, or as unix:/PATH."""
    await runner.setup()
    await _Site(runner, sock, ssl_context=tls).start()
    if sock.family == socket.AF_UNIX:
        return f"unix:{sock.getsockname()}"
    host, port = sock.getsockname()[:2]
    return f"{'http' if tls is None else 'https'}://{Listener(host, port)}"


class _Site(web.SockSite):
    """A site whose TLS handshake takes no longer than a header may: aiohttp leaves it asyncio's minute (S17)."""

    async def start(self) -> None:
        await BaseSite.start(self)
        server = self._runner.server
        if server is None:
            raise RuntimeError("a runner serves once it was set up")
        how: dict[str, Any] = {} if self._ssl_context is None else {"ssl_handshake_timeout": HEADER_SECONDS}
        self._server = await asyncio.get_running_loop().create_server(
            server, sock=self._sock, ssl=self._ssl_context, backlog=self._backlog, **how
        )


def _server_logger(log: Any, listener: str) -> logging.Logger:
    logger = logging.Logger("aiohttp.server", logging.INFO)  # noqa: LOG001 - unregistered: a daemon's own, not global
    logger.addHandler(_IntoLog(log, listener))
    return logger


class _IntoLog(logging.Handler):
    """What aiohttp would write to stderr by itself, as one event each.

    A request that is no HTTP is its sender's fault: no traceback, and nothing of the sender's own words.
    """

    def __init__(self, log: Any, listener: str) -> None:
        super().__init__()
        self._log = log.bind(listener=listener)

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one record on."""
        fault = record.exc_info[1] if record.exc_info else None
        if isinstance(fault, HttpProcessingError | web.RequestPayloadError):
            self._log.warning("request_unreadable", fault=type(fault).__name__)
        else:
            self._log.error("request_failed", what=record.getMessage(), exc_info=fault)

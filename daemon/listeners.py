"""The two listeners: how an address is taken, and how each treats those who connect to it.

What they serve is put together elsewhere. The public one meets strangers and is strict with whoever dawdles; the local
one meets holders of the token, who may wait for minutes.
"""

import logging
import socket
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from daemon.config import Listener

#: Seconds that requests under way at a stop get to end; waits are cut off and may be asked again.
STOP_SECONDS: Final = 2
#: Seconds until a public connection must have sent a whole header, counted from its start and after each answer. 10:
#: S17. aiohttp counts its keep-alive from the start of a connection (3.14), so one number holds for silence, for half
#: a header and for a header that drips; a proxy in front that keeps connections longer opens another.
HEADER_SECONDS: Final = 10
#: Seconds that the unread rest of a public request is read on after the answer. 1: enough for the answer to arrive
#: before the connection is reset; whoever drips on gets no more of us.
LINGER_SECONDS: Final = 1


def bind(listener: Listener) -> socket.socket:
    """Take the address before anything is opened, so that a taken port is told first. Raises: OSError."""
    sock = socket.socket(socket.AF_INET6 if ":" in listener.host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((listener.host, listener.port))
    except OSError as fault:
        sock.close()
        raise OSError(fault.errno, f"cannot listen on {listener.host}:{listener.port}: {fault.strerror}") from fault
    return sock


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


async def listen(runner: web.AppRunner, sock: socket.socket) -> str:
    """Serve on a taken address; gives it as a URL."""
    await runner.setup()
    await web.SockSite(runner, sock).start()
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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

"""Addresses in the configuration: where we listen, and where others are found."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from yarl import URL

from daemon.sections import Section
from reconcile.redact import redact_url

#: A host as it is sent: a name, in Punycode where it is not ASCII, or an address. What parses URLs takes anything.
_HOST: Final = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?")
_UNIX: Final = "unix:"
#: Bytes of a socket's path. 107: what Linux takes beside the NUL at its end (unix(7)).
MAX_SOCKET_PATH: Final = 107


@dataclass(frozen=True, slots=True)
class Listener:
    """A host and port to listen on; port 0 lets the system choose."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> "Listener | None":
        """`HOST:PORT` or `[HOST]:PORT`; None where it is neither."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or len(port) > 5 or int(port) > 65535:
            return None
        return cls(host, int(port)) if _HOST.fullmatch(host) else None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class SocketPath:
    """A Unix socket in the file system."""

    path: Path

    @classmethod
    def read(cls, text: str) -> "SocketPath | None":
        """`unix:/PATH`; None where it is none, or longer than a socket's path can be."""
        path = text.removeprefix(_UNIX)
        is_path = text.startswith(_UNIX) and path.startswith("/") and path.isprintable() and not path.endswith("/")
        return cls(Path(path)) if is_path and len(path.encode()) <= MAX_SOCKET_PATH else None

    def __str__(self) -> str:
        return f"{_UNIX}{self.path}"


def is_unix(text: str) -> bool:
    """Whether this means a Unix socket, be it right or wrong."""
    return text.startswith(_UNIX)


def listener(section: Section, default: str) -> Listener:
    """`listen`, as HOST:PORT. Raises: ConfigError."""
    value = section.text("listen", default)
    found = Listener.read(value)
    if found is None:
        raise section.fault("listen", section.shown(value), f"HOST:PORT, such as {default}")
    return found


def local_listener(section: Section, default: str) -> Listener | SocketPath:
    """`listen`, as HOST:PORT or unix:/PATH. Raises: ConfigError."""
    value = section.text("listen", default)
    found = SocketPath.read(value) if is_unix(value) else Listener.read(value)
    if found is None:
        expected = f"a loopback HOST:PORT, such as {default}, or unix:/PATH of {MAX_SOCKET_PATH} bytes at most"
        raise section.fault("listen", section.shown(value), expected)
    return found


def address(section: Section, key: str, text: str) -> URL:
    """A URL that is somebody's place: nothing in it but scheme, host, port and path. Raises: ConfigError."""
    try:
        url = URL(text)
    except ValueError:
        url = URL("")
    is_bare = not (url.user or url.password or url.query_string or url.fragment)
    if url.scheme not in ("http", "https") or not _HOST.fullmatch(url.raw_host or "") or not is_bare:
        expected = "an http or https URL without user, password, query or fragment"
        raise section.fault(key, _address_shown(section, text), expected)
    return url


def _address_shown(section: Section, text: str) -> str:
    """An address as it may stand in an error: a password in it, or a token in its query, is not for the log."""
    shown = redact_url(text)
    return section.shown(shown) if shown == text else f"{section.shown(shown)}, with more in it that is not shown"

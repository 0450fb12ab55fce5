"""How the client commands find the daemon and talk to its local API."""

import argparse
import errno
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp.client_exceptions import UnixClientConnectorError
from yarl import URL

from daemon import given_file
from daemon.addresses import Listener, SocketPath, is_unix, local_listener
from daemon.api_config import DEFAULT_API, TOKEN_FILE
from daemon.document import configuration_file, opened, state_dir_of, variable
from daemon.sections import Section
from reconcile.errors import ConfigError

#: Seconds for an answer that is not a wait.
ANSWER_SECONDS: Final = 30
#: Seconds of silence after which a stream is taken for dead. 45: three heartbeats of the daemon's.
SILENCE_SECONDS: Final = 45
#: What comes of a body that is JSON and has another shape than the daemon's, wherever it is first used.
MISREAD: Final = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)


class Unreachable(Exception):
    """The daemon could not be found, asked or understood; the words say what to do."""


class NotListening(Unreachable):
    """No connection was made, so that nothing of the question arrived."""


class NotPermitted(Unreachable):
    """Whoever asks may not read the token, or not use the socket."""


class WrongUsage(Exception):
    """What was given on the command line, or in its variables, cannot be used."""


class Refused(Exception):
    """The daemon answered with a problem document."""

    def __init__(self, status: int, problem: Mapping[str, Any], *, source: str = "its file") -> None:
        self.status, self.problem = status, problem
        if status == 401:
            super().__init__(f"the daemon does not take the token in {source}; is it the one of its state_dir?")
            return
        errors = problem.get("errors")
        each = [e for e in errors if isinstance(e, dict)] if isinstance(errors, list) else []
        details = "; ".join(f"{e.get('pointer') or '/'}: {e.get('message')}" for e in each)
        super().__init__(details or str(problem.get("detail") or problem.get("title") or "refused"))


def read_answer(data: bytes | str) -> Any:
    """The one door for what is answered: JSON in UTF-8, whatever the answer says of itself. Raises: ValueError."""
    try:
        return json.loads(data if isinstance(data, str) else data.decode("utf-8"))
    except RecursionError as fault:
        raise ValueError("nested too deep") from fault


@dataclass(frozen=True, slots=True)
class Place:
    """Where the daemon listens, and the token that opens it."""

    url: str
    token: str
    #: Where the token was read, in words.
    source: str = "its file"
    #: The Unix socket behind `url`; None: `url` itself is dialled.
    socket: Path | None = None

    @property
    def shown(self) -> str:
        """The address as a person gave it."""
        return self.url if self.socket is None else str(SocketPath(self.socket))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--json`; and in a group of their own `--url`, `--token-file`, `--config`."""
    parser.add_argument("--json", action="store_true", help="print the API's own body")
    place = parser.add_argument_group("where the daemon is")
    place.add_argument(
        "--url",
        default=variable("RECONCILED_URL"),
        metavar="URL",
        help="the local API, http://HOST:PORT or unix:/PATH; or $RECONCILED_URL",
    )
    place.add_argument(
        "--token-file",
        type=Path,
        default=variable("RECONCILED_TOKEN_FILE"),
        metavar="FILE",
        help="its token; or $RECONCILED_TOKEN_FILE",
    )
    place.add_argument(
        "--config",
        type=Path,
        default=configuration_file(),
        metavar="FILE",
        help="where both are looked up otherwise",
    )


def find(arguments: argparse.Namespace) -> Place:
    """The daemon these arguments mean. Raises: Unreachable, WrongUsage."""
    url, token_file = arguments.url, arguments.token_file
    place = None if url is None else _checked(url)
    if place is not None and token_file is not None:
        return _placed(place, _token_in(Path(token_file)), str(token_file))
    try:
        top = opened(arguments.config, os.environ)
        if top is None:
            raise Unreachable(f"no configuration at {arguments.config}; give --config, or --url and --token-file")
        place = place or _dialled(local_listener(top.section("api"), DEFAULT_API))
        token, source = (_token_in(Path(token_file)), str(token_file)) if token_file else _own_token(top)
    except ConfigError as fault:
        raise Unreachable(str(fault)) from fault
    return _placed(place, token, source)


def _placed(place: str | SocketPath, token: str, source: str) -> Place:
    if isinstance(place, SocketPath):
        return Place("http://localhost", token, source, place.path)
    return Place(place, token, source)


def _dialled(place: Listener | SocketPath) -> str | SocketPath:
    """Where a daemon that listens there is reached: on every interface means on this machine too."""
    if isinstance(place, SocketPath):
        return place
    mine = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
    return f"http://{Listener(mine.get(place.host, place.host), place.port)}"


def _checked(url: str) -> str | SocketPath:
    """An address of the API without its last slash. Raises: WrongUsage."""
    if is_unix(url.strip()):
        path = SocketPath.read(url.strip())
        if path is None:
            raise WrongUsage(f"--url (or $RECONCILED_URL): {url!r} is no socket; expected such as unix:/run/api.sock")
        return path
    try:
        parsed = URL(url.strip())
        is_usable = parsed.scheme in ("http", "https") and bool(parsed.host) and parsed.port is not None
    except ValueError:
        is_usable = False
    if not is_usable:
        raise WrongUsage(f"--url (or $RECONCILED_URL): {url!r} is no address; expected such as http://127.0.0.1:8787")
    return url.strip().rstrip("/")


def _own_token(top: Section) -> tuple[str, str]:
    """The token that a daemon of this configuration uses, and where it stands. Raises: ConfigError, Unreachable."""
    state_dir = state_dir_of(top, os.environ)
    api = top.section("api")
    if token := api.secret_or_none("token", base=state_dir):
        return token, f"api.token ({api.secret_name('token')})"
    return _token_in(state_dir / TOKEN_FILE), str(state_dir / TOKEN_FILE)


def _token_in(path: Path) -> str:
    try:
        token = given_file.read(path, given_file.MAX_SECRET).decode("utf-8").strip()
    except OSError as fault:
        kind = NotPermitted if isinstance(fault, PermissionError) else Unreachable
        raise kind(f"{path}: {fault.strerror or fault}; is the daemon's token there, and are you allowed?") from fault
    except UnicodeDecodeError as fault:
        raise Unreachable(f"{path}: this is no token: not UTF-8") from fault
    if not token or not token.isprintable():
        raise Unreachable(f"{path}: this is no token: empty, or of several lines")
    return token


class LocalApi:
    """The local API for one command."""

    def __init__(self, place: Place, session: aiohttp.ClientSession) -> None:
        #: Whether anything came back: what fails before that is no fault of an answer.
        self.has_answered = False
        self._place = place
        self._session = session

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        data: bytes | aiohttp.MultipartWriter | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = 0,
    ) -> dict[str, Any]:
        """One call; `seconds` it may be held by the daemon, None: the caller bounds it. Raises: Refused, Unreachable.

        `data` is JSON already, or a form.
        """
        kind = {"Content-Type": "application/json"} if isinstance(data, bytes) else {}
        timeout = aiohttp.ClientTimeout(
            total=None if seconds is None else seconds + ANSWER_SECONDS, sock_connect=ANSWER_SECONDS
        )
        try:
            async with self._session.request(
                method,
                self._place.url + path,
                json=body,
                data=data,
                headers={"Authorization": f"Bearer {self._place.token}", **kind, **(headers or {})},
                timeout=timeout,
                allow_redirects=False,  # the daemon sends nobody elsewhere, and the token goes nowhere else
            ) as response:
                document = await self._document(response)
                if not isinstance(document, dict):
                    raise Unreachable(
                        f"{self._place.shown}: answers {response.status} and no object; is it the daemon?"
                    )
                if response.status >= 300:
                    raise Refused(response.status, document, source=self._place.source)
                return document
        except (aiohttp.ClientError, TimeoutError, ValueError) as fault:
            raise self._unreachable(fault) from fault

    async def download(self, path: str, write: Callable[[bytes], Any]) -> None:
        """Pass the bytes that stand there to `write`, all of them or a fault. Raises: Refused, Unreachable, OSError."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_SECONDS, sock_read=ANSWER_SECONDS)
        headers = {"Authorization": f"Bearer {self._place.token}"}
        try:
            async with self._session.get(
                self._place.url + path, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise await self._refusal(response)
                async for chunk in response.content.iter_any():
                    write(chunk)
        except (aiohttp.ClientError, TimeoutError, ValueError) as fault:
            raise self._unreachable(fault) from fault

    async def stream(self, path: str, *, last_event_id: str | None = None) -> AsyncGenerator[bytes, None]:
        """The bytes of an event stream as they come, until the daemon ends it. Raises: Refused, Unreachable."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_SECONDS, sock_read=SILENCE_SECONDS)
        headers = {"Authorization": f"Bearer {self._place.token}", "Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        try:
            async with self._session.get(
                self._place.url + path, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status == 204:  # nothing is left to be told
                    return
                if response.status != 200:
                    raise await self._refusal(response)
                if response.content_type != "text/event-stream":
                    raise Unreachable(f"{self._place.shown}: answers {path} with no event stream; is it the daemon?")
                self.has_answered = True
                async for piece in response.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, TimeoutError, ValueError) as fault:
            raise self._unreachable(fault) from fault

    async def _refusal(self, response: aiohttp.ClientResponse) -> Refused:
        document = await self._document(response)
        problem = document if isinstance(document, dict) else {}
        return Refused(response.status, problem, source=self._place.source)

    async def _document(self, response: aiohttp.ClientResponse) -> Any:
        """Raises: ValueError, where it is no JSON."""
        document = read_answer(await response.read())
        self.has_answered = True
        return document

    def _unreachable(self, fault: Exception) -> Unreachable:
        where = self._place.shown
        if isinstance(fault, UnixClientConnectorError):
            if fault.os_error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                return NotListening(f"nothing listens on {where}; is the daemon running?")
            kind = NotPermitted if fault.os_error.errno == errno.EACCES else Unreachable
            return kind(f"{where}: {fault.os_error.strerror}; are you in the socket's group?")
        if isinstance(fault, aiohttp.ClientConnectorError) and fault.os_error.errno == errno.ECONNREFUSED:
            return NotListening(f"nothing listens on {fault.host}:{fault.port}; is the daemon running?")
        if isinstance(fault, aiohttp.ClientConnectorError):
            why = fault.os_error.strerror or fault.os_error
            return Unreachable(f"no connection to {fault.host}:{fault.port}: {why}; is the daemon running there?")
        if isinstance(fault, TimeoutError):
            return Unreachable(f"{where}: no answer in time; is the daemon running?")
        if isinstance(fault, aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
            return Unreachable(f"{where}: the connection was lost before the answer was whole; is the daemon running?")
        return Unreachable(f"{where}: answers with something that is not the daemon's JSON; is it the daemon?")


@asynccontextmanager
async def connect(place: Place) -> AsyncIterator[LocalApi]:
    """A session for one command."""
    connector = None if place.socket is None else aiohttp.UnixConnector(str(place.socket))
    async with aiohttp.ClientSession(connector=connector) as session:
        yield LocalApi(place, session)

"""How the client commands find the daemon and talk to its local API."""

import argparse
import os
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from daemon.sections import DEFAULT_FILE, Section, Sources
from reconcile.errors import ConfigError

#: Seconds for an answer that is not a wait.
ANSWER_SECONDS: Final = 30


class Unreachable(Exception):
    """The daemon could not be found, asked or understood; the words say what to do."""


class Refused(Exception):
    """The daemon answered with a problem document."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status, self.problem = status, problem
        errors = problem.get("errors")
        each = [e for e in errors if isinstance(e, dict)] if isinstance(errors, list) else []
        details = "; ".join(f"{e.get('pointer') or '/'}: {e.get('message')}" for e in each)
        super().__init__(details or str(problem.get("detail") or problem.get("title") or "refused"))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the daemon listens, and the token that opens it."""

    url: str
    token: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--url`, `--token-file`, `--config`, `--json`."""
    parser.add_argument("--url", default=os.environ.get("RECONCILED_URL"), help="the local API; or $RECONCILED_URL")
    parser.add_argument(
        "--token-file",
        type=Path,
        default=os.environ.get("RECONCILED_TOKEN_FILE"),
        help="its token; or $RECONCILED_TOKEN_FILE",
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=Path(os.environ.get("RECONCILED_CONFIG", DEFAULT_FILE)),
        help="where both are looked up otherwise",
    )
    parser.add_argument("--json", action="store_true", help="print the API's own body")


def find(arguments: argparse.Namespace) -> Place:
    """The daemon these arguments mean. Raises: Unreachable."""
    url, token_file = arguments.url, arguments.token_file
    if url is not None and token_file is not None:
        return Place(url.rstrip("/"), _token_in(Path(token_file)))
    document = _read(arguments.config, needs="--url and --token-file")
    try:
        top = Section(document, "", Sources(str(arguments.config), os.environ))
        url = url or f"http://{top.section('api').text('listen', '127.0.0.1:8787')}"
        token = _token_in(Path(token_file)) if token_file else _own_token(top)
    except ConfigError as fault:
        raise Unreachable(str(fault)) from fault
    return Place(url.rstrip("/"), token)


def _own_token(top: Section) -> str:
    """The token that a daemon of this configuration uses. Raises: ConfigError, Unreachable."""
    state_dir = Path(top.text("state_dir", os.environ.get("STATE_DIRECTORY") or "reconciled-state"))
    return top.section("api").secret_or_none("token", base=state_dir) or _token_in(state_dir / "api-token")


def _token_in(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as fault:
        raise Unreachable(f"{path}: {fault.strerror}; is the daemon's token there, and are you allowed?") from fault
    except UnicodeDecodeError as fault:
        raise Unreachable(f"{path}: this is no token: not UTF-8") from fault
    if not token or not token.isprintable():
        raise Unreachable(f"{path}: this is no token: empty, or of several lines")
    return token


def _read(path: Path, *, needs: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as fault:
        raise Unreachable(f"no configuration at {path}; give --config, or {needs}") from fault
    except (OSError, ValueError) as fault:
        raise Unreachable(f"{path}: {fault}") from fault


class LocalApi:
    """The local API for one command."""

    def __init__(self, place: Place, session: aiohttp.ClientSession) -> None:
        self._place = place
        self._session = session

    async def call(
        self, method: str, path: str, *, body: Any = None, headers: Mapping[str, str] | None = None, seconds: float = 0
    ) -> dict[str, Any]:
        """One call; `seconds` it may be held by the daemon. Raises: Refused, Unreachable."""
        timeout = aiohttp.ClientTimeout(total=seconds + ANSWER_SECONDS)
        try:
            async with self._session.request(
                method,
                self._place.url + path,
                json=body,
                headers={"Authorization": f"Bearer {self._place.token}", **(headers or {})},
                timeout=timeout,
                allow_redirects=False,  # the daemon sends nobody elsewhere, and the token goes nowhere else
            ) as response:
                document = await response.json(content_type=None)
                if not isinstance(document, dict):
                    raise Unreachable(f"{self._place.url}: answers {response.status} and no object; is it the daemon?")
                if response.status >= 300:
                    raise Refused(response.status, document)
                return document
        except (aiohttp.ClientError, TimeoutError, ValueError) as fault:
            raise Unreachable(f"{self._place.url}: {fault or type(fault).__name__}; is the daemon running?") from fault


@asynccontextmanager
async def connect(place: Place) -> AsyncIterator[LocalApi]:
    """A session for one command."""
    async with aiohttp.ClientSession() as session:
        yield LocalApi(place, session)

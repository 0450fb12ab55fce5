"""A start as a form of two parts: `operation`, the start body without items, then `input`, its items as JSON lines.

The second is passed on as it comes and never held. Names of files, in the form's own headers, are not looked at.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeAlias

from aiohttp import BadContentDispositionHeader, BadContentDispositionParam, BodyPartReader, MultipartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from handlers import refusals
from handlers.api.body import BODY_SECONDS, in_time
from handlers.problem import Refused
from reconcile.errors import RequestInvalid
from reconcile.read_json import JsonValue, read_json
from reconcile.seams import Clock

FORM: Final = "multipart/form-data"
#: Bytes of a form that are passed on at once. 64 KiB: what a socket's buffer holds; some hundred items.
_CHUNK: Final = 65536
#: Seconds without a byte, and for the whole input, after which it is not waited for any more. 60 s as in each other
#: transfer; 1 h: arbitrary, a GiB at 300 KB a second.
IDLE_SECONDS: Final = 60
INPUT_SECONDS: Final = 3_600
#: What senders call bytes whose kind they do not know; curl and browsers among them.
_ANY: Final = frozenset({"", "application/octet-stream", "text/plain"})
_JSON: Final = _ANY | {"application/json"}
_JSON_LINES: Final = _ANY | {
    "application/jsonl",
    "application/x-jsonl",
    "application/jsonlines",
    "application/x-jsonlines",
    "application/json-lines",
    "application/ndjson",
    "application/x-ndjson",
}
#: Transfer encodings that change no byte (RFC 2045, 6.2).
_PLAIN: Final = frozenset({"binary", "8bit", "7bit"})
_KINDS: Final = {"operation": "application/json", "input": "application/jsonl"}
_ORDER: Final = "the form has two parts, operation and then input"
#: What aiohttp only warns of, on stderr and in the stranger's words, until whoever sets up the process has it raised.
WARNED_OF: Final = (BadContentDispositionHeader, BadContentDispositionParam)
#: What aiohttp's reader raises for a form that is none. Nothing but that reader runs where these are caught, else a
#: fault of ours would be told as the sender's.
_BROKEN: Final = (ValueError, RuntimeError, HttpProcessingError, web.RequestPayloadError, *WARNED_OF)
#: Characters of a foreign part's name that are told. Arbitrary.
_MOST_NAMED: Final = 64
_Part: TypeAlias = BodyPartReader | MultipartReader


class StartForm:
    """One form, read from its beginning to its end, once. Each step raises: Refused, HTTPException, RequestInvalid."""

    def __init__(self, request: web.Request, clock: Clock) -> None:
        self._request = request
        self._clock = clock
        self._reader: MultipartReader | None = None

    async def operation(self) -> JsonValue:
        """The JSON of the first part. Raises also: Unreadable."""
        if self._request.headers.getall("Content-Encoding", ()):
            raise Refused(refusals.CODED_FORM)
        async with in_time(BODY_SECONDS), _readable():
            self._reader = await self._request.multipart()
        part = _the(await self._next(BODY_SECONDS), "operation", _JSON)
        async with in_time(BODY_SECONDS), _readable():
            data = bytes(await part.read())
        return read_json(data)

    async def input(self) -> AsyncIterator[bytes]:
        """The bytes of the second part, as they come; its end comes only where the form ends whole."""
        ends_at = self._clock.monotonic() + INPUT_SECONDS
        part = _the(await self._next(BODY_SECONDS), "input", _JSON_LINES)
        while not part.at_eof():
            async with in_time(min(IDLE_SECONDS, ends_at - self._clock.monotonic())), _readable():
                chunk = await part.read_chunk(_CHUNK)
            if chunk:
                yield bytes(chunk)
        if (another := await self._next(IDLE_SECONDS)) is not None:
            raise RequestInvalid("", f"{_ORDER}; after them comes {_named(another)}")

    async def _next(self, seconds: float) -> _Part | None:
        if self._reader is None:
            raise RuntimeError("the operation comes first")
        async with in_time(seconds), _readable():
            return await self._reader.next()


@asynccontextmanager
async def _readable() -> AsyncIterator[None]:
    """Around aiohttp's reader alone: what it cannot make out is the sender's fault. Raises: RequestInvalid."""
    with _spelled():
        yield


@contextmanager
def _spelled() -> Iterator[None]:
    """The same, where nothing is waited for."""
    try:
        yield
    except _BROKEN as fault:
        raise RequestInvalid(
            "", "the form cannot be read: it is cut, or its boundaries do not fit", status=400
        ) from fault


def _the(part: _Part | None, name: str, kinds: frozenset[str]) -> BodyPartReader:
    """The part of that name, in plain bytes. Raises: RequestInvalid, Refused."""
    if part is None:
        raise RequestInvalid(f"/{name}", f"the part is missing: {_ORDER}")
    if _name_of(part) != name:
        raise RequestInvalid(f"/{name}", f"must come here: {_ORDER}; found {_named(part)}")
    kind, _, more = part.headers.get("Content-Type", "").lower().partition(";")
    is_text = not more or "charset" not in more or "utf-8" in more
    is_coded = part.headers.get("Content-Transfer-Encoding", "binary").lower() not in _PLAIN
    if not isinstance(part, BodyPartReader) or kind.strip() not in kinds or not is_text:
        raise Refused(refusals.PART_TYPE, name=name, kind=_KINDS[name])
    if is_coded or "Content-Encoding" in part.headers:
        raise Refused(refusals.CODED_PART, name=name)
    return part


def _name_of(part: _Part) -> str | None:
    """What its header calls it, which aiohttp reads only now. Raises: RequestInvalid."""
    with _spelled():
        return part.name if isinstance(part, BodyPartReader) else None


def _named(part: _Part) -> str:
    """A part as it is told: its name is a stranger's word."""
    name = _name_of(part)
    return "a part without a name" if name is None else f"a part named {name[:_MOST_NAMED]!a}"

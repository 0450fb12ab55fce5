"""The only room that sends. Time-outs, caps, credentials to the provider's own origin alone, rate, pause, trace.

No answer is interpreted here: an exchange is an answer or an error class, and whether it may have arrived.
"""

import asyncio
import hashlib
import os
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, Final

import aiohttp
from yarl import URL

from reconcile import inflate, limits, schedule
from reconcile.absence import origin_of
from reconcile.errors import NotSent, NotTried, OutcomeUnknown, ProviderError
from reconcile.files import CHUNK, Files
from reconcile.heads import CountedResponse
from reconcile.light_dataclass import light_dataclass
from reconcile.model import Operation, UnixMs
from reconcile.once import once
from reconcile.peer import Peer, Traced
from reconcile.provider import Headers, HttpRequest, HttpResponse, JsonLines, Multipart, Purpose
from reconcile.redact import Redactor
from reconcile.seams import Clock, Dice, Meters

#: Seconds for a whole request, by purpose. 30 and 60: arbitrary, above what the providers' own SDKs call slow.
READ_SECONDS: Final = 30
CREATE_SECONDS: Final = 60
#: Seconds without a byte of a result, and for a whole one. 60 s and 1 h: arbitrary; 16 GiB at five megabytes a second.
SILENCE_SECONDS: Final = 60
RESULT_SECONDS: Final = 3600
#: Bytes a second that an upload or a streamed create needs at least. 100 kB: arbitrary; 256 MB may take 45 minutes.
SLOWEST_BYTES: Final = 100_000
#: Seconds an unused connection is kept. 4: uvicorn, behind several providers, closes after 5, and a request that meets
#: the closing connection would leave a create unknown for nothing.
KEEPALIVE_SECONDS: Final = 4
#: What a request may end with instead of an answer.
FAULTS: Final = (aiohttp.ClientError, TimeoutError, OSError, ProviderError, ValueError)
#: What a URL can be made of (RFC 3986, 2).
_SPELLED: Final = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*")
#: Requests that may have an effect: given up too early, each leaves it unknown whether it had.
_WITH_EFFECT: Final = frozenset({Purpose.CREATE, Purpose.CANCEL, Purpose.INPUT})


@light_dataclass(frozen=True, slots=True)
class Exchange:
    """One request and what came of it: an answer, or an error whose class says whether it may have arrived."""

    request: HttpRequest
    sent_at: UnixMs
    ended_at: UnixMs
    response: HttpResponse | None = None
    error: ProviderError | None = None
    #: Name of the credential that was sent, never its value.
    credential: str | None = None

    @property
    def error_class(self) -> str | None:
        """The class of a missing answer."""
        return self.error.error_class if self.error else None


@dataclass(frozen=True, slots=True)
class Joined:
    """A `JsonLines` body piece by piece: each line's end becomes a comma, so that its length is known beforehand."""

    lines: JsonLines
    file: BinaryIO

    @property
    def size(self) -> int:
        """Bytes of the whole body: all but the last line's end."""
        return len(self.lines.prefix) + self._length() + len(self.lines.suffix)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The body's bytes. Raises: OSError."""
        yield self.lines.prefix
        left = self._length()
        while left > 0 and (chunk := self.file.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk.replace(b"\n", b",")
        yield self.lines.suffix

    def _length(self) -> int:
        return max(0, os.fstat(self.file.fileno()).st_size - 1)


Body = bytes | aiohttp.MultipartWriter | Joined | None


@dataclass(slots=True)
class Stream:
    """A result on its way: its head, and its bytes as they come. `chunks` raises OutcomeUnknown where it is cut."""

    status: int
    headers: Headers
    chunks: AsyncGenerator[bytes, None]


class Client:
    """Sends requests of operations to peers. One session for all; made and closed on the loop."""

    def __init__(
        self,
        *,
        connector: Callable[[], aiohttp.BaseConnector],
        clock: Clock,
        dice: Dice,
        files: Files,
        redactor: Redactor,
        meters: Meters,
        max_answer: int,
        log: Any,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._dice = dice
        self._files = files
        self.redactor = redactor
        self._meters = meters
        self._max_answer = max_answer
        self._log = log
        self._sleep = sleep
        self._session = aiohttp.ClientSession(
            connector=connector(),
            auto_decompress=True,
            trust_env=False,
            headers={"User-Agent": "reconciled"},
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=CountedResponse,
        )

    async def send(self, peer: Peer, op: Traced, request: HttpRequest) -> Exchange:
        """Send one request and read its whole answer, up to the cap. Whatever goes wrong is in the exchange."""
        exchange = await self.send_unnoted(peer, op, request)
        self.note(peer, exchange)
        return exchange

    async def send_unnoted(self, peer: Peer, op: Traced, request: HttpRequest) -> Exchange:
        """As `send`, for whoever has to read the answer to know what it says of the peer, and then calls `note`."""
        await self._wait_for_turn(peer)
        if request.body is None or isinstance(request.body, bytes):
            return await self._exchange(peer, op, request, request.body)
        with ExitStack() as opened:
            try:
                body = self._streamed(request.body, opened)
            except OSError as fault:
                now = self._clock.now()
                return Exchange(request, now, now, None, NotTried("our_file", str(fault)), peer.credential_name)
            return await self._exchange(peer, op, request, body)

    async def _exchange(self, peer: Peer, op: Traced, request: HttpRequest, body: Body) -> Exchange:
        sent_at = self._clock.now()
        try:
            async with await self._ask(peer, op, request, body) as response:
                received = await _read_capped(response, self._max_answer)
            ended_at, headers = self._clock.now(), _headers(response)
            retry_after = schedule.retry_after_ms(headers, now_ms=ended_at)
            # Struck out before anybody reads it: providers quote what they were sent, keys included (N37).
            answer = HttpResponse(response.status, headers, self.redactor.data(received), retry_after)
            return Exchange(request, sent_at, ended_at, answer, credential=peer.credential_name)
        except FAULTS as fault:
            # Its traceback holds what was read so far, in a ring of references that only the collector would break.
            error = _as_provider_error(fault.with_traceback(None))
            return Exchange(request, sent_at, self._clock.now(), None, error, peer.credential_name)

    @asynccontextmanager
    async def stream(self, peer: Peer, op: Operation, request: HttpRequest) -> AsyncIterator[Stream]:
        """Fetch a result without holding it. Raises: NotSent, OutcomeUnknown."""
        await self._wait_for_turn(peer)
        sent_at = self._clock.now()
        async with AsyncExitStack() as stack:
            try:
                response = await self._ask(peer, op, request, None, decodes=False)
                await stack.enter_async_context(response)
            except FAULTS as fault:
                error = _as_provider_error(fault)
                self.note(peer, Exchange(request, sent_at, self._clock.now(), None, error, peer.credential_name))
                raise error from fault
            headers = _headers(response)
            wait = schedule.retry_after_ms(headers, now_ms=self._clock.now())
            head = HttpResponse(response.status, headers, b"", wait)
            self.note(peer, Exchange(request, sent_at, self._clock.now(), head, credential=peer.credential_name))
            # What the reader raises from here on is its own: a full disk of ours is no fault of the provider.
            yield Stream(response.status, headers, _chunks(response))

    async def close(self) -> None:
        """Close the session and its connections."""
        await self._session.close()

    def _ask(
        self, peer: Peer, op: Traced, request: HttpRequest, body: Body, *, decodes: bool = True
    ) -> Awaitable[aiohttp.ClientResponse]:
        """The request, which leaves when this is awaited. Raises: NotSent."""
        if (absence := peer.absence_for(op)) is not None:  # the last net: the worker has asked before
            raise NotTried(absence.value, "nothing may be asked about this operation as the configuration stands")
        url = _url(peer, request)
        headers = {**request.headers, **_trace(op, request)}
        if not decodes:
            headers["Accept-Encoding"] = inflate.ACCEPTED
        if request.url is None or origin_of(url) == peer.origin:  # a path has no way out of the address it is put to
            headers.update(peer.credentials)
        if isinstance(body, Joined):
            headers["Content-Length"] = str(body.size)
        return self._session.request(
            request.method,
            url,
            headers=headers,
            data=body,
            allow_redirects=False,
            timeout=_timeout(request.purpose, body),
            auto_decompress=decodes,
            middlewares=(once(),) if _may_have_effect(peer, request) else None,
        )

    def _streamed(self, body: Multipart | JsonLines, opened: ExitStack) -> Body:
        """The body as aiohttp streams it; its file stays open as long as `opened`. Raises: OSError."""
        if isinstance(body, Multipart):
            return self._form(body, opened)
        return Joined(body, opened.enter_context(self._files.open(body.spool_ref)))

    def _form(self, form: Multipart, opened: ExitStack) -> aiohttp.MultipartWriter:
        writer = aiohttp.MultipartWriter("form-data", boundary=form.boundary)
        for name, value in form.fields.items():
            writer.append(value).set_content_disposition("form-data", name=name)
        file = opened.enter_context(self._files.open(form.file.spool_ref))
        part = writer.append(file, {"Content-Type": form.file.content_type})
        part.set_content_disposition("form-data", name=form.file.field_name, filename=form.file.file_name)
        return writer

    async def _wait_for_turn(self, peer: Peer) -> None:
        """Keep to the provider's rate; at most `concurrency` requests wait here, so the wait is short."""
        while True:
            peer.allowance, wait_ms = peer.allowance.take(peer.rate, self._clock.now())
            if wait_ms == 0:
                return
            await self._sleep(wait_ms / 1000)

    def note(self, peer: Peer, exchange: Exchange, *, create_not_accepted: bool = False) -> None:
        """Let the peer's pause follow from what came back; once for each exchange."""
        if isinstance(exchange.error, NotTried):  # nobody was asked: there is nothing to count or to learn
            return
        purpose = str(exchange.request.purpose)  # to ask an Enum for its value costs ten times as much (measured)
        self._meters.count("requests", provider=peer.name, purpose=purpose, answer=_answer_class(exchange))
        seconds = max(0, exchange.ended_at - exchange.sent_at) / 1000
        self._meters.observe("request_duration_seconds", seconds, provider=peer.name, purpose=purpose)
        was_paused = peer.pause.until_ms is not None
        self._follow(peer, exchange, create_not_accepted=create_not_accepted)
        if (peer.pause.until_ms is not None) != was_paused:
            event = "provider_resumed" if was_paused else "provider_paused"
            self._log.warning(event, provider=peer.name, reason=peer.pause.reason, until_ms=peer.pause.until_ms)

    def _follow(self, peer: Peer, exchange: Exchange, *, create_not_accepted: bool) -> None:
        now, answer = exchange.ended_at, exchange.response
        went_well = answer is not None and answer.status < 500 and answer.status not in (401, 403, 429)
        peer.recent.append(went_well)
        if went_well and exchange.request.purpose in (Purpose.STATUS, Purpose.LOOKUP, Purpose.LIST):
            peer.last_good_read_at = now
        if answer is not None and answer.status < 400:
            peer.pause = limits.after_success(peer.pause, now_ms=now)
            return
        before = peer.pause
        peer.pause = limits.after_failure(
            before,
            error_class=exchange.error_class or (f"http_{answer.status}" if answer else "unknown"),
            status=answer.status if answer else None,
            retry_after_ms=answer.retry_after_ms if answer else None,
            now_ms=now,
            draw=self._dice.draw(),
            create_not_accepted=create_not_accepted,
            lengthens=exchange.request.purpose not in (Purpose.LOOKUP, Purpose.LIST),
        )
        if peer.pause.until_ms != before.until_ms:
            peer.paused_at = now, self._clock.monotonic()


def _may_have_effect(peer: Peer, request: HttpRequest) -> bool:
    consumes = request.purpose is Purpose.RESULT and peer.provider.contract.result_fetch == "consuming"
    return consumes or request.purpose in _WITH_EFFECT


def _answer_class(exchange: Exchange) -> str:
    """What came back, in few words: error classes may name hosts, and there is no end of those."""
    if exchange.response is None:
        return "not_sent" if isinstance(exchange.error, NotSent) else "no_answer"
    status = exchange.response.status
    return "429" if status == 429 else f"{status // 100}xx"


def _url(peer: Peer, request: HttpRequest) -> URL:
    if request.url is not None:
        return _named_url(peer, URL(f"{str(peer.base_url).rstrip('/')}/"), request.url)
    # The address as it is configured with a longer path: nothing is put together only to be taken apart again.
    below = peer.base_url.raw_path.rstrip("/")
    url = peer.base_url.with_path(f"{below}/{request.path.lstrip('/')}", encoded=True)
    return url.with_query(dict(request.query)) if request.query else url


def _named_url(peer: Peer, base: URL, name: str) -> URL:
    """Where a URL or path in the provider's own words leads. Raises: NotSent, where that is a stranger (C05)."""
    try:
        url = base.join(URL(name)).with_user(None)
        is_own = origin_of(url) == origin_of(base)
    except ValueError as fault:
        raise NotTried("bad_url", str(fault)) from fault
    is_storage = url.host in peer.provider.contract.storage_hosts and url.scheme in ("https", base.scheme)
    if not is_own and not is_storage:
        raise NotTried(f"foreign_host:{url.host_port_subcomponent}", "not the configured host: nobody was asked")
    if not _SPELLED.fullmatch(name):
        return url
    # What follows the host goes out as it was given: a signature may be of the very spelling.
    given = base.join(URL(name, encoded=True))
    path, query = given.raw_path, given.raw_query_string
    return URL.build(scheme=url.scheme, authority=url.raw_authority, path=path, query_string=query, encoded=True)


def _trace(op: Traced, request: HttpRequest) -> dict[str, str]:
    """One trace id for every request of the operation or sweep (A3); the span is made from it and the purpose."""
    span = hashlib.sha256(f"{op.trace_id}/{request.purpose}".encode()).hexdigest()[:16]
    return {"traceparent": f"00-{op.trace_id}-{span}-01"}


def _timeout(purpose: Purpose, body: Body) -> aiohttp.ClientTimeout:
    """aiohttp watches for silence only while it reads: what is sent needs a total of its own, by its size."""
    if purpose is Purpose.RESULT:
        return aiohttp.ClientTimeout(total=RESULT_SECONDS, sock_connect=READ_SECONDS, sock_read=SILENCE_SECONDS)
    if isinstance(body, Joined | aiohttp.MultipartWriter):
        return aiohttp.ClientTimeout(total=CREATE_SECONDS + (body.size or 0) / SLOWEST_BYTES)
    return _within(CREATE_SECONDS if purpose in _WITH_EFFECT else READ_SECONDS)


@lru_cache(maxsize=8)
def _within(seconds: float) -> aiohttp.ClientTimeout:
    """Made once: it is the same for every read."""
    return aiohttp.ClientTimeout(total=seconds)


def _headers(response: aiohttp.ClientResponse) -> Headers:
    found: dict[str, list[str]] = {}
    for name, value in response.headers.items():
        found.setdefault(name.lower(), []).append(value)
    return found


async def _read_capped(response: aiohttp.ClientResponse, cap: int) -> bytes:
    parts, size = [], 0
    while chunk := await response.content.readany():
        size += len(chunk)
        if size > cap:
            raise OutcomeUnknown("answer_too_large", f"more than {cap} bytes")
        parts.append(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _chunks(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    coding = inflate.decoder(response.headers.getall("Content-Encoding", ()))
    try:
        async for chunk in response.content.iter_any():
            for piece in coding.pieces(chunk):
                yield piece
        coding.end()
    except (aiohttp.ClientError, TimeoutError, OSError) as fault:
        raise _as_provider_error(fault) from fault


def _as_provider_error(fault: Exception) -> ProviderError:
    """Never connected is surely not sent; everything later may have arrived."""
    match fault:
        case ProviderError():
            return fault
        case aiohttp.ClientConnectorDNSError():
            return NotSent("dns", str(fault))
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            return NotSent("tls", str(fault))
        case aiohttp.ClientConnectorError():
            return NotSent("connect", str(fault))
        case aiohttp.ConnectionTimeoutError():
            return NotSent("connect_timeout", str(fault))
        case TimeoutError():
            return OutcomeUnknown("timeout", str(fault))
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return OutcomeUnknown("reset", str(fault))
        case aiohttp.ClientPayloadError():
            return OutcomeUnknown("cut", str(fault))
        case _:
            return OutcomeUnknown("unreadable", str(fault))

"""The public listener: raw bytes in, proven, kept, acknowledged.

A sender is told nothing but whether to send again.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from handlers.problem import Handler
from handlers.refusals import RETRY_SECONDS
from reconcile.errors import BodyTooLarge, StoreError, Unreadable, WebhookRefused
from reconcile.ingest import Ingest
from reconcile.model import Observation
from reconcile.peer import Peer
from reconcile.provider import NamesEvents
from reconcile.seams import Clock, Meters
from reconcile.signatures import SCHEMES, Key

#: Seconds a body may take. 10: a webhook is small; what drips is no provider (S17).
BODY_SECONDS: Final = 10
#: Bytes of ids that one log line names at most. 32 KiB: journald takes lines of 48 KiB (its LineMax), and what stands
#: there beside them is short.
ID_BYTES_A_LINE: Final = 32_768


@dataclass(frozen=True, slots=True)
class PublicDeps:
    """What the receiver needs; `keys` holds each provider that has a proof configured, or was declared to need none."""

    peers: Mapping[str, Peer]
    keys: Mapping[str, Sequence[Key]]
    #: Whether an open operation names a provider.
    has_open: Callable[[str], Awaitable[bool]]
    ingest: Ingest
    clock: Clock
    meters: Meters
    log: Any
    max_body: int


def build_public_app(deps: PublicDeps) -> web.Application:
    """`POST /webhooks/{provider}` and nothing else."""
    app = web.Application(middlewares=[_rim(deps)], client_max_size=deps.max_body + 1)
    receiver = _Receiver(deps)
    app.router.add_post("/webhooks/{provider}", receiver.receive)
    return app


def _rim(deps: PublicDeps) -> Any:
    """What is not ours is 404 and counted, so that a wrong path shows; a fault of ours is 503: send it again."""

    @web.middleware
    async def rim(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if not request.raw_path.startswith("/"):  # a proxy-style target (`POST http://other/webhooks/x`, S15)
                raise web.HTTPNotFound
            return await handler(request)
        except web.HTTPException as refusal:
            deps.meters.count("webhooks", provider="-", answer="refused", reason=f"http_{refusal.status}")
            allow = {"Allow": refusal.headers["Allow"]} if "Allow" in refusal.headers else None
            return web.Response(status=refusal.status, headers=allow)
        except Exception:  # the rim: nothing of our inside reaches a stranger
            deps.log.exception("webhook_failed", path=request.path)
            return web.Response(status=503, headers={"Retry-After": str(RETRY_SECONDS)})

    return rim


class _Receiver:
    def __init__(self, deps: PublicDeps) -> None:
        self._deps = deps
        #: What was kept and not told yet: the ids of deliveries, by provider and answer.
        self._kept: dict[tuple[str, str], list[str]] = {}
        self._named_in_bodies = {
            name: peer.provider for name, peer in deps.peers.items() if isinstance(peer.provider, NamesEvents)
        }

    async def receive(self, request: web.Request) -> web.Response:
        """200 once committed, for a new event and a duplicate alike."""
        name = request.match_info["provider"]
        keys, peer = self._deps.keys.get(name), self._deps.peers.get(name)
        if peer is not None and peer.absence is not None:
            return await self._of_a_missing_one(peer)
        if keys is None or peer is None:
            raise web.HTTPNotFound
        if request.headers.getall("Content-Encoding", ()):
            return self._refuse(name, 415, "content-encoding")
        try:
            body = await self._read(request)
            event_id = self._verify(peer, body, request, keys)
        except WebhookRefused as refusal:
            return self._refuse(name, refusal.status, refusal.reason)
        except TimeoutError:
            return self._refuse(name, 408, "slow-body")
        except ConnectionError:
            return self._refuse(name, 400, "cut-body")  # nobody is left to read it
        return await self._keep(peer, event_id, body)

    async def _of_a_missing_one(self, peer: Peer) -> web.Response:
        """Nothing can be proven without its keys: it is asked to send again as long as somebody waits for it."""
        if not await self._deps.has_open(peer.name):
            raise web.HTTPNotFound
        refusal = self._refuse(peer.name, 503, str(peer.absence))
        refusal.headers["Retry-After"] = str(RETRY_SECONDS)
        return refusal

    async def _read(self, request: web.Request) -> bytes:
        cap, parts, size = self._deps.max_body, [], 0
        if (request.content_length or 0) > cap:
            raise BodyTooLarge("body-too-large")
        if request.content.is_eof():  # it came whole with its head, as most do: nothing to wait for, and no timer
            body: bytes = request.content.read_nowait()
            if len(body) > cap:
                raise BodyTooLarge("body-too-large")
            return body
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.content.iter_any():
                size += len(chunk)
                if size > cap:
                    raise BodyTooLarge("body-too-large")
                parts.append(chunk)
        return b"".join(parts)

    def _verify(self, peer: Peer, body: bytes, request: web.Request, keys: Sequence[Key]) -> str:
        """The id of a delivery that is proven: its own, the scheme's, else what its body hashes to (C8).

        Raises: WebhookRefused.
        """
        terms = peer.provider.contract.webhook
        if terms is None:
            raise WebhookRefused("no-webhooks")
        by_scheme = SCHEMES[terms.scheme](
            body,
            _HeadersOf(request),
            keys,
            now_ms=self._deps.clock.now(),
            tolerance_seconds=terms.tolerance_seconds,
            place=terms.place,
        )
        by_body = self._named_in_bodies.get(peer.name)
        named = None if by_body is None else by_body.event_id(body)
        return named or by_scheme or f"sha256:{hashlib.sha256(body).hexdigest()}"

    async def _keep(self, peer: Peer, event_id: str, body: bytes) -> web.Response:
        observation: Observation | None = None
        try:
            observation = peer.provider.read_webhook(body)
        except Unreadable as fault:
            # Authentic, so it is kept; sending it again would not make it readable.
            self._deps.log.warning("webhook_unreadable", provider=peer.name, event_id=event_id, reason=fault.reason)
        try:
            answer = await self._deps.ingest.event(peer.name, event_id, body, observation)
        except StoreError as fault:
            self._deps.log.error("webhook_not_stored", provider=peer.name, event_id=event_id, error=str(fault))
            self._deps.meters.count("webhooks", provider=peer.name, answer="not_stored")
            return web.Response(status=503, headers={"Retry-After": str(RETRY_SECONDS)})
        self._deps.meters.count("webhooks", provider=peer.name, answer=answer)
        self._note(peer.name, answer, event_id)
        return web.Response(status=200)

    def _note(self, provider: str, answer: str, event_id: str) -> None:
        """Let it be told with the others of its commit, which come here in the same turn of the loop.

        A line for each would cost an eighth of what a delivery costs (measured).
        """
        if not self._kept:
            asyncio.get_running_loop().call_soon(self._tell)
        self._kept.setdefault((provider, answer), []).append(event_id)

    def _tell(self) -> None:
        kept, self._kept = self._kept, {}
        for (provider, answer), ids in kept.items():
            for event_ids in _in_lines(ids):
                self._deps.log.info("webhooks_received", provider=provider, answer=answer, event_ids=event_ids)

    def _refuse(self, name: str, status: int, reason: str) -> web.Response:
        self._deps.meters.count("webhooks", provider=name, answer="refused", reason=reason)
        self._deps.log.warning("webhook_refused", provider=name, reason=reason)
        return web.Response(status=status)


def _in_lines(ids: Sequence[str]) -> Iterator[list[str]]:
    """Ids as the log's lines name them; a letter beyond ASCII is written as an escape of up to twelve bytes."""
    line: list[str] = []
    length = 0
    for name in ids:
        size = len(json.dumps(name)) + len(", ")
        if line and length + size > ID_BYTES_A_LINE:
            yield line
            line, length = [], 0
        line.append(name)
        length += size
    yield line


class _HeadersOf(Mapping[str, Sequence[str]]):
    """A request's headers as `Headers`, looked up where they stand: most of them nobody asks for."""

    __slots__ = ("_found",)

    def __init__(self, request: web.Request) -> None:
        self._found = request.headers

    def __getitem__(self, name: str) -> Sequence[str]:
        return self._found.getall(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self._found.getall(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter({name.lower(): None for name in self._found})

    def __len__(self) -> int:
        return len(set(self))

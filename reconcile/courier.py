"""One attempt to deliver a callback: signed anew, sent to a checked address, its answer looked at and dropped.

A name is looked up for each attempt, and what we connect to is the very address that was judged: the request goes
to it by number, with the name in `Host` and in TLS. A name that leads elsewhere a moment later (S31) leads nowhere.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from reconcile import addresses, schedule
from reconcile.callback import Attempt, Callback
from reconcile.heads import CountedResponse
from reconcile.seams import Clock
from reconcile.signatures import sign_standard
from reconcile.store.deliveries import Delivery

#: Seconds for one attempt, looking up the name included. 30: the most that the Standard Webhooks specification asks of
#: a sender.
ATTEMPT_SECONDS: Final = 30
#: Addresses of one name that are tried in turn until one can be connected to. 4: arbitrary; both families, twice.
MAX_ADDRESSES: Final = 4
#: Bytes of an answer that are read before it is dropped, so that a receiver comes to its end. 64 KiB: arbitrary.
MAX_ANSWER: Final = 65_536
#: Seconds in which they must have come. 5: arbitrary; the status is known by then, and is what counts.
DROP_SECONDS: Final = 5
#: What an attempt may end with instead of an answer.
_FAULTS: Final = (aiohttp.ClientError, TimeoutError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a request goes, and under which name; no name: as it is written."""

    url: URL
    name: str | None = None


class Courier:
    """Sends deliveries. One session for all, made with the first of them, and closed on the loop."""

    def __init__(
        self,
        *,
        connector: Callable[[], aiohttp.BaseConnector],
        resolver: Callable[[], AbstractResolver],
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._connector = connector
        self._make_resolver = resolver
        self._resolver: AbstractResolver | None = None
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=self._connector(),
            auto_decompress=False,  # nobody reads the answer
            trust_env=False,
            headers={"User-Agent": "reconciled", "Content-Type": "application/json"},
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=ATTEMPT_SECONDS),
            response_class=CountedResponse,
        )

    async def deliver(self, callback: Callback, delivery: Delivery) -> Attempt:
        """Send it once. Whatever goes wrong is in the attempt; nothing is sent where it may not be."""
        url = URL(delivery.url, encoded=True)
        if not callback.covers(url):
            return Attempt(None, "callback_moved")
        self._session = self._session or self._open()
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                places = await self._places(callback, url)
                response = await self._send_to_one(self._session, callback, delivery, places)
        except _FAULTS as fault:
            return Attempt(None, _told(fault))
        # Its head is here: it has answered, whatever becomes of the rest.
        attempt = self._attempt(response)
        await _drop(response)
        return attempt

    async def close(self) -> None:
        """Close the session and its connections."""
        if self._session is not None:
            await self._session.close()
        if self._resolver is not None:
            await self._resolver.close()

    async def _places(self, callback: Callback, url: URL) -> list[_Place]:
        """Where it may be sent. Raises: OSError, _Refused."""
        host = url.raw_host or ""
        if not callback.is_by_name:
            return [_Place(url)]
        self._resolver = self._resolver or self._make_resolver()
        try:
            found = [found["host"] for found in await self._resolver.resolve(host, url.port or 0)]
        except OSError as fault:
            raise _Refused("dns") from fault
        judged = () if callback.allows_private else found
        refused = {address: why for address in judged if (why := addresses.why_refused(address)) is not None}
        allowed = [address for address in dict.fromkeys(found) if address not in refused]
        if not allowed:
            told = ", ".join(f"{address} ({why})" for address, why in list(refused.items())[:MAX_ADDRESSES])
            raise _Refused(f"address_refused: {told}" if told else "dns")
        return [_Place(url.with_host(address), host) for address in allowed[:MAX_ADDRESSES]]

    async def _send_to_one(
        self,
        session: aiohttp.ClientSession,
        callback: Callback,
        delivery: Delivery,
        places: list[_Place],
    ) -> aiohttp.ClientResponse:
        """The next address is tried only where surely nothing was sent to the one before."""
        *earlier, last = places
        for place in earlier:
            try:
                return await self._send(session, callback, delivery, place)
            except aiohttp.ClientConnectorError:
                continue
        return await self._send(session, callback, delivery, last)

    async def _send(
        self,
        session: aiohttp.ClientSession,
        callback: Callback,
        delivery: Delivery,
        place: _Place,
    ) -> aiohttp.ClientResponse:
        """The answer as soon as its head is here. Raises: whatever aiohttp raises."""
        now = self._clock.now()
        headers = sign_standard(
            delivery.body, event_id=delivery.delivery_id, timestamp_seconds=now // 1000, keys=callback.keys
        )
        if place.name is not None:
            port = "" if place.url.is_default_port() else f":{place.url.port}"
            headers["Host"] = f"{place.name}{port}"
        return await session.post(
            place.url,
            data=delivery.body,
            headers=headers,
            allow_redirects=False,
            server_hostname=place.name,
        )

    def _attempt(self, response: aiohttp.ClientResponse) -> Attempt:
        names = {name.lower(): [value] for name, value in response.headers.items()}
        wait = schedule.retry_after_ms(names, now_ms=self._clock.now())
        return Attempt(response.status, retry_after_ms=wait)


class _Refused(OSError):
    """Nothing was sent: the name leads nowhere, or nowhere public."""


async def _drop(response: aiohttp.ClientResponse) -> None:
    """Read a little of the answer, so that its sender is not cut off, and let go of the rest; the status stands."""
    size = 0
    try:
        async with asyncio.timeout(DROP_SECONDS):
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > MAX_ANSWER:
                    break
    except _FAULTS:
        pass
    finally:
        if response.content.at_eof():
            response.release()
        else:
            response.close()


def _told(fault: Exception) -> str:
    """What went wrong, in a word or two that may be kept and shown."""
    match fault:
        case _Refused():
            return str(fault)
        case aiohttp.ClientConnectorDNSError():
            return "dns"
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            return "tls"
        case TimeoutError():
            return "timeout"
        case aiohttp.ClientConnectorError():
            return "connect"
        case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError():
            return "reset"
        case aiohttp.ClientError():
            return "unreadable"
        case _:
            return type(fault).__name__

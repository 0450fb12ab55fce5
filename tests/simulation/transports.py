"""A network in memory: real aiohttp clients and servers, joined without sockets or DNS, and able to fail.

`MemoryNetwork.fault(host, head)` is asked once for each new connection (`head` empty) and once for each request
(`head` = its first bytes, `POST /v1/jobs HTTP/1.1 ...`), also on a connection that is used again.
"""

import asyncio
import collections
import errno
import hashlib
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from aiohttp.client_proto import ResponseHandler

from tests.simulation.loop import VirtualLoop

P = TypeVar("P", bound=asyncio.Protocol)
#: The port of https.
HTTPS = 443
HIGH_WATER, LOW_WATER = 64 * 1024, 16 * 1024
REQUEST_LINE = re.compile(rb"[A-Z]+ \S+ HTTP/1\.[01]\r\n")
DATE_LINE = re.compile(rb"(?<=\r\n)Date: [^\r\n]*\r\n")


@dataclass(frozen=True, slots=True)
class Fault:
    """What befalls one connection (`refuse`, `connect_delay`) or one request (the rest); times are virtual seconds.

    With a number of bytes the rest is lost and the connection ends there for both sides, by a reset or a plain close.
    A delay of `math.inf` is a black hole.
    """

    refuse: bool = False
    connect_delay: float = 0.0
    request_bytes: int | None = None
    request_delay: float = 0.0
    answer_bytes: int | None = None
    answer_delay: float = 0.0
    reset: bool = False


NO_FAULT = Fault()
REFUSED = Fault(refuse=True)
LOST_REQUEST = Fault(request_bytes=0)
LOST_ANSWER = Fault(answer_bytes=0, reset=True)


class Trace:
    """A digest of all that happened and when; `tail` holds the last events for a failing seed's report."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.tail: collections.deque[str] = collections.deque(maxlen=200)

    def note(self, at: float, what: str, data: bytes = b"") -> None:
        """Take in one event. `Date` headers are real time and left out."""
        data = DATE_LINE.sub(b"", data)
        line = f"{at:.6f} {what} {len(data)}"
        self._digest.update(f"{line}\n".encode() + data)
        self.tail.append(f"{line} {data[:60]!r}")

    def hexdigest(self) -> str:
        """Equal for equal histories."""
        return self._digest.hexdigest()


class MemoryTransport(asyncio.Transport):
    """One end of a connection. What travels to it waits in its inbox and is handed over in order, one piece a step."""

    def __init__(self, wire: "_Wire", loop: VirtualLoop, protocol: asyncio.Protocol, **extra: Any) -> None:
        super().__init__(extra)
        self._wire = wire
        self._loop = loop
        self._protocol = protocol
        self.peer: MemoryTransport
        self._inbox: collections.deque[tuple[float, bytes | Exception | None]] = collections.deque()
        self._waiting = 0
        self._pump: asyncio.Handle | None = None
        self._reading = True
        self._writing = True
        self._closing = False
        self._lost = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send, or drop silently once closing."""
        if not self._closing and data:
            self._wire.carry(self, bytes(data))
            if self._writing and self.peer._waiting > HIGH_WATER:
                self._writing = False
                self._protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        """Bytes that the other side has not taken yet."""
        return self.peer._waiting

    def is_closing(self) -> bool:
        """Whether this end was closed or lost."""
        return self._closing

    def close(self) -> None:
        """End after what was written; the other side reads an end of file."""
        self._end(None)

    def abort(self) -> None:
        """End now; the other side reads a reset."""
        self._end(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def pause_reading(self) -> None:
        """Leave what comes in the inbox."""
        self._reading = False

    def resume_reading(self) -> None:
        """Hand it over again."""
        self._reading = True
        self._plan()

    def take(self, item: bytes | Exception | None, delay: float = 0.0) -> None:
        """Put bytes, a reset or an end of file on the way to this end, never before what is already on the way."""
        due = self._loop.time() + delay
        self._inbox.append((max(due, self._inbox[-1][0]) if self._inbox else due, item))
        self._waiting += len(item) if isinstance(item, bytes) else 0
        self._plan()

    def _end(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            self.peer.take(error)
            self._loop.call_soon(self._lose, None)

    def _plan(self) -> None:
        if self._pump is None and self._inbox and self._reading and not self._lost:
            due = self._inbox[0][0]
            now = due <= self._loop.time()
            self._pump = self._loop.call_soon(self._hand_over) if now else self._loop.call_at(due, self._hand_over)

    def _hand_over(self) -> None:
        if self._reading and not self._lost:
            self._receive(self._inbox.popleft()[1])
        self._pump = None  # only now: what this piece set in motion comes before the next piece, as with a selector
        self._plan()

    def _receive(self, item: bytes | Exception | None) -> None:
        if isinstance(item, bytes):
            self._waiting -= len(item)
            if not self.peer._writing and self._waiting <= LOW_WATER:
                self.peer._writing = True
                self.peer._protocol.resume_writing()
            if not self._closing:
                self._protocol.data_received(item)
        else:
            if item is None and not self._closing:
                self._protocol.eof_received()
            self._lose(item)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._inbox.clear()
            if self._pump is not None:
                self._pump.cancel()
            self._protocol.connection_lost(error)


class _Wire:
    """One connection: knows where a request begins, and lets its fault happen."""

    def __init__(self, network: "MemoryNetwork", name: str, host: str) -> None:
        self._network = network
        self._name = name
        self._host = host
        self.client: MemoryTransport
        self._fault = NO_FAULT
        self._answering = True
        self._broken = False
        self._passed = {True: 0, False: 0}

    def carry(self, sender: MemoryTransport, data: bytes) -> None:
        """Bring `data` to the other end, as far as the request's fault allows."""
        outward = sender is self.client
        if outward and self._answering and REQUEST_LINE.match(data):
            self._fault = self._network.judge(self._host, data)
            self._passed = {True: 0, False: 0}
        self._network.note(f"{self._name} {'>' if outward else '<'}", data)
        self._answering = not outward
        if self._broken:
            return
        fault = self._fault
        limit, delay = (
            (fault.request_bytes, fault.request_delay) if outward else (fault.answer_bytes, fault.answer_delay)
        )
        passing = data if limit is None else data[: max(0, limit - self._passed[outward])]
        self._passed[outward] += len(passing)
        if passing:
            sender.peer.take(passing, delay)
        if len(passing) < len(data):
            self._broken = True
            for end in (sender.peer, sender):
                end.take(
                    ConnectionResetError(errno.ECONNRESET, "Connection reset by peer") if fault.reset else None, delay
                )


class MemoryNetwork:
    """Hosts, ports and the roads between them, for one life of one loop; the trace may outlive it."""

    def __init__(self, loop: VirtualLoop, trace: Trace | None = None) -> None:
        self.loop = loop
        self.trace = trace or Trace()
        self.fault: Callable[[str, bytes], Fault | None] = lambda _host, _head: None
        self._listeners: dict[tuple[str, int], Callable[[], asyncio.Protocol]] = {}
        self._connectors: list[MemoryConnector] = []
        self._connections = 0
        loop.last_rites.append(self._abandon)

    def serve(self, host: str, port: int, server_factory: Callable[[], asyncio.Protocol]) -> None:
        """Listen: `server_factory` is called per connection (`AppRunner(app).server` after its setup)."""
        self._listeners[host, port] = server_factory

    def stop(self, host: str, port: int) -> None:
        """Refuse new connections; those that stand are their server's business."""
        del self._listeners[host, port]

    def connector(self) -> "MemoryConnector":
        """A connector for one ClientSession."""
        connector = MemoryConnector(self)
        self._connectors.append(connector)
        return connector

    def note(self, what: str, data: bytes = b"") -> None:
        """Take an event into the trace at the present time."""
        self.trace.note(self.loop.time(), what, data)

    def judge(self, host: str, head: bytes) -> Fault:
        """Ask the test's hook what befalls this connection or request."""
        fault = self.fault(host, head) or NO_FAULT
        if fault != NO_FAULT:
            self.note(f"{host} {fault}")
        return fault

    async def connect(self, host: str, port: int, protocol: P) -> P:
        """Join `protocol` to a server. Raises gaierror for an unknown host, ConnectionRefusedError for a shut port."""
        fault = self.judge(host, b"")
        await asyncio.sleep(fault.connect_delay)
        if all(known != host for known, _ in self._listeners):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if fault.refuse or (host, port) not in self._listeners:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        self._connections += 1
        name = f"{host}:{port}#{self._connections}"
        self.note(name)
        wire = _Wire(self, name, host)
        server = self._listeners[host, port]()
        near, far = ("127.0.0.1", 40000 + self._connections), ("127.0.0.1", port)
        wire.client = MemoryTransport(wire, self.loop, protocol, peername=far, sockname=near)
        # Nothing is encrypted here, and whoever serves at the port of https is asked by https.
        tls = {"sslcontext": True} if port == HTTPS else {}
        wire.client.peer = MemoryTransport(wire, self.loop, server, peername=near, sockname=far, **tls)
        wire.client.peer.peer = wire.client
        server.connection_made(wire.client.peer)
        protocol.connection_made(wire.client)
        return protocol

    def _abandon(self) -> None:
        for connector in self._connectors:
            connector.abandon()


class MemoryConnector(aiohttp.BaseConnector):
    """aiohttp's pool over the network. No limit and no keep-alive ageing: those two use real dice and real time."""

    def __init__(self, network: MemoryNetwork) -> None:
        super().__init__(keepalive_timeout=None, limit=0, loop=network.loop)
        self._network = network
        self._made: list[ResponseHandler] = []

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: Any,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # the base class asks for it
    ) -> ResponseHandler:
        key = req.connection_key
        try:
            made = await self._network.connect(key.host, key.port or 80, self._factory())
        except socket.gaierror as error:
            raise aiohttp.ClientConnectorDNSError(key, error) from error
        except OSError as error:
            raise aiohttp.ClientConnectorError(key, error) from error
        self._made = [*(handler for handler in self._made if handler.is_connected()), made]
        return made

    def close(self, *, abort_ssl: bool = False) -> Awaitable[None]:
        """Close in the order of making; the base class would walk a set."""
        for handler in self._made:
            handler.close()
        return super().close(abort_ssl=abort_ssl)

    def abandon(self) -> None:
        """Count as closed without doing anything: the process is gone."""
        self._closed = True

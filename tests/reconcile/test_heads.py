"""1xx answers before an answer: a few are skipped, an endless row ends the request at once and not by its time-out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from yarl import URL

from reconcile.callback import Attempt, Callback
from reconcile.courier import Courier
from reconcile.heads import MAX_INFORMATIONAL
from reconcile.provider import HttpRequest, Purpose
from reconcile.signatures import Key, KeyType
from reconcile.store.deliveries import Delivery
from tests.handlers.ground import HandClock
from tests.reconcile.test_client import OP, Bench, bench

__all__ = ["bench"]

EARLY = b"HTTP/1.1 103 E\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def serving(heads: int | None) -> AsyncIterator[URL]:
    """A peer that sends so many 1xx heads before its answer; None: it never comes to it."""
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                length = 0
                while (line := await reader.readline()) not in (b"\r\n", b""):
                    name, _, value = line.lower().partition(b":")
                    length = int(value) if name == b"content-length" else length
                if not line:
                    break
                await reader.readexactly(length)
                while heads is None:
                    writer.write(EARLY * 100)
                    await writer.drain()
                writer.write(EARLY * heads + ANSWER)
        except ConnectionError:
            gone.set()
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        if heads is None:
            await asyncio.wait_for(gone.wait(), 10)


@pytest.mark.parametrize("heads", [0, 1, MAX_INFORMATIONAL])
async def test_a_few_are_skipped_on_each_request_of_a_connection(bench: Bench, heads: int) -> None:
    async with serving(heads) as url:
        bench.peer.base_url = url
        for _ in range(3):
            exchange = await bench.client.send(bench.peer, OP, HttpRequest("GET", "jobs/1", Purpose.STATUS))
            assert exchange.response is not None, exchange
            assert (exchange.response.status, exchange.response.body) == (200, b"{}")


@pytest.mark.parametrize("heads", [MAX_INFORMATIONAL + 1, None])
async def test_a_row_of_them_is_no_answer_of_a_provider(bench: Bench, heads: int | None) -> None:
    """And the connection is closed, else they would go on coming."""
    async with serving(heads) as url:
        bench.peer.base_url = url
        async with asyncio.timeout(10):
            exchange = await bench.client.send(bench.peer, OP, HttpRequest("GET", "jobs/1", Purpose.STATUS))
        assert exchange.error_class == "unreadable"


async def test_a_row_of_them_is_no_answer_of_a_callback_receiver() -> None:
    async with serving(None) as url:
        courier = Courier(connector=aiohttp.TCPConnector, resolver=aiohttp.ThreadedResolver, clock=HandClock())
        try:
            async with asyncio.timeout(10):
                told = await courier.deliver(
                    Callback("ci", url, (Key(KeyType.HMAC, b"k" * 24),), allows_private=True),
                    Delivery("msg_1", "op_1", "ci", f"{url}x", "operation.done", b"{}", 0),
                )
        finally:
            await courier.close()
        assert told == Attempt(None, "unreadable")

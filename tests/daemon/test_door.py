"""The public listener's door: a crowd of strangers is turned away before it costs anything."""

import asyncio
import ssl
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from daemon import service
from daemon.door import Door
from daemon.limits import QUIET_MS
from tests.daemon.certificates import make_pair
from tests.daemon.test_listeners import tls
from tests.daemon.test_serve import Served, serving
from tests.handlers.ground import until


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "Door", partial(Door, most=2))


def refusals(served: Served) -> list[tuple[int, int]]:
    told = [entry for entry in served.capture.entries if entry["event"] == "connections_refused"]
    return [(entry["refused"], entry["connections"]) for entry in told]


async def is_turned_away(served: Served) -> bool:
    """Whether a stranger who says nothing is closed at once; it leaves in any case."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.public_port)
    try:
        async with asyncio.timeout(1):
            return await reader.read() == b""
    except TimeoutError:
        return False
    finally:
        writer.close()


async def status_of(served: Served, context: ssl.SSLContext | None = None) -> bytes:
    """How a request of its own connection is answered; nothing where it is turned away."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.public_port, ssl=context)
    except ConnectionError:
        return b""
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return (await reader.read())[9:12]
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("is_tls", [False, True])
async def test_strangers_beyond_the_cap_are_closed_at_once_and_places_that_are_left_are_taken_again(
    tmp_path: Path, is_tls: bool
) -> None:
    """With TLS the two inside have not begun their handshake: they count all the same."""
    cert, key = make_pair(tmp_path)
    trusted = ssl.create_default_context(cafile=str(cert)) if is_tls else None
    more = tls(cert, key) if is_tls else {}
    async with serving(tmp_path / "state", **more) as served, AsyncExitStack() as stack:
        for _ in range(2):
            _, writer = await asyncio.open_connection("127.0.0.1", served.public_port)
            stack.callback(writer.close)
        for _ in range(3):
            assert await is_turned_away(served)
        writer.close()

        async def is_answered() -> bool:
            return bool(await status_of(served, trusted))

        await until(is_answered)
        status, _ = await served.call("GET", "/v1/status")
        assert status == 200


async def test_those_turned_away_are_told_by_their_number_every_ten_seconds_at_most(tmp_path: Path) -> None:
    async with serving(tmp_path / "state") as served, AsyncExitStack() as stack:
        for _ in range(2):
            _, writer = await asyncio.open_connection("127.0.0.1", served.public_port)
            stack.callback(writer.close)
        for _ in range(4):
            assert await is_turned_away(served)
        assert refusals(served) == [(1, 2)]
        served.clock.advance(QUIET_MS)
        assert await is_turned_away(served)
        assert refusals(served) == [(1, 2), (4, 2)]

"""One attempt on the wire: where it connects to, what it says there, and what it makes of the answer."""

import asyncio
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from yarl import URL

from daemon.runtime import SystemResolver
from reconcile.callback import Attempt, Callback
from reconcile.courier import Courier
from reconcile.signatures import Key, KeyType
from reconcile.store.deliveries import Delivery
from tests.handlers.ground import HandClock

CI: Final = Callback("ci", URL("https://ci.example.com/hooks/"), (Key(KeyType.HMAC, b"k" * 24),))
HOUR: Final = timedelta(hours=1)


class Asked(aiohttp.BaseConnector):
    """Connects to nothing, and keeps what it was asked to connect to."""

    def __init__(self, *, reaches: bool) -> None:
        super().__init__()
        self.asked: list[tuple[str | None, str | None, str | None]] = []
        self._reaches = reaches

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - its own
        self.asked.append((req.url.host, req.server_hostname, req.headers["Host"]))
        if self._reaches:
            raise aiohttp.ServerDisconnectedError
        raise aiohttp.ClientConnectorError(req.connection_key, OSError("nobody is there"))


class Names:
    """A resolver whose answers change from one look-up to the next."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def resolve(self, host: str, port: int = 0, family: Any = None) -> list[Any]:
        if not self.answers:
            raise OSError("no such name")
        return [{"host": address} for address in self.answers.pop(0)]

    async def close(self) -> None:
        pass


async def sent(
    *answers: list[str],
    callback: Callback = CI,
    url: str = "https://ci.example.com/hooks/x",
    reaches: bool = False,
    times: int = 1,
) -> tuple[Attempt, list[tuple[str | None, str | None, str | None]]]:
    """What the last of some attempts came to, and what they connected to."""
    connector, names = Asked(reaches=reaches), Names(*answers)
    courier = Courier(connector=lambda: connector, resolver=lambda: names, clock=HandClock())  # type: ignore[arg-type,return-value]
    delivery = Delivery("msg_1", "op_1", "ci", url, "operation.done", b"{}", 0)
    try:
        for _ in range(times):
            attempt = await courier.deliver(callback, delivery)
        return attempt, connector.asked
    finally:
        await courier.close()


async def test_the_checked_address_is_the_one_connected_and_the_name_stands_in_host_and_tls() -> None:
    """S31: a second look-up, with another answer, is never made."""
    attempt, asked = await sent(["93.184.215.14"], ["127.0.0.1"])
    assert asked == [("93.184.215.14", "ci.example.com", "ci.example.com")]
    assert attempt == Attempt(None, "connect")


async def test_a_name_that_changes_between_two_attempts_is_judged_at_each() -> None:
    attempt, asked = await sent(["93.184.215.14"], ["127.0.0.1"], times=2)
    assert len(asked) == 1
    assert attempt == Attempt(None, "address_refused: 127.0.0.1 (loopback)")


async def test_of_several_addresses_the_refused_ones_are_left_out_and_the_others_tried_in_turn() -> None:
    _, asked = await sent(["10.0.0.1", "2606:2800:21f::1", "127.0.0.1", "93.184.215.14"])
    assert [host for host, *_ in asked] == ["2606:2800:21f::1", "93.184.215.14"]


async def test_once_connected_no_other_address_is_tried() -> None:
    """What may have arrived is repeated by the schedule, not at once."""
    attempt, asked = await sent(["93.184.215.14", "93.184.215.15"], reaches=True)
    assert [host for host, *_ in asked] == ["93.184.215.14"]
    assert attempt == Attempt(None, "reset")


async def test_a_port_that_is_spelled_out_stands_in_host() -> None:
    ci = Callback("ci", URL("http://ci.example.com:8080/hooks/"), CI.keys)
    _, asked = await sent(["93.184.215.14"], callback=ci, url="http://ci.example.com:8080/hooks/x")
    assert asked == [("93.184.215.14", "ci.example.com", "ci.example.com:8080")]


@pytest.mark.parametrize("answers", [[], [[]]])
async def test_a_name_that_leads_nowhere_is_a_failed_attempt(answers: list[list[str]]) -> None:
    assert await sent(*answers) == (Attempt(None, "dns"), [])


async def test_a_url_that_its_callback_does_not_cover_any_more_is_not_sent() -> None:
    assert await sent(["93.184.215.14"], url="https://old.example.com/x") == (Attempt(None, "callback_moved"), [])


async def test_an_address_that_is_written_out_is_not_looked_up() -> None:
    ci = Callback("ci", URL("http://10.0.0.1/"), CI.keys)
    _, asked = await sent(callback=ci, url="http://10.0.0.1/x")
    assert asked == [("10.0.0.1", None, "10.0.0.1")]


async def test_a_target_that_never_answers_is_given_up_after_thirty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconcile.courier.ATTEMPT_SECONDS", 0.05)

    class Silent(Names):
        async def resolve(self, host: str, port: int = 0, family: Any = None) -> list[Any]:
            await asyncio.Event().wait()
            return []

    silent: Any = Silent()
    courier = Courier(connector=lambda: Asked(reaches=False), resolver=lambda: silent, clock=HandClock())
    delivery = Delivery("msg_1", "op_1", "ci", "https://ci.example.com/hooks/x", "operation.done", b"{}", 0)
    assert await courier.deliver(CI, delivery) == Attempt(None, "timeout")
    await courier.close()


async def test_an_answer_that_never_ends_is_the_answer_that_its_head_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconcile.courier.DROP_SECONDS", 0.05)
    left = asyncio.Event()

    async def drip(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(status=202, headers={"Retry-After": "7"})
        await answer.prepare(request)
        try:
            while True:
                await answer.write(b".")
                await asyncio.sleep(0.01)
        finally:
            left.set()

    app = web.Application()
    app.router.add_post("/hooks/x", drip)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    here = f"http://127.0.0.1:{runner.addresses[0][1]}/hooks/"
    ci = Callback("ci", URL(here), CI.keys, allows_private=True)
    courier = Courier(connector=aiohttp.TCPConnector, resolver=SystemResolver, clock=HandClock())
    delivery = Delivery("msg_1", "op_1", "ci", f"{here}x", "operation.done", b"{}", 0)
    try:
        attempt = await asyncio.wait_for(courier.deliver(ci, delivery), 10)
        assert attempt == Attempt(202, retry_after_ms=7_000)
        await asyncio.wait_for(left.wait(), 10)  # the connection is let go, not kept
    finally:
        await courier.close()
        await runner.cleanup()


# ---- TLS -------------------------------------------------------------------------------------------------------------


def certified(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context for `name`, and a client's that believes in it alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number(), now - HOUR, now + HOUR)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(Encoding.PEM)
    (folder / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "key.pem")
    return server, ssl.create_default_context(cadata=pem.decode())


@pytest.mark.parametrize(("name", "comes_to"), [("ci.test", Attempt(200)), ("other.test", Attempt(None, "tls"))])
async def test_the_certificate_is_held_to_the_name_and_not_to_the_address(
    tmp_path: Path, name: str, comes_to: Attempt
) -> None:
    ours, theirs = certified(tmp_path, "ci.test")
    seen: list[str] = []

    async def take(request: web.Request) -> web.Response:
        seen.append(request.host)
        return web.Response()

    app = web.Application()
    app.router.add_post("/hooks/x", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ours).start()
    port = runner.addresses[0][1]
    names: Any = Names(["127.0.0.1"])
    ci = Callback("ci", URL(f"https://{name}:{port}/hooks/"), CI.keys, allows_private=True)
    courier = Courier(connector=lambda: aiohttp.TCPConnector(ssl=theirs), resolver=lambda: names, clock=HandClock())
    delivery = Delivery("msg_1", "op_1", "ci", f"https://{name}:{port}/hooks/x", "operation.done", b"{}", 0)
    try:
        assert await courier.deliver(ci, delivery) == comes_to
        assert seen == ([f"ci.test:{port}"] if comes_to.status else [])
    finally:
        await courier.close()
        await runner.cleanup()


# ---- the machine's own resolver --------------------------------------------------------------------------------------


async def test_the_machines_resolver_gives_every_address_or_says_that_there_is_none() -> None:
    resolver = SystemResolver()
    found = await asyncio.wait_for(resolver.resolve("localhost", 80), 10)
    assert {one["host"] for one in found} <= {"127.0.0.1", "::1"}
    assert [one["host"] for one in await resolver.resolve("2130706433", 80)] == ["127.0.0.1"]
    for nobody in ("no such name", "x" * 300):
        with pytest.raises(OSError):
            await asyncio.wait_for(resolver.resolve(nobody, 80), 10)


async def test_a_name_that_hangs_holds_up_no_other_and_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, asked, real = threading.Event(), [], socket.getaddrinfo

    def ask(host: str, *more: Any) -> Any:
        asked.append(host)
        if host == "hangs.test":
            go_on.wait(20)
        return real("127.0.0.1", *more)

    monkeypatch.setattr("daemon.runtime.socket.getaddrinfo", ask)
    resolver = SystemResolver()
    hanging = [asyncio.create_task(resolver.resolve("hangs.test", 80)) for _ in range(40)]
    for n in range(20):
        assert await asyncio.wait_for(resolver.resolve(f"ci-{n}.test", 80), 10)
    hanging[0].cancel()
    go_on.set()
    answers = await asyncio.gather(*hanging, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert all(answer == answers[1] for answer in answers[2:])
    assert asked.count("hangs.test") == 1

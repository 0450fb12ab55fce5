"""The client over a real loopback connection: what leaves, to whom, and with which credentials."""

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer
from multidict import CIMultiDict
from yarl import URL

from daemon.meters import Counts
from reconcile import client, limits
from reconcile.client import CREATE_SECONDS, Client, Exchange
from reconcile.errors import NotSent, OutcomeUnknown
from reconcile.files import CHUNK, Files
from reconcile.limits import Pause
from reconcile.model import Absence, ResultRef
from reconcile.peer import Peer
from reconcile.provider import FilePart, HttpRequest, JsonLines, Multipart, Purpose
from reconcile.redact import Redactor
from reconcile.registry import provider_for
from tests.reconcile.provider_cases import operation

KIND = "anthropic_batches"
OP = operation(KIND, remote_job_id="job-1")
SPOOL = "spool/op_01JDSAMPLE"
CREATE = HttpRequest(
    "POST",
    "messages/batches",
    Purpose.CREATE,
    headers={"content-type": "application/json"},
    body=JsonLines(SPOOL, b'{"a":1,"requests":[', b"]}"),
)

UPLOAD = Multipart(
    {"purpose": "batch"}, FilePart(SPOOL, field_name="file", file_name="f.jsonl", content_type="x/y"), boundary="b"
)


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: CIMultiDict[str]
    body: bytes


@dataclass
class Bench:
    """A client, an account, and the server at its other end."""

    root: Path
    client: Client
    peer: Peer
    seen: list[Seen] = field(default_factory=list)
    #: Answer before the body was read.
    answers_early: bool = False
    status: int = 200
    answer: bytes = b'{"id": "job-1"}'
    #: Take each request and close its connection without an answer.
    hangs_up: bool = False

    def spool(self, data: bytes) -> None:
        path = self.root / SPOOL
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    async def handle(self, request: web.Request) -> web.Response:
        body = b"" if self.answers_early else await request.read()
        self.seen.append(Seen(request.method, request.raw_path, CIMultiDict(request.headers), body))
        if self.hangs_up:
            assert request.transport is not None
            request.transport.close()
        status = 413 if self.answers_early else self.status
        return web.Response(body=self.answer, status=status, content_type="application/json")

    async def fetch(self, name: str) -> int:
        """The status of the answer to a result fetch. Raises: NotSent."""
        async with self.client.stream(self.peer, OP, self.peer.provider.result(OP, ResultRef(name))) as stream:
            return stream.status


class StandingClock:
    """Time that stands still."""

    def now(self) -> int:
        return 1_800_000_000_000

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    nobody = cast("Any", None)
    sender = Client(
        connector=aiohttp.TCPConnector,
        clock=StandingClock(),
        dice=cast("Any", type("Dice", (), {"draw": staticmethod(lambda: 0.0)})),
        files=Files(tmp_path, nobody),
        redactor=Redactor(()),
        meters=Counts(),
        max_answer=65_536,
        log=structlog.get_logger(),
        sleep=lambda _: asyncio.sleep(0),
    )
    made = Bench(tmp_path, sender, nobody)
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{anything:.*}", made.handle)
    async with TestServer(app) as server:
        made.peer = Peer(
            "sample", provider_for(KIND), server.make_url("/v1"), {"x-api-key": "sk-secret"}, credential_name="KEY"
        )
        try:
            yield made
        finally:
            await sender.close()


def status_of(exchange: Exchange) -> int:
    assert exchange.response is not None
    return exchange.response.status


# ---- a body made of a spooled file's lines ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "texts",
    [
        ["one"],
        ["one", "two", ""],
        ["ünï\n", '"', "\\n"],
        ["x" * (CHUNK - 3), "y"],
        ["x" * CHUNK, "y" * CHUNK, "z"],
        [str(n) for n in range(50_000)],
    ],
    ids=["one", "three", "odd", "edge", "long", "many"],
)
async def test_the_lines_of_a_spooled_file_leave_as_one_body_of_known_length(bench: Bench, texts: list[str]) -> None:
    """Nothing is chunked, the content type is the request's own, and the same bytes leave each time."""
    items = [{"custom_id": str(n), "params": {"text": text}} for n, text in enumerate(texts)]
    bench.spool(b"".join(json.dumps(item, ensure_ascii=False).encode() + b"\n" for item in items))
    for _ in range(2):
        assert status_of(await bench.client.send(bench.peer, OP, CREATE)) == 200
    first, again = bench.seen
    assert json.loads(first.body) == {"a": 1, "requests": items}
    assert first.headers["content-length"] == str(len(first.body))
    assert "transfer-encoding" not in first.headers
    assert first.headers["content-type"] == "application/json"
    assert again.body == first.body


async def test_a_server_that_answers_before_the_end_is_heard(bench: Bench) -> None:
    """413 to a body of which most has not left: the answer counts, or the connection is known to be cut."""
    bench.answers_early = True
    bench.spool(b'{"custom_id":"a"}\n' * 1_000_000)
    exchange = await bench.client.send(bench.peer, OP, CREATE)
    if exchange.response is None:
        assert exchange.error_class == "reset"
    else:
        assert exchange.response.status == 413


async def test_a_missing_input_is_our_own_fault(bench: Bench) -> None:
    """Told to the caller, as what surely never left, and no failure of the provider's."""
    exchange = await bench.client.send(bench.peer, OP, CREATE)
    assert isinstance(exchange.error, NotSent)
    assert exchange.error_class == "our_file"
    assert bench.seen == []
    assert bench.peer.pause.failures == 0


@pytest.mark.parametrize(
    ("purpose", "failures"), [(Purpose.STATUS, 6), (Purpose.CREATE, 6), (Purpose.LIST, 5), (Purpose.LOOKUP, 5)]
)
async def test_a_probe_that_may_be_refused_alone_makes_the_pause_no_longer(
    bench: Bench, purpose: Purpose, failures: int
) -> None:
    """An account may forbid its list and nothing else: creates and cancels must not wait ever longer for that."""
    bench.peer.pause = Pause(until_ms=1, reason="failures: http_500", failures=5, opened_at_ms=0)
    bench.status = 403
    bench.client.note(bench.peer, await bench.client.send(bench.peer, OP, HttpRequest("GET", "messages", purpose)))
    assert bench.peer.pause.failures == failures


@pytest.mark.parametrize("absence", [Absence.MISSING, Absence.MOVED])
async def test_nothing_leaves_about_what_may_not_be_asked_about(bench: Bench, absence: Absence) -> None:
    """The last net under the worker, for a whole answer and for a result alike."""
    op, bench.peer.absence = OP, Absence.MISSING
    if absence is Absence.MOVED:
        op, bench.peer.absence = replace(OP, origin="https://elsewhere.example"), None
    request = bench.peer.provider.status(op)
    exchange = await bench.client.send(bench.peer, op, request)
    assert isinstance(exchange.error, NotSent)
    assert exchange.error_class == absence
    with pytest.raises(NotSent):
        async with bench.client.stream(bench.peer, op, bench.peer.provider.result(op, ResultRef("file-1"))):
            pass
    assert bench.seen == []
    bench.peer.earlier, bench.peer.absence = frozenset({"https://elsewhere.example"}), None
    assert status_of(await bench.client.send(bench.peer, op, request)) == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("purpose", [Purpose.CREATE, Purpose.CANCEL, Purpose.INPUT])
async def test_what_has_an_effect_leaves_once_although_its_connection_breaks(
    bench: Bench, method: str, purpose: Purpose
) -> None:
    """E1, N15: it may have arrived, so it is no business of an HTTP library to send it again."""
    await bench.client.send(bench.peer, OP, HttpRequest("GET", "jobs/1", Purpose.STATUS))  # a connection that is kept
    bench.hangs_up = True
    exchange = await bench.client.send(bench.peer, OP, HttpRequest(method, "jobs/1", purpose))
    assert isinstance(exchange.error, OutcomeUnknown)
    assert [seen.method for seen in bench.seen] == ["GET", method]


async def test_a_large_input_gets_the_time_that_it_needs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A create has a minute, and one more second for each 100 kB."""
    bench.spool(b"x" * 1_000_000)
    given: list[aiohttp.ClientTimeout] = []
    plain = aiohttp.ClientSession.request

    def spy(session: aiohttp.ClientSession, *args: Any, **how: Any) -> Any:
        given.append(how["timeout"])
        return plain(session, *args, **how)

    monkeypatch.setattr(aiohttp.ClientSession, "request", spy)
    await bench.client.send(bench.peer, OP, CREATE)
    await bench.client.send(bench.peer, OP, replace(CREATE, body=b"{}"))
    large, small = (timeout.total for timeout in given)
    assert large is not None
    assert CREATE_SECONDS + 10 <= large < CREATE_SECONDS + 11
    assert small == CREATE_SECONDS


# ---- bounds ----------------------------------------------------------------------------------------------------


async def test_an_upload_to_a_peer_that_takes_it_and_never_reads_comes_to_an_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No silence is watched for while bytes only leave: a total, by the size, is all that ends it."""
    monkeypatch.setattr(client, "CREATE_SECONDS", 0.3)
    monkeypatch.setattr(client, "SLOWEST_BYTES", 10**9)
    bench.spool(b"x" * 50_000_000)
    over = asyncio.Event()

    async def never_reads(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.transport.abort()

    server = await asyncio.start_server(never_reads, "127.0.0.1", 0)
    bench.peer.base_url = URL(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
    try:
        for body in (UPLOAD, CREATE.body):
            async with asyncio.timeout(10):
                exchange = await bench.client.send(bench.peer, OP, replace(CREATE, purpose=Purpose.UPLOAD, body=body))
            assert isinstance(exchange.error, OutcomeUnknown)
            assert exchange.error_class == "timeout"
    finally:
        over.set()
        server.close()
        await server.wait_closed()


async def test_an_upload_gets_the_time_that_its_size_needs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a create that is streamed does: a minute, and one more second for each 100 kB."""
    bench.spool(b"x" * 1_000_000)
    given: list[aiohttp.ClientTimeout] = []
    plain = aiohttp.ClientSession.request

    def spy(session: aiohttp.ClientSession, *args: Any, **how: Any) -> Any:
        given.append(how["timeout"])
        return plain(session, *args, **how)

    monkeypatch.setattr(aiohttp.ClientSession, "request", spy)
    assert status_of(await bench.client.send(bench.peer, OP, replace(CREATE, purpose=Purpose.UPLOAD, body=UPLOAD)))
    (timeout,) = given
    assert timeout.total is not None
    assert CREATE_SECONDS + 10 <= timeout.total < CREATE_SECONDS + 11


async def test_a_result_that_drips_for_ever_comes_to_an_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then is no silence: the whole of it has a bound of its own."""
    monkeypatch.setattr(client, "RESULT_SECONDS", 0.5)
    over = asyncio.Event()
    sent = 0

    async def drips(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while not over.is_set():
                await response.write(b"x")
                sent += 1
                await asyncio.sleep(0.02)
        return response

    app = web.Application()
    app.router.add_get("/v1/drips", drips)

    async def fetch() -> None:
        request = bench.peer.provider.result(OP, ResultRef("drips"))
        async with asyncio.timeout(10), bench.client.stream(bench.peer, OP, request) as stream:
            async for _ in stream.chunks:
                pass

    async with TestServer(app) as server:
        bench.peer.base_url = server.make_url("/v1")
        try:
            with pytest.raises(OutcomeUnknown) as cut:
                await fetch()
        finally:
            over.set()
    assert cut.value.error_class == "timeout"
    assert sent > 1


# ---- where a result lies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("messages/batches/b/results", "/v1/messages/batches/b/results"),
        ("/v1/messages/batches/b/results?part=1", "/v1/messages/batches/b/results?part=1"),
        ("{origin}/v1/messages/batches/b/results", "/v1/messages/batches/b/results"),
        ("{origin}/elsewhere/a%2Fb", "/elsewhere/a%2Fb"),
        ("//{authority}/v1/x", "/v1/x"),
        ("../x", "/x"),
        ("a b\\c", "/v1/a%20b%5Cc"),
    ],
)
async def test_a_place_at_the_providers_own_origin_is_asked_with_the_key(bench: Bench, name: str, path: str) -> None:
    """A path, or a URL of the configured origin; the version header of the adapter goes with it."""
    base = bench.peer.base_url
    assert await bench.fetch(name.format(origin=base.origin(), authority=f"{base.host}:{base.port}")) == 200
    (seen,) = bench.seen
    assert (seen.method, seen.path, seen.headers["x-api-key"]) == ("GET", path, "sk-secret")
    assert seen.headers["anthropic-version"] == "2023-06-01"


async def test_a_name_in_the_url_is_no_credential(bench: Bench) -> None:
    """Only what was configured proves us."""
    base = bench.peer.base_url
    assert await bench.fetch(f"http://user:password@{base.host}:{base.port}/v1/x") == 200
    assert "authorization" not in bench.seen[0].headers


@pytest.mark.parametrize(
    ("name", "error_class"),
    [
        ("https://gateway.invalid/v1/messages/batches/mb1/results", "foreign_host:gateway.invalid"),
        ("//gateway.invalid:8443/x", "foreign_host:gateway.invalid:8443"),
        ("https://{authority}/v1/x", "foreign_host:{authority}"),
        ("http://{host}:1/v1/x", "foreign_host:{host}:1"),
        ("http://{authority}@gateway.invalid/x", "foreign_host:gateway.invalid"),
        ("https://☃.invalid/x", "foreign_host:xn--n3h.invalid"),
        ("http://[bad/x", "bad_url"),
        ("http://h:99999/x", "bad_url"),
        ("file:///etc/passwd", "bad_url"),
        ("mailto:someone", "bad_url"),
    ],
)
async def test_a_stranger_is_not_asked_at_all(bench: Bench, name: str, error_class: str) -> None:
    """The host is named, so that a person sees where the results are said to be (C05)."""
    base = bench.peer.base_url
    parts = {"authority": f"{base.host}:{base.port}", "host": base.host}
    with pytest.raises(NotSent) as refused:
        await bench.fetch(name.format(**parts))
    assert refused.value.error_class == error_class.format(**parts)
    assert bench.seen == []


async def test_where_nobody_was_asked_nothing_is_learned_of_the_provider(bench: Bench) -> None:
    """Results that are said to lie elsewhere hold up no create, cancel or read of the others."""
    with pytest.raises(NotSent):
        await bench.fetch("https://gateway.invalid/x")
    assert (bench.peer.pause, list(bench.peer.recent)) == (limits.NO_PAUSE, [])


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("HTTPS://API.Test:443/x", "https://api.test/x"),
        ("https://api.test/a%2Fb/%41?sig=c%2Fd%2B&e=", "https://api.test/a%2Fb/%41?sig=c%2Fd%2B&e="),
        ("//api.test/x", "https://api.test/x"),
        ("../x?y=%2F", "https://api.test/x?y=%2F"),
        ("r.jsonl#part", "https://api.test/v1/r.jsonl"),
        ("with a space", "https://api.test/v1/with%20a%20space"),
        ("100%", "https://api.test/v1/100%25"),
        ("https://user:word@api.test/x", "https://api.test/x"),
    ],
)
def test_a_named_place_of_the_provider_is_asked_for_as_it_was_spelled(name: str, asked: str) -> None:
    """A signature may be of the very spelling; what no URL can hold is put right."""
    peer = Peer("x", provider_for(KIND), URL("https://api.test/v1"), {})
    assert str(client._url(peer, HttpRequest("GET", "", Purpose.RESULT, url=name))) == asked


async def test_a_storage_host_of_the_contract_is_asked_without_the_key(bench: Bench) -> None:
    """It gets the request and nothing that proves us, and never in the clear where the provider itself is not."""
    base = bench.peer.base_url
    contract = replace(bench.peer.provider.contract, storage_hosts=(str(base.host),))
    bench.peer.provider = provider_for(KIND, contract)
    bench.peer.base_url = URL(f"http://{base.host}:1/v1")  # the same host, another port: another origin
    assert await bench.fetch(f"{base.origin()}/bucket/results.jsonl") == 200
    (seen,) = bench.seen
    assert "x-api-key" not in seen.headers
    bench.peer.base_url = URL(f"https://{base.host}:1/v1")
    with pytest.raises(NotSent):
        await bench.fetch(f"{base.origin()}/bucket/results.jsonl")


async def test_what_was_read_of_an_answer_that_is_too_large_is_let_go_at_once(bench: Bench) -> None:
    """Garbage is looked for seldom, and each may have come to 16 MiB."""
    bench.answer = bytes(2**20)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):  # more would wait for a turn, and time stands still
            exchange = await bench.client.send(bench.peer, OP, HttpRequest("GET", "large", Purpose.STATUS))
            assert exchange.error_class == "answer_too_large"
            del exchange
        left = sum(isinstance(one, OutcomeUnknown) for one in gc.get_objects())
    finally:
        gc.enable()
    assert left == 0

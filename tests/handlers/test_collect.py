"""From a start to its end against a small provider of the test's own: what is fetched, what it comes to, what leaks.

The provider answers over real sockets what a test has put there. Nothing here asks which functions were called: the
rows, the answers of the local API, and what the provider saw are the whole of it.
"""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from reconcile import client
from reconcile.contract import COLLECT_BUDGET
from reconcile.files import FileWriter
from tests.handlers.ground import (
    API_KEY,
    EXPECT,
    FIXTURES,
    SECRET,
    Ground,
    HandClock,
    event,
    provider,
    running,
    signed,
    strict_json,
    until,
    with_poll,
)

JOB = "batch_fx6a1c0e5d9b7f4281"
WAIT = 20
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


# ---- a provider ------------------------------------------------------------------------------------------------


@dataclass
class Peer:
    """What the provider holds, and what it was asked."""

    #: Bodies or handlers, one a read of the job; the last one stays.
    reads: list[Any] = field(default_factory=list)
    files: dict[str, Any] = field(default_factory=dict)
    create: Any = None
    upload: Any = None
    asked: list[tuple[str, str]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    uploads: list[bytes] = field(default_factory=list)
    url: str = ""

    def count(self, start: str) -> int:
        return sum(path.startswith(start) for _, path in self.asked)

    @property
    def fetched(self) -> list[str]:
        """The files that were fetched, in order."""
        return [path.split("/")[3] for method, path in self.asked if method == "GET" and path.endswith("/content")]

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._record], client_max_size=2**26)
        app.router.add_post("/v1/files", self._upload)
        app.router.add_post("/v1/batches", self._create)
        app.router.add_get("/v1/batches/{job}", self._read)
        app.router.add_get("/v1/batches", self._list)
        app.router.add_get("/v1/files/{file}/content", self._content)
        return app

    @web.middleware
    async def _record(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.asked.append((request.method, request.raw_path))
        self.headers.append(dict(request.headers))
        return await handler(request)

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        self.uploads.append(await request.read())
        return await answered(request, self.upload or {"id": "file-in", "object": "file"})

    async def _create(self, request: web.Request) -> web.StreamResponse:
        created = {"id": JOB, "object": "batch", "status": "validating", "input_file_id": "file-in"}
        return await answered(request, self.create or created)

    async def _read(self, request: web.Request) -> web.StreamResponse:
        return await answered(request, self.reads.pop(0) if len(self.reads) > 1 else self.reads[0])

    async def _list(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [], "has_more": False})

    async def _content(self, request: web.Request) -> web.StreamResponse:
        held = self.files[request.match_info["file"]]
        if isinstance(held, list):
            held = held.pop(0) if len(held) > 1 else held[0]
        return await answered(request, held)


async def answered(request: web.Request, given: Any) -> web.StreamResponse:
    """A dict as JSON, bytes as a file, a function as what it answers."""
    if callable(given):
        response: web.StreamResponse = await given(request)
        return response
    if isinstance(given, bytes):
        return web.Response(body=given, content_type="application/octet-stream")
    return web.json_response(given)


def refusal(status: int, headers: Mapping[str, str] | None = None, **error: Any) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "no", **error}}, status=status, headers=headers)

    return answer


def cut(body: bytes, *, announced: int) -> Handler:
    """A body that is shorter than its head said."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = announced
        await response.prepare(request)
        await response.write(body)
        assert request.transport is not None
        request.transport.close()
        return response

    return answer


def raw_answer(body: bytes, *, content_type: str, status: int = 200) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status, headers={"Content-Type": content_type})

    return answer


def batch(status: str = "completed", *, output: str | None = "file-out", error: str | None = None, **more: Any) -> Any:
    """A batch object, as far as it matters."""
    return {
        "id": JOB,
        "object": "batch",
        "status": status,
        "input_file_id": "file-in",
        "output_file_id": output,
        "error_file_id": error,
        **more,
    }


def line(item_id: str, body: Any = None, **more: Any) -> bytes:
    """A good result line."""
    response = {"status_code": 200, "request_id": "r", "body": {"ok": True} if body is None else body}
    return json.dumps({"custom_id": item_id, "response": response, "error": None, **more}).encode()


def fixture(name: str) -> Any:
    return json.loads((FIXTURES / name).read_bytes())


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    server = TestServer(app)
    await server.start_server()
    try:
        yield str(server.make_url("")).rstrip("/")
    finally:
        await server.close()


@dataclass
class Stage:
    """The daemon, its worker, and the provider that it talks to."""

    ground: Ground
    peer: Peer

    async def submit(self, *ids: str, **fields: Any) -> str:
        items = [{"custom_id": name, "url": "/v1/responses", "body": {"input": name}} for name in ids]
        return await self.ground.start(items=items, **fields)

    async def end(self, operation: str, *, seconds: int = WAIT) -> Any:
        """The body at the end, or where a person is needed."""
        body = await self.ground.get(f"/v1/operations/{operation}?wait={seconds}")
        assert body["wait"]["result"] != "timed_out" or body["done"], body
        return body

    async def items(self, operation: str) -> dict[str, str]:
        page = await self.ground.get(f"/v1/operations/{operation}/items?limit=500")
        return {
            one["item_id"]: one["outcome"] + (f": {one['reason']}" if one["reason"] else "") for one in page["items"]
        }

    async def states(self, operation: str) -> list[str]:
        rows = (await self.ground.get(f"/v1/operations/{operation}/history?limit=500"))["history"]
        return [row["to"] for row in rows if row["kind"] == "move"]

    def leaks(self, *secrets: str) -> list[str]:
        """Where any of the words stands: files of the state directory (token and lock apart), the log."""
        places = [
            path.name
            for path in self.ground.folder.rglob("*")
            if path.is_file() and path.name != "api-token" and any(s.encode() in path.read_bytes() for s in secrets)
        ]
        return places + [str(entry) for entry in self.ground.logged if any(s in repr(entry) for s in secrets)]


@asynccontextmanager
async def stage(
    folder: Path, peer: Peer, *, caps: Mapping[str, str] | None = None, poll: Mapping[str, Any] | None = None
) -> AsyncIterator[Stage]:
    clock = HandClock()
    clock.run()
    async with serving(peer.app()) as url:
        peer.url = url
        providers = {"openai": with_poll(provider(f"{url}/v1"), **(poll or {}))}
        sections = {"caps": dict(caps)} if caps else None
        async with running(folder, providers=providers, sections=sections, clock=clock, worker=True) as ground:
            yield Stage(ground, peer)


# ---- the stories of the fixtures -------------------------------------------------------------------------------

#: `cancel_lost_the_race` has a cancel in it: see test_wishes.
STORIES = [
    name
    for name, story in EXPECT["stories"].items()
    if story["kind"] == "openai_batch" and "cancel_answer" not in story
]


def files_of(story: Any) -> dict[str, Any]:
    """What each named result id answers."""
    named = EXPECT["files"][story["status"]]["results"]
    bodies = [(FIXTURES / name).read_bytes() for name in story["results"]]
    empty = story.get("fetched_empty", [])
    held: dict[str, Any] = dict(zip([n for n in named if n not in empty], bodies, strict=True))
    held.update(dict.fromkeys(empty, b""))
    if story.get("short_body"):
        held = {name: cut(body[:-40], announced=len(body)) for name, body in held.items()}
    return held


async def begin(on: Stage, story: Any) -> str:
    if not story.get("adopted"):
        return await on.submit(*story["submitted"])
    body = {"provider": "openai", "remote_job_id": JOB}
    answer = await on.ground.api("POST", "/v1/operations", body=body)
    assert answer.status == 202, answer
    return str(answer.json()["operation_id"])


@pytest.mark.parametrize("name", STORIES)
async def test_each_story_ends_as_it_should(tmp_path: Path, name: str) -> None:
    story = EXPECT["stories"][name]
    named = EXPECT["files"][story["status"]]["results"]
    peer = Peer(reads=[batch("in_progress", output=None), fixture(story["status"])], files=files_of(story))
    async with stage(tmp_path / "state", peer) as on:
        operation = await begin(on, story)
        body = await on.end(operation)

        assert body["state"] == story["end"]
        assert body["done"] == (not story["end"].startswith("result_"))
        assert ("result_collecting" in await on.states(operation)) == story["collects"]
        assert body["summary"] == story["summary"]
        if "error" in story:
            assert body["error"]["code"] == story["error"]
        if story["items"] is not None:
            assert {k: v for k, v in (await on.items(operation)).items() if k in story["items"]} == story["items"]
        problems = (body["result"] or {}).get("problems") or {}
        expected = {k: v for k, v in story.get("problems", {}).items() if k not in ("expected", "found")}
        assert {k: v for k, v in problems.items() if k not in ("expected", "found")} == expected
        if "expected" in story.get("problems", {}):
            assert (problems["expected"], problems["found"]) == (4, 3)
        if story["end"] == "result_unavailable":
            assert len(peer.fetched) == (8 if named else 0)
            assert peer.count(f"/v1/batches/{JOB}") >= 8, "the job is read again before each further try"
            assert body["result"] is None
        else:
            assert peer.fetched == named
        if body["summary"]:
            counts = dict(body["summary"])
            assert counts.pop("total") == sum(counts.values())
        await at_rest(on, operation, body)


async def at_rest(on: Stage, operation: str, body: Any) -> None:
    """Whatever the end: one create, the same answer again, nothing half-written, no secret anywhere."""
    assert sum(1 for asked in on.peer.asked if asked == ("POST", "/v1/batches")) <= 1
    assert (await on.ground.get(f"/v1/operations/{operation}"))["state"] == body["state"]
    assert list((on.ground.folder / "tmp").iterdir()) == []
    assert on.leaks(API_KEY, SECRET) == []
    attempts = on.ground.rows("SELECT count(DISTINCT attempt) FROM items WHERE attempt > 0")
    assert attempts[0][0] <= 1
    for entry in on.ground.logged:
        assert entry["log_level"] in ("debug", "info", "warning"), entry


async def test_a_story_ends_the_same_when_webhooks_ring(tmp_path: Path) -> None:
    """J1: the event only rings; the read decides, and the webhook's word is not needed."""
    story = EXPECT["stories"]["openai/partial"]
    peer = Peer(reads=[batch("in_progress", output=None)], files=files_of(story))
    async with stage(tmp_path / "state", peer, poll={"base": "1h", "cap": "2h", "sweep": "3h"}) as on:
        operation = await begin(on, story)

        async def is_observed() -> bool:
            return (await on.ground.row(operation)).state == "observing"

        await until(is_observed)
        peer.reads = [fixture(story["status"])]
        ring = event(JOB)
        assert (await on.ground.hook(ring, signed(ring, at_ms=on.ground.clock.now()))).status == 200
        body = await on.end(operation)
        assert (body["state"], body["summary"]) == (story["end"], story["summary"])
        rows = (await on.ground.get(f"/v1/operations/{operation}/history"))["history"]
        assert any("event:msg_1" in row["reason"] for row in rows)


async def test_the_file_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    """openai/no_file_yet, where a later read names the file."""
    late = fixture("openai/batch_status_completed_no_file_yet.json")
    whole = EXPECT["stories"]["openai/all_succeeded"]
    peer = Peer(reads=[late, late, fixture(whole["status"])], files=files_of(whole))
    async with stage(tmp_path / "state", peer) as on:
        body = await on.end(await begin(on, whole))
        assert (body["state"], body["summary"]) == ("succeeded", whole["summary"])
        assert peer.fetched == ["file-fxOut4Lk8Wc"]


async def test_a_result_is_served_as_it_came(tmp_path: Path) -> None:
    """F1, F2: the bytes, and each item's own line."""
    story = EXPECT["stories"]["openai/partial"]
    peer = Peer(reads=[fixture(story["status"])], files=files_of(story))
    async with stage(tmp_path / "state", peer) as on:
        operation = await begin(on, story)
        body = await on.end(operation)
        whole = b"".join((FIXTURES / name).read_bytes() for name in story["results"])
        answer = await on.ground.api("GET", body["result_url"])
        assert (answer.status, answer.body) == (200, whole)
        assert body["result"]["bytes"] == len(whole)
        assert body["result"]["items"] == 4
        assert body["result"]["problems"] is None
        failed = await on.ground.get(body["errors_url"])
        assert [one["item_id"] for one in failed["items"]] == ["job-0001:1", "job-0001:3"]
        one = await on.ground.get(f"/v1/operations/{operation}/items/job-0001:2")
        assert [line["custom_id"] for line in one["lines"]] == ["job-0001:2"]
        assert one["outcome"] == "succeeded"


async def test_both_lines_of_a_doubled_id_are_kept(tmp_path: Path) -> None:
    story = EXPECT["stories"]["openai/duplicate_id"]
    peer = Peer(reads=[fixture(story["status"])], files=files_of(story))
    async with stage(tmp_path / "state", peer) as on:
        operation = await begin(on, story)
        await on.end(operation)
        one = await on.ground.get(f"/v1/operations/{operation}/items/job-0001:1")
        assert (one["outcome"], one["reason"], len(one["lines"])) == ("failed", "duplicate_id", 2)


async def test_counts_that_differ_are_told_in_history(tmp_path: Path) -> None:
    story = EXPECT["stories"]["openai/counts_differ"]
    peer = Peer(reads=[fixture(story["status"])], files=files_of(story))
    peer.reads = [{**fixture(story["status"]), "request_counts": {"total": 4, "completed": 1, "failed": 1}}]
    async with stage(tmp_path / "state", peer) as on:
        operation = await begin(on, story)
        assert (await on.end(operation))["state"] == "completed_with_errors"
        rows = (await on.ground.get(f"/v1/operations/{operation}/history"))["history"]
        assert any(row["kind"] == "fact" and "counted 2" in row["reason"] for row in rows)


# ---- field cases of the collector ------------------------------------------------------------------------------


async def test_c08_results_are_keyed_whatever_their_order(tmp_path: Path) -> None:
    ids = ["r4", "r1", "r5", "r3", "r2"]
    peer = Peer(reads=[batch()], files={"file-out": b"\n".join(line(n, {"answer": n}) for n in ids)})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit(*sorted(ids))
        assert (await on.end(operation))["state"] == "succeeded"
        for n in ids:
            one = await on.ground.get(f"/v1/operations/{operation}/items/{n}")
            assert one["lines"][0]["response"]["body"] == {"answer": n}


async def test_c10_a_download_that_is_cut_is_fetched_again_and_nothing_of_it_is_served(tmp_path: Path) -> None:
    ids = [f"row-{n:04d}" for n in range(500)]
    whole = b"\n".join(line(n) for n in ids) + b"\n"
    tries: list[Any] = [cut(whole[:30_000], announced=len(whole)), cut(whole[:7_777], announced=len(whole)), whole]
    peer = Peer(reads=[batch()], files={"file-out": tries})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit(*ids)
        body = await on.end(operation)
        assert (body["state"], body["summary"]["succeeded"]) == ("succeeded", 500)
        assert peer.fetched == ["file-out"] * 3
        assert peer.count(f"/v1/batches/{JOB}") >= 3
        assert (await on.ground.api("GET", body["result_url"])).body == whole
        kept = [path for path in (on.ground.folder / "results").rglob("*") if path.is_file()]
        assert len(kept) == 1
        await at_rest(on, operation, body)


async def test_c11_both_files_are_read_and_no_odd_row_counts_as_good(tmp_path: Path) -> None:
    output = b"\n".join(
        [
            b'{"custom_id":"a","response":{"status_code":200,"body":{"choices":[]}},"error":null}',
            b'{"custom_id":"b","response":{"status_code":500,"body":{"error":{"message":"x"}}},"error":null}',
            b'{"custom_id":"c","response":null,"error":null}',
            b'{"custom_id":"d","response":{"status_code":200,"body":null},"error":null}',
        ]
    )
    error = b'{"custom_id":"e","response":null,"error":{"code":"server_error","message":"y"}}'
    peer = Peer(reads=[batch(error="file-err")], files={"file-out": output, "file-err": error})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit(*"abcde")
        body = await on.end(operation)
        assert body["state"] == "completed_with_errors"
        assert {name: word.split(":")[0] for name, word in (await on.items(operation)).items()} == {
            "a": "succeeded",
            "b": "failed",
            "c": "failed",
            "d": "failed",
            "e": "failed",
        }


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 400])
async def test_c41_a_line_that_is_no_json_is_kept_and_is_no_success(tmp_path: Path, number: bytes) -> None:
    bad = b'{"custom_id":"a","response":{"status_code":200,"body":{"score":' + number + b"}}}"
    peer = Peer(reads=[batch()], files={"file-out": bad + b"\n" + line("b") + b"\n"})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a", "b")
        body = await on.end(operation)
        assert body["state"] == "result_validation_failed"
        assert body["result"]["problems"]["unreadable_lines"] == [1]
        assert await on.items(operation) == {"a": "missing: absent", "b": "succeeded"}
        for path in ("", "/history", "/observations", "/items", "/items/b"):
            strict_json((await on.ground.api("GET", f"/v1/operations/{operation}{path}")).body)
        whole = await on.ground.api("GET", f"/v1/operations/{operation}/result")
        assert bad in whole.body


async def test_c49_blank_lines_are_nothing_and_a_bad_line_has_its_number(tmp_path: Path) -> None:
    body_bytes = b"\n".join([line("a"), b"", line("b"), b"   ", line("c") + b"\r", b"not json", line("d")])
    peer = Peer(reads=[batch()], files={"file-out": body_bytes})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit(*"abcd")
        body = await on.end(operation)
        assert await on.items(operation) == dict.fromkeys("abcd", "succeeded")
        assert body["state"] == "result_validation_failed"
        assert body["result"]["problems"] == {"unreadable_lines": [6]}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("no final newline", line("a") + b"\n" + line("b")),
        ("a final newline", line("a") + b"\n" + line("b") + b"\n"),
        ("many final newlines", line("a") + b"\n" + line("b") + b"\n\n\n"),
        ("CR LF", line("a") + b"\r\n" + line("b") + b"\r\n"),
        ("a BOM", b"\xef\xbb\xbf" + line("a") + b"\n" + line("b")),
        ("a BOM before a blank line", b"\xef\xbb\xbf\n" + line("a") + b"\n" + line("b")),
        ("spaces around", b"  " + line("a") + b"  \n\t" + line("b")),
        (
            "line separators inside strings",
            line("a").replace(b"true", '"x\u2028y\u2029z\u0085"'.encode())
            + b"\n"
            + line("b").replace(b"true", b'"\\u2028"'),
        ),
        ("a form feed inside a string", line("a").replace(b"true", b'"\\f\\u001e"') + b"\n" + line("b")),
    ],
)
async def test_lines_end_at_newline_bytes_and_nowhere_else(tmp_path: Path, name: str, data: bytes) -> None:
    """S34."""
    peer = Peer(reads=[batch()], files={"file-out": data})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a", "b")
        body = await on.end(operation)
        assert body["state"] == "succeeded", body["result"]
        for n in "ab":
            one = await on.ground.get(f"/v1/operations/{operation}/items/{n}")
            assert one["lines"][0]["custom_id"] == n


@pytest.mark.parametrize("over", [0, 1])
async def test_a_line_beyond_the_cap_is_unreadable_and_its_neighbours_are_not(tmp_path: Path, over: int) -> None:
    """S34: `caps.line`."""
    cap = 4096
    long = line("b", {"pad": ""})
    long = line("b", {"pad": "x" * (cap + over - len(long))})
    assert len(long) == cap + over
    peer = Peer(reads=[batch()], files={"file-out": b"\n".join([line("a"), long, line("c")])})
    async with stage(tmp_path / "state", peer, caps={"line": f"{cap}B"}) as on:
        operation = await on.submit(*"abc")
        body = await on.end(operation)
        if over:
            assert body["state"] == "result_validation_failed"
            assert body["result"]["problems"] == {"missing": ["b"], "unreadable_lines": [2]}
            assert (await on.items(operation))["c"] == "succeeded"
            whole = await on.ground.api("GET", f"/v1/operations/{operation}/result")
            assert long in whole.body
        else:
            assert body["state"] == "succeeded"


async def test_a_line_that_never_ends_is_not_held(tmp_path: Path) -> None:
    """S34: a result of one endless line is capped by the line, then by the result."""
    peer = Peer(reads=[batch()], files={"file-out": b"x" * 3_000_000})
    async with stage(tmp_path / "state", peer, caps={"line": "1KiB", "result": "1MiB"}) as on:
        operation = await on.submit("a")
        body = await on.end(operation)
        assert body["state"] == "result_unavailable"
        assert list((on.ground.folder / "results").rglob("*.jsonl")) == []


async def test_ten_thousand_lines_are_counted_right(tmp_path: Path) -> None:
    ids = [f"{n:05d}" for n in range(3_000)]
    peer = Peer(reads=[batch()], files={"file-out": b"\n".join(line(n) for n in reversed(ids))})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit(*ids)
        body = await on.end(operation)
        assert (body["state"], body["summary"]["succeeded"]) == ("succeeded", 3_000)


@pytest.mark.parametrize("error", ["", None])
async def test_only_what_is_named_is_fetched(tmp_path: Path, error: str | None) -> None:
    peer = Peer(reads=[batch(error=error)], files={"file-out": line("a")})
    async with stage(tmp_path / "state", peer) as on:
        assert (await on.end(await on.submit("a")))["state"] == "succeeded"
        assert peer.fetched == ["file-out"]


async def test_c47_no_credential_reaches_another_host(tmp_path: Path) -> None:
    """A redirect to a storage host is not followed now: no credential leaves, and the signed query is not kept."""
    seen: list[Mapping[str, str]] = []

    async def storage(request: web.Request) -> web.Response:
        seen.append(dict(request.headers))
        return web.Response(body=line("a"), status=400 if "Authorization" in request.headers else 200)

    app = web.Application()
    app.router.add_get("/o7", storage)
    async with serving(app) as elsewhere:

        async def redirect(_: web.Request) -> web.Response:
            raise web.HTTPFound(f"{elsewhere}/o7?X-Amz-Signature=abcdef0123456789")

        peer = Peer(reads=[batch()], files={"file-out": redirect})
        async with stage(tmp_path / "state", peer) as on:
            operation = await on.submit("a")
            body = await on.end(operation)
            assert body["state"] == "result_unavailable"
            assert not [headers for headers in seen if API_KEY in repr(headers)]
            assert on.leaks("abcdef0123456789") == []
            assert all(headers.get("Authorization") == f"Bearer {API_KEY}" for headers in peer.headers)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("road", ["read", "create", "upload"])
async def test_no_redirect_is_followed_on_any_road(tmp_path: Path, status: int, road: str) -> None:
    """S29: neither credentials nor a body go elsewhere."""
    seen: list[str] = []

    async def anything(request: web.Request) -> web.Response:
        seen.append(request.method)
        return web.json_response(batch())

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", anything)
    async with serving(app) as elsewhere:

        async def redirect(_: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": f"{elsewhere}/v1/batches/{JOB}"})

        peer = Peer(reads=[redirect if road == "read" else batch()], files={"file-out": line("a")})
        setattr(peer, "create" if road == "create" else "upload", redirect if road != "read" else None)
        async with stage(tmp_path / "state", peer) as on:
            operation = await on.submit("a")

            async def has_been_tried() -> bool:
                return len(peer.asked) >= {"upload": 1, "create": 2, "read": 3}[road]

            await until(has_been_tried)
            await asyncio.sleep(0.05)
            assert seen == []
            assert not (await on.ground.row(operation)).is_terminal


async def test_a_result_that_is_refused_for_a_while_pauses_the_provider(tmp_path: Path) -> None:
    """On 429 and 503 a Retry-After pauses the provider, whatever was asked for."""
    busy = refusal(429, {"Retry-After": "3600"})
    peer = Peer(reads=[batch()], files={"file-out": busy})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")

        async def is_fetched() -> bool:
            return bool(peer.fetched) and (await on.ground.row(operation)).schedule.errors > 0

        await until(is_fetched)
        status = await on.ground.get("/v1/status")
        assert status["providers"]["openai"]["paused_until"] is not None
        assert (await on.ground.row(operation)).state == "result_collecting"


# ---- answers that are none -------------------------------------------------------------------------------------


async def test_c33_a_page_instead_of_json_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    page = b"<!DOCTYPE html><title>Please hold on</title>" + b" " * 5_000
    html = raw_answer(page, content_type="text/html")
    as_json = raw_answer(page, content_type="application/json")
    reads = [batch("in_progress", output=None), html, html, html, as_json, batch()]
    peer = Peer(reads=reads, files={"file-out": line("a")})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        body = await on.end(operation)
        assert body["state"] == "succeeded"
        assert await on.states(operation) == [
            "create_pending",
            "accepted",
            "observing",
            "result_collecting",
            "succeeded",
        ]
        told = repr(on.ground.logged) + repr(await on.ground.get(f"/v1/operations/{operation}/observations"))
        assert "Please hold on" in told, "nobody can see what came instead of an answer"
        assert " " * 4_000 not in told


@pytest.mark.parametrize("kind", ["silence", "drip", "chunk"])
async def test_c29_a_server_that_never_finishes_costs_one_time_out_and_holds_up_nobody(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "READ_SECONDS", 0.15)
    gone = asyncio.Event()

    async def never(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if kind != "silence":
            if kind == "drip":
                response.content_length = 10_000
            await response.prepare(request)
            await response.write(b"{")
        while not gone.is_set():
            await asyncio.sleep(0.02)
            if kind == "drip" and request.transport is not None and not request.transport.is_closing():
                await response.write(b" ")
        return response

    async def by_id(request: web.Request) -> web.StreamResponse:
        return (
            await never(request)
            if request.match_info["job"] == "hangs"
            else web.json_response({**batch(), "id": "runs"})
        )

    created = iter(["hangs", "runs"])

    async def create(_: web.Request) -> web.Response:
        return web.json_response({**batch("validating", output=None), "id": next(created)})

    peer = Peer(reads=[by_id], create=create, files={"file-out": line("a")})
    async with stage(tmp_path / "state", peer) as on:
        began = time.monotonic()
        hangs = await on.submit("a", result_within="1s")

        async def is_open() -> bool:
            return (await on.ground.row(hangs)).remote_job_id == "hangs"

        await until(is_open)
        runs = await on.submit("a")
        assert (await on.end(runs))["state"] == "succeeded"
        body = await on.end(hangs, seconds=5)
        gone.set()
        assert (body["state"], body["done"]) == ("result_timed_out", False)
        assert body["attention"]["reason"] == "result_timed_out"
        assert "may still be running" in body["message"]
        assert time.monotonic() - began < 15


@pytest.mark.parametrize("kind", ["big", "endless", "bomb", "members", "header", "broken gzip", "text", "empty", "cut"])
async def test_s33_an_answer_that_is_too_much_or_broken_is_no_outcome(tmp_path: Path, kind: str) -> None:
    sent = 0

    async def monster(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        match kind:
            case "big":
                return web.Response(body=b'{"status":"completed","pad":"' + b"x" * 3_000_000 + b'"}')
            case "bomb":
                body = gzip.compress(b'{"status":"failed","pad":"' + b"\0" * 30_000_000 + b'"}')
                return web.Response(body=body, headers={"Content-Encoding": "gzip"})
            case "members":
                return web.Response(body=gzip.compress(b" " * 10) * 20_000, headers={"Content-Encoding": "gzip"})
            case "header":
                return web.Response(body=b"{}", headers={"X-Long": "x" * 1_000_000})
            case "broken gzip":
                return web.Response(body=b"\x1f\x8b\x08\x00junk", headers={"Content-Encoding": "gzip"})
            case "text":
                return web.Response(text="completed")
            case "empty":
                return web.Response(body=b"")
            case "cut":
                return await cut(json.dumps(batch()).encode()[:-5], announced=10_000)(request)
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2_000):
            await response.write(b" " * 65_536)
            sent += 65_536
        return response

    reads = [batch("in_progress", output=None), monster, monster, batch()]
    peer = Peer(reads=reads, files={"file-out": line("a")})
    async with stage(tmp_path / "state", peer, caps={"answer": "64KiB"}) as on:
        operation = await on.submit("a")
        body = await on.end(operation)
        assert body["state"] == "succeeded"
        assert "observation_failed" not in await on.states(operation)
        assert sent < 50_000_000


# ---- strangers' names (S35, S36) -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/passwd", "%2e%2e%2f", "..\\x", "a b?c#d", "ä", "batch/../../v1/files"]
)
async def test_s35_a_job_id_never_leaves_its_segment_of_a_path(tmp_path: Path, name: str) -> None:
    async def read(request: web.Request) -> web.Response:
        return web.json_response({**batch(), "id": name, "output_file_id": f"out-{name}"})

    async def content(_: web.Request) -> web.Response:
        return web.Response(body=line("a"))

    peer = Peer(reads=[read], create={**batch("validating", output=None), "id": name})
    peer.files[f"out-{name}"] = content
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        body = await on.end(operation)
        assert (body["state"], body["remote_job_id"]) == ("succeeded", name)
        for _, path in peer.asked:
            assert path.count("/") in (2, 3, 4), path
            assert "/../" not in path
        assert {path.parent.parent.parent for path in (on.ground.folder / "results").rglob("*.jsonl")} == {
            on.ground.folder / "results"
        }
        assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["a\x00b", "a\nb", "a\r\nX: y", "\x1b[31m", "x" * 10_240, ".", "..", "", 7, None, {}])
async def test_s35_a_job_id_that_breaks_the_contract_is_refused(tmp_path: Path, name: Any) -> None:
    """The create may have made a job: it is looked up, never sent again, and never asked for under such a name."""
    peer = Peer(reads=[batch()], create={**batch("validating", output=None), "id": name})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")

        async def is_unknown() -> bool:
            return (await on.ground.row(operation)).state == "create_unknown"

        await until(is_unknown)
        assert peer.count("/v1/batches/") == 0
        assert peer.asked.count(("POST", "/v1/batches")) == 1


@pytest.mark.parametrize("name", ["../../../x", "/etc/passwd", "a%2fb", "..\\..\\x", "x" * 500])
async def test_s35_an_item_id_is_only_a_name(tmp_path: Path, name: str) -> None:
    peer = Peer(reads=[batch()], files={"file-out": line(name)})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit(name)
        assert (await on.end(operation))["state"] == "succeeded"
        assert await on.items(operation) == {name: "succeeded"}
        assert not (tmp_path / "x").exists()


async def test_s36_a_link_in_place_of_an_input_is_not_followed(tmp_path: Path) -> None:
    """What is uploaded is what was spooled."""
    (tmp_path / "private").write_text("what nobody may upload")
    peer = Peer(reads=[batch()], files={"file-out": line("a")})
    clock = HandClock()
    clock.run()
    async with serving(peer.app()) as url:
        providers = {"openai": with_poll(provider(f"{url}/v1"))}
        async with running(tmp_path / "state", providers=providers, clock=clock) as ground:
            operation = await ground.start()
        spooled = tmp_path / "state" / "spool" / f"{operation}.jsonl"
        spooled.unlink()
        spooled.symlink_to(tmp_path / "private")
        async with running(tmp_path / "state", providers=providers, clock=clock, worker=True, seed=2) as ground:

            async def was_tried() -> bool:
                return (await ground.row(operation)).schedule.errors > 0

            await until(was_tried)
            assert not [body for body in peer.uploads if b"nobody may upload" in body]
            assert (await ground.row(operation)).state == "create_pending"


async def test_s36_a_link_in_place_of_a_result_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("what nobody may read")
    peer = Peer(reads=[batch()], files={"file-out": line("a")})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        body = await on.end(operation)
        (kept,) = (on.ground.folder / "results").rglob("*.jsonl")
        kept.unlink()
        kept.symlink_to(tmp_path / "private")
        answer = await on.ground.api("GET", f"/v1/operations/{operation}/items/a")
        assert answer.status >= 500
        assert b"nobody" not in answer.body
        answer = await on.ground.api("GET", body["result_url"])
        assert answer.status >= 500, "the head was sent before the file was opened"
        assert b"nobody" not in answer.body


# ---- secrets (S38) ---------------------------------------------------------------------------------------------


async def test_a_provider_that_repeats_our_key_does_not_bring_it_into_a_row(tmp_path: Path) -> None:
    """N37: error messages quote what was sent."""

    async def echo(request: web.Request) -> web.Response:
        given = request.headers["Authorization"]
        message = f"Incorrect API key provided: {given}"
        return web.json_response({"error": {"message": message, "param": "key", "code": given[7:]}}, status=400)

    peer = Peer(create=echo, reads=[batch()])
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        body = await on.end(operation)
        assert body["state"] == "failed"
        answers: Sequence[str] = [
            (await on.ground.api("GET", f"/v1/operations/{operation}{path}")).body.decode()
            for path in ("", "/history", "/observations")
        ]
        assert [text for text in answers if API_KEY in text] == []
        assert on.leaks(API_KEY) == []


async def test_what_a_result_or_a_header_quotes_of_our_key_is_struck_out_of_rows(tmp_path: Path) -> None:
    """N37: a line's own error code, and the provider's request id. The collected bytes stay as they came."""
    bad = json.dumps({"custom_id": "a", "response": None, "error": {"code": API_KEY, "message": "no"}}).encode()

    async def by_id(_: web.Request) -> web.Response:
        return web.json_response(batch(), headers={"x-request-id": API_KEY})

    peer = Peer(reads=[by_id], files={"file-out": bad})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        assert (await on.end(operation))["state"] == "failed"
        assert on.ground.rows("SELECT reason FROM items WHERE attempt > 0") == [("[redacted]",)]
        told = {row[0] for row in on.ground.rows("SELECT remote_request_id FROM requests")}
        assert "[redacted]" in told
        assert API_KEY not in told


async def test_a_result_that_our_own_disk_cannot_hold_is_fetched_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More often than a provider may fail: nobody is asked what only the disk could answer."""
    tries, write = 0, FileWriter.write_on_thread

    def full(writer: FileWriter, data: bytes) -> None:
        nonlocal tries
        tries += 1
        if tries <= 2 * COLLECT_BUDGET:
            raise OSError(28, "No space left on device")
        write(writer, data)

    peer = Peer(reads=[batch()], files={"file-out": line("a")})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        monkeypatch.setattr(FileWriter, "write_on_thread", full)
        body = await on.end(operation)
        assert (body["state"], tries) == ("succeeded", 2 * COLLECT_BUDGET + 1)
        history = (await on.ground.api("GET", f"/v1/operations/{operation}/history")).body.decode()
        assert f"our_disk, try {2 * COLLECT_BUDGET}" in history
        assert not list((tmp_path / "state" / "tmp").iterdir())


async def test_a_try_that_fails_at_its_second_file_leaves_the_first_to_nobody(tmp_path: Path) -> None:
    """Eight tries at a large result must not fill the disk with what no row names."""
    peer = Peer(reads=[batch(error="file-err")], files={"file-out": line("a")})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a", "b")
        assert (await on.end(operation))["state"] == "result_unavailable"
        assert [path for path in (tmp_path / "state" / "results").rglob("*") if path.is_file()] == []


async def test_blank_lines_without_number_leave_everybody_else_their_turn(tmp_path: Path) -> None:
    peer = Peer(reads=[batch()], files={"file-out": b"\n" * 3_000_000 + line("a")})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        ending = asyncio.ensure_future(on.end(operation, seconds=60))
        slowest = 0.0
        while not ending.done():
            began = time.monotonic()
            await on.ground.api("GET", "/healthz")
            slowest = max(slowest, time.monotonic() - began)
        assert (await ending)["state"] == "succeeded"
        assert slowest < 1


async def test_the_token_that_the_daemon_made_for_itself_is_struck_out_of_rows_too(tmp_path: Path) -> None:
    made: list[str] = []

    async def by_id(_: web.Request) -> web.Response:
        return web.json_response(batch(), headers={"x-request-id": made[0]})

    async with stage(tmp_path / "state", Peer(reads=[by_id])) as on:
        made.append((tmp_path / "state" / "api-token").read_text().strip())
        await on.end(await on.submit("a"))
        told = {row[0] for row in on.ground.rows("SELECT remote_request_id FROM requests")}
        assert "[redacted]" in told
        assert made[0] not in told

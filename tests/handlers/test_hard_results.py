"""Result bodies that real providers, proxies and networks have sent, over real sockets: what each comes to.

A body that is not the whole result is a failed try: nothing of it counts, the job is read again, then the next try.
"""

import gzip
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconcile import gathered
from reconcile.store.items import SLICE
from tests.handlers.ground import API_KEY, EXPECT, FIXTURES, HandClock, provider, running, with_poll
from tests.handlers.test_collect import (
    Handler,
    Peer,
    Stage,
    answered,
    at_rest,
    batch,
    cut,
    line,
    raw_answer,
    refusal,
    serving,
    stage,
)

WHOLE = line("a") + b"\n" + line("b") + b"\n"
DENIED = raw_answer(b"<Error><Code>AccessDenied</Code></Error>", content_type="text/xml", status=403)
SLOW_DOWN = b'<?xml version="1.0"?><Error><Code>SlowDown</Code></Error>'
ELSEWHERE = "302 Found\r\nLocation: http://127.0.0.1:9/x?X-Amz-Signature=abc\r\nContent-Length: 0"
PAGE = b"<!DOCTYPE html>\n<html><title>Please hold on</title>\n<p>We will be with you soon.\n</html>\n"
#: Tries of a collection, and reads of the job between them, until a person is asked.
BUDGET = 8


def raw(head: str, body: bytes) -> Handler:
    """An answer as bytes, with no length but what its head says; then the connection is closed."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(f"HTTP/1.1 {head}\r\nConnection: close\r\n\r\n".encode() + body)
        request.transport.close()
        return web.Response()

    return answer


def packed(body: bytes, coding: str = "gzip") -> Handler:
    return raw(f"200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(body)}", body)


async def collected(
    folder: Path, *tries: Any, caps: Any = None, submits: Sequence[str] = ("a", "b")
) -> tuple[Any, Peer, bytes]:
    """The body at the end of a job of these items, whose result is fetched so; and the stored bytes."""
    peer = Peer(reads=[batch()], files={"file-out": list(tries)})
    async with stage(folder, peer, caps=caps) as on:
        operation = await on.submit(*submits)
        body = await on.end(operation)
        stored = await on.ground.api("GET", f"/v1/operations/{operation}/result")
        kept = list((on.ground.folder / "results").rglob("*.jsonl"))
        assert len(kept) == (0 if body["state"] == "result_unavailable" else 1), "a half of a result is left"
        await at_rest(on, operation, body)
        return body, peer, stored.body if stored.status == 200 else b""


# ---- not the whole result: tried again -------------------------------------------------------------------------

CHUNKED = "200 OK\r\nTransfer-Encoding: chunked"
PART = b"%x\r\n%s\r\n" % (len(line("a")) + 1, line("a") + b"\n")

NOT_WHOLE: dict[str, Any] = {
    "shorter than announced": cut(WHOLE[:-5], announced=len(WHOLE)),
    "shorter than announced, at a line's end": cut(line("a") + b"\n", announced=len(WHOLE)),
    "nothing of what was announced": cut(b"", announced=len(WHOLE)),
    "chunks without the last one": raw(CHUNKED, PART),
    "a chunk that is no chunk": raw(CHUNKED, PART + b"zz\r\n"),
    "gzip cut in the middle": packed(gzip.compress(WHOLE)[:-20]),
    "gzip without its trailer": packed(gzip.compress(WHOLE)[:-8]),
    "a second gzip member cut": packed(gzip.compress(WHOLE) + gzip.compress(WHOLE)[:-9]),
    "no gzip at all": packed(WHOLE),
    "gzip that is broken": packed(b"\x1f\x8b\x08\x00junkjunkjunk"),
    "gzip with a wrong checksum": packed(gzip.compress(WHOLE)[:-8] + b"\0" * 8),
    "a coding that was not asked for": packed(WHOLE, "br"),
    "gzip twice": packed(gzip.compress(gzip.compress(WHOLE)), "gzip, gzip"),
    "a page of a proxy": raw_answer(PAGE, content_type="text/html"),
    "a page that says that it is JSON": raw_answer(b"\xef\xbb\xbf \r\n" + PAGE, content_type="application/json"),
    "XML of a storage": raw_answer(SLOW_DOWN, content_type="text/xml"),
    "204": raw("204 No Content", b""),
    "206": raw(f"206 Partial Content\r\nContent-Length: {len(WHOLE)}", WHOLE),
    "302 to elsewhere": raw(ELSEWHERE, b""),
    "302 without a place": raw("302 Found\r\nContent-Length: 0", b""),
    "403 of a link that ran out": DENIED,
    "404 of a file that is not there yet": refusal(404),
    "500": raw_answer(PAGE, content_type="text/html", status=500),
    "no HTTP": raw("banana", b""),
}  # fmt: skip


@pytest.mark.parametrize("kind", list(NOT_WHOLE))
async def test_what_is_not_the_whole_result_is_fetched_again_and_nothing_of_it_counts(
    tmp_path: Path, kind: str
) -> None:
    body, peer, stored = await collected(tmp_path / "state", NOT_WHOLE[kind], WHOLE)
    assert (body["state"], body["summary"]["succeeded"]) == ("succeeded", 2), body
    assert peer.fetched == ["file-out"] * 2
    assert peer.count("/v1/batches/") == 2, "the job is read again before the next try"
    assert stored == WHOLE


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("a page of a proxy", "html_page"),
        ("gzip cut in the middle", "cut"),
        ("shorter than announced, at a line's end", "cut"),
        ("a coding that was not asked for", "bad_encoding"),
    ],
)
async def test_a_result_that_never_comes_whole_asks_a_person_and_says_why(tmp_path: Path, kind: str, word: str) -> None:
    """Neither success nor failure of the job; what came is not served."""
    body, peer, stored = await collected(tmp_path / "state", NOT_WHOLE[kind])
    assert (body["state"], body["done"], body["result"], body["summary"]) == ("result_unavailable", False, None, None)
    assert word in body["attention"]["message"]
    assert peer.fetched == ["file-out"] * BUDGET
    assert stored == b""


async def test_a_bomb_is_cut_at_the_cap_of_a_result(tmp_path: Path) -> None:
    """S33: counted as it unfolds, so that it costs neither memory nor disk."""
    bomb = packed(gzip.compress(b"\n" * 50_000_000))
    body, peer, _ = await collected(tmp_path / "state", bomb, WHOLE, caps={"result": "1MiB"})
    assert body["state"] == "succeeded"
    assert peer.fetched == ["file-out"] * 2


# ---- the whole result, whatever it looks like ------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "no length, ended by the close": raw("200 OK", WHOLE),
    "gzip": packed(gzip.compress(WHOLE)),
    "gzip under its old name": packed(gzip.compress(WHOLE), "x-gzip"),
    "gzip in two members": packed(gzip.compress(WHOLE[:30]) + gzip.compress(WHOLE[30:])),
    "identity": packed(WHOLE, "identity"),
    "another content type": raw_answer(WHOLE, content_type="text/html; charset=utf-8"),
    "no content type": raw(f"200 OK\r\nContent-Length: {len(WHOLE)}", WHOLE),
    "byte for byte": raw(CHUNKED, b"".join(b"1\r\n%c\r\n" % byte for byte in WHOLE) + b"0\r\n\r\n"),
}


@pytest.mark.parametrize("kind", list(GOOD))
async def test_a_whole_result_is_stored_as_its_content(tmp_path: Path, kind: str) -> None:
    """Without its coding; length, checksum and places are those of the stored bytes."""
    body, peer, stored = await collected(tmp_path / "state", GOOD[kind])
    assert (body["state"], peer.fetched, stored) == ("succeeded", ["file-out"], WHOLE)
    assert body["result"]["bytes"] == len(WHOLE)
    assert body["result"]["sha256"] == hashlib.sha256(WHOLE).hexdigest()


async def test_a_fetch_asks_for_gzip_and_no_other_coding(tmp_path: Path) -> None:
    """What we cannot tell a cut of is not asked for."""
    asked: list[str] = []

    async def content(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers["Accept-Encoding"])
        return web.Response(body=WHOLE)

    await collected(tmp_path / "state", content)
    assert asked == ["gzip"]


A: bytes = line("a") + b"\n"
B_MISSING: dict[str, Any] = {"missing": ["b"], "unreadable_lines": [2]}
NOTHING: dict[str, Any] = {"missing": ["a", "b"]}
BROKEN: dict[str, tuple[bytes, Any]] = {
    "nothing": (b"", NOTHING),
    "blank lines": (b"\r\n \n\n", NOTHING),
    "a mark and nothing": (b"\xef\xbb\xbf", NOTHING),
    "a JSON array": (b"[" + line("a") + b"," + line("b") + b"]", {**NOTHING, "unreadable_lines": [1]}),
    "UTF-16": (WHOLE.decode().encode("utf-16"), {**NOTHING, "unreadable_lines": [1, 2, 3]}),
    "lone CR between": (line("a") + b"\r" + line("b"), {**NOTHING, "unreadable_lines": [1]}),
    "Latin-1": (A + line("b", {"x": "y"}).replace(b'"y"', b'"\xe9"'), B_MISSING),
    "a mark before the second line": (A + b"\xef\xbb\xbf\xef\xbb\xbf" + line("b"), B_MISSING),
    "a key twice": (A + line("b")[:-1] + b',"custom_id":"c"}', B_MISSING),
    "a page after a line": (A + PAGE, {"missing": ["b"], "unreadable_lines": [2, 3, 4, 5]}),
    "a NUL": (A + b"\0" + line("b"), B_MISSING),
    "a number for an id": (A + line("b").replace(b'"b"', b"7"), B_MISSING),
    "too deep": (A + b"[" * 100_000, B_MISSING),
}


@pytest.mark.parametrize("kind", list(BROKEN))
async def test_a_whole_body_that_breaks_the_contract_is_kept_and_a_person_is_asked(tmp_path: Path, kind: str) -> None:
    """What can be read of it counts; it came whole, so that another fetch would bring the same."""
    sent, problems = BROKEN[kind]
    body, peer, stored = await collected(tmp_path / "state", sent)
    assert (body["state"], body["done"]) == ("result_validation_failed", False)
    assert body["result"]["problems"] == problems
    assert (peer.fetched, stored) == (["file-out"], sent)


async def test_each_file_may_begin_with_a_mark_and_have_its_own_line_ends(tmp_path: Path) -> None:
    bom = b"\xef\xbb\xbf"
    files = {"file-out": bom + line("a") + b"\r\n" + line("b") + b"\r\n", "file-err": bom + line("c")}
    peer = Peer(reads=[batch(error="file-err")], files=files)
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit(*"abc")
        assert (await on.end(operation))["state"] == "succeeded"
        for name in "abc":
            one = await on.ground.get(f"/v1/operations/{operation}/items/{name}")
            assert [each["custom_id"] for each in one["lines"]] == [name]


async def test_a_page_in_place_of_the_second_file_costs_the_whole_try(tmp_path: Path) -> None:
    """Nothing of the first file is counted twice when both are fetched again."""
    page = raw_answer(PAGE, content_type="text/html")
    peer = Peer(reads=[batch(error="file-err")], files={"file-out": line("a"), "file-err": [page, line("b")]})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a", "b")
        body = await on.end(operation)
        assert (body["state"], body["result"]["problems"]) == ("succeeded", None)
        assert peer.fetched == ["file-out", "file-err"] * 2
        await at_rest(on, operation, body)


async def test_a_result_of_more_lines_than_wait_in_memory_has_each_of_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are put in order in heaps; ids that repeat, in one heap or across two of them, are found all the same."""
    monkeypatch.setattr(gathered, "HEAP", 2 * SLICE)
    names = [f"item-{n * 7919 % (5 * SLICE):06d}" for n in range(5 * SLICE + 7)]
    twice = {name for name, times in Counter(names).items() if times > 1}
    body, _, stored = await collected(tmp_path / "state", b"\n".join(map(line, names)), submits=names[: 5 * SLICE])
    assert (body["state"], len(twice)) == ("result_validation_failed", 7)
    assert (body["summary"]["succeeded"], body["summary"]["failed"]) == (5 * SLICE - 7, 7)
    assert set(body["result"]["problems"]["duplicate"]) == twice
    assert body["result"]["sha256"] == hashlib.sha256(stored).hexdigest()
    assert stored.splitlines() == [line(name) for name in names]


# ---- results at an address that the provider names -------------------------------------------------------------

#: The stories speak of this batch.
MESSAGES = "msgbatch_fx01HkcTjaV5uDC8jWR4ZsDV"


@dataclass
class MessagesPeer:
    """Anthropic's shape: a batch that names where its results are."""

    #: One a read of the batch; the last one stays. `{url}` in a results_url is this server.
    reads: list[dict[str, Any]]
    #: What each path below `/files/` answers; a list: one a fetch.
    files: dict[str, Any] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    url: str = ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/messages/batches", self._create)
        app.router.add_get("/v1/messages/batches/{job}", self._read)
        app.router.add_get("/v1/files/{name}", self._file)
        return app

    async def _create(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({**ENDED, "processing_status": "in_progress", "results_url": None})

    async def _read(self, _: web.Request) -> web.StreamResponse:
        said = self.reads.pop(0) if len(self.reads) > 1 else self.reads[0]
        place = said["results_url"]
        return web.json_response({**said, "results_url": place and place.replace("{url}", self.url)})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        self.fetched.append(request.raw_path.removeprefix("/v1/files/"))
        self.keys.append(request.headers.get("x-api-key"))
        held = self.files[request.match_info["name"]]
        if isinstance(held, list):
            held = held.pop(0) if len(held) > 1 else held[0]
        return await answered(request, held)


ENDED: dict[str, Any] = {
    "id": MESSAGES,
    "type": "message_batch",
    "processing_status": "ended",
    "request_counts": {"processing": 0, "succeeded": 2, "errored": 0, "canceled": 0, "expired": 0},
    "results_url": "{url}/v1/files/r.jsonl",
}


def message(name: str, text: str = "ok") -> bytes:
    result = {"type": "succeeded", "message": {"content": [{"type": "text", "text": text}]}}
    return json.dumps({"custom_id": name, "result": result}).encode() + b"\n"


@asynccontextmanager
async def messages_stage(folder: Path, peer: MessagesPeer) -> AsyncIterator[Stage]:
    clock = HandClock()
    clock.run()
    async with serving(peer.app()) as url:
        peer.url = url
        said = {k: v for k, v in provider(f"{url}/v1").items() if k != "webhook_secrets"}
        providers = {"openai": with_poll({**said, "kind": "anthropic_batches"})}
        async with running(folder, providers=providers, clock=clock, worker=True) as ground:
            yield Stage(ground, Peer())  # the name is the start's; the kind is what counts


async def asked_for(on: Stage, *ids: str, **fields: Any) -> Any:
    items = [{"custom_id": name, "params": {"model": "m", "max_tokens": 1}} for name in ids]
    return await on.end(await on.ground.start(request={}, items=items, **fields))


ANTHROPIC_STORIES = [
    name for name, story in EXPECT["stories"].items() if story["kind"] == "anthropic_batches" and story["results"]
]


@pytest.mark.parametrize("name", ANTHROPIC_STORIES)
async def test_each_story_of_the_other_kind_ends_as_it_should(tmp_path: Path, name: str) -> None:
    """E4: cancelled and expired batches with partial results among them."""
    story = EXPECT["stories"][name]
    status = json.loads((FIXTURES / story["status"]).read_bytes())
    (results,) = story["results"]
    peer = MessagesPeer(reads=[{**status, "results_url": "{url}/v1/files/r.jsonl"}])
    peer.files["r.jsonl"] = (FIXTURES / results).read_bytes()
    async with messages_stage(tmp_path / "state", peer) as on:
        body = await asked_for(on, *story["submitted"])
        assert (body["state"], body["summary"]) == (story["end"], story["summary"])
        assert peer.fetched == ["r.jsonl"]


@pytest.mark.parametrize("place", ["/v1/files/r.jsonl", "files/r.jsonl", "{url}/v1/files/r.jsonl?X-Sig=a%2Fb%2B&c=d"])
async def test_results_are_fetched_where_the_provider_says(tmp_path: Path, place: str) -> None:
    """Relative to the base URL too; a signed query arrives as it was given."""
    peer = MessagesPeer(reads=[{**ENDED, "results_url": place}], files={"r.jsonl": message("a") + message("b")})
    async with messages_stage(tmp_path / "state", peer) as on:
        assert (await asked_for(on, "a", "b"))["state"] == "succeeded"
        assert peer.fetched == ["r.jsonl" + place.partition("r.jsonl")[2]]
        assert peer.keys == [API_KEY]


async def test_a_link_that_ran_out_is_asked_for_anew(tmp_path: Path) -> None:
    """The read between two tries brings the fresh one; the old one is not tried again."""
    reads = [{**ENDED, "results_url": f"{{url}}/v1/files/{name}?sig={name}"} for name in ("old", "new")]
    peer = MessagesPeer(reads=reads, files={"old": DENIED, "new": message("a") + message("b")})
    async with messages_stage(tmp_path / "state", peer) as on:
        body = await asked_for(on, "a", "b")
        assert body["state"] == "succeeded"
        assert peer.fetched == ["old?sig=old", "new?sig=new"]


async def test_c05_results_at_a_host_that_is_not_the_providers_are_not_fetched(tmp_path: Path) -> None:
    """The host is named to a person, and gets no request and no key."""
    strangers: list[str] = []

    async def anything(request: web.Request) -> web.Response:
        strangers.append(request.path)
        return web.Response(body=message("a"))

    elsewhere = web.Application()
    elsewhere.router.add_route("*", "/{rest:.*}", anything)
    async with serving(elsewhere) as url:
        peer = MessagesPeer(reads=[{**ENDED, "results_url": f"{url}/v1/files/r.jsonl"}])
        async with messages_stage(tmp_path / "state", peer) as on:
            body = await asked_for(on, "a", "b")
            assert body["state"] == "result_unavailable"
            assert url.removeprefix("http://") in body["attention"]["message"]
            assert (strangers, peer.fetched) == ([], [])


async def test_the_message_of_an_item_is_held_to_the_promised_schema(tmp_path: Path) -> None:
    """Also where a BOM and CR LF stand around it."""
    schema = {"properties": {"content": {"items": {"properties": {"text": {"maxLength": 3}}}}}}
    peer = MessagesPeer(reads=[ENDED])
    peer.files["r.jsonl"] = b"\xef\xbb\xbf" + message("a") + message("b", "too long").replace(b"\n", b"\r\n")
    async with messages_stage(tmp_path / "state", peer) as on:
        body = await asked_for(on, "a", "b", expect={"json_schema": schema})
        assert body["state"] == "result_validation_failed"
        assert body["result"]["problems"] == {"broken": ["json_schema"], "off_schema": ["b"]}


async def test_a_result_whose_file_somebody_took_away_is_gone_and_not_to_be_asked_for_again(tmp_path: Path) -> None:
    peer = Peer(reads=[batch()], files={"file-out": [WHOLE]})
    async with stage(tmp_path, peer) as on:
        operation = await on.submit("a", "b")
        await on.end(operation)
        assert (await on.ground.api("GET", f"/v1/operations/{operation}/result")).status == 200
        shutil.rmtree(on.ground.folder / "results" / operation)
        for path in ("result", "items/a"):
            answer = await on.ground.api("GET", f"/v1/operations/{operation}/{path}")
            assert answer.status == 410, path
            assert "not in the state directory" in answer.json()["detail"]
            assert "Retry-After" not in answer.headers

"""`expect`: what a client may promise of a result, and what becomes of a result that breaks it, over real sockets."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconcile import collect
from tests.handlers.ground import Ground, running
from tests.handlers.test_collect import JOB, Peer, Stage, at_rest, batch, line, raw_answer, stage
from tests.handlers.test_operations_api import assert_problem, nothing_was_begun, start_body, without

SUM = "ab" * 32
NUMBERED: Any = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
#: A start whose input file the client made by itself.
OWN_FILE: Any = {"request": {"endpoint": "/v1/responses", "input_file_id": "file-mine"}, "items": None}


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as ground:
        yield ground


# ---- what may be promised --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expect", "pointer"),
    [
        ([], ""),
        ("x", ""),
        ({"item": 1}, "/item"),
        ({"sha-256/x": SUM}, "/sha-256~1x"),
        ({"items": 0}, "/items"),
        ({"items": -1}, "/items"),
        ({"items": True}, "/items"),
        ({"items": 1.0}, "/items"),
        ({"items": 10**12}, "/items"),
        ({"items": "1"}, "/items"),
        ({"items": []}, "/items"),
        ({"items": {"a": 1}}, "/items"),
        ({"items": ["a", 7]}, "/items/1"),
        ({"items": ["a", "a"]}, "/items/1"),
        ({"items": ["a\n"]}, "/items/0"),
        ({"items": ["x" * 600]}, "/items/0"),
        ({"items": 2}, "/items"),
        ({"items": ["b"]}, "/items/0"),
        ({"items": ["a", "b"]}, "/items/1"),
        ({"content_type": 7}, "/content_type"),
        ({"content_type": "jsonl"}, "/content_type"),
        ({"content_type": "text/csv; charset"}, "/content_type"),
        ({"content_type": "text/csv\r\nX: y"}, "/content_type"),
        ({"sha256": 7}, "/sha256"),
        ({"sha256": "ab"}, "/sha256"),
        ({"sha256": "zz" * 32}, "/sha256"),
        ({"sha256": SUM + "\n"}, "/sha256"),
        ({"json_schema": True}, "/json_schema"),
        ({"json_schema": {"type": "objekt"}}, "/json_schema/type"),
        ({"json_schema": {"items": {"$ref": "http://127.0.0.1:1/x"}}}, "/json_schema/items/$ref"),
        ({"json_schema": {"properties": {"a": {"pattern": "(a+)+$"}}}}, "/json_schema/properties/a/pattern"),
    ],
)
async def test_a_promise_that_cannot_be_held_to_is_refused_where_it_stands(
    ground: Ground, expect: Any, pointer: str
) -> None:
    """422 before anything is written or sent. The one item that is sent is called `a`."""
    answer = await ground.api("POST", "/v1/operations", body=start_body(expect=expect))
    document = assert_problem(answer, 422)
    assert document["errors"][0]["pointer"] == f"/expect{pointer}"
    assert nothing_was_begun(ground)


@pytest.mark.parametrize(
    "expect",
    [
        None,
        {},
        {"items": 1},
        {"items": ["a"]},
        {"items": None, "content_type": None, "sha256": None, "json_schema": None},
        {"content_type": 'Text/CSV; charset="utf-8"', "sha256": SUM.upper(), "json_schema": NUMBERED},
    ],
)
async def test_what_can_be_held_to_is_taken(ground: Ground, expect: Any) -> None:
    await ground.start(expect=expect)
    (kept,) = ground.rows("SELECT expect FROM starts")[0]
    assert json.loads(kept).get("sha256") in (None, SUM)


async def test_a_schema_beyond_its_size_is_413(ground: Ground) -> None:
    body = start_body(expect={"json_schema": {"description": "x" * 40_000}})
    assert_problem(await ground.api("POST", "/v1/operations", body=body), 413)
    assert nothing_was_begun(ground)


async def test_another_promise_under_the_same_key_is_another_start(ground: Ground) -> None:
    """G5: the promises are part of what a key stands for."""
    key = {"Idempotency-Key": "k1"}
    first = await ground.api("POST", "/v1/operations", body=start_body(expect={"sha256": SUM}), headers=key)
    again = await ground.api("POST", "/v1/operations", body=start_body(expect={"sha256": SUM}), headers=key)
    other = await ground.api("POST", "/v1/operations", body=start_body(expect={"items": 1}), headers=key)
    assert again.json()["operation_id"] == first.json()["operation_id"]
    assert_problem(other, 422)


async def test_ids_that_we_did_not_send_wait_as_submitted_ones(ground: Ground) -> None:
    """They close the balance by id, and stand in no file of ours."""
    body = without("items", request=OWN_FILE["request"], expect={"items": ["b", "a"]})
    answer = await ground.api("POST", "/v1/operations", body=body)
    assert answer.status == 202, answer
    row = await ground.row(answer.json()["operation_id"])
    assert (row.input_items, row.input_ref) == (2, None)
    assert ground.rows("SELECT attempt, item_id, outcome, start, length FROM items ORDER BY line") == [
        (0, "b", "submitted", None, None),
        (0, "a", "submitted", None, None),
    ]


# ---- what becomes of a result ----------------------------------------------------------------------------------


def typed(body: bytes, content_type: str | None) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    if content_type is not None:
        return raw_answer(body, content_type=content_type)

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        request.transport.write(head.encode() + body)
        request.transport.close()
        return web.Response()

    return answer


async def ended(on: Stage, ids: str, expect: Any) -> Any:
    return await on.end(await on.submit(*ids, expect=expect))


@pytest.mark.parametrize(
    ("promised", "sent", "kept"),
    [
        ("application/jsonl", "application/jsonl", True),
        ("application/jsonl", "Application/JSONL; charset=utf-8", True),
        ("application/jsonl; charset=utf-8", "application/jsonl", False),
        ("application/jsonl", "application/octet-stream", False),
        ("application/jsonl", None, False),
    ],
)
async def test_a_result_of_another_type_breaks_the_promise(
    tmp_path: Path, promised: str, sent: str | None, kept: bool
) -> None:
    """F4: neither success nor failure of the job, and the items are all there."""
    peer = Peer(reads=[batch()], files={"file-out": typed(line("a"), sent)})
    async with stage(tmp_path / "state", peer) as on:
        body = await ended(on, "a", {"content_type": promised})
        assert body["state"] == ("succeeded" if kept else "result_validation_failed"), body["result"]
        assert body["summary"]["succeeded"] == 1
        assert body["result"]["problems"] == (None if kept else {"broken": ["content_type"]})
        if not kept:
            told = f"is not what the start expects: 'expected {promised}, got {sent or 'none'}'."
            assert told in body["message"]
            assert told in body["attention"]["message"]
            assert body["attention"]["reason"] == "result_validation_failed"
            assert "breaks the contract" not in body["message"]
        await at_rest(on, body["operation_id"], body)


async def test_each_file_that_holds_anything_must_be_of_the_type(tmp_path: Path) -> None:
    """An empty one says nothing; the second of two counts as the first does."""
    good, other = typed(line("a"), "application/jsonl"), typed(line("b"), "text/plain")
    for number, (second, kept) in enumerate([(typed(b"", "text/plain"), True), (other, False)]):
        peer = Peer(reads=[batch(error="file-err")], files={"file-out": good, "file-err": second})
        async with stage(tmp_path / f"state{number}", peer) as on:
            body = await ended(on, "a" if kept else "ab", {"content_type": "application/jsonl"})
            assert body["state"] == ("succeeded" if kept else "result_validation_failed")


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_checksum_is_of_all_files_as_they_are_stored(tmp_path: Path, is_kept: bool) -> None:
    output, error = line("a") + b"\n", line("b") + b"\r\n"
    promised = hashlib.sha256(output + error if is_kept else error + output).hexdigest()
    peer = Peer(reads=[batch(error="file-err")], files={"file-out": output, "file-err": error})
    async with stage(tmp_path / "state", peer) as on:
        body = await ended(on, "ab", {"sha256": promised.upper()})
        whole = (await on.ground.api("GET", f"/v1/operations/{body['operation_id']}/result")).body
        assert body["result"]["sha256"] == hashlib.sha256(whole).hexdigest()
        assert body["state"] == ("succeeded" if is_kept else "result_validation_failed")
        assert body["result"]["problems"] == (None if is_kept else {"broken": ["sha256"]})
        assert is_kept or "sha256" in body["attention"]["message"]


@pytest.mark.parametrize(("status", "end"), [("cancelled", "cancelled"), ("expired", "completed_with_errors")])
async def test_nobody_can_have_promised_the_checksum_of_a_job_that_was_cut_off(
    tmp_path: Path, status: str, end: str
) -> None:
    """Nor its count; what there is of it must still be of the promised shape."""
    peer = Peer(reads=[batch(status)], files={"file-out": line("a", {"n": 1})})
    async with stage(tmp_path / "state", peer) as on:
        body = await ended(on, "ab", {"sha256": SUM, "items": 2, "json_schema": NUMBERED})
        assert (body["state"], body["summary"]["succeeded"]) == (end, 1)
        assert body["result"]["problems"] is None


async def test_an_item_that_breaks_the_schema_stays_succeeded_and_says_where(tmp_path: Path) -> None:
    """Only bodies of succeeded items are held to it; the reason has the schema's words, not the model's."""
    bad = line("b", {"n": "a private word"})
    failed = b'{"custom_id":"c","response":null,"error":{"code":"server_error","message":"y"}}'
    twice = line("d", json.dumps({"n": 4}))
    peer = Peer(reads=[batch()], files={"file-out": b"\n".join([line("a", {"n": 1}), bad, failed, twice])})
    async with stage(tmp_path / "state", peer) as on:
        body = await ended(on, "abcd", {"json_schema": NUMBERED})
        assert body["state"] == "result_validation_failed"
        assert (body["summary"]["succeeded"], body["summary"]["failed"]) == (3, 1)
        assert body["result"]["problems"] == {"broken": ["json_schema"], "off_schema": ["b"]}
        assert "json_schema" in body["attention"]["message"]
        assert await on.items(body["operation_id"]) == {
            "a": "succeeded",
            "b": "succeeded: json_schema: /properties/n/type",
            "c": "failed: server_error",
            "d": "succeeded",
        }
        assert "private word" not in json.dumps(body)
        await at_rest(on, body["operation_id"], body)


async def test_a_schema_that_every_body_keeps_is_no_trouble(tmp_path: Path) -> None:
    peer = Peer(reads=[batch()], files={"file-out": b"\n".join(line(n, {"n": 1}) for n in "abc")})
    async with stage(tmp_path / "state", peer) as on:
        assert (await ended(on, "abc", {"json_schema": NUMBERED}))["state"] == "succeeded"


@pytest.mark.parametrize("waiting", [collect.MAX_WAITING, 1])
async def test_only_the_first_of_many_broken_items_are_named(
    tmp_path: Path, waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over several slices of rows, whether the rows or the bytes fill them; the good ones between are not named."""
    monkeypatch.setattr(collect, "MAX_WAITING", waiting)
    ids = [f"i{n:04d}" for n in range(1_200)]
    body_of = {name: {"n": 1 if number % 2 else "x"} for number, name in enumerate(ids)}
    peer = Peer(reads=[batch()], files={"file-out": b"\n".join(line(name, body) for name, body in body_of.items())})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit(*ids, expect={"json_schema": NUMBERED})
        body = await on.end(operation)
        assert body["summary"]["succeeded"] == 1_200
        assert body["result"]["problems"]["off_schema"] == ids[0:200:2]
        named = on.ground.rows("SELECT item_id FROM items WHERE attempt > 0 AND reason LIKE 'json_schema%'")
        assert [name for (name,) in named] == ids[0:200:2]


async def test_each_slice_of_rows_is_judged_by_its_own_bodies(tmp_path: Path) -> None:
    """Rows are written 500 at a time; what was wrong in one slice says nothing of the next."""
    ids, wrong = [f"i{n:04d}" for n in range(700)], ("i0400", "i0600")
    peer = Peer(reads=[batch()])
    peer.files["file-out"] = b"\n".join(line(name, {"n": "x" if name in wrong else 1}) for name in ids)
    async with stage(tmp_path / "state", peer) as on:
        body = await on.end(await on.submit(*ids, expect={"json_schema": NUMBERED}))
        assert body["result"]["problems"]["off_schema"] == list(wrong)


async def test_costly_bodies_leave_everybody_else_their_turn(tmp_path: Path) -> None:
    """C51: about two seconds of checking, none of them on the loop."""
    numbers = {"list": list(range(20_000))}
    expect = {"json_schema": {"properties": {"list": {"items": {"type": "integer", "minimum": 0}}}}}
    ids = [f"i{n}" for n in range(20)]
    peer = Peer(reads=[batch()], files={"file-out": b"\n".join(line(name, numbers) for name in ids)})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit(*ids, expect=expect)
        ending = asyncio.ensure_future(on.end(operation, seconds=60))
        slowest = 0.0
        while not ending.done():
            began = time.monotonic()
            await on.ground.api("GET", "/healthz")
            slowest = max(slowest, time.monotonic() - began)
        assert (await ending)["state"] == "succeeded"
        assert slowest < 1


@pytest.mark.parametrize(
    ("promised", "told", "end", "problems"),
    [
        (2, None, "succeeded", None),
        (2, 9, "succeeded", None),
        (3, 2, "result_validation_failed", {"expected": 3, "found": 2}),
        (1, 2, "result_validation_failed", {"expected": 1, "found": 2}),
        (None, 3, "result_validation_failed", {"expected": 3, "found": 2}),
        (["b", "a"], None, "succeeded", None),
        (["a", "c"], None, "result_validation_failed", {"missing": ["c"], "unknown": ["b"]}),
    ],
)
@pytest.mark.parametrize("road", ["own file", "adopted"])
async def test_a_job_that_we_did_not_feed_is_held_to_the_promised_items(
    tmp_path: Path, road: str, promised: Any, told: int | None, end: str, problems: Any
) -> None:
    """By id where ids were promised, else by count; the provider's own count comes last."""
    counts: Any = {} if told is None else {"request_counts": {"total": told, "completed": 2, "failed": 0}}
    peer = Peer(reads=[batch(**counts)], files={"file-out": line("a") + b"\n" + line("b")})
    async with stage(tmp_path / "state", peer) as on:
        how = OWN_FILE if road == "own file" else {"request": None, "items": None, "remote_job_id": JOB}
        operation = await on.ground.start(**how, expect={"items": promised})
        body = await on.end(operation)
        assert body["state"] == end, body["result"]
        assert body["result"]["problems"] == problems
        if isinstance(promised, int) and problems is not None:
            assert f"is not what the start expects: 'expected {promised} items, got 2'." in body["message"]
        elif problems is not None:
            assert "breaks the contract" in body["message"]
        counted = dict(body["summary"])
        assert counted.pop("total") == sum(counted.values())
        assert peer.uploads == []

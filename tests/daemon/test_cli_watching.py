"""Watching and waiting, claiming, and the filters of a list: what a script holds on to, over interruptions too."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st

from daemon.cli import exits, follow, main, patience
from daemon.cli.events import Event, Garbled, Reader
from daemon.local_api import LocalApi, Place, Unreachable, connect
from reconcile.evidence import JobRead
from tests.daemon.test_cli import EXITS, JOB, Shell
from tests.handlers.ground import Ground, collected, done, running, strict_json


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as g:
        yield g


@pytest.fixture
def shell(ground: Ground, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(ground, capsys)


# ---- events as they come ---------------------------------------------------------------------------------------

STREAM = (
    b":\n\nevent: position\nid: 7\ndata: {}\n\n:\r\n\r\n"
    b'event: history\r\nid: 8\r\ndata: {"a":\r\ndata: "\xc3\xbc"}\r\n\r\n'
    b'event: operation\rdata:{"b":1}\r\runknown: x\nretry: 5\nevent: none\nid: 9\n\n'
    b'id: 10\ndata: {"c":2}\n\ndata: cut'
)
EVENTS = [
    Event("position", "7", {}),
    Event("history", "8", {"a": "ü"}),
    Event("operation", None, {"b": 1}),
    Event("message", "10", {"c": 2}),
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_the_same_in_whatever_pieces_they_come(cuts: list[int]) -> None:
    """As the HTML standard has them; what the stream was cut in is no event."""
    reader, edges = Reader(), sorted({0, *cuts, len(STREAM)})
    assert [event for start, end in pairwise(edges) for event in reader.feed(STREAM[start:end])] == EVENTS


@pytest.mark.parametrize(
    "data",
    [
        b"data: {\n\n",
        b"data: 5\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"data: \xff\n\n",
        b"event: \xff\n\n",
        b"<html>\ndata: x\n\n",
    ],
)
def test_what_is_no_event_of_ours_is_told_apart(data: bytes) -> None:
    with pytest.raises(Garbled):
        Reader().feed(data)


# ---- interruptions ---------------------------------------------------------------------------------------------


class Heard:
    """A teller that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.aways: list[str] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    def away(self, what: str) -> None:
        self.aways.append(what)


def frame(kind: str, data: Any, place: int | None = None) -> bytes:
    numbered = "" if place is None else f"id: {place}\n"
    return f"event: {kind}\n{numbered}data: {json.dumps(data)}\n\n".encode()


def row(place: int, to: str) -> bytes:
    return frame("history", {"position": place, "kind": "move", "to": to}, place)


class Daemon:
    """A server with canned streams: each connection gets the next one, a status instead of bytes ends it at once."""

    def __init__(self, streams: Sequence[list[bytes] | int], body: Callable[[], dict[str, Any]]) -> None:
        self._streams = list(streams)
        self._body = body
        self.asked: list[str | None] = []

    async def events(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.headers.get("Last-Event-ID"))
        pieces = self._streams.pop(0)
        if isinstance(pieces, int):
            return web.json_response({"title": "not now"}, status=pieces) if pieces != 204 else web.Response(status=204)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await answer.prepare(request)
        for piece in pieces:
            if piece == b"cut" and request.transport is not None:
                request.transport.abort()
                return answer
            await answer.write(piece)
        return answer

    async def operation(self, _: web.Request) -> web.Response:
        return web.json_response(self._body())


async def streamed(daemon: Daemon, heard: Heard) -> dict[str, Any]:
    app = web.Application()
    app.router.add_get("/v1/operations/op_1/events", daemon.events)
    app.router.add_get("/v1/operations/op_1", daemon.operation)
    server = TestServer(app)
    await server.start_server()
    try:
        async with connect(Place(str(server.make_url("")).rstrip("/"), "t")) as api:
            return await follow.streamed(api, "/v1/operations/op_1", heard)
    finally:
        await server.close()


def body(state: str) -> dict[str, Any]:
    return {"state": state, "done": state == "succeeded", "attention": None}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "AGAIN_SECONDS", 0.01)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("cut", [[b"cut"], [], [b"event: history\nid: 9\nda", b"cut"]])
async def test_a_stream_that_is_cut_goes_on_after_the_last_row_that_was_told(cut: list[bytes]) -> None:
    """Whether it was cut, closed by a daemon that stops, or broken off in the middle of an event."""
    now = body("observing")
    after = [b":\n\n", row(3, "result_collecting"), row(4, "succeeded"), frame("operation", body("succeeded"))]
    daemon = Daemon(
        [[b":\n\n", row(1, "create_pending"), row(2, "observing"), frame("operation", now), *cut], 503, after],
        lambda: now,
    )
    heard = Heard()
    assert (await streamed(daemon, heard))["state"] == "succeeded"
    assert [event.data["position"] for event in heard.events if event.kind == "history"] == [1, 2, 3, 4]
    assert daemon.asked == [None, "2", "2"]
    assert len(heard.aways) in (1, 2)


@pytest.mark.usefixtures("patient")
async def test_rows_that_came_with_a_restart_are_told_although_it_has_ended() -> None:
    """The body says that it has ended before the stream has told how."""
    last = [b":\n\n", row(2, "succeeded")]
    daemon = Daemon([[b":\n\n", row(1, "observing")], last, 204], lambda: body("succeeded"))
    heard = Heard()
    assert (await streamed(daemon, heard))["done"]
    assert [event.data["position"] for event in heard.events if event.kind == "history"] == [1, 2]
    assert daemon.asked == [None, "1", "2"]


@pytest.mark.usefixtures("patient")
async def test_a_stream_that_is_none_is_told() -> None:
    with pytest.raises(Unreachable, match="is it the daemon"):
        await streamed(Daemon([[b"data: <html>\n\n"]], lambda: body("observing")), Heard())


# ---- watch -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "status"), [(s, n) for s, n in sorted(EXITS.items()) if n != 3])
async def test_watch_tells_one_operation_to_its_end_and_exits_as_wait_does(
    ground: Ground, shell: Shell, state: str, status: int
) -> None:
    operation = await ground.operation(state, JOB)
    async with asyncio.timeout(20):
        assert await shell.run("watch", operation) == status
    lines = shell.out.splitlines()
    rows = await ground.daemon.store.history(operation)
    assert sum("Z  " in line for line in lines[: len(rows)]) == len(rows)
    assert f"→ {state}" in shell.out
    assert f"operation          {operation}" in lines
    assert shell.err == ""


async def test_watch_follows_as_things_happen(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("observing", JOB)
    watching = asyncio.create_task(shell.run("watch", operation, "--json"))
    await ground.until_streaming()
    await ground.apply(operation, JobRead(done(JOB)))
    await ground.apply(operation, collected("completed_with_errors"))
    async with asyncio.timeout(20):
        assert await watching == exits.COMPLETED_WITH_ERRORS
    events = [strict_json(line.encode()) for line in shell.out.splitlines()]
    assert {tuple(event) for event in events} == {("event", "id", "data")}
    told = [event["data"] for event in events if event["event"] == "history"]
    assert [one["seq"] for one in told] == [row.seq for row in await ground.daemon.store.history(operation)]
    assert [event["data"]["state"] for event in events if event["event"] == "operation"][-1] == "completed_with_errors"


async def test_watch_ends_when_a_person_is_needed(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("result_validation_failed", JOB)
    assert await shell.run("watch", operation) == exits.NEEDS_A_PERSON
    assert "waits for" in shell.out


@pytest.mark.parametrize("name", ["op_none", "", "../status"])
async def test_watch_of_nothing_is_told(ground: Ground, shell: Shell, name: str) -> None:
    assert await shell.run("watch", name) == exits.USAGE
    assert shell.out == ""
    assert shell.err.count("\n") == 1


# ---- wait for several ------------------------------------------------------------------------------------------


SEVERAL = [
    (["succeeded", "succeeded"], "--all", 0),
    (["succeeded", "completed_with_errors"], "--all", 5),
    (["succeeded", "failed", "completed_with_errors"], "--all", 1),
    (["failed", "result_validation_failed"], "--all", 4),
    (["failed", "observing"], "--all", 3),
    (["result_validation_failed", "observing"], "--all", 3),
    (["succeeded", "observing"], "--any", 0),
    (["observing", "failed"], "--any", 1),
    (["observing", "observing"], "--any", 3),
]


@pytest.mark.parametrize(("states", "mode", "status"), SEVERAL)
async def test_wait_for_several_exits_by_the_one_that_asks_most(
    ground: Ground, shell: Shell, states: list[str], mode: str, status: int
) -> None:
    ids = [await ground.operation(state, f"batch_{n}") for n, state in enumerate(states)]
    async with asyncio.timeout(20):
        assert await shell.run("wait", *ids, ids[0], mode, "--max", "1s") == status
    assert [line.split()[0] for line in shell.out.splitlines()] == ids
    assert ("not ended after 1s; they go on" in shell.err) == (status == 3)
    assert await shell.run("wait", *ids, mode, "--max", "1s", "--json") == status
    answer = strict_json(shell.out.encode())
    assert (answer["mode"], answer["timed_out"]) == (mode.removeprefix("--"), status == 3)
    assert [one["operation_id"] for one in answer["operations"]] == ids


async def test_wait_for_all_is_meant_where_nothing_is_said(ground: Ground, shell: Shell) -> None:
    ids = [await ground.operation("succeeded", "batch_1"), await ground.operation("observing", "batch_2")]
    waiting = asyncio.create_task(shell.run("wait", *ids))
    await ground.until_waiting(len(ids))
    assert not waiting.done()
    await ground.apply(ids[1], JobRead(done("batch_2")))
    await ground.apply(ids[1], collected("failed"))
    async with asyncio.timeout(20):
        assert await waiting == exits.FAILED


async def test_a_wait_for_one_that_does_not_exist_names_it(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("succeeded", JOB)
    assert await shell.run("wait", operation, "op_none") == exits.USAGE
    told = "There is no operation 'op_none'. Nothing was done. `reconciled list` lists those that there are."
    assert told in shell.err


def test_any_and_all_at_once_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["wait", "op_1", "op_2", "--any", "--all"])
    assert ended.value.code == exits.USAGE
    assert "not allowed with" in capsys.readouterr().err


# ---- claim -----------------------------------------------------------------------------------------------------


async def test_claim_is_0_once_for_each_consumer_and_1_after(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("succeeded", JOB)
    command = ("claim", operation, "--consumer", "mailer")
    assert await shell.run(*command) == 0
    assert "mailer" in shell.out
    assert await shell.run(*command) == exits.CLAIMED_ALREADY == 1
    assert shell.out == ""
    assert "claimed for 'mailer' on 2026-11-29T12:00:00.000Z" in shell.err
    assert await shell.run(*command, "--json") == 1
    assert strict_json(shell.out.encode())["status"] == 409
    assert await shell.run("claim", operation, "--consumer", "reports") == 0


async def test_claim_with_a_key_gives_the_same_answer_again(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("failed", JOB)
    command = ("claim", operation, "--consumer", "mailer", "--idempotency-key", "k 1", "--json")
    assert await shell.run(*command) == 0
    first = shell.out
    assert await shell.run(*command) == 0
    assert shell.out == first
    assert strict_json(first.encode())["operation_id"] == operation


async def test_claim_before_the_end_is_3(ground: Ground, shell: Shell) -> None:
    operation = await ground.operation("observing", JOB)
    assert await shell.run("claim", operation, "--consumer", "mailer") == exits.NOT_ENDED == 3
    assert "nothing to claim yet" in shell.err
    assert await shell.run("claim", "op_none", "--consumer", "mailer") == exits.USAGE
    assert await shell.run("claim", operation, "--consumer", "") == exits.USAGE


# ---- list by filters -------------------------------------------------------------------------------------------


FILTERS: list[tuple[list[str], set[str]]] = [
    (["--open"], {"observing", "asks"}),
    (["--attention"], {"asks"}),
    (["--status", "done"], {"done"}),
    (["--status", "blocked"], {"asks"}),
    (["--state", "observing"], {"observing"}),
    (["--provider", "openai"], {"observing", "asks", "done"}),
    (["--provider", "nobody"], set()),
    (["--label", "team=a b&c"], {"done"}),
    (["--label", "team=a b&c", "--open"], set()),
]


@pytest.mark.parametrize(("options", "left"), FILTERS)
async def test_list_is_narrowed_by_what_the_api_narrows_it_by(
    ground: Ground, shell: Shell, options: list[str], left: set[str]
) -> None:
    made = {
        await ground.operation("observing", "batch_1"): "observing",
        await ground.operation("result_validation_failed", "batch_2"): "asks",
        await ground.operation("succeeded", "batch_3", labels={"team": "a b&c"}): "done",
    }
    assert await shell.run("list", *options) == 0
    assert {made[line.split()[0]] for line in shell.out.splitlines() if line != "no operations"} == left


@pytest.mark.parametrize("options", [["--status", "wat"], ["--state", "wat"], ["--label", "a=b", "--label", "a=c"]])
async def test_a_filter_that_cannot_be_is_wrong_usage(ground: Ground, shell: Shell, options: list[str]) -> None:
    assert await shell.run("list", *options) == exits.USAGE
    assert shell.out == ""
    assert shell.err.count("\n") == 1


# ---- an input that is streamed ---------------------------------------------------------------------------------


async def test_an_input_is_sent_from_its_file_and_never_held(
    ground: Ground, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one JSON start may hold, and told by its line where one is wrong at the very end."""
    (tmp_path / "request.json").write_text('{"endpoint": "/v1/responses"}')
    filler = "x" * 3_000
    lines = [json.dumps({"custom_id": f"q{n}", "url": "/v1/responses", "body": {"i": filler}}) for n in range(4_000)]
    (tmp_path / "big.jsonl").write_text("\n\n" + "\n".join(lines))
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail("held") if path.suffix == ".jsonl" else read(path))
    command = ("submit", "--provider", "openai", "--request", str(tmp_path / "request.json"), "--input")
    assert await shell.run(*command, str(tmp_path / "big.jsonl"), "--json") == 0
    operation = strict_json(shell.out.encode())["operation_id"]
    assert ground.rows("SELECT count(*) FROM items") == [(4_000,)]
    assert (await ground.row(operation)).state == "create_pending"

    (tmp_path / "bad.jsonl").write_text("\n\n" + "\n".join([*lines, lines[7]]))
    assert await shell.run(*command, str(tmp_path / "bad.jsonl")) == exits.USAGE
    assert shell.err == f"reconciled: {tmp_path / 'bad.jsonl'}, line 4003: the id 'q7' stands on line 10 already\n"


def read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read()


async def test_a_wrong_first_line_of_a_large_input_is_told_although_it_is_still_being_sent(
    ground: Ground, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "request.json").write_text('{"endpoint": "/v1/responses"}')
    (tmp_path / "big.jsonl").write_text("{\n" + ("x" * 10_000 + "\n") * 5_000)
    command = ("submit", "--provider", "openai", "--request", str(tmp_path / "request.json"), "--input")
    assert await shell.run(*command, str(tmp_path / "big.jsonl")) == exits.USAGE
    assert f"{tmp_path / 'big.jsonl'}, line 1: not JSON" in shell.err
    assert ground.rows("SELECT count(*) FROM operations") == [(0,)]


async def test_a_daemon_that_takes_nothing_more_is_given_up(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that nobody knows whether the start was taken, and how one would know."""

    async def hangs(*_: Any, **__: Any) -> dict[str, Any]:
        await asyncio.sleep(60)
        return {}

    monkeypatch.setattr(LocalApi, "call", hangs)
    monkeypatch.setattr("daemon.cli.uploading.PIECE_SECONDS", 0.05)
    (tmp_path / "request.json").write_text("{}")
    (tmp_path / "i.jsonl").write_text("{}")
    command = ("submit", "--provider", "openai", "--request", str(tmp_path / "request.json"))
    assert await shell.run(*command, "--input", str(tmp_path / "i.jsonl")) == exits.UNAVAILABLE
    assert "whether it has started is not known" in shell.err

"""Streams: what is committed arrives in order, once, and a reader that was cut off goes on where it was."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from handlers.api import frames, past, streams
from reconcile import changes
from reconcile.errors import StoreBusy
from reconcile.evidence import Accepted, DeadlinePassed, JobRead, LookupFound, StepDone
from reconcile.history_row import HistoryRow
from reconcile.model import Observation, Progress
from reconcile.store import consumers
from tests.event_stream import Event, EventStream, listening
from tests.handlers.ground import Ground, exchange, request_bytes, running, until
from tests.reconcile.rows import DAY

SECTIONS = {"retention": {"finished": "10d"}}


@asynccontextmanager
async def stream(ground: Ground, path: str, last_id: str | int | None = None) -> AsyncIterator[EventStream]:
    url = f"http://127.0.0.1:{ground.local_port}{path}"
    async with listening(ground.session, url, ground.daemon.token, last_id) as opened:
        yield opened


def events_of(operation: str) -> str:
    return f"/v1/operations/{operation}/events"


def positions(events: list[Event]) -> list[int]:
    return [event.data["position"] for event in events if event.name == "history"]


async def history(ground: Ground, operation: str) -> list[dict[str, Any]]:
    body = await ground.get(f"/v1/operations/{operation}/history")
    return [{"operation_id": operation, **row} for row in body["history"]]


def pending(job: str, percent: int) -> JobRead:
    return JobRead(Observation("in_progress", remote_job_id=job, progress=Progress(percent=percent)))


async def later(ground: Ground, ms: int = 11 * DAY) -> None:
    ground.clock.advance(ms)
    await ground.daemon.upkeep._round(asyncio.Event())


async def test_candidates_are_the_same_on_every_road(ground: Ground) -> None:
    """What another operation came to hold is offered nowhere."""
    operation = await ground.operation("create_unknown", None)
    await ground.apply(operation, LookupFound(("batch_a", "batch_b"), is_sure=False))
    holder = await ground.operation("observing", "batch_a")
    ground.clock.advance(16 * 60_000)
    async with stream(ground, "/v1/events") as opened:
        await opened.take(1)
        await ground.apply(operation, DeadlinePassed("create"))
        (live,) = [event.data for event in await opened.take(2) if event.name == "operation"]
    listed = (await ground.get("/v1/operations?attention=true"))["operations"][0]
    waited = await ground.get(f"/v1/operations/{operation}?wait=1")
    (many,) = (await ground.get(f"/v1/wait?id={operation}&wait=1"))["operations"]
    async with stream(ground, events_of(operation)) as opened:
        event = await opened.next()
        while event is not None and event.name != "operation":
            event = await opened.next()
    assert event is not None
    for body in (live, listed, waited, many, event.data):
        assert body["operation_id"] == operation != holder
        assert [one["remote_job_id"] for one in body["attention"]["candidates"]] == ["batch_b"]


# ---- one operation ----------------------------------------------------------------------------------------------


async def test_one_operation_is_told_from_its_beginning_to_its_end_and_then_the_stream_closes(ground: Ground) -> None:
    operation = await ground.start()
    async with stream(ground, events_of(operation)) as opened:
        assert opened.status == 200
        assert opened.response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert opened.response.headers["Cache-Control"] == "no-store"
        assert opened.response.headers["X-Accel-Buffering"] == "no"
        first, now = await opened.take(2)
        assert (first.name, first.id, first.data["to"]) == ("history", str(first.data["position"]), "create_pending")
        assert (now.name, now.data) == ("operation", await ground.get(f"/v1/operations/{operation}"))
        await ground.accept(operation, "job_1")
        await ground.apply(operation, JobRead(Observation("failed", remote_job_id="job_1")))
        rest = await opened.rest()
    told = [first.data, *(event.data for event in rest if event.name == "history")]
    assert told == await history(ground, operation)
    assert rest[-1].name == "operation"
    assert rest[-1].data["outcome"] == "failed"
    assert all(event.id == str(event.data["position"]) for event in rest if event.name == "history")


async def test_what_is_live_and_what_is_read_from_the_file_are_the_same_words(ground: Ground) -> None:
    operation = await ground.start()
    async with stream(ground, events_of(operation)) as live:
        await live.take(2)
        await ground.accept(operation, "job_1")
        await ground.apply(operation, JobRead(Observation("failed", remote_job_id="job_1")))
        told = [event for event in await live.rest() if event.name == "history"]
    async with stream(ground, events_of(operation)) as kept:
        read = [event for event in await kept.rest() if event.name == "history"]
    assert told == read[1:]


async def test_new_progress_is_told_with_the_whole_body_and_without_a_position(ground: Ground) -> None:
    operation = await ground.operation("observing", "job_1")
    rows = len(await history(ground, operation))
    async with stream(ground, events_of(operation)) as opened:
        before = (await opened.take(rows + 1))[-2:]
        await ground.apply(operation, pending("job_1", 40))
        told = await opened.next()
        assert told is not None
        assert (told.name, told.data["progress"]["percent"], told.id) == ("operation", 40, before[0].id)
        assert len(await history(ground, operation)) == rows
    async with stream(ground, events_of(operation), last_id=told.id) as again:
        now = await again.next()
        assert now is not None
        assert (now.name, now.data["progress"]["percent"]) == ("operation", 40)


async def test_a_reader_that_resumes_is_told_what_it_has_not_seen_and_nothing_twice(ground: Ground) -> None:
    operation = await ground.start()
    async with stream(ground, events_of(operation)) as opened:
        first, _ = await opened.take(2)
    await ground.accept(operation, "job_1")
    async with stream(ground, events_of(operation), last_id=first.id) as again:
        count = len(await history(ground, operation)) - 1
        missed = await again.take(count)
        await ground.apply(operation, JobRead(Observation("failed", remote_job_id="job_1")))
        rest = await again.rest()
    assert [first.data, *(e.data for e in missed + rest if e.name == "history")] == await history(ground, operation)


async def test_a_reader_that_comes_back_after_the_end_is_told_to_stop(ground: Ground) -> None:
    """204: an EventSource asks again for ever after an answer of 200 that ended."""
    operation = await ground.operation("succeeded", "job_1")
    async with stream(ground, events_of(operation)) as opened:
        rows = [event for event in await opened.rest() if event.name == "history"]
    async with stream(ground, events_of(operation), last_id=rows[-1].id) as again:
        assert again.status == 204
        assert await again.next() is None
    async with stream(ground, events_of(operation), last_id=rows[-2].id) as again:
        assert again.status == 200
        assert positions(await again.rest()) == [rows[-1].data["position"]]


async def test_evidence_that_came_after_the_end_is_told_to_whoever_comes_back(ground: Ground) -> None:
    operation = await ground.operation("succeeded", "job_1")
    last = (await history(ground, operation))[-1]["position"]
    await ground.apply(operation, JobRead(Observation("failed", remote_job_id="job_1")))
    async with stream(ground, events_of(operation), last_id=last) as again:
        told = await again.rest()
    assert [event.data["kind"] for event in told if event.name == "history"] == ["contradiction"]


async def test_a_position_of_another_operation_is_as_good_as_an_own_one(ground: Ground) -> None:
    first = await ground.start()
    other = await ground.start()
    await ground.accept(first, "job_1")
    async with stream(ground, events_of(first), last_id=(await history(ground, other))[0]["position"]) as opened:
        told = await opened.take(len(await history(ground, first)) - 1)
    assert [event.data for event in told] == (await history(ground, first))[1:]


async def test_others_are_not_told_of(ground: Ground) -> None:
    operation, other = await ground.start(), await ground.start()
    async with stream(ground, events_of(operation)) as opened:
        await opened.take(2)
        await ground.accept(other, "job_2")
        await ground.accept(operation, "job_1")
        await ground.apply(operation, JobRead(Observation("failed", remote_job_id="job_1")))
        rest = await opened.rest()
    assert {event.data["operation_id"] for event in rest} == {operation}


# ---- all --------------------------------------------------------------------------------------------------------


async def test_the_stream_of_all_begins_now_and_says_where_that_is(ground: Ground) -> None:
    old = await ground.start()
    async with stream(ground, "/v1/events") as opened:
        begins = await opened.next()
        assert begins is not None
        assert (begins.name, begins.data) == ("position", {"position": (await history(ground, old))[-1]["position"]})
    new = await ground.start()  # nobody listens
    async with stream(ground, "/v1/events", last_id=begins.id) as again:
        told = await again.next()
    assert told is not None
    assert told.data == (await history(ground, new))[0]


async def test_the_stream_of_all_tells_every_row_once_in_the_order_of_positions(ground: Ground) -> None:
    async with stream(ground, "/v1/events", last_id=0) as opened:
        operations = await asyncio.gather(*(ground.start() for _ in range(20)))
        for n, operation in enumerate(operations):
            await ground.accept(operation, f"job_{n}")
        count = ground.rows("SELECT count(*) FROM history")[0][0]
        told: list[Event] = []
        while len(told) < count:
            told += [event for event in await opened.take(1) if event.name == "history"]
    assert positions(told) == list(range(1, count + 1))
    assert {event.data["operation_id"] for event in told} == set(operations)
    async with stream(ground, "/v1/events", last_id=0) as again:
        assert await again.take(count) == told


async def test_a_long_past_is_read_in_pages_and_joins_what_is_live(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a reader catches up page by page more is written, page by page: no hole, nothing twice."""
    read = consumers.Consumers.history_of_all
    late: list[str] = []

    async def reading(self: consumers.Consumers, *, after: int, limit: int = 0) -> Any:
        page = await read(self, after=after, limit=3)
        if len(late) < 12:
            late.append(await ground.start())
        return page

    monkeypatch.setattr(consumers.Consumers, "history_of_all", reading)
    monkeypatch.setattr(past, "PAGE", 3)
    for _ in range(10):
        await ground.start()
    async with stream(ground, "/v1/events", last_id=0) as opened:
        await opened.take(10)
        late.append(await ground.start())
        count = ground.rows("SELECT count(*) FROM history")[0][0]
        told = await opened.take(count - 10)
    assert positions(told) == list(range(11, count + 1))


async def test_many_who_catch_up_at_once_share_the_pages_and_hold_up_nobody(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is told every row once, in order, also what is written meanwhile; other calls are answered in between."""
    monkeypatch.setattr(past, "PAGE", 10)
    read, asked, free = consumers.Consumers.history_of_all, 0, asyncio.Event()

    async def counted(self: consumers.Consumers, *, after: int, limit: int = 0) -> Any:
        nonlocal asked
        asked += 1
        await free.wait()
        return await read(self, after=after, limit=limit)

    monkeypatch.setattr(consumers.Consumers, "history_of_all", counted)
    for _ in range(100):
        await ground.start()
    seen = [0] * 40 + [3, 17, 55, 99]
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(stream(ground, "/v1/events", last_id=place)) for place in seen]
        catching_up = [asyncio.create_task(one.take(120 - place)) for one, place in zip(opened, seen, strict=True)]
        free.set()
        async with asyncio.timeout(20):
            for _ in range(20):
                await ground.start()
        told = await asyncio.gather(*catching_up)
    for place, events in zip(seen, told, strict=True):
        assert positions(events) == list(range(place + 1, 121))
    # Ten full pages for those from the beginning, one more for each who came from elsewhere, and the growing last one.
    assert asked <= 10 + 4 + 21 + len(seen) // 2


async def test_a_reader_whose_turn_has_not_come_is_kept_alive(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.02)
    read, free = consumers.Consumers.history_of_all, asyncio.Event()

    async def slowly(self: consumers.Consumers, *, after: int, limit: int = 0) -> Any:
        await free.wait()
        return await read(self, after=after, limit=limit)

    monkeypatch.setattr(consumers.Consumers, "history_of_all", slowly)
    operation = await ground.start()
    one, two = stream(ground, "/v1/events", last_id=0), stream(ground, "/v1/events", last_id=0)
    async with one as first, two as second, stream(ground, events_of(operation)) as own:
        for waiting in (second, own):
            with pytest.raises(TimeoutError):
                await waiting.next(0.3)
            assert waiting.comments >= 3
        free.set()
        for reader in (first, second, own):
            assert positions(await reader.take(1)) == [1]


async def test_what_was_kept_for_readers_grows_with_the_record(ground: Ground) -> None:
    for count in range(1, 4):
        await ground.start()
        async with stream(ground, "/v1/events", last_id=0) as opened:
            assert positions(await opened.take(count)) == list(range(1, count + 1))


async def test_what_was_kept_for_readers_goes_with_what_is_pruned(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections=SECTIONS) as ground:
        ended = await ground.operation("succeeded", "job_1")
        kept = await ground.start()
        newest = await ground.daemon.store.consumers.last_position()
        async with stream(ground, "/v1/events", last_id=0) as opened:
            assert {event.data["operation_id"] for event in await opened.take(newest)} == {ended, kept}
        await later(ground)
        async with stream(ground, "/v1/events", last_id=0) as opened:
            gap, told = await opened.take(2)
    assert (gap.name, told.data["operation_id"]) == ("gap", kept)


async def test_pages_beyond_what_is_kept_are_read_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past, "PAGE", 2)
    monkeypatch.setattr(past, "MAX_KEPT", 1_000)
    for _ in range(9):
        await ground.start()
    for _ in range(2):
        async with stream(ground, "/v1/events", last_id=0) as opened:
            assert positions(await opened.take(9)) == list(range(1, 10))


@pytest.mark.parametrize("seen", [0, 1])
@pytest.mark.parametrize("moment", ["before the file is asked", "after the file is asked"])
async def test_what_is_committed_while_a_stream_opens_is_told_once(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, moment: str, seen: int
) -> None:
    asked = consumers.Consumers.last_position
    started: list[str] = []
    calls = 0

    async def last_position(self: consumers.Consumers) -> int:
        nonlocal calls
        calls += 1
        if calls == 2 and moment.startswith("before"):
            started.append(await ground.start())
        newest = await asked(self)
        if calls == 2 and moment.startswith("after"):
            started.append(await ground.start())
        return newest

    monkeypatch.setattr(consumers.Consumers, "last_position", last_position)
    await ground.start()
    async with stream(ground, "/v1/events", last_id=seen) as opened:
        assert positions(await opened.take(2 - seen)) == [1, 2][seen:]
        await ground.start()
        assert positions(await opened.take(1)) == [3]


# ---- gaps -------------------------------------------------------------------------------------------------------


async def test_positions_that_were_pruned_are_told_first(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections=SECTIONS) as ground:
        ended = await ground.operation("succeeded", "job_1")
        gone = [row["position"] for row in await history(ground, ended)]
        kept = await ground.start()
        await later(ground)
        async with stream(ground, "/v1/events", last_id=0) as opened:
            gap, told = await opened.take(2)
        assert (gap.name, gap.id) == ("gap", str(gone[-1]))
        assert {**gap.data, "message": ""} == {
            "from": gone[0], "to": gone[-1], "missing": len(gone), "reason": "pruned", "message": "",
        }  # fmt: skip
        assert "/v1/operations/" in gap.data["message"]
        assert [told.data] == await history(ground, kept)
        async with stream(ground, "/v1/events", last_id=gap.id) as again:
            assert await again.next() == told


async def test_a_hole_behind_everything_is_told_once_and_then_passed(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections=SECTIONS) as ground:
        await ground.operation("succeeded", "job_1")
        newest = await ground.daemon.store.consumers.last_position()
        await later(ground)
        async with stream(ground, "/v1/events", last_id=1) as opened:
            gap = await opened.next()
        assert gap is not None
        assert (gap.data["from"], gap.data["to"], gap.id) == (2, newest, str(newest))
        async with stream(ground, "/v1/events", last_id=gap.id) as again:
            new = await ground.start()
            told = await again.next()
        assert told is not None
        assert [told.data] == await history(ground, new)


async def test_holes_between_what_is_kept_are_told_with_their_number(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections=SECTIONS) as ground:
        first = await ground.start()
        gone = await history(ground, await ground.operation("succeeded", "job_1"))
        last = await ground.start()
        await later(ground)
        async with stream(ground, "/v1/events", last_id=0) as opened:
            gap, *told = await opened.take(3)
    assert (gap.name, gap.data["missing"], gap.id) == ("gap", len(gone), "0")
    assert (gap.data["from"], gap.data["to"]) == (gone[0]["position"], gone[-1]["position"])
    assert [event.data["operation_id"] for event in told] == [first, last]


async def test_a_position_beyond_the_newest_is_told_as_one_of_another_record(ground: Ground) -> None:
    operation = await ground.start()
    async with stream(ground, "/v1/events", last_id=10_000) as opened:
        gap = await opened.next()
        assert gap is not None
        assert (gap.name, gap.data["reason"], gap.data["to"], gap.id) == ("gap", "unknown_position", 1, "1")
        assert "/v1/completions" in gap.data["message"]
        await ground.start()
        assert positions(await opened.take(1)) == [2]
    async with stream(ground, events_of(operation), last_id=10_000) as opened:
        gap, told = await opened.take(2)
        assert gap.data["reason"] == "unknown_position"
        assert [told.data] == await history(ground, operation)


# ---- readers that are slow, gone or wrong -----------------------------------------------------------------------


async def test_a_reader_that_falls_behind_is_let_go_and_resumes_without_a_loss(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_WAITING", 3)
    held = asyncio.Event()
    write = aiohttp.web.StreamResponse.write

    async def slowly(self: Any, data: Any) -> None:
        await write(self, data)
        if b"history" in bytes(data):
            await held.wait()

    monkeypatch.setattr(aiohttp.web.StreamResponse, "write", slowly)
    async with stream(ground, "/v1/events") as opened:
        await opened.next()  # it is past the file
        for _ in range(8):
            await ground.start()
        held.set()
        seen = positions(await opened.rest())
    assert 0 < len(seen) < 8
    async with stream(ground, "/v1/events", last_id=seen[-1]) as again:
        assert seen + positions(await again.take(8 - len(seen))) == list(range(1, 9))


async def test_a_reader_that_falls_behind_while_it_reads_the_file_goes_on_reading_there(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MAX_WAITING", 1)
    asked, busy = consumers.Consumers.last_position, [4, 3]

    async def last_position(self: consumers.Consumers) -> int:
        newest = await asked(self)
        for _ in range(busy.pop() if busy else 0):
            await ground.start()
        return newest

    await ground.start()
    monkeypatch.setattr(consumers.Consumers, "last_position", last_position)
    async with stream(ground, "/v1/events", last_id=0) as opened:
        assert positions(await opened.take(8)) == list(range(1, 9))
        await ground.start()
        assert positions(await opened.take(1)) == [9]


async def test_a_reader_that_takes_nothing_is_cut_and_holds_up_nobody(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SEND_SECONDS", 0.2)
    head = [("Authorization", f"Bearer {ground.daemon.token}"), ("Last-Event-ID", "0")]
    host = f"127.0.0.1:{ground.local_port}"
    stuck, writer = await asyncio.open_connection("127.0.0.1", ground.local_port, limit=1024)
    writer.write(request_bytes("GET", "/v1/events", head, host=host))
    await until(lambda: _streams(ground, 1))
    labels = {f"label-{n}": "x" * 200 for n in range(40)}
    async with stream(ground, "/v1/events", last_id=0) as lively:
        seen: list[Event] = []
        operation = await ground.start(labels=labels)
        await ground.accept(operation, "job_1")
        for n in range(1500):
            await ground.apply(operation, pending("job_1", n % 100))
            if n % 100 == 0:
                seen += await lively.take(1)
            if not await _streams(ground, 2):
                break
        await until(lambda: _streams(ground, 1))
        assert seen
    writer.close()
    del stuck


async def _streams(ground: Ground, count: int) -> bool:
    return sum(map(len, ground.daemon.changes._streams.values())) == count


async def test_a_reader_that_went_away_leaves_nothing_behind(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.02)
    operation = await ground.start()
    for path in ("/v1/events", events_of(operation)):
        async with stream(ground, path) as opened:
            await opened.next()
    await until(lambda: _streams(ground, 0))
    assert ground.daemon.changes._streams == {}
    assert [entry for entry in ground.logged if entry["log_level"] in ("warning", "error")] == []


async def test_a_silent_stream_is_kept_alive_by_comments(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.02)
    async with stream(ground, "/v1/events") as opened:
        await opened.next()
        with pytest.raises(TimeoutError):
            await opened.next(0.2)
        assert opened.comments >= 3


async def test_a_stream_that_waits_asks_the_database_nothing(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    execute = type(ground.daemon.store._reader).execute_fetchall

    async def counted(self: Any, sql: str, parameters: Any = ()) -> Any:
        asked.append(sql)
        return await execute(self, sql, parameters)

    monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.02)
    operation = await ground.start()
    async with stream(ground, "/v1/events") as opened, stream(ground, events_of(operation)) as own:
        await opened.next()
        await own.take(2)
        monkeypatch.setattr(type(ground.daemon.store._reader), "execute_fetchall", counted)
        await ground.accept(operation, "job_1")
        assert (await opened.take(3))[0].name == (await own.take(3))[0].name == "history"
        for silent in (opened, own):
            with pytest.raises(TimeoutError):
                await silent.take(100, seconds=0.1)
        assert asked == []


async def test_a_row_is_spelled_once_for_all_its_readers(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    spelled: list[int] = []
    row = frames.row

    def counted(told: HistoryRow) -> bytes:
        spelled.append(told.position)
        return row(told)

    monkeypatch.setattr(frames, "row", counted)
    operation = await ground.start()
    own = stream(ground, events_of(operation))
    async with stream(ground, "/v1/events") as one, stream(ground, "/v1/events") as two, own as three:
        await one.next()
        await two.next()
        await three.take(2)
        await ground.accept(operation, "job_1")
        assert await one.take(3) == await two.take(3) == await three.take(3)
    assert spelled == [1, 2, 3, 4]


async def test_a_stop_ends_every_stream_in_peace(ground: Ground) -> None:
    operation = await ground.start()
    async with stream(ground, "/v1/events", last_id=0) as opened, stream(ground, events_of(operation)) as own:
        await opened.take(1)
        await own.take(2)
        ground.daemon.changes.close()
        assert await opened.rest() == await own.rest() == []
    async with stream(ground, "/v1/events", last_id=0) as late:
        assert positions(await late.rest()) == [1]


@pytest.mark.parametrize("given", ["-1", "x", "1.5", "99999999999999999", "١", "0x1"])
async def test_an_id_that_was_never_given_is_400(ground: Ground, given: str) -> None:
    operation = await ground.start()
    for path in ("/v1/events", events_of(operation)):
        answer = await ground.api("GET", path, headers={"Last-Event-ID": given})
        assert answer.status == 400
        assert answer.json()["errors"][0]["pointer"] == "/Last-Event-ID"


async def test_two_ids_are_none(ground: Ground) -> None:
    head = [("Authorization", f"Bearer {ground.daemon.token}"), ("Last-Event-ID", "1"), ("Last-Event-ID", "2")]
    sent = request_bytes("GET", "/v1/events", head, host=f"127.0.0.1:{ground.local_port}")
    assert (await exchange(ground.local_port, sent)).status == 400


async def test_what_no_stream_knows_is_refused(ground: Ground) -> None:
    operation = await ground.start()
    assert (await ground.api("GET", "/v1/events?cursor=1")).status == 400
    assert (await ground.api("GET", f"{events_of(operation)}?wait=1")).status == 400
    assert (await ground.api("GET", events_of("op_never"))).status == 404
    assert (await ground.api("POST", "/v1/events")).status == 405
    assert (await ground.api("GET", "/v1/events", token=False)).status == 401


async def test_a_head_is_answered_at_once(ground: Ground) -> None:
    operation = await ground.start()
    for path in ("/v1/events", events_of(operation)):
        answer = await ground.api("HEAD", path)
        assert (answer.status, answer.body) == (200, b"")
        assert answer.headers["Content-Type"].startswith("text/event-stream")


async def test_a_file_that_cannot_be_read_cuts_a_stream_and_does_not_end_it(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ground.start()

    async def broken(*_: Any, **__: Any) -> Any:
        raise StoreBusy("the store cannot be read") from sqlite3.OperationalError("locked")

    monkeypatch.setattr(consumers.Consumers, "history_of_all", broken)
    async with stream(ground, "/v1/events", last_id=0) as opened:
        with pytest.raises(aiohttp.ClientError):
            await opened.next()
    assert [entry["event"] for entry in ground.logged if entry["log_level"] == "warning"] == ["request_not_read"]


async def test_what_could_not_be_told_ends_the_streams_and_not_the_writer(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("a fault of ours")

    async with stream(ground, "/v1/events") as opened:
        await opened.next()
        monkeypatch.setattr(changes, "Batch", broken)
        await ground.start()
        assert await opened.rest() == []
    monkeypatch.undo()
    assert [entry["event"] for entry in ground.logged if entry["log_level"] == "error"] == ["report_failed"]
    async with stream(ground, "/v1/events", last_id=opened.last_id) as again:
        assert positions(await again.take(1)) == [1]


async def test_a_fault_of_ours_in_a_stream_cuts_it_and_is_logged(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Any) -> bytes:
        raise RuntimeError("a fault of ours")

    await ground.start()
    monkeypatch.setattr(frames, "row", broken)
    async with stream(ground, "/v1/events", last_id=0) as opened:
        with pytest.raises(aiohttp.ClientError):
            await opened.next()
    assert [entry["event"] for entry in ground.logged if entry["log_level"] == "error"] == ["request_failed"]


async def test_a_long_history_of_one_operation_is_read_in_pages(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = consumers.Consumers.history_of

    async def reading(self: consumers.Consumers, operation_id: str, *, after: int, limit: int = 0) -> Any:
        return await read(self, operation_id, after=after, limit=2)

    operation = await ground.operation("succeeded", "job_1")
    monkeypatch.setattr(consumers.Consumers, "history_of", reading)
    monkeypatch.setattr(past, "PAGE", 2)
    for first in (0, 1, 2):
        async with stream(ground, events_of(operation), last_id=first) as opened:
            rows = [event.data for event in await opened.rest() if event.name == "history"]
        assert rows == (await history(ground, operation))[first:]


async def test_a_create_that_is_answered_in_one_commit_with_others_is_told_in_order(ground: Ground) -> None:
    """Writes of one commit run by kind, not as they came: the stream still tells positions in order."""
    operation = await ground.operation("create_pending", None)
    async with stream(ground, "/v1/events", last_id=0) as opened:
        await opened.take(len(await history(ground, operation)))
        await asyncio.gather(
            ground.apply(operation, Accepted(Observation("in_progress", remote_job_id="job_1"))),
            ground.start(),
            ground.apply(operation, StepDone("upload", "again")),
            ground.start(),
        )
        count = ground.rows("SELECT count(*) FROM history")[0][0]
        told: list[int] = []
        while not told or told[-1] < count:
            told += positions(await opened.take(1))
    assert told == sorted(set(told))
    assert told == list(range(told[0], count + 1))

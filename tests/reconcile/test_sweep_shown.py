"""What a list does not show, or shows wrongly: no job ends by it, and none is left unread for it (J1)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aiohttp import web

from reconcile import listing
from reconcile.evidence import Accepted, StepDone
from reconcile.model import Observation
from reconcile.schedule import Pace
from tests.handlers.ground import until
from tests.reconcile.list_scene import HOUR, LAG, LONG, MINUTE, STARTS, Scene, Twist, as_is, read_again, scene


def page(answer: web.StreamResponse) -> Any:
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


async def test_a_job_that_the_list_never_shows_is_read_by_its_id(tmp_path: Path) -> None:
    """J1: absence from a list is never an end. A job younger than the list's lag is given time to appear."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(40)
        await on.jobs_run(1, replace(LONG, name="hidden", listed_after_ms=100 * HOUR))
        on.work()
        await on.listed()
        swept = await on.sweep()
        assert (swept["open_jobs"], swept["not_shown"], on.calls[1]) == (41, 0, 0)
        on.move(on.ground.clock.now() + LAG)
        swept = await on.sweep()
        assert swept["not_shown"] == 1
        assert on.cursor()["pages"] == swept["pages"] + 1  # the read that it cost counts as well

        async def is_read() -> bool:
            return on.calls[1] == 1

        await until(is_read)
        on.move(on.ground.clock.now() + 30 * MINUTE)
        await on.all_are("succeeded", 41)
        assert on.states() == {"succeeded": 41}
        read = {job.id: job.reads for job in on.world.truth().jobs if job.reads}
        assert set(read) == {on.jobs[-1]}


def empty(_: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    return web.json_response({**page(answer), "data": [], "has_more": False})


async def test_an_empty_list_ends_nobody_and_stops_paying(tmp_path: Path) -> None:
    """Every job is read by its id; a list that costs more than it saves is left."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(30)
        on.twist.append(empty)
        on.work()
        await on.listed()
        on.move(on.ground.clock.now() + LAG)
        assert (await on.sweep())["not_shown"] == 30

        async def all_read() -> bool:
            return on.calls[1] >= 30

        await until(all_read)
        assert on.states() == {"observing": 30}

        async def is_left() -> bool:
            return on.cursor() == {}

        await until(is_left)
        assert on.watch().pace is Pace.POLLED


async def test_a_list_that_did_not_pay_is_tried_again_after_an_hour(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(30, replace(LONG, duration_ms=3 * HOUR))
        on.twist.append(empty)
        on.work()
        await on.listed()
        on.move(on.ground.clock.now() + LAG)
        await on.sweep()

        async def is_left() -> bool:
            return on.cursor() == {}

        await until(is_left)
        on.twist.append(as_is)
        on.move(on.ground.clock.now() + listing.BELIEVED_MS - 10_000)
        await asyncio.sleep(0.05)
        assert on.cursor() == {}
        on.move(on.ground.clock.now() + 10_000)
        await on.listed()
        assert (await on.sweep())["not_shown"] == 0


@asynccontextmanager
async def between_two_pages(folder: Path) -> AsyncIterator[Scene]:
    """120 open jobs of which 100 were shown, 20 stand on the second page, and jobs of others on many more."""
    async with scene(folder) as on:
        for _ in range(500):
            on.world.seed_job(items=1, now_ms=on.ground.clock.now(), scenario=LONG)
        waiting = await on.ground.start(**STARTS["openai"])
        await on.ground.apply(waiting, StepDone("upload", "file-waiting"))
        on.operations.append(waiting)
        on.jobs.append(on.world.seed_job(items=1, now_ms=on.ground.clock.now(), scenario=LONG))
        await on.jobs_run(1, replace(LONG, name="hidden", listed_after_ms=100 * HOUR))
        await on.jobs_run(119)
        sweeper = on.ground.daemon.sweeper
        await on.ground.daemon.pace_keeper.settle()
        on.ground.clock.set(on.cursor()["due_at"] + LAG)
        await sweeper.go_on("openai", may_go_on=lambda: False)
        assert on.calls == (1, 0)
        yield on
        await sweeper.go_on("openai", may_go_on=lambda: True)


async def test_a_job_accepted_while_a_sweep_ran_does_not_stand_for_one_that_no_page_showed(tmp_path: Path) -> None:
    """J1: 120 jobs were shown, and one of those that it set out to see was not: that one is read by its id."""
    async with between_two_pages(tmp_path / "state") as on:
        accepted = Accepted(Observation("validating", remote_job_id=on.jobs[0]))
        await on.ground.apply(on.operations[0], accepted)
    (swept,) = on.told("list_swept")
    assert (swept["open_jobs"], swept["not_shown"]) == (120, 1)


async def test_a_job_that_ended_by_another_road_while_a_sweep_ran_is_not_searched_for(tmp_path: Path) -> None:
    """Neither where a page shows it as ended, nor where none does."""
    async with between_two_pages(tmp_path / "state") as on:
        for operation in on.operations[1:3]:
            await read_again(on, operation, "completed")
        assert on.states() == {"create_pending": 1, "observing": 118, "result_collecting": 2}
    (swept,) = on.told("list_swept")
    assert (swept["open_jobs"], swept["pages"], swept["not_shown"]) == (120, 2, 0)


async def test_a_job_that_no_page_shows_and_that_is_watched_still_is_searched_for_to_the_end(tmp_path: Path) -> None:
    async with between_two_pages(tmp_path / "state") as on:
        pass
    (swept,) = on.told("list_swept")
    assert (swept["pages"], swept["not_shown"]) == (7, 1)


def circling(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    """The second page names itself as the next."""
    body = page(answer)
    return web.json_response({**body, "has_more": True, "last_id": request.query.get("after", body["last_id"])})


async def test_a_list_that_leads_round_in_a_circle_is_left_and_the_rest_read_by_id(tmp_path: Path) -> None:
    """F14: pages are bounded; the second page is the first one's cursor once more."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(250)
        on.twist.append(circling)
        on.work()
        await on.listed()
        on.move(on.ground.clock.now() + LAG)
        swept = await on.sweep()
        assert (on.calls[0], swept["pages"], swept["not_shown"]) == (2, 2, 50)

        async def all_read() -> bool:
            return on.calls[1] >= 50

        await until(all_read)
        assert on.states() == {"observing": 250}


def endless() -> Twist:
    """The same page for ever, with a new cursor each time."""
    shown: list[Any] = []

    def twist(_: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
        shown.append(page(answer))
        return web.json_response({**shown[0], "has_more": True, "last_id": f"batch_{len(shown)}"})

    return twist


async def test_a_list_without_an_end_is_read_to_its_cap(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(20)
        await on.jobs_run(1, replace(LONG, listed_after_ms=100 * HOUR))
        on.twist.append(endless())
        on.work()
        await on.listed()
        assert (await on.sweep())["pages"] == 20


def in_halves(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    """Pages of ten that overlap by five."""
    body = page(answer)
    data = body["data"][:10]
    return web.json_response({**body, "data": data, "has_more": len(body["data"]) > 10, "last_id": data[4]["id"]})


async def test_a_list_that_repeats_its_entries_shows_each_job_once(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(30)
        on.twist.append(in_halves)
        on.work()
        await on.listed()
        swept = await on.sweep()
        assert (swept["pages"], swept["not_shown"]) == (5, 0)


async def test_a_list_revives_nothing_that_was_started_at_another_address(tmp_path: Path) -> None:
    """The new account's list shows jobs under the very ids of ours: they are strangers'."""
    folder = tmp_path / "state"
    async with scene(folder) as on:
        await on.jobs_run(5)
        moved = set(on.jobs)
    async with scene(folder, seed=2) as on:
        for _ in range(5):
            moved.remove(on.world.seed_job(items=1, now_ms=on.ground.clock.now(), scenario=LONG))
        assert not moved
        await on.jobs_run(25)
        on.work()
        await on.listed()
        await on.all_are("observation_failed", 5)
        assert (await on.sweep())["open_jobs"] == 25
        on.move(on.ground.clock.now() + 30 * MINUTE)
        await on.all_are("succeeded", 25)
        assert on.states() == {"observation_failed": 5, "succeeded": 25}
        sql = "SELECT DISTINCT living ->> '$.attention.reason' FROM operations WHERE state = 'observation_failed'"
        assert on.ground.rows(sql) == [("provider_moved",)]
        assert on.watch().open_jobs == 0


async def test_jobs_of_others_on_the_list_are_not_stored(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(20)
        for _ in range(50):
            on.world.seed_job(items=1, now_ms=on.ground.clock.now(), scenario=LONG)
        on.work()
        await on.listed()
        assert (await on.sweep())["open_jobs"] == 20
        assert on.ground.rows("SELECT count(DISTINCT operation_key) FROM observations WHERE road = 'list'") <= [(20,)]


async def test_a_sweep_ends_with_the_page_that_showed_the_last_open_job(tmp_path: Path) -> None:
    """Newer jobs than ours stand first; what is older than ours is not looked at."""
    async with scene(tmp_path / "state") as on:
        for _ in range(450):
            on.world.seed_job(items=1, now_ms=on.ground.clock.now(), scenario=LONG)
        await on.jobs_run(25)
        on.work()
        await on.listed()
        assert (await on.sweep())["pages"] == 1


async def test_an_ordered_list_is_left_at_jobs_older_than_the_oldest_open_one(tmp_path: Path) -> None:
    """Message Batches are listed from new to old: one of ours that is missing does not cost the whole account."""
    async with scene(tmp_path / "state") as on:
        for _ in range(3_000):
            on.world.message_batches.seed_job(items=1, now_ms=on.ground.clock.now(), scenario=LONG)
        on.ground.clock.advance(10 * MINUTE)
        await on.jobs_run(30, name="claude")
        await on.jobs_run(1, replace(LONG, listed_after_ms=100 * HOUR), name="claude")
        on.work()
        await on.listed("claude")
        swept = await on.sweep("claude")
        assert (swept["pages"], swept["open_jobs"]) == (1, 31)

"""A sweep beside other work: webhooks, reads and other owners, pauses of its provider, and a clock that is set back."""

import asyncio
from pathlib import Path
from typing import Any

from reconcile.limits import NO_PAUSE, Pause
from reconcile.store.sweeps import SweepWish
from tests.handlers.ground import event, signed
from tests.reconcile.list_scene import HOUR, LONG, MINUTE, scene


async def test_a_webhook_is_confirmed_by_a_read_of_the_job_while_the_list_carries_the_rest(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(30)
        on.work()
        await on.listed()
        on.ground.clock.advance(30 * MINUTE - 20_000)
        await on.sweep()
        lists = on.calls[0]
        on.ground.clock.advance(21_000)
        headers = signed(event(on.jobs[3]), at_ms=on.ground.clock.now())
        assert (await on.ground.hook(event(on.jobs[3]), headers)).status == 200
        await on.all_are("succeeded", 1)
        assert (await on.ground.row(on.operations[3])).state == "succeeded"
        assert on.calls == (lists, 1)


async def test_a_list_is_ready_from_its_due_time_on_and_takes_one_slot(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(20)
        worker, sweeper = on.ground.daemon.worker, on.ground.daemon.sweeper
        await on.ground.daemon.pace_keeper.settle()
        due_at = on.cursor()["due_at"]
        assert sweeper.ready(due_at - 1) == []
        assert sweeper.next_at(due_at - 1) == due_at
        assert sweeper.ready(due_at) == ["openai"]
        assert sweeper.next_at(due_at) is None
        on.ground.clock.set(due_at)
        worker._sweeping.add("openai")
        assert worker._room(worker._peers["openai"], due_at) == 7


async def test_a_flood_of_rung_jobs_does_not_keep_the_list_from_being_read(tmp_path: Path) -> None:
    """C7: jobs that were just adopted are rung, and a page of the list tells of a hundred of them."""
    slow = {"requests_per_second": 40, "concurrency": 1}
    async with scene(tmp_path / "state", limits=slow) as on:
        now = on.ground.clock.now()
        for _ in range(250):
            job = on.world.seed_job(items=1, now_ms=now, scenario=LONG)
            answer = await on.ground.api("POST", "/v1/operations", body={"provider": "openai", "remote_job_id": job})
            assert answer.status == 202
        await on.list_comes_due()
        on.work()
        await on.all_are("observing", 250)
        lists, reads = on.calls
        assert lists == 3
        assert reads <= 3 * 8, "every eighth request is a page"


async def test_a_sweep_gives_its_slot_back_between_pages_where_others_want_it(tmp_path: Path) -> None:
    """The walk goes on with the next page when a slot is free again."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(250)
        sweeper = on.ground.daemon.sweeper
        await on.list_comes_due()
        await sweeper.go_on("openai", may_go_on=lambda: False)
        assert on.calls == (1, 0)
        assert on.cursor()["lease_owner"] is not None
        assert sweeper.ready(on.ground.clock.now()) == ["openai"]
        await sweeper.go_on("openai", may_go_on=lambda: True)
        assert on.calls == (3, 0)
        assert [entry["pages"] for entry in on.told("list_swept")] == [3]


async def test_a_long_walk_renews_its_lease_with_its_pages(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(250)
        sweeper = on.ground.daemon.sweeper
        await on.list_comes_due()
        await sweeper.go_on("openai", may_go_on=lambda: False)
        (until_at,) = on.ground.rows("SELECT lease_until FROM sweeps")[0]
        on.ground.clock.advance(19_000)
        await sweeper.go_on("openai", may_go_on=lambda: False)
        assert on.ground.rows("SELECT lease_until FROM sweeps") == [(until_at,)]
        on.ground.clock.advance(35_000)
        peer = on.ground.daemon.peers["openai"]
        page_read = asyncio.Event()
        ingest = on.ground.daemon.ingest.page

        async def looks(*given: Any, **how: Any) -> Any:
            kept = await ingest(*given, **how)
            (later,) = on.ground.rows("SELECT lease_until FROM sweeps")[0]
            assert later > until_at + 50_000
            page_read.set()
            return kept

        on.ground.daemon.ingest.page = looks  # type: ignore[method-assign]
        await sweeper.go_on("openai", may_go_on=lambda: False)
        assert page_read.is_set()
        assert peer.pause == NO_PAUSE
        assert len(on.told("list_swept")) == 1


async def test_a_walk_whose_lease_was_taken_over_is_dropped_and_what_it_saw_is_kept(tmp_path: Path) -> None:
    """C10: its next due time is the other owner's to write."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(250)
        sweeper = on.ground.daemon.sweeper
        await on.list_comes_due()
        await sweeper.go_on("openai", may_go_on=lambda: False)
        later = on.ground.clock.now() + MINUTE
        on.ground.clock.set(later)
        assert await on.ground.daemon.store.sweeps.claim(SweepWish("openai", "other", later, MINUTE)) is not None
        await sweeper.go_on("openai", may_go_on=lambda: True)
        assert [entry.get("sweep") for entry in on.told("lease_lost")] == ["openai"]
        assert on.cursor()["lease_owner"] == "other"
        assert on.told("list_swept") == []


async def test_the_list_and_the_rows_of_a_paused_provider_probe_in_turn(tmp_path: Path) -> None:
    """Either may be refused alone: neither keeps the one probe of each pause to itself."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(20)
        worker, peer = on.ground.daemon.worker, on.ground.daemon.peers["openai"]
        await on.ground.daemon.pace_keeper.settle()
        now = on.cursor()["due_at"]
        assert worker._lists_first(now) == []
        peer.pause = paused_until(now)
        assert worker._lists_first(now) == ["openai"]
        worker._listed_last.add("openai")
        assert worker._lists_first(now + MINUTE) == []


async def test_nothing_is_listed_while_the_provider_is_paused(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(20)
        on.work()
        await on.listed()
        peer = on.ground.daemon.peers["openai"]
        due_at = on.cursor()["due_at"]
        peer.pause = paused_until(due_at + HOUR)
        on.move(due_at + MINUTE)
        await asyncio.sleep(0.05)
        assert on.calls == (0, 0)
        peer.pause = NO_PAUSE
        await on.sweep()
        assert on.calls == (1, 0)


def paused_until(at: int) -> Pause:
    return Pause(at, "unavailable", 1, at - HOUR)


async def test_a_clock_that_was_set_back_delays_no_sweep_by_more_than_the_usual_wait(tmp_path: Path) -> None:
    """N34: in memory as in the file."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(20)
        await on.ground.daemon.pace_keeper.settle()
        on.ground.clock.advance(-24 * HOUR)
        await on.ground.daemon.watchman.check_clock()
        latest = on.ground.clock.now() + MINUTE
        assert on.cursor()["due_at"] <= latest
        assert on.ground.daemon.pace_keeper.cursors["openai"].due_at <= latest

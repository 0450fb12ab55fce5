"""List sweeps on the whole daemon: what they cost, what they find, and when the next one comes."""

from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from reconcile.evidence import DeadlinePassed, ReadFailed
from reconcile.schedule import Pace
from tests.handlers.ground import provider, running, until
from tests.reconcile.list_scene import HOUR, LONG, MINUTE, as_is, scene, tidied


async def test_many_jobs_without_webhooks_end_by_list_pages_and_not_one_read_of_their_own(tmp_path: Path) -> None:
    """C7, P9: 120 jobs, three sweeps of two pages each, every end found, every result collected."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(120)
        on.work()
        await on.listed()
        for _ in range(2):
            swept = await on.sweep()
            assert (swept["open_jobs"], swept["pages"], swept["not_shown"]) == (120, 2, 0)
        assert on.calls == (4, 0)
        assert on.states() == {"observing": 120}
        on.move(on.ground.clock.now() + 30 * MINUTE)
        await on.all_are("succeeded", 120)
        assert on.calls == (6, 0)
        assert on.world.truth().downloads == 120
        assert on.ground.meters.total("ends_missed", provider="openai") == 120
        rows = await on.ground.get(f"/v1/operations/{on.operations[0]}/history")
        end = next(row for row in rows["history"] if row["to"] == "result_collecting")
        assert (end["actor"], end["cause"].partition(":")[0]) == ("sweep:openai", "observation")
        seen = await on.ground.get(f"/v1/operations/{on.operations[0]}/observations")
        assert seen["observations"][-1]["road"] == "list"


async def test_a_sweep_over_jobs_that_have_not_moved_changes_nothing_but_its_cursor(tmp_path: Path) -> None:
    """P9: unchanged jobs cost no row, however many they are."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(60, replace(LONG, ends=None, duration_ms=10 * MINUTE))
        on.work()
        await on.listed()
        on.move(on.ground.clock.now() + 29 * MINUTE)  # all items have run by then, and the job does not end
        await on.sweep()
        tables = ("operations", "schedule", "history", "observations", "requests")
        before = {table: on.ground.rows(f"SELECT * FROM {table}") for table in tables}  # noqa: S608 - our names
        await on.sweep()
        assert before == {table: on.ground.rows(f"SELECT * FROM {table}") for table in tables}  # noqa: S608
        assert on.calls == (on.calls[0], 0)


async def test_an_entry_that_says_what_it_said_is_looked_at_again_once_something_became_of_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of nothing but familiar entries is not even brought to the file, until a read of one of them fails."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(60, replace(LONG, ends=None, duration_ms=10 * MINUTE))
        on.work()
        await on.listed()
        on.move(on.ground.clock.now() + 29 * MINUTE)
        for _ in range(2):
            await on.sweep()
        kept = on.pages_kept(monkeypatch)
        await on.sweep()
        assert kept == []
        await on.ground.apply(on.operations[0], ReadFailed("http_500"))
        assert on.ground.rows("SELECT sum(errors) FROM schedule") == [(1,)]
        swept = await on.sweep()
        assert kept == [1]
        assert on.ground.rows("SELECT sum(errors) FROM schedule") == [(0,)]
        assert swept["not_shown"] == 0


async def test_entries_of_jobs_that_have_ended_are_not_looked_at_again_unless_one_is_adopted_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(1, replace(LONG, ends=None, duration_ms=10 * MINUTE))
        on.ground.clock.advance(30 * HOUR)
        await on.ground.apply(on.operations[0], DeadlinePassed("result", last_read=True))
        given_up = {"decision": "give_up", "by": "ana", "reason": "nobody needs it"}
        path = f"/v1/operations/{on.operations[0]}/decisions"
        assert (await on.ground.api("POST", path, body=given_up)).status == 200
        await on.jobs_run(30, replace(LONG, ends=None, duration_ms=10 * MINUTE))
        await on.jobs_run(29, replace(LONG, duration_ms=10 * MINUTE))
        on.work()
        await on.listed()
        on.move(on.ground.clock.now() + 29 * MINUTE)
        await on.all_are("succeeded", 29)
        for _ in range(2):
            await on.sweep()
        kept = on.pages_kept(monkeypatch)
        assert (await on.sweep())["open_jobs"] == 30
        assert kept == []
        again = {"provider": "openai", "remote_job_id": on.jobs[0]}
        assert (await on.ground.api("POST", "/v1/operations", body=again)).status == 202
        swept = await on.sweep()
        assert kept == [1]
        assert swept["not_shown"] == 0


async def test_few_jobs_are_read_one_by_one(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(19)
        on.work()
        on.move(on.ground.clock.now() + MINUTE)

        async def all_read() -> bool:
            return on.calls[1] >= 19

        await until(all_read)
        assert on.calls[0] == 0
        assert on.cursor() == {}


async def test_when_few_are_left_each_is_polled_again_and_the_cursor_goes(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(11)
        await on.jobs_run(9, replace(LONG, duration_ms=HOUR))
        on.work()
        await on.listed()
        assert on.watch().open_jobs == 20
        on.move(on.ground.clock.now() + 31 * MINUTE)
        await on.all_are("succeeded", 11)

        async def is_over() -> bool:
            return on.cursor() == {}

        await until(is_over)
        assert on.watch().pace is Pace.POLLED
        now = on.ground.clock.now()
        dues = [due_at for (due_at,) in on.ground.rows("SELECT due_at FROM schedule")]
        assert len(dues) == 9
        assert all(now - MINUTE < due_at <= now + MINUTE for due_at in dues)


async def test_the_next_sweep_stands_in_the_file_before_its_gap_and_a_restart_goes_on_by_it(tmp_path: Path) -> None:
    """A6: nothing of a walk that was cut off is needed."""
    folder = tmp_path / "state"
    async with scene(folder) as on:
        await on.jobs_run(30)
        on.work()
        await on.listed()
        began = on.ground.clock.now()
        due_at = on.cursor()["due_at"]
        assert began < due_at <= began + MINUTE
        await on.sweep()
        later = on.cursor()
        assert due_at < later["due_at"] <= on.ground.clock.now() + MINUTE
        assert (later["lease_owner"], later["pages"], later["errors"]) == (None, 1, 0)
        await on.rest()
        url = str(on.ground.daemon.peers["openai"].base_url)
    async with running(folder, providers={"openai": provider(url)}) as ground:
        await tidied()
        watch = ground.daemon.paces.watches["openai"]
        assert (watch.pace, watch.open_jobs, watch.needed) == (Pace.LISTED, 30, 1)
        assert ground.daemon.pace_keeper.cursors["openai"].due_at == later["due_at"]


async def test_a_long_sweep_puts_the_next_one_off_by_half_of_its_wait_at_least_and_not_by_its_own_length(
    tmp_path: Path,
) -> None:
    """From beginning to beginning is one wait: else an end is seen later where there are more jobs."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(30)
        on.work()
        await on.listed()
        for takes, latest in ((20_000, MINUTE), (10 * MINUTE, 10 * MINUTE + MINUTE // 2)):

            def slow(_: web.Request, answer: web.StreamResponse, takes: int = takes) -> web.StreamResponse:
                on.ground.clock.set(on.ground.clock.now() + takes)
                return answer

            on.twist[0] = slow
            began = on.cursor()["due_at"]
            await on.sweep()
            on.twist[0] = as_is
            assert began + takes < on.cursor()["due_at"] <= began + latest + 1000

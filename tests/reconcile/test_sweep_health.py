"""Ends that no webhook told of (C7): how they are counted, shown and told, and what they do to what was put off."""

import sqlite3
from pathlib import Path

from reconcile.evidence import JobRead
from reconcile.model import Observation
from reconcile.schedule import Pace
from tests.handlers.ground import event, provider, running, signed
from tests.reconcile.list_scene import HOUR, MINUTE, Scene, read_again, scene, tidied


def write_beside(on: Scene, sql: str) -> None:
    connection = sqlite3.connect(on.ground.folder / "reconciled.db")
    connection.execute(sql)
    connection.commit()
    connection.close()


async def test_lost_health_brings_jobs_that_wait_for_the_sweep_back_to_their_cap(tmp_path: Path) -> None:
    """C7: two ends of twenty that no event told of; what was due in a sweep interval is pulled in, also at a start."""
    poll = {"base": "60s", "cap": "120s", "sweep": "24h"}
    folder = tmp_path / "state"
    async with scene(folder, poll=poll) as on:
        await on.jobs_run(15)
        watch = on.watch()
        watch.recent_ends = "1" * 20
        write_beside(on, "UPDATE providers SET recent_ends = '11111111111111111111'")
        assert watch.pace is Pace.SWEPT
        await on.ground.daemon.pace_keeper.settle()
        for operation in on.operations:
            await read_again(on, operation, "in_progress")
        now = on.ground.clock.now()
        assert on.ground.rows("SELECT count(*) FROM schedule WHERE due_at > ?", now + 2 * MINUTE) >= [(10,)]
        for operation in on.operations[:2]:
            await read_again(on, operation, "failed")
        assert on.ground.rows("SELECT recent_ends FROM providers WHERE provider = 'openai'") == [("1" * 18 + "00",)]
        assert (watch.pace, watch.in_file) == (Pace.POLLED, Pace.SWEPT)
    async with running(folder, providers={"openai": provider(poll=poll)}) as ground:
        await tidied()
        ground.clock.set(on.ground.clock.now())
        await ground.daemon.pace_keeper.settle()
        latest = ground.clock.now() + 2 * MINUTE
        assert ground.rows("SELECT count(*) FROM schedule WHERE due_at > ?", latest) == [(0,)]


async def test_a_sweep_that_was_put_off_while_webhooks_came_is_hastened_when_they_do_not(tmp_path: Path) -> None:
    """C7: from the sweep interval back to the cap; the file's time with it."""
    poll = {"base": "60s", "cap": "120s", "sweep": "24h"}
    async with scene(tmp_path / "state", poll=poll) as on:
        await on.jobs_run(25)
        watch = on.watch()
        watch.recent_ends = "1" * 20
        write_beside(on, "UPDATE providers SET recent_ends = '11111111111111111111'")
        sweeper = on.ground.daemon.sweeper
        await on.list_comes_due()
        await sweeper.go_on("openai", may_go_on=lambda: True)
        now = on.ground.clock.now()
        assert now + 2 * MINUTE < on.cursor()["due_at"] <= now + 24 * HOUR
        for operation in on.operations[:2]:
            await read_again(on, operation, "failed")
        await on.ground.daemon.pace_keeper.settle()
        assert on.cursor()["due_at"] <= on.ground.clock.now() + 2 * MINUTE
        assert on.ground.daemon.pace_keeper.cursors["openai"].due_at == on.cursor()["due_at"]
        assert watch.pace is Pace.LISTED


async def test_the_delay_of_detection_is_measured_by_road_and_never_below_nothing(tmp_path: Path) -> None:
    """J5: from the provider's own time to our commit; a provider's clock that is ahead counts as no delay."""
    async with running(tmp_path / "state", providers={"openai": provider()}) as ground:
        operations = [await ground.operation("observing", f"job_{n}") for n in range(3)]
        now = ground.clock.now()
        for n, (operation, at, rung_by) in enumerate(
            zip(operations, (now - 3_000, now + 9_000, now - 1_000), (None, None, "event:evt_1"), strict=True)
        ):
            seen = Observation("failed", remote_job_id=f"job_{n}", provider_at=at)
            await ground.apply(operation, JobRead(seen, rung_by=rung_by))
        delays = {dict(labels)["road"]: n for (name, labels), n in ground.meters._sums.items() if "delay" in name}
        assert delays == {"sweep": 3.0, "webhook": 1.0}
        assert ground.meters.total("detection_delay_seconds", provider="openai", road="sweep") == 2


async def test_late_events_are_counted_and_shown(tmp_path: Path) -> None:
    async with running(tmp_path / "state", providers={"openai": provider()}) as ground:
        operation = await ground.operation("observing", "job_1")
        await ground.apply(operation, JobRead(Observation("failed", remote_job_id="job_1")))
        assert (await ground.hook(event("job_1", "failed"), signed(event("job_1", "failed")))).status == 200
        webhooks = (await ground.get("/v1/status"))["providers"]["openai"]["webhooks"]
        assert (webhooks["missed"], webhooks["late"]) == (1, 1)


async def test_silent_webhooks_are_told_once_two_of_five_ends_were_missed(tmp_path: Path) -> None:
    async with running(tmp_path / "state", providers={"openai": provider()}) as ground:
        for n in range(5):
            operation = await ground.operation("observing", f"job_{n}")
            rung_by = "event:evt" if n < 3 else None
            await ground.apply(operation, JobRead(Observation("failed", remote_job_id=f"job_{n}"), rung_by=rung_by))
        await ground.daemon.watchman.look()
        (notice,) = await ground.daemon.store.notices()
        assert (notice.reason, notice.provider, notice.evidence) == (
            "webhooks_silent",
            "openai",
            {"ends": 5, "missed": 2},
        )


async def test_without_a_secret_no_event_is_expected_and_none_is_missed(tmp_path: Path) -> None:
    async with running(tmp_path / "state", providers={"openai": provider(keys=0)}) as ground:
        operation = await ground.operation("observing", "job_1")
        await ground.apply(operation, JobRead(Observation("failed", remote_job_id="job_1")))
        assert ground.meters.total("ends_missed") == 0
        assert ground.rows("SELECT recent_ends FROM providers") == [("",)]

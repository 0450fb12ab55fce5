"""Pages that cannot be read, or not be kept: nothing is concluded, and a list that goes on failing is left."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconcile import listing
from reconcile.errors import WriteRefused
from reconcile.limits import NO_PAUSE
from reconcile.schedule import Pace
from reconcile.store.writer import Hooks
from tests.handlers.ground import SeededDice, until
from tests.reconcile.list_scene import HOUR, LAG, LONG, MINUTE, Twist, as_is, scene
from tests.reconcile.store.ground import database_error, raising


def html(_: web.Request, __: web.StreamResponse) -> web.StreamResponse:
    return web.Response(text="<html>maintenance</html>", content_type="text/html")


def broken(_: web.Request, __: web.StreamResponse) -> web.StreamResponse:
    return web.json_response({"error": {"message": "oops", "type": "server_error"}}, status=500)


@pytest.mark.parametrize("fault", [html, broken])
async def test_a_page_that_cannot_be_read_ends_the_sweep_and_concludes_nothing(tmp_path: Path, fault: Twist) -> None:
    """C33, C6: the jobs stand as they were, none is read for it; the next sweep follows by the backoff over errors."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(130)

        def second(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
            return fault(request, answer) if "after" in request.query else answer

        on.twist.append(second)
        on.work()
        await on.listed()
        on.move(on.ground.clock.now() + LAG)
        failed = await on.sweep(word="list_failed")
        assert (failed["pages"], failed["in_a_row"]) == (2, 1)
        assert on.calls[1] == 0
        assert on.states() == {"observing": 130}
        assert (on.cursor()["errors"], on.cursor()["lease_owner"]) == (1, None)
        assert on.cursor()["due_at"] > on.ground.clock.now()
        on.twist.append(as_is)
        assert (await on.sweep())["not_shown"] == 0
        assert on.cursor()["errors"] == 0


async def test_after_three_sweeps_cut_short_jobs_are_polled_and_the_list_is_still_tried(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(25, replace(LONG, duration_ms=5 * HOUR))
        on.twist.append(html)
        on.work()
        await on.listed()
        for _ in range(3):
            await on.sweep(word="list_failed")

        async def is_polled() -> bool:
            return on.watch().in_file is Pace.POLLED

        await until(is_polled)
        now = on.ground.clock.now()
        assert on.ground.rows("SELECT count(*) FROM schedule WHERE due_at <= ?", now + MINUTE) == [(25,)]
        on.twist.append(as_is)
        await on.sweep()
        await on.listed()
        on.move(on.ground.clock.now() + MINUTE)

        async def all_carried() -> bool:
            return on.ground.rows("SELECT count(*) FROM schedule WHERE due_at > ?", now + HOUR) == [(25,)]

        await until(all_carried)


def refused(status: int) -> Twist:
    body = {"error": {"message": "not for you", "type": "invalid_request_error"}}
    return lambda _, __: web.json_response(body, status=status)


@pytest.mark.parametrize("status", [401, 403])
async def test_a_list_that_is_refused_for_ever_is_left_and_its_jobs_are_read_by_their_ids(
    tmp_path: Path, status: int
) -> None:
    """Whether the key is refused or only the list cannot be told by the list; reads go on to tell, also after a start.

    The list itself is tried again ever more seldom, an hour apart at most.
    """
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(25)
        on.twist.append(refused(status))
        on.work()
        await on.listed()
        for _ in range(3):
            on.ground.daemon.peers["openai"].pause = NO_PAUSE
            failed = await on.sweep(word="list_failed")
        assert (failed["in_a_row"], on.cursor()["errors"]) == (3, 3)

        async def is_polled() -> bool:
            return on.watch().in_file is Pace.POLLED

        await until(is_polled)
        await on.rest()
        keeper = on.ground.daemon.pace_keeper
        await keeper.recall()
        await keeper.settle()
        assert (on.watch().pace, on.watch().errors) == (Pace.POLLED, 3)
        on.ground.clock.advance(31 * MINUTE)
        on.work()
        await on.all_are("succeeded", 25)
        assert on.calls[1] >= 25
        assert on.ground.daemon.peers["openai"].pause == NO_PAUSE


class Late(SeededDice):
    """Draws that make every wait as long as it may be."""

    def draw(self) -> float:
        return 0.9999


async def test_a_list_that_was_left_is_tried_again_ever_more_seldom_up_to_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try of a list that is refused pauses its provider for a moment: that must not happen every few minutes."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(20)
        on.twist.append(html)
        sweeper = on.ground.daemon.sweeper
        await on.ground.daemon.pace_keeper.settle()
        monkeypatch.setattr(sweeper, "_dice", Late())
        waits = []
        for _ in range(8):
            on.ground.clock.set(max(on.ground.clock.now(), on.cursor()["due_at"]))
            await sweeper.go_on("openai", may_go_on=lambda: True)
            waits.append(round((on.cursor()["due_at"] - on.ground.clock.now()) / MINUTE))
        assert waits == [1, 1, 8, 16, 32, 60, 60, 60]


async def test_errors_of_a_list_that_was_left_are_forgotten(tmp_path: Path) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(20)
        watch = on.watch()
        await on.ground.daemon.pace_keeper.settle()
        watch.errors, watch.open_jobs = listing.ERRORS_TO_LEAVE, 5
        await on.ground.daemon.pace_keeper.settle()
        assert (watch.has_sweep, watch.errors, on.cursor()) == (False, 0, {})
        watch.open_jobs = 20
        await on.ground.daemon.pace_keeper.settle()
        assert watch.pace is Pace.LISTED


# ---- faults of our own ----------------------------------------------------------------------------------------------


async def test_a_full_disk_drops_the_walk_and_the_next_one_begins_anew(tmp_path: Path) -> None:
    hooks = Hooks()
    async with scene(tmp_path / "state", hooks=hooks) as on:
        await on.jobs_run(30)
        sweeper = on.ground.daemon.sweeper
        await on.list_comes_due()
        hooks.before_commit = raising(database_error(13))
        await sweeper.go_on("openai", may_go_on=lambda: True)
        assert len(on.told("sweep_not_recorded")) == 1
        assert on.watch().familiar._changed is None
        on.ground.clock.advance(1_000)
        await sweeper.go_on("openai", may_go_on=lambda: True)
        assert [entry["pages"] for entry in on.told("list_swept")] == [1]


async def test_a_pace_that_could_not_be_written_is_written_by_the_next_pass(tmp_path: Path) -> None:
    hooks = Hooks()
    async with scene(tmp_path / "state", hooks=hooks) as on:
        await on.jobs_run(20)
        hooks.before_commit = raising(database_error(13))
        again_at = await on.ground.daemon.pace_keeper.settle()
        assert again_at is not None
        assert on.ground.clock.now() < again_at <= on.ground.clock.now() + 1_000
        assert (on.watch().pace, on.cursor()) == (Pace.POLLED, {})
        assert await on.ground.daemon.pace_keeper.settle() is None
        assert on.watch().pace is Pace.LISTED


async def test_a_page_that_can_never_be_stored_gives_up_the_list_and_not_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row that no page can bring on must not keep all others from being watched."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(20)

        async def refuses(*_: Any) -> Any:
            raise WriteRefused("no arrow")

        monkeypatch.setattr(on.ground.daemon.store.sweeps, "keep_page", refuses)
        on.work()
        await on.listed()
        for _ in range(listing.ERRORS_TO_LEAVE):
            await on.sweep(word="list_failed")

        async def is_polled() -> bool:
            return on.watch().in_file is Pace.POLLED

        await until(is_polled)
        on.move(on.ground.clock.now() + MINUTE)

        async def all_read() -> bool:
            return on.calls[1] >= 20

        await until(all_read)


async def test_a_fault_in_reading_a_list_counts_as_a_sweep_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(20)
        adapter = type(on.ground.daemon.peers["openai"].provider)

        def stumbles(*_: Any) -> Any:
            raise TypeError("unsupported operand")

        monkeypatch.setattr(adapter, "read_list", stumbles)
        on.work()
        await on.listed()
        failed = await on.sweep(word="list_failed")
        assert (failed["error_class"], failed["in_a_row"]) == ("our_fault", 1)
        assert len(on.told("sweep_failed")) == 1

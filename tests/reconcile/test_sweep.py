"""List sweeps on the whole daemon, against the stand-in over sockets: what they cost and find, what misleads them.

Time passes by itself, and is moved on to where the next sweep is due; polls are a minute apart, so that whatever is
asked in between was asked for a reason.
"""

import asyncio
import itertools
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import structlog
from aiohttp import web

from daemon.standin.anthropic_face import add_message_batches
from daemon.standin.openai_face import build_app
from daemon.standin.scenarios import Scenario, find_scenario
from daemon.standin.world import World
from reconcile import listing
from reconcile.errors import WriteRefused
from reconcile.evidence import Accepted, DeadlinePassed, JobRead, ReadFailed, StepDone
from reconcile.limits import NO_PAUSE, Pause
from reconcile.model import Observation
from reconcile.paces import Watch
from reconcile.schedule import Pace
from reconcile.store.list_pages import PageKept, PageRecord
from reconcile.store.sweeps import SweepWish
from reconcile.store.writer import Hooks
from tests.handlers.ground import Ground, HandClock, SeededDice, TaskStarter, event, provider, running, signed, until
from tests.handlers.test_collect import serving
from tests.reconcile.store.ground import database_error, raising

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
LAG: Final = 5 * MINUTE
ITEM: Final = "item-00000000"
STARTS: Final = {
    "openai": {
        "provider": "openai",
        "request": {"endpoint": "/v1/responses"},
        "items": [{"custom_id": ITEM, "url": "/v1/responses", "body": {"model": "m", "input": "i"}}],
    },
    "claude": {
        "provider": "claude",
        "request": {},
        "items": [{"custom_id": ITEM, "params": {"model": "m", "max_tokens": 1, "messages": []}}],
    },
}
#: Half an hour, and no webhook ever.
LONG: Final = replace(find_scenario("normal"), name="long", duration_ms=30 * MINUTE, webhooks="lost")
Twist = Callable[[web.Request, web.StreamResponse], web.StreamResponse]


def as_is(_: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    return answer


@dataclass
class Scene:
    """The daemon, its worker off at first, and the account that it asks."""

    ground: Ground
    world: World
    #: What becomes of each answer to a list call.
    twist: list[Twist] = field(default_factory=lambda: [as_is])
    operations: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _worker: "asyncio.Task[None] | None" = None

    async def jobs_run(self, count: int, scenario: Scenario = LONG, *, name: str = "openai") -> None:
        """So many jobs of ours at the provider, known to run."""
        seed = self.world.seed_job if name == "openai" else self.world.message_batches.seed_job
        now = self.ground.clock.now()
        jobs = [seed(items=1, now_ms=now, scenario=scenario) for _ in range(count)]
        self.operations += await asyncio.gather(*(self._holding(job, name) for job in jobs))
        self.jobs += jobs

    async def _holding(self, job: str, name: str) -> str:
        operation = await self.ground.start(**STARTS[name])
        await self.ground.apply(operation, StepDone("upload", f"file-{job}"))
        word = "validating" if name == "openai" else "in_progress"
        await self.ground.apply(operation, Accepted(Observation(word, remote_job_id=job)))
        return operation

    def work(self) -> None:
        """The worker begins."""
        self._stop = asyncio.Event()
        self._worker = self.ground.supervisor.start("worker", self.ground.daemon.worker.run(self._stop))

    async def rest(self) -> None:
        """The worker ends."""
        if self._worker is not None:
            self._stop.set()
            self.ground.daemon.worker.wake(0)
            await asyncio.wait({self._worker})
            self._worker = None

    def move(self, to: int) -> None:
        """Let the time come."""
        self.ground.clock.set(to)
        self.ground.daemon.worker.wake(0)

    def watch(self, name: str = "openai") -> Watch:
        return self.ground.daemon.paces.watches[name]

    async def listed(self, name: str = "openai") -> None:
        """Wait until the list carries the jobs."""

        async def is_listed() -> bool:
            return self.watch(name).pace is Pace.LISTED

        await until(is_listed)

    def told(self, word: str) -> list[Any]:
        return [entry for entry in self.ground.logged if entry["event"] == word]

    async def sweep(self, name: str = "openai", word: str = "list_swept") -> Any:
        """Go to where the next sweep is due, and wait for its end."""
        before = len(self.told(word))
        self.move(max(self.ground.clock.now(), self.cursor(name)["due_at"]))

        async def is_over() -> bool:
            return len(self.told(word)) > before

        await until(is_over)
        return self.told(word)[-1]

    def cursor(self, name: str = "openai") -> dict[str, Any]:
        columns = ("due_at", "fence", "lease_owner", "errors", "pages")
        sql = f"SELECT {', '.join(columns)} FROM sweeps WHERE provider = ?"  # noqa: S608 - our names
        rows = self.ground.rows(sql, name)
        return dict(zip(columns, rows[0], strict=True)) if rows else {}

    async def all_are(self, state: str, count: int) -> None:
        """Wait until so many operations stand there."""

        async def are() -> bool:
            return self.ground.rows("SELECT count(*) FROM operations WHERE state = ?", state) == [(count,)]

        await until(are)

    def pages_kept(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """How many jobs each page shows that is brought to the file from here on; grows with each."""
        sweeps = self.ground.daemon.store.sweeps
        keep, kept = sweeps.keep_page, list[int]()

        async def count(page: PageRecord) -> PageKept:
            kept.append(len(page.jobs))
            return await keep(page)

        monkeypatch.setattr(sweeps, "keep_page", count)
        return kept

    def states(self) -> dict[str, int]:
        return dict(self.ground.rows("SELECT state, count(*) FROM operations GROUP BY state ORDER BY state"))

    @property
    def calls(self) -> tuple[int, int]:
        """(list calls, reads) so far."""
        truth = self.world.truth()
        return truth.lists, truth.reads


@asynccontextmanager
async def scene(
    folder: Path, *, poll: dict[str, str] | None = None, limits: dict[str, int] | None = None, **more: Any
) -> AsyncIterator[Scene]:
    """A daemon with polls a minute apart, and an account of both shapes."""
    clock = HandClock()
    clock.run()
    ids = itertools.count()
    world = World(find_scenario("normal"), ids=lambda prefix: f"{prefix}{next(ids):06d}")
    twist: list[Twist] = [as_is]

    @web.middleware
    async def twisting(request: web.Request, handler: Any) -> web.StreamResponse:
        answer: web.StreamResponse = await handler(request)
        is_list = request.method == "GET" and request.path in ("/v1/batches", "/v1/messages/batches")
        return twist[-1](request, answer) if is_list else answer

    app = build_app(
        world,
        clock,
        TaskStarter(),
        webhook_url=None,
        webhook_secret=None,
        session_factory=aiohttp.ClientSession,
        log=structlog.get_logger(),
    )
    add_message_batches(app, world, clock)
    app.middlewares.append(twisting)
    numbers: dict[str, Any] = {
        "poll": poll or {"base": "60s", "cap": "60s", "sweep": "60s"},
        "limits": limits or {"requests_per_second": 5000, "concurrency": 8},
    }
    async with serving(app) as url:
        providers = {
            "openai": provider(f"{url}/v1", **numbers),
            "claude": provider(f"{url}/v1", kind="anthropic_batches", webhook_secrets=[], **numbers),
        }
        async with running(folder, providers=providers, clock=clock, **more) as ground:
            on = Scene(ground, world, twist)
            try:
                yield on
            finally:
                await on.rest()


async def tidied() -> None:
    """Wait for what a start does in the background: it must not meet a closed store."""
    tasks = {task for task in asyncio.all_tasks() if task.get_name() == "upkeep"}
    if tasks:
        await asyncio.wait(tasks)


def page(answer: web.StreamResponse) -> Any:
    assert isinstance(answer, web.Response)
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


# ---- what it costs --------------------------------------------------------------------------------------------------


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


# ---- what a list does not show, or shows wrongly --------------------------------------------------------------------


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


# ---- pages that cannot be read --------------------------------------------------------------------------------------


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


# ---- beside other work ----------------------------------------------------------------------------------------------


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
        await on.ground.daemon.pace_keeper.settle()
        on.ground.clock.set(on.cursor()["due_at"])
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
        await on.ground.daemon.pace_keeper.settle()
        on.ground.clock.set(on.cursor()["due_at"])
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
        await on.ground.daemon.pace_keeper.settle()
        on.ground.clock.set(on.cursor()["due_at"])
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


async def test_a_walk_whose_lease_was_taken_over_is_dropped_and_what_it_saw_is_kept(tmp_path: Path) -> None:
    """C10: its next due time is the other owner's to write."""
    async with scene(tmp_path / "state") as on:
        await on.jobs_run(250)
        sweeper = on.ground.daemon.sweeper
        await on.ground.daemon.pace_keeper.settle()
        on.ground.clock.set(on.cursor()["due_at"])
        await sweeper.go_on("openai", may_go_on=lambda: False)
        later = on.ground.clock.now() + MINUTE
        on.ground.clock.set(later)
        assert await on.ground.daemon.store.sweeps.claim(SweepWish("openai", "other", later, MINUTE)) is not None
        await sweeper.go_on("openai", may_go_on=lambda: True)
        assert [entry.get("sweep") for entry in on.told("lease_lost")] == ["openai"]
        assert on.cursor()["lease_owner"] == "other"
        assert on.told("list_swept") == []


# ---- faults of our own ----------------------------------------------------------------------------------------------


async def test_a_full_disk_drops_the_walk_and_the_next_one_begins_anew(tmp_path: Path) -> None:
    hooks = Hooks()
    async with scene(tmp_path / "state", hooks=hooks) as on:
        await on.jobs_run(30)
        sweeper = on.ground.daemon.sweeper
        await on.ground.daemon.pace_keeper.settle()
        on.ground.clock.set(on.cursor()["due_at"])
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


# ---- health ---------------------------------------------------------------------------------------------------------


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


def write_beside(on: Scene, sql: str) -> None:
    connection = sqlite3.connect(on.ground.folder / "reconciled.db")
    connection.execute(sql)
    connection.commit()
    connection.close()


async def read_again(on: Scene, operation: str, word: str) -> None:
    row = await on.ground.row(operation)
    seen = Observation(word, remote_job_id=row.remote_job_id, provider_at=on.ground.clock.now() - 3_000)
    await on.ground.apply(operation, JobRead(seen))


async def test_a_sweep_that_was_put_off_while_webhooks_came_is_hastened_when_they_do_not(tmp_path: Path) -> None:
    """C7: from the sweep interval back to the cap; the file's time with it."""
    poll = {"base": "60s", "cap": "120s", "sweep": "24h"}
    async with scene(tmp_path / "state", poll=poll) as on:
        await on.jobs_run(25)
        watch = on.watch()
        watch.recent_ends = "1" * 20
        write_beside(on, "UPDATE providers SET recent_ends = '11111111111111111111'")
        sweeper = on.ground.daemon.sweeper
        await on.ground.daemon.pace_keeper.settle()
        on.ground.clock.set(on.cursor()["due_at"])
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

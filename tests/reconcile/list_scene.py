"""The whole daemon beside the stand-in over sockets, for what is told of list sweeps.

Time passes by itself, and is moved on to where the next sweep is due; polls are a minute apart, so that whatever is
asked in between was asked for a reason.
"""

import asyncio
import itertools
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
from reconcile.evidence import Accepted, JobRead, StepDone
from reconcile.model import Observation
from reconcile.paces import Watch
from reconcile.schedule import Pace
from reconcile.store.list_pages import PageKept, PageRecord
from tests.handlers.ground import Ground, HandClock, TaskStarter, provider, running, until
from tests.handlers.test_collect import serving

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
    """The answer itself."""
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
        """How the provider's jobs are watched."""
        return self.ground.daemon.paces.watches[name]

    async def listed(self, name: str = "openai") -> None:
        """Wait until the list carries the jobs."""

        async def is_listed() -> bool:
            return self.watch(name).pace is Pace.LISTED

        await until(is_listed)

    def told(self, word: str) -> list[Any]:
        """What was logged under that word."""
        return [entry for entry in self.ground.logged if entry["event"] == word]

    async def sweep(self, name: str = "openai", word: str = "list_swept") -> Any:
        """Go to where the next sweep is due, and wait for its end."""
        before = len(self.told(word))
        self.move(max(self.ground.clock.now(), self.cursor(name)["due_at"]))

        async def is_over() -> bool:
            return len(self.told(word)) > before

        await until(is_over)
        return self.told(word)[-1]

    async def list_comes_due(self) -> None:
        """Let the pace be settled, and the time be when the list is read next."""
        await self.ground.daemon.pace_keeper.settle()
        self.ground.clock.set(self.cursor()["due_at"])

    def cursor(self, name: str = "openai") -> dict[str, Any]:
        """The sweep as it stands in the file; empty where there is none."""
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
        """How many operations stand in each state."""
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


async def read_again(on: Scene, operation: str, word: str) -> None:
    """A read of one job comes in: it says that word, and that it has since three seconds ago."""
    row = await on.ground.row(operation)
    seen = Observation(word, remote_job_id=row.remote_job_id, provider_at=on.ground.clock.now() - 3_000)
    await on.ground.apply(operation, JobRead(seen))

"""Many jobs whose webhooks never come: a daemon killed while it reads their list, and a list that is refused."""

import asyncio
import itertools
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from daemon.standin.scenarios import find_scenario
from daemon.standin.world import World
from tests.stories.gate import Arrival, Gate, behind_a_gate, refusal
from tests.stories.stage import ASK_AGAIN, PATIENCE, client_of, provider, serving, settle

JOBS = 40


async def test_jobs_whose_list_was_being_read_at_the_kill_all_end_by_it(tmp_path: Path) -> None:
    """Forty jobs, no webhook, `kill -9` once list pages are read: the next life goes on by the stored cursor.

    Fewer reads of single jobs than jobs, though each is watched for seconds at two looks a second.
    """
    home = settle(tmp_path, base="300ms", cap="600ms")
    ids = itertools.count()
    world = World(find_scenario("lost-webhook"), ids=lambda prefix: f"{prefix}{next(ids):06d}", speed=0.5)

    async with provider(home, world), client_of(home) as client:
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            operations = await asyncio.gather(*(client.started(key=f"key-{n}") for n in range(JOBS)))
            async with asyncio.timeout(PATIENCE):
                while world.truth().lists < 2:  # noqa: ASYNC110 - the world is pure: it tells nobody
                    await asyncio.sleep(ASK_AGAIN)
            await daemon.stop(signal.SIGKILL)
        assert home.rows("SELECT count(*) AS n FROM sweeps") == [{"n": 1}]

        async with serving(home) as daemon:
            await client.until_ready(daemon)
            bodies = await asyncio.gather(*(client.end_of(operation) for operation in operations))

    assert [body["outcome"] for body in bodies] == ["succeeded"] * JOBS
    truth = world.truth()
    assert len(truth.jobs) == JOBS
    assert truth.reads < JOBS
    assert home.rows("SELECT count(*) AS n FROM observations WHERE road = 'list'")[0]["n"] > 0


@pytest.mark.parametrize("status", [401, 403])
async def test_jobs_of_an_account_whose_list_alone_is_refused_all_end(tmp_path: Path, status: int) -> None:
    """Thirty jobs that can be read by id, a list that never can: they end all the same, and so does a new start.

    The daemon is killed in between, since a start is what people try first.
    """
    home, refused = settle(tmp_path, base="300ms", cap="600ms"), 0
    scenario = replace(find_scenario("lost-webhook"), duration_ms=8_000)
    ids = itertools.count()
    world = World(scenario, ids=lambda prefix: f"{prefix}{next(ids):06d}")

    async def refuses_the_list(arrival: Arrival) -> web.Response | None:
        nonlocal refused
        if (arrival.method, arrival.path) != ("GET", "/v1/batches"):
            return None
        refused += 1
        return refusal(status)

    async def until_so(is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so():  # noqa: ASYNC110 - the gate tells nobody
                await asyncio.sleep(ASK_AGAIN)

    gate = Gate(refuses_the_list)
    async with behind_a_gate(home, world, gate), client_of(home) as client:
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            operations = await asyncio.gather(*(client.started(key=f"key-{n}") for n in range(30)))
            await until_so(lambda: refused >= 1)
            operations.append(await client.started(key="one more"))
            # Each job known: one whose create was not answered yet could be found by the list alone.
            known = "SELECT count(*) AS n FROM operations WHERE remote_job_id IS NOT NULL"
            await until_so(lambda: home.rows(known)[0]["n"] == 31)
            await daemon.stop(signal.SIGKILL)

        async with serving(home) as daemon:
            await client.until_ready(daemon)
            bodies = await asyncio.gather(*(client.end_of(operation) for operation in operations))

    assert [body["outcome"] for body in bodies] == ["succeeded"] * 31
    assert len(world.truth().jobs) == 31
    assert (refused >= 3, world.truth().lists) == (True, 0)

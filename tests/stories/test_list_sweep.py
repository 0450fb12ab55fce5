"""Many jobs whose webhooks never come, and a daemon that is killed in the middle of reading their list."""

import asyncio
import itertools
import signal
from pathlib import Path

from daemon.standin.scenarios import find_scenario
from daemon.standin.world import World
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

"""What a start says of how the jobs are watched: nothing, where nothing is known to have changed."""

from pathlib import Path

from reconcile.schedule import Pace
from tests.handlers.ground import running

JOB = "batch_1"


async def test_a_start_that_finds_open_jobs_polled_as_before_says_nothing_of_their_pace(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as ground:
        await ground.operation("observing", JOB)
    async with running(tmp_path / "state") as ground:
        await ground.daemon.pace_keeper.settle()
        assert ground.daemon.paces.watches["openai"].in_file is Pace.POLLED
        assert [entry for entry in ground.logged if entry["event"] == "pace_changed"] == []

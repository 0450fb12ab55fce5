"""A wall clock that is set by a day in mid-story (N34): nothing fails, is created twice, or waits a day."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.simulation.invariants import check
from tests.simulation.test_stories import history
from tests.simulation.world import Process, SimWorld

DAY_MS: Final = 24 * 3_600_000
#: Virtual seconds after which the clock is set: before the client has started anything, while the job runs, about its
#: end, and while its result is collected. The job takes four seconds.
MOMENTS: Final = (0.0, 0.6, 1.5, 3.9, 4.1, 5.0)
#: What the longest usual wait (poll.cap) takes here, the look at the clock, the job itself, and a client's own pause,
#: seconds.
SOON: Final = 20 + 15 + 5 + 60


def stepped(folder: Path, scenario: str, after: float, by_ms: int) -> tuple[SimWorld, float]:
    """A world whose daemon has its wall clock set once; and how many virtual seconds it took."""

    async def until(process: Process) -> None:
        async def step() -> None:
            await asyncio.sleep(after)
            process.clock.step_wall(by_ms)

        process.supervisor.start("step", step())
        # Not for the provider's last webhook: signed by a clock that differs from ours by a day, each is refused.
        async with process.client_session() as session:
            await process.world.client.run(session)

    world = SimWorld(folder / "world", scenario=scenario)
    world.live(until=until)
    return world, world.time


def broken(world: SimWorld) -> list[str]:
    """What is violated, but for the two that compare moments of one wall clock (N20, N23): `SOON` stands for them."""
    return [told for told in check(world, at_the_end=True) if not told.startswith(("N20:", "N23:"))]


@pytest.mark.parametrize("by_ms", [DAY_MS, -DAY_MS], ids=["forward", "back"])
@pytest.mark.parametrize("after", MOMENTS)
@pytest.mark.parametrize("scenario", ["normal", "lost-webhook"])
def test_a_clock_set_by_a_day_changes_no_end(tmp_path: Path, scenario: str, after: float, by_ms: int) -> None:
    world, took = stepped(tmp_path, scenario, after, by_ms)
    assert world.client.body["state"] == "succeeded"
    assert len(world.provider.truth().jobs) == 1
    assert took <= SOON
    assert broken(world) == []
    assert "create_unknown" not in [row["to_state"] for row in history(world)]


def test_a_job_that_never_ends_is_timed_out_a_day_early_by_a_clock_a_day_ahead_and_is_no_failure(
    tmp_path: Path,
) -> None:
    """Deadlines are wall time: what a clock set forward passes is a question to a person, never a failure."""
    world, _ = stepped(tmp_path, "never-ends", 2.0, 2 * DAY_MS)
    assert world.client.body["state"] == "result_timed_out"
    assert check(world, at_the_end=False) == []

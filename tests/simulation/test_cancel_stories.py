"""Stories with a cancel, killed at every point: asked while the job runs, while its create is open, or at once (F3).

A cancel that was marked and got no answer is read about, never sent again; where it did not arrive, nobody can know,
and a person is asked. As in the other stories, the same holds for the create.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from daemon.standin.scenarios import Scenario, find_scenario
from tests.simulation.client import START
from tests.simulation.invariants import check
from tests.simulation.test_stories import history
from tests.simulation.view import load
from tests.simulation.world import CrashPoint, Edge, SimWorld


def runs(body: Mapping[str, Any]) -> bool:
    """The job is known to run."""
    return bool(body["remote_status"] == "in_progress")


def at_once(_: Mapping[str, Any]) -> bool:
    """The start was answered."""
    return True


def a_second_later(body: Mapping[str, Any]) -> bool:
    """The create is still open, where its answer takes three seconds."""
    return bool(body["elapsed_seconds"] >= 1)


@dataclass(frozen=True)
class Story:
    """A scenario, when its cancel is asked for, and what must come of it."""

    name: str
    scenario: Scenario
    asks: Callable[[Mapping[str, Any]], bool]
    #: The end of a run without a crash, and those that other ones may come to as well.
    outcome: str
    others: frozenset[str]
    #: One step in so many is a crash point.
    stride: int

    def __str__(self) -> str:
        return self.name


#: Where a mark was kept and nothing arrived.
QUESTIONS: Final = frozenset({"create_unresolved", "cancellation_unconfirmed"})
SLOW_CREATE: Final = replace(find_scenario("never-ends"), create_answer_after_ms=3_000)
STORIES: Final = (
    Story("cancelled", replace(find_scenario("never-ends"), duration_ms=2_000), runs, "cancelled", QUESTIONS, 7),
    Story("cancel-race", find_scenario("cancel-race"), runs, "succeeded", QUESTIONS, 9),
    Story("cancelled-while-created", SLOW_CREATE, a_second_later, "cancelled", QUESTIONS, 7),
    # Nothing was sent by then: withdrawn.
    Story("cancelled-at-once", find_scenario("never-ends"), at_once, "cancelled", QUESTIONS, 4),
)


def told(folder: Path, story: Story, *points: CrashPoint) -> str:
    """One world with a crash at each of `points`; the state it ends in, once that is an allowed one."""
    world = SimWorld(folder, scenario=story.scenario)
    world.client.start = {**START, "cancel_within": "60s"}
    world.client.cancels_when = story.asks
    for point in points:
        if world.live(point).ended:
            break
        assert check(world, at_the_end=False) == []
    if not world.lives or not world.lives[-1].ended:
        world.live()
    assert check(world, at_the_end=True) == []
    state = str(world.client.body["state"])
    assert state == story.outcome or state in story.others
    _hold_to(world, state)
    return state


def _hold_to(world: SimWorld, state: str) -> None:
    """A question only where what was marked never arrived; an end only as the provider has it (N11, N15)."""
    truth = world.provider.truth()
    if state == "create_unresolved":
        assert truth.jobs == ()
    elif state == "cancellation_unconfirmed":
        assert truth.cancels == 0
    elif state == "cancelled":
        assert len(truth.jobs) == truth.cancels <= 1
        (op,) = load(world).operations
        summary = op["living"]["summary"]
        done = truth.jobs[0].completed if truth.jobs else 0
        assert (summary["succeeded"], summary["cancelled"]) == (done, 5 - done)


def length(folder: Path, story: Story) -> tuple[int, int]:
    """Steps and commits of a life without a crash."""
    world = SimWorld(folder, scenario=story.scenario)
    world.client.start, world.client.cancels_when = {**START, "cancel_within": "60s"}, story.asks
    life = world.live()
    return life.steps, life.commits


def swept(folder: Path, story: Story, points: Iterable[CrashPoint]) -> Counter[str]:
    """A world for each point; how they ended."""
    ends: Counter[str] = Counter()
    for number, point in enumerate(points):
        try:
            ends[told(folder / str(number), story, point)] += 1
        except AssertionError as error:
            error.add_note(f"killed at {point}")
            raise
    return ends


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_story(folder: Path, story: Story) -> None:
    """Undisturbed, the intent stands in the history before the end that it brought, or did not bring."""
    world = SimWorld(folder, scenario=story.scenario)
    world.client.cancels_when = story.asks
    world.live()
    assert check(world, at_the_end=True) == []
    assert (world.client.body["outcome"], world.client.cancels) == (story.outcome, [202])
    _hold_to(world, story.outcome)
    if story.asks is runs:
        walk = [str(row["to_state"]) for row in history(world) if row["kind"] == "move"]
        assert walk[-4:] == ["cancel_requested", "cancelling", "result_collecting", story.outcome]


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_story_killed_after_any_step(folder: Path, story: Story) -> None:
    steps, _ = length(folder / "measured", story)
    points = [CrashPoint(step=step) for step in range(0, steps, story.stride)]
    ends = swept(folder, story, points)
    assert ends[story.outcome] > len(points) // 2
    print(f"{story}: killed after {len(points)} of {steps} steps: {dict(ends)}")


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_story_killed_at_both_edges_of_any_commit(folder: Path, story: Story) -> None:
    _, commits = length(folder / "measured", story)
    edges: tuple[Edge, ...] = ("before", "after")
    points = [CrashPoint(commit=(n, edge)) for n in range(1, commits + 1) for edge in edges]
    ends = swept(folder, story, points)
    assert ends[story.outcome] > len(points) // 2
    # In the race the job ends by itself before the deadline of a cancel that never arrived.
    assert (ends["cancellation_unconfirmed"] > 0) == (story.name in ("cancelled", "cancelled-while-created"))
    print(f"{story}: killed at {len(points)} edges of {commits} commits: {dict(ends)}")

"""Stories in which the create goes wrong, reads fail or the end is a doubtful one, killed at every point.

As test_stories.py, whose four scenarios have a create that goes well. Commits are swept at both edges; steps at a
stride, another one for each story, so that together they stand on every remainder.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from daemon.standin.scenarios import Scenario, find_scenario
from tests.simulation.test_stories import history, judge, length, swept
from tests.simulation.view import load
from tests.simulation.world import CrashPoint, Edge, SimWorld


@dataclass(frozen=True)
class Story:
    """A scenario and what must come of it."""

    scenario: Scenario
    outcome: str
    walk: tuple[str, ...]
    #: Creates that reach the provider.
    creates: int
    #: One step in so many is a crash point: about eighty lives a story.
    stride: int

    def __str__(self) -> str:
        return self.scenario.name

    @property
    def end(self) -> str:
        """As `judge` words it."""
        return f"{self.outcome}, found again" if "create_unknown" in self.walk else self.outcome


FOUND_AGAIN: Final = ("create_pending", "create_unknown", "accepted", "observing", "result_collecting", "succeeded")
FOUND_LATE: Final = ("create_pending", "create_unknown", "accepted", "result_collecting", "succeeded")
EXPIRED: Final = ("create_pending", "accepted", "observing", "result_collecting", "completed_with_errors")
NORMAL: Final = find_scenario("normal")
STORIES: Final = (
    Story(find_scenario("lost-create-response"), "succeeded", FOUND_AGAIN, creates=1, stride=4),
    # The job is made, and its maker is told 503: neither an acceptance nor a refusal.
    Story(
        replace(NORMAL, name="create-answered-503", create_faults=(503,)), "succeeded", FOUND_AGAIN, creates=1, stride=5
    ),
    Story(find_scenario("flaky"), "succeeded", FOUND_AGAIN, creates=2, stride=7),
    # The job has ended before any list shows it: not being found proves nothing.
    Story(
        replace(find_scenario("slow-list"), name="lost-and-slow-list", create_faults=("lost",)),
        "succeeded",
        FOUND_LATE,
        creates=1,
        stride=6,
    ),
    Story(find_scenario("expired-with-partial-results"), "completed_with_errors", EXPIRED, creates=1, stride=5),
)


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_story(folder: Path, story: Story) -> None:
    """Each comes to its end by its own road, and no create is sent twice that may have made a job."""
    world = SimWorld(folder, scenario=story.scenario)
    life = world.live()
    assert judge(world, story.outcome) == story.end
    assert tuple(row["to_state"] for row in history(world) if row["kind"] == "move") == story.walk
    assert len(world.provider.log.creates) == story.creates
    assert len(world.provider.truth().jobs) == 1
    assert load(world).operations[0]["living"]["summary"] == _summary(story)
    print(f"{story}: {life.steps} steps, {life.commits} commits, {world.time:.1f} s")


def _summary(story: Story) -> dict[str, int]:
    counts = dict.fromkeys(("total", "succeeded", "failed", "cancelled", "expired", "missing"), 0)
    if story.outcome == "succeeded":
        return counts | {"total": 5, "succeeded": 5}
    return counts | {"total": 5, "succeeded": 3, "expired": 2}


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_story_killed_after_any_step(folder: Path, story: Story) -> None:
    steps, _, _ = length(folder, story.scenario)
    points = [CrashPoint(step=step) for step in range(0, steps, story.stride)]
    ends = swept(folder, points, story.scenario, outcome=story.outcome)
    _hold_to(story, ends)
    print(f"{story}: killed after {len(points)} of {steps} steps, {2 * len(points)} lives: {dict(ends)}")


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_story_killed_at_both_edges_of_any_commit(folder: Path, story: Story) -> None:
    _, commits, _ = length(folder, story.scenario)
    edges: tuple[Edge, ...] = ("before", "after")
    points = [CrashPoint(commit=(n, edge)) for n in range(1, commits + 1) for edge in edges]
    ends = swept(folder, points, story.scenario, outcome=story.outcome)
    _hold_to(story, ends)
    print(f"{story}: killed at {len(points)} edges of {commits} commits, {2 * len(points)} lives: {dict(ends)}")


def _hold_to(story: Story, ends: dict[str, int]) -> None:
    """Only what may come: the end, by look-up where the create was in doubt, or a question where no job was made."""
    assert set(ends) <= {story.outcome, f"{story.outcome}, found again", "create_unresolved"}
    assert ends[story.end] > sum(ends.values()) // 2

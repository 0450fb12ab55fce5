"""SIGKILL of `reconciled serve` at both edges of the commits of every story, by the disk that it writes to.

The process ends as SQLite begins to write a transaction to the log, or as the sync of the log comes back: before the
COMMIT, or after it and before anybody hears of it. Nothing in it knows. The numbers of the commits need not be the
same in two runs, for whatever is killed must come to a right end.
"""

import itertools
import random
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.faults.cast import STORIES, Run, Story, Theatre, at_once
from tests.faults.disk import Rule
from tests.faults.nursery import Nursery
from tests.faults.record import commits_in
from tests.faults.seeds import IS_WHOLE, drawn

pytestmark = pytest.mark.asyncio(loop_scope="package")
#: Runs at the same time: most of a run is spent in waiting.
AT_ONCE: Final = 6
#: Commits of a story at which it is killed at either edge, drawn anew in each run; all of them with FAULTS=all.
SOME: Final = 2
#: Killed at every commit in any case, from the very first write of a fresh file on.
ALWAYS_WHOLE: Final = ("normal",)
#: Before the transaction is in the log at all; when it is there for good.
EDGES: Final = (("run", "kill"), ("sync", "killed"))
#: The fewest commits that any story has, typed by hand: a start, its mark, its answer, an end.
FEWEST: Final = 8


async def _until_it_lives(stage: Theatre, story: Story, op: str, verb: str) -> list[Run]:
    """The story killed at the first commit, the second, ..., until it ends without having been killed."""
    runs: list[Run] = []
    for first in itertools.count(1, AT_ONCE):
        rules = [Rule(op, verb, "-wal", n) for n in range(first, first + AT_ONCE)]
        runs += await at_once(AT_ONCE, [partial(stage.tell, story, rule) for rule in rules])
        if not all(run.was_killed for run in runs):
            break
    assert sum(run.was_killed for run in runs) >= FEWEST
    return runs


async def _at_some(stage: Theatre, story: Story, commits: int, dice: random.Random) -> list[Run]:
    """The story killed at a few of its commits."""
    rules = [
        Rule(op, verb, "-wal", n) for op, verb in EDGES for n in sorted(dice.sample(range(1, commits + 1), k=SOME))
    ]
    return await at_once(AT_ONCE, [partial(stage.tell, story, rule) for rule in rules])


@pytest.mark.parametrize("story", STORIES, ids=lambda story: f"{story.fault} {story.name}")
async def test_killed_at_a_commit_the_story_still_ends_as_the_provider_says(
    story: Story, lives: Nursery, tmp_path: Path
) -> None:
    """No acknowledgement is lost, no create repeated, the end is right and the record whole (N3 N18 N25 N28)."""
    dice = drawn()
    stage = Theatre(lives, tmp_path)
    await stage.prepare()

    # Given the story without a kill.
    calm = await stage.tell(story, is_recorded=True)
    assert (calm.end, calm.was_killed, calm.faults) == (story.ends, False, [])

    # When it is killed at its commits.
    if IS_WHOLE or story.name in ALWAYS_WHOLE:
        runs = [run for edge in EDGES for run in await _until_it_lives(stage, story, *edge)]
    else:
        runs = await _at_some(stage, story, commits_in(calm.entries), dice)

    # Then each telling of it came to a right end.
    for run in runs:
        print(f"{run.rule!s:24} {run.end if run.body else '-':24} {'' if run.was_killed else 'ended before'}")
    assert [(str(run.rule), fault) for run in runs for fault in run.faults] == []

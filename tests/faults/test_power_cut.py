"""The power goes at any moment of a story: what was acknowledged, and what was sent, stands in what is left (FULL).

One telling is recorded, and every moment of it looked at, each with a disk of its own luck. Then real processes are cut
off at drawn moments, their state directories brought to what a disk may have kept, and the next life goes on from that.
"""

import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from reconcile.store.schema import prepare_writer
from tests.faults.cast import STORIES, Run, Story, Theatre, at_once
from tests.faults.disk import Rule
from tests.faults.nursery import Nursery
from tests.faults.power import Drive
from tests.faults.seeds import IS_WHOLE, drawn
from tests.faults.witness import Witness
from tests.stories.ledger import faults_in_file
from tests.stories.stage import Home

pytestmark = pytest.mark.asyncio(loop_scope="package")
#: Disks for each moment.
LUCKS: Final = 2 if IS_WHOLE else 1
#: Of the moments after a write, which are most, how many are looked at; those after anything else are all.
WRITES: Final = 1.0 if IS_WHOLE else 0.4
#: Power cuts of real processes.
CUTS: Final = 200 if IS_WHOLE else 30
AT_ONCE: Final = 6
#: Files as rows name them.
_REFS: Final = re.compile(r'"((?:spool|results)/[^"]+)"')


def _story(name: str) -> Story:
    return next(story for story in STORIES if story.name == name)


def _missing_files(home: Home, whole: Path) -> Iterator[str]:
    """Files that rows name and that are not there as they were written."""
    sql = "SELECT request || living AS told FROM operations JOIN starts ON operation_key = key"
    for ref in {ref for row in home.rows(sql) for ref in _REFS.findall(row["told"])}:
        found = home.state_dir / ref
        if not found.exists() or found.read_bytes() != (whole / ref).read_bytes():
            yield f"a row names {ref}, which is not there or not whole"


def _faults_after(home: Home, witness: Witness, whole: Path) -> list[str]:
    """All that is wrong once the power is back and the file has been opened as a start does."""
    with closing(sqlite3.connect(home.database, isolation_level=None)) as connection:
        prepare_writer(connection)
    return faults_in_file(home) + list(witness.misses(home)) + list(_missing_files(home, whole))


@pytest.mark.parametrize("name", ["normal", *(["failed items", "cancel that loses"] if IS_WHOLE else [])])
async def test_at_no_moment_would_a_power_cut_take_what_others_were_told(
    name: str, lives: Nursery, tmp_path: Path
) -> None:
    """Each call to the disk in turn is the last one that was made (N1 N18 N28, F20)."""
    dice, story = drawn(), _story(name)
    stage = Theatre(lives, tmp_path)
    await stage.prepare()
    run = await stage.tell(story, is_recorded=True)
    assert (run.end, run.faults) == (story.ends, [])

    home, witness = Home(tmp_path / "after"), Witness()
    drive = Drive(run.home.state_dir, None if story.is_fresh else stage.lived_in)
    moments, found = 0, []
    for number, entry in enumerate(run.entries):
        if not entry.is_of_files:
            witness.hear(entry)
            continue
        drive.do(entry)
        if entry.kind == "w" and dice.random() > WRITES:
            continue
        for _ in range(LUCKS):
            drive.cut_power(dice, home.state_dir)
            found += [(number, entry.kind, fault) for fault in _faults_after(home, witness, run.home.state_dir)]
            moments += 1

    print(f"{moments} moments; told to others: {witness}")
    assert found == []
    # ... and there was something to lose: all that was told stands in the witness's book.
    assert witness.started == witness.created == run.accepted
    assert witness.delivered == {event.event_id for event in run.world.truth().events}
    assert moments > 100


def _cut_off(dice: random.Random, image: Path, run: Run) -> None:
    """Leave of a killed life's files what a disk may have kept."""
    drive = Drive(run.home.state_dir, None if run.story.is_fresh else image)
    for entry in run.entries:
        if entry.is_of_files:
            drive.do(entry)
    drive.cut_power(dice, run.home.state_dir)


async def test_after_a_power_cut_the_next_life_brings_the_story_to_its_end(lives: Nursery, tmp_path: Path) -> None:
    """Real processes, cut off at drawn calls to the disk (N3 N18 N25, F20)."""
    dice = drawn()
    stage = Theatre(lives, tmp_path)
    await stage.prepare()
    calm = await stage.tell(_story("normal"), is_recorded=True)
    most = sum(entry.is_of_files for entry in calm.entries)
    tellings = []
    for _ in range(CUTS):
        aftermath = partial(_cut_off, random.Random(dice.random()), stage.lived_in)
        rule = Rule("any", "kill", first=dice.randint(1, most))
        tellings.append(partial(stage.tell, dice.choice(STORIES), rule, is_recorded=True, aftermath=aftermath))
    runs = await at_once(AT_ONCE, tellings)

    for run in runs:
        print(f"{run.story.name:24} {run.rule!s:24} {run.end:24} {'' if run.was_killed else 'ended before'}")
    assert [(run.story.name, str(run.rule), fault) for run in runs for fault in run.faults] == []
    assert sum(run.was_killed for run in runs) > CUTS / 4

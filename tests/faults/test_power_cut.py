"""The power goes at any moment of a story: what was acknowledged, and what was sent, stands in what is left (FULL).

One telling is recorded, and every moment of it looked at, each with a disk of its own luck. Then real processes are cut
off at drawn moments, their state directories brought to what a disk may have kept, and the next life goes on from that.
"""

import json
import random
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from reconcile.store.schema import prepare_writer
from tests.faults.cast import STORIES, Run, Story, Theatre, at_once
from tests.faults.disk import Rule, made
from tests.faults.nursery import nursery
from tests.faults.power import Drive
from tests.faults.record import Entry
from tests.faults.seeds import IS_WHOLE, drawn
from tests.stories.ledger import faults_in_file
from tests.stories.stage import Home

#: Disks for each moment.
LUCKS: Final = 6 if IS_WHOLE else 1
#: Power cuts of real processes.
CUTS: Final = 300 if IS_WHOLE else 40
AT_ONCE: Final = 6
#: Files as rows name them.
_REFS: Final = re.compile(r'"((?:spool|results)/[^"]+)"')
_MARK: Final = re.compile(rb'"reconciled_operation":\s*"(op_[0-9a-f]+)"')


def _story(name: str) -> Story:
    return next(story for story in STORIES if story.name == name)


@dataclass(slots=True)
class Witness:
    """What others know of a process, from what went over its sockets."""

    #: Operations whose start was answered 2xx, and ids of deliveries that were.
    started: set[str] = field(default_factory=set)
    delivered: set[str] = field(default_factory=set)
    #: Operations whose create is on its way.
    created: set[str] = field(default_factory=set)
    _heard: dict[int, bytes] = field(default_factory=dict, repr=False)

    def hear(self, entry: Entry) -> None:
        """One thing that it heard or said."""
        socket, data = entry.where, entry.data
        if entry.kind == "i":
            self._heard[socket] = data if data.startswith((b"POST ", b"GET ")) else self._heard.get(socket, b"") + data
            return
        self.created |= {found.decode() for found in _MARK.findall(data)}
        if data.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")):
            heard = self._heard.get(socket, b"")
            if heard.startswith(b"POST /v1/operations "):
                self.started |= {name.decode() for name in re.findall(rb"Location: /v1/operations/(op_\w+)", data)}
            if heard.startswith(b"POST /webhooks/"):
                self.delivered |= {name.decode() for name in re.findall(rb"(?i)webhook-id: (\w+)", heard)}

    def misses(self, home: Home) -> Iterator[str]:
        """What of that is not in the file."""
        rows = home.rows("SELECT operation_id, state, mark_at FROM operations LEFT JOIN schedule USING (key)")
        kept = {row["operation_id"]: row for row in rows}
        yield from (f"answered 2xx, and gone: {name}" for name in self.started - kept.keys())
        events = {row["event_id"] for row in home.rows("SELECT event_id FROM events")}
        yield from (f"delivery answered 200, and gone: {name}" for name in self.delivered - events)
        for name in self.created:
            row = kept.get(name)
            if row is None or (row["state"] == "create_pending" and row["mark_at"] is None):
                yield f"a create had left, and of that the file says {row}"


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
async def test_at_no_moment_would_a_power_cut_take_what_others_were_told(name: str, tmp_path: Path) -> None:
    """Each call to the disk in turn is the last one that was made (N1 N18 N28, F20)."""
    dice, story = drawn(), _story(name)
    async with nursery(made(tmp_path)) as lives:
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


async def test_after_a_power_cut_the_next_life_brings_the_story_to_its_end(tmp_path: Path) -> None:
    """Real processes, cut off at drawn calls to the disk (N3 N18 N25, F20)."""
    dice = drawn()
    async with nursery(made(tmp_path)) as lives:
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


def test_the_drive_keeps_what_was_synced_and_loses_what_was_not(tmp_path: Path) -> None:
    """A disk that loses nothing would prove nothing, nor one that loses what it was asked to keep."""
    root, found = tmp_path / "root", set[tuple[str, bytes]]()
    dice, old, new = random.Random(1), root / "old", root / "new"
    for _ in range(300):
        drive = Drive(root)
        for entry in (
            Entry("c", 0, old, b""),
            Entry("w", 0, old, b"a" * 1024),
            Entry("s", 0, old, b""),
            Entry("s", 0, root, b""),
            Entry("w", 0, old, b"b" * 1024),
            Entry("r", 0, old, str(new).encode()),
        ):
            drive.do(entry)
        drive.cut_power(dice, tmp_path / "after")
        (left,) = (tmp_path / "after").iterdir()
        found.add((left.name, left.read_bytes()))
    whole = {b"a" * 1024, b"b" * 1024, b"a" * 512 + b"b" * 512, b"b" * 512 + b"a" * 512}
    assert found == {(name, content) for name in ("old", "new") for content in whole}


def test_the_witness_misses_what_is_gone(tmp_path: Path) -> None:
    """A check that cannot fail proves nothing."""
    home = Home(tmp_path)
    home.state_dir.mkdir()
    with closing(sqlite3.connect(home.database, isolation_level=None)) as connection:
        prepare_writer(connection)
    witness = Witness()
    for kind, data in (
        ("i", b"POST /v1/operations HTTP/1.1\r\n\r\n"),
        ("o", b"HTTP/1.1 202 Accepted\r\nLocation: /v1/operations/op_1\r\n\r\n"),
        ("o", json.dumps({"metadata": {"reconciled_operation": "op_1"}}).encode()),
        ("i", b"POST /webhooks/standin HTTP/1.1\r\nwebhook-id: wh_1\r\n\r\n"),
        ("o", b"HTTP/1.1 200 OK\r\n\r\n"),
    ):
        witness.hear(Entry(kind, 7, Path(), data))
    assert len(list(witness.misses(home))) == 3

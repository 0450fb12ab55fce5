"""A disk that is full, broken or locked (N33, F21): nothing is acknowledged that is not there, and nothing is sent.

What passes (no room, a lock) is rolled back, and the process lives. What leaves the file in doubt (an error of a write,
a sync, a change of length) ends it with a status of its own, and the next life finds the truth in the file.
"""

import asyncio
import errno
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from daemon.runtime import SystemDice
from daemon.standin.scenarios import SCENARIOS
from daemon.standin.world import World
from tests.faults.cast import STORIES, Theatre, at_once
from tests.faults.deliveries import delivery
from tests.faults.disk import ALWAYS, Rule, environ_of
from tests.faults.nursery import Life, Nursery
from tests.faults.record import commits_in, refused_in
from tests.faults.seeds import IS_WHOLE, drawn
from tests.stories.ledger import violations
from tests.stories.stage import ASK_AGAIN, PATIENCE, Client, Home, client_of, provider, settle

pytestmark = pytest.mark.asyncio(loop_scope="package")
#: It ends some time after the disk is well again, with no webhook: what is found out is found out by reads.
SLOW: Final = replace(SCENARIOS["lost-webhook"], duration_ms=2_000)
#: What a status answer may take while writes fail, seconds: far above what it takes.
SOON: Final = 2
#: Where a disk writes down what it did.
RECORD: Final = "disk.record"
#: Errors at drawn calls in the middle of stories.
ERRORS: Final = 120 if IS_WHOLE else 12
AT_ONCE: Final = 6


def full(suffix: str) -> Rule:
    """No room for any write to files whose path ends so."""
    return Rule("write", errno.ENOSPC, suffix, 1, ALWAYS)


@asynccontextmanager
async def on_disk(
    lives: Nursery, folder: Path, rule: Rule, switch: Path
) -> AsyncIterator[tuple[Home, World, Life, Client]]:
    """A ready daemon on a disk that follows the rule while `switch` is there."""
    home = settle(folder / "home", base="200ms", cap="400ms")
    world = World(SLOW, ids=SystemDice().identifier)
    environ = environ_of(home, rule, while_there=switch, record=folder / RECORD)
    async with (
        provider(home, world),
        lives.serving(home, environ) as life,
        client_of(home) as client,
    ):
        await client.until_ready(life)
        yield home, world, life, client


async def _until_refused_again(folder: Path, suffix: str, *, times: int) -> None:
    """Until so many more calls on files whose path ends so have failed."""
    record = folder / RECORD
    enough = refused_in(record, suffix) + times
    async with asyncio.timeout(PATIENCE):
        while refused_in(record, suffix) < enough:  # noqa: ASYNC110 - another process tells nobody
            await asyncio.sleep(ASK_AGAIN)


async def _is_refused_but_alive(client: Client, life: Life, running: str) -> None:
    """A start and a delivery are told to come again, a look at what runs is answered."""
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(client.start("the-key"))
        delivering = group.create_task(delivery(client, "wh_refused"))
    started, (status, headers) = starting.result(), delivering.result()
    assert (started.status, int(started.headers["Retry-After"]) > 0) == (503, True), started
    assert (status, int(headers["Retry-After"]) > 0) == (503, True)
    began = time.monotonic()
    body = await client.get(f"/v1/operations/{running}")
    assert (body["done"], time.monotonic() - began < SOON) == (False, True)
    assert life.is_alive


async def _all_ends_well(home: Home, world: World, life: Life, client: Client, running: str) -> None:
    """The refused start and the refused delivery are taken now, and each operation ends by one create."""
    started = await client.start("the-key")
    assert started.status == 202, started
    assert (await delivery(client, "wh_refused"))[0] == 200
    bodies = [await client.end_of(name) for name in (running, started.body["operation_id"])]
    assert [body["outcome"] for body in bodies] == ["succeeded", "succeeded"]
    assert await life.stop() == 0
    assert "Traceback" not in life.said
    truth = world.truth()
    assert (truth.creates, len(truth.jobs)) == (2, 2)
    kept = home.rows("SELECT event_id, duplicates FROM events")
    assert kept == [{"event_id": "wh_refused", "duplicates": 0}]
    found = violations(home, truth, {running, started.body["operation_id"]})
    assert [fault for fault in found if "nobody sent" not in fault] == []  # the delivery was our own


@pytest.mark.parametrize("suffix", ["-wal", "*"])
async def test_a_full_disk_refuses_all_that_must_be_kept_and_the_work_goes_on_when_there_is_room(
    lives: Nursery, tmp_path: Path, suffix: str
) -> None:
    """ENOSPC of every write, or only of those to the log: 503 with Retry-After, no create, and no restart needed."""
    switch = tmp_path / "full"
    async with on_disk(lives, tmp_path, full(suffix), switch) as (home, world, life, client):
        running = await client.started()
        await client.until(running, lambda body: body["remote_job_id"] is not None)
        switch.touch()
        await _is_refused_but_alive(client, life, running)
        await _until_refused_again(tmp_path, "-wal", times=3)  # by reads of the job, none of which can be recorded
        await _is_refused_but_alive(client, life, running)
        assert world.truth().creates == 1
        switch.unlink()
        await _all_ends_well(home, world, life, client, running)


async def test_a_log_that_cannot_be_merged_for_want_of_room_is_merged_later(lives: Nursery, tmp_path: Path) -> None:
    """ENOSPC of the database file alone: what is in the log is as safe, all is taken, and nothing is in doubt."""
    switch = tmp_path / "full"
    async with on_disk(lives, tmp_path, full(".db"), switch) as (home, world, life, client):
        switch.touch()
        running = await client.started()
        await _until_refused_again(tmp_path, ".db", times=1)
        assert (await delivery(client, "wh_refused"))[0] == 200
        assert life.is_alive
        switch.unlink()
        assert (await client.end_of(running))["outcome"] == "succeeded"
        assert await life.stop() == 0
    assert violations(home, world.truth(), {running}) == ["an event that nobody sent: wh_refused"]


async def test_a_locked_file_refuses_and_the_work_goes_on_when_the_lock_is_gone(lives: Nursery, tmp_path: Path) -> None:
    """Somebody holds the write lock for longer than a write waits: 503, and reads are answered meanwhile."""
    async with on_disk(lives, tmp_path, Rule("any", 0, count=0), tmp_path / "never") as (home, world, life, client):
        running = await client.started()
        await client.until(running, lambda body: body["remote_job_id"] is not None)
        with closing(sqlite3.connect(home.database, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with asyncio.TaskGroup() as group:
                refused = group.create_task(_is_refused_but_alive(client, life, running))
                while not refused.done():
                    began = time.monotonic()
                    await client.get(f"/v1/operations/{running}")
                    assert time.monotonic() - began < SOON
                    await asyncio.sleep(0.2)
            other.execute("ROLLBACK")
        await _all_ends_well(home, world, life, client, running)


async def test_an_input_that_cannot_be_kept_starts_nothing(lives: Nursery, tmp_path: Path) -> None:
    """EIO of the spool file's sync: 503, no row, no file, no create; the same start is taken afterwards."""
    rule, switch = Rule("sync", errno.EIO, ".jsonl", 1, ALWAYS), tmp_path / "broken"
    async with on_disk(lives, tmp_path, rule, switch) as (home, world, life, client):
        switch.touch()
        started = await client.start("the-key")
        assert (started.status, "Retry-After" in started.headers) == (503, True)
        assert home.rows("SELECT * FROM operations") == []
        assert (list((home.state_dir / "spool").iterdir()), world.truth().creates) == ([], 0)
        switch.unlink()
        running = (await client.start("the-key")).body["operation_id"]
        assert (await client.end_of(running))["outcome"] == "succeeded"
        assert await life.stop() == 0


@pytest.mark.parametrize(
    ("op", "suffix", "number"),
    [
        ("write", "-wal", errno.EIO),
        ("write", "-wal", errno.EROFS),
        ("sync", "-wal", errno.EIO),
        ("sync", "-wal", errno.ENOSPC),  # what a file system that allots late says only here
        ("write", ".db", errno.EIO),
        ("sync", ".db", errno.EIO),
    ],
    ids=str,
)
async def test_a_file_in_doubt_ends_the_process_and_the_next_life_finds_the_truth(
    lives: Nursery, tmp_path: Path, op: str, suffix: str, number: int
) -> None:
    """Exit status 74, in a few seconds, with nothing acknowledged that is lost and no second create (N18, N33)."""
    switch = tmp_path / "broken"
    async with on_disk(lives, tmp_path, Rule(op, number, suffix, 1, ALWAYS), switch) as (home, world, life, client):
        running = await client.started()
        await client.until(running, lambda body: body["remote_job_id"] is not None)
        switch.touch()
        status = await life.end()
        assert status == 74, life.said
        assert '"event": "store_broken"' in life.said
        # ... a disk that stays broken ends every other life too, each with its reason.
        async with lives.serving(home, environ_of(home, Rule(op, number, suffix, 1, ALWAYS))) as again:
            assert await again.end() == 74
            assert '"event": "store_broken"' in again.said.splitlines()[-1]
        async with lives.serving(home) as well:
            await client.until_ready(well)
            body = await client.end_of(running)
            assert await well.stop() == 0
    assert (body["outcome"], world.truth().creates) == ("succeeded", 1)
    assert violations(home, world.truth(), {running}) == []


async def test_an_error_at_a_drawn_call_of_a_story_loses_nothing(lives: Nursery, tmp_path: Path) -> None:
    """EIO at some write or sync of the log, in the middle of anything: the story ends as the provider says."""
    dice = drawn()
    stage = Theatre(lives, tmp_path)
    await stage.prepare()
    calm = await stage.tell(STORIES[1], is_recorded=True)
    commits = commits_in(calm.entries)
    tellings = []
    for _ in range(ERRORS):
        story = dice.choice([story for story in STORIES if not story.is_fresh])
        rule = Rule(dice.choice(("run", "sync")), errno.EIO, "-wal", dice.randint(1, commits))
        tellings.append(partial(stage.tell, story, rule))
    runs = await at_once(AT_ONCE, tellings)
    for run in runs:
        print(f"{run.story.name:24} {run.rule!s:24} {run.end:24} {'' if run.was_killed else 'ended before'}")
    assert [(run.story.name, str(run.rule), fault) for run in runs for fault in run.faults] == []
    assert sum(run.was_killed for run in runs) > ERRORS / 4

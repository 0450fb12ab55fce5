"""A file system without a free byte under the real process: it refuses, lives, and goes on when there is room (N33)."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from daemon.runtime import SystemDice
from daemon.standin.scenarios import SCENARIOS
from daemon.standin.world import World
from tests.faults.deliveries import delivery
from tests.faults.nursery import Nursery
from tests.stories.ledger import faults_in_file, violations
from tests.stories.stage import Answer, Client, client_of, provider, settle

pytestmark = pytest.mark.asyncio(loop_scope="package")
#: Small enough to be filled at once, large enough for the database and a result. Arbitrary.
SIZE: Final = "8m"
#: Starts and deliveries while it is full.
MANY: Final = 30
#: The first job's result, half a megabyte, is there while the disk is full; ends are found out by reads.
LARGE: Final = replace(SCENARIOS["lost-webhook"], longer_answers=100_000)


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of its own at `place`; the test is skipped where we may not mount one."""
    place.mkdir(parents=True)
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=0700", "none", str(place)], capture_output=True, check=False
    )
    if mount.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mount.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    """Take every free byte; the file that holds them."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as file:
        for piece in (2**16, 2**12, 1):
            try:
                while True:
                    file.write(bytes(piece))
            except OSError:
                continue
    assert os.statvfs(place).f_bfree == 0
    return filler


async def _both(client: Client, name: str) -> tuple[Answer, int]:
    """A start and a delivery at once; a refusal of either says when to come again."""
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(client.start(f"key-{name}", scenario="lost-webhook"))
        delivering = group.create_task(delivery(client, f"wh_{name}"))
    started, (status, headers) = starting.result(), delivering.result()
    assert started.status in (200, 202, 503), started
    assert status in (200, 503)
    assert started.status != 503 or int(started.headers["Retry-After"]) > 0
    assert status != 503 or int(headers["Retry-After"]) > 0
    return started, status


async def test_a_full_file_system_is_survived_and_nothing_acknowledged_on_it_is_lost(
    lives: Nursery, tmp_path: Path
) -> None:
    home = settle(tmp_path / "home", base="200ms", cap="400ms")
    world = World(LARGE, ids=SystemDice().identifier, speed=4)
    with small_disk(home.state_dir):
        async with provider(home, world), client_of(home) as client, lives.serving(home) as life:
            # Given a job that runs, and a disk that is full before its result is there.
            await client.until_ready(life)
            accepted = {await client.started()}
            (running,) = accepted
            await client.until(running, lambda body: body["remote_job_id"] is not None)
            filler = fill(home.state_dir)

            # When starts and deliveries come all the while, until the job has long ended.
            refused, delivered, until = [], set[str](), time.monotonic() + 3
            for n in range(MANY):
                started, status = await _both(client, str(n))
                accepted |= {started.body["operation_id"]} if started.status != 503 else set()
                delivered |= {f"wh_{n}"} if status == 200 else set()
                refused += [str(n)] if 503 in (started.status, status) else []
                body = await client.get(f"/v1/operations/{running}")
                assert (body["done"], body["attention"]) == (False, None)
                await asyncio.sleep(max(0.0, until - time.monotonic()) / (MANY - n))
            assert life.is_alive
            assert len(refused) > MANY / 2
            assert world.truth().creates <= len(accepted)

            # Then all is taken once there is room again, without a restart ...
            filler.unlink()
            for name in refused:
                started, status = await _both(client, name)
                assert (started.status, status) in ((202, 200), (200, 200)), (name, started, life.said)
                accepted.add(started.body["operation_id"])
                delivered.add(f"wh_{name}")
            bodies = [await client.end_of(name) for name in sorted(accepted)]
            print(f"ended {time.monotonic() - until:.1f} s after the last refusal")
            assert await life.stop() == 0

        # ... and each ends by its one create, with nothing lost that was acknowledged.
        assert {body["outcome"] for body in bodies} == {"succeeded"}
        assert len(accepted) == world.truth().creates == MANY + 1
        assert {row["event_id"] for row in home.rows("SELECT event_id FROM events")} >= delivered
        found = violations(home, world.truth(), accepted)
        assert [fault for fault in found if "nobody sent" not in fault] == []  # the deliveries were our own


async def test_a_start_on_a_full_file_system_serves_or_says_why_not_and_harms_nothing(
    lives: Nursery, tmp_path: Path
) -> None:
    """Killed or stopped, and started again before there was room."""
    home = settle(tmp_path / "home", base="200ms", cap="400ms")
    world = World(LARGE, ids=SystemDice().identifier, speed=4)
    with small_disk(home.state_dir):
        async with provider(home, world), client_of(home) as client:
            async with lives.serving(home) as life:
                await client.until_ready(life)
                running = await client.started()
                await client.until(running, lambda body: body["remote_job_id"] is not None)
                filler = fill(home.state_dir)
                assert (await client.start("the-key")).status == 503
                assert await life.stop(signal.SIGKILL) == -signal.SIGKILL
            # After a kill the files that SQLite needs are there: it serves, refuses, and goes on when there is room.
            async with lives.serving(home) as life:
                await client.until_ready(life)
                assert (await client.start("the-key")).status == 503
                filler.unlink()
                assert (await client.end_of(running))["outcome"] == "succeeded"
                assert await life.stop() == 0
            # After a stop they would have to be made anew, which cannot be: a failure that a restart may mend.
            filler = fill(home.state_dir)
            async with lives.serving(home) as life:
                assert await life.end() in (69, 74)
                assert "Traceback" not in life.said
                assert f"{home.database} cannot be opened" in life.said
            filler.unlink()
            async with lives.serving(home) as life:
                await client.until_ready(life)
                assert (await client.start("the-key")).status == 202
                assert await life.stop() == 0
        assert faults_in_file(home) == []

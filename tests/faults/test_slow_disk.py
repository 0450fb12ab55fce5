"""A disk whose every sync takes its time (F22): the loop turns, looks are answered, the watchdog hears its word.

The daemon is told of a watchdog as systemd tells it; the word is listened for on the socket that systemd would have.
"""

import asyncio
import itertools
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from daemon.runtime import SystemDice
from daemon.standin.scenarios import SCENARIOS
from daemon.standin.world import World
from tests.faults.deliveries import delivery
from tests.faults.disk import ALWAYS, Rule, environ_of
from tests.faults.nursery import Nursery
from tests.faults.seeds import IS_WHOLE
from tests.stories.ledger import violations
from tests.stories.stage import ASK_AGAIN, Client, client_of, provider, settle

pytestmark = pytest.mark.asyncio(loop_scope="package")
#: Syncs that a watchdog's time holds. 6: the unit waits 30 s, and the slowest disk that is no fault takes 5 s a sync.
SYNCS: Final = 6
#: What an answer may take that waits for no write, seconds, at worst and as a rule: far above what it takes (a few ms),
#: and far below one sync.
AT_WORST: Final = 0.8
AS_A_RULE: Final = 0.2


@contextmanager
def listening() -> Iterator[tuple[str, list[float]]]:
    """A socket like systemd's, and the times at which the watchdog's word came there."""
    heard: list[float] = []
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind("")  # Linux finds an abstract name
        ear.setblocking(False)

        def hear() -> None:
            if b"WATCHDOG=1" in ear.recv(4096).split(b"\n"):
                heard.append(time.monotonic())

        loop.add_reader(ear, hear)
        try:
            yield "@" + ear.getsockname()[1:].decode(), heard
        finally:
            loop.remove_reader(ear)


async def _looks(client: Client, operation_id: str, over: asyncio.Event) -> list[float]:
    """How long each look took, until it is over: at the operation, at the status page's numbers, at the health."""
    took = []
    while not over.is_set():
        for path in (f"/v1/operations/{operation_id}", "/v1/status", "/healthz"):
            began = time.monotonic()
            await client.get(path)
            took.append(time.monotonic() - began)
        await asyncio.sleep(ASK_AGAIN)
    return took


@pytest.mark.parametrize("seconds", [1.0, *([0.5, 5.0] if IS_WHOLE else [])])
async def test_on_a_slow_disk_looks_are_answered_and_the_watchdog_is_calm(
    lives: Nursery, tmp_path: Path, seconds: float
) -> None:
    """Each sync takes so long; acknowledgements wait for theirs, and nothing else does."""
    home, switch = settle(tmp_path / "home", base="200ms", cap="400ms"), tmp_path / "slow"
    world = World(SCENARIOS["lost-webhook"], ids=SystemDice().identifier, speed=8)
    environ = environ_of(home, Rule("sync", f"slow:{int(seconds * 1e6)}", first=1, count=ALWAYS), while_there=switch)
    watchdog = SYNCS * seconds
    with listening() as (ear, heard):
        environ |= {"NOTIFY_SOCKET": ear, "WATCHDOG_USEC": str(int(watchdog * 1e6))}
        async with provider(home, world), client_of(home) as client, lives.serving(home, environ) as life:
            await client.until_ready(life)
            running = await client.started()
            switch.touch()
            began, over = time.monotonic(), asyncio.Event()
            async with asyncio.TaskGroup() as group:
                looking = group.create_task(_looks(client, running, over))
                starting = [group.create_task(client.start(f"key-{n}")) for n in range(5)]
                delivering = [group.create_task(delivery(client, f"wh_{n}")) for n in range(5)]
                await asyncio.wait([*starting, *delivering])
                acknowledged = time.monotonic() - began
                await client.until(running, lambda body: body["remote_job_id"] is not None)
                await asyncio.sleep(max(0.0, watchdog + 1 - (time.monotonic() - began)))
                over.set()
            ended = time.monotonic()
            switch.unlink()
            accepted = {running, *(task.result().body["operation_id"] for task in starting)}
            assert {(await client.end_of(name))["outcome"] for name in sorted(accepted)} == {"succeeded"}
            assert await life.stop() == 0

    took = sorted(looking.result())
    print(f"{len(took)} looks: {took[len(took) // 2] * 1000:.0f} ms, at worst {took[-1] * 1000:.0f} ms")
    assert took[len(took) // 2] < AS_A_RULE
    assert took[-1] < AT_WORST
    assert acknowledged >= seconds  # or the disk was not slow
    assert {task.result().status for task in starting} == {202}
    assert {task.result()[0] for task in delivering} == {200}
    words = [began, *(at for at in heard if began < at < ended), ended]
    assert max(later - earlier for earlier, later in itertools.pairwise(words)) < watchdog
    assert world.truth().creates == len(accepted)
    found = violations(home, world.truth(), accepted)
    assert [fault for fault in found if "nobody sent" not in fault] == []  # the deliveries were our own

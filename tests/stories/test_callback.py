"""Callbacks by the real process: killed between send and record, it sends the same once more; a stop loses none."""

import asyncio
import json
import signal
from pathlib import Path

import standardwebhooks

from tests.handlers.receiver import HANG, Got, receiving
from tests.stories.ledger import faults_in_file
from tests.stories.stage import PATIENCE, SECRET, Client, Home, client_of, serving, settle, simulating

_CALLBACKS = """\
[callbacks.ci]
url = "{url}"
secrets = [ {{ env = "STORY_SECRET" }} ]
"""


def calling_back(home: Home, url: str) -> Home:
    """The same home, where `url` may be called back."""
    with home.config.open("a") as file:
        file.write(_CALLBACKS.format(url=url))
    return home


def verified(got: Got) -> dict[str, object]:
    """What a receiver reads who checks by the official library, time and all."""
    headers = {name.lower(): value for name, value in got.headers.items()}
    told: dict[str, object] = standardwebhooks.Webhook(SECRET).verify(got.body, headers)
    return told


async def until_delivered(client: Client) -> dict[str, int]:
    """How the callback fares, once nothing waits."""
    async with asyncio.timeout(PATIENCE):
        while (counts := (await client.get("/v1/status"))["callbacks"]["ci"])["waiting"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return dict(counts)


async def test_killed_while_the_target_answers_the_daemon_sends_the_same_once_more(tmp_path: Path) -> None:
    """N29: what was sent and not recorded is repeated, under the same id and with the same bytes."""
    # Given a target that takes what it gets and is long in answering.
    async with receiving(HANG, 200) as receiver:
        home = calling_back(settle(tmp_path), receiver.url)
        async with simulating(home, speed=10) as simulation, client_of(home) as client:
            async with serving(home) as daemon:
                await client.until_ready(daemon)
                await client.until_provider_answers(simulation)
                operation_id = await client.started(callback_url=f"{receiver.url}build/7")
                # When the daemon is killed between its send and the answer.
                (first,) = list(await receiver.until(1))
                assert await daemon.stop(signal.SIGKILL) == -signal.SIGKILL
            (row,) = home.rows("SELECT state, attempts, is_taken FROM deliveries")
            assert row == {"state": "waiting", "attempts": 0, "is_taken": 1}
            async with serving(home) as daemon:
                await client.until_ready(daemon)
                # Then the next one sends it again at once, and whoever drops repeats has the effect once.
                second = (await receiver.until(2))[1]
                assert (second.event_id, second.body, second.path) == (first.event_id, first.body, "/hooks/build/7")
                told = verified(second)
                assert told == json.loads(first.body)
                assert told["type"] == "operation.done"
                shown = await client.get(f"/v1/operations/{operation_id}")
                shown["result"]["inline"] = None  # what is told reads no files
                assert told["data"] == shown
                assert await until_delivered(client) == {"missing": False, "waiting": 0, "delivered": 1, "exhausted": 0}
                assert await daemon.stop() == 0
    assert faults_in_file(home) == []
    assert len(receiver.got) == 2


async def test_what_waits_at_a_stop_is_sent_after_the_next_start(tmp_path: Path) -> None:
    """The first attempt fails, the daemon is stopped and started again: the second one comes in its time."""
    async with receiving(500, 200) as receiver:
        home = calling_back(settle(tmp_path), receiver.url)
        async with simulating(home, speed=10) as simulation, client_of(home) as client:
            async with serving(home) as daemon:
                await client.until_ready(daemon)
                await client.until_provider_answers(simulation)
                await client.started(callback_url=receiver.url)
                await receiver.until(1)
                assert await daemon.stop() == 0
            (row,) = home.rows("SELECT state, attempts, last_status FROM deliveries")
            assert row == {"state": "waiting", "attempts": 1, "last_status": 500}
            async with serving(home) as daemon:
                await client.until_ready(daemon)
                first, second = await receiver.until(2)
                assert verified(second) == verified(first)
                assert (await until_delivered(client))["delivered"] == 1
                assert await daemon.stop() == 0
                assert "Traceback" not in daemon.said

"""How the daemon ends, and how it refuses to begin: exit statuses, one clear sentence, nothing lost (I1, N42)."""

import asyncio
import hashlib
import signal
import socket
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import aiohttp
import pytest

from daemon.runtime import SystemDice
from daemon.standin.openai_bodies import Body
from daemon.standin.scenarios import Scenario
from daemon.standin.world import World
from tests.stories.ledger import violations
from tests.stories.stage import Actor, Client, Home, client_of, moves, playing, provider, serving, settle, simulating

#: Seconds that a stop may take with calls open: far below the unit's TimeoutStopSec, with room for a slow machine.
STOP_WITHIN = 6
#: The provider sits on its answer to the create for so long, milliseconds.
SLOW_ANSWER_MS = 1_500


# ---- stopping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_with_a_job_running_and_a_wait_open_is_clean_and_the_next_start_goes_on(
    tmp_path: Path, by: signal.Signals
) -> None:
    """SIGTERM and Ctrl-C alike: exit status 0 in a few seconds, nobody is told an end, and the job is ended later."""
    # Given a job that runs for two seconds, and somebody who waits for its end.
    home = settle(tmp_path, base="500ms", cap="1s")
    async with simulating(home, speed=2) as simulation, client_of(home) as client:
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            await client.until_provider_answers(simulation)
            operation_id = await client.started()
            waiter = asyncio.create_task(_waited(client, operation_id))
            await client.until(operation_id, lambda body: body["remote_job_id"] is not None)

            # When the daemon is told to stop.
            began = time.monotonic()
            status = await daemon.stop(by)
            took = time.monotonic() - began

        # Then it ends soon, by itself and in order; the waiter was cut off, or told that nothing has ended.
        assert (status, took < STOP_WITHIN) == (0, True), (took, daemon.said)
        assert '"event": "stopping"' in daemon.said
        assert "Traceback" not in daemon.said
        assert await waiter in (None, False)
        rows = home.rows("SELECT state, lease_owner FROM operations JOIN schedule USING (key)")
        assert [row["state"] for row in rows] == ["observing"]
        assert rows[0]["lease_owner"] is None

        # ... and the next daemon goes on where this one stopped.
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            body = await client.end_of(operation_id)
            history = await client.history(operation_id)
            assert await daemon.stop(by) == 0
    assert body["outcome"] == "succeeded"
    assert moves(history) == ["create_pending", "accepted", "observing", "result_collecting", "succeeded"]


async def _waited(client: Client, operation_id: str) -> bool | None:
    """Whether a long wait was told an end; None: it was cut off."""
    try:
        answer = await client.call("GET", f"/v1/operations/{operation_id}?wait=60")
    except aiohttp.ClientError:
        return None
    return bool(answer.body["done"])


async def test_a_stop_while_a_create_is_open_waits_for_its_answer(tmp_path: Path) -> None:
    """The answer of a running send is recorded before the end, so that the next start has nothing to look for."""
    # Given a provider that is slow to answer a create.
    home = settle(tmp_path)
    world = _Slow()
    async with provider(home, world), serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        operation_id = await client.started()

        # When the daemon is stopped after the create has arrived and before it is answered.
        await world.create_arrived.wait()
        began = time.monotonic()
        status = await daemon.stop()
        took = time.monotonic() - began

    # Then it has waited for the answer and no longer, and holds the job.
    assert status == 0, daemon.said
    assert took < SLOW_ANSWER_MS / 1000 + STOP_WITHIN
    truth = world.truth()
    (job,) = truth.jobs
    (row,) = home.rows("SELECT state, remote_job_id FROM operations")
    assert (row["state"], row["remote_job_id"]) == ("observing", job.id)
    assert violations(home, truth, {operation_id}) == []


class _Slow(World):
    """A provider that makes the job at once and says so later."""

    def __init__(self) -> None:
        scenario = Scenario("slow", "The create's answer is late.", create_answer_after_ms=SLOW_ANSWER_MS)
        super().__init__(scenario, ids=SystemDice().identifier)
        self.create_arrived = asyncio.Event()

    def create(self, body: object, now_ms: int) -> Body:
        """Make the batch, and tell the test."""
        self.create_arrived.set()
        return super().create(body, now_ms)


# ---- refusing to begin -------------------------------------------------------------------------------------------


async def test_a_second_daemon_on_the_same_state_directory_is_refused(tmp_path: Path) -> None:
    """Exit status 75 and a sentence that names the directory; the first one does not notice."""
    home = settle(tmp_path)
    async with playing(home, speed=10) as (first, client):
        async with serving(home) as second:
            status = await second.end()

        # Then it ends at once, and the first goes on with its work.
        assert status == 75
        assert _only_sentence(second) == (
            f"reconciled: another daemon is running on {home.state_dir}; stop it, or give this one another state_dir"
        )
        assert first.is_alive
        assert (await client.end_of(await client.started()))["outcome"] == "succeeded"


async def test_a_file_of_a_newer_release_is_refused_and_not_touched(tmp_path: Path) -> None:
    """Exit status 78, since starting again would not help, and every byte as it was (N40)."""
    home = settle(tmp_path)
    async with serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        await daemon.stop()
    with closing(sqlite3.connect(home.database)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = _digests(home)

    async with serving(home) as daemon:
        status = await daemon.end()

    assert status == 78
    assert "schema 99" in _only_sentence(daemon)
    assert _digests(home) == before


@pytest.mark.parametrize("listener", ["api", "hooks"])
async def test_a_taken_port_is_told_in_one_sentence(tmp_path: Path, listener: str) -> None:
    """No traceback; what to change stands in the sentence; nothing was opened yet, so the next start finds no lock."""
    home = settle(tmp_path)
    port = getattr(home, listener)
    with socket.create_server(("127.0.0.1", port)):
        async with serving(home) as daemon:
            status = await daemon.end()

    assert status == 69
    sentence = _only_sentence(daemon)
    assert sentence.startswith("reconciled: ")
    assert sentence.endswith(f"cannot listen on 127.0.0.1:{port}: Address already in use")
    assert not home.database.exists()
    async with serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        assert await daemon.stop() == 0


@pytest.mark.parametrize(
    ("found", "put", "told"),
    [
        ("[webhooks]", "[webhooks", "valid TOML"),
        (
            "requests_per_second",
            "requests_a_second",
            "providers.standin.limits.requests_a_second: found an unknown key",
        ),
        ('base = "1s"', 'bose = "1s"', "providers.standin.poll.bose: found an unknown key"),
        ("[api]", "[apy]", "apy: found an unknown key"),
        ('base = "1s"', 'base = "soon"', "providers.standin.poll.base: found 'soon'"),
        ("STORY_KEY", "NOBODYS_KEY", "providers.standin.api_key: found nothing; expected the environment variable"),
        ('"openai_batch"', '"opnai_batch"', "providers.standin.kind: found 'opnai_batch'"),
    ],
)
async def test_a_configuration_that_cannot_be_used_is_told_with_file_and_key(
    tmp_path: Path, found: str, put: str, told: str
) -> None:
    """Exit status 78; the sentence names the file, the key's full path, what was found and what was expected."""
    home = settle(tmp_path)
    spelled = home.config.read_text()
    assert found in spelled
    home.config.write_text(spelled.replace(found, put))

    async with serving(home) as daemon:
        status = await daemon.end()

    assert status == 78
    sentence = _only_sentence(daemon)
    assert sentence.startswith(f"reconciled: {home.config}: ")
    assert told in sentence
    assert "expected" in sentence
    assert not home.state_dir.exists()


def _only_sentence(daemon: Actor) -> str:
    """All that it said, which must be one line."""
    (line,) = daemon.said.splitlines()
    return line


def _digests(home: Home) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in home.state_dir.glob("reconciled.db*")}

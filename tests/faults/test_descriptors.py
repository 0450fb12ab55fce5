"""No descriptor left (F21): strangers hold all that the process may have, and it survives them."""

import asyncio
import contextlib
import json
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from daemon.runtime import SystemDice
from daemon.standin.scenarios import SCENARIOS
from daemon.standin.world import World
from tests.faults.nursery import Nursery
from tests.stories.ledger import violations
from tests.stories.stage import ASK_AGAIN, PATIENCE, TOKEN, Home, client_of, provider, settle
from tests.stories.work import batch

pytestmark = pytest.mark.asyncio(loop_scope="package")
#: What the process may have: some sixty more than it needs by itself.
DESCRIPTORS: Final = 96
#: Idle connections to each listener: more than that, and no more than the kernel keeps for one that does not accept.
IDLE: Final = 100
#: Seconds for which they stay. Above the second for which asyncio stops to accept.
STAY: Final = 3
#: Its job ends while they are there; ends are found out by reads, which need descriptors too.
BRIEF: Final = replace(SCENARIOS["lost-webhook"], duration_ms=1_500)


class Regular:
    """A client that keeps its one connection, and so needs none of the daemon's descriptors anew."""

    def __init__(self, home: Home, session: aiohttp.ClientSession) -> None:
        self._home, self._session = home, session

    async def call(self, method: str, path: str, body: Any = None, *, key: str = "") -> tuple[int, Any]:
        """One call; its status and body."""
        headers = {"Authorization": f"Bearer {TOKEN}"} | ({"Idempotency-Key": key} if key else {})
        async with self._session.request(method, self._home.api_url + path, json=body, headers=headers) as answer:
            assert answer.status != 503 or int(answer.headers["Retry-After"]) > 0
            return answer.status, json.loads(await answer.read())


def _idle(port: int) -> list[socket.socket]:
    """Connections that say nothing; the kernel takes them whether or not the process does."""
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(IDLE)]


def _held(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_without_descriptors_it_lives_and_answers_again_when_the_strangers_are_gone(
    lives: Nursery, tmp_path: Path
) -> None:
    """Nothing acknowledged is lost, no job is called failed, no create repeated, and no restart is needed."""
    home = settle(tmp_path / "home", base="200ms", cap="400ms")
    world = World(BRIEF, ids=SystemDice().identifier)
    one = aiohttp.TCPConnector(limit=1, keepalive_timeout=PATIENCE)
    async with (
        provider(home, world),
        client_of(home) as newcomer,
        aiohttp.ClientSession(connector=one) as session,
        lives.serving(home, descriptors=DESCRIPTORS) as life,
    ):
        # Given a job that runs, a client with a connection, and more strangers than there is room for.
        await newcomer.until_ready(life)
        regular = Regular(home, session)
        running = (await regular.call("POST", "/v1/operations", batch(None, 2)))[1]["operation_id"]
        await newcomer.until(running, lambda body: body["remote_job_id"] is not None)
        accepted, refused = {running}, []
        with contextlib.ExitStack() as strangers:
            for port in (home.api, home.hooks):
                for one_of_them in _idle(port):
                    strangers.enter_context(one_of_them)
            async with asyncio.timeout(PATIENCE):
                while _held(life.pid) < DESCRIPTORS:  # noqa: ASYNC110 - another process tells nobody
                    await asyncio.sleep(ASK_AGAIN)

            # When it goes on being asked for starts, each of which would need a file.
            until = time.monotonic() + STAY
            for n in range(1000):
                if time.monotonic() > until:
                    break
                status, body = await regular.call("POST", "/v1/operations", batch(None, 2), key=f"key-{n}")
                assert status in (202, 503)
                accepted |= {body["operation_id"]} if status == 202 else set()
                refused += [f"key-{n}"] if status == 503 else []
                status, body = await regular.call("GET", f"/v1/operations/{running}")
                assert (status, body["attention"]) == (200, None)
                await asyncio.sleep(0.2)
            assert life.is_alive
            assert refused
            with pytest.raises((TimeoutError, aiohttp.ClientError)):
                async with asyncio.timeout(0.5):
                    await newcomer.get("/healthz")

        # Then it answers newcomers once they are gone, and what was refused is taken.
        await newcomer.until_ready(life)
        for key in refused:
            answer = await newcomer.call("POST", "/v1/operations", batch(None, 2), key=key)
            assert answer.status == 202, answer
            accepted.add(answer.body["operation_id"])
        bodies = [await newcomer.end_of(name) for name in sorted(accepted)]
        assert {body["outcome"] for body in bodies} == {"succeeded"}
        assert await life.stop() == 0
    assert world.truth().creates == len(accepted)
    assert violations(home, world.truth(), accepted) == []
    assert len(life.said) < 1_000_000  # a disk full of log lines would be the next fault

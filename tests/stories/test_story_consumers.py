"""Consumers of a daemon that is killed under them: a claim has one effect; feed and streams lose and repeat nothing."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from tests.event_stream import listening
from tests.stories.stage import (
    ASK_AGAIN,
    PATIENCE,
    TOKEN,
    Actor,
    Client,
    Home,
    acting,
    client_of,
    serving,
    settle,
    simulating,
)

#: Lives of the daemon that end by a kill.
KILLS: Final = 3
#: Operations that are started in each of its lives.
EACH_LIFE: Final = 4
TERMINAL: Final = ("succeeded", "completed_with_errors", "failed", "cancelled", "timed_out", "abandoned")


# ---- a claim ----------------------------------------------------------------------------------------------------


async def _ended_operation(home: Home) -> str:
    """An operation that has ended well, and a daemon that has stopped since."""
    async with simulating(home, speed=50) as simulation, serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        await client.until_provider_answers(simulation)
        operation_id = await client.started()
        assert (await client.end_of(operation_id))["outcome"] == "succeeded"
        assert await daemon.stop() == 0
    return operation_id


async def _claim(client: Client, operation_id: str, key: str) -> int | None:
    """How a claim was answered; None: it was not."""
    try:
        return (
            await client.call("POST", f"/v1/operations/{operation_id}/claim", {"consumer": "mailer"}, key=key)
        ).status
    except aiohttp.ClientError:
        return None


@pytest.mark.parametrize("edge", ["before", "after"])
async def test_story_a_claim_whose_answer_was_lost_has_one_effect(tmp_path: Path, edge: str) -> None:
    """Killed just before or just after the commit of a claim; the consumers ask again, each by its key."""
    # Given an operation that has ended, and two workers of one consumer that claim it at once.
    home = settle(tmp_path)
    operation_id = await _ended_operation(home)
    keys = ("worker-a", "worker-b")
    victim = ("tests.stories.victim", "--config", str(home.config), "--commits", str(tmp_path / "commits"))
    async with acting(home, *victim, "--kill-table", "completion_claims", "--edge", edge) as daemon:
        async with client_of(home) as client:
            await client.until_ready(daemon)

            # When the daemon is killed as the claim commits.
            answers = await asyncio.gather(*(_claim(client, operation_id, key) for key in keys))
        assert await daemon.end() == -signal.SIGKILL
    assert answers == [None, None]
    kept = home.rows("SELECT claim_key FROM completion_claims")
    assert len(kept) == (edge == "after")

    # Then, asked again, one of them has it, and has it however often it asks; the other never.
    async with serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        for _ in range(2):
            asked = await asyncio.gather(*(_claim(client, operation_id, key) for key in keys))
            assert sorted(status or 0 for status in asked) == [200, 409]
            (row,) = home.rows("SELECT claim_key FROM completion_claims")
            assert keys[asked.index(200)] == row["claim_key"]
            assert kept in ([], [row])
        assert await daemon.stop() == 0


# ---- a feed and streams -----------------------------------------------------------------------------------------


@dataclass
class Reader:
    """Somebody who reads on whatever befalls the daemon; `seen` holds every position it was told, as it was told."""

    home: Home
    session: aiohttp.ClientSession
    seen: list[int] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    connections: int = 0

    async def stream(self, path: str) -> None:
        """Follow a stream until 204 says that no more will come."""
        last_id: str | None = "0"
        while True:
            try:
                async with listening(self.session, self.home.api_url + path, TOKEN, last_id) as opened:
                    if opened.status == 204:
                        return
                    assert opened.status == 200
                    self.connections += 1
                    while (event := await opened.next()) is not None:
                        if event.name == "history":
                            self.seen.append(event.data["position"])
                        elif event.name != "operation":
                            self.others.append(event.name)
                        last_id = event.id
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(ASK_AGAIN)

    async def feed(self, client: Client) -> None:
        """Follow the completions, two a page, for ever."""
        cursor = ""
        while True:
            try:
                body = await client.get(f"/v1/completions?limit=2&wait=5{cursor}")
                self.connections += 1
            except aiohttp.ClientError:
                await asyncio.sleep(ASK_AGAIN)
                continue
            self.seen += [one["position"] for one in body["completions"]]
            cursor = f"&after={body['next_cursor']}"


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 - other processes tell nobody
            await asyncio.sleep(ASK_AGAIN)


@asynccontextmanager
async def _reading(*readers: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(reader) for reader in readers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome


async def _live(home: Home, daemon: Actor, client: Client, followers: list[Reader]) -> list[str]:
    """Start some work, and wait until some of it has happened, and the readers have seen something of it."""
    await client.until_ready(daemon)
    had = [len(reader.seen) for reader in followers]
    ids = [await client.started() for _ in range(EACH_LIFE)]
    # Killed between its mark and its send, a create is looked for until a person is asked: that is another story.
    for name in ids:
        await client.until_seen(name, lambda body: body["remote_job_id"] is not None)
    await _until(lambda: all(len(reader.seen) > before for reader, before in zip(followers, had, strict=True)))
    return ids


async def test_story_readers_of_a_daemon_that_is_killed_miss_nothing_and_see_nothing_twice(tmp_path: Path) -> None:
    """SIGKILL in mid-stream, again and again, while work goes on; the readers come back by what they saw last."""
    # Given a reader of everything, a reader of what ends, and soon one of each operation.
    home = settle(tmp_path, base="200ms", cap="500ms")
    async with simulating(home, speed=20) as simulation, client_of(home) as client, client_of(home) as other:
        session = client._session
        everything, ends = Reader(home, session), Reader(home, session)
        own: dict[str, Reader] = {}
        following: list[asyncio.Task[None]] = []
        async with _reading(everything.stream("/v1/events"), ends.feed(other)):
            # When the daemon is killed while they read and work goes on,
            for life in range(KILLS):
                async with serving(home) as daemon:
                    if life == 0:
                        await client.until_provider_answers(simulation)
                    for name in await _live(home, daemon, client, [everything]):
                        own[name] = Reader(home, session)
                        following.append(asyncio.create_task(own[name].stream(f"/v1/operations/{name}/events")))
                    await _until(lambda: all(reader.seen for reader in own.values()))
                    await daemon.stop(signal.SIGKILL)
            # ... and then left alone until all has ended,
            async with serving(home) as daemon:
                await client.until_ready(daemon)
                for name in own:
                    assert (await client.end_of(name))["outcome"] == "succeeded"
                newest = home.rows("SELECT max(position) AS n FROM history")[0]["n"]
                await _until(lambda: everything.seen[-1] == newest)
                moves = home.rows("SELECT position, to_state FROM history WHERE kind = 'move' ORDER BY position")
                finished = [row["position"] for row in moves if row["to_state"] in TERMINAL]
                await _until(lambda: len(ends.seen) >= len(finished))
                async with asyncio.timeout(PATIENCE):
                    await asyncio.gather(*following)  # each was told that no more will come
                assert await daemon.stop() == 0

    # Then each has seen every row once, in order, and no gap was told.
    assert everything.seen == list(range(1, newest + 1))
    assert everything.connections > KILLS
    assert ends.seen == finished
    assert len(finished) == KILLS * EACH_LIFE
    of_one = "SELECT h.position AS n FROM history h JOIN operations o ON o.key = h.operation_key"
    for name, reader in own.items():
        rows = home.rows(f"{of_one} WHERE o.operation_id = ? ORDER BY h.seq", name)
        assert reader.seen == [row["n"] for row in rows]
    assert {other for reader in (everything, *own.values()) for other in reader.others} == set()

"""A pause of a whole provider is kept in the file: a restart does not ask again what asked to be left alone."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from handlers.bodies import rfc3339
from reconcile.errors import StoreBusy
from reconcile.limits import NO_PAUSE, Pause
from reconcile.states import State
from reconcile.store.writer import Hooks
from tests.handlers.ground import NOON, Ground, HandClock, provider, running, until
from tests.handlers.test_collect import Peer, batch, refusal, serving
from tests.reconcile.store.ground import opened, operation

MINUTE: Final = 60_000
UNAVAILABLE: Final = refusal(503, {"Retry-After": "300"})
LASTING: Final = Pause(NOON + 300_000, "unavailable", 1, NOON)


@asynccontextmanager
async def daemon(folder: Path, url: str, *, at: int = NOON) -> AsyncIterator[Ground]:
    """One life of the daemon with its worker; time stands still in it until the test moves it."""
    providers = {"openai": provider(f"{url}/v1")}
    async with running(folder, providers=providers, clock=HandClock(at), worker=True, seed=at) as ground:
        yield ground


async def kept(ground: Ground, count: int) -> list[tuple[Any, ...]]:
    """The rows of the file, once there are so many."""

    async def are_kept() -> bool:
        return len(ground.rows("SELECT 1 FROM pauses")) == count

    await until(are_kept)
    return ground.rows("SELECT * FROM pauses")


async def look_round(ground: Ground) -> None:
    """Two whole passes of the worker, each of which would send what may be sent."""
    for _ in range(2):
        commits = ground.daemon.store.commits
        ground.daemon.worker.wake(0)

        async def has_claimed(before: int = commits) -> bool:
            return ground.daemon.store.commits > before

        await until(has_claimed)
    await asyncio.sleep(0.05)  # what it started, if anything, reaches the peer


async def test_a_pause_outlives_the_process_and_its_probe_ends_it(tmp_path: Path) -> None:
    peer = Peer(upload=UNAVAILABLE)
    async with serving(peer.app()) as url:
        async with daemon(tmp_path / "state", url) as ground:
            operation = await ground.start()
            assert await kept(ground, 1) == [("openai", NOON + 300_000, "unavailable", 1, NOON)]
        asked = len(peer.asked)
        assert asked == 1
        peer.upload = None
        async with daemon(tmp_path / "state", url, at=NOON + 4 * MINUTE) as ground:
            told = (await ground.get("/v1/status"))["providers"]["openai"]
            assert told["paused_until"] == rfc3339(NOON + 300_000)
            assert told["pause_reason"] == "unavailable"
            await look_round(ground)
            assert len(peer.asked) == asked, "the new process asked a provider that had asked to wait"
            ground.clock.set(NOON + 8 * MINUTE)
            ground.daemon.worker.wake(0)
            assert await kept(ground, 0) == []
            assert (await ground.get("/v1/status"))["providers"]["openai"]["paused_until"] is None
        async with daemon(tmp_path / "state", url, at=NOON + 9 * MINUTE) as ground:
            assert (await ground.get("/v1/status"))["providers"]["openai"]["paused_until"] is None
            assert not (await ground.row(operation)).is_terminal


async def test_a_pause_that_the_last_action_opened_is_kept_at_the_stop(tmp_path: Path) -> None:
    """The stop comes while the request is under way: no pass of the worker follows its answer."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> Any:
        asked.set()
        await go_on.wait()
        return await UNAVAILABLE(request)

    async with serving(Peer(upload=slow).app()) as url:
        async with daemon(tmp_path / "state", url) as ground:
            await ground.start()
            await asked.wait()
            asyncio.get_running_loop().call_later(0.2, go_on.set)
        connection = sqlite3.connect(tmp_path / "state" / "reconciled.db")
        assert connection.execute("SELECT until_at FROM pauses").fetchall() == [(NOON + 300_000,)]
        connection.close()


async def test_a_restart_with_a_mended_key_tries_the_next_due_request_at_once(tmp_path: Path) -> None:
    peer = Peer(upload=refusal(401, {"Retry-After": "3600"}), reads=[batch("in_progress", output=None)])
    async with serving(peer.app()) as url:
        async with daemon(tmp_path / "state", url) as ground:
            await ground.start()
            assert await kept(ground, 1) == [("openai", NOON + 3_600_000, "credentials_refused", 1, NOON)]
        peer.upload = None
        async with daemon(tmp_path / "state", url, at=NOON + MINUTE) as ground:
            operation = await ground.start()

            async def is_observed() -> bool:
                return (await ground.row(operation)).remote_job_id is not None

            await until(is_observed)
            assert await kept(ground, 0) == []


async def test_a_full_disk_while_a_pause_is_kept_is_told_and_tried_again(tmp_path: Path) -> None:
    broken = True

    def full(connection: sqlite3.Connection) -> None:
        if broken and connection.execute("SELECT count(*) FROM pauses").fetchone()[0]:
            connection.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")

    async with (
        serving(Peer(upload=UNAVAILABLE).app()) as url,
        running(
            tmp_path / "state",
            providers={"openai": provider(f"{url}/v1")},
            worker=True,
            hooks=Hooks(before_commit=full),
        ) as ground,
    ):
        await ground.start()

        async def is_told() -> bool:
            return any(entry["event"] == "pauses_not_kept" for entry in ground.logged)

        await until(is_told)
        broken = False
        ground.daemon.worker.wake(0)
        assert len(await kept(ground, 1)) == 1


async def test_the_store_keeps_changes_and_forgets_pauses(tmp_path: Path) -> None:
    path = tmp_path / "reconciled.db"
    other = Pause(NOON + 5, "failures: read_timeout", 7, NOON - 5)
    async with opened(path) as ground:
        assert await ground.store.pauses() == {}
        await ground.store.keep_pauses({"a": LASTING, "b": other}, NOON)
        await ground.store.keep_pauses({"a": other, "never": NO_PAUSE}, NOON)
        assert await ground.store.pauses() == {"a": other, "b": other}
    async with opened(path) as ground:
        assert await ground.store.pauses() == {"a": other, "b": other}
        await ground.store.keep_pauses({"a": NO_PAUSE, "b": LASTING}, NOON)
        assert await ground.store.pauses() == {"b": LASTING}


async def test_the_end_of_a_pause_rings_what_had_stopped_at_that_provider_and_nothing_else(tmp_path: Path) -> None:
    """N22: the job may have been well all the time; each is read once, and whoever sleeps is told."""
    async with opened(tmp_path / "reconciled.db") as ground:
        states = (State.RESULT_TIMED_OUT, State.OBSERVATION_FAILED, State.OBSERVING, State.RESULT_UNAVAILABLE)
        ops = [operation(n, state, due_at=NOON + n) for n, state in enumerate(states, start=1)]
        await ground.start(*ops, operation(5, State.RESULT_TIMED_OUT, provider="other", due_at=NOON + 5))
        await ground.store.keep_pauses({"test": LASTING}, NOON)
        assert [ground.schedule(n)["due_at"] for n in range(1, 6)] == [NOON + n for n in range(1, 6)]
        await ground.store.keep_pauses({"test": NO_PAUSE}, NOON - 1)
        rows = [ground.schedule(n) for n in range(1, 6)]
        assert [row["due_at"] for row in rows] == [NOON - 1, NOON - 1, NOON + 3, NOON + 4, NOON + 5]
        assert [row["ring"] for row in rows] == ["pause:test", "pause:test", None, None, None]


async def test_pauses_that_cannot_be_read_end_the_start_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "reconciled.db"
    async with opened(path) as ground:
        connection = sqlite3.connect(path)
        connection.execute("DROP TABLE pauses")
        connection.close()
        with pytest.raises(StoreBusy, match="the store cannot be read: no such table: pauses"):
            await ground.store.pauses()


async def test_a_failure_that_opens_no_pause_is_no_row(tmp_path: Path) -> None:
    async with serving(Peer(upload=refusal(500)).app()) as url, daemon(tmp_path / "state", url) as ground:
        operation = await ground.start()

        async def has_failed() -> bool:
            return (await ground.row(operation)).schedule.errors == 1

        await until(has_failed)
        await look_round(ground)
        assert await kept(ground, 0) == []

"""The faults that the spec names, each as a story of its own: real processes, a real file, a provider that is watched.

Here the provider stands behind a gate (gate.py), so that what reached it can be counted past the daemon's own record.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from daemon.runtime import SystemClock, SystemDice
from daemon.standin.account import AnswerLost
from daemon.standin.openai_bodies import Body
from daemon.standin.scenarios import SCENARIOS, Scenario
from daemon.standin.world import World
from tests.stories.gate import Arrival, Gate, behind_a_gate
from tests.stories.ledger import violations
from tests.stories.stage import Actor, Client, Home, client_of, moves, serving, settle
from tests.stories.work import MESSAGES, STANDIN

LOST: Final = replace(SCENARIOS["lost-create-response"], duration_ms=1_000)
NORMAL: Final = replace(SCENARIOS["normal"], duration_ms=1_000, webhooks="lost")
LONG: Final = replace(NORMAL, duration_ms=20_000)
#: The product's own lease, typed by hand, ms.
LEASE_MS: Final = 60_000
#: How soon a restarted daemon takes up what its predecessor held, ms: far below a lease. Arbitrary.
SOON_MS: Final = 10_000


@asynccontextmanager
async def on_stage(home: Home) -> AsyncIterator[tuple[Actor, Client]]:
    """A ready daemon and its client."""
    async with serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        yield daemon, client


def world_of(scenario: Scenario) -> World:
    """A provider whose jobs go so."""
    return World(scenario, ids=SystemDice().identifier)


# ---- F1: the create was taken, its answer was not ----------------------------------------------------------------


async def test_story_lost_create_answer_is_found_by_look_up(tmp_path: Path) -> None:
    """Where jobs bear our mark, the job is found by it, and no second create is sent (B1, B2, N3)."""
    home, world, gate = settle(tmp_path, base="200ms", cap="400ms"), world_of(LOST), Gate()
    async with behind_a_gate(home, world, gate), on_stage(home) as (daemon, client):
        operation_id = await client.started()
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    (job,) = world.truth().jobs
    assert gate.creates() == 1
    assert (body["outcome"], body["remote_job_id"]) == ("succeeded", job.id)
    assert moves(history)[:3] == ["create_pending", "create_unknown", "accepted"]
    assert "found by look-up" in next(row["reason"] for row in history if row["to"] == "accepted")
    # ... and the record says of the create what it was: sent once, and never answered.
    (create,) = home.rows("SELECT status, error_class FROM requests WHERE purpose = 'create'")
    assert create["status"] is None
    assert create["error_class"]
    assert violations(home, world.truth(), {operation_id}) == []


async def test_story_lost_create_answer_without_a_road_is_a_question_with_its_candidate(tmp_path: Path) -> None:
    """Where nothing marks a job, nobody can know: a person is shown the candidate, and nothing is sent again (B2)."""
    home = settle(tmp_path, base="200ms", cap="400ms", messages="127.0.0.1")
    world, gate = world_of(LOST), Gate()
    async with behind_a_gate(home, world, gate), on_stage(home) as (daemon, client):
        operation_id = await client.started(provider=MESSAGES, create_within="2s")
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    (job,) = world.truth().jobs
    assert gate.creates() == 1
    assert (body["state"], body["status"], body["done"]) == ("create_unresolved", "blocked", False)
    assert (body["remote_job_id"], body["attention"]["reason"]) == (None, "create_unresolved")
    assert [row["facts"]["candidates"] for row in history if "candidates" in row["facts"]] == [[job.id]]
    assert moves(history) == ["create_pending", "create_unknown", "create_unresolved"]


@pytest.mark.parametrize("provider", [STANDIN, MESSAGES])
async def test_story_killed_while_the_create_is_unanswered(tmp_path: Path, provider: str) -> None:
    """A real kill between the send and the answer: the next process looks for the job instead of making another."""
    home = settle(tmp_path, base="200ms", cap="400ms", messages="127.0.0.1")
    world, arrived = world_of(replace(NORMAL, create_answer_after_ms=60_000)), asyncio.Event()

    async def tells_of_creates(arrival: Arrival) -> None:
        if arrival.is_create:
            arrived.set()

    gate = Gate(tells_of_creates)
    async with behind_a_gate(home, world, gate), client_of(home) as client:
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            operation_id = await client.started(provider=provider, create_within="4s")
            await arrived.wait()
            assert await daemon.stop(signal.SIGKILL) == -signal.SIGKILL
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            body = await client.end_of(operation_id)
            assert await daemon.stop() == 0

    assert gate.creates() == len(world.truth().jobs) == 1
    assert body["state"] == {STANDIN: "succeeded", MESSAGES: "create_unresolved"}[provider]


# ---- F2: the job id is known, nothing was read yet ---------------------------------------------------------------


async def test_story_killed_between_the_job_id_and_the_first_poll(tmp_path: Path) -> None:
    """The next process polls the job that the row names; no second create, no upload again (A6, N25)."""
    home, world, gate = settle(tmp_path, base="2s", cap="2s"), world_of(NORMAL), Gate()
    async with behind_a_gate(home, world, gate), client_of(home) as client:
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            operation_id = await client.started()
            accepted = await client.until(operation_id, lambda body: body["remote_job_id"] is not None)
            assert await daemon.stop(signal.SIGKILL) == -signal.SIGKILL
        reads_before = gate.reads_of(accepted["remote_job_id"])
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            body = await client.end_of(operation_id)
            history = await client.history(operation_id)
            assert await daemon.stop() == 0

    assert reads_before == []
    truth = world.truth()
    assert (gate.creates(), truth.uploads, len(truth.jobs)) == (1, 1, 1)
    assert (body["outcome"], body["remote_job_id"]) == ("succeeded", accepted["remote_job_id"])
    assert gate.reads_of(body["remote_job_id"])
    assert moves(history) == ["create_pending", "accepted", "observing", "result_collecting", "succeeded"]
    assert violations(home, truth, {operation_id}) == []


# ---- F5: a lease that its owner no longer needs ------------------------------------------------------------------


async def test_story_restart_takes_over_what_a_killed_owner_had_leased(tmp_path: Path) -> None:
    """A dead owner's lease has most of its minute left; the next owner does not wait for it (C10, N42)."""
    # Given a daemon that is killed while it reads a job, its lease committed.
    home, world = settle(tmp_path, base="200ms", cap="400ms"), world_of(LONG)
    reading, answered = asyncio.Event(), asyncio.Event()

    async def holds_the_first_read(arrival: Arrival) -> None:
        if arrival.method == "GET" and not reading.is_set():
            reading.set()
            await answered.wait()

    gate = Gate(holds_the_first_read)
    async with behind_a_gate(home, world, gate), client_of(home) as client:
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            operation_id = await client.started()
            await reading.wait()
            (leased,) = home.rows("SELECT lease_owner, lease_until, fence FROM schedule")
            assert await daemon.stop(signal.SIGKILL) == -signal.SIGKILL
        killed_at = gate.arrivals[-1].at
        answered.set()

        # When the next one starts.
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            await client.until_seen(operation_id, lambda body: body["remote_status"] == "in_progress")
            (now,) = home.rows("SELECT fence FROM schedule")
            (owner,) = home.rows("SELECT actor FROM history WHERE actor LIKE 'worker:%' ORDER BY position LIMIT 1")
            assert await daemon.stop() == 0

    # Then it read the job at once, under a fence of its own: what the dead one might still say would be refused.
    assert leased["lease_owner"] is not None
    assert leased["lease_until"] - killed_at > LEASE_MS - SOON_MS
    assert owner["actor"] == f"worker:{leased['lease_owner']}"
    job_id = world.truth().jobs[0].id
    later = [at for at in gate.reads_of(job_id) if at > killed_at]
    assert later
    assert later[0] - killed_at < SOON_MS
    assert now["fence"] > leased["fence"]
    assert gate.creates() == 1


# ---- F10: events that come too early, or for others --------------------------------------------------------------


async def test_story_webhook_before_the_create_is_answered(tmp_path: Path) -> None:
    """It is acknowledged and kept, and applied once the job's id is known (B5, N19)."""
    home = settle(tmp_path, base="60s", cap="60s")
    early = Scenario("early", "Done before its maker is told.", duration_ms=0, create_answer_after_ms=1_500)
    world, gate = world_of(early), Gate()
    async with behind_a_gate(home, world, gate), on_stage(home) as (daemon, client):
        operation_id = await client.started()
        await client.webhooks(unmatched=1)
        before = await client.get(f"/v1/operations/{operation_id}")
        body = await client.end_of(operation_id)
        assert await daemon.stop() == 0

    assert (before["state"], before["remote_job_id"]) == ("create_pending", None)
    # A read only once a minute: what brought the end so soon was the kept event.
    assert body["outcome"] == "succeeded"
    assert body["elapsed_seconds"] < 30
    (event,) = world.truth().events
    assert (event.attempts, event.taken) == (1, 1)
    assert [row["disposition"] for row in home.rows("SELECT disposition FROM events")] == ["rings"]
    assert violations(home, world.truth(), {operation_id}) == []


async def test_story_webhook_for_a_strangers_job_is_kept_and_moves_nothing(tmp_path: Path) -> None:
    """A job that nobody here made: answered 200, kept where it can be seen, no operation is touched (B5, N19)."""
    home, world = settle(tmp_path, base="60s", cap="60s"), world_of(replace(NORMAL, webhooks="sent", duration_ms=0))
    async with behind_a_gate(home, world, Gate()), on_stage(home) as (daemon, client):
        job_id = world.seed_job(items=2, now_ms=SystemClock().now())
        # The stand-in looks for what it owes when something is asked of it.
        operation_id = await client.started()
        await client.end_of(operation_id)
        taken = await client.webhooks(accepted=1, unmatched=1)
        assert await daemon.stop() == 0

    assert taken["unmatched"] == 1
    kept = home.rows("SELECT remote_job_id FROM events WHERE operation_key IS NULL")
    assert [row["remote_job_id"] for row in kept] == [job_id]
    assert len(home.rows("SELECT key FROM operations")) == 1


# ---- F11: two jobs for one create --------------------------------------------------------------------------------


class Twofold(World):
    """A provider that makes two jobs of one create that is not answered."""

    def create(self, body: object, now_ms: int) -> Body:
        """Both are of one input and bear the mark of the one who asked."""
        with contextlib.suppress(AnswerLost):
            super().create(body, now_ms)
        return super().create(body, now_ms)


async def test_story_two_jobs_that_bear_one_mark_are_a_contract_violation(tmp_path: Path) -> None:
    """Both are kept and shown, nothing is overwritten, and no request for it leaves any more (B4, N31)."""
    home, gate = settle(tmp_path, base="200ms", cap="400ms"), Gate()
    world = Twofold(replace(NORMAL, create_faults=("lost", "lost")), ids=SystemDice().identifier)
    async with behind_a_gate(home, world, gate), on_stage(home) as (daemon, client):
        operation_id = await client.started()
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        asked = len(gate.arrivals)
        # When the daemon is stopped and started, and has worked on something else.
        assert await daemon.stop() == 0
        async with on_stage(home) as (again, _):
            other = await client.end_of(await client.started(scenario="lost-webhook"))
            later = await client.get(f"/v1/operations/{operation_id}")
            assert await again.stop() == 0

    jobs = world.truth().jobs
    # ... (of the other job there are two as well, both answered).
    assert (body["state"], body["attention"]["reason"]) == ("contract_violation", "contract_violation")
    assert body["remote_job_id"] is None
    (named,) = [row["facts"]["candidates"] for row in history if row["to"] == "contract_violation"]
    assert sorted(named) == sorted(job.id for job in jobs[:2])
    # Nothing that arrived since was about either of the two, nor a look-up, which the other job had no need of.
    assert other["outcome"] == "succeeded"
    about = [a for a in gate.arrivals[asked:] if a.path == "/v1/batches" or any(j.id in a.path for j in jobs[:2])]
    assert [arrival for arrival in about if not arrival.is_create] == []
    assert gate.creates() == 2
    assert (later["state"], later["remote_job_id"]) == ("contract_violation", None)

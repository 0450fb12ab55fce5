"""A webhook only rings: what has become of the job is asked of the provider, by a read that bears the key (C8, N20)."""

from pathlib import Path

from daemon.runtime import SystemDice
from daemon.standin.scenarios import Scenario
from daemon.standin.world import World
from tests.stories.ledger import violations
from tests.stories.stage import client_of, moves, playing, provider, serving, settle

#: Its webhook says "completed" half a job before the job is.
AHEAD = Scenario("ahead", "The webhook runs ahead of the status.", duration_ms=1_500, webhook_after_ms=-750)


async def test_a_webhook_rings_and_a_read_confirms_the_end(tmp_path: Path) -> None:
    """The end comes at once, and its cause is the read that the event brought about."""
    # Given a daemon that reads a job only once a minute unless it is rung.
    home = settle(tmp_path, base="60s", cap="60s")
    async with playing(home, speed=10) as (_, client):
        # When a job ends and its webhook comes.
        operation_id = await client.started()
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)

    # Then it has ended long before that minute; the history names the event as what rang, and the read as the cause.
    assert body["outcome"] == "succeeded"
    assert body["elapsed_seconds"] < 60
    (event,) = home.rows("SELECT event_id, received_at, disposition, word FROM events")
    assert (event["disposition"], event["word"]) == ("rings", "completed")
    (found,) = [row for row in history if row["to"] == "result_collecting"]
    assert f"read because event:{event['event_id']} rang" in found["reason"]
    # ... which is a status read of ours, sent after the event had come.
    (read,) = home.rows("SELECT * FROM requests WHERE purpose = 'status'")
    assert read["status"] == 200
    assert read["sent_at"] >= event["received_at"]
    (seen,) = home.rows("SELECT * FROM observations WHERE road = 'status'")
    assert (found["cause"], seen["request_id"]) == (f"observation:{seen['observation_id']}", read["request_id"])
    assert moves(history) == ["create_pending", "accepted", "observing", "result_collecting", "succeeded"]


async def test_a_webhook_that_runs_ahead_of_the_job_is_not_believed(tmp_path: Path) -> None:
    """An event says completed, the read says it still runs: the end comes no sooner than the provider's own."""
    # Given a provider whose webhook comes while the job still runs.
    home = settle(tmp_path, base="300ms", cap="600ms")
    world = World(AHEAD, ids=SystemDice().identifier)
    async with provider(home, world), serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        # When the event has rung and, later, the job has really ended.
        operation_id = await client.started()
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    # Then the operation has ended, but not before the job had.
    truth = world.truth()
    (job,) = truth.jobs
    ended_at = dict(job.states)["completed"]
    assert body["outcome"] == "succeeded"
    (collecting,) = home.rows("SELECT at FROM history WHERE to_state = 'result_collecting'")
    assert collecting["at"] >= ended_at
    # ... and the event was kept, told early, and rang for a read that said otherwise.
    (event,) = home.rows("SELECT received_at, disposition FROM events")
    assert event["disposition"] == "rings"
    assert event["received_at"] < ended_at
    assert job.reads >= 2
    assert moves(history) == ["create_pending", "accepted", "observing", "result_collecting", "succeeded"]
    assert violations(home, truth, {operation_id}) == []

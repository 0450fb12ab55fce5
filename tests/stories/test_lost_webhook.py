"""A webhook that never comes costs time, never the end: the sweep reads the job by itself (C7, F16)."""

from itertools import pairwise
from pathlib import Path

from tests.stories.stage import ITEMS, moves, playing, settle


async def test_a_job_whose_webhook_never_came_is_finished_by_the_sweep(tmp_path: Path) -> None:
    """The end is found by reads alone, not more often than the configured interval allows."""
    # Given a provider that loses its webhooks, and a daemon that reads each open job every 400 to 800 ms.
    home = settle(tmp_path, base="400ms", cap="800ms")
    async with playing(home, speed=4, scenario="lost-webhook") as (_, client):
        # When a job of one second is started, and waited for.
        operation_id = await client.started()
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        webhooks = await client.webhooks()

    # Then it succeeded, although nobody told: the move to its end is the worker's own, by a read.
    assert body["outcome"] == "succeeded"
    assert body["summary"]["succeeded"] == body["summary"]["total"] == ITEMS
    assert moves(history) == ["create_pending", "accepted", "observing", "result_collecting", "succeeded"]
    found = next(row for row in history if row["to"] == "result_collecting")
    assert found["actor"].startswith("worker")
    assert found["cause"].startswith("observation:")
    assert "rang" not in found["reason"]
    assert (webhooks["accepted"], webhooks["duplicate"], webhooks["unmatched"]) == (0, 0, 0)
    assert home.rows("SELECT event_id FROM events") == []
    # ... and no two things were asked of the job in a shorter time than the interval.
    asked = home.rows("SELECT purpose, sent_at FROM requests WHERE purpose IN ('create', 'status') ORDER BY sent_at")
    assert [row["purpose"] for row in asked][:2] == ["create", "status"]
    times = [row["sent_at"] for row in asked]
    assert all(after - before >= 400 for before, after in pairwise(times)), times

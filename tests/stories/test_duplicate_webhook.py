"""The same webhook again, however often and whenever: answered 200, counted, and without effect (C8, F4, N17)."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import standardwebhooks

from tests.stories.stage import SECRET, Client, Home, client_of, moves, playing, serving, settle

#: Deliveries of one event at the same time.
CROWD = 100


async def test_a_webhook_that_comes_twice_has_one_effect(tmp_path: Path) -> None:
    """One event, one repeat in the count, one way to the end."""
    # Given a provider that sends each webhook twice, and a daemon that would not read the job unasked.
    home = settle(tmp_path, base="60s", cap="60s")
    async with playing(home, speed=10, scenario="duplicate-webhook") as (_, client):
        # When a job has ended and both deliveries were taken.
        operation_id = await client.started()
        body = await client.end_of(operation_id)
        webhooks = await client.webhooks(duplicate=1)
        history = await client.history(operation_id)

    # Then there is one event with one repeat, and each move once.
    assert body["outcome"] == "succeeded"
    assert (webhooks["accepted"], webhooks["duplicate"], webhooks["unmatched"]) == (1, 1, 0)
    assert moves(history) == ["create_pending", "accepted", "observing", "result_collecting", "succeeded"]
    assert [row["duplicates"] for row in home.rows("SELECT duplicates FROM events")] == [1]
    assert [row["kind"] for row in history if row["kind"] in ("contradiction", "refused")] == []


async def test_a_webhook_that_comes_a_hundred_times_at_once_and_after_a_restart_has_one_effect(tmp_path: Path) -> None:
    """Repeats of an event are told from news by the file, not by memory."""
    # Given a job that was ended by a webhook.
    home = settle(tmp_path, base="60s", cap="60s")
    async with playing(home, speed=10) as (daemon, client):
        operation_id = await client.started()
        ended = await client.end_of(operation_id)
        history = await client.history(operation_id)
        await client.webhooks(accepted=1)

        # When the same delivery comes a hundred times at once ...
        async with asyncio.TaskGroup() as group:
            answers = [group.create_task(_again(home, client)) for _ in range(CROWD)]
        webhooks = await client.webhooks()
        assert await daemon.stop() == 0
    # ... and once more at the next daemon.
    async with serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        answer = await _again(home, client)
        webhooks_later = await client.webhooks()
        now = await client.get(f"/v1/operations/{operation_id}")
        history_later = await client.history(operation_id)

    # Then each was answered 200 and counted, and nothing else has changed.
    assert {task.result() for task in answers} == {answer} == {200}
    assert (webhooks["accepted"], webhooks["duplicate"]) == (1, CROWD)
    assert (webhooks_later["accepted"], webhooks_later["duplicate"]) == (1, CROWD + 1)
    assert history_later == history
    assert _without_times(now) == _without_times(ended)


async def _again(home: Home, client: Client) -> int:
    """The one event that was taken, delivered once more, signed now by somebody else's code."""
    (event,) = home.rows("SELECT event_id, body FROM events")
    at = datetime.now(UTC)
    signature = standardwebhooks.Webhook(SECRET).sign(event["event_id"], at, event["body"].decode())
    headers = {
        "content-type": "application/json",
        "webhook-id": event["event_id"],
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": signature,
    }
    return await client.deliver(event["body"], headers)


def _without_times(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != "wait"}

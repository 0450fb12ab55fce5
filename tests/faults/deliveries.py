"""A delivery of the test's own, signed with somebody else's code: of a job that nobody here knows."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import standardwebhooks

from tests.stories.stage import SECRET, Client


async def delivery(client: Client, event_id: str) -> tuple[int, Mapping[str, str]]:
    """Send one; the status and the headers that it was answered with. Raises: aiohttp.ClientError, where it was not."""
    at = datetime.now(UTC)
    body = json.dumps({"id": event_id, "type": "batch.completed", "data": {"id": "batch_of_nobody"}})
    headers = {
        "content-type": "application/json",
        "webhook-id": event_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": standardwebhooks.Webhook(SECRET).sign(event_id, at, body),
    }
    return await client.deliver_at_length(body.encode(), headers)

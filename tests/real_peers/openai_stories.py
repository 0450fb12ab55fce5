"""OpenAI's shape to its end: one batch found by polling alone, one that a signed event rings.

ogx sends no webhooks, so the event is sent here: signed by the `standardwebhooks` package, and read by the `openai`
package first, to be sure that it is what OpenAI's own users would accept.
"""

import json
import time
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any, Final

import openai
from openai.types.webhooks import BatchCompletedWebhookEvent
from standardwebhooks import Webhook

from tests.real_peers import chat_server
from tests.real_peers.product import POLLED, RARE_BASE_SECONDS, RUNG
from tests.real_peers.transcript import StoryFailedError, check, say, show
from tests.real_peers.world import (
    BATCH_SECONDS,
    World,
    start,
    tell_evidence,
    wait,
    wait_for_end_at_ogx,
    wait_for_job,
)

SECRET: Final = "whsec_" + b64encode(bytes(range(32))).decode()
WRONG_SECRET: Final = "whsec_" + b64encode(bytes(range(1, 33))).decode()

#: custom_id -> what is asked; one is refused by the model, one takes seconds, one is not ASCII.
QUESTIONS: Final = {
    "question-1": "What is a batch?",
    "question-2": f"Please {chat_server.REFUSED} this one.",
    "question-3": f"Take your time: {chat_server.SLOW}.",
    "question-4": "Wie heißt das auf Ünïcödé?",
    "question-5": "And what is a webhook?",
}
FAILING: Final = "question-2"
SUMMARY: Final = {"total": 5, "succeeded": 4, "failed": 1, "cancelled": 0, "expired": 0, "missing": 0}

#: How long the daemon is watched doing nothing between the end at ogx and the ring, seconds; arbitrary.
QUIET_SECONDS: Final = 3.0
#: From the ring to the end, seconds. A read and two downloads: far below, while the next poll is ten minutes away.
RING_SECONDS: Final = 30.0


def poll_alone(world: World) -> None:
    """A batch with one failed line ends completed_with_errors, found by polling alone."""
    before = batch_ids(world)
    operation_id = _submit(world, POLLED)

    say("wait for the end: nothing but polls can tell it")
    body = wait(world, operation_id, BATCH_SECONDS)

    _check_end(world, body, before)
    status = world.get("/v1/status")
    show("what the daemon says of its providers", status["providers"])
    tell_evidence(world, operation_id, ("result_collecting", "completed_with_errors"))


def rung(world: World) -> None:
    """The same, when polls are ten minutes apart and a signed event rings: it ends at once."""
    before = batch_ids(world)
    operation_id = _submit(world, RUNG)
    job_id = wait_for_job(world, operation_id)

    say("watch the batch at ogx itself until it is over there")
    check("status at ogx", wait_for_end_at_ogx(world, job_id), "completed")
    time.sleep(QUIET_SECONDS)
    body = world.operation(operation_id)
    check(f"{QUIET_SECONDS:.0f} s after that the daemon, not rung yet, calls it done", body["done"], False)

    event = json.dumps(
        {
            "object": "event",
            "id": f"evt_{job_id}",
            "type": "batch.completed",
            "created_at": world.batch(job_id).completed_at,
            "data": {"id": job_id},
        }
    )
    show("the event", json.loads(event))
    _check_openai_accepts(event, job_id)
    forged = world.product.deliver(RUNG, event, _signed(event, f"wh_forged_{job_id}", WRONG_SECRET))
    check("the same event under another key is answered", forged.status, 401)
    body = world.operation(operation_id)
    check("and moves nothing: done", body["done"], False)

    rung_at = time.monotonic()
    answer = world.product.deliver(RUNG, event, _signed(event, f"wh_{job_id}", SECRET))
    check("the event signed by standardwebhooks is answered", answer.status, 200)
    again = world.product.deliver(RUNG, event, _signed(event, f"wh_{job_id}", SECRET))
    check("and so is its duplicate", again.status, 200)
    body = wait(world, operation_id, RING_SECONDS)
    took = time.monotonic() - rung_at
    say(f"from the ring to the end: {took:.2f} s, with the next poll {RARE_BASE_SECONDS} s or more away")

    _check_end(world, body, before)
    status = world.get("/v1/status")
    show("what the daemon says of its providers", status["providers"])
    tell_evidence(world, operation_id, ("result_collecting", "completed_with_errors"))


def _submit(world: World, provider: str) -> str:
    say(f"POST /v1/operations: {len(QUESTIONS)} items for {provider}, of which {FAILING} will be refused")
    body = start(world, provider, QUESTIONS)
    show("202", body)
    check("done", body["done"], False)
    check("outcome", body["outcome"], None)
    operation_id: str = body["operation_id"]
    return operation_id


def _signed(body: str, event_id: str, secret: str) -> dict[str, str]:
    """The headers of a delivery, by somebody else's code."""
    now = datetime.now(UTC)
    return {
        "content-type": "application/json",
        "webhook-id": event_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(event_id, now, body),
    }


def _check_openai_accepts(event: str, job_id: str) -> None:
    headers = _signed(event, f"wh_{job_id}", SECRET)
    read = openai.OpenAI(api_key="not-a-secret", webhook_secret=SECRET).webhooks.unwrap(event, headers)
    if not isinstance(read, BatchCompletedWebhookEvent):
        raise StoryFailedError(f"openai's client.webhooks.unwrap reads a {type(read).__name__}")
    check("openai's client.webhooks.unwrap reads", (read.type, read.data.id), ("batch.completed", job_id))


def _check_end(world: World, body: dict[str, Any], before: set[str]) -> None:
    show("the operation", body)
    check("outcome", body["outcome"], "completed_with_errors")
    check("state", body["state"], "completed_with_errors")
    check("status", body["status"], "done")
    check("wait.result", body["wait"]["result"], "completed_with_errors")
    check("summary", body["summary"], SUMMARY)
    check("poll_after_seconds", body["poll_after_seconds"], None)
    check("attention", body["attention"], None)

    new = batch_ids(world) - before
    check("batches at ogx that were not there before", new, {body["remote_job_id"]})
    batch = world.batch(body["remote_job_id"])
    show("what ogx itself says of it", batch.model_dump(exclude_none=True))
    counts = batch.request_counts
    check("failed lines by ogx's own count", counts and (counts.total, counts.completed, counts.failed), (5, 4, 1))
    sent = [json.loads(line) for line in world.client.files.content(batch.input_file_id).text.splitlines()]
    check("custom ids that ogx was sent", sorted(line["custom_id"] for line in sent), sorted(QUESTIONS))

    _check_items(world, body["operation_id"])


def _check_items(world: World, operation_id: str) -> None:
    path = f"/v1/operations/{operation_id}/items"
    items = world.get(path)["items"]
    show("GET .../items", items)
    wanted = {custom_id: "failed" if custom_id == FAILING else "succeeded" for custom_id in QUESTIONS}
    check("outcome of each item", {item["item_id"]: item["outcome"] for item in items}, wanted)

    failed = world.get(f"{path}?outcome=failed")["items"]
    check("GET .../items?outcome=failed", [item["item_id"] for item in failed], [FAILING])
    one = world.get(f"{path}/{FAILING}")
    show(f"GET .../items/{FAILING}", one)
    check("its error is ogx's own", "This prompt was refused." in json.dumps(one), True)
    other = world.get(f"{path}/question-1")
    show("GET .../items/question-1", other)
    check("an answer is the model's", "You asked: What is a batch?" in json.dumps(other), True)


def batch_ids(world: World) -> set[str]:
    return {batch.id for batch in world.client.batches.list(limit=100)}

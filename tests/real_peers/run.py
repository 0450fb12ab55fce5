"""Runs `reconciled serve` against a real batch server that nobody here wrote, and tells what happened.

    python -m tests.real_peers.run

The server is `ogx`; it is installed into a virtual environment of its own, git-ignored, on the first run. Each story
sends one batch of which one line fails: the first is followed by polling alone, the second is polled so rarely that it
ends because an event rang. ogx sends no webhooks, so the event is sent here: signed by the `standardwebhooks`
package, and read by the `openai` package first, to be sure that it is what OpenAI's own users would accept.

Exit 0 only if every story passed. What cannot run (no Python 3.12, nothing to install from) is said, and counts as
failed: a story that was not told proves nothing.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import openai
from openai.types.batch import Batch
from openai.types.webhooks import BatchCompletedWebhookEvent
from standardwebhooks import Webhook

from tests.real_peers import chat_server, peers
from tests.real_peers.product import POLLED, RUNG, RUNG_BASE_SECONDS, Product, running_product

SECRET: Final = "whsec_" + b64encode(bytes(range(32))).decode()
WRONG_SECRET: Final = "whsec_" + b64encode(bytes(range(1, 33))).decode()

ENDPOINT: Final = "/v1/chat/completions"

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

#: What a batch of five lines may take at ogx, one of them slow, seconds. It was seen to take 5.
BATCH_SECONDS: Final = 60.0
#: How long the daemon is watched doing nothing between the end at ogx and the ring, seconds; arbitrary.
QUIET_SECONDS: Final = 3.0
#: From the ring to the end, seconds. A read and two downloads: far below, while the next poll is ten minutes away.
RING_SECONDS: Final = 30.0
#: Waits of one second, to show the way; after them one that holds to the end.
SHORT_WAITS: Final = 4


class StoryFailedError(Exception):
    """Something is not as it should be; the text says what was found and what was wanted."""


@dataclass(frozen=True)
class World:
    """What a story is told in."""

    product: Product
    ogx: peers.Ogx
    client: openai.OpenAI
    """The peer as its own users see it, past the product."""


def poll_alone(world: World) -> None:
    """A batch with one failed line ends completed_with_errors, found by polling alone."""
    before = _batch_ids(world)
    operation_id = _submit(world, POLLED)

    say("wait for the end: nothing but polls can tell it")
    body = _wait(world, operation_id, BATCH_SECONDS)

    _check_end(world, body, before)
    status = _get(world, "/v1/status")
    show("what the daemon says of its providers", _providers(status))
    _tell_evidence(world, operation_id)


def rung(world: World) -> None:
    """The same, when polls are ten minutes apart and a signed event rings: it ends at once."""
    before = _batch_ids(world)
    operation_id = _submit(world, RUNG)
    job_id = _wait_for_job(world, operation_id)

    say("watch the batch at ogx itself until it is over there")
    batch = _watch_at_ogx(world, job_id)
    check("status at ogx", batch.status, "completed")
    time.sleep(QUIET_SECONDS)
    body = _get(world, f"/v1/operations/{operation_id}")
    check(f"{QUIET_SECONDS:.0f} s after that the daemon, not rung yet, calls it done", body["done"], False)

    event = json.dumps(
        {
            "object": "event",
            "id": f"evt_{job_id}",
            "type": "batch.completed",
            "created_at": batch.completed_at,
            "data": {"id": job_id},
        }
    )
    show("the event", json.loads(event))
    _check_openai_accepts(event, job_id)
    forged = world.product.deliver(RUNG, event, _signed(event, f"wh_forged_{job_id}", WRONG_SECRET))
    check("the same event under another key is answered", forged.status, 401)
    body = _get(world, f"/v1/operations/{operation_id}")
    check("and moves nothing: done", body["done"], False)

    rung_at = time.monotonic()
    answer = world.product.deliver(RUNG, event, _signed(event, f"wh_{job_id}", SECRET))
    check("the event signed by standardwebhooks is answered", answer.status, 200)
    again = world.product.deliver(RUNG, event, _signed(event, f"wh_{job_id}", SECRET))
    check("and so is its duplicate", again.status, 200)
    body = _wait(world, operation_id, RING_SECONDS)
    took = time.monotonic() - rung_at
    say(f"from the ring to the end: {took:.2f} s, with the next poll {RUNG_BASE_SECONDS} s or more away")

    _check_end(world, body, before)
    status = _get(world, "/v1/status")
    show("what the daemon says of its providers", _providers(status))
    _tell_evidence(world, operation_id)


STORIES: Final[tuple[Callable[[World], None], ...]] = (poll_alone, rung)


# ---- steps ---------------------------------------------------------------------------------------------------


def _submit(world: World, provider: str) -> str:
    items = [
        {
            "custom_id": custom_id,
            "method": "POST",
            "url": ENDPOINT,
            "body": {"model": world.ogx.model, "messages": [{"role": "user", "content": question}]},
        }
        for custom_id, question in QUESTIONS.items()
    ]
    start = {
        "provider": provider,
        "request": {"endpoint": ENDPOINT, "completion_window": "24h"},
        "items": items,
        "labels": {"run": "real-peers"},
    }
    show("POST /v1/operations", {**start, "items": f"{len(items)} items, {FAILING} will be refused"})
    answer = world.product.call("POST", "/v1/operations", start)
    if answer.status != 202:
        raise StoryFailedError(f"the start was answered {answer.status}: {answer.body!r}")
    show("202", answer.body)
    check("done", answer.body["done"], False)
    check("outcome", answer.body["outcome"], None)
    operation_id: str = answer.body["operation_id"]
    location = answer.headers.get("location", "")
    check(f"Location {location} names it", location.endswith(f"/v1/operations/{operation_id}"), True)
    return operation_id


def _wait(world: World, operation_id: str, seconds: float) -> dict[str, Any]:
    """The operation's body once it is done; tells each new thing on the way."""
    deadline = time.monotonic() + seconds
    seen: object = None
    holds = [1] * SHORT_WAITS
    while True:
        hold = holds.pop() if holds else max(1, round(deadline - time.monotonic()))
        body = _get(world, f"/v1/operations/{operation_id}?wait={hold}", timeout=hold + 30)
        now = (body["state"], body["remote_status"], body["progress"])
        if now != seen:
            say(f"state {body['state']}, remote {body['remote_status']}, progress {json.dumps(body['progress'])}")
            say(f"  {body['message']}")
            seen = now
        if body["done"]:
            return body
        if body["wait"]["result"] == "needs_attention":
            raise StoryFailedError(f"a person is needed: {json.dumps(body['attention'])}")
        if time.monotonic() > deadline:
            raise StoryFailedError(f"not done within {seconds:.0f} s: {json.dumps(body)}")


def _wait_for_job(world: World, operation_id: str) -> str:
    deadline = time.monotonic() + BATCH_SECONDS
    while time.monotonic() < deadline:
        body = _get(world, f"/v1/operations/{operation_id}")
        if body["remote_job_id"]:
            job_id: str = body["remote_job_id"]
            say(f"state {body['state']}: the job at ogx is {job_id}")
            return job_id
        time.sleep(0.1)
    raise StoryFailedError(f"no job id within {BATCH_SECONDS:.0f} s: {json.dumps(body)}")


def _watch_at_ogx(world: World, job_id: str) -> Batch:
    deadline = time.monotonic() + BATCH_SECONDS
    seen = ""
    while time.monotonic() < deadline:
        batch = world.client.batches.retrieve(job_id)
        if batch.status != seen:
            say(f"ogx says {batch.status}")
            seen = batch.status
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        time.sleep(0.2)
    raise StoryFailedError(f"ogx did not finish {job_id} within {BATCH_SECONDS:.0f} s: {seen}")


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

    new = _batch_ids(world) - before
    check("batches at ogx that were not there before", new, {body["remote_job_id"]})
    batch = world.client.batches.retrieve(body["remote_job_id"])
    show("what ogx itself says of it", batch.model_dump(exclude_none=True))
    counts = batch.request_counts
    check("failed lines by ogx's own count", counts and (counts.total, counts.completed, counts.failed), (5, 4, 1))
    sent = [json.loads(line) for line in world.client.files.content(batch.input_file_id).text.splitlines()]
    check("custom ids that ogx was sent", sorted(line["custom_id"] for line in sent), sorted(QUESTIONS))

    _check_items(world, body["operation_id"])


def _check_items(world: World, operation_id: str) -> None:
    path = f"/v1/operations/{operation_id}/items"
    items = _get(world, path)["items"]
    show("GET .../items", items)
    wanted = {custom_id: "failed" if custom_id == FAILING else "succeeded" for custom_id in QUESTIONS}
    check("outcome of each item", {_item_id(item): item["outcome"] for item in items}, wanted)

    failed = _get(world, f"{path}?outcome=failed")["items"]
    check("GET .../items?outcome=failed", [_item_id(item) for item in failed], [FAILING])
    one = _get(world, f"{path}/{FAILING}")
    show(f"GET .../items/{FAILING}", one)
    check("its error is ogx's own", "This prompt was refused." in json.dumps(one), True)
    other = _get(world, f"{path}/question-1")
    show("GET .../items/question-1", other)
    check("an answer is the model's", "You asked: What is a batch?" in json.dumps(other), True)


def _tell_evidence(world: World, operation_id: str) -> None:
    rows = _get(world, f"/v1/operations/{operation_id}/history")["history"]
    say("GET .../history")
    for row in rows:
        move = f"{row['from']} -> {row['to']}" if row["kind"] == "move" else row["kind"]
        say(f"  {row['seq']:>3} {row['at']} {row['actor']!s:<24} {move}: {row['reason']} ({row['cause']})")
    check("kinds of history rows beyond move and fact", {row["kind"] for row in rows} - {"move", "fact"}, set())
    moves = [row["to"] for row in rows if row["kind"] == "move"]
    check("the last move leads to", moves[-1], "completed_with_errors")
    check("the one before it to", moves[-2], "result_collecting")
    check("accepted stands in it", moves.count("accepted"), 1)

    observations = _get(world, f"/v1/operations/{operation_id}/observations")["observations"]
    say("GET .../observations")
    for observation in observations:
        say(f"  {json.dumps(observation)[:300]}")


def _batch_ids(world: World) -> set[str]:
    return {batch.id for batch in world.client.batches.list(limit=100)}


def _get(world: World, path: str, *, timeout: float = 30) -> dict[str, Any]:
    answer = world.product.call("GET", path, timeout=timeout)
    if answer.status != 200 or not isinstance(answer.body, dict):
        raise StoryFailedError(f"GET {path} was answered {answer.status}: {answer.body!r}")
    return answer.body


def _item_id(item: dict[str, Any]) -> str:
    item_id: str = item["item_id"] if "item_id" in item else item["id"]
    return item_id


def _providers(status: dict[str, Any]) -> object:
    return status.get("providers", status)


# ---- transcript ----------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """One line of the transcript."""
    print(f"  {text}", flush=True)


def show(title: str, body: object) -> None:
    """A body, as JSON."""
    say(f"{title}:")
    for line in json.dumps(body, indent=2, ensure_ascii=False).splitlines():
        say(f"  | {line}")


def check(what: str, found: object, wanted: object) -> None:
    """Tells that something is as it should be. Raises: StoryFailedError where it is not."""
    if found != wanted:
        raise StoryFailedError(f"{what}: found {found!r}, wanted {wanted!r}")
    say(f"ok: {what}: {found!r}")


# ---- the run -------------------------------------------------------------------------------------------------


def run(peers_directory: Path, directory: Path) -> int:
    """Tells every story; the number of those that passed.

    Raises: peers.PeerMissingError, and StoryFailedError where the daemon does not stop as it should.
    """
    print(f"installing {peers.OGX} if it is not there yet", flush=True)
    command = peers.ensure_ogx(peers_directory / "ogx")
    passed = 0
    with peers.running_ogx(command, directory / "ogx") as ogx:
        print(f"{peers.OGX} answers at {ogx.base_url}", flush=True)
        client = openai.OpenAI(base_url=ogx.base_url, api_key="not-a-secret")
        with running_product(directory / "reconciled", ogx.base_url, SECRET) as product:
            print(f"reconciled is ready: API {product.api}, webhooks {product.hooks}", flush=True)
            world = World(product, ogx, client)
            for story in STORIES:
                passed += _tell(story, world)
            code = peers.stop(product.process)
            if code != 0:
                raise StoryFailedError(f"SIGTERM ended the daemon with {code}, wanted 0:\n{peers.tail(product.log)}")
    return passed


def _tell(story: Callable[[World], None], world: World) -> bool:
    print(f"\n{story.__name__}: {story.__doc__}", flush=True)
    try:
        story(world)
    except (StoryFailedError, openai.OpenAIError, OSError, LookupError, TypeError) as error:
        # LookupError, TypeError: a body without a field that the interface promises
        print(f"  FAILED: {type(error).__name__}: {error}", flush=True)
        print(f"  the end of the daemon's log:\n{peers.tail(world.product.log)}", flush=True)
        return False
    print(f"{story.__name__}: passed", flush=True)
    return True


def main() -> int:
    """The exit code: 0 only if every story was told and passed."""
    parser = argparse.ArgumentParser(description="Runs reconciled against a real batch server.")
    default = Path(__file__).resolve().parents[2] / ".real-peers"
    parser.add_argument("--peers", type=Path, default=default, help="where the peers are installed (%(default)s)")
    parser.add_argument("--keep", type=Path, help="keep all that the run writes in this new directory")
    arguments = parser.parse_args()
    # Asked to stop, it still ends what it started: SystemExit leaves through every `with`.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Everything is on this machine: a proxy meant for the outside must not be asked for it.
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = "127.0.0.1,localhost"
    try:
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True)
            passed = run(arguments.peers.resolve(), arguments.keep.resolve())
        else:
            with tempfile.TemporaryDirectory(prefix="real-peers-") as directory:
                passed = run(arguments.peers.resolve(), Path(directory))
    except (peers.PeerMissingError, StoryFailedError) as error:
        print(f"real peers: failed: {error}", file=sys.stderr)
        return 1
    if passed < len(STORIES):
        print(f"real peers: {len(STORIES) - passed} of {len(STORIES)} stories failed")
        return 1
    print(f"\nreal peers: {passed} stories passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

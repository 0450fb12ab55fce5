"""What every story needs: the product, the peer, the peer's official clients, and the steps that all take."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeVar

import anthropic
import openai
from anthropic.types.messages import MessageBatch
from openai.types.batch import Batch

from tests.real_peers import peers
from tests.real_peers.product import MESSAGES, MESSAGES_PATIENT, MESSAGES_RARELY, Product, send
from tests.real_peers.transcript import StoryFailedError, check, say

ENDPOINT: Final = "/v1/chat/completions"
#: What a batch of a few lines may take at ogx, one of them slow, seconds. It was seen to take 5.
BATCH_SECONDS: Final = 60.0
#: Waits of one second, to show the way; after them one that holds to the end.
SHORT_WAITS: Final = 4

#: A message needs a cap of its answer; arbitrary, the model answers with a dozen.
MAX_TOKENS: Final = 100

T = TypeVar("T")
_MESSAGE_ACCOUNTS: Final = frozenset({MESSAGES, MESSAGES_RARELY, MESSAGES_PATIENT})


@dataclass(frozen=True)
class World:
    """What a story is told in."""

    product: Product
    ogx: peers.Ogx
    client: openai.OpenAI
    """The peer as its own users see it, past the product."""
    messages: anthropic.Anthropic
    """The same, in the other shape."""
    patience: int
    """Seconds between two reads of the patient accounts."""

    def get(self, path: str, *, timeout: float = 30) -> dict[str, Any]:
        """A body of the local API. Raises: StoryFailedError."""
        answer = self.product.call("GET", path, timeout=timeout)
        if answer.status != 200 or not isinstance(answer.body, dict):
            raise StoryFailedError(f"GET {path} was answered {answer.status}: {answer.body!r}")
        return answer.body

    def operation(self, operation_id: str) -> dict[str, Any]:
        """The operation's body as it is now."""
        return self.get(f"/v1/operations/{operation_id}")

    def batch(self, job_id: str) -> Batch:
        """What ogx itself says of a batch, in OpenAI's shape."""
        return self.client.batches.retrieve(job_id)

    def message_batch(self, job_id: str) -> MessageBatch:
        """What ogx itself says of a batch, in Anthropic's shape."""
        return self.messages.messages.batches.retrieve(job_id)

    def status_at_ogx(self, job_id: str) -> str:
        """Its own word for a batch of either shape."""
        if is_message_batch(job_id):
            return self.message_batch(job_id).processing_status
        return self.batch(job_id).status

    def asked_of_the_model(self) -> list[str]:
        """Every question that has reached the model, in order."""
        answer = send("GET", f"{self.ogx.model_url}/asked", None, {})
        asked: list[str] = answer.body["asked"]
        return asked

    def cancels_at_ogx(self, job_id: str) -> list[int]:
        """With which status each cancel call for this job was answered, by ogx's own log."""
        path = f"/v1/{'messages/' if is_message_batch(job_id) else ''}batches/{job_id}/cancel"
        return [status for _, status in self.ogx.calls("POST", path)]


def is_message_batch(job_id: str) -> bool:
    """Whether an id is of Anthropic's shape."""
    return job_id.startswith("msgbatch_")


def start(
    world: World, provider: str, questions: Mapping[str, str], spans: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Starts an operation that asks `questions` (custom_id -> text), with deadlines of its own in `spans`.

    The 202's body. Raises: StoryFailedError.
    """
    body: dict[str, object] = {"provider": provider, "labels": {"run": "real-peers"}, **spans}
    asked = [
        (custom_id, {"model": world.ogx.model, "messages": [{"role": "user", "content": question}]})
        for custom_id, question in questions.items()
    ]
    if provider in _MESSAGE_ACCOUNTS:
        body["request"] = {}
        body["items"] = [{"custom_id": name, "params": {**what, "max_tokens": MAX_TOKENS}} for name, what in asked]
    else:
        body["request"] = {"endpoint": ENDPOINT, "completion_window": "24h"}
        body["items"] = [{"custom_id": name, "method": "POST", "url": ENDPOINT, "body": what} for name, what in asked]
    answer = world.product.call("POST", "/v1/operations", body)
    if answer.status != 202:
        raise StoryFailedError(f"the start was answered {answer.status}: {answer.body!r}")
    operation_id = answer.body["operation_id"]
    location = answer.headers.get("location", "")
    if not location.endswith(f"/v1/operations/{operation_id}"):
        raise StoryFailedError(f"Location {location} does not name {operation_id}")
    started: dict[str, Any] = answer.body
    return started


def wait(world: World, operation_id: str, seconds: float, *, is_asking_fine: bool = False) -> dict[str, Any]:
    """The operation's body once it is done; tells each new thing on the way.

    `is_asking_fine`: also once a person is needed. Raises: StoryFailedError.
    """
    deadline = time.monotonic() + seconds
    seen: object = None
    holds = [1] * SHORT_WAITS
    while True:
        hold = holds.pop() if holds else max(1, round(deadline - time.monotonic()))
        body = world.get(f"/v1/operations/{operation_id}?wait={hold}", timeout=hold + 30)
        now = (body["state"], body["remote_status"], body["progress"])
        if now != seen:
            say(f"state {body['state']}, remote {body['remote_status']}, progress {json.dumps(body['progress'])}")
            say(f"  {body['message']}")
            seen = now
        if body["done"] or (is_asking_fine and body["wait"]["result"] == "needs_attention"):
            return body
        if body["wait"]["result"] == "needs_attention":
            raise StoryFailedError(f"a person is needed: {json.dumps(body['attention'])}")
        if time.monotonic() > deadline:
            raise StoryFailedError(f"not done within {seconds:.0f} s: {json.dumps(body)}")


def wait_for_job(world: World, operation_id: str) -> str:
    """The id of its job at ogx, as soon as it is known."""
    body = until(
        f"{operation_id} has a job id",
        lambda: world.operation(operation_id),
        lambda body: body["remote_job_id"] is not None,
        BATCH_SECONDS,
    )
    say(f"state {body['state']}: the job at ogx is {body['remote_job_id']}")
    job_id: str = body["remote_job_id"]
    return job_id


def wait_for_end_at_ogx(world: World, job_id: str) -> str:
    """Its own last word for a batch, past the product."""
    ends = ("completed", "failed", "expired", "cancelled", "ended")
    return until(f"{job_id} ends at ogx", lambda: world.status_at_ogx(job_id), ends.__contains__, BATCH_SECONDS)


def wait_until_asked(world: World, questions: Sequence[str]) -> None:
    """Returns once all of these have reached the model."""
    until(
        f"the model is asked {', '.join(questions)}",
        world.asked_of_the_model,
        lambda asked: set(questions) <= set(asked),
        BATCH_SECONDS,
    )


def until(what: str, look: Callable[[], T], is_so: Callable[[T], bool], seconds: float) -> T:
    """What `look` sees once it is so; looks every tenth of a second. Raises: StoryFailedError."""
    deadline = time.monotonic() + seconds
    while not is_so(seen := look()):
        if time.monotonic() > deadline:
            raise StoryFailedError(f"not within {seconds:.0f} s: {what}; last seen: {seen!r}")
        time.sleep(0.1)
    return seen


def tell_evidence(world: World, operation_id: str, last_moves: Sequence[str]) -> None:
    """Shows history and observations; the last moves led to `last_moves`."""
    rows = world.get(f"/v1/operations/{operation_id}/history")["history"]
    say("GET .../history")
    for row in rows:
        move = f"{row['from']} -> {row['to']}" if row["kind"] == "move" else row["kind"]
        say(f"  {row['seq']:>3} {row['at']} {row['actor']!s:<24} {move}: {row['reason']} ({row['cause']})")
    check("kinds of history rows beyond move and fact", {row["kind"] for row in rows} - {"move", "fact"}, set())
    moves = [row["to"] for row in rows if row["kind"] == "move"]
    check("the last moves lead to", moves[-len(last_moves) :], list(last_moves))
    check("accepted stands in it", moves.count("accepted"), 1)

    observations = world.get(f"/v1/operations/{operation_id}/observations")["observations"]
    say("GET .../observations")
    for observation in observations:
        say(f"  {json.dumps(observation)[:300]}")


def outcomes(world: World, operation_id: str) -> dict[str, str]:
    """The outcome of each item, by its id."""
    items = world.get(f"/v1/operations/{operation_id}/items")["items"]
    return {item["item_id"]: item["outcome"] for item in items}


def decide(world: World, operation_id: str, decision: str, reason: str) -> dict[str, Any]:
    """A person's decision, taken; the body it left. Raises: StoryFailedError."""
    said = {"decision": decision, "by": "the run", "reason": reason}
    answer = world.product.call("POST", f"/v1/operations/{operation_id}/decisions", said)
    check(f"POST .../decisions {decision} is answered", answer.status, 200)
    body: dict[str, Any] = answer.body
    return body


def check_asks(world: World, body: Mapping[str, Any], reason: str, open_decisions: set[str]) -> None:
    """A person is asked, in the operation's own body and in the inbox alike."""
    attention = body["attention"] or {}
    check("it asks a person, attention.reason", attention.get("reason"), reason)
    say(f"  {attention['message']}")
    check("status", body["status"], "blocked")
    check("done", body["done"], False)
    check("outcome", body["outcome"], None)
    check("the question has a deadline", attention["deadline"] is not None, True)
    check("open decisions", {offer["decision"] for offer in attention["decisions"]}, open_decisions)
    inbox = world.get("/v1/inbox")["inbox"]
    entry: dict[str, Any] = next((entry for entry in inbox if entry["operation_id"] == body["operation_id"]), {})
    check("it stands in GET /v1/inbox as a", entry.get("kind"), "question")
    check("with the job", entry["evidence"]["remote_job_id"], body["remote_job_id"])
    check("and the same decisions", entry["decisions"], attention["decisions"])

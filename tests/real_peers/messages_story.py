"""Anthropic's shape to its end, by polling alone: no webhook tells of a message batch anywhere."""

import json
from typing import Any, Final

from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse

from tests.real_peers import chat_server
from tests.real_peers.product import MESSAGES
from tests.real_peers.transcript import check, say, show
from tests.real_peers.world import BATCH_SECONDS, World, outcomes, start, tell_evidence, wait

#: custom_id -> what is asked; one is refused by the model, one meets a broken model, one takes seconds.
QUESTIONS: Final = {
    "message-1": "What is a message?",
    "message-2": f"Please {chat_server.REFUSED} this one too.",
    "message-3": f"Take your time with this: {chat_server.SLOW}.",
    "message-4": "Und das auf Ünïcödé?",
    "message-5": f"And {chat_server.BROKEN} on this one.",
}
OUTCOMES: Final = {
    "message-1": "succeeded",
    "message-2": "failed",
    "message-3": "succeeded",
    "message-4": "succeeded",
    "message-5": "failed",
}
SUMMARY: Final = {"total": 5, "succeeded": 3, "failed": 2, "cancelled": 0, "expired": 0, "missing": 0}
#: ogx's type for our outcome.
TYPES: Final = {"succeeded": "succeeded", "failed": "errored", "cancelled": "canceled"}


def message_batch_polled(world: World) -> None:
    """A message batch with two failed requests ends completed_with_errors, found by polling alone."""
    before = _batch_ids(world)
    creates = len(world.ogx.calls("POST", "/v1/messages/batches"))
    say(f"POST /v1/operations: {len(QUESTIONS)} requests for {MESSAGES}; two of them will fail")
    body = start(world, MESSAGES, QUESTIONS)
    check("done", body["done"], False)
    operation_id = body["operation_id"]
    body = wait(world, operation_id, BATCH_SECONDS)

    show("the operation", body)
    check("outcome", body["outcome"], "completed_with_errors")
    check("status", body["status"], "done")
    check("wait.result", body["wait"]["result"], "completed_with_errors")
    check("summary", body["summary"], SUMMARY)
    check("attention", body["attention"], None)
    check("outcome of each item", outcomes(world, operation_id), OUTCOMES)

    job_id = body["remote_job_id"]
    check("batches at ogx that were not there before", _batch_ids(world) - before, {job_id})
    check("creates that reached ogx", len(world.ogx.calls("POST", "/v1/messages/batches")) - creates, 1)
    batch = world.message_batch(job_id)
    show("what ogx itself says of it, read by the anthropic package", json.loads(batch.to_json()))
    _check_is_documented(batch)
    counts = batch.request_counts
    check("its own counts", (counts.processing, counts.succeeded, counts.errored), (0, 3, 2))
    check("and none of the others", (counts.canceled, counts.expired), (0, 0))
    _check_lines(world, operation_id, list(world.messages.messages.batches.results(job_id)))
    tell_evidence(world, operation_id, ("result_collecting", "completed_with_errors"))


def _check_is_documented(batch: MessageBatch) -> None:
    """Fields that ogx leaves out are told: their documentation calls them null, never absent."""
    dumped = json.loads(batch.to_json())
    absent = sorted(name for name in MessageBatch.model_fields if name not in dumped)
    say(f"differs from its documentation: absent instead of null are {', '.join(absent) or 'no fields'}")
    url = str(batch.results_url)
    say(f"differs from its documentation: results_url is relative: {url}" if url.startswith("/") else f"at {url}")


def _check_lines(world: World, operation_id: str, lines: list[MessageBatchIndividualResponse]) -> None:
    """Our items against ogx's lines as the anthropic package reads them: each outcome, each text."""
    theirs = {line.custom_id: line.result.type for line in lines}
    ours = {name: TYPES[outcome] for name, outcome in outcomes(world, operation_id).items()}
    check("our items against ogx's lines, as the anthropic package reads them", ours, theirs)
    texts = {line.custom_id: _text(line.result.message) for line in lines if line.result.type == "succeeded"}
    for name, text in texts.items():
        check(f"the model's answer to {name} at ogx", text, f"You asked: {QUESTIONS[name]}")
        one = world.get(f"/v1/operations/{operation_id}/items/{name}")
        check("and here", json.dumps(text) in json.dumps(one), True)
    refused = world.get(f"/v1/operations/{operation_id}/items/message-2")
    show("GET .../items/message-2", refused)
    check("its error is ogx's own", "This prompt was refused." in json.dumps(refused), True)
    failed = world.get(f"/v1/operations/{operation_id}/items?outcome=failed")["items"]
    check("GET .../items?outcome=failed", [item["item_id"] for item in failed], ["message-2", "message-5"])
    for line in lines:
        if line.result.type == "errored":
            error = line.result.error.to_json(indent=None)
            say(f"differs from its documentation: an error without its envelope: {error}")
            break


def _text(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def _batch_ids(world: World) -> set[str]:
    return {batch.id for batch in world.messages.messages.batches.list(limit=100)}

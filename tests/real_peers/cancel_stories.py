"""Cancels: in mid-run, too late, and just as a batch ends. Each is one call, and the end is always ogx's own word."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from tests.real_peers import chat_server
from tests.real_peers.product import MESSAGES, MESSAGES_RARELY, POLLED, RUNG
from tests.real_peers.transcript import StoryFailedError, check, say, show
from tests.real_peers.world import (
    BATCH_SECONDS,
    World,
    check_asks,
    decide,
    is_message_batch,
    outcomes,
    start,
    tell_evidence,
    wait,
    wait_for_end_at_ogx,
    wait_for_job,
    wait_until_asked,
)

WISH: Final = {"by": "the run", "reason": "the answer is no longer needed", "effect": "what has not begun never runs"}
#: Far longer than a story: a cancel always comes before it is over.
LONG: Final = "TAKES 300 s"

#: Batches of each shape in the race.
RACERS: Final = 8
#: How long the model takes for each line of them, seconds; arbitrary, long enough to start all of them meanwhile.
RACE_SECONDS: Final = 1.5
#: When the first one's cancel comes, seconds after the model could be done with it, and how much later that of each
#: next one: from clearly before the end to a little after it. ogx was seen to need 0.1 to 0.3 s beside the model.
EARLIEST_SECONDS: Final = -0.3
STEP_SECONDS: Final = 0.1
#: Waiting for ogx's word on a cancel in the race, before a person is asked.
CANCEL_WITHIN_SECONDS: Final = 15

_TO_DECIDE_ON_A_RESULT: Final = {"collect_again", "accept", "give_up"}


def cancelled_in_mid_run(world: World) -> None:
    """A cancel in mid-run is one call; the end is ogx's, and what had been finished before it is counted."""
    say(f"start on {MESSAGES}, on {POLLED}, and on {POLLED} once more with nothing that could be finished in time")
    messages = start(world, MESSAGES, _half_done("m"))["operation_id"]
    lines = start(world, POLLED, _half_done("l"))["operation_id"]
    nothing = start(world, POLLED, {f"n-{n}": f"n-{n} {LONG}" for n in (1, 2, 3)})["operation_id"]
    for operation_id in (messages, lines, nothing):
        wait_for_job(world, operation_id)
    # Two run at once: once the third or fourth is asked, the first two have been answered and written down.
    wait_until_asked(world, [_half_done("m")["m-4"], _half_done("l")["l-4"], f"n-2 {LONG}"])

    for operation_id in (messages, lines, nothing):
        _cancel(world, operation_id)
        again = world.product.call("POST", f"/v1/operations/{operation_id}/cancel", {**WISH, "by": "somebody else"})
        check("asked again, by somebody else, it is answered", again.status, 202)
        check("with the first one's intent", again.body["cancel"]["by"], WISH["by"])

    _in_anthropics_shape(world, messages)
    _with_lost_answers(world, lines)
    body = wait(world, nothing, BATCH_SECONDS)
    check("nothing was finished: outcome", body["outcome"], "cancelled")
    check("summary", body["summary"], _summary(cancelled=3))
    check("status at ogx", world.status_at_ogx(body["remote_job_id"]), "cancelled")
    _check_one_cancel(world, body, [200], "accepted")


def cancelled_too_late(world: World) -> None:
    """A cancel that comes when the batch has ended there, unknown to us, is one call; the end is the batch's own."""
    for provider, refusal, word in ((RUNG, 409, "too_late"), (MESSAGES_RARELY, 400, "refused")):
        say(f"start on {provider}, whose next poll is ten minutes away")
        mark = "late-r" if provider == RUNG else "late-m"
        questions = {f"{mark}-1": "A quick one.", f"{mark}-2": f"One to {chat_server.REFUSED}."}
        operation_id = start(world, provider, questions)["operation_id"]
        say(f"ogx says {wait_for_end_at_ogx(world, wait_for_job(world, operation_id))}")
        check("the daemon calls it done", world.operation(operation_id)["done"], False)
        _cancel(world, operation_id)
        body = wait(world, operation_id, BATCH_SECONDS)
        check("outcome", body["outcome"], "completed_with_errors")
        check("summary", body["summary"], _summary(succeeded=1, failed=1))
        _check_one_cancel(world, body, [refusal], word)
        again = world.product.call("POST", f"/v1/operations/{operation_id}/cancel", WISH)
        check("asked again after the end, it is answered", again.status, 202)
        check("with the same end", again.body["outcome"], "completed_with_errors")
        _check_one_cancel(world, body, [refusal], word)
        tell_evidence(world, operation_id, ("cancel_requested", "result_collecting", "completed_with_errors"))


def cancelled_just_then(world: World) -> None:
    """Cancels thrown at batches just as they end: whoever wins, our end is ogx's, and no call is made twice."""
    spans = {"cancel_within": f"{CANCEL_WITHIN_SECONDS}s"}
    racers: list[tuple[float, str]] = []
    for n in range(RACERS):
        for provider in (POLLED, MESSAGES):
            operation_id = start(world, provider, _racer(provider, n), spans)["operation_id"]
            racers.append((time.monotonic() + RACE_SECONDS + EARLIEST_SECONDS + STEP_SECONDS * n, operation_id))
    refused = set()
    for moment, operation_id in sorted(racers):
        time.sleep(max(0.0, moment - time.monotonic()))
        answer = world.product.call("POST", f"/v1/operations/{operation_id}/cancel", WISH)
        if answer.status == 409:  # the daemon had read the end by then
            refused.add(operation_id)
        elif answer.status != 202:
            raise StoryFailedError(f"a cancel was answered {answer.status}: {answer.body!r}")
    say(f"{len(racers) - len(refused)} of {len(racers)} cancels were taken; the others were answered 409")

    ends: Counter[str] = Counter()
    for _, operation_id in racers:
        body = wait(world, operation_id, BATCH_SECONDS, is_asking_fine=True)
        if not body["done"]:
            body = _decided(world, body)
        ends[_as_ogx_says(world, body)] += 1
        calls = world.cancels_at_ogx(body["remote_job_id"])
        check("cancels that reached ogx, with its answers", len(calls), 0 if operation_id in refused else 1)
    say(f"how they ended at ogx: {dict(sorted(ends.items()))}")


# ---- steps ---------------------------------------------------------------------------------------------------


def _half_done(mark: str) -> dict[str, str]:
    """Two that are answered at once, one of them with a refusal, and three that no story waits for."""
    first = {f"{mark}-1": f"{mark}-1 is quick", f"{mark}-2": f"{mark}-2 is to {chat_server.REFUSED}"}
    return first | {f"{mark}-{n}": f"{mark}-{n} {LONG}" for n in (3, 4, 5)}


def _racer(provider: str, n: int) -> dict[str, str]:
    return {f"race-{i}": f"{provider} race {n}.{i} TAKES {RACE_SECONDS} s" for i in (1, 2)}


def _summary(**counts: int) -> dict[str, int]:
    whole = dict.fromkeys(("succeeded", "failed", "cancelled", "expired", "missing"), 0) | counts
    return {"total": sum(whole.values()), **whole}


def _cancel(world: World, operation_id: str) -> None:
    answer = world.product.call("POST", f"/v1/operations/{operation_id}/cancel", WISH)
    check("POST .../cancel is answered", answer.status, 202)
    check("it claims no end: done", answer.body["done"], False)
    check("outcome", answer.body["outcome"], None)
    cancel = answer.body["cancel"]
    check("the intent is kept", {name: cancel[name] for name in WISH}, WISH)
    say(f"  {answer.body['message']}")


def _in_anthropics_shape(world: World, operation_id: str) -> None:
    """ogx keeps what was finished: our balance is its own, line by line."""
    body = wait(world, operation_id, BATCH_SECONDS)
    show("the operation", body)
    check("outcome", body["outcome"], "cancelled")
    check("summary", body["summary"], _summary(succeeded=1, failed=1, cancelled=3))
    counts = world.message_batch(body["remote_job_id"]).request_counts
    theirs = (counts.succeeded, counts.errored, counts.canceled, counts.expired, counts.processing)
    check("ogx's own counts", theirs, (1, 1, 3, 0, 0))
    wanted = {"m-1": "succeeded", "m-2": "failed", "m-3": "cancelled", "m-4": "cancelled", "m-5": "cancelled"}
    check("outcome of each item", outcomes(world, operation_id), wanted)
    _check_one_cancel(world, body, [200], "accepted")
    tell_evidence(world, operation_id, ("cancel_requested", "cancelling", "result_collecting", "cancelled"))


def _with_lost_answers(world: World, operation_id: str) -> None:
    """ogx counts what was finished and keeps none of it: a person hears so, and accepts the loss."""
    body = wait(world, operation_id, BATCH_SECONDS, is_asking_fine=True)
    job_id = body["remote_job_id"]
    batch = world.batch(job_id)
    check("status at ogx", batch.status, "cancelled")
    counts = batch.request_counts
    check("finished by its own count", counts and (counts.total, counts.completed, counts.failed), (5, 1, 1))
    check("its output and error file", (batch.output_file_id, batch.error_file_id), (None, None))
    say("differs from its documentation: a cancelled batch has its partial results in the output file; ogx keeps none")
    check_asks(world, body, "result_unavailable", _TO_DECIDE_ON_A_RESULT)
    body = decide(world, operation_id, "accept", "ogx never writes down what a cancelled batch had finished")
    check("outcome", body["outcome"], "cancelled")
    check("summary: what was finished and cannot be had is missing", body["summary"], _summary(cancelled=3, missing=2))
    _check_one_cancel(world, body, [200], "accepted")
    tell_evidence(world, operation_id, ("cancelling", "result_collecting", "result_unavailable", "cancelled"))


def _check_one_cancel(world: World, body: Mapping[str, Any], statuses: list[int], answer: str) -> None:
    check("cancels that reached ogx, with its answers", world.cancels_at_ogx(body["remote_job_id"]), statuses)
    check("cancel.answer", body["cancel"]["answer"], answer)


def _decided(world: World, body: Mapping[str, Any]) -> dict[str, Any]:
    """The two questions that a lost race may leave, each checked against ogx and answered."""
    job_id, operation_id = body["remote_job_id"], body["operation_id"]
    word = world.status_at_ogx(job_id)
    if body["state"] == "cancellation_unconfirmed":
        check(
            "it was not confirmed, and ogx still says", word, "canceling" if is_message_batch(job_id) else "cancelling"
        )
        say("ogx took a cancel at the very end of a batch and never said more of it")
        return decide(world, operation_id, "give_up", "ogx never finishes this cancel")
    check("its result is not to be had, and ogx says", (body["state"], word), ("result_unavailable", "cancelled"))
    return decide(world, operation_id, "accept", "ogx never writes down what a cancelled batch had finished")


def _as_ogx_says(world: World, body: Mapping[str, Any]) -> str:
    """Holds our end against ogx's; ogx's in a word. Raises: StoryFailedError."""
    job_id, outcome = body["remote_job_id"], body["outcome"]
    if not is_message_batch(job_id):
        batch = world.batch(job_id)
        wanted = {"completed": "succeeded", "cancelled": "cancelled", "cancelling": "abandoned"}.get(batch.status)
        check(f"{job_id} is {batch.status} at ogx, and here", outcome, wanted)
        return f"batch {batch.status}"
    message_batch = world.message_batch(job_id)
    counts, word = message_batch.request_counts, message_batch.processing_status
    if word == "ended":
        cut = counts.canceled > 0
        check(
            f"{job_id} has {counts.canceled} canceled at ogx, and is here", outcome, "cancelled" if cut else "succeeded"
        )
        check("summary", body["summary"], _summary(succeeded=counts.succeeded, cancelled=counts.canceled))
        return f"message batch ended, {counts.canceled} canceled"
    check(f"{job_id} is {word} at ogx, and here", outcome, "abandoned")
    return f"message batch {word}"

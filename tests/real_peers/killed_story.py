"""ogx killed in mid-run and started again on the same files: its batches are never finished, and never called so."""

import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from tests.real_peers.product import MESSAGES_PATIENT, PATIENT, POLLED
from tests.real_peers.transcript import StoryFailedError, check, say, show
from tests.real_peers.world import (
    BATCH_SECONDS,
    World,
    check_asks,
    decide,
    is_message_batch,
    start,
    tell_evidence,
    until,
    wait,
    wait_for_job,
    wait_until_asked,
)

#: Longer than any run: these questions are never answered.
NEVER: Final = "TAKES 3000 s"
#: What five failed reads take on the account that is read every second or two, seconds: then its provider is paused.
OUTAGE_SECONDS: Final = 10
#: What is left between ogx's return and the result deadline at the least, seconds; arbitrary.
BESIDE_SECONDS: Final = 5
CANCEL_WITHIN_SECONDS: Final = 5
_TO_DECIDE_ON_A_TIME_OUT: Final = {"resume", "cancel", "give_up"}
_TO_DECIDE_ON_A_CANCEL: Final = {"cancel_again", "keep", "give_up"}


def killed_in_mid_run(world: World) -> None:
    """ogx, killed with SIGKILL and back again, says in_progress for ever: only our deadline ends the waiting."""
    # A read before the kill, the outage, the start at twice its usual time, and a read again after that.
    within = f"{round(2 * (world.patience + 1) + OUTAGE_SECONDS + 2 * world.ogx.start_seconds + BESIDE_SECONDS)}s"
    spans = {"result_within": within, "cancel_within": f"{CANCEL_WITHIN_SECONDS}s"}
    say(f"start one batch of each shape that no one will ever finish, with result_within {within}, and one more on")
    say(
        f"{POLLED} with a day for its result, which is read so often that ogx is left alone for a while once it is gone"
    )
    operations = [
        start(world, provider, _endless(provider), spans)["operation_id"] for provider in (PATIENT, MESSAGES_PATIENT)
    ]
    patient = start(world, POLLED, _endless(POLLED))["operation_id"]
    jobs = [wait_for_job(world, operation_id) for operation_id in (*operations, patient)]
    wait_until_asked(world, [text for p in (PATIENT, MESSAGES_PATIENT, POLLED) for text in _endless(p).values()])
    for operation_id in (*operations, patient):
        _until_read_as_running(world, operation_id)

    say("kill ogx")
    world.ogx.kill()
    _while_it_is_down(world, (*operations, patient))
    say("start ogx again, on the same files")
    world.ogx.start()
    say(f"it answers after {world.ogx.start_seconds:.1f} s")
    for job_id in jobs:
        check(f"ogx says of {job_id}", world.status_at_ogx(job_id), "in_progress")
    for operation_id in operations:
        body = _until_read_as_running(world, operation_id)
        if body["state"] != "observing":
            raise StoryFailedError(f"ogx was back too late for the deadline: {body['deadlines']}")
        say(f"it is read again: {body['message']}")

    asking = [wait(world, operation_id, BATCH_SECONDS, is_asking_fine=True) for operation_id in operations]
    for body in asking:
        show("the operation", body)
        check("wait.result", body["wait"]["result"], "needs_attention")
        check("state", body["state"], "result_timed_out")
        check_asks(world, body, "result_timed_out", _TO_DECIDE_ON_A_TIME_OUT)
        check(f"ogx still says of {body['remote_job_id']}", world.status_at_ogx(body["remote_job_id"]), "in_progress")
    _check_last_reads(world, asking)
    _given_up(world, operations[0])
    _cancelled_in_vain(world, operations[1])
    body = world.operation(patient)
    say(f"the one with a day for its result: {body['message']}")
    check("state", body["state"], "observing")
    check("done", body["done"], False)
    check("attention", body["attention"], None)


def _endless(provider: str) -> dict[str, str]:
    return {f"endless-{n}": f"{provider} endless {n} {NEVER}" for n in (1, 2)}


def _until_read_as_running(world: World, operation_id: str) -> dict[str, Any]:
    """Its body, once the present reads say that it runs, or it is watched no more."""
    return until(
        f"{operation_id} is read as running",
        lambda: world.operation(operation_id),
        lambda body: (
            body["state"] != "accepted"
            and body["remote_status"] == "in_progress"
            and "since then" not in body["message"]
        ),
        BATCH_SECONDS,
    )


def _while_it_is_down(world: World, operations: Sequence[str]) -> None:
    """Reads fail, people are told so, and nothing moves: neither an end nor a question comes of an outage."""
    for operation_id in operations:
        body = until(
            f"{operation_id} says that it cannot be read",
            partial(world.operation, operation_id),
            lambda body: "could not be read" in body["message"],
            BATCH_SECONDS,
        )
        say(body["message"])
    status = until(
        f"{POLLED} is paused",
        lambda: world.get("/v1/status")["providers"],
        lambda providers: providers[POLLED]["paused_until"] is not None,
        BATCH_SECONDS,
    )
    for provider in (PATIENT, MESSAGES_PATIENT, POLLED):
        told = {name: status[provider][name] for name in ("error_rate", "paused_until", "pause_reason")}
        say(f"GET /v1/status, {provider}: {told}")
    for operation_id in operations:
        body = world.operation(operation_id)
        check("while it is down: state", body["state"], "observing")
        check("done", body["done"], False)
        check("attention", body["attention"], None)
        check("it is not said to be running", "NOT known to be running" in body["message"], True)


def _check_last_reads(world: World, asking: Sequence[dict[str, Any]]) -> None:
    """The deadline was believed only after one more read, and since then nothing is read."""
    reads = [world.ogx.calls("GET", _path(body["remote_job_id"])) for body in asking]
    for body, calls in zip(asking, reads, strict=True):
        deadline = datetime.fromisoformat(body["deadlines"]["result"])
        asked = datetime.fromisoformat(body["attention"]["since"])
        last = [at for at, _ in calls if deadline <= at <= asked]
        check(f"reads between the deadline and the question, {(asked - deadline).total_seconds():.2f} s", len(last), 1)
    quiet = world.patience + 2  # longer than from one poll to the next
    time.sleep(quiet)
    later = [world.ogx.calls("GET", _path(body["remote_job_id"])) for body in asking]
    check(f"reads in the next {quiet} s", [len(b) - len(a) for a, b in zip(reads, later, strict=True)], [0, 0])


def _path(job_id: str) -> str:
    return f"/v1/{'messages/' if is_message_batch(job_id) else ''}batches/{job_id}"


def _given_up(world: World, operation_id: str) -> None:
    body = decide(world, operation_id, "give_up", "ogx forgot its work when it was killed")
    show("the operation", body)
    check("outcome", body["outcome"], "abandoned")
    check("status", body["status"], "failed")
    check("it says that the job may still run", "may still run and cost" in body["message"], True)
    check("status at ogx", world.status_at_ogx(body["remote_job_id"]), "in_progress")
    check("cancels that reached ogx", world.cancels_at_ogx(body["remote_job_id"]), [])
    tell_evidence(world, operation_id, ("result_timed_out", "abandoned"))


def _cancelled_in_vain(world: World, operation_id: str) -> None:
    """A cancel that ogx takes and nobody there carries out: it is never claimed."""
    body = decide(world, operation_id, "cancel", "perhaps it can still be stopped")
    check("it claims no end: done", body["done"], False)
    body = wait(world, operation_id, BATCH_SECONDS, is_asking_fine=True)
    check("state", body["state"], "cancellation_unconfirmed")
    check("cancel.answer", body["cancel"]["answer"], "accepted")
    check("status at ogx", world.status_at_ogx(body["remote_job_id"]), "canceling")
    say("ogx takes the cancel of a batch that nobody works on, and says canceling for ever")
    check_asks(world, body, "cancellation_unconfirmed", _TO_DECIDE_ON_A_CANCEL)
    check("cancels that reached ogx, with its answers", world.cancels_at_ogx(body["remote_job_id"]), [200])
    body = decide(world, operation_id, "give_up", "nobody at ogx works on it")
    check("outcome", body["outcome"], "abandoned")
    tell_evidence(world, operation_id, ("cancel_requested", "cancelling", "cancellation_unconfirmed", "abandoned"))

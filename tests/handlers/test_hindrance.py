"""What is said of an operation while nothing about it gets through, and of ends that came otherwise than was asked."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handlers import bodies
from reconcile.evidence import Collected, CreateNotAccepted, DeadlinePassed, JobRead, LookupFound
from reconcile.intents import CancelIntent
from reconcile.limits import Pause
from reconcile.model import Observation, Operation, Problems, Progress, ResultInfo, Schedule, Summary
from tests.handlers.ground import NOON, Ground, done, running
from tests.handlers.test_operations_api import DONE, STATUS, in_state

JOB = "batch_1"
OPEN = sorted(state for state in STATUS if state not in DONE and STATUS[state] != "blocked")


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state") as g:
        yield g


async def message(ground: Ground, operation: str) -> str:
    return str((await ground.get(f"/v1/operations/{operation}"))["message"])


def with_errors(op: Operation, errors: int, **more: Any) -> Operation:
    return replace(op, schedule=Schedule(due_at=NOON + 29_000, errors=errors, **more))


# ---- nothing gets through ----------------------------------------------------------------------------------------


async def test_a_create_that_is_not_accepted_says_how_often_and_what_it_came_to(ground: Ground) -> None:
    operation = await ground.start()
    assert "about to be sent" in await message(ground, operation)
    for times in ("1 time", "2 times"):
        await ground.apply(operation, CreateNotAccepted("connect"))
        told = await message(ground, operation)
        assert f"openai has not accepted it: tried {times}, the last came to connect." in told
        assert "NOT complete" in told
        assert "Check again after" in told
        assert "about to be sent" not in told


@pytest.mark.parametrize("state", ["create_pending", "observing", "result_collecting"])
async def test_an_operation_of_a_provider_that_is_left_alone_says_so_until_when_and_why(
    ground: Ground, state: str
) -> None:
    operation = await ground.operation(state, JOB)
    ground.daemon.peers["openai"].pause = Pause(NOON + 90_000, "credentials_refused", 1, NOON)
    told = await message(ground, operation)
    assert told.startswith("openai is being left alone until 2026-11-29T12:01:30Z (credentials_refused);")
    assert "NOT complete" in told
    assert "is running at" not in told
    ground.clock.advance(90_000)
    assert (await message(ground, operation)).startswith(
        "openai is being left alone but for one request at a time (credentials_refused)."
    )
    ground.daemon.peers["openai"].pause = Pause(None, "", 0, None)
    assert "left alone" not in await message(ground, operation)


@pytest.mark.parametrize("state", ["observing", "cancel_requested", "result_collecting"])
def test_an_operation_whose_provider_may_not_be_asked_says_what_puts_that_right(state: str) -> None:
    why = "openai is not in the configuration any more, so nothing is asked about this job."
    told = bodies.message(in_state(state), NOON, held=why)
    assert told.startswith(why)
    assert "NOT complete" in told
    assert "is being sent" not in told
    assert "are being fetched" not in told


@pytest.mark.parametrize("state", OPEN)
def test_no_message_of_an_operation_that_is_held_can_be_quoted_as_success(state: str) -> None:
    told = bodies.message(in_state(state), NOON, held="Nothing is sent.")
    assert told.startswith("Nothing is sent. ")
    assert "NOT complete" in told
    assert "Do not report success" in told
    assert "is running" not in told


def test_what_was_never_said_is_not_quoted() -> None:
    """No `None` in a sentence for people."""
    op = in_state("accepted", remote_status=None)
    gone = bodies.message(with_errors(op, 0, gone_reads=12), NOON)
    assert gone.startswith("openai has answered 12 times in a row that it does not know the job. The job is NOT")
    unread = bodies.message(with_errors(op, 1), NOON)
    assert unread.startswith("Reading the job at openai has failed 1 time in a row. The job is NOT")
    assert "None" not in gone + unread
    said = bodies.message(with_errors(replace(op, remote_status="in_progress"), 2), NOON)
    assert "2 times in a row; before that it was last said to be 'in_progress'." in said


# ---- ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["result_collecting", "result_validation_failed", "result_unavailable", "succeeded"])
def test_a_job_that_has_ended_shows_no_progress(state: str) -> None:
    """It would stand beside what was found in the result, and say something else."""
    op = in_state(state, progress=Progress(completed=0, total=1))
    assert bodies.operation(op, NOON)["progress"] is None
    assert bodies.operation(replace(op, state=in_state("observing").state), NOON)["progress"] is not None


@pytest.mark.parametrize("state", ["succeeded", "completed_with_errors", "failed"])
def test_a_cancel_that_lost_the_race_is_told_in_one_sentence(state: str) -> None:
    lost = " The job had ended before the cancel that was asked for took effect."
    intent = CancelIntent("c1", "ana", "r", "e", NOON, answer="accepted", may_remain="files")
    assert bodies.message(in_state(state, cancel=intent), NOON).endswith(lost)
    assert lost not in bodies.message(in_state(state), NOON)
    assert lost not in bodies.message(in_state("cancelled", cancel=intent), NOON)


async def test_what_was_accepted_says_despite_what_and_no_count_of_none(ground: Ground) -> None:
    operation = await ground.start()
    await ground.accept(operation, JOB)
    await ground.apply(operation, JobRead(done(JOB)))
    info = ResultInfo(attempt=1, bytes=1, sha256="0" * 64, content_type="text/plain", items=1)
    told = ("expected text/csv, got text/plain",)
    broken = replace(info, problems=Problems(broken=("content_type",)))
    await ground.apply(
        operation, Collected(broken, Summary(1, succeeded=1), differences=told, breaks_only_promises=True)
    )
    assert (await ground.row(operation)).state == "result_validation_failed"
    wish = {"decision": "accept", "by": "ana", "reason": "it is the right file"}
    answer = await ground.api("POST", f"/v1/operations/{operation}/decisions", body=wish)
    assert answer.json()["message"] == (
        "The work has ended, accepted by a person as it is, which is no full success: 1 of 1 item succeeded, 0 did not."
        " What was wrong with it: 'the result is not what the start expects: expected text/csv, got text/plain'."
    )


async def test_a_result_that_is_asked_for_too_early_says_that_the_job_has_not_ended(ground: Ground) -> None:
    operation = await ground.operation("observing", JOB)
    answer = await ground.api("GET", f"/v1/operations/{operation}/result")
    assert answer.status == 404
    assert answer.json()["detail"] == (
        "No end of the job has been seen, so there is no result yet. Do not report success."
        f" GET /v1/operations/{operation} tells how it stands."
    )
    await ground.apply(operation, JobRead(Observation("failed", remote_job_id=JOB)))
    answer = await ground.api("GET", f"/v1/operations/{operation}/result")
    assert "No result of this operation has been collected." in answer.json()["detail"]


IN_ITS_WORD = "the job has ended, in its word 'completed'; the operation is"
ENDS = {
    "succeeded": "the job has ended, and the operation with it as succeeded",
    "result_collecting": f"{IN_ITS_WORD} result_collecting and NOT complete",
    "result_validation_failed": f"{IN_ITS_WORD} result_validation_failed and NOT complete",
}


@pytest.mark.parametrize(("state", "told"), sorted(ENDS.items()))
async def test_a_cancel_that_comes_too_late_is_told_how_it_ended(ground: Ground, state: str, told: str) -> None:
    operation = await ground.operation(state, JOB)
    wish = {"by": "ana", "reason": "r", "effect": "e"}
    answer = await ground.api("POST", f"/v1/operations/{operation}/cancel", body=wish)
    assert answer.status == 409
    assert answer.json()["detail"].startswith(f"{told}. Nothing was changed.")


async def test_an_open_question_shows_its_candidates_where_the_operation_is_shown(ground: Ground) -> None:
    operation = await ground.operation("create_unknown", None)
    await ground.apply(operation, LookupFound(("batch_a", "batch_b"), is_sure=False))
    ground.clock.advance(16 * 60_000)
    await ground.apply(operation, DeadlinePassed("create"))
    body = await ground.get(f"/v1/operations/{operation}")
    assert body["state"] == "create_unresolved"
    assert [one["remote_job_id"] for one in body["attention"]["candidates"]] == ["batch_a", "batch_b"]

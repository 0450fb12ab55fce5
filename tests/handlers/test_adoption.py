"""Following a job that somebody else created: it is held by one operation, read, collected, and never created again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reconcile.evidence import Accepted, DeadlinePassed, JobRead
from reconcile.model import Observation
from tests.handlers.ground import Answer, Ground, done, event, signed
from tests.handlers.test_collect import JOB, Peer, batch, line, stage
from tests.handlers.test_operations_api import assert_problem
from tests.handlers.test_wishes import DAY, asking, decide, history

OTHER = "batch_other"


async def adopt(ground: Ground, job: Any = JOB, **fields: Any) -> Answer:
    body = {"provider": "openai", "remote_job_id": job, **fields}
    return await ground.api("POST", "/v1/operations", body=body)


async def test_an_adoption_is_answered_like_a_start_and_creates_nothing(ground: Ground) -> None:
    answer = await adopt(ground, caller="ana", labels={"team": "search"})
    body = answer.json()
    assert answer.status == 202
    assert answer.headers["Location"] == f"/v1/operations/{body['operation_id']}"
    assert (body["state"], body["status"], body["next_action"]) == ("accepted", "working", "poll")
    assert (body["remote_job_id"], body["adopted"], body["parent"]) == (JOB, True, None)
    assert body["started_at"] == body["created_at"]
    assert body["deadlines"] == {
        "create": None,
        "result": "2026-11-30T14:00:00.000Z",
        "cancel": None,
        "input": None,
    }
    assert "nothing has been read of it yet" in body["message"]
    assert "NOT complete" in body["message"]
    (row,) = await history(ground, body["operation_id"])
    assert (row["to"], row["actor"], row["reason"]) == ("accepted", "client:ana", f"adopted: follows {JOB}")


async def test_an_adopted_job_is_read_and_collected_and_nothing_is_sent_but_reads(tmp_path: Path) -> None:
    peer = Peer(reads=[batch(request_counts={"total": 2, "completed": 2, "failed": 0})])
    peer.files = {"file-out": line("a") + b"\n" + line("b")}
    async with stage(tmp_path / "state", peer) as on:
        body = await on.end((await adopt(on.ground)).json()["operation_id"])
    assert (body["outcome"], body["summary"]["succeeded"]) == ("succeeded", 2)
    assert {method for method, _ in peer.asked} == {"GET"}


async def test_a_job_that_an_operation_holds_is_refused_and_its_holder_named(ground: Ground) -> None:
    """N5."""
    holder = await ground.operation("observing", JOB)
    refusal = assert_problem(await adopt(ground), 409)
    assert refusal["operation_id"] == holder
    assert holder in refusal["detail"]
    assert (await adopt(ground, OTHER)).status == 202


async def test_of_parallel_adoptions_one_holds_the_job(ground: Ground) -> None:
    answers = await asyncio.gather(*(adopt(ground) for _ in range(10)))
    assert sorted(answer.status for answer in answers) == [202] + [409] * 9


async def test_an_adoption_repeated_under_its_key_is_the_same_operation(ground: Ground) -> None:
    """G5."""
    body = {"provider": "openai", "remote_job_id": JOB}
    key = {"Idempotency-Key": "monday"}
    first = await ground.api("POST", "/v1/operations", body=body, headers=key)
    again = await ground.api("POST", "/v1/operations", body=body, headers=key)
    assert (first.status, again.status) == (202, 202)
    assert first.json()["operation_id"] == again.json()["operation_id"]
    other = await ground.api("POST", "/v1/operations", body={**body, "remote_job_id": OTHER}, headers=key)
    assert_problem(other, 422)


@pytest.mark.parametrize("request_", [None, {}])
async def test_an_adoption_needs_no_request(ground: Ground, request_: Any) -> None:
    assert (await adopt(ground, request=request_)).status == 202


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"request": {"endpoint": "/v1/responses"}}, "/request"),
        ({"request": []}, "/request"),
        ({"items": []}, "/items"),
        ({"items": [{"custom_id": "a"}]}, "/items"),
        ({"create_within": "5m"}, "/create_within"),
        ({"remote_job_id": 5}, "/remote_job_id"),
        ({"remote_job_id": ""}, "/remote_job_id"),
        ({"remote_job_id": "."}, "/remote_job_id"),
        ({"remote_job_id": "a\u0000b"}, "/remote_job_id"),
        ({"remote_job_id": "x" * 513}, "/remote_job_id"),
    ],
)
async def test_an_adoption_that_cannot_be_is_told_where(ground: Ground, fields: Any, pointer: str) -> None:
    body = {"provider": "openai", "remote_job_id": JOB, **fields}
    refusal = assert_problem(await ground.api("POST", "/v1/operations", body=body), 422)
    assert refusal["errors"][0]["pointer"] == pointer
    assert ground.rows("SELECT count(*) FROM operations") == [(0,)]


@pytest.mark.parametrize(("given_up", "outcome"), [("decision", "abandoned"), ("deadline", "timed_out")])
async def test_the_job_of_an_operation_that_was_given_up_is_adopted_with_a_link_to_it(
    ground: Ground, given_up: str, outcome: str
) -> None:
    """J6: giving up is not the end."""
    before = await asking(ground, "result_timed_out")
    if given_up == "decision":
        assert (await decide(ground, before, "give_up")).status == 200
    else:
        ground.clock.advance(8 * DAY)
        await ground.apply(before, DeadlinePassed("attention"))
    assert (await ground.get(f"/v1/operations/{before}"))["outcome"] == outcome
    answer = await adopt(ground, "batch_1")
    body = answer.json()
    assert (answer.status, body["parent"]) == (202, before)
    assert (await history(ground, body["operation_id"]))[0]["facts"]["parent"] == before
    await ground.apply(body["operation_id"], JobRead(Observation("failed", remote_job_id="batch_1")))
    assert (await ground.get(body["status_url"]))["outcome"] == "failed"
    assert (await ground.get(f"/v1/operations/{before}"))["outcome"] == outcome


async def test_events_of_a_job_that_was_adopted_anew_concern_its_new_operation(ground: Ground) -> None:
    """J6, B5."""
    before = await asking(ground, "result_timed_out")
    await decide(ground, before, "give_up")
    operation = (await adopt(ground, "batch_1")).json()["operation_id"]
    ground.clock.advance(-27 * 3_600_000)
    body = event("batch_1")
    assert (await ground.hook(body, signed(body))).status == 200
    (holder,) = ground.rows(
        "SELECT o.operation_id FROM events e JOIN operations o ON o.key = e.operation_key WHERE e.event_id = 'msg_1'"
    )
    assert holder == (operation,)


async def test_of_two_jobs_for_one_operation_the_other_is_adopted_with_a_link(ground: Ground) -> None:
    """B4: chosen is one; the other is followed, and may be cancelled, as an operation of its own."""
    operation = await ground.operation("observing", JOB)
    await ground.apply(operation, Accepted(Observation("in_progress", remote_job_id=OTHER)))
    assert (await decide(ground, operation, "choose_job", remote_job_id=JOB)).status == 200
    body = (await adopt(ground, OTHER)).json()
    assert (body["state"], body["parent"]) == ("accepted", operation)
    wish = {"by": "ana", "reason": "one too many", "effect": "it stops"}
    answer = await ground.api("POST", f"{body['status_url']}/cancel", body=wish)
    assert answer.json()["state"] == "cancel_requested"
    assert (await ground.row(operation)).state == "observing"


async def test_a_job_that_some_lost_create_may_have_made_bears_no_link_to_it(ground: Ground) -> None:
    """A candidate without a sure marker is a guess: a link would claim more."""
    operation = await asking(ground, "create_unresolved")
    await ground.apply(operation, Accepted(Observation("in_progress", remote_job_id=OTHER), by_lookup=True))
    assert (await ground.row(operation)).candidates == (OTHER,)
    assert (await adopt(ground, OTHER)).json()["parent"] is None


async def test_an_event_that_came_before_the_adoption_is_applied_with_it(ground: Ground) -> None:
    """B5."""
    body = event(JOB)
    assert (await ground.hook(body, signed(body))).status == 200
    operation = (await adopt(ground)).json()["operation_id"]
    assert ground.events() == [("rings", 0)]
    await ground.apply(operation, JobRead(done(JOB)))
    assert (await ground.row(operation)).state == "result_collecting"

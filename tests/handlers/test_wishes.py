"""What people ask of an operation, over the real daemon: cancels that are sent once, decisions that do what they said.

The worker is off where a state must stand still; where something is sent, it is on, and the provider is a small one of
the test's own that counts what reached it.
"""

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconcile.evidence import (
    Accepted,
    CancelAnswer,
    CancelAnswered,
    CollectFailed,
    DeadlinePassed,
    JobRead,
    LookupFound,
    ReadFailed,
)
from reconcile.model import Observation
from tests.handlers.ground import EXPECT, FIXTURES, Answer, Ground, collected, done, running, until
from tests.handlers.test_collect import JOB as MADE
from tests.handlers.test_collect import Peer, Stage, answered, batch, files_of, fixture, line, stage
from tests.handlers.test_operations_api import assert_problem

JOB = "batch_1"
OTHER = "batch_2"
MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
CANCEL = {"by": "ana", "reason": "too slow", "effect": "the job stops"}
MAY_REMAIN = (
    "Items that were finished by then are done and billed. The uploaded input file, and an output and an error file"
    " where any item ran, stay in the account until somebody deletes them or they expire."
)


def decision(word: str, **more: Any) -> dict[str, Any]:
    return {"decision": word, "by": "ben", "reason": "looked at it", **more}


async def cancel(ground: Ground, operation: str, **fields: Any) -> Answer:
    return await ground.api("POST", f"/v1/operations/{operation}/cancel", body={**CANCEL, **fields})


async def decide(ground: Ground, operation: str, word: str, **more: Any) -> Answer:
    return await ground.api("POST", f"/v1/operations/{operation}/decisions", body=decision(word, **more))


async def history(ground: Ground, operation: str) -> list[Any]:
    rows: list[Any] = (await ground.get(f"/v1/operations/{operation}/history?limit=500"))["history"]
    return rows


# ---- the states that ask -----------------------------------------------------------------------------------------


async def asking(ground: Ground, state: str) -> str:
    """An operation that stands in `state` and waits for a person; the worker must be off."""
    match state:
        case "create_unresolved":
            operation = await ground.operation("create_unknown", None)
            ground.clock.advance(16 * MINUTE)
            await ground.apply(operation, DeadlinePassed("create", last_read=True))
        case "contract_violation":
            operation = await ground.operation("observing", JOB)
            await ground.apply(operation, Accepted(Observation("in_progress", remote_job_id=OTHER)))
        case "observation_failed":
            operation = await ground.operation("observing", JOB)
            for _ in range(20):
                await ground.apply(operation, ReadFailed("http_500"))
        case "result_timed_out":
            operation = await ground.operation("observing", JOB)
            ground.clock.advance(27 * HOUR)
            await ground.apply(operation, DeadlinePassed("result", last_read=True))
        case "cancellation_unconfirmed":
            operation = await ground.operation("observing", JOB)
            assert (await cancel(ground, operation)).status == 202
            await ground.apply(operation, CancelAnswered(CancelAnswer.REFUSED, "http_400"))
            await ground.apply(operation, JobRead(Observation("in_progress", remote_job_id=JOB)))
        case "result_unavailable":
            operation = await ground.operation("result_collecting", JOB)
            await ground.apply(operation, CollectFailed("http_404", is_final=True))
        case _:
            operation = await ground.operation("result_validation_failed", JOB)
    assert (await ground.row(operation)).state == state
    return operation


#: The table of attention: state, reason, decisions in the order of design.md. OpenAI batches are never blocked.
OPEN = {
    "create_unresolved": ("create_unresolved", ["adopt_job", "look_again", "resend", "give_up"]),
    "contract_violation": ("contract_violation", ["choose_job", "give_up"]),
    "observation_failed": ("errors", ["resume", "cancel", "give_up"]),
    "result_timed_out": ("result_timed_out", ["resume", "cancel", "give_up"]),
    "cancellation_unconfirmed": ("refused", ["cancel_again", "keep", "give_up"]),
    "result_unavailable": ("result_unavailable", ["collect_again", "give_up"]),
    "result_validation_failed": ("result_validation_failed", ["collect_again", "accept", "give_up"]),
}
ALL_DECISIONS = {word for _, words in OPEN.values() for word in words}
NEEDS_A_JOB = {"adopt_job", "choose_job"}


@pytest.mark.parametrize("state", OPEN)
async def test_a_question_shows_what_can_be_decided_and_what_each_decision_does(ground: Ground, state: str) -> None:
    """G8."""
    operation = await asking(ground, state)
    body = await ground.get(f"/v1/operations/{operation}")
    reason, words = OPEN[state]
    attention = body["attention"]
    assert (attention["reason"], [one["decision"] for one in attention["decisions"]]) == (reason, words)
    assert all(len(one["effect"]) > 40 and one["effect"].endswith(".") for one in attention["decisions"])
    assert attention["message"]
    assert attention["deadline"] > attention["since"]
    for word in ("success", "complete.", "succeeded"):
        assert word not in attention["message"].lower()
    assert body["done"] is False


async def test_who_is_not_asked_shows_no_question(ground: Ground) -> None:
    operation = await ground.operation("observing", JOB)
    assert (await ground.get(f"/v1/operations/{operation}"))["attention"] is None


# ---- decisions: each does what its effect said -------------------------------------------------------------------

#: (state, decision, more fields) -> (state afterwards, when the next thing is due, the next action)
DOES = [
    ("create_unresolved", "adopt_job", {"remote_job_id": JOB}, "accepted", "poll"),
    ("create_unresolved", "look_again", {}, "create_unknown", "reconcile_create"),
    ("create_unresolved", "resend", {}, "create_pending", "submit"),
    ("create_unresolved", "give_up", {}, "abandoned", None),
    ("contract_violation", "choose_job", {"remote_job_id": JOB}, "observing", "poll"),
    ("contract_violation", "choose_job", {"remote_job_id": OTHER}, "accepted", "poll"),
    ("contract_violation", "give_up", {}, "abandoned", None),
    ("observation_failed", "resume", {}, "observing", "poll"),
    ("observation_failed", "resume", {"within": "2h"}, "observing", "poll"),
    ("observation_failed", "cancel", {}, "cancel_requested", "send_cancel"),
    ("observation_failed", "give_up", {}, "abandoned", None),
    ("result_timed_out", "resume", {"within": "30m"}, "observing", "poll"),
    ("result_timed_out", "cancel", {}, "cancel_requested", "send_cancel"),
    ("result_timed_out", "give_up", {}, "abandoned", None),
    ("cancellation_unconfirmed", "cancel_again", {}, "cancel_requested", "send_cancel"),
    ("cancellation_unconfirmed", "keep", {}, "observing", "poll"),
    ("cancellation_unconfirmed", "give_up", {}, "abandoned", None),
    ("result_unavailable", "collect_again", {}, "result_collecting", "collect"),
    ("result_unavailable", "give_up", {}, "abandoned", None),
    ("result_validation_failed", "collect_again", {}, "result_collecting", "collect"),
    ("result_validation_failed", "accept", {}, "failed", None),
    ("result_validation_failed", "give_up", {}, "abandoned", None),
]


@pytest.mark.parametrize(("state", "word", "more", "then", "next_action"), DOES)
async def test_a_decision_does_what_its_effect_said_and_history_says_who_and_why(
    ground: Ground, state: str, word: str, more: dict[str, str], then: str, next_action: str | None
) -> None:
    """N32."""
    operation = await asking(ground, state)
    before = await ground.get(f"/v1/operations/{operation}")
    promised = {one["decision"]: one["effect"] for one in before["attention"]["decisions"]}[word]
    known = len(await history(ground, operation))

    answer = await decide(ground, operation, word, **more)

    assert answer.status == 200
    body = answer.json()
    assert body == await ground.get(f"/v1/operations/{operation}")
    assert (body["state"], body["next_action"], body["attention"]) == (then, next_action, None)
    said, *_, moved = (await history(ground, operation))[known:]
    assert (said["kind"], said["actor"]) == ("fact", "person:ben")
    assert said["cause"].startswith("decision:dec_")
    assert said["facts"] == {"decision": word, "by": "ben", "because": "looked at it", "effect": promised}
    assert (moved["to"], moved["actor"], moved["cause"]) == (then, "person:ben", said["cause"])
    if "within" in more:
        span = {"2h": 2 * HOUR, "30m": 30 * MINUTE}[more["within"]]
        assert (await ground.row(operation)).deadlines.result == ground.clock.now() + span
    if "remote_job_id" in more:
        assert body["remote_job_id"] == more["remote_job_id"]
    if then == "abandoned":
        assert (body["done"], body["outcome"]) == (True, "abandoned")
        assert "may still run" in body["message"] or "What it did may cost" in body["message"]


@pytest.mark.parametrize("state", [*OPEN, "observing", "result_collecting", "succeeded", "create_pending"])
async def test_a_decision_that_is_not_open_is_409_and_changes_nothing(ground: Ground, state: str) -> None:
    """N32."""
    operation = await (asking(ground, state) if state in OPEN else ground.operation(state, JOB))
    before = ground.everything()
    for word in sorted(ALL_DECISIONS - set(OPEN[state][1] if state in OPEN else [])):
        more = {"remote_job_id": OTHER} if word in NEEDS_A_JOB else {}
        refusal = assert_problem(await decide(ground, operation, word, **more), 409)
        assert f"{word} is not open" in refusal["detail"]
        assert "Nothing was changed" in refusal["detail"]
    assert ground.everything() == before


async def test_the_second_of_two_decisions_is_told_that_it_came_too_late(ground: Ground) -> None:
    """F29: whoever is second hears so, and nothing is done twice."""
    operation = await asking(ground, "create_unresolved")
    answers = await asyncio.gather(*(decide(ground, operation, "resend") for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    assert (await ground.row(operation)).resends == 1
    rows = await history(ground, operation)
    assert sum(row["facts"].get("decision") == "resend" for row in rows) == 1


async def test_two_people_who_decide_otherwise_do_not_both_win(ground: Ground) -> None:
    operation = await asking(ground, "result_timed_out")
    answers = await asyncio.gather(
        decide(ground, operation, "give_up"), decide(ground, operation, "resume"), decide(ground, operation, "cancel")
    )
    assert sorted(answer.status for answer in answers) == [200, 409, 409]
    rows = await history(ground, operation)
    assert sum("decision" in row["facts"] for row in rows) == 1


async def test_a_person_cannot_name_a_job_that_another_operation_holds(ground: Ground) -> None:
    """N5: told who holds it, and free to name another."""
    holder = await ground.operation("observing", JOB)
    operation = await asking(ground, "create_unresolved")
    before = ground.everything()
    refusal = assert_problem(await decide(ground, operation, "adopt_job", remote_job_id=JOB), 409)
    assert holder in refusal["detail"]
    assert ground.everything() == before
    assert (await decide(ground, operation, "adopt_job", remote_job_id=OTHER)).status == 200


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ([], "/"),
        ("resume", "/"),
        ({}, "/decision"),
        (decision("retry"), "/decision"),
        (decision("acknowledge"), "/decision"),
        ({**decision("resume"), "decision": 5}, "/decision"),
        ({**decision("resume"), "by": None}, "/by"),
        ({**decision("resume"), "by": ""}, "/by"),
        ({**decision("resume"), "by": "a\u202eb"}, "/by"),
        ({**decision("resume"), "by": "x" * 513}, "/by"),
        ({**decision("resume"), "reason": None}, "/reason"),
        ({**decision("resume"), "reason": "two\nlines"}, "/reason"),
        ({**decision("resume"), "reason": "x" * 2_001}, "/reason"),
        (decision("resume", within=5), "/within"),
        (decision("resume", within="soon"), "/within"),
        (decision("resume", within="0s"), "/within"),
        (decision("give_up", within="2h"), "/within"),
        (decision("resume", remote_job_id=JOB), "/remote_job_id"),
        (decision("adopt_job"), "/remote_job_id"),
        (decision("adopt_job", remote_job_id=7), "/remote_job_id"),
        (decision("adopt_job", remote_job_id=".."), "/remote_job_id"),
        (decision("resume", because="x"), "/because"),
    ],
)
async def test_a_decision_that_cannot_be_read_is_told_where(ground: Ground, body: Any, pointer: str) -> None:
    """I4."""
    operation = await asking(ground, "observation_failed")
    before = ground.everything()
    refusal = assert_problem(await ground.api("POST", f"/v1/operations/{operation}/decisions", body=body), 422)
    assert (refusal["errors"][0]["pointer"] or "/") == pointer
    assert ground.everything() == before


@pytest.mark.parametrize("call", ["cancel", "decisions"])
async def test_a_wish_for_no_operation_is_404_and_one_that_is_no_json_is_told(ground: Ground, call: str) -> None:
    operation = await ground.operation("observing", JOB)
    body = CANCEL if call == "cancel" else decision("resume")
    assert_problem(await ground.api("POST", f"/v1/operations/op_none/{call}", body=body), 404)
    path = f"/v1/operations/{operation}/{call}"
    assert_problem(await ground.api("POST", path, data=json.dumps(body).encode()), 415)
    json_type = {"Content-Type": "application/json"}
    assert_problem(await ground.api("POST", path, data=b'{"by": "a", "by": "b"}', headers=json_type), 400)
    assert_problem(await ground.api("GET", path), 405)


# ---- cancel ------------------------------------------------------------------------------------------------------


async def test_a_cancel_is_answered_202_recorded_and_claims_nothing(ground: Ground) -> None:
    """E1, E5, G1."""
    operation = await ground.operation("observing", JOB)
    answer = await cancel(ground, operation)
    body = answer.json()
    assert answer.status == 202
    assert answer.headers["Location"] == f"/v1/operations/{operation}"
    assert answer.headers["Retry-After"] == str(body["poll_after_seconds"])
    assert (body["state"], body["status"], body["done"]) == ("cancel_requested", "working", False)
    assert "NOT cancelled" in body["message"]
    assert body["cancel"] == {
        **CANCEL,
        "requested_at": "2026-11-29T12:00:00.000Z",
        "answer": None,
        "may_remain": MAY_REMAIN,
    }
    assert body["deadlines"]["cancel"] == "2026-11-29T12:15:00.000Z"
    row = (await history(ground, operation))[-1]
    assert (row["kind"], row["to"], row["actor"]) == ("move", "cancel_requested", "client:ana")
    assert row["cause"].startswith("cancel:can_")
    assert row["facts"]["by"] == "ana"
    assert row["facts"]["because"] == "too slow"
    assert row["facts"]["effect"] == "the job stops"


async def test_a_cancel_asked_again_is_the_same_answer(ground: Ground) -> None:
    """N15: whoever asks second, for whatever reason, gets the first intent."""
    operation = await ground.operation("observing", JOB)
    first = await cancel(ground, operation)
    before = await history(ground, operation)
    ground.clock.advance(1_000)
    again = await cancel(ground, operation, by="ben", reason="me too", effect="stop")
    assert again.status == 202
    assert again.json()["cancel"] == first.json()["cancel"]
    assert await history(ground, operation) == before


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("result_collecting", "the job has ended"),
        ("result_validation_failed", "the job has ended"),
        ("succeeded", "the job has ended"),
        ("failed", "the job has ended"),
        ("create_unresolved", "decide `give_up` or `adopt_job`"),
        ("contract_violation", "decide `choose_job` or `give_up`"),
    ],
)
async def test_a_cancel_where_nothing_can_be_cancelled_is_409_and_changes_nothing(
    ground: Ground, state: str, told: str
) -> None:
    operation = await (asking(ground, state) if state in OPEN else ground.operation(state, JOB))
    before = ground.everything()
    refusal = assert_problem(await cancel(ground, operation), 409)
    assert told in refusal["detail"]
    assert ground.everything() == before


async def test_a_cancel_of_what_was_cancelled_already_is_the_same_answer(ground: Ground) -> None:
    operation = await ground.start()
    assert (await cancel(ground, operation)).json()["state"] == "cancelled"
    before = ground.everything()
    again = await cancel(ground, operation, by="ben")
    assert (again.status, again.json()["cancel"]["by"]) == (202, "ana")
    assert again.headers["Retry-After"] == "0"
    assert ground.everything() == before


@pytest.mark.parametrize("name", ["by", "reason", "effect"])
@pytest.mark.parametrize("value", [None, "", 5, "a\nb", "x" * 2_001])
async def test_a_cancel_says_who_why_and_what_is_expected(ground: Ground, name: str, value: Any) -> None:
    """E1."""
    operation = await ground.operation("observing", JOB)
    refusal = assert_problem(await cancel(ground, operation, **{name: value}), 422)
    assert refusal["errors"][0]["pointer"] == f"/{name}"
    assert (await ground.row(operation)).state == "observing"


async def test_a_cancel_takes_no_other_field(ground: Ground) -> None:
    operation = await ground.operation("observing", JOB)
    assert assert_problem(await cancel(ground, operation, force=True), 422)["errors"][0]["pointer"] == "/force"


async def test_a_cancel_before_anything_was_sent_says_that_no_job_was_made(ground: Ground) -> None:
    """E6."""
    operation = await ground.start()
    body = (await cancel(ground, operation)).json()
    assert (body["state"], body["done"], body["outcome"]) == ("cancelled", True, "cancelled")
    assert "no job was made" in body["message"]
    assert body["cancel"]["may_remain"] == "An input file that was uploaded for it may stay in the account."


async def test_a_cancel_during_an_open_create_waits_and_says_so(ground: Ground) -> None:
    """E6."""
    operation = await ground.operation("create_unknown", None)
    body = (await cancel(ground, operation)).json()
    assert (body["state"], body["done"], body["status"]) == ("create_unknown", False, "pending")
    assert "waits" in body["message"]
    assert "NOT cancelled" in body["message"]
    assert body["cancel"]["by"] == "ana"
    await ground.apply(operation, Accepted(Observation("in_progress", remote_job_id=JOB), by_lookup=True))
    row = await ground.row(operation)
    assert row.state == "cancel_requested"
    assert (await history(ground, operation))[-1]["cause"].startswith("cancel:can_")


async def test_a_cancelled_job_repeats_what_may_remain(ground: Ground) -> None:
    """E5."""
    operation = await ground.operation("observing", JOB)
    await cancel(ground, operation)
    await ground.apply(operation, CancelAnswered(CancelAnswer.ACCEPTED))
    body = await ground.get(f"/v1/operations/{operation}")
    assert (body["state"], body["cancel"]["answer"]) == ("cancelling", "accepted")
    assert "NOT known to be cancelled" in body["message"]
    await ground.apply(operation, JobRead(Observation("cancelled", remote_job_id=JOB)))
    await ground.apply(operation, collected("failed"))
    body = await ground.get(f"/v1/operations/{operation}")
    assert body["state"] == "cancelled"
    assert body["cancel"]["may_remain"] == MAY_REMAIN
    assert MAY_REMAIN in body["message"]


async def test_a_success_that_wins_the_race_is_a_success_and_history_shows_the_order(ground: Ground) -> None:
    """E2, N15."""
    operation = await ground.operation("observing", JOB)
    await cancel(ground, operation)
    await ground.apply(operation, JobRead(done(JOB)))
    await ground.apply(operation, collected("succeeded"))
    body = await ground.get(f"/v1/operations/{operation}")
    assert (body["outcome"], body["cancel"]["by"]) == ("succeeded", "ana")
    moves = [row["to"] for row in await history(ground, operation) if row["kind"] == "move"]
    assert moves[-3:] == ["cancel_requested", "result_collecting", "succeeded"]


async def test_a_person_may_give_up_what_a_missing_provider_left(tmp_path: Path) -> None:
    """Its operations are still judged by the contract of their kind; nothing is sent."""
    async with running(tmp_path / "state") as ground:
        operation = await asking(ground, "observation_failed")
        running_job = await ground.operation("observing", OTHER)
    async with running(tmp_path / "state", providers={}) as ground:
        attention = (await ground.get(f"/v1/operations/{operation}"))["attention"]
        assert [one["decision"] for one in attention["decisions"]] == ["resume", "cancel", "give_up"]
        assert (await decide(ground, operation, "give_up")).json()["outcome"] == "abandoned"
        body = (await cancel(ground, running_job)).json()
        assert (body["state"], body["cancel"]["answer"]) == ("cancel_requested", None)
        assert "NOT cancelled" in body["message"]


# ---- over the wire -----------------------------------------------------------------------------------------------


@dataclass
class Account(Peer):
    """A provider whose create, upload and cancel can be held back."""

    cancel: Any = None
    listed: list[Any] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self) -> web.Application:
        app = super().app()
        app.router.add_post("/v1/batches/{job}/cancel", self._cancel)
        return app

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        return await answered(request, self.cancel or batch("cancelling", output=None))

    async def _list(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": self.listed, "has_more": False})

    def held(self, answer: Any) -> Any:
        """An answer that waits for the gate."""

        async def handler(_: web.Request) -> web.StreamResponse:
            await self.gate.wait()
            return web.json_response(answer)

        return handler

    @property
    def creates(self) -> int:
        return self.asked.count(("POST", "/v1/batches"))

    @property
    def cancels(self) -> int:
        return sum(method == "POST" and path.endswith("/cancel") for method, path in self.asked)


async def reached(on: Stage, path: str) -> None:
    async def is_there() -> bool:
        return any(asked == ("POST", path) for asked in on.peer.asked)

    await until(is_there)


async def in_state(on: Stage, operation: str, *states: str) -> Any:
    async def is_so() -> bool:
        return (await on.ground.row(operation)).state in states

    await until(is_so)
    return await on.ground.get(f"/v1/operations/{operation}")


async def test_a_cancel_is_sent_once_and_the_job_followed_to_its_end(tmp_path: Path) -> None:
    """E1, E2, E4: what had finished is still collected."""
    peer = Account(files={"file-out": line("a")})
    peer.reads = [batch("in_progress", output=None)]
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a", "b")
        await in_state(on, operation, "observing")
        answers = await asyncio.gather(*(cancel(on.ground, operation) for _ in range(20)))
        assert {answer.status for answer in answers} == {202}
        assert len({json.dumps(answer.json()["cancel"]) for answer in answers}) <= 2  # before and after its answer
        await in_state(on, operation, "cancelling")
        peer.reads = [batch("cancelling", output=None), batch("cancelled")]
        body = await on.end(operation)
    assert peer.cancels == 1
    assert (body["outcome"], body["cancel"]["answer"]) == ("cancelled", "accepted")
    assert body["summary"] == {"total": 2, "succeeded": 1, "failed": 0, "cancelled": 1, "expired": 0, "missing": 0}


async def test_a_cancel_before_the_create_left_lets_none_leave(tmp_path: Path) -> None:
    """N15: the upload was under way when the operation was withdrawn."""
    peer = Account()
    peer.upload = peer.held({"id": "file-in", "object": "file"})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        await reached(on, "/v1/files")
        body = (await cancel(on.ground, operation)).json()
        assert (body["state"], body["done"]) == ("cancelled", True)
        peer.gate.set()
        other = await on.submit("b")  # the worker goes on, and its next create is this one's
        peer.reads = [batch("in_progress", output=None)]
        await in_state(on, other, "observing")
        assert (await on.ground.row(operation)).state == "cancelled"
    assert peer.creates == 1
    assert peer.cancels == 0


async def test_a_cancel_during_an_open_create_is_sent_once_the_job_is_known(tmp_path: Path) -> None:
    """E6."""
    peer = Account(reads=[batch("in_progress", output=None)])
    peer.create = peer.held({"id": MADE, "object": "batch", "status": "validating", "input_file_id": "file-in"})
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        await reached(on, "/v1/batches")
        answers = await asyncio.gather(*(cancel(on.ground, operation) for _ in range(20)))
        assert {(answer.status, answer.json()["state"]) for answer in answers} == {(202, "create_pending")}
        assert all("NOT cancelled" in answer.json()["message"] for answer in answers)
        assert peer.cancels == 0
        peer.gate.set()
        await in_state(on, operation, "cancelling")
        peer.reads = [batch("cancelled", output=None)]
        body = await on.end(operation)
    assert (peer.creates, peer.cancels, body["outcome"]) == (1, 1, "cancelled")


async def test_a_cancel_whose_answer_is_a_no_asks_a_person_with_what_is_open(tmp_path: Path) -> None:
    """C38."""

    async def too_late(_: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no", "type": "invalid_request_error"}}, status=400)

    peer = Account(reads=[batch("in_progress", output=None)], cancel=too_late)
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        await in_state(on, operation, "observing")
        await cancel(on.ground, operation)
        body = await on.end(operation)
        assert (body["state"], body["attention"]["reason"]) == ("cancellation_unconfirmed", "refused")
        assert "still running" in body["attention"]["message"]
        peer.cancel = None
        assert (await decide(on.ground, operation, "cancel_again")).status == 200
        await in_state(on, operation, "cancelling")
        assert peer.cancels == 2


async def test_a_cancel_that_lost_the_race_ends_as_the_job_did(tmp_path: Path) -> None:
    """C38, E2: the story of the fixtures. The refusal is kept, the read decides."""
    story = EXPECT["stories"]["openai/cancel_lost_the_race"]
    refused = json.loads((FIXTURES / story["cancel_answer"]).read_bytes())

    async def too_late(_: web.Request) -> web.StreamResponse:
        peer.reads = [fixture(story["status"])]
        return web.json_response(refused["body"], status=refused["status"])

    peer = Account(reads=[batch("in_progress", output=None)], cancel=too_late, files=files_of(story))
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit(*story["submitted"])
        await in_state(on, operation, "observing")
        await cancel(on.ground, operation)
        body = await on.end(operation)
        assert (body["state"], body["summary"]) == (story["end"], story["summary"])
        assert await on.items(operation) == story["items"]
        assert body["cancel"]["answer"] == "too_late"
    assert peer.cancels == 1


async def test_a_decision_during_a_read_under_way_stands(tmp_path: Path) -> None:
    """What the read brings is judged on the row that the decision left."""
    peer = Account()
    peer.reads = [peer.held(batch("in_progress", output=None)), batch("in_progress", output=None)]
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")

        async def is_read() -> bool:
            return ("GET", f"/v1/batches/{MADE}") in peer.asked

        await until(is_read)
        assert (await cancel(on.ground, operation)).json()["state"] == "cancel_requested"
        peer.gate.set()
        body = await in_state(on, operation, "cancelling")
        assert body["cancel"]["answer"] == "accepted"
    assert peer.cancels == 1


async def test_an_adopted_job_named_by_a_person_is_followed_to_its_end(tmp_path: Path) -> None:
    """B2: the create's answer was lost and the list is empty; a person has looked at the account."""

    async def lost(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    peer = Account(create=lost, files={"file-out": line("a")}, reads=[batch()])
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a", create_within="1s")
        body = await on.end(operation)
        assert (body["state"], body["wait"]["result"]) == ("create_unresolved", "needs_attention")
        answer = await decide(on.ground, operation, "adopt_job", remote_job_id=MADE)
        assert answer.status == 200
        body = await on.end(operation)
    assert (body["outcome"], peer.creates) == ("succeeded", 1)


async def test_a_resend_that_a_person_allowed_is_the_same_create_once_more(tmp_path: Path) -> None:
    """N2, N3."""
    bodies: list[bytes] = []

    async def first_lost(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.read())
        if len(bodies) == 1:
            assert request.transport is not None
            request.transport.close()
        return web.json_response({**batch("validating", output=None), "id": JOB})

    peer = Account(create=first_lost, files={"file-out": line("a")}, reads=[{**batch(), "id": JOB}])
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a", create_within="1s")
        assert (await on.end(operation))["state"] == "create_unresolved"
        assert (await decide(on.ground, operation, "resend")).status == 200
        body = await on.end(operation)
    assert body["outcome"] == "succeeded"
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]


async def test_candidates_of_a_lost_create_are_shown_and_one_can_be_named(ground: Ground) -> None:
    operation = await asking(ground, "create_unresolved")
    await ground.apply(operation, LookupFound((JOB, OTHER), is_sure=False))
    body = (await decide(ground, operation, "adopt_job", remote_job_id=OTHER)).json()
    assert (body["state"], body["remote_job_id"]) == ("accepted", OTHER)
    assert (await ground.row(operation)).candidates == (JOB,)

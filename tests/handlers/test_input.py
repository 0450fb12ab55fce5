"""Input for a job that waits for it (G7): durable before it is promised, sent once, and told whatever became of it."""

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconcile.evidence import Accepted, CancelAsked, JobRead
from reconcile.model import Observation
from reconcile.provider import TakesInput
from reconcile.store.claims import ClaimWish
from reconcile.store.writer import Hooks
from tests.handlers.asking_provider import Account, Asks, Stage, asking_stage, lost, refusal
from tests.handlers.ground import NOON, Answer, Ground, HandClock, until
from tests.handlers.test_operations_api import assert_problem
from tests.handlers.test_wishes import cancel, decide, history

HOUR = 3_600_000
ANSWER = {"answer": "blue", "why": ["because", None, 1.5]}
SENT = b'{"message":{"answer":"blue","why":["because",null,1.5]}}'


async def give(ground: Ground, operation: str, data: Any = ANSWER, by: str = "ana") -> Answer:
    path = f"/v1/operations/{operation}/input?by={by}"
    return await ground.api("POST", path, data=json.dumps(data).encode(), headers={"Content-Type": "application/json"})


def spooled(on: Stage) -> list[str]:
    """The input files that stand in the spool."""
    return sorted(path.name for path in (on.ground.folder / "spool").iterdir())


async def in_state(on: Stage, state: str) -> str:
    """An operation brought to `state` by evidence; the worker must be off."""
    operation = await on.start()
    await on.ground.apply(operation, Accepted(Observation("running", remote_job_id="job_1")))
    if state == "observing":
        return operation
    await on.ground.apply(operation, JobRead(Observation("waiting", remote_job_id="job_1")))
    if state == "input_given":
        assert (await give(on.ground, operation)).status == 202
    elif state == "cancel_requested":
        await on.ground.apply(operation, CancelAsked("can_1", "ana", "x", "y"))
    elif state == "failed":
        await on.ground.apply(operation, JobRead(Observation("failed", remote_job_id="job_1")))
    assert (await on.ground.row(operation)).state == state
    return operation


# ---- asked and given ---------------------------------------------------------------------------------------------


async def test_a_blocked_job_says_what_it_waits_for_and_how_to_give_it(tmp_path: Path) -> None:
    """D4, G8: and it has a deadline."""
    async with asking_stage(tmp_path / "state", Account()) as on:
        operation = await on.blocked()
        body = await on.ground.get(f"/v1/operations/{operation}?wait=5")
        (entry,) = (await on.ground.get("/v1/inbox"))["inbox"]
    assert (body["status"], body["done"], body["wait"]["result"]) == ("blocked", False, "needs_attention")
    attention = body["attention"]
    assert attention["reason"] == "input_required"
    assert f"POST /v1/operations/{operation}/input" in attention["message"]
    assert [one["decision"] for one in attention["decisions"]] == ["cancel", "give_up"]
    assert attention["deadline"] is not None
    assert (entry["id"], entry["reason"]) == (operation, "input_required")
    assert entry["evidence"]["status_page"] == "https://status.asks.example"


async def test_what_is_given_is_sent_once_and_the_job_goes_on_to_its_end(tmp_path: Path) -> None:
    """G7."""
    account = Account()
    async with asking_stage(tmp_path / "state", account) as on:
        operation = await on.blocked()
        answer = await give(on.ground, operation)
        body = answer.json()
        assert answer.status == 202
        assert answer.headers["Location"] == f"/v1/operations/{operation}"
        assert (body["state"], body["status"], body["attention"]) == ("input_given", "working", None)
        assert "NOT complete" in body["message"]
        assert body["input"]["by"] == "ana"
        end = await on.ground.get(f"/v1/operations/{operation}?wait=10")
        rows = await history(on.ground, operation)
        kept = spooled(on)
    assert account.inputs == [SENT]
    assert (end["outcome"], end["input"]["answer"]) == ("succeeded", "accepted")
    given = next(row for row in rows if row["to"] == "input_given")
    assert given["actor"] == "client:ana"
    assert given["cause"] == f"input:{given['facts']['input']}"
    moves = [row["to"] for row in rows if row["kind"] == "move"]
    assert moves[moves.index("input_given") :] == ["input_given", "observing", "result_collecting", "succeeded"]
    assert kept == [f"{operation}.{given['facts']['input']}.json"]


@pytest.mark.parametrize("data", [None, 0, "text", [], {}, "ü" * 50_000])
async def test_any_json_is_taken(tmp_path: Path, data: Any) -> None:
    account = Account()
    async with asking_stage(tmp_path / "state", account) as on:
        operation = await on.blocked()
        assert (await give(on.ground, operation, data)).status == 202
        assert (await on.ground.get(f"/v1/operations/{operation}?wait=10"))["outcome"] == "succeeded"
    assert json.loads(account.inputs[0]) == {"message": data}


async def test_a_second_question_takes_a_second_input(tmp_path: Path) -> None:
    account = Account(then="waiting")
    async with asking_stage(tmp_path / "state", account) as on:
        operation = await on.blocked()
        assert (await give(on.ground, operation, 1)).status == 202

        async def asks_again() -> bool:
            row = await on.ground.row(operation)
            return row.state == "blocked" and row.input is not None

        await until(asks_again)
        account.then = "done"
        assert (await give(on.ground, operation, 2)).status == 202
        assert (await on.ground.get(f"/v1/operations/{operation}?wait=10"))["outcome"] == "succeeded"
    assert [json.loads(sent)["message"] for sent in account.inputs] == [1, 2]


async def test_of_twenty_who_answer_at_once_one_is_heard(tmp_path: Path) -> None:
    account = Account()
    async with asking_stage(tmp_path / "state", account) as on:
        operation = await on.blocked()
        answers = await asyncio.gather(*(give(on.ground, operation, n) for n in range(20)))
        await on.ground.get(f"/v1/operations/{operation}?wait=10")
        assert len(spooled(on)) == 1, "no file is left of those who came too late"
    assert sorted(answer.status for answer in answers) == [202] + [409] * 19
    assert len(account.inputs) == 1


# ---- where it is not taken ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["observing", "input_given", "cancel_requested", "failed"])
async def test_input_that_nobody_waits_for_is_409_and_leaves_nothing(tmp_path: Path, state: str) -> None:
    async with asking_stage(tmp_path / "state", Account(), worker=False, clock=HandClock()) as on:
        operation = await in_state(on, state)
        before, files = on.ground.everything(), spooled(on)
        refusal = assert_problem(await give(on.ground, operation), 409)
        assert "not waiting for input" in refusal["detail"]
        assert on.ground.everything() == before
        assert spooled(on) == files


async def test_a_provider_that_takes_none_says_so(ground: Ground) -> None:
    operation = await ground.operation("observing", "batch_1")
    refusal = assert_problem(await give(ground, operation), 409)
    assert "takes no input" in refusal["detail"]


@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        (b"{}", {}, 415),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"", {"Content-Type": "application/json"}, 400),
        (b"{", {"Content-Type": "application/json"}, 400),
        (b'{"a": 1, "a": 2}', {"Content-Type": "application/json"}, 400),
        (b"NaN", {"Content-Type": "application/json"}, 400),
        (b'"' + b"x" * 70_000 + b'"', {"Content-Type": "application/json"}, 413),
    ],
)
async def test_input_that_cannot_be_read_is_told_and_leaves_nothing(
    tmp_path: Path, data: bytes, headers: dict[str, str], status: int
) -> None:
    caps = {"caps": {"start_body": "64KiB"}}
    async with asking_stage(tmp_path / "state", Account(), worker=False, clock=HandClock(), sections=caps) as on:
        operation = await in_state(on, "blocked")
        answer = await on.ground.api("POST", f"/v1/operations/{operation}/input", data=data, headers=headers)
        assert_problem(answer, status)
        assert spooled(on) == []
        assert (await on.ground.row(operation)).state == "blocked"


async def test_a_cancel_or_giving_up_is_open_while_a_job_waits(tmp_path: Path) -> None:
    account = Account()
    async with asking_stage(tmp_path / "state", account) as on:
        operation = await on.blocked()
        assert_problem(await decide(on.ground, operation, "resume"), 409)
        assert (await decide(on.ground, operation, "cancel")).json()["state"] == "cancel_requested"
        assert (await on.ground.get(f"/v1/operations/{operation}?wait=10"))["outcome"] == "cancelled"
        assert account.cancels == 1
    async with asking_stage(tmp_path / "other", Account()) as on:
        operation = await on.blocked()
        assert (await decide(on.ground, operation, "give_up")).json()["outcome"] == "abandoned"
    async with asking_stage(tmp_path / "third", Account()) as on:
        operation = await on.blocked()
        assert (await cancel(on.ground, operation)).status == 202
        assert (await on.ground.get(f"/v1/operations/{operation}?wait=10"))["outcome"] == "cancelled"


async def test_a_provider_without_a_call_for_it_says_where_the_input_goes(tmp_path: Path) -> None:
    account = Account()
    async with asking_stage(tmp_path / "state", account, contract={"takes_input": False}) as on:
        operation = await on.blocked()
        message = (await on.ground.get(f"/v1/operations/{operation}"))["attention"]["message"]
        assert "only be given at asks itself" in message
        assert "/input" not in message
        account.state = "done"
        assert (await on.ground.get(f"/v1/operations/{operation}"))["done"] in (True, False)
        await on.state(operation, "succeeded")


# ---- what became of it -------------------------------------------------------------------------------------------


async def test_a_refusal_is_shown_and_the_job_waits_on(tmp_path: Path) -> None:
    account = Account(input_answers=[refusal(422)])
    async with asking_stage(tmp_path / "state", account) as on:
        operation = await on.blocked()
        await give(on.ground, operation)
        body = await on.state(operation, "blocked")
        assert body["attention"]["reason"] == "input_required"
        assert "http_422" in body["attention"]["message"]
        assert body["input"]["answer"] == "refused"
        assert (await give(on.ground, operation, "better")).status == 202
        assert (await on.ground.get(f"/v1/operations/{operation}?wait=10"))["outcome"] == "succeeded"
    assert len(account.inputs) == 2


async def test_what_was_surely_not_taken_is_sent_again_unchanged(tmp_path: Path) -> None:
    account = Account(input_answers=[refusal(429, **{"Retry-After": "1"})])
    async with asking_stage(tmp_path / "state", account) as on:
        operation = await on.blocked()
        await give(on.ground, operation)
        end = await on.ground.get(f"/v1/operations/{operation}?wait=10")
        rows = await history(on.ground, operation)
    assert end["outcome"] == "succeeded"
    assert account.inputs == [SENT, SENT]
    assert any("http_429" in row["reason"] and "sent again" in row["reason"] for row in rows)


@pytest.mark.parametrize("answer", [lost, refusal(500)])
async def test_a_lost_answer_is_never_sent_again_by_itself(tmp_path: Path, answer: Any) -> None:
    """One read tells whether the job moved; where it did not, a person is asked."""
    account = Account(input_answers=[answer])
    async with asking_stage(tmp_path / "state", account) as on:
        operation = await on.blocked()
        await give(on.ground, operation)
        body = await on.state(operation, "blocked")
        assert body["attention"]["reason"] == "input_unknown"
        assert "may arrive twice" in body["attention"]["message"]
        assert body["input"]["answer"] == "unknown"
        assert (await give(on.ground, operation)).status == 202
        assert (await on.ground.get(f"/v1/operations/{operation}?wait=10"))["outcome"] == "succeeded"
    assert len(account.inputs) == 2


async def test_a_job_that_moved_after_a_lost_answer_was_given_its_input(tmp_path: Path) -> None:
    account = Account()

    def taken_but_lost(request: web.Request) -> web.Response:
        account.state = "running"
        return lost(request)

    account.input_answers = [taken_but_lost]
    async with asking_stage(tmp_path / "state", account) as on:
        operation = await on.blocked()
        await give(on.ground, operation)
        await on.state(operation, "observing")
        account.state = "done"
        assert (await on.ground.get(f"/v1/operations/{operation}?wait=10"))["outcome"] == "succeeded"
    assert len(account.inputs) == 1


# ---- durable, over a restart -------------------------------------------------------------------------------------


async def test_the_file_is_there_before_the_intent_is_committed(tmp_path: Path) -> None:
    """A row never names what is not on the disk."""
    spool, seen = tmp_path / "state" / "spool", []

    def look(connection: sqlite3.Connection) -> None:
        found = connection.execute("SELECT living ->> '$.input.ref' FROM operations").fetchone()
        if found and found[0]:
            seen.append((tmp_path / "state" / found[0]).read_bytes())

    hooks = Hooks(before_commit=look)
    async with asking_stage(tmp_path / "state", Account(), worker=False, clock=HandClock(), hooks=hooks) as on:
        operation = await in_state(on, "blocked")
        assert (await give(on.ground, operation)).status == 202
    assert json.loads(seen[0]) == ANSWER
    assert len(list(spool.iterdir())) == 1


async def test_an_input_that_could_not_be_recorded_leaves_no_file(tmp_path: Path) -> None:
    async with asking_stage(tmp_path / "state", Account(), worker=False, clock=HandClock()) as on:
        operation = await in_state(on, "blocked")
        on.ground.daemon.store.stop()
        assert_problem(await give(on.ground, operation), 503)
        assert spooled(on) == []


async def test_an_input_that_was_promised_is_sent_after_a_restart(tmp_path: Path) -> None:
    """A6."""
    async with asking_stage(tmp_path / "state", Account(), worker=False, clock=HandClock()) as on:
        operation = await in_state(on, "input_given")
    account = Account()
    async with asking_stage(tmp_path / "state", account) as on:
        assert (await on.ground.get(f"/v1/operations/{operation}?wait=10"))["outcome"] == "succeeded"
    assert account.inputs == [SENT]


@pytest.mark.parametrize(("is_repeatable", "sent", "state"), [(False, 0, "blocked"), (True, 1, "succeeded")])
async def test_an_input_that_was_under_way_at_a_kill_is_sent_again_only_where_that_is_safe(
    tmp_path: Path, is_repeatable: bool, sent: int, state: str
) -> None:
    """What a restart finds: a mark without an answer."""
    async with asking_stage(tmp_path / "state", Account(), worker=False, clock=HandClock()) as on:
        operation = await in_state(on, "input_given")
        wish = ClaimWish("boot_killed", on.ground.clock.now(), 60_000, {"asks": 1})
        (claim,) = (await on.ground.daemon.store.claim(wish)).claims
        assert claim.operation.operation_id == operation
    account = Account()
    async with asking_stage(tmp_path / "state", account, contract={"input_is_repeatable": is_repeatable}) as on:
        body = await on.state(operation, "blocked", "succeeded")
    assert (body["state"], len(account.inputs)) == (state, sent)
    if state == "blocked":
        assert body["attention"]["reason"] == "input_unknown"


async def test_files_that_no_row_names_are_tidied_at_the_start_and_no_others(tmp_path: Path) -> None:
    async with asking_stage(tmp_path / "state", Account(), worker=False, clock=HandClock()) as on:
        operation = await in_state(on, "input_given")
        (named,) = spooled(on)
        for orphan in (f"{operation}.inp_lost.json", "op_gone.inp_1.json"):
            (on.ground.folder / "spool" / orphan).write_text("{}")
    async with asking_stage(tmp_path / "state", Account(), worker=False, clock=HandClock()) as on:

        async def is_tidy() -> bool:
            return spooled(on) == [named]

        await until(is_tidy)


async def test_an_input_whose_file_cannot_be_read_waits_and_is_told(tmp_path: Path) -> None:
    """Our own disk is no answer of the provider: nothing was sent, so it is sent once it can be."""
    async with asking_stage(tmp_path / "state", Account(), worker=False, clock=HandClock()) as on:
        operation = await in_state(on, "input_given")
        (name,) = spooled(on)
        away = tmp_path / "away"
        (on.ground.folder / "spool" / name).rename(away)
    account = Account()
    async with asking_stage(tmp_path / "state", account) as on:

        async def is_told() -> bool:
            return any(entry["event"] == "input_not_read" for entry in on.ground.logged)

        await until(is_told)
        assert (await on.ground.row(operation)).state == "input_given"
        away.rename(on.ground.folder / "spool" / name)
        assert (await on.ground.get(f"/v1/operations/{operation}?wait=10"))["outcome"] == "succeeded"
    assert account.inputs == [SENT]


async def test_an_input_that_waits_past_the_result_deadline_is_sent_and_then_the_deadline_fires(tmp_path: Path) -> None:
    """It was promised; that it may have arrived is said only where it may have."""
    clock = HandClock()
    async with asking_stage(tmp_path / "state", Account(), worker=False, clock=clock) as on:
        operation = await in_state(on, "input_given")
    clock.set(NOON + 2 * HOUR)
    clock.run()
    account = Account(then="running")
    async with asking_stage(tmp_path / "state", account, clock=clock) as on:
        body = await on.state(operation, "result_timed_out")
    assert account.inputs == [SENT]
    assert (body["input"]["answer"], body["attention"]["reason"]) == ("accepted", "result_timed_out")


# ---- the seam ----------------------------------------------------------------------------------------------------


def test_the_provider_of_these_tests_is_one_that_takes_input() -> None:
    assert isinstance(Asks(), TakesInput)

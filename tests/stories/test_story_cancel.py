"""A cancel is a wish, recorded before it is sent and sent once; what became of the job the provider says (F3, E).

The provider stands behind a gate, so that the cancels which reached it are counted past the daemon's own record.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from daemon.runtime import SystemDice
from daemon.standin.scenarios import SCENARIOS, Scenario
from daemon.standin.world import World
from tests.stories.gate import Arrival, Gate, answers, behind_a_gate
from tests.stories.ledger import violations
from tests.stories.stage import Actor, Answer, Client, Home, client_of, moves, serving, settle
from tests.stories.work import MESSAGES, STANDIN

WHY: Final = {"by": "ada", "reason": "asked for the wrong month", "effect": "no more items run"}
NEVER: Final = replace(SCENARIOS["never-ends"], duration_ms=400, cancel_ms=300, webhooks="lost")
RACE: Final = replace(SCENARIOS["cancel-race"], cancel_ms=300, webhooks="lost")
BRIEF: Final = replace(SCENARIOS["normal"], duration_ms=1_500, webhooks="lost")
ASKED: Final = ["create_pending", "accepted", "observing", "cancel_requested"]


def world_of(scenario: Scenario) -> World:
    """A provider whose jobs go so."""
    return World(scenario, ids=SystemDice().identifier)


@asynccontextmanager
async def on_stage(home: Home) -> AsyncIterator[tuple[Actor, Client]]:
    """A ready daemon and its client."""
    async with serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        yield daemon, client


def is_cancel(arrival: Arrival) -> bool:
    """Whether it asks for a cancel."""
    return arrival.method == "POST" and arrival.path.endswith("/cancel")


def cancels_at(gate: Gate) -> int:
    """How many cancels reached the provider's door."""
    return sum(map(is_cancel, gate.arrivals))


async def cancel(client: Client, operation_id: str) -> Answer:
    """Ask for a cancel."""
    return await client.call("POST", f"/v1/operations/{operation_id}/cancel", WHY)


async def running(client: Client, **how: Any) -> str:
    """The id of an operation whose job runs, some of its items done."""
    operation_id = await client.started(**how)
    await client.until_seen(operation_id, lambda body: body["elapsed_seconds"] >= 1)
    return operation_id


@pytest.mark.parametrize("provider", [STANDIN, MESSAGES])
async def test_story_cancel_that_is_confirmed_keeps_what_was_done(tmp_path: Path, provider: str) -> None:
    """Cancelled on the provider's own word only; the items that had run are collected and counted (E1, E4, E5)."""
    home = settle(tmp_path, base="200ms", cap="400ms", messages="127.0.0.1")
    world, gate = world_of(NEVER), Gate()
    async with behind_a_gate(home, world, gate), on_stage(home) as (daemon, client):
        operation_id = await running(client, provider=provider)
        taken = await cancel(client, operation_id)
        again = await cancel(client, operation_id)
        body = await client.end_of(operation_id)
        late = await cancel(client, operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    # Then the answer claimed nothing but the intent, and asking again sent nothing more.
    assert (taken.status, again.status, late.status) == (202, 202, 202)
    assert (taken.body["done"], taken.body["outcome"]) == (False, None)
    assert "NOT cancelled yet" in taken.body["message"]
    assert taken.body["cancel"]["may_remain"]
    assert cancels_at(gate) == world.truth().cancels == 1
    # ... and the end is the provider's, with two of five items done.
    assert (body["outcome"], body["cancel"]["answer"]) == ("cancelled", "accepted")
    assert {name: count for name, count in body["summary"].items() if count} == {
        "total": 5,
        "succeeded": 2,
        "cancelled": 3,
    }
    assert moves(history) == [*ASKED, "cancelling", "result_collecting", "cancelled"]
    intent = next(row for row in history if row["to"] == "cancel_requested")
    assert WHY["reason"] in intent["reason"]


@pytest.mark.parametrize("provider", [STANDIN, MESSAGES])
async def test_story_job_that_completes_after_an_accepted_cancel_is_a_success(tmp_path: Path, provider: str) -> None:
    """Having sent a cancel is not cancelled: the job won, and the history tells it in order (D2, E2)."""
    home = settle(tmp_path, base="200ms", cap="400ms", messages="127.0.0.1")
    world, gate = world_of(RACE), Gate()
    async with behind_a_gate(home, world, gate), on_stage(home) as (daemon, client):
        operation_id = await running(client, provider=provider)
        taken = await cancel(client, operation_id)
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    assert taken.status == 202
    assert (body["outcome"], body["cancel"]["answer"], body["summary"]["succeeded"]) == ("succeeded", "accepted", 5)
    assert moves(history) == [*ASKED, "cancelling", "result_collecting", "succeeded"]
    ended = next(row for row in history if row["to"] == "result_collecting")
    assert "had asked for a cancel before that" in ended["reason"]
    assert cancels_at(gate) == 1


async def test_story_terminal_result_arrives_while_the_cancel_is_on_its_way(tmp_path: Path) -> None:
    """The job ends before its cancel gets there; the refusal is kept, one read tells the true end (F3)."""
    home, world, ended = settle(tmp_path, base="200ms", cap="400ms"), world_of(BRIEF), asyncio.Event()

    async def holds_cancels(arrival: Arrival) -> None:
        if is_cancel(arrival):
            await ended.wait()

    gate = Gate(holds_cancels)
    async with behind_a_gate(home, world, gate), on_stage(home) as (daemon, client):
        operation_id = await running(client)
        await cancel(client, operation_id)
        while (await client.of_provider("batches?limit=1"))["data"][0]["status"] != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        ended.set()
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    assert (body["outcome"], body["cancel"]["answer"]) == ("succeeded", "too_late")
    assert moves(history) == [*ASKED, "result_collecting", "succeeded"]
    assert cancels_at(gate) == 1
    assert violations(home, world.truth(), {operation_id}) == []


async def test_story_cancel_that_is_accepted_and_never_done_is_unconfirmed(tmp_path: Path) -> None:
    """After its deadline a person is asked, with what was sent; nobody ever claims a cancel (E3, N15)."""
    home, gate = settle(tmp_path, base="200ms", cap="400ms"), Gate()
    world = world_of(replace(NEVER, cancel_ms=3_600_000))
    async with behind_a_gate(home, world, gate), on_stage(home) as (daemon, client):
        operation_id = await running(client, cancel_within="2s")
        await cancel(client, operation_id)
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    assert (body["state"], body["status"], body["outcome"]) == ("cancellation_unconfirmed", "blocked", None)
    assert body["attention"]["reason"] == "cancellation_unconfirmed"
    assert "may still be running" in body["message"]
    assert moves(history) == [*ASKED, "cancelling", "cancellation_unconfirmed"]
    assert history[-1]["cause"] == "deadline:cancel"
    assert cancels_at(gate) == 1


@pytest.mark.parametrize("status", [404, 409])
async def test_story_cancel_that_is_refused_while_the_job_runs_is_unconfirmed(tmp_path: Path, status: int) -> None:
    """The provider will not cancel, and the job still runs: a question, neither cancelled nor failed (E3)."""
    home, world = settle(tmp_path, base="200ms", cap="400ms"), world_of(NEVER)
    error = {"message": "no", "type": "invalid_request_error", "param": None, "code": None}
    gate = Gate(answers(is_cancel, web.json_response({"error": error}, status=status)))
    async with behind_a_gate(home, world, gate), on_stage(home) as (daemon, client):
        operation_id = await running(client)
        await cancel(client, operation_id)
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    assert (body["state"], body["attention"]["reason"]) == ("cancellation_unconfirmed", "refused")
    assert body["cancel"]["answer"] == {404: "refused", 409: "too_late"}[status]
    assert moves(history) == [*ASKED, "cancellation_unconfirmed"]
    assert cancels_at(gate) == 1


async def test_story_cancel_asked_before_the_job_is_known_is_sent_once_it_is(tmp_path: Path) -> None:
    """The create is under way: the intent waits for the job's id, and no time is lost then (E6)."""
    home, gate = settle(tmp_path, base="200ms", cap="400ms"), Gate()
    world = world_of(replace(NEVER, create_answer_after_ms=1_500))
    async with behind_a_gate(home, world, gate), on_stage(home) as (daemon, client):
        operation_id = await client.started()
        while not gate.creates():  # noqa: ASYNC110 - the gate only counts
            await asyncio.sleep(0.02)
        taken = await cancel(client, operation_id)
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    assert (taken.status, taken.body["state"], taken.body["done"]) == (202, "create_pending", False)
    assert (body["outcome"], body["remote_job_id"]) == ("cancelled", world.truth().jobs[0].id)
    assert moves(history)[:2] == ["create_pending", "accepted"]
    assert "cancel_requested" in moves(history)
    assert (gate.creates(), cancels_at(gate)) == (1, 1)


async def test_story_cancel_before_anything_was_sent_withdraws_the_work(tmp_path: Path) -> None:
    """Surely never sent: cancelled at once, and no create leaves when the provider is there (E6, N15)."""
    home, world, gate = settle(tmp_path, base="200ms", cap="400ms"), world_of(BRIEF), Gate()
    async with on_stage(home) as (daemon, client):
        operation_id = await client.started()
        taken = await cancel(client, operation_id)
        async with behind_a_gate(home, world, gate):
            other = await client.end_of(await client.started())
            body = await client.get(f"/v1/operations/{operation_id}")
            assert await daemon.stop() == 0

    assert (taken.status, taken.body["outcome"]) == (202, "cancelled")
    assert (body["outcome"], body["remote_job_id"]) == ("cancelled", None)
    assert other["outcome"] == "succeeded"
    assert (gate.creates(), cancels_at(gate), len(world.truth().jobs)) == (1, 0, 1)


@pytest.mark.parametrize("arrives", [True, False])
async def test_story_killed_while_the_cancel_is_unanswered(tmp_path: Path, arrives: bool) -> None:
    """A real kill between the send and the answer: read, not sent again; cancelled only if the provider says so."""
    # Given a provider that holds the cancel, and takes it in or never got it.
    home, sent, goes_on = settle(tmp_path, base="200ms", cap="400ms"), asyncio.Event(), asyncio.Event()
    world = world_of(NEVER)

    async def holds_cancels(arrival: Arrival) -> web.Response | None:
        if not is_cancel(arrival):
            return None
        if arrives:
            world.cancel(world.truth().jobs[0].id, arrival.at)
        sent.set()
        await goes_on.wait()
        return web.Response(status=500)

    gate = Gate(holds_cancels)
    async with behind_a_gate(home, world, gate), client_of(home) as client:
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            operation_id = await running(client, cancel_within="3s")
            await cancel(client, operation_id)
            await sent.wait()
            assert await daemon.stop(signal.SIGKILL) == -signal.SIGKILL
        goes_on.set()
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            body = await client.end_of(operation_id)
            assert await daemon.stop() == 0

    assert body["state"] == ("cancelled" if arrives else "cancellation_unconfirmed")
    assert cancels_at(gate) == 1

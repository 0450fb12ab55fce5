"""A create without an answer: found again by a mark, or by the operator's word, and never sent blindly (B2)."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from daemon.runtime import SystemClock, SystemDice
from daemon.standin.scenarios import find_scenario
from daemon.standin.world import World
from tests.stories.stage import Client, Home, client_of, moves, provider, serving, settle

CLAUDE: Final = "claude"
IDS: Final = tuple(f"q-{n}" for n in range(4))
NORMAL: Final = find_scenario("normal")
_PROVIDER: Final = """\
[providers.{name}]
kind = "{kind}"
base_url = "http://127.0.0.1:{standin}/v1"
api_key = {{ env = "STORY_KEY" }}
{settings}
[providers.{name}.poll]
base = "200ms"
cap = "400ms"
sweep = "400ms"
[providers.{name}.limits]
requests_per_second = 1000
[providers.{name}.create]
{create}
"""


def home_of(folder: Path, *, kind: str = "anthropic_batches", settings: str = "", create: str = "") -> Home:
    """A home whose daemon knows the provider once more, with the operator's own words for a lost create."""
    home = settle(folder, base="200ms", cap="400ms")
    with home.config.open("a") as file:
        file.write(_PROVIDER.format(name=CLAUDE, kind=kind, standin=home.standin, settings=settings, create=create))
    return home


@asynccontextmanager
async def playing(home: Home, world: World) -> AsyncIterator[Client]:
    """The provider, the ready daemon, and a client of the daemon."""
    async with provider(home, world), serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        yield client


def world_of(scenario: str, *, speed: float = 4) -> World:
    return World(find_scenario(scenario), ids=SystemDice().identifier, speed=speed)


def body_of(ids: tuple[str, ...] = IDS) -> dict[str, Any]:
    """A start of one request for each id."""
    params = {"model": "example-model", "max_tokens": 64, "messages": [{"role": "user", "content": "hello"}]}
    return {"provider": CLAUDE, "request": {}, "items": [{"custom_id": name, "params": params} for name in ids]}


async def started(client: Client, kind: str = "anthropic_batches") -> str:
    body = body_of()
    if kind == "openai_batch":
        items = [{"custom_id": name, "url": "/v1/responses", "body": {"model": "m", "input": name}} for name in IDS]
        body |= {"request": {"endpoint": "/v1/responses"}, "items": items}
    answer = await client.call("POST", "/v1/operations", body)
    assert answer.status == 202, answer
    return str(answer.body["operation_id"])


def seed_foreign(world: World) -> str:
    """A batch of as many requests that somebody else on the account made just now."""
    return world.message_batches.seed_job(items=len(IDS), now_ms=SystemClock().now(), scenario=NORMAL)


async def test_a_create_without_an_answer_is_found_again_by_its_marked_ids_and_not_sent_twice(tmp_path: Path) -> None:
    """Its results show whose it is, a stranger's batch of the same size notwithstanding; no client meets the mark."""
    # Given a provider that makes a batch and never answers, an account with other users, and marked items.
    home, world = home_of(tmp_path, settings="mark_items = true"), world_of("lost-create-response")
    async with playing(home, world) as client:
        stranger = seed_foreign(world)

        # When a batch is started, and waited for.
        operation_id = await started(client)
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        items = (await client.get(f"/v1/operations/{operation_id}/items"))["items"]
        one = await client.get(f"/v1/operations/{operation_id}/items/{IDS[0]}")
        answer = await client.call("GET", f"/v1/operations/{operation_id}/result")
        truth = world.truth()

    # Then it succeeded by the one create that was ever sent.
    assert (body["outcome"], truth.creates) == ("succeeded", 1)
    (made,) = [job.id for job in truth.jobs if job.id != stranger]
    assert body["remote_job_id"] == made
    assert moves(history)[:3] == ["create_pending", "create_unknown", "accepted"]
    found = next(row for row in history if row["to"] == "accepted")
    assert found["reason"] == f"the job was found by look-up: {made}"
    # ... the ids towards the provider bore a mark, and nobody else ever saw it.
    mark = operation_id[-12:]
    sent = [line["custom_id"] for line in map(json.loads, world.message_batches.results(made, SystemClock().now()))]
    assert sorted(sent) == [f"{mark}_{name}" for name in IDS]
    assert [(item["item_id"], item["outcome"]) for item in items] == [(name, "succeeded") for name in IDS]
    assert one["lines"][0]["custom_id"] == IDS[0]
    assert sorted(json.loads(line)["custom_id"] for line in answer.body.splitlines()) == list(IDS)
    assert mark not in answer.body.decode()
    assert len(answer.body) == body["result"]["bytes"]
    # ... and the peeks stand in the record, as reads that look for the job.
    asked = home.rows("SELECT purpose, status FROM requests WHERE purpose IN ('create', 'lookup') ORDER BY sent_at")
    assert asked[0] == {"purpose": "create", "status": None}
    assert {"purpose": "lookup", "status": 200} in asked


async def test_the_only_batch_of_the_right_size_is_taken_where_the_operator_says_so(tmp_path: Path) -> None:
    """create.adopt = "by_count": at once, by its number of items alone, and its ids prove it afterwards."""
    home, world = home_of(tmp_path, create='adopt = "by_count"'), world_of("lost-create-response")
    async with playing(home, world) as client:
        operation_id = await started(client)
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)

    assert (body["outcome"], world.truth().creates) == ("succeeded", 1)
    assert body["remote_job_id"] == world.truth().jobs[0].id
    found = next(row for row in history if row["to"] == "accepted")
    assert "the only one of so many items" in found["reason"]
    assert "as the configuration allows" in found["reason"]


async def test_a_batch_that_was_taken_by_count_and_is_a_strangers_ends_before_a_person(tmp_path: Path) -> None:
    """The operator said that nobody else uses the account; somebody did. Nothing is believed of that batch."""
    home, world = home_of(tmp_path, create='adopt = "by_count"'), world_of("lost-create-request")
    async with playing(home, world) as client:
        stranger = seed_foreign(world)
        operation_id = await started(client)
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)

    assert (body["state"], body["remote_job_id"]) == ("contract_violation", stranger)
    assert body["attention"]["reason"] == "contract_violation"
    assert "its ids are not this operation\u2019s" in body["attention"]["message"]
    assert moves(history)[-2:] == ["result_collecting", "contract_violation"]
    assert world.truth().creates == 1


async def test_a_create_that_never_arrived_is_sent_again_once_where_the_operator_says_so(tmp_path: Path) -> None:
    """create.on_absent = "resend": after the settle time, same bytes, and both steps stand in the history."""
    create = 'on_absent = "resend"\nsettle = "1s"'
    home, world = home_of(tmp_path, create=create), world_of("lost-create-request")
    async with playing(home, world) as client:
        operation_id = await started(client)
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)

    assert (body["outcome"], world.truth().creates, len(world.truth().jobs)) == ("succeeded", 2, 1)
    assert moves(history)[:5] == ["create_pending", "create_unknown", "create_unresolved", "create_pending", "accepted"]
    unknown, unresolved, again = [row for row in history if row["kind"] == "move"][1:4]
    assert "the configuration allows a second one to arrive" in again["reason"]
    assert again["facts"]["resend_allowed_by"] == "create.on_absent"
    assert unresolved["at"] == again["at"]
    # ... and it was not sent again before the list had its second to show it.
    times = [row["sent_at"] for row in home.rows("SELECT sent_at FROM requests WHERE purpose = 'create' ORDER BY 1")]
    assert len(times) == 2
    assert times[1] - times[0] >= 1_000
    assert unknown["at"] < again["at"]


async def test_a_create_that_the_list_shows_late_is_not_sent_again_while_a_candidate_stands(tmp_path: Path) -> None:
    """A batch of the right size is no proof, and no absence either: a person is asked, with the candidate shown."""
    create = 'on_absent = "resend"\nsettle = "1s"\nwithin = "3s"'
    home, world = home_of(tmp_path, create=create), world_of("lost-create-response")
    async with playing(home, world) as client:
        operation_id = await started(client)
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)

    assert (body["state"], world.truth().creates) == ("create_unresolved", 1)
    assert moves(history) == ["create_pending", "create_unknown", "create_unresolved"]
    seen = next(row["facts"]["candidates"] for row in history if "candidates" in row["facts"])
    assert seen == [world.truth().jobs[0].id]


@pytest.mark.parametrize("kind", ["openai_batch", "anthropic_batches"])
async def test_the_first_job_that_shows_only_after_the_second_ran_ends_before_a_person(
    tmp_path: Path, kind: str
) -> None:
    """The list lagged longer than the operator believed: two jobs ran, and neither is passed over in silence (B4)."""
    # Given a create whose answer is lost, and a list that shows no job for longer than the settle time.
    late = replace(find_scenario("lost-create-response"), duration_ms=16_000, listed_after_ms=12_000)
    world = World(late, ids=SystemDice().identifier, speed=8)
    create = 'on_absent = "resend"\nsettle = "500ms"'
    home = home_of(tmp_path, kind=kind, settings="mark_items = true", create=create)
    async with playing(home, world) as client:
        # When it is sent again, and the second job has ended.
        operation_id = await started(client, kind)
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        truth = world.truth()

    # Then a person is shown both, and nothing of the result is called a success.
    first, second = (job.id for job in truth.jobs)
    assert (body["state"], body["remote_job_id"], truth.creates) == ("contract_violation", second, 2)
    assert moves(history)[-2:] == ["result_collecting", "contract_violation"]
    assert history[-1]["facts"] == {**history[-1]["facts"], "held": second, "named": first}

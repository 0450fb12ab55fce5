"""The stand-in's Message Batches over real sockets, held to the provider's SDK."""

import asyncio
import io
import json
from typing import Any

import aiohttp
import anthropic
import pytest
import structlog
from anthropic import AsyncAnthropic
from anthropic.types.messages import MessageBatch
from anthropic.types.messages.batch_create_params import Request
from anthropic.types.shared import ErrorResponse
from openai import AsyncOpenAI

from daemon.standin.scenarios import SCENARIOS
from daemon.standin.serve import StandinOptions, run_standin
from tests.daemon.test_standin_anthropic import params, requests_of
from tests.daemon.test_standin_bench import (
    NORMAL,
    PATIENCE,
    Bench,
    CountingDice,
    ManualClock,
    TaskStarter,
    running,
    strictly,
)


async def start_batch(bench: Bench, *names: str, scenario: str | None = None) -> Any:
    requests: list[Request] = requests_of(*names, scenario=scenario)  # type: ignore[assignment]
    return await bench.anthropic.messages.batches.create(requests=requests)


async def test_the_sdk_creates_reads_lists_cancels_and_takes_the_results() -> None:
    async with running(SCENARIOS["partial-failure"]) as bench:
        batches = bench.anthropic.messages.batches
        names = [f"row-{n}" for n in range(8)]
        batch = await start_batch(bench, *names)
        raw = await batches.with_raw_response.retrieve(batch.id)
        assert strictly(MessageBatch, json.loads(await raw.text())).processing_status == "in_progress"
        assert raw.headers["request-id"].startswith("req_")
        with pytest.raises(anthropic.AnthropicError, match="Has it finished processing"):
            await batches.results(batch.id)

        bench.clock.advance(NORMAL.duration_ms)
        raw = await batches.with_raw_response.retrieve(batch.id)
        ended = strictly(MessageBatch, json.loads(await raw.text()))
        assert (ended.request_counts.succeeded, ended.request_counts.errored) == (6, 2)
        assert ended.results_url == f"{bench.url}/messages/batches/{batch.id}/results"
        seen = [line async for line in await batches.results(batch.id)]
        assert sorted(line.custom_id for line in seen) == names
        assert sorted(line.result.type for line in seen) == ["errored"] * 2 + ["succeeded"] * 6

        other = await start_batch(bench, "a")
        raw = await batches.with_raw_response.cancel(other.id)
        assert strictly(MessageBatch, json.loads(await raw.text())).processing_status == "canceling"
        assert [found.id async for found in batches.list(limit=1)] == [other.id, batch.id]
        with pytest.raises(anthropic.BadRequestError, match="has ended"):
            await batches.cancel(batch.id)
        assert bench.world.events_due(bench.clock.now()) == []


async def test_results_are_streamed_whole_from_the_address_that_was_told() -> None:
    async with running() as bench:
        job_id = bench.world.message_batches.seed_job(items=20_000, now_ms=bench.clock.now())
        bench.clock.advance(NORMAL.duration_ms)
        batch = await bench.anthropic.messages.batches.retrieve(job_id)
        assert batch.results_url
        headers = {"authorization": "Bearer any", "anthropic-version": "2023-06-01"}
        async with aiohttp.ClientSession(headers=headers) as session, session.get(batch.results_url) as response:
            assert response.headers["request-id"].startswith("req_")
            lines = (await response.read()).splitlines()
        assert len({json.loads(line)["custom_id"] for line in lines}) == 20_000


KEY, VERSION = {"x-api-key": "sk-ant-any"}, {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({}, 401, "authentication_error"),
        (VERSION, 401, "authentication_error"),
        ({"x-api-key": " "} | VERSION, 401, "authentication_error"),
        ({"authorization": "Bearer"} | VERSION, 401, "authentication_error"),
        (KEY, 400, "invalid_request_error"),
        (KEY | {"anthropic-version": "2024-01-01"}, 400, "invalid_request_error"),
    ],
)
async def test_without_a_key_and_a_version_nothing_is_answered(headers: Any, status: int, kind: str) -> None:
    async with running() as bench, aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{bench.url}/messages/batches") as response:
            body = await response.json()
            assert (response.status, body["error"]["type"]) == (status, kind)
            assert strictly(ErrorResponse, body).request_id == response.headers["request-id"]
        assert bench.world.truth().lists == 0


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b"\xff", b"[" * 100_000, b"9" * 5000])
async def test_a_create_body_that_is_no_object_is_a_400(body: bytes) -> None:
    async with (
        running() as bench,
        aiohttp.ClientSession(headers=KEY | VERSION) as session,
        session.post(f"{bench.url}/messages/batches", data=body) as response,
    ):
        assert response.status == 400
        strictly(ErrorResponse, await response.json())


async def test_a_create_body_may_be_larger_than_those_of_the_other_shape_but_is_capped() -> None:
    async with (
        running(message_batches={"max_body_bytes": 2_000_000}) as bench,
        aiohttp.ClientSession(headers=KEY | VERSION) as session,
    ):
        for size, status in ((1_500_000, 200), (2_500_000, 413)):
            asked = {"requests": [{"custom_id": "a", "params": params(system="x" * size)}]}
            body = io.BytesIO(json.dumps(asked).encode())
            async with session.post(f"{bench.url}/messages/batches", data=body) as response:
                assert response.status == status
                answer = await response.json()
        assert answer["error"]["type"] == "request_too_large"
        assert len(bench.world.truth().jobs) == 1


async def test_refusals_become_the_sdks_own_errors() -> None:
    async with running() as bench:
        batches = bench.anthropic.messages.batches
        with pytest.raises(anthropic.NotFoundError, match=r"Message batch not found\."):
            await batches.retrieve("msgbatch_missing")
        with pytest.raises(anthropic.BadRequestError, match=r"requests\.1\.custom_id"):
            await start_batch(bench, "a", "a")
        with pytest.raises(anthropic.BadRequestError, match="limit"):
            await batches.list(limit=1001)
        async with (
            aiohttp.ClientSession(headers=KEY | VERSION) as session,
            session.get(f"{bench.url}/messages/batches?limit=x") as response,
        ):
            assert response.status == 400


async def test_one_server_answers_both_shapes_and_names_its_own_address() -> None:
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    clock, supervisor = ManualClock(), TaskStarter()
    serving = run_standin(
        StandinOptions(speed=2),
        clock=clock,
        dice=CountingDice(),
        supervisor=supervisor,
        log=structlog.get_logger(),
        stop=stop,
        on_ready=ready.set_result,
    )
    task = supervisor.start("standin", serving)
    url = await asyncio.wait_for(ready, PATIENCE)
    async with (
        AsyncAnthropic(api_key="x", base_url=url, max_retries=0) as client,
        AsyncOpenAI(api_key="x", base_url=f"{url}/v1", max_retries=0) as other,
    ):
        requests: Any = requests_of("a", "b")
        batch = await client.messages.batches.create(requests=requests)
        assert (await other.batches.list()).data == []
        clock.advance(NORMAL.duration_ms // 2)
        batch = await client.messages.batches.retrieve(batch.id)
        assert batch.results_url == f"{url}/v1/messages/batches/{batch.id}/results"
        assert len([line async for line in await client.messages.batches.results(batch.id)]) == 2
    stop.set()
    await asyncio.wait_for(task, PATIENCE)

"""What a scenario does to a call, over real sockets: answers that are late, troubled or never given."""

import asyncio
import contextlib
import json
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from anthropic.types.shared import ErrorResponse
from openai import AsyncOpenAI

from daemon.standin.scenarios import SCENARIOS
from daemon.standin.wire import chunks
from tests.daemon.test_standin_anthropic import requests_of
from tests.daemon.test_standin_anthropic_face import start_batch
from tests.daemon.test_standin_bench import NORMAL, PATIENCE, Bench, input_of, running, strictly

FLAKY, LOST = SCENARIOS["flaky"], SCENARIOS["lost-create-response"]


async def raw_post(bench: Bench, path: str, body: object, *headers: str) -> bytes:
    """All that comes back on a connection of its own until the other side closes it."""
    host, port = bench.url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps(body).encode()
    head = [f"POST {path} HTTP/1.1", f"host: {host}:{port}", f"content-length: {len(data)}", *headers]
    writer.write("\r\n".join([*head, "", ""]).encode() + data)
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


# A create without an answer.


async def test_a_lost_create_closes_the_connection_with_not_a_byte_on_it() -> None:
    async with running(LOST) as bench:
        file = await bench.client.files.create(file=("in.jsonl", input_of(["a"])), purpose="batch")
        asked: Any = {"input_file_id": file.id, "endpoint": "/v1/responses", "completion_window": "24h"}
        assert await raw_post(bench, "/v1/batches", asked, "authorization: Bearer x") == b""
        (batch,) = (await bench.client.batches.list()).data
        assert batch.input_file_id == file.id
        again = await bench.client.batches.create(**asked)
        assert again.id != batch.id


async def test_a_lost_message_batch_closes_the_connection_with_not_a_byte_on_it() -> None:
    async with running(LOST) as bench:
        headers = ("x-api-key: x", "anthropic-version: 2023-06-01")
        asked = {"requests": requests_of("a", "b")}
        assert await raw_post(bench, "/v1/messages/batches", asked, *headers) == b""
        (batch,) = (await bench.anthropic.messages.batches.list()).data
        assert batch.request_counts.processing == 2
        again = await start_batch(bench, "a", "b")
        assert again.id != batch.id


async def test_an_sdk_that_repeats_a_lost_create_by_itself_makes_two_jobs() -> None:
    async with running(LOST) as bench:
        address = bench.url.removesuffix("/v1")
        async with (
            AsyncOpenAI(api_key="x", base_url=bench.url, max_retries=1) as client,
            AsyncAnthropic(api_key="x", base_url=address, max_retries=1) as other,
        ):
            file = await client.files.create(file=("in.jsonl", input_of(["a"])), purpose="batch")
            batch = await client.batches.create(
                input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
            )
            found = (await client.batches.list()).data
            assert [each.input_file_id for each in found] == [file.id] * 2
            assert found[0].id == batch.id
            requests: Any = requests_of("a")
            message_batch = await other.messages.batches.create(requests=requests)
            found_others = (await other.messages.batches.list()).data
            assert (len(found_others), found_others[0].id) == (2, message_batch.id)


async def test_an_sdk_that_does_not_repeat_hears_of_a_broken_connection() -> None:
    async with running(LOST) as bench:
        with pytest.raises(openai.APIConnectionError):
            await bench.start_job(["a"])
        with pytest.raises(anthropic.APIConnectionError):
            await start_batch(bench, "a")
        page = await bench.client.batches.list()
        assert [batch.metadata for batch in page.data] == [{"job": "1"}]
        assert bench.world.truth().creates == 2


async def test_the_webhook_of_a_job_whose_create_was_lost_comes_all_the_same() -> None:
    async with running() as bench:
        with pytest.raises(openai.APIConnectionError):
            await bench.start_job(["a"], scenario="lost-create-response")
        bench.clock.advance(NORMAL.duration_ms)
        _, body = await bench.receiver.next()
        assert json.loads(body)["data"]["id"] == bench.world.truth().jobs[0].id


# A create that is answered late.


async def test_an_early_webhook_arrives_while_the_create_is_still_waiting_for_its_answer() -> None:
    async with running() as bench:
        starting = asyncio.get_running_loop().create_task(bench.start_job(["a"], scenario="early-webhook"))
        await bench.clock.is_waited(3.0)
        bench.clock.advance(1_000)
        _, body = await bench.receiver.next()
        assert not starting.done()
        bench.clock.advance(2_000)
        batch = await asyncio.wait_for(starting, PATIENCE)
        assert json.loads(body)["data"]["id"] == batch.id
        assert batch.status == "validating", "the answer is that of the moment it was made"


async def test_a_message_batch_can_be_done_before_its_create_is_answered() -> None:
    async with running() as bench:
        starting = asyncio.get_running_loop().create_task(start_batch(bench, "a", scenario="early-webhook"))
        await bench.clock.is_waited(3.0)
        bench.clock.advance(1_000)
        (batch,) = (await bench.anthropic.messages.batches.list()).data
        assert batch.processing_status == "ended"
        assert not starting.done()
        bench.clock.advance(2_000)
        assert (await asyncio.wait_for(starting, PATIENCE)).id == batch.id


# Trouble.


async def test_flaky_calls_have_the_providers_shape_and_then_all_is_well() -> None:
    async with running() as bench:
        with pytest.raises(openai.RateLimitError) as limited:
            await bench.start_job(["a"], scenario="flaky")
        assert limited.value.response.headers["retry-after"] == "1"
        assert limited.value.code == "rate_limit_exceeded"
        assert (await bench.client.batches.list()).data == []
        with pytest.raises(openai.InternalServerError) as overloaded:
            await bench.start_job(["a"], scenario="flaky")
        assert overloaded.value.status_code == 503
        assert overloaded.value.response.headers["retry-after"] == "1"
        (batch,) = (await bench.client.batches.list()).data
        seen = []
        for _ in FLAKY.read_faults:
            with pytest.raises(openai.APIStatusError) as refused:
                await bench.client.batches.retrieve(batch.id)
            seen.append((refused.value.status_code, refused.value.response.headers.get("retry-after")))
        assert seen == [(500, None), (429, "1"), (503, "1")]
        bench.clock.advance(NORMAL.duration_ms)
        assert (await bench.client.batches.retrieve(batch.id)).status == "completed"
        _, body = await bench.receiver.next()
        assert json.loads(body)["data"]["id"] == batch.id


async def test_flaky_message_batches_say_529_where_others_say_503() -> None:
    async with running() as bench:
        batches = bench.anthropic.messages.batches
        with pytest.raises(anthropic.RateLimitError) as limited:
            await start_batch(bench, "a", scenario="flaky")
        assert limited.value.response.headers["retry-after"] == "1"
        body = limited.value.response.json()
        assert strictly(ErrorResponse, body).error.type == "rate_limit_error"
        with pytest.raises(anthropic.APIStatusError) as overloaded:
            await start_batch(bench, "a", scenario="flaky")
        assert overloaded.value.status_code == 529
        (batch,) = (await batches.list()).data
        seen = []
        for _ in FLAKY.read_faults:
            with pytest.raises(anthropic.APIStatusError) as refused:
                await batches.retrieve(batch.id)
            seen.append((refused.value.status_code, strictly(ErrorResponse, refused.value.response.json()).error.type))
        assert seen == [(500, "api_error"), (429, "rate_limit_error"), (529, "overloaded_error")]
        bench.clock.advance(NORMAL.duration_ms)
        assert (await batches.retrieve(batch.id)).processing_status == "ended"


async def test_a_flaky_server_without_retries_of_creates_is_flaky_for_each_job() -> None:
    async with running(replace(FLAKY, create_faults=(429,), read_faults=())) as bench:
        for name in ("a", "b"):
            with pytest.raises(openai.RateLimitError):
                await bench.start_job([name])
        for name in ("a", "b"):
            await bench.start_job([name])
        assert len(bench.world.truth().jobs) == 2


async def test_a_forgotten_job_is_404_in_each_providers_own_words() -> None:
    async with running() as bench:
        batch = await bench.start_job(["a"], scenario="forgets-the-job")
        other = await start_batch(bench, "a", scenario="forgets-the-job")
        assert (await bench.client.batches.retrieve(batch.id)).id == batch.id
        bench.clock.advance(20_000)
        with pytest.raises(openai.NotFoundError, match="No batch found with id"):
            await bench.client.batches.retrieve(batch.id)
        with pytest.raises(anthropic.NotFoundError, match=r"Message batch not found\."):
            await bench.anthropic.messages.batches.retrieve(other.id)


def test_lines_are_joined_to_pieces_and_none_is_lost() -> None:
    lines = [b"x" * size for size in (10, 70_000, 1, 60_000, 60_000)]
    pieces = list(chunks(iter(lines)))
    assert b"".join(pieces) == b"".join(lines)
    assert [len(piece) for piece in pieces] == [70_010, 120_001]
    assert list(chunks(iter(()))) == []

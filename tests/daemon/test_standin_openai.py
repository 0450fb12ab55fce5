"""The stand-in over real sockets, held to other people's code: the provider's SDK and the Standard Webhooks library."""

import asyncio
import io
import json
import time
from typing import Any

import aiohttp
import openai
import pytest
import standardwebhooks
import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer
from openai import AsyncOpenAI
from openai.types import Batch, CreateEmbeddingResponse, FileObject
from openai.types.chat import ChatCompletion
from openai.types.completion import Completion
from openai.types.responses import Response
from openai.types.webhooks import BatchCancelledWebhookEvent, BatchCompletedWebhookEvent, BatchFailedWebhookEvent
from pydantic import BaseModel
from structlog.testing import capture_logs

from daemon.standin.deliveries import FIRST_RETRY_MS, REPEAT_MS
from daemon.standin.items import ENDPOINTS
from daemon.standin.openai_face import build_app
from daemon.standin.scenarios import SCENARIOS
from daemon.standin.serve import StandinOptions, run_standin
from daemon.standin.world import World
from reconcile.errors import ConfigError, RequestInvalid, SecretInvalid
from tests.daemon.test_standin_bench import (
    NORMAL,
    PATIENCE,
    SECRET,
    Bench,
    CountingDice,
    ManualClock,
    Receiver,
    TaskStarter,
    input_of,
    running,
    strictly,
)

# Calls.


async def test_the_sdk_uploads_creates_reads_lists_and_downloads() -> None:
    names = [f"row-{n}" for n in range(8)]
    async with running(SCENARIOS["partial-failure"]) as bench:
        raw_file = await bench.client.files.with_raw_response.create(
            file=("in.jsonl", input_of(names)), purpose="batch"
        )
        file = strictly(FileObject, json.loads(raw_file.text))
        assert (file.purpose, file.filename, file.bytes) == ("batch", "in.jsonl", len(input_of(names)))
        assert raw_file.headers["x-request-id"].startswith("req_")
        assert (await bench.client.files.retrieve(file.id)).id == file.id
        assert (await bench.client.files.content(file.id)).content == input_of(names)

        raw_batch = await bench.client.batches.with_raw_response.create(
            input_file_id=file.id,
            endpoint="/v1/responses",
            completion_window="24h",
            metadata={"job": "1"},
            output_expires_after={"anchor": "created_at", "seconds": 3600},
        )
        batch = strictly(Batch, json.loads(raw_batch.text))
        assert (batch.status, batch.input_file_id, batch.metadata) == ("validating", file.id, {"job": "1"})

        statuses = []
        for _ in range(6):
            bench.clock.advance(900)
            raw_batch = await bench.client.batches.with_raw_response.retrieve(batch.id)
            statuses.append(strictly(Batch, json.loads(raw_batch.text)).status)
        assert statuses == ["in_progress", "in_progress", "in_progress", "finalizing", "completed", "completed"]

        batch = await bench.client.batches.retrieve(batch.id)
        assert batch.request_counts is not None
        assert (batch.request_counts.completed, batch.request_counts.failed) == (6, 2)
        assert batch.output_file_id
        assert batch.error_file_id
        raw_file = await bench.client.files.with_raw_response.retrieve(batch.output_file_id)
        output_file = strictly(FileObject, json.loads(raw_file.text))
        output = await bench.client.files.content(batch.output_file_id)
        errors = await bench.client.files.content(batch.error_file_id)
        assert len(output.content) == output_file.bytes == int(output.response.headers["content-length"])
        assert output_file.purpose == "batch_output"
        seen = []
        for line in map(json.loads, output.text.splitlines()):
            strictly(Response, line["response"]["body"])
            seen.append(line["custom_id"])
        for line in map(json.loads, errors.text.splitlines()):
            assert line["response"]["status_code"] == 400
            seen.append(line["custom_id"])
        assert sorted(seen) == names


BODIES: dict[str, type[BaseModel]] = {
    "/v1/responses": Response,
    "/v1/chat/completions": ChatCompletion,
    "/v1/completions": Completion,
    "/v1/embeddings": CreateEmbeddingResponse,
}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_each_endpoints_items_are_answered_in_its_own_type(endpoint: str) -> None:
    async with running() as bench:
        batch = await bench.start_job(["a", 'quote " % ü', "c"], endpoint=endpoint)
        bench.clock.advance(NORMAL.duration_ms)
        batch = await bench.client.batches.retrieve(batch.id)
        assert batch.output_file_id
        assert batch.error_file_id is None
        lines = [
            json.loads(line) for line in (await bench.client.files.content(batch.output_file_id)).text.splitlines()
        ]
        assert {line["custom_id"] for line in lines} == {"a", 'quote " % ü', "c"}
        for line in lines:
            strictly(BODIES[endpoint], line["response"]["body"])


async def test_the_sdk_walks_the_list_from_the_newest_to_the_oldest() -> None:
    async with running() as bench:
        made = [bench.world.seed_job(items=1, now_ms=bench.clock.now()) for _ in range(7)]
        assert [batch.id async for batch in bench.client.batches.list(limit=3)] == made[::-1]
        assert len((await bench.client.batches.list()).data) == 7
        assert bench.world.truth().lists == 4


async def test_the_sdk_cancels_and_a_second_time_too_late() -> None:
    async with running() as bench:
        batch = await bench.start_job([f"row-{n}" for n in range(8)])
        bench.clock.advance(2000)
        raw = await bench.client.batches.with_raw_response.cancel(batch.id)
        assert strictly(Batch, json.loads(raw.text)).status == "cancelling"
        bench.clock.advance(NORMAL.cancel_ms)
        raw = await bench.client.batches.with_raw_response.retrieve(batch.id)
        batch = strictly(Batch, json.loads(raw.text))
        assert (batch.status, batch.cancelled_at) == ("cancelled", bench.clock.now() // 1000)
        with pytest.raises(openai.ConflictError) as refused:
            await bench.client.batches.cancel(batch.id)
        assert refused.value.type == "invalid_request_error"
        _, body = await bench.receiver.next()
        strictly(BatchCancelledWebhookEvent, json.loads(body))


async def test_a_bad_input_line_fails_the_batch_and_tells_where() -> None:
    async with running() as bench:
        file = await bench.client.files.create(file=("in.jsonl", input_of(["a", "b", "a"])), purpose="batch")
        batch = await bench.client.batches.create(
            input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"
        )
        bench.clock.advance(NORMAL.duration_ms)
        raw = await bench.client.batches.with_raw_response.retrieve(batch.id)
        batch = strictly(Batch, json.loads(raw.text))
        assert batch.status == "failed"
        assert batch.errors is not None
        assert batch.errors.data is not None
        assert [(error.code, error.line, error.param) for error in batch.errors.data] == [
            ("duplicate_custom_id", 3, "custom_id")
        ]
        _, body = await bench.receiver.next()
        strictly(BatchFailedWebhookEvent, json.loads(body))


# Refusals.


async def test_refusals_become_the_sdks_own_errors() -> None:
    async with running() as bench:
        with pytest.raises(openai.NotFoundError, match="No batch found"):
            await bench.client.batches.retrieve("batch_missing")
        with pytest.raises(openai.NotFoundError, match="No such File object"):
            await bench.client.files.content("file-missing")
        with pytest.raises(openai.BadRequestError) as refused:
            await bench.client.batches.create(
                input_file_id="file-missing", endpoint="/v1/responses", completion_window="24h"
            )
        assert (refused.value.param, refused.value.code) == ("input_file_id", "invalid_value")
        with pytest.raises(openai.BadRequestError) as refused:
            await bench.client.batches.list(limit=101)
        assert refused.value.param == "limit"
        with pytest.raises(openai.BadRequestError, match=r"\.jsonl"):
            await bench.client.files.create(file=("in.txt", b"{}"), purpose="batch")


@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer  ", "Basic abc", "sk-any"])
async def test_without_a_key_nothing_is_answered(authorization: str | None) -> None:
    async with running() as bench, aiohttp.ClientSession() as session:
        headers = {} if authorization is None else {"authorization": authorization}
        async with session.get(f"{bench.url}/batches", headers=headers) as response:
            assert response.status == 401
            error = (await response.json())["error"]
            assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "invalid_api_key")
            assert response.headers["x-request-id"]
        assert bench.world.truth().lists == 0


async def test_a_wrong_path_is_a_page_and_not_the_providers_error() -> None:
    async with running() as bench, aiohttp.ClientSession(headers={"authorization": "Bearer x"}) as session:
        async with session.get(f"{bench.url}/batch/batch_1") as response:
            assert (response.status, response.content_type) == (404, "text/html")
        async with session.delete(f"{bench.url}/batches/batch_1") as response:
            assert response.status == 405


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b"\xff", b"[" * 100_000, b"9" * 5000])
async def test_a_create_body_that_is_no_object_is_a_400(body: bytes) -> None:
    async with running() as bench, aiohttp.ClientSession(headers={"authorization": "Bearer x"}) as session:
        async with session.post(f"{bench.url}/batches", data=body) as response:
            assert response.status == 400
            assert (await response.json())["error"]["type"] == "invalid_request_error"
        async with session.post(f"{bench.url}/batches", data=io.BytesIO(b" " * 2_000_000)) as response:
            assert response.status == 413


async def test_an_upload_is_capped_and_needs_both_fields() -> None:
    async with running(max_upload_bytes=1000) as bench:
        with pytest.raises(openai.APIStatusError) as refused:
            await bench.client.files.create(file=("in.jsonl", b"x" * 100_000), purpose="batch")
        assert (refused.value.status_code, bench.world.truth().uploads) == (413, 0)
        async with aiohttp.ClientSession(headers={"authorization": "Bearer x"}) as session:
            fields: tuple[dict[str, Any], ...] = (
                {"file": b"x"},
                {"purpose": "batch"},
                {"purpose": "x" * 10_000, "file": b"x"},
            )
            for data, status in zip(fields, (400, 400, 413), strict=True):
                form = aiohttp.FormData(default_to_multipart=True)
                for name, value in data.items():
                    form.add_field(name, value, filename="in.jsonl" if name == "file" else None)
                async with session.post(f"{bench.url}/files", data=form) as response:
                    assert response.status == status
            for headers, raw in (
                ({"content-type": "application/json"}, b"{}"),
                ({"content-type": "multipart/form-data; boundary=x"}, b"nonsense"),
                ({"content-type": "multipart/form-data"}, b"nonsense"),
            ):
                async with session.post(f"{bench.url}/files", data=raw, headers=headers) as response:
                    assert response.status == 400


async def test_a_large_result_is_streamed_whole() -> None:
    async with running() as bench, aiohttp.ClientSession(headers={"authorization": "Bearer x"}) as session:
        job_id = bench.world.seed_job(items=20_000, now_ms=bench.clock.now())
        bench.clock.advance(NORMAL.duration_ms)
        batch = await bench.client.batches.retrieve(job_id)
        async with session.get(f"{bench.url}/files/{batch.output_file_id}/content") as response:
            lines = (await response.read()).splitlines()
            assert response.headers["content-length"] == str(sum(map(len, lines)) + len(lines))
        assert len({json.loads(line)["custom_id"] for line in lines}) == 20_000


# Webhooks.


def check_delivery(bench: Bench, headers: dict[str, str], body: bytes, batch_id: str) -> None:
    """Signed so that two strangers' verifiers agree, and the SDK knows the event."""
    standardwebhooks.Webhook(SECRET).verify(body, headers)
    event = bench.client.webhooks.unwrap(body, headers)
    assert isinstance(event, BatchCompletedWebhookEvent)
    assert strictly(BatchCompletedWebhookEvent, json.loads(body)).data.id == batch_id
    lowered = {name.lower(): value for name, value in headers.items()}
    assert lowered["webhook-id"].startswith("wh_")
    assert lowered["webhook-id"] != event.id
    assert lowered["content-type"] == "application/json"
    assert lowered["user-agent"].startswith("OpenAI/1.0")
    with pytest.raises(openai.InvalidWebhookSignatureError):
        bench.client.webhooks.unwrap(body + b" ", headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(body + b" ", headers)


async def test_the_end_is_announced_by_one_signed_webhook() -> None:
    async with running() as bench:
        batch = await bench.start_job(["a"])
        bench.clock.advance(NORMAL.duration_ms)
        headers, body = await bench.receiver.next()
        check_delivery(bench, headers, body, batch.id)
        await bench.settled()
        assert bench.world.next_event_at(bench.clock.now()) is None
        (event,) = bench.world.truth().events
        assert (event.job_id, event.attempts, event.taken) == (batch.id, 1, 1)


async def test_a_duplicate_webhook_arrives_twice_with_one_id_and_its_own_timestamps() -> None:
    async with running() as bench:
        batch = await bench.start_job(["a"], scenario="duplicate-webhook")
        bench.clock.advance(NORMAL.duration_ms)
        first, first_body = await bench.receiver.next()
        await bench.settled()
        bench.clock.advance(REPEAT_MS + 1000)
        second, second_body = await bench.receiver.next()
        for headers, body in ((first, first_body), (second, second_body)):
            check_delivery(bench, headers, body, batch.id)
        assert first["webhook-id"] == second["webhook-id"]
        assert first["webhook-timestamp"] != second["webhook-timestamp"]
        assert first_body == second_body
        await bench.settled()
        assert bench.world.next_event_at(bench.clock.now()) is None


async def test_a_lost_webhook_never_arrives_while_later_ones_do() -> None:
    async with running() as bench:
        lost = await bench.start_job(["a"], scenario="lost-webhook")
        bench.clock.advance(NORMAL.duration_ms)
        assert (await bench.client.batches.retrieve(lost.id)).status == "completed"
        other = await bench.start_job(["a"])
        bench.clock.advance(NORMAL.duration_ms)
        headers, body = await bench.receiver.next()
        check_delivery(bench, headers, body, other.id)
        await bench.settled()
        assert bench.receiver.is_empty()
        assert bench.world.next_event_at(bench.clock.now()) is None
        assert [event.job_id for event in bench.world.truth().events] == [other.id]


@pytest.mark.parametrize("refusal", [500, 401, 404, 307, 301])
async def test_a_refused_webhook_comes_again_and_no_redirect_is_followed(refusal: int) -> None:
    async with running() as bench:
        batch = await bench.start_job(["a"])
        bench.receiver.answers = [refusal, refusal]
        bench.clock.advance(NORMAL.duration_ms)
        seen = []
        with capture_logs() as logs:
            for gap_ms in (FIRST_RETRY_MS, 2 * FIRST_RETRY_MS, None):
                headers, body = await bench.receiver.next()
                check_delivery(bench, headers, body, batch.id)
                seen.append((headers["webhook-id"], headers["webhook-timestamp"]))
                await bench.settled()
                if gap_ms is not None:
                    assert bench.world.next_event_at(bench.clock.now()) == bench.clock.now() + gap_ms
                    bench.clock.advance(gap_ms)
        assert len({webhook_id for webhook_id, _ in seen}) == 1
        assert len({timestamp for _, timestamp in seen}) == 3
        assert [log["event"] for log in logs] == ["standin_webhook_refused"] * 2 + ["standin_webhook_taken"]
        assert SECRET not in repr(logs)
        (event,) = bench.world.truth().events
        assert (event.attempts, event.taken) == (3, 1)


async def test_a_receiver_that_is_not_there_is_tried_again() -> None:
    async with running() as bench:
        await bench.stop_receiver()
        bench.world.seed_job(items=1, now_ms=bench.clock.now())
        with capture_logs() as logs:
            bench.clock.advance(NORMAL.duration_ms)
            await bench.delivery_begun()
            await bench.settled()
        assert [(log["event"], log["answer"]) for log in logs] == [("standin_webhook_refused", "ClientConnectorError")]
        assert bench.world.next_event_at(bench.clock.now()) == bench.clock.now() + FIRST_RETRY_MS


# The whole server.


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_server_tells_its_address_serves_and_stops(host: str) -> None:
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    clock, dice, supervisor = ManualClock(), CountingDice(), TaskStarter()
    task = supervisor.start(
        "standin",
        run_standin(
            StandinOptions(host=host, scenario="partial-failure", speed=2),
            clock=clock,
            dice=dice,
            supervisor=supervisor,
            log=structlog.get_logger(),
            stop=stop,
            on_ready=ready.set_result,
        ),
    )
    url = await asyncio.wait_for(ready, PATIENCE)
    async with AsyncOpenAI(api_key="x", base_url=f"{url}/v1", max_retries=0) as client:
        file = await client.files.create(file=("in.jsonl", input_of(["a", "b"])), purpose="batch")
        batch = await client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
        clock.advance(NORMAL.duration_ms // 2)
        batch = await client.batches.retrieve(batch.id)
        assert batch.status == "completed"
        assert batch.error_file_id
    stop.set()
    await asyncio.wait_for(task, PATIENCE)
    with pytest.raises(aiohttp.ClientConnectionError):
        async with aiohttp.ClientSession() as session:
            await session.get(url)


async def test_the_server_runs_on_the_real_pause_with_webhooks() -> None:
    """The same with nothing moved by hand: the loop's own time wakes the sender."""

    class RealClock(ManualClock):
        def now(self) -> int:
            return int(time.time() * 1000)

    receiver, hooks = Receiver(), web.Application()
    hooks.router.add_post("/hooks", receiver.take)
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    dice, supervisor = CountingDice(), TaskStarter()
    world = World(NORMAL, ids=dice.identifier, speed=100)
    async with TestServer(hooks) as hook_server:
        options = StandinOptions(webhook_url=str(hook_server.make_url("/hooks")), webhook_secret=SECRET)
        task = supervisor.start(
            "standin",
            run_standin(
                options,
                clock=RealClock(),
                dice=dice,
                supervisor=supervisor,
                log=structlog.get_logger(),
                stop=stop,
                on_ready=ready.set_result,
                world=world,
            ),
        )
        url = await asyncio.wait_for(ready, PATIENCE)
        async with AsyncOpenAI(api_key="x", base_url=f"{url}/v1", max_retries=0, webhook_secret=SECRET) as client:
            bench = Bench(world, RealClock(), supervisor, receiver, client, url)
            batch = await bench.start_job(["a"])
            headers, body = await receiver.next()
            check_delivery(bench, headers, body, batch.id)
        stop.set()
        await asyncio.wait_for(task, PATIENCE)


def test_options_that_cannot_be_served_are_refused() -> None:
    for options in ({"webhook_url": "http://x"}, {"webhook_secret": SECRET}, {"speed": 0}, {"speed": float("nan")}):
        with pytest.raises(ConfigError):
            StandinOptions(**options)
    with pytest.raises(RequestInvalid, match="partial-failure"):
        StandinOptions(scenario="no-such")
    assert SECRET not in repr(StandinOptions(webhook_url="http://x", webhook_secret=SECRET))


def test_a_secret_that_is_none_is_refused_before_anything_is_served() -> None:
    with pytest.raises(SecretInvalid):
        build_app(
            World(NORMAL, ids=CountingDice().identifier),
            ManualClock(),
            TaskStarter(),
            webhook_url="http://127.0.0.1:1/",
            webhook_secret="whsec_",
            session_factory=aiohttp.ClientSession,
            log=structlog.get_logger(),
        )

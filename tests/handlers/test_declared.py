"""The README's declared providers against servers of their shape: real sockets, the TOML as it stands in the README."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconcile.evidence import CreateUnknown
from tests.handlers import ci_server, transcoder
from tests.handlers.ci_server import REPORT, Ci
from tests.handlers.declared_ground import declared, example, standing
from tests.handlers.ground import NOON, HandClock, until
from tests.handlers.test_collect import serving
from tests.handlers.test_input import give
from tests.handlers.test_wishes import cancel, decide
from tests.handlers.transcoder import Transcoder

HOUR = 3_600_000
BAD = {"name": "1080p", "state": "error", "error": "bad frame"}


def html(status: int) -> web.Response:
    return web.Response(status=status, text="<html>no</html>", content_type="text/html")


# ---- the transcoder --------------------------------------------------------------------------------------------


async def test_a_transcode_is_polled_to_its_end_through_odd_states_and_html_errors(tmp_path: Path) -> None:
    """Poll only: no webhook ever comes, and nothing on the way is taken for an end."""
    media = Transcoder(states=["queued", "warming_up", "encoding", "ready"])
    media.instead = [html(502), html(404), web.json_response({"job": {"id": "another", "state": "ready"}})]
    async with declared(tmp_path / "state", "transcode", media.app()) as on:
        operation = await on.start()
        body = await on.state(operation, "succeeded")
        assert (body["remote_job_id"], body["remote_status"], body["type"]) == ("job/0", "ready", "job")
        assert body["summary"]["succeeded"] == body["summary"]["total"] == 1
        assert [entry["word"] for entry in on.ground.logged if entry["event"] == "unknown_status"] == ["warming_up"]
        assert "GET /v1/jobs/job%2F0" in media.asked
        spelled = b'{"minutes":3.5,"renditions":[{"name":"720p","state":"done"}]}\n'
        assert await on.result(operation) == spelled
        assert body["result"]["bytes"] == len(spelled)
        assert body["result"]["sha256"] == hashlib.sha256(spelled).hexdigest()
        assert body["result"]["content_type"] == "application/json"
        assert not list((tmp_path / "state" / "spool").iterdir()), "the body that held it is gone once it is collected"


async def test_progress_and_the_time_of_the_next_read_are_the_bodys(tmp_path: Path) -> None:
    clock = HandClock()
    poll: dict[str, Any] = {"poll": {"base": "10ms", "cap": "1h", "sweep": "1h"}}
    media = Transcoder()
    async with declared(tmp_path / "state", "transcode", media.app(), clock=clock, **poll) as on:
        media.instead = [web.json_response({"job": {"state": "encoding", "percent": 40.5, "look_again_seconds": 600}})]
        operation = await on.start()
        await on.state(operation, "accepted")
        clock.advance(60_000)
        on.ground.daemon.worker.wake(0)
        body = await on.state(operation, "observing")
        assert body["progress"]["percent"] == 40
        assert on.ground.due_at(operation) == clock.now() + 600_000


async def test_a_retry_after_header_of_a_read_is_kept(tmp_path: Path) -> None:
    """Up to an hour, also where that is beyond the cap of polls."""
    clock, media = HandClock(), Transcoder()
    async with declared(tmp_path / "state", "transcode", media.app(), clock=clock) as on:
        body = {"job": {"state": "encoding"}}
        media.instead = [web.json_response(body, headers={"Retry-After": "1200"})]
        operation = await on.start()
        await on.state(operation, "accepted")
        clock.advance(60_000)
        on.ground.daemon.worker.wake(0)
        await on.state(operation, "observing")
        assert on.ground.due_at(operation) == clock.now() + 1_200_000


async def test_f1_a_lost_create_answer_is_asked_for_again_with_the_same_token(tmp_path: Path) -> None:
    media = Transcoder(loses=2, states=["ready"])
    async with declared(tmp_path / "state", "transcode", media.app()) as on:
        operation = await on.start()
        await on.state(operation, "succeeded")
        assert len(media.creates) == 3
        assert len({body for _, body in media.creates}) == 1, "byte by byte"
        assert len({headers["idempotency-key"] for headers, _ in media.creates}) == 1
        assert len(media.jobs) == 1
        assert "sent again with the same token" in await on.reasons(operation)


async def test_a_token_is_not_sent_again_once_it_may_be_forgotten(tmp_path: Path) -> None:
    """N6: after that a re-send is no retry. A person is asked."""
    media, clock = Transcoder(loses=100), HandClock()
    create = {**example("transcode")["create"], "within": "3h"}
    create["idempotency"] = {"header": "Idempotency-Key", "kept": "1h"}
    async with declared(tmp_path / "state", "transcode", media.app(), clock=clock, create=create) as on:
        operation = await on.start()

        async def arrived() -> bool:
            return len(media.creates) >= 2

        await until(arrived)
        for _ in range(5):
            clock.advance(50_000)
            on.ground.daemon.worker.wake(0)
        clock.advance(HOUR)
        sent = len(media.creates)
        for minutes in range(0, 180, 30):
            clock.advance(minutes * 60_000)
            on.ground.daemon.worker.wake(0)
        body = await on.state(operation, "create_unresolved")
        assert len(media.creates) <= sent + 1, "one may have been under way"
        assert body["attention"]["reason"] == "create_unresolved"


async def test_a_webhook_rings_and_the_read_is_believed(tmp_path: Path) -> None:
    """J1: what the event says is not the end; each delivery counts once, whatever its signature's age."""
    media, clock = Transcoder(), HandClock()
    slow: dict[str, Any] = {"poll": {"base": "1h", "cap": "1h", "sweep": "1h"}}
    async with declared(tmp_path / "state", "transcode", media.app(), clock=clock, **slow) as on:
        media.hook = f"http://127.0.0.1:{on.ground.public_port}/webhooks/transcode"
        operation = await on.start()
        await on.state(operation, "accepted")
        at = NOON // 1000
        assert await media.tell("job/0", "ready", delivery="d-1", at=at) == 200

        async def read() -> bool:
            return "GET /v1/jobs/job%2F0" in media.asked

        await until(read)
        assert (await on.state(operation, "observing"))["done"] is False
        media.states = ["ready"]
        assert await media.tell("job/0", "ready", delivery="d-2", at=at) == 200
        assert await media.tell("job/0", "ready", delivery="d-2", at=at) == 200
        await on.state(operation, "succeeded")
        assert sorted(duplicates for _, duplicates in on.ground.events()) == [0, 1]
        assert "event:d-2" in await on.reasons(operation)


async def test_many_deliveries_with_long_ids_of_any_letters_make_no_line_that_the_journal_would_cut(
    tmp_path: Path,
) -> None:
    """Its LineMax is 48 KiB, and JSON writes one letter beyond the first 65,536 in twelve bytes."""
    media, clock = Transcoder(), HandClock()
    async with declared(tmp_path / "state", "transcode", media.app(), clock=clock) as on:
        media.hook = f"http://127.0.0.1:{on.ground.public_port}/webhooks/transcode"
        names = [f"{n:02}" + "\N{FLEXED BICEPS}" * 254 for n in range(60)]
        await asyncio.gather(*(media.tell("job/0", "ready", delivery=name, at=NOON // 1000) for name in names))
        told = [entry for entry in on.ground.logged if entry["event"] == "webhooks_received"]
        assert sorted(name for entry in told for name in entry["event_ids"]) == names
        assert max(len(json.dumps(entry)) for entry in told) < 48 * 1024


@pytest.mark.parametrize(
    "forgery", [{"secret": "x" * 32}, {"at": NOON // 1000 - 301}, {"at": NOON // 1000 + 301}, {"body": True}]
)
async def test_a_delivery_that_is_not_proven_stores_nothing(tmp_path: Path, forgery: dict[str, Any]) -> None:
    media = Transcoder()
    async with declared(tmp_path / "state", "transcode", media.app(), clock=HandClock(), worker=False) as on:
        media.hook = f"http://127.0.0.1:{on.ground.public_port}/webhooks/transcode"
        told = {"at": NOON // 1000, **{key: value for key, value in forgery.items() if key != "body"}}
        if "body" in forgery:
            bare = await on.ground.hook(b"{}", {"X-Media-Signature": "00" * 32}, provider="transcode")
            assert bare.status == 401
        else:
            assert await media.tell("job/0", "ready", **told) == 401
        assert on.ground.events() == []


async def test_partial_failure_shows_item_by_item(tmp_path: Path) -> None:
    """C3, F3: `finished` says nothing of the outcome."""
    media = Transcoder(states=["finished"], renditions=[{"name": "720p", "state": "done"}, BAD])
    async with declared(tmp_path / "state", "transcode", media.app()) as on:
        operation = await on.start(expect={"items": ["720p", "1080p"]})
        body = await on.state(operation, "completed_with_errors")
        assert (body["summary"]["succeeded"], body["summary"]["failed"]) == (1, 1)
        assert await on.items(operation) == {"720p": ("succeeded", None), "1080p": ("failed", "bad frame")}
        one = await on.ground.get(f"/v1/operations/{operation}/items/1080p")
        assert one["lines"] == [BAD]


@pytest.mark.parametrize(
    ("renditions", "state"),
    [
        ([BAD], "failed"),
        ([{"name": "720p", "state": "done"}] * 2, "result_validation_failed"),
        ([{"name": "other", "state": "done"}], "result_validation_failed"),
        ([{"state": "done"}], "result_validation_failed"),
        (["odd"], "result_validation_failed"),
        ([], "result_validation_failed"),
    ],
)
async def test_items_that_break_the_contract_are_no_success(tmp_path: Path, renditions: list[Any], state: str) -> None:
    media = Transcoder(states=["ready"], renditions=renditions)
    async with declared(tmp_path / "state", "transcode", media.app()) as on:
        expect = {} if renditions == [BAD] else {"expect": {"items": ["720p"]}}
        await on.state(await on.start(**expect), state)


async def test_a_failure_is_told_in_the_providers_words(tmp_path: Path) -> None:
    async with declared(tmp_path / "state", "transcode", Transcoder(states=["broken"]).app()) as on:
        body = await on.state(await on.start(), "failed")
        assert body["error"]["code"] == "E_CODEC"
        assert body["error"]["message"] == "unsupported codec"


async def test_what_a_cancelled_job_had_done_is_collected(tmp_path: Path) -> None:
    """E2, E4, E5."""
    media = Transcoder()
    async with declared(tmp_path / "state", "transcode", media.app()) as on:
        operation = await on.start()
        await on.state(operation, "observing")
        asked = await cancel(on.ground, operation)
        assert "stored and billed" in asked.json()["cancel"]["may_remain"]
        await on.state(operation, "cancelling")
        media.states = ["stopped"]
        body = await on.state(operation, "cancelled")
        assert (media.cancelled, body["cancel"]["answer"], body["summary"]["succeeded"]) == (1, "accepted", 1)


async def test_a_success_that_wins_the_race_with_a_cancel_is_a_success(tmp_path: Path) -> None:
    media = Transcoder()
    async with declared(tmp_path / "state", "transcode", media.app()) as on:
        operation = await on.start()
        await on.state(operation, "observing")
        await cancel(on.ground, operation)
        await on.state(operation, "cancelling")
        media.states = ["ready"]
        body = await on.state(operation, "succeeded")
        assert "had ended before the cancel" in body["message"]


async def test_a_refused_key_pauses_the_provider_and_fails_nothing(tmp_path: Path) -> None:
    async with declared(
        tmp_path / "state", "transcode", Transcoder().app(), headers={"Authorization": {"env": "CI_TOKEN"}}
    ) as on:
        operation = await on.start()

        async def paused() -> bool:
            return any(entry["event"] == "provider_paused" for entry in on.ground.logged)

        await until(paused)
        assert (await on.ground.row(operation)).state == "create_pending"


async def test_no_secret_of_a_declared_provider_is_kept_anywhere(tmp_path: Path) -> None:
    """N37: not even where the server quotes it."""
    media = Transcoder(states=["ready"], renditions=[{"name": "720p", "state": "done", "said": transcoder.TOKEN}])
    async with declared(tmp_path / "state", "transcode", media.app()) as on:
        await on.state(await on.start(), "succeeded")
        logged = repr(on.ground.logged)
    held = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert transcoder.TOKEN.encode() not in held
    assert transcoder.TOKEN not in logged


# ---- the CI system ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [{"loses": 1}, {"breaks": 1}])
async def test_f1_a_lost_run_is_found_by_the_operations_id(tmp_path: Path, fault: dict[str, Any]) -> None:
    ci = Ci(conclusion="green", **fault)
    async with declared(tmp_path / "state", "ci", ci.app(), path="/api") as on:
        operation = await on.start({"branch": "main"})
        body = await on.state(operation, "succeeded")
        assert ci.runs == [{"run": 100, "branch": "main", "external_id": operation}]
        assert body["remote_job_id"] == "100"
        assert ci.count("POST /api/runs") == 1
        assert ci.count("GET /api/runs?") == 1
        assert "found by look-up: 100" in await on.reasons(operation)


async def test_b4_two_runs_of_one_operation_are_a_violation(tmp_path: Path) -> None:
    ci = Ci(breaks=1)
    async with declared(tmp_path / "state", "ci", ci.app(), path="/api", clock=HandClock(), worker=False) as on:
        operation = await on.start()
        ci.runs = [{"run": 7, "external_id": operation}]
        on.ground.clock.run()
        stop = await _working(on)
        body = await on.state(operation, "contract_violation")
        stop()
        jobs = {job["remote_job_id"] for job in body["attention"]["candidates"]}
        assert jobs == {"7", "101"}


async def _working(on: Any) -> Any:
    stopped = asyncio.Event()
    on.ground.supervisor.start("worker", on.ground.daemon.worker.run(stopped))

    def stop() -> None:
        stopped.set()
        on.ground.daemon.worker.wake(0)

    return stop


async def test_a_run_that_waits_for_an_approval_is_given_one(tmp_path: Path) -> None:
    """D4, G7; and the result is fetched by a request of its own, whatever it is made of."""
    ci = Ci(phase="needs_approval", instead=[html(500)])
    async with declared(tmp_path / "state", "ci", ci.app(), path="/api") as on:
        operation = await on.start()
        assert (await on.state(operation, "blocked"))["status"] == "blocked"
        assert (await give(on.ground, operation, {"approve": True})).status == 202
        body = await on.state(operation, "succeeded")
        assert ci.approvals == [{"approve": True}]
        assert await on.result(operation) == REPORT
        assert (body["result"]["content_type"], body["result"]["items"]) == ("application/xml", 1)
        assert await on.items(operation) == {"result": ("succeeded", None)}
        assert all(headers["Accept"] == "application/json" for headers in ci.headers)


@pytest.mark.parametrize(("aborts_to", "end"), [("aborted", "cancelled"), ("green", "succeeded"), ("red", "failed")])
async def test_an_abort_ends_as_the_provider_says_it_did(tmp_path: Path, aborts_to: str, end: str) -> None:
    ci = Ci(aborts_to=aborts_to)
    async with declared(tmp_path / "state", "ci", ci.app(), path="/api") as on:
        operation = await on.start()
        await on.state(operation, "observing")
        await cancel(on.ground, operation)
        await on.state(operation, end)
        assert ci.count("POST /api/runs/100/abort") == 1


async def test_an_abort_that_comes_too_late_is_followed_by_one_read(tmp_path: Path) -> None:
    ci = Ci(aborts_to=None)
    async with declared(tmp_path / "state", "ci", ci.app(), path="/api") as on:
        operation = await on.start()
        await on.state(operation, "observing")
        await cancel(on.ground, operation)
        body = await on.state(operation, "cancellation_unconfirmed")
        assert body["cancel"]["answer"] == "too_late"
        ci.conclusion = "green"
        await decide(on.ground, operation, "keep")
        await on.state(operation, "succeeded")


async def test_an_expired_run_without_items_has_failed(tmp_path: Path) -> None:
    async with declared(tmp_path / "state", "ci", Ci(conclusion="timed_out").app(), path="/api") as on:
        body = await on.state(await on.start(), "failed")
        assert body["error"]["code"] == "expired"


@pytest.mark.parametrize(
    ("report", "expect", "state"),
    [
        (web.json_response({"tests": 3}), {"json_schema": {"required": ["tests"]}}, "succeeded"),
        (web.json_response({"tests": 3}), {"json_schema": {"required": ["passed"]}}, "result_validation_failed"),
        (web.Response(body=b"no json"), {"json_schema": {}}, "result_validation_failed"),
        (web.json_response({"tests": 3}), {"content_type": "application/xml"}, "result_validation_failed"),
        (web.json_response({"tests": 3}), {"items": 2}, "result_validation_failed"),
        (html(200), {}, "result_unavailable"),
        (web.Response(body=b""), {}, "result_unavailable"),
        (web.Response(status=303, headers={"Location": "http://127.0.0.1:9/"}), {}, "result_unavailable"),
        (web.json_response({}, status=410), {}, "result_unavailable"),
    ],
)
async def test_a_result_by_request_is_held_to_what_was_promised(
    tmp_path: Path, report: web.Response, expect: Any, state: str
) -> None:
    ci = Ci(conclusion="green", report=(report.status, dict(report.headers), report.body))
    async with declared(tmp_path / "state", "ci", ci.app(), path="/api") as on:
        await on.state(await on.start(expect=expect), state)


@pytest.mark.parametrize(("cap", "state"), [("64KiB", "succeeded"), ("2KiB", "result_unavailable")])
async def test_a_document_with_items_in_it_is_taken_apart_up_to_the_size_of_an_answer(
    tmp_path: Path, cap: str, state: str
) -> None:
    """S34: `caps.answer`."""
    media = Transcoder(states=["finished"])
    app = media.app()

    async def report(request: web.Request) -> web.StreamResponse:
        return web.json_response({"job": {"output": {"renditions": media.renditions, "notes": "x" * 4096}}})

    app.router.add_get("/v1/jobs/{job}/report", report)
    result = {"request": "GET /v1/jobs/{job_id}/report"}
    async with declared(tmp_path / "state", "transcode", app, caps={"answer": cap}, result=result) as on:
        operation = await on.start()
        await on.state(operation, state)
        if state == "succeeded":
            assert await on.items(operation) == {"720p": ("succeeded", None)}


async def test_a_document_with_items_in_it_is_the_result_byte_for_byte_and_its_items_are_found_in_it(
    tmp_path: Path,
) -> None:
    """What was promised of the document is held to the document; the items beside it are no further bytes of it."""
    document = b'{ "frames": [\r\n  {"n": "f2", "ok": "yes"},\n  {"n": "f1", "ok": "no", "error": "blurred"} ] }\n\n'
    kind = "application/vnd.frames+json"
    ci = Ci(conclusion="green", report=(200, {"Content-Type": kind}, document))
    items = {"from": "$.frames", "id": "$.n", "state": "$.ok", "succeeded": ["yes"], "failed": ["no"]}
    expect = {"sha256": hashlib.sha256(document).hexdigest(), "content_type": kind, "items": ["f1", "f2"]}
    async with declared(tmp_path / "state", "ci", ci.app(), path="/api", items=items) as on:
        operation = await on.start(expect=expect)
        body = await on.state(operation, "completed_with_errors")
        told = {"bytes": len(document), "sha256": expect["sha256"], "content_type": kind, "items": 2, "problems": None}
        assert {name: body["result"][name] for name in told} == told
        assert await on.result(operation) == document
        assert await on.items(operation) == {"f1": ("failed", "blurred"), "f2": ("succeeded", None)}
        item = await on.ground.get(f"/v1/operations/{operation}/items/f2")
        assert item["lines"] == [{"n": "f2", "ok": "yes"}]
        again = await on.start(expect={**expect, "sha256": "0" * 64})
        await on.state(again, "result_validation_failed")


# ---- results elsewhere -----------------------------------------------------------------------------------------


def listed_elsewhere(url: str, **items: Any) -> dict[str, Any]:
    """The transcoder, its items in a file of lines at a URL that the job names."""
    told = {**example("transcode")["items"], "url": "$.job.lines", **items}
    del told["from"]
    return {"items": told, "result": None}


@pytest.mark.parametrize("is_declared", [True, False])
async def test_f6_items_at_another_host_are_fetched_without_credentials_or_not_at_all(
    tmp_path: Path, is_declared: bool
) -> None:
    """N38, S28."""
    asked: list[Any] = []

    async def lines(request: web.Request) -> web.StreamResponse:
        asked.append(dict(request.headers))
        return web.Response(body=b'{"name": "720p", "state": "done"}\n{"name": "1080p", "state": "error"}\n')

    storage = web.Application()
    storage.router.add_get("/lines", lines)
    async with serving(storage) as elsewhere:
        url = elsewhere.replace("127.0.0.1", "localhost") + "/lines?sig=secret"
        media = Transcoder(states=["finished"])
        body = media.body
        media.body = lambda job: {"job": {**body(job)["job"], "lines": url}}  # type: ignore[method-assign]
        more = {"hosts": ["localhost"]} if is_declared else {}
        async with declared(tmp_path / "state", "transcode", media.app(), **listed_elsewhere(url, **more)) as on:
            operation = await on.start()
            if is_declared:
                await on.state(operation, "completed_with_errors")
                assert await on.items(operation) == {"720p": ("succeeded", None), "1080p": ("failed", "error")}
                assert transcoder.TOKEN not in repr(asked)
            else:
                await on.state(operation, "result_unavailable")
                assert asked == []


async def test_a5_a_create_that_answers_with_the_result_needs_no_job(tmp_path: Path) -> None:
    app, asked = web.Application(), []

    async def create(request: web.Request) -> web.StreamResponse:
        asked.append(request.raw_path)
        return web.json_response(
            {"job": {"state": "ready", "output": {"renditions": [{"name": "a", "state": "done"}]}}}
        )

    app.router.add_post("/v1/transcode", create)
    async with declared(tmp_path / "state", "transcode", app) as on:
        operation = await on.start()
        body = await on.state(operation, "succeeded")
        assert (body["remote_job_id"], asked) == (None, ["/v1/transcode"])
        assert await on.items(operation) == {"a": ("succeeded", None)}


async def test_the_body_that_held_a_result_is_read_again_where_it_was_lost(tmp_path: Path) -> None:
    """A crash or a full disk between the read and its file costs one more read, and no result."""
    media, clock = Transcoder(states=["ready"]), HandClock()
    folder = tmp_path / "state"
    async with declared(folder, "transcode", media.app(), clock=clock, worker=False) as on:
        operation = await on.start()
        clock.run()

        def lose(step: str, path: Path) -> None:
            if step == "rename" and path.name.endswith(".inline.json"):
                raise OSError("no space left")

        files = on.ground.daemon.upkeep._files
        files._hook = lose
        stop = await _working(on)

        async def tried() -> bool:
            return any(entry["event"] == "result_not_kept" for entry in on.ground.logged)

        await until(tried)
        files._hook = None
        await on.state(operation, "succeeded")
        stop()


async def test_a_result_without_a_job_that_was_lost_is_unavailable(tmp_path: Path) -> None:
    """Nobody can be asked for it again, and that is told."""
    app = web.Application()

    async def create(_: web.Request) -> web.StreamResponse:
        return web.json_response({"job": {"state": "ready", "output": {"renditions": []}}})

    app.router.add_post("/v1/transcode", create)
    async with declared(tmp_path / "state", "transcode", app, worker=False) as on:
        operation = await on.start()

        def lose(step: str, path: Path) -> None:
            if step == "rename" and path.name.endswith(".inline.json"):
                raise OSError("no space left")

        on.ground.daemon.upkeep._files._hook = lose
        stop = await _working(on)
        await on.state(operation, "result_unavailable")
        stop()
        assert not [entry for entry in on.ground.logged if entry["event"] == "action_failed"]


# ---- a declaration that is missing, or changes -----------------------------------------------------------------


async def test_a_declared_provider_that_is_missing_has_no_meaning_and_its_operations_stand(tmp_path: Path) -> None:
    """No request leaves, nothing is judged; put back, the job is read and goes on."""
    folder, ci = tmp_path / "state", Ci()
    async with serving(ci.app()) as url:
        async with standing(folder, "ci", f"{url}/api") as on:
            operation = await on.start()
            await on.state(operation, "observing")
        asked = len(ci.asked)
        async with standing(folder, "transcode", "http://127.0.0.1:9") as on:
            body = await on.state(operation, "observation_failed")
            assert body["attention"]["reason"] == "provider_missing"
            assert {offer["decision"] for offer in body["attention"]["decisions"]} == {"resume", "give_up"}
            assert (await on.ground.hook(b"{}", {}, provider="ci")).status == 503
        assert len(ci.asked) == asked
        ci.conclusion = "green"
        async with standing(folder, "ci", f"{url}/api") as on:
            await on.state(operation, "succeeded")


async def test_a_create_is_not_sent_again_by_another_declaration(tmp_path: Path) -> None:
    """Its bytes could be others: a person is asked, or a look-up finds it."""
    folder, media, clock = tmp_path / "state", Transcoder(loses=1), HandClock()
    async with serving(media.app()) as url:
        async with standing(folder, "transcode", url, clock, worker=False) as on:
            operation = await on.start()
            await on.ground.apply(operation, CreateUnknown("timeout"))
        create = {**example("transcode")["create"], "idempotency": {"field": "token"}}
        clock.run()
        async with standing(folder, "transcode", url, clock, create=create) as on:
            clock.advance(HOUR)
            on.ground.daemon.worker.wake(0)
            await on.state(operation, "create_unresolved")
        assert media.creates == []


async def test_observations_bear_the_number_of_their_declaration(tmp_path: Path) -> None:
    """J4."""
    async with declared(tmp_path / "state", "ci", Ci(conclusion="green").app(), path="/api") as on:
        operation = await on.start()
        await on.state(operation, "succeeded")
        version = on.ground.config.providers["ci"].provider.contract.version
        seen = (await on.ground.get(f"/v1/operations/{operation}/observations"))["observations"]
        assert {one["contract_version"] for one in seen} == {version}
        assert version > 1
    assert ci_server.TOKEN


async def test_a_signed_url_is_shown_without_its_query(tmp_path: Path) -> None:
    """N37: whoever has it could fetch the result past us."""
    told = {"run": 100, "phase": "running", "conclusion": None, "log": "https://s.example/log?X-Signature=canary"}
    peer = Ci(conclusion="green", instead=[web.json_response(told)])
    async with declared(tmp_path / "state", "ci", peer.app(), path="/api") as on:
        operation = await on.start()
        await on.state(operation, "succeeded")
        seen = (await on.ground.get(f"/v1/operations/{operation}/observations"))["observations"]
        assert [json.loads(one["raw"])["log"] for one in seen if "log" in one["raw"]] == [
            "https://s.example/log?[redacted]"
        ]


# ---- what a start may ask --------------------------------------------------------------------------------------


async def test_a_start_with_items_or_with_our_own_fields_is_refused(tmp_path: Path) -> None:
    async with declared(tmp_path / "state", "ci", Ci().app(), path="/api", worker=False) as on:
        for body, pointer in (
            ({"request": {}, "items": [{"id": "a"}]}, "/items"),
            ({"request": {"external_id": "mine"}}, "/request/external_id"),
        ):
            answer = await on.ground.api("POST", "/v1/operations", body={"provider": "ci", **body})
            assert answer.status == 422
            assert answer.json()["errors"][0]["pointer"] == pointer


async def test_unsigned_deliveries_ring_where_the_configuration_says_so(tmp_path: Path) -> None:
    """And without a proof or that word there is no such route."""
    media = Transcoder(states=["ready"])
    slow: dict[str, Any] = {"poll": {"base": "1h", "cap": "1h", "sweep": "1h"}, "webhook_secrets": None}
    body = json.dumps({"job": {"id": "job/0", "state": "ready"}}).encode()
    async with declared(tmp_path / "a", "transcode", media.app(), **slow) as on:
        assert (await on.ground.hook(body, {}, provider="transcode")).status == 404
    async with declared(tmp_path / "b", "transcode", media.app(), unsafe=["unsigned_webhooks"], **slow) as on:
        operation = await on.start()
        await on.state(operation, "accepted")
        assert (await on.ground.hook(body, {}, provider="transcode")).status == 200
        assert (await on.ground.hook(body, {}, provider="transcode")).status == 200
        await on.state(operation, "succeeded")
        assert (await on.ground.hook(body + b" ", {}, provider="transcode")).status == 200
        assert [duplicates for _, duplicates in on.ground.events()] == [1, 0], "told apart by what they hold"

"""mark_items from a start to its result: nobody but the provider meets the mark, and ids without it are strangers'."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from reconcile.decisions import Decision
from reconcile.evidence import PersonDecided
from tests.handlers.ground import FIXTURES, Ground, HandClock, provider, running
from tests.handlers.test_collect import serving

IDS: Final = ("job-0010_0", "job-0010_1", "job-0010_2", "job-0010_3")
CREATED: Final[dict[str, Any]] = json.loads((FIXTURES / "anthropic/batch_create_response.json").read_bytes())
ENDED: Final[dict[str, Any]] = json.loads((FIXTURES / "anthropic/batch_status_ended_all_succeeded.json").read_bytes())
#: Results of a batch whose ids are plain and the very ones that are submitted here.
PLAIN: Final = (FIXTURES / "anthropic/batch_results_all_succeeded.jsonl").read_bytes()


@dataclass
class Claude:
    """A provider with one batch, which has ended; its results come in pieces of `piece` bytes."""

    creates: bool
    #: Creates that are answered 500 first, whether or not the others are answered well.
    lost: int = 0
    #: Statuses of the list's pages in turn; later ones show nothing.
    pages: list[int] = field(default_factory=list)
    url: str = ""
    sent: dict[str, Any] = field(default_factory=dict)
    results: bytes = PLAIN
    piece: int = 1
    #: Somebody has read the batch by its id.
    is_held: bool = False

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/messages/batches", self.create)
        app.router.add_get("/v1/messages/batches", self.page)
        app.router.add_get("/v1/messages/batches/{job}", self.read)
        app.router.add_get("/results", self.fetch)
        return app

    async def create(self, request: web.Request) -> web.StreamResponse:
        self.sent = await request.json()
        self.lost -= 1
        return web.json_response(CREATED) if self.creates and self.lost < 0 else web.Response(status=500)

    async def page(self, _: web.Request) -> web.StreamResponse:
        if self.is_held and self.pages:
            return web.Response(status=self.pages.pop(0))
        return web.json_response({"data": [], "has_more": False})

    async def read(self, request: web.Request) -> web.StreamResponse:
        self.is_held = True
        job = {**ENDED, "id": request.match_info["job"], "results_url": f"{self.url}/results"}
        return web.json_response(job)

    async def fetch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(self.results), self.piece):
            await response.write(self.results[start : start + self.piece])
        await response.write_eof()
        return response

    @property
    def sent_ids(self) -> list[str]:
        return [item["custom_id"] for item in self.sent["requests"]]


@asynccontextmanager
async def at_work(folder: Path, claude: Claude, *, marks: bool = True, **create: str) -> AsyncIterator[Ground]:
    """The daemon at work with that provider, time running."""
    clock = HandClock()
    clock.run()
    async with serving(claude.app()) as url:
        claude.url = url
        more: dict[str, Any] = {
            "kind": "anthropic_batches",
            "mark_items": marks,
            "create": create,
            "webhook_secrets": [],
        }
        poll = {"base": "100ms", "cap": "200ms", "sweep": "200ms"}
        providers = {"claude": provider(f"{url}/v1", poll=poll, limits={"requests_per_second": 1000}, **more)}
        async with running(folder, providers=providers, clock=clock, worker=True) as ground:
            yield ground


def start_of(*ids: str) -> dict[str, Any]:
    items = [{"custom_id": name, "params": {"model": "m", "max_tokens": 1, "messages": []}} for name in ids]
    return {"provider": "claude", "request": {}, "items": items}


async def started(ground: Ground) -> str:
    answer = await ground.api("POST", "/v1/operations", body=start_of(*IDS))
    assert answer.status == 202, answer
    return str(answer.json()["operation_id"])


async def test_the_mark_is_taken_off_again_whatever_pieces_the_result_comes_in(tmp_path: Path) -> None:
    claude = Claude(creates=True)
    async with at_work(tmp_path / "state", claude) as ground:
        mark = (operation := await started(ground))[-12:]
        claude.results = PLAIN.replace(b'"job-0010', f'"{mark}_job-0010'.encode())
        body = await ground.get(f"/v1/operations/{operation}?wait=20")
        items = await ground.get(f"/v1/operations/{operation}/items")
        one = await ground.get(f"/v1/operations/{operation}/items/{IDS[2]}")
        result = await ground.api("GET", f"/v1/operations/{operation}/result")
        assert claude.sent_ids == [f"{mark}_{name}" for name in IDS]
        assert (await ground.row(operation)).item_mark == mark
        stored = ground.rows("SELECT item_id FROM items")
    assert (body["outcome"], body["summary"]["succeeded"]) == ("succeeded", 4)
    assert [item["item_id"] for item in items["items"]] == list(IDS)
    assert [line["custom_id"] for line in one["lines"]] == [IDS[2]]
    assert result.body == PLAIN
    assert body["result"]["bytes"] == len(PLAIN)
    assert {item_id for (item_id,) in stored} == set(IDS)


async def test_a_strangers_batch_that_a_person_adopted_has_unknown_ids_even_where_they_look_alike(
    tmp_path: Path,
) -> None:
    """The same tool may have made it, with the same ids: without our mark not one of them is ours."""
    claude = Claude(creates=False, piece=1000)
    async with at_work(tmp_path / "state", claude, within="1s") as ground:
        operation = await started(ground)
        body = await ground.get(f"/v1/operations/{operation}?wait=20")
        assert body["state"] == "create_unresolved"
        decided = PersonDecided("d_1", Decision.ADOPT_JOB, "ann", "looks like ours", remote_job_id="msgbatch_other")
        await ground.apply(operation, decided)
        ground.daemon.worker.wake(0)
        body = await ground.get(f"/v1/operations/{operation}?wait=20")
        while body["state"] != "result_validation_failed":
            body = await ground.get(f"/v1/operations/{operation}?wait=20")
            assert body["state"] in ("accepted", "observing", "result_collecting", "result_validation_failed")
    assert body["result"]["problems"]["unknown"] == [f"unmarked: {name}" for name in IDS]
    assert body["result"]["problems"]["missing"] == list(IDS)
    assert (body["summary"]["succeeded"], body["summary"]["missing"]) == (0, 4)


async def test_an_id_that_no_longer_fits_with_the_mark_is_refused_and_nothing_is_sent(tmp_path: Path) -> None:
    """422 at the start, the pointer at the item."""
    claude = Claude(creates=True)
    async with at_work(tmp_path / "state", claude) as ground:
        answer = await ground.api("POST", "/v1/operations", body=start_of("a", "x" * 52))
        assert answer.status == 422
        (error,) = answer.json()["errors"]
        assert error["pointer"] == "/items/1/custom_id"
        assert "at most 51" in error["message"]
        assert ground.rows("SELECT count(*) FROM operations") == [(0,)]
    assert claude.sent == {}


async def test_ids_go_out_as_they_came_unless_the_operator_says_otherwise(tmp_path: Path) -> None:
    claude = Claude(creates=True, piece=1000)
    async with at_work(tmp_path / "state", claude, marks=False) as ground:
        operation = await started(ground)
        body = await ground.get(f"/v1/operations/{operation}?wait=20")
        assert (await ground.row(operation)).item_mark is None
    assert body["outcome"] == "succeeded"
    assert claude.sent_ids == list(IDS)


async def test_a_list_that_cannot_be_read_holds_up_the_result_of_a_re_sent_create_for_three_tries_only(
    tmp_path: Path,
) -> None:
    """What a second look cannot see is looked for again; a result that is there is not given up for that."""
    claude = Claude(creates=True, lost=1, pages=[500] * 3, piece=1000)
    async with at_work(tmp_path / "state", claude, on_absent="resend", settle="200ms") as ground:
        mark = (operation := await started(ground))[-12:]
        claude.results = PLAIN.replace(b'"job-0010', f'"{mark}_job-0010'.encode())
        body = await ground.get(f"/v1/operations/{operation}?wait=20")
        row = await ground.row(operation)
        history = (await ground.get(f"/v1/operations/{operation}/history"))["history"]
    assert (body["outcome"], row.resends) == ("succeeded", 1)
    assert claude.pages == []
    failed = [entry["reason"] for entry in history if "second_look_http_500" in entry["reason"]]
    assert len(failed) == 3


async def test_a_list_that_can_be_read_no_more_is_given_up_after_the_fourth_look_and_the_history_says_so(
    tmp_path: Path,
) -> None:
    claude = Claude(creates=True, lost=1, pages=[500] * 50, piece=1000)
    async with at_work(tmp_path / "state", claude, on_absent="resend", settle="200ms") as ground:
        mark = (operation := await started(ground))[-12:]
        claude.results = PLAIN.replace(b'"job-0010', f'"{mark}_job-0010'.encode())
        body = await ground.get(f"/v1/operations/{operation}?wait=20")
        row = await ground.row(operation)
        history = (await ground.get(f"/v1/operations/{operation}/history"))["history"]
    assert (body["outcome"], row.resend_checked) == ("succeeded", True)
    assert len(claude.pages) == 50 - 4
    assert ground.meters.total("state_changed", to="accepted") == 1
    assert ground.meters.total("state_changed", to="create_unresolved") == 0, "that question lasted no time"
    (given_up,) = [entry for entry in history if "a second job may have run unseen" in entry["reason"]]
    assert "http_500" in given_up["reason"]

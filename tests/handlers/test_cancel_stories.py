"""The fixtures' stories in which our cancel was sent, in both shapes, over real sockets: from the call to the end.

The provider answers with the fixtures' own bodies: running until the cancel comes, cancelling once, then the end.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from tests.handlers.ground import EXPECT, FIXTURES, Ground, HandClock, provider, running, until
from tests.handlers.test_collect import fixture, serving

STORIES: Final = [
    name
    for name, story in EXPECT["stories"].items()
    if story["kind"] in ("openai_batch", "anthropic_batches") and story.get("cancel_asked")
]
#: What the body says of a cancel, by the answer that the provider gave to it.
SAID: Final = {200: "accepted", 409: "too_late"}


@dataclass
class Account:
    """One account whose one batch goes as a story says."""

    kind: str
    story: Any
    cancels: int = 0
    creates: int = 0
    url: str = ""
    reads: list[Any] = field(default_factory=list)

    @property
    def running(self) -> Any:
        return fixture(f"{self.shape}/batch_status_in_progress.json")

    @property
    def shape(self) -> str:
        return "openai" if self.kind == "openai_batch" else "anthropic"

    def app(self) -> web.Application:
        app = web.Application()
        path = "/v1/batches" if self.kind == "openai_batch" else "/v1/messages/batches"
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{file}/content", self._file)
        app.router.add_post(path, self._create)
        app.router.add_get(f"{path}/{{job}}", self._read)
        app.router.add_post(f"{path}/{{job}}/cancel", self._cancel)
        app.router.add_get(f"{path}/{{job}}/results", self._results)
        return app

    async def _upload(self, request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"id": "file-in", "object": "file"})

    async def _create(self, _: web.Request) -> web.Response:
        self.creates += 1
        return web.json_response(self.running)

    async def _read(self, _: web.Request) -> web.Response:
        body = self.reads.pop(0) if self.reads else self._end() if self.cancels else self.running
        return web.json_response(body)

    async def _cancel(self, _: web.Request) -> web.Response:
        self.cancels += 1
        if "cancel_answer" in self.story:
            refused = json.loads((FIXTURES / self.story["cancel_answer"]).read_bytes())
            return web.json_response(refused["body"], status=refused["status"])
        word = "cancelling" if self.kind == "openai_batch" else "canceling"
        self.reads = [fixture(f"{self.shape}/batch_status_{word}.json")]
        return web.json_response(self.reads[0])

    async def _file(self, request: web.Request) -> web.Response:
        named = EXPECT["files"][self.story["status"]]["results"]
        return self._bytes(named.index(request.match_info["file"]))

    async def _results(self, _: web.Request) -> web.Response:
        return self._bytes(0)

    def _bytes(self, number: int) -> web.Response:
        return web.Response(body=(FIXTURES / self.story["results"][number]).read_bytes())

    def _end(self) -> Any:
        body = fixture(self.story["status"])
        # All reads are of one batch: the one that was made.
        body["id"] = self.running["id"]
        if body.get("results_url"):
            body["results_url"] = f"{self.url}/v1/messages/batches/{body['id']}/results"
        return body


@asynccontextmanager
async def on_stage(folder: Path, account: Account) -> AsyncIterator[Ground]:
    clock = HandClock()
    clock.run()
    async with serving(account.app()) as url:
        account.url = url
        poll = {"base": "20ms", "cap": "50ms", "sweep": "1s"}
        of_kind: dict[str, Any] = {"kind": account.kind, "poll": poll, "limits": {"requests_per_second": 1000}}
        hooks: dict[str, Any] = {} if account.kind == "openai_batch" else {"webhook_secrets": []}
        providers = {"them": provider(f"{url}/v1", **of_kind, **hooks)}
        async with running(folder, providers=providers, clock=clock, worker=True) as ground:
            yield ground


def start_of(account: Account) -> dict[str, Any]:
    ids = account.story["submitted"]
    if account.kind == "openai_batch":
        items = [{"custom_id": name, "url": "/v1/responses", "body": {"input": name}} for name in ids]
        return {"provider": "them", "request": {"endpoint": "/v1/responses"}, "items": items}
    params = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    return {"provider": "them", "request": {}, "items": [{"custom_id": name, "params": params} for name in ids]}


@pytest.mark.parametrize("name", STORIES)
async def test_each_story_with_our_cancel_in_it_ends_as_the_provider_says(tmp_path: Path, name: str) -> None:
    """E1, E2, E4: one call, its answer kept and believed in nothing; what was finished before is collected, counted."""
    story = EXPECT["stories"][name]
    account = Account(story["kind"], story)
    async with on_stage(tmp_path / "state", account) as ground:
        operation = (await ground.api("POST", "/v1/operations", body=start_of(account))).json()["operation_id"]

        async def is_running() -> bool:
            return (await ground.row(operation)).state == "observing"

        await until(is_running)
        wish = {"by": "ann", "reason": "not needed", "effect": "no further items run"}
        asked = await ground.api("POST", f"/v1/operations/{operation}/cancel", body=wish)
        assert asked.status == 202
        assert asked.json()["done"] is False
        body = await ground.get(f"/v1/operations/{operation}?wait=15")
        page = await ground.get(f"/v1/operations/{operation}/items?limit=500")
        history = (await ground.get(f"/v1/operations/{operation}/history?limit=500"))["history"]

    assert (body["state"], body["summary"]) == (story["end"], story["summary"])
    found = {i["item_id"]: i["outcome"] + (f": {i['reason']}" if i["reason"] else "") for i in page["items"]}
    assert found == story["items"]
    assert (account.creates, account.cancels) == (1, 1)
    answer = json.loads((FIXTURES / story["cancel_answer"]).read_bytes())["status"] if "cancel_answer" in story else 200
    assert (body["cancel"]["by"], body["cancel"]["answer"]) == ("ann", SAID[answer])
    assert body["cancel"]["may_remain"]
    states = [row["to"] for row in history if row["kind"] == "move"]
    assert states.index("cancel_requested") < states.index("result_collecting")

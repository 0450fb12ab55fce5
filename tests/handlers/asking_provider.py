"""A provider of the tests' own whose jobs may wait for input: no shipped kind has such jobs yet.

The adapter is pure as any other; the account behind it is a real server on loopback whose jobs are in the state
that the test puts them in, and which keeps what it was sent.
"""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiohttp import web
from yarl import URL

from daemon.provider_config import ProviderConfig
from reconcile import answers
from reconcile.contract import CancelTerms, Contract, Limits, PollPlan, Word
from reconcile.errors import RequestInvalid, Unreadable
from reconcile.evidence import (
    Accepted,
    CancelAnswer,
    CancelAnswered,
    CollectFailed,
    CreateUnknown,
    Evidence,
    InputAnswer,
    InputAnswered,
    JobGone,
    JobRead,
    ReadFailed,
)
from reconcile.fingerprint import canonical_json
from reconcile.model import JsonObject, Observation, Operation, ResultRef, VerdictKind
from reconcile.provider import HttpRequest, HttpResponse, Item, KnownAs, Page, Purpose, Step, unknown
from reconcile.read_json import JsonValue, read_id, read_object
from tests.handlers.ground import Ground, HandClock, running, until
from tests.handlers.test_collect import serving

CONTRACT = Contract(
    kind="asks",
    version=1,
    words={
        "running": Word(VerdictKind.PENDING),
        "waiting": Word(VerdictKind.BLOCKED),
        "done": Word(VerdictKind.DONE),
        "failed": Word(VerdictKind.FAILED),
        "cancelled": Word(VerdictKind.CANCELLED),
    },
    poll=PollPlan(base_ms=2, cap_ms=4, sweep_ms=4),
    limits=Limits(requests_per_second=5000, concurrency=8),
    status_page="https://status.asks.example",
    operation_type="question",
    result_within_ms=3_600_000,
    cancel=CancelTerms(is_repeatable=False, may_remain="What it had answered by then is kept."),
    takes_input=True,
)
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Asks:
    """The adapter."""

    contract: Contract = CONTRACT

    def check_start(self, request: JsonObject, items: Sequence[Any] | None) -> JsonObject:
        if items is not None:
            raise RequestInvalid("/items", "not taken")
        return request

    def item_line(self, item: Any, index: int, mark: str | None = None) -> tuple[str, bytes]:
        raise RequestInvalid("/items", "not taken")

    def submit(self, op: Operation) -> Step:
        request = HttpRequest("POST", "jobs", Purpose.CREATE, headers=JSON, body=canonical_json(op.request))
        return Step("create", request, has_effect=True)

    def read_submit(self, op: Operation, step: Step, response: HttpResponse) -> Evidence:
        seen = _seen(response)
        return Accepted(seen) if seen is not None else CreateUnknown(answers.error_class(response))

    def status(self, op: Operation) -> HttpRequest:
        return HttpRequest("GET", f"jobs/{op.remote_job_id}", Purpose.STATUS)

    def read_status(self, response: HttpResponse) -> JobRead | JobGone | ReadFailed:
        seen = _seen(response)
        return JobRead(seen) if seen is not None else ReadFailed(answers.error_class(response))

    def list_page(self, cursor: str | None) -> HttpRequest:
        return HttpRequest("GET", "jobs", Purpose.LOOKUP)

    def read_list(self, response: HttpResponse, known_as: KnownAs = unknown) -> Page | ReadFailed:
        return Page((), None)

    def marker(self, op: Operation) -> str | None:
        return None

    def is_candidate(self, op: Operation, seen: Observation) -> bool:
        return False

    def cancel(self, op: Operation) -> HttpRequest:
        return HttpRequest("POST", f"jobs/{op.remote_job_id}/cancel", Purpose.CANCEL)

    def read_cancel(self, response: HttpResponse) -> CancelAnswered:
        if response.status == 200:
            return CancelAnswered(CancelAnswer.ACCEPTED)
        return answers.cancel_refusal(response, is_own_error=True)

    def input(self, op: Operation, data: JsonValue) -> HttpRequest:
        body = canonical_json({"message": data})
        return HttpRequest("POST", f"jobs/{op.remote_job_id}/input", Purpose.INPUT, headers=JSON, body=body)

    def read_input(self, response: HttpResponse) -> InputAnswered:
        if response.status == 200:
            return InputAnswered(InputAnswer.ACCEPTED)
        return answers.input_refusal(response, is_own_error=True)

    def result(self, op: Operation, ref: ResultRef) -> HttpRequest:
        return HttpRequest("GET", f"jobs/{op.remote_job_id}/result", Purpose.RESULT)

    def read_result_error(self, response: HttpResponse) -> CollectFailed:
        return answers.result_refusal(response)

    def read_item(self, line: bytes, ref: ResultRef) -> Item:
        return Item(read_id(read_object(line).get("id"), what="id"), "succeeded")

    def read_webhook(self, body: bytes) -> Observation:
        raise Unreadable("no webhooks")


def _seen(response: HttpResponse) -> Observation | None:
    if response.status != 200:
        return None
    try:
        job = read_object(response.body)
        return Observation(
            read_id(job.get("state"), what="state"),
            remote_job_id=read_id(job.get("id"), what="id"),
            results=(ResultRef("out"),) if job.get("state") == "done" else (),
        )
    except Unreadable:
        return None


@dataclass
class Account:
    """The provider's side: one job, the state it is in, and what came."""

    state: str = "waiting"
    #: Answers to inputs, one each; then 200. A function is asked, and may change the state first.
    input_answers: list[Any] = field(default_factory=list)
    #: What an input that is taken makes of the job.
    then: str = "done"
    inputs: list[bytes] = field(default_factory=list)
    cancels: int = 0
    reads: int = 0

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/jobs", self._job)
        app.router.add_get("/jobs/{job}", self._read)
        app.router.add_post("/jobs/{job}/input", self._input)
        app.router.add_post("/jobs/{job}/cancel", self._cancel)
        app.router.add_get("/jobs/{job}/result", self._result)
        return app

    async def _job(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"id": "job_1", "state": self.state})

    async def _read(self, request: web.Request) -> web.StreamResponse:
        self.reads += 1
        return await self._job(request)

    async def _input(self, request: web.Request) -> web.StreamResponse:
        self.inputs.append(await request.read())
        answer = self.input_answers.pop(0) if self.input_answers else None
        if answer is not None:
            given: web.StreamResponse = answer(request) if callable(answer) else answer
            return given
        self.state = self.then
        return web.json_response({})

    async def _cancel(self, _: web.Request) -> web.StreamResponse:
        self.cancels += 1
        self.state = "cancelled"
        return web.json_response({})

    async def _result(self, _: web.Request) -> web.StreamResponse:
        return web.Response(body=json.dumps({"id": "answer"}).encode())


def refusal(status: int, **headers: str) -> Callable[[web.Request], web.Response]:
    return lambda _: web.json_response({"error": "no"}, status=status, headers=headers)


def lost(request: web.Request) -> web.Response:
    """The connection goes away in the middle."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@dataclass
class Stage:
    """The daemon and the account it talks to."""

    ground: Ground
    account: Account

    async def start(self, **fields: Any) -> str:
        body = {"provider": "asks", "request": {"question": "?"}, **fields}
        answer = await self.ground.api("POST", "/v1/operations", body=body)
        assert answer.status == 202, answer
        return str(answer.json()["operation_id"])

    async def state(self, operation: str, *states: str) -> Any:
        """Wait for one of the states; the body then."""

        async def is_so() -> bool:
            return (await self.ground.row(operation)).state in states

        await until(is_so)
        return await self.ground.get(f"/v1/operations/{operation}")

    async def blocked(self, **fields: Any) -> str:
        """An operation whose job waits for input; the worker must be on."""
        operation = await self.start(**fields)
        await self.state(operation, "blocked")
        return operation


def _earlier(folder: Path, url: str) -> tuple[URL, ...]:
    """Where the account of the lives before was: each life serves it on another port."""
    kept = folder.with_name(f"{folder.name}.urls")
    earlier = kept.read_text().split() if kept.exists() else []
    kept.write_text("\n".join([*earlier, url]))
    return tuple(map(URL, earlier))


@asynccontextmanager
async def asking_stage(
    folder: Path, account: Account, *, worker: bool = True, clock: HandClock | None = None, **more: Any
) -> AsyncIterator[Stage]:
    """The daemon with the provider `asks`; time runs unless a clock is handed in."""
    contract = replace(CONTRACT, **more.pop("contract", {}))
    if clock is None:
        clock = HandClock()
        clock.run()
    async with serving(account.app()) as url:
        asks = ProviderConfig("asks", Asks(contract), URL(url), {}, None, (), moved_from=_earlier(folder, url))
        async with running(folder, worker=worker, clock=clock, more_providers={"asks": asks}, **more) as ground:
            yield Stage(ground, account)

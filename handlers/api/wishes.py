"""What is asked of one operation: a cancel, an input, a decision. Read strictly, and answered after the commit."""

from typing import Final

from aiohttp import web

from handlers import access
from handlers.answer import answer
from handlers.api.body import json_of
from handlers.api.deps import LocalDeps
from handlers.api.fields import job_id_of, line_of, object_of, span_of
from handlers.api.query import found, take_only, text_of
from reconcile.decisions import NAMES_A_JOB, TAKES_A_SPAN, Decision
from reconcile.desk import Decided
from reconcile.errors import RequestInvalid
from reconcile.model import JsonObject, Operation
from reconcile.read_json import MAX_ID_LENGTH, JsonValue

#: Characters of a reason or an expected effect. 2,000: arbitrary; a page of text that stands in each history row.
MAX_REASON: Final = 2_000
_CANCEL: Final = frozenset({"by", "reason", "effect"})
_DECISION: Final = frozenset({"decision", "by", "reason", "remote_job_id", "within"})


class Wishes:
    """Routes that ask something of one operation."""

    def __init__(self, deps: LocalDeps) -> None:
        self._deps = deps

    async def cancel(self, request: web.Request) -> web.Response:
        """POST: 202, the intent recorded and nothing claimed; repeated, the same answer."""
        take_only(request)
        op = await found(self._deps.store, request.match_info["operation_id"])
        body = object_of(await json_of(request), _CANCEL)
        by = line_of(body, "by", most=MAX_ID_LENGTH)
        asked = await self._deps.desk.cancel(
            op,
            actor=access.client_actor(request, by),
            by=by,
            reason=line_of(body, "reason", most=MAX_REASON),
            effect=line_of(body, "effect", most=MAX_REASON),
        )
        return await self._taken(asked)

    async def give_input(self, request: web.Request) -> web.Response:
        """POST: 202 once any JSON body is durable as the job's input; `?by=NAME` says whose it is."""
        take_only(request, "by")
        op = await found(self._deps.store, request.match_info["operation_id"])
        said = text_of(request, "by") or None
        if said is not None and len(said) > MAX_ID_LENGTH:
            raise RequestInvalid("/by", f"longer than {MAX_ID_LENGTH} characters", status=400)
        await json_of(request)
        actor, by = access.client_actor(request, said), access.caller(request, said) or access.ANONYMOUS
        return await self._taken(await self._deps.desk.give_input(op, actor=actor, by=by, data=await request.read()))

    async def decide(self, request: web.Request) -> web.Response:
        """POST: 200 and the body once the decision is done; 409 where it is not open."""
        take_only(request)
        op = await found(self._deps.store, request.match_info["operation_id"])
        return await decided_on(self._deps, request, op)

    async def _taken(self, op: Operation) -> web.Response:
        body = await self._deps.body(op)
        retry_after = body["poll_after_seconds"] or 0  # 0: it has ended, there is nothing to wait for
        headers = {"Location": f"/v1/operations/{op.operation_id}", "Retry-After": str(retry_after)}
        return answer(body, status=202, headers=headers)


async def decided_on(deps: LocalDeps, request: web.Request, op: Operation) -> web.Response:
    """The request's decision about `op`, done. Raises: NotOpen, Refused, RequestInvalid, Unreadable, StoreError."""
    said = _decided(await json_of(request))
    actor = access.person_actor(request, said.by)
    return answer(await deps.body(await deps.desk.decide(op, said, actor=actor)))


def _decided(given: JsonValue) -> Decided:
    """A decision's body. Raises: RequestInvalid, naming the field by JSON pointer."""
    body = object_of(given, _DECISION)
    word = line_of(body, "decision", most=MAX_ID_LENGTH)
    if word not in set(Decision):
        raise RequestInvalid("/decision", f"unknown; known are {', '.join(Decision)}")
    decision = Decision(word)
    _refuse_idle(body, "remote_job_id", decision in NAMES_A_JOB, decision)
    _refuse_idle(body, "within", decision in TAKES_A_SPAN, decision)
    job_id = job_id_of(body, "remote_job_id")
    if decision in NAMES_A_JOB and job_id is None:
        raise RequestInvalid("/remote_job_id", f"{decision} needs the job's id")
    return Decided(
        decision,
        by=line_of(body, "by", most=MAX_ID_LENGTH),
        reason=line_of(body, "reason", most=MAX_REASON),
        remote_job_id=job_id,
        within_ms=span_of(body, "within"),
    )


def _refuse_idle(body: JsonObject, name: str, is_taken: bool, decision: Decision) -> None:
    """A field that the decision would not look at is a misunderstanding, and is told."""
    if body.get(name) is not None and not is_taken:
        raise RequestInvalid(f"/{name}", f"{decision} does not take this")

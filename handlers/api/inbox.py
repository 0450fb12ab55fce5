"""The inbox (G8): what waits for a person, each entry with its evidence, its decisions and the effect of each."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from aiohttp import web

from handlers import access, bodies, refusals, words
from handlers.answer import answer
from handlers.api.body import json_of
from handlers.api.deps import LocalDeps
from handlers.api.fields import line_of, object_of
from handlers.api.query import cursor_for, id_of_cursor, known, limit_of, number_of, take_only, was_given
from handlers.api.wishes import MAX_REASON, decided_on
from handlers.problem import Refused
from reconcile.errors import RequestInvalid
from reconcile.model import Operation, UnixMs
from reconcile.notice import Notice
from reconcile.read_json import MAX_ID_LENGTH, JsonValue
from reconcile.states import REASON_OF
from reconcile.store.deliveries import EXHAUSTED, Redelivery
from reconcile.store.grounds import Grounds

ACKNOWLEDGE: Final = "acknowledge"
REDELIVER: Final = "redeliver"
_NOTICE_FIELDS: Final = frozenset({"decision", "by", "reason"})


class Inbox:
    """Routes under /v1/inbox."""

    def __init__(self, deps: LocalDeps) -> None:
        self._deps = deps

    async def entries(self, request: web.Request) -> web.Response:
        """GET: notices first, then questions, each oldest first."""
        take_only(request, "limit", "cursor")
        limit = limit_of(request)
        notices, after = await self._after_cursor(request, limit + 1)
        questions = await self._deps.store.questions(after=after, limit=limit + 1 - len(notices))
        cursors = [cursor_for(_place(notice)) for notice in notices]
        cursors += [cursor_for(f"question/{op.operation_id}") for op in questions]
        more = len(cursors) > limit
        if more:
            notices, questions = notices[:limit], questions[: limit - len(notices[:limit])]
        grounds = await self._deps.store.grounds([op.operation_id for op in questions])
        entries = [_notice(notice) for notice in notices]
        entries += [self._question(await self._deps.store.as_shown(op), grounds[op.operation_id]) for op in questions]
        return answer({"inbox": entries, "next_cursor": cursors[limit - 1] if more else None})

    async def decide(self, request: web.Request) -> web.Response:
        """POST: a notice is acknowledged; a question is decided as at its operation."""
        take_only(request)
        entry_id = request.match_info["entry_id"]
        op = await known(self._deps.store, entry_id)
        if op is not None:
            return await decided_on(self._deps, request, op)
        decision, by, reason = _decided(await json_of(request))
        by = access.signed(request, by)  # a notice has no history, and its own row says who took it off
        now = self._deps.clock.now()
        do = self._redeliver if decision == REDELIVER else self._acknowledge
        await do(entry_id, by, reason, now)
        at = bodies.rfc3339(now)
        return answer({"id": entry_id, "decision": decision, "by": by, "reason": reason, "at": at})

    async def _acknowledge(self, notice_id: str, by: str, reason: str, now: UnixMs) -> None:
        if not await self._deps.store.acknowledge(notice_id, by=by, because=reason, at=now):
            raise Refused(refusals.NO_NOTICE)
        self._deps.log.info("notice_acknowledged", notice_id=notice_id, by=by, reason=reason)

    async def _redeliver(self, notice_id: str, by: str, reason: str, now: UnixMs) -> None:
        if not await self._deps.store.deliveries.redeliver(Redelivery(notice_id, by, reason, now)):
            raise Refused(refusals.NOTHING_TO_REDELIVER)
        self._deps.log.info("callback_redelivered", notice_id=notice_id, by=by, reason=reason)

    async def _after_cursor(self, request: web.Request, limit: int) -> tuple[list[Notice], str | None]:
        """The next notices after the cursor, and the question after which the questions follow."""
        kind, _, rest = id_of_cursor(request).partition("/")
        if kind == "":
            return await self._deps.store.notices(limit=limit), None
        if kind == "question" and await was_given(self._deps.store, rest):
            return [], rest
        at, _, notice_id = rest.partition("/")
        since = number_of(at)
        if kind == "notice" and since is not None:
            return await self._deps.store.notices(after=(since, notice_id), limit=limit), None
        raise RequestInvalid("/cursor", "is not a cursor that was given out", status=400)

    def _question(self, op: Operation, grounds: Grounds) -> dict[str, Any]:
        contract = self._deps.contract(op.provider)
        asked = bodies.attention(op, contract) or {}
        return {
            "id": op.operation_id,
            "kind": "question",
            "reason": asked["reason"],
            "operation_id": op.operation_id,
            "provider": op.provider,
            "since": asked["since"],
            "deadline": asked["deadline"],
            "message": asked["message"],
            "evidence": _evidence(op, grounds, contract.status_page if contract is not None else None),
            "candidates": asked["candidates"],
            "decisions": asked["decisions"],
        }


def sizes(states: Mapping[str, int], notices: Mapping[str, int]) -> dict[str, int]:
    """How many entries of each kind the inbox has, by how many operations there are in each state."""
    return {"question": sum(states.get(state, 0) for state in REASON_OF), "notice": sum(notices.values())}


def _evidence(op: Operation, grounds: Grounds, status_page: str | None) -> dict[str, Any]:
    here = f"/v1/operations/{op.operation_id}"
    return {
        "state": op.state.value,
        "remote_job_id": op.remote_job_id,
        "remote_status": op.remote_status,
        "trace_id": op.trace_id,
        "status_page": status_page,
        "requests": [
            {**asdict(sent), "sent_at": bodies.rfc3339(sent.sent_at), "ended_at": bodies.rfc3339(sent.ended_at)}
            for sent in grounds.requests
        ],
        "observations": [{**asdict(seen), "at": bodies.rfc3339(seen.at)} for seen in grounds.observations],
        "status_url": here,
        "history_url": f"{here}/history",
        "observations_url": f"{here}/observations",
    }


def _notice(notice: Notice) -> dict[str, Any]:
    return {
        "id": notice.notice_id,
        "kind": "notice",
        "reason": notice.reason,
        "operation_id": notice.operation_id,
        "provider": notice.provider,
        "since": bodies.rfc3339(notice.since),
        "deadline": None,
        "message": notice.message,
        "evidence": dict(notice.evidence),
        "candidates": [],
        "decisions": _open_to(notice),
    }


def _open_to(notice: Notice) -> list[dict[str, str]]:
    decisions = [{"decision": ACKNOWLEDGE, "effect": words.ACKNOWLEDGED}]
    if notice.reason == EXHAUSTED:
        decisions.insert(0, {"decision": REDELIVER, "effect": words.REDELIVERED})
    return decisions


def _place(notice: Notice) -> str:
    return f"notice/{notice.since}/{notice.notice_id}"


def _decided(given: JsonValue) -> tuple[str, str, str]:
    body = object_of(given, _NOTICE_FIELDS)
    decision = line_of(body, "decision", most=MAX_ID_LENGTH)
    if decision not in (ACKNOWLEDGE, REDELIVER):
        told = f"unknown for a notice; known are {ACKNOWLEDGE} and, for {EXHAUSTED}, {REDELIVER}"
        raise RequestInvalid("/decision", told)
    return decision, line_of(body, "by", most=MAX_ID_LENGTH), line_of(body, "reason", most=MAX_REASON)

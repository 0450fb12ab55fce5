"""Operations: start, show, wait, list, history."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from aiohttp import web

from handlers import access, bodies, words
from handlers.answer import answer
from handlers.api import start_body
from handlers.api.body import json_of
from handlers.api.deps import LocalDeps
from handlers.api.query import client_key, count_of, found, labels_of, limit_of, take_only, text_of, wait_of, was_given
from handlers.api.start_form import FORM, StartForm
from handlers.api.waiting import hold
from reconcile.errors import RequestInvalid
from reconcile.model import Operation
from reconcile.read_json import JsonValue
from reconcile.states import REASON_OF, STATUS_OF, State, Status
from reconcile.store.starts import Started

_TOO_LARGE: Final = (
    "the JSON of a start has at most {most} bytes; send a larger input as multipart/form-data: a part named operation"
    " (this JSON without items), then a part named input (the items, one JSON object a line)"
)
_ITSELF: Final[Mapping[str, set[State]]] = {state: {state} for state in State}
_OF_STATUS: Final[Mapping[str, set[State]]] = {
    status: {state for state in State if STATUS_OF[state] is status} for status in Status
}
_FILTERS: Final = ("open", "attention", "state", "status", "provider")
_BOOLEANS: Final = {"true": True, "false": False, None: None}


class Operations:
    """Routes under /v1/operations."""

    def __init__(self, deps: LocalDeps) -> None:
        self._deps = deps

    async def start(self, request: web.Request) -> web.Response:
        """POST: 202 with Location, Retry-After and the body; 200 where the key's operation is done."""
        take_only(request)
        key = client_key(request)
        if request.content_type == FORM:
            form = StartForm(request, self._deps.clock)
            body = await self._within_cap(form.operation())
            wish = replace(start_body.parse_form(body, client_key=key), items=form.input())
        else:
            body = await self._within_cap(json_of(request, or_as=FORM))
            wish = start_body.parse(body, client_key=key)
        name = start_body.provider_of(body)
        peer = self._deps.peers.get(name)
        if peer is None or peer.absence is not None:
            known = ", ".join(sorted(n for n, each in self._deps.peers.items() if each.absence is None)) or "none"
            raise RequestInvalid("/provider", f"no provider {name!r} is configured; configured: {known}")
        # The token's own name stands in for a caller that was not named (client keys compare what was sent).
        actor, caller = access.client_actor(request, wish.caller), access.caller(request, wish.caller)
        started = await self._deps.starter.start(peer, replace(wish, actor=actor, caller=caller))
        return await self._started(started)

    async def _within_cap(self, reading: Awaitable[JsonValue]) -> JsonValue:
        """A start's JSON. Raises: HTTPException, RequestInvalid, Unreadable."""
        try:
            return await reading
        except web.HTTPRequestEntityTooLarge as fault:
            most = self._deps.max_start_body
            raise RequestInvalid("", _TOO_LARGE.format(most=most), status=413) from fault

    async def list(self, request: web.Request) -> web.Response:
        """GET: operations, newest first."""
        take_only(request, *_FILTERS, "limit", "cursor", labels=True)
        limit = limit_of(request)
        is_open, states = _boolean(request, "open"), _states(request)
        after = text_of(request, "cursor")
        if after is not None and not await was_given(self._deps.store, after):
            raise RequestInvalid("/cursor", "is not a cursor that was given out", status=400)
        provider, labels = text_of(request, "provider"), labels_of(request)
        ops = await self._deps.store.find(
            after=after, limit=limit + 1, is_open=is_open, states=states, provider=provider, labels=labels
        )
        page = ops[:limit]
        cursor = page[-1].operation_id if len(ops) > limit else None
        return answer({"operations": [await self._deps.body(op) for op in page], "next_cursor": cursor})

    async def get(self, request: web.Request) -> web.Response:
        """GET: the body; `?wait=SECONDS` holds it until done, a person is needed, or time is up."""
        take_only(request, "wait")
        operation_id = request.match_info["operation_id"]
        seconds = wait_of(request)
        if seconds == 0:
            op = await found(self._deps.store, operation_id)
            return answer(await self._deps.whole_body(op))
        began = self._deps.clock.monotonic()
        op = await self._wait(operation_id, seconds, lambda op: bodies.wait_result(op) is not None)
        waited = round(self._deps.clock.monotonic() - began, 3)
        result = bodies.wait_result(op) or "timed_out"
        told = {"result": result, "waited_seconds": waited}
        return answer({**await self._deps.whole_body(op), "wait": told})

    async def history(self, request: web.Request) -> web.Response:
        """GET: history rows, oldest first; `?wait=SECONDS` holds the answer until there is one after `cursor`."""
        take_only(request, "limit", "cursor", "wait")
        operation_id = request.match_info["operation_id"]
        limit = limit_of(request, 100)
        after = count_of(request, "cursor", 0, 2**53)
        seconds = wait_of(request)
        op = await self._wait(operation_id, seconds, lambda op: op.seq > after or op.is_terminal)
        rows = await self._deps.store.history(op.operation_id, after=after, limit=limit + 1)
        page = rows[:limit]
        cursor = str(page[-1].seq) if len(rows) > limit else None
        return answer({"history": [bodies.history_row(row) for row in page], "next_cursor": cursor})

    async def observations(self, request: web.Request) -> web.Response:
        """GET: what was observed and told something new, oldest first, with the bytes it was read from."""
        take_only(request, "limit", "cursor")
        op = await found(self._deps.store, request.match_info["operation_id"])
        limit = limit_of(request, 100)
        after = count_of(request, "cursor", 0, 2**53)
        seen = await self._deps.store.observations(op.operation_id, after=after, limit=limit + 1)
        page = seen[:limit]
        cursor = str(page[-1].number) if len(seen) > limit else None
        return answer({"observations": [bodies.observation(one) for one in page], "next_cursor": cursor})

    async def _wait(self, operation_id: str, seconds: int, is_enough: Callable[[Operation], bool]) -> Operation:
        """Wait in memory for committed changes; the database is asked once, at the beginning."""
        with self._deps.changes.watch(operation_id) as watch:
            ops = {operation_id: await found(self._deps.store, operation_id)}
            await hold(watch, ops, seconds, lambda: is_enough(ops[operation_id]))
            return ops[operation_id]

    async def _started(self, started: Started) -> web.Response:
        op, body = started.operation, await self._deps.body(started.operation, is_start=True)
        if not started.is_new:
            body["message"] = f"{words.REPEATED} {body['message']}"
        if op.is_terminal:
            return answer(body)
        headers = {"Location": f"/v1/operations/{op.operation_id}", "Retry-After": str(body["poll_after_seconds"])}
        return answer(body, status=202, headers=headers)


def _boolean(request: web.Request, name: str) -> bool | None:
    given = text_of(request, name)
    if given not in _BOOLEANS:
        raise RequestInvalid(f"/{name}", "must be true or false", status=400)
    return _BOOLEANS[given]


def _states(request: web.Request) -> Collection[State] | None:
    """The states that `state`, `status` and `attention` leave; None where none of them is given."""
    asks = _boolean(request, "attention")
    left = set(State)
    for name, known in (("state", _ITSELF), ("status", _OF_STATUS)):
        word = text_of(request, name)
        if word is None:
            continue
        if word not in known and name == "status" and word in _ITSELF:
            raise RequestInvalid("/status", f"{word} is a state; ask for it by state={word}", status=400)
        if word not in known:
            raise RequestInvalid(f"/{name}", f"must be one of {', '.join(known)}", status=400)
        left &= known[word]
    if asks is not None:
        left = {state for state in left if (state in REASON_OF) == asks}
    return None if len(left) == len(State) else left

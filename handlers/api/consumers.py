"""What consumers ask: wait for many, read what has ended in its order, take each end once."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from aiohttp import web

from handlers import bodies, refusals
from handlers.access import client_actor
from handlers.answer import answer
from handlers.api.body import json_of
from handlers.api.deps import LocalDeps
from handlers.api.fields import line_of, object_of
from handlers.api.query import (
    DIGITS,
    absent,
    client_key,
    cursor_for,
    found,
    limit_of,
    take_only,
    text_of,
    text_of_cursor,
    wait_of,
)
from handlers.api.waiting import hold
from handlers.problem import Refused
from reconcile.errors import RequestInvalid
from reconcile.model import Operation
from reconcile.quoted import quoted
from reconcile.read_json import MAX_ID_LENGTH
from reconcile.store.completion_claims import CompletionClaim
from reconcile.store.consumers import Completion, Place

#: Seconds that a wait for several holds where nothing is said (interface's example).
USUAL_WAIT: Final = 60
#: Operations that one call waits for. 100: their ids make some 4,000 bytes of the request's first line, of which
#: aiohttp and most proxies take 8,190.
MAX_IDS: Final = 100
#: Of a row's hash, so much stands in a cursor: 16 hex digits, 64 bits, more than two records share by chance.
_HASH_DIGITS: Final = 16
_CURSOR: Final = re.compile(
    rf"(\d{{1,{DIGITS}}})\.([0-9a-f]{{{_HASH_DIGITS}}})\.([!-~]{{1,{MAX_ID_LENGTH}}})", re.ASCII
)
#: Before every end.
_BEGINNING: Final = Place(0, "0" * _HASH_DIGITS, "-")
_MODES: Final[Mapping[str, Callable[[Iterable[bool]], bool]]] = {"any": any, "all": all}


class Consumers:
    """Routes for those who want to know of ends."""

    def __init__(self, deps: LocalDeps) -> None:
        self._deps = deps

    async def wait(self, request: web.Request) -> web.Response:
        """GET: held until any or all of the operations have ended or need a person, or time is up."""
        take_only(request, "id", "mode", "wait")
        ids, mode = _ids(request), text_of(request, "mode") or "any"
        if mode not in _MODES:
            raise RequestInvalid("/mode", f"must be one of {', '.join(_MODES)}", status=400)
        seconds = wait_of(request, USUAL_WAIT)

        def is_enough() -> bool:
            return _MODES[mode](bodies.wait_result(op) is not None for op in ops.values())

        with self._deps.changes.watch(*ids) as watch:
            ops = await self._deps.store.consumers.operations(ids)
            for name in ids:
                if name not in ops:
                    raise await absent(self._deps.store, name)
            await hold(watch, ops, seconds, is_enough)
        shown = [await self._deps.body(ops[name]) for name in ids]
        return answer({"mode": mode, "timed_out": not is_enough(), "operations": shown})

    async def completions(self, request: web.Request) -> web.Response:
        """GET: what has ended after the cursor, in its order; `?wait=SECONDS` holds until there is something."""
        take_only(request, "after", "limit", "wait")
        limit = limit_of(request)
        seconds = wait_of(request)
        place = _place(text_of(request, "after"))
        if place.position and not await self._deps.store.consumers.knows(place):
            raise Refused(refusals.OTHER_RECORD)
        page: list[Completion] = []
        try:
            async with asyncio.timeout(seconds or None):
                while True:
                    end = self._deps.changes.next_end()  # before the file is read, else an end between is missed
                    page = await self._deps.store.consumers.completions(after=place.position, limit=limit)
                    if page or not seconds or self._deps.changes.is_closed:
                        break
                    await end.wait()
        except TimeoutError:
            pass
        told = [await self._completion(one) for one in page]
        cursor = _cursor(page[-1].place if page else place)
        return answer({"completions": told, "next_cursor": cursor})

    async def claim(self, request: web.Request) -> web.Response:
        """POST: 200 once for each consumer, and again for its own key; 409 after, 425 before the end."""
        take_only(request)
        op = await found(self._deps.store, request.match_info["operation_id"])
        consumer = line_of(object_of(await json_of(request), frozenset({"consumer"})), "consumer", most=MAX_ID_LENGTH)
        key = client_key(request)
        if not op.is_terminal:
            raise await self._too_early(op)
        now = self._deps.clock.now()
        claim = CompletionClaim(op.operation_id, consumer, client_actor(request, consumer), now, key)
        taken = await self._deps.store.consumers.take(claim)
        at = bodies.rfc3339(taken.at)
        told: dict[str, Any] = {"operation_id": op.operation_id, "consumer": consumer, "claimed_at": at}
        if not taken.is_yours:
            raise Refused(refusals.CLAIMED, more=told, consumer=quoted(consumer), at=at)
        return answer({**told, "outcome": op.outcome})

    async def _completion(self, one: Completion) -> dict[str, Any]:
        return {
            "position": one.place.position,
            "completed_at": bodies.rfc3339(one.operation.completed_at),
            "operation": await self._deps.body(one.operation),
        }

    async def _too_early(self, op: Operation) -> Refused:
        body = await self._deps.body(op)
        again = {"Retry-After": str(body["poll_after_seconds"])}
        return Refused(refusals.TOO_EARLY, more={"state": body["state"]}, headers=again, message=body["message"])


def _ids(request: web.Request) -> list[str]:
    """The operations to wait for, each once, in the order in which they were named. Raises: RequestInvalid."""
    ids = list(dict.fromkeys(request.query.getall("id", [])))
    if not 1 <= len(ids) <= MAX_IDS:
        raise RequestInvalid("/id", f"give 1 to {MAX_IDS} operations, each as id=", status=400)
    for name in ids:
        if not (name.isascii() and name.isprintable() and 1 <= len(name) <= MAX_ID_LENGTH):
            raise RequestInvalid("/id", "is no operation's id", status=400)
    return ids


def _cursor(place: Place) -> str:
    return cursor_for(f"{place.position}.{place.hash[:_HASH_DIGITS]}.{place.operation_id}")


def _place(cursor: str | None) -> Place:
    """The place that a cursor stands for, the beginning without one. Raises: RequestInvalid."""
    if cursor is None:
        return _BEGINNING
    try:
        text = text_of_cursor(cursor)
    except ValueError:
        text = ""
    parts = _CURSOR.fullmatch(text)
    if parts is None:
        raise RequestInvalid("/after", "is not a cursor that was given out", status=400)
    return Place(int(parts[1]), parts[2], parts[3])

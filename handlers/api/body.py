"""A request's body, read within bounds of size, time and form; what breaks one is told with its own status."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from handlers import refusals
from handlers.problem import Refused
from reconcile.errors import RequestInvalid
from reconcile.read_json import JsonValue, read_json

#: Seconds in which a JSON body must have come. 60: ten MiB in it are 170 KB a second, and the caller is near.
BODY_SECONDS: Final = 60


async def json_of(request: web.Request, *, or_as: str | None = None) -> JsonValue:
    """The request's JSON; `or_as` names what else would have been taken.

    Raises: Refused, HTTPException, RequestInvalid, Unreadable.
    """
    if request.content_type != "application/json":
        ways = "application/json" if or_as is None else f"application/json or {or_as}"
        raise Refused(refusals.BODY_TYPE, ways=ways)
    async with in_time(BODY_SECONDS):
        data = await request.read()
    return read_json(data)


@asynccontextmanager
async def in_time(seconds: float) -> AsyncIterator[None]:
    """Bounds one read of a body. Raises: Refused; RequestInvalid, where the sender went away."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as fault:
        raise Refused(refusals.LATE_BODY) from fault
    except ConnectionError as fault:  # nobody is left to read it
        raise RequestInvalid("", "the body was cut off", status=400) from fault

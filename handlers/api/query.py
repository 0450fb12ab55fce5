"""Query parameters and path ids, read strictly: a misspelled number is told, not guessed."""

import base64
from typing import Final

from aiohttp import web
from multidict import MultiDict, MultiDictProxy, MultiMapping

from handlers import bodies, refusals
from handlers.problem import Refused
from reconcile.errors import RequestInvalid
from reconcile.given import pointer
from reconcile.model import Operation
from reconcile.quoted import quoted
from reconcile.store.store import Store

#: Seconds that one call may hold its answer, and entries of one page (interface: at most 600 and 500).
MAX_WAIT: Final = 600
MAX_LIMIT: Final = 500
#: Digits of a number in a request. 16: below 64 bits, and beyond what any position, time or count comes to.
DIGITS: Final = 16
#: Characters of an id that names nothing, as it is told again. 64: arbitrary, beyond the length of ours.
_MOST_TOLD: Final = 64
#: What the name of a parameter that asks for a label begins with.
_LABEL: Final = "label."
_NONE_GIVEN: Final = MultiDictProxy[str](MultiDict())


async def known(store: Store, operation_id: str) -> Operation | None:
    """The operation of that id, if there is one."""
    return await store.get(operation_id) if operation_id.isprintable() and operation_id.isascii() else None


async def found(store: Store, operation_id: str) -> Operation:
    """The operation of that id. Raises: Refused."""
    op = await known(store, operation_id)
    if op is None:
        raise await absent(store, operation_id)
    return op


async def was_given(store: Store, operation_id: str) -> bool:
    """Whether a list can have named this operation, even if it was pruned since."""
    return operation_id.isprintable() and operation_id.isascii() and await store.has_place(operation_id)


async def absent(store: Store, operation_id: str) -> Refused:
    """What is told of an id that names no operation."""
    is_id = operation_id.isprintable() and operation_id.isascii()
    was_pruned = await store.was_pruned(operation_id) if is_id else None
    more = {"operation_id": operation_id}
    if was_pruned is None:
        return Refused(refusals.NO_OPERATION, more=more, operation_id=quoted(operation_id, most=_MOST_TOLD))
    if was_pruned.at is None:
        return Refused(refusals.BEING_REMOVED, more=more, operation_id=operation_id)
    return Refused(refusals.REMOVED, more=more, operation_id=operation_id, at=bodies.rfc3339(was_pruned.at))


def take_only(request: web.Request, *names: str, labels: bool = False) -> None:
    """A misspelled filter would answer with what nobody asked for. Raises: RequestInvalid, where a name is unknown."""
    for name in _parameters(request):
        if name not in names and not (labels and name.startswith(_LABEL)):
            known = (*names, f"{_LABEL}KEY") if labels else names
            told = f"unknown parameter; known are {', '.join(sorted(known)) or 'none'}"
            raise RequestInvalid(pointer("", name), told, status=400)


def _parameters(request: web.Request) -> MultiMapping[str]:
    """What stands behind the question mark; most who ask about one operation write none."""
    return request.query if request.rel_url.raw_query_string else _NONE_GIVEN


def labels_of(request: web.Request) -> dict[str, str]:
    """The labels asked for, each as `label.KEY=VALUE`. Raises: RequestInvalid."""
    names = [name for name in _parameters(request) if name.startswith(_LABEL)]
    return {name.removeprefix(_LABEL): text_of(request, name) or "" for name in names}


def text_of(request: web.Request, name: str) -> str | None:
    """A parameter given at most once. Raises: RequestInvalid."""
    values = _parameters(request).getall(name, [])
    if len(values) > 1:
        raise RequestInvalid(pointer("", name), "given more than once", status=400)
    if values and not values[0].isprintable():
        raise RequestInvalid(pointer("", name), "holds control characters", status=400)
    return values[0] if values else None


def client_key(request: web.Request) -> str | None:
    """The Idempotency-Key, None without one. Raises: RequestInvalid."""
    values = request.headers.getall("Idempotency-Key", [])
    if not values:
        return None
    key = values[0].strip().strip('"')
    if len(values) > 1 or not 1 <= len(key) <= 255 or not key.isascii() or not key.isprintable():
        raise RequestInvalid("/Idempotency-Key", "one header of 1 to 255 printable ASCII characters", status=400)
    return key


def cursor_for(text: str) -> str:
    """A cursor that any id, or place, fits into."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def text_of_cursor(cursor: str) -> str:
    """What `cursor_for` was given. Raises: ValueError."""
    return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("utf-8")


def id_of_cursor(request: web.Request) -> str:
    """The id that `cursor_for` was given, empty where there is no cursor. Raises: RequestInvalid."""
    try:
        return text_of_cursor(text_of(request, "cursor") or "")
    except ValueError as fault:
        raise RequestInvalid("/cursor", "is not a cursor that was given out", status=400) from fault


def number_of(text: str) -> int | None:
    """A whole number of digits alone; None for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else None


def limit_of(request: web.Request, usual: int = 50) -> int:
    """How many entries a page may have. Raises: RequestInvalid."""
    return count_of(request, "limit", usual, MAX_LIMIT, least=1)


def wait_of(request: web.Request, usual: int = 0) -> int:
    """For how many seconds the answer may be held. Raises: RequestInvalid."""
    return count_of(request, "wait", usual, MAX_WAIT)


def count_of(request: web.Request, name: str, default: int, most: int, *, least: int = 0) -> int:
    """A whole number from `least` to `most`. Raises: RequestInvalid."""
    value = text_of(request, name)
    if value is None:
        return default
    number = number_of(value)
    if number is None or not least <= number <= most:
        raise RequestInvalid(f"/{name}", f"must be a whole number from {least} to {most}", status=400)
    return number

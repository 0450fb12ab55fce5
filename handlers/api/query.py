"""Query parameters and path ids, read strictly: a misspelled number is told, not guessed."""

from aiohttp import web

from reconcile.errors import RequestInvalid
from reconcile.model import Operation
from reconcile.store.store import Store


async def found(store: Store, operation_id: str) -> Operation:
    """The operation of that id. Raises: HTTPNotFound."""
    op = await store.get(operation_id) if operation_id.isprintable() and operation_id.isascii() else None
    if op is None:
        raise web.HTTPNotFound(text="There is no operation with this id.")
    return op


def text_of(request: web.Request, name: str) -> str | None:
    """A parameter given at most once. Raises: RequestInvalid."""
    values = request.query.getall(name, [])
    if len(values) > 1:
        raise RequestInvalid(f"/{name}", "given more than once", status=400)
    if values and not values[0].isprintable():
        raise RequestInvalid(f"/{name}", "holds control characters", status=400)
    return values[0] if values else None


def count_of(request: web.Request, name: str, default: int, most: int) -> int:
    """A whole number between 0 and `most`. Raises: RequestInvalid."""
    value = text_of(request, name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) <= 16 and int(value) <= most):
        raise RequestInvalid(f"/{name}", f"must be a whole number from 0 to {most}", status=400)
    return int(value)

"""Fields of a request body, read strictly: each refusal points at the field (RFC 6901)."""

from typing import Any, Final

from reconcile.errors import RequestInvalid, Unreadable
from reconcile.given import SPAN_EXAMPLES, pointer, refuse_unknown, span_ms
from reconcile.model import JsonObject
from reconcile.read_json import JsonValue, read_line, read_path_id

#: Longest span a caller may ask for, days. 366: beyond, a typing mistake is likelier than a wish.
MAX_SPAN_DAYS: Final = 366
MAX_SPAN_MS: Final = MAX_SPAN_DAYS * 86_400_000


def object_of(body: JsonValue, known: frozenset[str]) -> JsonObject:
    """The body as an object that holds none but the known fields. Raises: RequestInvalid."""
    if not isinstance(body, dict):
        raise RequestInvalid("", "the body must be a JSON object")
    refuse_unknown(body, known, "")
    return body


def line_of(body: JsonObject, name: str, *, most: int) -> str:
    """A required text on one line. Raises: RequestInvalid."""
    try:
        return read_line(body.get(name), what=name, most=most)
    except Unreadable as fault:
        raise RequestInvalid(pointer("", name), fault.reason) from fault


def job_id_of(body: JsonObject, name: str) -> str | None:
    """A provider's job id, None where it is absent. Raises: RequestInvalid."""
    value: Any = body.get(name)
    try:
        return None if value is None else read_path_id(value, what=name)
    except Unreadable as fault:
        raise RequestInvalid(pointer("", name), fault.reason) from fault


def span_of(body: JsonObject, name: str) -> int | None:
    """A duration in ms, None where it is absent. Raises: RequestInvalid."""
    value = body.get(name)
    if value is None:
        return None
    span = span_ms(value)
    if span is None:
        raise RequestInvalid(pointer("", name), f"must be a duration such as {SPAN_EXAMPLES}")
    if span > MAX_SPAN_MS:
        raise RequestInvalid(pointer("", name), f"must be a duration of at most {MAX_SPAN_DAYS}d")
    return span

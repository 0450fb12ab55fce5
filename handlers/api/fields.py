"""Fields of a request body, read strictly: each refusal points at the field (RFC 6901)."""

import re
from typing import Any, Final

from reconcile.errors import RequestInvalid, Unreadable
from reconcile.given import pointer, refuse_unknown
from reconcile.model import JsonObject
from reconcile.read_json import JsonValue, read_line, read_path_id

_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
#: Longest span a caller may ask for, ms. 366 d: beyond, a typing mistake is likelier than a wish.
MAX_SPAN_MS: Final = 366 * 86_400_000


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
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    span = int(match[1]) * _UNITS_MS[match[2]] if match else 0
    if not 0 < span <= MAX_SPAN_MS:
        raise RequestInvalid(pointer("", name), 'must be a duration such as "30s", "10m", "26h" or "7d"')
    return span

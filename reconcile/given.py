"""Checks of what a client gave, shared by the adapters: each refusal points at the field (RFC 6901)."""

import re
from collections.abc import Mapping
from typing import Any, Final

from reconcile.errors import RequestInvalid, Unreadable
from reconcile.read_json import read_id

#: What a start takes, `request` one of it; the rest stands beside the request and never in it.
START_FIELDS: Final = frozenset(
    {
        "provider",
        "request",
        "items",
        "remote_job_id",
        "type",
        "caller",
        "approval",
        "labels",
        "expect",
        "create_within",
        "result_within",
        "cancel_within",
        "input_within",
        "callback_url",
    }
)
#: A name in HTTP (a token of RFC 9110, 5.6.2): that of a header, either half of a media type.
HTTP_NAME: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
HEADER_NAME: Final = re.compile(HTTP_NAME)
_REQUEST: Final = "/request"
_SPAN: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: How a span may be written, for whoever wrote it otherwise.
SPAN_EXAMPLES: Final = '"200ms", "30s", "10m", "26h" or "7d"'


def span_ms(value: Any) -> int | None:
    """A span such as "10m" in ms, above 0; None where it is none. Files, bodies and commands spell it alike."""
    match = _SPAN.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]) * _UNITS_MS[match[2]] or None) if match else None


def spelled(ms: int) -> str:
    """A span in ms as `span_ms` reads it, by the largest unit that leaves no rest."""
    unit = max((unit for unit, size in _UNITS_MS.items() if ms % size == 0), key=_UNITS_MS.__getitem__)
    return f"{ms // _UNITS_MS[unit]}{unit}"


def refuse_unknown(given: Mapping[str, Any], known: frozenset[str], at: str) -> None:
    for key in given:
        if key not in known:
            is_misplaced = at == _REQUEST and key in START_FIELDS
            hint = f"; {key} belongs beside the request, not in it" if is_misplaced else ""
            raise RequestInvalid(pointer(at, key), f"unknown; known are {', '.join(sorted(known))}{hint}")


def pointer(at: str, key: str) -> str:
    escaped = key.replace("~", "~0").replace("/", "~1")
    return f"{at}/{escaped}"


def text_given(value: Any, at: str) -> str:
    try:
        return read_id(value, what="value")
    except Unreadable as error:
        raise RequestInvalid(at, f"must be a string of ordinary characters ({error.reason})") from error


def path_given(value: Any, at: str) -> str:
    if value is None:
        raise RequestInvalid(at, "is missing; such as /v1/responses")
    path = text_given(value, at)
    if not path.startswith("/"):
        raise RequestInvalid(at, 'must be a path such as "/v1/responses"')
    return path

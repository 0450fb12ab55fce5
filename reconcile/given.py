"""Checks of what a client gave, shared by the adapters: each refusal points at the field (RFC 6901)."""

import re
from collections.abc import Mapping
from typing import Any, Final

from reconcile.errors import RequestInvalid, Unreadable
from reconcile.read_json import read_id

_SPAN: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
#: How a span may be written, for whoever wrote it otherwise.
SPAN_EXAMPLES: Final = '"200ms", "30s", "10m", "26h" or "7d"'


def span_ms(value: Any) -> int | None:
    """A span such as "10m" in ms, above 0; None where it is none. Files, bodies and commands spell it alike."""
    match = _SPAN.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]) * _UNITS_MS[match[2]] or None) if match else None


def refuse_unknown(given: Mapping[str, Any], known: frozenset[str], at: str) -> None:
    for key in given:
        if key not in known:
            raise RequestInvalid(pointer(at, key), f"unknown; known are {', '.join(sorted(known))}")


def pointer(at: str, key: str) -> str:
    escaped = key.replace("~", "~0").replace("/", "~1")
    return f"{at}/{escaped}"


def text_given(value: Any, at: str) -> str:
    try:
        return read_id(value, what="value")
    except Unreadable as error:
        raise RequestInvalid(at, f"must be a string of ordinary characters ({error.reason})") from error


def path_given(value: Any, at: str) -> str:
    path = text_given(value, at)
    if not path.startswith("/"):
        raise RequestInvalid(at, 'must be a path such as "/v1/responses"')
    return path

"""The start body: each field's type is checked here, with a pointer to what is wrong.

What the provider itself takes is the adapter's business (reconcile/start.py asks it).
"""

import re
from typing import Any, Final

from handlers.api import expect_body
from reconcile.errors import RequestInvalid, Unreadable
from reconcile.model import JsonObject, Spans
from reconcile.read_json import JsonValue, read_id
from reconcile.start import StartWish, content_digest

_FIELDS: Final = frozenset(
    {
        "provider",
        "request",
        "type",
        "items",
        "caller",
        "approval",
        "labels",
        "expect",
        "create_within",
        "result_within",
        "cancel_within",
        "input_within",
    }
)
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
#: Labels on one operation. 64: arbitrary; they travel with each change of the row.
MAX_LABELS: Final = 64
#: Longest span a caller may ask for, ms. 366 d: beyond, a typing mistake is likelier than a wish.
MAX_SPAN_MS: Final = 366 * 86_400_000


def provider_of(body: JsonValue) -> str:
    """The provider's name. Raises: RequestInvalid."""
    if not isinstance(body, dict):
        raise RequestInvalid("", "the body must be a JSON object")
    return _text(body, "provider", required=True) or ""


def parse(body: JsonValue, *, client_key: str | None) -> StartWish:
    """The checked wish. Raises: RequestInvalid, naming the field by JSON pointer."""
    if not isinstance(body, dict):
        raise RequestInvalid("", "the body must be a JSON object")
    for name in body:
        if name not in _FIELDS:
            raise RequestInvalid(f"/{_escaped(name)}", f"unknown field; known: {', '.join(sorted(_FIELDS))}")
    request = body.get("request")
    if not isinstance(request, dict):
        raise RequestInvalid("/request", "must be an object: the provider's own create body")
    items = body.get("items")
    if items is not None and not isinstance(items, list):
        raise RequestInvalid("/items", "must be a list")
    return StartWish(
        request=request,
        items=items,
        type=_text(body, "type"),
        caller=_text(body, "caller"),
        approval=_text(body, "approval"),
        labels=_labels(body),
        expect=expect_body.parse(body.get("expect")),
        spans=Spans(
            create_ms=_span(body, "create_within"),
            result_ms=_span(body, "result_within"),
            cancel_ms=_span(body, "cancel_within"),
            input_ms=_span(body, "input_within"),
        ),
        client_key=client_key,
        content=content_digest(body),
    )


def _text(body: JsonObject, name: str, *, required: bool = False) -> str | None:
    value = body.get(name)
    if value is None and not required:
        return None
    try:
        return read_id(value, what=name)
    except Unreadable as fault:
        raise RequestInvalid(f"/{name}", fault.reason) from fault


def _labels(body: JsonObject) -> dict[str, str]:
    labels: Any = {} if body.get("labels") is None else body["labels"]
    if not isinstance(labels, dict):
        raise RequestInvalid("/labels", "must be an object of strings")
    if len(labels) > MAX_LABELS:
        raise RequestInvalid("/labels", f"at most {MAX_LABELS} labels")
    for name, value in labels.items():
        try:
            read_id(name, what="label")
            read_id(value, what="label value")
        except Unreadable as fault:
            raise RequestInvalid(f"/labels/{_escaped(name)}", fault.reason) from fault
    return dict(labels)


def _span(body: JsonObject, name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    span = int(match[1]) * _UNITS_MS[match[2]] if match else 0
    if not 0 < span <= MAX_SPAN_MS:
        raise RequestInvalid(f"/{name}", 'must be a duration such as "30s", "10m", "26h" or "7d"')
    return span


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")

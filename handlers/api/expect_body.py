"""`expect` in a start body: each of the client's promises about the result, checked before anything is sent."""

import re
from typing import Final

from reconcile import json_schema
from reconcile.errors import RequestInvalid, Unreadable
from reconcile.given import HTTP_NAME, refuse_unknown
from reconcile.promises import Expected
from reconcile.read_json import MAX_COUNT, JsonValue, read_id

FIELDS: Final = frozenset({"items", "content_type", "sha256", "json_schema"})
_AT: Final = "/expect"
#: RFC 9110, 8.3.1: type/subtype, then parameters.
_MEDIA_TYPE: Final = re.compile(rf'{HTTP_NAME}/{HTTP_NAME}(?: *; *{HTTP_NAME}=(?:{HTTP_NAME}|"[^"\\;\r\n]*"))*')
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")


def parse(value: JsonValue) -> Expected:
    """The checked promises. Raises: RequestInvalid, naming the field by JSON pointer."""
    if value is None:
        return Expected()
    if not isinstance(value, dict):
        raise RequestInvalid(_AT, f"must be an object with any of {', '.join(sorted(FIELDS))}")
    refuse_unknown(value, FIELDS, _AT)
    count, ids = _items(value.get("items"))
    digest = _matching(value.get("sha256"), _SHA256, "sha256", "must be a SHA-256 as 64 hex digits")
    schema = value.get("json_schema")
    return Expected(
        items=count,
        ids=ids,
        content_type=_matching(
            value.get("content_type"), _MEDIA_TYPE, "content_type", 'must be a media type such as "application/jsonl"'
        ),
        sha256=digest.lower() if digest is not None else None,
        json_schema=json_schema.check(schema, f"{_AT}/json_schema") if schema is not None else None,
    )


def _items(value: JsonValue) -> tuple[int | None, tuple[str, ...]]:
    at = f"{_AT}/items"
    if value is None:
        return None, ()
    if isinstance(value, list) and value:
        return None, _ids(value, at)
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_COUNT:
        return value, ()
    raise RequestInvalid(at, "must be a count from 1 on, or a list of ids that is not empty")


def _ids(values: list[JsonValue], at: str) -> tuple[str, ...]:
    seen: dict[str, int] = {}
    for index, value in enumerate(values):
        try:
            item_id = read_id(value, what="id")
        except Unreadable as fault:
            raise RequestInvalid(f"{at}/{index}", fault.reason) from fault
        if item_id in seen:
            raise RequestInvalid(f"{at}/{index}", f"the id {item_id!r} stands at {at}/{seen[item_id]} already")
        seen[item_id] = index
    return tuple(seen)


def _matching(value: JsonValue, shape: re.Pattern[str], name: str, message: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not shape.fullmatch(value):
        raise RequestInvalid(f"{_AT}/{name}", message)
    return value

"""Checks of what a client gave, shared by the adapters: each refusal points at the field (RFC 6901)."""

from collections.abc import Mapping
from typing import Any

from reconcile.errors import RequestInvalid, Unreadable
from reconcile.read_json import read_id


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

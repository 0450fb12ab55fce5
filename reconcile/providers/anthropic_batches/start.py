"""What a client may ask of a batch; refused before anything is sent."""

import json
from collections.abc import Sequence
from typing import Any, Final

from reconcile import marks
from reconcile.errors import RequestInvalid, Unreadable
from reconcile.fingerprint import canonical_json
from reconcile.given import refuse_unknown, text_given
from reconcile.model import JsonObject

#: Characters of a custom_id: API reference, "Create a Message Batch"; a longer one was answered 400
#: (https://github.com/anthropics/anthropic-sdk-python/issues/984). Which characters it may hold is left to the
#: provider: its no comes at once and makes no batch, while a no of ours that is wrong could not be got round.
MAX_CUSTOM_ID: Final = 64

_ITEM_KEYS: Final = frozenset({"custom_id", "params"})


def check(request: JsonObject, items: Sequence[Any] | None, *, max_items: int | None) -> JsonObject:
    """What the create body holds besides its `requests`. Of `items` only the length is looked at.

    Raises: RequestInvalid.
    """
    if "requests" in request:
        raise RequestInvalid("/request/requests", "the requests are given as items")
    if not items:
        raise RequestInvalid("/items", "at least one item is needed: a request as {custom_id, params}")
    if max_items is not None and len(items) > max_items:
        raise RequestInvalid("/items", f"{len(items)} items; the provider takes at most {max_items} in one batch")
    try:
        canonical_json(request)
    except Unreadable as error:
        raise RequestInvalid("/request", "holds a value that JSON cannot state") from error
    return dict(request)


def item_line(item: Any, index: int, mark: str | None) -> tuple[str, bytes]:
    """One item as (custom_id, line of the input file, its custom_id marked). Raises: RequestInvalid.

    The params keep the order of their keys: a tool's schema is part of what the model reads.
    """
    at = f"/items/{index}"
    if not isinstance(item, dict):
        raise RequestInvalid(at, "must be an object")
    refuse_unknown(item, _ITEM_KEYS, at)
    custom_id = text_given(item.get("custom_id"), f"{at}/custom_id")
    if mark is not None and len(custom_id) > MAX_CUSTOM_ID - marks.ADDED:
        told = f"with the {marks.ADDED} characters of mark_items at most {MAX_CUSTOM_ID - marks.ADDED} are left for it"
        raise RequestInvalid(f"{at}/custom_id", told)
    if len(custom_id) > MAX_CUSTOM_ID:
        raise RequestInvalid(f"{at}/custom_id", f"the provider takes at most {MAX_CUSTOM_ID} characters")
    if not isinstance(item.get("params"), dict):
        raise RequestInvalid(f"{at}/params", "must be an object")
    sent_id = custom_id if mark is None else marks.put_on(mark, custom_id)
    line = {"custom_id": sent_id, "params": item["params"]}
    try:
        spelled = json.dumps(line, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise RequestInvalid(f"{at}/params", "holds a value that JSON cannot state") from error
    return custom_id, spelled + b"\n"

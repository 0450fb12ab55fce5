"""What a client may ask of a batch; refused before anything is uploaded."""

import json
from collections.abc import Sequence
from typing import Any, Final

from reconcile.errors import RequestInvalid
from reconcile.given import path_given, pointer, refuse_unknown, text_given
from reconcile.model import JsonObject
from reconcile.read_json import integer

#: Our own key in a batch's metadata, so that people see on the provider's pages whose it is.
OPERATION_KEY: Final = "reconciled_operation"
#: The only window that is documented.
COMPLETION_WINDOW: Final = "24h"
#: Pairs a client may set. The provider takes 16 (API reference, "Create batch"); two are kept back for our own.
MAX_METADATA: Final = 14
#: Characters of a metadata key and value: API reference, "Create batch".
MAX_METADATA_KEY: Final = 64
MAX_METADATA_VALUE: Final = 512
#: How long output files may be kept, seconds after `created_at`: API reference, "Create batch".
MIN_EXPIRES_SECONDS: Final = 3_600
MAX_EXPIRES_SECONDS: Final = 2_592_000

_REQUEST_KEYS: Final = frozenset({"endpoint", "completion_window", "metadata", "input_file_id", "output_expires_after"})
_ITEM_KEYS: Final = frozenset({"custom_id", "method", "url", "body"})


def check(request: JsonObject, items: Sequence[Any] | None, *, max_items: int | None) -> JsonObject:
    """The create body as it will be kept. Of `items` only the length is looked at.

    Raises: RequestInvalid.
    """
    refuse_unknown(request, _REQUEST_KEYS, "/request")
    body: JsonObject = {
        "endpoint": path_given(request.get("endpoint"), "/request/endpoint"),
        "completion_window": text_given(
            request.get("completion_window", COMPLETION_WINDOW), "/request/completion_window"
        ),
    }
    if request.get("metadata") is not None:
        body["metadata"] = _metadata_given(request["metadata"])
    if request.get("output_expires_after") is not None:
        body["output_expires_after"] = _expiry_given(request["output_expires_after"])
    file_id = request.get("input_file_id")
    if file_id is not None:
        body["input_file_id"] = text_given(file_id, "/request/input_file_id")
        if items is not None:
            raise RequestInvalid("/items", "either items or request.input_file_id, not both")
    else:
        _check_count(items, max_items)
    return body


def _check_count(items: Sequence[Any] | None, most: int | None) -> None:
    if items is None:
        raise RequestInvalid("/items", "items are needed, or request.input_file_id of a file uploaded before")
    if not items:
        raise RequestInvalid("/items", "at least one item is needed")
    if most is not None and len(items) > most:
        raise RequestInvalid("/items", f"{len(items)} items; the provider takes at most {most} in one batch")


def item_line(item: Any, index: int) -> tuple[str, bytes]:
    """One item as (custom_id, line of the input file). Raises: RequestInvalid.

    The body keeps the order of its keys: answers by a JSON schema come in the order of the schema's keys, so
    that sorting them would change what the model writes.
    """
    at = f"/items/{index}"
    if not isinstance(item, dict):
        raise RequestInvalid(at, "must be an object")
    refuse_unknown(item, _ITEM_KEYS, at)
    custom_id = text_given(item.get("custom_id"), f"{at}/custom_id")
    if item.get("method", "POST") != "POST":
        raise RequestInvalid(f"{at}/method", "the provider takes POST only")
    url = path_given(item.get("url"), f"{at}/url")
    if not isinstance(item.get("body"), dict):
        raise RequestInvalid(f"{at}/body", "must be an object")
    line = {"custom_id": custom_id, "method": "POST", "url": url, "body": item["body"]}
    try:
        spelled = json.dumps(line, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise RequestInvalid(f"{at}/body", "holds a value that JSON cannot state") from error
    return custom_id, spelled + b"\n"


def _metadata_given(value: Any) -> dict[str, str]:
    at = "/request/metadata"
    if not isinstance(value, dict):
        raise RequestInvalid(at, "must be an object")
    if len(value) > MAX_METADATA:
        raise RequestInvalid(at, f"at most {MAX_METADATA} pairs")
    for key, pair_value in value.items():
        if not 1 <= len(key) <= MAX_METADATA_KEY:
            raise RequestInvalid(at, f"a key has 1 to {MAX_METADATA_KEY} characters")
        if key == OPERATION_KEY:
            raise RequestInvalid(pointer(at, key), "this key is set by us")
        if not isinstance(pair_value, str) or len(pair_value) > MAX_METADATA_VALUE:
            raise RequestInvalid(pointer(at, key), f"must be a string of at most {MAX_METADATA_VALUE} characters")
    return dict(value)


def _expiry_given(value: Any) -> JsonObject:
    at = "/request/output_expires_after"
    if not isinstance(value, dict):
        raise RequestInvalid(at, "must be an object")
    refuse_unknown(value, frozenset({"anchor", "seconds"}), at)
    if value.get("anchor") != "created_at":
        raise RequestInvalid(f"{at}/anchor", 'must be "created_at"')
    seconds = integer(value, "seconds")
    if seconds is None or not MIN_EXPIRES_SECONDS <= seconds <= MAX_EXPIRES_SECONDS:
        raise RequestInvalid(f"{at}/seconds", f"must be an integer from {MIN_EXPIRES_SECONDS} to {MAX_EXPIRES_SECONDS}")
    return dict(value)

"""The start body: each field's type is checked here, with a pointer to what is wrong.

What the provider itself takes is the adapter's business (reconcile/start.py asks it).
"""

from typing import Any, Final

from handlers.api import expect_body
from handlers.api.fields import job_id_of, object_of, span_of
from reconcile.errors import RequestInvalid, Unreadable
from reconcile.given import START_FIELDS, pointer
from reconcile.model import JsonObject, Spans
from reconcile.read_json import JsonValue, read_id
from reconcile.start import StartWish, content_digest

_FIELDS: Final = START_FIELDS
#: Labels on one operation. 64: arbitrary; they travel with each change of the row.
MAX_LABELS: Final = 64


def provider_of(given: JsonValue) -> str:
    """The provider's name. Raises: RequestInvalid."""
    body = object_of(given, _FIELDS)
    return _text(body, "provider", required=True) or ""


def parse(given: JsonValue, *, client_key: str | None) -> StartWish:
    """The checked wish. Raises: RequestInvalid, naming the field by JSON pointer."""
    body = object_of(given, _FIELDS)
    job_id = job_id_of(body, "remote_job_id")
    if job_id is not None:
        _refuse_a_create(body)
    request = {} if job_id is not None else body.get("request")
    if not isinstance(request, dict):
        raise RequestInvalid("/request", "must be an object: the provider's own create body")
    items = body.get("items")
    if items is not None and not isinstance(items, list):
        raise RequestInvalid("/items", "must be a list")
    return StartWish(
        request=request,
        items=items,
        type=_text(body, "type"),
        remote_job_id=job_id,
        caller=_text(body, "caller"),
        approval=_text(body, "approval"),
        labels=_labels(body),
        expect=expect_body.parse(body.get("expect")),
        spans=Spans(
            create_ms=span_of(body, "create_within"),
            result_ms=span_of(body, "result_within"),
            cancel_ms=span_of(body, "cancel_within"),
            input_ms=span_of(body, "input_within"),
        ),
        callback_url=_callback_url(body),
        client_key=client_key,
        content=content_digest(body),
    )


def parse_form(given: JsonValue, *, client_key: str | None) -> StartWish:
    """As `parse`, of a start whose items follow in a part of their own. Raises: RequestInvalid."""
    wish = parse(given, client_key=client_key)
    if wish.items is not None:
        raise RequestInvalid("/items", "must be absent: the items are in the part named input")
    if wish.remote_job_id is not None:
        raise RequestInvalid("/input", "must be absent: with remote_job_id nothing is created")
    return wish


def _refuse_a_create(body: JsonObject) -> None:
    """A job that somebody else created is followed: what only a create takes would be lost. Raises: RequestInvalid."""
    if body.get("request") not in (None, {}):
        raise RequestInvalid("/request", "must be absent or {}: with remote_job_id nothing is created")
    for name in ("items", "create_within"):
        if body.get(name) is not None:
            raise RequestInvalid(f"/{name}", "must be absent: with remote_job_id nothing is created")


def _text(body: JsonObject, name: str, *, required: bool = False) -> str | None:
    value = body.get(name)
    if value is None and not required:
        return None
    try:
        return read_id(value, what=name)
    except Unreadable as fault:
        raise RequestInvalid(pointer("", name), fault.reason) from fault


def _callback_url(body: JsonObject) -> str | None:
    """Where the client wants to be called back; whether anybody may be is the configuration's to say."""
    value = body.get("callback_url")
    if value is not None and not isinstance(value, str):
        raise RequestInvalid("/callback_url", "must be a string: a URL under one of the configured callbacks")
    return value


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
            raise RequestInvalid(pointer("/labels", name), fault.reason) from fault
    return dict(labels)

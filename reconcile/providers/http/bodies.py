"""Reading what the API sends, by where the declaration says that things stand. Wrong types are expected anywhere."""

import json
from collections.abc import Mapping
from typing import Final

from reconcile.errors import Unreadable
from reconcile.fingerprint import canonical_json
from reconcile.model import ENDS, SAYS_DONE, Observation, Progress, RemoteError, ResultRef, VerdictKind
from reconcile.provider import DOCUMENT, INLINE, WHOLE, HttpResponse, Item, Part
from reconcile.providers.http.declaration import Declaration
from reconcile.providers.http.paths import JsonPath, spelled
from reconcile.read_json import JsonValue, read_id, read_json, read_path_id
from reconcile.schedule import hint_ms

#: Characters kept of a message. 1,000: arbitrary; real ones have one or two sentences.
MAX_MESSAGE: Final = 1_000
#: Where an error object has its word and its text: RFC 9457's names beside those in use.
_CODES: Final = ("code", "type", "reason")
_MESSAGES: Final = ("message", "detail", "title", "description", "error")
#: The name of a result that has a request of its own.
BY_REQUEST: Final = "result"
#: Ends that an error may stand beside.
_MAY_SAY_WHY: Final = frozenset({VerdictKind.FAILED, VerdictKind.EXPIRED})


def document(body: bytes) -> JsonValue:
    """A body that holds something. Raises: Unreadable."""
    value = read_json(body)
    if not isinstance(value, dict | list):
        raise Unreadable("neither an object nor a list")
    return value


def job_id(path: JsonPath, body: JsonValue) -> str | None:
    """A job's id, None where the body names none. Raises: Unreadable, for what cannot be one."""
    word = path.word(body)
    return None if word is None else read_path_id(word, what=path.text)


def spelled_id(value: JsonValue, path: JsonPath) -> str:
    """One of several ids that stand at a path. Raises: Unreadable."""
    return read_path_id(spelled(value, what=path.text), what=path.text)


def state(paths: tuple[JsonPath, ...], body: JsonValue) -> str | None:
    """The first word that stands at one of the paths. Raises: Unreadable."""
    for path in paths:
        if (word := path.word(body)) is not None:
            return word
    return None


def observation(said: Declaration, body: JsonValue) -> Observation:
    """A job's own body. Raises: Unreadable, also where no state stands in it."""
    word = state(said.status.state, body)
    if word is None:
        raise Unreadable("no state where one was declared")
    meant = said.status.words.get(word)
    kind = meant.kind if meant is not None else VerdictKind.PENDING
    return Observation(
        word=word,
        remote_job_id=job_id(said.status.job_id, body),
        remote_status=word,
        progress=None if kind in ENDS else progress(said.status.progress, body),
        results=results(said, body, kind)
        if meant is not None and (meant.may_hold_results or kind in SAYS_DONE)
        else (),
        error=error_at(said.status.error, body, fallback=word) if kind in _MAY_SAY_WHY else None,
    )


def created(said: Declaration, body: JsonValue) -> Observation:
    """The create answer. Its id is never thrown away for a flaw beside it: the next read tells the rest.

    Raises: Unreadable, where it names no job.
    """
    named = job_id(said.create.job_id, body)
    if named is None:
        raise Unreadable("no job id where one was declared")
    try:
        seen = observation(said, body)
    except Unreadable:
        return Observation(word=None, remote_job_id=named)
    return Observation(
        word=seen.word,
        remote_job_id=named,
        remote_status=seen.remote_status,
        progress=seen.progress,
        results=seen.results,
        error=seen.error,
    )


def finished(said: Declaration, body: JsonValue) -> Observation | None:
    """A create answer that names no job and holds its end: the result, or the failure (A5); None for any other."""
    try:
        seen = observation(said, body)
    except Unreadable:
        return None
    meant = said.status.words.get(seen.word or "")
    kind = meant.kind if meant is not None else VerdictKind.PENDING
    holds_its_end = kind is VerdictKind.FAILED or (
        kind in SAYS_DONE and any(ref.name == INLINE for ref in seen.results)
    )
    return seen if holds_its_end and seen.remote_job_id is None else None


def progress(path: JsonPath | None, body: JsonValue) -> Progress | None:
    """A percentage, rounded down; None where there is none. It steers nothing, so what is odd is left out (C9)."""
    found = path.values(body) if path is not None else []
    value = found[0] if len(found) == 1 else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        return None
    return Progress(percent=int(value))


def hint(said: Declaration, body: JsonValue) -> int | None:
    """When the body asks to be read next, ms."""
    path = said.status.retry_after
    found = path.values(body) if path is not None else []
    return hint_ms(found[0]) if len(found) == 1 else None


# ---- results ---------------------------------------------------------------------------------------------------


def results(said: Declaration, body: JsonValue, kind: VerdictKind) -> tuple[ResultRef, ...]:
    """What collection has to fetch, or to keep from this very body. Raises: Unreadable."""
    return tuple(ref for ref in (_main(said, body, kind), _lines(said, body)) if ref is not None)


def _main(said: Declaration, body: JsonValue, kind: VerdictKind) -> ResultRef | None:
    items = said.items
    role = WHOLE if items is None else DOCUMENT
    if said.result.request is not None:
        is_there = kind in SAYS_DONE or said.result.is_partial
        return ResultRef(BY_REQUEST, role) if is_there else None
    holds_items = items is not None and items.inline is not None and _is_there(items.inline, body)
    holds_result = said.result.inline is not None and said.result.inline.one(body) is not None
    return ResultRef(INLINE, role) if holds_items or holds_result else None


def _is_there(path: JsonPath, body: JsonValue) -> bool:
    """Whether a list of items stands there; an empty one does too."""
    try:
        path.every(body)
    except Unreadable:
        return False
    return True


def _lines(said: Declaration, body: JsonValue) -> ResultRef | None:
    """The file of items that the body names."""
    if said.items is None or said.items.url is None:
        return None
    url = said.items.url.word(body)
    return None if url is None else ResultRef(read_path_id(url, what=said.items.url.text))


def unfold(said: Declaration, ref: ResultRef, raw: bytes) -> tuple[Part, ...]:
    """What is kept of a body that holds a result: the result, then what its items are found in, a line each.

    The result is the body as it came. Only a value inside a status body has no text of its own left: that one is
    written anew, in the one spelling that a checksum can be promised of.

    Raises: Unreadable.
    """
    body = document(raw)
    path = said.result.inline if ref.name == INLINE else None
    value = path.one(body) if path is not None else None
    if path is not None and value is None and said.items is None:
        raise Unreadable(f"{path.text}: no result where one was declared")
    main = raw if value is None or value is body else canonical_json(value) + b"\n"
    parts = [Part(main, "item" if said.items is None else "nothing")]
    if said.items is not None and said.items.inline is not None:
        entries = said.items.inline.every(body)
        parts.append(Part(b"".join(map(_line, entries)), "items"))
    return tuple(parts)


def _line(value: JsonValue) -> bytes:
    """A value on one line; the keys keep their order."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def item(said: Declaration, row: JsonValue) -> Item:
    """One item. Only a declared word is a success, and a word that is new is none. Raises: Unreadable."""
    if said.items is None:
        raise Unreadable("no items were declared")
    item_id = said.items.id.word(row)
    if item_id is None:
        raise Unreadable(f"{said.items.id.text}: no item id")
    word = _word(said.items.state, row)
    outcome = said.items.outcomes.get(word or "")
    if outcome == "succeeded":
        return Item(item_id, outcome, body=row)
    if outcome is None:
        return Item(item_id, "failed", " ".join(filter(None, ("unknown_state", word))))
    why = error_at(said.items.error, row, fallback="")
    return Item(item_id, outcome, (why.code or why.message) if why is not None else str(word))


def _word(path: JsonPath, body: JsonValue) -> str | None:
    try:
        return path.word(body)
    except Unreadable:
        return None


# ---- errors ----------------------------------------------------------------------------------------------------


def own_error(response: HttpResponse) -> JsonValue:
    """The API's own error body; None where a proxy or a web server speaks."""
    try:
        body = read_json(response.body)
    except Unreadable:
        return None
    return body if isinstance(body, dict) else None


def refusal(said: Declaration, response: HttpResponse, *, fallback: str) -> RemoteError | None:
    """What the API says of its refusal: where errors were declared to stand, else the body itself (RFC 9457)."""
    body = own_error(response)
    if body is None:
        return None
    return error_at(said.status.error, body, fallback=fallback) or _error(body, fallback)


def error_at(path: JsonPath, body: JsonValue, *, fallback: str) -> RemoteError | None:
    """The error that stands at `path`: a text, or an object with one; None where there is none."""
    found = path.values(body)
    return _error(found[0], fallback) if len(found) == 1 else None


def _error(value: JsonValue, fallback: str) -> RemoteError | None:
    if isinstance(value, str) and value:
        return RemoteError(fallback, value[:MAX_MESSAGE])
    if not isinstance(value, dict) or not value:
        return None
    message = next((text for key in _MESSAGES if (text := _text(value, key)) is not None), None)
    code = next((word for key in _CODES if (word := _code(value, key)) is not None), fallback)
    return RemoteError(code, message or "The provider gave no message.")


def _text(value: Mapping[str, JsonValue], key: str) -> str | None:
    found = value.get(key)
    return found[:MAX_MESSAGE] if isinstance(found, str) and found else None


def _code(value: Mapping[str, JsonValue], key: str) -> str | None:
    found = value.get(key)
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    try:
        return read_id(found, what=key)
    except Unreadable:
        return None

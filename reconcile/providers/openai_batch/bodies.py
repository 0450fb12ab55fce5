"""Reading what the provider sends: batch objects, list pages, result lines, errors.

Wrong types are expected anywhere.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from reconcile.errors import Unreadable
from reconcile.list_page import ListPage
from reconcile.model import ENDS, Observation, Progress, RemoteError, ResultRef, UnixMs, VerdictKind
from reconcile.provider import HttpResponse
from reconcile.providers.openai_batch.contract import WORDS
from reconcile.providers.openai_batch.start import OPERATION_KEY
from reconcile.read_json import (
    JsonValue,
    count,
    integer,
    listing,
    mapping,
    read_id,
    read_json,
    read_object,
    read_path_id,
    text,
)
from reconcile.schedule import read_time_ms

#: Characters kept of a provider's message. 1,000: arbitrary; real ones have one or two sentences.
MAX_MESSAGE: Final = 1_000

#: When the provider says it entered a status.
_TIME_OF: Final[Mapping[str, str]] = {
    "validating": "created_at",
    "in_progress": "in_progress_at",
    "finalizing": "finalizing_at",
    "cancelling": "cancelling_at",
    "completed": "completed_at",
    "failed": "failed_at",
    "expired": "expired_at",
    "cancelled": "cancelled_at",
}
_RESULT_FIELDS: Final = (("output_file_id", "output"), ("error_file_id", "error"))
#: What the code of a line without an answer means; any other code is a failure.
_OUTCOME_OF: Final[Mapping[str, str]] = {
    "batch_expired": "expired",
    "batch_cancelled": "cancelled",
    "batch_canceled": "cancelled",
}
#: Codes that speak of load or limits, not of the data (field case C48).
_WORTH_ANOTHER_TRY: Final = frozenset({"token_limit_exceeded", "rate_limit_exceeded", "server_error"})


def created(batch: dict[str, JsonValue]) -> Observation:
    """The create answer. Its id is never thrown away for a flaw beside it: the next read tells the rest."""
    job_id = read_path_id(batch.get("id"), what="id")
    try:
        return observation(batch)
    except Unreadable:
        return Observation(word=None, remote_job_id=job_id)


def observation(batch: dict[str, JsonValue]) -> Observation:
    """A batch object, whatever road brought it. Raises: Unreadable."""
    status = read_id(batch.get("status"), what="status")
    job_id = batch.get("id")
    if job_id is None and not (batch.get("object") == "batch" or "request_counts" in batch):
        raise Unreadable("no batch: neither an id nor anything else of one")  # a proxy's own words, most likely
    meaning = WORDS.get(status)
    has_ended = meaning is not None and meaning.kind in ENDS
    is_done = meaning is not None and meaning.kind is VerdictKind.DONE_UNKNOWN_OUTCOME
    holds_results = is_done or (meaning is not None and meaning.may_hold_results)
    finished, total = _counts(batch)
    return Observation(
        word=status,
        # Without an id it is still the answer to the read of one; whether an id is the one asked for, the caller sees.
        remote_job_id=None if job_id is None else read_path_id(job_id, what="id"),
        remote_status=status,
        progress=None if has_ended else _progress(finished, total),
        results=_results(batch) if holds_results else (),
        finished_items=finished,
        total_items=total,
        error=None if is_done else _batch_error(batch, fallback=status),
        provider_at=read_time_ms(batch.get(_TIME_OF.get(status, ""))),
        marker=_marker(batch),
        named=_named(batch),
    )


def _results(batch: Mapping[str, JsonValue]) -> tuple[ResultRef, ...]:
    """The files that are named: null and an empty string name none (https://github.com/tobert/kaibo/pull/93)."""
    return tuple(
        ResultRef(read_path_id(batch[field], what=field), role)
        for field, role in _RESULT_FIELDS
        if batch.get(field) not in (None, "")
    )


def _counts(batch: Mapping[str, JsonValue]) -> tuple[int | None, int | None]:
    """Finished items (failed ones too) and all. A total of 0 is what stands there before anything was counted."""
    counts = mapping(batch, "request_counts") or {}
    completed, failed, total = (count(counts, key) for key in ("completed", "failed", "total"))
    finished = None if completed is None and failed is None else (completed or 0) + (failed or 0)
    return finished, total or None


def _progress(finished: int | None, total: int | None) -> Progress | None:
    if finished is None or total is None:
        return None
    return Progress(percent=min(finished * 100 // total, 100), completed=finished, total=total)


def _marker(batch: Mapping[str, JsonValue]) -> str | None:
    try:
        return read_id(batch.get("input_file_id"), what="input_file_id")
    except Unreadable:
        return None


def _named(batch: Mapping[str, JsonValue]) -> str | None:
    try:
        return read_id((mapping(batch, "metadata") or {}).get(OPERATION_KEY), what=OPERATION_KEY)
    except Unreadable:
        return None


def listed(
    entries: Iterable[tuple[JsonValue, bytes]],
) -> Iterator[tuple[Observation, bytes]]:
    for entry, written in entries:
        if not isinstance(entry, dict) or entry.get("id") is None:
            continue
        try:
            yield observation(entry), written
        except Unreadable:
            continue


def last_at(page: ListPage) -> UnixMs | None:
    """When the job at the page's end was made."""
    return read_time_ms(page.last.get("created_at")) if isinstance(page.last, dict) else None


def next_cursor(page: ListPage) -> str | None:
    """The next page's cursor. A page that shows nothing ends the walk, whatever it promises."""
    if page.around.get("has_more") is not True or not page.count:
        return None
    for candidate in (page.around.get("last_id"), page.last.get("id") if isinstance(page.last, dict) else None):
        try:
            return read_id(candidate, what="last_id")
        except Unreadable:
            continue
    return None


def outcome(row: dict[str, JsonValue]) -> tuple[str, str]:
    """A line's outcome and reason: success is a 2xx answer whose body holds no error, and no error beside it."""
    error = row.get("error")
    if error is not None:
        code = _code(error) or "error"
        return _OUTCOME_OF.get(code, "failed"), code
    response = mapping(row, "response")
    if response is None:
        return "failed", "no_response"
    status = integer(response, "status_code")
    if status is None:
        return "failed", "no_status_code"
    body = answer(row)
    inner = body.get("error") if body is not None else None
    if not 200 <= status < 300 or inner is not None:
        return "failed", " ".join(filter(None, (str(status), _code(inner))))
    if body is None:
        return "failed", f"{status} no_body"
    return "succeeded", ""


def answer(row: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    """The body of a line's answer; some servers of this shape put the object into a string once more."""
    value = (mapping(row, "response") or {}).get("body")
    if isinstance(value, str):
        try:
            value = read_json(value.encode("utf-8"))
        except Unreadable:
            return None
    return value if isinstance(value, dict) else None


def own_error(response: HttpResponse) -> dict[str, JsonValue] | None:
    """The provider's own error object; None where a proxy or a web server speaks."""
    try:
        error = mapping(read_object(response.body), "error")
    except Unreadable:
        return None
    return error if error is not None and text(error, "message") is not None else None


def speaks_of_the_job(response: HttpResponse) -> bool:
    """Whether a 404 can mean this job. A path that does not exist has the same shape: "Invalid URL (GET /v1/…)"."""
    error = own_error(response)
    return error is not None and not (text(error, "message") or "").startswith("Invalid URL")


def _batch_error(batch: Mapping[str, JsonValue], *, fallback: str) -> RemoteError | None:
    """The first of `errors.data`, which a failed validation fills; else an `error` object, as some servers have it."""
    stated = listing(mapping(batch, "errors") or {}, "data") or []
    errors = [error for error in stated if isinstance(error, dict)]
    if errors:
        return remote_error(errors[0], fallback, more=len(errors) - 1)
    error = mapping(batch, "error")
    return remote_error(error, fallback) if error is not None else None


def remote_error(error: Mapping[str, JsonValue], fallback: str, *, more: int = 0) -> RemoteError:
    code = _code(error) or fallback
    message = (text(error, "message") or "The provider gave no message.")[:MAX_MESSAGE]
    if more:
        message += f" (and {more} more)"
    return RemoteError(code, message, retryable=code in _WORTH_ANOTHER_TRY)


def _code(error: object) -> str | None:
    """The word for an error: its code, else its type; an error may also be that word itself."""
    if isinstance(error, Mapping):
        return _word(error.get("code")) or _word(error.get("type"))
    return _word(error)


def _word(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    try:
        return read_id(value, what="code")
    except Unreadable:
        return None

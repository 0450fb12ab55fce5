"""Reading what the provider sends: batch objects, list pages, result lines, errors.

Wrong types are expected anywhere.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from reconcile.errors import Unreadable
from reconcile.list_page import ListPage
from reconcile.model import Observation, RemoteError, ResultRef, UnixMs
from reconcile.provider import HttpResponse
from reconcile.read_json import JsonValue, count, mapping, read_id, read_object, read_path_id, text
from reconcile.schedule import read_time_ms

#: Characters kept of a provider's message. 1,000: arbitrary; real ones have one or two sentences.
MAX_MESSAGE: Final = 1_000

ENDED: Final = "ended"
_NOT_FOUND: Final = "not_found_error"
#: When the provider says it entered a status.
_TIME_OF: Final[Mapping[str, str]] = {
    "in_progress": "created_at",
    "canceling": "cancel_initiated_at",
    ENDED: "ended_at",
}
#: Every one of these stays at 0 until the whole batch ends, and every request has a line in the results then.
_FINISHED: Final = ("succeeded", "errored", "canceled", "expired")
#: Error types that speak of load or limits, not of the request: API reference, "Errors".
_WORTH_ANOTHER_TRY: Final = frozenset({"rate_limit_error", "api_error", "timeout_error", "overloaded_error"})


def created(batch: dict[str, JsonValue]) -> Observation:
    """The create answer. Its id is never thrown away for a flaw beside it: the next read tells the rest."""
    job_id = read_path_id(batch.get("id"), what="id")
    try:
        return observation(batch)
    except Unreadable:
        return Observation(word=None, remote_job_id=job_id)


def observation(batch: dict[str, JsonValue]) -> Observation:
    """A batch object, whatever road brought it. Raises: Unreadable.

    It shows no progress: the counts tell of none before the end.
    """
    status = read_id(batch.get("processing_status"), what="processing_status")
    job_id = batch.get("id")
    if job_id is None and not (batch.get("type") == "message_batch" or "request_counts" in batch):
        raise Unreadable("no batch: neither an id nor anything else of one")  # a proxy's own words, most likely
    counts = mapping(batch, "request_counts") or {}
    has_ended = status == ENDED
    finished, total = _totals(counts)
    return Observation(
        word=_end_word(batch, counts) if has_ended else status,
        # Without an id it is still the answer to the read of one; whether an id is the one asked for, the caller sees.
        remote_job_id=None if job_id is None else read_path_id(job_id, what="id"),
        remote_status=status,
        results=_results(batch) if has_ended else (),
        results_gone=has_ended and _is_set(batch, "archived_at"),
        finished_items=finished,
        total_items=total,
        provider_at=read_time_ms(batch.get(_TIME_OF.get(status, ""))),
        created_at=read_time_ms(batch.get("created_at")),
    )


def _end_word(batch: Mapping[str, JsonValue], counts: Mapping[str, JsonValue]) -> str:
    """What the counts say of the end. A cancel that came too late, or that nothing could obey, cancelled nothing."""
    if _is_set(batch, "cancel_initiated_at") and count(counts, "canceled"):
        return f"{ENDED}+canceled"
    return f"{ENDED}+expired" if count(counts, "expired") else ENDED


def _is_set(batch: Mapping[str, JsonValue], key: str) -> bool:
    return batch.get(key) not in (None, "")


def _results(batch: Mapping[str, JsonValue]) -> tuple[ResultRef, ...]:
    """The results file where it is named and still there: an archived batch may go on naming it."""
    if _is_set(batch, "archived_at") or not _is_set(batch, "results_url"):
        return ()
    return (ResultRef(read_path_id(batch["results_url"], what="results_url")),)


def _totals(counts: Mapping[str, JsonValue]) -> tuple[int | None, int | None]:
    """Finished items, however they ended, and all: the five counts always add up to the number of requests."""
    finished = [count(counts, key) for key in _FINISHED]
    known = [number for number in finished if number is not None]
    every = [*known, number] if (number := count(counts, "processing")) is not None else []
    total = sum(every) if len(every) == len(_FINISHED) + 1 else 0
    return sum(known) if known else None, total or None


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


def outcome(row: Mapping[str, JsonValue]) -> tuple[str, str]:
    """A line's outcome and reason. Only a success has a message, and a type that is new is none."""
    result = mapping(row, "result")
    if result is None:
        return "failed", "no_result"
    match result.get("type"):
        case "succeeded":
            return ("succeeded", "") if message(row) is not None else ("failed", "no_message")
        case "errored":
            return "failed", _error_type(result) or "errored"
        case "canceled":
            return "cancelled", "canceled"
        case "expired":
            return "expired", "expired"
        case other:
            return "failed", " ".join(filter(None, ("unknown_type", _word(other))))


def message(row: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    """The message of a line that has one."""
    return mapping(mapping(row, "result") or {}, "message")


def _error_type(holder: Mapping[str, JsonValue]) -> str | None:
    """The type of an error, which stands in an envelope of type "error"."""
    envelope = mapping(holder, "error") or {}
    return _word((mapping(envelope, "error") or envelope).get("type"))


def own_error(response: HttpResponse) -> dict[str, JsonValue] | None:
    """The provider's own error object; None where a proxy or a web server speaks."""
    try:
        error = mapping(read_object(response.body), "error")
    except Unreadable:
        return None
    return error if error is not None and text(error, "type") is not None else None


def speaks_of_the_job(response: HttpResponse) -> bool:
    """Whether a 404 can mean this job: in the provider's own words."""
    error = own_error(response)
    return error is not None and error.get("type") == _NOT_FOUND


def remote_error(error: Mapping[str, JsonValue], fallback: str) -> RemoteError:
    code = _word(error.get("type")) or fallback
    message = (text(error, "message") or "The provider gave no message.")[:MAX_MESSAGE]
    return RemoteError(code, message, retryable=code in _WORTH_ANOTHER_TRY)


def _word(value: object) -> str | None:
    try:
        return read_id(value, what="type")
    except Unreadable:
        return None

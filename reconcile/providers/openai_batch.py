"""OpenAI's Batch API: an input file is uploaded, a batch is made of it, and up to two files hold what came of it.

A batch that is `completed` says nothing about its items, and one that is `expired` or `cancelled` may hold paid ones:
only the lines of both files tell. The create honours no idempotency key, so a lost one is found again by its input
file, which we upload anew for each operation. Not documented, and therefore relied on nowhere: the order of the list,
the status code of a cancel that comes too late.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from reconcile import answers
from reconcile.contract import CancelTerms, Contract, Limits, Lookup, PollPlan, WebhookTerms, Word
from reconcile.errors import RequestInvalid, Unreadable
from reconcile.fingerprint import canonical_json
from reconcile.model import (
    ENDS,
    Accepted,
    CancelAnswer,
    CancelAnswered,
    CollectFailed,
    CreateNotAccepted,
    CreateRejected,
    CreateUnknown,
    Evidence,
    JobGone,
    JobRead,
    JsonObject,
    Observation,
    Operation,
    Progress,
    ReadFailed,
    RemoteError,
    ResultIsFailure,
    ResultRef,
    StepDone,
    VerdictKind,
)
from reconcile.provider import FilePart, HttpRequest, HttpResponse, Item, Multipart, Page, Purpose, Step
from reconcile.read_json import JsonValue, integer, listing, mapping, read_id, read_json, read_object, text
from reconcile.schedule import read_time_ms

KIND: Final = "openai_batch"
UPLOAD: Final = "upload"
CREATE: Final = "create"

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
#: Batches on one list page: the most that the API reference allows.
PAGE_SIZE: Final = 100
#: Characters kept of a provider's message. 1,000: arbitrary; real ones have one or two sentences.
MAX_MESSAGE: Final = 1_000
#: The largest count that is believed. 10^9: arbitrary, far beyond 50,000 items; sums of such counts fit any column.
MAX_COUNT: Final = 10**9

_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

_GUIDE: Final = "https://platform.openai.com/docs/guides/batch"
_REFERENCE: Final = "https://platform.openai.com/docs/api-reference/batch"
_FILES: Final = "https://platform.openai.com/docs/api-reference/files/create"
_WEBHOOKS: Final = "https://platform.openai.com/docs/guides/webhooks"

#: https://platform.openai.com/docs/api-reference/batch/object, field `status`: the whole list.
WORDS: Final[Mapping[str, Word]] = {
    "validating": Word(VerdictKind.PENDING),
    "in_progress": Word(VerdictKind.PENDING),
    "finalizing": Word(VerdictKind.PENDING),  # all items may be counted by now, the files are not there yet
    "cancelling": Word(VerdictKind.PENDING),
    "completed": Word(VerdictKind.DONE_UNKNOWN_OUTCOME),
    "failed": Word(VerdictKind.FAILED),  # the input did not pass validation: nothing ran
    "expired": Word(VerdictKind.EXPIRED, may_hold_results=True),
    "cancelled": Word(VerdictKind.CANCELLED, may_hold_results=True),
}

CONTRACT: Final = Contract(
    kind=KIND,
    version=1,
    words=WORDS,
    poll=PollPlan(base_ms=30_000, cap_ms=10 * _MINUTE, sweep_ms=15 * _MINUTE),
    limits=Limits(requests_per_second=5, concurrency=4, max_items=50_000, max_input_bytes=200_000_000),
    status_page="https://status.openai.com",
    operation_type="batch",
    result_within_ms=26 * _HOUR,
    idempotency="none",
    lookup=Lookup(is_sure=True, lag_ms=5 * _MINUTE),
    cancel=CancelTerms(
        is_repeatable=False,
        may_remain=(
            "Items that were finished by then are done and billed. The uploaded input file, and an output and an error"
            " file where any item ran, stay in the account until somebody deletes them or they expire."
        ),
        within_ms=15 * _MINUTE,
    ),
    webhook=WebhookTerms(scheme="standard", tolerance_seconds=300, retries_ms=72 * _HOUR),
    results_kept_ms=30 * _DAY,
    sources={
        "poll.base_ms": "arbitrary: no page advises an interval; a batch takes minutes to hours",
        "poll.cap_ms": "arbitrary: an end is seen ten minutes late at most, for 144 reads a day",
        "poll.sweep_ms": "arbitrary: what a lost webhook costs; a quarter of the shortest result retention",
        "poll.error_budget": "arbitrary: about three hours at the cap",
        "limits.requests_per_second": "arbitrary: no page states a rate for status calls; low enough for every tier",
        "limits.concurrency": "arbitrary",
        "limits.max_items": _GUIDE,
        "limits.max_input_bytes": f"{_GUIDE}: 200 MB, read as the smaller of its two meanings",
        "result_within_ms": f"{_GUIDE}: a window of 24 h; the two hours on top for validation and files are arbitrary",
        "lookup.lag_ms": "arbitrary: no page says how soon a new batch is listed",
        "lookup.max_pages": "arbitrary: 2,000 batches, as many as one hour may create",
        "cancel.within_ms": f"{_REFERENCE}/cancel: up to 10 minutes; the five on top are arbitrary",
        "webhook.tolerance_seconds": "the official SDK's default, both ways",
        "webhook.retries_ms": _WEBHOOKS,
        "results_kept_ms": f"{_FILES}: files of purpose batch expire after 30 days; `output_expires_after` may shorten",
        "create_within_ms": "arbitrary, the default for every provider",
        "input_within_ms": "not used: a batch is never blocked",
        "attention_within_ms": "a working week, the default for every provider",
        "collect_within_ms": "arbitrary, the default for every provider",
        "collect_budget": "arbitrary, the default for every provider",
    },
)

_REQUEST_KEYS: Final = frozenset({"endpoint", "completion_window", "metadata", "input_file_id", "output_expires_after"})
_ITEM_KEYS: Final = frozenset({"custom_id", "method", "url", "body"})
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
#: Answers to an upload that no repetition of the same bytes will change.
_UPLOAD_REFUSED: Final = frozenset({400, 413, 422})


@dataclass(frozen=True, slots=True)
class OpenAIBatch:
    """The adapter. Paths are relative to a base URL that ends in `/v1`."""

    contract: Contract = CONTRACT

    # ---- submit ----------------------------------------------------------------------------------------------

    def check_start(self, request: JsonObject, items: Sequence[Any] | None) -> JsonObject:
        """The create body as it will be kept. Of `items` only the length is looked at.

        Raises: RequestInvalid.
        """
        _refuse_unknown(request, _REQUEST_KEYS, "/request")
        body: JsonObject = {
            "endpoint": _path_given(request.get("endpoint"), "/request/endpoint"),
            "completion_window": _given(
                request.get("completion_window", COMPLETION_WINDOW), "/request/completion_window"
            ),
        }
        if request.get("metadata") is not None:
            body["metadata"] = _metadata_given(request["metadata"])
        if request.get("output_expires_after") is not None:
            body["output_expires_after"] = _expiry_given(request["output_expires_after"])
        file_id = request.get("input_file_id")
        if file_id is not None:
            body["input_file_id"] = _given(file_id, "/request/input_file_id")
            if items is not None:
                raise RequestInvalid("/items", "either items or request.input_file_id, not both")
        else:
            self._check_count(items)
        return body

    def _check_count(self, items: Sequence[Any] | None) -> None:
        most = self.contract.limits.max_items
        if items is None:
            raise RequestInvalid("/items", "items are needed, or request.input_file_id of a file uploaded before")
        if not items:
            raise RequestInvalid("/items", "at least one item is needed")
        if most is not None and len(items) > most:
            raise RequestInvalid("/items", f"{len(items)} items; the provider takes at most {most} in one batch")

    def item_line(self, item: Any, index: int) -> tuple[str, bytes]:
        """One item as (custom_id, line of the input file). Raises: RequestInvalid.

        The body keeps the order of its keys: answers by a JSON schema come in the order of the schema's keys, so
        that sorting them would change what the model writes.
        """
        at = f"/items/{index}"
        if not isinstance(item, dict):
            raise RequestInvalid(at, "must be an object")
        _refuse_unknown(item, _ITEM_KEYS, at)
        custom_id = _given(item.get("custom_id"), f"{at}/custom_id")
        if item.get("method", "POST") != "POST":
            raise RequestInvalid(f"{at}/method", "the provider takes POST only")
        url = _path_given(item.get("url"), f"{at}/url")
        if not isinstance(item.get("body"), dict):
            raise RequestInvalid(f"{at}/body", "must be an object")
        line = {"custom_id": custom_id, "method": "POST", "url": url, "body": item["body"]}
        try:
            spelled = json.dumps(line, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8")
        except (ValueError, RecursionError) as error:
            raise RequestInvalid(f"{at}/body", "holds a value that JSON cannot state") from error
        return custom_id, spelled + b"\n"

    def submit(self, op: Operation) -> Step:
        """The upload, unless it is done or a file was named; then the create."""
        file_id = op.steps.get(UPLOAD) or op.request.get("input_file_id")
        if file_id is None and op.input_ref is not None:
            return Step(UPLOAD, _upload(op, op.input_ref), has_effect=False)
        body = {
            **op.request,
            "input_file_id": file_id,
            "metadata": {**op.request.get("metadata", {}), OPERATION_KEY: op.operation_id},
        }
        headers = {"content-type": "application/json"}
        request = HttpRequest("POST", "batches", Purpose.CREATE, headers=headers, body=canonical_json(body))
        return Step(CREATE, request, has_effect=True)

    def read_submit(self, op: Operation, step: Step, response: HttpResponse) -> Evidence:  # noqa: ARG002 - one shape for all providers
        """A file id, the job, or what the refusal means."""
        if step.name == UPLOAD:
            return _read_upload(response)
        if response.status in (200, 201):
            try:
                return Accepted(_created(read_object(response.body)))
            except Unreadable:
                return CreateUnknown("unreadable")
        error = _own_error(response)
        return answers.create_refusal(
            response,
            _remote_error(error, answers.error_class(response)) if error is not None else None,
            is_about_this_request=error is not None and error.get("param") is not None,
        )

    # ---- reads -----------------------------------------------------------------------------------------------

    def status(self, op: Operation) -> HttpRequest:
        """The batch object."""
        return HttpRequest("GET", f"batches/{_job_segment(op)}", Purpose.STATUS)

    def read_status(self, response: HttpResponse) -> JobRead | JobGone | ReadFailed:
        """What the batch object says."""
        if response.status != 200:
            return answers.read_refusal(response, is_own_error=_speaks_of_the_job(response))
        try:
            return JobRead(_observation(read_object(response.body)))
        except Unreadable:
            return ReadFailed("unreadable")

    def list_page(self, cursor: str | None) -> HttpRequest:
        """A page of the list, which takes no filter."""
        query = {"limit": str(PAGE_SIZE)}
        if cursor is not None:
            query["after"] = cursor
        return HttpRequest("GET", "batches", Purpose.LOOKUP, query=query)

    def read_list(self, response: HttpResponse) -> Page | ReadFailed:
        """The batches on a page. One that cannot be read is left out, as if not listed: it is then read by its id."""
        if response.status != 200:
            refusal = answers.read_refusal(response, is_own_error=False)
            return refusal if isinstance(refusal, ReadFailed) else ReadFailed(refusal.error_class)
        try:
            body = read_object(response.body)
        except Unreadable:
            return ReadFailed("unreadable")
        entries = listing(body, "data")
        if entries is None:
            return ReadFailed("unreadable")
        return Page(tuple(_listed(entries)), _next_cursor(body, entries))

    def marker(self, op: Operation) -> str | None:
        """The file we uploaded for this operation alone. A file that the client named may serve several batches."""
        return op.steps.get(UPLOAD)

    # ---- cancel ----------------------------------------------------------------------------------------------

    def cancel(self, op: Operation) -> HttpRequest:
        """The cancel call; it has no body."""
        return HttpRequest("POST", f"batches/{_job_segment(op)}/cancel", Purpose.CANCEL)

    def read_cancel(self, response: HttpResponse) -> CancelAnswered:
        """The batch as the cancel left it, or what the refusal means."""
        if response.status != 200:
            return answers.cancel_refusal(response, is_own_error=_speaks_of_the_job(response))
        try:
            observation = _observation(read_object(response.body))
        except Unreadable:
            return CancelAnswered(CancelAnswer.UNKNOWN, "unreadable")
        return CancelAnswered(CancelAnswer.ACCEPTED, observation=observation)

    # ---- results ---------------------------------------------------------------------------------------------

    def result(self, op: Operation, ref: ResultRef) -> HttpRequest:  # noqa: ARG002 - one shape for all providers
        """The content of an output or error file."""
        return HttpRequest("GET", f"files/{_segment(ref.name)}/content", Purpose.RESULT)

    def read_result_error(self, response: HttpResponse) -> CollectFailed | ResultIsFailure:
        """Never final: a file may be missing for a moment after the end."""
        return answers.result_refusal(response)

    def read_item(self, line: bytes, ref: ResultRef) -> Item:  # noqa: ARG002 - both files hold lines of one shape
        """One line of either file. Raises: Unreadable."""
        row = read_object(line)
        item_id = read_id(row.get("custom_id"), what="custom_id")
        outcome, reason = _outcome(row)
        return Item(item_id, outcome, reason)

    # ---- webhooks --------------------------------------------------------------------------------------------

    def read_webhook(self, body: bytes) -> Observation:
        """An event: which batch, and in which status it ended. Raises: Unreadable.

        An endpoint may be subscribed to other families too (`response.*`, `video.*`); their job ids match none of ours.
        """
        event = read_object(body)
        event_type = read_id(event.get("type"), what="type")
        job_id = (mapping(event, "data") or {}).get("id")
        family, _, rest = event_type.partition(".")
        is_batch = family == "batch"
        word = read_id(rest if is_batch else event_type.rpartition(".")[2], what="type")
        return Observation(
            word=word,
            remote_job_id=None if job_id is None and not is_batch else _path_id(job_id, what="data.id"),
            remote_status=word if is_batch else event_type,
            provider_at=read_time_ms(event.get("created_at")),
        )


# ---- what a client gave ----------------------------------------------------------------------------------------


def _refuse_unknown(given: Mapping[str, Any], known: frozenset[str], at: str) -> None:
    for key in given:
        if key not in known:
            raise RequestInvalid(_pointer(at, key), f"unknown; known are {', '.join(sorted(known))}")


def _pointer(at: str, key: str) -> str:
    escaped = key.replace("~", "~0").replace("/", "~1")
    return f"{at}/{escaped}"


def _given(value: Any, at: str) -> str:
    try:
        return read_id(value, what="value")
    except Unreadable as error:
        raise RequestInvalid(at, f"must be a string of ordinary characters ({error.reason})") from error


def _path_given(value: Any, at: str) -> str:
    path = _given(value, at)
    if not path.startswith("/"):
        raise RequestInvalid(at, 'must be a path such as "/v1/responses"')
    return path


def _metadata_given(value: Any) -> dict[str, str]:
    at = "/request/metadata"
    if not isinstance(value, dict):
        raise RequestInvalid(at, "must be an object")
    if len(value) > MAX_METADATA:
        raise RequestInvalid(at, f"at most {MAX_METADATA} pairs")
    for key, text_given in value.items():
        if not 1 <= len(key) <= MAX_METADATA_KEY:
            raise RequestInvalid(at, f"a key has 1 to {MAX_METADATA_KEY} characters")
        if key == OPERATION_KEY:
            raise RequestInvalid(_pointer(at, key), "this key is set by us")
        if not isinstance(text_given, str) or len(text_given) > MAX_METADATA_VALUE:
            raise RequestInvalid(_pointer(at, key), f"must be a string of at most {MAX_METADATA_VALUE} characters")
    return dict(value)


def _expiry_given(value: Any) -> JsonObject:
    at = "/request/output_expires_after"
    if not isinstance(value, dict):
        raise RequestInvalid(at, "must be an object")
    _refuse_unknown(value, frozenset({"anchor", "seconds"}), at)
    if value.get("anchor") != "created_at":
        raise RequestInvalid(f"{at}/anchor", 'must be "created_at"')
    seconds = integer(value, "seconds")
    if seconds is None or not MIN_EXPIRES_SECONDS <= seconds <= MAX_EXPIRES_SECONDS:
        raise RequestInvalid(f"{at}/seconds", f"must be an integer from {MIN_EXPIRES_SECONDS} to {MAX_EXPIRES_SECONDS}")
    return dict(value)


# ---- requests --------------------------------------------------------------------------------------------------


def _upload(op: Operation, spool_ref: str) -> HttpRequest:
    file = FilePart(
        spool_ref, field_name="file", file_name=f"{op.operation_id}.jsonl", content_type="application/jsonl"
    )
    form = Multipart({"purpose": "batch"}, file, boundary=f"reconciled-{op.operation_id}")
    return HttpRequest("POST", "files", Purpose.UPLOAD, body=form)


def _job_segment(op: Operation) -> str:
    if op.remote_job_id is None:
        raise ValueError(f"{op.operation_id} has no job yet")
    return _segment(op.remote_job_id)


def _segment(name: str) -> str:
    return quote(name, safe="")


def _path_id(value: object, *, what: str) -> str:
    """An id that will stand in a path. Raises: Unreadable, also for `.` and `..`, which no quoting holds in place."""
    name = read_id(value, what=what)
    if name in (".", ".."):
        raise Unreadable(f"{what}: a dot segment")
    return name


# ---- answers ---------------------------------------------------------------------------------------------------


def _read_upload(response: HttpResponse) -> StepDone | CreateRejected | CreateNotAccepted:
    """No job can come of an upload, so that every failure but a plain no is tried again."""
    if 200 <= response.status < 300:
        try:
            return StepDone(UPLOAD, _path_id(read_object(response.body).get("id"), what="id"))
        except Unreadable:
            return CreateNotAccepted("unreadable")
    if response.status in _UPLOAD_REFUSED:
        return CreateRejected(_remote_error(_own_error(response) or {}, answers.error_class(response)))
    return CreateNotAccepted(answers.error_class(response), response.retry_after_ms)


def _created(batch: dict[str, JsonValue]) -> Observation:
    """The create answer. Its id is never thrown away for a flaw beside it: the next read tells the rest."""
    job_id = _path_id(batch.get("id"), what="id")
    try:
        return _observation(batch)
    except Unreadable:
        return Observation(word=None, remote_job_id=job_id)


def _observation(batch: dict[str, JsonValue]) -> Observation:
    """A batch object, whatever road brought it. Raises: Unreadable."""
    status = read_id(batch.get("status"), what="status")
    job_id = batch.get("id")
    meaning = WORDS.get(status)
    has_ended = meaning is not None and meaning.kind in ENDS
    is_done = meaning is not None and meaning.kind is VerdictKind.DONE_UNKNOWN_OUTCOME
    holds_results = is_done or (meaning is not None and meaning.may_hold_results)
    finished, total = _counts(batch)
    return Observation(
        word=status,
        # Without an id it is still the answer to the read of one; whether an id is the one asked for, the caller sees.
        remote_job_id=None if job_id is None else _path_id(job_id, what="id"),
        remote_status=status,
        progress=None if has_ended else _progress(finished, total),
        results=_results(batch) if holds_results else (),
        finished_items=finished,
        total_items=total,
        error=None if is_done else _batch_error(batch, fallback=status),
        provider_at=read_time_ms(batch.get(_TIME_OF.get(status, ""))),
        marker=_marker(batch),
    )


def _results(batch: Mapping[str, JsonValue]) -> tuple[ResultRef, ...]:
    """The files that are named: null and an empty string name none (https://github.com/tobert/kaibo/pull/93)."""
    return tuple(
        ResultRef(_path_id(batch[field], what=field), role)
        for field, role in _RESULT_FIELDS
        if batch.get(field) not in (None, "")
    )


def _counts(batch: Mapping[str, JsonValue]) -> tuple[int | None, int | None]:
    """Finished items (failed ones too) and all. A total of 0 is what stands there before anything was counted."""
    counts = mapping(batch, "request_counts") or {}
    completed, failed, total = (_count(counts, key) for key in ("completed", "failed", "total"))
    finished = None if completed is None and failed is None else (completed or 0) + (failed or 0)
    return finished, total or None


def _count(counts: Mapping[str, JsonValue], key: str) -> int | None:
    number = integer(counts, key)
    return number if number is not None and 0 <= number <= MAX_COUNT else None


def _progress(finished: int | None, total: int | None) -> Progress | None:
    if finished is None or total is None:
        return None
    return Progress(percent=min(finished * 100 // total, 100), completed=finished, total=total)


def _marker(batch: Mapping[str, JsonValue]) -> str | None:
    try:
        return read_id(batch.get("input_file_id"), what="input_file_id")
    except Unreadable:
        return None


def _listed(entries: list[JsonValue]) -> Iterator[Observation]:
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("id") is None:
            continue
        try:
            yield _observation(entry)
        except Unreadable:
            continue


def _next_cursor(body: Mapping[str, JsonValue], entries: list[JsonValue]) -> str | None:
    """The next page's cursor. A page that shows nothing ends the walk, whatever it promises."""
    if body.get("has_more") is not True or not entries:
        return None
    last = entries[-1]
    for candidate in (body.get("last_id"), last.get("id") if isinstance(last, dict) else None):
        try:
            return read_id(candidate, what="last_id")
        except Unreadable:
            continue
    return None


def _outcome(row: dict[str, JsonValue]) -> tuple[str, str]:
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
    body = _item_body(response.get("body"))
    inner = body.get("error") if body is not None else None
    if not 200 <= status < 300 or inner is not None:
        return "failed", " ".join(filter(None, (str(status), _code(inner))))
    if body is None:
        return "failed", f"{status} no_body"
    return "succeeded", ""


def _item_body(value: JsonValue) -> dict[str, JsonValue] | None:
    """The answer's body; some servers of this shape put the object into a string once more."""
    if isinstance(value, str):
        try:
            value = read_json(value.encode("utf-8"))
        except Unreadable:
            return None
    return value if isinstance(value, dict) else None


# ---- errors ----------------------------------------------------------------------------------------------------


def _own_error(response: HttpResponse) -> dict[str, JsonValue] | None:
    """The provider's own error object; None where a proxy or a web server speaks."""
    try:
        error = mapping(read_object(response.body), "error")
    except Unreadable:
        return None
    return error if error is not None and text(error, "message") is not None else None


def _speaks_of_the_job(response: HttpResponse) -> bool:
    """Whether a 404 can mean this job. A path that does not exist has the same shape: "Invalid URL (GET /v1/…)"."""
    error = _own_error(response)
    return error is not None and not (text(error, "message") or "").startswith("Invalid URL")


def _batch_error(batch: Mapping[str, JsonValue], *, fallback: str) -> RemoteError | None:
    """The first of `errors.data`, which a failed validation fills; else an `error` object, as some servers have it."""
    stated = listing(mapping(batch, "errors") or {}, "data") or []
    errors = [error for error in stated if isinstance(error, dict)]
    if errors:
        return _remote_error(errors[0], fallback, more=len(errors) - 1)
    error = mapping(batch, "error")
    return _remote_error(error, fallback) if error is not None else None


def _remote_error(error: Mapping[str, JsonValue], fallback: str, *, more: int = 0) -> RemoteError:
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

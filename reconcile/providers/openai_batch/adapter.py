"""The adapter: a request and the reading of its answer, in pairs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from reconcile import answers
from reconcile.contract import Contract
from reconcile.errors import Unreadable
from reconcile.evidence import (
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
    ReadFailed,
    ResultIsFailure,
    StepDone,
)
from reconcile.fingerprint import canonical_json
from reconcile.model import JsonObject, Observation, Operation, ResultRef
from reconcile.provider import (
    FilePart,
    HttpRequest,
    HttpResponse,
    Item,
    KnownAs,
    Multipart,
    Page,
    Purpose,
    Step,
    unknown,
)
from reconcile.providers.openai_batch import bodies, start
from reconcile.providers.openai_batch.contract import CONTRACT, PAGE_SIZE
from reconcile.read_json import mapping, read_id, read_object, read_path_id
from reconcile.schedule import read_time_ms

UPLOAD: Final = "upload"
CREATE: Final = "create"
#: Answers to an upload that no repetition of the same bytes will change.
_UPLOAD_REFUSED: Final = frozenset({400, 413, 422})


@dataclass(frozen=True, slots=True)
class OpenAIBatch:
    """The adapter. Paths are relative to a base URL that ends in `/v1`."""

    contract: Contract = CONTRACT

    # ---- submit ----------------------------------------------------------------------------------------------

    def check_start(self, request: JsonObject, items: Sequence[Any] | None) -> JsonObject:
        """The create body as it will be kept. Of `items` only the length is looked at. Raises: RequestInvalid."""
        return start.check(request, items, max_items=self.contract.limits.max_items)

    def item_line(self, item: Any, index: int, mark: str | None = None) -> tuple[str, bytes]:  # noqa: ARG002 - its file marks it
        """One item as (custom_id, line of the input file). Raises: RequestInvalid."""
        return start.item_line(item, index)

    def submit(self, op: Operation) -> Step:
        """The upload, unless it is done or a file was named; then the create."""
        file_id = op.steps.get(UPLOAD) or op.request.get("input_file_id")
        if file_id is None and op.input_ref is not None:
            return Step(UPLOAD, _upload(op, op.input_ref), has_effect=False)
        body = {
            **op.request,
            "input_file_id": file_id,
            "metadata": {**op.request.get("metadata", {}), start.OPERATION_KEY: op.operation_id},
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
                return Accepted(bodies.created(read_object(response.body)))
            except Unreadable:
                return CreateUnknown("unreadable")
        error = bodies.own_error(response)
        return answers.create_refusal(
            response,
            bodies.remote_error(error, answers.error_class(response)) if error is not None else None,
            is_about_this_request=error is not None and error.get("param") is not None,
        )

    # ---- reads -----------------------------------------------------------------------------------------------

    def status(self, op: Operation) -> HttpRequest:
        """The batch object."""
        return HttpRequest("GET", f"batches/{_job_segment(op)}", Purpose.STATUS)

    def read_status(self, response: HttpResponse) -> JobRead | JobGone | ReadFailed:
        """What the batch object says."""
        if response.status != 200:
            return answers.read_refusal(response, is_own_error=bodies.speaks_of_the_job(response))
        try:
            return JobRead(bodies.observation(read_object(response.body)))
        except Unreadable:
            return ReadFailed("unreadable")

    def list_page(self, cursor: str | None) -> HttpRequest:
        """A page of the list, which takes no filter."""
        query = {"limit": str(PAGE_SIZE)}
        if cursor is not None:
            query["after"] = cursor
        return HttpRequest("GET", "batches", Purpose.LOOKUP, query=query)

    def read_list(self, response: HttpResponse, known_as: KnownAs = unknown) -> Page | ReadFailed:
        """The batches on a page. One that cannot be read is left out, as if not listed: it is then read by its id."""
        read = answers.list_page(response, "data", page_size=PAGE_SIZE, known_as=known_as)
        if isinstance(read, ReadFailed):
            return read
        last_at = bodies.last_at(read)
        return Page.of(bodies.listed(read.entries), next=bodies.next_cursor(read), known=read.known, last_at=last_at)

    def marker(self, op: Operation) -> str | None:
        """The file we uploaded for this operation alone. A file that the client named may serve several batches.

        In a restored backup the upload may have been made, or made again, after it: the name in the metadata is left.
        """
        return op.steps.get(UPLOAD) or (op.operation_id if op.restored else None)

    def is_candidate(self, op: Operation, seen: Observation) -> bool:
        """A batch of the file that we uploaded for this operation; of a restored one also a batch that bears its id."""
        upload = op.steps.get(UPLOAD)
        return (upload is not None and seen.marker == upload) or (op.restored and seen.named == op.operation_id)

    # ---- cancel ----------------------------------------------------------------------------------------------

    def cancel(self, op: Operation) -> HttpRequest:
        """The cancel call; it has no body."""
        return HttpRequest("POST", f"batches/{_job_segment(op)}/cancel", Purpose.CANCEL)

    def read_cancel(self, response: HttpResponse) -> CancelAnswered:
        """The batch as the cancel left it, or what the refusal means."""
        if response.status != 200:
            return answers.cancel_refusal(response, is_own_error=bodies.speaks_of_the_job(response))
        try:
            seen = bodies.observation(read_object(response.body))
        except Unreadable:
            return CancelAnswered(CancelAnswer.UNKNOWN, "unreadable")
        return CancelAnswered(CancelAnswer.ACCEPTED, observation=seen)

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
        outcome, reason = bodies.outcome(row)
        return Item(item_id, outcome, reason, body=bodies.answer(row) if outcome == "succeeded" else None)

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
            remote_job_id=None if job_id is None and not is_batch else read_path_id(job_id, what="data.id"),
            remote_status=word if is_batch else event_type,
            provider_at=read_time_ms(event.get("created_at")),
        )


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


def _read_upload(response: HttpResponse) -> StepDone | CreateRejected | CreateNotAccepted:
    """No job can come of an upload, so that every failure but a plain no is tried again."""
    if 200 <= response.status < 300:
        try:
            return StepDone(UPLOAD, read_path_id(read_object(response.body).get("id"), what="id"))
        except Unreadable:
            return CreateNotAccepted("unreadable")
    if response.status in _UPLOAD_REFUSED:
        return CreateRejected(bodies.remote_error(bodies.own_error(response) or {}, answers.error_class(response)))
    return CreateNotAccepted(answers.error_class(response), response.retry_after_ms)

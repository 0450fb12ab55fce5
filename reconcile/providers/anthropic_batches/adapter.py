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
    CreateUnknown,
    Evidence,
    JobGone,
    JobRead,
    ReadFailed,
    ResultIsFailure,
)
from reconcile.fingerprint import canonical_json
from reconcile.model import JsonObject, Observation, Operation, ResultRef
from reconcile.provider import HttpRequest, HttpResponse, Item, JsonLines, KnownAs, Page, Purpose, Step, unknown
from reconcile.providers.anthropic_batches import bodies, start
from reconcile.providers.anthropic_batches.contract import CONTRACT, PAGE_SIZE
from reconcile.read_json import read_id, read_object

CREATE: Final = "create"
#: The version of the API that these bodies belong to: API reference, "Versions".
_VERSION: Final = {"anthropic-version": "2023-06-01"}
_SENDS_JSON: Final = {**_VERSION, "content-type": "application/json"}
_BATCHES: Final = "messages/batches"


@dataclass(frozen=True, slots=True)
class AnthropicBatches:
    """The adapter. Paths are relative to a base URL that ends in `/v1`."""

    contract: Contract = CONTRACT

    # ---- submit ----------------------------------------------------------------------------------------------

    def check_start(self, request: JsonObject, items: Sequence[Any] | None) -> JsonObject:
        """The create body but for its `requests`. Of `items` only the length is looked at. Raises: RequestInvalid."""
        return start.check(request, items, max_items=self.contract.limits.max_items)

    def item_line(self, item: Any, index: int, mark: str | None = None) -> tuple[str, bytes]:
        """One item as (custom_id, line of the input file). Raises: RequestInvalid."""
        return start.item_line(item, index, mark)

    def submit(self, op: Operation) -> Step:
        """The create, which carries the whole input."""
        if op.input_ref is None:
            raise ValueError(f"{op.operation_id} has no input")
        # The requests come last, so that what precedes them is short and known.
        others = canonical_json(op.request)[:-1] + (b"," if op.request else b"")
        body = JsonLines(op.input_ref, prefix=others + b'"requests":[', suffix=b"]}")
        request = HttpRequest("POST", _BATCHES, Purpose.CREATE, headers=_SENDS_JSON, body=body)
        return Step(CREATE, request, has_effect=True)

    def read_submit(self, op: Operation, step: Step, response: HttpResponse) -> Evidence:  # noqa: ARG002 - one shape for all providers
        """The job, or what the refusal means."""
        if response.status in (200, 201):
            try:
                return Accepted(bodies.created(read_object(response.body)))
            except Unreadable:
                return CreateUnknown("unreadable")
        error = bodies.own_error(response)
        return answers.create_refusal(
            response,
            bodies.remote_error(error, answers.error_class(response)) if error is not None else None,
            # Faults of the request itself are 400 and 413; 402 to 405 speak of the account or the path (reference,
            # "Errors").
            is_about_this_request=False,
        )

    # ---- reads -----------------------------------------------------------------------------------------------

    def status(self, op: Operation) -> HttpRequest:
        """The batch object."""
        return HttpRequest("GET", f"{_BATCHES}/{_job_segment(op)}", Purpose.STATUS, headers=_VERSION)

    def read_status(self, response: HttpResponse) -> JobRead | JobGone | ReadFailed:
        """What the batch object says."""
        if response.status != 200:
            return answers.read_refusal(response, is_own_error=bodies.speaks_of_the_job(response))
        try:
            return JobRead(bodies.observation(read_object(response.body)))
        except Unreadable:
            return ReadFailed("unreadable")

    def list_page(self, cursor: str | None) -> HttpRequest:
        """A page of the list, which takes no filter: the newest batches first."""
        query = {"limit": str(PAGE_SIZE)}
        if cursor is not None:
            query["after_id"] = cursor
        return HttpRequest("GET", _BATCHES, Purpose.LOOKUP, query=query, headers=_VERSION)

    def read_list(self, response: HttpResponse, known_as: KnownAs = unknown) -> Page | ReadFailed:
        """The batches on a page. One that cannot be read is left out, as if not listed: it is then read by its id."""
        read = answers.list_page(response, "data", page_size=PAGE_SIZE, known_as=known_as)
        if isinstance(read, ReadFailed):
            return read
        last_at = bodies.last_at(read)
        return Page.of(bodies.listed(read.entries), next=bodies.next_cursor(read), known=read.known, last_at=last_at)

    def marker(self, op: Operation) -> str | None:  # noqa: ARG002 - one shape for all providers
        """None: a batch bears nothing that we could put there."""
        return None

    def is_candidate(self, op: Operation, seen: Observation) -> bool:
        """A batch of as many requests, made since the operation was.

        What cannot be compared is no reason to hide it: a batch that is not shown may be made a second time.
        """
        skew_ms = (self.contract.lookup.skew_ms if self.contract.lookup else None) or 0
        is_too_old = seen.created_at is not None and seen.created_at < op.created_at - skew_ms
        return not is_too_old and seen.total_items in (None, op.input_items)

    # ---- cancel ----------------------------------------------------------------------------------------------

    def cancel(self, op: Operation) -> HttpRequest:
        """The cancel call; it has no body."""
        return HttpRequest("POST", f"{_BATCHES}/{_job_segment(op)}/cancel", Purpose.CANCEL, headers=_VERSION)

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
        """The results file, where the batch says it is."""
        return HttpRequest("GET", "", Purpose.RESULT, headers=_VERSION, url=ref.name)

    def read_result_error(self, response: HttpResponse) -> CollectFailed | ResultIsFailure:
        """Never final: that results are gone for good, the batch itself says, which is read between two tries."""
        return answers.result_refusal(response)

    def read_item(self, line: bytes, ref: ResultRef) -> Item:  # noqa: ARG002 - one shape for all providers
        """One line of the results. Raises: Unreadable."""
        row = read_object(line)
        item_id = read_id(row.get("custom_id"), what="custom_id")
        outcome, reason = bodies.outcome(row)
        return Item(item_id, outcome, reason, body=bodies.message(row) if outcome == "succeeded" else None)

    # ---- webhooks --------------------------------------------------------------------------------------------

    def read_webhook(self, body: bytes) -> Observation:  # noqa: ARG002 - one shape for all providers
        """Nothing: the provider's webhooks tell of agents, never of batches. Raises: Unreadable."""
        raise Unreadable("no webhook tells of a batch")


def _job_segment(op: Operation) -> str:
    if op.remote_job_id is None:
        raise ValueError(f"{op.operation_id} has no job yet")
    return quote(op.remote_job_id, safe="")

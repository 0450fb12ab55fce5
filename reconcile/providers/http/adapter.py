"""The adapter: a request and the reading of its answer, in pairs. Pure."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile import answers
from reconcile.contract import Contract
from reconcile.errors import RequestInvalid, Unreadable
from reconcile.evidence import (
    Accepted,
    CancelAnswer,
    CancelAnswered,
    CollectFailed,
    CreateUnknown,
    Evidence,
    FinishedAtOnce,
    InputAnswer,
    InputAnswered,
    JobGone,
    JobRead,
    ReadFailed,
    ResultIsFailure,
)
from reconcile.fingerprint import canonical_json
from reconcile.given import pointer
from reconcile.model import JsonObject, Observation, Operation, ResultRef
from reconcile.provider import HttpRequest, HttpResponse, Item, KnownAs, Page, Part, Purpose, Step, unknown
from reconcile.providers.http import bodies
from reconcile.providers.http.contract import UNDECLARED
from reconcile.providers.http.declaration import Carried, Declaration
from reconcile.providers.http.templates import Template
from reconcile.read_json import JsonValue, read_line

CREATE: Final = "create"
_SENDS_JSON: Final = {"content-type": "application/json"}
#: Characters of an event id. 256: as the schemes that have one of their own take it.
_MAX_EVENT_ID: Final = 256


@dataclass(frozen=True, slots=True)
class Declared:
    """The adapter. Paths are below the base URL as it is configured.

    Without a declaration, since the configuration names the provider no more, it can do nothing, and nothing is asked
    of it: its operations stand.
    """

    contract: Contract = UNDECLARED
    declaration: Declaration | None = None

    @property
    def _said(self) -> Declaration:
        if self.declaration is None:
            raise ValueError("the configuration declares nothing of this provider")
        return self.declaration

    # ---- submit ----------------------------------------------------------------------------------------------

    def check_start(self, request: JsonObject, items: Sequence[Any] | None) -> JsonObject:
        """The create body, but for what we put into it. Raises: RequestInvalid."""
        if items is not None:
            told = "this provider takes none beside the request: put them into it, and their ids into expect.items"
            raise RequestInvalid("/items", told)
        for carried in self._carried():
            if carried.place == "field" and carried.name in request:
                raise RequestInvalid(pointer("/request", carried.name), "this field is set by us")
        return dict(request)

    def item_line(self, item: Any, index: int, mark: str | None = None) -> tuple[str, bytes]:  # noqa: ARG002 - one shape for all providers
        """None is taken. Raises: RequestInvalid."""
        raise RequestInvalid(f"/items/{index}", "this provider takes no items beside the request")

    def submit(self, op: Operation) -> Step:
        """The create, with what the API tells its jobs by."""
        create = self._said.create
        body, headers = dict(op.request), dict(_SENDS_JSON)
        for carried, value in ((create.token, op.token), (create.reference, op.operation_id)):
            if carried is not None and carried.place == "field":
                body[carried.name] = value
            elif carried is not None:
                headers[carried.name] = f'"{value}"' if carried.is_quoted else value
        request = _request(create.request, Purpose.CREATE, _of(op), headers=headers, body=canonical_json(body))
        return Step(CREATE, request, has_effect=True)

    def read_submit(self, op: Operation, step: Step, response: HttpResponse) -> Evidence:  # noqa: ARG002 - one shape for all providers
        """The job, its end where that comes at once, or what the refusal means."""
        if not 200 <= response.status < 300:
            error = bodies.refusal(self._said, response, fallback=answers.error_class(response))
            return answers.create_refusal(response, error, is_about_this_request=False)
        try:
            body = bodies.document(response.body)
            if (ended := bodies.finished(self._said, body)) is not None:
                return FinishedAtOnce(ended)
            return Accepted(bodies.created(self._said, body), retry_after_ms=self._wait(response, body))
        except Unreadable:
            return CreateUnknown("unreadable")

    # ---- reads -----------------------------------------------------------------------------------------------

    def status(self, op: Operation) -> HttpRequest:
        """The read of one job."""
        return _request(self._said.status.request, Purpose.STATUS, _of(op))

    def read_status(self, response: HttpResponse) -> JobRead | JobGone | ReadFailed:
        """What it says. Every 2xx is read: a job that still runs is often answered 202."""
        if not 200 <= response.status < 300:
            return answers.read_refusal(response, is_own_error=bodies.own_error(response) is not None)
        try:
            body = bodies.document(response.body)
            seen = bodies.observation(self._said, body)
        except Unreadable:
            return ReadFailed("unreadable")
        return JobRead(seen, hint_ms=bodies.hint(self._said, body), retry_after_ms=response.retry_after_ms)

    def list_page(self, cursor: str | None) -> HttpRequest:  # noqa: ARG002 - one shape for all providers
        """There is none: jobs are read one by one."""
        raise ValueError("a declared provider has no list")

    def look_up(self, op: Operation) -> HttpRequest:
        """The request for this operation's own jobs."""
        if self._said.lookup is None:
            raise ValueError("no look-up is declared")
        return _request(self._said.lookup.request, Purpose.LOOKUP, _of(op))

    def read_list(self, response: HttpResponse, known_as: KnownAs = unknown) -> Page | ReadFailed:  # noqa: ARG002 - it names jobs alone
        """The jobs that the look-up names. What does not look as declared is no "none": it is an error."""
        lookup = self._said.lookup
        if lookup is None:
            return ReadFailed("unreadable")
        is_own_no = bodies.own_error(response) is not None and not lookup.job_id.is_of_many
        if response.status == 404 and is_own_no:
            return Page((), None)
        if response.status != 200:
            return ReadFailed(answers.error_class(response), response.retry_after_ms)
        try:
            body = bodies.document(response.body)
            if lookup.job_id.is_of_many:
                named = [bodies.spelled_id(value, lookup.job_id) for value in lookup.job_id.every(body)]
            else:
                one = bodies.job_id(lookup.job_id, body)
                named = [one] if one is not None else []
        except Unreadable:
            return ReadFailed("unreadable")
        if not named and not lookup.job_id.is_of_many:
            return ReadFailed("unreadable")
        return Page(tuple(Observation(None, remote_job_id=each) for each in dict.fromkeys(named)), None)

    def marker(self, op: Operation) -> str | None:
        """The operation's own id, where a look-up goes by what the create bore."""
        return op.operation_id if self._said.lookup is not None else None

    def is_candidate(self, op: Operation, seen: Observation) -> bool:  # noqa: ARG002 - one shape for all providers
        """Each job that the look-up names: it was asked for this operation's alone."""
        return True

    # ---- cancel and input ------------------------------------------------------------------------------------

    def cancel(self, op: Operation) -> HttpRequest:
        """The cancel call; it has no body."""
        if self._said.cancel is None:
            raise ValueError("no cancel is declared")
        return _request(self._said.cancel.request, Purpose.CANCEL, _of(op))

    def read_cancel(self, response: HttpResponse) -> CancelAnswered:
        """Any 2xx takes it, whatever its body; a job in it is read."""
        if not 200 <= response.status < 300:
            return answers.cancel_refusal(response, is_own_error=bodies.own_error(response) is not None)
        seen: Observation | None = None
        with contextlib.suppress(Unreadable):
            seen = bodies.observation(self._said, bodies.document(response.body))
        return CancelAnswered(CancelAnswer.ACCEPTED, retry_after_ms=response.retry_after_ms, observation=seen)

    # ---- results ---------------------------------------------------------------------------------------------

    def result(self, op: Operation, ref: ResultRef) -> HttpRequest:
        """The declared request, or the file of items that the job named."""
        if ref.name == bodies.BY_REQUEST and self._said.result.request is not None:
            return _request(self._said.result.request, Purpose.RESULT, _of(op))
        return HttpRequest("GET", "", Purpose.RESULT, url=ref.name)

    def unfold(self, ref: ResultRef, body: bytes) -> tuple[Part, ...]:
        """What is kept of a body that holds a result. Raises: Unreadable."""
        return bodies.unfold(self._said, ref, body)

    def read_result_error(self, response: HttpResponse) -> CollectFailed | ResultIsFailure:
        """Never final: the job is read again between two tries."""
        return answers.result_refusal(response)

    def read_item(self, line: bytes, ref: ResultRef) -> Item:  # noqa: ARG002 - one shape for all providers
        """One item. Raises: Unreadable."""
        return bodies.item(self._said, bodies.document(line))

    # ---- webhooks --------------------------------------------------------------------------------------------

    def read_webhook(self, body: bytes) -> Observation:
        """Which job a delivery speaks of, and its state where it tells one. Raises: Unreadable."""
        webhook = self._said.webhook
        if webhook is None:
            raise Unreadable("no webhook is declared")
        told = bodies.document(body)
        job_id = bodies.job_id(webhook.job_id, told)
        if job_id is None:
            raise Unreadable(f"{webhook.job_id.text}: no job id")
        word = bodies.state(webhook.state, told)
        return Observation(word, remote_job_id=job_id, remote_status=word)

    def event_id(self, body: bytes) -> str | None:
        """The delivery's id where its place in the body was declared and it can be used.

        An id in a header tells nothing apart: either the scheme itself reads it, or nothing signs it, and whoever
        holds one delivery could make many events of it.
        """
        webhook = self._said.webhook
        if webhook is None or webhook.event_path is None:
            return None
        try:
            named = webhook.event_path.word(bodies.document(body))
            return None if named is None else _event_id(named)
        except Unreadable:
            return None

    # ---- inside ----------------------------------------------------------------------------------------------

    def _carried(self) -> list[Carried]:
        create = self._said.create
        return [carried for carried in (create.token, create.reference) if carried is not None]

    def _wait(self, response: HttpResponse, body: JsonValue) -> int | None:
        """When the answer to a create asks to be read: the longer of header and body."""
        waits = [wait for wait in (response.retry_after_ms, bodies.hint(self._said, body)) if wait is not None]
        return max(waits, default=None)


@dataclass(frozen=True, slots=True)
class DeclaredWithInput(Declared):
    """The same where jobs can be given input while they wait."""

    def input(self, op: Operation, data: JsonValue) -> HttpRequest:
        """The call that gives `data` to the job."""
        if self._said.input is None:
            raise ValueError("no input is declared")
        body = canonical_json(data)
        return _request(self._said.input.request, Purpose.INPUT, _of(op), headers=_SENDS_JSON, body=body)

    def read_input(self, response: HttpResponse) -> InputAnswered:
        """Any 2xx takes it."""
        if 200 <= response.status < 300:
            return InputAnswered(InputAnswer.ACCEPTED)
        return answers.input_refusal(response, is_own_error=bodies.own_error(response) is not None)


def declared(contract: Contract, declaration: Declaration | None) -> Declared:
    """The adapter of a declaration: with an input only where one is declared."""
    takes_input = declaration is not None and declaration.input is not None
    return (DeclaredWithInput if takes_input else Declared)(contract, declaration)


def _event_id(value: str) -> str:
    return read_line(value, what="event id", most=_MAX_EVENT_ID)


def _of(op: Operation) -> dict[str, str]:
    """What placeholders stand for; a template that needs a job id is only asked for where there is one."""
    values = {"operation_id": op.operation_id, "token": op.token}
    if op.remote_job_id is not None:
        values["job_id"] = op.remote_job_id
    return values


def _request(
    template: Template,
    purpose: Purpose,
    values: Mapping[str, str],
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> HttpRequest:
    if "job_id" not in values and "job_id" in template.placeholders:
        raise ValueError(f"{values['operation_id']} has no job yet")
    path, query = template.path_for(values), template.query_for(values)
    return HttpRequest(template.method, path, purpose, query=query, headers=headers or {}, body=body)

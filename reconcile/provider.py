"""What a provider adapter is: a contract and pairs of pure functions, one building a request, one reading its answer.

No method here performs a request; client.py is the one room that does. An adapter reads only what `read_json` let in,
and a webhook body only after its signature held.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, Protocol, runtime_checkable

from reconcile.contract import Contract
from reconcile.evidence import (
    CancelAnswered,
    CollectFailed,
    Evidence,
    InputAnswered,
    JobGone,
    JobRead,
    ReadFailed,
    ResultIsFailure,
)
from reconcile.light_dataclass import light_dataclass
from reconcile.model import JsonObject, Observation, Operation, ResultRef, UnixMs
from reconcile.read_json import JsonValue

#: Lower-cased names; a name that came twice has two values.
Headers = Mapping[str, Sequence[str]]


class Purpose(StrEnum):
    """Why a request was sent; it stands in the `requests` table and picks the time-out."""

    UPLOAD = "upload"
    CREATE = "create"
    LOOKUP = "lookup"
    LIST = "list"
    STATUS = "status"
    CANCEL = "cancel"
    INPUT = "input"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class FilePart:
    """A spooled file streamed as one part of a multipart form."""

    spool_ref: str
    field_name: str
    file_name: str
    content_type: str


@dataclass(frozen=True, slots=True)
class Multipart:
    """A multipart form: plain fields, then one file. The boundary comes from the operation id, so the bytes repeat."""

    fields: Mapping[str, str]
    file: FilePart
    boundary: str


@dataclass(frozen=True, slots=True)
class JsonLines:
    """A JSON body around a spooled file: `prefix`, the file's lines joined by commas, `suffix`. Streamed, never held.

    Each line of the file is one JSON value and ends in a newline, the last one too.
    """

    spool_ref: str
    prefix: bytes
    suffix: bytes


@light_dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request below the provider's base URL. `path` segments are already percent-encoded."""

    method: str
    path: str
    purpose: Purpose
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Multipart | JsonLines | None = None
    #: A place that the provider named: a URL, or a path to be read from the base URL. It stands for `path` and `query`,
    #: and the client asks nobody there but the provider itself and the contract's `storage_hosts`.
    url: str | None = None


def first_value(headers: Headers, name: str) -> str | None:
    """A header's first value; None where it was not sent."""
    values = headers.get(name)
    return values[0] if values else None


@light_dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole answer, already capped. `retry_after_ms` was read from the headers at arrival, unclamped."""

    status: int
    headers: Headers
    body: bytes
    retry_after_ms: int | None = None

    def header(self, name: str) -> str | None:
        """The first value of a header, None where it is absent."""
        return first_value(self.headers, name)


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a submit. `has_effect`: it may make a job, so a send mark is committed before it leaves."""

    name: str
    request: HttpRequest
    has_effect: bool


@dataclass(frozen=True, slots=True)
class Page:
    """One list page: the jobs it shows and the cursor of the next page, None at the end."""

    jobs: tuple[Observation, ...]
    next: str | None
    #: The text that each of `jobs` was read from: kept as evidence where it tells something new.
    entries: tuple[bytes, ...] = ()
    #: What the caller calls those of its entries that said what they had said before, and are no `jobs`.
    known: tuple[int, ...] = ()
    #: When the job at its end was made, known or not: the oldest of a list that goes from new to old.
    last_at: UnixMs | None = None

    @classmethod
    def of(
        cls,
        listed: Iterable[tuple[Observation, bytes]],
        *,
        next: str | None,  # noqa: A002 - the field's name
        known: Iterable[int] = (),
        last_at: UnixMs | None = None,
    ) -> "Page":
        """A page of jobs with what each was read from."""
        pairs = list(listed)
        return cls(tuple(job for job, _ in pairs), next, tuple(text for _, text in pairs), tuple(known), last_at)


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a result. `outcome`: succeeded, failed, cancelled or expired; `reason` says why not."""

    item_id: str
    outcome: str
    reason: str = ""
    is_known: bool = True
    #: What a succeeded item holds, which a client may have promised the shape of.
    body: JsonValue = None


#: What the caller calls an entry of a list page, by its text, where that is what it was before.
KnownAs = Callable[[bytes], int | None]


def unknown(_: bytes) -> int | None:
    """No entry is known."""
    return None


class Provider(Protocol):
    """A provider as data plus pure functions."""

    @property
    def contract(self) -> Contract:
        """The answers this provider gives."""
        ...

    def check_start(self, request: JsonObject, items: Sequence[Any] | None) -> JsonObject:
        """The create body as it will be kept; of `items` only the length is looked at, the rest is `item_line`'s.

        Raises: RequestInvalid, naming the field by pointer.
        """
        ...

    def item_line(self, item: Any, index: int, mark: str | None = None) -> tuple[str, bytes]:
        """One submitted item as (its own id, line of the input file, the id there marked). Raises: RequestInvalid."""
        ...

    def submit(self, op: Operation) -> Step:
        """The next request of the submit, by `op.steps`."""
        ...

    def read_submit(self, op: Operation, step: Step, response: HttpResponse) -> Evidence:
        """What a step's answer means."""
        ...

    def status(self, op: Operation) -> HttpRequest:
        """The read of one job."""
        ...

    def read_status(self, response: HttpResponse) -> JobRead | JobGone | ReadFailed:
        """What that read says."""
        ...

    def list_page(self, cursor: str | None) -> HttpRequest:
        """One page of the account's jobs."""
        ...

    def read_list(self, response: HttpResponse, known_as: KnownAs = unknown) -> Page | ReadFailed:
        """The jobs on it, and what those are called whose entries are known."""
        ...

    def marker(self, op: Operation) -> str | None:
        """What this operation's own job bears and a look-up goes by, None where nothing marks it."""
        ...

    def is_candidate(self, op: Operation, seen: Observation) -> bool:
        """Whether a listed job may be the one that this operation's lost create made; how sure that is: `Lookup`."""
        ...

    def cancel(self, op: Operation) -> HttpRequest:
        """The cancel call."""
        ...

    def read_cancel(self, response: HttpResponse) -> CancelAnswered:
        """What its answer means."""
        ...

    def result(self, op: Operation, ref: ResultRef) -> HttpRequest:
        """The fetch of one result."""
        ...

    def read_result_error(self, response: HttpResponse) -> CollectFailed | ResultIsFailure:
        """What an answer other than 200 means to a result fetch."""
        ...

    def read_item(self, line: bytes, ref: ResultRef) -> Item:
        """One result line. Raises: Unreadable."""
        ...

    def read_webhook(self, body: bytes) -> Observation:
        """A verified delivery. Raises: Unreadable."""
        ...


@runtime_checkable
class TakesInput(Protocol):
    """What a provider adds whose jobs can be given input while they wait; its contract says `takes_input`."""

    def input(self, op: Operation, data: JsonValue) -> HttpRequest:
        """The call that gives `data` to the job."""
        ...

    def read_input(self, response: HttpResponse) -> InputAnswered:
        """What its answer means."""
        ...


@runtime_checkable
class AsksByMarker(Protocol):
    """What a provider adds whose lost creates are asked for by what they bore, in one request and not by a list."""

    def look_up(self, op: Operation) -> HttpRequest:
        """The request whose answer `read_list` reads: this operation's own jobs and no other."""
        ...


@runtime_checkable
class NamesEvents(Protocol):
    """What a provider adds whose deliveries are told apart by something that its scheme does not look at."""

    def event_id(self, body: bytes) -> str | None:
        """The id in a verified body; None where there is none that can be used. No header: none is signed."""
        ...


#: The name of a result that stands in the very body that showed the end: it is kept from there, not fetched.
INLINE: Final = "inline"
#: Roles of a result that is no file of lines: one item as a whole, or a document that `Unfolds` takes apart.
WHOLE: Final = "whole"
DOCUMENT: Final = "document"
#: The id of the one item that a result without items is.
THE_RESULT: Final = "result"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a document as it is kept: the result, as one item or none; or its items, a line each, beside it."""

    data: bytes
    holds: Literal["items", "item", "nothing"]


@runtime_checkable
class Unfolds(Protocol):
    """What a provider adds whose results are documents: inline ones, or items within one body."""

    def unfold(self, ref: ResultRef, body: bytes) -> tuple[Part, ...]:
        """What is to be kept of the body that `ref` stands in. Raises: Unreadable."""
        ...

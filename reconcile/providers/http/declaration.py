"""What an operator declares of an API. Frozen values, checked by whoever made them; nothing here reads a body."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from reconcile.contract import WebhookTerms, Word
from reconcile.providers.http.paths import JsonPath
from reconcile.providers.http.templates import Template


@dataclass(frozen=True, slots=True)
class Carried:
    """Where a create bears a value of ours: a header, or a field at the top of its body."""

    place: Literal["header", "field"]
    name: str
    #: Spelled as a structured field, in double quotes, as the draft of `Idempotency-Key` asks.
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """How a job is made."""

    request: Template
    job_id: JsonPath
    #: What bears the operation's token; None: the API honours none.
    token: Carried | None = None
    #: How long the API remembers a token, ms.
    token_kept_ms: int | None = None
    #: What bears the operation's id, so that a look-up can go by it.
    reference: Carried | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """How a job is read. `state`: the first of these that holds a word."""

    request: Template
    state: tuple[JsonPath, ...]
    words: Mapping[str, Word]
    job_id: JsonPath
    error: JsonPath
    progress: JsonPath | None = None
    retry_after: JsonPath | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """Where the result is: in the body that shows the end, or behind a request of its own."""

    inline: JsonPath | None = None
    request: Template | None = None
    #: Whether the request may be made for a job that did not end well, too.
    is_partial: bool = False
    #: How long the API keeps it after the end, ms.
    kept_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Items:
    """Where a result's items are, and what becomes of each. `outcomes`: the API's word for each of ours."""

    id: JsonPath
    state: JsonPath
    outcomes: Mapping[str, str]
    error: JsonPath
    #: In the result's body; else behind a URL that the job's body names, a line each.
    inline: JsonPath | None = None
    url: JsonPath | None = None
    #: Hosts beside the API's own that such a URL may lead to; none of them is sent a credential.
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cancel:
    """How a job is stopped, and what that leaves."""

    request: Template
    may_remain: str
    is_repeatable: bool = False
    within_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LookUp:
    """How the job of a lost create is found by what the create bore."""

    request: Template
    job_id: JsonPath


@dataclass(frozen=True, slots=True)
class Input:
    """How a job that waits is given what it waits for."""

    request: Template
    is_repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Webhook:
    """What a delivery tells. Its id: at a path of its body, else the scheme's own, else the body's hash."""

    terms: WebhookTerms
    job_id: JsonPath
    state: tuple[JsonPath, ...] = ()
    event_path: JsonPath | None = None


@dataclass(frozen=True, slots=True)
class Declaration:
    """One declared API."""

    create: Create
    status: Status
    result: Result = field(default_factory=Result)
    items: Items | None = None
    cancel: Cancel | None = None
    lookup: LookUp | None = None
    input: Input | None = None
    webhook: Webhook | None = None
    status_page: str = ""
    #: Follows from what was declared, and changes with it (J4).
    version: int = 1

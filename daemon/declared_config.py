"""A declared provider's own tables of the configuration: what each request is, where things stand, what words mean.

Everything is read at the start, and each fault names its key: a path that would never be evaluated, a request that
could not be sent, a word with two meanings.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeVar

from daemon.sections import Section
from reconcile.contract import CANCEL_WITHIN_MS, WebhookTerms, Word
from reconcile.errors import DeclarationInvalid
from reconcile.given import HEADER_NAME
from reconcile.model import VerdictKind
from reconcile.proof import ProofPlace
from reconcile.providers.http.contract import MAY_REMAIN, RETRIES_MS, TOKEN_KEPT_MS, TOLERANCE_SECONDS
from reconcile.providers.http.declaration import (
    Cancel,
    Carried,
    Create,
    Declaration,
    Input,
    Items,
    LookUp,
    Result,
    Status,
    Webhook,
)
from reconcile.providers.http.paths import JsonPath, read_path
from reconcile.providers.http.templates import Template, read_template

T = TypeVar("T")

#: Rises whenever one and the same declaration is read otherwise by a new release (J4).
READING: Final = 1
#: The tables that say what a body means; the others tune, and change no meaning.
_TABLES: Final = ("create", "status", "result", "items", "cancel", "lookup", "input", "webhook")
#: Keys of `create` that tune.
_TUNE: Final = frozenset({"within", "settle", "on_absent", "adopt"})
_MEANING: Final[Mapping[str, VerdictKind]] = {
    "pending": VerdictKind.PENDING,
    "blocked": VerdictKind.BLOCKED,
    "succeeded": VerdictKind.DONE,
    "outcome_in_items": VerdictKind.DONE_UNKNOWN_OUTCOME,
    "failed": VerdictKind.FAILED,
    "cancelled": VerdictKind.CANCELLED,
    "expired": VerdictKind.EXPIRED,
}
_NO_SUCCESS: Final = frozenset({VerdictKind.FAILED, VerdictKind.CANCELLED, VerdictKind.EXPIRED})
_OUTCOMES: Final = ("succeeded", "failed", "cancelled", "expired")
_READS: Final = ("GET", "POST")
_JOB: Final = frozenset({"job_id", "operation_id"})
#: A host with nothing around it.
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+")
_PATH_EXAMPLE: Final = 'a JSONPath of names, indexes and `*`, such as "$.job.id"'
_REQUEST_EXAMPLE: Final = 'METHOD and a path below base_url, such as "GET /v1/jobs/{job_id}"'
_CARRIED_EXAMPLE: Final = '{ header = "NAME" } or { field = "NAME" }, or "none"'
#: What a signature scheme leaves to the sender, by scheme: does it have an encoding and may it have a timestamp?
_SCHEMES: Final[Mapping[str, bool]] = {"standard": False, "hmac-sha256": True, "ed25519": True, "shared-header": False}


def declaration(section: Section, create: Section) -> Declaration:
    """The declaration of one `[providers.NAME]`; `create` is its table, in which others read too.

    Raises: ConfigError, for the first fault found.
    """
    for name in ("create", "status"):
        if not section.has(name):
            raise section.fault(name, "nothing", "a table: without it no job can be made, or none can be read")
    items = _items(section)
    result = _result(section, items)
    made = _create(create)
    lookup = _lookup(section)
    return Declaration(
        create=_with_reference(made, create, lookup, section),
        status=_status(section.section("status"), made, result, items),
        result=result,
        items=items,
        cancel=_cancel(section),
        lookup=lookup,
        input=_input(section),
        webhook=_webhook(section),
        status_page=section.text_or_none("status_page") or "",
        version=_version(section),
    )


def _version(section: Section) -> int:
    """A number that follows from what the tables say, 48 bits: JSON and every column take it (J4)."""
    said: dict[str, Any] = {name: section.given(name) for name in _TABLES}
    if isinstance(said["create"], Mapping):
        said["create"] = {key: value for key, value in said["create"].items() if key not in _TUNE}
    spelled = json.dumps([READING, said], sort_keys=True, default=str)
    return int.from_bytes(hashlib.sha256(spelled.encode()).digest()[:6])


# ---- the tables ------------------------------------------------------------------------------------------------


def _create(create: Section) -> Create:
    token, kept_ms = _token(create)
    return Create(
        request=_request(create, ("POST", "PUT"), frozenset({"operation_id"})),
        job_id=_path(create, "job_id"),
        token=token,
        token_kept_ms=kept_ms,
    )


def _token(create: Section) -> tuple[Carried | None, int]:
    """What bears the operation's token: said in so many words, since a token that nobody honours makes two jobs."""
    given = create.given("idempotency")
    if given == "none":
        create.know("idempotency")
        return None, TOKEN_KEPT_MS
    table = create.section("idempotency") if isinstance(given, Mapping) else None
    if table is None:
        raise create.fault("idempotency", "nothing" if given is None else create.shown(given), _CARRIED_EXAMPLE)
    # The draft of that header asks for a structured field, which is quoted; other names bear bare words.
    is_quoted = str(table.given("header")).lower() == "idempotency-key"
    if table.has("quoted"):
        is_quoted = table.flag("quoted")
    return _carried(table, is_quoted=is_quoted), table.duration_ms("kept", TOKEN_KEPT_MS)


def _carried(table: Section, *, is_quoted: bool = False) -> Carried:
    header, field = table.text_or_none("header"), table.text_or_none("field")
    if (header is None) == (field is None):
        raise table.at_odds("header", "both or neither", _CARRIED_EXAMPLE, "header", "field")
    if header is not None:
        return Carried("header", header_name(table, "header", header), is_quoted)
    return Carried("field", str(field))


def _with_reference(made: Create, create: Section, lookup: LookUp | None, section: Section) -> Create:
    """Where a look-up goes by the operation's id, something must have brought that to the job.

    Unless it is said, the look-up's own query tells: `?client_ref={operation_id}` asks for jobs whose `client_ref` is
    our id, and nobody else can have put it there.
    """
    given = create.given("reference")
    if isinstance(given, Mapping):
        reference: Carried | None = _carried(create.section("reference"))
    elif given in (None, "none"):
        create.know("reference")
        asked = lookup.request.query if lookup is not None else ()
        by = next((name for name, value in asked if value == "{operation_id}"), None)
        reference = Carried("field", by) if by is not None and given is None and not _bears_id(made) else None
    else:
        raise create.fault("reference", create.shown(given), _CARRIED_EXAMPLE)
    made = Create(made.request, made.job_id, made.token, made.token_kept_ms, reference)
    if made.token is not None and reference is not None and _is_same(made.token, reference):
        raise create.fault("reference", repr(reference.name), "another place than the one that bears the token")
    asks_by = lookup.request.placeholders if lookup is not None else frozenset()
    found = f"{{{min(asks_by)}}}" if asks_by else "nothing"
    if lookup is not None and not (
        ("operation_id" in asks_by and (reference is not None or _bears_id(made) or given == "none"))
        or ("token" in asks_by and made.token is not None)
    ):
        expected = "something that the job bears: {operation_id} with create.reference, or {token} with idempotency"
        raise section.section("lookup").at_odds("request", found, expected, section.section("lookup").beside("create"))
    return made


def _bears_id(made: Create) -> bool:
    return "operation_id" in made.request.placeholders


def _is_same(left: Carried, right: Carried) -> bool:
    return left.place == right.place and left.name.lower() == right.name.lower()


def _status(status: Section, made: Create, result: Result, items: Items | None) -> Status:
    may_hold = result.is_partial or (items is not None and (result.request is None or items.url is not None))
    return Status(
        request=_request(status, _READS, _JOB, needed="job_id"),
        state=_paths(status, "state"),
        words=_words(status, may_hold=may_hold, has_items=items is not None),
        job_id=_path_or_none(status, "job_id") or made.job_id,
        error=_path_or_none(status, "error") or read_path("$.error"),
        progress=_path_or_none(status, "progress"),
        retry_after=_path_or_none(status, "retry_after"),
    )


def _words(status: Section, *, may_hold: bool, has_items: bool) -> dict[str, Word]:
    words: dict[str, Word] = {}
    for name, kind in _MEANING.items():
        for path, word in status.texts(name):
            if word in words:
                raise status.fault(path, repr(word), "a word that stands nowhere else: it can have one meaning")
            words[word] = Word(kind, may_hold_results=may_hold and kind in _NO_SUCCESS)
    kinds = {word.kind for word in words.values()}
    if VerdictKind.PENDING not in kinds:
        raise status.fault("pending", "nothing", "the words of a job that has not ended")
    if not kinds & {VerdictKind.DONE, VerdictKind.DONE_UNKNOWN_OUTCOME}:
        expected = "the words of a job that ended well, here or in outcome_in_items"
        raise status.at_odds("succeeded", "nothing", expected, "outcome_in_items")
    if VerdictKind.DONE_UNKNOWN_OUTCOME in kinds and not has_items:
        expected = "none without a table of items, which alone could tell"
        raise status.at_odds("outcome_in_items", "words", expected, status.beside("items"))
    return words


def _result(section: Section, items: Items | None) -> Result:
    table = section.section("result")
    request = None
    if table.has("request"):
        request = _request(table, _READS, _JOB, needed="job_id")
    inline = _path_or_none(table, "from")
    if request is not None and inline is not None:
        raise table.fault("from", repr(inline.text), "either from or request")
    if request is None and inline is None and items is None:
        inline = read_path("$")  # a job with nothing to fetch: the body that shows its end is what there is to keep
    return Result(inline, request, table.flag("partial"), table.duration_ms("kept", None))


def _items(section: Section) -> Items | None:
    table = section.section_or_none("items")
    if table is None:
        return None
    inline, url = _path_or_none(table, "from"), _path_or_none(table, "url")
    if (inline is None) == (url is None):
        expected = "where the items are: from, a list, or url, a file of lines"
        raise table.at_odds("from", "both or neither", expected, "from", "url")
    outcomes: dict[str, str] = {}
    for name in _OUTCOMES:
        for path, word in table.texts(name):
            if word in outcomes:
                raise table.fault(path, repr(word), "a word that stands nowhere else: it can have one meaning")
            outcomes[word] = name
    if "succeeded" not in outcomes.values():
        raise table.fault("succeeded", "nothing", "the words of an item that went well")
    hosts = tuple(_host(table, path, host) for path, host in table.texts("hosts"))
    if hosts and url is None:
        raise table.at_odds("hosts", "hosts", "none without url: nothing is fetched from elsewhere", "url")
    error = _path_or_none(table, "error") or read_path("$.error")
    return Items(_path(table, "id"), _path(table, "state"), outcomes, error, inline, url, hosts)


def _host(table: Section, path: str, host: str) -> str:
    if not _HOST.fullmatch(host):
        raise table.fault(path, repr(host), "a host's name, without scheme, port or path")
    return host.lower()


def _cancel(section: Section) -> Cancel | None:
    table = section.section_or_none("cancel")
    if table is None:
        return None
    return Cancel(
        _request(table, ("DELETE", "POST", "PUT"), _JOB, needed="job_id"),
        table.text("may_remain", MAY_REMAIN),
        table.flag("repeatable"),
        table.duration_ms("within", CANCEL_WITHIN_MS),
    )


def _lookup(section: Section) -> LookUp | None:
    table = section.section_or_none("lookup")
    if table is None:
        return None
    return LookUp(_request(table, _READS, frozenset({"operation_id", "token"})), _path(table, "job_id"))


def _input(section: Section) -> Input | None:
    table = section.section_or_none("input")
    if table is None:
        return None
    return Input(_request(table, ("POST", "PUT"), _JOB, needed="job_id"), table.flag("repeatable"))


def _webhook(section: Section) -> Webhook | None:
    table = section.section_or_none("webhook")
    if table is None:
        return None
    scheme = table.text("scheme")
    if scheme not in _SCHEMES:
        raise table.fault("scheme", repr(scheme), f"one of {', '.join(_SCHEMES)}")
    terms = WebhookTerms(scheme, TOLERANCE_SECONDS, RETRIES_MS, _proof(table, scheme))
    state = _paths(table, "state") if table.has("state") else ()
    return Webhook(terms, _path(table, "job_id"), state, _event_path(table))


def _proof(table: Section, scheme: str) -> ProofPlace | None:
    if scheme == "standard":
        return None  # its headers are the specification's: the other keys are unknown here, and refused as such
    signature = _named_header(table, "signature")
    if not _SCHEMES[scheme]:
        return ProofPlace(signature)
    encoding: Literal["hex", "base64"] = "hex" if table.choice("encoding", "hex", "base64") == "hex" else "base64"
    timestamp = _named_header(table, "timestamp") if table.has("timestamp") else None
    return ProofPlace(signature, encoding, timestamp)


def _event_path(table: Section) -> JsonPath | None:
    """Where the id stands in the body. A header may be named, and changes nothing: only the scheme's own is signed."""
    given = table.text_or_none("event_id")
    if given is None:
        return None
    if given.startswith("header:"):
        _named_header(table, "event_id")  # its spelling is looked at all the same
        return None
    return _path(table, "event_id")


# ---- single values ---------------------------------------------------------------------------------------------


def header_name(section: Section, key: str, name: str) -> str:
    """A name that a header can have. Raises: ConfigError."""
    if not HEADER_NAME.fullmatch(name):
        raise section.fault(key, repr(name), "a header's name, such as Idempotency-Key")
    return name.lower()


def _named_header(table: Section, key: str) -> str:
    given = table.text(key)
    scheme, _, name = given.partition(":")
    if scheme != "header" or not HEADER_NAME.fullmatch(name):
        raise table.fault(key, repr(given), 'a header as "header:NAME"')
    return name.lower()


def _path(section: Section, key: str) -> JsonPath:
    return _taken(section, key, section.text(key), read_path, _PATH_EXAMPLE)


def _path_or_none(section: Section, key: str) -> JsonPath | None:
    return _path(section, key) if section.text_or_none(key) is not None else None


def _paths(section: Section, key: str) -> tuple[JsonPath, ...]:
    """One path, or several of which the first that holds a word counts."""
    if not isinstance(section.given(key), list):
        return (_path(section, key),)
    found = tuple(_taken(section, path, text, read_path, _PATH_EXAMPLE) for path, text in section.texts(key))
    if not found:
        raise section.fault(key, "an empty list", _PATH_EXAMPLE)
    return found


def _request(section: Section, methods: tuple[str, ...], known: frozenset[str], needed: str | None = None) -> Template:
    def read(text: str) -> Template:
        return read_template(text, methods=methods, known=known, needed=needed)

    return _taken(section, "request", section.text("request"), read, _REQUEST_EXAMPLE)


def _taken(section: Section, key: str, text: str, read: Callable[[str], T], expected: str) -> T:
    try:
        return read(text)
    except DeclarationInvalid as fault:
        shown = text if len(text) <= 80 else f"{text[:80]}…"
        raise section.fault(key, f"{shown!r} ({fault})", expected) from fault

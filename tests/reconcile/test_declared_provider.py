"""The declared provider: what the fixtures alone do not show of paths, templates, bodies and requests."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonpath import JSONPathEnvironment

from reconcile.classify import classify
from reconcile.errors import DeclarationInvalid, RequestInvalid, Unreadable
from reconcile.evidence import Accepted, CancelAnswered, CreateUnknown, FinishedAtOnce, JobRead, ReadFailed
from reconcile.model import Observation, RemoteError, ResultRef
from reconcile.provider import INLINE, AsksByMarker, NamesEvents, Page, Part, Provider, TakesInput, Unfolds
from reconcile.providers.http.adapter import Declared, DeclaredWithInput
from reconcile.providers.http.paths import read_path
from reconcile.providers.http.templates import read_template
from reconcile.read_json import JsonValue
from reconcile.registry import provider_for
from reconcile.states import State
from tests.reconcile.provider_cases import EXPECT, GENERIC, answer, configured, create_step, http_fixture, operation

KIND = "http"
#: The transcoder of the interface: items inside an inline result.
TRANSCODE: dict[str, Any] = {
    **GENERIC,
    "create": {
        "request": "POST /v1/transcode",
        "idempotency": {"field": "client_token"},
        "job_id": "$.job_id",
        "reference": {"header": "X-Client-Ref"},
    },
    "status": {
        "request": "GET /v1/jobs/{job_id}",
        "state": "$.status",
        "pending": ["queued", "processing"],
        "blocked": ["waiting"],
        "succeeded": ["succeeded"],
        "outcome_in_items": ["completed_with_errors"],
        "failed": ["failed"],
        "cancelled": ["cancelled"],
        "expired": ["expired"],
        "progress": "$.progress_percent",
        "retry_after": "$.poll_after_seconds",
    },
    "items": {
        "from": "$.result.items",
        "id": "$.id",
        "state": "$.status",
        "succeeded": ["ok"],
        "failed": ["error"],
        "cancelled": ["dropped"],
        "expired": ["late"],
    },
}


def provider(table: Any = GENERIC, **changes: Any) -> Any:
    return configured({**table, **changes}).provider


def read(adapter: Provider, body: Any, status: int = 200) -> Observation:
    told = adapter.read_status(answer(json.dumps(body).encode(), status))
    assert isinstance(told, JobRead)
    return told.observation


# ---- fixtures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, e in EXPECT["files"].items() if e.get("kind") == KIND and "word" in e])
def test_each_answer_of_the_fixtures_is_read_as_it_is_expected_to_be(name: str) -> None:
    entry, adapter = EXPECT["files"][name], provider()
    told = adapter.read_status(http_fixture(name, now_ms=entry.get("clock", 0) * 1000))
    assert isinstance(told, JobRead)
    seen, verdict = told.observation, classify(adapter.contract, told.observation.word)
    assert (seen.word, seen.remote_job_id) == (entry["word"], entry["remote_job_id"])
    assert (verdict.kind.value, verdict.known) == (entry["verdict"], entry["known"])
    assert verdict.may_hold_results == entry["partial_results"]
    assert [ref.name for ref in seen.results] == entry.get("results", [])
    assert (seen.error.message if seen.error else None) == entry.get("error")
    if "create" in entry:
        created = adapter.read_submit(operation(KIND), create_step(adapter), http_fixture(name))
        assert isinstance(created, Accepted)
        assert (created.observation.word, created.observation.remote_job_id) == (entry["word"], entry["remote_job_id"])
    if "cancel" in entry:
        cancelled = adapter.read_cancel(http_fixture(name))
        assert isinstance(cancelled, CancelAnswered)
        assert cancelled.observation is not None
        assert cancelled.observation.word == entry["word"]


# ---- paths -----------------------------------------------------------------------------------------------------

DOCUMENT: Any = {
    "id": 7,
    "ok": True,
    "none": None,
    "a b": {"c": [1, 2]},
    "jobs": [{"id": "x"}, {"no": "id"}, {"id": "y"}],
    "empty": [],
    "by name": {"one": {"id": "x"}, "two": {"id": "y"}},
}


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$", [DOCUMENT]),
        ("$.id", [7]),
        ("$.none", [None]),
        ("$['a b'].c[-1]", [2]),
        ("$['a b'].c[2]", []),
        ("$.id[0]", []),
        ("$.id.deeper", []),
        ("$.jobs[*].id", ["x", "y"]),
        ("$['by name'].*.id", ["x", "y"]),
        ("$.empty[*].id", []),
    ],
)
def test_a_path_finds_what_stands_there(path: str, values: list[Any]) -> None:
    assert read_path(path).values(DOCUMENT) == values


steps = st.one_of(
    st.sampled_from([".a", ".b", "[0]", "[1]", "[-1]", "[*]", ".*", "['a b']"]),
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "a b"]), inner, max_size=3),
    max_leaves=20,
)


@given(st.lists(steps, max_size=4), documents.filter(lambda value: isinstance(value, dict | list)))
def test_our_own_walk_finds_what_the_library_finds(parts: list[str], document: JsonValue) -> None:
    text = "$" + "".join(parts)
    assert read_path(text).values(document) == JSONPathEnvironment(strict=True).compile(text).findall(document)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "expected"),
        ("job_id", "expected"),
        ("$.", "expected"),
        ("$[", "unexpected end"),
        (" $.a", "whitespace"),
        ("$..id", "`..` is not taken"),
        ("$.a[?@.b == 1]", "filters and slices"),
        ("$[?match(@.a, '(a+)+$')]", "filters and slices"),
        ("$[?search(@.a, 'x')]", "filters and slices"),
        ("$.a[0:2]", "filters and slices"),
        ("$['a','b']", "several selectors"),
        ("$.a | $.b", "unexpected"),
        ("$.a.length()", "unexpected"),
        ("$.a[99999999999999999999]", "out of range"),
        ("$." + "a" * 600, "longer than 512"),
    ],
)
def test_a_path_that_would_not_be_evaluated_is_refused(path: str, why: str) -> None:
    with pytest.raises(DeclarationInvalid, match=why.replace("`..`", "`\\.\\.`")):
        read_path(path)


def test_an_id_or_a_word_is_one_plain_value() -> None:
    assert [read_path(path).word(DOCUMENT) for path in ("$.id", "$.ok", "$.none", "$.absent")] == [
        "7",
        "true",
        None,
        None,
    ]
    for path in ("$.jobs", "$.jobs[*].id", "$"):
        with pytest.raises(Unreadable):
            read_path(path).word(DOCUMENT)
    for odd in (1.5, "", "a\nb", "a\x00", "x" * 600, "\u202e"):
        with pytest.raises(Unreadable):
            read_path("$.id").word({"id": odd})


def test_a_list_that_is_not_there_is_no_empty_list() -> None:
    assert read_path("$.empty").every(DOCUMENT) == []
    assert read_path("$.empty[*].id").every(DOCUMENT) == []
    assert read_path("$.jobs[*].id").every(DOCUMENT) == ["x", "y"]
    for path in ("$.absent", "$.absent[*].id", "$.id", "$.id[*]", "$['by name']", "$.none"):
        with pytest.raises(Unreadable, match="no list"):
            read_path(path).every(DOCUMENT)


# ---- templates -------------------------------------------------------------------------------------------------

JOB = frozenset({"job_id"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/v1/jobs/{job_id}", "not METHOD and a path"),
        ("GET v1/jobs/{job_id}", "not METHOD and a path"),
        ("GET  /v1/jobs/{job_id}", "not METHOD and a path"),
        ("get /v1/jobs/{job_id}", "not METHOD and a path"),
        ("GET /v1/jobs/{job_id} ", "not METHOD and a path"),
        ("GET /v1/jobs/{job_id}#top", "not METHOD and a path"),
        ("GET https://elsewhere.example/{job_id}", "not METHOD and a path"),
        ("GET //elsewhere.example/{job_id}", "empty segment"),
        ("GET /v1/../{job_id}", "one of dots"),
        ("GET /v1/%2e%2E/{job_id}", "one of dots"),
        ("GET /v1/jobs/\r\nHost: x/{job_id}", "not METHOD and a path"),
        ("GET /v1/jobs/é/{job_id}", "no path has"),
        ("GET /v1/jobs/{job_id", "no path has"),
        ("GET /v1/jobs/{Job}", "no path has"),
        ("GET /v1/jobs/{token}/{job_id}", "unknown placeholder {token}"),
        ("GET /v1/jobs", "no {job_id} in it"),
        ("DELETE /v1/jobs/{job_id}", "the method DELETE"),
        ("GET /v1/jobs/{job_id}?a=1&a=2", "one thing twice"),
        ("GET /v1/jobs/{job_id}?a", "not NAME=VALUE"),
        ("GET /v1/jobs/{job_id}?a={", "around no placeholder"),
        ("GET /v1/jobs/{job_id}?{job_id}=a", "around no placeholder"),
    ],
)
def test_a_request_that_could_not_be_sent_is_refused(text: str, why: str) -> None:
    with pytest.raises(DeclarationInvalid, match=why.replace("{", "\\{")):
        read_template(text, methods=("GET",), known=JOB, needed="job_id")


HOSTILE = [
    "..",
    ".",
    "../../x",
    "a/b",
    "a\r\nHost: evil",
    "a\x00b",
    "%2e%2e%2f",
    "..\\",
    "a?b=c",
    "a#b",
    "é ☕",
    "{token}",
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_a_placeholder_stands_for_cannot_leave_its_place(hostile: str) -> None:
    """S35, S44."""
    template = read_template("GET /v1/jobs/{job_id}/x?ref={job_id}", methods=("GET",), known=JOB)
    path = template.path_for({"job_id": hostile})
    assert path.startswith("v1/jobs/")
    assert path.endswith("/x")
    assert path.count("/") == 3
    assert not set(path) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%/")
    assert path.split("/")[2] not in (".", "..")
    assert template.query_for({"job_id": hostile}) == {"ref": hostile}  # whoever sends it encodes it


def test_an_id_may_be_a_part_of_a_segment() -> None:
    template = read_template("GET /jobs/{job_id}.json", methods=("GET",), known=JOB)
    assert template.path_for({"job_id": "a/b"}) == "jobs/a%2Fb.json"


# ---- requests --------------------------------------------------------------------------------------------------


def test_the_create_bears_token_and_reference_where_they_were_declared() -> None:
    step = provider(TRANSCODE).submit(operation(KIND))
    body = json.loads(step.request.body)
    assert body == {**operation(KIND).request, "client_token": "token-of-the-sample"}
    assert step.request.headers["x-client-ref"] == "op_01JDSAMPLE"
    quoted = provider().submit(operation(KIND)).request
    assert quoted.headers["idempotency-key"] == '"token-of-the-sample"'
    assert json.loads(quoted.body)["ref"] == "op_01JDSAMPLE", "the look-up's own query tells where"


def test_what_we_set_cannot_be_given_by_a_client() -> None:
    adapter = provider(TRANSCODE)
    with pytest.raises(RequestInvalid, match="set by us") as refused:
        adapter.check_start({"client_token": "mine"}, None)
    assert refused.value.pointer == "/request/client_token"
    with pytest.raises(RequestInvalid, match=r"expect\.items"):
        adapter.check_start({}, [{"id": "a"}])


def test_only_what_is_declared_can_be_asked_for() -> None:
    bare = {
        key: value
        for key, value in GENERIC.items()
        if key not in ("cancel", "input", "lookup", "webhook_secrets", "webhook")
    }
    adapter = provider(bare)
    assert (adapter.contract.cancel, adapter.contract.takes_input, adapter.contract.lookup) == (None, False, None)
    assert not isinstance(adapter, TakesInput)
    assert isinstance(provider(), TakesInput)
    assert adapter.marker(operation(KIND)) is None
    assert all(isinstance(adapter, each) for each in (AsksByMarker, NamesEvents, Unfolds))


def test_a_provider_without_a_declaration_has_a_contract_that_knows_nothing() -> None:
    """It stands for one that is missing from the configuration: nothing is ever asked of it."""
    adapter = provider_for(KIND)
    assert type(adapter) is Declared
    contract = adapter.contract
    assert (contract.words, contract.cancel, contract.lookup, contract.webhook, contract.version) == (
        {},
        None,
        None,
        None,
        0,
    )
    assert contract.idempotency == "none"
    with pytest.raises(ValueError, match="declares nothing"):
        adapter.submit(operation(KIND))


# ---- bodies ----------------------------------------------------------------------------------------------------


def test_a_body_tells_progress_hint_and_error() -> None:
    adapter = provider(TRANSCODE)
    told = adapter.read_status(answer({"status": "processing", "progress_percent": 45.9, "poll_after_seconds": 12}))
    assert isinstance(told, JobRead)
    assert told.observation.progress is not None
    assert (told.observation.progress.percent, told.hint_ms) == (45, 12_000)
    for odd in ("45", 101, -1, True, None, [1]):
        assert read(adapter, {"status": "processing", "progress_percent": odd}).progress is None
    failed = read(adapter, {"status": "failed", "error": {"code": "E7", "message": "no such codec"}})
    assert failed.error == RemoteError("E7", "no such codec")
    assert read(adapter, {"status": "processing", "error": "stale"}).error is None
    assert read(adapter, {"status": "succeeded", "progress_percent": 45}).progress is None


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'"x"', b"null", b'{"status": null}', b'{"status": {}}', b'{"a": 1}']
)
def test_a_body_without_a_state_is_an_error_and_no_job(body: bytes) -> None:
    """F6, F12."""
    assert provider().read_status(answer(body)) == ReadFailed("unreadable")


def test_the_first_of_several_places_that_holds_a_state_counts() -> None:
    """A job whose outcome stands beside its state."""
    status = {
        **GENERIC["status"],
        "state": ["$.conclusion", "$.status"],
        "succeeded": ["success"],
        "pending": ["queued", "completed"],
    }
    adapter = provider(status=status)
    assert read(adapter, {"status": "queued", "conclusion": None}).word == "queued"
    assert read(adapter, {"status": "completed", "conclusion": "success"}).word == "success"


def test_numbers_and_truth_values_are_words_too() -> None:
    status = {**GENERIC["status"], "state": "$.done", "pending": ["false"], "succeeded": ["true"], "failed": ["3"]}
    adapter = provider(status=status)
    assert [read(adapter, {"id": 5, "done": value}).word for value in (False, True, 3)] == ["false", "true", "3"]
    assert read(adapter, {"id": 5, "done": False}).remote_job_id == "5"


# ---- the create ------------------------------------------------------------------------------------------------


def submitted(adapter: Any, body: Any, status: int = 200) -> Any:
    return adapter.read_submit(operation(KIND), create_step(adapter), answer(body, status))


def test_a_create_answer_may_hold_the_end() -> None:
    """A5: with a job's id it is an acceptance that ends at once, without one the result itself."""
    adapter = provider()
    with_id = submitted(adapter, {"id": "j", "status": "succeeded", "result": 1})
    assert isinstance(with_id, Accepted)
    assert with_id.observation.results == (ResultRef(INLINE, "whole"),)
    without = submitted(adapter, {"status": "succeeded", "result": 1})
    assert isinstance(without, FinishedAtOnce)
    assert without.observation.results == (ResultRef(INLINE, "whole"),)
    failed = submitted(adapter, {"status": "failed", "error": "no"})
    assert isinstance(failed, FinishedAtOnce)
    assert failed.observation.error == RemoteError("failed", "no")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"error": "x"},
        {"status": "succeeded"},
        {"status": "queued"},
        {"id": ".."},
        {"id": ["a"]},
        {"id": "a\nb"},
        [],
    ],
)
def test_a_2xx_that_names_no_job_and_no_end_leaves_it_open(body: Any) -> None:
    """F18: a 200 with an error in it is no acceptance and no refusal."""
    assert submitted(provider(), json.dumps(body).encode()) == CreateUnknown("unreadable")


def test_an_id_is_kept_whatever_is_wrong_beside_it() -> None:
    assert submitted(provider(), {"id": "j", "status": {"odd": 1}}) == Accepted(Observation(None, remote_job_id="j"))


# ---- look-ups --------------------------------------------------------------------------------------------------


def jobs(page: Any) -> list[Any]:
    assert isinstance(page, Page)
    assert page.next is None
    return [job.remote_job_id for job in page.jobs]


def test_a_look_up_names_this_operations_jobs() -> None:
    adapter = provider()
    request = adapter.look_up(operation(KIND, state=State.CREATE_UNKNOWN))
    assert (request.path, request.query) == ("jobs", {"ref": "op_01JDSAMPLE"})
    assert jobs(adapter.read_list(answer({"jobs": []}))) == []
    assert jobs(adapter.read_list(answer({"jobs": [{"id": "a"}]}))) == ["a"]
    assert jobs(adapter.read_list(answer({"jobs": [{"id": "a"}, {"id": 7}, {"id": "a"}]}))) == ["a", "7"]


@pytest.mark.parametrize("body", [{}, {"jobs": None}, {"jobs": "x"}, {"jobs": [{"id": ".."}]}, {"jobs": [{"id": {}}]}])
def test_a_look_up_that_does_not_look_as_declared_says_nothing(body: Any) -> None:
    """Taken for "none", it would let a create be sent again that `create.on_absent` allows."""
    assert provider().read_list(answer(body)) == ReadFailed("unreadable")


def test_a_look_up_of_one_place_may_be_told_that_there_is_none() -> None:
    lookup = {"request": "GET /jobs/by-ref/{operation_id}", "job_id": "$.id"}
    create = {**GENERIC["create"], "reference": {"field": "ref"}}
    adapter = provider(lookup=lookup, create=create)
    assert jobs(adapter.read_list(answer({"id": "a"}))) == ["a"]
    assert jobs(adapter.read_list(answer({"error": "no such job"}, 404))) == []
    assert adapter.read_list(answer(b"<html>", 404)) == ReadFailed("http_404")
    assert adapter.read_list(answer({"other": 1})) == ReadFailed("unreadable")
    assert provider().read_list(answer({"error": "x"}, 404)) == ReadFailed("http_404"), (
        "a list is there, or its path is wrong"
    )


# ---- results ---------------------------------------------------------------------------------------------------

BODY = {
    "status": "completed_with_errors",
    "result": {"url": "u", "items": [{"id": "a", "status": "ok"}, {"id": "b", "status": "error"}]},
}


def test_an_inline_result_with_items_is_kept_whole_and_line_by_line() -> None:
    adapter = provider(TRANSCODE)
    seen = read(adapter, BODY)
    assert seen.results == (ResultRef(INLINE, "document"),)
    whole, lines = adapter.unfold(seen.results[0], json.dumps(BODY).encode())
    assert (whole.holds, json.loads(whole.data)) == ("nothing", BODY["result"])
    assert lines == Part(b'{"id":"a","status":"ok"}\n{"id":"b","status":"error"}\n', "items")


def test_without_a_table_for_results_the_body_that_shows_the_end_is_the_result() -> None:
    adapter = provider({key: value for key, value in GENERIC.items() if key != "result"})
    body = {"id": "j", "status": "succeeded", "tests": 7}
    (ref,) = read(adapter, body).results
    raw = json.dumps(body, indent=2).encode()
    assert adapter.unfold(ref, raw) == (Part(raw, "item"),), "byte for byte"


def test_items_of_a_status_body_without_a_place_for_the_result_leave_the_body_as_the_result() -> None:
    adapter = provider({key: value for key, value in TRANSCODE.items() if key != "result"})
    (ref,) = read(adapter, BODY).results
    raw = json.dumps(BODY, indent=2).encode()
    whole, lines = adapter.unfold(ref, raw)
    assert (whole, lines.holds) == (Part(raw, "nothing"), "items")


def test_a_value_inside_a_status_body_is_written_in_one_spelling() -> None:
    """Whoever promised its checksum cannot know in which order the provider would write its keys."""
    adapter, body = provider(), {"id": "j", "status": "succeeded", "result": {"b": 1, "a": "é"}}
    (ref,) = read(adapter, body).results
    assert adapter.unfold(ref, json.dumps(body).encode()) == (Part('{"a":"é","b":1}\n'.encode(), "item"),)
    with pytest.raises(Unreadable):
        adapter.unfold(ref, b'{"id": "j", "status": "succeeded", "result": null}')


def test_a_result_that_is_not_there_is_not_named() -> None:
    assert read(provider(), {"id": "j", "status": "succeeded"}).results == ()
    assert read(provider(), {"id": "j", "status": "succeeded", "result": None}).results == ()
    assert read(provider(), {"id": "j", "status": "running", "result": 1}).results == (), "of a job that still runs"


def test_a_result_behind_a_request_of_its_own_is_asked_for_by_the_job() -> None:
    result = {"request": "GET /jobs/{job_id}/result", "kept": "1h"}
    adapter = provider(result=result, poll={"sweep": "10m"})
    (ref,) = read(adapter, {"id": "j", "status": "succeeded"}).results
    request = adapter.result(operation(KIND, remote_job_id="a/b"), ref)
    assert (request.method, request.path, request.url) == ("GET", "jobs/a%2Fb/result", None)
    assert adapter.contract.results_kept_ms == 3_600_000
    assert read(adapter, {"id": "j", "status": "failed"}).results == ()


def test_items_behind_a_url_are_fetched_where_the_body_says() -> None:
    items = {
        **{key: value for key, value in TRANSCODE["items"].items() if key != "from"},
        "url": "$.items_url",
        "hosts": ["Storage.example"],
    }
    adapter = provider({key: value for key, value in TRANSCODE.items() if key != "result"}, items=items)
    url = "https://storage.example/x?sig=1"
    (ref,) = read(adapter, {"status": "succeeded", "items_url": url}).results
    assert adapter.result(operation(KIND, remote_job_id="j"), ref).url == url
    assert adapter.contract.storage_hosts == ("storage.example",)
    (partial,) = read(adapter, {"status": "cancelled", "items_url": url}).results
    assert partial == ref, "partial results of a cancelled job are collected (E4)"


@pytest.mark.parametrize(
    ("row", "outcome", "reason"),
    [
        ({"id": "a", "status": "ok"}, "succeeded", ""),
        ({"id": 7, "status": "ok"}, "succeeded", ""),
        ({"id": "a", "status": "error"}, "failed", "error"),
        ({"id": "a", "status": "error", "error": "bad frame"}, "failed", "bad frame"),
        ({"id": "a", "status": "error", "error": {"code": "E1", "message": "m"}}, "failed", "E1"),
        ({"id": "a", "status": "dropped"}, "cancelled", "dropped"),
        ({"id": "a", "status": "late"}, "expired", "late"),
        ({"id": "a", "status": "fine"}, "failed", "unknown_state fine"),
        ({"id": "a", "status": None}, "failed", "unknown_state"),
        ({"id": "a"}, "failed", "unknown_state"),
    ],
)
def test_only_a_declared_word_is_a_success_of_an_item(row: Any, outcome: str, reason: str) -> None:
    item = provider(TRANSCODE).read_item(json.dumps(row).encode(), ResultRef(INLINE))
    assert (item.item_id, item.outcome, item.reason) == (str(row["id"]), outcome, reason)


# ---- webhooks --------------------------------------------------------------------------------------------------


def test_a_delivery_names_its_job_its_state_and_itself() -> None:
    adapter = provider()
    body = json.dumps({"event": "ev-1", "job": {"id": "j", "status": "running"}}).encode()
    assert adapter.read_webhook(body) == Observation("running", remote_job_id="j", remote_status="running")
    assert adapter.event_id(body) == "ev-1"
    assert adapter.event_id(b'{"event": null}') is None
    assert adapter.event_id(b'{"event": "a\\nb"}') is None
    assert adapter.event_id(b"<") is None


def test_a_thin_delivery_only_rings() -> None:
    webhook = {"scheme": "standard", "job_id": "$.job"}
    assert provider(webhook=webhook).read_webhook(b'{"job": "j"}') == Observation(None, remote_job_id="j")


# ---- the version -----------------------------------------------------------------------------------------------


def test_the_version_follows_from_what_bodies_mean_and_from_nothing_else() -> None:
    """J4."""
    version = provider().contract.version
    assert 0 < version < 2**48
    same = {
        "poll": {"base": "1s"},
        "limits": {"concurrency": 1},
        "base_url": "https://elsewhere.example",
        "create": {**GENERIC["create"], "on_absent": "resend", "within": "1h", "settle": "1m"},
    }
    for key, value in same.items():
        assert provider(**{key: value}).contract.version == version, key
    for changes in (
        {"status": {**GENERIC["status"], "pending": ["queued", "running", "paused"]}},
        {"status": {**GENERIC["status"], "state": "$.state"}},
        {"create": {**GENERIC["create"], "idempotency": "none"}},
        {"result": {"from": "$.output"}},
    ):
        assert provider(**changes).contract.version != version, changes


# ---- whatever a stranger sends ---------------------------------------------------------------------------------

fragments = st.recursive(
    st.sampled_from([None, True, 0, 1.5, "", "succeeded", "failed", "cancelled", "ok", "..", "a/b", "x\u202e", 2**63]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "status", "result", "items", "jobs", "job", "error", "items_url", "event"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=16,
)


@given(fragments, st.sampled_from([200, 202, 303, 400, 404, 409, 410, 500]))
def test_no_body_of_the_declared_shape_raises(body: Any, status: int) -> None:
    raw = json.dumps(body).encode()
    for adapter in (_GENERIC, _INLINE, _BY_URL):
        response = answer(raw, status)
        told = adapter.read_status(response)
        adapter.read_submit(operation(KIND), create_step(adapter), response)
        adapter.read_cancel(response)
        adapter.read_list(response)
        adapter.event_id(raw)
        with contextlib.suppress(Unreadable):
            adapter.read_webhook(raw)
        with contextlib.suppress(Unreadable):
            adapter.read_item(raw, ResultRef(INLINE))
        if isinstance(told, JobRead):
            for ref in told.observation.results:
                with contextlib.suppress(Unreadable):
                    adapter.unfold(ref, raw)


_GENERIC = provider()
_INLINE = provider(TRANSCODE)
_BY_URL = provider(
    {key: value for key, value in TRANSCODE.items() if key != "result"},
    items={**{key: value for key, value in TRANSCODE["items"].items() if key != "from"}, "url": "$.items_url"},
)
assert isinstance(_GENERIC, DeclaredWithInput)

"""OpenAI's Batch API as our adapter speaks and reads it: what the fixtures alone do not show."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.classify import classify
from reconcile.errors import RequestInvalid, Unreadable
from reconcile.evidence import (
    Accepted,
    CancelAnswer,
    CancelAnswered,
    CreateNotAccepted,
    CreateRejected,
    CreateUnknown,
    Evidence,
    JobGone,
    JobRead,
    ReadFailed,
    StepDone,
)
from reconcile.model import Observation, Progress, RemoteError, ResultRef, VerdictKind
from reconcile.provider import FilePart, HttpRequest, Multipart, Page, Purpose
from reconcile.providers.openai_batch.adapter import OpenAIBatch
from reconcile.providers.openai_batch.contract import CONTRACT
from tests.reconcile.provider_cases import EXPECT, FIXTURES, SAMPLES, answer, fixture_bytes, http_fixture, operation

KIND = "openai_batch"
PROVIDER = OpenAIBatch()
ITEM = {"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {"model": "example-model"}}
REQUEST = {"endpoint": "/v1/responses", "completion_window": "24h"}
COMPLETED: dict[str, Any] = json.loads(fixture_bytes("openai/batch_status_completed.json"))
IN_PROGRESS: dict[str, Any] = json.loads(fixture_bytes("openai/batch_status_in_progress.json"))
JOB = "batch_fx6a1c0e5d9b7f4281"
FILE = "file-fxIn7Qm2Zt9"
OUTPUT = ResultRef("file-fxOut4Lk8Wc")
OWN_404 = {"message": "No batch found with id 'batch_x'.", "type": "invalid_request_error", "param": None, "code": None}


def read(batch: Any) -> Observation:
    """The observation of a batch object that can be read."""
    result = PROVIDER.read_status(answer(batch))
    assert isinstance(result, JobRead)
    return result.observation


def test_each_batch_and_http_fixture_has_an_expectation_of_this_kind() -> None:
    """The conformance tests run over the expectations; here no file of ours stays outside them."""
    ours = {
        f"openai/{path.name}" for pattern in ("batch_*", "http_*") for path in (FIXTURES / "openai").glob(pattern)
    } - {"openai/http_404_response.json"}
    assert ours == {name for name, entry in EXPECT["files"].items() if entry.get("kind") == KIND}


# ---- the contract ----------------------------------------------------------------------------------------------


def test_the_contract_gives_the_documented_answers() -> None:
    """Numbers as the documentation and the configuration's defaults have them, typed here by hand."""
    assert (CONTRACT.poll.base_ms, CONTRACT.poll.cap_ms, CONTRACT.poll.sweep_ms) == (30_000, 600_000, 900_000)
    assert CONTRACT.result_within_ms == 93_600_000
    assert (CONTRACT.limits.requests_per_second, CONTRACT.limits.concurrency) == (5, 4)
    assert (CONTRACT.limits.max_items, CONTRACT.limits.max_input_bytes) == (50_000, 200_000_000)
    assert CONTRACT.results_kept_ms == 2_592_000_000
    assert CONTRACT.lookup is not None
    assert CONTRACT.lookup.is_sure
    assert CONTRACT.cancel is not None
    assert (CONTRACT.cancel.is_repeatable, CONTRACT.cancel.within_ms) == (False, 900_000)
    assert CONTRACT.webhook is not None
    assert (CONTRACT.webhook.scheme, CONTRACT.webhook.tolerance_seconds) == ("standard", 300)
    assert CONTRACT.webhook.retries_ms == 259_200_000
    assert (CONTRACT.idempotency, CONTRACT.result_fetch, CONTRACT.has_read) == ("none", "plain", True)


@pytest.mark.parametrize(
    ("word", "kind", "may_hold_results"),
    [
        ("validating", VerdictKind.PENDING, False),
        ("in_progress", VerdictKind.PENDING, False),
        ("finalizing", VerdictKind.PENDING, False),
        ("cancelling", VerdictKind.PENDING, False),
        ("completed", VerdictKind.DONE_UNKNOWN_OUTCOME, False),
        ("failed", VerdictKind.FAILED, False),
        ("expired", VerdictKind.EXPIRED, True),
        ("cancelled", VerdictKind.CANCELLED, True),
    ],
)
def test_the_words_mean_what_the_documentation_says(word: str, kind: VerdictKind, may_hold_results: bool) -> None:
    """All eight statuses, and no ninth."""
    verdict = classify(CONTRACT, word)
    assert (verdict.kind, verdict.may_hold_results) == (kind, may_hold_results)
    assert len(CONTRACT.words) == 8


# ---- what a client gives ---------------------------------------------------------------------------------------


def test_a_start_is_kept_as_given_with_the_window_filled_in() -> None:
    """The body that is kept is the one that is sent, but for the file and our own mark."""
    given_request = {
        "endpoint": "/v1/embeddings",
        "metadata": {"team": "search"},
        "output_expires_after": {"anchor": "created_at", "seconds": 3600},
    }
    assert PROVIDER.check_start(given_request, [ITEM]) == given_request | {"completion_window": "24h"}
    assert PROVIDER.check_start(REQUEST | {"input_file_id": FILE}, None) == REQUEST | {"input_file_id": FILE}
    assert PROVIDER.check_start(REQUEST | {"metadata": None, "input_file_id": None}, [ITEM]) == REQUEST
    assert PROVIDER.check_start(REQUEST, range(50_000)) == REQUEST


@pytest.mark.parametrize(
    ("change", "items", "pointer"),
    [
        ({"endpoint": None}, [ITEM], "/request/endpoint"),
        ({"endpoint": "v1/responses"}, [ITEM], "/request/endpoint"),
        ({"endpoint": "/v1/\x00"}, [ITEM], "/request/endpoint"),
        ({"completion_window": 24}, [ITEM], "/request/completion_window"),
        ({"completion_window": None}, [ITEM], "/request/completion_window"),
        ({"foo": 1}, [ITEM], "/request/foo"),
        ({"a/b~c": 1}, [ITEM], "/request/a~1b~0c"),
        ({"metadata": []}, [ITEM], "/request/metadata"),
        ({"metadata": {str(n): "" for n in range(15)}}, [ITEM], "/request/metadata"),
        ({"metadata": {"": "x"}}, [ITEM], "/request/metadata"),
        ({"metadata": {"k" * 65: "x"}}, [ITEM], "/request/metadata"),
        ({"metadata": {"k": 1}}, [ITEM], "/request/metadata/k"),
        ({"metadata": {"k/l": "v" * 513}}, [ITEM], "/request/metadata/k~1l"),
        ({"metadata": {"reconciled_operation": "op_other"}}, [ITEM], "/request/metadata/reconciled_operation"),
        ({"output_expires_after": 3600}, [ITEM], "/request/output_expires_after"),
        ({"output_expires_after": {"seconds": 3600}}, [ITEM], "/request/output_expires_after/anchor"),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": True}},
            [ITEM],
            "/request/output_expires_after/seconds",
        ),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": 3599}},
            [ITEM],
            "/request/output_expires_after/seconds",
        ),
        (
            {"output_expires_after": {"anchor": "created_at", "seconds": 3600, "x": 1}},
            [ITEM],
            "/request/output_expires_after/x",
        ),
        ({"input_file_id": 7}, None, "/request/input_file_id"),
        ({"input_file_id": ""}, None, "/request/input_file_id"),
        ({"input_file_id": FILE}, [ITEM], "/items"),
        ({"input_file_id": FILE}, [], "/items"),
        ({}, None, "/items"),
        ({}, [], "/items"),
        ({}, range(50_001), "/items"),
    ],
)
def test_a_start_that_cannot_be_sent_is_refused_at_its_fault(change: Any, items: Any, pointer: str) -> None:
    """Nothing leaves for a start like this, and the refusal points at the field."""
    with pytest.raises(RequestInvalid) as refused:
        PROVIDER.check_start(REQUEST | change, items)
    assert refused.value.pointer == pointer


def test_the_endpoint_is_needed() -> None:
    """It decides what each line is: there is no default."""
    with pytest.raises(RequestInvalid) as refused:
        PROVIDER.check_start({}, [ITEM])
    assert refused.value.pointer == "/request/endpoint"


def test_an_item_becomes_one_line() -> None:
    """Compact, UTF-8, the body's keys in the order they came: a schema's order is the order of the answer."""
    item = {
        "body": {"z": 1, "a": {"y": "ünï\n", "b": 2.0}},
        "url": "/v1/responses",
        "custom_id": "job-0001:0",
    }
    item_id, line = PROVIDER.item_line(item, 0)
    assert item_id == "job-0001:0"
    assert line == (
        '{"custom_id":"job-0001:0","method":"POST","url":"/v1/responses",'
        '"body":{"z":1,"a":{"y":"ünï\\n","b":2.0}}}\n'.encode()
    )


def test_ids_that_differ_by_a_space_stay_two() -> None:
    """Ids are kept byte for byte, never merged (C09)."""
    ids = [PROVIDER.item_line(ITEM | {"custom_id": given_id}, 0)[0] for given_id in ("row-1", "row-1 ")]
    assert ids == ["row-1", "row-1 "]


@pytest.mark.parametrize(
    ("item", "pointer"),
    [
        ([], "/items/3"),
        ("{}", "/items/3"),
        ({}, "/items/3/custom_id"),
        (ITEM | {"custom_id": 7}, "/items/3/custom_id"),
        (ITEM | {"custom_id": ""}, "/items/3/custom_id"),
        (ITEM | {"custom_id": "a\nb"}, "/items/3/custom_id"),
        (ITEM | {"custom_id": "x" * 513}, "/items/3/custom_id"),
        (ITEM | {"method": "GET"}, "/items/3/method"),
        (ITEM | {"method": None}, "/items/3/method"),
        (ITEM | {"url": None}, "/items/3/url"),
        (ITEM | {"url": "https://elsewhere/v1"}, "/items/3/url"),
        (ITEM | {"body": "{}"}, "/items/3/body"),
        (ITEM | {"body": {"x": float("nan")}}, "/items/3/body"),
        (ITEM | {"body": {"x": "\ud800"}}, "/items/3/body"),
        (ITEM | {"x/y": 1}, "/items/3/x~1y"),
    ],
)
def test_an_item_that_cannot_be_sent_is_refused_at_its_fault(item: Any, pointer: str) -> None:
    """Before anything is uploaded, and naming the item by its place."""
    with pytest.raises(RequestInvalid) as refused:
        PROVIDER.item_line(item, 3)
    assert refused.value.pointer == pointer


# ---- submit ----------------------------------------------------------------------------------------------------


def test_the_input_is_uploaded_first() -> None:
    """A form of two parts, the file streamed from the spool; no job can come of it, so it needs no send mark."""
    step = PROVIDER.submit(operation(KIND))
    assert (step.name, step.has_effect) == ("upload", False)
    assert step.request == HttpRequest(
        "POST",
        "files",
        Purpose.UPLOAD,
        body=Multipart(
            {"purpose": "batch"},
            FilePart("spool/op_01JDSAMPLE", "file", "op_01JDSAMPLE.jsonl", "application/jsonl"),
            "reconciled-op_01JDSAMPLE",
        ),
    )


def test_the_create_names_the_uploaded_file_and_bears_our_mark() -> None:
    """Canonical bytes of what the fixture shows, with our operation in the metadata."""
    request = PROVIDER.check_start(SAMPLES[KIND].request, SAMPLES[KIND].items)
    step = PROVIDER.submit(operation(KIND, request=request, steps={"upload": FILE}))
    assert (step.name, step.has_effect) == ("create", True)
    assert (step.request.method, step.request.path, step.request.purpose) == ("POST", "batches", Purpose.CREATE)
    assert step.request.body == (
        b'{"completion_window":"24h","endpoint":"/v1/responses","input_file_id":"file-fxIn7Qm2Zt9",'
        b'"metadata":{"reconciled_operation":"op_01JDSAMPLE","team":"search"}}'
    )
    assert set(json.loads(fixture_bytes("openai/batch_create_request.json"))) == set(json.loads(step.request.body))


def test_a_named_input_file_is_not_uploaded_again_and_marks_nothing() -> None:
    """A client's own file may serve other batches too: the look-up has no sure mark for this one."""
    op = operation(KIND, request=REQUEST | {"input_file_id": "file-theirs"}, input_ref=None)
    step = PROVIDER.submit(op)
    assert (step.name, step.has_effect) == ("create", True)
    assert isinstance(step.request.body, bytes)
    assert json.loads(step.request.body) == REQUEST | {
        "input_file_id": "file-theirs",
        "metadata": {"reconciled_operation": "op_01JDSAMPLE"},
    }
    assert PROVIDER.marker(op) is None
    assert PROVIDER.marker(operation(KIND, steps={"upload": FILE})) == FILE
    assert PROVIDER.marker(operation(KIND)) is None


def test_a_restored_operation_whose_upload_is_not_known_is_found_by_its_id_in_the_metadata() -> None:
    """Or one whose upload was made again since. Any other goes by its file alone: people copy what they see."""
    other, ours = Observation(None, JOB, marker="file-other"), Observation(None, JOB, marker=FILE, named="op_other")
    named = Observation(None, JOB, marker="file-other", named="op_01JDSAMPLE")
    for steps in ({}, {"upload": FILE}):
        op = operation(KIND, steps=steps)
        assert not PROVIDER.is_candidate(op, named)
        op = replace(op, restored=True)
        assert PROVIDER.marker(op) is not None
        assert PROVIDER.is_candidate(op, named)
        assert not PROVIDER.is_candidate(op, other)
        assert PROVIDER.is_candidate(op, ours) == bool(steps)
    batch = json.loads(fixture_bytes("openai/batch_status_expired_partial.json"))
    for metadata, name in (({"reconciled_operation": "op_1"}, "op_1"), ({"reconciled_operation": 7}, None), (7, None)):
        assert read(batch | {"metadata": metadata}).named == name


@pytest.mark.parametrize(
    ("status", "body", "meant"),
    [
        (200, {"id": "file-1", "object": "file"}, StepDone("upload", "file-1")),
        (201, {"id": "file-1"}, StepDone("upload", "file-1")),
        (200, {"object": "file"}, CreateNotAccepted("unreadable")),
        (200, {"id": ".."}, CreateNotAccepted("unreadable")),
        (200, b"<html>", CreateNotAccepted("unreadable")),
        (
            400,
            {"error": {"message": "Bad file.", "code": "invalid_file"}},
            CreateRejected(RemoteError("invalid_file", "Bad file.")),
        ),
        (413, b"", CreateRejected(RemoteError("http_413", "The provider gave no message."))),
        (401, {"error": {"message": "No."}}, CreateNotAccepted("http_401")),
        (404, {"error": {"message": "No.", "param": "purpose"}}, CreateNotAccepted("http_404")),
        (408, b"", CreateNotAccepted("http_408")),
        (409, b"", CreateNotAccepted("http_409")),
        (429, b"", CreateNotAccepted("http_429")),
        (503, b"", CreateNotAccepted("http_503")),
        (307, b"", CreateNotAccepted("http_307")),
    ],
)
def test_an_upload_is_done_refused_or_tried_again(status: int, body: Any, meant: Evidence) -> None:
    """No job can come of an upload: there is no unknown outcome."""
    step = PROVIDER.submit(operation(KIND))
    assert PROVIDER.read_submit(operation(KIND), step, answer(body, status)) == meant


def read_create(body: Any, status: int) -> Evidence:
    step = PROVIDER.submit(operation(KIND, steps={"upload": FILE}))
    return PROVIDER.read_submit(operation(KIND), step, answer(body, status))


@pytest.mark.parametrize(
    ("status", "body", "meant"),
    [
        (200, {"status": "validating"}, CreateUnknown("unreadable")),
        (200, {"id": 7, "status": "validating"}, CreateUnknown("unreadable")),
        (200, {"id": "..", "status": "validating"}, CreateUnknown("unreadable")),
        (200, b'{"id":"a","id":"b"}', CreateUnknown("unreadable")),
        (200, b"", CreateUnknown("unreadable")),
        (202, {"id": "batch_1", "status": "validating"}, CreateUnknown("http_202")),
        (307, b"", CreateUnknown("http_307")),
        (408, b"", CreateUnknown("http_408")),
        (502, b"<html>", CreateUnknown("http_502")),
        (404, b"<html>", CreateNotAccepted("http_404")),
        (
            404,
            {"error": {"message": "No such file.", "param": "input_file_id", "code": "not_found"}},
            CreateRejected(RemoteError("not_found", "No such file.")),
        ),
        (
            400,
            {"error": {"message": "Limit.", "type": "requests", "code": "token_limit_exceeded"}},
            CreateRejected(RemoteError("token_limit_exceeded", "Limit.", retryable=True)),
        ),
        (422, b"<html>", CreateRejected(RemoteError("http_422", "The provider refused the request."))),
    ],
)
def test_a_create_without_a_job_is_judged_by_what_may_have_happened(status: int, body: Any, meant: Evidence) -> None:
    """Unknown wherever a job may have been made."""
    assert read_create(body, status) == meant


def test_a_job_id_is_never_thrown_away_for_a_flaw_beside_it() -> None:
    """Nothing but the id is needed to hold on to a job: the next read tells the rest."""
    for body in ({"id": JOB}, {"id": JOB, "status": 5}, {"id": JOB, "status": "completed", "output_file_id": 9}):
        assert read_create(body, 200) == Accepted(Observation(None, remote_job_id=JOB))
    seen = read_create(COMPLETED, 201)
    assert isinstance(seen, Accepted)
    assert (seen.observation.word, seen.observation.results) == ("completed", (OUTPUT,))


# ---- reads -----------------------------------------------------------------------------------------------------


def test_the_reads_ask_for_what_is_documented() -> None:
    """Status, list, cancel, content: four calls below /v1."""
    op = operation(KIND, remote_job_id=JOB)
    assert PROVIDER.status(op) == HttpRequest("GET", f"batches/{JOB}", Purpose.STATUS)
    assert PROVIDER.cancel(op) == HttpRequest("POST", f"batches/{JOB}/cancel", Purpose.CANCEL)
    assert PROVIDER.result(op, OUTPUT) == HttpRequest("GET", "files/file-fxOut4Lk8Wc/content", Purpose.RESULT)
    assert PROVIDER.list_page(None) == HttpRequest("GET", "batches", Purpose.LOOKUP, {"limit": "100"})
    assert PROVIDER.list_page("b/1").query == {"limit": "100", "after": "b/1"}
    with pytest.raises(ValueError, match="no job"):
        PROVIDER.status(operation(KIND))


def test_a_whole_read() -> None:
    """Each field of the fixture where it belongs, typed here by hand."""
    assert read(json.loads(fixture_bytes("openai/batch_status_expired_partial.json"))) == Observation(
        word="expired",
        remote_job_id=JOB,
        remote_status="expired",
        progress=None,
        results=(OUTPUT, ResultRef("file-fxErr1Pd6Ns", "error")),
        finished_items=1,
        total_items=4,
        error=None,
        provider_at=1_796_040_060_000,
        marker=FILE,
    )


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("validating", 1795953600),
        ("in_progress", 1795953640),
        ("finalizing", 1795954500),
        ("cancelling", 1795953900),
        ("completed", 1795954530),
        ("failed", 1795953612),
        ("cancelled_nothing", 1795953605),
        ("unknown_future_status", None),
    ],
)
def test_the_provider_s_own_time_is_that_of_the_status(name: str, at: int | None) -> None:
    """When the provider says it entered the status; none for a status that we do not know."""
    seen = read(json.loads(fixture_bytes(f"openai/batch_status_{name}.json")))
    assert seen.provider_at == (None if at is None else at * 1000)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"<html>maintenance</html>",
        b'{"status":"completed","n":NaN}',
        b'{"status":"completed","status":"failed"}',
        {"error": {"message": "oops"}},
        {"id": JOB},
        {"id": JOB, "status": None},
        {"id": JOB, "status": ""},
        {"id": JOB, "status": 200},
        {"id": JOB, "status": ["completed"]},
        {"id": JOB, "status": "completed\x00"},
        {"id": JOB, "status": "x" * 513},
        {"id": 5, "status": "completed"},
        {"id": "", "status": "completed"},
        {"id": "..", "status": "completed"},
        COMPLETED | {"output_file_id": 5},
        COMPLETED | {"output_file_id": "a\x00b"},
        COMPLETED | {"error_file_id": ".."},
        COMPLETED | {"error_file_id": False},
    ],
)
def test_a_200_that_is_no_batch_is_a_failed_read(body: Any) -> None:
    """Never an end, never a guess; the job is read again."""
    assert PROVIDER.read_status(answer(body)) == ReadFailed("unreadable")


def test_a_batch_without_an_id_is_the_answer_to_its_own_read() -> None:
    """Not every server of this shape repeats the id."""
    seen = read({"status": "expired", "output_file_id": "file-o2", "request_counts": {"total": 10, "completed": 1}})
    assert (seen.word, seen.remote_job_id, seen.results) == ("expired", None, (ResultRef("file-o2"),))
    assert (seen.finished_items, seen.total_items) == (1, 10)


def test_a_near_miss_of_a_word_is_a_stranger() -> None:
    """Never success by fuzzy matching (C04): the word stays as it came, and results are not even looked at."""
    seen = read(COMPLETED | {"status": "COMPLETED "})
    assert seen.word == "COMPLETED "
    assert seen.results == ()
    verdict = classify(CONTRACT, seen.word)
    assert (verdict.kind, verdict.known) == (VerdictKind.PENDING, False)


def test_files_are_named_only_where_results_may_be() -> None:
    """Before the end a file id is not final; after a failed validation it is none of a result."""
    named = {"output_file_id": "file-o", "error_file_id": "file-e"}
    for status in ("validating", "in_progress", "finalizing", "cancelling", "failed", "paused"):
        assert read(COMPLETED | named | {"status": status}).results == ()
    both = (ResultRef("file-o", "output"), ResultRef("file-e", "error"))
    for status in ("completed", "expired", "cancelled"):
        assert read(COMPLETED | named | {"status": status}).results == both


@pytest.mark.parametrize(
    ("counts", "progress", "finished", "total"),
    [
        ({"total": 3, "completed": 1, "failed": 1}, Progress(66, None, 2, 3), 2, 3),
        ({"total": 100, "completed": 100, "failed": 0}, Progress(100, None, 100, 100), 100, 100),
        ({"total": 0, "completed": 0, "failed": 0}, None, 0, None),
        ({"total": 2, "completed": 5, "failed": 0}, Progress(100, None, 5, 2), 5, 2),
        ({"total": 4}, None, None, 4),
        ({"total": 4, "completed": None, "failed": 1}, Progress(25, None, 1, 4), 1, 4),
        ({"total": -4, "completed": -1, "failed": True}, None, None, None),
        ({"total": "4", "completed": 1.0, "failed": 10**18}, None, None, None),
        (None, None, None, None),
        ([], None, None, None),
    ],
)
def test_counts_are_believed_as_far_as_they_make_sense(
    counts: Any, progress: Progress | None, finished: int | None, total: int | None
) -> None:
    """Finished counts failed ones too; a total of 0 is no total; a strange count is no count."""
    for status in ("in_progress", "paused_for_review"):
        seen = read(IN_PROGRESS | {"status": status, "request_counts": counts})
        assert (seen.progress, seen.finished_items, seen.total_items) == (progress, finished, total)
    assert read(COMPLETED | {"request_counts": counts}).progress is None


def test_a_batch_refused_after_its_create_says_why_and_that_it_may_be_tried_again() -> None:
    """Refused for quota a moment later (C48): the code and the words are kept, and it is no fault of the data."""
    data = [{"code": "token_limit_exceeded", "message": "limit reached, try later", "line": None}]
    seen = read({"id": "b8", "status": "failed", "errors": {"object": "list", "data": data}})
    assert seen.error == RemoteError("token_limit_exceeded", "limit reached, try later", retryable=True)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            {"errors": {"data": [{"code": "a", "message": "one"}, 7, {"code": "b", "message": "two"}]}},
            RemoteError("a", "one (and 1 more)"),
        ),
        ({"errors": {"data": []}}, None),
        ({"errors": {"data": "x"}}, None),
        ({"errors": ["x"]}, None),
        ({"error": {"message": "odd"}}, RemoteError("failed", "odd")),
        ({"error": {"code": 7, "message": 8}}, RemoteError("7", "The provider gave no message.")),
        ({"error": {"code": "a\nb", "message": "m" * 2000}}, RemoteError("failed", "m" * 1000)),
    ],
)
def test_the_reason_of_a_failure_is_read_where_there_is_one(change: Any, error: RemoteError | None) -> None:
    """The first stated error, or a plain one; wrong types are no reason to lose the failure itself."""
    failed = json.loads(fixture_bytes("openai/batch_status_failed.json"))
    assert read(failed | {"errors": None} | change).error == error


def test_a_batch_that_is_done_shows_no_error_of_its_own() -> None:
    """What went wrong with items stands in their lines."""
    assert read(COMPLETED | {"errors": {"data": [{"code": "a", "message": "b"}]}}).error is None


def test_only_the_provider_s_own_words_about_the_job_mean_gone() -> None:
    """A page that is not its own, and its own word on a path that does not exist, speak of our configuration."""
    assert PROVIDER.read_status(answer({"error": OWN_404}, 404)) == JobGone("http_404")
    assert PROVIDER.read_status(answer({"error": OWN_404}, 410)) == JobGone("http_410")
    wrong_path = OWN_404 | {"message": "Invalid URL (GET /batches/batch_x)"}
    strangers: list[Any] = [{"error": wrong_path}, {"error": "x"}, {"detail": "Not Found"}, {"error": {}}, b"<html>"]
    for body in strangers:
        assert PROVIDER.read_status(answer(body, 404)) == ReadFailed("http_404")
        assert PROVIDER.read_cancel(answer(body, 404)).answer is CancelAnswer.NOT_ACCEPTED
    assert PROVIDER.read_status(answer(b"", 204)) == ReadFailed("http_204")
    assert PROVIDER.read_status(http_fixture("openai/http_401.json")) == ReadFailed("http_401", counts=False)


# ---- lists -----------------------------------------------------------------------------------------------------


def test_an_entry_that_cannot_be_read_takes_no_other_with_it() -> None:
    """It counts as not listed, so that its job is read by id."""
    entries = [None, 5, {}, {"id": "b1"}, {"status": "completed"}, {"id": "..", "status": "completed"}, IN_PROGRESS]
    page = PROVIDER.read_list(answer({"data": entries, "has_more": False}))
    assert isinstance(page, Page)
    assert [job.remote_job_id for job in page.jobs] == [JOB]
    assert page.next is None


@pytest.mark.parametrize(
    ("envelope", "cursor"),
    [
        ({"has_more": True, "last_id": "batch_last"}, "batch_last"),
        ({"has_more": True, "last_id": None}, JOB),
        ({"has_more": True}, JOB),
        ({"has_more": True, "last_id": 5}, JOB),
        ({"has_more": False, "last_id": "batch_last"}, None),
        ({"has_more": None, "last_id": "batch_last"}, None),
        ({"has_more": "true", "last_id": "batch_last"}, None),
        ({"has_more": True, "last_id": "batch_last", "data": []}, None),
        ({"has_more": True, "data": [7]}, None),
    ],
)
def test_a_walk_goes_on_only_with_a_cursor_that_leads_on(envelope: Any, cursor: str | None) -> None:
    """A page that shows nothing, or names no place to go on from, is the last one."""
    page = PROVIDER.read_list(answer({"data": [IN_PROGRESS]} | envelope))
    assert isinstance(page, Page)
    assert page.next == cursor


@pytest.mark.parametrize("body", [b"", b"[]", {}, {"data": None}, {"data": {"id": JOB}}])
def test_a_200_that_is_no_page_shows_no_absence(body: Any) -> None:
    """An empty page and an unreadable one are two things."""
    assert PROVIDER.read_list(answer(body)) == ReadFailed("unreadable")
    assert PROVIDER.read_list(answer({"data": []})) == Page((), None)


def test_a_list_is_never_gone() -> None:
    """A 404 to the list speaks of the path, whoever wrote it."""
    assert PROVIDER.read_list(answer({"error": OWN_404}, 404)) == ReadFailed("http_404")


# ---- cancel ----------------------------------------------------------------------------------------------------


def test_a_cancel_answer_is_read_like_any_other_answer() -> None:
    """The batch in it is an observation; a 200 that cannot be read leaves open what happened."""
    cancelling = json.loads(fixture_bytes("openai/batch_status_cancelling.json"))
    assert PROVIDER.read_cancel(answer(cancelling)) == CancelAnswered(
        CancelAnswer.ACCEPTED, observation=read(cancelling)
    )
    assert PROVIDER.read_cancel(answer(b"ok")) == CancelAnswered(CancelAnswer.UNKNOWN, "unreadable")
    assert PROVIDER.read_cancel(answer({"error": OWN_404}, 400)).answer is CancelAnswer.REFUSED
    assert PROVIDER.read_cancel(answer({"error": OWN_404}, 404)).answer is CancelAnswer.NOT_FOUND


# ---- lines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "outcome", "reason"),
    [
        ({"response": {"status_code": 200, "body": {"choices": []}}, "error": None}, "succeeded", ""),
        ({"response": {"status_code": 201, "body": {}}}, "succeeded", ""),
        ({"response": {"status_code": 500, "body": {"error": {"message": "x"}}}, "error": None}, "failed", "500"),
        ({"response": None, "error": None}, "failed", "no_response"),
        ({}, "failed", "no_response"),
        ({"response": "ok"}, "failed", "no_response"),
        ({"response": {"status_code": 200, "body": None}, "error": None}, "failed", "200 no_body"),
        ({"response": {"status_code": 200, "body": "plain"}, "error": None}, "failed", "200 no_body"),
        ({"response": {"status_code": 200, "body": []}, "error": None}, "failed", "200 no_body"),
        ({"response": {"body": {}}}, "failed", "no_status_code"),
        ({"response": {"status_code": "200", "body": {}}}, "failed", "no_status_code"),
        ({"response": None, "error": {"code": "server_error", "message": "y"}}, "failed", "server_error"),
        ({"response": {"status_code": 200, "body": {}}, "error": {"code": "odd"}}, "failed", "odd"),
        ({"response": {"status_code": 200, "body": {}}, "error": {}}, "failed", "error"),
        ({"response": None, "error": {"code": "batch_expired"}}, "expired", "batch_expired"),
        ({"response": None, "error": {"code": "batch_cancelled"}}, "cancelled", "batch_cancelled"),
        ({"response": None, "error": {"code": "batch_canceled"}}, "cancelled", "batch_canceled"),
        ({"response": None, "error": {"code": "request_timeout"}}, "failed", "request_timeout"),
        ({"response": None, "error": "overloaded"}, "failed", "overloaded"),
        ({"response": {"status_code": 200, "body": '{"choices":[]}'}}, "succeeded", ""),
        (
            {"response": {"status_code": 400, "body": '{"error":{"code":"invalid_value"}}'}},
            "failed",
            "400 invalid_value",
        ),
        ({"response": {"status_code": 200, "body": '{"x":NaN}'}}, "failed", "200 no_body"),
        ({"response": {"status_code": 200, "body": {"id": "r", "error": None}}}, "succeeded", ""),
        (
            {"response": {"status_code": 200, "body": {"status": "failed", "error": {"code": "server_error"}}}},
            "failed",
            "200 server_error",
        ),
    ],
)
def test_a_line_succeeded_only_with_an_answer_and_without_an_error(line: Any, outcome: str, reason: str) -> None:
    """Whichever of the two files it stands in (C01, C02, C11)."""
    raw = json.dumps({"custom_id": "a"} | line).encode()
    for role in ("output", "error"):
        item = PROVIDER.read_item(raw, ResultRef("file", role))
        assert (item.item_id, item.outcome, item.reason) == ("a", outcome, reason)


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"",
        b"[]",
        b'{"custom_id":"a","response":{"status_code":200,"body":{"score":NaN,"max":Infinity}}}',
        b'{"response":{"status_code":200,"body":{}}}',
        b'{"custom_id":7,"response":{"status_code":200,"body":{}}}',
        b'{"custom_id":"a\\u0000b","response":{"status_code":200,"body":{}}}',
        b'{"custom_id":"a","custom_id":"b","response":{"status_code":200,"body":{}}}',
        b'{"custom_id":"a","response":{"status_code":200,"bo',
    ],
)
def test_a_line_that_is_no_item_is_unreadable(line: bytes) -> None:
    """Cut, not JSON (C41), or without an id that names one of ours."""
    with pytest.raises(Unreadable):
        PROVIDER.read_item(line, OUTPUT)


def test_a_line_with_the_ending_of_another_system_is_read() -> None:
    """CR LF (C49), a mark at the start, spaces around."""
    line = b'\xef\xbb\xbf {"custom_id":"c","response":{"status_code":200,"body":{}},"error":null} \r'
    assert PROVIDER.read_item(line, OUTPUT).outcome == "succeeded"


# ---- webhooks --------------------------------------------------------------------------------------------------


def event(event_type: Any, data: Any) -> bytes:
    return json.dumps(
        {"object": "event", "id": "evt_1", "type": event_type, "created_at": 1795954531, "data": data}
    ).encode()


def test_an_event_says_which_batch_and_how_it_ended() -> None:
    """Id only: everything else comes from the read that it rings."""
    assert PROVIDER.read_webhook(event("batch.completed", {"id": JOB})) == Observation(
        word="completed", remote_job_id=JOB, remote_status="completed", provider_at=1_795_954_531_000
    )


@pytest.mark.parametrize(
    ("event_type", "data", "word", "job_id"),
    [
        ("video.completed", {"id": "video_fx44"}, "completed", "video_fx44"),
        ("fine_tuning.job.succeeded", {"id": "ftjob-1"}, "succeeded", "ftjob-1"),
        ("agent.session.idle", {}, "idle", None),
        ("eval.run.failed", None, "failed", None),
        ("ping", "x", "ping", None),
        ("batch.a.b", {"id": JOB}, "a.b", JOB),
    ],
)
def test_an_event_of_another_family_names_its_own_job(
    event_type: str, data: Any, word: str, job_id: str | None
) -> None:
    """It is kept and matches nothing of ours; the type itself stays visible."""
    seen = PROVIDER.read_webhook(event(event_type, data))
    assert (seen.word, seen.remote_job_id) == (word, job_id)
    assert seen.remote_status == (word if event_type.startswith("batch.") else event_type)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"type":"batch.completed","data":{"id":"b","progress":NaN}}',
        b'{"id":null,"status":"succeeded","output":"scratch/out.webp","error":null}',
        event(None, {"id": JOB}),
        event(7, {"id": JOB}),
        event("", {"id": JOB}),
        event("batch.", {"id": JOB}),
        event("batch", {"id": JOB}),
        event("video.", {"id": JOB}),
        event("batch.completed", None),
        event("batch.completed", []),
        event("batch.completed", {"id": None}),
        event("batch.completed", {"id": 5}),
        event("batch.completed", {"id": ""}),
        event("batch.completed", {"id": "a\x00b"}),
        event("batch.completed", {"id": ".."}),
        event("video.completed", {"id": 5}),
    ],
)
def test_an_event_that_names_no_job_is_unreadable(body: bytes) -> None:
    """Signed or not, it says nothing of any job of ours (C12)."""
    with pytest.raises(Unreadable):
        PROVIDER.read_webhook(body)


# ---- wrong types anywhere --------------------------------------------------------------------------------------

#: Values that `read_json` lets in: what it refuses takes a whole page with it.
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["completed", "expired", "failed", "..", "\x00"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["data", "total", "completed", "failed", "code", "message"]), inner)
    ),
    max_leaves=6,
)
batches = st.builds(
    lambda base, changes: base | changes,
    st.sampled_from([COMPLETED, IN_PROGRESS]),
    st.dictionaries(st.sampled_from([*COMPLETED, "error", "errors"]), anything, max_size=4),
)


@given(batch=batches)
def test_a_batch_with_wrong_types_anywhere_is_read_or_is_unreadable(batch: Any) -> None:
    """One field gone wrong never raises, and every road judges the same body alike."""
    alone = PROVIDER.read_status(answer(batch))
    page = PROVIDER.read_list(answer({"data": [batch, COMPLETED]}))
    cancelled = PROVIDER.read_cancel(answer(batch))
    created = read_create(batch, 200)
    assert isinstance(page, Page)
    assert page.jobs[-1] == read(COMPLETED)
    if isinstance(alone, JobRead):
        assert cancelled.observation == alone.observation
        if alone.observation.remote_job_id is not None:
            assert page.jobs[0] == alone.observation
            assert created == Accepted(alone.observation)
    else:
        assert alone == ReadFailed("unreadable")
        assert len(page.jobs) == 1
        assert cancelled.answer is CancelAnswer.UNKNOWN


@given(
    line=st.fixed_dictionaries({"custom_id": st.just("a")}, optional={"response": anything, "error": anything}),
    status=anything | st.integers(100, 599),
    body=anything,
)
def test_a_line_with_wrong_types_anywhere_is_no_success(line: Any, status: Any, body: Any) -> None:
    """Success needs a 2xx integer, an object and no error; all else says why."""
    rows: list[Any] = [line, {"custom_id": "a", "response": {"status_code": status, "body": body}}]
    for row in rows:
        try:
            item = PROVIDER.read_item(json.dumps(row).encode(), OUTPUT)
        except Unreadable:
            continue
        if item.outcome == "succeeded":
            response = row["response"]
            assert type(response["status_code"]) is int
            assert 200 <= response["status_code"] < 300
            assert isinstance(response["body"], dict)
            assert row.get("error") is None
        else:
            assert item.reason


@pytest.mark.parametrize("body", [{"status": "failed"}, {"status": "failed", "service": "gateway", "uptime": 3}])
def test_a_body_without_anything_of_a_batch_tells_nothing_of_the_job(body: Any) -> None:
    """N11: a gateway has a status of its own, and it is not the job's."""
    assert PROVIDER.read_status(answer(body)) == ReadFailed("unreadable")

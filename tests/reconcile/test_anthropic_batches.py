"""Anthropic's Message Batches API as our adapter speaks and reads it: what the fixtures alone do not show."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest
import structlog
import yarl
from hypothesis import given
from hypothesis import strategies as st

from reconcile import conclude
from reconcile.actions import Act, Rooms
from reconcile.balance import add_up
from reconcile.classify import classify
from reconcile.client import Exchange
from reconcile.collect import Caps, Collector
from reconcile.decide import decide
from reconcile.errors import RequestInvalid, Unreadable
from reconcile.evidence import (
    Accepted,
    CancelAnswer,
    CancelAnswered,
    Collected,
    CollectFailed,
    CreateNotAccepted,
    CreateRejected,
    CreateUnknown,
    Evidence,
    JobGone,
    JobRead,
    LookupFound,
    ReadFailed,
)
from reconcile.model import Change, Observation, Operation, RemoteError, ResultInfo, ResultRef, Summary, VerdictKind
from reconcile.peer import Peer
from reconcile.provider import HttpRequest, HttpResponse, JsonLines, Page, Purpose
from reconcile.providers.anthropic_batches.adapter import AnthropicBatches
from reconcile.providers.anthropic_batches.contract import CONTRACT
from reconcile.states import State
from reconcile.store import rows
from reconcile.store.claims import Claim
from reconcile.store.items import Tally
from tests.reconcile.provider_cases import (
    EXPECT,
    FIXTURES,
    SAMPLES,
    answer,
    expected,
    fixture_bytes,
    http_fixture,
    lines,
    operation,
)

KIND = "anthropic_batches"
PROVIDER = AnthropicBatches()
ITEM = {"custom_id": "a", "params": {"model": "example-model", "max_tokens": 64, "messages": []}}
JOB = "msgbatch_fx01HkcTjaV5uDC8jWR4ZsDV"
URL = f"https://api.anthropic.com/v1/messages/batches/{JOB}/results"
RESULTS = ResultRef(URL)
VERSION = {"anthropic-version": "2023-06-01"}
ENDED: dict[str, Any] = json.loads(fixture_bytes("anthropic/batch_status_ended_all_succeeded.json"))
IN_PROGRESS: dict[str, Any] = json.loads(fixture_bytes("anthropic/batch_status_in_progress.json"))
#: 2026-11-29T12:00:00.123Z, when every batch of the fixtures was made, and when the sample's operation was.
MADE = 1_795_953_600_123
STARTED = 1_795_953_600_000
NOT_FOUND = {"type": "error", "error": {"type": "not_found_error", "message": "Message batch not found."}}


def read(batch: Any) -> Observation:
    """The observation of a batch object that can be read."""
    result = PROVIDER.read_status(answer(batch))
    assert isinstance(result, JobRead)
    return result.observation


def counts(**numbers: Any) -> dict[str, Any]:
    """`request_counts` with zeros for what is not given."""
    return {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0} | numbers


def test_each_batch_and_http_fixture_has_an_expectation_of_this_kind() -> None:
    """The conformance tests run over the expectations; here no file of ours stays outside them."""
    ours = {f"anthropic/{path.name}" for glob in ("batch_*", "http_*") for path in (FIXTURES / "anthropic").glob(glob)}
    assert ours == {name for name, entry in EXPECT["files"].items() if entry.get("kind") == KIND}


# ---- the contract ----------------------------------------------------------------------------------------------


def test_the_contract_gives_the_documented_answers() -> None:
    """Numbers as the documentation and the configuration's defaults have them, typed here by hand."""
    assert (CONTRACT.poll.base_ms, CONTRACT.poll.cap_ms, CONTRACT.poll.sweep_ms) == (60_000, 300_000, 900_000)
    assert CONTRACT.result_within_ms == 90_000_000
    assert (CONTRACT.limits.max_items, CONTRACT.limits.max_input_bytes) == (100_000, 256_000_000)
    assert CONTRACT.limits.requests_per_second * 60 <= 50
    assert CONTRACT.results_kept_ms == (29 - 1) * 86_400_000
    assert CONTRACT.lookup is not None
    assert not CONTRACT.lookup.is_sure
    assert CONTRACT.cancel is not None
    assert (CONTRACT.cancel.is_repeatable, CONTRACT.cancel.gone_means_cancelled) == (False, False)
    assert CONTRACT.webhook is None
    assert (CONTRACT.idempotency, CONTRACT.result_fetch, CONTRACT.has_read) == ("none", "plain", True)
    assert (CONTRACT.api_key_header, CONTRACT.api_key_prefix) == ("x-api-key", "")


@pytest.mark.parametrize(
    ("word", "kind", "may_hold_results"),
    [
        ("in_progress", VerdictKind.PENDING, False),
        ("canceling", VerdictKind.PENDING, False),
        ("ended", VerdictKind.DONE_UNKNOWN_OUTCOME, False),
        ("ended+canceled", VerdictKind.CANCELLED, True),
        ("ended+expired", VerdictKind.EXPIRED, True),
    ],
)
def test_the_words_mean_what_the_documentation_says(word: str, kind: VerdictKind, may_hold_results: bool) -> None:
    """Three statuses, the last in three readings, and no sixth word."""
    verdict = classify(CONTRACT, word)
    assert (verdict.kind, verdict.may_hold_results) == (kind, may_hold_results)
    assert len(CONTRACT.words) == 5


# ---- what a client gives ---------------------------------------------------------------------------------------


def test_a_start_is_kept_as_given() -> None:
    """Whatever the create call takes besides its requests is passed on."""
    assert PROVIDER.check_start({}, [ITEM]) == {}
    assert PROVIDER.check_start({"a": {"b": [1, None]}}, range(100_000)) == {"a": {"b": [1, None]}}


@pytest.mark.parametrize(
    ("request_given", "items", "pointer"),
    [
        ({"requests": [ITEM]}, None, "/request/requests"),
        ({"requests": []}, [ITEM], "/request/requests"),
        ({}, None, "/items"),
        ({}, [], "/items"),
        ({}, range(100_001), "/items"),
        ({"x": float("nan")}, [ITEM], "/request"),
        ({"x": "\ud800"}, [ITEM], "/request"),
    ],
)
def test_a_start_that_cannot_be_sent_is_refused_at_its_fault(request_given: Any, items: Any, pointer: str) -> None:
    """Nothing leaves for a start like this, and the refusal points at the field."""
    with pytest.raises(RequestInvalid) as refused:
        PROVIDER.check_start(request_given, items)
    assert refused.value.pointer == pointer


def test_an_item_becomes_one_line() -> None:
    """Compact, UTF-8, the params' keys in the order they came; a newline in a text is no end of a line."""
    item = {"params": {"z": 1, "a": {"y": "ünï\n", "b": 2.0}}, "custom_id": "job-0010_0"}
    item_id, line = PROVIDER.item_line(item, 0)
    assert item_id == "job-0010_0"
    assert line == '{"custom_id":"job-0010_0","params":{"z":1,"a":{"y":"ünï\\n","b":2.0}}}\n'.encode()


def test_a_marked_item_keeps_its_own_id_here_and_bears_the_mark_there() -> None:
    """mark_items: the id in the line is the provider's, the one that is given back is the client's."""
    item_id, line = PROVIDER.item_line(ITEM | {"custom_id": "q-1"}, 0, "0123456789ab")
    assert item_id == "q-1"
    assert json.loads(line)["custom_id"] == "0123456789ab_q-1"


def test_an_id_that_no_longer_fits_with_its_mark_is_refused_at_the_item() -> None:
    """64 characters are the provider's most (providers.md); the mark takes 13 of them."""
    longest = "x" * 51
    assert len(json.loads(PROVIDER.item_line(ITEM | {"custom_id": longest}, 0, "0123456789ab")[1])["custom_id"]) == 64
    with pytest.raises(RequestInvalid) as refused:
        PROVIDER.item_line(ITEM | {"custom_id": longest + "x"}, 3, "0123456789ab")
    assert refused.value.pointer == "/items/3/custom_id"
    assert "at most 51" in refused.value.message


def test_only_ids_that_surely_fail_are_refused() -> None:
    """64 characters are the most; which ones, the provider itself says at once, and no batch comes of its no."""
    for custom_id in ("x" * 64, "row 1", "row:1", "ünï"):
        assert PROVIDER.item_line(ITEM | {"custom_id": custom_id}, 0)[0] == custom_id


@pytest.mark.parametrize(
    ("item", "pointer"),
    [
        ([], "/items/3"),
        ("{}", "/items/3"),
        ({}, "/items/3/custom_id"),
        (ITEM | {"custom_id": 7}, "/items/3/custom_id"),
        (ITEM | {"custom_id": ""}, "/items/3/custom_id"),
        (ITEM | {"custom_id": "a\nb"}, "/items/3/custom_id"),
        (ITEM | {"custom_id": "x" * 65}, "/items/3/custom_id"),
        (ITEM | {"params": None}, "/items/3/params"),
        (ITEM | {"params": "{}"}, "/items/3/params"),
        (ITEM | {"params": {"x": float("inf")}}, "/items/3/params"),
        (ITEM | {"params": {"x": "\ud800"}}, "/items/3/params"),
        (ITEM | {"x/y": 1}, "/items/3/x~1y"),
        (ITEM | {"method": "POST"}, "/items/3/method"),
    ],
)
def test_an_item_that_cannot_be_sent_is_refused_at_its_fault(item: Any, pointer: str) -> None:
    """Before anything is sent, and naming the item by its place."""
    with pytest.raises(RequestInvalid) as refused:
        PROVIDER.item_line(item, 3)
    assert refused.value.pointer == pointer


# ---- submit ----------------------------------------------------------------------------------------------------


def test_one_create_carries_the_whole_input() -> None:
    """No upload before it, so its mark is set first; the version is a plain header, the key is the client's."""
    step = PROVIDER.submit(operation(KIND))
    assert (step.name, step.has_effect) == ("create", True)
    assert step.request == HttpRequest(
        "POST",
        "messages/batches",
        Purpose.CREATE,
        headers=VERSION | {"content-type": "application/json"},
        body=JsonLines("spool/op_01JDSAMPLE", b'{"requests":[', b"]}"),
    )
    with pytest.raises(ValueError, match="no input"):
        PROVIDER.submit(operation(KIND, input_ref=None))


@pytest.mark.parametrize("others", [{}, {"b": 1, "a": "ü"}])
def test_the_body_is_what_the_fixture_shows(others: dict[str, Any]) -> None:
    """Prefix, the lines joined by commas, suffix: one JSON object, other keys first and sorted."""
    items = SAMPLES[KIND].items
    assert items is not None
    written = [PROVIDER.item_line(item, index)[1] for index, item in enumerate(items)]
    body = PROVIDER.submit(operation(KIND, request=others)).request.body
    assert isinstance(body, JsonLines)
    whole = json.loads(body.prefix + b"".join(written)[:-1].replace(b"\n", b",") + body.suffix)
    assert whole == others | json.loads(fixture_bytes("anthropic/batch_create_request.json"))
    assert list(whole) == [*sorted(others), "requests"]


def read_create(body: Any, status: int) -> Evidence:
    return PROVIDER.read_submit(operation(KIND), PROVIDER.submit(operation(KIND)), answer(body, status))


def envelope(error_type: str, message: str = "No.") -> dict[str, Any]:
    return {"type": "error", "error": {"type": error_type, "message": message}, "request_id": "req_1"}


@pytest.mark.parametrize(
    ("status", "body", "meant"),
    [
        (200, {"processing_status": "in_progress"}, CreateUnknown("unreadable")),
        (200, {"id": 7}, CreateUnknown("unreadable")),
        (200, {"id": ".."}, CreateUnknown("unreadable")),
        (200, b'{"id":"a","id":"b"}', CreateUnknown("unreadable")),
        (200, b"", CreateUnknown("unreadable")),
        (202, ENDED, CreateUnknown("http_202")),
        (307, b"", CreateUnknown("http_307")),
        (408, b"", CreateUnknown("http_408")),
        (409, envelope("conflict_error"), CreateUnknown("http_409")),
        (500, envelope("api_error"), CreateUnknown("http_500")),
        (504, envelope("timeout_error"), CreateUnknown("http_504")),
        (529, envelope("overloaded_error"), CreateUnknown("http_529")),
        (401, envelope("authentication_error"), CreateNotAccepted("http_401")),
        (402, envelope("billing_error"), CreateNotAccepted("http_402")),
        (403, b"<html>", CreateNotAccepted("http_403")),
        (404, b"<html>", CreateNotAccepted("http_404")),
        (405, envelope("invalid_request_error", "Method Not Allowed"), CreateNotAccepted("http_405")),
        (429, b"", CreateNotAccepted("http_429")),
        (
            400,
            envelope("invalid_request_error", "requests.0.custom_id: duplicate"),
            CreateRejected(RemoteError("invalid_request_error", "requests.0.custom_id: duplicate")),
        ),
        (413, envelope("request_too_large"), CreateRejected(RemoteError("request_too_large", "No."))),
        (413, b"<html>", CreateRejected(RemoteError("http_413", "The provider refused the request."))),
        (422, {"error": {"type": "a\nb"}}, CreateRejected(RemoteError("http_422", "The provider gave no message."))),
    ],
)
def test_a_create_without_a_job_is_judged_by_what_may_have_happened(status: int, body: Any, meant: Evidence) -> None:
    """Unknown wherever a job may have been made: an overloaded server, too, may have made one."""
    assert read_create(body, status) == meant


def test_a_job_id_is_never_thrown_away_for_a_flaw_beside_it() -> None:
    """Nothing but the id is needed to hold on to a job: the next read tells the rest."""
    for body in ({"id": JOB}, {"id": JOB, "processing_status": 5}, ENDED | {"results_url": 9}):
        assert read_create(body, 200) == Accepted(Observation(None, remote_job_id=JOB))
    seen = read_create(ENDED, 201)
    assert isinstance(seen, Accepted)
    assert (seen.observation.word, seen.observation.results) == ("ended", (RESULTS,))


# ---- reads -----------------------------------------------------------------------------------------------------


def test_the_reads_ask_for_what_is_documented() -> None:
    """Status, list, cancel and results, each with the version of the API."""
    op = operation(KIND, remote_job_id=JOB)
    assert PROVIDER.status(op) == HttpRequest("GET", f"messages/batches/{JOB}", Purpose.STATUS, headers=VERSION)
    assert PROVIDER.cancel(op) == HttpRequest("POST", f"messages/batches/{JOB}/cancel", Purpose.CANCEL, headers=VERSION)
    assert PROVIDER.result(op, RESULTS) == HttpRequest("GET", "", Purpose.RESULT, headers=VERSION, url=URL)
    first = HttpRequest("GET", "messages/batches", Purpose.LOOKUP, {"limit": "1000"}, VERSION)
    assert PROVIDER.list_page(None) == first
    assert PROVIDER.list_page("b/1") == replace(first, query={"limit": "1000", "after_id": "b/1"})
    with pytest.raises(ValueError, match="no job"):
        PROVIDER.status(operation(KIND))


def test_a_whole_read() -> None:
    """Each field of the fixture where it belongs, typed here by hand."""
    assert read(ENDED) == Observation(
        word="ended",
        remote_job_id=JOB,
        remote_status="ended",
        results=(RESULTS,),
        finished_items=4,
        total_items=4,
        provider_at=1_795_955_400_123,
        created_at=MADE,
    )
    assert read(IN_PROGRESS) == Observation(
        word="in_progress",
        remote_job_id=JOB,
        remote_status="in_progress",
        finished_items=0,
        total_items=4,
        provider_at=MADE,
        created_at=MADE,
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"request_counts": counts(succeeded=2, canceled=3)}, "ended"),
        ({"request_counts": counts(succeeded=2, canceled=3), "cancel_initiated_at": ""}, "ended"),
        ({"request_counts": counts(succeeded=5), "cancel_initiated_at": "2026-11-29T12:05:00Z"}, "ended"),
        ({"request_counts": counts(canceled=1), "cancel_initiated_at": "2026-11-29T12:05:00Z"}, "ended+canceled"),
        ({"request_counts": counts(canceled=1), "cancel_initiated_at": 1_795_953_900}, "ended+canceled"),
        (
            {"request_counts": counts(canceled=1, expired=9), "cancel_initiated_at": "2026-11-29T12:05:00Z"},
            "ended+canceled",
        ),
        (
            {"request_counts": counts(canceled=0, expired=9), "cancel_initiated_at": "2026-11-29T12:05Z"},
            "ended+expired",
        ),
        ({"request_counts": counts(expired=1)}, "ended+expired"),
        ({"request_counts": counts(canceled=True, expired="1")}, "ended"),
        ({"request_counts": counts(expired=-1)}, "ended"),
        ({"request_counts": None}, "ended"),
        ({"processing_status": "in_progress", "request_counts": counts(expired=1)}, "in_progress"),
        ({"processing_status": "ENDED", "request_counts": counts(expired=1)}, "ENDED"),
    ],
)
def test_the_end_gets_its_word_from_the_counts(change: Any, word: str) -> None:
    """Cancelled where a cancel was asked and reached something, else expired where anything did; only at the end."""
    seen = read(ENDED | change)
    assert seen.word == word
    assert seen.remote_status == (ENDED | change)["processing_status"]


def test_results_are_named_only_at_the_end() -> None:
    """Before it, and for a stranger's word, nothing is fetched; null and an empty string name nothing."""
    for status in ("in_progress", "canceling", "paused", "ended "):
        assert read(ENDED | {"processing_status": status}).results == ()
    for nothing in (None, ""):
        assert read(ENDED | {"results_url": nothing}).results == ()
    assert read(ENDED | {"results_url": "/v1/messages/batches/b/results"}).results == (
        ResultRef("/v1/messages/batches/b/results"),
    )
    for unreadable in (5, ["x"], "a\x00b", "..", "x" * 513):
        assert PROVIDER.read_status(answer(ENDED | {"results_url": unreadable})) == ReadFailed("unreadable")


def test_an_archived_batch_has_dropped_its_results() -> None:
    """By its own word, whether or not it goes on naming them; only an ended batch can have any to drop."""
    archived = json.loads(fixture_bytes("anthropic/batch_status_archived.json"))
    assert (read(archived).results, read(archived).results_gone) == ((), True)
    still_named = read(archived | {"results_url": URL})
    assert (still_named.results, still_named.results_gone) == ((), True)
    assert not read(archived | {"processing_status": "in_progress"}).results_gone
    assert not read(ENDED).results_gone


@pytest.mark.parametrize(
    ("given_counts", "finished", "total"),
    [
        (counts(processing=100), 0, 100),
        (counts(succeeded=50, errored=30, canceled=10, expired=10), 100, 100),
        (counts(), 0, None),
        (counts(processing=None), 0, None),
        (counts(processing=3, succeeded=1, errored="2"), 1, None),
        (counts(processing=3, succeeded=-1), 0, None),
        ({"processing": 4}, None, None),
        (None, None, None),
        ([], None, None),
    ],
)
def test_counts_are_believed_as_far_as_they_make_sense(
    given_counts: Any, finished: int | None, total: int | None
) -> None:
    """All five make the total; a total of 0 is none. They never make a progress: they move only at the end."""
    for status in ("in_progress", "canceling", "ended", "paused_for_review"):
        seen = read(ENDED | {"processing_status": status, "request_counts": given_counts})
        assert (seen.finished_items, seen.total_items, seen.progress) == (finished, total, None)


def test_only_the_provider_s_own_words_about_the_job_mean_gone() -> None:
    """Not a page of somebody else's, and not another error of its own."""
    assert PROVIDER.read_status(answer(NOT_FOUND, 404)) == JobGone("http_404")
    assert PROVIDER.read_status(answer(NOT_FOUND, 410)) == JobGone("http_410")
    strangers: list[Any] = [envelope("invalid_request_error"), {"error": "x"}, {"detail": "Not Found"}, b"<html>"]
    for body in strangers:
        assert PROVIDER.read_status(answer(body, 404)) == ReadFailed("http_404")
        assert PROVIDER.read_cancel(answer(body, 404)).answer is CancelAnswer.NOT_ACCEPTED
    assert PROVIDER.read_status(http_fixture("anthropic/http_403.json")) == ReadFailed("http_403", counts=False)
    assert PROVIDER.read_list(answer(NOT_FOUND, 404)) == ReadFailed("http_404")


# ---- lists and the look-up -------------------------------------------------------------------------------------


def test_an_entry_that_cannot_be_read_takes_no_other_with_it() -> None:
    """It counts as not listed, so that its job is read by id."""
    entries = [None, 5, {}, {"id": "b1"}, {"processing_status": "ended"}, ENDED | {"id": ".."}, IN_PROGRESS]
    page = PROVIDER.read_list(answer({"data": entries, "has_more": False}))
    assert isinstance(page, Page)
    assert [job.remote_job_id for job in page.jobs] == [JOB]
    for body in (b"", b"[]", {}, {"data": None}):
        assert PROVIDER.read_list(answer(body)) == ReadFailed("unreadable")


@pytest.mark.parametrize(
    ("around", "cursor"),
    [
        ({"has_more": True, "last_id": "msgbatch_last"}, "msgbatch_last"),
        ({"has_more": True, "last_id": None}, JOB),
        ({"has_more": False, "last_id": "msgbatch_last"}, None),
        ({"has_more": "true", "last_id": "msgbatch_last"}, None),
        ({"has_more": True, "last_id": "msgbatch_last", "data": []}, None),
        ({"has_more": True, "data": [7]}, None),
    ],
)
def test_a_walk_goes_on_only_with_a_cursor_that_leads_on(around: Any, cursor: str | None) -> None:
    """A page that shows nothing, or names no place to go on from, is the last one."""
    page = PROVIDER.read_list(answer({"data": [IN_PROGRESS]} | around))
    assert isinstance(page, Page)
    assert page.next == cursor


@pytest.mark.parametrize(
    ("seen", "may_be_ours"),
    [
        (Observation("in_progress", total_items=4, created_at=MADE), True),
        (Observation("ended+canceled", total_items=4, created_at=STARTED + 86_400_000), True),
        (Observation("in_progress", total_items=4, created_at=STARTED - 300_000), True),
        (Observation("in_progress", total_items=4, created_at=STARTED - 300_001), False),
        (Observation("ended", total_items=4, created_at=STARTED - 9_000_000, provider_at=MADE), False),
        (Observation("in_progress", total_items=3, created_at=MADE), False),
        (Observation("in_progress", total_items=5, created_at=MADE), False),
        (Observation("in_progress", total_items=4), True),
        (Observation("in_progress", created_at=MADE), True),
    ],
)
def test_count_and_time_make_a_candidate(seen: Observation, may_be_ours: bool) -> None:
    """As many requests, made since then but for two clocks that differ; what cannot be compared is shown too."""
    assert PROVIDER.is_candidate(operation(KIND), seen) is may_be_ours
    assert PROVIDER.marker(operation(KIND)) is None


class ScriptedClient:
    """Answers each request with the next body, and remembers what was asked for."""

    def __init__(self, *bodies: Any) -> None:
        self._bodies = list(bodies)
        self.asked: list[HttpRequest] = []

    async def send(self, peer: Peer, op: Operation, request: HttpRequest) -> Exchange:
        self.asked.append(request)
        return Exchange(request, 0, 0, HttpResponse(200, {}, json.dumps(self._bodies.pop(0)).encode()))


class KeepingIngest:
    """Keeps the evidence that it is handed."""

    def __init__(self) -> None:
        self.evidence: list[Evidence] = []

    async def answer(self, op: Operation, evidence: Evidence, *exchanges: Exchange, **how: Any) -> Change:
        self.evidence.append(evidence)
        return Change(op)


async def looked_up(*pages: Any) -> tuple[list[Evidence], list[HttpRequest]]:
    """What one look-up found on an account with these pages, and what it asked for."""
    op = operation(KIND, state=State.CREATE_UNKNOWN)
    client, ingest = ScriptedClient(*pages), KeepingIngest()
    peer = Peer("account", PROVIDER, yarl.URL("https://api.anthropic.com/v1"), {})
    clock = cast("Any", type("Clock", (), {"now": staticmethod(lambda: STARTED)}))
    claim = Claim(op, fence=1, open_mark=False, ring=None)
    log = structlog.get_logger()
    rooms = Rooms(cast("Any", client), cast("Any", ingest), cast("Any", None), cast("Any", None), clock, log)
    await Act(peer, claim, rooms, owner="w").run()
    return ingest.evidence, client.asked


async def test_a_single_candidate_is_shown_and_not_adopted() -> None:
    """Count and time are no marker: somebody else on the account may have made that very batch."""
    evidence, _ = await looked_up(json.loads(fixture_bytes("anthropic/batch_list_page.json")))
    assert evidence == [LookupFound((JOB,), is_sure=False, same_size=(JOB,))]
    op = operation(KIND, state=State.CREATE_UNKNOWN)
    change = decide(op, CONTRACT, evidence[0], now=MADE, draw=0.5, cause="test")
    assert (change.operation.state, change.operation.remote_job_id) == (State.CREATE_UNKNOWN, None)
    assert change.operation.candidates == (JOB,)


async def test_several_candidates_are_no_violation() -> None:
    """They are what an account with other users shows."""
    others = [IN_PROGRESS | {"id": f"msgbatch_{n}"} for n in range(3)]
    evidence, _ = await looked_up({"data": others, "has_more": False})
    found = ("msgbatch_0", "msgbatch_1", "msgbatch_2")
    assert evidence == [LookupFound(found, is_sure=False, same_size=found)]
    op = operation(KIND, state=State.CREATE_UNKNOWN)
    change = decide(op, CONTRACT, evidence[0], now=MADE, draw=0.5, cause="test")
    assert change.operation.state is State.CREATE_UNKNOWN


async def test_the_walk_ends_at_batches_older_than_the_operation() -> None:
    """The list goes from new to old: nothing of ours stands behind them."""
    new = {"data": [IN_PROGRESS | {"id": "msgbatch_new"}], "has_more": True, "last_id": "msgbatch_new"}
    old = {"data": [ENDED | {"created_at": "2026-11-29T11:54:59Z"}], "has_more": True, "last_id": JOB}
    evidence, asked = await looked_up(new, old)
    assert evidence == [LookupFound(("msgbatch_new",), is_sure=False, same_size=("msgbatch_new",))]
    assert [request.query.get("after_id") for request in asked] == [None, "msgbatch_new"]


# ---- cancel ----------------------------------------------------------------------------------------------------


def test_a_cancel_answer_is_read_like_any_other_answer() -> None:
    """The batch in it is an observation; a 200 that cannot be read leaves open what happened."""
    canceling = json.loads(fixture_bytes("anthropic/batch_status_canceling.json"))
    assert PROVIDER.read_cancel(answer(canceling)) == CancelAnswered(CancelAnswer.ACCEPTED, observation=read(canceling))
    assert PROVIDER.read_cancel(answer(b"ok")) == CancelAnswered(CancelAnswer.UNKNOWN, "unreadable")
    assert PROVIDER.read_cancel(answer(envelope("invalid_request_error"), 400)).answer is CancelAnswer.REFUSED
    assert PROVIDER.read_cancel(answer(NOT_FOUND, 404)).answer is CancelAnswer.NOT_FOUND


# ---- lines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "outcome", "reason"),
    [
        ({"type": "succeeded", "message": {"id": "m1", "content": []}}, "succeeded", ""),
        ({"type": "succeeded"}, "failed", "no_message"),
        ({"type": "succeeded", "message": None}, "failed", "no_message"),
        ({"type": "succeeded", "message": "ok"}, "failed", "no_message"),
        ({"type": "errored", "error": envelope("invalid_request_error")}, "failed", "invalid_request_error"),
        ({"type": "errored", "error": {"type": "overloaded_error", "message": "x"}}, "failed", "overloaded_error"),
        ({"type": "errored", "error": {"type": "error", "error": {"type": 7}}}, "failed", "errored"),
        ({"type": "errored", "error": None}, "failed", "errored"),
        ({"type": "errored", "message": {"id": "m1"}}, "failed", "errored"),
        ({"type": "canceled"}, "cancelled", "canceled"),
        ({"type": "expired"}, "expired", "expired"),
        ({"type": "some_new_type", "detail": 1}, "failed", "unknown_type some_new_type"),
        ({"type": "SUCCEEDED", "message": {}}, "failed", "unknown_type SUCCEEDED"),
        ({"type": 5}, "failed", "unknown_type"),
        ({"message": {"id": "m1"}}, "failed", "unknown_type"),
        (None, "failed", "no_result"),
        ("succeeded", "failed", "no_result"),
    ],
)
def test_a_line_succeeded_only_with_a_message(result: Any, outcome: str, reason: str) -> None:
    """Each line for itself: one that failed, or whose type is new, crashes nobody (C07)."""
    item = PROVIDER.read_item(json.dumps({"custom_id": "a", "result": result}).encode(), RESULTS)
    assert (item.item_id, item.outcome, item.reason) == ("a", outcome, reason)


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"",
        b"[]",
        b'{"result":{"type":"canceled"}}',
        b'{"custom_id":7,"result":{"type":"canceled"}}',
        b'{"custom_id":"a\\u0000b","result":{"type":"canceled"}}',
        b'{"custom_id":"a","custom_id":"b","result":{"type":"canceled"}}',
        b'{"custom_id":"a","result":{"type":"succeeded","message":{"x":NaN}}}',
        b'{"custom_id":"a","result":{"type":"succee',
    ],
)
def test_a_line_that_is_no_item_is_unreadable(line: bytes) -> None:
    """Cut, not JSON, or without an id that names one of ours."""
    with pytest.raises(Unreadable):
        PROVIDER.read_item(line, RESULTS)


# ---- webhooks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(name for name in EXPECT["deliveries"] if name.startswith("anthropic/")))
def test_no_delivery_tells_of_a_batch(name: str) -> None:
    """The provider's webhooks are about agents; whatever else may arrive is kept as it came, and matches nothing."""
    assert EXPECT["deliveries"][name]["then"] == "kept_unmatched"
    with pytest.raises(Unreadable):
        PROVIDER.read_webhook(json.loads(fixture_bytes(name))["body"].encode())


# ---- stories: from the end to the outcome of each item -----------------------------------------------------------


def ended(status: str, story: Any) -> Operation:
    """The operation after the read that brought the end."""
    op = operation(KIND, state=State.OBSERVING, remote_job_id=JOB, input_items=len(story["submitted"]))
    observation = read(json.loads(fixture_bytes(status)))
    assert classify(CONTRACT, observation.word).kind.value == story["verdict"]
    change = decide(op, CONTRACT, JobRead(observation), now=MADE, draw=0.5, cause="test")
    assert (change.operation.state is State.RESULT_COLLECTING) == story["collects"]
    return change.operation


def collected(op: Operation, story: Any) -> tuple[dict[str, str], Collected]:
    """The items of the results as the store would count them, and what collection makes of them."""
    assert op.verdict is not None
    absent = conclude.absent_word(op.verdict)
    found: dict[str, list[str]] = {}
    unreadable = []
    for number, line in enumerate((line for name in story["results"] for line in lines(name)), start=1):
        try:
            item = PROVIDER.read_item(line, RESULTS)
        except Unreadable:
            unreadable.append(number)
            continue
        found.setdefault(item.item_id, []).append(": ".join(filter(None, (item.outcome, item.reason))))
    items = {
        item_id: "failed: duplicate_id" if len(said := found.get(item_id, [f"{absent}: absent"])) > 1 else said[0]
        for item_id in story["submitted"]
    }
    tally = Tally(
        by_outcome=dict(Counter(said.partition(":")[0] for said in items.values())),
        duplicate=tuple(sorted(item_id for item_id, said in found.items() if len(said) > 1)),
        unknown=tuple(sorted(set(found) - set(items))),
        missing=tuple(sorted(set(items) - set(found))) if absent == "missing" else (),
        found=len(set(found) & set(items)),
    )
    summary, problems = add_up(tally, absent, op, tuple(unreadable))
    return items, Collected(ResultInfo(1, 0, "", None, tally.found, problems=problems or None), summary)


STORIES = [pytest.param(story, id=name) for name, story in expected("stories", KIND) if story["items"] is not None]


@pytest.mark.parametrize("story", STORIES)
def test_each_story_ends_as_the_expectations_state(story: Any) -> None:
    """Verdict, items, summary, problems and end of each; nothing but the lines of the results makes a success."""
    op = ended(story["status"], story)
    items, evidence = collected(op, story)
    assert items == story["items"]
    assert evidence.summary == Summary(**story["summary"])
    problems = evidence.info.problems
    for name in ("duplicate", "unknown", "missing", "unreadable_lines"):
        assert list(getattr(problems, name, ())) == story.get("problems", {}).get(name, [])
    end = decide(op, CONTRACT, evidence, now=MADE, draw=0.5, cause="test").operation
    assert end.state.value == story["end"]
    if "error" in story:
        assert end.error is not None
        assert end.error.code == story["error"]


async def test_results_that_the_provider_dropped_are_asked_for_by_nobody() -> None:
    """The story of the archived batch: no fetch, no eight tries; its counts are no result."""
    story = EXPECT["stories"]["anthropic/archived"]
    op = ended(story["status"], story)
    nobody = cast("Any", None)
    collector = Collector(
        client=nobody, store=nobody, files=nobody, clock=nobody, caps=Caps(result=1, line=1, answer=1)
    )
    outcome = await collector.collect(nobody, op, attempt=1)
    assert (outcome.evidence, outcome.exchanges) == (CollectFailed("results_dropped", is_final=True), ())
    end = decide(op, CONTRACT, outcome.evidence, now=MADE, draw=0.5, cause="test").operation
    assert (end.state.value, end.summary, end.result) == (story["end"], None, None)
    assert (end.finished_items, end.total_items) == (4, 4)


def test_results_that_go_while_they_are_collected_are_given_up_at_once() -> None:
    """A read between two tries tells it: the row bears it, so that the next try needs no fetch."""
    archived = read(json.loads(fixture_bytes("anthropic/batch_status_archived.json")))
    before = ended("anthropic/batch_status_ended_all_succeeded.json", EXPECT["stories"]["anthropic/all_succeeded"])
    change = decide(before, CONTRACT, JobRead(archived), now=MADE, draw=0.5, cause="test")
    after = change.operation
    assert (after.state, after.results, after.results_gone) == (State.RESULT_COLLECTING, (), True)
    assert [entry.reason for entry in change.entries] == ["the ended job now has dropped its results"]
    assert after.schedule.due_at == MADE
    assert json.loads(rows.living(after))["results_gone"] is True
    assert "results_gone" not in json.loads(rows.living(before))
    again = decide(after, CONTRACT, JobRead(archived), now=MADE, draw=0.5, cause="test")
    assert again.entries == ()


# ---- wrong types anywhere --------------------------------------------------------------------------------------

#: Values that `read_json` lets in: what it refuses takes a whole page with it.
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["ended", "in_progress", "succeeded", "..", "\x00"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["processing", "succeeded", "canceled", "expired", "type", "message"]), inner)
    ),
    max_leaves=6,
)
batches = st.builds(
    lambda base, changes: base | changes,
    st.sampled_from([ENDED, IN_PROGRESS]),
    st.dictionaries(st.sampled_from([*ENDED, "error"]), anything, max_size=4),
)


@given(batch=batches)
def test_a_batch_with_wrong_types_anywhere_is_read_or_is_unreadable(batch: Any) -> None:
    """One field gone wrong never raises, and every road judges the same body alike."""
    alone = PROVIDER.read_status(answer(batch))
    page = PROVIDER.read_list(answer({"data": [batch, ENDED]}))
    cancelled = PROVIDER.read_cancel(answer(batch))
    created = read_create(batch, 200)
    assert isinstance(page, Page)
    assert page.jobs[-1] == read(ENDED)
    if isinstance(alone, JobRead):
        assert cancelled.observation == alone.observation
        if alone.observation.remote_job_id is not None:
            assert page.jobs[0] == alone.observation
            assert created == Accepted(alone.observation)
    else:
        assert alone == ReadFailed("unreadable")
        assert len(page.jobs) == 1
        assert cancelled.answer is CancelAnswer.UNKNOWN


@given(result=anything | st.fixed_dictionaries({"type": anything}, optional={"message": anything, "error": anything}))
def test_a_line_with_wrong_types_anywhere_is_no_success(result: Any) -> None:
    """Success needs its word and an object; all else says why."""
    try:
        item = PROVIDER.read_item(json.dumps({"custom_id": "a", "result": result}).encode(), RESULTS)
    except Unreadable:
        return
    if item.outcome == "succeeded":
        assert result["type"] == "succeeded"
        assert isinstance(result["message"], dict)
    else:
        assert item.reason


@pytest.mark.parametrize("more", [{}, {"service": "gateway", "uptime": 3}])
def test_a_body_without_anything_of_a_batch_tells_nothing_of_the_job(more: dict[str, Any]) -> None:
    """N11: a gateway has a status of its own, and it is not the job's."""
    assert PROVIDER.read_status(answer({"processing_status": "ended"} | more)) == ReadFailed("unreadable")

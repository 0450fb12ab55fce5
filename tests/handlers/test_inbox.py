"""The inbox: whoever opens it sees what waits for a person, on what it rests, and what each decision will do (G8)."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconcile.evidence import JobRead, LookupFound
from reconcile.model import Observation
from reconcile.notice import Notice
from tests.handlers.ground import NOON, Answer, Ground
from tests.handlers.test_collect import JOB as MADE
from tests.handlers.test_collect import batch, stage
from tests.handlers.test_operations_api import assert_problem
from tests.handlers.test_wishes import JOB, OPEN, OTHER, Account, asking, cancel, decide, history, in_state

#: The fields of an entry, as interface.md has them.
FIELDS = {
    "id", "kind", "reason", "operation_id", "provider", "since", "deadline", "message", "evidence", "candidates",
    "decisions",
}  # fmt: skip
#: A cursor of more digits than a time has, and than the file could take: notice/99999999999999999999/x.
FAR = "?cursor=bm90aWNlLzk5OTk5OTk5OTk5OTk5OTk5OTk5L3g"
PAUSED = Notice("provider_paused", NOON, "openai answered 503", provider="openai", evidence={"status": 503})


async def inbox(ground: Ground, query: str = "") -> Any:
    return await ground.get(f"/v1/inbox{query}")


async def acknowledge(ground: Ground, notice: str, **fields: Any) -> Answer:
    body = {"decision": "acknowledge", "by": "ana", "reason": "seen", **fields}
    return await ground.api("POST", f"/v1/inbox/{notice}/decisions", body=body)


@pytest.mark.parametrize("state", OPEN)
async def test_each_question_stands_in_the_inbox_with_its_decisions(ground: Ground, state: str) -> None:
    operation = await asking(ground, state)
    body = await ground.get(f"/v1/operations/{operation}")
    (entry,) = [one for one in (await inbox(ground))["inbox"] if one["kind"] == "question"]
    assert entry.keys() == FIELDS
    assert (entry["id"], entry["operation_id"], entry["provider"]) == (operation, operation, "openai")
    for name in ("reason", "message", "since", "deadline", "decisions"):
        assert entry[name] == body["attention"][name]
    evidence = entry["evidence"]
    assert (evidence["state"], evidence["trace_id"]) == (state, body["trace_id"])
    assert evidence["remote_job_id"] == body["remote_job_id"]
    assert evidence["status_page"] == "https://status.openai.com"
    assert await ground.get(evidence["status_url"]) == body
    assert (await ground.get(evidence["history_url"]))["history"]
    await ground.get(evidence["observations_url"])


async def test_what_is_decided_leaves_the_inbox(ground: Ground) -> None:
    operation = await asking(ground, "observation_failed")
    assert (await ground.get("/v1/status"))["inbox"] == 1
    assert (await decide(ground, operation, "resume")).status == 200
    assert await inbox(ground) == {"inbox": [], "next_cursor": None}
    assert (await ground.get("/v1/status"))["inbox"] == 0


async def test_a_question_can_be_decided_where_it_stands(ground: Ground) -> None:
    operation = await asking(ground, "observation_failed")
    wish = {"decision": "resume", "by": "ana", "reason": "it is back"}
    answer = await ground.api("POST", f"/v1/inbox/{operation}/decisions", body=wish)
    assert (answer.status, answer.json()["state"]) == (200, "observing")
    refusal = assert_problem(await ground.api("POST", f"/v1/inbox/{operation}/decisions", body=wish), 409)
    assert "resume is not open" in refusal["detail"]


async def test_candidates_are_shown_beside_the_question(ground: Ground) -> None:
    operation = await asking(ground, "create_unresolved")
    await ground.apply(operation, LookupFound((JOB, OTHER), is_sure=False))
    (entry,) = (await inbox(ground))["inbox"]
    assert entry["candidates"] == [
        {"remote_job_id": JOB, "is_held": False},
        {"remote_job_id": OTHER, "is_held": False},
    ]


async def test_a_candidate_that_another_operation_came_to_hold_is_shown_no_longer(ground: Ground) -> None:
    """Nobody looks for it any more; two operations of ours cannot have made one job."""
    operation = await asking(ground, "create_unresolved")
    await ground.apply(operation, LookupFound((JOB, OTHER), is_sure=False))
    await ground.operation("observing", JOB)
    (entry,) = (await inbox(ground))["inbox"]
    assert entry["candidates"] == [{"remote_job_id": OTHER, "is_held": False}]
    shown = await ground.get(f"/v1/operations/{operation}")
    assert shown["attention"]["candidates"] == entry["candidates"]
    assert (await ground.get(f"/v1/operations/{operation}?wait=1"))["attention"] == shown["attention"]


async def test_of_two_jobs_both_are_shown_and_which_one_is_held(ground: Ground) -> None:
    """B4."""
    await asking(ground, "contract_violation")
    (entry,) = [one for one in (await inbox(ground))["inbox"] if one["kind"] == "question"]
    assert entry["candidates"] == [
        {"remote_job_id": JOB, "is_held": True},
        {"remote_job_id": OTHER, "is_held": False},
    ]


async def test_an_unconfirmed_cancel_is_escalated_with_the_requests_that_were_sent(tmp_path: Path) -> None:
    """E3: job id, trace id, the provider's request ids and the request history."""

    async def refused(_: web.Request) -> web.StreamResponse:
        error = {"error": {"message": "no", "type": "invalid_request_error"}}
        return web.json_response(error, status=400, headers={"x-request-id": "req_of_theirs"})

    peer = Account(reads=[batch("in_progress", output=None)], cancel=refused)
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        await in_state(on, operation, "observing")
        await cancel(on.ground, operation)
        body = await on.end(operation)
        (entry,) = (await inbox(on.ground))["inbox"]
    evidence = entry["evidence"]
    assert (evidence["remote_job_id"], evidence["trace_id"]) == (MADE, body["trace_id"])
    sent = {one["purpose"]: one for one in evidence["requests"]}
    assert {"create", "cancel", "status"} <= sent.keys()
    assert (sent["cancel"]["status"], sent["cancel"]["remote_request_id"]) == (400, "req_of_theirs")
    assert sent["cancel"]["credential"] == "env:API_KEY"
    times = [one["sent_at"] for one in evidence["requests"]]
    assert times == sorted(times)
    assert [one["remote_status"] for one in evidence["observations"]][-1] == "in_progress"


async def test_only_the_last_requests_of_each_operation_are_shown(tmp_path: Path) -> None:
    """Ten, the newest last; what another operation sent is not among them."""

    counts = [{"total": 20, "completed": n, "failed": 0} for n in range(15)]
    peer = Account(reads=[batch("in_progress", output=None, request_counts=each) for each in counts])
    peer.reads.append(batch("failed", output=None))
    async with stage(tmp_path / "state", peer) as on:
        operation = await on.submit("a")
        await on.end(operation)
        grounds = await on.ground.daemon.store.grounds([operation, "op_none"])
        every = on.ground.rows("SELECT request_id FROM requests ORDER BY sent_at, ended_at, request_id")
    assert (grounds["op_none"].requests, grounds["op_none"].observations) == ((), ())
    shown = [sent.request_id for sent in grounds[operation].requests]
    assert shown == [row[0] for row in every][-10:]


# ---- notices -----------------------------------------------------------------------------------------------------


async def test_notices_come_first_and_say_what_acknowledging_does(ground: Ground) -> None:
    operation = await asking(ground, "observation_failed")
    await ground.daemon.store.stand([PAUSED])
    notice, question = (await inbox(ground))["inbox"]
    assert notice.keys() == FIELDS
    assert (notice["id"], notice["kind"], notice["reason"]) == ("provider_paused.openai", "notice", "provider_paused")
    assert (notice["provider"], notice["operation_id"], notice["deadline"]) == ("openai", None, None)
    assert (notice["message"], notice["evidence"]) == ("openai answered 503", {"status": 503})
    assert notice["since"] == "2026-11-29T12:00:00.000Z"
    assert [one["decision"] for one in notice["decisions"]] == ["acknowledge"]
    assert "nothing else changes" in notice["decisions"][0]["effect"]
    assert question["id"] == operation
    assert (await ground.get("/v1/status"))["inbox"] == 2


async def test_an_acknowledged_notice_leaves_the_inbox_and_nothing_else_changes(ground: Ground) -> None:
    operation = await asking(ground, "contract_violation")
    await ground.daemon.store.tell([Notice("contradiction", NOON, "it ran again", operation_id=operation)])
    notices = [one for one in (await inbox(ground))["inbox"] if one["kind"] == "notice"]
    assert [one["operation_id"] for one in notices] == [operation]
    before = await history(ground, operation)
    answer = await acknowledge(ground, notices[0]["id"])
    assert answer.json() == {
        "id": f"contradiction.{operation}",
        "decision": "acknowledge",
        "by": "ana",
        "reason": "seen",
        "at": "2026-11-29T12:00:00.000Z",
    }
    assert [one["kind"] for one in (await inbox(ground))["inbox"]] == ["question"]
    assert await history(ground, operation) == before
    assert ground.rows("SELECT acknowledged_by, because FROM notices") == [("ana", "seen")]
    assert any(entry["event"] == "notice_acknowledged" and entry["by"] == "ana" for entry in ground.logged)


async def test_a_notice_is_acknowledged_once(ground: Ground) -> None:
    await ground.daemon.store.stand([PAUSED])
    assert (await acknowledge(ground, PAUSED.notice_id)).status == 200
    before = ground.everything()
    for notice in (PAUSED.notice_id, "provider_paused.nobody", "x"):
        assert_problem(await acknowledge(ground, notice, by="ben"), 409)
    assert ground.everything() == before


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"decision": "resume"}, "/decision"),
        ({"decision": None}, "/decision"),
        ({"by": None}, "/by"),
        ({"reason": ""}, "/reason"),
        ({"within": "2h"}, "/within"),
    ],
)
async def test_an_acknowledgement_that_cannot_be_read_is_told_where(ground: Ground, fields: Any, pointer: str) -> None:
    await ground.daemon.store.stand([PAUSED])
    refusal = assert_problem(await acknowledge(ground, PAUSED.notice_id, **fields), 422)
    assert refusal["errors"][0]["pointer"] == pointer


# ---- pages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
async def test_pages_lead_from_the_notices_through_the_questions_to_the_end(ground: Ground, limit: int) -> None:
    first = await asking(ground, "result_unavailable")
    second = await ground.operation("result_validation_failed", OTHER)
    more = [Notice("webhooks_silent", NOON + n, "silent", provider=name) for n, name in enumerate(("a/b", "ü", "c"))]
    await ground.daemon.store.stand(more)
    seen, cursor = [], ""
    for _ in range(10):
        page = await inbox(ground, f"?limit={limit}{cursor}")
        assert len(page["inbox"]) <= limit
        seen += [one["id"] for one in page["inbox"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == ["webhooks_silent.a/b", "webhooks_silent.ü", "webhooks_silent.c", first, second]


async def test_a_page_goes_on_where_it_was_although_its_last_entry_is_gone(ground: Ground) -> None:
    await ground.daemon.store.stand([PAUSED, Notice("disk_low", NOON + 5, "little room")])
    page = await inbox(ground, "?limit=1")
    assert (await acknowledge(ground, PAUSED.notice_id)).status == 200
    (entry,) = (await inbox(ground, f"?limit=1&cursor={page['next_cursor']}"))["inbox"]
    assert entry["id"] == "disk_low"


@pytest.mark.parametrize("query", ["?cursor=x", "?cursor=eA", "?limit=0", "?limit=x", "?cursor=bm90aWNlL3gveQ", FAR])
async def test_a_page_that_was_never_given_out_is_told(ground: Ground, query: str) -> None:
    assert_problem(await ground.api("GET", f"/v1/inbox{query}"), 400)


async def test_a_slash_in_a_notices_id_reaches_it(ground: Ground) -> None:
    await ground.daemon.store.stand([Notice("webhooks_silent", NOON, "silent", provider="a/b")])
    assert (await acknowledge(ground, "webhooks_silent.a%2Fb")).status == 200


# ---- the list by state -------------------------------------------------------------------------------------------


async def test_the_list_is_narrowed_by_state_status_provider_and_attention(ground: Ground) -> None:
    """G4."""
    asks = await asking(ground, "observation_failed")
    runs = await ground.operation("observing", OTHER)
    ended = await ground.operation("succeeded", "batch_3")

    async def ids(query: str) -> set[str]:
        return {op["operation_id"] for op in (await ground.get(f"/v1/operations?{query}"))["operations"]}

    assert await ids("attention=true") == {asks}
    assert await ids("attention=false") == {runs, ended}
    assert await ids("status=working") == {runs}
    assert await ids("status=blocked") == {asks}
    assert await ids("state=succeeded") == {ended}
    assert await ids("state=succeeded&attention=true") == set()
    assert await ids("status=done&open=true") == set()
    assert await ids("provider=openai") == {asks, runs, ended}
    assert await ids("provider=openai&open=true&attention=false") == {runs}
    assert await ids("provider=nobody") == set()


async def test_a_narrowed_list_has_pages_too(ground: Ground) -> None:
    asked = [await ground.operation("result_validation_failed", f"batch_{n}") for n in range(3)]
    await ground.start()
    page = await ground.get("/v1/operations?attention=true&limit=2")
    assert [op["operation_id"] for op in page["operations"]] == asked[:0:-1]
    rest = await ground.get(f"/v1/operations?attention=true&limit=2&cursor={page['next_cursor']}")
    assert [op["operation_id"] for op in rest["operations"]] == asked[:1]


@pytest.mark.parametrize("query", ["state=running", "status=observing", "attention=yes", "state=a&state=b"])
async def test_a_filter_with_an_unknown_word_is_told(ground: Ground, query: str) -> None:
    assert_problem(await ground.api("GET", f"/v1/operations?{query}"), 400)


async def test_looking_changes_nothing(ground: Ground) -> None:
    """S23."""
    await asking(ground, "contract_violation")
    before = ground.everything()
    for path in ("/v1/inbox", "/v1/operations?attention=true", "/v1/status"):
        await ground.get(path)
    assert ground.everything() == before


async def test_a_contradiction_is_told_beside_the_operation_it_speaks_of(ground: Ground) -> None:
    operation = await ground.operation("succeeded", JOB)
    await ground.apply(operation, JobRead(Observation("failed", remote_job_id=JOB)))
    (entry,) = (await inbox(ground))["inbox"]
    assert (entry["kind"], entry["reason"], entry["operation_id"]) == ("notice", "contradiction", operation)

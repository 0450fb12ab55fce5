"""Waiting for many, reading ends in their order, taking each end once."""

import asyncio
import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from handlers.api import consumers as routes
from reconcile.evidence import CreateUnknown, JobRead
from reconcile.model import Observation
from tests.handlers.ground import NOON, Answer, Ground, collected, done, running
from tests.reconcile.rows import DAY

SECTIONS = {"retention": {"finished": "10d"}}


def many(*ids: str, **query: Any) -> str:
    return "/v1/wait?" + "&".join([*(f"id={name}" for name in ids), *(f"{k}={v}" for k, v in query.items())])


async def end(ground: Ground, operation: str, job: str) -> None:
    await ground.apply(operation, JobRead(Observation("failed", remote_job_id=job)))


async def observing(ground: Ground, count: int) -> list[str]:
    return [await ground.operation("observing", f"job_{n}") for n in range(count)]


def outcomes(body: Any) -> list[Any]:
    return [op["outcome"] for op in body["operations"]]


# ---- waiting for many -------------------------------------------------------------------------------------------


async def test_a_wait_for_any_ends_with_the_first(ground: Ground) -> None:
    ids = await observing(ground, 3)
    asked = asyncio.create_task(ground.get(many(*ids, mode="any", wait=20)))
    await ground.until_waiting(3)
    await end(ground, ids[1], "job_1")
    body = await asked
    assert (body["mode"], body["timed_out"]) == ("any", False)
    assert [op["operation_id"] for op in body["operations"]] == ids
    assert outcomes(body) == [None, "failed", None]
    assert ground.daemon.changes._watches == {}


async def test_a_wait_for_all_ends_with_the_last(ground: Ground) -> None:
    ids = await observing(ground, 3)
    asked = asyncio.create_task(ground.get(many(*ids, mode="all", wait=20)))
    await ground.until_waiting(3)
    for n in (2, 0):
        await end(ground, ids[n], f"job_{n}")
    await ground.apply(ids[1], JobRead(done("job_1")))
    await ground.apply(ids[1], collected("succeeded"))
    body = await asked
    assert body["timed_out"] is False
    assert outcomes(body) == ["failed", "succeeded", "failed"]


async def test_two_that_end_in_one_commit_are_both_seen(ground: Ground) -> None:
    ids = await observing(ground, 2)
    asked = asyncio.create_task(ground.get(many(*ids, mode="all", wait=20)))
    await ground.until_waiting(2)
    await asyncio.gather(*(end(ground, name, f"job_{n}") for n, name in enumerate(ids)))
    assert outcomes(await asked) == ["failed", "failed"]


async def test_a_question_ends_a_wait_as_it_ends_that_of_one(ground: Ground) -> None:
    asking = await ground.operation("result_validation_failed", "job_9")
    other = (await observing(ground, 1))[0]
    body = await ground.get(many(asking, other, wait=20))
    assert (body["mode"], body["timed_out"]) == ("any", False)
    assert body["operations"][0]["attention"]["reason"]
    body = await ground.get(many(asking, other, mode="all", wait=0))
    assert body["timed_out"] is True


async def test_a_wait_that_runs_out_says_so_and_that_the_work_goes_on(ground: Ground) -> None:
    ids = await observing(ground, 2)
    body = await ground.get(many(*ids, wait=1))
    assert body["timed_out"] is True
    assert [op["done"] for op in body["operations"]] == [False, False]
    assert all("NOT complete" in op["message"] for op in body["operations"])


async def test_other_news_does_not_end_a_wait_for_many(ground: Ground) -> None:
    operation = await ground.start()
    asked = asyncio.create_task(ground.get(many(operation, wait=20)))
    await ground.until_waiting()
    await ground.apply(operation, CreateUnknown("timeout"))
    await asyncio.sleep(0)
    assert not asked.done()
    ground.daemon.changes.close()
    body = await asked
    assert body["timed_out"] is True
    assert body["operations"][0]["state"] == "create_unknown"


async def test_what_ends_while_the_wait_begins_is_not_missed(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await observing(ground, 2)
    asked = type(ground.daemon.store.consumers).operations

    async def operations(self: Any, operation_ids: Sequence[str]) -> Any:
        found = await asked(self, operation_ids)
        await end(ground, ids[0], "job_0")
        return found

    monkeypatch.setattr(type(ground.daemon.store.consumers), "operations", operations)
    assert outcomes(await ground.get(many(*ids, wait=20))) == ["failed", None]


async def test_one_that_is_named_twice_is_waited_for_once(ground: Ground) -> None:
    ended = await ground.operation("succeeded", "job_1")
    assert outcomes(await ground.get(many(ended, ended, mode="all"))) == ["succeeded"]


async def test_an_unknown_one_is_404_by_name(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections=SECTIONS) as ground:
        ended = await ground.operation("succeeded", "job_1")
        answer = await ground.api("GET", many(ended, "op_never", wait=20))
        assert answer.status == 404
        assert answer.json()["operation_id"] == "op_never"
        assert answer.json()["detail"].startswith("There is no operation 'op_never'. Nothing was done.")
        ground.clock.advance(11 * DAY)
        await ground.daemon.upkeep._round(asyncio.Event())
        answer = await ground.api("GET", many(ended))
        assert (answer.status, answer.json()["operation_id"]) == (404, ended)
        assert "was removed on" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("", "/id"),
        ("id=", "/id"),
        ("id=%00", "/id"),
        ("id=%C3%A9", "/id"),
        ("id=" + "x" * 600, "/id"),
        ("&".join(f"id=op_{n}" for n in range(101)), "/id"),
        ("id=op_1&mode=some", "/mode"),
        ("id=op_1&mode=", None),
        ("id=op_1&wait=601", "/wait"),
        ("id=op_1&wait=-1", "/wait"),
        ("id=op_1&mode=any&mode=all", "/mode"),
        ("ids=op_1", "/ids"),
    ],
)
async def test_a_wait_that_cannot_be_is_400(ground: Ground, query: str, pointer: str | None) -> None:
    answer = await ground.api("GET", f"/v1/wait?{query}")
    if pointer is None:
        assert answer.status == 404, "an empty mode is none: it is asked for any"
        return
    assert answer.status == 400
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_a_hundred_of_the_longest_ids_that_we_give_fit_one_call(ground: Ground) -> None:
    ids = [await ground.start() for _ in range(routes.MAX_IDS)]
    assert len((await ground.get(many(*ids, wait=0)))["operations"]) == routes.MAX_IDS


# ---- completions ------------------------------------------------------------------------------------------------


async def feed(ground: Ground, limit: int = 50, cursor: str | None = None) -> tuple[list[Any], str]:
    """All completions from a cursor on, page by page, and where that leads."""
    found: list[Any] = []
    while True:
        after = "" if cursor is None else f"&after={cursor}"
        body = await ground.get(f"/v1/completions?limit={limit}{after}")
        cursor = str(body["next_cursor"])
        if not body["completions"]:
            return found, cursor
        found += body["completions"]
        assert len(found) < 1000


@pytest.mark.parametrize("limit", [1, 2, 3, 500])
async def test_ends_are_read_in_the_order_in_which_they_came_whatever_the_page(ground: Ground, limit: int) -> None:
    ids = await observing(ground, 5)
    for n in (3, 0, 4):
        await end(ground, ids[n], f"job_{n}")
    found, cursor = await feed(ground, limit)
    assert [one["operation"]["operation_id"] for one in found] == [ids[3], ids[0], ids[4]]
    assert found[0]["operation"] == await ground.get(f"/v1/operations/{ids[3]}")
    assert found[0]["completed_at"] == found[0]["operation"]["completed_at"]
    last = (await ground.get(f"/v1/operations/{ids[4]}/history"))["history"][-1]
    assert found[-1]["position"] == last["position"]
    assert await feed(ground, limit, cursor) == ([], cursor)
    await end(ground, ids[1], "job_1")
    later, _ = await feed(ground, limit, cursor)
    assert [one["operation"]["operation_id"] for one in later] == [ids[1]]


async def test_evidence_after_an_end_is_no_second_completion(ground: Ground) -> None:
    operation = await ground.operation("succeeded", "job_1")
    _, cursor = await feed(ground)
    await end(ground, operation, "job_1")
    assert await feed(ground, cursor=cursor) == ([], cursor)
    assert len((await feed(ground))[0]) == 1


async def test_before_anything_has_ended_there_is_a_cursor_to_go_on_by(ground: Ground) -> None:
    operation = (await observing(ground, 1))[0]
    found, cursor = await feed(ground)
    assert found == []
    await end(ground, operation, "job_0")
    assert len((await feed(ground, cursor=cursor))[0]) == 1


async def test_what_was_pruned_is_passed_over_and_a_cursor_that_names_it_leads_on(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections=SECTIONS) as ground:
        for n in range(3):
            await ground.operation("succeeded", f"old_{n}")
        _, cursor = await feed(ground)
        ground.clock.advance(11 * DAY)
        young = await ground.operation("succeeded", "young")
        await ground.daemon.upkeep._round(asyncio.Event())
        assert ground.rows("SELECT count(*) FROM operations") == [(1,)]
        for at in (None, cursor):
            found, _ = await feed(ground, 1, at)
            assert [one["operation"]["operation_id"] for one in found] == [young]


async def test_a_cursor_of_another_record_is_told_and_not_followed(tmp_path: Path) -> None:
    """A restored backup gives its positions anew: to go on by the old one would pass ends over in silence."""
    async with running(tmp_path / "one") as ground:
        for n in range(3):
            await ground.operation("succeeded", f"job_{n}")
        _, cursor = await feed(ground)
    async with running(tmp_path / "other", seed=2) as ground:
        answer = await ground.api("GET", f"/v1/completions?after={cursor}")
        assert answer.status == 410, "beyond the newest position"
        for n in range(5):
            await ground.operation("failed", f"job_{n}")
        answer = await ground.api("GET", f"/v1/completions?after={cursor}")
        assert answer.status == 410, "something else stands there"
        assert "without `after`" in answer.json()["detail"]


def forged(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    ["x", "!", "%00", "op_1", "1", forged("1"), forged("1.2"), forged("-1.0000000000000000.op"), forged("1..op_1"),
     forged("99999999999999999.0000000000000000.op_1"), forged("1.000000000000000g.op_1"),
     forged("1.0000000000000000.a b")],
)  # fmt: skip
async def test_a_cursor_that_nobody_gave_is_400(ground: Ground, cursor: str) -> None:
    answer = await ground.api("GET", f"/v1/completions?after={cursor}")
    assert answer.status == 400
    assert answer.json()["errors"][0]["pointer"] == "/after"


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "wait=601", "cursor=x", "after=a&after=b"])
async def test_a_feed_that_cannot_be_is_400(ground: Ground, query: str) -> None:
    assert (await ground.api("GET", f"/v1/completions?{query}")).status == 400


async def test_a_feed_can_be_waited_for(ground: Ground) -> None:
    operation = (await observing(ground, 1))[0]
    _, cursor = await feed(ground)
    asked = asyncio.create_task(ground.get(f"/v1/completions?after={cursor}&wait=20"))
    await ground.until_feed_waits()
    assert not asked.done()
    await end(ground, operation, "job_0")
    body = await asked
    assert [one["operation"]["operation_id"] for one in body["completions"]] == [operation]
    empty = await ground.get(f"/v1/completions?after={body['next_cursor']}&wait=1")
    assert empty == {"completions": [], "next_cursor": body["next_cursor"]}


async def test_what_ends_while_a_feed_is_read_is_not_missed(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    operation = (await observing(ground, 1))[0]
    read = type(ground.daemon.store.consumers).completions

    async def completions(self: Any, **how: Any) -> Any:
        page = await read(self, **how)
        if not page:
            await end(ground, operation, "job_0")
        return page

    monkeypatch.setattr(type(ground.daemon.store.consumers), "completions", completions)
    assert len((await ground.get("/v1/completions?wait=20"))["completions"]) == 1


async def test_a_stop_ends_the_wait_of_a_feed(ground: Ground) -> None:
    asked = asyncio.create_task(ground.get("/v1/completions?wait=20"))
    await ground.until_feed_waits()
    ground.daemon.changes.close()
    assert (await asyncio.wait_for(asked, 5))["completions"] == []
    assert (await ground.get("/v1/completions?wait=20"))["completions"] == []


# ---- claims -----------------------------------------------------------------------------------------------------


async def claim(ground: Ground, operation: str, consumer: str = "mailer", key: str | None = None) -> Answer:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await ground.api("POST", f"/v1/operations/{operation}/claim", body={"consumer": consumer}, headers=headers)


async def test_a_completion_is_claimed_once_for_each_consumer(ground: Ground) -> None:
    operation = await ground.operation("succeeded", "job_1")
    first = await claim(ground, operation)
    assert first.status == 200
    assert first.json() == {
        "operation_id": operation,
        "consumer": "mailer",
        "claimed_at": "2026-11-29T12:00:00.000Z",
        "outcome": "succeeded",
    }
    ground.clock.advance(60_000)
    second = await claim(ground, operation)
    assert second.status == 409
    assert second.json()["claimed_at"] == "2026-11-29T12:00:00.000Z"
    assert "2026-11-29T12:00:00.000Z" in second.json()["detail"]
    assert (await claim(ground, operation, "biller")).status == 200
    assert ground.rows("SELECT consumer, claimed_at, actor, claim_key FROM completion_claims ORDER BY consumer") == [
        ("biller", NOON + 60_000, "client:biller", None),
        ("mailer", NOON, "client:mailer", None),
    ]


async def test_whoever_lost_the_answer_gets_it_again_by_the_same_key(ground: Ground) -> None:
    operation = await ground.operation("succeeded", "job_1")
    first = await claim(ground, operation, key="mail-1")
    ground.clock.advance(60_000)
    again = await claim(ground, operation, key="mail-1")
    assert (again.status, again.body) == (first.status, first.body) == (200, first.body)
    assert (await claim(ground, operation, key="mail-2")).status == 409
    assert (await claim(ground, operation)).status == 409
    assert (await claim(ground, operation, "biller", key="mail-1")).status == 200


@pytest.mark.parametrize("state", ["create_pending", "create_unknown", "observing", "result_validation_failed"])
async def test_nothing_can_be_claimed_before_the_end(ground: Ground, state: str) -> None:
    operation = await ground.operation(state, "job_1")
    before = ground.everything()
    answer = await claim(ground, operation)
    assert answer.status == 425
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert 1 <= int(answer.headers["Retry-After"]) <= 600
    assert "NOT complete" in answer.json()["detail"]
    assert ground.everything() == before


async def test_fifty_claims_at_once_make_one_200(ground: Ground) -> None:
    operation = await ground.operation("failed", "job_1")
    answers = await asyncio.gather(*(claim(ground, operation, key=f"k{n}") for n in range(50)))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 49
    winner = next(n for n, answer in enumerate(answers) if answer.status == 200)
    assert (await claim(ground, operation, key=f"k{winner}")).body == answers[winner].body


async def test_a_claim_outlives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as ground:
        operation = await ground.operation("succeeded", "job_1")
        first = await claim(ground, operation, key="k")
    async with running(tmp_path / "state", seed=2) as ground:
        assert (await claim(ground, operation)).status == 409
        assert (await claim(ground, operation, key="k")).body == first.body


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/consumer"),
        ({"consumer": ""}, "/consumer"),
        ({"consumer": 1}, "/consumer"),
        ({"consumer": "a\nb"}, "/consumer"),
        ({"consumer": "x" * 513}, "/consumer"),
        ({"consumer": "c", "by": "me"}, "/by"),
        ([], ""),
    ],
)
async def test_a_claim_that_cannot_be_is_told_where_it_is_wrong(ground: Ground, body: Any, pointer: str) -> None:
    operation = await ground.operation("succeeded", "job_1")
    answer = await ground.api("POST", f"/v1/operations/{operation}/claim", body=body)
    assert answer.status == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert ground.rows("SELECT count(*) FROM completion_claims") == [(0,)]


async def test_a_claim_of_nothing_or_by_no_key_is_refused(ground: Ground) -> None:
    operation = await ground.operation("succeeded", "job_1")
    assert (await claim(ground, "op_never")).status == 404
    assert (await claim(ground, operation, key="x" * 256)).status == 400
    data = json.dumps({"consumer": "c"}).encode()
    plain = await ground.api("POST", f"/v1/operations/{operation}/claim", data=data, headers={"Content-Type": "text/x"})
    assert plain.status == 415
    assert (await ground.api("GET", f"/v1/operations/{operation}/claim")).status == 405
    assert (await ground.api("POST", f"/v1/operations/{operation}/claim?x=1", body={"consumer": "c"})).status == 400


async def test_a_pruned_completion_takes_its_claims_along(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections=SECTIONS) as ground:
        operation = await ground.operation("succeeded", "job_1")
        assert (await claim(ground, operation)).status == 200
        ground.clock.advance(11 * DAY)
        await ground.daemon.upkeep._round(asyncio.Event())
        assert (await claim(ground, operation)).status == 404
        assert ground.rows("SELECT count(*) FROM completion_claims") == [(0,)]

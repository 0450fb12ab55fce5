"""What the faces say of an operation that was pruned: gone, and honest about it; and nothing that hung on it haunts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from handlers.api.query import cursor_for
from reconcile.evidence import JobRead
from reconcile.model import Observation
from tests.event_stream import listening
from tests.handlers.ground import NOON, START, Ground, event, running, signed
from tests.reconcile.rows import DAY
from tests.reconcile.store.ground import beside

KEPT = 10 * DAY
SECTIONS = {"retention": {"finished": "10d"}}


@asynccontextmanager
async def keeping(folder: Path) -> AsyncIterator[Ground]:
    """A daemon that keeps what ended for ten days."""
    async with running(folder, sections=SECTIONS) as ground:
        yield ground


async def later(ground: Ground, ms: int = KEPT) -> None:
    """So much later, a round of the daemon's own upkeep."""
    ground.clock.advance(ms)
    await ground.daemon.upkeep._round(asyncio.Event())


async def test_a_pruned_operation_is_404_in_words_that_say_when_and_why(tmp_path: Path) -> None:
    async with keeping(tmp_path / "state") as ground:
        ended = await ground.operation("succeeded", "job_1")
        await later(ground)
        for path in ("", "/history", "/observations", "/items", "/items/a", "/result"):
            answer = await ground.api("GET", f"/v1/operations/{ended}{path}")
            assert answer.status == 404
            assert answer.json()["detail"].startswith(
                f"The operation {ended} had ended, and was removed on 2026-12-09T12:00:00.000Z, as retention.finished"
                " says. How it ended can not be told any more."
            )
        said = {"by": "me", "reason": "r", "effect": "e"}
        assert (await ground.api("POST", f"/v1/operations/{ended}/cancel", body=said)).status == 404
        never = await ground.api("GET", "/v1/operations/op_never")
        assert never.json()["detail"].startswith("There is no operation 'op_never'.")


async def test_one_that_leaves_is_404_too(tmp_path: Path) -> None:
    async with keeping(tmp_path / "state") as ground:
        ended = await ground.operation("succeeded", "job_1")
    with beside(tmp_path / "state" / "reconciled.db", writes=True) as file:  # the daemon is down
        file.execute("UPDATE operations SET leaving = 1")
    async with running(tmp_path / "state", sections=SECTIONS, seed=2) as ground:
        answer = await ground.api("GET", f"/v1/operations/{ended}")
        assert answer.status == 404
        assert f"The operation {ended} had ended, and is being removed, as" in answer.json()["detail"]
        assert (await ground.get("/v1/operations"))["operations"] == []
        assert (await ground.get("/v1/status"))["operations"] == {}


async def test_one_that_leaves_is_told_by_no_feed_and_as_a_gap_by_the_stream(tmp_path: Path) -> None:
    async with keeping(tmp_path / "state") as ground:
        ended = await ground.operation("succeeded", "job_1")
        newest = await ground.daemon.store.consumers.last_position()
    with beside(tmp_path / "state" / "reconciled.db", writes=True) as file:  # the daemon is down
        file.execute("UPDATE operations SET leaving = 1")
    async with running(tmp_path / "state", sections=SECTIONS, seed=2) as ground:
        assert (await ground.get("/v1/completions"))["completions"] == []
        url = f"http://127.0.0.1:{ground.local_port}"
        async with listening(ground.session, f"{url}/v1/events", ground.daemon.token, 0) as opened:
            gap = await opened.next()
        assert gap is not None
        assert (gap.name, gap.data["from"], gap.data["to"], gap.data["missing"]) == ("gap", 1, newest, newest)
        for path in ("events", "claim"):
            method = "POST" if path == "claim" else "GET"
            answer = await ground.api(method, f"/v1/operations/{ended}/{path}", body={"consumer": "c"})
            assert answer.status == 404


async def test_a_client_key_repeated_after_pruning_starts_anew(tmp_path: Path) -> None:
    async with keeping(tmp_path / "state") as ground:
        headers = {"Idempotency-Key": "nightly"}
        first = (await ground.api("POST", "/v1/operations", body=START, headers=headers)).json()["operation_id"]
        await ground.accept(first, "job_1")
        again = (await ground.api("POST", "/v1/operations", body=START, headers=headers)).json()["operation_id"]
        assert again == first
        await ground.apply(first, JobRead(Observation("failed", remote_job_id="job_1")))
        await later(ground)
        other = {**START, "labels": {"other": "content"}}
        anew = await ground.api("POST", "/v1/operations", body=other, headers=headers)
        assert anew.status == 202
        assert anew.json()["operation_id"] != first


async def test_the_job_of_a_pruned_operation_can_be_adopted(tmp_path: Path) -> None:
    async with keeping(tmp_path / "state") as ground:
        await ground.operation("succeeded", "job_1")
        adopting = {"provider": "openai", "remote_job_id": "job_1"}
        assert (await ground.api("POST", "/v1/operations", body=adopting)).status == 409
        await later(ground)
        assert (await ground.api("POST", "/v1/operations", body=adopting)).status == 202


async def test_a_cursor_that_names_a_pruned_operation_leads_on(tmp_path: Path) -> None:
    async with keeping(tmp_path / "state") as ground:
        oldest = await ground.operation("observing", "job_1")
        older = await ground.operation("observing", "job_2")
        ended = await ground.operation("succeeded", "job_3")
        await ground.operation("observing", "job_4")
        page = await ground.get("/v1/operations?limit=2")
        assert page["next_cursor"] == ended
        await later(ground)
        rest = await ground.get(f"/v1/operations?limit=2&cursor={ended}")
        assert [op["operation_id"] for op in rest["operations"]] == [older, oldest]
        refused = await ground.api("GET", "/v1/operations?cursor=op_never")
        assert refused.status == 400


async def test_a_webhook_repeated_after_pruning_is_a_duplicate_and_no_number_shrinks(tmp_path: Path) -> None:
    async with keeping(tmp_path / "state") as ground:
        await ground.operation("succeeded", "job_1")
        body = event("job_1")
        ground.clock.advance(KEPT - DAY)
        at = NOON + KEPT - DAY
        assert (await ground.hook(body, signed(body, at_ms=at))).status == 200
        stranger = event("job_nobody", "failed")
        assert (await ground.hook(stranger, signed(stranger, event_id="msg_2", at_ms=at))).status == 200
        before = (await ground.get("/v1/status"))["providers"]["openai"]["webhooks"]
        await later(ground, DAY)
        await later(ground, 0)  # what the event added to the history is signed by now
        assert ground.rows("SELECT count(*) FROM operations") == [(0,)]
        assert (await ground.get("/v1/status"))["providers"]["openai"]["webhooks"] == before
        rows = ground.rows("SELECT count(*) FROM events")
        repeat = signed(body, at_ms=ground.clock.now())
        assert (await ground.hook(body, repeat)).status == 200
        assert ground.rows("SELECT count(*) FROM events") == rows
        after = (await ground.get("/v1/status"))["providers"]["openai"]["webhooks"]
        assert after == {**before, "duplicate": before["duplicate"] + 1}
        other = event("job_1", "failed")
        assert (await ground.hook(other, signed(other, at_ms=ground.clock.now()))).status == 200
        assert ground.rows("SELECT count(*) FROM events") == [(rows[0][0] + 1,)]


async def test_the_inbox_goes_on_after_a_question_that_is_gone(tmp_path: Path) -> None:
    async with keeping(tmp_path / "state") as ground:
        ended = await ground.operation("succeeded", "job_1")
        await ground.operation("observing", "job_2")
        asking = await ground.operation("result_validation_failed", "job_3")
        await later(ground)
        page = await ground.get(f"/v1/inbox?cursor={cursor_for(f'question/{ended}')}")
        assert [entry["operation_id"] for entry in page["inbox"]] == [asking]

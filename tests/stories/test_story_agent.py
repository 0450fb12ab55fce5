"""What an agent meets that starts a long job and must not be misled: slow work, a late failure, a wait that runs out.

Two processes, as an agent finds them; every answer is read for what a model would make of it (G1 to G3, G6).
"""

from pathlib import Path
from typing import Final

from tests.stories.stage import ITEMS, moves, playing, settle

#: The scenarios `slow` (two minutes) and `late-failure` (one) take six and three seconds.
SPEED: Final = 20
#: Words that nobody may quote as success while the work goes on.
SUCCESS_WORDS: Final = ("complete:", "succeeded:", "has succeeded", "is complete")


async def test_story_agent_starts_a_slow_job_and_is_told_when_to_come_back(tmp_path: Path) -> None:
    """202 with Location and Retry-After; each answer until the end says that it is none, the last one that it is."""
    home = settle(tmp_path, base="500ms", cap="1s")
    async with playing(home, speed=SPEED, scenario="slow") as (_, client):
        # When it starts the job ...
        started = await client.start()
        place = started.headers["Location"]
        # ... and looks at it while it runs, and at its end.
        running = await client.until_seen(place.rpartition("/")[2], lambda body: body["remote_status"] == "in_progress")
        ended = await client.end_of(place.rpartition("/")[2])

    # Then the start said that the work has begun and not ended, where to ask, and after how long.
    assert started.status == 202
    assert int(started.headers["Retry-After"]) == started.body["poll_after_seconds"] >= 1
    assert place == started.body["status_url"] == f"/v1/operations/{started.body['operation_id']}"
    for body in (started.body, running):
        assert (body["done"], body["outcome"], body["result_url"]) == (False, None, None)
        assert "NOT complete" in body["message"]
        assert "Do not report success" in body["message"]
        assert not any(word in body["message"] for word in SUCCESS_WORDS)
        assert body["poll_after_seconds"] >= 1
    # ... what it shows of the work is progress, which ends nothing ...
    assert running["progress"]["total"] == ITEMS
    # ... and the end is told once it is one.
    assert (ended["done"], ended["outcome"], ended["wait"]["result"]) == (True, "succeeded", "succeeded")
    assert ended["poll_after_seconds"] is None
    assert ended["elapsed_seconds"] >= 5


async def test_story_agent_is_told_of_a_late_failure(tmp_path: Path) -> None:
    """A job that fails after nearly all of its work is a failure with the provider's word, however far it had come."""
    home = settle(tmp_path, base="300ms", cap="600ms")
    async with playing(home, speed=SPEED, scenario="late-failure") as (_, client):
        operation_id = await client.started()
        far = await client.until_seen(operation_id, lambda body: (body["progress"] or {}).get("percent", 0) >= 40)
        body = await client.end_of(operation_id)
        failed = (await client.get(body["errors_url"]))["items"]

    assert (far["done"], far["outcome"]) == (False, None)
    assert "NOT complete" in far["message"]
    assert (body["done"], body["status"], body["outcome"], body["wait"]["result"]) == (True, *["failed"] * 3)
    # The reason is the provider's own: what stands in the failed batch's `errors`.
    assert (body["remote_status"], body["error"]["code"]) == ("failed", "server_error")
    assert body["message"].startswith("The work has failed. The reason given: 'server_error: ")
    assert (body["summary"]["succeeded"], body["summary"]["failed"]) == (0, ITEMS)
    assert [item["item_id"] for item in failed] == [f"item-{n}" for n in range(ITEMS)]
    assert body["result_url"] is None


async def test_story_agent_whose_wait_runs_out_is_given_the_id_and_no_end(tmp_path: Path) -> None:
    """A wait that runs out ended only itself: it names the operation, says that it is NOT complete, and goes on."""
    home = settle(tmp_path, base="500ms", cap="1s")
    async with playing(home, speed=SPEED, scenario="slow") as (_, client):
        operation_id = await client.started()
        # When it waits for one second, for a job of six.
        early = await client.get(f"/v1/operations/{operation_id}?wait=1")
        # ... and then until the end.
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)

    assert early["wait"]["result"] == "timed_out"
    assert 1 <= early["wait"]["waited_seconds"] < 3
    assert early["operation_id"] == operation_id
    assert (early["done"], early["outcome"], early["status"]) == (False, None, "working")
    assert "NOT complete" in early["message"]
    assert early["poll_after_seconds"] >= 1
    # ... which changed nothing for the work.
    assert (body["outcome"], body["wait"]["result"]) == ("succeeded", "succeeded")
    assert moves(history) == ["create_pending", "accepted", "observing", "result_collecting", "succeeded"]


async def test_story_agent_that_starts_again_under_its_key_finds_its_own_work(tmp_path: Path) -> None:
    """An agent that lost its context starts once more, while it runs and after: one operation, one job (G4, G5)."""
    home = settle(tmp_path, base="300ms", cap="600ms")
    async with playing(home, speed=4) as (_, client):
        first = await client.start("the-agents-key")
        again = await client.start("the-agents-key")
        ended = await client.end_of(first.body["operation_id"])
        later = await client.start("the-agents-key")
        other = await client.start("the-agents-key", items=3)
        known = (await client.get("/v1/operations?open=true"))["operations"]
        jobs = (await client.of_provider("batches?limit=100"))["data"]

    assert (first.status, again.status, later.status) == (202, 202, 200)
    assert {answer.body["operation_id"] for answer in (first, again, later)} == {ended["operation_id"]}
    assert (later.body["done"], later.body["outcome"]) == (True, "succeeded")
    assert (other.status, known) == (422, [])
    assert [job["id"] for job in jobs] == [ended["remote_job_id"]]

"""The loop's own stories: a status that nobody documents, failed items, three errors in a row, a job that never ends.

Polling carries these alone: no webhook comes, so what is seen is the loop's doing (C2, C4, C5, C6).
"""

from itertools import pairwise
from pathlib import Path
from typing import Final

from daemon.runtime import SystemDice
from daemon.standin.scenarios import Scenario
from daemon.standin.world import World
from tests.stories.gate import Gate, behind_a_gate
from tests.stories.ledger import violations
from tests.stories.stage import ITEMS, client_of, moves, serving, settle

#: ms, as configured below.
BASE: Final = 200
CAP: Final = 1_600
#: How much later than planned a read may arrive on a machine that is busy, ms. Arbitrary.
LATE: Final = 400
STRANGE: Final = Scenario(
    "strange", "A word of no document, while it runs.", duration_ms=1_500, working_word="reticulating", webhooks="lost"
)
HALF_FAILED: Final = Scenario(
    "half-failed", "Completed, with failed items.", duration_ms=500, failing_share=0.4, webhooks="lost"
)
STUMBLES: Final = Scenario(
    "stumbles", "The first three reads fail.", duration_ms=2_500, read_faults=(500, 502, 500), webhooks="lost"
)
NEVER: Final = Scenario("never", "It never ends.", ends=None, run_share=0.5)
TO_SUCCESS: Final = ["create_pending", "accepted", "observing", "result_collecting", "succeeded"]


def world_of(scenario: Scenario, *, speed: float = 1) -> World:
    """A provider whose jobs go so unless they name another scenario."""
    return World(scenario, ids=SystemDice().identifier, speed=speed)


async def test_story_unknown_status(tmp_path: Path) -> None:
    """F6: pending, shown and counted as what it is, and no end before the provider's own (C2, N13)."""
    home, world, gate = settle(tmp_path, base="200ms", cap="400ms"), world_of(STRANGE), Gate()
    async with behind_a_gate(home, world, gate), serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        # When the job is seen in a status that is in no document.
        operation_id = await client.started()
        seen = await client.until_seen(operation_id, lambda body: body["remote_status"] == "reticulating")
        body = await client.end_of(operation_id)
        observations = (await client.get(f"/v1/operations/{operation_id}/observations"))["observations"]
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    # Then it was told as working, with the provider's own word, until the documented end came.
    assert (seen["status"], seen["done"], seen["outcome"]) == ("working", False, None)
    assert "NOT complete" in seen["message"]
    assert {(row["verdict"], row["known"]) for row in observations if row["word"] == "reticulating"} == {
        ("PENDING", False)
    }
    assert daemon.said.count("reticulating") >= 1
    assert (body["outcome"], moves(history)) == ("succeeded", TO_SUCCESS)
    assert violations(home, world.truth(), {operation_id}) == []


async def test_story_terminal_job_with_failed_items(tmp_path: Path) -> None:
    """F7: completed is not succeeded; the failed items are named, the rest is kept (C3, F3)."""
    home, world = settle(tmp_path, base="200ms", cap="400ms"), world_of(HALF_FAILED)
    async with behind_a_gate(home, world, Gate()), serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        operation_id = await client.started()
        body = await client.end_of(operation_id)
        failed = (await client.get(body["errors_url"]))["items"]
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    assert (body["remote_status"], body["outcome"]) == ("completed", "completed_with_errors")
    assert (body["summary"]["total"], body["summary"]["succeeded"], body["summary"]["failed"]) == (ITEMS, 3, 2)
    assert len(failed) == 2
    assert all(item["reason"] for item in failed)
    assert moves(history)[-2:] == ["result_collecting", "completed_with_errors"]
    assert "3 of 5 items succeeded, 2 did not" in body["message"]


async def test_story_three_server_errors_then_success(tmp_path: Path) -> None:
    """F8: three 5xx cost three waits, each longer at most, and leave nothing but counters (C6, N21)."""
    home, world, gate = settle(tmp_path, base=f"{BASE}ms", cap=f"{CAP}ms"), world_of(STUMBLES), Gate()
    async with behind_a_gate(home, world, gate), serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        operation_id = await client.started()
        unread = await client.until_seen(operation_id, lambda body: "Reading the job" in body["message"])
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    # Then meanwhile nobody was told that the job runs, nor that it had failed.
    assert (unread["status"], unread["done"], unread["error"]) == ("working", False, None)
    assert "NOT known to be running" in unread["message"]
    # ... each wait lies between the base and what so many errors in a row allow.
    reads = gate.reads_of(body["remote_job_id"])
    gaps = [later - sooner for sooner, later in pairwise(reads)][:3]
    for number, gap in enumerate(gaps, start=1):
        assert BASE - 1 <= gap <= min(CAP, BASE * 2**number) + LATE, gaps
    # ... and the end is the straight one, with no question, no failure and no error left in the row.
    assert (body["outcome"], body["attention"], body["error"]) == ("succeeded", None, None)
    assert moves(history) == TO_SUCCESS
    assert world.truth().jobs[0].reads == len(reads) >= 4
    assert violations(home, world.truth(), {operation_id}) == []


async def test_story_a_job_that_never_ends(tmp_path: Path) -> None:
    """F9: after its deadline and one last read it is a question, no failure, and asked about no more (C5, N22)."""
    home, world, gate = settle(tmp_path, base="200ms", cap="400ms"), world_of(NEVER, speed=3), Gate()
    async with behind_a_gate(home, world, gate), serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        operation_id = await client.started(result_within="2s")
        body = await client.end_of(operation_id)
        (moved,) = home.rows("SELECT at, cause FROM history WHERE to_state = 'result_timed_out'")
        reads = gate.reads_of(body["remote_job_id"])

        # When time goes on: another job is begun, read and ended.
        other = await client.end_of(await client.started(scenario="lost-webhook"))
        later = await client.get(f"/v1/operations/{operation_id}")
        assert await daemon.stop() == 0

    # Then it said that the work may go on, and was read once more before it said so.
    assert (body["state"], body["status"], body["done"]) == ("result_timed_out", "blocked", False)
    assert (body["outcome"], body["error"], body["summary"]) == (None, None, None)
    assert "may still be running" in body["message"]
    assert moved["cause"] == "deadline:result"
    deadline = home.rows("SELECT json_extract(living, '$.deadlines.result') AS at FROM operations")[0]["at"]
    assert deadline <= reads[-1] <= moved["at"]
    # ... and no scheduled read followed, though the daemon read another job meanwhile.
    assert len(gate.reads_of(other["remote_job_id"])) >= 2
    assert gate.reads_of(body["remote_job_id"]) == reads
    assert later["state"] == "result_timed_out"

"""A provider that is down, refuses or asks to be left alone, and a daemon that was down itself: what is told, and when.

What surely made no job is sent again, the same, once the provider is back; what a provider asked for outlives a kill;
and nothing is called timed out that was not looked at once more (B1, C4, C5, N6, N21, N22, N35).
"""

import asyncio
import signal
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from daemon.runtime import SystemClock, SystemDice
from daemon.standin.scenarios import SCENARIOS
from daemon.standin.world import World
from tests.stories.gate import Arrival, Gate, answers, behind_a_gate, refusal
from tests.stories.stage import acting, client_of, moves, serving, settle
from tests.stories.work import MESSAGES, STANDIN

NORMAL: Final = replace(SCENARIOS["normal"], duration_ms=500, webhooks="lost")
#: A name that no resolver knows (RFC 2606).
NOBODYS_NAME: Final = "provider.invalid"
#: What the provider asks for in its refusal, seconds: longer than a kill and a new start take here.
ASKED: Final = 5


def world_of(**changes: Any) -> World:
    """A provider whose jobs take half a second."""
    return World(replace(NORMAL, **changes), ids=SystemDice().identifier)


# ---- creates that surely made no job -----------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["DNS failure", "refused connection"])
async def test_story_create_that_never_connected_ends_in_one_job(tmp_path: Path, fault: str) -> None:
    """Sent again once the provider can be reached: one job, and no question in between or left open."""
    # Given a provider whose name nobody knows, or whose port nobody listens on; its create is the first request.
    hosts = tmp_path / "hosts"
    name = NOBODYS_NAME if fault == "DNS failure" else "127.0.0.1"
    home, world, gate = settle(tmp_path, base="200ms", cap="400ms", messages=name), world_of(), Gate()
    serve = acting(home, "tests.stories.seamed", "--config", str(home.config), "--hosts", str(hosts))
    async with AsyncExitStack() as stack:
        if fault == "DNS failure":
            await stack.enter_async_context(behind_a_gate(home, world, gate))
        daemon, client = await stack.enter_async_context(serve), await stack.enter_async_context(client_of(home))
        await client.until_ready(daemon)
        # When it has been tried twice in vain, and then the provider is there.
        operation_id = await client.started(provider=MESSAGES)
        waiting = await client.until(operation_id, lambda _: _tries(home.rows(_FACTS, operation_id)) >= 2)
        if fault == "DNS failure":
            hosts.write_text(f"127.0.0.1 {NOBODYS_NAME}\n")
        else:
            await stack.enter_async_context(behind_a_gate(home, world, gate))
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    # Then nothing but the good create ever arrived, and the history knows of no doubt.
    assert (waiting["state"], waiting["attention"]) == ("create_pending", None)
    assert body["outcome"] == "succeeded"
    assert (gate.creates(), len(world.truth().jobs)) == (1, 1)
    assert moves(history) == ["create_pending", "accepted", "observing", "result_collecting", "succeeded"]
    sent = home.rows("SELECT status, error_class FROM requests WHERE purpose = 'create' ORDER BY sent_at")
    assert [row["status"] for row in sent][-1] == 200
    assert {row["error_class"] for row in sent[:-1]} == {"dns" if fault == "DNS failure" else "connect"}


_FACTS: Final = (
    "SELECT reason FROM history JOIN operations ON key = operation_key WHERE operation_id = ? AND kind = 'fact'"
)


def _tries(facts: list[dict[str, Any]]) -> int:
    return sum("not accepted" in row["reason"] for row in facts)


@pytest.mark.parametrize("provider_name", [STANDIN, MESSAGES])
@pytest.mark.parametrize("status", [401, 429])
async def test_story_create_that_was_turned_away_ends_in_one_job(
    tmp_path: Path, status: int, provider_name: str
) -> None:
    """401 and 429 made no job: the same bytes go again when the pause is over, and nobody is asked a question."""
    home, world = settle(tmp_path, base="200ms", cap="400ms", messages="127.0.0.1"), world_of()
    no = [refusal(status, retry_after=1 if status == 429 else None) for _ in range(2)]
    gate = Gate(answers(lambda arrival: arrival.is_create, *no))
    async with behind_a_gate(home, world, gate), serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        operation_id = await client.started(provider=provider_name)
        body = await client.end_of(operation_id)
        history = await client.history(operation_id)
        assert await daemon.stop() == 0

    assert body["outcome"] == "succeeded"
    assert (gate.creates(), gate.creates_let_in, len(world.truth().jobs)) == (3, 1, 1)
    assert len({arrival.body for arrival in gate.arrivals if arrival.is_create}) == 1
    assert moves(history) == ["create_pending", "accepted", "observing", "result_collecting", "succeeded"]
    sent = home.rows("SELECT status FROM requests WHERE purpose = 'create' ORDER BY sent_at")
    assert [row["status"] for row in sent] == [status, status, 200]


# ---- a pause that the provider asked for -------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503])
async def test_story_pause_outlives_a_kill_and_a_restart(tmp_path: Path, status: int) -> None:
    """Retry-After holds for the next process too: nothing whatever is sent to the provider before it has passed."""
    # Given a provider that answers a read with a wish to be left alone.
    home, world = settle(tmp_path, base="200ms", cap="400ms"), world_of(duration_ms=1_500)
    refused = asyncio.Event()
    asks = answers(lambda arrival: arrival.method == "GET", refusal(status, retry_after=ASKED))

    async def tells(arrival: Arrival) -> Any:
        answer = await asks(arrival)
        if answer is not None:
            refused.set()
        return answer

    gate = Gate(tells)
    async with behind_a_gate(home, world, gate), client_of(home) as client:
        # When the daemon is killed as soon as it has written that down, and another one starts ...
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            operation_id = await client.started()
            await refused.wait()
            await client.until_seen(operation_id, lambda _: bool(home.rows("SELECT 1 FROM pauses")))
            assert await daemon.stop(signal.SIGKILL) == -signal.SIGKILL
        asked_at = gate.arrivals[-1].at
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            ready_at = SystemClock().now()
            # ... which is also asked for a new job.
            other = await client.started()
            bodies = [await client.end_of(operation_id), await client.end_of(other)]
            assert await daemon.stop() == 0

    # Then it was up long before the time had come, kept still, and then both went on.
    assert ready_at - asked_at < (ASKED - 1) * 1_000
    later = [arrival.at - asked_at for arrival in gate.arrivals if arrival.at > asked_at]
    assert min(later) >= ASKED * 1_000
    assert [body["outcome"] for body in bodies] == ["succeeded", "succeeded"]
    assert len(world.truth().jobs) == 2


# ---- a daemon that was down --------------------------------------------------------------------------------------

#: The hurried daemon's seconds in one of ours.
HURRY: Final = 30
#: Jobs whose deadline passes meanwhile: more than twice the four that may be asked about at once.
JOBS: Final = 9
#: How long each read is held, seconds of ours: a whole round of them takes longer than a minute of the daemon's.
HELD: Final = 0.5


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
async def test_story_daemon_that_was_down_past_every_deadline_reads_each_job_first(
    tmp_path: Path, stop: signal.Signals
) -> None:
    """Each job is read once before it is called timed out, also where they have to queue; one had ended meanwhile."""
    home, began_at = settle(tmp_path, base="300ms", cap="600ms"), SystemClock().now()
    world, is_back = World(SCENARIOS["never-ends"], ids=SystemDice().identifier, speed=10), asyncio.Event()

    async def slow_once_back(arrival: Arrival) -> None:
        if is_back.is_set() and arrival.method == "GET":
            await asyncio.sleep(HELD)

    gate = Gate(slow_once_back)
    arguments = ("tests.stories.seamed", "--config", str(home.config), "--clock-speed", str(HURRY))
    clock = ("--clock-from", str(began_at))
    async with behind_a_gate(home, world, gate), client_of(home) as client:
        # Given jobs that never end and one that will, each to be given up after three minutes of the daemon's time.
        async with acting(home, *arguments, *clock) as daemon:
            await client.until_ready(daemon)
            never = [await client.started(result_within="180s") for _ in range(JOBS)]
            ending = await client.started(scenario="lost-webhook", result_within="180s")
            for operation_id in (*never, ending):
                await client.until(operation_id, lambda body: body["state"] == "observing")
            # When it is down until all these deadlines are more than a minute past.
            await daemon.stop(stop)
        (last,) = home.rows("SELECT max(deadline_at) AS at FROM schedule")
        passed_at = began_at + (last["at"] + 61_000 - began_at) / HURRY
        await asyncio.sleep(max(0, passed_at - SystemClock().now()) / 1_000)
        is_back.set()
        reads_before = len(gate.arrivals)
        async with acting(home, *arguments, *clock) as daemon:
            await client.until_ready(daemon)
            # New work wakes it while all it may ask at once is under way: no reason to look at the rest less.
            await client.started(scenario="normal")
            bodies = [await client.end_of(operation_id) for operation_id in never]
            ended = await client.end_of(ending)
            assert await daemon.stop() == 0

    # Then each was read after the start and before it was called timed out ...
    assert {body["state"] for body in bodies} == {"result_timed_out"}
    moved = {
        row["remote_job_id"]: began_at + (row["at"] - began_at) / HURRY
        for row in home.rows("SELECT remote_job_id, at FROM history WHERE to_state = 'result_timed_out'")
    }
    for body in bodies:
        job_id = body["remote_job_id"]
        reads = [arrival.at for arrival in gate.arrivals[reads_before:] if arrival.is_read_of(job_id)]
        assert len(reads) == 1, (job_id, reads)
        assert reads[0] <= moved[job_id]
    # ... and the one that had ended meanwhile is a success, though it was late to be seen.
    assert (ended["outcome"], ended["summary"]["succeeded"]) == ("succeeded", 5)

"""The spec's stories on the real daemon in virtual time: told whole, killed at every point, and on a bad network.

Each world is checked against every invariant after each crash and at its end. An end other than the right one is
allowed in one case only: the process died (or the request was lost) between the send mark and the create's answer,
and the provider has no job. Then nobody can know, and a person is asked.
"""

import asyncio
import dataclasses
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest

from daemon.standin.scenarios import Scenario, find_scenario
from tests.simulation.inline_sqlite import InlineSqlite, ThreadedSqlite
from tests.simulation.invariants import check
from tests.simulation.seams import SeededDice
from tests.simulation.transports import LOST_ANSWER, LOST_REQUEST, REFUSED, Fault
from tests.simulation.view import load
from tests.simulation.world import DAEMON, PROVIDER, CrashPoint, Edge, Opener, Process, SimWorld

OUTCOMES: Final = {
    "normal": "succeeded",
    "lost-webhook": "succeeded",
    "duplicate-webhook": "succeeded",
    "partial-failure": "completed_with_errors",
}
SCENARIOS: Final = tuple(OUTCOMES)
#: The webhook runs ahead of the create's answer: the job takes no time, its maker is told of it three seconds later.
HASTY: Final = dataclasses.replace(find_scenario("normal"), name="hasty", duration_ms=0, create_answer_after_ms=3_000)
CREATE: Final = b"POST /v1/batches "


def judge(world: SimWorld, outcome: str, *, sent_in_the_dark: bool = False) -> str:
    """The end of a finished world, once it is an allowed one."""
    assert check(world, at_the_end=True) == []
    state = str(world.client.body["state"])
    assert [words for words in world.client.surprises if "503" not in words] == []
    if state == "create_unresolved":
        assert sent_in_the_dark
        assert world.provider.truth().jobs == ()
        assert world.client.body["attention"]["reason"] == "create_unresolved"
        return state
    assert state == outcome
    if "create_unknown" in [row["to_state"] for row in history(world)]:
        return f"{state}, found again"
    return state


def history(world: SimWorld) -> list[dict[str, object]]:
    """The rows of the one operation."""
    view = load(world)
    return view.history[view.operations[0]["key"]]


def died_in_the_dark(world: SimWorld) -> bool:
    """Whether the last life left a create that may have been sent, and no answer to it."""
    view = load(world)
    return any(
        op["state"] == "create_unknown"
        or (op["state"] == "create_pending" and view.schedule[op["key"]]["mark_at"] is not None)
        for op in view.operations
    )


def told(
    folder: Path,
    points: Iterable[CrashPoint],
    scenario: str | Scenario = "normal",
    *,
    seed: int = 1,
    outcome: str = "succeeded",
) -> str:
    """One world with a crash at each of `points`, one life after another, and then a life to the end."""
    world = SimWorld(folder / "world", seed, scenario=scenario)
    in_the_dark = False
    for point in points:
        if world.live(point).ended:
            break
        assert check(world, at_the_end=False) == []
        in_the_dark = in_the_dark or (world.database.exists() and died_in_the_dark(world))
    if not world.lives or not world.lives[-1].ended:
        world.live()
    end = judge(world, outcome, sent_in_the_dark=in_the_dark)
    shutil.rmtree(folder / "world")
    return end


def swept(
    folder: Path, points: Iterable[CrashPoint], scenario: str | Scenario = "normal", *, outcome: str = "succeeded"
) -> Counter[str]:
    """A world for each point; how they ended."""
    ends: Counter[str] = Counter()
    for point in points:
        try:
            ends[told(folder, [point], scenario, outcome=outcome)] += 1
        except AssertionError as error:
            error.add_note(f"killed at {point}")
            raise
    return ends


def length(folder: Path, scenario: str | Scenario) -> tuple[int, int, int]:
    """Steps, commits and file steps of a life without a crash."""
    world = SimWorld(folder / "measured", scenario=scenario)
    life = world.live()
    shutil.rmtree(folder / "measured")
    return life.steps, life.commits, life.file_steps


# -- told whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_story(folder: Path, scenario: str) -> None:
    """Each comes to its right end, by the road that its provider leaves open."""
    world = SimWorld(folder, scenario=scenario)
    life = world.live()
    assert judge(world, OUTCOMES[scenario]) == OUTCOMES[scenario]
    assert world.time < 60
    rung = any("rang" in str(row["reason"]) for row in history(world))
    assert rung == (scenario != "lost-webhook")
    taken = {"lost-webhook": 0, "duplicate-webhook": 2}.get(scenario, 1)
    assert len(world.provider.acks) == taken
    assert [(row["event_id"], row["duplicates"]) for row in load(world).events] == [
        (ack.event_id, taken - 1) for ack in world.provider.acks[:1]
    ]
    print(f"{scenario}: {life.steps} steps, {life.commits} commits, {life.file_steps} file steps, {world.time:.1f} s")


# -- killed at every point ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_story_killed_after_any_step(folder: Path, scenario: str) -> None:
    steps, _, _ = length(folder, scenario)
    points = [CrashPoint(step=step) for step in range(steps)]
    ends = swept(folder, points, scenario, outcome=OUTCOMES[scenario])
    assert ends["create_unresolved"] > 0
    assert ends[f"{OUTCOMES[scenario]}, found again"] > 0
    assert ends[OUTCOMES[scenario]] > len(points) // 2
    print(f"{scenario}: killed after each of {steps} steps, {2 * len(points)} lives: {dict(ends)}")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_story_killed_at_both_edges_of_any_commit(folder: Path, scenario: str) -> None:
    _, commits, _ = length(folder, scenario)
    edges: tuple[Edge, ...] = ("before", "after")
    points = [CrashPoint(commit=(n, edge)) for n in range(1, commits + 1) for edge in edges]
    ends = swept(folder, points, scenario, outcome=OUTCOMES[scenario])
    assert ends["create_unresolved"] > 0
    assert ends[f"{OUTCOMES[scenario]}, found again"] > 0
    print(f"{scenario}: killed at {len(points)} edges of {commits} commits, {2 * len(points)} lives: {dict(ends)}")


@pytest.mark.parametrize("edge", ["lost", "kept"])
def test_story_whose_commit_ends_in_an_io_error(folder: Path, edge: Edge) -> None:
    """N33: the outcome of that commit is unknown, so the process ends and the next one goes by the file."""
    _, commits, _ = length(folder, "partial-failure")
    points = [CrashPoint(commit=(n, edge)) for n in range(1, commits + 1)]
    ends = swept(folder, points, "partial-failure", outcome="completed_with_errors")
    print(f"an I/O error at each of {commits} commits, {edge}: {dict(ends)}")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_story_killed_at_any_step_of_a_file(folder: Path, scenario: str) -> None:
    _, _, file_steps = length(folder, scenario)
    points = [CrashPoint(file_step=n) for n in range(1, file_steps + 1)]
    ends = swept(folder, points, scenario, outcome=OUTCOMES[scenario])
    assert ends == {OUTCOMES[scenario]: file_steps}
    print(f"{scenario}: killed at {file_steps} file steps, {2 * len(points)} lives")


@pytest.mark.parametrize("seed", range(40))
def test_story_killed_twice_in_a_row(folder: Path, seed: int) -> None:
    """The second time while the first is being recovered from, or later."""
    dice = SeededDice(f"twice/{seed}")
    scenario = SCENARIOS[seed % len(SCENARIOS)]
    points = [CrashPoint(step=int(dice.draw() * 320)), CrashPoint(step=int(dice.draw() ** 2 * 250))]
    told(folder, points, scenario, seed=seed, outcome=OUTCOMES[scenario])


# -- on a bad network --------------------------------------------------------------------------------------------------


def once(where: str, begins: bytes, fault: Fault) -> Callable[[str, bytes], Fault | None]:
    """The first request to `where` that begins so."""
    left = [fault]

    def befalls(host: str, head: bytes) -> Fault | None:
        return left.pop() if left and host == where and head.startswith(begins) else None

    return befalls


@pytest.mark.parametrize(
    "fault",
    [
        LOST_ANSWER,
        Fault(answer_bytes=40),
        Fault(answer_bytes=400),
        Fault(answer_bytes=400, reset=True),
        Fault(answer_delay=90),
    ],
    ids=["lost", "cut in its head", "cut in its body", "reset in its body", "later than the time-out"],
)
@pytest.mark.parametrize("scenario", ["normal", "lost-webhook"])
def test_a_create_whose_answer_is_lost_is_found_again_and_not_sent_twice(
    folder: Path, scenario: str, fault: Fault
) -> None:
    world = SimWorld(folder, scenario=scenario)
    world.faults = once(PROVIDER, CREATE, fault)
    world.live()
    assert judge(world, "succeeded") == "succeeded, found again"
    assert len(world.provider.log.creates) == 1


def test_a_create_that_never_arrived_becomes_a_question_and_is_not_sent_again(folder: Path) -> None:
    world = SimWorld(folder)
    world.faults = once(PROVIDER, CREATE, LOST_REQUEST)
    world.live()
    assert judge(world, "succeeded", sent_in_the_dark=True) == "create_unresolved"
    assert world.provider.log.creates == []


@pytest.mark.parametrize("before", ["the upload", "the create"])
def test_a_refused_connection_leaves_no_open_question(folder: Path, before: str) -> None:
    """Never connected is surely not sent: the same bytes go out once the provider is back."""
    world = SimWorld(folder)
    world.provider.watch.closes_after = frozenset({"/v1/files"})

    def refuses(host: str, head: bytes) -> Fault | None:
        is_out = before == "the upload" or bool(world.provider.log.uploads)
        is_down = world.lives[-1].commits < 14
        return REFUSED if host == PROVIDER and head == b"" and is_out and is_down else None

    world.faults = refuses
    world.live()
    assert judge(world, "succeeded") == "succeeded"
    assert len(world.provider.log.creates) == 1
    assert world.time > 4
    reasons = [str(row["reason"]) for row in history(world) if "not accepted" in str(row["reason"])]
    assert reasons
    assert all("(connect)" in reason for reason in reasons)


@pytest.mark.parametrize("at", [60, 250, 600])
def test_each_answer_of_the_provider_is_cut_once(folder: Path, at: int) -> None:
    world = SimWorld(folder, scenario="partial-failure")
    cut: set[bytes] = set()

    def cuts(host: str, head: bytes) -> Fault | None:
        line = head.partition(b"\r\n")[0]
        if host != PROVIDER or not head or line in cut:
            return None
        cut.add(line)
        return Fault(answer_bytes=at)

    world.faults = cuts
    world.live()
    judge(world, "completed_with_errors")
    assert len(cut) >= 5


def test_a_start_whose_answer_is_lost_is_asked_again_and_made_once(folder: Path) -> None:
    world = SimWorld(folder)
    world.faults = once(DAEMON, b"POST /v1/operations ", LOST_ANSWER)
    world.live()
    assert judge(world, "succeeded") == "succeeded"
    assert len(world.client.started) == 1


def test_a_webhook_that_comes_before_the_create_is_answered_is_kept_and_applied(folder: Path) -> None:
    world = SimWorld(folder, scenario=HASTY)
    life = world.live()
    assert judge(world, "succeeded") == "succeeded"
    assert [row["disposition"] for row in load(world).events] == ["rings"]
    assert len(world.provider.acks) == 1
    received = load(world).events[0]["received_at"]
    accepted = next(row["at"] for row in history(world) if row["to_state"] == "accepted")
    assert received < accepted
    ends = swept(folder, [CrashPoint(step=step) for step in range(0, life.steps, 3)], HASTY)
    assert ends["succeeded, found again"] > 5
    print(f"a webhook before the create's answer: {dict(ends)}")


@pytest.mark.parametrize("seed", range(24))
def test_story_on_a_network_that_fails_at_random(folder: Path, seed: int) -> None:
    """A quarter of all that anybody sends is refused, lost, cut or late, and the process is killed once."""
    dice = SeededDice(f"network/{seed}")
    scenario = SCENARIOS[seed % len(SCENARIOS)]
    world = SimWorld(folder, seed, scenario=scenario)
    menu = [
        REFUSED,
        LOST_REQUEST,
        LOST_ANSWER,
        Fault(answer_bytes=30),
        Fault(answer_bytes=350),
        Fault(answer_delay=70),
        Fault(request_delay=8),
        Fault(request_bytes=50),
    ]
    in_the_dark = False
    left = 40

    def befalls(host: str, head: bytes) -> Fault | None:
        nonlocal left, in_the_dark
        if left == 0 or dice.draw() > 0.25:
            return None
        left -= 1
        fault = menu[int(dice.draw() * len(menu))]
        in_the_dark = in_the_dark or head.startswith(CREATE)
        return fault

    world.faults = befalls
    if not world.live(CrashPoint(step=int(dice.draw() * 400))).ended:
        assert check(world, at_the_end=False) == []
        in_the_dark = in_the_dark or (world.database.exists() and died_in_the_dark(world))
        world.live()
    if never_sent(world):
        assert check(world, at_the_end=True) == []
        return
    judge(world, OUTCOMES[scenario], sent_in_the_dark=in_the_dark)


def never_sent(world: SimWorld) -> bool:
    """Two uploads that hang for a minute each outlast the create deadline: then no create ever left."""
    error = world.client.body.get("error") or {}
    return error.get("code") == "never_sent" and not world.provider.log.creates


# -- the same again ----------------------------------------------------------------------------------------------------


def digest(folder: Path, seed: int, *, opener: Opener = InlineSqlite) -> str:
    """Of a world with two scenarios' worth of trouble: a lost answer, a crash, a second life."""
    world = SimWorld(folder, seed, scenario="duplicate-webhook")
    world.faults = once(PROVIDER, CREATE, LOST_ANSWER)
    assert not world.live(CrashPoint(step=120 + seed), opener=opener).ended
    assert world.live(opener=opener).ended
    assert check(world, at_the_end=True) == []
    return world.digest()


def test_the_same_seed_tells_the_same_story(folder: Path) -> None:
    first = digest(folder / "a", 7)
    assert digest(folder / "b", 7) == first
    assert digest(folder / "c", 8) != first
    assert digest(folder / "d", 7, opener=ThreadedSqlite) == first
    script = (
        "import pathlib, sys; from tests.simulation.test_stories import digest; "
        "print(digest(pathlib.Path(sys.argv[1]), 7))"
    )
    for hash_seed in ("0", "4242"):
        printed = subprocess.run(
            [sys.executable, "-W", "error", "-c", script, str(folder / hash_seed)],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        )
        assert (printed.stdout.strip(), printed.stderr) == (first, "")


def test_a_stop_in_order_at_any_time_loses_nothing(folder: Path) -> None:
    """N42, without the signal: running actions end or are told of, and the next start goes on."""
    for number, seconds in enumerate((0.0, 0.001, 1.0, 2.9, 4.0, 4.001)):
        world = SimWorld(folder / str(number))

        async def stops(process: Process, seconds: float = seconds) -> None:
            async with process.client_session() as session:
                waiting = process.supervisor.start("client", process.world.client.run(session))
                await asyncio.wait({waiting}, timeout=seconds)
                waiting.cancel()
                await asyncio.wait({waiting})

        life = world.live(until=stops)
        assert life.ended
        assert life.troubles == []
        assert check(world, at_the_end=False) == []
        world.live()
        assert judge(world, "succeeded") == "succeeded"

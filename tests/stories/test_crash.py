"""SIGKILL of the real process at both edges of every commit of a job's story: one that goes well, one whose create is
taken but never answered, and one that is cancelled.

A first run lists the story's commits by number (see victim.py for what counts as one). Then the daemon is killed at
each of them, just before COMMIT and just after it, another one is started on the same file, the client repeats its
start where it never got an answer, and the job must end once, and right. The same for each step in which a file is
written, and for a second kill in the recovery from the first.
"""

import asyncio
import json
import signal
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from daemon.runtime import SystemDice
from daemon.standin.openai_bodies import Body
from daemon.standin.scenarios import Scenario
from daemon.standin.truth import Truth
from daemon.standin.world import World
from tests.stories.ledger import violations
from tests.stories.stage import ITEMS, Client, Home, acting, client_of, moves, provider, serving, settle

KEY: Final = "the-key-of-the-story"
#: The job takes 400 ms, and a refused webhook is tried again after 250 ms, 500 ms, ...: well before the first unasked
#: read (1 s), so that the webhook rings in every run that is not disturbed.
SPEED: Final = 20
SCENARIO: Final = Scenario("normal", "Every item succeeds and one webhook announces the end.", duration_ms=8_000)
LOST: Final = replace(SCENARIO, name="lost-create-response", create_faults=("lost",))
#: It would never end; two of its five items run at once, then the client asks for its cancel.
CANCELLED: Final = replace(SCENARIO, name="cancelled", ends=None, run_share=0.5, duration_ms=20, cancel_ms=1_000)
#: Longer than a restart may take, or a cancel that was sent would go unconfirmed.
CANCEL_WITHIN: Final = "8s"
#: The word of the first commit after which the file says what became of the create.
ANSWERED: Final = {"normal": "accepted", "lost-create-response": "create_unknown", "cancelled": "accepted"}
#: Longer than a restart may take, or a create that never left would fail; what is lost for good shows only after it.
CREATE_WITHIN: Final = "12s"
#: Runs at the same time.
AT_ONCE: Final = 3
#: Rounds of kills; the second and third only for those that timing led astray.
TRIES: Final = 3
EDGES: Final = ("before", "after")


@dataclass(frozen=True, order=True)
class Kill:
    """Where a process kills itself; commit 0: nowhere. With the edge "file", `commit` counts steps of files."""

    commit: int
    edge: str = "before"

    @property
    def kept(self) -> int:
        """The last commit that is in the file."""
        return self.commit if self.edge == "after" else self.commit - 1


NOWHERE: Final = Kill(0)


@dataclass(slots=True)
class Run:
    """One run of the story, and all that was seen of it."""

    kills: tuple[Kill, ...]
    scenario: Scenario = SCENARIO
    #: For each process that was to be killed: the commits and file steps it listed, and whether it was killed.
    commits: list[list[dict[str, Any]]] = field(default_factory=list)
    file_steps: list[list[dict[str, Any]]] = field(default_factory=list)
    killed: list[bool] = field(default_factory=list)
    body: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    result: bytes = b""
    truth: Truth | None = None
    faults: list[str] = field(default_factory=list)
    seconds: float = 0

    @property
    def end(self) -> str:
        """The outcome, or why a person is needed."""
        return str(self.body["outcome"] or self.body["attention"]["reason"])


class Witness(World):
    """A provider that looks into the file whenever a create arrives (N1): the row must stand there before."""

    def __init__(self, home: Home, scenario: Scenario) -> None:
        super().__init__(scenario, ids=SystemDice().identifier, speed=SPEED)
        self._home = home
        self.faults: list[str] = []

    def create(self, body: object, now_ms: int) -> Body:
        """Make the batch, and note it if no send mark for it was committed."""
        asked: Any = body
        name = asked["metadata"]["reconciled_operation"]
        sql = "SELECT s.mark_at FROM operations o JOIN schedule s ON s.key = o.key WHERE o.operation_id = ?"
        rows = self._home.rows(sql, name)
        if not rows or rows[0]["mark_at"] is None:
            self.faults.append(f"a create arrived for {name}, and the file held {rows}")
        return super().create(body, now_ms)


# ---- one run -----------------------------------------------------------------------------------------------------


async def run_story(folder: Path, *kills: Kill, scenario: Scenario = SCENARIO) -> Run:
    """The story with each of `kills` in turn, a process for each, and one more that is left alone."""
    home, began = settle(folder), time.monotonic()
    world, accepted, run = Witness(home, scenario), set[str](), Run(kills, scenario)
    async with provider(home, world), client_of(home) as client:
        for kill in kills:
            await _until_killed(home, client, kill, accepted, run)
        async with serving(home) as daemon:
            await client.until_ready(daemon)
            operation_id = await _start_unless_known(client, accepted)
            run.body = await _ended(client, operation_id, scenario)
            run.history = await client.history(operation_id)
            if run.body["result_url"]:
                run.result = await client.get(run.body["result_url"])
            if (status := await daemon.stop()) != 0:
                run.faults.append(f"exit status {status} after SIGTERM")
            if "Traceback" in daemon.said:
                run.faults.append(daemon.said)
        run.truth = world.truth()
    if left := list((home.state_dir / "tmp").iterdir()):
        run.faults.append(f"left in tmp/: {left}")
    run.faults += world.faults + violations(home, run.truth, accepted) + _wrong_end(run)
    run.seconds = time.monotonic() - began
    return run


async def _until_killed(home: Home, client: Client, kill: Kill, accepted: set[str], run: Run) -> None:
    """One process that is to be killed, and a client that starts the job and waits for its end."""
    listing = home.folder / f"commits-{len(run.killed)}"
    where = ("--kill-at", str(kill.commit), "--edge", kill.edge, "--commits", str(listing))
    async with acting(home, "tests.stories.victim", "--config", str(home.config), *where) as victim:
        try:
            await client.until_ready(victim)
            await _ended(client, await _start_unless_known(client, accepted), run.scenario)
            status = await victim.stop()
        except aiohttp.ClientError:
            status = await victim.end()
        if status not in (0, -signal.SIGKILL):
            run.faults.append(f"exit status {status}: {victim.said}")
    run.killed.append(status == -signal.SIGKILL)
    lines = _listed(listing)
    run.commits.append([line for line in lines if "number" in line])
    run.file_steps.append([line for line in lines if "file_step" in line])


async def _start_unless_known(client: Client, accepted: set[str]) -> str:
    """Start the job, or repeat the start with its key where no answer came; the operation's id."""
    if not accepted:
        answer = await client.start(KEY, create_within=CREATE_WITHIN, cancel_within=CANCEL_WITHIN)
        assert answer.status in (200, 202), answer
        accepted.add(answer.body["operation_id"])
    (operation_id,) = accepted  # a second one would be a second operation for one key
    return operation_id


async def _ended(client: Client, operation_id: str, scenario: Scenario) -> dict[str, Any]:
    """The operation at its end; where the story has a cancel, that is asked for in each life anew."""
    if scenario is CANCELLED:
        await client.until(
            operation_id, lambda body: body["remote_job_id"] is not None or body["attention"] is not None
        )
        wish = {"by": "ada", "reason": "killed all the time", "effect": "no more items run"}
        answer = await client.call("POST", f"/v1/operations/{operation_id}/cancel", wish)
        assert answer.status in (202, 409), answer  # 409: the job has ended, or nobody knows it
    return await client.end_of(operation_id)


def _listed(listing: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in listing.read_text().splitlines()] if listing.exists() else []


# ---- what must be so ---------------------------------------------------------------------------------------------


def _wrong_end(run: Run) -> list[str]:
    """The end held to the truth: the job's own, or a question where nobody can know of the create or the cancel."""
    assert run.truth is not None
    found = [] if run.truth.creates <= 1 else [f"{run.truth.creates} creates"]
    found += [] if run.truth.cancels <= 1 else [f"{run.truth.cancels} cancels"]
    if run.truth.jobs and run.scenario is CANCELLED:
        return found + _wrong_cancel(run, run.truth)
    if run.truth.jobs:
        return found + _wrong_success(run)
    if run.end != "create_unresolved":
        found.append(f"no job at the provider, and the operation ended as {run.end}")
    return found


def _wrong_cancel(run: Run, truth: Truth) -> list[str]:
    """Cancelled on the provider's word, with what had run; unconfirmed where the cancel never got there."""
    if not truth.cancels:
        return [] if run.end == "cancellation_unconfirmed" else [f"no cancel was sent, and it ended as {run.end}"]
    summary, (job,) = run.body["summary"] or {}, truth.jobs
    counts = (summary.get("succeeded"), summary.get("cancelled"))
    if run.end != "cancelled" or counts != (job.completed, ITEMS - job.completed):
        return [f"the job was cancelled with {job.completed} items done, and it ended as {run.end}: {summary}"]
    return []


def _wrong_success(run: Run) -> list[str]:
    summary, found = run.body["summary"] or {}, []
    if run.body["outcome"] != "succeeded" or summary.get("succeeded") != ITEMS or summary.get("total") != ITEMS:
        found.append(f"the job completed, and the operation ended as {run.end}: {run.body}")
    if moves(run.history).count("succeeded") != 1:
        found.append(f"moves {moves(run.history)}")
    names = [json.loads(line)["custom_id"] for line in run.result.splitlines()]
    if sorted(names) != [f"item-{n}" for n in range(ITEMS)]:
        found.append(f"the collected result holds {names}")
    return found


def _number_of(commits: Sequence[dict[str, Any]], word: str) -> int:
    """The number of the first commit that wrote `word` into the history."""
    numbers: list[int] = [commit["number"] for commit in commits if word in commit["history"]]
    return numbers[0]


def _told(commit: dict[str, Any]) -> str:
    tables = ", ".join(commit["tables"])
    return f"{tables} [{', '.join(commit['history'])}]" if commit["history"] else tables


async def _killed_at(kills: set[Kill], undisturbed: Run, folder: Path) -> tuple[list[Run], set[Kill]]:
    """A run for each kill, and the kills that never came about as listed.

    On a machine that stands still for half a second, a read overtakes the webhook and the numbers shift: such a run
    must end right like any other, but the kill is tried again.
    """
    runs: list[Run] = []
    story, scenario, waiting = undisturbed.commits[0], undisturbed.scenario, kills
    for attempt in range(TRIES):
        fresh = await _at_once(folder / str(attempt), [(kill,) for kill in sorted(waiting)], scenario)
        runs += fresh
        waiting = waiting - {run.kills[0] for run in fresh if _is_as_listed(run, story)}
        if not waiting:
            break
    return runs, waiting


def _is_as_listed(run: Run, story: Sequence[dict[str, Any]]) -> bool:
    """Whether the process died where it should, in the very commit that bears the number in the story."""
    (kill,), (listed,) = run.kills, run.commits
    return run.killed == [True] and list(map(_told, listed)) == list(map(_told, story[: kill.commit]))


async def _at_once(folder: Path, stories: Sequence[tuple[Kill, ...]], scenario: Scenario = SCENARIO) -> list[Run]:
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, kills: tuple[Kill, ...]) -> Run:
        async with places:
            return await run_story(folder / f"run-{number}", *kills, scenario=scenario)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(number, kills)) for number, kills in enumerate(stories)]
    return [task.result() for task in tasks]


# ---- the stories -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run without a kill; its first process is stopped only when all is written."""
    return asyncio.run(_undisturbed(tmp_path_factory.mktemp("listing"), SCENARIO))


async def _undisturbed(folder: Path, scenario: Scenario) -> Run:
    run = await run_story(folder, NOWHERE, scenario=scenario)
    assert run.faults == []
    assert run.end == ("cancelled" if scenario is CANCELLED else "succeeded")
    return run


@pytest.fixture(scope="module")
def story(undisturbed: Run) -> list[dict[str, Any]]:
    """The story's commits by number."""
    return undisturbed.commits[0]


@pytest.mark.parametrize("scenario", [SCENARIO, LOST, CANCELLED], ids=lambda scenario: scenario.name)
async def test_killed_at_each_commit_the_job_still_ends_once_and_right(scenario: Scenario, tmp_path: Path) -> None:
    """No kill at any commit loses an acknowledgement, repeats a create or tells a wrong end."""
    # Given the commits of an undisturbed story, from the start to the collected end.
    undisturbed = await _undisturbed(tmp_path / "listing", scenario)
    story = undisturbed.commits[0]
    assert [commit["number"] for commit in story] == list(range(1, len(story) + 1))
    # First the file learns which providers there are, then of the job.
    assert (list(story[0]["tables"]), story[0]["history"]) == (["providers"], [])
    assert story[1]["history"] == ["create_pending"]
    assert [commit["history"] for commit in story if commit["history"]][-1] == [undisturbed.end]
    # At its stop it signs what was written.
    assert [list(commit["tables"]) for commit in story[-2:]] == [["heads"], ["checkpoints"]]
    marked, answered = _number_of(story, "fact"), _number_of(story, ANSWERED[scenario.name])

    # When the process is killed at both edges of each of them.
    kills = {Kill(commit["number"], edge) for commit in story for edge in EDGES}
    runs, missing = await _killed_at(kills, undisturbed, tmp_path)

    # Then every run ended right; a person is asked exactly where the mark was kept and no create ever left.
    for run in sorted(runs, key=lambda run: (run.kills[0].commit, run.kills[0].edge == "after")):
        (kill,) = run.kills
        print(f"{kill.commit:3} {kill.edge:6} {run.end:18} {run.seconds:5.1f} s  {_told(story[kill.commit - 1])}")
    assert [(run.kills, fault) for run in runs for fault in run.faults] == []
    unresolved = {run.kills[0] for run in runs if run.end == "create_unresolved"}
    assert unresolved
    assert all(marked <= kill.kept < answered for kill in unresolved), unresolved
    unconfirmed = {run.kills[0] for run in runs if run.end == "cancellation_unconfirmed"}
    assert bool(unconfirmed) == (scenario is CANCELLED)
    for kill in unconfirmed:
        # The intent stands, its mark was committed with the claim that follows, and no answer was.
        assert _number_of(story, "cancel_requested") < kill.kept < _number_of(story, "cancelling")
    # ... and no commit of the story was left out.
    assert missing == set()


async def test_killed_again_at_the_first_commit_of_the_recovery_it_still_ends_right(
    story: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Two crashes in a row: what the first restart did or did not write harms the second as little."""
    answered = _number_of(story, "accepted")
    numbers = [commit["number"] for commit in story[:-1]]

    runs = await _at_once(tmp_path, [(Kill(n, "after"), Kill(1, EDGES[n % 2])) for n in numbers])

    for run in sorted(runs, key=lambda run: run.kills):
        first, again = run.kills
        told = _told(run.commits[1][0])
        print(f"{first.commit:3} {first.edge:6} then {again.edge:6} {run.end:18} {run.seconds:5.1f} s  {told}")
    assert [(run.kills, fault) for run in runs for fault in run.faults] == []
    assert all(all(run.killed) for run in runs)
    assert all(run.kills[0].kept < answered for run in runs if run.end == "create_unresolved")


async def test_killed_at_each_step_of_a_file_the_job_still_ends_once_and_right(
    undisturbed: Run, tmp_path: Path
) -> None:
    """A half-written key signs nothing, a half-written input is never sent, a half-written result is never served, and
    nothing stays in tmp/.
    """
    steps = undisturbed.file_steps[0]
    assert [step["step"] for step in steps] == ["create", "fsync", "rename", "fsync directory"] * 3, steps

    runs = await _at_once(tmp_path, [(Kill(step["file_step"], "file"),) for step in steps])

    for run, step in zip(runs, steps, strict=True):
        print(f"{step['file_step']:3} before {step['step']:16} {run.end:18} {run.seconds:5.1f} s")
    assert [(run.kills, fault) for run in runs for fault in run.faults] == []
    assert [run.end for run in runs] == ["succeeded"] * len(steps)
    assert [run.killed for run in runs] == [[True]] * len(steps)


def test_the_ledger_sees_what_is_wrong(tmp_path: Path) -> None:
    """A check that cannot fail proves nothing: what is wrong with a file that was good is named, each."""
    run = asyncio.run(run_story(tmp_path, NOWHERE))
    assert run.truth is not None
    home = Home(tmp_path)
    with closing(sqlite3.connect(home.database)) as connection:
        connection.execute("DROP TRIGGER history_is_never_changed")
        connection.execute("UPDATE history SET reason = 'another' WHERE seq = 2")
        connection.execute("DELETE FROM events")
        connection.execute("UPDATE operations SET remote_job_id = 'batch_of_somebody_else'")
        connection.commit()

    found = " / ".join(violations(home, run.truth, {"op_nobody_has"}))

    assert "its hash does not fit" in found
    assert "but in the file 0 times" in found
    assert "holds batch_of_somebody_else" in found
    assert "not in the file: op_nobody_has" in found

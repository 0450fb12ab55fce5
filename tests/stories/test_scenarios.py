"""Every scenario of the stand-in in both of its shapes, through `reconciled serve` and `reconciled simulate`.

Two processes play all of them at once, since a job names its own scenario; each test looks at one. What must come of
each is typed by hand from requirements.md and design.md. The one that needs two minutes of wall time (a job that is
gone is believed to be gone only then) has a daemon whose clock is hurried.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from daemon.standin.scenarios import SCENARIOS
from tests.stories.ledger import faults_in_file
from tests.stories.stage import Client, Home, acting, client_of, moves, playing, settle, simulating
from tests.stories.work import MESSAGES, STANDIN

#: Jobs take a tenth of what their scenario says: 400 ms at the least, which is longer than a look-up takes to come.
SPEED: Final = 10
#: How often the hurried daemon's clock ticks while ours ticks once: two minutes in four seconds.
HURRY: Final = 30
ITEMS: Final = 5
#: Its 429 and 503 pause the whole provider, so it is played when the short stories have been seen.
PAUSES_ALL: Final = "flaky"
SHORT: Final = "unknown-status"
#: The only states that a look-up may pass over: whether it comes before the job's end is a matter of timing.
PASSED_OVER: Final = frozenset({"observing"})

ACCEPTED: Final = ("create_pending", "accepted", "observing")
COLLECTED: Final = (*ACCEPTED, "result_collecting")
FOUND_AGAIN: Final = ("create_pending", "create_unknown", "accepted", "observing", "result_collecting", "succeeded")
NOT_FOUND: Final = ("create_pending", "create_unknown", "create_unresolved")
#: A create that was never answered.
LOST: Final = None


@dataclass(frozen=True)
class Script:
    """One scenario at one provider, and what must come of it."""

    provider: str
    scenario: str
    #: The states it goes through; the last is the end, or the question.
    walk: tuple[str, ...]
    #: Of a question: its reason.
    reason: str | None = None
    #: Item counts that are not 0, next to `total`; None: there is no summary.
    counts: dict[str, int] | None = None
    #: The answers to our creates, in order.
    creates: tuple[int | None, ...] = (200,)
    #: How many jobs the provider made for it.
    jobs: int = 1
    items: int = ITEMS
    #: What else the start says.
    asks: dict[str, Any] = field(default_factory=dict)
    #: Whether a cancel is asked for, once the job has run for a while.
    is_cancelled: bool = False

    def __str__(self) -> str:
        return f"{self.provider}-{self.scenario}" + ("-cancelled" if self.is_cancelled else "")


def succeeds(provider: str, *scenarios: str) -> tuple[Script, ...]:
    """Scenarios in which all goes well in the end, by the straight road."""
    return tuple(
        Script(provider, scenario, (*COLLECTED, "succeeded"), counts={"succeeded": ITEMS}) for scenario in scenarios
    )


#: A cancel that the provider accepted, and its word for the end.
CANCELLING: Final = (*ACCEPTED, "cancel_requested", "cancelling", "result_collecting")


def cancelled(provider: str) -> tuple[Script, ...]:
    """A cancel that ends the job with two of its five items done, and one that comes to nothing (E2, E4)."""
    counts = {"succeeded": 2, "cancelled": 3}
    return (
        Script(provider, "never-ends", (*CANCELLING, "cancelled"), counts=counts, is_cancelled=True),
        Script(provider, "cancel-race", (*CANCELLING, "succeeded"), counts={"succeeded": ITEMS}, is_cancelled=True),
    )


def never_made(provider: str) -> Script:
    """A create that never arrived: not being found proves nothing, so a person is asked, and nothing is sent (B2)."""
    return Script(
        provider,
        "lost-create-request",
        NOT_FOUND,
        reason="create_unresolved",
        creates=(LOST,),
        jobs=0,
        items=9,
        asks={"create_within": "4s"},
    )


#: In these a job goes the same way whatever shape the provider has.
STRAIGHT: Final = (
    "normal",
    "slow",
    "lost-webhook",
    "duplicate-webhook",
    "early-webhook",
    "unknown-status",
    "slow-list",
)
SCRIPTS: Final = (
    *succeeds(STANDIN, *STRAIGHT),
    *cancelled(STANDIN),
    Script(STANDIN, "lost-create-response", FOUND_AGAIN, counts={"succeeded": ITEMS}, creates=(LOST,)),
    never_made(STANDIN),
    Script(STANDIN, "flaky", FOUND_AGAIN, counts={"succeeded": ITEMS}, creates=(429, 503)),
    Script(
        STANDIN,
        "partial-failure",
        (*COLLECTED, "completed_with_errors"),
        counts={"succeeded": 6, "failed": 2},
        items=8,
    ),
    Script(STANDIN, "all-failed", (*COLLECTED, "failed"), counts={"failed": ITEMS}),
    # A batch that failed as a whole has no results; every item that was sent counts as failed (interface: `summary`).
    Script(STANDIN, "late-failure", (*ACCEPTED, "failed"), counts={"failed": ITEMS}),
    Script(
        STANDIN,
        "expired-with-partial-results",
        (*COLLECTED, "completed_with_errors"),
        counts={"succeeded": 3, "expired": 2},
    ),
    Script(
        STANDIN, "never-ends", (*ACCEPTED, "result_timed_out"), reason="result_timed_out", asks={"result_within": "3s"}
    ),
    *succeeds(MESSAGES, *STRAIGHT),
    *cancelled(MESSAGES),
    never_made(MESSAGES),
    # No batch bears a mark of ours there, so a lost create is a question with its candidate, never another create (B2).
    Script(
        MESSAGES,
        "lost-create-response",
        NOT_FOUND,
        reason="create_unresolved",
        creates=(LOST,),
        items=6,
        asks={"create_within": "4s"},
    ),
    Script(
        MESSAGES,
        "flaky",
        NOT_FOUND,
        reason="create_unresolved",
        creates=(429, 529),
        items=7,
        asks={"create_within": "8s"},
    ),
    Script(
        MESSAGES,
        "partial-failure",
        (*COLLECTED, "completed_with_errors"),
        counts={"succeeded": 6, "failed": 2},
        items=8,
    ),
    Script(MESSAGES, "all-failed", (*COLLECTED, "failed"), counts={"failed": ITEMS}),
    # This provider has one word for every end: only the results tell that all requests were errored.
    Script(MESSAGES, "late-failure", (*COLLECTED, "failed"), counts={"failed": ITEMS}),
    Script(
        MESSAGES,
        "expired-with-partial-results",
        (*COLLECTED, "completed_with_errors"),
        counts={"succeeded": 3, "expired": 2},
    ),
    Script(
        MESSAGES, "never-ends", (*ACCEPTED, "result_timed_out"), reason="result_timed_out", asks={"result_within": "3s"}
    ),
)
FORGOTTEN: Final = tuple(
    Script(provider, "forgets-the-job", (*ACCEPTED, "observation_failed"), reason="gone")
    for provider in (STANDIN, MESSAGES)
)
COUNTED: Final = ("succeeded", "failed", "cancelled", "expired", "missing")
#: Of the states at the end of a walk, those that no person is asked about.
ENDS: Final = frozenset({"succeeded", "completed_with_errors", "failed", "cancelled"})


@dataclass(frozen=True)
class Told:
    """What came of one script."""

    body: dict[str, Any]
    history: list[dict[str, Any]]
    observations: list[dict[str, Any]]
    creates: tuple[int | None, ...]


@dataclass(frozen=True)
class Play:
    """What came of all, and what the provider shows of its jobs: id and number of items, by provider."""

    told: dict[str, Told]
    jobs: dict[str, dict[str, int]]
    faults: list[str]


# ---- playing -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """All scripts at once."""
    home = settle(tmp_path_factory.mktemp("all"), base="300ms", cap="600ms", messages="127.0.0.1")
    return asyncio.run(_played(home, SCRIPTS, _together(home)))


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """The scripts that need two minutes, by a daemon whose clock makes them four seconds."""
    home = settle(tmp_path_factory.mktemp("hurried"), base="300ms", cap="600ms", messages="127.0.0.1")
    return asyncio.run(_played(home, FORGOTTEN, _hurried(home)))


@asynccontextmanager
async def _together(home: Home) -> AsyncIterator[tuple[Any, Client]]:
    async with playing(home, speed=SPEED) as actors:
        yield actors


@asynccontextmanager
async def _hurried(home: Home) -> AsyncIterator[tuple[Any, Client]]:
    async with (
        simulating(home, speed=SPEED) as simulation,
        acting(home, "tests.stories.seamed", "--config", str(home.config), "--clock-speed", str(HURRY)) as daemon,
        client_of(home) as client,
    ):
        await client.until_ready(daemon)
        await client.until_provider_answers(simulation)
        yield daemon, client


async def _played(home: Home, scripts: tuple[Script, ...], stage: Any) -> Play:
    async with stage as (daemon, client):
        tasks: dict[str, asyncio.Task[Told]] = {}
        async with asyncio.TaskGroup() as group:
            for script in sorted(scripts, key=lambda script: script.scenario == PAUSES_ALL):
                first = tasks.get(f"{script.provider}-{SHORT}") if script.scenario == PAUSES_ALL else None
                tasks[str(script)] = group.create_task(_told(home, client, script, first))
        jobs = {STANDIN: await _batches(client), MESSAGES: await _message_batches(client)}
        status = await daemon.stop()
        faults = [] if status == 0 and "Traceback" not in daemon.said else [f"exit status {status}: {daemon.said}"]
    return Play({name: task.result() for name, task in tasks.items()}, jobs, faults + faults_in_file(home))


async def _told(home: Home, client: Client, script: Script, first: asyncio.Task[Told] | None) -> Told:
    """Play one script, after `first` where there is one."""
    if first is not None:
        await asyncio.wait({first})
    started = await client.started(
        scenario=script.scenario, provider=script.provider, items=script.items, **script.asks
    )
    if script.is_cancelled:
        await client.until_seen(started, lambda body: body["elapsed_seconds"] >= 1)
        why = {"by": "ada", "reason": "as the script says", "effect": "no more items run"}
        answer = await client.call("POST", f"/v1/operations/{started}/cancel", why)
        assert answer.status == 202, answer
    body = await client.end_of(started)
    creates = home.rows(
        "SELECT status FROM requests JOIN operations ON key = operation_key"
        " WHERE operation_id = ? AND purpose = 'create' ORDER BY sent_at",
        started,
    )
    observations = await client.get(f"/v1/operations/{started}/observations?limit=500")
    return Told(
        body,
        await client.history(started),
        observations["observations"],
        tuple(row["status"] for row in creates),
    )


async def _batches(client: Client) -> dict[str, int]:
    page = await client.of_provider("batches?limit=100")
    return {job["id"]: job["request_counts"]["total"] for job in page["data"]}


async def _message_batches(client: Client) -> dict[str, int]:
    page = await client.of_provider("messages/batches?limit=1000")
    return {job["id"]: sum(job["request_counts"].values()) for job in page["data"]}


# ---- what must be so ---------------------------------------------------------------------------------------------


def test_no_scenario_is_left_out() -> None:
    """Each of the stand-in's scenarios is played in both shapes."""
    played = {(script.provider, script.scenario) for script in (*SCRIPTS, *FORGOTTEN)}
    assert played == {(provider, name) for provider in (STANDIN, MESSAGES) for name in SCENARIOS}


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_the_scenario_comes_to_the_end_that_it_must(play: Play, script: Script) -> None:
    """Its end or question, its counts, its walk, and no create more than the provider asked for."""
    _hold_to(script, play)


@pytest.mark.parametrize("script", FORGOTTEN, ids=str)
def test_a_job_that_the_provider_forgets_is_given_to_a_person(hurried: Play, script: Script) -> None:
    """A whole run of 404 over two minutes: a question, never a failure of the job (F15, design: gone run)."""
    _hold_to(script, hurried)
    told = hurried.told[str(script)]
    assert told.body["error"] is None
    assert "does not know the job any more" in told.history[-1]["reason"]


def _hold_to(script: Script, play: Play) -> None:
    told = play.told[str(script)]
    body, end = told.body, script.walk[-1]
    assert body["state"] == end
    assert body["done"] == (end in ENDS)
    assert body["outcome"] == (end if end in ENDS else None)
    assert body["wait"]["result"] == (end if end in ENDS else "needs_attention")
    assert (body["attention"] or {}).get("reason") == script.reason
    assert _counts(body) == script.counts
    assert told.creates == script.creates
    walk = tuple(moves(told.history))
    looked_up = "create_unknown" in walk
    assert _without(walk, looked_up=looked_up) == _without(script.walk, looked_up=looked_up)
    assert [row["reason"] for row in told.history if row["kind"] in ("refused", "contradiction")] == []
    assert [row["reason"] for row in told.history if "the ids decide" in row["reason"]] == []


def _counts(body: dict[str, Any]) -> dict[str, int] | None:
    """The summary's counts that are not 0, once they add up to all items."""
    summary = body["summary"]
    if summary is None:
        return None
    assert sum(summary[name] for name in COUNTED) == summary["total"]
    return {name: summary[name] for name in COUNTED if summary[name]}


def _without(walk: tuple[str, ...], *, looked_up: bool) -> list[str]:
    return [state for state in walk if not (looked_up and state in PASSED_OVER)]


def test_each_operation_has_one_job_at_the_provider(play: Play) -> None:
    """Each job held by the one operation that made it, or shown as its only candidate; none besides (N3)."""
    for provider in (STANDIN, MESSAGES):
        scripts = [script for script in SCRIPTS if script.provider == provider]
        claimed: list[str] = []
        for script in scripts:
            told = play.told[str(script)]
            own = {told.body["remote_job_id"]} - {None}
            own |= {job_id for row in told.history for job_id in row["facts"].get("candidates", ())}
            assert [play.jobs[provider][job_id] for job_id in own] == [script.items] * script.jobs, script
            claimed += own
        assert sorted(claimed) == sorted(play.jobs[provider])


@pytest.mark.parametrize("provider", [STANDIN, MESSAGES])
def test_a_status_that_no_document_names_is_pending_and_told_as_it_is(play: Play, provider: str) -> None:
    """Unknown never means done (C2, N13)."""
    told = play.told[f"{provider}-unknown-status"]
    strange = [row for row in told.observations if row["word"] == "awaiting_capacity"]
    assert strange
    assert {(row["verdict"], row["known"]) for row in strange} == {("PENDING", False)}


def test_the_file_is_whole_and_the_daemon_stops_in_order(play: Play, hurried: Play) -> None:
    """Chains, causes and schedules of all stories together; exit status 0 and no traceback."""
    assert play.faults == []
    assert hurried.faults == []

"""The stories F1 to F11 as far as a daemon meets them from outside, and one run of each, with a disk of its own."""

import asyncio
import base64
import contextlib
import itertools
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from daemon.runtime import SystemDice
from daemon.standin.account import AnswerLost
from daemon.standin.openai_bodies import Body
from daemon.standin.scenarios import SCENARIOS, Scenario
from daemon.standin.world import World
from tests.faults import tokens
from tests.faults.disk import Rule, environ_of
from tests.faults.nursery import KEY_OF_NOBODY, Nursery
from tests.faults.record import Entry, entries_in
from tests.faults.tokens import TokenProvider
from tests.stories.ledger import faults_in_file, lost_acknowledgements
from tests.stories.stage import PATIENCE, SECRET, TOKEN, Answer, Client, Home, client_of, provider, settle
from tests.stories.work import MESSAGES, STANDIN

KEY: Final = "the-key-of-the-story"
#: Longer than a restart takes on a busy machine; what is lost for good is known only after it.
WITHIN: Final = "4s"
#: Jobs take 200 ms, and a refused webhook comes again after 250 ms, 500 ms, ...
SPEED: Final = 20
WHY: Final = {"by": "ada", "reason": "killed all the time", "effect": "no more items run"}
_NORMAL: Final = SCENARIOS["normal"]
_LOST: Final = SCENARIOS["lost-create-response"]
#: The provider's words for a job that has ended, of either shape.
_ENDED: Final = ("completed", "failed", "cancelled", "expired", "ended")
#: Of a spread of more than an hour: no run waits for it.
_NEVER_MS: Final = 10**9


@dataclass(frozen=True)
class Story:
    """How the provider behaves, what the client asks for, and how it ends if nothing is killed."""

    name: str
    fault: str
    scenario: Scenario
    ends: str
    provider: str = STANDIN
    cancels: bool = False
    #: Told from the first write of a file on; others begin with a file that a daemon has made.
    is_fresh: bool = False
    #: Makes two jobs of one create.
    lies: bool = False
    spans: Mapping[str, str] = field(default_factory=dict)
    #: Creates that may reach the provider, beside repeats with a token that it honours.
    creates: int = 1


STORIES: Final = (
    Story("normal", "F2 F5", _NORMAL, "succeeded", is_fresh=True),
    Story("lost, looked up", "F1", _LOST, "succeeded"),
    Story("lost, no road", "F1", _LOST, "create_unresolved", provider=MESSAGES, spans={"create_within": "2s"}),
    Story("lost, token", "F1", _LOST, "succeeded", provider=tokens.NAME),
    Story(
        "cancel that loses",
        "F3",
        replace(SCENARIOS["cancel-race"], duration_ms=_NEVER_MS),
        "succeeded",
        cancels=True,
        spans={"cancel_within": WITHIN},
    ),
    Story(
        "cancel that never works",
        "F3",
        replace(SCENARIOS["never-ends"], cancel_ms=_NEVER_MS),
        "cancellation_unconfirmed",
        cancels=True,
        spans={"cancel_within": "2s"},
    ),
    Story("webhook twice", "F4", SCENARIOS["duplicate-webhook"], "succeeded"),
    Story("unknown word", "F6", replace(SCENARIOS["unknown-status"], duration_ms=12_000), "succeeded"),
    Story("failed items", "F7", SCENARIOS["partial-failure"], "completed_with_errors"),
    Story("expired with a part", "F7", SCENARIOS["expired-with-partial-results"], "completed_with_errors"),
    Story("flaky", "F8", replace(SCENARIOS["flaky"], create_faults=(503,), read_faults=(500, 502, 503)), "succeeded"),
    Story("never ends", "F9", SCENARIOS["never-ends"], "result_timed_out", spans={"result_within": "2s"}),
    Story("webhook first", "F10", SCENARIOS["early-webhook"], "succeeded"),
    Story("two jobs", "F11", replace(_LOST, create_faults=("lost", "lost")), "contract_violation", lies=True),
)


class Twofold(World):
    """A provider that makes two jobs of one create, and answers neither."""

    def create(self, body: object, now_ms: int) -> Body:
        """Both are of one input and bear the mark of the one who asked."""
        with contextlib.suppress(AnswerLost):
            super().create(body, now_ms)
        return super().create(body, now_ms)


@dataclass(slots=True)
class Run:
    """One telling of a story, and all that was wrong in it."""

    story: Story
    rule: Rule | None
    home: Home
    world: World
    tokens: TokenProvider
    #: Whether the first life was ended by the disk.
    was_killed: bool = False
    #: What its first life did to its files and said, where that was recorded.
    entries: list[Entry] = field(default_factory=list)
    body: dict[str, Any] = field(default_factory=dict)
    #: Ids of operations that the client was told of.
    accepted: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    @property
    def end(self) -> str:
        """The outcome, or why a person is needed."""
        return str(self.body["outcome"] or self.body["attention"]["reason"])


#: The exit status of a daemon that cannot tell what was written, typed by hand.
STORE_BROKEN: Final = 74
#: The file in which a disk records: its sockets heard and said the secrets.
RECORD: Final = "record"
SECRETS: Final = (TOKEN, SECRET, SECRET.removeprefix("whsec_"), KEY_OF_NOBODY)
_FORMS: Final[tuple[Callable[[str], bytes], ...]] = (
    str.encode,
    lambda secret: base64.b64encode(secret.encode()),
    lambda secret: quote(secret, safe="").encode(),
)
#: What is done to the files of a life that was killed, before the next one.
Aftermath = Callable[[Run], None]


@dataclass(frozen=True, slots=True)
class Theatre:
    """Where stories are told: a nursery whose lives are on the disk, and a state directory that a daemon has made."""

    lives: Nursery
    folder: Path
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def lived_in(self) -> Path:
        """A state directory as a first daemon leaves it."""
        return self.folder / "lived-in"

    async def prepare(self) -> None:
        """Make that directory: what a first start writes is killed once, not in every story."""
        home = settle(self.folder / "first")
        async with self.lives.serving(home) as life, client_of(home) as client:
            await client.until_ready(life)
            assert await life.stop() == 0
        shutil.copytree(home.state_dir, self.lived_in)

    async def tell(
        self,
        story: Story,
        rule: Rule | None = None,
        *,
        is_recorded: bool = False,
        aftermath: Aftermath | None = None,
    ) -> Run:
        """The story with one life on a disk that follows `rule`, and, if that ends it, another one without."""
        run = self._new_run(story, rule)
        async with AsyncExitStack() as stack:
            if story.provider == tokens.NAME:
                await stack.enter_async_context(run.tokens.serving())
            await stack.enter_async_context(provider(run.home, run.world))
            client = await stack.enter_async_context(client_of(run.home))
            record = run.home.folder / RECORD if is_recorded else None
            await self._first_life(run, client, environ_of(run.home, rule, record=record))
            if record is not None:
                run.entries = entries_in(record)
            if run.was_killed:
                if aftermath is not None:
                    aftermath(run)
                async with self.lives.serving(run.home) as life:
                    await client.until_ready(life)
                    run.body = await _told(client, run)
                    if (status := await life.stop()) != 0 or "Traceback" in life.said:
                        run.faults.append(f"exit status {status}: {life.said}")
            run.faults += _wrong(run)
        async with self.lives.running(run.home, "audit", "verify") as auditor:
            if (status := await auditor.end()) != 0:
                run.faults.append(f"audit verify exits {status}: {auditor.said}")
        return run

    def _new_run(self, story: Story, rule: Rule | None) -> Run:
        home = settle(self.folder / f"run-{next(self._numbers)}", base="200ms", cap="400ms", messages="127.0.0.1")
        if not story.is_fresh:
            shutil.copytree(self.lived_in, home.state_dir)
        world = (Twofold if story.lies else World)(story.scenario, ids=SystemDice().identifier, speed=SPEED)
        honest = TokenProvider()
        if story.provider == tokens.NAME:
            honest.declare(home)
        return Run(story, rule, home, world, honest)

    async def _first_life(self, run: Run, client: Client, environ: Mapping[str, str]) -> None:
        async with self.lives.serving(run.home, environ) as life:
            try:
                await client.until_ready(life)
                run.body = await _told(client, run)
                status = await life.stop()
            except (aiohttp.ClientError, Unserved):
                status = await life.end()
            run.was_killed = status != 0
            if status not in (0, STORE_BROKEN if isinstance(run.rule and run.rule.verb, int) else -signal.SIGKILL):
                run.faults.append(f"exit status {status}: {life.said}")


class Unserved(Exception):
    """The process is about to end: it answers 503, or ends a wait before its time."""


async def _told(client: Client, run: Run) -> dict[str, Any]:
    """Start the job, or repeat the start with its key where no answer came, and wait for the end."""
    story = run.story
    if not run.accepted:
        answer = await _start(client, story)
        if answer.status == 503 and "Retry-After" in answer.headers:
            raise Unserved
        assert answer.status in (200, 202), answer
        run.accepted.add(answer.body["operation_id"])
    (operation_id,) = run.accepted  # a second one would be a second operation for one key
    if story.cancels:
        await client.until(
            operation_id, lambda body: body["remote_job_id"] is not None or body["attention"] is not None
        )
        answer = await client.call("POST", f"/v1/operations/{operation_id}/cancel", WHY)
        if answer.status == 503:
            raise Unserved
        assert answer.status in (202, 409), answer  # 409: it has ended, or nobody knows the job
    answer = await client.call("GET", f"/v1/operations/{operation_id}?wait={PATIENCE}")
    if answer.status == 503 or answer.body["wait"]["result"] == "timed_out":
        raise Unserved
    body: dict[str, Any] = answer.body
    return body


async def _start(client: Client, story: Story) -> Answer:
    spans: dict[str, Any] = {"create_within": WITHIN, **story.spans}
    if story.provider == tokens.NAME:
        body = {"provider": tokens.NAME, "request": {"question": "what is it"}, **spans}
        return await client.call("POST", "/v1/operations", body, key=KEY)
    return await client.start(KEY, provider=story.provider, **spans)


# ---- what must be so ---------------------------------------------------------------------------------------------


def _wrong(run: Run) -> list[str]:
    found = faults_in_file(run.home) + lost_acknowledgements(run.home, run.world.truth(), run.accepted)
    found += _told_secrets(run.home)
    if left := list((run.home.state_dir / "tmp").iterdir()):
        found.append(f"left in tmp/: {left}")
    expected = _ends_by_token(run) if run.story.provider == tokens.NAME else _ends(run)
    if run.end not in expected:
        found.append(f"ended as {run.end}, which is none of {expected}: {run.body}")
    return found


def _told_secrets(home: Home) -> list[str]:
    """N37: no secret in anything that was left, the tracebacks of a broken store among it."""
    encoded = [(secret, form(secret)) for secret in SECRETS for form in _FORMS]
    left = [path for path in home.folder.rglob("*") if path.is_file() and path != home.folder / RECORD]
    return [f"{path} holds {secret}" for path in left for secret, form in encoded if form in path.read_bytes()]


def _ends_by_token(run: Run) -> Sequence[str]:
    """However often it was sent: one token, one body, one job."""
    if len(run.tokens.jobs) != 1 or len(run.tokens.bodies) != 1:
        run.faults.append(f"jobs by token {run.tokens.jobs}, bodies {run.tokens.bodies}")
    return ("succeeded",)


def _ends(run: Run) -> Sequence[str]:
    """How the operation may have ended, by what the provider did."""
    story, truth = run.story, run.world.truth()
    if truth.creates > story.creates * (2 if story.lies else 1):
        run.faults.append(f"{truth.creates} creates")
    if truth.cancels > 1:
        run.faults.append(f"{truth.cancels} cancels")
    if not truth.jobs:
        return ("create_unresolved",)
    if story.lies:
        return ("contract_violation",)
    (job,) = truth.jobs
    known = run.body["remote_job_id"]
    if known is None and story.provider == MESSAGES:
        return ("create_unresolved",)
    if known != job.id:
        run.faults.append(f"it holds {known}, the provider made {job.id}")
    if job.status not in _ENDED:
        return ("cancellation_unconfirmed",) if story.cancels else (story.ends,)
    if job.completed == job.total:
        return ("succeeded",)
    return ("completed_with_errors",) if job.completed else ("failed",)


# ---- many --------------------------------------------------------------------------------------------------------


async def at_once(most: int, work: Sequence[Callable[[], Awaitable[Run]]]) -> list[Run]:
    """Do all of it, so many at a time; the runs in order."""
    places = asyncio.Semaphore(most)

    async def one(do: Callable[[], Awaitable[Run]]) -> Run:
        async with places:
            return await do()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(do)) for do in work]
    return [task.result() for task in tasks]

"""Files of every schema go on under today's daemon: each operation comes to its end, or in front of a person (N40)."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from daemon.standin.scenarios import find_scenario
from tests.simulation.invariants import RULES
from tests.simulation.provider import OPERATION_KEY, Provider
from tests.simulation.seams import SeededDice
from tests.simulation.view import load
from tests.simulation.world import API, ENVIRON, Process, SimWorld
from tests.upgrade.kept import NAMES, look, world_of
from tests.upgrade.make import ITEM_IDS

#: Seconds between two looks at the daemon's list.
LOOK_SECONDS: Final = 5.0
#: How the jobs go that the provider knows, by their operation's name and state; the others complete.
SCENARIO: Final = {
    ("observing", "observing"): "slow",
    ("strange", "observing"): "unknown-status",
    ("cancelling", "cancelling"): "never-ends",
    ("failed", "failed"): "late-failure",
}
#: The jobs of lost creates that did arrive.
LOST: Final = {
    "create_unknown": ["batch_create_unknown_1"],
    "create_pending_marked": ["batch_create_pending_marked_1"],
    "twins": ["batch_twins_1", "batch_twins_2"],
}
#: What a person decides once nothing goes on by itself, by the operation's name and the state that asks.
DECISIONS: Final = {
    ("result_unavailable", "result_unavailable"): {"decision": "collect_again"},
    ("result_validation_failed", "result_validation_failed"): {"decision": "collect_again"},
    ("create_unresolved", "create_unresolved"): {"decision": "give_up"},
    ("twins", "contract_violation"): {"decision": "choose_job", "remote_job_id": "batch_twins_2"},
}
#: How each operation ends, by its name, or by name and state where the code of a file had other states.
ENDS: Final[Mapping[str | tuple[str, str], str]] = {
    "succeeded": "succeeded",
    "completed_with_errors": "completed_with_errors",
    "failed": "failed",
    "refused": "failed",
    "cancelled": "succeeded",
    ("cancelled", "cancelled"): "cancelled",
    "accepted": "succeeded",
    "observing": "succeeded",
    "strange": "succeeded",
    "result_collecting": "succeeded",
    "cancelling": "succeeded",
    ("cancelling", "cancelling"): "cancellation_unconfirmed",
    "cancel_requested": "succeeded",
    "cancellation_unconfirmed": "succeeded",
    "create_pending": "succeeded",
    "create_pending_busy": "succeeded",
    "create_pending_marked": "succeeded",
    "create_pending_marked_absent": "create_unresolved",
    "create_unknown": "succeeded",
    "absent": "create_unresolved",
    # What was asked before the upgrade: answered by the provider meanwhile, or by the person now.
    "result_timed_out": "succeeded",
    "observation_failed": "succeeded",
    "result_unavailable": "succeeded",
    "result_validation_failed": "succeeded",
    "create_unresolved": "abandoned",
    "twins": "succeeded",
}
#: Creates that surely never left before the kill.
NEVER_SENT: Final = {"create_pending", "create_pending_busy"}
#: Rules that hold of any file; the others speak of the one start of a simulated world.
HELD: Final = ("N7", "N8", "N26", "N27")


class Account(Provider):
    """The provider as it stands after the kill: it knows the jobs that the kept file speaks of, or that it lost."""

    def __init__(self, world: SimWorld) -> None:
        self._names: list[str] = []
        made = SeededDice("after the upgrade").identifier

        def ids(prefix: str) -> str:
            known = [name for name in self._names if name.startswith(prefix)]
            if not known:
                return made(prefix)
            self._names.remove(known[0])
            return known[0]

        super().__init__(find_scenario("normal"), ids=ids, database=world.database, api_key=ENVIRON["KEY"])
        sql = "SELECT operation_id, remote_job_id, state, living, created_at FROM operations ORDER BY created_at, key"
        for operation_id, job_id, state, living, created_at in look(world.database, sql):
            document = json.loads(living)
            story, upload = document["labels"]["story"], document.get("steps", {}).get("upload")
            jobs = [job_id] if job_id is not None else LOST.get(story, [])
            for name in jobs:
                self._know(name, upload, operation_id, SCENARIO.get((story, state), "normal"), created_at)

    def _know(self, job_id: str, upload: str | None, operation_id: str, scenario: str, created_at: int) -> None:
        self.advance(created_at)  # what ended by then gets names of its own
        self._names = [job_id, upload or "file-of-somebody"]
        metadata = {OPERATION_KEY: operation_id} if upload else None
        self.seed_job(items=len(ITEM_IDS), now_ms=created_at, scenario=find_scenario(scenario), metadata=metadata)


@dataclass
class Person:
    """Waits until each operation is done or asks something, and then decides what was asked before the upgrade."""

    shown: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, process: Process) -> None:
        """The whole story of one life."""
        async with process.client_session() as session:
            await self._all_are_through(session)
            for body in self.shown:
                decision = DECISIONS.get((body["labels"]["story"], body["state"]))
                if decision is not None:
                    await self._decide(session, body["operation_id"], decision)
            await self._all_are_through(session)

    async def _all_are_through(self, session: aiohttp.ClientSession) -> None:
        """The daemon's own list shows each operation done, or waiting for a person."""
        while not self.shown or not all(body["done"] or body.get("attention") for body in self.shown):
            await asyncio.sleep(LOOK_SECONDS)
            async with session.get(f"{API}/v1/operations?limit=100") as answer:
                self.shown = (await answer.json())["operations"]

    async def _decide(self, session: aiohttp.ClientSession, operation_id: str, decision: Mapping[str, str]) -> None:
        body = {**decision, "by": "release-engineer", "reason": "decided after the upgrade"}
        async with session.post(f"{API}/v1/operations/{operation_id}/decisions", json=body) as answer:
            assert answer.status == 200, await answer.text()
        self.shown = []


def _stories(world: SimWorld) -> dict[str, str]:
    """Each operation's state by its name."""
    return dict(look(world.database, "SELECT json_extract(living, '$.labels.story'), state FROM operations"))


def _jobs(world: SimWorld) -> dict[str, str]:
    return dict(look(world.database, "SELECT operation_id, remote_job_id FROM operations WHERE remote_job_id <> ''"))


@pytest.mark.parametrize("name", NAMES)
def test_every_operation_of_a_kept_file_comes_to_its_end_or_asks_a_person(name: str, folder: Path) -> None:
    """No lost create is sent again, no job is let go, and what an old release asked can be decided."""
    world = world_of(name, folder)
    world.provider = Account(world)
    before, held = _stories(world), _jobs(world)

    life = world.live(until=Person())

    assert (life.ended, life.stalled, life.troubles) == (True, False, [])
    upgraded = [(line["from_schema"], line["to_schema"]) for line in life.log if line["event"] == "upgraded"]
    assert upgraded == ([] if name == NAMES[-1] else [(int(name[0]), int(NAMES[-1]))])
    assert _stories(world) == {story: ENDS.get((story, state)) or ENDS[story] for story, state in before.items()}
    assert held.items() <= _jobs(world).items()
    created = Counter(json.loads(sent.body)["metadata"]["story"] for sent in world.provider.watch.arrivals if sent.body)
    assert created == dict.fromkeys(NEVER_SENT, 1)
    view = load(world)
    assert [f"{rule}: {words}" for rule in HELD for words in RULES[rule](view)] == []

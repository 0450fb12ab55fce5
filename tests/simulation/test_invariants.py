"""The checks are checked: a rule that is broken on purpose is named, in the file and in the product."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import handlers.webhooks
import reconcile.ingest
from daemon.standin.scenarios import find_scenario
from reconcile import conclude
from reconcile.contract import Contract
from reconcile.decide import decide
from reconcile.evidence import Accepted, Evidence, FoundAtStart, StepDone
from reconcile.model import Change, Entry, EntryKind, Operation
from reconcile.states import State
from tests.simulation.client import NAME
from tests.simulation.invariants import check
from tests.simulation.provider import OPERATION_KEY
from tests.simulation.world import CrashPoint, SimWorld

#: Each forged as its one statement says; the rules that must see it.
FORGERIES = {
    "UPDATE operations SET token = operation_id": {"N4"},
    "UPDATE operations SET trace_id = token": {"N4"},
    "UPDATE operations SET remote_job_id = 'batch_of_somebody_else'": {"N5", "N27"},
    "UPDATE operations SET state = 'failed'": {"N11", "N27"},
    "UPDATE operations SET seq = seq - 1": {"N26", "N28"},
    "UPDATE operations SET living = json_set(living, '$.contradictions', 1)": {"N8"},
    "UPDATE operations SET living = json_set(living, '$.summary.succeeded', 4)": {"N10", "N12"},
    "UPDATE operations SET living = json_set(living, '$.result.sha256', 'f')": {"N10"},
    "UPDATE operations SET living = json_remove(living, '$.deadlines')": {"N27"},
    "UPDATE items SET outcome = 'failed' WHERE attempt > 0 AND item_id = 'item-1'": {"N12"},
    "DELETE FROM items WHERE attempt > 0 AND item_id = 'item-1'": {"N12"},
    "DELETE FROM items WHERE attempt = 0 AND item_id = 'item-1'": {"N28"},
    "DELETE FROM client_keys": {"N28"},
    "DELETE FROM observations": {"N9"},
    "DELETE FROM events": {"N18"},
    "UPDATE events SET body = x'00'": {"N18"},
    "UPDATE events SET duplicates = 7": {"N17"},
    "INSERT INTO schedule (key, provider, priority, due_at) SELECT key, provider, 4, 0 FROM operations": {"N28"},
    "UPDATE history SET reason = 'nothing happened' WHERE seq = 2": {"N26"},
    "UPDATE history SET to_state = 'cancelled' WHERE to_state = 'accepted'": {"N7", "N8", "N26"},
    "UPDATE history SET position = position + 1 WHERE position = (SELECT max(position) FROM history)": {"N26"},
    "UPDATE history SET to_state = 'observing' WHERE to_state = 'result_collecting'": {"N7", "N20", "N26"},
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_row_is_named(folder: Path, forgery: str) -> None:
    world = SimWorld(folder)
    world.live()
    assert check(world, at_the_end=True) == []
    connection = sqlite3.connect(world.database)
    connection.execute("DROP TRIGGER history_is_never_changed")
    assert connection.execute(forgery).rowcount > 0
    connection.commit()
    connection.close()
    assert names(check(world, at_the_end=True)) >= FORGERIES[forgery]


def test_a_second_job_is_named(folder: Path) -> None:
    world = SimWorld(folder)
    world.live()
    mark = {OPERATION_KEY: world.client.started[0]}
    world.provider.seed_job(items=1, now_ms=world.now_ms, metadata=mark)
    assert names(check(world, at_the_end=True)) >= {"N3"}
    world.provider.seed_job(items=1, now_ms=world.now_ms, metadata={OPERATION_KEY: "op_of_nobody"})
    assert sum(words.startswith("N3") for words in check(world, at_the_end=True)) == 2


def test_an_acknowledged_start_that_is_lost_is_named(folder: Path) -> None:
    world = SimWorld(folder)
    world.live()
    world.client.started.append("op_that_was_lost")
    assert names(check(world, at_the_end=True)) == {"N18"}
    world.database.unlink()
    assert names(check(world, at_the_end=False)) == {"N18"}


def test_a_story_without_an_end_is_named(folder: Path) -> None:
    world = SimWorld(folder, scenario=replace(find_scenario("normal"), ends=None))
    world.live()
    assert names(check(world, at_the_end=True)) == {"N23"}


# -- the product broken on purpose -------------------------------------------------------------------------------------


def sends_again(change: Change, evidence: Evidence, now: int) -> Change:
    """A restart that takes an open send mark for nothing."""
    if not isinstance(evidence, FoundAtStart) or change.entries[0].from_state is not State.CREATE_PENDING:
        return change
    op = change.operation
    plan = replace(op.schedule, mark_at=None, due_at=now)
    return Change(replace(op, state=State.CREATE_PENDING, schedule=plan), is_news=True)


def ends_by_itself(change: Change, evidence: Evidence, now: int) -> Change:
    """An acceptance that is taken for the end."""
    if not isinstance(evidence, Accepted):
        return change
    op = change.operation
    end = Entry(EntryKind.MOVE, op.state, State.FAILED, "start:" + op.operation_id, "hopeless", {"outcome": "failed"})
    return replace(change, operation=replace(op, state=State.FAILED, completed_at=now), entries=(*change.entries, end))


def forgets_the_mark(change: Change, evidence: Evidence, now: int) -> Change:
    """The upload's result is kept, the mark for the create is not."""
    if not isinstance(evidence, StepDone):
        return change
    plan = replace(change.operation.schedule, mark_at=None)
    return replace(change, operation=replace(change.operation, schedule=plan))


def break_decide(patch: pytest.MonkeyPatch, fault: Callable[[Change, Evidence, int], Change]) -> None:
    """Let `fault` change what was decided."""

    def broken(op: Operation, contract: Contract, evidence: Evidence, *, now: int, **how: Any) -> Change:
        return fault(decide(op, contract, evidence, now=now, **how), evidence, now)

    patch.setattr(reconcile.ingest, "decide", broken)


async def slowly(work: Coroutine[Any, Any, Any]) -> None:
    """Some while after it was asked for."""
    await asyncio.sleep(0.1)
    await work


def killed_at_steps(folder: Path, steps: Iterable[int]) -> set[str]:
    """The rules that any of these worlds breaks."""
    broken: set[str] = set()
    for step in steps:
        world = SimWorld(folder / str(step), scenario="partial-failure")
        world.live(CrashPoint(step=step))
        broken |= names(check(world, at_the_end=False))
        world.live()
        broken |= names(check(world, at_the_end=True))
    return broken


def names(violations: list[str]) -> set[str]:
    """The rules that were broken."""
    return {words.partition(":")[0] for words in violations}


@pytest.mark.parametrize(("fault", "rule"), [(sends_again, "N3"), (ends_by_itself, "N11")])
def test_a_wrong_decision_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Change, Evidence, int], Change], rule: str
) -> None:
    break_decide(monkeypatch, fault)
    assert rule in killed_at_steps(folder, range(130, 320))


def test_a_send_without_its_mark_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the upload's answer nor the worker sets it."""
    world = SimWorld(folder)
    adapter = type(world.config.providers[NAME].provider)
    submit = adapter.submit
    break_decide(monkeypatch, forgets_the_mark)
    monkeypatch.setattr(adapter, "submit", lambda self, op: replace(submit(self, op), has_effect=False))
    world.live()
    assert names(check(world, at_the_end=True)) == {"N1"}


def test_a_partial_success_that_is_called_whole_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conclude, "end_of", lambda *_, **__: State.SUCCEEDED)
    world = SimWorld(folder, scenario="partial-failure")
    world.live()
    assert names(check(world, at_the_end=True)) == {"N10", "N11"}


def test_an_acknowledgement_before_its_commit_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep falls into the gap between the 200 and the commit."""

    async def keep(self: Any, peer: Any, event_id: str, body: bytes) -> web.Response:
        observation = peer.provider.read_webhook(body)
        later = self._deps.ingest.event(peer.name, event_id, body, observation)
        self._tasks = [asyncio.get_running_loop().create_task(slowly(later))]
        return web.Response(status=200)

    monkeypatch.setattr(handlers.webhooks._Receiver, "_keep", keep)
    assert killed_at_steps(folder, range(110, 330)) >= {"N18"}

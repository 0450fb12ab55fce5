"""What a start makes due: rows that nothing may be asked about any more, and rows that are asked about again."""

from pathlib import Path
from typing import Any

import pytest

from reconcile.absence import OpenAt, Served
from reconcile.model import Attention
from reconcile.notice import Notice
from reconcile.states import Priority, State
from reconcile.store.absence import Roused
from reconcile.store.providers import Known
from reconcile.store.sweeps import Begin
from tests.reconcile.rows import ALL_STATES, HOUR, NOW, TERMINAL
from tests.reconcile.store.ground import Ground, opened, operation

S = State
OLD = "https://old.example"
NEW = "https://new.example"
HERE = Served({"test": frozenset({NEW})})
BOTH = Served({"test": frozenset({NEW, OLD})})
NOWHERE = Served({"other": frozenset({NEW})})
OPEN = [state for state in ALL_STATES if state not in TERMINAL]
MISSING = Notice("provider_missing", NOW, "gone", provider="test", evidence={"operations": 1})
MOVED = Notice("provider_moved", NOW, "moved", provider="test", evidence={"operations": 1, "origins": [OLD]})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reconciled.db"


def asking(n: int, reason: str, **over: Any) -> Any:
    """An operation whose question is that its provider is absent."""
    attention = Attention(reason, NOW - HOUR, "put it back")
    return operation(n, S.OBSERVATION_FAILED, attention=attention, due_at=NOW + HOUR, **over)


async def due(ground: Ground, served: Served, *ops: Any) -> list[str]:
    """Which of the operations a start makes due, each with what rang it."""
    await ground.start(*ops)
    await ground.store.rouse(served, NOW)
    rows = ground.look(
        "SELECT o.operation_id, s.ring FROM schedule s JOIN operations o ON o.key = s.key"
        " WHERE s.due_at = ? ORDER BY o.key",
        NOW,
    )
    return [f"{operation_id} {ring}" for operation_id, ring in rows]


async def test_of_a_missing_provider_what_is_being_observed_is_due_and_nothing_else(path: Path) -> None:
    """Its own next read may have been a day off: it says at once that nobody reads it."""
    async with opened(path) as ground:
        ops = [operation(n, state, due_at=NOW + HOUR) for n, state in enumerate(OPEN)]
        watched = [
            f"op_{n} None"
            for n, state in enumerate(OPEN)
            if state in ("accepted", "observing", "blocked", "input_given")
        ]
        assert len(watched) == 4
        assert await due(ground, NOWHERE, *ops) == watched


async def test_of_a_moved_provider_only_what_was_started_elsewhere(path: Path) -> None:
    async with opened(path) as ground:
        ops = [
            operation(1, origin=OLD, due_at=NOW + HOUR),
            operation(2, origin=NEW, due_at=NOW + HOUR),
            operation(3, origin=None, due_at=NOW + HOUR),
        ]
        assert await due(ground, HERE, *ops) == ["op_1 None"]


async def test_what_became_absent_is_not_carried_off_by_a_list_that_is_swept(path: Path) -> None:
    """The provider's other jobs may be listed: this one must say at once that it is not read."""
    async with opened(path) as ground:
        await ground.start(operation(1, origin=OLD, due_at=NOW + HOUR))
        await ground.store.rouse(HERE, NOW)
        await ground.store.sweeps.begin(Begin("test", NOW + HOUR))
        assert (ground.schedule()["due_at"], ground.schedule()["priority"]) == (NOW, Priority.RUNG)


async def test_what_is_due_already_is_not_put_off(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, origin=OLD, due_at=NOW - HOUR))
        assert await ground.store.rouse(HERE, NOW) == Roused({}, 0)
        assert ground.schedule()["due_at"] == NOW - HOUR


async def test_a_question_that_is_still_so_is_not_looked_at_again_and_one_with_another_reason_is(path: Path) -> None:
    async with opened(path) as ground:
        assert await due(ground, NOWHERE, asking(1, "provider_missing"), asking(2, "provider_moved", origin=OLD)) == [
            "op_2 None"
        ]
    async with opened(path.with_name("other.db")) as ground:
        ops = (asking(1, "provider_missing", origin=OLD), asking(2, "provider_moved", origin=OLD))
        assert await due(ground, HERE, *ops) == ["op_1 None"]


@pytest.mark.parametrize("reason", ["provider_missing", "provider_moved"])
async def test_a_question_whose_cause_is_gone_is_rung_before_what_is_swept(path: Path, reason: str) -> None:
    async with opened(path) as ground:
        assert await due(ground, BOTH, asking(1, reason, origin=OLD), asking(2, reason)) == [
            "op_1 start:test",
            "op_2 start:test",
        ]
        assert ground.schedule()["priority"] == Priority.RUNG
        assert await ground.store.rouse(BOTH, NOW) == Roused({"test": 2}, 0)


async def test_any_other_question_is_left_to_its_person(path: Path) -> None:
    async with opened(path) as ground:
        op = operation(1, S.OBSERVATION_FAILED, due_at=NOW + HOUR)
        assert await due(ground, BOTH, op, asking(2, "errors"), asking(3, "gone")) == []


async def test_a_notice_tells_what_else_had_waited(path: Path) -> None:
    """All that is asked about by itself goes on; what waits for a person waits on."""
    async with opened(path) as ground:
        await ground.store.stand([MISSING])
        ops = [operation(n, state, origin=OLD, due_at=NOW + HOUR) for n, state in enumerate(OPEN)]
        people = ("create_unresolved", "contract_violation", "result_unavailable", "result_validation_failed")
        rung = [f"op_{n} start:test" for n, state in enumerate(OPEN) if state not in people]
        assert len(rung) == len(OPEN) - 4
        assert await due(ground, BOTH, *ops) == rung


async def test_a_notice_of_a_move_speaks_of_what_was_started_there(path: Path) -> None:
    async with opened(path) as ground:
        await ground.store.stand([MOVED])
        ops = (operation(1, origin=OLD, due_at=NOW + HOUR), operation(2, origin=NEW, due_at=NOW + HOUR))
        assert await due(ground, BOTH, *ops) == ["op_1 start:test"]


async def test_what_is_still_absent_is_rung_by_no_notice(path: Path) -> None:
    async with opened(path) as ground:
        await ground.store.stand([MISSING, MOVED])
        op = operation(1, S.CANCEL_REQUESTED, origin=OLD, due_at=NOW + HOUR)
        assert await due(ground, HERE, op, asking(2, "provider_moved", origin=OLD)) == []


async def test_a_notice_of_another_provider_rings_nothing_here(path: Path) -> None:
    async with opened(path) as ground:
        await ground.store.stand([Notice("provider_missing", NOW, "gone", provider="other")])
        assert await due(ground, BOTH, operation(1, origin=NEW, due_at=NOW + HOUR)) == []


async def test_urgent_rows_keep_their_priority(path: Path) -> None:
    async with opened(path) as ground:
        await ground.store.stand([MISSING])
        await due(ground, BOTH, operation(1, S.CANCEL_REQUESTED, due_at=NOW + HOUR, priority=Priority.CANCEL))
        assert ground.schedule()["priority"] == Priority.CANCEL


async def test_open_operations_are_counted_by_provider_and_origin(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(
            operation(1, origin=OLD),
            operation(2, origin=OLD),
            operation(3),
            operation(4, provider="other", origin=NEW),
        )
        assert await ground.store.open_at() == (
            OpenAt("other", NEW, 1),
            OpenAt("test", None, 1),
            OpenAt("test", OLD, 2),
        )


async def test_whether_an_open_operation_names_a_provider_leased_or_not(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        assert await ground.store.has_open("test")
        assert not await ground.store.has_open("other")
        await ground.claim_one()
        assert await ground.store.has_open("test")


async def test_the_kind_of_a_provider_is_remembered_and_replaced(path: Path) -> None:
    async with opened(path) as ground:
        await ground.store.know_providers({"a": "openai_batch", "b": "anthropic_batches"})
        await ground.store.know_providers({"a": "anthropic_batches"})
        assert await ground.store.known_providers() == {
            "a": Known("anthropic_batches", ""),
            "b": Known("anthropic_batches", ""),
        }
        assert ground.look("SELECT provider, recent_ends FROM providers ORDER BY provider") == [("a", ""), ("b", "")]

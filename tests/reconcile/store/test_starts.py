"""Starts: one operation for one client key, one holder for one job, and everything of a start in one write."""

import json
from pathlib import Path
from typing import Any

import pytest

from reconcile.errors import JobHeld, KeyReused, WriteRefused
from reconcile.evidence import DeadlinePassed
from reconcile.states import State
from reconcile.store.starts import Started, SubmittedItem
from tests.reconcile.rows import DAY, NOW
from tests.reconcile.store.ground import (
    Ground,
    Killed,
    killed,
    opened,
    operation,
    raising,
    read,
    record,
    together,
)

S = State
ITEMS = (SubmittedItem("a", 0, 40), SubmittedItem("b", 40, 41), SubmittedItem("c", 81, 39))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file comes to stand."""
    return tmp_path / "reconciled.db"


def _wish(n: int, *, key: str | None = "key", content: str = "content", **over: Any) -> Any:
    return record(operation(n, S.CREATE_PENDING, **over), client_key=key, content=content, items=ITEMS)


async def _start(ground: Ground, *wishes: Any) -> list[Any]:
    return await together(*(ground.store.start(wish) for wish in wishes))


def _operations(ground: Ground) -> list[str]:
    return [row[0] for row in ground.look("SELECT operation_id FROM operations ORDER BY key")]


# ---- all of it in one write ----


async def test_a_start_leaves_its_row_its_request_its_items_its_key_and_its_first_history_row(path: Path) -> None:
    async with opened(path) as ground:
        request, expect = {"endpoint": "/v1/é", "n": 1}, {"items": 3}
        commits = ground.store.commits
        (started,) = await _start(ground, _wish(1, request=request, expect=expect))
        assert ground.store.commits == commits + 1
        assert isinstance(started, Started)
        assert started.is_new
        assert started.operation.request == request
        stored = await ground.get()
        assert (stored.seq, stored.head) == (started.operation.seq, started.operation.head)
        ((asked, expected),) = ground.look("SELECT request, expect FROM starts")
        assert (json.loads(asked), json.loads(expected)) == (request, expect)
        assert ground.look("SELECT attempt, item_id, line, outcome, file, start, length FROM items ORDER BY line") == [
            (0, "a", 1, "submitted", None, 0, 40),
            (0, "b", 2, "submitted", None, 40, 41),
            (0, "c", 3, "submitted", None, 81, 39),
        ]
        assert ground.look("SELECT client_key, content, created_at FROM client_keys") == [
            ("key", "content", stored.created_at)
        ]
        (first,) = await ground.store.history("op_1")
        assert (first.seq, first.kind, first.from_state, first.to_state) == (1, "move", None, "create_pending")
        assert (first.actor, first.cause, first.at) == ("client:ci", "start:op_1", stored.created_at)
        ground.check_chains()


async def test_a_start_is_due_when_its_row_says_and_whoever_sleeps_is_told(path: Path) -> None:
    async with opened(path) as ground:
        await _start(ground, _wish(1, due_at=NOW + 5, priority=1))
        row = ground.schedule()
        assert (row["due_at"], row["priority"], row["provider"], row["fence"]) == (NOW + 5, 1, "test", 0)
        ((done,),) = ground.heard
        assert done.due_at == NOW + 5
        ((change,),) = [done.changes]
        assert [entry.to_state for entry in change.entries] == [S.CREATE_PENDING]


async def test_killed_before_the_commit_nothing_of_a_start_is_there(path: Path) -> None:
    async with opened(path) as ground:
        before = ground.dump()
        ground.hooks.before_commit = raising(Killed())
        await killed(ground, ground.store.start(_wish(1)))
    async with opened(path) as ground:
        assert ground.dump() == before
        (started,) = await _start(ground, _wish(1))
        assert started.is_new


async def test_a_start_that_is_refused_leaves_nothing(path: Path) -> None:
    async with opened(path) as ground:
        await _start(ground, _wish(1))
        before = ground.dump()
        bad_item = (*ITEMS, SubmittedItem("half \ud800", 0, 1))
        bad = record(operation(2, S.CREATE_PENDING), client_key="key 2", content="c", items=bad_item)
        (refused,) = await _start(ground, bad)
        assert type(refused) is WriteRefused
        assert ground.dump() == before


# ---- client keys (N30) ----


@pytest.mark.parametrize("batches", [1, 2])
async def test_the_same_key_and_content_in_parallel_make_one_operation(path: Path, batches: int) -> None:
    async with opened(path) as ground:
        wishes = [_wish(n) for n in range(30)]
        answers = await _start(ground, *wishes[: 30 // batches])
        answers += await _start(ground, *wishes[30 // batches :]) if batches == 2 else []
        assert [a.is_new for a in answers] == [True] + [False] * 29
        assert {a.operation.operation_id for a in answers} == {"op_0"}
        assert _operations(ground) == ["op_0"]
        assert ground.one("SELECT count(*) FROM items") == len(ITEMS)
        assert ground.one("SELECT count(*) FROM history") == 1
        ground.check_chains()


async def test_a_repeated_start_shows_the_operation_as_it_stands_now_and_after_a_restart(path: Path) -> None:
    async with opened(path) as ground:
        await _start(ground, record(operation(1), client_key="key", content="content"))
        await ground.apply(1, read("failed"))
    async with opened(path) as ground:
        (again,) = await _start(ground, _wish(2))
        assert not again.is_new
        assert (again.operation.operation_id, again.operation.state) == ("op_1", S.FAILED)
        assert _operations(ground) == ["op_1"]


@pytest.mark.parametrize("batches", [1, 2])
async def test_the_same_key_with_other_content_is_refused_and_names_the_operation(path: Path, batches: int) -> None:
    async with opened(path) as ground:
        wishes = [_wish(1), _wish(2, content="other"), _wish(3)]
        answers = await _start(ground, *wishes[: 3 // batches])
        answers += await _start(ground, *wishes[3 // batches :]) if batches == 2 else []
        first, reused, again = answers
        assert type(reused) is KeyReused
        assert reused.operation_id == "op_1"
        assert (first.is_new, again.is_new) == (True, False)
        assert _operations(ground) == ["op_1"]
    async with opened(path) as ground:
        (reused,) = await _start(ground, _wish(4, content="other"))
        assert type(reused) is KeyReused
        assert reused.operation_id == "op_1"


async def test_starts_without_a_key_are_all_new(path: Path) -> None:
    async with opened(path) as ground:
        answers = await _start(ground, *(_wish(n, key=None) for n in range(5)))
        assert all(a.is_new for a in answers)
        assert ground.one("SELECT count(*) FROM client_keys") == 0


async def test_a_key_of_a_refused_start_is_free(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        held, started = await _start(
            ground,
            record(operation(2, S.ACCEPTED, remote_job_id="job_1"), client_key="key", content="a"),
            record(operation(3, S.ACCEPTED), client_key="key", content="b"),
        )
        assert type(held) is JobHeld
        assert started.is_new


# ---- jobs (N5) ----


async def test_a_job_that_an_open_operation_holds_cannot_be_adopted(path: Path) -> None:
    async with opened(path) as ground:
        adopted = record(operation(2, S.ACCEPTED, remote_job_id="job_1"))
        await ground.start(operation(1))
        (held,) = await _start(ground, adopted)
        assert type(held) is JobHeld
        assert held.operation_id == "op_1"
        assert _operations(ground) == ["op_1"]


async def test_a_job_is_adopted_once_by_parallel_starts(path: Path) -> None:
    async with opened(path) as ground:
        answers = await _start(ground, *(record(operation(n, S.ACCEPTED, remote_job_id="job")) for n in range(10)))
        assert answers[0].is_new
        assert {type(a) for a in answers[1:]} == {JobHeld}
        assert _operations(ground) == ["op_0"]


async def test_a_job_that_ended_stays_with_its_operation(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await ground.apply(1, read("failed"))
        (held,) = await _start(ground, record(operation(2, S.ACCEPTED, remote_job_id="job_1")))
        assert type(held) is JobHeld


@pytest.mark.parametrize("given_up", [S.RESULT_TIMED_OUT, S.OBSERVATION_FAILED])
async def test_a_job_whose_operation_was_given_up_can_be_adopted_anew(path: Path, given_up: State) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, given_up))
        adopted = record(operation(2, S.ACCEPTED, remote_job_id="job_1"))
        (held,) = await _start(ground, adopted)
        assert type(held) is JobHeld
        await ground.apply(1, DeadlinePassed("attention"), at=NOW + 7 * DAY)
        (started,) = await _start(ground, adopted)
        assert started.is_new


async def test_a_job_of_the_same_name_at_another_provider_is_another_job(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        (started,) = await _start(ground, record(operation(2, S.ACCEPTED, remote_job_id="job_1", provider="other")))
        assert started.is_new


# ---- tokens ----


@pytest.mark.parametrize("name", ["token", "operation_id"])
@pytest.mark.parametrize("batches", [1, 2])
async def test_no_two_operations_share_their_token_or_their_id(path: Path, name: str, batches: int) -> None:
    async with opened(path) as ground:
        first = operation(1)
        wishes = [record(first), record(operation(2, **{name: getattr(first, name)}))]
        if batches == 1:
            _, refused = await _start(ground, *wishes)
        else:
            await _start(ground, wishes[0])
            (refused,) = await _start(ground, wishes[1])
        assert type(refused) is WriteRefused
        assert _operations(ground) == ["op_1"]

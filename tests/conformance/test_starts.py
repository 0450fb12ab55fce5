"""Starts: one operation for one client key, one holder for one job, everything of a start in one write (N30 N5 N2)."""

from dataclasses import replace
from typing import Any

import pytest

from reconcile.errors import JobHeld, KeyReused, WriteRefused
from reconcile.evidence import DeadlinePassed
from reconcile.states import State
from reconcile.store.starts import Started, SubmittedItem
from tests.conformance.owner import Owner, Place, killed, together
from tests.conformance.record import check_record, everything, operations
from tests.conformance.values import HALF, accepted, operation, read, record
from tests.reconcile.rows import DAY, NOW

S = State
ITEMS = (SubmittedItem("a", 0, 40), SubmittedItem("b", 40, 41), SubmittedItem("c", 81, 39))


def _wish(n: int, *, key: str | None = "key", content: str = "content", **over: Any) -> Any:
    return record(operation(n, S.CREATE_PENDING, **over), client_key=key, content=content, items=ITEMS)


async def _start(owner: Owner, *wishes: Any) -> list[Any]:
    return await together(*(owner.store.start(wish) for wish in wishes))


async def _operations(owner: Owner) -> list[str]:
    return [op.operation_id for op in await operations(owner.store)]


# ---- all of it in one write ----


async def test_a_start_leaves_its_row_its_request_its_items_its_key_and_its_first_history_row(place: Place) -> None:
    async with place.opened() as owner:
        request, expect = {"endpoint": "/v1/é", "n": 1}, {"items": 3}
        commits = owner.store.commits
        (started,) = await _start(owner, _wish(1, request=request, expect=expect))
        assert owner.store.commits == commits + 1
        assert isinstance(started, Started)
        assert started.is_new
        assert started.operation.request == request
        stored = await owner.get()
        assert (stored.seq, stored.head) == (started.operation.seq, started.operation.head)
        claim = await owner.claim_one()
        assert (claim.operation.request, claim.operation.expect) == (request, expect)
        assert [item.item_id for item in await owner.store.items(stored)] == ["a", "b", "c"]
        assert (await owner.store.tally("op_1", 0)).by_outcome == {"submitted": 3}
        (first,) = await owner.store.history("op_1")
        assert (first.seq, first.kind, first.from_state, first.to_state) == (1, "move", None, "create_pending")
        assert (first.actor, first.cause, first.at) == ("client:ci", "start:op_1", stored.created_at)
        await check_record(owner)


async def test_an_operation_is_shown_to_the_letter_whatever_it_holds(place: Place) -> None:
    odd = 'a\0b\x1b[1m"\\\u2028\x7f\U0001f600é'
    async with place.opened() as owner:
        wish = _wish(1, labels={odd: odd}, remote_job_id=odd, remote_status="", caller="", contract_version=2**63 - 1)
        (started,) = await _start(owner, wish)
        shown = await owner.get()
        assert (dict(shown.labels), shown.remote_job_id, shown.remote_status) == ({odd: odd}, odd, "")
        assert (shown.caller, shown.contract_version) == ("", 2**63 - 1)
        assert shown == replace(started.operation, request={}, expect={}, schedule=shown.schedule)
        (listed,) = await owner.store.find(after=None, limit=1, is_open=None)
        assert listed == shown


async def test_a_start_is_due_when_its_row_says_and_whoever_sleeps_is_told(place: Place) -> None:
    async with place.opened() as owner:
        await _start(owner, _wish(1, due_at=NOW + 5, priority=1))
        row = (await owner.get()).schedule
        assert (row.due_at, row.priority, row.fence) == (NOW + 5, 1, 0)
        ((done,),) = owner.heard
        assert done.due_at == NOW + 5
        ((change,),) = [done.changes]
        assert [entry.to_state for entry in change.entries] == [S.CREATE_PENDING]


async def test_killed_before_the_commit_nothing_of_a_start_is_there(place: Place) -> None:
    async with place.opened() as owner:
        before = await everything(owner)
        owner.faults.kill("before")
        await killed(owner, owner.store.start(_wish(1)))
    async with place.opened() as owner:
        assert await everything(owner) == before
        (started,) = await _start(owner, _wish(1))
        assert started.is_new


async def test_a_start_whose_answer_was_lost_is_found_by_its_key_after_a_restart(place: Place) -> None:
    async with place.opened() as owner:
        owner.faults.kill("after")
        assert await killed(owner, owner.store.start(_wish(1))) == []
    async with place.opened() as owner:
        (again,) = await _start(owner, _wish(2))
        assert (again.is_new, again.operation.operation_id) == (False, "op_1")
        assert await _operations(owner) == ["op_1"]
        await check_record(owner)


async def test_a_start_that_is_refused_leaves_nothing(place: Place) -> None:
    async with place.opened() as owner:
        await _start(owner, _wish(1))
        before = await everything(owner)
        bad_item = (*ITEMS, SubmittedItem(HALF, 0, 1))
        bad = record(operation(2, S.CREATE_PENDING), client_key="key 2", content="c", items=bad_item)
        (refused,) = await _start(owner, bad)
        assert type(refused) is WriteRefused
        assert await everything(owner) == before


# ---- client keys (N30) ----


@pytest.mark.parametrize("batches", [1, 2])
async def test_the_same_key_and_content_in_parallel_make_one_operation(place: Place, batches: int) -> None:
    async with place.opened() as owner:
        wishes = [_wish(n) for n in range(30)]
        answers = await _start(owner, *wishes[: 30 // batches])
        answers += await _start(owner, *wishes[30 // batches :]) if batches == 2 else []
        assert [a.is_new for a in answers] == [True] + [False] * 29
        assert {a.operation.operation_id for a in answers} == {"op_0"}
        assert await _operations(owner) == ["op_0"]
        assert (await owner.store.tally("op_0", 0)).by_outcome == {"submitted": len(ITEMS)}
        assert await owner.store.consumers.last_position() == 1
        await check_record(owner)


async def test_a_repeated_start_shows_the_operation_as_it_stands_now_and_after_a_restart(place: Place) -> None:
    async with place.opened() as owner:
        await _start(owner, record(operation(1), client_key="key", content="content"))
        await owner.apply(1, read("failed"))
    async with place.opened() as owner:
        (again,) = await _start(owner, _wish(2))
        assert not again.is_new
        assert (again.operation.operation_id, again.operation.state) == ("op_1", S.FAILED)
        assert await _operations(owner) == ["op_1"]


@pytest.mark.parametrize("batches", [1, 2])
async def test_the_same_key_with_other_content_is_refused_and_names_the_operation(place: Place, batches: int) -> None:
    async with place.opened() as owner:
        wishes = [_wish(1), _wish(2, content="other"), _wish(3)]
        answers = await _start(owner, *wishes[: 3 // batches])
        answers += await _start(owner, *wishes[3 // batches :]) if batches == 2 else []
        first, reused, again = answers
        assert type(reused) is KeyReused
        assert reused.operation_id == "op_1"
        assert (first.is_new, again.is_new) == (True, False)
        assert await _operations(owner) == ["op_1"]
    async with place.opened() as owner:
        (reused,) = await _start(owner, _wish(4, content="other"))
        assert type(reused) is KeyReused
        assert reused.operation_id == "op_1"


async def test_starts_without_a_key_are_all_new(place: Place) -> None:
    async with place.opened() as owner:
        answers = await _start(owner, *(_wish(n, key=None) for n in range(5)))
        assert all(a.is_new for a in answers)
        assert len(await _operations(owner)) == 5


async def test_a_key_of_a_refused_start_is_free(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        held, started = await _start(
            owner,
            record(operation(2, S.ACCEPTED, remote_job_id="job_1"), client_key="key", content="a"),
            record(operation(3, S.ACCEPTED), client_key="key", content="b"),
        )
        assert type(held) is JobHeld
        assert started.is_new


# ---- jobs (N5) ----


async def test_a_job_that_an_open_operation_holds_cannot_be_adopted(place: Place) -> None:
    async with place.opened() as owner:
        adopted = record(operation(2, S.ACCEPTED, remote_job_id="job_1"))
        await owner.start(operation(1))
        (held,) = await _start(owner, adopted)
        assert type(held) is JobHeld
        assert held.operation_id == "op_1"
        assert await _operations(owner) == ["op_1"]


async def test_a_job_is_adopted_once_by_parallel_starts(place: Place) -> None:
    async with place.opened() as owner:
        answers = await _start(owner, *(record(operation(n, S.ACCEPTED, remote_job_id="job")) for n in range(10)))
        assert answers[0].is_new
        assert {type(a) for a in answers[1:]} == {JobHeld}
        assert await _operations(owner) == ["op_0"]


async def test_a_job_that_ended_stays_with_its_operation(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        await owner.apply(1, read("failed"))
        (held,) = await _start(owner, record(operation(2, S.ACCEPTED, remote_job_id="job_1")))
        assert type(held) is JobHeld


@pytest.mark.parametrize("given_up", [S.RESULT_TIMED_OUT, S.OBSERVATION_FAILED])
async def test_a_job_whose_operation_was_given_up_can_be_adopted_anew(place: Place, given_up: State) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, given_up))
        adopted = record(operation(2, S.ACCEPTED, remote_job_id="job_1"))
        (held,) = await _start(owner, adopted)
        assert type(held) is JobHeld
        await owner.apply(1, DeadlinePassed("attention"), at=NOW + 7 * DAY)
        (started,) = await _start(owner, adopted)
        assert started.is_new


async def test_a_job_of_the_same_name_at_another_provider_is_another_job(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        (started,) = await _start(owner, record(operation(2, S.ACCEPTED, remote_job_id="job_1", provider="other")))
        assert started.is_new


async def test_a_job_that_another_operation_holds_is_never_taken_and_a_person_is_shown_both(place: Place) -> None:
    """N5, B4: two operations of ours cannot have made one job."""
    async with place.opened() as owner:
        await owner.start(operation(1), operation(2, S.CREATE_PENDING))
        await owner.apply(2, accepted("job_1"))
        op = await owner.get(2)
        assert (op.state, op.remote_job_id, op.candidates) == (S.CONTRACT_VIOLATION, None, ("job_1",))
        last = (await owner.store.history("op_2"))[-1]
        assert last.facts["held_by"] == "op_1"
        assert (await owner.get(1)).state is S.OBSERVING
        await check_record(owner)


async def test_a_job_of_an_operation_that_was_given_up_can_be_taken(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, S.RESULT_TIMED_OUT), operation(2, S.CREATE_PENDING))
        await owner.apply(1, DeadlinePassed("attention"), at=NOW + 7 * DAY)
        change = await owner.apply(2, accepted("job_1"))
        assert change.operation.remote_job_id == "job_1"


# ---- tokens ----


@pytest.mark.parametrize("name", ["token", "operation_id"])
@pytest.mark.parametrize("batches", [1, 2])
async def test_no_two_operations_share_their_token_or_their_id(place: Place, name: str, batches: int) -> None:
    async with place.opened() as owner:
        first = operation(1)
        wishes = [record(first), record(operation(2, **{name: getattr(first, name)}))]
        if batches == 1:
            _, refused = await _start(owner, *wishes)
        else:
            await _start(owner, wishes[0])
            (refused,) = await _start(owner, wishes[1])
        assert type(refused) is WriteRefused
        assert await _operations(owner) == ["op_1"]

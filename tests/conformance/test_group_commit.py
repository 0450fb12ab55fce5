"""The group commit: one transaction for all that wait, an answer after it, no neighbour harmed (N41 N18 N33)."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

import pytest

from reconcile.checkpoint import Checkpoint
from reconcile.errors import JobHeld, KeyReused, StoreBroken, StoreBusy, WriteRefused
from reconcile.limits import Pause
from reconcile.model import Change, Entry, EntryKind, Operation
from reconcile.notice import Notice
from reconcile.states import State
from reconcile.store.claims import ClaimWish, Renewal
from reconcile.store.completion_claims import CompletionClaim
from reconcile.store.evidence import Arrival
from reconcile.store.items import ItemRow, ItemSlice
from reconcile.store.starts import StartRecord
from reconcile.store.sweeps import Begin
from tests.conformance.owner import EDGES, Edge, Owner, Place, answers, together
from tests.conformance.record import KEY, check_record, everything
from tests.conformance.values import (
    HALF,
    LEASE,
    accepted,
    arrival,
    event,
    exchange,
    judge_that_fails_for,
    operation,
    read,
    record,
)
from tests.reconcile.rows import NOW

S = State
Write = Coroutine[Any, Any, Any]

# ---- one transaction, answered after it ----


async def test_writes_of_every_kind_that_wait_are_committed_in_one_transaction(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1), operation(2))
        before = owner.store.commits
        results = await together(
            *(owner.store.start(record(operation(n))) for n in range(3, 40)),
            *(owner.store.receive(event(f"evt_{n}", job="job_1")) for n in range(40)),
            owner.store.apply(arrival(2, read("done", 2))),
            owner.store.claim(ClaimWish("A", NOW, LEASE, {"test": 5})),
            owner.store.index(ItemSlice("op_1", 1, (ItemRow("a", 1, "succeeded", "", 0, 0, 1),))),
        )
        assert [r for r in results if isinstance(r, BaseException)] == []
        assert owner.store.commits == before + 1
        assert [len(done) for done in owner.heard] == [2, 80]
        assert sum((await owner.store.counts()).values()) == 39
        assert (await owner.store.event_counts())["test"]["accepted"] == 40


async def test_what_arrives_while_a_commit_runs_shares_the_next_one(place: Place) -> None:
    async with place.opened() as owner:
        gate = owner.faults.hold("before")
        first = asyncio.create_task(owner.store.start(record(operation(1))))
        await gate.reached()
        rest = [asyncio.create_task(owner.store.receive(event(f"evt_{n}"))) for n in range(50)]
        await asyncio.sleep(0)
        gate.open()
        await answers([first, *rest])
        assert owner.store.commits == 2
        assert [len(done) for done in owner.heard] == [1, 50]


async def test_who_comes_a_turn_later_shares_the_commit_of_who_came_first(place: Place) -> None:
    async with place.opened() as owner:
        tasks = []
        for n in range(20):
            tasks.append(asyncio.create_task(owner.store.receive(event(f"evt_{n}"))))
            await asyncio.sleep(0)
        await answers(tasks)
        assert owner.store.commits == 1


async def test_the_callers_hear_their_own_results_in_the_order_of_their_writes(place: Place) -> None:
    async with place.opened() as owner:
        results = await together(*(owner.store.start(record(operation(n))) for n in range(100)))
        assert [started.operation.operation_id for started in results] == [f"op_{n}" for n in range(100)]


async def test_nobody_is_answered_and_nothing_is_seen_before_the_commit(place: Place) -> None:
    async with place.opened() as owner:
        gate = owner.faults.hold("before")
        tasks = [asyncio.create_task(owner.store.start(record(operation(n)))) for n in range(20)]
        await gate.reached()
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        assert owner.heard == []
        assert await owner.store.find(after=None, limit=1, is_open=None) == []
        gate.open()
        await answers(tasks)


async def test_every_caller_s_row_is_there_for_another_owner_when_it_is_answered(place: Place) -> None:
    async with place.opened() as owner, place.opened() as two:

        async def write_and_look(n: int) -> Any:
            await owner.store.start(record(operation(n)))
            return await two.store.get(f"op_{n}")

        found = await together(*(write_and_look(n) for n in range(30)))
        assert [op.operation_id for op in found] == [f"op_{n}" for n in range(30)]


async def test_the_commit_is_told_of_before_the_callers_are_answered(place: Place) -> None:
    order: list[str] = []

    async with place.opened(on_done=lambda done: order.append(f"{len(done)} outcomes")) as owner:

        async def write(n: int) -> None:
            await owner.store.receive(event(f"evt_{n}"))
            order.append(f"caller {n}")

        await together(write(0), write(1))
    assert order == ["2 outcomes", "caller 0", "caller 1"]


# ---- neighbours of a bad write ----


def _start(n: int, state: State = S.CREATE_PENDING, *, key: str | None = None, **over: Any) -> StartRecord:
    return record(operation(n, state, **over), client_key=key, content="b")


def _index(n: int, item_id: str) -> ItemSlice:
    rows = (ItemRow(name, line, "failed", "", 0, 0, 1) for line, name in enumerate(("first", item_id), start=1))
    return ItemSlice(f"op_{n}", 1, tuple(rows))


def _evidence(n: int, **over: Any) -> Arrival:
    return arrival(n, read("done", n), **{**exchange(f"of_{n}"), **over})


def _request(**over: Any) -> Any:
    return (replace(exchange("bad")["requests"][0], **over),)


def _tell(n: int, message: str) -> list[Notice]:
    return [
        Notice("contradiction", NOW, "first", operation_id=f"op_{n}"),
        Notice("contradiction", NOW, message, operation_id=f"op_{n + 1}"),
    ]


def _renewal(name: str) -> Renewal:
    return Renewal("op_5", name, 1, NOW + 9 * LEASE)


def _claim(name: str) -> ClaimWish:
    return ClaimWish(name, NOW, LEASE, {"test": 1})


def _taken(n: int, consumer: str) -> CompletionClaim:
    return CompletionClaim(f"op_{n}", consumer, "client:ci", NOW, None)


def _pauses(*names: str) -> dict[str, Pause]:
    return {name: Pause(NOW + 9, "http_503", 3, NOW) for name in names}


#: By the kind of write: the n-th good one, and bad ones with what they are answered.
GOOD: Final[dict[str, Callable[[Owner, int], Write]]] = {
    "start": lambda o, n: o.store.start(record(operation(n + 10))),
    "evidence": lambda o, n: o.store.apply(_evidence(n)),
    "events": lambda o, n: o.store.receive(event(f"evt_{n}", job=f"job_{n}")),
    "claim": lambda o, n: o.store.claim(_claim(f"owner_{n}")),
    "renew": lambda o, n: o.store.renew([Renewal(f"op_{n}", "A", 1, NOW + 2 * LEASE)]),
    "items": lambda o, n: o.store.index(_index(n, "a")),
    "notices": lambda o, n: o.store.tell(_tell(n, "second")),
    "pauses": lambda o, n: o.store.keep_pauses(_pauses(f"provider_{n}"), NOW),
    "completions": lambda o, n: o.store.consumers.take(_taken(8, f"consumer_{n}")),
    "sweeps": lambda o, n: o.store.sweeps.begin(Begin(f"provider_{n}", NOW)),
}
BAD: Final[dict[str, list[tuple[str, type[Exception], Callable[[Owner], Write]]]]] = {
    "start": [
        ("its token is another's", WriteRefused, lambda o: o.store.start(_start(20, token="tok_1"))),
        ("its id is another's", WriteRefused, lambda o: o.store.start(_start(1, token="tok_20"))),
        ("its job is another's", JobHeld, lambda o: o.store.start(_start(20, S.ACCEPTED, remote_job_id="job_1"))),
        ("its key is another's", KeyReused, lambda o: o.store.start(_start(20, key="k"))),
        ("no text", WriteRefused, lambda o: o.store.start(_start(20, type=HALF))),
    ],
    "evidence": [
        ("no such operation", WriteRefused, lambda o: o.store.apply(_evidence(77))),
        ("no text in its history", WriteRefused, lambda o: o.store.apply(arrival(9, accepted("job_9"), actor=HALF))),
        ("no text in a request", WriteRefused, lambda o: o.store.apply(_evidence(5, requests=_request(purpose=HALF)))),
    ],
    "events": [("no text", WriteRefused, lambda o: o.store.receive(event(HALF)))],
    "claim": [("no text", WriteRefused, lambda o: o.store.claim(_claim(HALF)))],
    "renew": [("no text", WriteRefused, lambda o: o.store.renew([_renewal("A"), _renewal(HALF)]))],
    "items": [
        ("no such operation", WriteRefused, lambda o: o.store.index(_index(77, "a"))),
        ("no text", WriteRefused, lambda o: o.store.index(_index(5, HALF))),
    ],
    "notices": [("no text", WriteRefused, lambda o: o.store.tell(_tell(5, HALF)))],
    "pauses": [("no text", WriteRefused, lambda o: o.store.keep_pauses(_pauses("first", HALF), NOW))],
    "completions": [("it has not ended", WriteRefused, lambda o: o.store.consumers.take(_taken(1, "mailer")))],
    "sweeps": [("no text", WriteRefused, lambda o: o.store.sweeps.begin(Begin(HALF, NOW)))],
}
CASES: Final = [
    pytest.param(kind, error, bad, id=f"{kind}: {fault}")
    for kind, faults in BAD.items()
    for fault, error, bad in faults
]


async def _furnish(owner: Owner, kind: str) -> None:
    """Operations to write about: five open, one waiting to be created, one ended, one with a client key."""
    await owner.start(*(operation(n) for n in range(1, 6)), operation(9, State.CREATE_PENDING), operation(8))
    await owner.store.start(record(operation(7), client_key="k", content="a"))
    await owner.apply(8, read("failed", 8))
    if kind == "renew":
        await owner.claim(room=8)


@pytest.mark.parametrize(("kind", "error", "bad"), CASES)
async def test_a_bad_write_is_refused_alone_and_all_else_is_as_if_it_had_never_come(
    places: Callable[[], Place], kind: str, error: type[Exception], bad: Callable[[Owner], Write]
) -> None:
    good = GOOD[kind]
    async with places().opened() as with_it, places().opened() as without:
        for owner in (with_it, without):
            await _furnish(owner, kind)
        commits = with_it.store.commits
        one, two, refused, three, four = await together(
            good(with_it, 1), good(with_it, 2), bad(with_it), good(with_it, 3), good(with_it, 4)
        )
        assert type(refused) is error
        assert with_it.store.commits == commits + 1
        assert [one, two, three, four] == await together(*(good(without, n) for n in (1, 2, 3, 4)))
        assert await everything(with_it) == await everything(without)
        await check_record(with_it)


@pytest.mark.parametrize(("kind", "error", "bad"), CASES)
async def test_a_bad_write_on_its_own_leaves_the_record_as_it_was(
    place: Place, kind: str, error: type[Exception], bad: Callable[[Owner], Write]
) -> None:
    async with place.opened() as owner:
        await _furnish(owner, kind)
        before = await everything(owner)
        (refused,) = await together(bad(owner))
        assert type(refused) is error
        assert await everything(owner) == before


async def test_a_checkpoint_of_a_wrong_number_is_refused_alone(place: Place) -> None:
    def checkpoint(number: int) -> Write:
        return owner.store.record.keep_checkpoint(KEY.sign(Checkpoint(number, NOW, 0, "0" * 64, 0, 0, "0" * 64)))

    async with place.opened() as owner:
        first, gap, twice, second = await together(checkpoint(1), checkpoint(3), checkpoint(1), checkpoint(2))
        assert (first, second) == (None, None)
        assert type(gap) is type(twice) is WriteRefused
        last = await owner.store.record.last_checkpoint()
        assert last is not None
        assert last.checkpoint.number == 2


async def test_an_answer_that_is_a_no_of_our_own_reaches_its_caller_as_it_is(place: Place) -> None:
    async with place.opened() as owner:
        await together(owner.store.start(record(operation(1), client_key="k", content="a")))
        one, reused, two = await together(
            owner.store.start(record(operation(2))),
            owner.store.start(record(operation(3), client_key="k", content="b")),
            owner.store.start(record(operation(4))),
        )
        assert type(reused) is KeyReused
        assert reused.operation_id == "op_1"
        assert one.is_new
        assert two.is_new


async def test_repeats_are_counted_once_although_a_bad_neighbour_made_the_set_run_twice(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        results = await together(
            *(owner.store.receive(event("evt_1")) for _ in range(3)), owner.store.receive(event(HALF))
        )
        assert results[:3] == ["new", "duplicate", "duplicate"]
        assert (await owner.store.event_counts())["test"]["accepted"] == 1
        assert (await owner.store.event_counts())["test"]["duplicate"] == 2


async def test_a_bad_write_of_one_kind_harms_no_other_kind(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        refused, new, started, busy = await together(
            owner.store.receive(event(HALF)),
            owner.store.receive(event("evt_1")),
            owner.store.start(record(operation(10))),
            owner.store.start(record(operation(11, token="tok_1"))),
        )
        assert type(refused) is type(busy) is WriteRefused
        assert new == "new"
        assert started.is_new
        assert owner.store.commits == 2


@pytest.mark.parametrize("fault", [RuntimeError("boom"), AssertionError(), RecursionError(), ZeroDivisionError()])
async def test_a_decision_that_raises_is_refused_alone(place: Place, fault: Exception) -> None:
    async with place.opened(judge=judge_that_fails_for("op_2", fault)) as owner:
        await owner.start(operation(1), operation(2), operation(3))
        before = await owner.get(2)
        one, refused, three = await together(*(owner.store.apply(arrival(n, read("done", n))) for n in (1, 2, 3)))
        assert type(refused) is WriteRefused
        assert one.operation.state is three.operation.state is State.RESULT_COLLECTING
        assert await owner.get(2) == before
        await check_record(owner)


async def test_an_event_whose_decision_raises_is_refused_alone_and_not_kept(place: Place) -> None:
    async with place.opened(judge=judge_that_fails_for("op_2", RuntimeError("boom"))) as owner:
        await owner.start(operation(1), operation(2, State.RESULT_COLLECTING))
        new, refused = await together(
            owner.store.receive(event("evt_1")), owner.store.receive(event("evt_2", job="job_2"))
        )
        assert new == "new"
        assert type(refused) is WriteRefused
        assert (await owner.store.event_counts())["test"]["accepted"] == 1


async def test_a_decision_that_moves_where_no_arrow_leads_is_never_written(place: Place) -> None:
    def judge(op: Operation, given: Arrival) -> Change:
        entry = Entry(EntryKind.MOVE, State.OBSERVING, State.SUCCEEDED, given.cause, "skipped collection")
        return Change(replace(op, state=State.SUCCEEDED, completed_at=NOW), (entry,))

    async with place.opened(judge=judge) as owner:
        await owner.start(operation(1))
        before = await everything(owner)
        (refused,) = await together(owner.store.apply(arrival(1, read("done"))))
        assert type(refused) is WriteRefused
        assert await everything(owner) == before


# ---- a batch that is lost as a whole ----


def _mixed(owner: Owner) -> list[Write]:
    return [
        owner.store.start(record(operation(10), client_key="new", content="c")),
        owner.store.apply(_evidence(1)),
        owner.store.receive(event("evt", job="job_2")),
        owner.store.claim(_claim("B")),
        owner.store.tell(_tell(3, "second")),
        owner.store.consumers.take(_taken(8, "mailer")),
    ]


async def test_a_batch_that_is_taken_back_leaves_nothing_and_the_next_one_works(place: Place) -> None:
    async with place.opened() as owner:
        await _furnish(owner, "mixed")
        before, heard = await everything(owner), len(owner.heard)
        owner.faults.refuse()
        assert {type(a) for a in await together(*_mixed(owner))} == {StoreBusy}
        assert await everything(owner) == before
        assert len(owner.heard) == heard, "somebody was told of what is not there"
        assert owner.store.is_writable
        results = await together(*_mixed(owner))
        assert [r for r in results if isinstance(r, BaseException)] == []
        assert results[0].is_new
        assert results[2] == "new"
        assert len(results[3].claims) == 1
        assert results[5].is_yours
        await check_record(owner)


@pytest.mark.parametrize("edge", EDGES)
async def test_where_nobody_knows_what_was_kept_all_are_told_so_and_the_store_ends(place: Place, edge: Edge) -> None:
    async with place.opened() as owner:
        await _furnish(owner, "mixed")
        before, heard = await everything(owner), len(owner.heard)
        owner.faults.lose(edge)
        assert {type(a) for a in await together(*_mixed(owner))} == {StoreBroken}
        assert isinstance(await owner.fault(), StoreBroken)
        assert len(owner.heard) == heard
        assert not owner.store.is_writable
        (late,) = await together(owner.store.receive(event("late")))
        assert type(late) is StoreBroken
    async with place.opened() as owner:
        assert (await everything(owner) == before) == (edge == "before"), "half of a batch was kept"
        await check_record(owner)


async def test_after_a_break_the_record_alone_says_what_was_written(place: Place) -> None:
    async with place.opened() as owner:
        owner.faults.lose("after")
        assert [type(a) for a in await together(owner.store.receive(event("evt_1")))] == [StoreBroken]
        await owner.fault()
    async with place.opened() as owner:
        assert await owner.store.receive(event("evt_1")) == "duplicate"
        await check_record(owner)


# ---- nobody is left waiting ----


async def test_a_caller_that_goes_away_during_the_batch_takes_nobody_with_it(place: Place) -> None:
    async with place.opened() as owner:
        gate = owner.faults.hold("before")
        tasks = [asyncio.create_task(owner.store.receive(event(f"evt_{n}"))) for n in range(3)]
        await gate.reached()
        tasks[1].cancel()
        gate.open()
        await asyncio.wait({tasks[1]})
        assert tasks[1].cancelled()
        assert await answers([tasks[0], tasks[2]]) == ["new", "new"]
        assert (await owner.store.event_counts())["test"]["accepted"] == 3
        assert await owner.store.receive(event("evt_1")) == "duplicate"


async def test_a_caller_that_goes_away_before_its_batch_takes_nobody_with_it(place: Place) -> None:
    async with place.opened() as owner:
        gate = owner.faults.hold("before")
        first = asyncio.create_task(owner.store.receive(event("evt_0")))
        await gate.reached()
        tasks = [asyncio.create_task(owner.store.receive(event(f"evt_{n}"))) for n in (1, 2, 3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        gate.open()
        assert await answers([first, tasks[0], tasks[2]]) == ["new", "new", "new"]
        assert await owner.store.receive(event("evt_4")) == "new"


async def test_stopping_commits_what_waits_and_takes_nothing_more(place: Place) -> None:
    async with place.opened() as owner:
        gate = owner.faults.hold("before")
        first = asyncio.create_task(owner.store.receive(event("first")))
        await gate.reached()
        queued = [asyncio.create_task(owner.store.receive(event(f"evt_{n}"))) for n in range(600)]
        await asyncio.sleep(0)
        owner.store.stop()
        assert not owner.store.is_writable
        (late,) = await together(owner.store.receive(event("late")))
        assert type(late) is StoreBusy
        gate.open()
        assert set(await answers([first, *queued])) == {"new"}
        assert await owner.fault() is None
        (late,) = await together(owner.store.receive(event("later still")))
        assert type(late) is StoreBusy
    async with place.opened() as owner:
        assert (await owner.store.event_counts())["test"]["accepted"] == 601


async def test_stopping_an_idle_store_ends_its_loop(place: Place) -> None:
    async with place.opened() as owner:
        owner.store.stop()
        assert await owner.fault() is None


async def test_closing_commits_what_waits_before_the_record_is_let_go(place: Place) -> None:
    async with place.opened() as owner:
        gate = owner.faults.hold("before")
        first = asyncio.create_task(owner.store.receive(event("first")))
        await gate.reached()
        queued = [asyncio.create_task(owner.store.receive(event(f"evt_{n}"))) for n in range(3)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(owner.store.close())
        await asyncio.sleep(0)
        (late,) = await together(owner.store.receive(event("late")))
        assert type(late) is StoreBusy
        gate.open()
        assert await answers([first, *queued]) == ["new"] * 4
        assert await answers([closing]) == [None]
        assert await owner.fault() is None
    async with place.opened() as owner:
        assert (await owner.store.event_counts())["test"]["accepted"] == 4


async def test_a_listener_that_raises_leaves_no_caller_waiting(place: Place) -> None:
    def on_done(_: Any) -> None:
        raise RuntimeError("the meter is broken")

    async with place.opened(on_done=on_done) as owner:
        first, second = await together(owner.store.receive(event("evt_1")), owner.store.receive(event("evt_2")))
        assert (first, second) == ("new", "new")
        await together(owner.store.receive(event("evt_3")))
        owner.store.stop()
        await owner.fault()

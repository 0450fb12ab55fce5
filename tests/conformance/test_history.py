"""History: only ever added to, numbered in the order of commits, and enough to rebuild the row (N26 N27 N7 N8 N5)."""

import asyncio
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconcile.contract import Contract
from reconcile.errors import StoreBusy, WriteRefused
from reconcile.evidence import (
    AboutToSend,
    Accepted,
    CancelAnswer,
    CancelAnswered,
    CancelAsked,
    Collected,
    CollectFailed,
    CreateNotAccepted,
    CreateRejected,
    CreateUnknown,
    DeadlinePassed,
    Evidence,
    FinishedAtOnce,
    FoundAtStart,
    FoundInBackup,
    InputAnswer,
    InputAnswered,
    InputAsked,
    JobGone,
    JobRead,
    LookupFound,
    ReadFailed,
    ResultIsFailure,
    StepDone,
)
from reconcile.history_row import HistoryRow
from reconcile.intents import CallbackWish, InputIntent
from reconcile.model import (
    Attention,
    Change,
    Observation,
    Operation,
    Problems,
    Progress,
    RemoteError,
    ResultInfo,
    ResultRef,
    Spans,
    Summary,
)
from reconcile.states import State
from tests.conformance.owner import Owner, Place, together
from tests.conformance.record import all_history, check_record
from tests.conformance.values import HALF, accepted, arrival, event, exchange, operation, read, record
from tests.reconcile.rows import ALL_STATES, CONTRACT, DAY, HOUR, NO_READ, NOW, TERMINAL, info

S = State


async def _with_history(owner: Owner) -> None:
    """Two operations that have lived a little."""
    await owner.start(operation(1, S.CREATE_PENDING), operation(2))
    await owner.apply(1, accepted("job_1", "running"))
    await together(*(owner.store.apply(arrival(n, read("done", n))) for n in (1, 2)))


# ---- only ever added to ----

#: A life of one operation that meets every kind of row: moves, facts, refusals, contradictions.
_LIFE: Final[list[tuple[Evidence, dict[str, Any]]]] = [
    (StepDone("upload", "file-1"), {}),
    (AboutToSend(), {}),
    (accepted("job_1", "queued"), {}),
    (read("running"), {"fence": 9}),
    (read("surprise"), {}),
    (CancelAsked("cancel_9", "client:ci", "why", "stops"), {}),
    (CancelAnswered(CancelAnswer.ACCEPTED), {}),
    (read("failed"), {}),
    (read("done"), {}),
    (read("cancelled"), {}),
]


async def test_whatever_comes_history_is_only_added_to(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, S.CREATE_PENDING), operation(2))
        told: list[HistoryRow] = await all_history(owner.store)
        for step, (evidence, over) in enumerate(_LIFE):
            await owner.apply(1, evidence, **{"at": NOW + step, **exchange(str(step)), **over})
            await owner.store.receive(event(f"evt_{step}", "done"))
            now = await all_history(owner.store)
            assert now[: len(told)] == told, "a row that stood was changed"
            told = now
        assert {row.kind for row in told} == {"move", "fact", "refused", "contradiction"}
        assert (await owner.get()).state is S.FAILED
        await check_record(owner)
    async with place.opened() as owner:
        assert await all_history(owner.store) == told
        await owner.start(operation(3))
        assert (await all_history(owner.store))[:-1] == told


async def test_an_end_is_never_taken_back(place: Place) -> None:
    """What is said of an ended operation is kept beside its end, and counted where it says otherwise (N8)."""
    async with place.opened() as owner:
        await owner.start(operation(1))
        await owner.apply(1, read("failed"))
        ended = await owner.get()
        for n, word in enumerate(["done", "running", "cancelled", "queued", "failed"]):
            await owner.apply(1, read(word), at=NOW + n, **exchange(word))
        op = await owner.get()
        assert (op.state, op.outcome, op.completed_at) == (ended.state, ended.outcome, ended.completed_at)
        assert op.contradictions >= 2
        assert [move for kind, move in await owner.history() if kind == "move"] == ["observing", "failed"]


# ---- numbered ----


async def test_rows_of_one_batch_are_numbered_in_the_order_in_which_they_were_decided(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(*(operation(n) for n in range(4)))
        order = [2, 0, 3, 1]
        await together(*(owner.store.apply(arrival(n, read("waiting", n))) for n in order))
        told = [row for row in await all_history(owner.store) if row.position > 4]
        assert [row.operation_id for row in told] == [f"op_{n}" for n in order]


async def test_a_history_is_read_in_its_order_after_a_number(place: Place) -> None:
    async with place.opened() as owner:
        await _with_history(owner)
        rows = await owner.store.history("op_1")
        assert [row.seq for row in rows] == [1, 2, 3, 4]
        assert [row.seq for row in await owner.store.history("op_1", after=2)] == [3, 4]
        assert [row.seq for row in await owner.store.history("op_1", after=1, limit=2)] == [2, 3]
        assert await owner.store.history("nobody") == []


async def test_positions_follow_the_commits_without_a_gap_whatever_was_rolled_back(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1), operation(2))
        last = 2
        for n in range(3, 9):
            bad = owner.store.start(record(operation(50 + n, token="tok_1")))
            second = owner.store.start(record(operation(n)))
            lost = owner.store.apply(arrival(77, read("running")))
            told = owner.store.apply(arrival(1, read("surprise"), actor=HALF))
            odd = owner.store.apply(arrival(n - 1, read("waiting", n - 1)))
            answers = await together(bad, second, lost, told, odd)
            assert [type(a) is WriteRefused for a in answers] == [True, False, True, False, False]
            owner.faults.refuse()
            assert type((await together(owner.store.start(record(operation(100 + n)))))[0]) is StoreBusy
            new = [row.position for row in await owner.store.consumers.history_of_all(after=last)]
            assert new == [last + 1, last + 2]
            last += 2
        await check_record(owner)
    async with place.opened() as owner:
        await owner.start(operation(9))
        assert await owner.store.consumers.last_position() == last + 1
        await check_record(owner)


# ---- the row survives its own writing ----

_FULL_OF_EVERYTHING: Final = replace(
    operation(1, S.CANCELLING),
    labels={"team": "é", "n": "1"},
    steps={"upload": "file-1"},
    input_ref="spool/op_1.jsonl",
    caller="ci",
    approval="a-1",
    progress=Progress(percent=3, phase="x", completed=1, total=3),
    results=(ResultRef("file-1"), ResultRef("file-2", "errors")),
    results_gone=True,
    end_unread=True,
    our_faults=2,
    results_kept_until=NOW + 1,
    contract_version=3,
    origin="https://api.example",
    spans=Spans(create_ms=1, result_ms=2, cancel_ms=3, input_ms=4),
    input=InputIntent("input_1", "client:ci", NOW, "accepted"),
    callback=CallbackWish("ci", "https://ci.example.com/x"),
    attention=Attention("errors", NOW, "why", reminded_at=NOW),
    finished_items=2,
    total_items=3,
    collect_attempt=2,
    unconfirmed=True,
    summary=Summary(total=3, succeeded=1, failed=2),
    result=ResultInfo(
        2, 10, "a" * 64, None, 3, ("x", "y"), Problems(duplicate=("a",), unreadable_lines=(3,), expected=3)
    ),
    error=RemoteError("code", "message\x00\n", retryable=True, provider="p"),
    candidates=("job_1", "job_2"),
    resends=1,
    last_refusal="http_401",
    accepted_despite="expected a, got b",
    resend_checked=True,
    restored=True,
    unknown_since=NOW - 2,
    token_since=NOW - 3,
    item_mark="0123456789ab",
    ruled_out=("job_3",),
    by_count=True,
    end_missed=True,
    contradictions=2,
    parent="op_0",
    adopted=True,
    verdict=operation(2, S.RESULT_COLLECTING).verdict,
)


@pytest.mark.parametrize("state", [s for s in ALL_STATES if s not in TERMINAL])
async def test_an_operation_is_read_as_it_was_written(place: Place, state: State) -> None:
    async with place.opened() as owner:
        op = operation(1, state)
        await owner.start(op)
        stored = await owner.get()
        assert stored.schedule.due_at == op.schedule.due_at
        assert replace(stored, seq=0, head="", schedule=op.schedule, request=op.request) == op


def test_the_operation_with_every_field_set_leaves_none_out() -> None:
    rest = {field.name for field in fields(Operation) if getattr(_FULL_OF_EVERYTHING, field.name) == _default(field)}
    assert rest == {"completed_at", "expect", "seq", "head"}, "set at the end, kept apart, counted by the store"


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


async def test_an_operation_with_every_field_set_is_read_as_it_was_written(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(_FULL_OF_EVERYTHING)
        stored = await owner.get()
        as_it_was = replace(
            stored, seq=0, head="", schedule=_FULL_OF_EVERYTHING.schedule, request=_FULL_OF_EVERYTHING.request
        )
        assert as_it_was == _FULL_OF_EVERYTHING


# ---- folding (N5 N7 N8 N27) ----

_words = st.sampled_from([*CONTRACT.words, "brand_new", None])


def _observations(n: int) -> st.SearchStrategy[Observation]:
    return st.builds(
        Observation,
        _words,
        remote_job_id=st.sampled_from([f"job_{n}", f"job_{n}", f"job_{n}", "job_x", None]),
        progress=st.sampled_from([None, Progress(completed=1, total=3), Progress(percent=50)]),
        results=st.sampled_from([(), (ResultRef("file-1"),), (ResultRef("file-1"), ResultRef("file-2", "errors"))]),
        finished_items=st.sampled_from([None, 0, 3]),
        error=st.sampled_from([None, RemoteError("e", "m")]),
    )


_collected: Final = st.builds(
    Collected,
    st.sampled_from([info(), info(problems=Problems(missing=("a",), expected=3, found=2))]),
    st.sampled_from([Summary(3, succeeded=3), Summary(3, succeeded=1, failed=2), Summary(3, failed=3)]),
)
_deadlines: Final = st.sampled_from(["create", "result", "cancel", "input", "collect", "attention"])
_PLAIN: Final[list[Evidence]] = [
    CreateRejected(RemoteError("bad_request", "no")),
    CreateNotAccepted("http_429", 1000),
    CreateUnknown("timeout"),
    StepDone("upload", "file-1"),
    AboutToSend(),
    LookupFound(()),
    LookupFound(("job_a", "job_b")),
    LookupFound(("job_a",), is_sure=False),
    ReadFailed("http_500"),
    JobGone(),
    CancelAsked("cancel_9", "client:ci", "why", "stops"),
    *(CancelAnswered(answer) for answer in CancelAnswer),
    InputAsked("input_9", "client:ci"),
    *(InputAnswered(answer) for answer in InputAnswer),
    CollectFailed("http_500"),
    CollectFailed("gone", is_final=True),
    ResultIsFailure(RemoteError("e", "m")),
    FoundAtStart(),
    FoundAtStart(is_repeatable=True),
    FoundInBackup(NOW - HOUR),
]


def _evidence(n: int) -> st.SearchStrategy[Evidence]:
    seen = _observations(n)
    return st.one_of(
        st.builds(JobRead, seen),
        st.builds(JobRead, seen),
        st.builds(Accepted, seen),
        st.builds(FinishedAtOnce, seen),
        _collected,
        st.builds(DeadlinePassed, _deadlines, st.booleans()),
        st.sampled_from(_PLAIN),
        st.sampled_from(_PLAIN),
    )


@dataclass(frozen=True)
class _Step:
    """One write of the walk: evidence for operation n, or an event about its job where `word` is given."""

    n: int
    evidence: Evidence
    word: str | None
    is_event: bool
    fence: int | None
    waits: int
    shares_batch: bool


def _step(n: int) -> st.SearchStrategy[_Step]:
    return st.builds(
        _Step,
        st.just(n),
        _evidence(n),
        _words,
        st.sampled_from([False, False, False, True]),
        st.sampled_from([None, None, None, 0, 1, 2]),
        st.sampled_from([0, 0, 1, HOUR, 2 * DAY, 8 * DAY]),
        st.booleans(),
    )


@given(
    states=st.tuples(st.just(S.CREATE_PENDING), st.sampled_from([S.CREATE_PENDING, S.ACCEPTED, S.OBSERVING])),
    steps=st.lists(st.one_of(_step(1), _step(2)), min_size=1, max_size=30),
    contract=st.sampled_from([CONTRACT, CONTRACT, NO_READ]),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_came_the_history_tells_the_row(
    places: Callable[[], Place], states: tuple[State, State], steps: list[_Step], contract: Contract
) -> None:
    asyncio.run(_walk(places(), states, steps, contract))


async def _walk(place: Place, states: tuple[State, State], steps: list[_Step], contract: Contract) -> None:
    now = NOW
    batches: list[list[tuple[int, _Step]]] = [[]]
    for step in steps:
        now += step.waits
        if not step.shares_batch:
            batches.append([])
        batches[-1].append((now, step))
    async with place.opened(contract=contract) as owner:
        await owner.start(*(operation(n, state) for n, state in enumerate(states, start=1)))
        for number, batch in enumerate(batches):
            if number % 2:
                await owner.claim(now=batch[0][0] if batch else now)
            names = [f"{number}_{i}" for i in range(len(batch))]
            await together(*(_write(owner, at, step, name) for (at, step), name in zip(batch, names, strict=True)))
            await check_record(owner)
        await check_record(owner)


def _write(owner: Owner, at: int, step: _Step, name: str) -> Any:
    n = step.n
    if step.is_event:
        return owner.store.receive(event(f"evt_{name}", step.word, f"job_{n}", received_at=at))
    return owner.store.apply(arrival(n, step.evidence, at=at, fence=step.fence, draw=0.5, **exchange(name)))


async def test_the_change_that_a_caller_hears_is_the_row_that_was_written(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, S.CREATE_PENDING))
        claim = await owner.claim_one()
        walk: list[tuple[Evidence, dict[str, Any]]] = [
            (StepDone("upload", "file-1"), {"fence": claim.fence, "holds": True}),
            (accepted("job_1", "queued"), {"fence": claim.fence}),
            (read("running", progress=Progress(completed=1, total=3)), {}),
            (read("running", progress=Progress(completed=1, total=3)), {}),
            (ReadFailed("http_500"), {}),
            (CancelAsked("cancel_9", "client:ci", "why", "stops"), {}),
            (CancelAnswered(CancelAnswer.ACCEPTED), {}),
            (read("cancelled+files", results=(ResultRef("file-1"),)), {}),
            (Collected(info(), Summary(3, succeeded=1, cancelled=2)), {}),
        ]
        for evidence, over in walk:
            change: Change = await owner.apply(1, evidence, **over)
            stored: Operation = await owner.get()
            if stored.is_terminal:
                stored = replace(stored, schedule=change.operation.schedule)
            assert stored == change.operation
        assert (await owner.get()).state is S.CANCELLED

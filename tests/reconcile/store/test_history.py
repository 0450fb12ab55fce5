"""History: never changed, chained per operation, numbered without a gap, and enough to rebuild the row."""

import asyncio
import sqlite3
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconcile.chain import ChainedRow
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
from tests.reconcile.chains import verify
from tests.reconcile.rows import ALL_STATES, ARROWS, CONTRACT, DAY, HOUR, NO_READ, NOW, TERMINAL, info, running
from tests.reconcile.store.ground import (
    Ground,
    accepted,
    arrival,
    beside,
    database_error,
    event,
    exchange,
    opened,
    operation,
    raising,
    read,
    record,
    together,
)

S = State


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file comes to stand."""
    return tmp_path / "reconciled.db"


async def _with_history(path: Path) -> None:
    """A file with two operations that have lived a little."""
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING), operation(2))
        await ground.apply(1, accepted("job_1", "running"))
        await together(*(ground.store.apply(arrival(n, read("done", n))) for n in (1, 2)))


# ---- never changed ----

_REPLACE: Final = (
    "REPLACE INTO history SELECT {}, at, actor, kind, from_state, to_state, cause, remote_job_id, 'nicer', facts, hash"
    " FROM history WHERE position = 2"
)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE history SET reason = 'nicer' WHERE position = 2",
        "UPDATE history SET reason = reason",
        "UPDATE OR REPLACE history SET position = 99 WHERE position = 2",
        "DELETE FROM history WHERE position = 2",
        "DELETE FROM history",
        _REPLACE.format("position, operation_key, seq"),
        _REPLACE.format("position, operation_key, 99"),
        _REPLACE.format("99, operation_key, seq"),
    ],
)
async def test_history_can_be_neither_changed_nor_removed(path: Path, sql: str) -> None:
    await _with_history(path)
    with beside(path, writes=True) as connection:
        before = connection.execute("SELECT * FROM history ORDER BY position").fetchall()
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(sql)
        assert connection.execute("SELECT * FROM history ORDER BY position").fetchall() == before


async def test_an_operation_with_history_cannot_be_removed(path: Path) -> None:
    await _with_history(path)
    async with opened(path) as ground:
        faults: list[BaseException] = []

        def remove(connection: sqlite3.Connection) -> None:
            try:
                connection.execute("DELETE FROM operations")
            except sqlite3.IntegrityError as fault:
                faults.append(fault)

        ground.hooks.before_commit = remove
        await ground.store.receive(event("evt", job="nobody"))
        assert len(faults) == 1
        assert ground.one("SELECT count(*) FROM operations") == 2


# ---- numbered ----


async def test_positions_follow_the_commits_without_a_gap_whatever_was_rolled_back(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        last = 2
        for n in range(3, 9):
            bad = ground.store.start(record(operation(50 + n, token="tok_1")))
            second = ground.store.start(record(operation(n)))
            lost = ground.store.apply(arrival(77, read("running")))
            told = ground.store.apply(arrival(1, read("surprise"), actor="half \ud800"))
            odd = ground.store.apply(arrival(n - 1, read("waiting", n - 1)))
            answers = await together(bad, second, lost, told, odd)
            assert [type(a) is WriteRefused for a in answers] == [True, False, True, n % 2 == 7, False]
            ground.hooks.before_commit = raising(database_error(sqlite3.SQLITE_FULL))
            assert type((await together(ground.store.start(record(operation(100 + n)))))[0]) is StoreBusy
            ground.hooks.before_commit = None
            new = [row[0] for row in ground.look("SELECT position FROM history WHERE position > ?", last)]
            assert new == [last + 1, last + 2]
            last += 2
        ground.check_chains()
    async with opened(path) as ground:
        await ground.start(operation(9))
        assert ground.one("SELECT max(position) FROM history") == last + 1
        ground.check_chains()


async def test_rows_of_one_batch_are_numbered_in_the_order_in_which_they_were_decided(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(*(operation(n) for n in range(4)))
        order = [2, 0, 3, 1]
        await together(*(ground.store.apply(arrival(n, read("waiting", n))) for n in order))
        told = ground.look("SELECT operation_id FROM history JOIN operations ON key = operation_key WHERE position > 4")
        assert [row[0] for row in told] == [f"op_{n}" for n in order]


async def test_a_history_is_read_in_its_order_after_a_number(path: Path) -> None:
    await _with_history(path)
    async with opened(path) as ground:
        rows = await ground.store.history("op_1")
        assert [row.seq for row in rows] == [1, 2, 3, 4]
        assert [row.seq for row in await ground.store.history("op_1", after=2)] == [3, 4]
        assert [row.seq for row in await ground.store.history("op_1", after=1, limit=2)] == [2, 3]
        assert await ground.store.history("nobody") == []


# ---- chained ----

_CHAIN: Final = (
    "SELECT h.position, o.operation_id, h.seq, h.at, h.actor, h.kind, h.from_state, h.to_state, h.cause,"
    " h.remote_job_id, h.reason, h.facts, h.hash FROM history h JOIN operations o ON o.key = h.operation_key"
    " WHERE o.operation_id = 'op_1' ORDER BY h.seq"
)


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("UPDATE history SET at = at + 1 WHERE seq = 2", "row 2"),
        ("UPDATE history SET actor = 'nobody' WHERE seq = 2", "row 2"),
        ("UPDATE history SET kind = 'fact' WHERE seq = 2", "row 2"),
        ("UPDATE history SET from_state = NULL WHERE seq = 2", "row 2"),
        ("UPDATE history SET to_state = 'observing' WHERE seq = 2", "row 2"),
        ("UPDATE history SET cause = 'x' WHERE seq = 2", "row 2"),
        ("UPDATE history SET remote_job_id = 'x' WHERE seq = 2", "row 2"),
        ("UPDATE history SET reason = 'x' WHERE seq = 2", "row 2"),
        ("UPDATE history SET facts = '{}' WHERE seq = 2", "row 2"),
        ("UPDATE history SET position = 99 WHERE seq = 2 AND operation_key = 1", "row 2"),
        ("UPDATE history SET hash = '' WHERE seq = 2", "row 2"),
        ("DELETE FROM history WHERE seq = 2", "row 3"),
        ("DELETE FROM history WHERE seq = 4", "row 3"),
    ],
)
async def test_a_row_that_was_tampered_with_is_named(path: Path, sql: str, names: str) -> None:
    await _with_history(path)
    with beside(path, writes=True) as connection:
        for trigger in ("history_is_never_changed", "history_is_never_removed"):
            connection.execute(f"DROP TRIGGER {trigger}")
        seq, head = connection.execute("SELECT seq, head FROM operations WHERE operation_id = 'op_1'").fetchone()

        def fault() -> str | None:
            rows = connection.execute(_CHAIN).fetchall()
            return verify([(ChainedRow(*row[:-1]), row[-1]) for row in rows], head=head, length=seq)

        assert fault() is None
        connection.execute(sql)
        assert names in str(fault())


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
async def test_an_operation_is_read_as_it_was_written(path: Path, state: State) -> None:
    async with opened(path) as ground:
        op = operation(1, state)
        await ground.start(op)
        stored = await ground.get()
        assert stored.schedule.due_at == op.schedule.due_at
        assert replace(stored, seq=0, head="", schedule=op.schedule, request=op.request) == op


def test_the_operation_with_every_field_set_leaves_none_out() -> None:
    rest = {field.name for field in fields(Operation) if getattr(_FULL_OF_EVERYTHING, field.name) == _default(field)}
    assert rest == {"completed_at", "expect", "seq", "head"}, "set at the end, kept apart, counted by the store"


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


async def test_an_operation_with_every_field_set_is_read_as_it_was_written(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(_FULL_OF_EVERYTHING)
        stored = await ground.get()
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
    tmp_path_factory: pytest.TempPathFactory, states: tuple[State, State], steps: list[_Step], contract: Contract
) -> None:
    asyncio.run(_walk(tmp_path_factory.mktemp("fold") / "reconciled.db", states, steps, contract))


async def _walk(path: Path, states: tuple[State, State], steps: list[_Step], contract: Contract) -> None:
    now = NOW
    batches: list[list[tuple[int, _Step]]] = [[]]
    for step in steps:
        now += step.waits
        if not step.shares_batch:
            batches.append([])
        batches[-1].append((now, step))
    async with opened(path, contract=contract) as ground:
        await ground.start(*(operation(n, state) for n, state in enumerate(states, start=1)))
        for number, batch in enumerate(batches):
            if number % 2:
                await ground.claim(now=batch[0][0] if batch else now)
            names = [f"{number}_{i}" for i in range(len(batch))]
            await together(*(_write(ground, at, step, name) for (at, step), name in zip(batch, names, strict=True)))
            for n in (1, 2):
                await _check_told(ground, n)
        ground.check_chains()


def _write(ground: Ground, at: int, step: _Step, name: str) -> Any:
    n = step.n
    if step.is_event:
        return ground.store.receive(event(f"evt_{name}", step.word, f"job_{n}", received_at=at))
    return ground.store.apply(arrival(n, step.evidence, at=at, fence=step.fence, draw=0.5, **exchange(name)))


async def _check_told(ground: Ground, n: int) -> None:
    """That the n-th operation's row is what its history folds to, and each of its moves was a legal one."""
    op = await ground.get(n)
    state: str | None = None
    job: str | None = None
    deadlines: dict[str, int] = {}
    outcome: str | None = None
    ends = contradictions = 0
    for row in await ground.store.history(f"op_{n}"):
        assert row.cause
        if row.seq > 1:
            assert row.from_state == state
        if row.kind == "move":
            assert row.seq == 1 or row.to_state in ARROWS[str(state)]
            state = row.to_state
            ends += state in [end.value for end in TERMINAL]
        contradictions += row.kind == "contradiction"
        if "remote_job_id" in row.facts and row.facts["remote_job_id"] != job:
            assert job is None, "a job id was written twice"
            job = row.facts["remote_job_id"]
        if "deadlines" in row.facts:
            deadlines = {name: at for name, at in row.facts["deadlines"].items() if at is not None}
        outcome = row.facts.get("outcome", outcome)
    assert (state, job, outcome, deadlines) == (op.state, op.remote_job_id, op.outcome, running(op))
    assert contradictions == op.contradictions
    assert ends == (op.state in TERMINAL)
    assert (ground.schedule(n) == {}) == (op.state in TERMINAL)


async def test_the_change_that_a_caller_hears_is_the_row_that_was_written(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING))
        claim = await ground.claim_one()
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
            change: Change = await ground.apply(1, evidence, **over)
            stored: Operation = await ground.get()
            if stored.is_terminal:
                stored = replace(stored, schedule=change.operation.schedule)
            assert stored == change.operation
        assert (await ground.get()).state is S.CANCELLED

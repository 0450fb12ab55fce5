"""Builders for the tests of the pure core: a contract, one row in each state, and cells of the evidence table.

What is expected is typed here by hand from the design page; nothing here asks the code what it thinks is right.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from reconcile.contract import CancelTerms, Contract, Limits, Lookup, PollPlan, Word
from reconcile.decide import decide
from reconcile.evidence import Evidence, JobRead
from reconcile.intents import CancelIntent, InputIntent
from reconcile.model import (
    Attention,
    Change,
    Deadlines,
    EntryKind,
    Observation,
    Operation,
    ResultInfo,
    ResultRef,
    Schedule,
    Summary,
    Verdict,
    VerdictKind,
)
from reconcile.schedule import Pace
from reconcile.states import State

S = State
K = VerdictKind
MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
#: The moment of every test, unless it says otherwise.
NOW: Final = 1_800_000_000_000
BASE: Final = 30_000
CAP: Final = 600_000
SWEEP: Final = 900_000
#: The highest draw: with it a delay is the end of its span, with 0.0 its start.
HIGHEST: Final = 0.9999999999

# ---- the columns of the evidence table ----

CREATING: Final = (S.CREATE_PENDING, S.CREATE_UNKNOWN)
WATCHING: Final = (S.ACCEPTED, S.OBSERVING, S.BLOCKED, S.INPUT_GIVEN)
CANCELLING: Final = (S.CANCEL_REQUESTED, S.CANCELLING, S.CANCELLATION_UNCONFIRMED)
STOPPED: Final = (S.RESULT_TIMED_OUT, S.OBSERVATION_FAILED)
RESULTS: Final = (S.RESULT_COLLECTING, S.RESULT_UNAVAILABLE, S.RESULT_VALIDATION_FAILED)
TERMINAL: Final = (S.SUCCEEDED, S.COMPLETED_WITH_ERRORS, S.FAILED, S.CANCELLED, S.TIMED_OUT, S.ABANDONED)
ALL_STATES: Final = (
    *CREATING,
    *WATCHING,
    *CANCELLING,
    *STOPPED,
    *RESULTS,
    S.CREATE_UNRESOLVED,
    S.CONTRACT_VIOLATION,
    *TERMINAL,
)

#: "leaves to" of the states table, word for word; the arrow to contract_violation is added below, as the page does.
_LEAVES_TO: Final[Mapping[str, str]] = {
    "create_pending": "accepted create_unknown result_collecting failed cancelled",
    "create_unknown": "accepted result_collecting failed create_unresolved",
    "accepted": "observing blocked cancel_requested result_collecting failed cancelled result_timed_out"
    " observation_failed",
    "observing": "blocked cancel_requested result_collecting failed cancelled result_timed_out observation_failed",
    "blocked": "observing input_given cancel_requested result_collecting failed cancelled result_timed_out"
    " observation_failed abandoned",
    "input_given": "observing blocked cancel_requested result_collecting failed cancelled result_timed_out"
    " observation_failed",
    "cancel_requested": "cancelling result_collecting failed cancelled cancellation_unconfirmed",
    "cancelling": "result_collecting failed cancelled cancellation_unconfirmed",
    "result_collecting": "succeeded completed_with_errors failed cancelled result_unavailable result_validation_failed",
    "create_unresolved": "accepted create_unknown create_pending abandoned",
    "contract_violation": "accepted observing abandoned",
    "observation_failed": "observing blocked cancel_requested result_collecting failed cancelled abandoned",
    "result_timed_out": "observing cancel_requested result_collecting failed cancelled timed_out abandoned",
    "cancellation_unconfirmed": "observing cancel_requested result_collecting failed cancelled abandoned",
    "result_unavailable": "result_collecting completed_with_errors failed cancelled abandoned",
    "result_validation_failed": "result_collecting completed_with_errors failed cancelled abandoned",
    "succeeded": "",
    "completed_with_errors": "",
    "failed": "",
    "cancelled": "",
    "timed_out": "",
    "abandoned": "",
}
#: Every legal move, by name.
ARROWS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(to.split()) | ({"contract_violation"} if to and name != "contract_violation" else set())
    for name, to in _LEAVES_TO.items()
}

#: The deadline that ends the waiting, by state; a blocked job may have two.
DEADLINES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "create_pending": ("create",),
    "create_unknown": ("create",),
    "accepted": ("result",),
    "observing": ("result",),
    "blocked": ("input", "result"),
    "input_given": ("result",),
    "cancel_requested": ("cancel",),
    "cancelling": ("cancel",),
    "result_collecting": ("collect",),
    "create_unresolved": ("attention",),
    "contract_violation": ("attention",),
    "observation_failed": ("attention",),
    "result_timed_out": ("attention",),
    "cancellation_unconfirmed": ("attention",),
    "result_unavailable": ("attention",),
    "result_validation_failed": ("attention",),
}

#: The words a question may bear, by state: the page's own reason or the narrower ones it lists behind it.
REASONS_OF: Final[Mapping[str, frozenset[str]]] = {
    "blocked": frozenset({"input_required", "input_unknown"}),
    "create_unresolved": frozenset({"create_unresolved"}),
    "contract_violation": frozenset({"contract_violation"}),
    "observation_failed": frozenset({"errors", "gone", "provider_missing", "provider_moved"}),
    "result_timed_out": frozenset({"result", "input"}),
    "cancellation_unconfirmed": frozenset({"cancellation_unconfirmed", "refused", "gone"}),
    "result_unavailable": frozenset({"result_unavailable"}),
    "result_validation_failed": frozenset({"result_validation_failed"}),
}
_FIRST_REASON: Final = {
    S.BLOCKED: "input_required",
    S.OBSERVATION_FAILED: "errors",
    S.RESULT_TIMED_OUT: "result",
}

# ---- contracts ----

CONTRACT: Final = Contract(
    kind="test",
    version=7,
    operation_type="batch",
    words={
        "queued": Word(K.PENDING),
        "running": Word(K.PENDING),
        "waiting": Word(K.BLOCKED),
        "done": Word(K.DONE),
        "ended": Word(K.DONE_UNKNOWN_OUTCOME),
        "failed": Word(K.FAILED),
        "failed+files": Word(K.FAILED, may_hold_results=True),
        "cancelled": Word(K.CANCELLED),
        "cancelled+files": Word(K.CANCELLED, may_hold_results=True),
        "window_closed": Word(K.EXPIRED),
        "window_closed+files": Word(K.EXPIRED, may_hold_results=True),
        "forgotten": Word(K.GONE),
    },
    poll=PollPlan(base_ms=BASE, cap_ms=CAP, sweep_ms=SWEEP),
    limits=Limits(requests_per_second=5, concurrency=4),
    status_page="https://status.example",
    result_within_ms=26 * HOUR,
    lookup=Lookup(is_sure=True),
    cancel=CancelTerms(is_repeatable=False, may_remain="items done and billed", within_ms=11 * MINUTE),
    takes_input=True,
)
REPLAYS: Final = replace(CONTRACT, idempotency="replays")
NO_CANCEL: Final = replace(CONTRACT, cancel=None)
NO_READ: Final = replace(CONTRACT, has_read=False)
NO_INPUT: Final = replace(CONTRACT, takes_input=False)
CONSUMING: Final = replace(CONTRACT, result_fetch="consuming")
GONE_IS_CANCELLED: Final = replace(
    CONTRACT, cancel=CancelTerms(is_repeatable=True, may_remain="nothing", gone_means_cancelled=True)
)
ALL_CONTRACTS: Final = (CONTRACT, REPLAYS, NO_CANCEL, NO_READ, NO_INPUT, CONSUMING, GONE_IS_CANCELLED)

# ---- rows ----

CANCEL: Final = CancelIntent("cancel_1", "client:ci", "not needed", "stops the job", NOW - MINUTE)
INPUT: Final = InputIntent("input_1", "client:ci", NOW - MINUTE)
_VERDICTS: Final[Mapping[State, Verdict]] = {
    S.RESULT_COLLECTING: Verdict(K.DONE_UNKNOWN_OUTCOME, "ended"),
    S.RESULT_UNAVAILABLE: Verdict(K.DONE_UNKNOWN_OUTCOME, "ended"),
    S.RESULT_VALIDATION_FAILED: Verdict(K.DONE_UNKNOWN_OUTCOME, "ended"),
    S.SUCCEEDED: Verdict(K.DONE_UNKNOWN_OUTCOME, "ended"),
    S.COMPLETED_WITH_ERRORS: Verdict(K.DONE_UNKNOWN_OUTCOME, "ended"),
    S.FAILED: Verdict(K.FAILED, "failed"),
    S.CANCELLED: Verdict(K.CANCELLED, "cancelled"),
}
#: The word of a read that says the same end as the row, by state; none says the same as an operation given up.
SAME_END: Final[Mapping[State, str]] = {state: str(verdict.word) for state, verdict in _VERDICTS.items()}
OTHER_END: Final[Mapping[State, str]] = {
    **dict.fromkeys(RESULTS, "failed"),
    S.SUCCEEDED: "failed",
    S.COMPLETED_WITH_ERRORS: "cancelled",
    S.FAILED: "ended",
    S.CANCELLED: "ended",
    S.TIMED_OUT: "ended",
    S.ABANDONED: "ended",
}


def in_state(state: State, *, mark_at: int | None = None, **over: Any) -> Operation:
    """A row as it stands in `state` in ordinary life. Schedule fields may be given beside the row's own."""
    known = state not in (*CREATING, S.CREATE_UNRESOLVED)
    ended = state in TERMINAL
    deadlines = Deadlines(
        create=NOW + 14 * MINUTE,
        result=NOW + 20 * HOUR if known else None,
        cancel=NOW + 10 * MINUTE if state in CANCELLING else None,
        input=NOW + 23 * HOUR if state is S.BLOCKED else None,
        collect=NOW + 23 * HOUR if state is S.RESULT_COLLECTING else None,
        attention=NOW + 6 * DAY if DEADLINES_OF.get(state) == ("attention",) else None,
    )
    reason = _FIRST_REASON.get(state, state.value)
    schedule = Schedule(due_at=NOW, mark_at=mark_at)
    row = Operation(
        operation_id="op_1",
        provider="test",
        type="batch",
        state=state,
        token="tok_0123456789abcdef",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        fingerprint="f" * 64,
        request={"endpoint": "/v1/x"},
        created_at=NOW - HOUR,
        schedule=schedule,
        input_items=3,
        remote_job_id="job_1" if known else None,
        remote_status="running" if known else None,
        started_at=NOW - HOUR if known else None,
        completed_at=NOW - MINUTE if ended else None,
        deadlines=deadlines,
        verdict=_VERDICTS.get(state),
        cancel=CANCEL if state in CANCELLING else None,
        input=INPUT if state is S.INPUT_GIVEN else None,
        attention=Attention(reason, NOW - HOUR) if state in REASONS_OF else None,
    )
    narrow = {name: over.pop(name) for name in list(over) if name in Schedule.__dataclass_fields__}
    row = replace(row, **over)
    return replace(row, schedule=replace(row.schedule, **narrow)) if narrow else row


def step(
    op: Operation,
    evidence: Evidence,
    contract: Contract = CONTRACT,
    *,
    now: int = NOW,
    draw: float = 0.0,
    cause: str = "observation:1",
    pace: Pace = Pace.POLLED,
) -> Change:
    """One decision, checked against everything that must hold of any decision."""
    change = decide(op, contract, evidence, now=now, draw=draw, cause=cause, pace=pace)
    check_change(op, change, now)
    return change


def read(word: str | None, **over: Any) -> JobRead:
    """A read of job_1 that says `word`."""
    return JobRead(Observation(word, remote_job_id="job_1", **over))


def info(*, attempt: int = 1, items: int = 3, **over: Any) -> ResultInfo:
    """What collection recorded of a result of so many items."""
    return ResultInfo(attempt, 1000, "a" * 64, "application/jsonl", items, **over)


ALL_GOOD: Final = Summary(total=3, succeeded=3)
FILES: Final = (ResultRef("file-1"), ResultRef("file-2", role="errors"))


# ---- cells ----

Cell = str | Mapping[State, str]


def row(
    *,
    creating: Cell,
    watching: Cell,
    cancelling: Cell,
    stopped: Cell,
    results: Cell,
    terminal: Cell,
    unresolved: str = "kept",
    violation: str = "kept",
) -> list[Any]:
    """One line of the evidence table as parameters (state, cell), one for each of the 22 states.

    A cell is a state's name, or "-", "kept", "stays" (the state is unchanged), "contradiction", "409",
    "the same answer". A column whose states differ is a mapping.
    """
    columns: tuple[tuple[Iterable[State], Cell], ...] = (
        (CREATING, creating),
        (WATCHING, watching),
        (CANCELLING, cancelling),
        (STOPPED, stopped),
        (RESULTS, results),
        (TERMINAL, terminal),
        ((S.CREATE_UNRESOLVED,), unresolved),
        ((S.CONTRACT_VIOLATION,), violation),
    )
    cells = {s: cell if isinstance(cell, str) else cell[s] for states, cell in columns for s in states}
    assert set(cells) == set(ALL_STATES)
    assert len(cells) == 22
    return [pytest.param(state, cell, id=f"{state.value}: {cell}") for state, cell in cells.items()]


def assert_cell(op: Operation, change: Change, cell: str) -> None:
    """That the decision did what the cell says, and nothing that it does not say."""
    after, moves = change.operation, [e for e in change.entries if e.kind is EntryKind.MOVE]
    contradictions = 1 if cell == "contradiction" else 0
    got = f"{after.state.value}, {after.contradictions - op.contradictions} contradictions, refusal {change.refusal!r}"
    assert after.contradictions - op.contradictions == contradictions, f"{cell}, got {got}"
    assert (change.refusal is not None) == (cell == "409"), f"{cell}, got {got}"
    if cell in ("409", "the same answer"):
        assert change.entries == ()
        assert replace(after, schedule=op.schedule) == op
    if cell == "409":
        assert after == op
    if cell in ("-", "kept", "stays", "contradiction", "409", "the same answer"):
        assert after.state is op.state, f"{cell}, got {got}"
        assert moves == []
        assert after.deadlines == op.deadlines
        assert after.remote_job_id == op.remote_job_id
        assert after.outcome == op.outcome
    else:
        assert after.state == cell, f"{cell}, got {got}"
        assert moves, "a move without a history row"
        assert moves[-1].to_state == cell


# ---- what must hold of every decision ----

DEADLINE_NAMES: Final = ("create", "result", "cancel", "input", "collect", "attention")


def running(op: Operation) -> dict[str, int]:
    """The deadlines that run, by name."""
    return {n: v for n in DEADLINE_NAMES if (v := getattr(op.deadlines, n)) is not None}


def check_change(before: Operation, change: Change, now: int) -> None:
    """The invariants of one decision: N5, N7, N8, N9, N23, N27, B3, D2, D4."""
    after = change.operation
    if change.refusal is not None:
        assert after == before
        assert change.entries == ()
        return
    _check_moves(before, change)
    _check_fold(before, change)
    _check_deadlines(before, after)
    kinds = [e.kind for e in change.entries]
    assert after.contradictions - before.contradictions == kinds.count(EntryKind.CONTRADICTION)
    assert all(e.cause and e.reason for e in change.entries)
    if before.remote_job_id is not None:
        assert after.remote_job_id == before.remote_job_id
    if after.state in TERMINAL:
        assert after.completed_at == (before.completed_at if before.state in TERMINAL else now)
        assert after.attention is None
    else:
        assert after.completed_at is None
        _check_somebody_acts(before, after, now)


def _check_moves(before: Operation, change: Change) -> None:
    at = before.state
    for entry in change.entries:
        assert entry.from_state is at
        if entry.kind is EntryKind.MOVE:
            assert entry.to_state is not None
            assert entry.to_state.value in ARROWS[at.value]
            at = entry.to_state
        elif entry.kind is not EntryKind.REFUSED:
            assert entry.to_state is None
    assert change.operation.state is at
    if before.state in TERMINAL:
        assert change.operation.state is before.state


def _check_fold(before: Operation, change: Change) -> None:
    """Folding the entries over the row as it was gives the row as it is (N27)."""
    folded: dict[str, Any] = {
        "state": before.state,
        "remote_job_id": before.remote_job_id,
        "outcome": before.outcome,
        "deadlines": running(before),
    }
    for entry in change.entries:
        if entry.kind is EntryKind.MOVE:
            folded["state"] = entry.to_state
        folded.update({n: entry.facts[n] for n in ("remote_job_id", "outcome", "deadlines") if n in entry.facts})
    after = change.operation
    assert folded == {
        "state": after.state,
        "remote_job_id": after.remote_job_id,
        "outcome": after.outcome,
        "deadlines": running(after),
    }


def _check_deadlines(before: Operation, after: Operation) -> None:
    """No deadline moves another one, and none that runs is moved (B3)."""
    assert after.deadlines.create == before.deadlines.create
    if before.deadlines.result is not None:
        assert after.deadlines.result == before.deadlines.result
    if after.state is not S.CANCEL_REQUESTED:
        assert after.deadlines.cancel == before.deadlines.cancel or before.deadlines.cancel is None
    if after.state is before.state:
        assert (after.deadlines.input, after.deadlines.attention) == (
            before.deadlines.input,
            before.deadlines.attention,
        )


def _check_somebody_acts(before: Operation, after: Operation, now: int) -> None:
    """A row that is open has a time at which it is looked at, and a question has its reason and its end (N23, D4)."""
    if after.state is before.state:
        return
    names = DEADLINES_OF[after.state.value]
    ends = [v for n, v in running(after).items() if n in names]
    assert ends
    assert after.schedule.due_at <= min(ends)
    reasons = REASONS_OF.get(after.state.value)
    assert (after.attention is not None) == (reasons is not None)
    if after.attention is not None and reasons is not None:
        assert after.attention.reason in reasons
        assert after.attention.since == now

"""What holds of every decision, whatever the row and whatever came in. The cells stand in the other test_decide files.

`step` checks each decision against the invariants in rows.py: moves by the table, fold, deadlines, contradictions.
"""

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconcile.contract import Contract
from reconcile.draft import next_action
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
    EventSeen,
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
from reconcile.model import (
    EntryKind,
    Observation,
    Operation,
    Problems,
    Progress,
    RemoteError,
    Summary,
    Verdict,
    VerdictKind,
)
from reconcile.states import State
from tests.reconcile.rows import (
    ALL_CONTRACTS,
    ALL_GOOD,
    ALL_STATES,
    CANCEL,
    CANCELLING,
    CONTRACT,
    CREATING,
    DAY,
    DEADLINE_NAMES,
    FILES,
    HOUR,
    INPUT,
    MINUTE,
    NOW,
    TERMINAL,
    in_state,
    info,
    read,
    running,
    step,
)

S = State
OPEN_STATES = [s for s in ALL_STATES if s not in TERMINAL]

# ---- whatever may come in ----

words = st.sampled_from([*CONTRACT.words, "a word of tomorrow", "", None])
job_ids = st.sampled_from(["job_1", "job_2", None])
errors = st.builds(RemoteError, st.sampled_from(["e", "f"]), st.just("m"))
waits = st.none() | st.integers(0, 400 * DAY)
observations = st.builds(
    Observation,
    words,
    remote_job_id=job_ids,
    remote_status=st.none() | st.just("raw"),
    progress=st.none() | st.builds(Progress, percent=st.integers(0, 100)),
    results=st.sampled_from([(), FILES]),
    finished_items=st.none() | st.integers(0, 9),
    total_items=st.none() | st.integers(0, 9),
    error=st.none() | errors,
)
verdicts = st.builds(Verdict, st.sampled_from(VerdictKind), st.just("w"), may_hold_results=st.booleans())
counts = st.integers(0, 3)
summaries = st.tuples(counts, counts, counts, counts, counts).map(lambda c: Summary(sum(c), *c))
results = st.builds(
    lambda n, problems: info(attempt=n, items=n, problems=problems),
    st.integers(1, 5),
    st.none() | st.builds(Problems, duplicate=st.sampled_from([(), ("a",)]), expected=st.none() | st.just(3)),
)
evidences: st.SearchStrategy[Evidence] = st.one_of(
    st.builds(AboutToSend),
    st.builds(Accepted, observations, by_lookup=st.booleans()),
    st.builds(FinishedAtOnce, observations),
    st.builds(CreateRejected, errors),
    st.builds(CreateNotAccepted, st.just("http_429"), waits),
    st.builds(CreateUnknown, st.just("timeout")),
    st.builds(StepDone, st.just("upload"), st.just("file-1")),
    st.builds(LookupFound, st.lists(job_ids.map(str), unique=True).map(tuple), is_sure=st.booleans()),
    st.builds(JobRead, observations, hint_ms=waits),
    st.builds(ReadFailed, st.just("http_500"), waits, counts=st.booleans()),
    st.builds(JobGone, announced=st.none() | words),
    st.builds(EventSeen, observations, is_ours=st.booleans(), is_other_content=st.booleans()),
    st.builds(CancelAsked, st.just("cancel_9"), st.just("client:ci"), st.just("r"), st.just("e")),
    st.builds(CancelAnswered, st.sampled_from(CancelAnswer), st.just("http_409"), waits, st.none() | observations),
    st.builds(InputAsked, st.just("input_9"), st.just("client:ci")),
    st.builds(InputAnswered, st.sampled_from(InputAnswer), st.just("http_422"), waits),
    st.builds(Collected, results, summaries, is_partial=st.booleans()),
    st.builds(CollectFailed, st.just("http_404"), waits, is_final=st.booleans()),
    st.builds(ResultIsFailure, errors),
    st.builds(DeadlinePassed, st.sampled_from(DEADLINE_NAMES), last_read=st.booleans()),
    st.builds(FoundAtStart, is_repeatable=st.booleans()),
    st.builds(FoundInBackup, st.just(NOW - HOUR), is_repeatable=st.booleans()),
)
moments = st.integers(-2 * DAY, 30 * DAY).map(lambda ms: NOW + ms)
contracts = st.sampled_from(ALL_CONTRACTS)


@st.composite
def operations(draw: st.DrawFn, states: list[State] | None = None) -> Operation:
    """A row as some life may have left it."""
    state = draw(st.sampled_from(states or list(ALL_STATES)))
    op = in_state(
        state,
        mark_at=draw(st.none() | st.just(NOW - 1)),
        errors=draw(st.integers(0, 25)),
        polls=draw(st.integers(0, 60)),
        gone_reads=draw(st.integers(0, 6)),
        gone_since=draw(st.none() | st.just(NOW - HOUR)),
        due_at=draw(moments),
        input_items=draw(st.none() | st.integers(0, 3)),
        contradictions=draw(st.integers(0, 2)),
    )
    answer = draw(st.none() | st.sampled_from(CancelAnswer).map(str))
    if state in CANCELLING or draw(st.booleans()):
        op = replace(op, cancel=replace(CANCEL, answer=answer))
    if state is S.INPUT_GIVEN:
        op = replace(op, input=replace(INPUT, answer=draw(st.none() | st.just("unknown"))))
    if op.verdict is not None:
        op = replace(op, verdict=draw(verdicts))
    passed = {n: draw(moments) for n in running(op)}
    return replace(op, deadlines=replace(op.deadlines, **passed))


# ---- one decision ----


@settings(max_examples=1500, deadline=None)
@given(op=operations(), evidence=evidences, contract=contracts, now=moments, draw=st.floats(0, 1, exclude_max=True))
def test_any_evidence_on_any_row_gives_a_change_that_keeps_every_rule(
    op: Operation, evidence: Evidence, contract: Contract, now: int, draw: float
) -> None:
    """N5, N7, N8, N9, N23, N27, D2, D4; and never an exception."""
    change = step(op, evidence, contract, now=now, draw=draw)
    assert change == step(op, evidence, contract, now=now, draw=draw)


EVERY_WORD: tuple[str | None, ...] = (*CONTRACT.words, "a word of tomorrow", None)
EVERY_EVIDENCE: tuple[Evidence, ...] = (
    AboutToSend(),
    *(Accepted(Observation(word, job)) for word in EVERY_WORD for job in ("job_1", "job_2", None)),
    *(FinishedAtOnce(Observation(word, job)) for word in EVERY_WORD for job in ("job_1", None)),
    CreateRejected(RemoteError("e", "m")),
    CreateNotAccepted("http_429"),
    CreateUnknown("timeout"),
    StepDone("upload", "file-1"),
    *(LookupFound(ids, is_sure=sure) for ids in ((), ("job_7",), ("job_7", "job_8")) for sure in (True, False)),
    *(read(word) for word in EVERY_WORD),
    ReadFailed("http_500"),
    JobGone(),
    *(JobGone(announced=word) for word in EVERY_WORD),
    *(EventSeen(Observation(word, "job_1"), is_ours=ours) for word in EVERY_WORD for ours in (True, False)),
    CancelAsked("cancel_9", "client:ci", "r", "e"),
    *(CancelAnswered(answer) for answer in CancelAnswer),
    *(CancelAnswered(CancelAnswer.ACCEPTED, observation=Observation(word, "job_1")) for word in EVERY_WORD),
    InputAsked("input_9", "client:ci"),
    *(InputAnswered(answer) for answer in InputAnswer),
    *(Collected(info(), summary) for summary in (ALL_GOOD, Summary(3, 2, 1), Summary(3, failed=3), Summary(0))),
    CollectFailed("http_404"),
    CollectFailed("http_404", is_final=True),
    ResultIsFailure(RemoteError("e", "m")),
    *(DeadlinePassed(name, last_read=True) for name in DEADLINE_NAMES),
    FoundAtStart(),
    FoundInBackup(NOW - HOUR),
)


@pytest.mark.parametrize("state", OPEN_STATES)
def test_evidence_never_asks_for_a_move_that_the_table_does_not_know(state: State) -> None:
    """A refused move is a fault of ours: what came in would be lost with it (D1, N7)."""
    asked = state in (S.CANCEL_REQUESTED, S.INPUT_GIVEN)
    for contract, evidence, mark in product(ALL_CONTRACTS, EVERY_EVIDENCE, (None, NOW - 1)):
        for answer in (None, "unknown", "refused") if asked else (None,):
            op = in_state(state, mark_at=mark, errors=19, gone_reads=9, gone_since=NOW - HOUR)
            if op.cancel is not None:
                op = replace(op, cancel=replace(op.cancel, answer=answer))
            if op.input is not None:
                op = replace(op, input=replace(op.input, answer=answer))
            for now in (NOW, NOW + 30 * DAY):
                change = step(op, evidence, contract, now=now)
                refused = [e.reason for e in change.entries if e.kind is EntryKind.REFUSED]
                assert refused == [], f"{evidence}"


@pytest.mark.parametrize("state", TERMINAL)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_after_the_end_no_evidence_changes_state_or_outcome(state: State, data: st.DataObject) -> None:
    """N8: later evidence is counted."""
    op = data.draw(operations([state]))
    change = step(op, data.draw(evidences), data.draw(contracts), now=data.draw(moments))
    after = change.operation
    assert (after.state, after.outcome, after.completed_at) == (op.state, op.outcome, op.completed_at)
    assert (after.verdict, after.result, after.summary, after.error) == (op.verdict, op.result, op.summary, op.error)
    assert after.deadlines == op.deadlines
    assert next_action(after) is None


@settings(max_examples=300, deadline=None)
@given(
    op=operations(list(TERMINAL)),
    evidence=st.lists(evidences, min_size=2, max_size=4),
    contract=contracts,
)
def test_after_the_end_any_order_of_the_same_evidence_ends_the_same(
    op: Operation, evidence: list[Evidence], contract: Contract
) -> None:
    seen = set()
    for order in permutations(evidence):
        after = op
        for said in order:
            after = step(after, said, contract).operation
        seen.add((after.state, after.outcome, after.contradictions, after.remote_job_id, after.summary, after.error))
    assert len(seen) == 1


@settings(max_examples=600, deadline=None)
@given(evidence=evidences, contract=contracts, now=moments, cancel=st.sampled_from([None, CANCEL]))
def test_in_contract_violation_only_its_deadline_moves(
    evidence: Evidence, contract: Contract, now: int, cancel: Any
) -> None:
    """N31."""
    op = in_state(S.CONTRACT_VIOLATION, cancel=cancel)
    after = step(op, evidence, contract, now=now).operation
    assert after.state is S.CONTRACT_VIOLATION or isinstance(evidence, DeadlinePassed)
    assert next_action(after) is None


# ---- whole lives ----


@example(
    contract=CONTRACT,
    life=[
        (CreateUnknown("timeout"), 0, 0.0),
        (FinishedAtOnce(Observation("cancelled", "job_1")), 0, 0.0),
        (Accepted(Observation("running", "job_2")), 0, 0.0),
    ],
)
@settings(max_examples=600, deadline=None)
@given(
    contract=contracts,
    life=st.lists(st.tuples(evidences, st.integers(0, 3 * HOUR), st.floats(0, 1, exclude_max=True)), max_size=25),
)
def test_a_life_of_any_evidence_has_one_job_and_at_most_one_end(
    contract: Contract, life: list[tuple[Evidence, int, float]]
) -> None:
    """From the start on; the fold of the whole history gives the row (N5, N8, N27)."""
    op, now = (
        in_state(S.CREATE_PENDING, deadlines=replace(in_state(S.CREATE_PENDING).deadlines, create=NOW + HOUR)),
        NOW,
    )
    held, ends = set(), 0
    for evidence, passed, draw in life:
        now += passed
        change = step(op, evidence, contract, now=now, draw=draw)
        ends += sum(1 for e in change.entries if e.kind is EntryKind.MOVE and e.to_state in TERMINAL)
        op = change.operation
        held |= {op.remote_job_id} - {None}
    assert len(held) <= 1
    assert ends == (1 if op.state in TERMINAL else 0)


@settings(max_examples=400, deadline=None)
@given(life=st.lists(evidences, max_size=20))
def test_no_life_succeeds_without_a_collected_whole_result(life: list[Evidence]) -> None:
    """N10, C3."""
    op = in_state(S.ACCEPTED)
    for evidence in life:
        op = step(op, evidence).operation
    if op.state is S.SUCCEEDED:
        assert op.summary is not None
        assert op.result is not None
        assert not op.result.problems
        assert op.summary.total == op.summary.succeeded > 0
        assert op.verdict is not None
        assert op.verdict.kind in (VerdictKind.DONE, VerdictKind.DONE_UNKNOWN_OUTCOME)


@settings(max_examples=300, deadline=None)
@given(noise=st.lists(st.sampled_from(["error", "gone", "pending", "unknown", "event"]), max_size=12), data=st.data())
def test_any_order_of_the_same_noise_before_an_end_ends_the_same(noise: list[str], data: st.DataObject) -> None:
    """Late, repeated and reordered take the same road: what steers is the end that is read."""
    said: dict[str, Evidence] = {
        "error": ReadFailed("http_500"),
        "gone": JobGone(),
        "pending": read("running"),
        "unknown": read("a word of tomorrow"),
        "event": EventSeen(Observation("failed", "job_1")),
    }
    ends = set()
    for order in (noise, data.draw(st.permutations(noise))):
        op = in_state(S.OBSERVING)
        for name in order:
            op = step(op, said[name]).operation
        op = step(op, read("ended")).operation
        op = step(op, Collected(info(), ALL_GOOD)).operation
        ends.add((op.state, op.outcome, op.contradictions, op.summary))
    assert ends == {(S.SUCCEEDED, "succeeded", 0, ALL_GOOD)}


@given(minutes=st.lists(st.integers(0, 60), min_size=1, max_size=30))
def test_a_create_that_is_never_accepted_stays_pending_until_its_deadline_and_says_that_it_was_not_sent(
    minutes: list[int],
) -> None:
    op, now = in_state(S.CREATE_PENDING), NOW
    for gap in minutes:
        now += gap * MINUTE
        if now >= NOW + 14 * MINUTE:
            op = step(op, DeadlinePassed("create"), now=now).operation
            break
        op = step(op, AboutToSend(), now=now).operation
        op = step(op, CreateNotAccepted("connect"), now=now).operation
        assert op.state is S.CREATE_PENDING
        assert op.schedule.due_at <= NOW + 14 * MINUTE
    assert op.state in (S.CREATE_PENDING, S.FAILED)
    if op.state is S.FAILED:
        assert op.error is not None
        assert op.error.code == "never_sent"


def test_history_tells_a_whole_life_in_order_with_a_cause_for_each_move() -> None:
    """N9."""
    life: list[tuple[Evidence, str]] = [
        (StepDone("upload", "file-1"), "request:1"),
        (CreateUnknown("timeout"), "request:2"),
        (CancelAsked("cancel_1", "client:ci", "r", "e"), "cancel:cancel_1"),
        (Accepted(Observation("running", "job_1"), by_lookup=True), "observation:3"),
        (CancelAnswered(CancelAnswer.TOO_LATE), "request:4"),
        (read("ended"), "observation:5"),
        (Collected(info(), ALL_GOOD), "request:6"),
    ]
    op, told = in_state(S.CREATE_PENDING), []
    for evidence, cause in life:
        change = step(op, evidence, cause=cause)
        op = change.operation
        told += [(str(e.to_state), e.cause) for e in change.entries if e.kind is EntryKind.MOVE]
    assert told == [
        ("create_unknown", "request:2"),
        ("accepted", "observation:3"),
        ("observing", "observation:3"),
        ("cancel_requested", "cancel:cancel_1"),
        ("result_collecting", "observation:5"),
        ("succeeded", "request:6"),
    ]
    assert op.outcome == "succeeded"


def test_these_columns_hold_every_state_once() -> None:
    assert len(ALL_STATES) == len(set(ALL_STATES)) == 22
    assert set(CREATING) < set(ALL_STATES)

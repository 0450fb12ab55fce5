"""A read that tells nothing new is planned without a decision: `decide` must come to the same."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.decide import decide
from reconcile.evidence import JobRead, ReadFailed
from reconcile.model import Observation, Operation, Progress
from reconcile.schedule import Pace
from reconcile.states import Priority, State
from reconcile.unchanged import next_wait_ms
from tests.reconcile.rows import CONTRACT, HOUR, NOW, in_state

HALF = Progress(percent=50)


def watched(**over: Any) -> Operation:
    """A job that has been read before."""
    op = in_state(State.OBSERVING)
    return replace(op, remote_status="running", progress=HALF, total_items=10, **over)


def read(word: str = "running", **over: Any) -> JobRead:
    """A read of it."""
    return JobRead(Observation(word, remote_job_id=watched().remote_job_id, remote_status=word, **over))


@given(
    state=st.sampled_from(list(State)),
    word=st.sampled_from(["running", "queued", "done", "failed", "never heard of", None]),
    job_id=st.sampled_from(["job_1", "job_2", None]),
    progress=st.sampled_from([None, HALF, Progress(percent=60)]),
    total=st.sampled_from([None, 10, 11]),
    counts=st.sampled_from([(0, 0), (1, 0), (0, 1)]),
    polls=st.integers(0, 50),
    pace=st.sampled_from(list(Pace)),
    draw=st.floats(0, 0.999),
    waits=st.tuples(st.none() | st.integers(0, 9 * HOUR), st.none() | st.integers(0, 9 * HOUR)),
    rung_by=st.sampled_from([None, "event:1", "pause:acme"]),
)
def test_what_is_planned_without_a_decision_is_what_the_decision_would_plan(
    state: State,
    word: str | None,
    job_id: str | None,
    progress: Progress | None,
    total: int | None,
    counts: tuple[int, int],
    polls: int,
    pace: Pace,
    draw: float,
    waits: tuple[int | None, int | None],
    rung_by: str | None,
) -> None:
    op = replace(in_state(state), remote_status="running", progress=HALF, total_items=10)
    op = replace(op, schedule=replace(op.schedule, polls=polls, errors=counts[0], gone_reads=counts[1]))
    seen = Observation(word, remote_job_id=job_id, remote_status=word, progress=progress, total_items=total)
    evidence = JobRead(seen, hint_ms=waits[0], retry_after_ms=waits[1], rung_by=rung_by)
    wait = next_wait_ms(op, CONTRACT, evidence, draw=draw, pace=pace)
    if wait is None:
        return
    change = decide(op, CONTRACT, evidence, now=NOW, draw=draw, cause="observation:1", pace=pace)
    deadline = change.operation.schedule.deadline_at
    due_at = NOW + wait if deadline is None else min(NOW + wait, deadline)
    planned = replace(op.schedule, polls=polls + 1, due_at=due_at, priority=Priority.SWEPT, deadline_at=deadline)
    assert (change.entries, change.is_news, change.end_seen, change.reminds) == ((), False, None, False)
    assert change.operation == replace(op, schedule=planned)
    assert deadline == op.deadline(op.state_deadline_name or "")


def test_a_read_that_says_the_same_is_planned_without_a_decision() -> None:
    for evidence in (read(), read(progress=HALF), read(total_items=10)):
        assert next_wait_ms(watched(), CONTRACT, evidence, draw=0, pace=Pace.POLLED) is not None


@pytest.mark.parametrize(
    "evidence",
    [
        read("queued"),
        read("done"),
        read("never heard of"),
        read(progress=Progress(percent=51)),
        read(total_items=11),
        replace(read(), rung_by="event:1"),
        JobRead(Observation("running", remote_job_id="another")),
        ReadFailed("timeout"),
    ],
)
def test_whatever_says_something_else_is_decided(evidence: Any) -> None:
    assert next_wait_ms(watched(), CONTRACT, evidence, draw=0, pace=Pace.POLLED) is None

"""The evidence table, rows of a look-up and of a result in the create answer; what create_unresolved keeps."""

import pytest

from reconcile.contract import Contract
from reconcile.draft import next_action
from reconcile.evidence import Accepted, EventSeen, FinishedAtOnce, JobRead, LookupFound, ReadFailed
from reconcile.model import EntryKind, Observation, RemoteError, ResultRef, VerdictKind
from reconcile.schedule import Pace
from reconcile.states import State
from tests.reconcile.rows import (
    BASE,
    CONTRACT,
    CREATING,
    FILES,
    HIGHEST,
    HOUR,
    MINUTE,
    NO_READ,
    NOW,
    assert_cell,
    in_state,
    read,
    row,
    step,
)

S = State
SENT = NOW - 5_000


def accepted(job_id: str | None = "job_1", word: str | None = "running", *, by_lookup: bool = False) -> Accepted:
    return Accepted(Observation(word, remote_job_id=job_id), by_lookup=by_lookup)


# ---- look-up: several by a sure marker / none ----


@pytest.mark.parametrize(
    ("state", "cell"),
    row(creating="contract_violation", watching="-", cancelling="-", stopped="-", results="-", terminal="-"),
)
def test_a_look_up_finds_several_jobs_by_a_sure_marker(state: State, cell: str) -> None:
    op = in_state(state)
    change = step(op, LookupFound(("job_7", "job_8")))
    assert_cell(op, change, cell)
    if state in CREATING:
        assert set(change.operation.candidates) == {"job_7", "job_8"}
        assert change.operation.remote_job_id is None


@pytest.mark.parametrize(
    ("state", "cell"), row(creating="stays", watching="-", cancelling="-", stopped="-", results="-", terminal="-")
)
@pytest.mark.parametrize("is_sure", [True, False])
def test_a_look_up_finds_none(state: State, cell: str, is_sure: bool) -> None:
    op = in_state(state)
    assert_cell(op, step(op, LookupFound((), is_sure=is_sure)), cell)


def test_a_create_that_was_not_found_is_looked_up_again_by_backoff() -> None:
    op, gaps = in_state(S.CREATE_UNKNOWN), []
    for _ in range(4):
        op = step(op, LookupFound(()), draw=HIGHEST).operation
        gaps.append(op.schedule.due_at - NOW)
    assert gaps == [2 * BASE, 4 * BASE, 8 * BASE, 16 * BASE]


@pytest.mark.parametrize("job_ids", [("job_7",), ("job_7", "job_8")])
def test_a_look_up_without_a_sure_marker_adopts_nothing_and_shows_its_candidates(job_ids: tuple[str, ...]) -> None:
    op = in_state(S.CREATE_UNKNOWN)
    change = step(op, LookupFound(job_ids, is_sure=False))
    assert_cell(op, change, "stays")
    assert change.operation.candidates == job_ids
    again = step(change.operation, LookupFound(job_ids, is_sure=False))
    assert again.operation.candidates == job_ids


# ---- create answer with the result in it ----


@pytest.mark.parametrize("contract", [CONTRACT, NO_READ])
@pytest.mark.parametrize("job_id", ["job_1", None])
@pytest.mark.parametrize(
    ("state", "cell"),
    row(creating="result_collecting", watching="-", cancelling="-", stopped="-", results="-", terminal="contradiction"),
)
def test_a_create_answer_holds_the_result(state: State, cell: str, job_id: str | None, contract: Contract) -> None:
    """A5."""
    op = in_state(state, mark_at=SENT if state in CREATING else None)
    change = step(
        op, FinishedAtOnce(Observation("done", remote_job_id=job_id, results=(ResultRef("inline"),))), contract
    )
    assert_cell(op, change, cell)
    if state in CREATING:
        after = change.operation
        assert after.remote_job_id == job_id
        assert after.verdict is not None
        assert after.verdict.kind is VerdictKind.DONE
        assert after.results == (ResultRef("inline"),)
        assert after.deadlines.collect == NOW + 24 * HOUR


@pytest.mark.parametrize("state", CREATING)
@pytest.mark.parametrize("word", ["a word of tomorrow", None, "running"])
def test_a_result_in_the_create_answer_is_collected_whatever_word_stands_beside_it(
    state: State, word: str | None
) -> None:
    """An undocumented word is pending; it fails nothing and drops nothing."""
    evidence = FinishedAtOnce(Observation(word, remote_job_id="job_1", results=FILES))
    assert step(in_state(state, mark_at=SENT), evidence).operation.state is S.RESULT_COLLECTING


def test_a_cancelled_end_in_the_create_answer_is_taken_although_no_arrow_leads_from_create_unknown_to_it() -> None:
    evidence = FinishedAtOnce(Observation("cancelled", remote_job_id="job_1"))
    change = step(in_state(S.CREATE_UNKNOWN, mark_at=SENT), evidence)
    assert [e.kind for e in change.entries] == [EntryKind.MOVE]
    assert change.operation.state is S.RESULT_COLLECTING


@pytest.mark.parametrize("state", CREATING)
def test_a_failure_in_the_create_answer_is_the_jobs_own(state: State) -> None:
    error = RemoteError("bad_prompt", "Refused.")
    change = step(in_state(state, mark_at=SENT), FinishedAtOnce(Observation("failed", "job_1", error=error)))
    assert change.operation.state is S.FAILED
    assert change.operation.error == error


# ---- create_unresolved ----


def test_jobs_named_by_a_sure_marker_are_shown_while_a_person_decides() -> None:
    """Nothing is sent there, and no evidence adopts a job by itself."""
    named = (
        accepted("job_7"),
        accepted("job_7", by_lookup=True),
        LookupFound(("job_7", "job_8")),
    )
    for evidence in named:
        change = step(in_state(S.CREATE_UNRESOLVED), evidence)
        assert change.operation.state is S.CREATE_UNRESOLVED
        assert "job_7" in change.operation.candidates
        assert next_action(change.operation) is None


@pytest.mark.parametrize("contract", [CONTRACT, NO_READ])
def test_an_event_with_our_marker_is_shown_while_a_person_decides(contract: Contract) -> None:
    event = EventSeen(Observation("running", remote_job_id="job_7"), is_ours=True)
    change = step(in_state(S.CREATE_UNRESOLVED), event, contract)
    assert change.operation.state is S.CREATE_UNRESOLVED
    assert change.operation.candidates == ("job_7",)


def test_a_late_create_answer_with_the_result_in_it_is_shown_while_a_person_decides() -> None:
    """A job id is never thrown away."""
    change = step(in_state(S.CREATE_UNRESOLVED), FinishedAtOnce(Observation("done", remote_job_id="job_7")))
    assert change.operation.state is S.CREATE_UNRESOLVED
    assert change.operation.candidates == ("job_7",)


def test_evidence_without_our_marker_adopts_and_shows_nothing() -> None:
    op = in_state(S.CREATE_UNRESOLVED)
    for evidence in (EventSeen(Observation("ended", "job_7")), JobRead(Observation("ended", "job_7")), read("waiting")):
        change = step(op, evidence)
        assert_cell(op, change, "kept")
        assert change.operation.candidates == ()


@pytest.mark.parametrize("counts", [True, False])
def test_look_ups_that_cannot_be_made_let_the_deadline_fire_and_wait_in_between(counts: bool) -> None:
    """A key that may read but not list: five look-ups by backoff, also past the deadline, then a person is asked."""
    op, now = in_state(S.CREATE_UNKNOWN), NOW + 15 * MINUTE
    for _ in range(4):
        op = step(op, ReadFailed("http_403", counts=counts), now=now, draw=0.0).operation
        assert (op.state, op.schedule.due_at) == (S.CREATE_UNKNOWN, now + BASE)
        now = op.schedule.due_at
    asked = step(op, ReadFailed("http_403", counts=counts), now=now).operation
    assert asked.state is S.CREATE_UNRESOLVED
    assert asked.attention is not None
    assert "could not be looked through (5 tries in a row failed)" in asked.attention.message


@pytest.mark.parametrize("pace", list(Pace))
def test_a_lost_create_is_looked_for_as_quickly_whatever_else_tells_of_jobs(pace: Pace) -> None:
    after = step(in_state(S.CREATE_UNKNOWN), LookupFound(()), draw=HIGHEST, pace=pace).operation
    assert after.schedule.due_at == NOW + 2 * BASE

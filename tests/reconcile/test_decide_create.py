"""The evidence table, rows of a create: accepted, refused, not accepted, unknown, looked up, finished at once."""

from dataclasses import replace

import pytest

from reconcile.draft import next_action
from reconcile.evidence import AboutToSend, Accepted, CreateNotAccepted, CreateRejected, CreateUnknown, StepDone
from reconcile.model import Change, EntryKind, Observation, Operation, RemoteError
from reconcile.states import Priority, State
from tests.reconcile.rows import (
    BASE,
    CANCEL,
    CANCELLING,
    CREATING,
    HIGHEST,
    HOUR,
    MINUTE,
    NOW,
    REPLAYS,
    RESULTS,
    STOPPED,
    WATCHING,
    assert_cell,
    in_state,
    row,
    step,
)

S = State
SENT = NOW - 5_000
REFUSAL = RemoteError("invalid_request", "No such model.")


def accepted(job_id: str | None = "job_1", word: str | None = "running", *, by_lookup: bool = False) -> Accepted:
    return Accepted(Observation(word, remote_job_id=job_id), by_lookup=by_lookup)


def assert_acceptance(op: Operation, change: Change, cell: str) -> None:
    """The cell; where it is `accepted`, that is the first move, and what else the answer says may follow it."""
    if cell == "accepted":
        assert change.entries[0].kind is EntryKind.MOVE
        assert change.entries[0].to_state is S.ACCEPTED
    else:
        assert_cell(op, change, cell)


# ---- create accepted, or look-up names one job ----


@pytest.mark.parametrize("by_lookup", [False, True])
@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="accepted",
        watching="kept",
        cancelling="kept",
        stopped="kept",
        results="kept",
        terminal="contradiction",
        unresolved="kept",
        violation="kept",
    ),
)
def test_an_acceptance_of_the_same_job(state: State, cell: str, by_lookup: bool) -> None:
    op = in_state(state, mark_at=SENT if state in CREATING else None)
    assert_acceptance(op, step(op, accepted(by_lookup=by_lookup)), cell)


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating="accepted",
        watching="contract_violation",
        cancelling="contract_violation",
        stopped="contract_violation",
        results="contract_violation",
        terminal="contradiction",
        unresolved="kept",
        violation="kept",
    ),
)
def test_an_acceptance_of_another_job(state: State, cell: str) -> None:
    op = in_state(state, mark_at=SENT if state in CREATING else None)
    assert_acceptance(op, step(op, accepted("job_2")), cell)


@pytest.mark.parametrize("state", [*WATCHING, *CANCELLING, *STOPPED, *RESULTS])
def test_two_jobs_for_one_create_keep_both_ids_and_overwrite_neither(state: State) -> None:
    """B4, N5."""
    change = step(in_state(state), accepted("job_2"))
    assert change.operation.remote_job_id == "job_1"
    assert "job_2" in change.operation.candidates
    told = str([(e.reason, e.facts) for e in change.entries])
    assert "job_1" in told
    assert "job_2" in told
    assert change.operation.attention is not None
    assert change.operation.attention.reason == "contract_violation"
    assert next_action(change.operation) is None


@pytest.mark.parametrize("state", CREATING)
def test_an_acceptance_stores_the_id_starts_the_result_deadline_and_clears_the_mark(state: State) -> None:
    op = in_state(state, mark_at=SENT)
    change = step(op, accepted(), cause="request:9")
    after = change.operation
    assert after.remote_job_id == "job_1"
    assert after.started_at == NOW
    assert after.deadlines.result == NOW + 26 * HOUR
    assert after.deadlines.create == op.deadlines.create
    assert after.schedule.mark_at is None
    first = change.entries[0]
    assert (first.kind, first.from_state, first.to_state, first.cause) == (
        EntryKind.MOVE,
        state,
        S.ACCEPTED,
        "request:9",
    )
    assert first.facts["remote_job_id"] == "job_1"


@pytest.mark.parametrize("state", CREATING)
def test_a_result_deadline_that_the_caller_gave_is_not_moved_by_the_acceptance(state: State) -> None:
    """B3: it counts from the start."""
    op = in_state(state)
    op = replace(op, deadlines=replace(op.deadlines, result=NOW + 3 * MINUTE))
    assert step(op, accepted()).operation.deadlines.result == NOW + 3 * MINUTE


@pytest.mark.parametrize("state", CREATING)
@pytest.mark.parametrize(
    ("word", "ends_as"),
    [
        ("running", "observing"),
        ("a word of tomorrow", "observing"),
        ("waiting", "blocked"),
        ("ended", "result_collecting"),
        ("done", "result_collecting"),
        ("cancelled", "cancelled"),
        ("cancelled+files", "result_collecting"),
        ("failed", "failed"),
        ("window_closed", "failed"),
        ("window_closed+files", "result_collecting"),
    ],
)
def test_the_acceptance_is_a_row_of_its_own_and_what_the_answer_says_is_applied_after_it(
    state: State, word: str, ends_as: str
) -> None:
    change = step(in_state(state, mark_at=SENT), accepted(word=word))
    assert [(e.kind, e.from_state, e.to_state) for e in change.entries] == [
        (EntryKind.MOVE, state, S.ACCEPTED),
        (EntryKind.MOVE, S.ACCEPTED, State(ends_as)),
    ]


@pytest.mark.parametrize("state", CREATING)
def test_an_acceptance_that_says_nothing_of_the_job_leaves_it_accepted(state: State) -> None:
    """`accepted`: id known, not read yet. A bare id is no read."""
    change = step(in_state(state, mark_at=SENT), accepted(word=None))
    assert change.operation.state is S.ACCEPTED
    assert [e.to_state for e in change.entries] == [S.ACCEPTED]


@pytest.mark.parametrize("word", [None, "running", "waiting"])
@pytest.mark.parametrize("state", CREATING)
def test_a_cancel_that_waited_for_the_job_id_is_next_after_the_acceptance(state: State, word: str | None) -> None:
    """E6. Its deadline runs from here, not from a time when nothing could be cancelled."""
    op = in_state(state, mark_at=SENT, cancel=CANCEL)
    assert op.deadlines.cancel is None
    change = step(op, accepted(word=word))
    after = change.operation
    assert after.state is S.CANCEL_REQUESTED
    assert change.entries[0].to_state is S.ACCEPTED
    assert change.entries[-1].to_state is S.CANCEL_REQUESTED
    assert change.entries[-1].cause == "cancel:cancel_1"
    assert after.deadlines.cancel == NOW + 11 * MINUTE
    assert after.schedule.due_at == NOW
    assert after.schedule.priority == Priority.CANCEL


def test_a_cancel_that_waited_is_not_sent_to_a_job_that_has_ended() -> None:
    change = step(in_state(S.CREATE_UNKNOWN, cancel=CANCEL), accepted(word="ended"))
    assert [e.to_state for e in change.entries] == [S.ACCEPTED, S.RESULT_COLLECTING]


def test_an_answer_that_accepts_without_an_id_is_unreadable_and_so_unknown() -> None:
    assert step(in_state(S.CREATE_PENDING, mark_at=SENT), accepted(None)).operation.state is S.CREATE_UNKNOWN


def test_an_accepted_job_is_read_by_backoff() -> None:
    for draw, due in ((0.0, NOW + BASE), (HIGHEST, NOW + 2 * BASE)):
        after = step(in_state(S.CREATE_PENDING, mark_at=SENT), accepted(), draw=draw).operation
        assert after.schedule.due_at == due


# ---- create rejected ----


def _rejected_cells(in_unknown: str) -> list[object]:
    return row(
        creating={S.CREATE_PENDING: "failed", S.CREATE_UNKNOWN: in_unknown},
        watching="contradiction",
        cancelling="contradiction",
        stopped="contradiction",
        results="contradiction",
        terminal="contradiction",
        unresolved="kept",
        violation="kept",
    )


@pytest.mark.parametrize(("state", "cell"), _rejected_cells("stays"))
def test_a_create_is_rejected(state: State, cell: str) -> None:
    op = in_state(state, mark_at=SENT if state in CREATING else None)
    assert_cell(op, step(op, CreateRejected(REFUSAL)), cell)


@pytest.mark.parametrize(("state", "cell"), _rejected_cells("failed"))
def test_a_create_is_rejected_where_the_token_replays_answers(state: State, cell: str) -> None:
    op = in_state(state, mark_at=SENT if state in CREATING else None)
    assert_cell(op, step(op, CreateRejected(REFUSAL), REPLAYS), cell)


def test_a_rejection_fails_the_operation_with_the_providers_own_error() -> None:
    after = step(in_state(S.CREATE_PENDING, mark_at=SENT), CreateRejected(REFUSAL)).operation
    assert after.error == REFUSAL
    assert after.outcome == "failed"
    assert after.schedule.mark_at is None


# ---- create not accepted ----


@pytest.mark.parametrize(
    ("state", "cell"),
    row(creating="stays", watching="-", cancelling="-", stopped="-", results="-", terminal="-"),
)
def test_a_create_is_not_accepted(state: State, cell: str) -> None:
    op = in_state(state, mark_at=SENT if state in CREATING else None)
    assert_cell(op, step(op, CreateNotAccepted("http_429", 90_000)), cell)


def test_what_was_not_accepted_is_sent_again_after_the_pause_and_is_surely_unsent() -> None:
    after = step(in_state(S.CREATE_PENDING, mark_at=SENT), CreateNotAccepted("http_429", 90_000)).operation
    assert after.schedule.mark_at is None
    assert after.schedule.due_at == NOW + 90_000
    assert next_action(after) == "submit"
    assert after.schedule.priority == Priority.CREATE
    assert after.token == "tok_0123456789abcdef"


def test_creates_that_are_not_accepted_are_sent_again_by_a_growing_backoff() -> None:
    op, gaps = in_state(S.CREATE_PENDING, mark_at=SENT), []
    for _ in range(4):
        op = step(op, CreateNotAccepted("connect"), draw=HIGHEST).operation
        gaps.append(op.schedule.due_at - NOW)
    assert gaps == [2 * BASE, 4 * BASE, 8 * BASE, 16 * BASE]


def test_the_pause_before_a_create_never_hides_the_create_deadline() -> None:
    op = in_state(S.CREATE_PENDING, mark_at=SENT)
    after = step(op, CreateNotAccepted("http_503", 50 * MINUTE)).operation
    assert after.schedule.due_at == op.deadlines.create


# ---- create unknown ----


@pytest.mark.parametrize(
    ("state", "cell"),
    row(
        creating={S.CREATE_PENDING: "create_unknown", S.CREATE_UNKNOWN: "stays"},
        watching="-",
        cancelling="-",
        stopped="-",
        results="-",
        terminal="-",
    ),
)
def test_a_create_without_a_clear_answer(state: State, cell: str) -> None:
    op = in_state(state, mark_at=SENT if state in CREATING else None)
    assert_cell(op, step(op, CreateUnknown("timeout")), cell)


def test_an_unknown_create_is_looked_up_and_its_deadline_is_not_moved() -> None:
    op = in_state(S.CREATE_PENDING, mark_at=SENT)
    change = step(op, CreateUnknown("timeout"), cause="request:3")
    after = change.operation
    assert next_action(after) == "reconcile_create"
    assert after.deadlines == op.deadlines
    assert after.schedule.due_at <= NOW + 2 * BASE
    assert "timeout" in change.entries[0].reason + str(change.entries[0].facts)
    assert change.entries[0].cause == "request:3"


# ---- steps before the create ----


def test_an_upload_is_kept_and_the_create_that_follows_it_is_marked() -> None:
    op = in_state(S.CREATE_PENDING, steps={"a": "1"})
    change = step(op, StepDone("upload", "file-9"), cause="request:4")
    assert_cell(op, change, "stays")
    assert change.operation.steps == {"a": "1", "upload": "file-9"}
    assert change.operation.schedule.mark_at == NOW
    assert change.entries[0].cause == "request:4"


@pytest.mark.parametrize(
    ("state", "cell"), row(creating="stays", watching="-", cancelling="-", stopped="-", results="-", terminal="-")
)
def test_a_create_that_is_about_to_leave_is_marked_and_nothing_else_is(state: State, cell: str) -> None:
    op = in_state(state)
    change = step(op, AboutToSend())
    assert_cell(op, change, cell)
    assert change.operation.schedule.mark_at == (NOW if state is S.CREATE_PENDING else None)


@pytest.mark.parametrize(
    ("state", "cell"), row(creating="kept", watching="-", cancelling="-", stopped="-", results="-", terminal="-")
)
def test_a_step_that_ends_late_moves_nothing(state: State, cell: str) -> None:
    op = in_state(state)
    change = step(op, StepDone("upload", "file-9"))
    assert_cell(op, change, cell)
    if state is not S.CREATE_PENDING:
        assert change.operation.schedule.mark_at is None
        assert not change.operation.steps

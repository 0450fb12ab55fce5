"""A lost create and what an operator allows: one re-send of what is absent, one job taken by its count (B2, J2)."""

from dataclasses import replace
from typing import Any, Final

import pytest

from reconcile.contract import Contract, Lookup
from reconcile.decide import decide
from reconcile.decisions import Decision
from reconcile.draft import next_action
from reconcile.evidence import (
    Accepted,
    Collected,
    CreateNotAccepted,
    CreateRejected,
    CreateUnknown,
    DeadlinePassed,
    EventSeen,
    FoundAtStart,
    LookedAgain,
    LookupFound,
    PersonDecided,
    ReadFailed,
)
from reconcile.model import (
    Change,
    EntryKind,
    Observation,
    Operation,
    Problems,
    RemoteError,
    Summary,
    Verdict,
    VerdictKind,
)
from reconcile.states import State
from tests.reconcile.rows import (
    ALL_GOOD,
    CANCEL,
    CONTRACT,
    DAY,
    MINUTE,
    NOW,
    TERMINAL,
    assert_cell,
    in_state,
    info,
    step,
)

S = State
LAG: Final = 5 * MINUTE
SENT = NOW - 5_000
UNSURE: Final = Lookup(is_sure=False, lag_ms=LAG)
ASKS: Final = replace(CONTRACT, lookup=Lookup(is_sure=True, lag_ms=LAG))
RESENDS: Final = replace(ASKS, on_absent="resend")
RESENDS_UNSURE: Final = replace(RESENDS, lookup=UNSURE)
NO_ROAD: Final = replace(CONTRACT, lookup=None, on_absent="resend")
COUNTS: Final = replace(CONTRACT, lookup=UNSURE, adopt="by_count")
ONE: Final = LookupFound(("job_7",), is_sure=False, same_size=("job_7",), is_only_lost=True)
REFUSAL = RemoteError("invalid_request", "No such model.")


def lost(*, since: int = NOW - LAG, **over: Any) -> Operation:
    """A create that became unknown five minutes ago and has ten more to be found in."""
    op = in_state(S.CREATE_UNKNOWN, unknown_since=since, **over)
    return replace(op, deadlines=replace(op.deadlines, create=NOW + 10 * MINUTE))


def moved(change: Change) -> list[State | None]:
    return [e.to_state for e in change.entries if e.kind is EntryKind.MOVE]


# ---- since when a create is unknown ----


@pytest.mark.parametrize(
    ("evidence", "over"),
    [
        (CreateUnknown("timeout"), {"mark_at": SENT}),
        (FoundAtStart(), {"mark_at": SENT}),
        (CreateRejected(REFUSAL), {"mark_at": SENT, "resends": 1}),
        (DeadlinePassed("create"), {"mark_at": SENT, "now": NOW + 15 * MINUTE}),
    ],
)
def test_the_moment_in_which_a_create_became_unknown_is_kept(evidence: object, over: dict[str, int]) -> None:
    now = over.pop("now", NOW)
    after = step(in_state(S.CREATE_PENDING, **over), evidence, now=now).operation  # type: ignore[arg-type]
    assert after.state is S.CREATE_UNKNOWN
    assert after.unknown_since == now


def test_looking_again_does_not_make_the_create_any_younger() -> None:
    op = in_state(S.CREATE_UNRESOLVED, unknown_since=NOW - 9 * MINUTE)
    decided = PersonDecided("d_1", Decision.LOOK_AGAIN, "ann", "try once more")
    after = decide(op, ASKS, decided, now=NOW, draw=0.0, cause="decision:d_1").operation
    assert (after.state, after.unknown_since) == (S.CREATE_UNKNOWN, NOW - 9 * MINUTE)


# ---- create.on_absent = "resend" ----


def asked(at: int) -> LookupFound:
    """An empty look-up that left then."""
    return LookupFound((), asked_at=at)


def test_a_look_up_that_left_just_after_the_settle_time_counts_however_late_its_answer() -> None:
    op = lost(since=NOW - LAG)
    assert step(op, asked(NOW), RESENDS, now=NOW + MINUTE).operation.resends == 1


def test_a_create_that_is_absent_after_the_settle_time_is_sent_again_where_the_operator_says_so() -> None:
    """Two moves in one decision, the same deadline, the same token; the second says whose word it was."""
    op = lost()
    change = step(op, LookupFound(()), RESENDS)
    after = change.operation
    assert moved(change) == [S.CREATE_UNRESOLVED, S.CREATE_PENDING]
    assert next_action(after) == "submit"
    assert after.schedule.due_at == NOW
    assert after.schedule.mark_at is None
    assert (after.resends, after.token, after.deadlines) == (1, op.token, op.deadlines)
    assert after.attention is None
    assert "the configuration allows" in change.entries[-1].reason
    assert "300 s" in change.entries[0].reason
    assert [e.facts["passing"] for e in change.entries] == [True, True]
    assert [e.is_passing for e in change.entries] == [True, False]


def test_a_question_that_waits_for_a_person_is_not_passed_over() -> None:
    change = step(lost(), LookupFound(()), RESENDS, now=NOW + 10 * MINUTE)
    assert [(e.to_state, e.is_passing) for e in change.entries] == [(S.CREATE_UNRESOLVED, False)]


@pytest.mark.parametrize(
    ("what", "op", "evidence", "contract", "now"),
    [
        ("nobody allowed it", lost(), LookupFound(()), ASKS, NOW),
        ("the list may still lag", lost(since=NOW - LAG + 1), LookupFound(()), RESENDS, NOW),
        ("it was asked before that, and answered late", lost(since=NOW - LAG), asked(NOW - 1), RESENDS, NOW),
        ("the clock was set back since", lost(since=NOW - LAG + 1), asked(NOW + DAY), RESENDS, NOW),
        ("it was sent again already", lost(resends=1), LookupFound(()), RESENDS, NOW),
        ("a candidate was seen before", lost(candidates=("job_7",)), LookupFound(()), RESENDS, NOW),
        ("a candidate is seen now", lost(), LookupFound(("job_7",), is_sure=False), RESENDS_UNSURE, NOW),
        ("several are", lost(), LookupFound(("job_7", "job_8"), is_sure=False), RESENDS_UNSURE, NOW),
        ("the list was not read to its end", lost(), LookupFound((), is_whole=False), RESENDS, NOW),
        ("the look-up failed", lost(), ReadFailed("http_500"), RESENDS, NOW),
        ("a cancel waits for it", lost(cancel=CANCEL), LookupFound(()), RESENDS, NOW),
        ("nobody knows since when", replace(lost(), unknown_since=None), LookupFound(()), RESENDS, NOW),
    ],
)
def test_what_is_not_absent_is_not_sent_again(
    what: str, op: Operation, evidence: LookupFound | ReadFailed, contract: Contract, now: int
) -> None:
    change = step(op, evidence, contract, now=now)
    assert change.operation.state is S.CREATE_UNKNOWN, what
    assert change.operation.resends == op.resends, what


def test_past_the_create_deadline_a_person_is_asked_whatever_was_allowed() -> None:
    change = step(lost(), LookupFound(()), RESENDS, now=NOW + 10 * MINUTE)
    assert change.operation.state is S.CREATE_UNRESOLVED
    assert change.operation.resends == 0


def test_where_the_provider_has_no_look_up_the_create_is_sent_again_at_once_and_only_once() -> None:
    """The operator allowed it knowing that; nothing could ever tell whether the second arrived."""
    change = step(lost(since=NOW), LookupFound((), is_whole=False), NO_ROAD)
    assert moved(change) == [S.CREATE_UNRESOLVED, S.CREATE_PENDING]
    again = lost(since=NOW, resends=1)
    assert step(again, LookupFound((), is_whole=False), NO_ROAD).operation.state is S.CREATE_UNKNOWN


def test_candidates_that_turn_out_to_be_other_operations_are_no_hindrance() -> None:
    op = lost(candidates=("job_7",))
    change = step(op, LookupFound((), is_sure=False, held=("job_7",)), RESENDS_UNSURE)
    assert change.operation.candidates == ()
    assert change.operation.state is S.CREATE_PENDING


def test_a_create_that_was_sent_again_and_was_not_accepted_stays_pending_and_needs_no_second_permission() -> None:
    op = step(lost(), LookupFound(()), RESENDS).operation
    after = step(replace(op, schedule=replace(op.schedule, mark_at=NOW)), CreateNotAccepted("http_429"), RESENDS)
    assert (after.operation.state, after.operation.resends) == (S.CREATE_PENDING, 1)


@pytest.mark.parametrize("state", [S.ACCEPTED, S.OBSERVING, S.CANCELLING, S.RESULT_COLLECTING])
def test_the_first_job_that_shows_after_the_second_was_accepted_is_a_violation(state: State) -> None:
    """Never two silently running jobs (B4)."""
    change = step(in_state(state, resends=1), Accepted(Observation("running", "job_0"), by_lookup=True), RESENDS)
    assert change.operation.state is S.CONTRACT_VIOLATION
    assert change.operation.remote_job_id == "job_1"
    assert change.operation.candidates == ("job_0",)


def test_two_jobs_by_our_marker_after_a_re_send_are_a_violation() -> None:
    change = step(lost(resends=1), LookupFound(("job_7", "job_8")), RESENDS)
    assert change.operation.state is S.CONTRACT_VIOLATION
    assert change.operation.candidates == ("job_7", "job_8")


def test_an_event_that_names_the_first_job_before_the_re_send_leaves_takes_the_permission_back() -> None:
    """With our marker it is the best of evidence that the first did arrive: it is looked up instead."""
    op = step(lost(), LookupFound(()), RESENDS).operation
    change = step(op, EventSeen(Observation("running", "job_7"), is_ours=True), RESENDS)
    assert change.operation.state is S.CREATE_UNKNOWN
    assert change.operation.candidates == ("job_7",)
    assert change.operation.unknown_since == NOW
    under_way = replace(op, schedule=replace(op.schedule, mark_at=NOW))
    kept = step(under_way, EventSeen(Observation("running", "job_7"), is_ours=True), RESENDS)
    assert kept.operation.state is S.CREATE_PENDING, "it has left: its answer is waited for"


# ---- create.adopt = "by_count" ----


def test_the_only_candidate_is_taken_by_count_where_the_operator_says_so() -> None:
    change = step(lost(since=NOW), ONE, COUNTS)
    after = change.operation
    assert (after.state, after.remote_job_id, after.by_count, after.candidates) == (S.ACCEPTED, "job_7", True, ())
    assert "as the configuration allows" in change.entries[0].reason


@pytest.mark.parametrize(
    ("what", "op", "evidence", "contract"),
    [
        ("nobody allowed it", lost(), ONE, replace(COUNTS, adopt="ask")),
        ("another create may have made it", lost(), replace(ONE, is_only_lost=False), COUNTS),
        ("there are two", lost(), replace(ONE, job_ids=("job_7", "job_8"), same_size=("job_7", "job_8")), COUNTS),
        ("there is none", lost(), replace(ONE, job_ids=()), COUNTS),
        ("one of unknown size may be it, too", lost(), replace(ONE, job_ids=("job_7", "job_9")), COUNTS),
        ("it is of unknown size", lost(), replace(ONE, same_size=()), COUNTS),
        ("the list was not read to its end", lost(), replace(ONE, is_whole=False), COUNTS),
        ("another one was seen before", lost(candidates=("job_8",)), ONE, COUNTS),
        ("there may be two jobs by now", lost(resends=1), ONE, COUNTS),
    ],
)
def test_what_is_not_the_only_one_is_not_taken_by_count(
    what: str, op: Operation, evidence: LookupFound, contract: Contract
) -> None:
    change = step(op, evidence, contract)
    assert change.operation.state is S.CREATE_UNKNOWN, what
    assert change.operation.remote_job_id is None, what
    assert set(evidence.job_ids) <= set(change.operation.candidates), what


@pytest.mark.parametrize("state", [S.CREATE_PENDING, S.CREATE_UNRESOLVED])
def test_by_count_is_for_a_create_that_is_being_looked_for(state: State) -> None:
    change = step(in_state(state), ONE, COUNTS)
    assert change.operation.state is state
    assert change.operation.remote_job_id is None


STRANGE: Final = Problems(unknown=("job-0099_4",), missing=("job-0010_0",))


@pytest.mark.parametrize(
    ("problems", "summary"),
    [
        (Problems(unknown=("job-0099_4",)), ALL_GOOD),
        (Problems(missing=("b",)), Summary(total=3, succeeded=2, missing=1)),
        (STRANGE, Summary(total=3, succeeded=2, missing=1)),
    ],
)
def test_ids_that_do_not_match_after_a_taking_by_count_are_a_violation(problems: Problems, summary: Summary) -> None:
    """EXPECT.json, anthropic/unknown_id; the same result of a job that is surely ours only breaks the contract."""
    op = in_state(S.RESULT_COLLECTING, by_count=True)
    evidence = Collected(info(problems=problems), summary)
    change = step(op, evidence, COUNTS)
    assert change.operation.state is S.CONTRACT_VIOLATION
    assert change.operation.remote_job_id == "job_1"
    assert "taken by count" in change.entries[0].reason
    sure = step(replace(op, by_count=False), evidence, COUNTS)
    assert sure.operation.state is S.RESULT_VALIDATION_FAILED


def test_a_cancelled_strangers_batch_is_no_cancelled_operation() -> None:
    """Absent ids of a cancelled job count as cancelled; ids that were never sent still tell whose it was."""
    op = in_state(S.RESULT_COLLECTING, by_count=True, verdict=Verdict(VerdictKind.CANCELLED, "cancelled+files"))
    evidence = Collected(info(problems=Problems(unknown=("x",))), Summary(total=3, cancelled=3))
    assert step(op, evidence, COUNTS).operation.state is S.CONTRACT_VIOLATION


@pytest.mark.parametrize("problems", [Problems(duplicate=("a",)), Problems(unreadable_lines=(2,))])
def test_what_is_wrong_with_our_own_ids_is_no_sign_of_a_strangers_job(problems: Problems) -> None:
    op = in_state(S.RESULT_COLLECTING, by_count=True)
    change = step(op, Collected(info(problems=problems), ALL_GOOD), COUNTS)
    assert change.operation.state is S.RESULT_VALIDATION_FAILED


def test_a_person_who_chooses_that_very_job_is_not_asked_the_same_again() -> None:
    """From then on it is held by a person's word; nothing of what was read is served as this operation's."""
    op = in_state(S.CONTRACT_VIOLATION, by_count=True, collect_attempt=4, result=info(), summary=ALL_GOOD)
    decided = PersonDecided("d_1", Decision.CHOOSE_JOB, "ann", "it is ours", remote_job_id="job_1")
    after = step(op, decided, COUNTS).operation
    assert (after.state, after.by_count, after.collect_attempt, after.result) == (S.OBSERVING, False, 0, None)


# ---- whose item ids tell ----


def test_jobs_that_are_ruled_out_are_no_candidates_and_are_remembered() -> None:
    op = lost(candidates=("job_7", "job_8"))
    found = LookupFound(("job_8",), is_sure=False, ruled_out=("job_7", "job_9"))
    change = step(op, found, RESENDS_UNSURE)
    assert change.operation.candidates == ("job_8",)
    assert change.operation.ruled_out == ("job_7", "job_9")
    again = step(change.operation, found, RESENDS_UNSURE)
    assert again.entries == ()


# ---- the first job shows after the second ----


@pytest.mark.parametrize("state", [S.OBSERVING, S.RESULT_COLLECTING, S.RESULT_VALIDATION_FAILED])
def test_a_second_job_that_is_found_after_a_re_send_is_a_violation(state: State) -> None:
    """B4: the held job stays held, both are shown, nothing more is asked by itself."""
    change = step(in_state(state, resends=1), LookedAgain(("job_1", "job_0")))
    after = change.operation
    assert (after.state, after.remote_job_id, after.candidates) == (S.CONTRACT_VIOLATION, "job_1", ("job_0",))
    assert next_action(after) is None


def test_where_no_second_job_shows_the_operation_goes_on_and_is_not_looked_for_again() -> None:
    op = in_state(S.RESULT_COLLECTING, resends=1)
    change = step(op, LookedAgain(("job_1",)))
    assert change.operation.resend_checked
    assert (change.operation.state, change.operation.schedule.due_at) == (S.RESULT_COLLECTING, op.schedule.due_at)


@pytest.mark.parametrize(
    ("evidence", "said", "unsaid"),
    [
        (LookedAgain(()), "no second job shows", "not every job"),
        (LookedAgain((), is_whole=False), "not every job there could be told", "could not be looked through"),
        (LookedAgain((), is_whole=False, error_class="http_500"), "could not be looked through", "no second job shows"),
    ],
)
def test_a_second_look_claims_no_more_than_it_saw(evidence: LookedAgain, said: str, unsaid: str) -> None:
    change = step(in_state(S.RESULT_COLLECTING, resends=1), evidence)
    (entry,) = change.entries
    assert said in entry.reason
    assert unsaid not in entry.reason
    assert entry.facts["is_whole"] is evidence.is_whole
    assert change.operation.resend_checked


@pytest.mark.parametrize("state", TERMINAL)
def test_a_second_job_that_shows_after_the_end_is_a_contradiction(state: State) -> None:
    op = in_state(state, resends=1)
    assert_cell(op, step(op, LookedAgain(("job_0",))), "contradiction")

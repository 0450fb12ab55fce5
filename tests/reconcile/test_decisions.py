"""What is open to a person in each state, typed by hand from the design page, and what each offer promises."""

import re
from dataclasses import replace
from typing import Any, Final

import pytest

from reconcile.contract import Contract, WebhookTerms
from reconcile.decisions import OFFERS, Decision, end_by_accept, open_to
from reconcile.model import Operation, Problems, Summary, Verdict, VerdictKind
from reconcile.states import State
from tests.reconcile.rows import (
    ALL_CONTRACTS,
    ALL_GOOD,
    ALL_STATES,
    CANCEL,
    CONSUMING,
    CONTRACT,
    MINUTE,
    NO_CANCEL,
    NOW,
    REASONS_OF,
    REPLAYS,
    in_state,
    info,
)

S = State
K = VerdictKind
RESULT_QUESTIONS: Final = (S.RESULT_UNAVAILABLE, S.RESULT_VALIDATION_FAILED)
NO_LOOKUP: Final = replace(CONTRACT, lookup=None)

#: "Attention: reason, decisions, effects", word for word; the input call is no decision.
OPEN: Final[dict[str, str]] = {
    "create_unresolved": "adopt_job look_again resend give_up",
    "contract_violation": "choose_job give_up",
    "observation_failed": "resume cancel give_up",
    "result_timed_out": "resume cancel give_up",
    "blocked": "cancel give_up",
    "cancellation_unconfirmed": "cancel_again keep give_up",
    "result_unavailable": "collect_again accept give_up",
    "result_validation_failed": "collect_again accept give_up",
}


def asking(state: State, **over: Any) -> Operation:
    """A row in a state as it is when all that the page names is open: of a result, something was collected."""
    if state in RESULT_QUESTIONS:
        over = {"result": info(items=2), "summary": Summary(3, 1, 1, missing=1), **over}
    return in_state(state, **over)


def words(op: Operation, contract: Contract = CONTRACT) -> list[str]:
    """What is open, by name."""
    return [offer.decision.value for offer in open_to(op, contract)]


def effect(op: Operation, decision: str, contract: Contract = CONTRACT) -> str:
    """The sentence of one offer."""
    return next(offer.effect for offer in open_to(op, contract) if offer.decision == decision)


@pytest.mark.parametrize("state", ALL_STATES)
def test_what_is_open_is_what_the_page_says(state: State) -> None:
    assert words(asking(state)) == OPEN.get(state.value, "").split()


def test_every_question_can_be_decided_and_nothing_else_can() -> None:
    assert set(OPEN) == set(REASONS_OF) == {state.value for state in OFFERS}


def test_these_are_all_the_words() -> None:
    assert {d.value for d in Decision} == {word for line in OPEN.values() for word in line.split()}
    assert len(Decision) == 11


@pytest.mark.parametrize("contract", ALL_CONTRACTS)
@pytest.mark.parametrize("state", [s for s in ALL_STATES if s.value in OPEN])
def test_each_offer_says_in_whole_sentences_what_it_will_do(state: State, contract: Contract) -> None:
    """G8: nothing is offered twice, and there is always a way out."""
    offers = open_to(asking(state), contract)
    for offer in offers:
        assert re.fullmatch(r"[A-Z][^\n]{40,}\.", offer.effect), offer
    assert len({offer.decision for offer in offers}) == len(offers)
    assert offers[-1].decision is Decision.GIVE_UP


# ---- what it may cost ----

COSTS: Final = [
    ("create_unresolved", "resend", "runs twice if the first did arrive"),
    ("create_unresolved", "resend", "same token and the same bytes"),
    ("create_unresolved", "adopt_job", "somebody else's"),
    ("create_unresolved", "look_again", "new create deadline"),
    ("create_unresolved", "give_up", "the job may still run and cost"),
    ("contract_violation", "choose_job", "adopted as an operation of its own and cancelled there"),
    ("contract_violation", "give_up", "the job may still run and cost"),
    ("observation_failed", "resume", "new error budget and a new result deadline"),
    ("observation_failed", "cancel", "only the provider's own word"),
    ("observation_failed", "give_up", "the job may still run and cost"),
    ("result_timed_out", "resume", "new error budget and a new result deadline"),
    ("result_timed_out", "cancel", "only the provider's own word"),
    ("result_timed_out", "give_up", "the job may still run and cost"),
    ("blocked", "cancel", "only the provider's own word"),
    ("blocked", "give_up", "the job may still run and cost"),
    ("cancellation_unconfirmed", "cancel_again", "A new cancel is sent once"),
    ("cancellation_unconfirmed", "keep", "runs on and costs"),
    ("cancellation_unconfirmed", "give_up", "the job may still run and cost"),
    ("result_unavailable", "collect_again", "the job itself is not run again"),
    ("result_unavailable", "accept", "bad and missing items counted"),
    ("result_unavailable", "give_up", "what it did may cost"),
    ("result_validation_failed", "collect_again", "the job itself is not run again"),
    ("result_validation_failed", "accept", "bad and missing items counted"),
    ("result_validation_failed", "give_up", "what it did may cost"),
]


@pytest.mark.parametrize(("state", "decision", "said"), COSTS)
def test_an_offer_says_what_it_may_cost(state: str, decision: str, said: str) -> None:
    assert said in effect(asking(State(state)), decision)


def test_every_offer_of_the_page_has_its_price_above() -> None:
    assert {(s, d) for s, d, _ in COSTS} == {(s, d) for s, line in OPEN.items() for d in line.split()}


@pytest.mark.parametrize("state", [S.OBSERVATION_FAILED, S.RESULT_TIMED_OUT, S.BLOCKED])
def test_a_cancel_repeats_what_may_remain(state: State) -> None:
    """E5."""
    assert "items done and billed" in effect(asking(state), "cancel")
    assert "items done and billed" in effect(asking(S.CANCELLATION_UNCONFIRMED), "cancel_again")


def test_a_resend_says_what_an_honoured_token_is_worth() -> None:
    assert "promises" not in effect(asking(S.CREATE_UNRESOLVED), "resend")
    assert "promises to answer a token that it still knows" in effect(asking(S.CREATE_UNRESOLVED), "resend", REPLAYS)


def test_looking_again_without_a_look_up_says_so() -> None:
    webhook = WebhookTerms("standard", 300, 3 * 24 * 60 * MINUTE)
    assert "no look-up" not in effect(asking(S.CREATE_UNRESOLVED), "look_again")
    for contract in (NO_LOOKUP, replace(NO_LOOKUP, webhook=webhook)):
        assert "no look-up, so only an event" in effect(asking(S.CREATE_UNRESOLVED), "look_again", contract)


def test_a_cancel_that_waits_for_the_job_id_is_told_of() -> None:
    """E6."""
    for decision in ("adopt_job", "look_again", "resend"):
        assert "The cancel that waits is sent" not in effect(asking(S.CREATE_UNRESOLVED), decision)
        assert "The cancel that waits is sent" in effect(asking(S.CREATE_UNRESOLVED, cancel=CANCEL), decision)
    assert "The cancel that waits is sent" in effect(asking(S.CONTRACT_VIOLATION, cancel=CANCEL), "choose_job")


def test_a_cancel_under_way_when_a_second_job_appeared_is_told_of() -> None:
    row = asking(S.CONTRACT_VIOLATION, cancel=CANCEL)
    under_way = replace(row, deadlines=replace(row.deadlines, cancel=NOW + MINUTE))
    assert "under way is not sent again" in effect(under_way, "choose_job")


# ---- what the provider or the row closes ----


@pytest.mark.parametrize("state", [S.OBSERVATION_FAILED, S.RESULT_TIMED_OUT, S.BLOCKED, S.CANCELLATION_UNCONFIRMED])
def test_without_a_cancel_call_none_is_offered(state: State) -> None:
    left = [w for w in OPEN[state.value].split() if w not in ("cancel", "cancel_again")]
    assert words(asking(state), NO_CANCEL) == left


@pytest.mark.parametrize("state", RESULT_QUESTIONS)
def test_a_consuming_fetch_is_not_made_again(state: State) -> None:
    """F5, N16."""
    assert words(asking(state), CONSUMING) == ["accept", "give_up"]


@pytest.mark.parametrize("state", RESULT_QUESTIONS)
@pytest.mark.parametrize("kind", [K.DONE, K.DONE_UNKNOWN_OUTCOME])
def test_of_a_success_that_nobody_could_read_nothing_can_be_accepted(state: State, kind: VerdictKind) -> None:
    said = Verdict(kind, "w")
    assert words(in_state(state, verdict=said)) == ["collect_again", "give_up"]
    empty = in_state(state, verdict=said, result=info(items=0), summary=Summary(0))
    assert words(empty) == ["collect_again", "give_up"]


@pytest.mark.parametrize("state", RESULT_QUESTIONS)
@pytest.mark.parametrize("kind", [K.CANCELLED, K.FAILED, K.EXPIRED])
def test_a_verdict_that_is_no_success_can_be_accepted_without_a_result(state: State, kind: VerdictKind) -> None:
    op = in_state(state, verdict=Verdict(kind, "w", may_hold_results=True))
    assert words(op) == ["collect_again", "accept", "give_up"]


SOME: Final = Summary(3, succeeded=1, failed=1, missing=1)
NONE: Final = Summary(3, failed=2, missing=1)


@pytest.mark.parametrize(
    ("kind", "summary", "end"),
    [
        (K.DONE, SOME, "completed_with_errors"),
        (K.DONE, NONE, "failed"),
        (K.DONE_UNKNOWN_OUTCOME, SOME, "completed_with_errors"),
        (K.DONE_UNKNOWN_OUTCOME, NONE, "failed"),
        (K.DONE_UNKNOWN_OUTCOME, ALL_GOOD, "completed_with_errors"),
        (K.EXPIRED, SOME, "completed_with_errors"),
        (K.EXPIRED, NONE, "failed"),
        (K.EXPIRED, None, "failed"),
        (K.CANCELLED, SOME, "cancelled"),
        (K.CANCELLED, None, "cancelled"),
        (K.FAILED, SOME, "failed"),
        (K.FAILED, None, "failed"),
    ],
)
@pytest.mark.parametrize("state", RESULT_QUESTIONS)
def test_accepting_says_how_the_operation_will_end(
    state: State, kind: VerdictKind, summary: Summary | None, end: str
) -> None:
    """N10: never succeeded, whatever the items say."""
    result = None if summary is None else info(problems=Problems(broken=("sha256",)))
    op = in_state(state, verdict=Verdict(kind, "w", may_hold_results=True), result=result, summary=summary)
    assert end_by_accept(op) == end
    assert f"The operation ends {end}." in effect(op, "accept")

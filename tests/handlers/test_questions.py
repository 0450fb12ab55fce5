"""What a question says: one table of sentences, for the body and for the inbox, and none that reads as an end."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from handlers import bodies, questions
from reconcile.model import Absence, Attention, Deadlines, Operation
from reconcile.registry import provider_for
from reconcile.states import REASON_OF
from tests.handlers.ground import NOON
from tests.handlers.test_operations_api import in_state

CONTRACT: Final = provider_for("openai_batch").contract
PAGE: Final = "https://status.openai.com"
#: By hand from design.md's table of attention: state, the narrower reason that is kept, what is shown.
REASONS: Final = [
    ("create_unresolved", "create_unresolved", "create_unresolved"),
    ("contract_violation", "contract_violation", "contract_violation"),
    ("observation_failed", "errors", "errors"),
    ("observation_failed", "gone", "gone"),
    ("observation_failed", "provider_missing", "provider_missing"),
    ("observation_failed", "provider_moved", "provider_moved"),
    ("result_timed_out", "result", "result_timed_out"),
    ("result_timed_out", "input", "result_timed_out"),
    ("blocked", "input_required", "input_required"),
    ("blocked", "input_unknown", "input_unknown"),
    ("cancellation_unconfirmed", "cancellation_unconfirmed", "cancellation_unconfirmed"),
    ("cancellation_unconfirmed", "refused", "refused"),
    ("result_unavailable", "result_unavailable", "result_unavailable"),
    ("result_validation_failed", "result_validation_failed", "result_validation_failed"),
]
TIMED_OUT: Final = ["create_unresolved", "result", "input", "cancellation_unconfirmed", "result_unavailable"]
DECIDE: Final = (
    "The work is NOT complete: do not report success, and do not start it again. A person must decide; the decisions"
    " that are open are listed under `attention`."
)
GIVE: Final = "The work is NOT complete: do not report success. Give the input, or cancel it."
GIVE_THERE: Final = "The work is NOT complete: do not report success. Give the input there, or cancel it here."


def asking(state: str, reason: str) -> Operation:
    return in_state(state, attention=Attention(reason, NOON, "why"))


@pytest.mark.parametrize(("state", "kept", "shown"), REASONS)
def test_every_question_has_a_sentence_and_a_word_that_can_be_read_alone(state: str, kept: str, shown: str) -> None:
    attention = bodies.attention(asking(state, kept), CONTRACT)
    assert attention is not None
    assert attention["reason"] == shown
    assert "openai" in attention["message"]
    if kept in set(Absence):  # told in words of ours, and as the beginning
        assert attention["message"] == "why. The job at openai may still be running."
    else:
        assert attention["message"].endswith(" What led to it: 'why'.")


@pytest.mark.parametrize(("state", "kept"), [(state, kept) for state, kept, _ in REASONS])
def test_the_body_asks_what_the_inbox_asks_and_says_that_it_is_not_complete(state: str, kept: str) -> None:
    op = asking(state, kept)
    words, question = bodies.message(op, NOON, CONTRACT), questions.asked(op, CONTRACT)
    assert words.startswith(question)
    assert questions.told(op, CONTRACT).startswith(question)
    assert words.endswith(GIVE_THERE if state == "blocked" else DECIDE)
    assert bodies.message(op, NOON, replace(CONTRACT, takes_input=True)).endswith(
        GIVE if state == "blocked" else DECIDE
    )


@pytest.mark.parametrize(("state", "kept"), [(state, kept) for state, kept, _ in REASONS])
def test_every_time_out_names_the_providers_status_page(state: str, kept: str) -> None:
    """C1."""
    attention = bodies.attention(asking(state, kept), CONTRACT)
    assert attention is not None
    assert (PAGE in attention["message"]) == (kept in TIMED_OUT)


def test_an_operation_that_ended_timed_out_names_the_status_page_too() -> None:
    assert PAGE in bodies.message(in_state("timed_out"), NOON, CONTRACT)
    assert "See" not in bodies.message(in_state("timed_out"), NOON, replace(CONTRACT, status_page=""))


def test_no_question_can_be_put_for_which_there_is_no_sentence() -> None:
    """Whatever a rule names as a reason, and whatever a state asks by itself, stands in the table of this test."""
    named = {reason for _, reason, _ in REASONS}
    rules = Path(__file__).parents[2] / "reconcile" / "rules"
    found = {word for path in rules.glob("*.py") for word in re.findall(r'question="(\w+)"', path.read_text("utf-8"))}
    assert found
    assert found | {absence.value for absence in Absence} <= named
    for state, reason in REASON_OF.items():
        assert questions.told(in_state(state, attention=Attention(reason, NOON, "why")), CONTRACT)
    with pytest.raises(KeyError):
        questions.told(asking("observation_failed", "never heard of"), CONTRACT)


@pytest.mark.parametrize("state", ["observation_failed", "result_timed_out", "result_validation_failed", "blocked"])
def test_where_nothing_is_done_the_next_thing_to_come_is_the_end_of_the_waiting(state: str) -> None:
    """Not the half of it, at which the question is only said again; a blocked job is read on."""
    op = in_state(state, deadlines=Deadlines(attention=NOON + 604_800_000, input=NOON + 86_400_000))
    body = bodies.operation(op, NOON, CONTRACT)
    if state == "blocked":
        assert (body["next_action"], body["next_action_at"]) == ("poll", "2026-11-29T12:00:29.000Z")
    else:
        assert (body["next_action"], body["next_action_at"]) == (None, "2026-12-06T12:00:00.000Z")
        assert body["attention"]["deadline"] == body["next_action_at"]

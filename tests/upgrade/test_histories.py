"""What `decide` once answered, it answers today; where it does not on purpose, a line here says why (N40)."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import pytest

from reconcile.evidence import CancelAnswer, CancelAnswered, Collected, JobRead
from reconcile.model import Observation, Operation, ResultInfo, Summary
from reconcile.rules import collecting, creating, deciding, looking_up, observing, restoring, waiting, wishes
from reconcile.states import TRANSITIONS, State
from tests.reconcile.rows import in_state
from tests.upgrade.histories import EVIDENCE, FOLDER, Call, Moves, Unknown, decode, moves_of, read
from tests.upgrade.recorder import encode

SETS: Final = ("schema-2.json", "schema-4.json", "schema-4-restored.json")

#: Calls whose history says one thing more than it did: a fact at the end, and no other move.
ONE_FACT_MORE: Final = {
    "schema-2.json": {
        # Since d999c38 a question that nobody answers is put again when half of its time is over.
        **dict.fromkeys((328, 332, 350, 358, 360), "half of the time is over"),
        # Since bee7e0f the history tells of an input that was not accepted, and that it is sent again.
        492: "the input was not accepted",
    },
}
#: An arrow of the table that no rule takes: what turns up for such an operation is a candidate, shown to the person.
NOT_TAKEN: Final = {("create_unresolved", "contract_violation")}


def _expected(name: str, call: Call) -> tuple[Moves, bool]:
    more = call.number in ONE_FACT_MORE.get(name, {})
    fact = ("fact", call.operation.state.value, None, call.given["cause"])
    return [*call.moves, *([fact] if more else [])], call.is_refused


def _differences(name: str) -> list[str]:
    """Each call that is not answered as it is expected to be."""
    found = []
    for call in read(name):
        change = call.again()
        answered = moves_of(change), change.refusal is not None
        if answered != _expected(name, call):
            found.append(f"{call}: {answered}, it was {_expected(name, call)}")
    return found


def test_every_recorded_set_is_replayed() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.json")) == sorted(SETS)
    assert sum(path.stat().st_size for path in FOLDER.glob("*.json")) < 600_000


@pytest.mark.parametrize("name", SETS)
def test_a_recorded_call_of_decide_gives_the_same_moves_today(name: str) -> None:
    assert _differences(name) == []


def test_what_is_said_to_differ_does_so_for_the_reason_that_is_given() -> None:
    for name, reasons in ONE_FACT_MORE.items():
        calls = read(name)
        for number, reason in reasons.items():
            assert reason in calls[number].again().entries[-1].reason


def test_the_recorded_sets_hold_every_arrow_of_the_table_and_every_kind_of_evidence() -> None:
    calls = [call for name in SETS for call in read(name)]
    moves = {move[1:3] for call in calls for move in call.moves if move[0] == "move"}
    arrows = {(before.value, after.value) for before, afters in TRANSITIONS.items() for after in afters}
    assert moves - arrows == set()
    assert arrows - moves == NOT_TAKEN
    assert {call.operation.state for call in calls} == set(State)
    assert {type(call.evidence).__name__ for call in calls} == set(EVIDENCE)
    assert {call.contract.kind for call in calls} >= {"openai_batch", "test", "asks"}


@pytest.mark.parametrize(
    ("module", "rule"),
    [
        (creating, "accepted"),
        (creating, "create_unknown"),
        (looking_up, "lookup_found"),
        (observing, "job_read"),
        (observing, "read_failed"),
        (wishes, "cancel_answered"),
        (collecting, "collected"),
        (waiting, "deadline_passed"),
        (waiting, "found_at_start"),
        (restoring, "found_in_backup"),
        (deciding, "person_decided"),
    ],
)
def test_a_rule_that_does_nothing_any_more_is_noticed(
    module: ModuleType, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, rule, lambda *_, **__: None)
    assert any(_differences(name) for name in SETS)


# ---- the reader is strict ----


@pytest.mark.parametrize(
    "value",
    [
        in_state(State.CANCELLING),
        JobRead(Observation("done", remote_job_id="job_1", finished_items=2), hint_ms=5, rung_by="event:evt"),
        CancelAnswered(CancelAnswer.ACCEPTED, observation=Observation(None)),
        Collected(ResultInfo(1, 2, "ab", None, 3, files=("f",)), Summary(3, succeeded=3), differences=("a", "b")),
    ],
)
def test_a_value_that_is_written_and_read_is_the_same(value: Any) -> None:
    assert decode(type(value), encode(value)) == value


def _with_a_stranger(document: dict[str, Any]) -> None:
    document["colour"] = "red"


def _without_its_state(document: dict[str, Any]) -> None:
    del document["state"]


def _with_a_number_for_a_word(document: dict[str, Any]) -> None:
    document["remote_job_id"] = 7


def _with_a_word_for_a_number(document: dict[str, Any]) -> None:
    document["schedule"]["errors"] = "7"


def _with_a_stranger_inside(document: dict[str, Any]) -> None:
    document["deadlines"] = {"someday": 7}


@pytest.mark.parametrize(
    "spoil",
    [
        _with_a_stranger,
        _without_its_state,
        _with_a_number_for_a_word,
        _with_a_word_for_a_number,
        _with_a_stranger_inside,
    ],
)
def test_a_record_that_todays_classes_have_no_place_for_is_refused(spoil: Callable[[dict[str, Any]], None]) -> None:
    document = encode(in_state(State.OBSERVING))
    spoil(document)
    with pytest.raises(Unknown):
        decode(Operation, document)


def test_a_state_that_does_not_exist_is_refused() -> None:
    document = {**encode(in_state(State.OBSERVING)), "state": "resting"}
    with pytest.raises(ValueError, match="resting"):
        decode(Operation, document)

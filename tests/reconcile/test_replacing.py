"""The quick copy is the slow one's equal."""

import dataclasses

import pytest

from reconcile.replacing import replace
from reconcile.states import State
from tests.reconcile.rows import NOW, in_state


def test_a_copy_differs_in_what_was_named_and_leaves_the_original_as_it_was() -> None:
    op = in_state(State.OBSERVING)
    copy = replace(op, state=State.FAILED, completed_at=NOW)
    assert copy == dataclasses.replace(op, state=State.FAILED, completed_at=NOW)
    assert (op.state, op.completed_at) == (State.OBSERVING, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        copy.state = State.OBSERVING  # type: ignore[misc]


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="outcome_word"):
        replace(in_state(State.OBSERVING), outcome_word="failed")  # type: ignore[call-arg]


def test_what_has_slots_is_copied_too() -> None:
    verdict = dataclasses.make_dataclass("Pair", [("one", int), ("other", int)], frozen=True, slots=True)(1, 2)
    assert replace(verdict, other=3) == dataclasses.replace(verdict, other=3)

"""What a history alone tells of its operation (N27)."""

from dataclasses import replace
from typing import Any

import pytest

from reconcile.fold import Fold
from reconcile.model import Deadlines
from reconcile.states import State
from tests.reconcile.rows import NOW, in_state

#: A history as (kind, to_state, facts), from the start to the end.
STORY: list[tuple[str, str | None, dict[str, Any]]] = [
    ("move", "create_pending", {"remote_job_id": None, "deadlines": {"create": NOW, "result": None}}),
    ("fact", None, {}),
    ("move", "accepted", {"remote_job_id": "job_1", "deadlines": {"result": NOW + 5}}),
    ("refused", "succeeded", {}),
    ("move", "observing", {}),
    ("contradiction", None, {}),
]


def folded(story: list[tuple[str, str | None, dict[str, Any]]]) -> Fold:
    fold = Fold()
    for row in story:
        fold.take(*row)
    return fold


def test_rows_say_what_changed_and_the_rest_stays() -> None:
    fold = folded(STORY)
    assert (fold.state, fold.remote_job_id, fold.outcome) == ("observing", "job_1", None)
    assert fold.deadlines == {"result": NOW + 5}


def test_only_a_move_moves() -> None:
    """What was refused names a state too."""
    assert folded(STORY[:4]).state == "accepted"


def test_a_fact_may_take_something_back() -> None:
    assert folded([*STORY, ("fact", None, {"remote_job_id": None})]).remote_job_id is None


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({}, None),
        ({"state": State.ACCEPTED}, "its state is accepted, and its history tells observing"),
        ({"remote_job_id": "job_2"}, "its remote_job_id is job_2, and its history tells job_1"),
        ({"deadlines": Deadlines()}, f"its result deadline is None, and its history tells {NOW + 5}"),
        ({"deadlines": Deadlines(result=NOW + 5, input=7)}, "its input deadline is 7, and its history tells None"),
    ],
)
def test_the_first_difference_of_the_row_is_told(over: dict[str, Any], words: str | None) -> None:
    op = replace(in_state(State.OBSERVING), remote_job_id="job_1", deadlines=Deadlines(result=NOW + 5))
    assert folded(STORY).difference(replace(op, **over)) == words


def test_an_end_has_an_outcome_and_nothing_else_has_one() -> None:
    ended = folded([*STORY, ("move", "failed", {"outcome": "failed", "deadlines": {}})])
    op = replace(in_state(State.FAILED), remote_job_id="job_1", deadlines=Deadlines())
    assert ended.difference(op) is None
    forgot = folded([*STORY, ("move", "failed", {"deadlines": {}})])
    assert forgot.difference(op) == "its outcome is failed, and its history tells None"


def test_no_history_tells_of_no_operation() -> None:
    assert str(Fold().difference(in_state(State.OBSERVING))).startswith("its state is observing")


@pytest.mark.parametrize("deadlines", [None, 5, "x", ["create"]])
def test_deadlines_that_are_no_object_run_nowhere(deadlines: Any) -> None:
    """Whoever hashes anew may write anything: it must come out as a difference."""
    fold = folded([*STORY, ("fact", None, {"deadlines": deadlines})])
    assert str(fold.difference_from("observing", "job_1", None, {"result": NOW + 5})).startswith("its result deadline")

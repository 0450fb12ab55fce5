"""An entry is familiar only as long as it says the same, and nothing became of its job meanwhile."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile import familiar
from reconcile.familiar import Familiar

ENTRY = {"id": "job_1", "status": "in_progress", "counts": {"total": 10, "done": 3}, "metadata": None}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)


def again(entry: dict[str, Any]) -> dict[str, Any]:
    """The same entry as another page brings it."""
    found: dict[str, Any] = json.loads(json.dumps(entry))
    return found


def learned(**over: Any) -> Familiar:
    known = Familiar()
    known.begin_page()
    known.learn([("job_1", 7, {**ENTRY, **over})])
    return known


def test_an_entry_that_says_the_same_is_familiar() -> None:
    assert Familiar().key_of(ENTRY) is None
    assert learned().key_of(again(ENTRY)) == 7


@given(ENTRIES, ENTRIES)
def test_entries_are_the_same_exactly_where_their_json_is(one: dict[str, Any], other: dict[str, Any]) -> None:
    known = Familiar()
    known.learn([("job_1", 7, one)])
    assert known.key_of(again(one)) == 7
    assert (known.key_of(other) == 7) == (json.dumps(one) == json.dumps(other))


def test_a_job_of_which_something_became_is_looked_at_again() -> None:
    known = learned()
    known.forget("job_1")
    assert known.key_of(ENTRY) is None


def test_what_a_page_says_of_a_job_that_changed_since_it_began_is_not_learned() -> None:
    known = Familiar()
    known.begin_page()
    known.forget("job_1")
    known.learn([("job_1", 7, ENTRY)])
    assert known.key_of(ENTRY) is None
    known.begin_page()
    known.learn([("job_1", 7, ENTRY)])
    assert known.key_of(ENTRY) == 7


@pytest.mark.parametrize("before", ["no page", "a page", "a lost page"])
def test_what_changes_while_no_page_is_on_its_way_takes_no_memory(before: str) -> None:
    """A provider whose list is not read, or not any more, may end millions of jobs in the life of one process."""
    known = Familiar() if before == "no page" else learned()
    if before == "a lost page":
        known.begin_page()
        known.end_page()
    tracemalloc.start()
    try:
        for n in range(10_000):
            known.forget(f"batch_{n:032d}")
        assert tracemalloc.get_traced_memory()[0] < 10_000
    finally:
        tracemalloc.stop()


def test_of_a_job_only_the_last_entry_is_familiar() -> None:
    known = learned()
    moved = {**ENTRY, "status": "finalizing"}
    known.learn([("job_1", 7, moved)])
    assert (known.key_of(moved), known.key_of(ENTRY)) == (7, None)


def test_no_more_jobs_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(familiar, "MAX_JOBS", 2)
    known = Familiar()
    entries = {f"job_{n}": {**ENTRY, "id": f"job_{n}"} for n in range(3)}
    known.learn([(job, n, entry) for n, (job, entry) in enumerate(entries.items())])
    assert [known.key_of(entry) for entry in entries.values()] == [0, 1, None]
    moved = {**entries["job_0"], "status": "finalizing"}
    known.learn([("job_0", 0, moved)])
    assert known.key_of(moved) == 0

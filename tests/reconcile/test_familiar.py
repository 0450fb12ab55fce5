"""An entry is familiar only as long as it says the same, and nothing became of its job meanwhile."""

import json
import tracemalloc

import pytest

from reconcile import familiar
from reconcile.familiar import Familiar


def entry(job: str = "job_1", status: str = "in_progress") -> bytes:
    return json.dumps({"id": job, "status": status}).encode()


def learned() -> Familiar:
    known = Familiar()
    known.begin_page()
    known.learn([("job_1", 7, entry())])
    return known


def test_an_entry_that_says_the_same_is_familiar() -> None:
    assert Familiar().key_of(entry()) is None
    assert learned().key_of(entry()) == 7
    assert learned().key_of(entry(status="finalizing")) is None


def test_a_job_of_which_something_became_is_looked_at_again() -> None:
    known = learned()
    known.forget("job_1")
    assert known.key_of(entry()) is None


def test_what_a_page_says_of_a_job_that_changed_since_it_began_is_not_learned() -> None:
    known = Familiar()
    known.begin_page()
    known.forget("job_1")
    known.learn([("job_1", 7, entry())])
    assert known.key_of(entry()) is None
    known.begin_page()
    known.learn([("job_1", 7, entry())])
    assert known.key_of(entry()) == 7


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
    moved = entry(status="finalizing")
    known.learn([("job_1", 7, moved)])
    assert (known.key_of(moved), known.key_of(entry())) == (7, None)


def test_no_more_jobs_are_remembered_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(familiar, "MAX_JOBS", 2)
    known = Familiar()
    entries = {f"job_{n}": entry(f"job_{n}") for n in range(3)}
    known.learn([(job, n, text) for n, (job, text) in enumerate(entries.items())])
    assert [known.key_of(text) for text in entries.values()] == [0, 1, None]
    moved = entry("job_0", "finalizing")
    known.learn([("job_0", 0, moved)])
    assert known.key_of(moved) == 0

"""When a list carries the jobs of an account, how far it is read, and what on a page is news."""

from dataclasses import replace

import pytest

from reconcile.contract import Lookup
from reconcile.evidence import JobRead
from reconcile.listing import Stands, can_list, is_news, is_worth_it, max_pages, shows_older
from reconcile.model import Observation, Progress, Verdict, VerdictKind
from reconcile.provider import Page
from reconcile.schedule import Pace
from reconcile.states import State
from tests.reconcile.rows import CONTRACT, MINUTE, NOW, in_state, step

K = VerdictKind


@pytest.mark.parametrize(
    ("open_jobs", "needed", "page_size", "begins", "goes_on"),
    [
        (0, 0, 100, False, False),
        (9, 1, 100, False, False),
        (10, 1, 100, False, True),
        (19, 1, 100, False, True),
        (20, 1, 100, True, True),
        (20, 0, 100, True, True),  # not known: 20 / 100 + 1 = 1 page
        (20, 0, 2, False, True),  # 11 pages for 20 jobs: no gain to begin with, none to end for
        (23, 0, 2, False, True),
        (20, 10, 100, False, True),
        (21, 10, 100, True, True),
        (200, 100, 100, False, True),
        (201, 100, 100, True, True),
        (100, 100, 100, False, False),
        (101, 100, 100, False, True),
        (10_000, 100, 100, True, True),
        (1_000_000, 0, 100, True, True),
    ],
)
def test_a_list_begins_at_20_jobs_and_two_a_page_and_ends_at_half_of_it(
    open_jobs: int, needed: int, page_size: int, begins: bool, goes_on: bool
) -> None:
    assert is_worth_it(open_jobs, needed, page_size=page_size, is_listed=False) is begins
    assert is_worth_it(open_jobs, needed, page_size=page_size, is_listed=True) is goes_on


def test_only_a_provider_with_reads_and_a_list_of_every_job_is_listed() -> None:
    listed = replace(CONTRACT, lookup=Lookup(is_sure=True, page_size=100))
    assert can_list(listed)
    assert not can_list(replace(listed, has_read=False))
    assert not can_list(replace(listed, lookup=Lookup(is_sure=True)))
    assert not can_list(replace(listed, lookup=None))


@pytest.mark.parametrize(("open_jobs", "pages"), [(0, 20), (120, 20), (900, 20), (1_000, 22), (10_000, 202)])
def test_a_sweep_reads_as_many_pages_as_a_look_up_or_twice_what_its_jobs_would_fill(open_jobs: int, pages: int) -> None:
    assert max_pages(open_jobs, Lookup(is_sure=True, page_size=100)) == pages


def test_a_list_from_new_to_old_ends_the_walk_past_the_oldest_job_less_the_skew() -> None:
    ordered, unordered = Lookup(is_sure=True, skew_ms=5 * MINUTE), Lookup(is_sure=True)

    def page(*times: int | None) -> Page:
        return Page(tuple(Observation("running", remote_job_id="j", created_at=at) for at in times), None)

    assert shows_older(page(NOW, NOW - 5 * MINUTE - 1), NOW, ordered)
    assert not shows_older(page(NOW, NOW - 5 * MINUTE), NOW, ordered)
    assert not shows_older(page(None), NOW, ordered)
    assert shows_older(replace(page(), last_at=NOW - 5 * MINUTE - 1), NOW, ordered)  # of known entries
    assert not shows_older(page(NOW - 60 * MINUTE), NOW, unordered)


PENDING = Verdict(K.PENDING, "running")
HALF = Progress(percent=50, completed=5, total=10)
STANDS = Stands(State.OBSERVING, "running", HALF, 10, errors=0, gone_reads=0, last_read_at=NOW, is_leased=False)
SEEN = Observation("running", remote_job_id="job_1", remote_status="running", progress=HALF, total_items=10)
BLOCKED = Verdict(K.BLOCKED, "running")


@pytest.mark.parametrize(
    ("stands", "seen", "verdict", "news"),
    [
        (STANDS, SEEN, PENDING, False),
        (STANDS, replace(SEEN, total_items=None), PENDING, False),
        (STANDS, replace(SEEN, remote_status=None), PENDING, False),  # the word stands for it
        (STANDS, replace(SEEN, remote_status="finalizing"), PENDING, True),
        (STANDS, replace(SEEN, progress=replace(HALF, completed=6)), PENDING, True),
        (STANDS, replace(SEEN, progress=None), PENDING, False),  # a body that tells none is no news of it
        (replace(STANDS, progress=None), SEEN, PENDING, True),
        (STANDS, replace(SEEN, total_items=11), PENDING, True),
        (replace(STANDS, errors=1), SEEN, PENDING, True),
        (replace(STANDS, gone_reads=1), SEEN, PENDING, True),
        (STANDS, SEEN, BLOCKED, True),
        (replace(STANDS, state=State.BLOCKED), SEEN, BLOCKED, False),
        (replace(STANDS, state=State.BLOCKED), SEEN, PENDING, True),
        (replace(STANDS, state=State.ACCEPTED), SEEN, PENDING, True),
        (replace(STANDS, state=State.OBSERVATION_FAILED), SEEN, PENDING, True),
    ],
)
def test_what_only_repeats_the_row_is_no_news(stands: Stands, seen: Observation, verdict: Verdict, news: bool) -> None:
    assert is_news(stands, seen, verdict, sent_at=NOW) is news


@pytest.mark.parametrize("word", ["queued", "running"])
@pytest.mark.parametrize("progress", [None, HALF, replace(HALF, completed=6)])
@pytest.mark.parametrize("total", [None, 10, 11])
@pytest.mark.parametrize("known", [None, HALF])
@pytest.mark.parametrize("errors", [0, 1])
def test_a_page_and_a_read_of_its_own_mean_the_same_by_news(
    word: str, progress: Progress | None, total: int | None, known: Progress | None, errors: int
) -> None:
    """Else a page would write again and again what a read holds to be said already, or keep back what a read tells."""
    op = in_state(State.OBSERVING, remote_status="running", progress=known, total_items=10, errors=errors)
    seen = Observation(word, remote_job_id=op.remote_job_id, progress=progress, total_items=total)
    stands = Stands(op.state, op.remote_status, op.progress, op.total_items, errors, 0, NOW, is_leased=False)
    read = step(op, JobRead(seen), pace=Pace.LISTED)
    after = read.operation
    changes = replace(after, schedule=op.schedule) != op or after.schedule.errors != op.schedule.errors
    assert is_news(stands, seen, PENDING, sent_at=NOW) is (changes or read.is_news)


#: An end is news wherever the job is waited for; where it is read quicker than a list is, nothing else is.
ENDS_COUNT = {
    State.ACCEPTED,
    State.OBSERVING,
    State.BLOCKED,
    State.INPUT_GIVEN,
    State.CANCEL_REQUESTED,
    State.CANCELLING,
    State.CANCELLATION_UNCONFIRMED,
    State.RESULT_TIMED_OUT,
    State.OBSERVATION_FAILED,
}
CHANGES_COUNT = {State.ACCEPTED, State.OBSERVING, State.BLOCKED, State.OBSERVATION_FAILED}


@pytest.mark.parametrize("state", list(State))
def test_each_state_takes_from_a_list_what_it_still_waits_for(state: State) -> None:
    stands = replace(STANDS, state=state)
    moved = replace(SEEN, remote_status="finalizing")
    for kind in (K.DONE, K.DONE_UNKNOWN_OUTCOME, K.FAILED, K.CANCELLED, K.EXPIRED):
        assert is_news(stands, SEEN, Verdict(kind, "x"), sent_at=NOW) is (state in ENDS_COUNT)
    assert is_news(stands, moved, PENDING, sent_at=NOW) is (state in CHANGES_COUNT)
    assert not is_news(replace(stands, is_leased=True), SEEN, Verdict(K.DONE, "x"), sent_at=NOW)


def test_a_page_that_was_asked_for_before_the_jobs_own_read_tells_only_its_end() -> None:
    moved = replace(SEEN, remote_status="validating")
    assert is_news(STANDS, moved, PENDING, sent_at=NOW)
    assert not is_news(STANDS, moved, PENDING, sent_at=NOW - 1)
    assert is_news(STANDS, SEEN, Verdict(K.FAILED, "failed"), sent_at=NOW - 1)

"""List pages in the file: only news is written, what others hold is left alone, due times follow a provider's pace."""

from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reconcile.absence import Served
from reconcile.classify import classify
from reconcile.contract import Contract, Lookup, WebhookTerms
from reconcile.evidence import CancelAsked, JobGone, JobRead, ReadFailed
from reconcile.familiar import ENDED
from reconcile.ingest import judge_by
from reconcile.model import Observation, Progress
from reconcile.schedule import Pace
from reconcile.states import Priority, State
from reconcile.store.kept import RequestRecord
from reconcile.store.list_pages import ListedJob, PageKept, PageRecord
from reconcile.store.sweeps import Begin, Spread, SweepEnd, SweepWish
from tests.reconcile.rows import BASE, CAP, CONTRACT, HOUR, MINUTE, NOW
from tests.reconcile.store.ground import Ground, Statements, accepted, event, opened, operation, read

HOOKS = WebhookTerms(scheme="standard", tolerance_seconds=300, retries_ms=HOUR)
SWEEPABLE: Contract = replace(CONTRACT, webhook=HOOKS, lookup=Lookup(is_sure=True, page_size=100))
REQUEST = RequestRecord("req_page", "list", 1, NOW, NOW, 200, None, "remote_1", "key")
DEADLINE = NOW + 20 * HOUR
URL = "https://here.example"
HERE = Served({"test": frozenset({URL})})
BOTH = Served({"test": frozenset({URL}), "other": frozenset({URL})})


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    """A file whose provider's list carries the polls."""
    judge = judge_by(lambda _: SWEEPABLE, lambda _: Pace.LISTED)
    async with opened(tmp_path / "file.db", judge=judge) as ground:
        await ground.store.know_providers({"test": "kind"})
        yield ground


def job(n: int, word: str = "running", **over: Any) -> ListedJob:
    """The n-th operation's job as a page shows it."""
    seen = Observation(word, remote_job_id=f"job_{n}", remote_status=word, **over)
    return ListedJob(seen, classify(SWEEPABLE, word), f'{{"id":"job_{n}","status":"{word}"}}'.encode())


async def sweep(ground: Ground, owner: str = "A", *, now: int = NOW) -> int:
    """Lease the cursor, which is due."""
    if not ground.look("SELECT 1 FROM sweeps"):
        await ground.store.sweeps.begin(Begin("test", NOW))
    fence = await ground.store.sweeps.claim(SweepWish("test", owner, now, 60_000))
    assert fence is not None
    return fence


async def show(ground: Ground, fence: int, *jobs: ListedJob, **over: Any) -> PageKept:
    """One page of the sweep under `fence`."""
    page = PageRecord("test", "A", fence, HERE, NOW, 0.0, REQUEST, "page_1", jobs)
    return await ground.store.sweeps.keep_page(replace(page, **over))


def wal_bytes(ground: Ground) -> int:
    return Path(f"{ground.path}-wal").stat().st_size


# ---- pages -----------------------------------------------------------------------------------------------------------


async def test_jobs_that_tell_nothing_new_are_seen_and_cost_no_write(ground: Ground) -> None:
    """P9: a page of unchanged jobs changes no row of any table, and its transaction writes no byte."""
    progress = Progress(percent=10, completed=1, total=10)
    await ground.start(
        *(operation(n, remote_status="running", progress=progress, total_items=10, due_at=DEADLINE) for n in (1, 2, 3))
    )
    fence = await sweep(ground)
    statements = Statements()
    ground.hooks.before_begin = statements
    before, wal = ground.dump(), wal_bytes(ground)
    kept = await show(ground, fence, *(job(n, progress=progress, total_items=10) for n in (1, 2, 3)))
    assert kept == PageKept(is_held=True, seen=(1, 2, 3), known=(("job_1", 1), ("job_2", 2), ("job_3", 3)))
    assert ground.dump() == before
    assert wal_bytes(ground) == wal
    assert [sql for sql, _ in statements.seen if sql.startswith(("UPDATE", "INSERT", "DELETE"))] == []


async def test_only_what_was_looked_at_is_known_by_its_entry(ground: Ground) -> None:
    """What is being read, or was read since, may look the same for another reason. Of what has ended nobody waits."""
    await ground.start(*(operation(n, remote_status="running", due_at=DEADLINE) for n in (1, 2)))
    await ground.start(operation(3, State.SUCCEEDED, remote_status="running"))
    await ground.start(operation(4, remote_status="running", due_at=NOW - MINUTE))
    await ground.claim(now=NOW - MINUTE)  # the fourth
    await ground.apply(2, read("running"), at=NOW + 5, requests=(replace(REQUEST, request_id="req_2"),))
    fence = await sweep(ground)
    kept = await show(ground, fence, *(job(n) for n in (1, 2, 3, 4)))
    assert kept.seen == (1, 2, 3, 4)
    assert kept.known == (("job_1", 1), ("job_3", ENDED))


@pytest.mark.parametrize("is_leased", [False, True])
async def test_a_job_that_an_ended_operation_held_before_is_known_by_the_open_one(
    ground: Ground, is_leased: bool
) -> None:
    await ground.start(operation(1, State.ABANDONED, remote_status="running"))
    await ground.start(operation(2, remote_status="running", remote_job_id="job_1", due_at=NOW - MINUTE))
    if is_leased:
        await ground.claim(now=NOW - MINUTE)
    fence = await sweep(ground)
    kept = await show(ground, fence, job(1))
    assert (kept.seen, kept.known) == ((1, 2), () if is_leased else (("job_1", 2),))


async def test_a_page_that_leaves_out_the_progress_writes_nothing_sweep_after_sweep(ground: Ground) -> None:
    await ground.start(operation(1, remote_status="running", progress=Progress(percent=10), due_at=DEADLINE))
    fence = await sweep(ground)
    before = ground.dump()
    assert (await show(ground, fence, job(1))).seen == (1,)
    assert ground.dump() == before


async def test_a_job_that_moved_on_is_decided_as_a_read_and_waits_for_its_deadline(ground: Ground) -> None:
    await ground.start(operation(1, remote_status="queued", due_at=NOW + MINUTE), operation(2, remote_status="running"))
    fence = await sweep(ground)
    kept = await show(ground, fence, job(1, "running"), job(2, "running"))
    assert kept.seen == (1, 2)
    op = await ground.get(1)
    assert (op.state, op.remote_status, op.schedule.due_at) == (State.OBSERVING, "running", DEADLINE)
    assert ground.look("SELECT operation_key, road, word, raw, request_id FROM observations") == [
        (1, "list", "running", b'{"id":"job_1","status":"running"}', "req_page")
    ]
    assert ground.look("SELECT operation_key, purpose, remote_request_id FROM requests") == [(1, "list", "remote_1")]


async def test_one_list_request_is_one_row_that_every_job_it_told_of_points_to(ground: Ground) -> None:
    """A7: it stands under the first of them; a page that told nothing leaves none."""
    await ground.start(*(operation(n, remote_status="queued", due_at=DEADLINE) for n in (1, 2, 3)))
    fence = await sweep(ground)
    await show(ground, fence, job(1, "queued"), job(2, "running"), job(3, "running"))
    assert ground.look("SELECT request_id, operation_key, purpose FROM requests") == [("req_page", 2, "list")]
    told = "SELECT operation_key, request_id FROM observations ORDER BY number"
    assert ground.look(told) == [(2, "req_page"), (3, "req_page")]
    await show(ground, fence, job(2), job(3), request=replace(REQUEST, request_id="req_again"), page_id="page_2")
    assert ground.one("SELECT count(*) FROM requests") == 1


async def test_an_end_on_a_page_leads_to_collection_in_the_sweeps_name(ground: Ground) -> None:
    await ground.start(operation(1, due_at=DEADLINE))
    fence = await sweep(ground)
    await show(ground, fence, job(1, "ended", provider_at=NOW - 5_000))
    op = await ground.get(1)
    assert (op.state, op.end_missed, op.schedule.due_at) == (State.RESULT_COLLECTING, True, NOW)
    last = (await ground.store.history("op_1"))[-1]
    assert (last.actor, last.cause, last.to_state) == ("sweep:test", "observation:obs_page_1_0", "result_collecting")
    assert ground.one("SELECT recent_ends FROM providers") == "0"
    (change,) = ground.heard[-1][0].changes
    assert change.recent_ends == "0"
    assert change.end_seen is not None
    assert (change.end_seen.is_missed, change.end_seen.provider_at) == (True, NOW - 5_000)
    ground.check_chains()


async def test_jobs_of_nobody_are_not_kept_and_those_of_other_providers_are_not_touched(ground: Ground) -> None:
    await ground.start(operation(1, provider="other", due_at=DEADLINE))
    fence = await sweep(ground)
    before = ground.dump()
    assert (await show(ground, fence, job(1, "ended"), job(7, "ended"))).seen == ()
    assert ground.dump() == before


@pytest.mark.parametrize("state", [State.OBSERVING, State.CANCELLING, State.OBSERVATION_FAILED])
async def test_a_page_tells_nothing_of_a_job_that_was_started_at_another_address(ground: Ground, state: State) -> None:
    """The list may be another account's, and the same id a stranger's job."""
    await ground.start(operation(1, state, origin="https://moved.example"), operation(2, state, origin=URL))
    fence = await sweep(ground)
    before = ground.dump()
    assert (await show(ground, fence, job(1, "ended"))).seen == ()
    assert ground.dump() == before
    await show(ground, fence, job(1, "ended"), job(2, "ended"))
    assert [(await ground.get(n)).state for n in (1, 2)] == [state, State.RESULT_COLLECTING]


async def test_a_job_that_stands_twice_on_a_page_is_read_once(ground: Ground) -> None:
    await ground.start(operation(1, remote_status="queued"))
    fence = await sweep(ground)
    assert (await show(ground, fence, job(1, "running"), job(1, "ended"))).seen == (1,)
    assert (await ground.get(1)).state is State.OBSERVING
    assert ground.one("SELECT count(*) FROM observations") == 1


async def test_of_a_job_that_several_operations_had_only_its_holder_is_read(ground: Ground) -> None:
    """Those that ended given up take no part: each sweep would write a contradiction to them."""
    await ground.start(operation(1, State.ABANDONED), operation(2, remote_job_id="job_1"))
    fence = await sweep(ground)
    await show(ground, fence, job(1, "ended"))
    assert (await ground.get(1)).contradictions == 0
    assert (await ground.get(2)).state is State.RESULT_COLLECTING


async def test_a_page_has_shown_a_job_whatever_became_of_it_while_the_sweep_ran(ground: Ground) -> None:
    """Else the walk would go on to the end of the list in search of it."""
    states = (State.SUCCEEDED, State.RESULT_COLLECTING, State.CANCELLING, State.OBSERVING)
    await ground.start(*(operation(n, state) for n, state in enumerate(states, start=1)))
    fence = await sweep(ground)
    assert (await show(ground, fence, *(job(n) for n in (1, 2, 3, 4)))).seen == (1, 2, 3, 4)


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.RESULT_COLLECTING, State.CONTRACT_VIOLATION])
async def test_what_no_longer_waits_for_its_end_is_left_as_it_is_sweep_after_sweep(
    ground: Ground, state: State
) -> None:
    await ground.start(operation(1, state))
    fence = await sweep(ground)
    before = ground.dump()
    for word in ("running", "failed", "ended"):
        await show(ground, fence, job(1, word))
    assert ground.dump() == before


async def test_a_row_that_a_worker_holds_is_seen_and_left_to_it(ground: Ground) -> None:
    """C10: the read under way is newer or as good; its lease, fence and answer stand."""
    await ground.start(operation(1, remote_status="queued", due_at=NOW))
    claim = await ground.claim_one()
    fence = await sweep(ground)
    before = ground.dump("operations", "schedule", "history")
    assert (await show(ground, fence, job(1, "ended"))).seen == (1,)
    assert ground.dump("operations", "schedule", "history") == before
    change = await ground.apply(1, read("ended"), fence=claim.fence)
    assert not change.is_late
    assert (await ground.get(1)).state is State.RESULT_COLLECTING


async def test_a_ring_outlives_a_page_that_was_asked_for_before_it(ground: Ground) -> None:
    """N19: the page tells an older status, so the read that the ring is owed stays due, and stays rung."""
    await ground.start(operation(1, remote_status="queued", due_at=DEADLINE))
    fence = await sweep(ground)
    await ground.store.receive(event("evt_1", "ended"))
    await show(ground, fence, job(1, "running"))
    row = ground.schedule()
    assert (row["due_at"], row["priority"], row["ring"]) == (NOW, Priority.RUNG, "event:evt_1")
    claim = await ground.claim_one()
    assert claim.ring == "event:evt_1"


async def test_an_end_on_a_page_of_a_job_that_had_rung_was_announced(ground: Ground) -> None:
    """J5: the event came before the sweep saw the end, whichever request confirmed it."""
    await ground.start(operation(1, due_at=DEADLINE))
    fence = await sweep(ground)
    await ground.store.receive(event("evt_1", "ended"))
    await show(ground, fence, job(1, "ended"))
    assert ground.one("SELECT recent_ends FROM providers") == "1"
    assert not (await ground.get(1)).end_missed


async def test_a_cancel_that_waits_to_be_sent_is_not_put_off_by_a_page(ground: Ground) -> None:
    await ground.start(operation(1, due_at=DEADLINE))
    await ground.apply(1, CancelAsked("cancel_1", "client:ci", "no use", "stops it"), cause="cancel:cancel_1")
    fence = await sweep(ground)
    before = ground.dump("operations", "schedule")
    await show(ground, fence, job(1, "finalizing"))
    assert ground.dump("operations", "schedule") == before


async def test_errors_are_forgiven_by_a_page_that_shows_the_job(ground: Ground) -> None:
    await ground.start(operation(1, remote_status="running"))
    await ground.apply(1, ReadFailed("timeout"))
    assert (await ground.get(1)).schedule.errors == 1
    fence = await sweep(ground)
    await show(ground, fence, job(1, "running"))
    assert (await ground.get(1)).schedule.errors == 0


async def test_a_result_deadline_that_has_passed_fires_on_a_page_that_shows_no_end(ground: Ground) -> None:
    """C5: the page is the last read."""
    await ground.start(operation(1, remote_status="queued", due_at=NOW))
    fence = await sweep(ground)
    await show(ground, fence, job(1, "running"), at=DEADLINE + 1, request=replace(REQUEST, sent_at=DEADLINE))
    assert (await ground.get(1)).state is State.RESULT_TIMED_OUT


async def test_a_page_is_one_write_with_each_decision_in_it(ground: Ground) -> None:
    """Set-wide: as many statements for fifty jobs as for one, but for those that bear a row each."""
    await ground.start(*(operation(n, remote_status="queued", due_at=DEADLINE) for n in range(1, 51)))
    fence = await sweep(ground)
    commits = ground.store.commits
    statements = Statements()
    ground.hooks.before_begin = statements
    await show(ground, fence, *(job(n, "running") for n in range(1, 51)))
    assert ground.store.commits == commits + 1
    assert len([sql for sql, _ in statements.seen if sql.startswith("SELECT")]) < 10
    assert ground.one("SELECT count(*) FROM observations WHERE road = 'list'") == 50
    assert statements.outside == ["BEGIN IMMEDIATE"]


# ---- the cursor's lease ----------------------------------------------------------------------------------------------


async def test_a_cursor_is_leased_by_one_owner_and_taken_over_when_that_runs_out(ground: Ground) -> None:
    first = await sweep(ground)
    sweeps = ground.store.sweeps
    assert await sweeps.claim(SweepWish("test", "B", NOW, 60_000)) is None
    assert await sweeps.claim(SweepWish("test", "B", NOW + 59_999, 60_000)) is None
    assert await sweeps.claim(SweepWish("test", "B", NOW + 60_000, 60_000)) == first + 1
    await ground.start(operation(1))
    kept = await show(ground, first, job(1, "ended"))
    assert not kept.is_held
    assert (await ground.get(1)).state is State.RESULT_COLLECTING  # what it saw is kept all the same
    assert not await sweeps.finish(SweepEnd("test", "A", first, NOW + 1, 0, 1, NOW))
    assert await sweeps.finish(SweepEnd("test", "B", first + 1, NOW + HOUR, 0, 2, NOW))
    row = (await sweeps.rows())["test"]
    assert (row.due_at, row.errors, row.pages, row.ended_at) == (NOW + HOUR, 0, 2, NOW)
    assert await sweeps.claim(SweepWish("test", "A", NOW + HOUR - 1, 60_000)) is None


async def test_a_page_renews_the_lease_only_where_it_is_asked_to(ground: Ground) -> None:
    fence = await sweep(ground)
    await show(ground, fence)
    assert ground.one("SELECT lease_until FROM sweeps") == NOW + 60_000
    assert (await show(ground, fence, renew_until=NOW + 90_000)).is_held
    assert ground.one("SELECT lease_until FROM sweeps") == NOW + 90_000
    assert not (await show(ground, fence + 1, renew_until=NOW + 95_000)).is_held
    assert ground.one("SELECT lease_until FROM sweeps") == NOW + 90_000


async def test_leases_of_earlier_boots_are_released_with_those_of_the_rows(ground: Ground) -> None:
    await sweep(ground)
    assert await ground.store.release_all() == 1
    assert await ground.store.sweeps.claim(SweepWish("test", "B", NOW, 60_000)) is not None


async def test_a_sweep_that_was_cut_short_keeps_what_the_last_whole_one_needed(ground: Ground) -> None:
    fence = await sweep(ground)
    await ground.store.sweeps.finish(SweepEnd("test", "A", fence, NOW, 0, 7, NOW))
    fence = await sweep(ground)
    await ground.store.sweeps.finish(SweepEnd("test", "A", fence, NOW + BASE, 1, None, NOW + 1))
    row = (await ground.store.sweeps.rows())["test"]
    assert (row.due_at, row.errors, row.pages, row.ended_at) == (NOW + BASE, 1, 7, NOW + 1)


async def test_a_clock_that_was_ahead_leaves_no_sweep_far_off(ground: Ground) -> None:
    await ground.store.sweeps.begin(Begin("test", NOW + 24 * HOUR))
    await ground.store.cut_waits(NOW, {"test": CAP}, 60_000)
    assert (await ground.store.sweeps.rows())["test"].due_at == NOW + CAP


# ---- what a sweep did not show ---------------------------------------------------------------------------------------


async def test_the_scope_of_a_sweep_is_the_open_jobs_of_its_provider(ground: Ground) -> None:
    states = (State.ACCEPTED, State.OBSERVING, State.BLOCKED, State.CANCELLING, State.RESULT_COLLECTING)
    others = [operation(7, provider="other"), operation(8, State.CREATE_PENDING), operation(9, State.SUCCEEDED)]
    await ground.start(*(operation(n, state) for n, state in enumerate(states, start=1)), *others)
    assert await ground.store.sweeps.open_jobs(BOTH) == {"test": 3, "other": 1}
    watched = await ground.store.sweeps.watched("test", BOTH, after=0)
    assert watched == [(n, NOW - HOUR, NOW - HOUR) for n in (1, 2, 3)]
    assert [key for key, *_ in await ground.store.sweeps.watched("test", BOTH, after=1)] == [2, 3]
    assert await ground.store.sweeps.still_watched([1, 3, 5, 9], BOTH) == {1, 3}


async def test_no_sweep_sets_out_to_see_what_nothing_may_be_asked_about(ground: Ground) -> None:
    moved = [operation(n, origin="https://moved.example") for n in (1, 4)]
    await ground.start(moved[0], operation(2, origin=URL), operation(3), operation(5, provider="gone"), moved[1])
    assert await ground.store.sweeps.open_jobs(HERE) == {"test": 2}
    assert [key for key, *_ in await ground.store.sweeps.watched("test", HERE, after=0)] == [2, 3]
    assert await ground.store.sweeps.still_watched([1, 2, 3, 4], HERE) == {2, 3}


async def test_what_was_not_shown_is_due_at_once_by_itself_unless_it_is_held_or_due_before(ground: Ground) -> None:
    await ground.start(operation(1, due_at=NOW - MINUTE), operation(2, due_at=DEADLINE), operation(3, due_at=DEADLINE))
    claim = await ground.claim_one()
    assert claim.operation.operation_id == "op_1"
    await ground.store.sweeps.make_due([1, 2], NOW)
    assert [ground.schedule(n)["due_at"] for n in (1, 2, 3)] == [NOW - MINUTE, NOW, DEADLINE]
    assert ground.schedule(2)["priority"] == Priority.SWEPT


async def test_what_was_not_shown_waits_for_its_own_backoff_where_its_reads_fail(ground: Ground) -> None:
    """C4: neither Retry-After nor a run of "not found" is cut short; and what has left the list is another action's."""
    await ground.start(*(operation(n, due_at=DEADLINE) for n in (1, 2)))
    await ground.start(operation(3, State.CANCELLING, due_at=DEADLINE), operation(4, State.BLOCKED, due_at=DEADLINE))
    await ground.apply(1, ReadFailed("http_503", retry_after_ms=12 * MINUTE))
    await ground.apply(2, JobGone("http_404"))
    gone_due = ground.schedule(2)["due_at"]
    assert NOW + BASE <= gone_due < DEADLINE
    await ground.store.sweeps.make_due([1, 2, 3, 4], NOW)
    assert [ground.schedule(n)["due_at"] for n in (1, 2, 3, 4)] == [NOW + 12 * MINUTE, gone_due, DEADLINE, NOW]


# ---- pace ------------------------------------------------------------------------------------------------------------


async def test_where_a_list_begins_to_carry_its_jobs_their_own_polls_go_in_one_write(ground: Ground) -> None:
    """Not those of rows that fail, wait for input, were rung or are held; the cursor's time stands before its gap."""
    await ground.start(
        operation(1, due_at=NOW + MINUTE),
        operation(2, State.ACCEPTED, due_at=NOW - MINUTE),
        operation(3, due_at=NOW + MINUTE),
        operation(4, State.BLOCKED, due_at=NOW + MINUTE),
        operation(5, due_at=NOW + MINUTE),
        operation(6, State.CANCELLING, due_at=NOW + MINUTE),
        operation(7, provider="other", due_at=NOW + MINUTE),
    )
    await ground.apply(3, ReadFailed("timeout"))
    await ground.store.receive(event("evt_1", "ended", "job_5"))
    assert await ground.store.sweeps.begin(Begin("test", NOW + BASE)) == NOW + BASE
    dues = [ground.schedule(n)["due_at"] for n in range(1, 8)]
    later = NOW + MINUTE
    assert dues == [DEADLINE, DEADLINE, NOW + BASE, later, NOW, later, later]
    assert await ground.store.sweeps.begin(Begin("test", NOW + HOUR)) == NOW + BASE  # the cursor that stands goes on


async def test_where_a_list_ends_its_jobs_are_polled_again_within_the_cap_spread_out(ground: Ground) -> None:
    await ground.start(*(operation(n, due_at=DEADLINE) for n in range(1, 101)), operation(101, due_at=NOW + MINUTE))
    await ground.start(operation(102), operation(103, provider="other"))
    await ground.apply(102, ReadFailed("http_503", retry_after_ms=12 * MINUTE))
    await ground.store.sweeps.begin(Begin("test", NOW))
    moved = await ground.store.sweeps.spread(Spread("test", NOW, BASE, CAP, 0.5, ends_sweep=True))
    assert moved == 101  # a list had carried the 101st too
    dues = sorted(ground.schedule(n)["due_at"] for n in range(1, 101))
    assert dues[0] >= NOW + BASE
    assert dues[-1] <= NOW + CAP
    gaps = [after - before for before, after in pairwise(dues)]
    assert max(gaps) < (CAP - BASE) // 10, "they came in heaps"
    assert len(set(dues)) == 100
    assert dues[-1] - dues[0] > (CAP - BASE) // 2
    assert ground.schedule(102)["due_at"] == NOW + 12 * MINUTE
    assert await ground.store.sweeps.rows() == {}


async def test_lost_health_pulls_in_what_waits_for_longer_than_the_cap_and_leaves_the_rest(ground: Ground) -> None:
    await ground.start(operation(1, due_at=NOW + CAP + 1), operation(2, due_at=NOW + CAP), operation(3, due_at=NOW + 1))
    await ground.store.sweeps.begin(Begin("other", NOW))
    assert await ground.store.sweeps.spread(Spread("test", NOW, BASE, CAP, 0.0, ends_sweep=False)) == 1
    assert NOW + BASE <= ground.schedule(1)["due_at"] <= NOW + CAP
    assert [ground.schedule(n)["due_at"] for n in (2, 3)] == [NOW + CAP, NOW + 1]
    assert list(await ground.store.sweeps.rows()) == ["other"]


# ---- ends ------------------------------------------------------------------------------------------------------------


async def test_each_end_is_counted_in_the_transaction_that_decides_it(ground: Ground) -> None:
    """Announced: rung by an event, or an event came while the read was under way; missed: neither."""
    await ground.start(operation(4, due_at=NOW))
    claim = await ground.claim_one()
    await ground.store.receive(event("evt_4", "ended", "job_4"))
    await ground.apply(4, read("ended", 4), fence=claim.fence)
    assert ground.one("SELECT recent_ends FROM providers") == "1"
    await ground.start(*(operation(n, due_at=DEADLINE) for n in range(1, 4)))
    await ground.apply(1, replace(read("ended", 1), rung_by="event:evt_1"))
    await ground.apply(2, read("failed", 2))
    await ground.apply(3, replace(read("ended", 3), rung_by="pause:test"))
    assert ground.one("SELECT recent_ends FROM providers") == "1100"
    assert [(await ground.get(n)).end_missed for n in (1, 2, 3, 4)] == [False, True, True, False]


async def test_ends_of_one_batch_are_counted_in_their_order_and_no_further_than_the_window(ground: Ground) -> None:
    await ground.start(*(operation(n) for n in range(1, 26)))
    fence = await sweep(ground)
    await show(ground, fence, *(job(n, "ended") for n in range(1, 26)))
    assert ground.one("SELECT recent_ends FROM providers") == "0" * 20


async def test_an_event_that_came_before_its_job_was_known_announces_the_end(ground: Ground) -> None:
    """B5: it is applied with the acceptance, and the read that follows was rung by it."""
    await ground.start(operation(1, State.CREATE_PENDING))
    await ground.store.receive(event("evt_1", "ended", "job_1"))
    await ground.apply(1, accepted("job_1", "running"))
    claim = await ground.claim_one()
    assert claim.ring == "event:evt_1"


async def test_an_event_for_an_end_that_a_sweep_had_found_is_late_and_one_more_is_not(ground: Ground) -> None:
    await ground.start(operation(1), operation(2))
    await ground.apply(1, read("ended", 1))
    await ground.apply(2, replace(read("ended", 2), rung_by="event:evt_0"))
    for name, job_id, late in (("evt_1", "job_1", True), ("evt_2", "job_2", False)):
        await ground.store.receive(event(name, "ended", job_id))
        (change,) = ground.heard[-1][0].changes
        assert change.is_late_event is late
    await ground.store.receive(event("evt_3", "running", "job_1"))
    assert not ground.heard[-1][0].changes[0].is_late_event


async def test_failed_reads_and_jobs_that_had_ended_before_they_were_known_are_no_ends(ground: Ground) -> None:
    await ground.start(operation(1), operation(2, State.CREATE_PENDING))
    await ground.apply(1, ReadFailed("timeout"))
    await ground.apply(1, JobRead(Observation("running", remote_job_id="job_1")))
    await ground.apply(2, accepted("job_2", "ended"))
    assert (await ground.get(2)).state is State.RESULT_COLLECTING
    assert ground.one("SELECT recent_ends FROM providers") == ""


async def test_an_adopted_job_that_a_page_shows_ended_was_missed_by_nobody(ground: Ground) -> None:
    """J5: it had ended before the file knew of it, so no webhook had anything to ring."""
    await ground.start(operation(1, State.ACCEPTED, remote_status=None, adopted=True, due_at=NOW))
    fence = await sweep(ground)
    await show(ground, fence, job(1, "ended", provider_at=NOW - HOUR))
    op = await ground.get(1)
    assert (op.state, op.end_missed) == (State.RESULT_COLLECTING, False)
    assert ground.one("SELECT recent_ends FROM providers") == ""


async def test_a_provider_without_webhooks_has_no_ends_to_count(tmp_path: Path) -> None:
    async with opened(tmp_path / "file.db", contract=CONTRACT) as ground:
        await ground.store.know_providers({"test": "kind"})
        await ground.start(operation(1))
        await ground.apply(1, read("ended"))
        assert ground.one("SELECT recent_ends FROM providers") == ""


async def test_providers_are_known_with_their_kind_and_another_kind_begins_anew(ground: Ground) -> None:
    await ground.start(operation(1))
    await ground.apply(1, read("ended"))
    await ground.store.know_providers({"test": "kind", "more": "kind"})
    known = await ground.store.known_providers()
    assert {name: (one.kind, one.recent_ends) for name, one in known.items()} == {
        "test": ("kind", "0"),
        "more": ("kind", ""),
    }
    await ground.store.know_providers({"test": "another"})
    known = await ground.store.known_providers()
    assert (known["test"].kind, known["test"].recent_ends) == ("another", "")

"""What only the transaction knows of a lost create: who holds its candidates, and whether another one is lost too."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from reconcile.contract import Lookup
from reconcile.evidence import AboutToSend, CreateUnknown, DeadlinePassed, Evidence, LookedAgain, LookupFound
from reconcile.model import Change, Operation
from reconcile.states import State
from tests.reconcile.rows import CONTRACT, DAY, MINUTE, NOW
from tests.reconcile.store.ground import accepted, arrival, opened, operation, read, together

S = State
COUNTS: Final = replace(CONTRACT, lookup=Lookup(is_sure=False), adopt="by_count")
ONE: Final = LookupFound(("job_x",), is_sure=False, same_size=("job_x",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file comes to stand."""
    return tmp_path / "reconciled.db"


def lost(n: int = 1, **over: Any) -> Operation:
    return operation(n, S.CREATE_UNKNOWN, unknown_since=NOW - MINUTE, **over)


# ---- candidates that are held ----


async def test_a_job_that_another_operation_holds_is_no_candidate(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(lost(), operation(2))
        found = LookupFound(("job_2", "job_x", "job_y"), is_sure=False)
        change = await ground.apply(1, found)
        assert change.operation.candidates == ("job_x", "job_y")
        assert (await ground.get()).candidates == ("job_x", "job_y")


async def test_a_candidate_that_came_to_be_held_is_shown_no_longer(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(lost(), operation(2, S.CREATE_PENDING))
        await ground.apply(1, ONE)
        assert (await ground.get()).candidates == ("job_x",)
        await ground.apply(2, accepted("job_x"))
        await ground.apply(1, ONE)
        assert (await ground.get()).candidates == ()
        ground.check_chains()


async def test_who_is_shown_candidates_is_not_shown_one_that_was_taken_since(path: Path) -> None:
    """Nobody looks for it any more, so nothing would bring the row up to date."""
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_UNRESOLVED, candidates=("job_x", "job_y")))
        assert (await ground.store.as_shown(await ground.get())).candidates == ("job_x", "job_y")
        await ground.start(operation(2, S.CREATE_PENDING))
        await ground.apply(2, accepted("job_x"))
        assert (await ground.store.as_shown(await ground.get())).candidates == ("job_y",)
        assert (await ground.store.as_shown(await ground.get(2))).candidates == ()


async def test_of_one_batch_the_second_sees_what_the_first_took(path: Path) -> None:
    """Both are decided in one transaction, before either is written."""
    async with opened(path) as ground:
        await ground.start(lost(), operation(2, S.CREATE_PENDING))
        commits = ground.store.commits
        changes: list[Change] = await together(
            ground.store.apply(arrival(2, accepted("job_x", "running"))),
            ground.store.apply(arrival(1, ONE)),
            ground.store.apply(arrival(2, read("done", 2))),
        )
        assert ground.store.commits == commits + 1
        assert changes[1].operation.candidates == ()
        assert (await ground.get(2)).remote_job_id == "job_x"
        ground.check_chains()


async def test_a_job_of_another_provider_is_no_obstacle(path: Path) -> None:
    async with opened(path, contract=COUNTS) as ground:
        await ground.start(lost(), operation(2, remote_job_id="job_x", provider="other"))
        assert (await ground.apply(1, ONE)).operation.remote_job_id == "job_x"


async def test_jobs_by_a_sure_marker_are_shown_whoever_holds_them(path: Path) -> None:
    """Two operations of ours cannot have made one job: that is for a person."""
    async with opened(path) as ground:
        await ground.start(lost(), operation(2))
        change = await ground.apply(1, LookupFound(("job_2", "job_x")))
        assert change.operation.state is S.CONTRACT_VIOLATION
        assert change.operation.candidates == ("job_2", "job_x")


# ---- by count ----


async def test_the_only_candidate_of_the_only_lost_create_is_taken_by_count(path: Path) -> None:
    async with opened(path, contract=COUNTS) as ground:
        await ground.start(lost(), operation(2), operation(3, S.SUCCEEDED), operation(4, S.CREATE_PENDING))
        change = await ground.apply(1, LookupFound(("job_2", "job_x"), is_sure=False, same_size=("job_2", "job_x")))
        assert (change.operation.state, change.operation.remote_job_id) == (S.ACCEPTED, "job_x")
        assert (await ground.get()).by_count
        ground.check_chains()


@pytest.mark.parametrize(
    "other",
    [
        operation(2, S.CREATE_UNKNOWN),
        operation(2, S.CREATE_UNRESOLVED),
        operation(2, S.CONTRACT_VIOLATION, remote_job_id=None),
        operation(2, S.CREATE_PENDING, resends=1),
        operation(2, S.ABANDONED, remote_job_id=None, completed_at=NOW),
    ],
    ids=lambda op: op.state.value,
)
async def test_nothing_is_taken_by_count_while_another_create_may_have_made_it(path: Path, other: Operation) -> None:
    async with opened(path, contract=COUNTS) as ground:
        await ground.start(lost(), other)
        change = await ground.apply(1, ONE)
        assert (change.operation.state, change.operation.candidates) == (S.CREATE_UNKNOWN, ("job_x",))


@pytest.mark.parametrize(
    "other",
    [
        operation(2, S.CREATE_UNKNOWN, provider="other"),
        operation(2, S.CREATE_PENDING),
        operation(2, S.CONTRACT_VIOLATION),
        operation(2, S.FAILED, remote_job_id=None),
        operation(2, S.ABANDONED, remote_job_id=None, completed_at=NOW - 2 * DAY),
    ],
    ids=lambda op: f"{op.provider} {op.state.value}",
)
async def test_what_cannot_have_made_it_is_no_obstacle(path: Path, other: Operation) -> None:
    async with opened(path, contract=COUNTS) as ground:
        await ground.start(lost(), other)
        assert (await ground.apply(1, ONE)).operation.remote_job_id == "job_x"


async def test_a_create_that_is_under_way_just_now_may_have_made_it(path: Path) -> None:
    """Its answer may name that very job in a moment."""
    async with opened(path, contract=COUNTS) as ground:
        await ground.start(lost(), operation(2, S.CREATE_PENDING))
        await ground.apply(2, AboutToSend())
        assert (await ground.apply(1, ONE)).operation.remote_job_id is None
        await ground.apply(2, accepted("job_2", "running"))
        assert (await ground.apply(1, ONE)).operation.remote_job_id == "job_x"


@pytest.mark.parametrize("before", [CreateUnknown("timeout"), AboutToSend()])
async def test_a_create_that_is_lost_in_the_same_transaction_counts(path: Path, before: Evidence) -> None:
    async with opened(path, contract=COUNTS) as ground:
        await ground.start(lost(), operation(2, S.CREATE_PENDING))
        changes: list[Change] = await together(
            ground.store.apply(arrival(2, before)),
            ground.store.apply(arrival(1, ONE)),
        )
        assert changes[1].operation.remote_job_id is None
        assert changes[1].operation.candidates == ("job_x",)
        ground.check_chains()


async def test_two_lost_creates_never_take_one_job(path: Path) -> None:
    async with opened(path, contract=COUNTS) as ground:
        await ground.start(lost(1), lost(2))
        changes: list[Change] = await together(
            ground.store.apply(arrival(1, ONE)),
            ground.store.apply(arrival(2, ONE)),
        )
        assert [c.operation.remote_job_id for c in changes] == [None, None]


async def test_a_job_of_an_operation_that_was_given_up_is_shown_and_not_taken_by_count(path: Path) -> None:
    """N5 lets it be adopted anew, by a person: it is known whose create made it."""
    async with opened(path, contract=COUNTS) as ground:
        await ground.start(operation(2, S.RESULT_TIMED_OUT))
        await ground.apply(2, DeadlinePassed("attention"), at=NOW + 7 * DAY)
        await ground.start(lost())
        change = await ground.apply(1, LookupFound(("job_2",), is_sure=False, same_size=("job_2",)))
        assert (change.operation.remote_job_id, change.operation.candidates) == (None, ("job_2",))


async def test_a_second_job_that_an_owner_without_its_lease_found_is_not_thrown_away(path: Path) -> None:
    """N24: a job id never is."""
    async with opened(path) as ground:
        await ground.start(operation(1, S.RESULT_COLLECTING, resends=1))
        claim = await ground.claim_one()
        change = await ground.apply(1, LookedAgain(("job_0",)), fence=claim.fence - 1)
        assert change.is_late
        assert (change.operation.state, change.operation.candidates) == (S.CONTRACT_VIOLATION, ("job_0",))


async def test_a_look_up_whose_owner_lost_its_lease_takes_nothing(path: Path) -> None:
    async with opened(path, contract=COUNTS) as ground:
        await ground.start(lost())
        claim = await ground.claim_one()
        change = await ground.apply(1, ONE, fence=claim.fence - 1)
        assert change.is_late
        assert change.operation.remote_job_id is None

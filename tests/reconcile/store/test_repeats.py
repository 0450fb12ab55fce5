"""Reads that told nothing new: what they write, and when they are decided after all."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from reconcile.evidence import CancelAsked
from reconcile.model import Deadlines
from reconcile.states import State
from reconcile.store.claims import Claim
from reconcile.store.repeats import Repeat
from tests.reconcile.rows import HOUR, MINUTE, NOW
from tests.reconcile.store.ground import LEASE, TABLES, Ground, event, opened, operation, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file comes to stand."""
    return tmp_path / "reconciled.db"


def repeat(claim: Claim, *, at: int = NOW + 1, wait: int = MINUTE) -> Repeat:
    """A read under this claim that said the same as the last."""
    return Repeat(claim.operation, claim.fence, at, at + wait)


async def leased(ground: Ground, **over: Any) -> Claim:
    """A job that is being read."""
    await ground.start(operation(1, due_at=NOW, remote_status="running", **over))
    return await ground.claim_one()


async def test_only_the_next_read_is_written_and_the_lease_is_given_back(path: Path) -> None:
    async with opened(path) as ground:
        claim = await leased(ground)
        before, others = ground.schedule(), ground.dump(*set(TABLES) - {"schedule"})
        assert await ground.store.repeat(repeat(claim))
        own = {
            "due_at": NOW + 1 + MINUTE,
            "polls": before["polls"] + 1,
            "last_read_at": NOW + 1,
            "reads": before["reads"] + 1,
            "lease_owner": None,
            "lease_until": None,
        }
        assert ground.schedule() == {**before, **own}
        assert ground.dump(*set(TABLES) - {"schedule"}) == others
        assert ground.heard[-1][0].due_at == NOW + 1 + MINUTE


async def test_the_next_read_comes_no_later_than_the_deadline(path: Path) -> None:
    async with opened(path) as ground:
        claim = await leased(ground, deadlines=Deadlines(result=NOW + MINUTE), deadline_at=NOW + MINUTE)
        assert await ground.store.repeat(repeat(claim, wait=HOUR))
        assert ground.schedule()["due_at"] == NOW + MINUTE
        assert ground.heard[-1][0].due_at == NOW + MINUTE  # who sleeps is woken for it


async def _rung(ground: Ground) -> None:
    assert await ground.store.receive(event("e", "done")) == "new"


async def _read_meanwhile(ground: Ground) -> None:
    await ground.apply(1, read("queued"), fence=ground.schedule()["fence"], holds=True)


async def _lost(ground: Ground) -> None:
    await ground.claim("B", now=NOW + LEASE)


@pytest.mark.parametrize("meanwhile", [_rung, _read_meanwhile, _lost])
async def test_a_row_to_which_something_came_meanwhile_is_left_to_be_decided(
    path: Path, meanwhile: Callable[[Ground], Awaitable[None]]
) -> None:
    """An event that rings while the read is under way may tell of what the read is too old to show (J1)."""
    async with opened(path) as ground:
        claim = await leased(ground)
        await meanwhile(ground)
        before = ground.dump()
        assert not await ground.store.repeat(repeat(claim))
        assert ground.dump() == before


async def test_a_row_whose_deadline_has_passed_is_left_to_be_decided(path: Path) -> None:
    async with opened(path) as ground:
        claim = await leased(ground, deadlines=Deadlines(result=NOW + 1), deadline_at=NOW + 1)
        assert not await ground.store.repeat(repeat(claim))


async def test_a_row_that_a_person_moved_is_left_to_be_decided(path: Path) -> None:
    async with opened(path) as ground:
        claim = await leased(ground)
        await ground.apply(1, CancelAsked("cancel_1", "client:ci", "not needed", "none"))
        assert (await ground.get()).state is State.CANCEL_REQUESTED
        assert not await ground.store.repeat(repeat(claim))


async def test_of_several_reads_each_is_answered_by_its_own_row(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(*(operation(n, due_at=NOW, remote_status="running") for n in (1, 2, 3)))
        claims = (await ground.claim()).claims
        await ground.store.receive(event("e", "done", job="job_2"))
        answers = [await ground.store.repeat(repeat(claim, wait=n * MINUTE)) for n, claim in enumerate(claims, 1)]
        assert answers == [True, False, True]
        assert [ground.schedule(n)["due_at"] - NOW - 1 for n in (1, 3)] == [MINUTE, 3 * MINUTE]

"""What consumers read and take, on the file itself: the right index, the right order, one taker."""

import asyncio
from pathlib import Path

import pytest

from reconcile.errors import WriteRefused
from reconcile.states import TERMINAL, State
from reconcile.store import pruned_events, pruning
from reconcile.store.completion_claims import CompletionClaim
from reconcile.store.consumers import COMPLETIONS, Place
from tests.reconcile.rows import DAY, NOW
from tests.reconcile.store.aged import check_kept, prune, sign, writing
from tests.reconcile.store.ground import look, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reconciled.db"


def claim(n: int = 1, consumer: str = "mailer", key: str | None = None, at: int = NOW) -> CompletionClaim:
    return CompletionClaim(f"op_{n}", consumer, f"client:{consumer}", at, key)


async def test_ends_are_found_by_their_own_index_however_long_the_history_is(path: Path) -> None:
    async with opened(path):
        plan = look(path, f"EXPLAIN QUERY PLAN {COMPLETIONS}", 0, 10)
    told = " / ".join(str(row[-1]) for row in plan)
    assert "history_ends (position>?)" in told
    assert "SCAN" not in told
    assert "TEMP B-TREE" not in told


async def test_of_many_claims_at_once_one_is_taken(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1)
    async with opened(path) as ground:
        take = ground.store.consumers.take
        taken = await asyncio.gather(*(take(claim(key=f"key-{n}", at=NOW + n)) for n in range(50)))
        (mine,) = [one for one in taken if one.is_yours]
        assert {one.at for one in taken} == {mine.at}
        assert ground.one("SELECT count(*) FROM completion_claims") == 1
        again = await take(claim(key=f"key-{mine.at - NOW}", at=NOW + DAY))
        assert again == mine
        assert not (await take(claim(key="another"))).is_yours
        assert not (await take(claim(key=None))).is_yours


async def test_a_claim_without_a_key_is_nobodys_to_repeat(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1)
    async with opened(path) as ground:
        assert (await ground.store.consumers.take(claim(key=None))).is_yours
        assert not (await ground.store.consumers.take(claim(key=None))).is_yours
        assert not (await ground.store.consumers.take(claim(key="key"))).is_yours


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
async def test_what_has_not_ended_is_not_taken(path: Path, state: State) -> None:
    with writing(path) as aged:
        aged.operation(1, state)
    async with opened(path) as ground:
        with pytest.raises(WriteRefused):
            await ground.store.consumers.take(claim())
        assert ground.one("SELECT count(*) FROM completion_claims") == 0


@pytest.mark.parametrize("claims", [1, 40])
async def test_claims_go_with_their_operation_and_with_no_other(
    path: Path, monkeypatch: pytest.MonkeyPatch, claims: int
) -> None:
    for module in (pruning, pruned_events):
        monkeypatch.setattr(module, "MAX_WEIGHT", 7)
    with writing(path) as aged:
        gone = aged.operation(1)
        aged.operation(2, age=DAY)
        for n in (1, 2):
            aged.claims(n, claims)
    async with opened(path) as ground:
        await sign(ground)
        before = ground.dump()
        done = await prune(ground)
        check_kept(before, ground.dump(), path, may_go={gone})
        assert ground.one("SELECT count(*) FROM operations") == 1
        assert len(done) > 3 or claims < 7, "a large one goes in slices"


async def test_a_place_is_known_by_what_stands_there(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1)
        aged.operation(2, age=DAY)
    async with opened(path) as ground:
        consumers = ground.store.consumers
        digest = str(ground.one("SELECT hash FROM history WHERE position = 2"))
        assert await consumers.knows(Place(2, digest[:16], "op_1"))
        assert not await consumers.knows(Place(2, "0" * 16, "op_1"))
        assert not await consumers.knows(Place(99, digest[:16], "op_1"))
        await sign(ground)
        await prune(ground)
        assert await consumers.knows(Place(2, digest[:16], "op_1"))
        assert not await consumers.knows(Place(2, digest[:16], "op_of_another_record"))
        assert not await consumers.knows(Place(99, digest[:16], "op_1"))

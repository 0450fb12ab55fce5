"""What consumers' reads and claims cost, and that claims go with their operation. What they give: tests/conformance."""

from pathlib import Path

import pytest

from reconcile.store import pruned_events, pruning
from reconcile.store.consumers import COMPLETIONS
from tests.reconcile.rows import DAY
from tests.reconcile.store.aged import check_kept, prune, sign, writing
from tests.reconcile.store.ground import look, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reconciled.db"


async def test_ends_are_found_by_their_own_index_however_long_the_history_is(path: Path) -> None:
    async with opened(path):
        plan = look(path, f"EXPLAIN QUERY PLAN {COMPLETIONS}", 0, 10)
    told = " / ".join(str(row[-1]) for row in plan)
    assert "history_ends (position>?)" in told
    assert "SCAN" not in told
    assert "TEMP B-TREE" not in told


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

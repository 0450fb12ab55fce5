"""What a claim costs: looking for due rows stays cheap, however many there are. What it gives: tests/conformance."""

from pathlib import Path

from tests.reconcile.rows import NOW
from tests.reconcile.store.ground import Statements, beside, opened, operation, record, together


async def test_a_claim_searches_the_due_index_and_never_the_whole_table(tmp_path: Path) -> None:
    path = tmp_path / "reconciled.db"
    statements = Statements()
    async with opened(path) as ground:
        await together(*(ground.store.start(record(operation(n, due_at=NOW + n))) for n in range(500)))
        await ground.claim("B", now=NOW, room=1)
        ground.hooks.before_begin = statements
        await ground.claim("A", now=NOW + 5)
        touching = [sql for sql, _ in statements.seen if "schedule" in sql]
        assert len(touching) > 10
        with beside(path, writes=True) as other:
            for sql in touching:
                plan = [row[3] for row in other.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()]
                scans = [line for line in plan if line.startswith("SCAN") and "json_each" not in line]
                assert scans == [], (sql, plan)
        picks = [sql for sql in touching if "due_at <=" in sql]
        with beside(path) as other:
            for sql in picks:
                plan = [row[3] for row in other.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()]
                assert len(plan) <= 2, (sql, plan)
                assert "schedule_due" in plan[0], (sql, plan)
                assert "due_at<?" in plan[0], (sql, plan)

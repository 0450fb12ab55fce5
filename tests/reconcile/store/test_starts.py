"""What a start leaves in tables that no read shows: where its items stand, since when its key is used."""

from pathlib import Path

from reconcile.states import State
from reconcile.store.starts import SubmittedItem
from tests.reconcile.store.ground import opened, operation, record

ITEMS = (SubmittedItem("a", 0, 40), SubmittedItem("b", 40, 41), SubmittedItem("c", 81, 39))


async def test_a_start_keeps_where_each_item_stands_in_its_input_and_since_when_its_key_is_used(tmp_path: Path) -> None:
    async with opened(tmp_path / "reconciled.db") as ground:
        wish = record(operation(1, State.CREATE_PENDING), client_key="key", content="content", items=ITEMS)
        started = await ground.store.start(wish)
        assert ground.look("SELECT attempt, item_id, line, outcome, file, start, length FROM items ORDER BY line") == [
            (0, "a", 1, "submitted", None, 0, 40),
            (0, "b", 2, "submitted", None, 40, 41),
            (0, "c", 3, "submitted", None, 81, 39),
        ]
        assert ground.look("SELECT client_key, content, created_at FROM client_keys") == [
            ("key", "content", started.operation.created_at)
        ]


async def test_starts_without_a_key_keep_none(tmp_path: Path) -> None:
    async with opened(tmp_path / "reconciled.db") as ground:
        await ground.start(operation(1), operation(2))
        assert ground.one("SELECT count(*) FROM client_keys") == 0

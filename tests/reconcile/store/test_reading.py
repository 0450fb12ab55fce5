"""Reads that the database refuses: an outcome that callers know, never an error of SQLite's own."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from reconcile.absence import Served
from reconcile.errors import StoreBroken, StoreBusy
from reconcile.states import State
from reconcile.store.reading import Reader
from reconcile.store.store import Store
from tests.reconcile.rows import NOW
from tests.reconcile.store.ground import TABLES, beside, database_error, opened, operation

SERVED: Final = Served({"test": frozenset({"https://api.example"})})
OP: Final = operation(1, State.CREATE_UNRESOLVED, candidates=("job_2",))
#: Every read that the store has, by its name.
READS: Final[dict[str, Callable[[Store], Coroutine[Any, Any, Any]]]] = {
    "get": lambda store: store.get("op_1"),
    "find": lambda store: store.find(after=None, limit=1, is_open=None),
    "questions": lambda store: store.questions(after=None, limit=1),
    "results_expiring": lambda store: store.results_expiring("test", before=NOW),
    "notices": lambda store: store.notices(),
    "notice_counts": lambda store: store.notice_counts(),
    "grounds": lambda store: store.grounds(["op_1"]),
    "history": lambda store: store.history("op_1"),
    "observations": lambda store: store.observations("op_1"),
    "as_shown": lambda store: store.as_shown(OP),
    "items": lambda store: store.items(OP),
    "item": lambda store: store.item(OP, "a"),
    "places": lambda store: store.places(OP, "a"),
    "doubled_ids": lambda store: store.doubled_ids("op_1", 1, after=""),
    "tally": lambda store: store.tally("op_1", 1),
    "open_at": lambda store: store.open_at(),
    "has_open": lambda store: store.has_open("test"),
    "pauses": lambda store: store.pauses(),
    "known_providers": lambda store: store.known_providers(),
    "counts": lambda store: store.counts(),
    "due_backlog": lambda store: store.due_backlog(NOW),
    "event_counts": lambda store: store.event_counts(),
    "sweeps.rows": lambda store: store.sweeps.rows(),
    "sweeps.open_jobs": lambda store: store.sweeps.open_jobs(SERVED),
    "sweeps.watched": lambda store: store.sweeps.watched("test", SERVED, after=0),
    "sweeps.still_watched": lambda store: store.sweeps.still_watched([1], SERVED),
}


class Refusing:
    """A connection of which every statement ends with one result code."""

    def __init__(self, code: int) -> None:
        self._code = code

    async def execute_fetchall(self, sql: str, parameters: Any = ()) -> Any:
        raise database_error(self._code)

    async def commit(self) -> None:
        raise database_error(self._code)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("name", READS)
async def test_every_read_that_the_database_refuses_is_an_error_of_ours(tmp_path: Path, name: str) -> None:
    """A real refusal: the tables are gone. What SQLite raises would end the daemon, or be a 500."""
    path = tmp_path / "reconciled.db"
    async with opened(path) as ground:
        with beside(path, writes=True) as connection:
            for table in TABLES:
                connection.execute(f"DROP TABLE {table}")
        with pytest.raises(StoreBusy, match="no such table"):
            await READS[name](ground.store)


@pytest.mark.parametrize(
    ("code", "expected"),
    [(5, StoreBusy), (9, StoreBusy), (13, StoreBusy), (10, StoreBroken), (11, StoreBroken), (26, StoreBroken)],
)
async def test_a_file_in_doubt_is_told_apart_from_one_that_is_busy(code: int, expected: type[Exception]) -> None:
    """BUSY, INTERRUPT and FULL may pass; IOERR, CORRUPT and NOTADB do not."""
    with pytest.raises(expected):
        await Reader(Refusing(code)).execute_fetchall("SELECT 1")

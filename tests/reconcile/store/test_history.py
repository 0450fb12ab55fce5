"""History in its table: neither changed nor removed by anybody, each row under its hash. Else: tests/conformance."""

import sqlite3
from pathlib import Path
from typing import Final

import pytest

from reconcile.chain import ChainedRow
from reconcile.states import State
from tests.reconcile.chains import verify
from tests.reconcile.store.ground import (
    accepted,
    arrival,
    beside,
    event,
    opened,
    operation,
    read,
    together,
)

S = State


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file comes to stand."""
    return tmp_path / "reconciled.db"


async def _with_history(path: Path) -> None:
    """A file with two operations that have lived a little."""
    async with opened(path) as ground:
        await ground.start(operation(1, S.CREATE_PENDING), operation(2))
        await ground.apply(1, accepted("job_1", "running"))
        await together(*(ground.store.apply(arrival(n, read("done", n))) for n in (1, 2)))


# ---- never changed ----

_REPLACE: Final = (
    "REPLACE INTO history SELECT {}, at, actor, kind, from_state, to_state, cause, remote_job_id, 'nicer', facts, hash"
    " FROM history WHERE position = 2"
)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE history SET reason = 'nicer' WHERE position = 2",
        "UPDATE history SET reason = reason",
        "UPDATE OR REPLACE history SET position = 99 WHERE position = 2",
        "DELETE FROM history WHERE position = 2",
        "DELETE FROM history",
        _REPLACE.format("position, operation_key, seq"),
        _REPLACE.format("position, operation_key, 99"),
        _REPLACE.format("99, operation_key, seq"),
    ],
)
async def test_history_can_be_neither_changed_nor_removed(path: Path, sql: str) -> None:
    await _with_history(path)
    with beside(path, writes=True) as connection:
        before = connection.execute("SELECT * FROM history ORDER BY position").fetchall()
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(sql)
        assert connection.execute("SELECT * FROM history ORDER BY position").fetchall() == before


async def test_an_operation_with_history_cannot_be_removed(path: Path) -> None:
    await _with_history(path)
    async with opened(path) as ground:
        faults: list[BaseException] = []

        def remove(connection: sqlite3.Connection) -> None:
            try:
                connection.execute("DELETE FROM operations")
            except sqlite3.IntegrityError as fault:
                faults.append(fault)

        ground.hooks.before_commit = remove
        await ground.store.receive(event("evt", job="nobody"))
        assert len(faults) == 1
        assert ground.one("SELECT count(*) FROM operations") == 2


# ---- chained ----

_CHAIN: Final = (
    "SELECT h.position, o.operation_id, h.seq, h.at, h.actor, h.kind, h.from_state, h.to_state, h.cause,"
    " h.remote_job_id, h.reason, h.facts, h.hash FROM history h JOIN operations o ON o.key = h.operation_key"
    " WHERE o.operation_id = 'op_1' ORDER BY h.seq"
)


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("UPDATE history SET at = at + 1 WHERE seq = 2", "row 2"),
        ("UPDATE history SET actor = 'nobody' WHERE seq = 2", "row 2"),
        ("UPDATE history SET kind = 'fact' WHERE seq = 2", "row 2"),
        ("UPDATE history SET from_state = NULL WHERE seq = 2", "row 2"),
        ("UPDATE history SET to_state = 'observing' WHERE seq = 2", "row 2"),
        ("UPDATE history SET cause = 'x' WHERE seq = 2", "row 2"),
        ("UPDATE history SET remote_job_id = 'x' WHERE seq = 2", "row 2"),
        ("UPDATE history SET reason = 'x' WHERE seq = 2", "row 2"),
        ("UPDATE history SET facts = '{}' WHERE seq = 2", "row 2"),
        ("UPDATE history SET position = 99 WHERE seq = 2 AND operation_key = 1", "row 2"),
        ("UPDATE history SET hash = '' WHERE seq = 2", "row 2"),
        ("DELETE FROM history WHERE seq = 2", "row 3"),
        ("DELETE FROM history WHERE seq = 4", "row 3"),
    ],
)
async def test_a_row_that_was_tampered_with_is_named(path: Path, sql: str, names: str) -> None:
    await _with_history(path)
    with beside(path, writes=True) as connection:
        for trigger in ("history_is_never_changed", "history_is_never_removed"):
            connection.execute(f"DROP TRIGGER {trigger}")
        seq, head = connection.execute("SELECT seq, head FROM operations WHERE operation_id = 'op_1'").fetchone()

        def fault() -> str | None:
            rows = connection.execute(_CHAIN).fetchall()
            return verify([(ChainedRow(*row[:-1]), row[-1]) for row in rows], head=head, length=seq)

        assert fault() is None
        connection.execute(sql)
        assert names in str(fault())

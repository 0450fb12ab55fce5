"""Files of every schema that ever stood on main: brought to today's, row for row (N40)."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from daemon.runtime import open_sqlite
from reconcile.ingest import judge_by
from reconcile.states import State
from reconcile.store.early import MENDS
from reconcile.store.events import HasRead
from reconcile.store.schema import APPLICATION_ID, migrations, prepare_writer
from reconcile.store.store import Store, open_store
from tests.reconcile.rows import CONTRACT
from tests.upgrade.kept import FILE, FOLDER, NAMES, contents, history_fault, look, schema_of, take

#: What each kept directory is for: the states in which its operations stand, ended ones included.
EARLY_STATES = {
    "create_pending", "create_unknown", "observing", "result_collecting", "create_unresolved", "contract_violation",
    "observation_failed", "result_timed_out", "result_unavailable", "result_validation_failed", "succeeded",
    "completed_with_errors", "failed",
}  # fmt: skip
LATER_STATES = {"accepted", "cancel_requested", "cancelling", "cancellation_unconfirmed", "cancelled"}
#: No provider that was ever on main lets a job wait for input, and nobody gave up.
NEVER_REACHED = {"blocked", "input_given", "timed_out", "abandoned"}
VERSION_OF = {"1a": 1, "1b": 1, "1c": 1, "2": 2, "3a": 3, "3b": 3, "3c": 3, "4": 4, "5": 5}


@asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[Store]:
    store = await open_store(
        str(path), opener=open_sqlite, judge=judge_by(lambda _: CONTRACT), has_read=HasRead([]), on_done=lambda _: None
    )
    try:
        yield store
    finally:
        await store.close()


async def _upgrade(path: Path) -> None:
    async with _opened(path):
        pass


async def _fresh(folder: Path) -> Path:
    await _upgrade(folder / "fresh.db")
    return folder / "fresh.db"


def test_every_kept_directory_is_tested() -> None:
    assert sorted(found.name for found in FOLDER.iterdir() if found.is_dir()) == sorted(NAMES)
    assert sorted(VERSION_OF) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_file_is_small_and_holds_every_state_that_its_code_could_reach(name: str, tmp_path: Path) -> None:
    assert [found.name for found in (FOLDER / name).glob(f"{FILE}*")] == [FILE]
    assert (FOLDER / name / FILE).stat().st_size < 250_000
    path = take(name, tmp_path)
    assert look(path, "PRAGMA user_version") == [(VERSION_OF[name],)]
    assert look(path, "PRAGMA journal_mode") == [("wal",)]
    states = {state for (state,) in look(path, "SELECT DISTINCT state FROM operations")}
    assert states == EARLY_STATES | (LATER_STATES if name in ("3b", "3c", "4", "5") else set())
    assert {state.value for state in State} - NEVER_REACHED == EARLY_STATES | LATER_STATES
    marks = look(path, "SELECT state, mark_at IS NOT NULL FROM operations JOIN schedule USING (key)")
    assert {("create_pending", 0), ("create_pending", 1)} <= set(marks)
    dispositions = {word for (word,) in look(path, "SELECT disposition FROM events")}
    assert dispositions == {"rings", "unmatched", "unreadable"}
    assert look(path, "SELECT count(*) FROM schedule WHERE lease_owner IS NOT NULL")[0][0] >= 3


def test_the_kept_schemas_differ_and_the_newest_is_that_of_a_fresh_file(tmp_path: Path) -> None:
    """A migration that has landed stays as it is: whoever edits one has to keep another file first."""
    schemas = [schema_of(take(name, tmp_path / name)) for name in NAMES]
    assert all(schema not in schemas[:place] for place, schema in enumerate(schemas))
    newest = VERSION_OF[NAMES[-1]]
    with closing(sqlite3.connect(tmp_path / "made.db")) as connection:
        for _, script in migrations()[:newest]:
            connection.executescript(script)
    assert schemas[-1] == schema_of(tmp_path / "made.db")


@pytest.mark.parametrize("name", NAMES)
async def test_a_kept_file_is_brought_to_the_schema_of_a_fresh_one_to_the_letter(name: str, tmp_path: Path) -> None:
    path = take(name, tmp_path / "state")
    await _upgrade(path)
    assert [found.name for found in path.parent.glob(f"{FILE}*")] == [FILE]
    assert schema_of(path) == schema_of(await _fresh(tmp_path))
    assert look(path, "PRAGMA user_version") == [(len(migrations()),)]
    assert look(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert look(path, "PRAGMA integrity_check") == [("ok",)]
    assert look(path, "PRAGMA foreign_key_check") == []


@pytest.mark.parametrize("name", NAMES)
async def test_every_row_of_a_kept_file_is_kept(name: str, tmp_path: Path) -> None:
    path = take(name, tmp_path)
    before = contents(path)
    await _upgrade(path)
    after = contents(path)
    for table, (columns, rows) in before.items():
        now, kept = after[table]
        places = [now.index(column) for column in columns]
        assert sorted((tuple(row[place] for place in places) for row in kept), key=repr) == rows, table
    assert sum(len(rows) for _, rows in before.values()) > 300


@pytest.mark.parametrize("name", NAMES)
async def test_what_a_file_did_not_hold_yet_follows_from_what_it_holds(name: str, tmp_path: Path) -> None:
    path = take(name, tmp_path)
    order = [row[0] for row in look(path, "SELECT observation_id FROM observations ORDER BY rowid")]
    await _upgrade(path)
    assert [row[0] for row in look(path, "SELECT observation_id FROM observations ORDER BY number")] == order
    async with _opened(path) as store:
        for (operation_id,) in look(path, "SELECT operation_id FROM operations JOIN schedule USING (key)"):
            op = await store.get(operation_id)
            assert op is not None
            assert op.state_deadline_name is not None
            assert op.schedule.deadline_at == op.deadline(op.state_deadline_name), operation_id
            assert op.schedule.deadline_at is not None


@pytest.mark.parametrize(
    ("state", "deadlines", "expected"),
    [
        ("blocked", {"input": 7, "result": 9}, 7),
        ("blocked", {"input": 9, "result": 7}, 7),
        ("blocked", {"result": 7}, 7),
        ("input_given", {"input": 9, "result": 7}, 7),
        ("cancelling", {"result": 1, "cancel": 7}, 7),
        ("cancellation_unconfirmed", {"cancel": 1, "attention": 7}, 7),
        ("result_collecting", {"result": 1, "collect": 7}, 7),
        ("observing", {}, None),
    ],
)
async def test_a_deadline_that_a_schedule_did_not_hold_is_the_one_of_the_state(
    state: str, deadlines: dict[str, int], expected: int | None, tmp_path: Path
) -> None:
    path = take("1a", tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        sql = "UPDATE operations SET state = ?, living = json_set(living, '$.deadlines', json(?)) WHERE key = 10"
        connection.execute(sql, (state, json.dumps(deadlines)))
        connection.commit()
    await _upgrade(path)
    assert look(path, "SELECT deadline_at FROM schedule WHERE key = 10") == [(expected,)]


@pytest.mark.parametrize("name", NAMES)
async def test_every_operation_of_a_kept_file_loads_and_its_history_verifies_and_folds_to_it(
    name: str, tmp_path: Path
) -> None:
    path = take(name, tmp_path)
    async with _opened(path) as store:
        ids = [row[0] for row in look(path, "SELECT operation_id FROM operations")]
        for operation_id in ids:
            op = await store.get(operation_id)
            assert op is not None
            assert history_fault(path, op) is None
            assert await store.history(operation_id)
            assert op.input_items == 3 or op.adopted
            assert len(await store.items(op)) == (op.input_items or 0)
    assert len(ids) >= 23


async def test_each_mend_is_needed_by_a_kept_file_and_by_no_fresh_one(tmp_path: Path) -> None:
    needed: set[str] = set()
    for name in NAMES:
        objects = {row[1]: row[3] or "" for row in schema_of(take(name, tmp_path / name))}
        lacking = {m.script for m in MENDS if m.version <= VERSION_OF[name] and m.word not in objects.get(m.name, "")}
        missing = {m.script for m in MENDS if m.version <= VERSION_OF[name] and m.name not in objects}
        needed |= lacking | missing
    assert needed == {mend.script for mend in MENDS}
    fresh = {row[1]: row[3] or "" for row in schema_of(await _fresh(tmp_path))}
    assert all(mend.word in fresh[mend.name] for mend in MENDS)


async def test_a_file_that_an_early_release_left_half_mended_is_mended_too(tmp_path: Path) -> None:
    """A release between opened a file with an early 0001 as its own: the number says 2, the text is the first one's."""
    path = take("1a", tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"{migrations()[1][1]} PRAGMA user_version = 2;")
    await _upgrade(path)
    assert schema_of(path) == schema_of(await _fresh(tmp_path))
    assert look(path, "PRAGMA foreign_key_check") == []


async def test_an_upgraded_file_is_opened_again_without_a_write(tmp_path: Path) -> None:
    path = take("1a", tmp_path)
    await _upgrade(path)
    before = path.read_bytes()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
        prepare_writer(connection)
    assert not [sql for sql in statements if sql.startswith(("CREATE", "ALTER", "DROP", "INSERT"))]
    assert path.read_bytes() == before

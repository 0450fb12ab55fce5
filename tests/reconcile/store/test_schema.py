"""The file: what a fresh one holds, which ones are refused before a byte is written, and who may write at all."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any, Final

import pytest

from daemon.runtime import open_sqlite
from reconcile.errors import SchemaTooNew, StoreBusy, StoreError
from reconcile.ingest import judge_by
from reconcile.states import GIVEN_UP
from reconcile.store import schema
from reconcile.store.events import HasRead
from reconcile.store.schema import APPLICATION_ID, prepare_writer, read_only_uri
from reconcile.store.store import Store, open_store
from reconcile.store.writer import Hooks
from tests.reconcile.rows import CONTRACT, NOW
from tests.reconcile.store.ground import TABLES, beside, content, event, look, opened, operation, read

#: The states as the design page has them: those that wait, and those that have ended.
OPEN: Final = (
    "create_pending",
    "create_unknown",
    "accepted",
    "observing",
    "blocked",
    "input_given",
    "cancel_requested",
    "cancelling",
    "result_collecting",
    "create_unresolved",
    "contract_violation",
    "observation_failed",
    "result_timed_out",
    "cancellation_unconfirmed",
    "result_unavailable",
    "result_validation_failed",
)
ENDED: Final = ("succeeded", "completed_with_errors", "failed", "cancelled", "timed_out", "abandoned")
STATES: Final = (*OPEN, *ENDED)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file comes to stand."""
    return tmp_path / "reconciled.db"


async def _open(path: Path, opener: Any = open_sqlite) -> Store:
    return await open_store(
        str(path),
        opener=opener,
        judge=judge_by(lambda _: CONTRACT),
        has_read=HasRead([]),
        on_done=lambda _: None,
    )


def _beside(path: Path) -> list[str]:
    """The names of all files in its directory."""
    return sorted(file.name for file in path.parent.iterdir())


async def _made(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))


# ---- a fresh file ----


async def test_a_fresh_file_holds_every_table_strict_and_says_whose_it_is(path: Path) -> None:
    async with opened(path):
        tables = look(
            path,
            "SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
            " AND name NOT LIKE 'sqlite_%'",
        )
        assert sorted(tables) == sorted((name, 1) for name in TABLES)
        assert look(path, "PRAGMA user_version") == [(len(schema.migrations()),)]
        assert look(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
        assert int.from_bytes(b"recd", "big") == APPLICATION_ID


async def test_a_file_is_opened_again_as_it_was_left(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        before = ground.dump()
    async with opened(path) as ground:
        assert ground.dump() == before


def test_migrations_are_numbered_from_one_without_a_gap() -> None:
    assert [number for number, _ in schema.migrations()] == list(range(1, len(schema.migrations()) + 1))


async def test_the_file_lets_two_operations_name_one_job_exactly_where_one_was_given_up(path: Path) -> None:
    """N5: the file, the code and the design page mean the same two ends."""
    assert {state.value for state in GIVEN_UP} == {"timed_out", "abandoned"}
    async with opened(path) as ground:
        await ground.start(operation(1, remote_job_id="job_x"), operation(2, remote_job_id="job_2"))
    shared = []
    with beside(path, writes=True) as connection:
        for state in STATES:
            ended = NOW if state in ENDED else None
            sql = "UPDATE operations SET state = ?, completed_at = ? WHERE operation_id = 'op_1'"
            connection.execute(sql, (state, ended))
            try:
                connection.execute("UPDATE operations SET remote_job_id = 'job_x' WHERE operation_id = 'op_2'")
            except sqlite3.IntegrityError:
                continue
            shared.append(state)
            connection.execute("UPDATE operations SET remote_job_id = 'job_2' WHERE operation_id = 'op_2'")
    assert shared == ["timed_out", "abandoned"]


async def test_the_file_takes_exactly_the_states_of_the_design(path: Path) -> None:
    await _made(path)
    with beside(path, writes=True) as connection:
        for state in STATES:
            ended = NOW if state in ENDED else None
            connection.execute("UPDATE operations SET state = ?, completed_at = ?", (state, ended))
        for stranger in ("", "SUCCEEDED", "running", "succeeded ", None):
            for ended in (NOW, None):
                with pytest.raises(sqlite3.IntegrityError):
                    connection.execute("UPDATE operations SET state = ?, completed_at = ?", (stranger, ended))


@pytest.mark.parametrize("state", STATES)
async def test_an_operation_has_an_end_in_the_file_exactly_when_it_has_ended(path: Path, state: str) -> None:
    await _made(path)
    with beside(path, writes=True) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(
            "UPDATE operations SET state = ?, completed_at = ?", (state, None if state in ENDED else NOW)
        )


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE operations SET created_at = 'yesterday'",
        "UPDATE operations SET living = 'not json'",
        "UPDATE schedule SET lease_owner = 'A'",
        "UPDATE schedule SET lease_until = 5",
        "INSERT INTO schedule (key, provider, priority, due_at) VALUES (99, 'test', 1, 1)",
        "INSERT INTO events VALUES (1, 'p', 'e', 's', 1, NULL, NULL, NULL, NULL, 'surprise', 0, x'')",
        "INSERT INTO items VALUES (1, 1, 'a', 1, 'surprise', '', NULL, NULL, NULL)",
        "INSERT INTO items VALUES (99, 1, 'a', 1, 'failed', '', NULL, NULL, NULL)",
        "INSERT INTO client_keys VALUES ('k', 'c', 99, 1)",
    ],
)
async def test_a_value_that_breaks_a_rule_of_the_file_is_not_taken(path: Path, sql: str) -> None:
    await _made(path)
    with beside(path, writes=True) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(sql)


# ---- settings ----


async def test_the_writer_is_durable_checks_references_and_trusts_no_schema(path: Path) -> None:
    found: dict[str, Any] = {}

    def ask(connection: sqlite3.Connection) -> None:
        for name in ("journal_mode", "synchronous", "foreign_keys", "trusted_schema", "busy_timeout"):
            (found[name],) = connection.execute(f"PRAGMA {name}").fetchone()
        found["isolation_level"] = connection.isolation_level

    async with opened(path) as ground:
        ground.hooks.before_begin = ask
        await ground.store.receive(event("evt"))
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,  # FULL
        "foreign_keys": 1,
        "trusted_schema": 0,
        "busy_timeout": 5000,
        "isolation_level": None,
    }


async def test_readers_can_neither_write_nor_checkpoint(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        before = content(path)
        for reader in (ground.store._reader, ground.store._scanner):
            assert (await reader.execute_fetchall("PRAGMA trusted_schema"))[0][0] == 0
            for sql in (
                "DELETE FROM events",
                "INSERT INTO client_keys VALUES ('k', 'c', 1, 1)",
                "CREATE TABLE mine (a)",
                "PRAGMA user_version = 99",
                "PRAGMA wal_checkpoint(TRUNCATE)",
            ):
                with pytest.raises(StoreError):
                    await reader.execute_fetchall(sql)
            await reader.execute_fetchall("PRAGMA query_only = OFF")  # the file itself is open for reading only
            for sql in ("DELETE FROM events", "PRAGMA wal_checkpoint(TRUNCATE)"):
                with pytest.raises(StoreError):
                    await reader.execute_fetchall(sql)
        assert content(path) == before, "a reader wrote into the file"
        assert look(path, "PRAGMA user_version") == [(len(schema.migrations()),)]


async def test_a_reader_sees_commits_while_the_writer_stands_in_a_transaction(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        seen: list[Any] = []

        def from_beside(_: sqlite3.Connection) -> None:
            seen.append(look(path, "SELECT count(*) FROM operations"))

        ground.hooks.before_commit = from_beside
        await ground.start(operation(2))
        assert seen == [[(1,)]]
        assert (await ground.store.counts()) == {"observing": 2}


async def test_a_reader_does_not_make_a_file_that_is_not_there(path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        await open_sqlite(read_only_uri(str(path)), uri=True)
    assert _beside(path) == []


@pytest.mark.parametrize("name", ["with space.db", "a?mode=rwc.db", "a#b%20.db", "é.db"])
async def test_a_file_of_any_name_is_opened_for_reading_as_itself(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path / name) as ground:
        await ground.start(operation(1))
        assert (await ground.get()).operation_id == "op_1"


# ---- refused before a byte is written ----


def _foreign(path: Path, user_version: int, application_id: int, *, wal: bool, has_tables: bool) -> None:
    connection = sqlite3.connect(path)
    if wal:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
    if has_tables:
        connection.execute("CREATE TABLE theirs (a)")
        connection.execute("INSERT INTO theirs VALUES (1)")
    connection.execute(f"PRAGMA user_version = {user_version}")
    connection.execute(f"PRAGMA application_id = {application_id}")
    connection.commit()
    connection.close()


async def _refusal(path: Path) -> BaseException | None:
    """What opening the file says; None where it is taken after all."""
    try:
        store = await _open(path)
    except StoreError as fault:
        return fault
    await store.close()
    return None


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize(
    ("user_version", "application_id", "has_tables"),
    [
        (0, 0, True),
        (0, 77, True),
        (0, 77, False),
        (1, 0, True),
        (1, 0, False),
        (1, 77, True),
        (99, 0, True),
        (99, 77, True),
    ],
)
async def test_the_database_of_some_other_program_is_refused_and_not_touched(
    path: Path, user_version: int, application_id: int, has_tables: bool, wal: bool
) -> None:
    _foreign(path, user_version, application_id, wal=wal, has_tables=has_tables)
    before = content(path)
    assert type(await _refusal(path)) is SchemaTooNew
    assert content(path) == before
    assert _beside(path) == [path.name]


@pytest.mark.parametrize("by", [1, 50])
async def test_a_file_of_a_later_release_is_refused_and_not_touched(path: Path, by: int) -> None:
    await _made(path)
    with beside(path, writes=True) as connection:
        connection.execute(f"PRAGMA user_version = {len(schema.migrations()) + by}")
    before = content(path)
    refusal = await _refusal(path)
    assert type(refusal) is SchemaTooNew
    assert "newer release" in str(refusal)
    assert content(path) == before


@pytest.fixture
def letter(path: Path) -> Path:
    """A file that is no database."""
    path.write_bytes(b"this is a letter to my mother, not a database\n" * 100)
    return path


async def test_a_file_that_is_no_database_is_refused_and_not_touched(letter: Path) -> None:
    before = content(letter)
    assert await _refusal(letter) is not None
    assert content(letter) == before


async def test_a_refused_file_is_let_go_at_once(path: Path) -> None:
    await _made(path)
    with beside(path, writes=True) as connection:
        connection.execute(f"PRAGMA user_version = {len(schema.migrations()) + 1}")
    refusal = await _refusal(path)
    assert refusal is not None
    # The last handle that closes takes the journal with it.
    assert _beside(path) == [path.name]


async def test_a_file_in_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreBusy, match="cannot be opened"):
        await _open(tmp_path / "nowhere" / "reconciled.db")


# ---- migrations ----

_GOOD: Final = """
-- Semicolons stand in comments; in triggers; and in texts.
ALTER TABLE operations ADD COLUMN colour TEXT NOT NULL DEFAULT 'a;
b';
CREATE TABLE extra (a INTEGER) STRICT;
CREATE TRIGGER extra_follows AFTER UPDATE ON operations
BEGIN
    INSERT INTO extra VALUES (1);
    INSERT INTO extra VALUES (2);
END;
UPDATE operations SET remote_status = remote_status"""
_BAD: Final = {
    "an error": "CREATE TABLE half (a INTEGER) STRICT;\nINSERT INTO half VALUES (1);\nINSERT INTO nowhere VALUES (1);",
    "a broken rule": "CREATE TABLE half (a INTEGER) STRICT;\nUPDATE operations SET state = 'surprise';",
    "a cut": "CREATE TABLE half (a INTEGER) STRICT;\nCREATE TABLE other (a INTEG",
}


async def test_a_migration_upgrades_a_file_with_rows_in_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _made(path)
    known = schema.migrations()
    monkeypatch.setattr(schema, "migrations", lambda: [*known, (len(known) + 1, _GOOD)])
    store = await _open(path)
    await store.close()
    assert look(path, "SELECT operation_id, colour FROM operations") == [("op_1", "a;\nb")]
    assert look(path, "PRAGMA user_version") == [(len(known) + 1,)]
    assert look(path, "SELECT a FROM extra") == [(1,), (2,)]


@pytest.mark.parametrize("fault", _BAD)
@pytest.mark.parametrize("fresh", [False, True])
async def test_a_migration_that_fails_midway_leaves_the_file_as_the_last_release_wrote_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, fresh: bool
) -> None:
    known = schema.migrations()
    if not fresh:
        await _made(path)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda: [*known, (len(known) + 1, _GOOD), (len(known) + 2, _BAD[fault])])
        if fresh and fault == "a broken rule":
            return  # nothing in a fresh file breaks it
        with pytest.raises(StoreError):
            await _open(path)
    assert look(path, "PRAGMA user_version") == [(0 if fresh else len(known),)], "the good one before it is undone too"
    assert look(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'half'") == [(0,)]
    if fresh:
        assert look(path, "SELECT count(*) FROM sqlite_schema") == [(0,)]
    else:
        assert look(path, "SELECT operation_id FROM operations") == [("op_1",)]
    assert look(path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_first_migration_that_fails_leaves_an_empty_file_that_can_be_made_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((number, script), *_) = schema.migrations()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda: [(number, script + "\nINSERT INTO nowhere VALUES (1);")])
        with pytest.raises(StoreError):
            await _open(path)
    assert look(path, "SELECT count(*) FROM sqlite_schema") == [(0,)]
    assert look(path, "PRAGMA user_version") == [(0,)]
    await _made(path)


# ---- several at once ----


async def test_ten_writers_that_open_a_fresh_file_at_once_make_it_once(path: Path) -> None:
    for round_ in range(5):
        file = path.with_name(f"{round_}.db")
        opening = [asyncio.create_task(_open(file)) for _ in range(10)]
        await asyncio.wait(opening)
        stores = [task.result() for task in opening if task.exception() is None]
        faults = [task.exception() for task in opening if task.exception() is not None]
        for store in stores:
            await store.close()
        assert faults == []
        assert look(file, "PRAGMA user_version") == [(len(schema.migrations()),)]
        assert look(file, "PRAGMA journal_mode") == [("wal",)]


class _Overtaken(sqlite3.Connection):
    """A connection that another opener overtakes before one of its statements, where no lock of its own forbids it."""

    before: int = 0
    statements: int = 0
    stays: bool = False
    other: sqlite3.Connection | None = None

    def execute(self, sql: str, /, *parameters: Any) -> sqlite3.Cursor:
        """Run the statement; if it is the one, let the other make the file first."""
        if self.statements == self.before and not self.in_transaction:
            self.other = sqlite3.connect(self.path, isolation_level=None)
            prepare_writer(self.other)
            if not self.stays:
                self.other.close()
        self.statements += 1
        return super().execute(sql, *parameters)

    @property
    def path(self) -> str:
        """Where its own file stands."""
        return str(super().execute("PRAGMA database_list").fetchone()[2])


@pytest.mark.parametrize("stays", [True, False])
def test_a_file_that_another_makes_at_any_moment_of_our_opening_is_taken_as_made(tmp_path: Path, stays: bool) -> None:
    overtaken, before = 0, 0
    while True:
        path = tmp_path / f"{before}.db"
        connection = sqlite3.connect(path, isolation_level=None, factory=_Overtaken)
        connection.before, connection.stays = before, stays
        try:
            prepare_writer(connection)
            assert look(path, "PRAGMA user_version") == [(len(schema.migrations()),)]
            assert look(path, "PRAGMA journal_mode") == [("wal",)]
            assert look(path, "SELECT count(*) FROM operations") == [(0,)]
        finally:
            connection.close()
            if connection.other is not None:
                connection.other.close()
        overtaken += connection.other is not None
        if connection.statements < before:
            break
        before += 1
    assert overtaken > 5


async def test_readers_beside_a_file_in_the_making_wait_or_are_told_that_it_is_not_there(path: Path) -> None:
    for round_ in range(5):
        file = path.with_name(f"{round_}.db")

        async def read_version(file: Path = file) -> Any:
            try:
                reader = await open_sqlite(read_only_uri(str(file)), uri=True)
            except sqlite3.OperationalError as fault:
                return str(fault)
            try:
                return (await reader.execute_fetchall("PRAGMA user_version"))[0][0]
            except sqlite3.OperationalError as fault:
                return str(fault)
            finally:
                await reader.close()

        opening = asyncio.create_task(_open(file))
        readers = [asyncio.create_task(read_version()) for _ in range(10)]
        await asyncio.wait([opening, *readers])
        await opening.result().close()
        known = len(schema.migrations())
        assert {task.result() for task in readers} <= {*range(known + 1), "unable to open database file"}


async def test_a_left_over_journal_of_a_killed_writer_is_read_by_the_next(path: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    async with opened(path) as ground:
        await ground.start(operation(1))
        await ground.apply(1, read("failed"))
        for name in (path.name, f"{path.name}-wal"):  # what a kill would leave
            (left / name).write_bytes((tmp_path / name).read_bytes())
        before = ground.dump()
    async with opened(left / path.name) as ground:
        assert ground.dump() == before
        assert await ground.store.receive(event("evt")) == "new"


class _CountingOpener:
    """Opens as production does, but not the n-th connection; counts which ones were closed again."""

    def __init__(self, fails_at: int) -> None:
        self.made: list[Any] = []
        self._fails_at = fails_at

    async def __call__(self, database: str, *, uri: bool = False, factory: Any = None) -> Any:
        if len(self.made) + 1 == self._fails_at:
            raise sqlite3.OperationalError("too many open files")
        connection = await open_sqlite(database, uri=uri, factory=factory)
        self.made.append(connection)
        return connection


@pytest.mark.parametrize("fails_at", [2, 3])
async def test_an_opening_that_fails_halfway_closes_what_it_had_opened(path: Path, fails_at: int) -> None:
    opener = _CountingOpener(fails_at)
    try:
        with pytest.raises(StoreBusy):
            await _open(path, opener)
        still_open = [connection for connection in opener.made if connection._connection is not None]
        assert still_open == []
    finally:
        for connection in opener.made:
            await connection.close()


async def test_a_store_closes_all_its_connections(path: Path) -> None:
    opener = _CountingOpener(99)
    store = await _open(path, opener)
    await store.close()
    assert len(opener.made) == 3
    assert all(connection._connection is None for connection in opener.made)
    assert _beside(path) == [path.name]


def test_hooks_are_none_unless_a_test_sets_them() -> None:
    assert (Hooks().before_begin, Hooks().before_commit, Hooks().after_commit) == (None, None, None)

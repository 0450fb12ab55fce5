"""Opening the file: settings of a connection, and numbered migrations that run together, whole or not at all."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Final, Protocol

from reconcile.errors import SchemaTooNew
from reconcile.store import early

#: "recd" in ASCII: marks the file as ours, so that a wrong path is told before anything is written.
APPLICATION_ID: Final = 0x72656364
#: Settings of the writer, measured for group commit under WAL: full durability, room for the cache, a bounded journal.
WRITER_PRAGMAS: Final = (
    "PRAGMA busy_timeout = 5000",  # first: the next one may meet another opener (field case C54)
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cache_size = -32768",  # 32 MiB: half of what the largest collection may add to the memory (N36)
    "PRAGMA temp_store = MEMORY",
    "PRAGMA wal_autocheckpoint = 0",  # the writer does it between two batches
    "PRAGMA journal_size_limit = 67108864",  # 64 MiB
)
#: Openers that may meet over a fresh file; each waits for the others at most so many times. 20: arbitrary.
MAX_OPENERS: Final = 20
#: But for what SQLite itself keeps for its planner.
OBJECTS: Final = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT GLOB 'sqlite_stat*'"
READER_PRAGMAS: Final = ("PRAGMA busy_timeout = 5000", "PRAGMA query_only = ON", "PRAGMA trusted_schema = OFF")


def listed(words: Iterable[str]) -> str:
    """Words of our own as SQL lists them, in an order that stays."""
    return "(" + ", ".join(f"'{word}'" for word in sorted(words)) + ")"


class Connection(Protocol):
    """The few coroutines of a database connection that the store uses; aiosqlite's, or the simulation's."""

    async def commit(self) -> None:
        """On the writer's connection: run the waiting batch and commit it."""
        ...

    async def execute_fetchall(self, sql: str, parameters: Sequence[Any] = ...) -> Any:
        """Run one statement and give all its rows."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Opener(Protocol):
    """Opens a connection in autocommit mode; `factory` makes the sqlite3 connection object."""

    async def __call__(self, database: str, *, uri: bool = False, factory: Any = None) -> Connection:
        """The open connection."""
        ...


def migrations() -> list[tuple[int, str]]:
    """All migrations as (version, script), ascending from 1 without a gap."""
    folder = resources.files("reconcile.store") / "migrations"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    found = [(int(name[:4]), (folder / name).read_text(encoding="utf-8")) for name in names]
    if [version for version, _ in found] != list(range(1, len(found) + 1)):
        raise AssertionError(f"migrations are not numbered without gaps: {names}")
    return found


def newest() -> int:
    """The schema of this release."""
    return len(migrations())


def made() -> frozenset[tuple[str, ...]]:
    """What this release makes of a fresh file: each object's type, name, table and text."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        return frozenset(connection.execute(OBJECTS))


def prepare_writer(connection: sqlite3.Connection) -> int:
    """Bring a file to this release's schema; gives the one that it had, 0 for a fresh file.

    Raises: SchemaTooNew, before anything is written.
    """
    busy_timeout, *settings = WRITER_PRAGMAS
    connection.execute(busy_timeout).fetchall()
    _refuse_strangers(connection)
    for setting in settings:
        _set(connection, setting)
    return migrate(connection)


def read_only_uri(path: str) -> str:
    """The URI that opens the file without the right to write or checkpoint (N43)."""
    return f"{Path(path).absolute().as_uri()}?mode=ro"


def refuse_foreign_journal(path: Path) -> None:
    """A `-wal` beside a copy is of another file, and whoever opened the copy would write it into that.

    A copy is in rollback mode (bytes 18 and 19 of the header are 1), which a file of ours with a `-wal` never is.
    Raises: SchemaTooNew.
    """
    journal = Path(f"{path}-wal")
    if not (path.is_file() and journal.exists() and journal.stat().st_size):
        return
    with path.open("rb") as file:
        header = file.read(20)
    if header[18:20] == b"\x01\x01":
        raise SchemaTooNew(
            f"{path} is a copy, and {journal.name} beside it is of another file: move {path.name}-wal and -shm away"
        )


def refuse_stranger(connection: sqlite3.Connection, *, may_be_fresh: bool = False) -> int:
    """The file's schema; 0 for one in which nothing stands yet, where that may be.

    Raises: SchemaTooNew, where it is not one of ours that this release knows.
    """
    version = _number(connection, "PRAGMA user_version")
    application = _number(connection, "PRAGMA application_id")
    if may_be_fresh and not (version or application or _number(connection, "SELECT count(*) FROM sqlite_schema")):
        return 0
    if application != APPLICATION_ID:
        raise SchemaTooNew("this is no database of ours, or its first page is damaged")
    if version > newest():
        raise SchemaTooNew(f"the file has schema {version}, this release knows {newest()}: use the newer release")
    if version < 1:
        raise SchemaTooNew(f"the file has schema {version}, which no release wrote: its first page is damaged")
    return version


def _refuse_strangers(connection: sqlite3.Connection) -> None:
    """Look before anything is written, and under the write lock: another opener may be making the file just now."""
    path = str(connection.execute("PRAGMA database_list").fetchone()[2])
    refuse_foreign_journal(Path(path))
    journal = Path(f"{path}-wal")
    if journal.exists() and journal.stat().st_size:
        # Left by a killed writer, of whatever release: the last writer that closes would write it into the file.
        with closing(sqlite3.connect(read_only_uri(path), uri=True, isolation_level=None)) as reader:
            reader.execute("BEGIN")  # one snapshot
            refuse_stranger(reader, may_be_fresh=True)
    with _transaction(connection) as done:
        refuse_stranger(connection, may_be_fresh=True)
        done("ROLLBACK")


def _set(connection: sqlite3.Connection, setting: str) -> None:
    """Apply one setting. The change to WAL does not wait for other openers as a transaction does: wait in one."""
    for _ in range(MAX_OPENERS):
        try:
            connection.execute(setting).fetchall()
            return
        except sqlite3.OperationalError as fault:
            if (fault.sqlite_errorcode or 0) & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            with _transaction(connection) as done:
                done("ROLLBACK")
    connection.execute(setting).fetchall()


def migrate(connection: sqlite3.Connection) -> int:
    """Everything that a file of ours lacks, in one transaction with the version: a file half-way is of no release.

    Nothing where another opener has done it. Gives the version that it had.
    """
    known = migrations()
    with _transaction(connection) as done:
        version = _number(connection, "PRAGMA user_version")
        scripts = [*early.mends(connection, version), *(script for number, script in known if number > version)]
        if not scripts:
            done("ROLLBACK")
            return version
        for script in scripts:
            for statement in _statements(script):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(known)}")
        done("COMMIT")
    return version


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[Callable[[str], object]]:
    """BEGIN IMMEDIATE; the body ends it with COMMIT or ROLLBACK, and whatever escapes rolls it back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection.execute
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _statements(script: str) -> Iterator[str]:
    """The script's statements. Splitting on `;` would break a trigger; SQLite itself knows where one ends."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def _number(connection: sqlite3.Connection, sql: str) -> int:
    return int(connection.execute(sql).fetchone()[0])

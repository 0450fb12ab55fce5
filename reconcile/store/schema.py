"""Opening the file: settings of a connection, and numbered migrations that run whole or not at all."""

import sqlite3
from collections.abc import Sequence
from importlib import resources
from typing import Any, Final, Protocol

from reconcile.errors import SchemaTooNew

#: "recd" in ASCII: marks the file as ours, so that a wrong path is told before anything is written.
APPLICATION_ID: Final = 0x72656364
#: Settings of the writer, measured for group commit under WAL: full durability, room for the cache, a bounded journal.
WRITER_PRAGMAS: Final = (
    "PRAGMA busy_timeout = 5000",  # first: the next one may meet another opener (field case C54)
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cache_size = -65536",  # 64 MiB
    "PRAGMA temp_store = MEMORY",
    "PRAGMA journal_size_limit = 67108864",  # 64 MiB
)
READER_PRAGMAS: Final = ("PRAGMA busy_timeout = 5000", "PRAGMA query_only = ON", "PRAGMA trusted_schema = OFF")


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


def prepare_writer(connection: sqlite3.Connection) -> None:
    """Bring a file to this release's schema. Raises: SchemaTooNew, before anything is written."""
    version = _version(connection)
    known = migrations()
    if version > len(known):
        raise SchemaTooNew(f"the file has schema {version}, this release knows {len(known)}: use the newer release")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if version == 0 and application == 0 and _has_tables(connection):
        raise SchemaTooNew("the file is a database of some other program")
    if application not in (0, APPLICATION_ID):
        raise SchemaTooNew("the file is a database of some other program")
    for pragma in WRITER_PRAGMAS:
        connection.execute(pragma).fetchall()
    for number, script in known[version:]:
        _migrate(connection, number, script)


def _migrate(connection: sqlite3.Connection, number: int, script: str) -> None:
    # One script with its own BEGIN and COMMIT: the version and the tables come to stand together or not at all.
    try:
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{script}\nPRAGMA application_id = {APPLICATION_ID};\n"
            f"PRAGMA user_version = {number};\nCOMMIT;"
        )
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])

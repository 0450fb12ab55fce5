"""Opening the file to look at it: read-only, in one read transaction, leaving nothing beside it.

Who reads a file in WAL mode makes `-wal` and `-shm` beside it and, without the right to write, cannot take them away
again. Where no daemon has them open the file is whole in itself: it is read as it lies (`immutable`), and once more in
the ordinary way where it turns out that a daemon has changed it meanwhile.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from reconcile.errors import RecordDamaged, SchemaTooNew, StoreBusy, StoreError
from reconcile.store.schema import READER_PRAGMAS, read_only_uri, refuse_foreign_journal, refuse_stranger

T = TypeVar("T")

#: What the database raises; where a damaged page stands in its words, they cannot even be decoded.
DATABASE_FAULTS: Final = (sqlite3.Error, UnicodeDecodeError)

#: The first schema that has checkpoints.
CHECKPOINTS_SINCE: Final = 4
#: What SQLite holds of the file: 16 MiB. Arbitrary; four times as much was measured to gain nothing.
_CACHE: Final = "PRAGMA cache_size = -16384"
#: Result codes that say nothing of the file: trying again may help.
_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
    }
)


def look_at(path: Path, look: Callable[[sqlite3.Connection], T]) -> T:
    """What `look` gives of the file as it stands at one moment, whoever writes to it. It may be called twice.

    Raises: OSError, where it cannot be opened at all; SchemaTooNew, also for a file of some other program; StoreBusy;
    RecordDamaged; and whatever `look` raises.
    """
    with path.open("rb"):  # no file, a folder, no right to read: the system's own words are the best
        pass
    path = path.resolve()  # beside the file itself, not beside a link to it, stands what is not in it yet
    refuse_foreign_journal(path)
    if any(Path(f"{path}{ending}").exists() for ending in ("-wal", "-journal")):
        return _look(path, look, is_at_rest=False)
    before = _state_of(path)
    try:
        answer = _look(path, look, is_at_rest=True)
    except StoreError:
        if _state_of(path) == before:
            raise
    else:
        if _state_of(path) == before:
            return answer
    return _look(path, look, is_at_rest=False)


def has_checkpoints(connection: sqlite3.Connection) -> bool:
    """Whether the file is of a release that signs checkpoints."""
    # Not by its version alone: a lower number there would hide them.
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'checkpoints' COLLATE NOCASE").fetchone()
    return found is not None or refuse_stranger(connection) >= CHECKPOINTS_SINCE


def told(fault: Exception, near: str) -> StoreError:
    """What one of `DATABASE_FAULTS` says: of the file, unless it is known to pass."""
    if _code(fault) in _PASSING:
        return StoreBusy(f"the file cannot be read now: {fault}")
    words = "its description of itself is no text" if isinstance(fault, UnicodeDecodeError) else fault
    return RecordDamaged(f"the file is damaged: {words} (near {near})")


def _code(fault: Exception) -> int:
    return (getattr(fault, "sqlite_errorcode", None) or 0) & 0xFF


def _look(path: Path, look: Callable[[sqlite3.Connection], T], *, is_at_rest: bool) -> T:
    with _opened(path, is_at_rest=is_at_rest) as connection:
        try:
            refuse_stranger(connection)
            return look(connection)
        except DATABASE_FAULTS as fault:
            raise told(fault, "its beginning") from fault


@contextmanager
def _opened(path: Path, *, is_at_rest: bool) -> Iterator[sqlite3.Connection]:
    uri = read_only_uri(str(path)) + ("&immutable=1" if is_at_rest else "")
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    except DATABASE_FAULTS as fault:
        raise _unopened(path, fault) from fault
    try:
        try:
            connection.text_factory = _text
            for statement in (*READER_PRAGMAS, _CACHE, "BEGIN", "SELECT count(*) FROM sqlite_schema"):
                connection.execute(statement).fetchall()
        except DATABASE_FAULTS as fault:
            raise _unopened(path, fault) from fault
        yield connection
    finally:
        connection.close()


def _unopened(path: Path, fault: Exception) -> StoreError:
    """Why not even the first page could be read."""
    if _code(fault) == sqlite3.SQLITE_NOTADB:
        return SchemaTooNew("this is no database, or its very first bytes are damaged")
    if _code(fault) == sqlite3.SQLITE_CANTOPEN:
        return StoreBusy(
            f"{path} cannot be read here: {path.name}-wal holds what is not in it yet, and reading both needs the right"
            " to write beside them. Copy both to where you may write, or let the daemon stop in peace"
        )
    return told(fault, "its beginning")


def _text(data: bytes) -> str:
    """Whatever somebody wrote must come to be named: what is no UTF-8 stands for itself."""
    return data.decode("utf-8", "surrogateescape")


def _state_of(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns

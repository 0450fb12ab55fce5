"""A copy of the database as it stood at one moment, made beside the daemon, which goes on writing.

One read transaction holds the moment: whatever is committed meanwhile, the copy neither starts over nor sees it. The
source is opened without the right to write (N43). The copy is filled under a name of its own, marked as a backup,
checked and fsynced, and only then gets the name that was asked for: under that name it is whole or not there.
"""

import itertools
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconcile.errors import SchemaTooNew, StoreBroken
from reconcile.model import UnixMs
from reconcile.store.reading import store_error
from reconcile.store.schema import APPLICATION_ID, READER_PRAGMAS, migrate, migrations
from reconcile.store.store import read_only_uri

#: Pages copied in one step. 1,000: arbitrary; 4 MiB, so that progress moves and Ctrl-C is heard.
STEP_PAGES: Final = 1000
#: Steps after which the disk is waited for. 16: 64 MiB, so that a writer beside it never waits for all of a large copy.
FLUSH_STEPS: Final = 16
#: What the name of an unfinished copy ends with; a killed backup leaves such a file, and it is no backup.
PART: Final = ".part"
#: What SQLite may put beside a file that is being written.
_BESIDE: Final = ("", "-journal", "-wal", "-shm")
#: Nobody else knows the copy yet, and a half one is thrown away: durability comes at the end, in one fsync. Exclusive
#: locking keeps SQLite from making a shared-memory file beside it, whose header says WAL as the source's does.
_FILLING: Final = ("PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = OFF", "PRAGMA synchronous = OFF")
_LAST_POSITION: Final = "SELECT coalesce(max(position), 0) FROM history"


@dataclass(frozen=True, slots=True)
class Copied:
    """What a finished copy holds: its size, and the newest history position in it."""

    bytes: int
    position: int


def back_up(
    source: Path,
    target: Path,
    *,
    made_at: UnixMs,
    on_progress: Callable[[int, int], None] = lambda _done, _all: None,
    hook: Callable[[str], None] = lambda _step: None,
) -> Copied:
    """Copy `source` to `target`, where nothing may stand yet. `made_at`: read before, since sends after it count.

    `on_progress` is told the pages that are done, and all of them; `hook(step)` is a fault point for tests.

    Raises: FileExistsError, SchemaTooNew, StoreBusy, StoreBroken, OSError.
    """
    _refuse_to_replace(target)
    with closing(_opened(source)) as original:
        part = _new_part(target)
        try:
            with _telling(f"{target} cannot be written"):
                copied = _filled(original, part, made_at, on_progress, hook)
            _settle(part, target, hook)
        finally:
            for ending in _BESIDE:
                part.with_name(part.name + ending).unlink(missing_ok=True)
    return copied


# ---- the source ----


def _opened(source: Path) -> sqlite3.Connection:
    """A connection that cannot write, held at this moment's state. Raises: SchemaTooNew, StoreBusy, StoreBroken."""
    with _telling(f"{source} cannot be read"):
        connection = sqlite3.connect(read_only_uri(str(source)), uri=True, isolation_level=None)
        try:
            for pragma in READER_PRAGMAS:
                connection.execute(pragma).fetchall()
            connection.execute("BEGIN")
            _refuse_strangers(connection, source)
        except BaseException:
            connection.close()
            raise
    return connection


def _refuse_strangers(connection: sqlite3.Connection, source: Path) -> None:
    """The first read, with which the transaction takes hold. Raises: SchemaTooNew."""
    try:
        version, application = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")
        )
    except sqlite3.DatabaseError as fault:
        if fault.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise SchemaTooNew(f"{source} is no database") from fault
        raise
    if application != APPLICATION_ID:
        raise SchemaTooNew(f"{source} is not a database of reconciled")
    newest = migrations()[-1][0]
    if version > newest:
        raise SchemaTooNew(f"{source} has schema {version}, this release knows {newest}: use the newer release")


# ---- the copy ----


def _new_part(target: Path) -> Path:
    """An empty file beside `target` that only its owner can read. Raises: OSError."""
    fd, name = tempfile.mkstemp(dir=target.absolute().parent, prefix=f"{target.name}.", suffix=PART)
    os.close(fd)
    return Path(name)


def _filled(
    original: sqlite3.Connection,
    part: Path,
    made_at: UnixMs,
    on_progress: Callable[[int, int], None],
    hook: Callable[[str], None],
) -> Copied:
    """The copy, whole, marked and checked. Raises: sqlite3.Error, StoreBroken."""

    steps = itertools.count(1)

    def progress(_status: int, left: int, pages: int) -> None:
        hook("copy")
        if next(steps) % FLUSH_STEPS == 0:
            _fsync(part)
        on_progress(pages - left, pages)

    with closing(sqlite3.connect(part, isolation_level=None)) as copy:
        for setting in _FILLING:
            copy.execute(setting).fetchall()
        original.backup(copy, pages=STEP_PAGES, progress=progress)
        hook("mark")
        copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, with nothing beside it
        migrate(copy)  # an older release would not know the mark
        _mark(copy, made_at)
        hook("check")
        _check(copy)
        position = int(copy.execute(_LAST_POSITION).fetchone()[0])
    return Copied(part.stat().st_size, position)


def _mark(copy: sqlite3.Connection, made_at: UnixMs) -> None:
    """A copy of a copy that never ran is as old as the first one: what was sent since then is not known."""
    copy.execute("INSERT INTO backup (made_at) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM backup)", (made_at,))


def _check(copy: sqlite3.Connection) -> None:
    """Raises: StoreBroken, where the source itself is damaged."""
    found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreBroken(f"the database is damaged, and so would be a copy of it: {found}")


def _settle(part: Path, target: Path, hook: Callable[[str], None]) -> None:
    """Make the copy durable and give it its name. Raises: OSError, FileExistsError."""
    _fsync(part)
    _refuse_to_replace(target)  # somebody else may have put a file there meanwhile
    hook("rename")
    part.rename(target)
    _fsync(target.absolute().parent)


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _refuse_to_replace(target: Path) -> None:
    if os.path.lexists(target):
        raise FileExistsError(f"{target} is there already, and no backup is ever replaced: give another name")


@contextmanager
def _telling(what: str) -> Iterator[None]:
    """Raises: StoreBusy, StoreBroken, in place of what the database raised."""
    try:
        yield
    except sqlite3.Error as fault:
        raise store_error(f"{what}: {fault}", fault) from fault

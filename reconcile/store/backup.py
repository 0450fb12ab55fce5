"""A copy of the database as it stood at one moment, made beside the daemon, which goes on writing.

One read transaction holds the moment: whatever is committed meanwhile, the copy neither starts over nor sees it. The
source is looked at without the right to write (N43), and nothing is left beside it where no daemon has it open.

The copy is filled under a name of its own, marked as a backup, checked and fsynced, and only then gets the name that
was asked for: under that name it is whole or not there. It keeps the schema of its source, so that the release that
wrote the source can go on with it; only where that schema has no place for the mark it is brought to this release's.
"""

import errno
import itertools
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconcile.errors import RecordDamaged
from reconcile.model import UnixMs
from reconcile.store.history import LAST_POSITION
from reconcile.store.looking import look_at
from reconcile.store.reading import store_error
from reconcile.store.schema import migrate

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
_HAS_MARK: Final = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'backup')"
#: What the database says where the source itself is not as it was written.
_DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
#: How file systems say that they have no hard links: vfat, exfat, some network and FUSE ones.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK})


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

    `on_progress` is told the pages that are done, and all of them; `hook(step)` is a fault point for tests. Both begin
    anew where a daemon turns out to have been started meanwhile on a file that was at rest.

    Raises: FileExistsError, SchemaTooNew, RecordDamaged, StoreBusy, StoreBroken, OSError.
    """
    _refuse_to_replace(target)
    part = _new_part(target)

    def fill(original: sqlite3.Connection) -> Copied:
        with _telling(f"{target} cannot be written"):
            return _filled(original, part, made_at, on_progress, hook)

    try:
        copied = look_at(source, fill)
        _settle(part, target, hook)
    finally:
        for ending in _BESIDE:
            part.with_name(part.name + ending).unlink(missing_ok=True)
    return copied


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
    """The copy, whole, marked and checked. Raises: sqlite3.Error, RecordDamaged."""
    os.truncate(part, 0)  # it may be the second try
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
        if not copy.execute(_HAS_MARK).fetchone()[0]:
            migrate(copy)
        _mark(copy, made_at)
        hook("check")
        _check(copy)
        position = int(copy.execute(LAST_POSITION).fetchone()[0])
    return Copied(part.stat().st_size, position)


def _mark(copy: sqlite3.Connection, made_at: UnixMs) -> None:
    """A copy of a copy that never ran is as old as the first one: what was sent since then is not known."""
    copy.execute("INSERT INTO backup (made_at) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM backup)", (made_at,))


def _check(copy: sqlite3.Connection) -> None:
    """Raises: RecordDamaged, where the source itself is damaged."""
    found = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise RecordDamaged(_damaged(found))


def _damaged(what: object) -> str:
    return f"the file is damaged, and so would be a copy of it: {what}"


def _settle(part: Path, target: Path, hook: Callable[[str], None]) -> None:
    """Make the copy durable and give it its name, if nobody has it by now. Raises: OSError, FileExistsError."""
    _fsync(part)
    hook("name")
    try:
        _give_name(part, target)
    except FileExistsError as fault:  # somebody else has put a file there meanwhile
        raise _taken(target) from fault
    _fsync(target.absolute().parent)


def _give_name(part: Path, target: Path) -> None:
    """A rename would replace what stands there; a link does not."""
    try:
        target.hardlink_to(part)
    except OSError as fault:
        if fault.errno not in _NO_LINKS:
            raise
        _give_reserved_name(part, target)
    else:
        part.unlink()


def _give_reserved_name(part: Path, target: Path) -> None:
    """Where there are no hard links: what the rename replaces is an empty file of our own.

    Killed just between the two, it leaves that file: it is no backup, and everybody says so.
    """
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        part.rename(target)
    except BaseException:
        target.unlink()
        raise


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _refuse_to_replace(target: Path) -> None:
    """Before anything is copied; what comes there later is seen when the copy gets its name."""
    if os.path.lexists(target):
        raise _taken(target)
    for ending in ("-wal", "-journal"):
        if os.path.lexists(beside := f"{target}{ending}"):
            raise FileExistsError(f"{beside} is of another file, and would be written into the copy: move it away")


def _taken(target: Path) -> FileExistsError:
    return FileExistsError(f"{target} is there already, and no backup is ever replaced: give another name")


@contextmanager
def _telling(what: str) -> Iterator[None]:
    """Raises: RecordDamaged, StoreBusy, StoreBroken, in place of what the database raised."""
    try:
        yield
    except sqlite3.Error as fault:
        if (getattr(fault, "sqlite_errorcode", None) or 0) & 0xFF in _DAMAGED:
            raise RecordDamaged(_damaged(fault)) from fault
        raise store_error(f"{what}: {fault}", fault) from fault

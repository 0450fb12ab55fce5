"""A copy of the file: one moment of it, whole or not there, and nothing of the source is touched."""

import errno
import os
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from reconcile.errors import RecordDamaged, SchemaTooNew, StoreBusy
from reconcile.states import State
from reconcile.store import schema
from reconcile.store.backup import PART, STEP_PAGES, Copied, back_up
from reconcile.store.looking import look_at
from tests.reconcile.rows import NOW
from tests.reconcile.store.ground import TABLES, Ground, beside, content, dump, event, look, opened, operation
from tests.reconcile.store.test_audit import as_somebody

STEPS = ("copy", "mark", "check", "name")
#: The first schema whose files have a place for the mark.
MARKED_SINCE = 4


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with opened(tmp_path / "reconciled.db") as ground:
        await ground.start(*(operation(n) for n in range(1, 5)))
        yield ground


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "copies"
    folder.mkdir()
    return folder / "copy.db"


async def grown(ground: Ground, steps: int = 3) -> None:
    """Make the file so large that it is copied in several steps."""
    body = b"x" * 900_000
    for n in range(steps * STEP_PAGES * 4096 // len(body) + 1):
        await ground.store.receive(event(f"evt_{n}", "running", "job_x", body=body, body_sha256=str(n)))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def size_and_mode(path: Path) -> tuple[int, int]:
    return path.stat().st_size, path.stat().st_mode & 0o777


def occupied(path: Path, kind: str) -> None:
    """Something stands there already."""
    match kind:
        case "file" | "empty":
            path.write_text("precious" if kind == "file" else "")
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("nowhere")


def text_in(path: Path) -> str:
    return path.read_text()


def without_mark(path: Path) -> dict[str, list[tuple[object, ...]]]:
    return dump(path, *(table for table in TABLES if table != "backup"))


async def test_a_copy_holds_every_row_and_the_mark_and_nothing_stands_beside_it(ground: Ground, target: Path) -> None:
    copied = back_up(ground.path, target, made_at=NOW)
    assert without_mark(target) == without_mark(ground.path)
    assert look(target, "SELECT made_at FROM backup") == [(NOW,)]
    assert ground.look("SELECT made_at FROM backup") == []
    assert names(target.parent) == ["copy.db"]
    assert size_and_mode(target) == (copied.bytes, 0o600)
    assert copied == Copied(copied.bytes, ground.one("SELECT seq FROM sqlite_sequence WHERE name = 'history'"))
    assert look(target, "PRAGMA journal_mode") == [("delete",)]
    assert look(target, "PRAGMA integrity_check") == [("ok",)]
    ground.check_chains()


async def test_a_copy_is_of_one_moment_however_much_is_written_meanwhile(ground: Ground, target: Path) -> None:
    """And the writer that goes on makes it neither start over nor wait: each step is told once."""
    await grown(ground)
    before, told = without_mark(ground.path), list[int]()
    with beside(ground.path, writes=True) as writer:

        def write(done: int, _pages: int) -> None:
            told.append(done)
            for n in range(50):
                writer.execute("INSERT INTO event_ids VALUES ('test', ?, 'x', 1)", (f"{done}-{n}",))

        back_up(ground.path, target, made_at=NOW, on_progress=write)
    assert len(told) >= 3
    assert told == sorted(set(told))
    assert without_mark(target) == before
    assert ground.one("SELECT count(*) FROM event_ids") == 50 * len(told)


async def test_the_source_is_never_written(ground: Ground, target: Path) -> None:
    await ground.end()
    before = content(ground.path)
    back_up(ground.path, target, made_at=NOW)
    assert content(ground.path) == before
    ground._fault_was_seen = True


def at_rest(folder: Path, steps: int = 0) -> Path:
    """A file as a stopped daemon leaves it, in a folder of its own."""
    folder.mkdir()
    source = folder / "reconciled.db"
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        schema.prepare_writer(connection)
        for n in range(steps * STEP_PAGES // 200 + 1):
            connection.execute(
                "INSERT INTO events (provider, event_id, body_sha256, received_at, disposition, body)"
                " VALUES ('test', ?, '', 1, 'unmatched', zeroblob(900000))",
                (str(n),),
            )
    return source


def test_nothing_is_left_beside_a_file_that_no_daemon_has_open(tmp_path: Path, target: Path) -> None:
    source = at_rest(tmp_path / "stopped")
    before = names(source.parent)
    back_up(source, target, made_at=NOW)
    assert names(source.parent) == before == ["reconciled.db"]
    assert without_mark(target) == without_mark(source)


def test_where_nothing_may_be_made_beside_it_a_file_is_backed_up_to_elsewhere() -> None:
    with tempfile.TemporaryDirectory() as top, tempfile.TemporaryDirectory() as elsewhere:
        Path(top).chmod(0o755)
        source, target = at_rest(Path(top) / "stopped"), Path(elsewhere) / "copy.db"
        Path(elsewhere).chmod(0o777)
        source.chmod(0o644)  # whatever umask a daemon in an earlier test has left
        source.parent.chmod(0o555)
        with as_somebody():
            back_up(source, target, made_at=NOW)
        assert names(source.parent) == ["reconciled.db"]
        assert names(target.parent) == ["copy.db"]
        assert look(target, "SELECT made_at FROM backup") == [(NOW,)]
        source.parent.chmod(0o700)


def test_a_daemon_that_is_started_meanwhile_is_copied_as_it_stands_by_then(tmp_path: Path, target: Path) -> None:
    """A file at rest is read without a lock: what is written into it under the copying would tear the copy."""
    source, steps = at_rest(tmp_path / "stopped", 3), list[str]()

    def start(step: str) -> None:
        steps.append(step)
        if steps.count("copy") == 2 and step == "copy":
            with closing(sqlite3.connect(source, isolation_level=None)) as daemon:
                daemon.execute("UPDATE events SET body = randomblob(900000)")
                daemon.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    back_up(source, target, made_at=NOW, hook=start)
    assert steps.count("mark") == 2
    assert without_mark(target) == without_mark(source)


def test_a_link_to_a_file_in_use_is_no_file_at_rest(tmp_path: Path, target: Path) -> None:
    """What a killed writer left stands beside the file itself, and not beside the link."""
    source, link = at_rest(tmp_path / "stopped"), tmp_path / "link.db"
    link.symlink_to(source)
    with beside(source, writes=True) as writer:
        writer.execute("INSERT INTO event_ids VALUES ('test', 'evt', 'x', 1)")
        back_up(link, target, made_at=NOW)
    assert look(target, "SELECT count(*) FROM event_ids") == [(1,)]


def test_the_newest_position_is_the_last_one_given_though_its_row_was_pruned(tmp_path: Path, target: Path) -> None:
    source = at_rest(tmp_path / "stopped")
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        connection.execute("INSERT INTO sqlite_sequence VALUES ('history', 71)")
    assert back_up(source, target, made_at=NOW).position == 71


async def test_a_copy_of_a_copy_that_never_ran_is_as_old_as_the_first(ground: Ground, target: Path) -> None:
    back_up(ground.path, target, made_at=NOW)
    second = target.with_name("second.db")
    back_up(target, second, made_at=NOW + 1_000)
    assert look(second, "SELECT made_at FROM backup") == [(NOW,)]


@pytest.mark.parametrize("kind", ["file", "empty", "folder", "dangling link"])
async def test_nothing_that_stands_there_is_replaced(ground: Ground, target: Path, kind: str) -> None:
    occupied(target, kind)
    before = os.lstat(target)
    with pytest.raises(FileExistsError, match="no backup is ever replaced"):
        back_up(ground.path, target, made_at=NOW)
    assert os.lstat(target) == before
    assert names(target.parent) == ["copy.db"]


def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has no hard links."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("has_links", [True, False])
async def test_nor_is_what_came_there_meanwhile(
    ground: Ground, target: Path, step: str, has_links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the last moment."""
    if not has_links:
        without_links(monkeypatch)

    def put(at: str) -> None:
        if at == step and not target.exists():
            occupied(target, "file")

    with pytest.raises(FileExistsError):
        back_up(ground.path, target, made_at=NOW, hook=put)
    assert text_in(target) == "precious"
    assert names(target.parent) == ["copy.db"]


async def test_where_there_are_no_hard_links_a_copy_is_whole_all_the_same(
    ground: Ground, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_links(monkeypatch)
    copied = back_up(ground.path, target, made_at=NOW)
    assert size_and_mode(target) == (copied.bytes, 0o600)
    assert names(target.parent) == ["copy.db"]
    assert without_mark(target) == without_mark(ground.path)


@pytest.mark.parametrize("has_links", [True, False])
async def test_a_name_that_cannot_be_given_leaves_nothing(
    ground: Ground, target: Path, has_links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if not has_links:
        without_links(monkeypatch)
    monkeypatch.setattr(os, "link" if has_links else "rename", full)
    with pytest.raises(OSError, match="No space left"):
        back_up(ground.path, target, made_at=NOW)
    assert names(target.parent) == []


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fault", [KeyboardInterrupt(), sqlite3.OperationalError("database or disk is full")], ids=repr)
async def test_whoever_is_stopped_leaves_nothing(ground: Ground, target: Path, step: str, fault: BaseException) -> None:
    await grown(ground)

    def stop(at: str) -> None:
        assert [name for name in names(target.parent) if name.endswith(PART)]
        if at == step:
            raise fault

    expected = (KeyboardInterrupt, StoreBusy, sqlite3.OperationalError)
    with pytest.raises(expected):
        back_up(ground.path, target, made_at=NOW, hook=stop)
    assert names(target.parent) == []
    back_up(ground.path, target, made_at=NOW)
    ground.check_chains()


def plain(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()


def newer(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    schema.prepare_writer(connection)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_bytes(b""), "this is no database of ours"),
        (lambda path: path.write_text("notes of mine " * 100), "this is no database, or"),
        (plain, "this is no database of ours"),
        (newer, "use the newer release"),
    ],
    ids=["empty", "text", "another program's", "newer"],
)
def test_what_is_not_ours_is_refused_in_words(
    tmp_path: Path, target: Path, make: Callable[[Path], object], words: str
) -> None:
    source = tmp_path / "source.db"
    make(source)
    with pytest.raises(SchemaTooNew, match=words):
        back_up(source, target, made_at=NOW)
    assert names(target.parent) == []


def of_schema(version: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = schema.migrations()
    with monkeypatch.context() as older, closing(sqlite3.connect(path, isolation_level=None)) as connection:
        older.setattr(schema, "migrations", lambda: known[:version])
        schema.prepare_writer(connection)


@pytest.mark.parametrize("version", range(1, MARKED_SINCE))
def test_a_copy_whose_schema_has_no_place_for_the_mark_is_brought_to_this_release(
    tmp_path: Path, target: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its release would not know the mark, and send again what was sent."""
    source = tmp_path / "source.db"
    of_schema(version, source, monkeypatch)
    back_up(source, target, made_at=NOW)
    assert look(source, "PRAGMA user_version") == [(version,)]
    assert look(target, "PRAGMA user_version") == [(len(schema.migrations()),)]
    assert look(target, "SELECT made_at FROM backup") == [(NOW,)]


def test_a_copy_that_can_bear_the_mark_stays_of_its_release(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who backs up before the new release has ever been started wants the way back."""
    source, known = tmp_path / "source.db", schema.migrations()
    of_schema(MARKED_SINCE, source, monkeypatch)
    later = [*known, (len(known) + 1, "CREATE TABLE later (x);")]
    monkeypatch.setattr(schema, "migrations", lambda: later)
    back_up(source, target, made_at=NOW)
    assert look(target, "PRAGMA user_version") == [(MARKED_SINCE,)]
    assert look(target, "SELECT made_at FROM backup") == [(NOW,)]
    assert look(target, "SELECT name FROM sqlite_schema WHERE name = 'later'") == []


async def test_a_damaged_source_gives_no_backup(ground: Ground, target: Path) -> None:
    await grown(ground, 1)
    await ground.end()
    ground._fault_was_seen = True
    with ground.path.open("r+b") as file:
        for page in range(3, 40):
            file.seek(page * 4096)
            file.write(os.urandom(4096))
    with pytest.raises(RecordDamaged, match="the file is damaged"):
        back_up(ground.path, target, made_at=NOW)
    assert names(target.parent) == []


async def test_a_copy_opens_as_any_file_and_tells_that_it_is_a_backup(ground: Ground, target: Path) -> None:
    await ground.start(operation(9, State.CREATE_PENDING))
    back_up(ground.path, target, made_at=NOW)
    async with opened(target) as copy:
        assert await copy.store.record.backup_made_at() == NOW
        ((_, op),) = await copy.store.record.open_sends(after=0)
        assert op.operation_id == "op_9"
        assert await copy.store.record.open_sends(after=10) == []
        await copy.store.record.settle_backup()
        assert await copy.store.record.backup_made_at() is None
    assert await ground.store.record.backup_made_at() is None


# ---- journals of another file ----------------------------------------------------------------------------------------


def put_beside(path: Path, ending: str, data: bytes) -> None:
    Path(f"{path}{ending}").write_bytes(data)


async def test_a_copy_beside_the_journal_of_another_file_is_opened_by_nobody(ground: Ground, target: Path) -> None:
    """Restored over a directory that was killed: SQLite would write the journal into the copy, and the mark be lost."""
    back_up(ground.path, target, made_at=NOW)
    copy = content(target)
    put_beside(target, "-wal", content(Path(f"{ground.path}-wal")))
    said = "is a copy, and copy.db-wal beside it is of another file: move copy.db-wal and -shm away"
    with pytest.raises(SchemaTooNew, match=said):
        async with opened(target):
            pass
    with pytest.raises(SchemaTooNew, match=said):
        look_at(target, lambda _: None)
    with pytest.raises(SchemaTooNew, match=said):
        back_up(target, target.with_name("x"), made_at=NOW)
    assert content(target) == copy
    assert names(target.parent) == ["copy.db", "copy.db-wal"]
    Path(f"{target}-wal").unlink()  # noqa: ASYNC240 - a test's own
    async with opened(target) as restored:
        assert await restored.store.record.backup_made_at() == NOW


@pytest.mark.parametrize("ending", ["-wal", "-journal"])
async def test_no_copy_is_made_beside_the_journal_of_another_file(ground: Ground, target: Path, ending: str) -> None:
    put_beside(target, ending, b"of another file")
    with pytest.raises(FileExistsError, match=f"copy.db{ending} is of another file"):
        back_up(ground.path, target, made_at=NOW)
    assert names(target.parent) == [f"copy.db{ending}"]

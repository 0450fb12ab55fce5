"""A copy of the file: one moment of it, whole or not there, and nothing of the source is touched."""

import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from reconcile.errors import SchemaTooNew, StoreBroken, StoreBusy
from reconcile.states import State
from reconcile.store import schema
from reconcile.store.backup import PART, STEP_PAGES, Copied, back_up
from tests.reconcile.rows import NOW
from tests.reconcile.store.ground import TABLES, Ground, beside, content, dump, event, look, opened, operation

STEPS = ("copy", "mark", "check", "rename")


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
    assert copied == Copied(copied.bytes, ground.one("SELECT max(position) FROM history"))
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


async def test_nor_is_what_came_there_meanwhile(ground: Ground, target: Path) -> None:
    def put(step: str) -> None:
        if step == "check":
            occupied(target, "file")

    with pytest.raises(FileExistsError):
        back_up(ground.path, target, made_at=NOW, hook=put)
    assert text_in(target) == "precious"
    assert names(target.parent) == ["copy.db"]


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
        (lambda path: path.write_bytes(b""), "is not a database of reconciled"),
        (lambda path: path.write_text("notes of mine " * 100), "is no database"),
        (plain, "is not a database of reconciled"),
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


def test_a_copy_of_an_older_file_is_brought_to_this_release_and_marked(
    tmp_path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release before would not know the mark, and send again what was sent."""
    source, known = tmp_path / "source.db", schema.migrations()
    with monkeypatch.context() as older:
        older.setattr(schema, "migrations", lambda: known[:2])
        connection = sqlite3.connect(source, isolation_level=None)
        schema.prepare_writer(connection)
        connection.close()
    back_up(source, target, made_at=NOW)
    assert look(source, "PRAGMA user_version") == [(2,)]
    assert look(target, "PRAGMA user_version") == [(len(known),)]
    assert look(target, "SELECT made_at FROM backup") == [(NOW,)]


async def test_a_damaged_source_gives_no_backup(ground: Ground, target: Path) -> None:
    await grown(ground, 1)
    await ground.end()
    ground._fault_was_seen = True
    with ground.path.open("r+b") as file:
        for page in range(3, 40):
            file.seek(page * 4096)
            file.write(os.urandom(4096))
    with pytest.raises((StoreBroken, StoreBusy), match=r"damaged|malformed"):
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

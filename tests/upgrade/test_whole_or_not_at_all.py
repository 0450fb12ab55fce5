"""An upgrade that fails or is killed leaves the file as the old release wrote it; the next one goes through (N40)."""

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from reconcile.store.schema import prepare_writer
from tests.upgrade.kept import FILE, NAMES, contents, look, schema_of, take

#: Virtual machine instructions between two chances to break off within a statement; arbitrary.
STRIDE: Final = 50
ROOT: Final = Path(__file__).parent.parent.parent
Stand = tuple[Any, ...]


def _stand(path: Path) -> Stand:
    """What the file means: version, schema, and every row."""
    return look(path, "PRAGMA user_version"), schema_of(path), contents(path)


def _upgrade(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare_writer(connection)


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Stand, Stand]]:
    """Of each kept file: how it stands, and how it stands after an upgrade that nothing disturbed."""
    found = {}
    for name in NAMES:
        path = take(name, tmp_path_factory.mktemp("undisturbed"))
        before = _stand(path)
        _upgrade(path)
        found[name] = before, _stand(path)
    return found


class Failing(sqlite3.Connection):
    """A connection on which the n-th statement of the upgrade (from 1) is not run."""

    fails_at: int = 0
    ran: int = 0

    def execute(self, sql: str, /, *parameters: Any) -> sqlite3.Cursor:
        """Run the statement, unless it is the one."""
        if self.in_transaction and sql != "ROLLBACK":
            self.ran += 1
            if self.ran == self.fails_at:
                raise sqlite3.OperationalError("the disk is not there any more")
        return super().execute(sql, *parameters)


def _fails_at(path: Path, statement: int) -> bool:
    """Whether the upgrade came as far as that statement."""
    connection = sqlite3.connect(path, isolation_level=None, factory=Failing)
    connection.fails_at = statement
    with closing(connection):
        try:
            prepare_writer(connection)
        except sqlite3.OperationalError:
            return True
    return False


@pytest.mark.parametrize("name", NAMES[:-1])  # the newest is left as it is
def test_an_upgrade_that_fails_at_any_statement_leaves_the_file_as_it_was(
    name: str, upgraded: dict[str, tuple[Stand, Stand]], folder: Path
) -> None:
    before, after = upgraded[name]
    statement = 1
    while _fails_at(path := take(name, folder / str(statement)), statement):
        assert _stand(path) == before, statement
        _upgrade(path)
        assert _stand(path) == after, statement
        statement += 1
    assert _stand(path) == after
    assert statement > 10


def _broken_off(path: Path, instructions: int) -> bool:
    """Whether the upgrade was interrupted after so many instructions of SQLite's machine."""
    left = instructions

    def look_up() -> int:
        nonlocal left
        left -= STRIDE
        return left < 0

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.set_progress_handler(look_up, STRIDE)
        try:
            prepare_writer(connection)
        except sqlite3.OperationalError as fault:
            return str(fault) == "interrupted"
    return False


@pytest.mark.parametrize("name", ["1a", "2"])
def test_an_upgrade_that_is_broken_off_within_a_statement_leaves_the_file_as_it_was(
    name: str, upgraded: dict[str, tuple[Stand, Stand]], folder: Path
) -> None:
    before, after = upgraded[name]
    instructions, points = STRIDE, 0
    while _broken_off(path := take(name, folder / str(instructions)), instructions):
        assert _stand(path) == before, instructions
        _upgrade(path)
        assert _stand(path) == after, instructions
        instructions, points = instructions + STRIDE, points + 1
    assert points > 5


def _dies(path: Path, statement: int) -> int:
    """Let a process of its own upgrade the file; its exit status, or what it counted up to."""
    command = [sys.executable, "-m", "tests.upgrade.victim", str(path), str(statement)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return int(done.stdout) if done.returncode == 0 else done.returncode


@pytest.mark.parametrize("name", ["1a", "3a"])
def test_a_process_that_is_killed_in_the_middle_of_an_upgrade_leaves_the_file_as_it_was(
    name: str, upgraded: dict[str, tuple[Stand, Stand]], folder: Path
) -> None:
    before, after = upgraded[name]
    last = _dies(take(name, folder / "counted"), 0)
    journals = 0
    for statement in (1, last // 4, last // 2, 3 * last // 4, last - 1, last):
        path = take(name, folder / str(statement))
        assert _dies(path, statement) == -signal.SIGKILL
        journals = max(journals, path.with_name(f"{FILE}-wal").stat().st_size)
        assert _stand(path) == before, statement
        _upgrade(path)
        assert _stand(path) == after, statement
    assert journals > 10_000, "nothing of an unfinished upgrade ever stood in the journal"

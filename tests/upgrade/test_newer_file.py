"""A file of a newer release under this one: refused before any write, and in words that say what to do (N40)."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from daemon.runtime import open_sqlite
from reconcile.errors import SchemaTooNew
from reconcile.ingest import judge_by
from reconcile.store.events import HasRead
from reconcile.store.schema import migrations, prepare_writer
from reconcile.store.store import open_store
from tests.reconcile.rows import CONTRACT
from tests.upgrade.kept import FILE, NAMES, take

NEWER = len(migrations()) + 1


def _make_newer(path: Path) -> None:
    """The file as a newer release would leave it at its stop."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare_writer(connection)
        connection.execute("CREATE TABLE of_tomorrow (a INTEGER) STRICT")
        connection.execute(f"PRAGMA user_version = {NEWER}")


def _make_newer_and_kill(path: Path, killed: Path) -> Path:
    """The file as a newer release would leave it when it is killed: its number stands in the journal alone."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare_writer(connection)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.execute(f"PRAGMA user_version = {NEWER}")
        shutil.copytree(path.parent, killed)
    with closing(sqlite3.connect(f"{(killed / FILE).as_uri()}?immutable=1", uri=True)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (NEWER - 1,)
    return killed / FILE


def _bytes(folder: Path) -> dict[str, bytes]:
    """Every file under a directory; of the index of a journal, which SQLite makes anew, only that it is there."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: b"" if name.endswith("-shm") else path.read_bytes() for name, path in sorted(found.items())}


async def _refusal(path: Path) -> str | None:
    """What opening the file says; None where it is taken after all."""
    try:
        store = await open_store(
            str(path),
            opener=open_sqlite,
            judge=judge_by(lambda _: CONTRACT),
            has_read=HasRead([]),
            on_done=lambda _: None,
        )
    except SchemaTooNew as refused:
        return str(refused)
    await store.close()
    return None


@pytest.mark.parametrize("name", NAMES)
async def test_a_newer_file_is_refused_before_any_write(name: str, tmp_path: Path) -> None:
    path = take(name, tmp_path)
    _make_newer(path)
    before = _bytes(tmp_path)
    assert await _refusal(path) == (
        f"the file has schema {NEWER}, this release knows {NEWER - 1}: use the newer release"
    )
    assert _bytes(tmp_path) == before


async def test_a_newer_file_whose_writer_was_killed_is_refused_before_any_write(tmp_path: Path) -> None:
    """Not even what stands in its journal is written into the file: that is the newer release's business."""
    path = _make_newer_and_kill(take("3c", tmp_path / "living"), tmp_path / "killed")
    before = _bytes(path.parent)
    assert before[f"{FILE}-wal"]
    assert f"schema {NEWER}" in str(await _refusal(path))
    assert _bytes(path.parent) == before


CONFIG = """
state_dir = "{state_dir}"
webhooks.listen = "127.0.0.1:0"
api.listen = "127.0.0.1:0"
"""


@pytest.mark.parametrize("was_killed", [False, True])
def test_the_daemon_that_meets_a_newer_file_says_so_and_is_not_restarted(was_killed: bool, tmp_path: Path) -> None:
    """Exit status 78 is in the unit's RestartPreventExitStatus; nothing but the lock was made or changed."""
    state_dir = tmp_path / "state"
    path = take("3c", state_dir)
    if was_killed:
        state_dir = _make_newer_and_kill(path, tmp_path / "killed").parent
    else:
        _make_newer(path)
    state_dir.chmod(0o700)
    (state_dir / "tmp").mkdir()
    (state_dir / "tmp" / "1-half").write_bytes(b"of the newer release")
    (tmp_path / "reconciled.toml").write_text(CONFIG.format(state_dir=state_dir), encoding="utf-8")
    before = _bytes(state_dir)

    command = [sys.executable, "-m", "daemon", "serve", "--config", str(tmp_path / "reconciled.toml")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert ended.returncode == 78
    assert ended.stderr.splitlines()[-1] == (
        f"reconciled: the file has schema {NEWER}, this release knows {NEWER - 1}: use the newer release"
    )
    assert _bytes(state_dir) == {**before, "lock": b""}

"""The kept state directories, each named for the schema that it was written with; README.md beside them says how."""

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from daemon.config import parse
from reconcile.chain import ChainedRow
from reconcile.fold import Fold
from reconcile.model import Operation
from reconcile.store.schema import read_only_uri
from tests.reconcile.chains import verify
from tests.simulation.world import EPOCH_MS, SimWorld
from tests.upgrade.make import KEYS, config

FOLDER: Final = Path(__file__).parent.parent / "fixtures" / "schemas"
#: Every schema text that ever stood on main, oldest first.
NAMES: Final = ("1a", "1b", "1c", "2", "3a", "3b", "3c", "4", "5")
FILE: Final = "reconciled.db"
#: From the kill to the upgrade, ms. A minute: arbitrary, within every deadline that was given.
DOWN_MS: Final = 60_000
#: In the order of `ChainedRow`, but for the operation.
_HISTORY: Final = (
    "SELECT position, h.seq, at, actor, kind, from_state, to_state, cause, h.remote_job_id, reason, facts, hash"
    " FROM history h JOIN operations o ON o.key = h.operation_key WHERE o.operation_id = ? ORDER BY position"
)
Rows = list[tuple[Any, ...]]


def take(name: str, to: Path) -> Path:
    """A copy of a kept state directory at `to`; its database file."""
    shutil.copytree(FOLDER / name, to, dirs_exist_ok=True)
    return to / FILE


@contextmanager
def looking(path: Path) -> Iterator[sqlite3.Connection]:
    """The file by a connection that can neither write nor checkpoint."""
    with contextlib.closing(sqlite3.connect(read_only_uri(str(path)), uri=True)) as connection:
        yield connection


def look(path: Path, sql: str, parameters: Sequence[Any] = ()) -> Rows:
    """The rows of one query."""
    with looking(path) as connection:
        return connection.execute(sql, parameters).fetchall()


def schema_of(path: Path) -> Rows:
    """Every object of the file with its text, exactly as it stands."""
    return look(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")


def contents(path: Path) -> dict[str, tuple[tuple[str, ...], Rows]]:
    """Each table's columns and rows."""
    found: dict[str, tuple[tuple[str, ...], Rows]] = {}
    with looking(path) as connection:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
        for (table,) in tables:
            cursor = connection.execute(f"SELECT * FROM {table}")  # noqa: S608 - the file's own names
            found[table] = (tuple(column[0] for column in cursor.description), sorted(cursor.fetchall(), key=repr))
    return found


def world_of(name: str, folder: Path) -> SimWorld:
    """A simulated world that begins with a kept state directory, a minute after its daemon was killed."""
    world = SimWorld(folder)
    path = take(name, world.state_dir)
    world.config = parse(config(world.state_dir), KEYS, file="made.toml")
    ((newest,),) = look(path, "SELECT max(at) FROM history")
    world.time = (newest + DOWN_MS - EPOCH_MS) / 1000
    return world


def history_fault(path: Path, op: Operation) -> str | None:
    """The first fault in an operation's history: its chain up to head and length, and that it folds to its row."""
    chain = [
        (ChainedRow(row[0], op.operation_id, *row[1:-1]), row[-1]) for row in look(path, _HISTORY, (op.operation_id,))
    ]
    fold = Fold()
    for row, _ in chain:
        fold.take(row.kind, row.to_state, json.loads(row.facts))
    return verify(chain, head=op.head, length=op.seq) or fold.difference(op)

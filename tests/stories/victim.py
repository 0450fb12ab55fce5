"""`reconciled serve` as a process that kills itself at one edge of one commit, and lists its commits until then.

Run as `python -m tests.stories.victim --config FILE --commits FILE --kill-at N --edge before|after`; with `--edge file`
N counts the steps in which files are written (create, fsync, rename, fsync of the directory), and it dies before one;
with `--kill-table TABLE` it dies at the first commit that changes that table.

Everything but the hooks is what production has. A commit here is a transaction that changed at least one row, numbered
from 1 in the order of this process: the worker also commits empty claims whenever it wakes, how many is a matter of
timing, and they leave nothing in the file. What changes rows follows one from the other, so the numbers are the same
in every run.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from daemon.config import load
from daemon.logs import make_log
from daemon.meters import Counts
from daemon.rooms import Seams
from daemon.runtime import SystemClock, SystemDice, TaskSupervisor, open_sqlite
from daemon.service import serve
from reconcile.redact import Redactor
from reconcile.store.writer import Hooks

_WRITES: Final = re.compile(r"(?:INSERT(?: OR \w+)? INTO|UPDATE|DELETE FROM) (\w+)")
_LAST_POSITION: Final = "SELECT coalesce(max(position), 0) FROM history"
_NEW_HISTORY: Final = "SELECT coalesce(to_state, kind) FROM history WHERE position > ? ORDER BY position"


@dataclass(slots=True)
class Executioner:
    """Counts commits and file steps, lists each, and kills this process at the one that was named; 0: at none."""

    commits: Path
    kill_at: int
    edge: str
    kill_table: str | None = None
    _number: int = 0
    _file_step: int = 0
    _changed_before: int = 0
    _seen: int = 0
    _position: int = 0
    _statement: str = ""
    _changes: Counter[str] = field(default_factory=Counter)

    def hooks(self) -> Hooks:
        """The fault points to be handed in."""
        return Hooks(before_begin=self._begin, before_commit=self._before, after_commit=self._after)

    def before_file_step(self, step: str, path: Path) -> None:
        """The fault point of files; `path` is the one that the step is about."""
        self._file_step += 1
        self._list({"file_step": self._file_step, "step": step})
        if self.edge == "file" and self._file_step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def _begin(self, connection: sqlite3.Connection) -> None:
        if self._number == 0:
            self._position = connection.execute(_LAST_POSITION).fetchone()[0]
        self._changes.clear()
        self._statement = ""
        self._changed_before = self._seen = connection.total_changes
        connection.set_trace_callback(lambda statement: self._note(connection, statement))

    def _note(self, connection: sqlite3.Connection, statement: str) -> None:
        """A statement is about to run, so the one before it is done: what it changed is known now."""
        changed, self._seen = connection.total_changes - self._seen, connection.total_changes
        if changed and (table := _WRITES.search(self._statement)):
            self._changes[table[1]] += changed
        self._statement = statement

    def _before(self, connection: sqlite3.Connection) -> None:
        self._note(connection, "")
        connection.set_trace_callback(None)
        if connection.total_changes == self._changed_before:
            return
        self._number += 1
        told = [row[0] for row in connection.execute(_NEW_HISTORY, (self._position,))]
        self._position += len(told)
        self._list({"number": self._number, "tables": dict(self._changes), "history": told})
        if self._is_hour("before"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _after(self, connection: sqlite3.Connection) -> None:
        if connection.total_changes > self._changed_before and self._is_hour("after"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_hour(self, edge: str) -> bool:
        is_hour = self._number == self.kill_at or (self.kill_table is not None and self.kill_table in self._changes)
        return is_hour and self.edge == edge

    def _list(self, commit: dict[str, Any]) -> None:
        # One write a line: it is in the kernel's hands before the signal is sent.
        with self.commits.open("ab", buffering=0) as file:
            file.write(json.dumps(commit).encode() + b"\n")


def main() -> None:
    """Serve until SIGTERM or the named commit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--commits", type=Path, required=True)
    parser.add_argument("--kill-at", type=int, default=0)
    parser.add_argument("--kill-table")
    parser.add_argument("--edge", choices=("before", "after", "file"), default="before")
    arguments = parser.parse_args()
    config = load(arguments.config, os.environ)
    log = make_log(Redactor(config.secrets))
    executioner = Executioner(arguments.commits, arguments.kill_at, arguments.edge, arguments.kill_table)
    seams = Seams(
        clock=SystemClock(),
        dice=SystemDice(),
        supervisor=TaskSupervisor(log),
        meters=Counts(),
        opener=open_sqlite,
        connector=lambda: aiohttp.TCPConnector(keepalive_timeout=4, limit=0),
        log=log,
        hooks=executioner.hooks(),
        file_hook=executioner.before_file_step,
    )
    asyncio.run(serve(config, seams))


if __name__ == "__main__":
    main()

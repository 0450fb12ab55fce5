"""Beside a daemon nobody else writes its database (N43): what the commands do to its files, as the disk records it."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Final

import pytest

from daemon.runtime import SystemDice
from daemon.standin.scenarios import SCENARIOS
from daemon.standin.world import World
from tests.faults.disk import environ_of
from tests.faults.nursery import Life, Nursery
from tests.faults.record import Entry, entries_in
from tests.stories.stage import PATIENCE, Client, Home, client_of, provider, settle

pytestmark = pytest.mark.asyncio(loop_scope="package")
#: Commands that open the file themselves; {} is an operation.
OPENERS: Final = ("audit verify", "audit export {} -o {folder}/evidence.json", "db backup {folder}/copy.db")
#: Commands that ask the daemon.
ASKERS: Final = ("list", "show {}", "history {}", "items {}", "status", "inbox", "check")


async def recorded(lives: Nursery, home: Home, command: str, operation_id: str) -> list[Entry]:
    """What a command that goes well does to the files of the state directory."""
    record = home.folder / "command.record"
    record.unlink(missing_ok=True)
    words = command.format(operation_id, folder=home.folder).split()
    async with lives.running(home, *words, environ=environ_of(home, record=record)) as ran:
        assert await ran.end() == 0, ran.said
    return [entry for entry in entries_in(record) if entry.path.is_relative_to(home.state_dir)]


def of_the_database(home: Home, entries: list[Entry]) -> list[Entry]:
    """Those on the file, or on what SQLite keeps beside it."""
    return [entry for entry in entries if entry.path.name.startswith(home.database.name)]


def log_of(home: Home) -> Path:
    """The write-ahead log."""
    return home.database.with_name(f"{home.database.name}-wal")


def stands_in_the_file_alone(home: Home, operation_id: str) -> bool:
    """Whether it is found without the log."""
    uri = f"{home.database.as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        try:
            sql = "SELECT 1 FROM operations WHERE operation_id = ?"
            return connection.execute(sql, (operation_id,)).fetchone() is not None
        except sqlite3.DatabaseError:  # half of what was being brought into it
            return False


@asynccontextmanager
async def held_with_a_log(home: Home, client: Client, life: Life) -> AsyncIterator[str]:
    """The process stands still, and what it committed last stands in the log alone: the id of that operation."""
    async with asyncio.timeout(PATIENCE):
        while True:
            last = await client.started()
            os.kill(life.pid, signal.SIGSTOP)
            try:
                if not stands_in_the_file_alone(home, last):
                    yield last
                    return
            finally:
                os.kill(life.pid, signal.SIGCONT)


async def test_commands_beside_a_daemon_neither_write_nor_checkpoint_nor_could_they(
    lives: Nursery, tmp_path: Path
) -> None:
    """What is in the log alone is read from there, and stays there; the file itself is open for reading only."""
    home = settle(tmp_path / "home", base="200ms", cap="400ms")
    world = World(SCENARIOS["normal"], ids=SystemDice().identifier, speed=20)
    async with provider(home, world), client_of(home) as client, lives.serving(home) as life:
        await client.until_ready(life)
        ended = await client.started()
        await client.end_of(ended)
        for command in ASKERS:
            assert of_the_database(home, await recorded(lives, home, command, ended)) == []
        async with held_with_a_log(home, client, life) as last:
            before = home.database.read_bytes(), log_of(home).read_bytes()
            for command in OPENERS:
                done = of_the_database(home, await recorded(lives, home, command, last))
                assert [entry for entry in done if entry.is_of_files] == []
                assert {entry.where for entry in done if entry.path == home.database} == {os.O_RDONLY}
            assert (home.database.read_bytes(), log_of(home).read_bytes()) == before
            with closing(sqlite3.connect(f"{(home.folder / 'copy.db').as_uri()}?mode=ro", uri=True)) as copy:
                found = copy.execute("SELECT 1 FROM operations WHERE operation_id = ?", (last,)).fetchone()
            assert found == (1,)
        await client.end_of(last)
        assert await life.stop() == 0

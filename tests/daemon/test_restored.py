"""The first start of a restored backup as the whole daemon makes it: many rows, an input, files of the lost time."""

import asyncio
import shutil
from pathlib import Path

import pytest

from reconcile.store.backup import back_up
from reconcile.store.restored import PAGE
from tests.handlers.asking_provider import Account, asking_stage
from tests.handlers.ground import NOON, running
from tests.handlers.test_input import SENT, in_state
from tests.handlers.test_wishes import history


def backed_up(state: Path, to: Path) -> Path:
    """The database and the folders beside it, as the README has it."""
    to.mkdir()
    back_up(state / "reconciled.db", to / "reconciled.db", made_at=NOON)
    for name in ("spool", "results"):
        shutil.copytree(state / name, to / name)
    (to / "api-token").write_text("the-token-of-the-backup")
    (to / "api-token").chmod(0o600)
    to.chmod(0o700)
    return to


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def add(folder: Path, *names: str) -> None:
    """Files that the lost time left."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


async def tidied() -> None:
    """The tidying that every start begins is through."""
    if tidying := [task for task in asyncio.all_tasks() if task.get_name() == "upkeep"]:
        await asyncio.wait(tidying)


async def test_many_rows_are_brought_up_a_page_in_a_commit(tmp_path: Path) -> None:
    many = 2 * PAGE + 50
    async with running(tmp_path / "state") as ground:
        for _ in range(many):
            await ground.start()
        await ground.operation("observing", "batch_1")
        backup = backed_up(tmp_path / "state", tmp_path / "backup")
    async with running(backup, seed=2) as ground:
        assert ground.rows("SELECT state, count(*) FROM operations GROUP BY state ORDER BY state") == [
            ("create_unknown", many),
            ("observing", 1),
        ]
        assert ground.daemon.store.commits < 20
        (told,) = [entry for entry in ground.logged if entry["event"] == "restored_backup"]
        assert (told["made_at_ms"], told["operations"], told["unclaimed"]) == (NOON, {"create_pending": many}, 0)
        assert ground.rows("SELECT * FROM backup") == []
        assert ground.rows("SELECT count(*) FROM history WHERE actor = 'start'") == [(many,)]
        await tidied()


@pytest.mark.parametrize("was_sent", [True, False])
async def test_an_input_is_not_given_twice(tmp_path: Path, was_sent: bool) -> None:
    """Where the job still waits for it, a person is asked."""
    account = Account()
    async with asking_stage(tmp_path / "state", account, worker=False) as on:
        operation = await in_state(on, "input_given")
        backup = backed_up(tmp_path / "state", tmp_path / "backup")
    (tmp_path / "state").rename(tmp_path / "lost")
    backup.rename(tmp_path / "state")
    account.inputs, account.state = ([SENT], "done") if was_sent else ([], "waiting")
    async with asking_stage(tmp_path / "state", account) as on:
        end = await on.ground.get(f"/v1/operations/{operation}?wait=10")
        rows = await history(on.ground, operation)
    assert account.inputs == ([SENT] if was_sent else [])
    if was_sent:
        assert end["outcome"] == "succeeded"
    else:
        assert end["attention"]["reason"] == "input_unknown"
    whose = "this file is a restored backup of 2026-11-29T12:00:00Z"
    told = f"{whose}: the input may have been sent since; the job is read once"
    assert [row["reason"] for row in rows if row["actor"] == "start"] == [told]


async def test_files_that_the_backup_does_not_name_are_kept_apart_and_stay(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as ground:
        known = await ground.start()
        backup = backed_up(tmp_path / "state", tmp_path / "backup")
    lost = (
        "spool/op_lost.jsonl",
        f"spool/{known}.inp_lost.json",
        "results/op_lost/1/0.jsonl",
        f"results/{known}/7/0.jsonl",
    )
    add(backup, *lost, "unclaimed/spool/op_lost.jsonl")
    for seed in (2, 3):  # and are no business of a later start
        async with running(backup, seed=seed):
            await tidied()
        assert files_in(backup / "unclaimed") == sorted([*lost, "spool/op_lost.jsonl+"])
        assert files_in(backup / "spool") == [f"{known}.jsonl"]
        assert files_in(backup / "results") == []


async def test_a_start_on_a_database_of_its_own_says_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        async with running(tmp_path / "state") as ground:
            assert [entry for entry in ground.logged if entry["event"] == "restored_backup"] == []
    assert not (tmp_path / "state" / "unclaimed").exists()

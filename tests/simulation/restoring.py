"""Worlds that lose their state directory and go on from a backup: what is kept at each commit, and the life after it.

The backup is made by the product's own copying function. The provider keeps what happened: all of it, where the
original ran on to its end, or as much as there was at the backup's moment, where the original was lost just then.
"""

import asyncio
import contextlib
import copy
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from daemon.standin.scenarios import Scenario
from reconcile.contract import Contract
from reconcile.registry import provider_for
from reconcile.store.backup import back_up
from tests.simulation.client import NAME, START
from tests.simulation.invariants import ENDINGS, RULES
from tests.simulation.provider import Provider
from tests.simulation.transports import Fault
from tests.simulation.view import Row, View, load
from tests.simulation.world import NEVER, CrashPoint, Process, SimWorld, all_is_delivered

#: What a backup cannot know of, or what is counted here otherwise: cancels, and what was acknowledged since.
_NOT_HERE: Final = frozenset({"N15", "N17", "N18"})
FOLDERS: Final = ("spool", "results")
#: A dice of its own: the lost time and the time after the restore draw different ids.
SEED: Final = 1_000_000


@dataclass(frozen=True)
class Story:
    """A world without a crash, and what its operator and its provider allow."""

    name: str
    scenario: Scenario
    tuned: Callable[[Contract], Contract] = lambda contract: contract
    faults: Callable[[], Callable[[str, bytes], Fault | None]] = lambda: lambda _host, _head: None
    cancels_when: Callable[[Any], bool] | None = None
    #: The end after a restore, where the job is known or can be found for sure; None: whatever the truth is.
    finds: bool = True
    #: Cancels that may reach the provider in all.
    cancels: int = 1
    #: Rules that the story breaks by leave: two jobs where the configuration allows them.
    by_leave: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Backup:
    """What was kept at one commit."""

    number: int
    folder: Path
    #: As the account stood at that moment.
    provider: Provider
    time: float
    #: The operation as it stands in the copy; None: it is not in it.
    row: Row | None


@dataclass
class Original:
    """The world that ran on to its end, and its backups."""

    story: Story
    world: SimWorld
    backups: list[Backup] = field(default_factory=list)


def told(folder: Path, story: Story) -> Original:
    """Tell the story once, with a backup at each of its commits."""
    world = world_of(folder / "original", story)
    original = Original(story, world)

    def keep(process: Process) -> None:
        number = process.life.commits
        kept = folder / f"backup-{number}"
        kept.mkdir()
        back_up(world.database, kept / "reconciled.db", made_at=process.clock.now())
        for name in FOLDERS:
            shutil.copytree(world.state_dir / name, kept / name)
        provider = copy.deepcopy(world.provider)
        original.backups.append(Backup(number, kept, provider, process.loop.time(), _row(kept / "reconciled.db")))

    world.on_commit = keep
    life = world.live()
    assert life.ended
    assert not life.troubles
    assert len(original.backups) == life.commits
    return original


def world_of(folder: Path, story: Story, seed: int = 1) -> SimWorld:
    """A world of the story, before its first life."""
    world = SimWorld(folder, seed, scenario=story.scenario)
    known = world.config.providers[NAME]
    contract = story.tuned(known.provider.contract)
    providers = {NAME: replace(known, provider=provider_for(contract.kind, contract))}
    world.config = replace(world.config, providers=providers)
    world.faults = story.faults()
    world.client.cancels_when = story.cancels_when
    if story.cancels_when is not None:
        world.client.start = {**START, "cancel_within": "60s", "result_within": "200s"}
    return world


def restored(
    folder: Path,
    original: Original,
    backup: Backup,
    *,
    is_lost_at_once: bool = False,
    files: Literal["own", "all"] = "own",
    later: float = 1,
) -> SimWorld:
    """A world that goes on from the backup, `later` seconds after the end of the original.

    `files`: "own", those of the backup's moment; "all", those that the original had at its end.
    """
    world = world_of(folder, original.story, seed=SEED + backup.number)
    world.faults = lambda _host, _head: None
    world.provider = copy.deepcopy(backup.provider if is_lost_at_once else original.world.provider)
    world.provider.watch_file(world.database)
    world.time = (backup.time if is_lost_at_once else original.world.time) + later
    world.provider.break_off(world.now_ms)
    shutil.copy(backup.folder / "reconciled.db", world.database)
    for name in FOLDERS:
        source = backup.folder if files == "own" else original.world.state_dir
        shutil.copytree(source / name, world.state_dir / name)
    return world


def live(world: SimWorld, point: CrashPoint = NEVER) -> None:
    """The daemon's life on the restored file, until each operation has ended or asks a person."""
    world.live(point, until=_all_are_told)


async def _all_are_told(process: Process) -> None:
    async with process.client_session() as session:
        for row in load(process.world).operations:
            body: dict[str, Any] = {}
            while not (body.get("done") or body.get("attention")):
                url = f"{process.world.client.api}/v1/operations/{row['operation_id']}?wait=30"
                async with session.get(url) as answer:
                    body = await answer.json()
            process.world.client.body = body
    await all_is_delivered(process)
    await asyncio.sleep(5)  # for what should not be sent after all


def violations(world: SimWorld, story: Story, backup: Backup, before: Provider) -> Iterator[str]:
    """What must hold at the end of a restored world; `before`: the provider as the restored file found it."""
    log, view = world.provider.log, load(world)
    if len(log.creates) != len(before.log.creates):
        yield f"{len(log.creates) - len(before.log.creates)} creates were sent by the restored file"
    if len(log.cancels) > max(story.cancels, len(before.log.cancels)):
        yield f"{len(log.cancels)} cancels reached the provider, {len(before.log.cancels)} before the restore"
    yield from (f"{words}" for life in world.lives for words in life.troubles if life.ended)
    if _made_at(world.database) is not None:
        yield "the mark is still there"
    if backup.row is None:
        yield from ["an operation came to be"] if view.operations else []
        return
    for name, rule in RULES.items():
        if name not in _NOT_HERE | story.by_leave:
            yield from (f"{name}: {words}" for words in rule(view))
    yield from (f"N23: {words}" for words in ENDINGS["N23"](view))
    yield from _end(view, story, backup)


def _end(view: View, story: Story, backup: Backup) -> Iterator[str]:
    """Done with the truth (N11), or a question; and no question where the job is known or can be found for sure."""
    assert backup.row is not None
    (op,) = view.operations
    jobs = view.jobs(op)
    asks = op["living"].get("attention")
    if op["completed_at"] is None and not asks:
        yield f"it stands in {op['state']}, and nobody is asked"
    if not jobs and op["state"] not in ("create_unresolved", "cancelled", backup.row["state"]):
        yield f"there is no job, and it is {op['state']}"
    has_ended = jobs and jobs[0].status in ("completed", "failed", "expired", "cancelled")
    if has_ended and story.finds and op["completed_at"] is None and op["state"] != backup.row["state"]:
        yield f"its job has ended and can be found, and it stands in {op['state']}"
    if jobs and not has_ended and op["state"] == "cancelled":
        yield "it is cancelled, and its job runs"


def _row(database: Path) -> Row | None:
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        row = connection.execute(
            "SELECT o.*, s.mark_at FROM operations o LEFT JOIN schedule s ON s.key = o.key"
        ).fetchone()
        return dict(row) if row is not None else None


def _made_at(database: Path) -> int | None:
    with contextlib.closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        found: int | None = connection.execute("SELECT min(made_at) FROM backup").fetchone()[0]
        return found

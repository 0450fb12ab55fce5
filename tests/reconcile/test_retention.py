"""What is let go and when: the loop around the slices, the files behind the rows, and the round that it is part of."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
import structlog
from structlog.testing import LogCapture

from reconcile import rest
from reconcile.errors import StoreBroken, StoreBusy
from reconcile.files import Files
from reconcile.retention import Retention
from reconcile.states import State
from reconcile.store.pruned_events import EventPruning, IdsKept
from reconcile.store.pruning import NotPruned, Pruned, Pruning
from reconcile.upkeep import Upkeep
from tests.handlers.ground import Ground as Running
from tests.handlers.ground import HandClock, running
from tests.reconcile.rows import DAY, HOUR, NOW
from tests.reconcile.store.aged import sign, writing
from tests.reconcile.store.ground import Ground, database_error, opened, operation, raising

T = TypeVar("T")
#: Seconds after which something that should have happened is held not to happen any more.
PATIENCE: Final = 5


class Inline:
    """A supervisor without threads."""

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        raise NotImplementedError

    async def offload(self, function: Callable[[], T]) -> T:
        return function()


class Clock:
    """Wall time that stands; a slice of `record` below moves the other one."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> int:
        return NOW

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Record:
    """Stands for the store where only its being asked matters."""

    clock: Clock
    slices: int = 0
    takes_seconds: float = 0.0
    asked: int = 0
    wishes: list[Pruning | EventPruning | IdsKept] | None = None
    unsettled: int | None = None
    refused: tuple[NotPruned, ...] = ()
    began: asyncio.Event = field(default_factory=asyncio.Event)

    async def oldest_unsettled(self) -> int | None:
        return self.unsettled

    async def prune(self, wish: Pruning) -> Pruned:
        self._note(wish)
        self.asked += 1
        self.began.set()
        self.clock.seconds += self.takes_seconds
        if self.asked > self.slices:
            return Pruned((), 0, wish.after, has_gone_on=False)
        refused = self.refused if self.asked == 1 else ()
        return Pruned((), 2, (self.asked, self.asked), True, (*wish.passed_over, self.asked), refused)

    async def prune_events(self, wish: EventPruning) -> int:
        self._note(wish)
        return 0

    async def prune_event_ids(self, ids: IdsKept) -> int:
        self._note(ids)
        return 0

    def _note(self, wish: Pruning | EventPruning | IdsKept) -> None:
        self.wishes = [*(self.wishes or []), wish]


def keeper(record: Any, folder: Path, clock: Any, **over: Any) -> tuple[Retention, LogCapture]:
    """The loop on a store, or on what stands for one."""
    capture = LogCapture()
    given: dict[str, Any] = {"finished_ms": 90 * DAY, "retries_ms": {"test": 72 * HOUR}, "longest_retry_ms": 72 * HOUR}
    files = Files(folder, Inline())
    files.prepare()
    log = structlog.wrap_logger(None, processors=[capture])
    return Retention(record=record, files=files, clock=clock, log=log, **{**given, **over}), capture


# ---- the loop --------------------------------------------------------------------------------------------------------


async def test_between_two_slices_the_writer_is_left_to_others_for_longer_the_longer_a_slice_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    for takes, expected in ((0.5, 0.5 * rest.REST), (0.0, rest.MIN_REST_SECONDS)):
        clock = Clock()
        loop, _ = keeper(Record(clock, slices=2, takes_seconds=takes), tmp_path, clock)
        plain = asyncio.timeout

        def at_once(seconds: float, plain: Any = plain) -> Any:
            rests.append(seconds)
            return plain(0)

        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "timeout", at_once)
            await loop.prune(asyncio.Event())
        assert rests == [pytest.approx(expected)] * 2
        rests.clear()


async def test_a_stop_ends_a_rest_at_once_and_what_was_done_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "MIN_REST_SECONDS", 3600)
    clock, stop = Clock(), asyncio.Event()
    record = Record(clock, slices=10)
    loop, capture = keeper(record, tmp_path, clock)
    task = asyncio.create_task(loop.prune(stop))
    await record.began.wait()
    stop.set()
    async with asyncio.timeout(PATIENCE):
        await task
    assert record.asked == 1
    assert capture.entries == [{"event": "pruned", "log_level": "info", "operations": 2, "events": 0, "event_ids": 0}]


async def test_a_backlog_is_left_to_the_next_round_when_half_of_this_one_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no checkpoint would be signed while a million go."""
    monkeypatch.setattr(rest, "REST", 0)
    clock = Clock()
    record = Record(clock, slices=1_000, takes_seconds=600)
    one, capture = keeper(record, tmp_path, clock)
    await one.prune(asyncio.Event())
    assert record.asked == 3
    assert capture.entries[-1]["operations"] == 6
    assert not any(isinstance(wish, EventPruning) for wish in record.wishes or ())


async def test_a_round_that_finds_nothing_says_nothing(tmp_path: Path) -> None:
    clock = Clock()
    loop, capture = keeper(Record(clock), tmp_path, clock)
    await loop.prune(asyncio.Event())
    assert capture.entries == []


async def test_each_slice_goes_on_behind_the_one_before(tmp_path: Path) -> None:
    clock = Clock()
    record = Record(clock, slices=3)
    loop, _ = keeper(record, tmp_path, clock)
    await loop.prune(asyncio.Event())
    wishes = [w for w in record.wishes or [] if isinstance(w, Pruning)]
    assert [w.after for w in wishes] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert [w.passed_over for w in wishes] == [(), (1,), (1, 2), (1, 2, 3)]


async def test_one_that_cannot_go_is_told(tmp_path: Path) -> None:
    clock = Clock()
    record = Record(clock, slices=2, refused=(NotPruned("op_7", "FOREIGN KEY constraint failed"),))
    loop, capture = keeper(record, tmp_path, clock)
    await loop.prune(asyncio.Event())
    told = {"log_level": "warning", "operation_id": "op_7", "error": "FOREIGN KEY constraint failed"}
    assert [e for e in capture.entries if e["event"] == "not_pruned"] == [{"event": "not_pruned", **told}]


async def test_ids_are_kept_for_seven_days_or_the_longest_retry_whichever_is_longer(tmp_path: Path) -> None:
    clock = Clock()
    record = Record(clock)
    loop, _ = keeper(
        record, tmp_path, clock, retries_ms={"short": 72 * HOUR, "long": 9 * DAY}, longest_retry_ms=9 * DAY
    )
    await loop.prune(asyncio.Event())
    ids = IdsKept({"short": NOW - 7 * DAY, "long": NOW - 9 * DAY}, NOW - 9 * DAY)
    assert record.wishes == [Pruning(NOW, NOW - 90 * DAY, ids), EventPruning(NOW - 30 * DAY, ids), ids]


@pytest.mark.parametrize("age", [20 * DAY, 400 * DAY])
async def test_no_delivery_goes_that_came_while_a_lost_create_is_looked_for(tmp_path: Path, age: int) -> None:
    """However long: it may be the event of its job, which becomes known later (B5, N19)."""
    clock = Clock()
    record = Record(clock, unsettled=NOW - age)
    loop, _ = keeper(record, tmp_path, clock)
    await loop.prune(asyncio.Event())
    (stale,) = [w for w in record.wishes or [] if isinstance(w, EventPruning)]
    assert stale.received_before == NOW - max(age, 30 * DAY)


async def test_what_ended_while_a_lost_create_is_looked_for_stays(tmp_path: Path) -> None:
    """Else its job would seem to be nobody's, and could be taken for the lost one (B2, N5)."""
    path = tmp_path / "reconciled.db"
    with writing(path) as aged:
        aged.operation(1, age=9 * DAY)
        aged.operation(2, age=20 * DAY)
        aged.operation(3, State.CREATE_UNKNOWN, age=9 * DAY)
    async with opened(path) as ground:
        await sign(ground)
        loop, _ = keeper(ground.store.record, tmp_path / "state", HandClock(NOW), finished_ms=DAY)
        await loop.prune(asyncio.Event())
        assert ground.look("SELECT operation_id FROM operations ORDER BY key") == [("op_1",), ("op_3",)]


# ---- files -----------------------------------------------------------------------------------------------------------


def put(root: Path, *refs: str) -> None:
    """Files that stand there."""
    for ref in refs:
        (root / ref).parent.mkdir(parents=True, exist_ok=True)
        (root / ref).write_bytes(b"x")


def standing(root: Path) -> set[str]:
    """All files, by their refs."""
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


@asynccontextmanager
async def aged(tmp_path: Path) -> AsyncIterator[tuple[Ground, Retention, Path]]:
    """op_1 is to be pruned, op_2 is not; each with an input and a result."""
    path, root = tmp_path / "reconciled.db", tmp_path / "state"
    with writing(path) as rows:
        rows.operation(1, input_ref="spool/op_1.jsonl")
        rows.operation(2, State.OBSERVING, input_ref="spool/op_2.jsonl")
    async with opened(path) as ground:
        await sign(ground)
        loop, _ = keeper(ground.store.record, root, HandClock(NOW))
        put(root, "spool/op_1.jsonl", "results/op_1/3/0.jsonl", "spool/op_2.jsonl", "results/op_2/1/0.jsonl")
        yield ground, loop, root


async def test_files_go_after_their_rows(tmp_path: Path) -> None:
    async with aged(tmp_path) as (_, loop, root):
        await loop.prune(asyncio.Event())
        assert standing(root) == {"spool/op_2.jsonl", "results/op_2/1/0.jsonl"}


async def test_files_stay_where_the_rows_did_not_go(tmp_path: Path) -> None:
    async with aged(tmp_path) as (ground, loop, root):
        before = standing(root)

        ground.hooks.before_commit = raising(database_error(sqlite3.SQLITE_FULL))
        with pytest.raises(StoreBusy):
            await loop.prune(asyncio.Event())
        assert standing(root) == before


# ---- the round -------------------------------------------------------------------------------------------------------


@dataclass
class Part:
    """A part of the round that tells when it is its turn, and may fail."""

    told: list[str]
    name: str
    fault: Exception | None = None

    async def sign(self, _: asyncio.Event) -> None:
        await self._turn()

    async def prune(self, _: asyncio.Event) -> None:
        await self._turn()

    async def _turn(self) -> None:
        self.told.append(self.name)
        if self.fault is not None:
            raise self.fault


def rounds(store: Any, files: Files, told: list[str], **faults: Exception) -> tuple[Upkeep, LogCapture]:
    """An upkeep whose notary and retention are parts of the test."""
    capture = LogCapture()
    notary: Any = Part(told, "sign", faults.get("sign"))
    pruner: Any = Part(told, "prune", faults.get("prune"))
    nobody: Any = None
    log = structlog.wrap_logger(None, processors=[capture])
    parts = {"notary": notary, "retention": pruner}
    return Upkeep(store=store, files=files, collector=nobody, clock=Clock(), log=log, **parts), capture


async def test_a_round_signs_before_it_prunes_and_tidies_last(tmp_path: Path) -> None:
    async with opened(tmp_path / "reconciled.db") as ground:
        told: list[str] = []
        files = Files(tmp_path / "state", Inline())
        files.prepare()
        keeping, _ = rounds(ground.store, files, told)
        put(tmp_path / "state", "spool/op_gone.jsonl")
        await keeping._round(asyncio.Event())
        assert told == ["sign", "prune"]
        assert keeping._suspects == {"spool/op_gone.jsonl"}


@pytest.mark.parametrize(("part", "turns"), [("sign", ["sign"]), ("prune", ["sign", "prune"])])
@pytest.mark.parametrize("fault", [StoreBusy("full"), OSError(28, "full")])
async def test_a_part_that_fails_is_told_and_keeps_no_other_but_what_is_not_signed(
    tmp_path: Path, part: str, turns: list[str], fault: Exception
) -> None:
    """However often: a fault that stays in one part must not end the others each hour."""
    root = tmp_path / "state"
    async with opened(tmp_path / "reconciled.db") as ground:
        told: list[str] = []
        files = Files(root, Inline())
        files.prepare()
        keeping, capture = rounds(ground.store, files, told, **{part: fault})
        put(root, "spool/op_gone.jsonl")
        for _ in range(2):
            await keeping._round(asyncio.Event())
        assert told == turns * 2
        assert standing(root) == set(), "it is tidied all the same"
    failed = {"event": "upkeep_failed", "log_level": "warning", "part": part, "error": str(fault)}
    assert [entry for entry in capture.entries if entry["log_level"] == "warning"] == [failed] * 2
    removed = {"event": "files_removed", "log_level": "info", "count": 1, "first": ["spool/op_gone.jsonl"]}
    assert [entry for entry in capture.entries if entry["log_level"] == "info"] == [removed]


async def test_what_is_brought_to_a_restored_file_later_is_put_with_the_rest_of_the_lost_time(tmp_path: Path) -> None:
    """Who starts a restored backup first and then finds that `results/` is missing brings it now."""
    root = tmp_path / "state"
    async with opened(tmp_path / "reconciled.db") as ground:
        files = Files(root, Inline())
        files.prepare()
        files.make("unclaimed")
        keeping, capture = rounds(ground.store, files, [])
        put(root, "results/op_gone/1/0.jsonl", "spool/op_gone.jsonl", "tmp/9-half")
        await keeping.look()
        await keeping.tidy(asyncio.Event())
        for _ in range(2):
            await keeping._round(asyncio.Event())
    kept = {"results/op_gone/1/0.jsonl", "spool/op_gone.jsonl"}
    assert {str(path.relative_to(root / "unclaimed")) for path in (root / "unclaimed").rglob("*.jsonl")} == kept
    assert not (root / "results" / "op_gone").exists()
    assert not (root / "tmp" / "9-half").exists()
    assert [(entry["event"], entry["count"]) for entry in capture.entries if "count" in entry] == [
        ("files_unclaimed", 2),
        ("files_removed", 1),
    ]


async def test_a_link_among_the_results_is_one_entry_and_what_it_leads_to_is_let_alone(tmp_path: Path) -> None:
    """S36: brought in by whoever copied a folder back."""
    root, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    put(elsewhere, "precious.txt")
    files = Files(root, Inline())
    files.prepare()
    (root / "results" / "op_gone").symlink_to(elsewhere)
    assert files.names("results") == ["op_gone"]
    assert files.names("results/op_gone") == []
    async with opened(tmp_path / "reconciled.db") as ground:
        keeping, _ = rounds(ground.store, files, [])
        for _ in range(2):
            await keeping._round(asyncio.Event())
    assert not (root / "results" / "op_gone").is_symlink()
    assert (elsewhere / "precious.txt").exists()


async def test_what_cannot_be_tidied_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    keeping, capture = rounds(None, Files(tmp_path, Inline()), told)
    monkeypatch.setattr(Files, "leftovers", raising(PermissionError(13, "not ours")))
    await keeping._round(asyncio.Event())
    assert told == ["sign", "prune"]
    assert [(entry["event"], entry["part"]) for entry in capture.entries] == [("upkeep_failed", "tidy")]


async def test_a_store_that_is_broken_ends_the_upkeep(tmp_path: Path) -> None:
    keeping, _ = rounds(None, Files(tmp_path, Inline()), [], prune=StoreBroken("unknown"))
    with pytest.raises(StoreBroken):
        await keeping._round(asyncio.Event())


async def test_a_round_follows_an_hour_after_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    keeping, _ = rounds(None, Files(tmp_path, Inline()), told)
    stop, waits, plain = asyncio.Event(), list[float](), asyncio.timeout

    def passes(seconds: float) -> Any:
        waits.append(seconds)
        if len(waits) == 3:
            stop.set()
        return plain(0)

    monkeypatch.setattr(asyncio, "timeout", passes)
    await keeping.run(stop)
    assert told == ["sign", "prune"] * 3
    assert waits == [60 * 60] * 3


async def test_what_stood_there_at_the_start_goes_before_the_first_round_and_nothing_else_does(tmp_path: Path) -> None:
    """All in the one task: a stop waits for it, and the writer outlives it."""
    root = tmp_path / "state"
    async with opened(tmp_path / "reconciled.db") as ground:
        await ground.start(operation(1))
        files = Files(root, Inline())
        files.prepare()
        keeping, capture = rounds(ground.store, files, told := list[str]())
        put(root, "spool/op_1.jsonl", "spool/op_gone.jsonl", "results/op_gone/1/0.jsonl")
        await keeping.look()
        put(root, "spool/op_2.jsonl")
        stop = asyncio.Event()
        stop.set()
        await keeping.run(stop)
        assert "spool/op_gone.jsonl" in standing(root), "a stop cuts it off"
        stop.clear()
        at_work = asyncio.create_task(keeping.run(stop))
        async with asyncio.timeout(PATIENCE):
            while told != ["sign", "prune"]:  # noqa: ASYNC110 - the parts tell nobody
                await asyncio.sleep(0)
        assert standing(root) == {"spool/op_1.jsonl", "spool/op_2.jsonl"}
        stop.set()
        await at_work
    assert [(entry["event"], entry["count"]) for entry in capture.entries] == [("files_removed", 2)]


async def test_one_file_that_cannot_go_keeps_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(tmp_path, Inline())
    files.prepare()
    put(tmp_path, *(refs := [f"spool/op_{n}.jsonl" for n in range(3)]))
    plain = Files.remove

    def remove(self: Files, ref: str) -> None:
        if ref == refs[1]:
            raise PermissionError(13, "not ours")
        plain(self, ref)

    monkeypatch.setattr(Files, "remove", remove)
    with pytest.raises(PermissionError):
        await files.remove_all(refs)
    assert standing(tmp_path) == {refs[1]}


async def test_a_file_that_no_row_names_goes_when_two_rounds_in_a_row_found_it(tmp_path: Path) -> None:
    root = tmp_path / "state"
    async with opened(tmp_path / "reconciled.db") as ground:
        await ground.start(operation(1))
        files = Files(root, Inline())
        files.prepare()
        keeping, _ = rounds(ground.store, files, [])
        named = ("spool/op_1.jsonl", "results/op_1/1/0.jsonl")
        orphans = ("spool/op_8.jsonl", "spool/op_8.inp_1.json", "spool/op_1.inp_7.json", "results/op_9/1/0.jsonl")
        put(root, *named, *orphans, "tmp/4-spool_op_8.jsonl")
        await keeping._tidy_again(asyncio.Event())
        assert standing(root) == {*named, *orphans, "tmp/4-spool_op_8.jsonl"}
        put(root, "spool/op_2.jsonl")
        await ground.start(operation(8))  # its row was on its way
        await keeping._tidy_again(asyncio.Event())
        assert standing(root) == {*named, "spool/op_8.jsonl", "spool/op_8.inp_1.json", "spool/op_2.jsonl"} - {
            "spool/op_8.inp_1.json"
        }
        await ground.start(operation(2))
        await keeping._tidy_again(asyncio.Event())
        assert standing(root) == {*named, "spool/op_8.jsonl", "spool/op_2.jsonl"}


async def test_a_file_that_is_being_written_is_nobodys_leftover_however_long_it_takes(tmp_path: Path) -> None:
    root = tmp_path / "state"
    async with opened(tmp_path / "reconciled.db") as ground:
        files = Files(root, Inline())
        files.prepare()
        keeping, _ = rounds(ground.store, files, [])
        writer = files.create("results/op_1/1/0.jsonl")
        for _ in range(4):
            writer.write(b"line\n")
            await keeping._tidy_again(asyncio.Event())
        await writer.finish()
        assert standing(root) == {"results/op_1/1/0.jsonl"}
        assert files.leftovers() == []
        dropped = files.create("spool/op_1.jsonl")
        dropped.discard()
        assert files.under_way == set()


async def test_what_a_full_disk_left_half_written_goes_too(tmp_path: Path) -> None:
    root = tmp_path / "state"

    def fail(step: str, _: Path) -> None:
        if step == "fsync":
            raise OSError(28, "no space")

    async with opened(tmp_path / "reconciled.db") as ground:
        files = Files(root, Inline(), fail)
        files.prepare()
        keeping, _ = rounds(ground.store, files, [])
        writer = files.create("spool/op_1.jsonl")
        with pytest.raises(OSError, match="no space"):
            await writer.finish()
        writer.discard()
        assert len(files.leftovers()) == 1
        await keeping._tidy_again(asyncio.Event())
        await keeping._tidy_again(asyncio.Event())
        assert standing(root) == set()


# ---- the whole daemon ------------------------------------------------------------------------------------------------


async def age(ground: Running, ms: int) -> None:
    """So much later a round of the daemon's own upkeep."""
    ground.clock.advance(ms)
    await ground.daemon.upkeep._round(asyncio.Event())


async def test_an_ended_operation_goes_with_its_files_when_its_time_is_over(tmp_path: Path) -> None:
    async with running(tmp_path / "state", sections={"retention": {"finished": "10d"}}) as ground:
        ended = await ground.operation("succeeded", "job_1")
        open_one = await ground.operation("observing", "job_2")
        put(tmp_path / "state", f"results/{ended}/1/0.jsonl")
        await age(ground, 10 * DAY - 1)
        assert await ground.daemon.store.get(ended) is not None
        await age(ground, 1)
        assert await ground.daemon.store.get(ended) is None
        assert await ground.daemon.store.get(open_one) is not None
        assert {p.stem for p in (tmp_path / "state" / "spool").iterdir()} == {open_one}
        assert os.listdir(tmp_path / "state" / "results") == []  # noqa: PTH208 - names alone
        assert [e["operations"] for e in ground.logged if e["event"] == "pruned"] == [1]


async def test_a_crash_between_rows_and_files_leaves_them_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state"
    async with running(folder, sections={"retention": {"finished": "10d"}}) as ground:
        ended = await ground.operation("succeeded", "job_1")

        async def killed(_: Files, __: Any) -> None:
            raise OSError("killed here")

        monkeypatch.setattr(Files, "remove_all", killed)
        await age(ground, 10 * DAY)
        assert await ground.daemon.store.get(ended) is None
        assert (folder / "spool" / f"{ended}.jsonl").exists()
    monkeypatch.undo()
    async with running(folder, seed=2):
        tidying = [task for task in asyncio.all_tasks() if task.get_name() == "upkeep"]
        if tidying:
            await asyncio.wait(tidying)
        assert not (folder / "spool" / f"{ended}.jsonl").exists()


async def test_files_are_listed_and_removed_off_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start too: there may be as many of them as there ever were operations."""
    folder, threads, here = tmp_path / "state", list[int](), threading.get_ident()
    for name in ("names", "remove"):
        plain = getattr(Files, name)

        def noting(self: Files, ref: str, plain: Any = plain) -> Any:
            threads.append(threading.get_ident())
            return plain(self, ref)

        monkeypatch.setattr(Files, name, noting)
    async with running(folder) as ground:
        ended = await ground.operation("succeeded", "job_1")
    put(folder, "spool/op_gone.jsonl", "results/op_gone/1/0.jsonl", *(f"results/{ended}/{n}/0.jsonl" for n in (1, 2)))
    async with running(folder, seed=2):
        pass
    assert {p.stem for p in (folder / "spool").iterdir()} == {ended}
    assert standing(folder / "results") == set()
    assert len(threads) > 4
    assert here not in threads

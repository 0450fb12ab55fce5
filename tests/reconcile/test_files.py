"""Files that survive a cut of the power and a cancel, what a start finds left over, and results of many lines.

Descriptors, folders and rows are the real ones; only the thread that settles a file is held where a test wants it.
"""

import asyncio
import hashlib
import math
import os
import threading
import tracemalloc
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import pytest

from reconcile.collect import Caps, Collector
from reconcile.files import BLOCK, STEP, Files
from reconcile.gathered import Try
from reconcile.model import Operation, Verdict, VerdictKind
from reconcile.states import State
from reconcile.store.items import MAX_NAMED, SLICE, Absentees, ItemRow, ItemSlice
from reconcile.store.starts import SubmittedItem
from reconcile.store.store import Store
from reconcile.store.writer import Hooks
from tests.handlers.ground import PATIENCE, running, until
from tests.reconcile.store.ground import Gate, Ground, opened, operation, record

T = TypeVar("T")
REF: Final = "results/op_1/7/0.jsonl"
#: Ids of a large result, and how long each is.
MANY: Final = 20_000
LENGTH: Final = 200
MIB: Final = 1 << 20


class Threads:
    """A supervisor whose threads tell when they have ended, whoever went away meanwhile."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        raise NotImplementedError

    async def offload(self, function: Callable[[], T]) -> T:
        def run() -> T:
            try:
                return function()
            finally:
                self.ended.set()

        return await asyncio.to_thread(run)


def ready(root: Path, *, hook: Callable[[str, Path], None] | None = None) -> tuple[Files, Threads]:
    threads = Threads()
    files = Files(root, threads, hook)
    files.prepare()
    return files, threads


# ---- a finished file -------------------------------------------------------------------------------------------


async def test_every_folder_above_a_finished_file_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of them may have just been made: without its parent's sync the name is lost with the power."""
    synced: list[int] = []
    plain = os.fsync

    def sync(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        plain(fd)

    monkeypatch.setattr(os, "fsync", sync)
    root = tmp_path / "state"
    files, _ = ready(root)
    writer = files.create(REF)
    writer.write(b"line\n")
    written = await writer.finish()
    path = root / REF
    assert path.read_bytes() == b"line\n"
    assert (written.ref, written.bytes) == (REF, 5)
    folders = [path.parent, path.parent.parent, root / "results", root]
    assert synced[0] == path.stat().st_ino
    assert synced[1:] == [folder.stat().st_ino for folder in folders]
    writer.discard()
    assert path.exists()


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_a_finish_that_was_cancelled_before_a_thread_was_free_leaves_nothing_open_or_behind(
    tmp_path: Path,
) -> None:
    """Clients go away from a disk that keeps every thread waiting, and an upload may be as large as 1 GiB."""
    files, _ = ready(tmp_path)
    executor, gate = ThreadPoolExecutor(1), threading.Event()
    asyncio.get_running_loop().set_default_executor(executor)
    busy = executor.submit(gate.wait)
    writer = files.create(REF)
    writer.write(b"bytes")
    before = _open_descriptors()
    finishing = asyncio.create_task(writer.finish())
    await asyncio.sleep(0)
    finishing.cancel()
    await asyncio.wait({finishing})
    writer.discard()
    gate.set()
    await asyncio.wrap_future(busy)
    await files.offload(lambda: None)
    assert _open_descriptors() == before - 1
    assert (files.names("tmp"), files.under_way) == ([], set())


@pytest.mark.parametrize("held", ["fsync", "rename"])
async def test_a_cancelled_finish_closes_no_descriptor_that_somebody_else_has_got(tmp_path: Path, held: str) -> None:
    """The thread goes on after the cancel; the number of its descriptor must not be given away under it."""
    reached, go_on = threading.Event(), threading.Event()

    def hold(step: str, _: Path) -> None:
        if step == held:
            reached.set()
            assert go_on.wait(PATIENCE)

    files, threads = ready(tmp_path / "state", hook=hold)
    writer = files.create(REF)
    writer.write(b"line\n")
    finishing = asyncio.create_task(writer.finish())
    assert await asyncio.to_thread(reached.wait, PATIENCE)
    finishing.cancel()
    with suppress(asyncio.CancelledError):
        await finishing
    writer.discard()
    theirs = [os.open(tmp_path / f"other-{n}", os.O_RDWR | os.O_CREAT, 0o600) for n in range(64)]
    try:
        go_on.set()
        assert await asyncio.to_thread(threads.ended.wait, PATIENCE)
        writer.discard()
        for n, fd in enumerate(theirs):
            assert os.fstat(fd).st_ino == (tmp_path / f"other-{n}").stat().st_ino
    finally:
        for fd in theirs:
            with suppress(OSError):
                os.close(fd)
    assert files.read(REF, 0, 9) == b"line\n"
    assert list((tmp_path / "state" / "tmp").iterdir()) == []


def test_a_small_file_is_kept_at_once_by_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret whose name the power cut takes away is one under which things stand already."""
    steps, synced = list[str](), list[int]()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino))
    root = tmp_path / "state"
    files, _ = ready(root, hook=lambda step, _: steps.append(step))
    written = files.keep("audit.key", b"key\n")
    assert (written.ref, written.bytes) == ("audit.key", 4)
    assert steps == ["create", "fsync", "rename", "fsync directory"]
    assert synced == [(root / "audit.key").stat().st_ino, root.stat().st_ino]
    assert ((root / "audit.key").read_bytes(), (root / "audit.key").stat().st_mode & 0o777) == (b"key\n", 0o600)
    assert files.names("tmp") == []
    assert files.under_way == set()


async def test_files_that_come_in_pieces_are_one_result_under_one_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the disk is waited for on the way: else a sync at the end, or beside it, waits for all of a large one."""
    waited: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: waited.append(os.fstat(fd).st_size))
    files, _ = ready(tmp_path / "state")
    digest, whole = hashlib.sha256(), b""
    for n, size in enumerate((3, STEP + 3 * BLOCK // 2)):
        writer = files.create(f"results/op_1/7/{n}.jsonl", digest)
        data = os.urandom(size)
        for first in range(0, size, BLOCK // 3):
            await writer.add(data[first : first + BLOCK // 3])
        assert writer.size == size
        written = await writer.finish()
        whole += data
        assert (written.bytes, written.sha256) == (size, hashlib.sha256(whole).hexdigest())
        assert files.read(f"results/op_1/7/{n}.jsonl", 0, size + 1) == data
    assert len(waited) == 1
    assert STEP <= waited[0] < STEP + 2 * BLOCK


async def test_a_disk_that_is_busy_holds_up_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write into the page cache waits where too much of it is dirty: then the loop goes on, and a cancel too."""
    goes_on, plain = threading.Event(), os.write

    def busy(fd: int, data: bytes) -> int:
        assert goes_on.wait(PATIENCE), "the loop never went on"
        return plain(fd, data)

    files, threads = ready(tmp_path / "state")
    monkeypatch.setattr(os, "write", busy)
    writer = files.create(REF)
    adding = asyncio.create_task(writer.add(bytes(BLOCK)))
    await asyncio.sleep(0.01)
    adding.cancel()
    with suppress(asyncio.CancelledError):
        await adding
    writer.discard()
    goes_on.set()
    assert await asyncio.to_thread(threads.ended.wait, PATIENCE)
    assert [path for path in (tmp_path / "state").rglob("*") if path.is_file()] == []


async def test_what_was_begun_and_dropped_leaves_nothing(tmp_path: Path) -> None:
    """Twice is as good as once."""
    files, _ = ready(tmp_path / "state")
    writer = files.create(REF)
    writer.write(b"line\n")
    for _ in range(2):
        writer.discard()
    assert [path for path in (tmp_path / "state").rglob("*") if path.is_file()] == []


# ---- what a start finds ----------------------------------------------------------------------------------------


async def test_a_start_does_not_wait_for_what_is_left_over_and_removes_it_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tidying stands still while the daemon already serves; then the orphans go, and what has a row stays."""
    folder = tmp_path / "state"
    async with running(folder) as ground:
        known = await ground.start()
    orphans = [folder / "spool" / f"op_gone{n}.jsonl" for n in range(20)]
    orphans += [folder / "results" / f"op_gone{n}" / "1" / "0.jsonl" for n in range(20)]
    for path in orphans:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}\n")
    gate, plain = asyncio.Event(), Store.missing

    async def held(self: Store, operation_ids: Sequence[str]) -> set[str]:
        await gate.wait()
        return await plain(self, operation_ids)

    monkeypatch.setattr(Store, "missing", held)
    async with asyncio.timeout(PATIENCE), running(folder, seed=2) as ground:
        assert all(path.exists() for path in orphans)
        fresh = await ground.start()
        gate.set()

        async def is_tidy() -> bool:
            return not any(path.exists() or path.parent.name.startswith("op_gone") for path in orphans[:20])

        await until(is_tidy)

        async def is_tidy_too() -> bool:
            return not any((folder / "results" / f"op_gone{n}").exists() for n in range(20))

        await until(is_tidy_too)
        assert sorted(path.stem for path in (folder / "spool").iterdir()) == sorted([known, fresh])


async def test_a_start_that_comes_while_the_left_over_is_removed_keeps_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file stands before its row does: what was not there when the daemon began is nobody's orphan."""
    folder = tmp_path / "state"
    async with running(folder):
        pass
    orphan = folder / "spool" / "op_gone.jsonl"
    orphan.write_bytes(b"{}\n")
    tidy, plain = asyncio.Event(), Store.missing

    async def held(self: Store, operation_ids: Sequence[str]) -> set[str]:
        await tidy.wait()
        return await plain(self, operation_ids)

    monkeypatch.setattr(Store, "missing", held)
    hooks, commit = Hooks(), Gate()
    async with running(folder, seed=2, hooks=hooks) as ground:
        hooks.before_commit = commit
        starting = asyncio.create_task(ground.start())
        await commit.reached()
        assert len(list((folder / "spool").iterdir())) == 2
        tidy.set()

        async def is_gone() -> bool:
            return not orphan.exists()

        await until(is_gone)
        upkeep = [task for task in asyncio.all_tasks() if task.get_name() == "upkeep"]
        if upkeep:
            await asyncio.wait(upkeep, timeout=PATIENCE)
        commit.open()
        operation_id = await starting
        assert [path.stem for path in (folder / "spool").iterdir()] == [operation_id]


# ---- results of many lines -------------------------------------------------------------------------------------


def name(kind: str, n: int) -> str:
    return f"{kind}-{n:06d}-".ljust(LENGTH, "x")


async def index(ground: Ground, ids: list[str], attempt: int = 1) -> None:
    for first in range(0, len(ids), SLICE):
        rows = [
            ItemRow(item_id, n, "succeeded", "", 0, n * 10, 9)
            for n, item_id in enumerate(ids[first : first + SLICE], first + 1)
        ]
        await ground.store.index(ItemSlice("op_1", attempt, tuple(rows)))


async def submit(ground: Ground, count: int) -> Operation:
    op = operation(1, State.RESULT_COLLECTING, input_items=count)
    items = [SubmittedItem(name("sent", n), n * 10, 9) for n in range(count)]
    await ground.store.start(record(op, items=items))
    return op


def collector(ground: Ground) -> Collector:
    nobody = cast("Any", None)
    return Collector(client=nobody, store=ground.store, files=nobody, clock=nobody, caps=Caps(0, 0, 0))


@pytest.mark.parametrize("count", [MANY, MANY + 1])
async def test_absent_items_are_written_slice_by_slice_and_asked_for_once(tmp_path: Path, count: int) -> None:
    """As many writes as there are slices, and one more that finds no rest."""
    async with opened(tmp_path / "reconciled.db") as ground:
        op = await submit(ground, count)
        before = ground.store.commits
        collected = await collector(ground)._add_up(Try(op, 1), Verdict(VerdictKind.EXPIRED, "expired"))
        assert ground.store.commits - before <= math.ceil(count / SLICE) + 1
        assert collected.summary.expired == collected.summary.total == count
        assert ground.one("SELECT count(*) FROM items WHERE attempt = 1") == count


async def test_a_slice_of_absent_items_begins_where_the_last_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each slice would walk over all that the earlier ones wrote."""
    async with opened(tmp_path / "reconciled.db") as ground:
        op = await submit(ground, 3 * SLICE)
        asked: list[str] = []
        plain = ground.store.index_absent

        async def index_absent(wish: Absentees) -> tuple[int, str]:
            asked.append(wish.after)
            return await plain(wish)

        monkeypatch.setattr(ground.store, "index_absent", index_absent)
        await collector(ground)._add_up(Try(op, 1), Verdict(VerdictKind.EXPIRED, "expired"))
        assert asked == ["", *(name("sent", n * SLICE - 1) for n in (1, 2, 3))]
        assert await plain(Absentees("op_1", 2, "expired", name("sent", SLICE))) == (SLICE, name("sent", 2 * SLICE))


async def test_adding_up_a_result_of_strangers_holds_none_of_them_in_memory(tmp_path: Path) -> None:
    """A result may name any number of ids that nobody sent: they are counted in SQL, and a few are named."""
    async with opened(tmp_path / "reconciled.db") as ground:
        await submit(ground, 1)
        await index(ground, [name("strange", n) for n in range(MANY)])
        tracemalloc.start()
        try:
            tally = await ground.store.tally("op_1", 1)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert tally.unknown == tuple(name("strange", n) for n in range(MAX_NAMED))
        assert (tally.found, sum(tally.by_outcome.values())) == (0, 0)
        assert peak < MIB


async def test_an_id_that_a_result_repeats_without_end_is_shown_at_its_first_places(tmp_path: Path) -> None:
    async with opened(tmp_path / "reconciled.db") as ground:
        op = await submit(ground, 1)
        await index(ground, [name("sent", 0)] * (MANY // 2))
        served = Operation(**{f: getattr(op, f) for f in op.__dataclass_fields__} | {"collect_attempt": 1})
        places = await ground.store.places(served, name("sent", 0))
        assert [place.start for place in places] == [n * 10 for n in range(1, MAX_NAMED + 1)]

"""Pruning (N44): what ended goes whole behind a signed checkpoint, what is open or unsigned never, whenever we die."""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from reconcile.absence import Served
from reconcile.errors import JobHeld, StoreBusy, WriteRefused
from reconcile.model import Observation, Verdict, VerdictKind
from reconcile.states import TERMINAL, State
from reconcile.store import pruned_events, pruning
from reconcile.store.kept import RequestRecord
from reconcile.store.list_pages import ListedJob, PageRecord
from reconcile.store.pruned_events import IdsKept
from tests.reconcile.rows import DAY, HOUR, NOW
from tests.reconcile.store.aged import (
    FINISHED,
    IDS,
    check_file,
    check_ids,
    check_kept,
    keys_of,
    late_evidence,
    make_world,
    prune,
    sign,
    wish,
    writing,
)
from tests.reconcile.store.ground import (
    Dump,
    Ground,
    Killed,
    beside,
    dump,
    event,
    look,
    opened,
    operation,
    read,
    record,
)

S = State
#: A file system in memory, where there is one: no power is cut here, and thousands of fsyncs would only take time.
MEMORY: Final = Path("/dev/shm")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where files stand; gone afterwards."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    made = Path(tempfile.mkdtemp(prefix="reconciled-pruning-", dir=MEMORY))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def path(folder: Path) -> Path:
    """Where the store's file comes to stand."""
    return folder / "reconciled.db"


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of seven rows, so that small worlds have many."""
    for module in (pruning, pruned_events):
        monkeypatch.setattr(module, "MAX_WEIGHT", 7)


async def signed(path: Path) -> None:
    """A checkpoint over all that stands in the file."""
    async with opened(path) as ground:
        await sign(ground)


def may_go(world: Dump, grown: set[int]) -> set[int]:
    """The keys of what ended long enough ago and did not grow on after the checkpoint; typed from the interface."""
    ended = {key for key, row in keys_of(world).items() if row[9] is not None and row[9] <= NOW - FINISHED}
    return ended - grown


# ---- random worlds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("small_slices")
async def test_of_any_world_exactly_what_ended_and_is_signed_goes(path: Path, seed: int) -> None:
    keys = make_world(path, seed)
    await signed(path)
    grown = late_evidence(path, keys, seed)
    before = dump(path)
    goes = may_go(before, grown)
    async with opened(path) as ground:
        counts = await ground.store.event_counts()
        await prune(ground)
        assert await ground.store.event_counts() == counts
        after = ground.dump()
        check_kept(before, after, path, may_go=goes)
        assert keys_of(before).keys() - keys_of(after).keys() == goes
        check_ids(before, after)
        check_file(path)
        await sign(ground)  # signs what grew on, and what was pruned
        check_file(path)
        before = ground.dump()
        await prune(ground)
        check_kept(before, ground.dump(), path, may_go=grown)
        assert all(row[9] is None or row[9] > NOW - FINISHED for row in ground.dump()["operations"])
        await sign(ground)
        check_file(path)


def _set_up(world: Path, copy: Path) -> None:
    for left in copy.parent.glob(f"{copy.name}*"):
        left.unlink()
    shutil.copy(world, copy)


async def _die(path: Path, commit: int, edge: str) -> bool:
    """Prune until the process is killed at one edge of a commit; False where there are not so many."""
    left = [commit]

    def hook(_: sqlite3.Connection) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    async with opened(path) as ground:
        setattr(ground.hooks, f"{edge}_commit", hook)
        if await _is_alive_after(ground):
            return False
    return True


async def _is_alive_after(ground: Ground) -> bool:
    pruning_task = asyncio.create_task(prune(ground))
    await asyncio.wait({pruning_task, ground.writer}, return_when=asyncio.FIRST_COMPLETED)
    if pruning_task.done() and pruning_task.exception() is None:
        return True
    assert isinstance(await ground.fault(), Killed)
    pruning_task.cancel()
    await asyncio.wait({pruning_task})
    return False


@pytest.mark.parametrize("seed", range(100, 106))
@pytest.mark.usefixtures("small_slices")
async def test_killed_at_any_commit_the_file_is_whole_and_the_next_round_goes_on(folder: Path, seed: int) -> None:
    """And in the end it is the same, row for row, as if nobody had died."""
    world, copy = folder / "world.db", folder / "copy.db"
    keys = make_world(world, seed)
    await signed(world)
    grown = late_evidence(world, keys, seed)
    before = dump(world)
    goes = may_go(before, grown)
    shutil.copy(world, copy)
    async with opened(copy) as ground:
        await prune(ground)
    settled = dump(copy)
    deaths = 0
    for edge in ("before", "after"):
        commit = 1
        while True:
            _set_up(world, copy)
            if not await _die(copy, commit, edge):
                break
            deaths += 1
            after = dump(copy)
            check_kept(before, after, copy, may_go=goes)
            check_ids(before, after)
            check_file(copy)
            async with opened(copy) as ground:
                await prune(ground)
            assert dump(copy) == settled
            commit += 1
    assert deaths > 20


# ---- what never goes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [state for state in State if state not in TERMINAL])
async def test_an_open_operation_never_goes_however_old_it_is(path: Path, state: State) -> None:
    with writing(path) as aged:
        aged.operation(1, state, age=900 * DAY)
        aged.items(1, 3)
    await signed(path)
    before = dump(path)
    async with opened(path) as ground:
        await prune(ground)
    assert dump(path) == before


async def test_one_that_has_a_row_in_the_schedule_is_open_whatever_else_it_says(path: Path) -> None:
    with writing(path) as aged:
        key = aged.operation(1)
        aged.connection.execute(
            "INSERT INTO schedule (key, provider, priority, due_at) VALUES (?, 'test', 5, 1)", (key,)
        )
    await signed(path)
    before = dump(path)
    async with opened(path) as ground:
        await prune(ground)
    assert dump(path) == before


async def test_what_ended_a_moment_too_late_stays(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1, age=FINISHED - 1)
        aged.operation(2, age=FINISHED)
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        assert ground.look("SELECT operation_id FROM operations") == [("op_1",)]


async def test_nothing_goes_that_no_checkpoint_has_signed(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1)
    async with opened(path) as ground:
        await prune(ground)
        assert ground.one("SELECT count(*) FROM operations") == 1
        await sign(ground)
        await prune(ground)
        assert ground.one("SELECT count(*) FROM operations") == 0


async def test_late_evidence_waits_for_the_next_checkpoint(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1)
        keys = aged.keys
    await signed(path)
    with writing(path, keys) as aged:
        aged.history(1)
    async with opened(path) as ground:
        await prune(ground)
        assert ground.one("SELECT count(*) FROM operations") == 1
        await sign(ground)
        await prune(ground)
        assert ground.look("SELECT operation_id, seq, behind FROM pruned") == [("op_1", 3, 2)]


async def test_a_row_that_was_altered_stays_to_be_named(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1)
        keys = aged.keys
    await signed(path)
    with writing(path, keys) as aged:
        aged.connection.execute("UPDATE operations SET head = ?", ("f" * 64,))
    async with opened(path) as ground:
        await prune(ground)
        assert ground.one("SELECT count(*) FROM operations") == 1


async def test_the_file_itself_lets_no_open_operation_go(path: Path) -> None:
    """Whoever asks, and whatever the SQL of the asking was."""
    with writing(path) as aged:
        aged.operation(1, S.OBSERVING)
        aged.operation(2)
        aged.operation(3)
        aged.history(3)
    await signed(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as c:
        head = "INSERT INTO pruned SELECT operation_id, seq, head, 1, 1, NULL, key FROM operations WHERE key = ?"
        for key in (1, 2, 3):
            with pytest.raises(sqlite3.IntegrityError, match="is only pruned"):
                c.execute("DELETE FROM operations WHERE key = ?", (key,))
        with pytest.raises(sqlite3.IntegrityError, match="head is signed"):
            c.execute(head, (1,))
        with pytest.raises(sqlite3.IntegrityError, match="head is signed"):
            c.execute("INSERT INTO pruned VALUES ('op_2', 1, ?, 1, 1, NULL, 2)", ("f" * 64,))
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            c.execute("UPDATE operations SET leaving = 1 WHERE key = 1")
        with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
            c.execute(
                "INSERT INTO pruned SELECT operation_id, seq, head, 1, 1, NULL, NULL FROM operations WHERE key = 2"
            )
        c.execute(head, (2,))


async def test_one_whose_notice_nobody_has_acknowledged_stays_until_the_notice_is_as_old(path: Path) -> None:
    """A person must have been able to see it."""
    with writing(path) as aged:
        for n, age in ((1, FINISHED - 1), (2, FINISHED), (3, 0), (4, 0)):
            aged.operation(n, age=300 * DAY)
            aged.notice(n, age=age)
        aged.connection.execute(
            "UPDATE notices SET acknowledged_at = 1, acknowledged_by = 'me' WHERE operation_key = ?", (aged.keys[3],)
        )
        aged.operation(5)
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        assert ground.look("SELECT operation_id FROM operations ORDER BY key") == [("op_1",), ("op_4",)]
        assert ground.one("SELECT count(*) FROM notices") == 2


async def test_one_of_which_a_callback_is_still_to_be_told_stays_until_that_has_waited_as_long(path: Path) -> None:
    """Its callback may be back tomorrow; but one that never comes back keeps nothing for ever."""
    with writing(path) as aged:
        for n, due_in in ((1, HOUR), (2, 0), (3, 1 - FINISHED), (4, -FINISHED)):
            aged.operation(n, age=300 * DAY)
            aged.delivery(n, "waiting", due_in=due_in)
        for n, state in ((5, "delivered"), (6, "exhausted")):
            aged.operation(n, age=300 * DAY)
            aged.delivery(n, state)
        aged.operation(7)
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        left = [operation_id for (operation_id,) in ground.look("SELECT operation_id FROM operations ORDER BY key")]
        assert left == ["op_1", "op_2", "op_3"]
        assert ground.one("SELECT count(*) FROM deliveries") == 3


# ---- what cannot go --------------------------------------------------------------------------------------------------

#: What makes the file refuse one operation, or makes its row one that cannot be read.
STICKING: Final = {
    "a trigger": "CREATE TRIGGER sticks BEFORE DELETE ON starts WHEN OLD.operation_key = {key}"
    " BEGIN SELECT RAISE(ABORT, 'it sticks'); END",
    "a foreign key": "CREATE TABLE sticks AS SELECT {key} AS key; DROP TABLE sticks;"
    " CREATE TABLE sticks (key INTEGER REFERENCES operations (key)); INSERT INTO sticks VALUES ({key})",
    "no JSON": "UPDATE operations SET living = '{{it sticks}}' WHERE key = {key}",
}


@pytest.mark.parametrize("how", STICKING)
async def test_one_that_cannot_go_is_passed_over_and_named_and_all_others_go(path: Path, how: str) -> None:
    """Wherever it stands among them, with whatever hangs on it: nothing of it is touched."""
    count = 2 * pruning.MAX_OPERATIONS
    with writing(path) as aged:
        for n in range(1, count + 1):
            aged.operation(n, age=(200 - n) * DAY)
            aged.items(n, 3)
        keys = aged.keys
    await signed(path)
    with closing(sqlite3.connect(path)) as c:
        c.executescript(STICKING[how].format(key=keys[5]))
    async with opened(path) as ground:
        for _ in range(2):
            done = await prune(ground)
            assert [one.operation_id for each in done for one in each.refused] == ["op_5"]
            assert ground.look("SELECT operation_id, leaving FROM operations") == [("op_5", 0)]
            assert ground.look("SELECT count(*), min(operation_key) FROM items") == [(3, keys[5])]
            assert ground.look("SELECT count(*) FROM pruned") == [(count - 1,)]
    assert sum(each.count for each in done) == 0


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("how", STICKING)
@pytest.mark.usefixtures("small_slices")
async def test_a_large_one_that_cannot_go_keeps_no_other_whether_it_leaves_already_or_not(
    path: Path, how: str, leaves: bool
) -> None:
    with writing(path) as aged:
        for n in range(1, 6):
            aged.operation(n, age=(200 - n) * DAY)
            aged.items(n, 30 if n < 5 else 0)
        keys = aged.keys
    await signed(path)
    with closing(sqlite3.connect(path)) as c:
        c.executescript(STICKING[how].format(key=keys[2]))
        c.execute("UPDATE operations SET leaving = 1 WHERE key IN (?, ?)", (keys[2] if leaves else 0, keys[4]))
        c.commit()
    async with opened(path) as ground:
        for _ in range(2):
            done = await prune(ground)
            assert [one.operation_id for each in done for one in each.refused] == ["op_2"]
            begins = leaves or how != "no JSON"
            assert ground.look("SELECT operation_id, leaving FROM operations") == [("op_2", int(begins))]


async def test_a_slice_that_a_full_disk_ends_is_lost_whole_and_blames_nobody(path: Path) -> None:
    with writing(path) as aged:
        for n in range(1, 4):
            aged.operation(n)
    await signed(path)
    before = dump(path)
    async with opened(path) as ground:

        def no_room(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA max_page_count = 1")

        ground.hooks.before_begin = no_room
        full = "CREATE TRIGGER fills BEFORE DELETE ON starts BEGIN INSERT INTO client_keys"
        with beside(path, writes=True) as c:
            c.execute(f"{full} SELECT hex(randomblob(90000)), '', OLD.operation_key, 1; END")
        with pytest.raises(StoreBusy):
            await ground.store.record.prune(wish())
        with beside(path, writes=True) as c:
            c.execute("DROP TRIGGER fills")
    assert dump(path) == before


# ---- what goes -------------------------------------------------------------------------------------------------------


async def test_an_operation_goes_with_all_that_hangs_on_it_and_leaves_its_head(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1, input_ref="spool/op_1.jsonl")
        aged.items(1, 5)
        aged.observation(1, aged.request(1))
        aged.event(1, age=100 * DAY)
        aged.notice(1)
        aged.delivery(1)
        aged.client_key(1)
        aged.operation(2, S.OBSERVING)
    await signed(path)
    ((key, seq, head),) = look(path, "SELECT key, seq, head FROM operations WHERE operation_id = 'op_1'")
    async with opened(path) as ground:
        first, second = await prune(ground)
        assert first.count == 1
        assert [(gone.operation_id, gone.inputs) for gone in first.leaving] == [("op_1", ("spool/op_1.jsonl",))]
        assert second.has_gone_on is False
        assert ground.look("SELECT * FROM pruned") == [("op_1", seq, head, NOW, 1, None, key)]
        left = {table: len(rows) for table, rows in ground.dump().items()}
        assert (left["items"], left["observations"], left["requests"], left["events"], left["event_ids"]) == (0,) * 5
        assert (left["notices"], left["client_keys"], left["operations"], left["starts"]) == (0, 0, 1, 1)
        await sign(ground)
        assert ground.look("SELECT checkpoint FROM pruned") == [(2,)]
    check_file(path)


async def test_after_the_newest_history_is_pruned_checkpoints_still_cover_it(path: Path) -> None:
    """Its positions were given; the next checkpoint must not seem to cover less than the last."""
    with writing(path) as aged:
        aged.operation(1)
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        again = await sign(ground)
        assert again is not None
        assert (again.checkpoint.position, again.checkpoint.pruned) == (2, 1)
        await ground.start(operation(2))
        assert ground.look("SELECT min(position) FROM history") == [(3,)]
        await sign(ground)
    check_file(path)


async def test_a_slice_takes_a_few_hundred_rows_and_pages_at_most(path: Path) -> None:
    with writing(path) as aged:
        for n in range(1, 101):
            aged.operation(n)
            aged.items(n, 10)
        aged.operation(200)
        aged.items(200, 3 * pruned_events.MAX_WEIGHT)
        for _ in range(40):
            aged.observation(200, size=60_000)
            aged.event(200, age=0, size=40_000)
    await signed(path)
    async with opened(path) as ground:
        changed: list[int] = []
        ground.hooks.before_begin = lambda c: changed.append(-c.total_changes)
        ground.hooks.after_commit = lambda c: changed.append(c.total_changes)
        done = await prune(ground)
        slices = [a + b for a, b in zip(changed[::2], changed[1::2], strict=True)]
        # Each row that goes may write one more: a head, an id that is kept, a hash that is counted.
        assert max(slices) < 1.3 * pruned_events.MAX_WEIGHT
        assert len(done) > 10
        freed = 40 * (60_000 + 40_000) // 4096
        assert (
            len([each for each in done if each.count == 0])
            > (3 * pruned_events.MAX_WEIGHT + freed) / pruned_events.MAX_WEIGHT
        )


async def test_one_value_longer_than_a_slice_goes_all_the_same(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1)
        aged.event(1, age=0, size=(pruned_events.MAX_WEIGHT + 50) * 4096)
        aged.observation(1, size=(pruned_events.MAX_WEIGHT + 50) * 4096)
        aged.operation(2, S.OBSERVING)
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        assert ground.look("SELECT operation_id FROM operations") == [("op_2",)]


async def test_a_list_pages_request_moves_on_to_an_operation_that_still_names_it(path: Path) -> None:
    """N9: the evidence of those that stay dangles nowhere; with the last of them it goes."""
    with writing(path) as aged:
        aged.operation(1)
        aged.operation(2, S.OBSERVING)
        aged.operation(3, age=FINISHED - 1)
        shared, alone = aged.page(1, 2, 3), aged.page(1)
        key_of_2 = aged.keys[2]
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        assert ground.look("SELECT request_id, operation_key FROM requests") == [(shared, key_of_2)]
        assert alone != shared
    check_file(path)


async def test_a_list_pages_request_moves_on_to_the_first_of_those_that_name_it(path: Path) -> None:
    """The same file comes to the same rows, in whatever order the page told of them."""
    with writing(path) as aged:
        aged.operation(1)
        for n in (2, 3, 4):
            aged.operation(n, S.OBSERVING)
        aged.page(1, 4, 2, 3)
        key_of_2 = aged.keys[2]
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        assert ground.look("SELECT operation_key FROM requests") == [(key_of_2,)]


@pytest.mark.usefixtures("small_slices")
async def test_a_large_ones_page_moves_on_too(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1)
        aged.operation(2, S.OBSERVING)
        pages = {aged.page(1, 2) for _ in range(20)}
        key_of_2 = aged.keys[2]
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        assert dict(ground.look("SELECT request_id, operation_key FROM requests")) == dict.fromkeys(pages, key_of_2)
    check_file(path)


# ---- while one leaves ------------------------------------------------------------------------------------------------


async def _half_gone(path: Path) -> dict[int, int]:
    """op_1 on its way out, its history and half of its items still there."""
    with writing(path) as aged:
        aged.operation(1)
        aged.client_key(1)
        aged.notice(1)
        aged.items(1, 2 * pruned_events.MAX_WEIGHT)
        aged.operation(2, S.OBSERVING)
        keys = aged.keys
    await signed(path)
    async with opened(path) as ground:
        done = await ground.store.record.prune(wish())
        assert (done.count, done.has_gone_on) == (0, True)
        assert [gone.operation_id for gone in done.leaving] == ["op_1"]
        assert ground.look("SELECT operation_id, leaving FROM operations") == [("op_1", 1), ("op_2", 0)]
        assert 0 < ground.one("SELECT count(*) FROM items") < 2 * pruned_events.MAX_WEIGHT
    return keys


async def test_one_that_leaves_is_shown_to_nobody(path: Path) -> None:
    await _half_gone(path)
    async with opened(path) as ground:
        store = ground.store
        assert await store.get("op_1") is None
        assert [op.operation_id for op in await store.find(after=None, limit=9, is_open=None)] == ["op_2"]
        assert await store.find(after=None, limit=9, is_open=False) == []
        assert await store.counts() == {"observing": 1}
        assert await store.notices() == []
        assert await store.missing(["op_1", "op_2", "op_3"]) == {"op_1", "op_3"}
        removed = await store.was_pruned("op_1")
        assert removed is not None
        assert removed.at is None


async def test_a_client_key_of_one_that_leaves_starts_anew_and_its_job_can_be_adopted(path: Path) -> None:
    await _half_gone(path)
    async with opened(path) as ground:
        again = await ground.store.start(record(operation(7), client_key="key-1", content="other"))
        assert (again.is_new, again.operation.operation_id) == (True, "op_7")
        adopting = operation(8, S.ACCEPTED, remote_job_id="job_1", adopted=True)
        adopted = await ground.store.start(record(adopting))
        assert adopted.operation.parent is None
        with pytest.raises(JobHeld):
            await ground.store.start(record(operation(9, S.ACCEPTED, remote_job_id="job_1", adopted=True)))
        await prune(ground)
        assert ground.look("SELECT operation_id FROM operations") == [("op_2",), ("op_7",), ("op_8",)]
    check_file(path)


async def test_deliveries_and_pages_that_tell_of_one_that_leaves_are_taken_and_move_nothing(path: Path) -> None:
    """A row that takes no evidence any more must not make a delivery, or a whole page of others' news, unwelcome."""
    await _half_gone(path)
    async with opened(path) as ground:
        assert await ground.store.receive(event("late", "failed", "job_1")) == "new"
        assert ground.look("SELECT operation_key, disposition FROM events") == [(None, "unmatched")]
        jobs = tuple(
            ListedJob(Observation(word, remote_job_id=job), Verdict(kind, word), b"{}")
            for job, word, kind in (("job_1", "failed", VerdictKind.FAILED), ("job_2", "queued", VerdictKind.PENDING))
        )
        page = PageRecord(
            "test",
            "A",
            1,
            served=Served({"test": frozenset({"https://x"})}),
            at=NOW,
            draw=0.5,
            request=RequestRecord("req_page", "list", 1, NOW, NOW, 200, None, None, "key"),
            page_id="p",
            jobs=jobs,
        )
        kept = await ground.store.sweeps.keep_page(page)
        assert kept.seen == (2,)
        with pytest.raises(WriteRefused):
            await ground.apply(1, read("failed"))


async def test_one_that_leaves_goes_even_if_it_would_now_be_kept_for_longer(path: Path) -> None:
    """Half of it cannot be given back."""
    await _half_gone(path)
    async with opened(path) as ground:
        done = await ground.store.record.prune(wish(ended_before=NOW - 900 * DAY))
        while done.has_gone_on:
            done = await ground.store.record.prune(wish(ended_before=NOW - 900 * DAY))
        assert ground.look("SELECT operation_id FROM operations") == [("op_2",)]
    check_file(path)


# ---- places ----------------------------------------------------------------------------------------------------------


async def test_a_list_goes_on_after_an_operation_that_is_gone(path: Path) -> None:
    with writing(path) as aged:
        for n in range(1, 7):
            aged.operation(n, age=(100 if n in (3, 5) else 1) * DAY)
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        for after, left in (("op_5", ["op_4", "op_2", "op_1"]), ("op_3", ["op_2", "op_1"]), ("op_4", ["op_2", "op_1"])):
            found = await ground.store.find(after=after, limit=9, is_open=None)
            assert [op.operation_id for op in found] == left
        assert await ground.store.has_place("op_3")
        assert not await ground.store.has_place("op_9")


async def test_the_place_of_the_newest_one_is_given_again_and_nothing_is_confused(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1, age=DAY)
        last = aged.operation(2)
        aged.items(2, 4)
        aged.observation(2, aged.request(2))
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        await ground.start(operation(3))
        assert ground.one("SELECT key FROM operations WHERE operation_id = 'op_3'") == last
        assert await ground.store.observations("op_3") == []
        assert await ground.store.items(await ground.get(3)) == []
        assert len(await ground.store.history("op_3")) == 1
        found = await ground.store.find(after="op_2", limit=9, is_open=None)
        assert [op.operation_id for op in found] == ["op_1"], "what follows the old one, not the new one"
        removed = await ground.store.was_pruned("op_2")
        assert removed is not None
        assert removed.at == NOW
        assert await ground.store.was_pruned("op_3") is None
    check_file(path)


# ---- ids of events ---------------------------------------------------------------------------------------------------


async def _with_pruned_event(path: Path, age: int, *, event_id: str = "evt") -> None:
    with writing(path) as aged:
        aged.operation(1)
        aged.event(1, age=age, event_id=event_id)
        aged.operation(2, S.OBSERVING)
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        assert ground.one("SELECT count(*) FROM events") == 0


async def test_a_late_repeat_of_a_pruned_event_is_a_duplicate_and_writes_nothing_but_its_count(path: Path) -> None:
    await _with_pruned_event(path, IDS - 1)
    repeat = event("evt", "running", "job", body_sha256="evt running job")
    async with opened(path) as ground:
        before, counts = ground.dump(), await ground.store.event_counts()
        assert [await ground.store.receive(repeat) for _ in range(3)] == ["duplicate"] * 3
        after = ground.dump()
        assert {table for table in before if before[table] != after[table]} == {"pruned_events"}
        counts["test"]["duplicate"] += 3
        assert await ground.store.event_counts() == counts


async def test_the_same_id_with_other_content_is_still_noticed(path: Path) -> None:
    await _with_pruned_event(path, IDS - 1)
    async with opened(path) as ground:
        assert await ground.store.receive(event("evt", "failed", "job_2")) == "new"
        assert ground.look("SELECT disposition FROM events") == [("contradiction",)]
        assert ("contradiction", None) in await ground.history(2)


async def test_so_it_is_where_its_job_becomes_known_later(path: Path) -> None:
    await _with_pruned_event(path, IDS - 1)
    async with opened(path) as ground:
        assert await ground.store.receive(event("evt", "failed", "job_5")) == "new"
        await ground.start(operation(5, S.ACCEPTED, adopted=True))
        assert ground.look("SELECT disposition FROM events") == [("contradiction",)]


async def test_an_id_is_free_only_when_no_repeat_can_come_any_more(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1)
        for age in (0, DAY, IDS - 1, IDS, IDS + 1, 90 * DAY):
            aged.event(1, age=age, event_id=f"evt_{age}")
    await signed(path)
    async with opened(path) as ground:
        await prune(ground)
        left = {row[0] for row in ground.look("SELECT event_id FROM event_ids")}
        assert left == {f"evt_{age}" for age in (0, DAY, IDS - 1)}
        later = IdsKept({"test": NOW - DAY}, 0)
        assert await ground.store.record.prune_event_ids(later) == 2
        assert ground.look("SELECT event_id FROM event_ids") == [("evt_0",)]


async def test_a_provider_that_nobody_knows_keeps_its_ids_as_long_as_the_longest(path: Path) -> None:
    await _with_pruned_event(path, DAY)
    async with opened(path) as ground:
        assert await ground.store.record.prune_event_ids(IdsKept({"other": NOW}, NOW - 2 * DAY)) == 0
        assert await ground.store.record.prune_event_ids(IdsKept({"other": NOW}, NOW - DAY)) == 1


async def test_events_of_nobodys_jobs_go_after_their_time_and_stay_counted(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1, S.OBSERVING)
        kept = {aged.event(None, age=0), aged.event(None, age=30 * DAY - 1), aged.event(1, age=300 * DAY)}
        aged.event(None, age=30 * DAY)
        aged.event(None, age=300 * DAY, repeats=4)
    async with opened(path) as ground:
        counts = await ground.store.event_counts()
        assert counts["test"] == {"accepted": 5, "duplicate": 4, "unmatched": 4, "last_at": NOW}
        await prune(ground)
        assert {row[0] for row in ground.look("SELECT event_id FROM events")} == kept
        assert await ground.store.event_counts() == counts


# ---- a lost create ---------------------------------------------------------------------------------------------------


async def test_the_oldest_create_whose_job_is_looked_for_is_known(path: Path) -> None:
    with writing(path) as aged:
        aged.operation(1, S.OBSERVING, age=900 * DAY)
        aged.operation(2, S.CREATE_UNKNOWN, age=10 * DAY)
        aged.operation(3, S.ABANDONED, age=800 * DAY, remote_job_id=None)
        aged.operation(4, S.OBSERVING, age=20 * DAY, resends=1)
        aged.operation(5, S.OBSERVING, age=30 * DAY, restored=True)
        aged.operation(6, S.OBSERVING, age=40 * DAY)
        keys = aged.keys
        aged.connection.execute("UPDATE operations SET living = '{no JSON}' WHERE key = ?", (keys[6],))
    async with opened(path) as ground:
        assert await ground.store.record.oldest_unsettled() == NOW - 41 * DAY, "it may be such a one"
    with beside(path, writes=True) as c:
        c.execute("DELETE FROM schedule WHERE key = ?", (keys[6],))
    async with opened(path) as ground:
        assert await ground.store.record.oldest_unsettled() == NOW - 31 * DAY
    with beside(path, writes=True) as c:
        c.execute("DELETE FROM schedule WHERE key = ?", (keys[5],))
    async with opened(path) as ground:
        assert await ground.store.record.oldest_unsettled() == NOW - 21 * DAY
    with beside(path, writes=True) as c:
        c.execute("DELETE FROM schedule WHERE key IN (?, ?)", (keys[2], keys[4]))
    async with opened(path) as ground:
        assert await ground.store.record.oldest_unsettled() is None

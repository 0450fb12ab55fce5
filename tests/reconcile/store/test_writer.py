"""The group commit: one transaction for all that wait, an answer after it, and no neighbour harmed by a bad write."""

import asyncio
import gc
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import aiosqlite
import pytest

from reconcile.errors import StoreBroken, StoreBusy, WriteRefused
from reconcile.states import State
from reconcile.store import writer
from reconcile.store.claims import ClaimWish, Renewal
from reconcile.store.evidence import Arrival
from reconcile.store.items import Absentees, Doubled, ItemRow, ItemSlice
from reconcile.store.starts import SubmittedItem
from reconcile.store.writer import MAX_BATCH, OPEN_SECONDS
from tests.conformance.owner import PATIENCE
from tests.conformance.values import judge_that_fails_for
from tests.reconcile.rows import NOW
from tests.reconcile.store.ground import (
    LEASE,
    Gate,
    Ground,
    Killed,
    Statements,
    accepted,
    answers,
    arrival,
    beside,
    content,
    database_error,
    event,
    exchange,
    killed,
    look,
    once,
    opened,
    operation,
    raising,
    read,
    record,
    setting,
    together,
)

Write = Coroutine[Any, Any, Any]
UNBOUND: Final = 2**63
HALF: Final = "half \ud800"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store's file comes to stand."""
    return tmp_path / "reconciled.db"


# ---- one transaction ----


async def test_writes_of_every_kind_that_wait_are_committed_in_one_transaction(path: Path) -> None:
    commits: list[int] = []
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        before = ground.store.commits
        ground.hooks.after_commit = lambda _: commits.append(1)
        results = await together(
            *(ground.store.start(record(operation(n))) for n in range(3, 40)),
            *(ground.store.receive(event(f"evt_{n}", job="job_1")) for n in range(40)),
            ground.store.apply(arrival(2, read("done", 2))),
            ground.store.claim(ClaimWish("A", NOW, LEASE, {"test": 5})),
            ground.store.index(ItemSlice("op_1", 1, (ItemRow("a", 1, "succeeded", "", 0, 0, 1),))),
        )
        assert [r for r in results if isinstance(r, BaseException)] == []
        assert commits == [1]
        assert ground.store.commits == before + 1
        assert ground.one("SELECT count(*) FROM operations") == 39
        assert ground.one("SELECT count(*) FROM events") == 40


async def test_a_transaction_takes_no_more_writes_than_its_cap(path: Path) -> None:
    async with opened(path) as ground:
        results = await together(*(ground.store.receive(event(f"evt_{n}")) for n in range(2 * MAX_BATCH + 1)))
        assert set(results) == {"new"}
        assert [len(done) for done in ground.heard] == [MAX_BATCH, MAX_BATCH, 1]


async def test_a_batch_is_closed_although_each_turn_of_the_loop_brings_another_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who came first would wait for five hundred others, half a second on a busy loop.

    The loop's clock, which the writer reads, is ours meanwhile: a turn takes a millisecond of it, whatever it takes in
    truth.
    """
    loop = asyncio.get_running_loop()
    began, turns = loop.time(), 0
    async with opened(path) as ground:
        with monkeypatch.context() as patched:
            patched.setattr(loop, "time", lambda: began + turns / 1000)
            writes: list[asyncio.Task[str]] = []
            for turns in range(100):
                writes.append(asyncio.create_task(ground.store.receive(event(f"evt_{turns}"))))
                await asyncio.sleep(0)
        assert set(await answers(writes)) == {"new"}
        assert OPEN_SECONDS * 1000 - 2 <= len(ground.heard[0]) <= OPEN_SECONDS * 1000 + 2


# ---- answered after the commit ----


# ---- neighbours of a bad write (N41) ----


@dataclass(frozen=True)
class Writes:
    """How writes of one kind look: good ones each with its own result, and bad ones by their fault."""

    set_up: Callable[[Ground], Awaitable[None]]
    good: Callable[[Ground, int], Write]
    #: What the n-th good write is answered, made comparable.
    result: Callable[[Any], Any]
    expected: Callable[[int], Any]
    #: A query that counts what good writes left behind.
    traces: str
    bad: dict[str, Callable[[Ground], Write]]


async def _nothing(_: Ground) -> None:
    pass


async def _four_open(ground: Ground) -> None:
    await ground.start(*(operation(n) for n in (1, 2, 3, 4)), operation(9, State.CREATE_PENDING))


async def _four_leased(ground: Ground) -> None:
    await ground.start(*(operation(n) for n in (1, 2, 3, 4)))
    assert len((await ground.claim(room=4)).claims) == 4


async def _four_indexed(ground: Ground) -> None:
    sent = tuple(SubmittedItem(f"item_{n}", 0, 1) for n in range(4))
    await together(*(ground.store.start(record(operation(n), items=sent)) for n in (1, 2, 3, 4)))
    for n in (1, 2, 3, 4):
        rows = tuple(ItemRow(f"item_{i}", i + 1, "failed", "", 0, 0, 1) for i in range(n))
        await ground.store.index(ItemSlice(f"op_{n}", 1, rows))


def _requested(**over: Any) -> Callable[[Ground], Write]:
    """Evidence whose request record holds a value that cannot be kept."""
    given = exchange("bad")
    requests = (replace(given["requests"][0], **over),)
    return lambda g: g.store.apply(arrival(9, accepted("job_9"), **{**given, "requests": requests}))


def _claims(owner: Any = "B", now: Any = NOW) -> Callable[[Ground], Write]:
    return lambda g: g.store.claim(ClaimWish(owner, now, LEASE, {"test": 1}))


def _renews(owner: Any = "A", until: Any = NOW + 2 * LEASE) -> Callable[[Ground], Write]:
    return lambda g: g.store.renew([Renewal("op_1", owner, 1, until)])


def _indexes(**over: Any) -> Callable[[Ground], Write]:
    row = ItemRow("bad", 1, "succeeded", "", 0, 0, 1)._replace(**over)
    return lambda g: g.store.index(ItemSlice("op_1", 1, (ItemRow("good", 1, "failed", "", 0, 0, 1), row)))


def _index_good(g: Ground, n: int) -> Write:
    return g.store.index(ItemSlice(f"op_{n}", 1, (ItemRow("a", 1, "succeeded", "", 0, 0, 1),)))


def _absent(attempt: Any = 1, outcome: Any = "missing") -> Callable[[Ground], Write]:
    return lambda g: g.store.index_absent(Absentees("op_1", attempt, outcome))


KINDS: Final = {
    "start": Writes(
        _four_open,
        lambda g, n: g.store.start(record(operation(n + 10))),
        lambda started: (started.operation.operation_id, started.is_new),
        lambda n: (f"op_{n + 10}", True),
        "SELECT count(*) FROM operations JOIN history ON operation_key = key WHERE operation_id > 'op_10'"
        " AND operation_id < 'op_15'",
        {
            "constraint": lambda g: g.store.start(record(operation(20, token="tok_1"))),
            "surrogate": lambda g: g.store.start(record(operation(20, type=HALF))),
            "too_large": lambda g: g.store.start(record(operation(20, created_at=UNBOUND))),
            "object": lambda g: g.store.start(record(operation(20, fingerprint=object()))),
        },
    ),
    "evidence": Writes(
        _four_open,
        lambda g, n: g.store.apply(arrival(n, read("done", n), **exchange(f"good_{n}"))),
        lambda change: (change.operation.operation_id, change.operation.state),
        lambda n: (f"op_{n}", State.RESULT_COLLECTING),
        "SELECT count(*) FROM history JOIN observations o USING (operation_key)"
        " WHERE to_state = 'result_collecting' AND o.observation_id LIKE 'obs_good_%'",
        {
            "constraint": _requested(purpose=None),
            "surrogate": _requested(remote_request_id=HALF),
            "too_large": _requested(status=UNBOUND),
            "object": _requested(credential=object()),
            "surrogate in history": lambda g: g.store.apply(arrival(9, accepted("job_9"), actor=HALF)),
            "no such operation": lambda g: g.store.apply(arrival(77, read("done"))),
        },
    ),
    "events": Writes(
        _four_open,
        lambda g, n: g.store.receive(event(f"evt_{n}", job=f"job_{n}")),
        lambda answer: answer,
        lambda _: "new",
        "SELECT count(*) FROM events WHERE event_id LIKE 'evt_%' AND operation_key IS NOT NULL AND duplicates = 0",
        {
            "constraint": lambda g: g.store.receive(event("bad", body=None)),
            "surrogate": lambda g: g.store.receive(event(HALF)),
            "too_large": lambda g: g.store.receive(event("bad", received_at=UNBOUND)),
            "object": lambda g: g.store.receive(event("bad", body=object())),
        },
    ),
    "claim": Writes(
        _four_open,
        lambda g, n: g.store.claim(ClaimWish(f"owner_{n}", NOW, LEASE, {"test": 1})),
        lambda claimed: len(claimed.claims),
        lambda _: 1,
        "SELECT count(DISTINCT lease_owner) FROM schedule WHERE lease_owner LIKE 'owner_%'",
        {
            "constraint": _claims(owner=None),
            "surrogate": _claims(owner=HALF),
            "too_large": _claims(now=UNBOUND),
            "object": _claims(owner=object()),
        },
    ),
    "renew": Writes(
        _four_leased,
        lambda g, n: g.store.renew([Renewal(f"op_{n}", "A", 1 if n != 3 else 7, NOW + 2 * LEASE + n)]),
        lambda kept: kept[0],
        lambda n: n != 3,
        "SELECT count(DISTINCT lease_until) FROM schedule",  # three kept, each until its own time, and one as it was
        {
            "constraint": _renews(until=None),
            "surrogate": _renews(owner=HALF),
            "too_large": _renews(until=UNBOUND),
            "object": _renews(owner=object()),
        },
    ),
    "items": Writes(
        _four_open,
        _index_good,
        lambda answer: answer,
        lambda _: None,
        "SELECT count(*) FROM items WHERE item_id = 'a'",
        {
            "constraint": _indexes(outcome="nonsense"),
            "surrogate": _indexes(item_id=HALF),
            "too_large": _indexes(start=UNBOUND),
            "object": _indexes(reason=object()),
        },
    ),
    "doubled_items": Writes(
        _four_indexed,
        lambda g, n: g.store.mark_doubled(Doubled(f"op_{n}", 1, ("item_0",))),
        lambda answer: answer,
        lambda _: None,
        "SELECT count(*) FROM items WHERE item_id = 'item_0' AND reason = 'duplicate_id'",
        {
            "no such operation": lambda g: g.store.mark_doubled(Doubled("op_7", 1, ("item_0",))),
            "surrogate": lambda g: g.store.mark_doubled(Doubled(HALF, 1, ("item_0",))),
            "too_large": lambda g: g.store.mark_doubled(Doubled("op_1", UNBOUND, ("item_0",))),
            "object": lambda g: g.store.mark_doubled(Doubled("op_1", 1, (object(),))),  # type: ignore[arg-type]
        },
    ),
    "absent_items": Writes(
        _four_indexed,
        lambda g, n: g.store.index_absent(Absentees(f"op_{n}", 1, "expired")),
        lambda written: written[0],
        lambda n: 4 - n,
        "SELECT count(*) - 2 FROM items WHERE outcome = 'expired'",  # 3 + 2 + 1 + 0
        {
            "constraint": _absent(attempt=2, outcome="nonsense"),
            "surrogate": _absent(attempt=2, outcome=HALF),
            "too_large": _absent(attempt=UNBOUND),
            "object": _absent(outcome=object()),
        },
    ),
    "prune_items": Writes(
        _four_indexed,
        lambda g, n: g.store.prune_items(f"op_{n}", 2),
        lambda count: count,
        lambda n: n,
        "SELECT 4 - count(*) FROM items WHERE attempt = 1",
        {
            "surrogate": lambda g: g.store.prune_items(HALF, 2),
            "too_large": lambda g: g.store.prune_items("op_1", UNBOUND),
            "object": lambda g: g.store.prune_items("op_1", object()),  # type: ignore[arg-type]
        },
    ),
}
CASES: Final = [(kind, fault) for kind, writes in KINDS.items() for fault in writes.bad]


@pytest.mark.parametrize(("kind", "fault"), CASES)
async def test_a_bad_write_is_refused_alone_and_its_neighbours_hear_their_own_results(
    path: Path, kind: str, fault: str
) -> None:
    writes = KINDS[kind]
    async with opened(path) as ground:
        await writes.set_up(ground)
        commits = ground.store.commits
        one, two, refused, three, four = await together(
            writes.good(ground, 1),
            writes.good(ground, 2),
            writes.bad[fault](ground),
            writes.good(ground, 3),
            writes.good(ground, 4),
        )
        assert type(refused) is WriteRefused
        assert [writes.result(r) for r in (one, two, three, four)] == [writes.expected(n) for n in (1, 2, 3, 4)]
        assert ground.one(writes.traces) == 4
        assert ground.store.commits == commits + 1
        ground.check_chains()


@pytest.mark.parametrize(("kind", "fault"), CASES)
async def test_a_bad_write_on_its_own_leaves_the_file_as_it_was(path: Path, kind: str, fault: str) -> None:
    writes = KINDS[kind]
    async with opened(path) as ground:
        await writes.set_up(ground)
        before = ground.dump()
        (refused,) = await together(writes.bad[fault](ground))
        assert type(refused) is WriteRefused
        assert ground.dump() == before


# ---- the batch is lost as a whole ----


def _two_more_pages(connection: sqlite3.Connection) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall()


_space_is_back: Final = setting("max_page_count = 1073741823")  # pages: SQLite's own default


def _small_and_large(ground: Ground, large: str) -> list[Write]:
    """Writes of several kinds; the first sets fit, the large ones at the end do not."""
    small = [
        ground.store.claim(ClaimWish("A", NOW, LEASE, {"test": 1})),
        ground.store.apply(arrival(2, read("done", 2))),
    ]
    if large == "events":
        return small + [ground.store.receive(event(f"evt_{n}", body=b"x" * 9000)) for n in range(4)]
    if large == "items":
        long = "x" * 9000
        return small + [
            ground.store.index(ItemSlice("op_1", n, (ItemRow(long, 1, "failed", "", 0, 0, 1),))) for n in range(4)
        ]
    return small + [ground.store.start(record(operation(n, request={"long": "x" * 9000}))) for n in range(10, 14)]


def _all_are(results: list[Any], error: type[BaseException]) -> bool:
    return all(type(result) is error for result in results)


@pytest.mark.parametrize("large", ["events", "starts", "items"])
async def test_a_full_disk_in_the_middle_of_a_batch_loses_it_whole_and_nothing_runs_after_it(
    path: Path, large: str
) -> None:
    statements = Statements()
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        before, commits = ground.dump(), ground.store.commits

        def fill(connection: sqlite3.Connection) -> None:
            _two_more_pages(connection)
            statements(connection)

        ground.hooks.before_begin = fill
        assert _all_are(await together(*_small_and_large(ground, large)), StoreBusy)
        assert statements.outside == ["BEGIN IMMEDIATE"]
        assert ground.dump() == before
        assert ground.store.commits == commits
        assert ground.store.is_writable

        ground.hooks.before_begin = _space_is_back
        results = await together(*_small_and_large(ground, large))
        assert [r for r in results if isinstance(r, BaseException)] == []
        ground.check_chains()


async def test_a_rule_that_ends_the_whole_transaction_loses_the_batch_and_nothing_runs_after_it(path: Path) -> None:
    statements = Statements()
    rule = (
        "CREATE TEMP TRIGGER poison BEFORE INSERT ON main.events WHEN NEW.event_id = 'evt_2'"
        " BEGIN SELECT RAISE(ROLLBACK, 'poisoned'); END"
    )

    def arm(connection: sqlite3.Connection) -> None:
        connection.execute(rule)
        statements(connection)

    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        before = ground.dump()
        ground.hooks.before_begin = once(arm)
        assert _all_are(await together(*_small_and_large(ground, "events")), StoreBusy)
        assert statements.outside == ["BEGIN IMMEDIATE"]
        assert ground.dump() == before
        ground.hooks.before_begin = once(lambda connection: connection.execute("DROP TRIGGER poison"))
        assert await ground.store.receive(event("evt_2")) == "new"


async def test_a_full_disk_at_the_commit_loses_the_batch_whole(path: Path) -> None:
    statements = Statements()

    def fill(connection: sqlite3.Connection) -> None:
        statements(connection)
        _two_more_pages(connection)
        connection.execute("UPDATE starts SET request = '{' || hex(zeroblob(100000)) || '}'")

    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        before = ground.dump()
        ground.hooks.before_commit = fill
        assert _all_are(await together(*_small_and_large(ground, "events")), StoreBusy)
        assert statements.outside == []
        assert ground.dump() == before

        ground.hooks.before_commit, ground.hooks.before_begin = None, _space_is_back
        results = await together(*_small_and_large(ground, "events"))
        assert [r for r in results if isinstance(r, BaseException)] == []


@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM]
)
@pytest.mark.parametrize("edge", ["before_begin", "before_commit"])
async def test_an_error_that_may_pass_rolls_the_batch_back_and_the_next_one_works(
    path: Path, code: int, edge: str
) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        before = ground.dump()
        setattr(ground.hooks, edge, raising(database_error(code)))
        assert _all_are(await together(*_small_and_large(ground, "events")), StoreBusy)
        assert ground.dump() == before
        results = await together(*_small_and_large(ground, "events"))
        assert [r for r in results if isinstance(r, BaseException)] == []


async def test_a_file_that_may_not_be_written_any_more_refuses_whole_batches_until_it_may(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        before = ground.dump()
        ground.hooks.before_begin = setting("query_only = ON")
        assert _all_are(await together(*_small_and_large(ground, "starts")), StoreBusy)
        assert ground.dump() == before
        ground.hooks.before_begin = setting("query_only = OFF")
        assert await ground.store.receive(event("evt")) == "new"


async def test_a_file_that_another_holds_locked_loses_the_batch_whole(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        before = ground.dump()
        ground.hooks.before_begin = setting("busy_timeout = 1")
        with beside(path, writes=True) as other:
            other.execute("BEGIN IMMEDIATE")
            assert _all_are(await together(*_small_and_large(ground, "starts")), StoreBusy)
            assert ground.dump() == before
            other.execute("ROLLBACK")
        results = await together(*_small_and_large(ground, "starts"))
        assert [r for r in results if isinstance(r, BaseException)] == []


async def test_a_lock_that_is_given_back_soon_is_waited_for(path: Path) -> None:
    gate = Gate()
    async with opened(path) as ground:
        with beside(path, writes=True) as other:
            other.execute("BEGIN IMMEDIATE")
            ground.hooks.before_begin = gate
            gate.open()
            task = asyncio.create_task(ground.store.receive(event("evt")))
            await gate.reached()
            other.execute("ROLLBACK")
            assert await answers([task]) == ["new"]


# ---- the outcome is unknown ----


@pytest.mark.parametrize("edge", ["before_begin", "before_commit", "after_commit"])
@pytest.mark.parametrize(
    "code",
    [
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    ],
)
async def test_an_error_of_the_disk_breaks_the_store_for_everyone(path: Path, code: int, edge: str) -> None:
    gate = Gate()
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))

        def fail(connection: sqlite3.Connection) -> None:
            gate(connection)
            raise database_error(code)

        setattr(ground.hooks, edge, fail)
        tasks = [asyncio.create_task(write) for write in _small_and_large(ground, "events")]
        await gate.reached()
        tasks.append(asyncio.create_task(ground.store.receive(event("queued behind it"))))
        await asyncio.sleep(0)
        gate.open()
        assert _all_are(await answers(tasks), StoreBroken)
        assert isinstance(await ground.fault(), StoreBroken)
        assert not ground.store.is_writable
        (refused,) = await together(ground.store.receive(event("later")))
        assert type(refused) is StoreBroken
        assert ground.one("SELECT count(*) FROM events WHERE event_id IN ('queued behind it', 'later')") == 0


async def test_an_error_of_the_disk_inside_a_set_breaks_the_store_and_is_no_fault_of_one_write(path: Path) -> None:
    fault = database_error(sqlite3.SQLITE_IOERR_WRITE)
    async with opened(path, judge=judge_that_fails_for("op_2", fault)) as ground:
        await ground.start(operation(1), operation(2))
        before = ground.dump()
        results = await together(*(ground.store.apply(arrival(n, read("done", n))) for n in (1, 2)))
        assert _all_are(results, StoreBroken)
        assert isinstance(await ground.fault(), StoreBroken)
        assert ground.dump() == before


# ---- nobody is left waiting ----


async def test_a_caller_that_goes_away_from_a_failing_batch_takes_nobody_with_it(path: Path) -> None:
    gate = Gate()
    async with opened(path) as ground:

        def fail(connection: sqlite3.Connection) -> None:
            gate(connection)
            raise database_error(sqlite3.SQLITE_FULL)

        ground.hooks.before_commit = once(fail)
        tasks = [asyncio.create_task(ground.store.receive(event(f"evt_{n}"))) for n in range(3)]
        await gate.reached()
        tasks[0].cancel()
        gate.open()
        assert _all_are(await answers(tasks[1:]), StoreBusy)
        assert await ground.store.receive(event("evt_0")) == "new"


@pytest.mark.parametrize("edge", ["before_begin", "before_commit", "after_commit"])
async def test_a_loop_that_is_cancelled_leaves_nobody_waiting_and_tells_nobody_of_what_is_not_committed(
    path: Path, edge: str
) -> None:
    gate = Gate()
    async with opened(path) as ground:
        setattr(ground.hooks, edge, gate)
        first = asyncio.create_task(ground.store.receive(event("first")))
        await gate.reached()
        queued = asyncio.create_task(ground.store.receive(event("queued")))
        await asyncio.sleep(0)
        ground.writer.cancel()
        told = await answers([first, queued])
        gate.open()
        in_hand, waiting = told
        assert type(waiting) is StoreBroken
        assert type(in_hand) is StoreBroken or (in_hand == "new" and edge == "after_commit")
        (late,) = await together(ground.store.receive(event("late")))
        assert isinstance(late, StoreBroken | StoreBusy)


@pytest.mark.parametrize("edge", ["before_begin", "before_commit", "after_commit"])
async def test_an_error_that_is_none_of_the_database_leaves_no_caller_waiting(path: Path, edge: str) -> None:
    async with opened(path) as ground:
        setattr(ground.hooks, edge, raising(MemoryError()))
        first, second = await together(ground.store.receive(event("evt_1")), ground.store.receive(event("evt_2")))
        assert isinstance(first, StoreBusy | StoreBroken)
        assert isinstance(second, StoreBusy | StoreBroken)
        (later,) = await together(ground.store.receive(event("evt_3")))
        assert later == "new" or isinstance(later, StoreBroken)
        ground.store.stop()
        await ground.fault()


async def test_a_rollback_that_fails_breaks_the_store_and_leaves_no_caller_waiting(path: Path) -> None:
    def refuse_rollback(action: int, name: str | None, *_: Any) -> int:
        refused = action == sqlite3.SQLITE_TRANSACTION and name == "ROLLBACK"
        return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

    def fail(connection: sqlite3.Connection) -> None:
        connection.set_authorizer(refuse_rollback)
        raise database_error(sqlite3.SQLITE_FULL)

    async with opened(path) as ground:
        ground.hooks.before_commit = once(fail)
        results = await together(ground.store.receive(event("evt_1")), ground.store.receive(event("evt_2")))
        assert _all_are(results, StoreBroken)
        assert isinstance(await ground.fault(), StoreBroken)
        assert look(path, "SELECT count(*) FROM events") == [(0,)]


# ---- killed ----


async def test_killed_before_the_commit_nothing_of_the_batch_is_in_the_file(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        before = ground.dump()
        ground.hooks.before_commit = raising(Killed())
        await killed(ground, *_small_and_large(ground, "starts"))
        assert ground.heard[1:] == []
    async with opened(path) as ground:
        assert ground.dump() == before


@pytest.mark.parametrize("fault", [Killed(), SystemError()])
async def test_nobody_is_told_that_a_batch_was_done_that_died_before_its_commit(
    path: Path, fault: BaseException
) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        ground.hooks.before_commit = raising(fault)
        tasks = [asyncio.create_task(write) for write in _small_and_large(ground, "starts")]
        assert await ground.fault() is not None
        assert _all_are(await answers(tasks), StoreBroken)


async def test_killed_after_the_commit_all_of_the_batch_is_in_the_file(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        ground.hooks.after_commit = raising(Killed())
        await killed(ground, *_small_and_large(ground, "starts"))
    async with opened(path) as ground:
        assert ground.one("SELECT count(*) FROM operations") == 6
        assert ground.schedule(1)["lease_owner"] == "A"
        assert (await ground.get(2)).state is State.RESULT_COLLECTING
        ground.check_chains()


# ---- what is left of a write ----


@pytest.mark.parametrize("how", ["refused", "lost"])
async def test_what_was_not_written_is_let_go_as_soon_as_its_caller_has_heard_so(path: Path, how: str) -> None:
    """Garbage is looked for seldom: a flood of large bodies on a full disk must not wait for that in memory."""

    def full(_: sqlite3.Connection) -> None:
        raise database_error(sqlite3.SQLITE_FULL)

    async with opened(path) as ground:
        ground.hooks.before_commit = full if how == "lost" else None
        gc.collect()
        gc.disable()
        before = _arrivals()
        try:
            for n in range(20):
                with pytest.raises(StoreBusy if how == "lost" else WriteRefused):
                    await ground.store.apply(arrival(n, read("running"), **exchange(f"{n}")))
            await together(asyncio.sleep(0))
            left = _arrivals() - before
        finally:
            gc.enable()
    assert left <= 1


def _arrivals() -> int:
    """How many of them anything holds."""
    return sum(isinstance(one, Arrival) for one in gc.get_objects())


# ---- the log comes into the file ----


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 - nobody tells when a log was merged
            await asyncio.sleep(0.01)


def _stands_in_the_file_alone(path: Path, operation_id: str) -> bool:
    """Whether a row is found without the log beside the file."""
    uri = f"{path.absolute().as_uri()}?immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            found = connection.execute("SELECT 1 FROM operations WHERE operation_id = ?", (operation_id,)).fetchall()
    except sqlite3.DatabaseError:  # not even the table, or half of what is being brought in
        return False
    return bool(found)


async def test_what_was_committed_is_brought_into_the_file_between_two_batches(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MERGE_SECONDS", 0.0)
    statements = Statements()
    async with opened(path) as ground:
        ground.hooks.before_begin = once(statements)
        await ground.start(operation(1))
        await _until(lambda: _stands_in_the_file_alone(path, "op_1"))
        await _until(lambda: ground.store.pulse.ended == 2)  # the batch and the merge: on a slow disk either is long
    assert statements.outside.count("PRAGMA wal_checkpoint(PASSIVE)") >= 1


async def test_no_commit_waits_for_the_log_to_be_brought_into_the_file(path: Path) -> None:
    async with opened(path) as ground:
        await together(*(ground.store.receive(event(f"evt_{n}", body=bytes(2**17))) for n in range(64)))
        log = content(path.with_name(f"{path.name}-wal"))
        assert len(log) > 64 * 2**17  # SQLite by itself would have merged after four of these MiB
        assert len(content(path)) < 2**20


async def test_a_disk_too_full_for_the_log_harms_nobody_and_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MERGE_SECONDS", 0.0)
    tries = _merges_fail(monkeypatch, sqlite3.SQLITE_FULL)
    async with opened(path) as ground:
        await ground.start(operation(1))
        await _until(lambda: len(tries) == 1)
        await ground.start(operation(2))
        await _until(lambda: len(tries) == 2)
        assert ground.store.is_writable


async def test_a_disk_that_fails_under_the_log_breaks_the_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MERGE_SECONDS", 0.0)
    _merges_fail(monkeypatch, sqlite3.SQLITE_IOERR)
    async with opened(path) as ground:
        await ground.start(operation(1))
        assert isinstance(await ground.fault(), StoreBroken)
        with pytest.raises(StoreBroken):
            await ground.store.receive(event("evt_1"))
    assert look(path, "SELECT operation_id FROM operations") == [("op_1",)]


def _merges_fail(monkeypatch: pytest.MonkeyPatch, code: int) -> list[str]:
    """Let each merge fail with that result code; the list grows with each try."""
    tries: list[str] = []
    real = aiosqlite.Connection.execute_fetchall

    async def fail(self: aiosqlite.Connection, sql: str, *more: Any) -> Any:
        if sql.startswith("PRAGMA wal_checkpoint"):
            tries.append(sql)
            raise database_error(code)
        return await real(self, sql, *more)

    monkeypatch.setattr(aiosqlite.Connection, "execute_fetchall", fail)
    return tries

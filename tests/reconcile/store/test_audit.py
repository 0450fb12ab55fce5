"""`audit verify` on the file itself: whatever somebody did to a record is named by its first bad row, and a record that
nobody touched never complains (N26, N27, N40, N43, N44).

Histories are random, and so is the damage; a failing example prints its seed.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from reconcile.errors import RecordDamaged, SchemaTooNew, StoreBusy
from reconcile.states import State
from reconcile.store import schema
from reconcile.store.audit import chains, signed, verify
from reconcile.store.looking import look_at
from tests.reconcile.store.damages import DAMAGES
from tests.reconcile.store.ground import beside, content, look, opened, operation, read, together
from tests.reconcile.store.records import (
    KEY,
    OTHER_KEY,
    NoPlace,
    behind_the_index,
    checked,
    copied,
    notary,
    prune,
    write_record,
)

_RANDOM: Final = settings(max_examples=12, derandomize=True, report_multiple_bugs=False)
_COVERED: Final = "(SELECT coalesce(max(position), 0) FROM checkpoints)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the record stands."""
    return tmp_path / "reconciled.db"


#: Which kinds of damage found a place in some record: none may stay untried.
_TRIED: set[int] = set()


@given(seed=st.integers(0, 2**32))
@example(seed=7)  # with room for an operation that is invented
@example(seed=12)  # and with a whole operation that nothing has signed
@_RANDOM
def test_any_damage_is_named_by_its_first_bad_row(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """N26, N27: changed, removed, inserted, swapped, cut; also by one who mends what he knows of."""
    note(f"seed {seed}")
    folder, rnd = tmp_path_factory.mktemp("audit"), random.Random(seed)
    path = folder / "reconciled.db"
    asyncio.run(write_record(path, rnd, operations=rnd.randrange(1, 6), steps=rnd.randrange(5, 45)))
    whole = checked(path)
    assert (
        whole.rows + sum(n for (n,) in look(path, "SELECT seq FROM pruned"))
        == look(path, "SELECT max(seq) FROM sqlite_sequence")[0][0]
    )
    for number, damage in enumerate(DAMAGES):
        with copied(path, folder / "copy.db", random.Random(seed + number)) as copy:
            try:
                pattern = damage(copy)
            except NoPlace:
                continue
        _TRIED.add(number)
        with pytest.raises(RecordDamaged) as fault:
            checked(copy.path)
        assert re.search(pattern, str(fault.value)), f"{damage.__name__}: {fault.value} (expected {pattern})"


def test_no_kind_of_damage_was_left_untried() -> None:
    """Runs after the one above, and speaks of it."""
    if not _TRIED:
        pytest.skip("the test above did not run")
    assert [damage.__name__ for number, damage in enumerate(DAMAGES) if number not in _TRIED] == []


# ---- a record that nobody touched ----


@given(seed=st.integers(0, 2**32))
@settings(_RANDOM, max_examples=25)
def test_a_record_that_nobody_touched_never_complains(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Signed or not, pruned or half pruned, at any length; and nothing is written, nothing is left beside it."""
    note(f"seed {seed}")
    folder, rnd = tmp_path_factory.mktemp("audit"), random.Random(seed)
    path = folder / "reconciled.db"
    asyncio.run(write_record(path, rnd, operations=rnd.randrange(1, 9), steps=rnd.randrange(1, 60)))
    before = content(path)
    found = checked(path)
    ((rows, operations, pruned, unsigned),) = look(
        path,
        "SELECT (SELECT count(*) FROM history), (SELECT count(*) FROM operations), (SELECT count(*) FROM pruned),"
        f" (SELECT count(*) FROM history WHERE position > {_COVERED})",
    )
    assert (found.rows, found.operations, found.pruned, found.unsigned_rows) == (rows, operations, pruned, unsigned)
    assert content(path) == before
    with opened_beside(path):
        assert checked(path) == found


@contextlib.contextmanager
def opened_beside(path: Path) -> Iterator[None]:
    """Another process has the file open: what it holds is partly in the journal."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


async def test_a_record_is_verified_while_it_is_written_and_signed(path: Path) -> None:
    """One read transaction sees one moment, whatever is committed meanwhile."""
    async with opened(path) as ground:
        signer = notary(ground)
        await ground.start(*(operation(n) for n in range(1, 9)))
        going = asyncio.create_task(_verify_over_and_over(path))
        for step in range(60):
            word = ["running", "waiting"][step % 2]
            await together(*(ground.apply(n, read(word, n, finished_items=step)) for n in range(1, 9)))
            if step % 10 == 0:
                await signer.sign()
                await asyncio.sleep(0)
        going.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await going
        assert _seen[-1] > _seen[0]


_seen: list[int] = []


async def _verify_over_and_over(path: Path) -> None:
    _seen.clear()
    while True:
        _seen.append((await asyncio.to_thread(checked, path)).rows)


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A record in a folder that everybody may enter and nobody but its owner may write."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reconciled.db"
        asyncio.run(_signed_twice(path))
        path.chmod(0o444)
        path.parent.chmod(0o555)
        yield path
        path.parent.chmod(0o700)


@contextlib.contextmanager
def as_somebody() -> Iterator[None]:
    """Without root's rights."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_record_at_rest_is_read_where_nothing_may_be_written_and_leaves_nothing_behind(elsewhere: Path) -> None:
    before, names = content(elsewhere), sorted(elsewhere.parent.iterdir())
    with as_somebody():
        assert checked(elsewhere).rows == 3
    assert checked(elsewhere).rows == 3  # nor where it may
    assert (content(elsewhere), sorted(elsewhere.parent.iterdir())) == (before, names)


def test_a_journal_that_cannot_be_read_here_is_told_with_what_to_do(elsewhere: Path) -> None:
    """A file without its journal would be a record of an earlier moment, and seem whole."""
    elsewhere.parent.chmod(0o700)
    elsewhere.with_name("reconciled.db-wal").write_bytes(bytes(64))
    elsewhere.parent.chmod(0o555)
    with as_somebody(), pytest.raises(StoreBusy, match=r"reconciled\.db-wal holds what is not in it yet"):
        checked(elsewhere)


@pytest.mark.parametrize("fault", [None, RecordDamaged("pages of two moments")])
async def test_what_changes_under_a_record_at_rest_is_read_again_in_the_ordinary_way(
    path: Path, fault: Exception | None
) -> None:
    """A daemon that starts meanwhile may write into the file that was taken to be at rest."""
    async with opened(path) as ground:
        await ground.start(operation(1))
    calls = 0

    def look_twice(connection: sqlite3.Connection) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("CREATE TABLE later (a)")
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if fault is not None:
                raise fault
        return len(connection.execute("SELECT * FROM history").fetchall())

    assert look_at(path, look_twice) == 1
    assert calls == 2


async def test_pruning_the_newest_chain_takes_no_checkpoint_back(path: Path) -> None:
    """What a checkpoint covers is counted by the positions that were given, not by those that are left."""
    async with opened(path) as ground:
        await ground.start(operation(1, State.OBSERVING), operation(2, State.OBSERVING))
        await ground.apply(2, read("failed", 2))
        await notary(ground).sign()
        prune(path, "op_2")
        assert checked(path).unsigned_prunings == 1
        again = await notary(ground).sign()
        assert again is not None
        assert (again.checkpoint.position, again.checkpoint.pruned) == (3, 1)
        found = checked(path)
    assert (found.pruned, found.unsigned_prunings, found.unsigned_rows) == (1, 0, 0)


# ---- what is signed, and by whom ----


async def _signed_twice(path: Path) -> list[str]:
    """A record with two checkpoints; their hashes."""
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        await notary(ground).sign()
        await ground.apply(1, read("waiting"))
        await notary(ground).sign()
        return [digest for (digest,) in ground.look("SELECT hash FROM checkpoints ORDER BY number")]


async def test_a_key_that_is_not_known_is_not_asked_for(path: Path) -> None:
    await _signed_twice(path)
    assert checked(path, trusted=()).checkpoints == 2
    with pytest.raises(RecordDamaged, match="checkpoint 2: it was signed with another key"):
        checked(path, trusted=(OTHER_KEY.public_key,))


async def test_a_changed_key_is_vouched_for_by_the_newest(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await notary(ground, key=OTHER_KEY).sign()
        await notary(ground, key=KEY).sign()
    assert checked(path).checkpoints == 2


async def test_checkpoints_that_were_cut_off_are_told_by_a_hash_that_was_noted(path: Path) -> None:
    """The rest is a whole record of an earlier moment: only a second place knows better (N26)."""
    first, newest = await _signed_twice(path)
    with copied(path, path.with_name("copy.db"), random.Random(0)) as copy:
        copy.do("DELETE FROM checkpoints WHERE number = 2")
        copy.do("DELETE FROM heads WHERE checkpoint = 2")
    assert checked(copy.path).checkpoints == 1
    assert checked(copy.path, noted=(first,)).checkpoints == 1
    with pytest.raises(RecordDamaged, match=f"no checkpoint has the hash {newest} \\(the newest is 1\\)"):
        checked(copy.path, noted=(first, newest))


async def test_heads_that_are_being_gathered_are_no_fault(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        await notary(ground).sign()
        await ground.apply(1, read("waiting"))
        await ground.store.record.gather_heads(2, after=1, upto=9)
        assert checked(path).checkpoints == 1


# ---- the file itself ----


def _told_by(path: Path) -> Any:
    """All that a history row, a checkpoint or a pruning could say, and what must follow from it; from the tables."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = bytes
        ((newest,),) = connection.execute("SELECT coalesce(max(number), 0) FROM checkpoints").fetchall()
        told: list[Any] = [
            connection.execute(sql).fetchall()
            for sql in (
                "SELECT * FROM history NOT INDEXED ORDER BY position",
                "SELECT * FROM checkpoints ORDER BY number",
                f"SELECT * FROM heads WHERE checkpoint <= {newest} ORDER BY checkpoint, operation_id",
                "SELECT operation_id, seq, head, behind FROM pruned NOT INDEXED ORDER BY operation_id",
                f"SELECT operation_id, pruned_at, checkpoint FROM pruned NOT INDEXED WHERE checkpoint <= {newest}",
                "SELECT key, operation_id, state, remote_job_id, seq, head FROM operations NOT INDEXED ORDER BY key",
                "SELECT seq FROM sqlite_sequence WHERE name = 'history'",
            )
        ]
        living = [row[0] for row in connection.execute("SELECT living FROM operations NOT INDEXED ORDER BY key")]
        return told, [json.loads(text).get("deadlines") for text in living]


@given(seed=st.integers(0, 2**32))
@settings(_RANDOM, max_examples=8)
def test_a_flipped_bit_of_the_file_is_told_wherever_it_changes_what_is_told(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """In a page of rows, of an index, in a header: whatever reads differently is named; nothing else may come of it."""
    note(f"seed {seed}")
    folder, rnd = tmp_path_factory.mktemp("audit"), random.Random(seed)
    path, copy = folder / "reconciled.db", folder / "copy.db"
    asyncio.run(write_record(path, rnd, operations=4, steps=40))
    whole, told = content(path), _told_by(path)
    full = [at for at, byte in enumerate(whole) if byte]
    for _ in range(150):
        at = rnd.choice(full)
        copy.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rnd.randrange(8)]) + whole[at + 1 :])
        try:
            is_same = _told_by(copy) == told
        except (sqlite3.Error, ValueError, AttributeError, TypeError):
            is_same = False
        try:
            checked(copy)
        except (RecordDamaged, SchemaTooNew):
            continue
        assert is_same, f"the byte at {at} of {len(whole)} was flipped, and nobody said so"


async def _three_signed(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2), operation(3))
        await notary(ground).sign()


def test_a_head_among_those_of_another_number_is_told(path: Path) -> None:
    """One flipped bit makes of the number 1 in its record a 0, and a walk over 1 gives it out with the others."""
    asyncio.run(_three_signed(path))
    data = content(path)
    number_1_of_op_3 = bytes([6, 9, 21, 9, 0x81, 13]) + b"op_3"
    assert data.count(number_1_of_op_3) == 1
    path.write_bytes(data.replace(number_1_of_op_3, bytes([6, 8]) + number_1_of_op_3[2:]))
    with pytest.raises(RecordDamaged, match="checkpoint 1: the head of op_3 is not as it was written"):
        checked(path)


_HISTORY_INDEX: Final = ("history", "sqlite_autoindex_history_1")
_COPIED_ROW: Final = (
    "INSERT INTO history SELECT 99, operation_key, 99, at, actor, kind, from_state, to_state, cause, remote_job_id,"
    " reason, facts, hash FROM history WHERE position = 4"
)


@pytest.mark.parametrize(
    ("place", "sql", "pattern"),
    [
        (_HISTORY_INDEX, "UPDATE history SET seq = 9 WHERE position = 4", r"row 9 of op_1 \(position 4\)"),
        (_HISTORY_INDEX, "UPDATE history SET operation_key = 2 WHERE position = 4", r"row 2 of op_1 \(position 4\)"),
        (_HISTORY_INDEX, "DELETE FROM history WHERE position = 4", r"row 2 of op_1 \(position 4\): the index names it"),
        (_HISTORY_INDEX, _COPIED_ROW, "the file holds 4 history rows, and its index leads to 3"),
        (
            ("operations", "sqlite_autoindex_operations_1"),
            "UPDATE operations SET operation_id = 'op_x' WHERE key = 1",
            r"row 1 of op_x \(position 1\)",
        ),
        (
            ("pruned", "pruned_by_checkpoint"),
            "UPDATE pruned SET checkpoint = 9 WHERE operation_id = 'op_3'",
            r"checkpoint 2: what it tells to be pruned \(op_3\)",
        ),
    ],
)
async def test_what_a_row_says_counts_and_not_what_an_index_says_of_it(
    path: Path, place: tuple[str, str], sql: str, pattern: str
) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2), operation(3))
        await ground.apply(1, read("waiting"))
        await ground.apply(3, read("failed", 3))
        await notary(ground).sign()
        prune(path, "op_3")
        await notary(ground).sign()
    with copied(path, path.with_name("copy.db"), random.Random(0)) as copy:
        assert checked(copy.path).rows == 3
    behind_the_index(copy.path, *place, sql)
    with pytest.raises(RecordDamaged, match=pattern):
        checked(copy.path)


def test_every_value_that_is_walked_is_read_from_its_row(path: Path) -> None:
    """The plans that the walk relies on: an order from an index, and the rows by their own numbers behind it."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        schema.prepare_writer(connection)

        def plan(sql: str) -> list[str]:
            return [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", [1] * sql.count("?"))]

        history = plan(chains.HISTORY)
        assert "COVERING INDEX sqlite_autoindex_history_1" in history[0]
        assert "h USING INTEGER PRIMARY KEY" in history[1]
        assert plan(chains.OPERATIONS)[0] == "SCAN o"
        assert "COVERING INDEX pruned_by_checkpoint" in plan(signed.SIGNED_PRUNING)[0]
        assert "p USING PRIMARY KEY" in plan(signed.SIGNED_PRUNING)[1]
        assert plan(signed.PRUNED)[0] == "SCAN p"
        assert plan(verify.COUNTED) == ["SCAN history"]
        assert plan(verify.POSITIONS) == ["SEARCH history USING INTEGER PRIMARY KEY (rowid>?)"]
        assert "l USING PRIMARY KEY" in plan(signed.LEAVES)[0]
        for sql in (chains.HISTORY, chains.OPERATIONS, signed.LEAVES, signed.SIGNED_PRUNING, signed.PRUNED):
            assert not [step for step in plan(sql) if "TEMP B-TREE" in step], "it would be sorted in memory"


async def test_a_file_of_before_checkpoints_is_verified_for_what_it_has(path: Path) -> None:
    """N40: and whoever lowers the number of a newer one hides nothing by it."""
    await _signed_twice(path)
    with copied(path, path.with_name("copy.db"), random.Random(0)) as copy:
        copy.connection.execute("PRAGMA user_version = 3")
    assert checked(copy.path).checkpoints == 2
    with contextlib.closing(sqlite3.connect(copy.path)) as connection:
        for table in ("checkpoints", "heads", "pruned"):
            connection.execute(f"DROP TABLE {table}")
    found = checked(copy.path)
    assert (found.schema, found.rows, found.checkpoints, found.newest) == (3, 3, None, None)
    with pytest.raises(RecordDamaged, match="the file is of a release that made none"):
        checked(copy.path, noted=("0" * 64,))
    with copied(copy.path, path.with_name("worse.db"), random.Random(0)) as worse:
        worse.do("UPDATE history SET reason = 'x' WHERE position = 3")
    with pytest.raises(RecordDamaged, match=r"row 2 of op_1 \(position 3\): its hash does not fit"):
        checked(worse.path)
    with contextlib.closing(sqlite3.connect(copy.path)) as connection:
        connection.execute("PRAGMA user_version = 4")
    with pytest.raises(RecordDamaged, match=r"the file is damaged: no such table|as this release makes it"):
        checked(copy.path)


@pytest.mark.parametrize(
    ("pragma", "words"),
    [
        ("user_version = 99", "the file has schema 99, this release knows [0-9]+: use the newer release"),
        ("user_version = 0", "the file has schema 0"),
        ("application_id = 7", "this is no database of ours"),
    ],
)
async def test_a_file_of_somebody_else_or_of_a_later_release_is_refused(path: Path, pragma: str, words: str) -> None:
    await _signed_twice(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA {pragma}")
    with pytest.raises(SchemaTooNew, match=words):
        checked(path)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04" * 500, b"SQLite format 3\x00" * 300])
def test_what_is_no_database_is_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(SchemaTooNew, match="this is no database"):
        checked(path)


async def test_what_the_writer_holds_in_its_journal_is_verified_too(path: Path) -> None:
    """A daemon that was killed leaves its journal: what was committed there is part of the record."""
    async with opened(path) as ground:
        await ground.start(operation(1))
        for name in ("reconciled.db", "reconciled.db-wal"):
            (path.parent / "copy").mkdir(exist_ok=True)
            shutil.copyfile(path.with_name(name), path.parent / "copy" / name)
    assert checked(path.parent / "copy" / "reconciled.db").rows == 1


# ---- what else somebody may have written -----------------------------------------------------------------------------


def _forge(path: Path, sql: str) -> None:
    """By somebody who takes no notice of triggers, and puts them back."""
    with beside(path, writes=True) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(sql)
        for _, text in triggers:
            connection.execute(text)


async def _signed_and_pruned(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1, State.FAILED), operation(2))
        await notary(ground).sign()
    prune(path, "op_1")


@pytest.mark.parametrize("number", [0, -3, 3, 9_999_999])
async def test_a_pruning_that_no_checkpoint_will_ever_sign_is_told(path: Path, number: int) -> None:
    """Else an operation could be taken away for good, and nothing would ever tell of it."""
    await _signed_and_pruned(path)
    checked(path)
    _forge(path, f"UPDATE pruned SET checkpoint = {number}")
    with pytest.raises(RecordDamaged, match=rf"the pruned operation op_1: checkpoint {number} is told to sign that"):
        checked(path)


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (
            "DROP VIEW present; CREATE VIEW present AS SELECT * FROM operations WHERE leaving = 0 AND key > 0",
            "the view present: it is not",
        ),
        ("CREATE TABLE more (x)", "the table more: it is not"),
        ("CREATE VIEW endless AS SELECT 1", "the view endless: it is not"),
        (
            "CREATE TRIGGER planted AFTER INSERT ON history BEGIN UPDATE operations SET leaving = 0; END",
            "the trigger planted: it is not",
        ),
        ("DROP INDEX operations_by_end", "the index operations_by_end: it is not"),
        ("ALTER TABLE checkpoints RENAME TO checks", "the (index|table) [a-z_]+: it is not"),
    ],
)
async def test_what_this_release_does_not_make_of_a_file_is_told(path: Path, sql: str, told: str) -> None:
    """A view in place of another shows another record; a trigger writes one."""
    await _signed_and_pruned(path)
    with beside(path, writes=True) as connection:
        connection.executescript(sql)
    with pytest.raises(RecordDamaged, match=told):
        checked(path)


async def test_another_time_of_the_end_is_told(path: Path) -> None:
    """It decides when an operation may go."""
    async with opened(path) as ground:
        await ground.start(operation(1))
        await ground.apply(1, read("failed"))
        ended = (await ground.get(1)).completed_at
        await notary(ground).sign()
    assert ended is not None
    checked(path)
    _forge(path, "UPDATE operations SET completed_at = 1")
    with pytest.raises(RecordDamaged, match=f"the row of op_1: its completed_at is 1, and its history tells {ended}"):
        checked(path)

"""The notary on a real store: what moved is covered by a signature, whatever ended the last try."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import structlog
from structlog.testing import LogCapture

from reconcile import rest
from reconcile.checkpoint import AuditKey, Head, PrunedHead, SignedCheckpoint, fault_of, newest_key_fault
from reconcile.errors import RecordDamaged, StoreBusy, WriteRefused
from reconcile.merkle import Tree
from reconcile.notary import Notary
from reconcile.states import State
from reconcile.store import checkpoints
from reconcile.store.audit.verify import verify
from reconcile.store.looking import look_at
from tests.reconcile.rows import NOW
from tests.reconcile.store.ground import Ground, beside, database_error, opened, operation, raising, read
from tests.reconcile.store.records import prune

KEY, OTHER_KEY = AuditKey.made(b"a" * 32), AuditKey.made(b"b" * 32)
#: The columns of a checkpoint after the second.
REST = "position, previous, heads, pruned, root, hash, public_key, signature"


class StoppedClock:
    def now(self) -> int:
        return NOW

    def monotonic(self) -> float:
        return 0.0


class Office:
    """A store and its notary."""

    def __init__(self, ground: Ground, key: AuditKey = KEY) -> None:
        self.ground = ground
        self.capture = LogCapture()
        log = structlog.wrap_logger(None, processors=[self.capture])
        self.notary = Notary(record=ground.store.record, key=key, clock=StoppedClock(), log=log)

    async def sign(self) -> SignedCheckpoint:
        signed = await self.notary.sign()
        assert signed is not None
        return signed

    def heads(self, number: int) -> list[tuple[Any, ...]]:
        sql = "SELECT operation_id, seq, head FROM heads WHERE checkpoint = ? ORDER BY operation_id"
        return self.ground.look(sql, number)

    def standing(self) -> list[tuple[Any, ...]]:
        """What the file says that each chain's head is."""
        return self.ground.look("SELECT operation_id, seq, head FROM operations ORDER BY operation_id")

    def kept(self) -> list[SignedCheckpoint]:
        return [checkpoints.load(row) for row in self.ground.look(checkpoints.ALL)]


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with opened(tmp_path / "reconciled.db") as ground:
        yield Office(ground)


def root_of(heads: list[tuple[Any, ...]], pruned: list[tuple[Any, ...]] = []) -> str:  # noqa: B006 - never changed
    tree = Tree()
    for row in heads:
        tree.add(Head(*row).leaf())
    for row in pruned:
        tree.add(PrunedHead(*row).leaf())
    return tree.finish()


async def test_every_chain_is_under_the_first_checkpoint(office: Office) -> None:
    await office.ground.start(*(operation(n) for n in range(1, 4)))
    signed = await office.sign()
    checkpoint = signed.checkpoint
    assert fault_of(signed, None) is None
    assert (checkpoint.number, checkpoint.at, checkpoint.position) == (1, NOW, 3)
    assert (checkpoint.heads, checkpoint.pruned) == (3, 0)
    assert office.heads(1) == office.standing()
    assert checkpoint.root == root_of(office.standing())
    assert office.kept() == [signed]


async def test_where_nothing_moved_nothing_is_signed(office: Office) -> None:
    assert await office.notary.sign() is None
    await office.ground.start(operation(1))
    await office.sign()
    commits = office.ground.store.commits
    assert await office.notary.sign() is None
    assert office.ground.store.commits == commits


async def test_the_next_one_costs_by_what_moved_and_follows_the_last(office: Office) -> None:
    await office.ground.start(*(operation(n) for n in range(1, 10)))
    first = await office.sign()
    await office.ground.apply(4, read("failed", 4))
    second = await office.sign()
    assert fault_of(second, first) is None
    assert [row[0] for row in office.heads(2)] == ["op_4"]
    assert office.heads(2) == [row for row in office.standing() if row[0] == "op_4"]
    assert second.checkpoint.position > first.checkpoint.position


async def test_a_chain_that_moved_often_is_one_leaf_with_its_newest_head(office: Office) -> None:
    await office.ground.start(operation(1))
    for word in ("failed", "succeeded", "failed", "succeeded"):
        await office.ground.apply(1, read(word))
    signed = await office.sign()
    assert signed.checkpoint.heads == 1
    assert office.heads(1) == office.standing()


async def test_many_chains_are_gathered_in_slices(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SLICE", 3)
    await office.ground.start(*(operation(n) for n in range(1, 11)))
    for n in (2, 7):
        await office.ground.apply(n, read("failed", n))
    commits = office.ground.store.commits
    signed = await office.sign()
    assert office.ground.store.commits - commits >= signed.checkpoint.position // 3
    assert signed.checkpoint.heads == 10
    assert office.heads(1) == office.standing()
    assert signed.checkpoint.root == root_of(office.standing())


async def test_what_a_broken_off_try_gathered_is_brought_up_to_date(office: Office) -> None:
    await office.ground.start(operation(1), operation(2))
    upto = await office.ground.store.record.last_position()
    await office.ground.store.record.gather_heads(1, after=0, upto=upto)
    await office.ground.apply(1, read("failed"))
    signed = await office.sign()
    assert office.heads(1) == office.standing()
    assert signed.checkpoint.root == root_of(office.standing())


async def test_a_chain_that_goes_on_meanwhile_is_the_next_ones(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """The position is fixed first: heads beyond it are not taken."""
    await office.ground.start(operation(1))
    standing = office.standing()
    record, plain = office.ground.store.record, office.ground.store.record.gather_heads

    async def busy(number: int, *, after: int, upto: int) -> int:
        await office.ground.apply(1, read("failed"))
        return await plain(number, after=after, upto=upto)

    monkeypatch.setattr(record, "gather_heads", busy)
    signed = await office.sign()
    assert office.heads(1) == standing
    assert signed.checkpoint.position == 1


async def test_a_full_disk_signs_nothing_and_the_next_try_does(office: Office) -> None:
    await office.ground.start(operation(1))
    office.ground.hooks.before_commit = raising(database_error(13))  # SQLITE_FULL
    with pytest.raises(StoreBusy):
        await office.notary.sign()
    assert office.kept() == []
    assert fault_of(await office.sign(), None) is None


async def test_pruned_chains_are_signed_once(office: Office) -> None:
    await office.ground.start(operation(1, State.FAILED), operation(2))
    await office.sign()
    prune(office.ground.path, "op_1")
    second = await office.sign()
    gone = office.ground.look("SELECT operation_id, seq, head, pruned_at FROM pruned")
    assert (second.checkpoint.heads, second.checkpoint.pruned) == (0, 1)
    assert second.checkpoint.root == root_of([], gone)
    assert office.ground.look("SELECT checkpoint FROM pruned") == [(2,)]
    assert await office.notary.sign() is None


async def test_pruning_that_a_broken_off_try_took_up_is_signed_by_the_next(office: Office) -> None:
    await office.ground.start(operation(1, State.FAILED))
    await office.sign()
    prune(office.ground.path, "op_1")
    await office.ground.store.record.gather_pruned(2)
    assert (await office.sign()).checkpoint.pruned == 1


async def test_another_key_signs_at_once_and_says_so(office: Office) -> None:
    await office.ground.start(operation(1))
    first = await office.sign()
    other = Office(office.ground, OTHER_KEY)
    second = await other.sign()
    assert fault_of(second, first) is None
    assert newest_key_fault(second, [OTHER_KEY.public_key]) is None
    assert OTHER_KEY.public_key in str(newest_key_fault(second, [KEY.public_key]))
    assert [entry["event"] for entry in other.capture.entries] == ["audit_key_changed", "checkpoint"]
    told = other.capture.entries[0]
    assert (told["public_key_before"], told["public_key"]) == (KEY.public_key, OTHER_KEY.public_key)
    assert await other.notary.sign() is None


async def test_the_log_holds_what_a_second_place_needs(office: Office) -> None:
    await office.ground.start(operation(1))
    signed = await office.sign()
    (entry,) = office.capture.entries
    assert (entry["event"], entry["hash"], entry["public_key"]) == ("checkpoint", signed.hash, KEY.public_key)
    assert (entry["number"], entry["position"], entry["heads"], entry["pruned"]) == (1, 1, 1, 0)


async def test_two_that_sign_at_once_do_not_sign_the_same_number_twice(office: Office) -> None:
    await office.ground.start(operation(1))
    answers = await asyncio.gather(office.notary.sign(), Office(office.ground).notary.sign(), return_exceptions=True)
    assert len(office.kept()) == 1
    assert sum(isinstance(answer, SignedCheckpoint) for answer in answers) == 1
    assert all(isinstance(answer, SignedCheckpoint | WriteRefused) for answer in answers)


async def test_of_two_calls_the_second_waits_for_the_first(office: Office) -> None:
    await office.ground.start(operation(1))
    answers = await asyncio.gather(office.notary.sign(), office.notary.sign())
    assert [answer is None for answer in answers] == [False, True]


# ---- what somebody did to the newest one -----------------------------------------------------------------------


def as_owner(office: Office, *statements: str) -> None:
    """By somebody who owns the file, triggers or not."""
    with beside(office.ground.path, writes=True) as connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert connection.execute(statement).rowcount, statement


def faults(office: Office) -> list[dict[str, Any]]:
    return [dict(entry) for entry in office.capture.entries if entry["log_level"] in ("warning", "error")]


CUT: Final = ("DELETE FROM checkpoints WHERE number = 2", "DELETE FROM heads WHERE checkpoint = 2")


async def signed_twice(office: Office) -> tuple[SignedCheckpoint, SignedCheckpoint]:
    await office.ground.start(operation(1), operation(2))
    first = await office.sign()
    await office.ground.apply(1, read("failed"))
    return first, await office.sign()


async def test_a_newest_checkpoint_that_was_cut_off_is_told_and_not_made_good(office: Office) -> None:
    """The next one names what was lost: the record goes on, and never verifies again."""
    first, second = await signed_twice(office)
    as_owner(office, *CUT)
    third = await office.sign()
    (told,) = faults(office)
    assert (told["event"], told["log_level"]) == ("checkpoint_lost", "error")
    assert (told["checkpoint"], told["hash"]) == (2, second.hash)
    assert (told["found"], told["found_hash"]) == (1, first.hash)
    assert (third.checkpoint.number, third.checkpoint.previous) == (2, second.hash)
    with pytest.raises(RecordDamaged, match="checkpoint 2: it does not follow the one before"):
        look_at(office.ground.path, verify)
    await office.ground.apply(2, read("failed", 2))
    assert fault_of(await office.sign(), third) is None
    assert len(faults(office)) == 1


async def test_that_all_checkpoints_are_gone_is_told_even_where_nothing_moved(office: Office) -> None:
    _, second = await signed_twice(office)
    as_owner(office, "DELETE FROM checkpoints", "DELETE FROM heads")
    assert (await office.sign()).checkpoint.previous == second.hash
    (told,) = faults(office)
    assert (told["event"], told["hash"], told["found"], told["found_hash"]) == ("checkpoint_lost", second.hash, 0, None)


async def test_one_that_this_process_found_and_did_not_sign_is_known_as_well(office: Office) -> None:
    _, second = await signed_twice(office)
    again = Office(office.ground)
    assert await again.notary.sign() is None
    as_owner(office, *CUT)
    assert (await again.sign()).checkpoint.previous == second.hash
    assert [told["event"] for told in faults(again)] == ["checkpoint_lost"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("UPDATE checkpoints SET at = at + 1 WHERE number = 2", "checkpoint 2: its hash does not fit"),
        ("UPDATE checkpoints SET position = 10000 WHERE number = 2", "checkpoint 2: its hash does not fit"),
        ("UPDATE checkpoints SET position = 0 WHERE number = 2", "checkpoint 2: its hash does not fit"),
        ("UPDATE checkpoints SET signature = 'AAAA' WHERE number = 2", "checkpoint 2: its signature does not fit"),
        ("UPDATE checkpoints SET public_key = signature WHERE number = 2", "checkpoint 2: its signature does not fit"),
    ],
)
async def test_a_damaged_one_is_told_and_signed_behind_and_stays_named(office: Office, change: str, fault: str) -> None:
    await signed_twice(office)
    kept = office.ground.look("SELECT * FROM checkpoints WHERE number = 2")
    as_owner(office, change)
    await office.ground.apply(2, read("failed", 2))
    again = Office(office.ground)
    third = await again.sign()
    assert [(told["event"], told["checkpoint"], told["fault"]) for told in faults(again)] == [
        ("checkpoint_damaged", 2, fault)
    ]
    assert (third.checkpoint.number, office.heads(3)) == (3, [row for row in office.standing() if row[0] == "op_2"])
    with pytest.raises(RecordDamaged, match="checkpoint 2: "):
        look_at(office.ground.path, verify)
    as_owner(office, "DELETE FROM checkpoints WHERE number = 2")
    with beside(office.ground.path, writes=True) as connection:
        connection.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", kept[0])
    assert look_at(office.ground.path, verify).checkpoints == 3  # mended out of a copy, it is whole again


async def test_a_start_sees_that_there_must_have_been_more(office: Office) -> None:
    await signed_twice(office)
    as_owner(office, "DELETE FROM checkpoints")
    with pytest.raises(RecordDamaged, match="checkpoint 1: it is not there, and heads were gathered for checkpoint 2"):
        look_at(office.ground.path, verify)
    again = Office(office.ground)
    await again.sign()
    (told,) = faults(again)
    assert (told["event"], told["checkpoint"], told["hash"]) == ("checkpoint_lost", 1, None)
    assert (told["found"], told["found_hash"]) == (0, None)


async def test_a_start_sees_by_what_was_pruned_that_there_must_have_been_more(office: Office) -> None:
    await office.ground.start(operation(1, State.FAILED), operation(2))
    await office.sign()
    prune(office.ground.path, "op_1")
    await office.sign()
    as_owner(office, "DELETE FROM checkpoints", "DELETE FROM heads")
    again = Office(office.ground)
    await again.sign()
    assert [(told["event"], told["checkpoint"]) for told in faults(again)] == [("checkpoint_lost", 1)]


@pytest.mark.parametrize("is_broken_off", [False, True])
async def test_a_record_that_never_had_one_is_nobodys_fault(office: Office, is_broken_off: bool) -> None:
    """Of a release that made none, or of a start that was killed before or while it signed."""
    await office.ground.start(operation(1), operation(2))
    if is_broken_off:
        await office.ground.store.record.gather_heads(1, after=0, upto=2)
    await office.sign()
    assert faults(office) == []


async def test_one_that_stands_although_its_writing_was_answered_by_an_error_is_not_lost(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    await signed_twice(office)
    record, plain = office.ground.store.record, office.ground.store.record.keep_checkpoint

    async def kept_and_failed(signed: SignedCheckpoint) -> None:
        await plain(signed)
        raise StoreBusy("nobody knows")

    await office.ground.apply(1, read("succeeded"))
    with monkeypatch.context() as patch:
        patch.setattr(record, "keep_checkpoint", kept_and_failed)
        with pytest.raises(StoreBusy):
            await office.notary.sign()
    await office.ground.apply(2, read("failed", 2))
    await office.sign()
    assert faults(office) == []
    assert look_at(office.ground.path, verify).checkpoints == 4


# ---- a gathering that is long ----------------------------------------------------------------------------------


class Gathered:
    """The slices that were gathered, each by where it began; `stop` is set with one of them."""

    def __init__(self, office: Office, monkeypatch: pytest.MonkeyPatch, *, stop_at: int | None = None) -> None:
        self.stop, self.began = asyncio.Event(), list[int]()
        plain = office.ground.store.record.gather_heads

        async def noted(number: int, *, after: int, upto: int) -> int:
            self.began.append(after)
            if len(self.began) == stop_at:
                self.stop.set()
            return await plain(number, after=after, upto=upto)

        monkeypatch.setattr(office.ground.store.record, "gather_heads", noted)


async def test_a_stop_ends_it_between_two_slices_and_the_next_call_goes_on_from_there(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "SLICE", 3)
    await office.ground.start(*(operation(n) for n in range(1, 11)))
    with monkeypatch.context() as patch:
        slices = Gathered(office, patch, stop_at=2)
        assert await office.notary.sign(slices.stop) is None
    assert (slices.began, office.kept()) == ([0, 3], [])
    for n in (2, 9):  # one that is gathered already and one that is not
        await office.ground.apply(n, read("failed", n))
    slices = Gathered(office, monkeypatch)
    signed = await Office(office.ground).sign()
    assert slices.began == [6, 9]
    assert (signed.checkpoint.heads, office.heads(1)) == (10, office.standing())
    assert look_at(office.ground.path, verify).checkpoints == 1


async def test_it_goes_on_behind_what_an_earlier_checkpoint_covers(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "SLICE", 2)
    await office.ground.start(*(operation(n) for n in range(1, 5)))
    await office.sign()
    for n in (3, 1, 2, 4):
        await office.ground.apply(n, read("failed", n))
    with monkeypatch.context() as patch:
        assert await office.notary.sign(Gathered(office, patch, stop_at=1).stop) is None
    await office.ground.apply(3, read("succeeded", 3))  # its gathered head is not its newest any more
    slices = Gathered(office, monkeypatch)
    await office.sign()
    assert slices.began[0] > 4
    assert office.heads(2) == office.standing()
    assert look_at(office.ground.path, verify).checkpoints == 2


async def test_between_slices_it_rests_for_longer_than_they_took(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "SLICE", 3)
    monkeypatch.setattr(rest, "MIN_REST_SECONDS", 3600)
    await office.ground.start(*(operation(n) for n in range(1, 11)))
    stop = asyncio.Event()
    signing = asyncio.create_task(office.notary.sign(stop))
    done, _ = await asyncio.wait([signing], timeout=0.1)
    assert not done
    stop.set()
    assert await signing is None
    assert fault_of(await office.sign(), None) is None  # without a stop nobody else wants the writer


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE checkpoints SET at = at + 1",
        "DELETE FROM checkpoints",
        "INSERT OR REPLACE INTO checkpoints SELECT number, 5, REST FROM checkpoints",
        "INSERT INTO checkpoints SELECT 0, 5, REST FROM checkpoints",
        "UPDATE heads SET seq = seq + 1",
        "UPDATE heads SET checkpoint = 9",
        "DELETE FROM heads",
        "INSERT INTO heads VALUES (1, 'op_9', 1, 'x')",
        "INSERT OR REPLACE INTO heads SELECT checkpoint, operation_id, seq + 1, head FROM heads",
        "UPDATE pruned SET head = 'x'",
        "UPDATE pruned SET checkpoint = NULL",
        "UPDATE pruned SET checkpoint = 3",
        "DELETE FROM pruned",
        "INSERT OR REPLACE INTO pruned SELECT operation_id, seq, 'x', pruned_at, behind, checkpoint, 1 FROM pruned",
    ],
)
async def test_what_was_signed_is_never_changed_by_a_statement(office: Office, sql: str) -> None:
    await office.ground.start(operation(1, State.FAILED), operation(2))
    await office.sign()
    prune(office.ground.path, "op_1")
    await office.sign()
    before = office.ground.dump("checkpoints", "heads", "pruned")
    refused = "never changed|only an ended operation"
    with beside(office.ground.path, writes=True) as connection, pytest.raises(sqlite3.IntegrityError, match=refused):
        connection.execute(sql.replace("REST", REST))
    assert office.ground.dump("checkpoints", "heads", "pruned") == before

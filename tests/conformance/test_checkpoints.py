"""Checkpoints: heads gathered in slices under one number, signed once, each behind the one before (N26)."""

import asyncio

import pytest
from structlog.testing import CapturingLogger

from reconcile.checkpoint import Checkpoint, fault_of
from reconcile.errors import WriteRefused
from reconcile.states import State
from tests.conformance.owner import EDGES, Edge, Owner, Place, killed
from tests.conformance.record import KEY, check_checkpoint, check_record, notary, prune, sign
from tests.conformance.values import operation, read
from tests.reconcile.rows import DAY, NOW

S = State


async def _heads(owner: Owner, number: int) -> list[tuple[str, int, str]]:
    return [(head.operation_id, head.seq, head.head) for head in await owner.store.record.heads(number, after="")]


async def test_a_checkpoint_covers_the_newest_head_of_just_what_moved_since_the_last(place: Place) -> None:
    async with place.opened() as owner:
        assert await owner.store.record.last_checkpoint() is None
        await owner.start(*(operation(n) for n in (1, 2, 3)))
        await owner.apply(2, read("waiting", 2))
        assert await sign(owner) is not None
        first = await check_checkpoint(owner)
        assert (first.checkpoint.number, first.checkpoint.position) == (1, 4)
        assert await _heads(owner, 1) == [(f"op_{n}", (op := await owner.get(n)).seq, op.head) for n in (1, 2, 3)]
        assert await sign(owner) is None, "nothing has changed"
        await owner.apply(3, read("waiting", 3))
        await owner.apply(3, read("running", 3))
        await owner.start(operation(4))
        await sign(owner)
        second = await check_checkpoint(owner, first)
        assert [name for name, *_ in await _heads(owner, 2)] == ["op_3", "op_4"]
        assert second.checkpoint.position == 7
        assert await _heads(owner, 1) != [], "what was signed stays to be verified"
    async with place.opened() as owner:
        assert await check_checkpoint(owner, first) == second
        assert await sign(owner) is None


async def test_an_older_head_of_the_same_chain_is_brought_up_to_date_while_it_is_not_signed(place: Place) -> None:
    """A process that died while it gathered: the next one gathers under the same number."""
    async with place.opened() as owner:
        await owner.start(operation(1), operation(2))
        assert await owner.store.record.gather_heads(1, after=0, upto=2) == 2
        assert await owner.store.record.gathered(1) == 2
        await owner.apply(1, read("waiting"))
        assert await owner.store.record.gather_heads(1, after=2, upto=3) == 3
        assert await _heads(owner, 1) == [(f"op_{n}", (op := await owner.get(n)).seq, op.head) for n in (1, 2)]
        assert await owner.store.record.gather_heads(1, after=0, upto=2) == 2
        assert [seq for _, seq, _ in await _heads(owner, 1)] == [2, 1], "an older head came back"
        await sign(owner)
        await check_checkpoint(owner)


async def test_gathering_goes_on_where_it_was_in_slices(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(*(operation(n) for n in range(1, 1203)))
        after, slices = 0, 0
        while after < 1202:
            reached = await owner.store.record.gather_heads(1, after=after, upto=1202)
            assert after < reached <= 1202
            assert await owner.store.record.gathered(1) == reached
            after, slices = reached, slices + 1
        assert slices > 1, "the writer was held for all of it at once"
        await sign(owner)
        assert (await check_checkpoint(owner)).checkpoint.heads == 1202


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("commit", [1, 2, 3])
async def test_killed_at_any_commit_of_a_signature_the_next_one_is_whole(place: Place, edge: Edge, commit: int) -> None:
    """Its commits: the heads, what was pruned, the signature."""
    async with place.opened() as owner:
        await owner.start(operation(1), operation(2))
        owner.faults.kill(edge, commit=commit)
        await killed(owner, sign(owner))
    async with place.opened() as owner:
        await owner.apply(2, read("waiting", 2))
        before = await owner.store.record.last_checkpoint()
        assert (before is not None) == (edge == "after" and commit == 3)
        await sign(owner)
        signed = await check_checkpoint(owner, before)
        assert signed.checkpoint.position == 3
        if before is None:
            assert [name for name, *_ in await _heads(owner, 1)] == ["op_1", "op_2"]
        await check_record(owner)


async def test_no_number_is_left_out_or_signed_twice(place: Place) -> None:
    def signed(number: int) -> Checkpoint:
        return Checkpoint(number, NOW, 1, "0" * 64, 0, 0, "0" * 64)

    async with place.opened() as owner:
        for number in (0, 2, 7):
            with pytest.raises(WriteRefused):
                await owner.store.record.keep_checkpoint(KEY.sign(signed(number)))
        assert await owner.store.record.last_checkpoint() is None
        await owner.start(operation(1))
        first = await sign(owner)
        for number in (1, 3):
            with pytest.raises(WriteRefused):
                await owner.store.record.keep_checkpoint(KEY.sign(signed(number)))
        assert await owner.store.record.last_checkpoint() == first


async def test_two_notaries_never_sign_two_checkpoints_of_one_number(place: Place) -> None:
    async with place.opened() as one, place.opened() as two:
        await one.start(operation(1), operation(2))
        answers = await asyncio.gather(sign(one), sign(two), return_exceptions=True)
        assert [a for a in answers if isinstance(a, BaseException) and not isinstance(a, WriteRefused)] == []
        (mine,) = {a.hash for a in answers if a is not None and not isinstance(a, BaseException)}
        last = await check_checkpoint(two)
        assert last.hash == mine


async def test_what_was_pruned_is_told_by_the_next_checkpoint(place: Place) -> None:
    async with place.opened() as owner:
        for n in (1, 2):
            await owner.start(operation(n))
            await owner.apply(n, read("failed", n), at=NOW - 100 * DAY * n // 2 - 50 * DAY)
        first = await sign(owner)
        gone = await owner.get(2)
        await prune(owner, ended_before=NOW - 120 * DAY)
        assert await owner.store.record.has_unsigned_pruning()
        await sign(owner)
        second = await check_checkpoint(owner, first)
        (head,) = await owner.store.record.pruned_heads(2, after="")
        assert (head.operation_id, head.seq, head.head, head.pruned_at) == ("op_2", gone.seq, gone.head, NOW)
        assert (second.checkpoint.heads, second.checkpoint.pruned) == (0, 1)
        assert not await owner.store.record.has_unsigned_pruning()
        assert await sign(owner) is None


async def test_a_record_whose_checkpoints_are_gone_still_tells_that_there_were_some(place: Place) -> None:
    async with place.opened() as owner:
        assert await owner.store.record.told_of() == 0
        await owner.start(operation(1))
        await owner.store.record.gather_heads(3, after=0, upto=1)
        assert await owner.store.record.told_of() == 2
        log = CapturingLogger()
        signed = await notary(owner, log).sign()
        assert signed is not None
        assert [call.args for call in log.calls if call.method_name == "error"] == [("checkpoint_lost",)]
        assert fault_of(signed, None) is None

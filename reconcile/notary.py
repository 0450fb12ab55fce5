"""Makes checkpoints: what moved since the last one, gathered in slices, signed, its hash logged as a second place.

It does not believe the newest checkpoint in the file because it stands there: where it is not what was signed, or not
the one that this process knows, that is logged, and the next one names the hash that was known. So the record goes on,
and `audit verify` names the break for as long as the file is kept.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from reconcile.chain import GENESIS
from reconcile.checkpoint import AuditKey, Checkpoint, SignedCheckpoint, own_fault
from reconcile.merkle import Tree
from reconcile.rest import rest
from reconcile.seams import Clock
from reconcile.store.record import Record


class _Stopped(Exception):
    """Nobody waits for this checkpoint any more."""


class Notary:
    """One checkpoint at a time: a second call of `sign` waits until the first has ended."""

    def __init__(self, *, record: Record, key: AuditKey, clock: Clock, log: Any) -> None:
        self._record = record
        self._key = key
        self._clock = clock
        self._log = log
        self._lock = asyncio.Lock()
        #: The newest checkpoint as this process knows it: signed by itself, or found at its first look.
        self._known: SignedCheckpoint | None = None
        #: One that was handed to the file. Where the answer was an error it may stand there all the same.
        self._handed: SignedCheckpoint | None = None
        self._has_looked = False

    async def sign(self, stop: asyncio.Event | None = None) -> SignedCheckpoint | None:
        """Sign what has changed since the last checkpoint; None where nothing has. Raises: StoreError.

        Costs by the changes: nothing that stood still is read. Writers wait for a slice at most, and with `stop` they
        are left alone between two of them. Once that is set it ends, with None, and the next call goes on from there.
        """
        async with self._lock:
            try:
                return await self._sign(stop)
            except _Stopped:
                return None

    async def _sign(self, stop: asyncio.Event | None) -> SignedCheckpoint | None:
        before = await self._record.last_checkpoint()
        number = 1 if before is None else before.checkpoint.number + 1
        is_believed = await self._is_believed(before)
        covered = await self._covered(before)
        upto = await self._record.last_position()
        if upto <= covered and is_believed and not await self._record.has_unsigned_pruning():
            return None
        await self._gather(number, covered, upto, stop)
        signed = self._key.sign(await self._checkpoint(number, upto, self._previous(before), stop))
        self._handed = signed
        await self._record.keep_checkpoint(signed)
        self._known = signed
        self._log.info(
            "checkpoint",
            number=number,
            hash=signed.hash,
            position=upto,
            heads=signed.checkpoint.heads,
            pruned=signed.checkpoint.pruned,
            public_key=signed.public_key,
        )
        return signed

    # ---- the one before ----

    async def _is_believed(self, before: SignedCheckpoint | None) -> bool:
        """Whether the newest one in the file is what it should be; what it is not is logged, and signed behind."""
        is_lost = await self._is_lost(before)
        if before is None:
            return not is_lost
        number, fault = before.checkpoint.number, own_fault(before)
        if fault is not None:
            self._log.error("checkpoint_damaged", checkpoint=number, fault=fault)
            return False
        if before.public_key != self._key.public_key:
            self._log.warning(
                "audit_key_changed",
                checkpoint=number + 1,
                public_key_before=before.public_key,
                public_key=self._key.public_key,
            )
            return False
        return not is_lost

    async def _is_lost(self, before: SignedCheckpoint | None) -> bool:
        """Whether the file's newest is another one than the newest that there was."""
        number, digest = (0, None) if before is None else (before.checkpoint.number, before.hash)
        if self._handed is not None and self._handed.hash == digest:
            self._known = self._handed
        if self._known is not None:
            lost, known = self._known.checkpoint.number, self._known.hash
            is_lost = known != digest
        else:
            # At the first look nothing is known but what the rest of the file tells: a record without any checkpoint
            # may be of a release that made none, or of a start that did not live for long enough.
            lost, known = (0 if self._has_looked else await self._record.told_of()), None
            is_lost = lost > number
            self._known = before
        self._has_looked = True
        if is_lost:
            self._log.error("checkpoint_lost", checkpoint=lost, hash=known, found=number, found_hash=digest)
        return is_lost

    async def _covered(self, before: SignedCheckpoint | None) -> int:
        """The last position that is signed; of a damaged checkpoint by its heads."""
        if before is None:
            return 0
        if own_fault(before) is None:
            return before.checkpoint.position
        return await self._record.gathered(before.checkpoint.number)

    def _previous(self, before: SignedCheckpoint | None) -> str:
        """What was known before what stands there now: else the next one would vouch for whatever somebody wrote."""
        known = self._known or before
        return GENESIS if known is None else known.hash

    # ---- the next one ----

    async def _gather(self, number: int, covered: int, upto: int, stop: asyncio.Event | None) -> None:
        """Heads and prunings, from where a try that was broken off has come to."""
        after = max(covered, await self._record.gathered(number))

        async def some_heads() -> bool:
            nonlocal after
            after = await self._record.gather_heads(number, after=after, upto=upto)
            return after < upto

        if after < upto:
            await self._in_slices(some_heads, stop)
        await self._in_slices(lambda: self._record.gather_pruned(number), stop)

    async def _in_slices(self, one_slice: Callable[[], Awaitable[int]], stop: asyncio.Event | None) -> None:
        """Slice by slice until one leaves nothing, with a rest after each where somebody may want the writer."""
        began = self._clock.monotonic()
        while await one_slice():
            if stop is not None:
                await rest(self._clock.monotonic() - began, stop)
            _go_on(stop)
            began = self._clock.monotonic()
        _go_on(stop)

    async def _checkpoint(self, number: int, position: int, previous: str, stop: asyncio.Event | None) -> Checkpoint:
        tree, after = Tree(), ""
        while heads := await self._record.heads(number, after=after):
            for head in heads:
                tree.add(head.leaf())
            after = heads[-1].operation_id
            _go_on(stop)
        count, after = tree.size, ""
        while pruned := await self._record.pruned_heads(number, after=after):
            for gone in pruned:
                tree.add(gone.leaf())
            after = pruned[-1].operation_id
            _go_on(stop)
        return Checkpoint(number, self._clock.now(), position, previous, count, tree.size - count, tree.finish())


def _go_on(stop: asyncio.Event | None) -> None:
    """Raises: _Stopped."""
    if stop is not None and stop.is_set():
        raise _Stopped

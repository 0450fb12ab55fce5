"""Makes checkpoints: what moved since the last one, gathered in slices, signed, its hash logged as a second place."""

import asyncio
from typing import Any

from reconcile.checkpoint import FIRST_PREVIOUS, AuditKey, Checkpoint, SignedCheckpoint
from reconcile.merkle import Tree
from reconcile.seams import Clock
from reconcile.store.record import Record


class Notary:
    """One at a time: whoever calls `sign` waits for the last call first."""

    def __init__(self, *, record: Record, key: AuditKey, clock: Clock, log: Any) -> None:
        self._record = record
        self._key = key
        self._clock = clock
        self._log = log

    async def sign(self, stop: asyncio.Event | None = None) -> SignedCheckpoint | None:  # noqa: ARG002
        """Sign what has changed since the last checkpoint; None where nothing has. Raises: StoreError.

        Costs by the changes: nothing that stood still is read. Writers wait for a slice at most.
        """
        before = await self._record.last_checkpoint()
        covered = 0 if before is None else before.checkpoint.position
        number = 1 if before is None else before.checkpoint.number + 1
        upto = await self._record.last_position()
        is_same_key = before is None or before.public_key == self._key.public_key
        if not is_same_key:
            self._log.warning("audit_key_changed", checkpoint=number, public_key=self._key.public_key)
        if upto <= covered and is_same_key and not await self._record.has_unsigned_pruning():
            return None
        while covered < upto:
            covered = await self._record.gather_heads(number, after=covered, upto=upto)
        while await self._record.gather_pruned(number):
            pass
        previous = FIRST_PREVIOUS if before is None else before.hash
        signed = self._key.sign(await self._checkpoint(number, upto, previous))
        await self._record.keep_checkpoint(signed)
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

    async def _checkpoint(self, number: int, position: int, previous: str) -> Checkpoint:
        tree, after = Tree(), ""
        while heads := await self._record.heads(number, after=after):
            for head in heads:
                tree.add(head.leaf())
            after = heads[-1].operation_id
        count, after = tree.size, ""
        while pruned := await self._record.pruned_heads(number, after=after):
            for gone in pruned:
                tree.add(gone.leaf())
            after = pruned[-1].operation_id
        return Checkpoint(number, self._clock.now(), position, previous, count, tree.size - count, tree.finish())

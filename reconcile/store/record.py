"""What makes the record last, as everyone outside the store sees it: checkpoints, pruning, restored backups."""

from reconcile.checkpoint import Head, PrunedHead, SignedCheckpoint
from reconcile.model import Operation, UnixMs
from reconcile.store import checkpoints, pruned_events, pruning, restored
from reconcile.store.checkpoints import Gathering
from reconcile.store.pruned_events import EventPruning, IdsKept
from reconcile.store.pruning import Pruned, Pruning
from reconcile.store.reading import Reader
from reconcile.store.writer import GroupCommit


class Record:
    """The record's own business, on the one writer and the connection for long reads. All may raise StoreError."""

    def __init__(self, group: GroupCommit, reader: Reader) -> None:
        self._group = group
        self._reader = reader
        #: How often something was pruned, or may have been: whoever keeps what was read looks at it.
        self.prunings = 0

    async def last_checkpoint(self) -> SignedCheckpoint | None:
        """The newest checkpoint; None before the first."""
        return await checkpoints.last(self._reader)

    async def last_position(self) -> int:
        """The newest history position that was ever given."""
        return await checkpoints.last_position(self._reader)

    async def has_unsigned_pruning(self) -> bool:
        """Whether chains were pruned that no checkpoint tells of yet."""
        return await checkpoints.has_unsigned_pruning(self._reader)

    async def gathered(self, number: int) -> int:
        """The position up to which heads are taken under `number`; 0 where none is."""
        return await checkpoints.gathered(self._reader, number)

    async def told_of(self) -> int:
        """The highest number that a checkpoint must once have had, by all else that stands in the file; 0: none."""
        return await checkpoints.told_of(self._reader)

    async def gather_heads(self, number: int, *, after: int, upto: int) -> int:
        """Take a slice of heads under `number`; the position up to which they are taken."""
        return int(await self._group.write(checkpoints.GATHER, Gathering(number, after, upto)))

    async def gather_pruned(self, number: int) -> int:
        """Take a slice of what was pruned under `number`; how many, 0 when none is left."""
        return int(await self._group.write(checkpoints.GATHER_PRUNED, number))

    async def heads(self, number: int, *, after: str) -> list[Head]:
        """A slice of the heads under `number`, in the order of their operations' ids."""
        return await checkpoints.heads(self._reader, number, after=after)

    async def pruned_heads(self, number: int, *, after: str) -> list[PrunedHead]:
        """A slice of what was pruned under `number`, in the order of the operations' ids."""
        return await checkpoints.pruned_heads(self._reader, number, after=after)

    async def keep_checkpoint(self, signed: SignedCheckpoint) -> None:
        """Keep a signed checkpoint."""
        await self._group.write(checkpoints.KEEP, signed)

    async def oldest_unsettled(self) -> UnixMs | None:
        """When the oldest operation was made whose job, or whose second one, is still looked for."""
        return await pruning.oldest_unsettled(self._reader)

    async def prune(self, wish: Pruning) -> Pruned:
        """Take one slice of what may go, round what cannot."""
        try:
            pruned: Pruned = await self._group.write(pruning.PRUNE, wish)
        finally:
            self.prunings += 1
        return pruned

    async def prune_events(self, wish: EventPruning) -> int:
        """Take one slice of the deliveries that no operation was found for; how many, 0 when none is left."""
        return int(await self._group.write(pruned_events.PRUNE_EVENTS, wish))

    async def prune_event_ids(self, ids: IdsKept) -> int:
        """Take one slice of the event ids that cannot be repeated any more; how many, 0 when none is left."""
        return int(await self._group.write(pruned_events.PRUNE_IDS, ids))

    # ---- a restored backup ----

    async def backup_made_at(self) -> UnixMs | None:
        """When the backup was made that this file is, as long as its first start is not through; else None."""
        return await restored.made_at(self._reader)

    async def open_sends(self, *, after: int) -> list[tuple[int, Operation]]:
        """A page of operations of which more may have been sent than stands here, each with its key, after a key."""
        return await restored.open_sends(self._reader, after=after)

    async def settle_backup(self) -> None:
        """Take the mark off: from here on it is a database like any other."""
        await self._group.write(restored.SETTLE, None)

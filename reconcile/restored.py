"""The first start of a restored backup: before anything is sent, it is made up for what the backup cannot know (F24).

What its original did since the backup was made is lost: requests that it sent, answers that it got, operations that it
started. So what stands open is taken for sent (rules/restoring.py), files of the lost time are kept apart instead of
tidied away, and the log tells of it. Only then the mark goes: a start that is killed before is made up for by the next.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from reconcile.evidence import FoundInBackup
from reconcile.files import Files
from reconcile.ingest import Ingest
from reconcile.model import Operation, UnixMs
from reconcile.peer import Peer
from reconcile.seams import Clock, Supervisor
from reconcile.store.store import Store
from reconcile.unnamed import UNCLAIMED, Unnamed


class Restored:
    """Sees to a marked file; costs one read where there is no mark."""

    def __init__(
        self,
        *,
        store: Store,
        ingest: Ingest,
        peers: Mapping[str, Peer],
        files: Files,
        clock: Clock,
        supervisor: Supervisor,
        log: Any,
    ) -> None:
        self._store = store
        self._ingest = ingest
        self._peers = peers
        self._files = files
        self._clock = clock
        self._supervisor = supervisor
        self._log = log

    async def make_up(self) -> None:
        """Only before the first request and the first listener. Raises: StoreError, OSError."""
        made_at = await self._store.record.backup_made_at()
        if made_at is None:
            return
        seen = await self._take_for_sent(made_at)
        aside = await self._set_aside()
        await self._store.record.settle_backup()
        self._log.warning(
            "restored_backup",
            made_at_ms=made_at,
            operations=dict(sorted(seen.items())),
            unclaimed=aside,
            hint="what was started after it was made is not known here: compare with the provider's own list",
        )

    async def _take_for_sent(self, made_at: UnixMs) -> Counter[str]:
        """By the state in which they stood: a page of them in one commit."""
        seen: Counter[str] = Counter()
        after = 0
        while page := await self._store.record.open_sends(after=after):
            brought = {self._supervisor.start("restored", self._bring(op, made_at)) for _, op in page}
            await asyncio.wait(brought)
            for task in brought:
                task.result()
            seen.update(op.state.value for _, op in page)
            after = page[-1][0]
        return seen

    async def _bring(self, op: Operation, made_at: UnixMs) -> None:
        is_repeatable = self._peers[op.provider].provider.contract.is_repeatable(op.state)
        found = FoundInBackup(made_at, is_repeatable=is_repeatable)
        await self._ingest.fact(op, found, actor="start", cause=f"start:{op.operation_id}")

    # ---- files ----

    async def _set_aside(self) -> int:
        """How many files and folders of the lost time there were."""
        unnamed = Unnamed(self._store, self._files)
        self._files.make(UNCLAIMED)  # it stands there from now on: what is brought here later goes to it as well
        found = await unnamed.look()
        count = 0
        async for refs in unnamed.files(found):
            count += await self._keep_apart(refs)
        async for _, tries in unnamed.tries(found):
            count += await self._keep_apart(tries)
        return count

    async def _keep_apart(self, refs: list[str]) -> int:
        await self._files.offload(lambda: self._files.set_aside(refs, UNCLAIMED))
        return len(refs)

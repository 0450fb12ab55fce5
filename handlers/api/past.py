"""What streams read of the past: one page at a time for all of them, each page read and spelled once.

Many readers that come back at once, with nothing seen, ask for the same: rows never change, so what was spelled for
the first is kept for the others. They take turns, and between two turns the loop does its other work, so that however
many catch up, a start and a lease wait for one page at most.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from handlers.api import frames
from handlers.api.deps import LocalDeps
from reconcile.history_row import HistoryRow
from reconcile.store.consumers import PAGE

#: Bytes of spelled pages that are kept. 8 MiB: arbitrary; some 12,000 rows of the usual size.
MAX_KEPT: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class Page:
    """Rows that lie after a position, spelled. One that is not full holds all there were, up to `newest` at least."""

    positions: Sequence[int]
    pieces: Sequence[bytes]
    is_full: bool
    newest: int


class Past:
    """Pages of history, in turn."""

    def __init__(self, deps: LocalDeps) -> None:
        self._deps = deps
        self._turn = asyncio.Lock()
        #: By the position that they lie after, the longest unused first.
        self._kept: dict[int, Page] = {}
        self._size = 0
        self._prunings = 0

    async def of_all(self, after: int, newest: int, seconds: float) -> Page | None:
        """A page after a position, where all up to `newest` is wanted; None: its turn did not come in that time.

        Raises: StoreError.
        """
        if not await self._takes_turn(seconds):
            return None
        try:
            await asyncio.sleep(0)  # one page for each round of the loop, also of those that are kept
            page = self._known(after, newest)
            if page is None:
                page = await self._read(after, newest)
            return page
        finally:
            self._turn.release()

    async def of_one(self, operation_id: str, after: int, seconds: float) -> Page | None:
        """The same of one operation; it is not kept, since few ask for it. Raises: StoreError."""
        if not await self._takes_turn(seconds):
            return None
        try:
            await asyncio.sleep(0)
            return _page(await self._deps.store.consumers.history_of(operation_id, after=after, limit=PAGE), PAGE, 0)
        finally:
            self._turn.release()

    async def _takes_turn(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._turn.acquire()
        except TimeoutError:
            return False
        return True

    def _known(self, after: int, newest: int) -> Page | None:
        if self._prunings != self._deps.store.record.prunings:  # what was removed is told to nobody any more
            self._kept.clear()
            self._size, self._prunings = 0, self._deps.store.record.prunings
        page = self._kept.pop(after, None)
        if page is None:
            return None
        if not page.is_full and page.newest < newest:
            self._size -= _size(page)
            return None
        self._kept[after] = page
        return page

    async def _read(self, after: int, newest: int) -> Page:
        # Up to a multiple of the page where none is missing, so that readers from anywhere soon ask for the same pages.
        limit = PAGE - after % PAGE
        page = _page(await self._deps.store.consumers.history_of_all(after=after, limit=limit), limit, newest)
        if self._prunings == self._deps.store.record.prunings:
            self._kept[after] = page
            self._size += _size(page)
            while self._size > MAX_KEPT:
                self._size -= _size(self._kept.pop(next(iter(self._kept))))
        return page


def _page(rows: Sequence[HistoryRow], limit: int, newest: int) -> Page:
    pieces = tuple(frames.pieces(map(frames.row, rows)))
    return Page([row.position for row in rows], pieces, len(rows) >= limit, newest)


def _size(page: Page) -> int:
    return sum(map(len, page.pieces))

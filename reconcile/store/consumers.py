"""What consumers read of the record: the history of all, and of one operation after a position."""

from typing import Final

from reconcile.history_row import HistoryRow
from reconcile.store import checkpoints, history
from reconcile.store.reading import Reader

#: Rows that a stream reads of the file at once. 200: arbitrary; some ms, so that others are read in between.
PAGE: Final = 200


class Consumers:
    """The store as its consumers see it. All may raise StoreError."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def last_position(self) -> int:
        """The newest history position that was ever given."""
        return await checkpoints.last_position(self._reader)

    async def history_of_all(self, *, after: int, limit: int = PAGE) -> list[HistoryRow]:
        """A page of all history after a position, in the order in which it was committed."""
        found = await self._reader.execute_fetchall(history.OF_ALL, (after, limit))
        return [history.load(row) for row in found]

    async def history_of(
        self, operation_id: str, *, after_seq: int = 0, after: int, limit: int = PAGE
    ) -> list[HistoryRow]:
        """A page of one operation's history after a position, oldest first; `after_seq` leads on."""
        found = await self._reader.execute_fetchall(history.OF_OPERATION, (operation_id, after_seq, after, limit))
        return [history.load(row) for row in found]

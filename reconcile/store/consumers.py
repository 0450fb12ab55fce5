"""What consumers read of the record, history after a position and ends in their order; and what each has taken."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconcile.history_row import HistoryRow
from reconcile.model import Operation
from reconcile.states import TERMINAL, State
from reconcile.store import checkpoints, completion_claims, history, rows
from reconcile.store.completion_claims import CompletionClaim, CompletionTaken
from reconcile.store.reading import Reader
from reconcile.store.writer import GroupCommit

#: Rows that a stream reads of the file at once. 200: arbitrary; some ms, so that others are read in between.
PAGE: Final = 200
#: Spelled as the index is, or SQLite does not see that it fits; tests/reconcile/store/test_consumers.py.
_ENDS: Final = ", ".join(f"'{state}'" for state in State if state in TERMINAL)
#: The ends after a position. An operation ends once: no arrow leads out of an end.
COMPLETIONS: Final = (
    f"SELECT h.position, h.hash, {', '.join(f'o.{name}' for name in rows.COLUMNS)}"
    " FROM history h INDEXED BY history_ends JOIN present o ON o.key = h.operation_key"
    f" WHERE h.kind = 'move' AND h.to_state IN ({_ENDS}) AND h.position > ? ORDER BY h.position LIMIT ?"
)
_HASH_AT: Final = "SELECT hash FROM history WHERE position = ?"
_WAS_PRUNED: Final = "SELECT 1 FROM pruned WHERE operation_id = ?"
_THESE: Final = rows.SELECT + "WHERE o.operation_id IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an end stands in the record: its position, and by what a record knows that it is its own."""

    position: int
    hash: str
    operation_id: str


@dataclass(frozen=True, slots=True)
class Completion:
    """An operation that has ended, and where its end stands."""

    place: Place
    operation: Operation


class Consumers:
    """The store as its consumers see it. All may raise StoreError."""

    def __init__(self, group: GroupCommit, reader: Reader, scanner: Reader) -> None:
        self._group = group
        self._reader = reader
        self._scanner = scanner

    async def take(self, claim: CompletionClaim) -> CompletionTaken:
        """Take a completion, or learn who has. Raises: WriteRefused, where the operation has not ended or is gone."""
        taken: CompletionTaken = await self._group.write(completion_claims.TAKE, claim)
        return taken

    async def operations(self, operation_ids: Sequence[str]) -> dict[str, Operation]:
        """Operations by their ids; those that are not there are left out."""
        found = await self._reader.execute_fetchall(_THESE, (json.dumps(list(operation_ids)),))
        return {op.operation_id: op for _, op in map(rows.load, found)}

    async def last_position(self) -> int:
        """The newest history position that was ever given."""
        return await checkpoints.last_position(self._reader)

    async def history_of_all(self, *, after: int, limit: int = PAGE) -> list[HistoryRow]:
        """A page of all history after a position, in the order in which it was committed; among the long reads."""
        found = await self._scanner.execute_fetchall(history.OF_ALL, (after, limit))
        return [history.load(row) for row in found]

    async def history_of(self, operation_id: str, *, after: int, limit: int = PAGE) -> list[HistoryRow]:
        """A page of one operation's history after a position, oldest first; among the long reads."""
        found = await self._scanner.execute_fetchall(history.OF_OPERATION, (operation_id, 0, after, limit))
        return [history.load(row) for row in found]

    async def completions(self, *, after: int, limit: int) -> list[Completion]:
        """A page of what ended after a position, in the order in which it ended; what was pruned is passed over."""
        found = await self._reader.execute_fetchall(COMPLETIONS, (after, limit))
        loaded = [(row[0], row[1], rows.load(row[2:])[1]) for row in found]
        return [Completion(Place(position, digest, op.operation_id), op) for position, digest, op in loaded]

    async def knows(self, place: Place) -> bool:
        """Whether a place is of this record; `hash` may be the beginning of one.

        False: it was given by another one, of which this is a copy that was made before, or which this is none of.
        """
        found = await self._reader.execute_fetchall(_HASH_AT, (place.position,))
        if found:
            return str(found[0][0]).startswith(place.hash)
        was_pruned = bool(await self._reader.execute_fetchall(_WAS_PRUNED, (place.operation_id,)))
        return was_pruned and place.position <= await self.last_position()

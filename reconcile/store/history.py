"""History rows: appended in the transaction of the change they tell, chained per operation, numbered over all."""

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from reconcile.chain import GENESIS, fields_hash
from reconcile.fingerprint import canonical_json
from reconcile.history_row import HistoryRow
from reconcile.model import Entry, Operation, UnixMs

_INSERT: Final = (
    "INSERT INTO history (position, operation_key, seq, at, actor, kind, from_state, to_state, cause, remote_job_id,"
    " reason, facts, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ROWS: Final = (
    "SELECT h.position, o.operation_id, h.seq, h.at, h.actor, h.kind, h.from_state, h.to_state, h.cause,"
    " h.remote_job_id, h.reason, h.facts, h.hash FROM history h JOIN %s o ON o.key = h.operation_key"
)
#: The history of one operation after a sequence number and after a position, oldest first.
OF_OPERATION: Final = (
    _ROWS % "operations" + " WHERE o.operation_id = ? AND h.seq > ? AND h.position > ? ORDER BY h.seq LIMIT ?"
)
#: The history of all after a position, in the order in which it was committed.
OF_ALL: Final = _ROWS % "present" + " WHERE h.position > ? ORDER BY h.position LIMIT ?"
#: The last one given, not the highest in the table: that goes back where the chain at its end is pruned.
LAST_POSITION: Final = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'history'), 0)"


class Appender:
    """Chains new rows in one transaction; the rows leave in one statement."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._position: int | None = None
        self._rows: list[tuple[Any, ...]] = []

    def append(
        self, key: int, op: Operation, entries: Sequence[Entry], *, at: UnixMs, actor: str
    ) -> tuple[HistoryRow, ...]:
        """Chain `entries` behind `op.seq` and `op.head`; gives the rows, of which the last is the chain's new end."""
        seq, head = op.seq, op.head or GENESIS
        told = []
        for entry in entries:
            seq += 1
            position, facts = self._next_position(), canonical_json(entry.facts).decode()
            # Everything but its facts that stands behind `seq`, in the order of `ChainedRow`.
            rest = (
                at,
                actor,
                entry.kind.value,
                entry.from_state,
                entry.to_state,
                entry.cause,
                op.remote_job_id,
                entry.reason,
            )
            head = fields_hash(head, (position, op.operation_id, seq, *rest, facts))
            told.append(HistoryRow(position, op.operation_id, seq, *rest, dict(entry.facts), head))
            self._rows.append((position, key, seq, *rest, facts, head))
        return tuple(told)

    def flush(self) -> None:
        """Write what was appended."""
        if self._rows:
            self._connection.executemany(_INSERT, self._rows)
            self._rows = []

    def _next_position(self) -> int:
        if self._position is None:
            self._position = int(self._connection.execute(LAST_POSITION).fetchone()[0])
        self._position += 1
        return self._position


def load(row: Sequence[Any]) -> HistoryRow:
    """One row of `OF_OPERATION` or `OF_ALL`."""
    *fields, facts, digest = row
    return HistoryRow(*(*fields, json.loads(facts), digest))

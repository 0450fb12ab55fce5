"""Every chain, row by row, beside the operation that it tells of and the checkpoints that signed it.

Rows are walked in the order of the index over (operation, seq), and every value is taken from the row itself: where a
column stands in an index too, SQLite reads it there, and a byte that was changed in the row alone would go unseen.
"""

import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from reconcile.chain import Chain
from reconcile.errors import RecordDamaged, Unreadable
from reconcile.fold import Fold, read_facts
from reconcile.states import TERMINAL
from reconcile.store import rows
from reconcile.store.audit.signed import Signed, must
from reconcile.store.audit.whereabouts import Whereabouts

#: All rows, each with what the index says of it. An entry of the index whose row is gone gives a row without values.
HISTORY: Final = (
    "SELECT h.position, h.operation_key, h.seq, h.at, h.actor, h.kind, h.from_state, h.to_state, h.cause,"
    " h.remote_job_id, h.reason, h.facts, h.hash, i.operation_key, i.seq, i.position FROM history i"
    " LEFT JOIN history h ON h.position = i.position ORDER BY i.operation_key, i.seq"
)
#: Without the schedule, which says nothing of the past; files of the first hours have other columns there.
OPERATIONS: Final = f"SELECT {', '.join(f'o.{name}' for name in rows.COLUMNS)} FROM operations o ORDER BY o.key"
#: Where the walk's own columns stand in a row of `HISTORY`, and where the last of the hashed ones ends.
_AT, _KIND, _FROM_STATE, _TO_STATE, _FACTS, _HASHED, _HASH, _KEY, _SEQ, _POSITION = 3, 5, 6, 7, 11, 12, 12, 13, 14, 15
_LEAF: Final = "SELECT seq, head FROM heads WHERE checkpoint = ? AND operation_id = ?"
#: A signed head that is not, or is no longer, a row of its operation's chain under that checkpoint.
_UNMET: Final = (
    "SELECT l.operation_id, l.seq, l.checkpoint FROM heads l JOIN checkpoints c ON c.number = l.checkpoint"
    " JOIN operations o ON o.operation_id = l.operation_id"
    " LEFT JOIN history h ON h.operation_key = o.key AND h.seq = l.seq"
    " WHERE h.hash IS NOT l.head OR h.position > c.position"
    "  OR h.position <= coalesce((SELECT position FROM checkpoints WHERE number = c.number - 1), 0)"
    " ORDER BY l.checkpoint, l.operation_id LIMIT 1"
)
#: Rows of one chain after which the whereabouts hear of them. 4096: arbitrary.
_SPELL: Final = 4096
#: What reading an operation's row may raise where somebody else wrote it.
_UNREADABLE: Final = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, Unreadable)


@dataclass(slots=True)
class Walked:
    """What the chains came to."""

    rows: int = 0
    operations: int = 0
    #: Signed heads that a chain has met.
    met: int = 0


def walk(connection: sqlite3.Connection, signed: Signed, whereabouts: Whereabouts) -> Walked:
    """Walk all of them. Raises: RecordDamaged, sqlite3.Error."""
    walked = Walked()
    history = connection.execute(HISTORY)
    ahead: Any = next(history, None)
    for raw in connection.execute(OPERATIONS):
        if ahead is not None and not (type(ahead[_KEY]) is int and ahead[_KEY] >= raw[0]):
            raise _orphan(ahead)
        whereabouts.near = chain = _OneChain(connection, raw[1], signed)
        while ahead is not None and ahead[_KEY] == raw[0]:
            chain.take_row(ahead)
            if not chain.seq % _SPELL:
                whereabouts.step(_SPELL)
            ahead = next(history, None)
        chain.finish(raw)
        walked.rows, walked.operations = walked.rows + chain.seq, walked.operations + 1
        walked.met += chain.met
        whereabouts.step(chain.seq % _SPELL)
    if ahead is not None:
        raise _orphan(ahead)
    if walked.met != signed.standing:
        operation_id, seq, number = connection.execute(_UNMET).fetchone() or ("some operation", "?", "?")
        raise RecordDamaged(
            f"row {seq} of {operation_id}: checkpoint {number} signed it, and the chain has another row there"
        )
    return walked


def one(connection: sqlite3.Connection, key: int) -> Iterator[tuple[Any, ...]]:
    """The rows of one chain as `ChainedRow` and its hash have them, but for the operation's key in place of its id."""
    sql = HISTORY.replace(" ORDER BY", " WHERE i.operation_key = ? ORDER BY")
    for row in connection.execute(sql, (key,)):
        yield row[: _HASH + 1]


class _OneChain(Chain):
    """A chain that is met with what the checkpoints signed of it, and that folds to its operation's row."""

    __slots__ = ("_connection", "_ended_at", "_fold", "_signed", "_signed_up_to", "met")

    def __init__(self, connection: sqlite3.Connection, operation_id: str, signed: Signed) -> None:
        super().__init__(operation_id)
        self._connection = connection
        self._fold = Fold()
        self._signed = signed
        #: The last position that is covered by the checkpoint over the chain's last row.
        self._signed_up_to = 0
        #: When it moved to an end.
        self._ended_at: object = None
        self.met = 0

    def __str__(self) -> str:
        return f"{self.last}, or after it"

    def take_row(self, row: tuple[Any, ...]) -> None:
        """The next row of `HISTORY`. Raises: RecordDamaged."""
        position, key, seq = row[:3]
        if key != row[_KEY] or seq != row[_SEQ]:
            raise RecordDamaged(_misplaced(self.operation_id, row))
        before = (self.last, self.position, self.seq, self.head) if position > self._signed_up_to else None
        must(self.take((position, self.operation_id, *row[2:_HASHED]), row[_HASH]))
        if before is not None:
            self._meet(*before)
            number = self._signed.covering(position)
            self._signed_up_to = self._signed.positions[number - 1] if number <= self._signed.count else sys.maxsize
        if row[_KIND] == "move":
            self._follow(row[_FROM_STATE], row[_TO_STATE], row[_AT])
        try:
            self._fold.take(row[_KIND], row[_TO_STATE], read_facts(row[_FACTS]))
        except _UNREADABLE as fault:
            raise RecordDamaged(f"{self.last}: its facts cannot be read") from fault

    def _follow(self, from_state: object, to_state: object, at: object) -> None:
        """A move begins where the last one ended, and none leaves an end (N7, N8)."""
        if from_state != self._fold.state:
            raise RecordDamaged(f"{self.last}: it moves out of {from_state}, and {self._fold.state} stood there")
        if from_state in TERMINAL:
            raise RecordDamaged(f"{self.last}: it moves out of {from_state}, which is an end")
        self._ended_at = at if to_state in TERMINAL and from_state is not None else None

    def finish(self, raw: tuple[Any, ...]) -> None:
        """The chain has ended: its operation's row must agree. Raises: RecordDamaged."""
        named = dict(zip(rows.COLUMNS, raw, strict=False))
        if type(named["seq"]) is not int or type(named["head"]) is not str:
            raise RecordDamaged(f"the row of {self.operation_id}: its seq or head has another type than was written")
        must(self.end(head=named["head"], length=named["seq"]))
        self._meet(self.last, self.position, self.seq, self.head)
        try:
            "".join(value for value in raw if type(value) is str).encode("utf-8")  # what is no text nobody can read
            difference = self._fold.difference(rows.load(raw)[1])
        except _UNREADABLE as fault:
            raise RecordDamaged(f"the row of {self.operation_id}: it cannot be read as an operation") from fault
        if difference is None and self._ended_at is not None and named["completed_at"] != self._ended_at:
            difference = f"its completed_at is {named['completed_at']}, and its history tells {self._ended_at}"
        if difference is not None:
            raise RecordDamaged(f"the row of {self.operation_id}: {difference}")

    def _meet(self, last: str, position: int, seq: int, head: str) -> None:
        """The last row under one checkpoint must be the head that it signed."""
        number = self._signed.covering(position)
        if not seq or number > self._signed.count:
            return
        leaf = self._connection.execute(_LEAF, (number, self.operation_id)).fetchone()
        if leaf is None:
            raise RecordDamaged(f"{last}: checkpoint {number} covers it, and signed no head of this operation")
        if leaf != (seq, head):
            raise RecordDamaged(f"{last}: checkpoint {number} signed another one (row {leaf[0]}) as the last before it")
        self.met += 1


def _misplaced(operation_id: str, row: tuple[Any, ...]) -> str:
    if row[0] is None:
        return f"row {row[_SEQ]} of {operation_id} (position {row[_POSITION]}): the index names it, and it is gone"
    return (
        f"row {row[2]} of {operation_id} (position {row[0]}): it bears another operation or number than its index"
        f" tells (row {row[_SEQ]})"
    )


def _orphan(row: tuple[Any, ...]) -> RecordDamaged:
    return RecordDamaged(
        f"row {row[_SEQ]} of an operation that is not there (position {row[_POSITION]}): it belongs to nothing"
    )

"""The hash chain of one operation's history: each row's hash covers the row and the hash before it (D3).

A changed, removed, inserted or swapped row breaks the chain where it stands. A tail that was cut off leaves a shorter
chain that is right in itself, so its end is compared with a head and a length that were kept in a second place.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

#: What stands before the first row of each chain, and before the first checkpoint.
GENESIS: Final = "0" * 64
#: The `seq` of a chain's first row.
FIRST_SEQ: Final = 1
#: A value that no column of ours can hold (bytes, written by somebody else) is spelled as no column's value is.
_spell: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=lambda value: [repr(value)]).encode


@dataclass(frozen=True, slots=True)
class ChainedRow:
    """One history row, every field of it under the hash."""

    #: Numbered over all operations, in commit order.
    position: int
    operation_id: str
    #: Numbered within the operation from `FIRST_SEQ`, without gaps.
    seq: int
    #: Unix ms. May go back where the wall clock did: order is `seq`'s business.
    at: int
    actor: str
    kind: str
    from_state: str | None
    to_state: str | None
    cause: str
    remote_job_id: str | None
    reason: str
    #: Canonical JSON, hashed as text: re-reading it must never be needed to verify.
    facts: str

    def fields(self) -> tuple[Any, ...]:
        """Its fields in the order in which they are hashed: as they stand above."""
        return (
            self.position,
            self.operation_id,
            self.seq,
            self.at,
            self.actor,
            self.kind,
            self.from_state,
            self.to_state,
            self.cause,
            self.remote_job_id,
            self.reason,
            self.facts,
        )


def row_hash(previous: str, row: ChainedRow) -> str:
    """SHA-256, hex, over the hash before and the row as one JSON array.

    An array frames its fields: no two rows that differ anywhere share their bytes, however text moves between fields.
    """
    return fields_hash(previous, row.fields())


def fields_hash(previous: str, fields: Sequence[Any]) -> str:
    """As `row_hash`, of `ChainedRow.fields`."""
    # surrogatepass: verification meets whatever somebody wrote into the file, and must name the row, not fall over it.
    return hashlib.sha256((previous + _spell(fields)).encode("utf-8", "surrogatepass")).hexdigest()


class Chain:
    """One operation's chain as it is walked, row by row: a chain of any length needs the memory of one row."""

    __slots__ = ("head", "operation_id", "position", "seq")

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        #: The last row's hash, number and position; without a row what stands before the first.
        self.head, self.seq, self.position = GENESIS, FIRST_SEQ - 1, 0

    @property
    def last(self) -> str:
        """The last row by name."""
        return _named(self.seq, self.operation_id, self.position) if self.seq else f"no row of {self.operation_id}"

    def take(self, fields: Sequence[Any], stored: str) -> str | None:
        """The next row, as `ChainedRow.fields`, with its stored hash; words naming it where it does not follow."""
        position, operation_id, seq = fields[:3]
        if operation_id != self.operation_id:
            named = _named(seq, operation_id, position)
            return f"{named}: belongs to another operation than the rows before it ({self.operation_id})"
        if seq != self.seq + 1:
            return f"{_named(seq, operation_id, position)}: out of order, row {self.seq + 1} was expected"
        if self.seq and position <= self.position:
            return f"{_named(seq, operation_id, position)}: its position does not follow {self.position}"
        if fields_hash(self.head, fields) != stored:
            return f"{_named(seq, operation_id, position)}: its hash does not fit"
        self.head, self.seq, self.position = stored, seq, position
        return None

    def end(self, *, head: str | None, length: int | None) -> str | None:
        """Words where the chain does not end as a second place knows it; None: not known."""
        if length is not None and self.seq < length:
            return f"{self.last}: the chain ends here after {self.seq} rows, {length} were recorded: its tail is cut"
        if length is not None and self.seq > length:
            return f"{self.last}: the chain has {self.seq} rows, only {length} were recorded"
        if head is not None and self.head != head:
            return f"{self.last}: the chain ends here, but another head was recorded"
        return None


def _named(seq: object, operation_id: object, position: object) -> str:
    return f"row {seq} of {operation_id} (position {position})"

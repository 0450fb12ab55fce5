"""The hash chain of one operation's history: each row's hash covers the row and the hash before it (D3).

A changed, removed, inserted or swapped row breaks the chain where it stands. A tail that was cut off leaves a shorter
chain that is right in itself, so `verify` also takes a head and a length that were kept in a second place.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

#: What stands before the first row of each chain.
GENESIS: Final = "0" * 64
#: The `seq` of a chain's first row.
FIRST_SEQ: Final = 1


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


def row_hash(previous: str, row: ChainedRow) -> str:
    """SHA-256, hex, over the hash before and the row as one JSON array.

    An array frames its fields: no two rows that differ anywhere share their bytes, however text moves between fields.
    """
    fields = (
        row.position,
        row.operation_id,
        row.seq,
        row.at,
        row.actor,
        row.kind,
        row.from_state,
        row.to_state,
        row.cause,
        row.remote_job_id,
        row.reason,
        row.facts,
    )
    spelled = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    # surrogatepass: verification meets whatever somebody wrote into the file, and must name the row, not fall over it.
    return hashlib.sha256(
        previous.encode("utf-8", "surrogatepass") + spelled.encode("utf-8", "surrogatepass")
    ).hexdigest()


def verify(rows: Iterable[tuple[ChainedRow, str]], *, head: str | None, length: int | None) -> str | None:
    """None where one operation's rows, each with its stored hash, are whole; else words naming the first bad row.

    `head` and `length` are the last hash and the number of rows as a second place knows them; None: not known. Rows are
    taken one by one, so a chain of any length needs the memory of one row.
    """
    previous, last, count = GENESIS, None, 0
    for row, stored in rows:
        fault = _fault(row, stored, previous, last)
        if fault is not None:
            return fault
        previous, last, count = stored, row, count + 1
    return _fault_of_the_end(last, previous, count, head, length)


def _fault(row: ChainedRow, stored: str, previous: str, last: ChainedRow | None) -> str | None:
    name = f"row {row.seq} of {row.operation_id} (position {row.position})"
    expected_seq = FIRST_SEQ if last is None else last.seq + 1
    if last is not None and row.operation_id != last.operation_id:
        return f"{name}: belongs to another operation than the rows before it ({last.operation_id})"
    if row.seq != expected_seq:
        return f"{name}: out of order, row {expected_seq} was expected"
    if last is not None and row.position <= last.position:
        return f"{name}: its position does not follow {last.position}"
    if row_hash(previous, row) != stored:
        return f"{name}: its hash does not fit"
    return None


def _fault_of_the_end(
    last: ChainedRow | None, last_hash: str, count: int, head: str | None, length: int | None
) -> str | None:
    name = "no row" if last is None else f"row {last.seq} of {last.operation_id} (position {last.position})"
    if length is not None and count < length:
        return f"{name}: the chain ends here after {count} rows, {length} were recorded: its tail is cut"
    if length is not None and count > length:
        return f"{name}: the chain has {count} rows, only {length} were recorded"
    if head is not None and last_hash != head:
        return f"{name}: the chain ends here, but another head was recorded"
    return None

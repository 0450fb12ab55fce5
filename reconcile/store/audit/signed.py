"""Checkpoints from the first to the newest: each as it was signed, over the leaves that stand in the file, and each
leaf with the operation, or with the pruning, that it speaks of.
"""

import sqlite3
from array import array
from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconcile.checkpoint import (
    Head,
    PrunedHead,
    SignedCheckpoint,
    SignedSpan,
    add_to_spans,
    fault_of,
    newest_key_fault,
)
from reconcile.errors import RecordDamaged
from reconcile.merkle import Tree
from reconcile.store import checkpoints
from reconcile.store.audit.whereabouts import Whereabouts

#: The leaves of one checkpoint, each with how long its operation's chain is, or was when it was pruned. The number is
#: read too: a damaged row that stands among them is given out with them, whatever number it bears.
LEAVES: Final = (
    "SELECT l.operation_id, l.seq, l.head, o.seq, p.seq, p.behind, l.checkpoint FROM heads l"
    " LEFT JOIN operations o ON o.operation_id = l.operation_id LEFT JOIN pruned p ON p.operation_id = l.operation_id"
    " WHERE l.checkpoint = ? ORDER BY l.operation_id"
)
#: What was pruned, as one checkpoint signed it. The index only gives the order: each value comes from its own row.
SIGNED_PRUNING: Final = (
    "SELECT p.operation_id, p.seq, p.head, p.pruned_at, p.checkpoint FROM pruned i"
    " LEFT JOIN pruned p ON p.operation_id = i.operation_id WHERE i.checkpoint = ? ORDER BY i.operation_id"
)
#: Everything that was pruned, with its leaf in the checkpoint before, and with an operation that should not be there.
PRUNED: Final = (
    "SELECT p.operation_id, p.seq, p.head, p.behind, p.checkpoint, l.seq, l.head, o.key FROM pruned p NOT INDEXED"
    " LEFT JOIN heads l ON l.checkpoint = p.behind AND l.operation_id = p.operation_id"
    " LEFT JOIN operations o ON o.operation_id = p.operation_id ORDER BY p.operation_id"
)
_LOWEST: Final = "SELECT min(checkpoint) FROM heads"
_HIGHEST: Final = "SELECT max(checkpoint) FROM heads"
#: The types of a row of `checkpoints`, of a leaf, and of one of what was pruned.
_SIGNED: Final = (int, int, int, str, int, int, str, str, str, str)
_LEAF: Final = (str, int, str)
_PRUNED_LEAF: Final = (str, int, str, int)


@dataclass(slots=True)
class Signed:
    """What the checkpoints came to."""

    count: int = 0
    newest: SignedCheckpoint | None = None
    #: The position that each covers, from the first on.
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    #: Which of them bear the same key.
    spans: list[SignedSpan] = field(default_factory=list)
    #: Leaves of operations that are there: each must be met by a row of a chain.
    standing: int = 0
    #: Chains that were pruned, the rows that they had, and how many of those prunings no checkpoint tells of yet.
    pruned: int = 0
    pruned_rows: int = 0
    unsigned_prunings: int = 0

    @property
    def covered(self) -> int:
        """The last position that a checkpoint covers."""
        return self.positions[-1] if self.positions else 0

    def covering(self, position: int) -> int:
        """The number of the checkpoint that covers a position; one more than there are, where none does."""
        return bisect_left(self.positions, position) + 1


def walk(
    connection: sqlite3.Connection, whereabouts: Whereabouts, *, trusted: Collection[str], noted: Collection[str]
) -> Signed:
    """Walk all of them. Raises: RecordDamaged, sqlite3.Error."""
    signed, missing = Signed(), set(noted)
    for row in connection.execute(checkpoints.ALL):
        whereabouts.near = f"checkpoint {row[0]}"
        if not _are(row, _SIGNED):
            raise RecordDamaged(f"checkpoint {row[0]}: a value in it has another type than was written")
        one = checkpoints.load(row)
        must(fault_of(one, signed.newest))
        _leaves(connection, one, signed, whereabouts)
        signed.newest, signed.count = one, signed.count + 1
        add_to_spans(signed.spans, one)
        signed.positions.append(one.checkpoint.position)
        missing.discard(one.hash)
    must(newest_key_fault(signed.newest, trusted))
    if missing:
        last = signed.newest
        newest = "there is none" if last is None else f"the newest is {last.checkpoint.number}"
        raise RecordDamaged(
            f"no checkpoint has the hash {min(missing)} ({newest}): what was signed has been cut off, or the hash is"
            " of another file"
        )
    _pruned(connection, signed, whereabouts)
    (highest,) = connection.execute(_HIGHEST).fetchone()
    if isinstance(highest, int) and highest > signed.count + 1:
        raise RecordDamaged(
            f"checkpoint {signed.count + 1}: it is not there, and heads were gathered for checkpoint {highest}:"
            " what was signed has been cut off"
        )
    (lowest,) = connection.execute(_LOWEST).fetchone()
    if lowest is not None and (not isinstance(lowest, int) or lowest < 1):
        raise RecordDamaged(f"a head stands under checkpoint {lowest}, and numbers begin with 1")
    return signed


def _leaves(connection: sqlite3.Connection, one: SignedCheckpoint, signed: Signed, whereabouts: Whereabouts) -> None:
    """The leaves of one checkpoint: those that were signed, then each by itself."""
    checkpoint, tree = one.checkpoint, Tree()
    name = f"checkpoint {checkpoint.number}"
    fault: str | None = None
    for *row, number in connection.execute(LEAVES, (checkpoint.number,)):
        if not _are(row, _LEAF) or number != checkpoint.number:
            raise RecordDamaged(f"{name}: the head of {row[0]} is not as it was written")
        tree.add(Head(*row[:3]).leaf())
        fault = fault or _leaf_fault(checkpoint.number, *row)
        signed.standing += row[3] is not None
        whereabouts.step()
    heads = tree.size
    for *leaf, number in connection.execute(SIGNED_PRUNING, (checkpoint.number,)):
        if not _are(leaf, _PRUNED_LEAF) or number != checkpoint.number:
            raise RecordDamaged(f"{name}: what it tells to be pruned ({leaf[0]}) is not as it was written")
        tree.add(PrunedHead(*leaf).leaf())
    for noun, count, there in (("heads", checkpoint.heads, heads), ("prunings", checkpoint.pruned, tree.size - heads)):
        if count != there:
            raise RecordDamaged(f"{name}: it was signed over {count} {noun}, and {there} are there")
    if tree.finish() != checkpoint.root:
        raise RecordDamaged(f"{name}: its heads, or what it tells to be pruned, are not those that were signed")
    must(fault)  # last: only what was signed can speak against the rest of the file


def _leaf_fault(
    number: int, operation_id: str, seq: int, _: str, rows: object, pruned_seq: object, behind: object
) -> str | None:
    """Words where a leaf's operation is not there, or too short, and was not pruned either."""
    name = f"row {seq} of {operation_id}: checkpoint {number} signed it"
    if rows is not None:
        if isinstance(rows, int) and seq <= rows:
            return None
        return f"{name}, and the operation has only {rows} rows: its tail is cut"
    if not isinstance(pruned_seq, int) or not isinstance(behind, int):
        return f"{name}, and the operation is gone; no pruning tells of it"
    if seq > pruned_seq or number > behind:
        return f"{name}, and it is told to have been pruned at row {pruned_seq} behind checkpoint {behind}"
    return None


def _pruned(connection: sqlite3.Connection, signed: Signed, whereabouts: Whereabouts) -> None:
    """Each chain that was pruned: its last head was signed before, and the pruning was, or will be, after that."""
    for operation_id, seq, head, behind, number, leaf_seq, leaf_head, key in connection.execute(PRUNED):
        name = f"the pruned operation {operation_id}"
        whereabouts.near = name
        if not _are((operation_id, seq, head, behind), (str, int, str, int)):
            raise RecordDamaged(f"{name}: a value in its row has another type than was written")
        if not 1 <= behind <= signed.count or (leaf_seq, leaf_head) != (seq, head):
            raise RecordDamaged(f"{name}: checkpoint {behind}, behind which it is told to be, did not sign its head")
        if key is not None:
            raise RecordDamaged(f"{name}: it is told to be pruned, and it is there")
        if number is not None and type(number) is not int:
            raise RecordDamaged(f"{name}: a value in its row has another type than was written")
        if number is not None and not 1 <= number <= signed.count + 1:  # one more: a signing that was broken off
            raise RecordDamaged(f"{name}: checkpoint {number} is told to sign that, and there will never be such a one")
        signed.pruned, signed.pruned_rows = signed.pruned + 1, signed.pruned_rows + seq
        signed.unsigned_prunings += number is None or number > signed.count


def _are(values: Sequence[Any], types: tuple[type, ...]) -> bool:
    """Whether each is of its type; a damaged byte may make a text of a number, in a strict table too."""
    return all(type(value) is kind for value, kind in zip(values, types, strict=False))


def must(fault: str | None) -> None:
    """Go on where there is no fault. Raises: RecordDamaged."""
    if fault is not None:
        raise RecordDamaged(fault)

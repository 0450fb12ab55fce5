"""Checkpoints in the file: heads gathered in slices under the next number, then signed in one write.

A crash in between leaves heads under a number that nobody has signed; the next try gathers under the same number and
brings them up to date.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.checkpoint import Checkpoint, Head, PrunedHead, SignedCheckpoint
from reconcile.errors import WriteRefused
from reconcile.store import history
from reconcile.store.reading import Reader
from reconcile.store.writer import Done, Kind

#: History rows that one write gathers, and leaves that one read gives. 500: arbitrary; a few ms of the writer.
SLICE: Final = 500


@dataclass(frozen=True, slots=True)
class Gathering:
    """Take the heads of the chains that moved after one history position, as far as `upto`, under `number`."""

    number: int
    after: int
    upto: int


#: The columns of a checkpoint, in the order in which `load` takes them.
COLUMNS: Final = (
    "number",
    "at",
    "position",
    "previous",
    "heads",
    "pruned",
    "root",
    "hash",
    "public_key",
    "signature",
)
_NAMED: Final = ", ".join(COLUMNS)
LAST: Final = f"SELECT {_NAMED} FROM checkpoints ORDER BY number DESC LIMIT 1"
#: All of them, oldest first.
ALL: Final = f"SELECT {_NAMED} FROM checkpoints ORDER BY number"
_UNSIGNED_PRUNED: Final = (
    "SELECT EXISTS (SELECT 1 FROM pruned WHERE checkpoint IS NULL)"
    " OR EXISTS (SELECT 1 FROM pruned WHERE checkpoint > (SELECT coalesce(max(number), 0) FROM checkpoints))"
)
_GATHER: Final = (
    "INSERT INTO heads (checkpoint, operation_id, seq, head)"
    " SELECT ?, o.operation_id, h.seq, h.hash FROM history h JOIN operations o ON o.key = h.operation_key"
    " WHERE h.position > ? AND h.position <= ? ORDER BY h.position"
    " ON CONFLICT (checkpoint, operation_id) DO UPDATE SET seq = excluded.seq, head = excluded.head"
    " WHERE excluded.seq > seq"
)
#: Slices follow each other from the last checkpoint's position on, each whole or not at all, and the last row of each
#: is a head: up to the highest row that a head under the number names, everything is gathered. A chain that moved since
#: has its newer rows above that.
_GATHERED: Final = (
    "SELECT coalesce(max(h.position), 0) FROM heads l JOIN operations o ON o.operation_id = l.operation_id"
    " JOIN history h ON h.operation_key = o.key AND h.seq = l.seq WHERE l.checkpoint = ?"
)
#: The highest number that must have been signed: heads and prunings are gathered under the next one only.
_TOLD_OF: Final = (
    "SELECT max(coalesce((SELECT max(checkpoint) - 1 FROM heads), 0),"
    " coalesce((SELECT max(checkpoint) - 1 FROM pruned), 0), coalesce((SELECT max(behind) FROM pruned), 0))"
)
_GATHER_PRUNED: Final = (
    "UPDATE pruned SET checkpoint = ? WHERE operation_id IN"
    " (SELECT operation_id FROM pruned WHERE checkpoint IS NULL ORDER BY operation_id LIMIT ?)"
)
HEADS: Final = (
    "SELECT operation_id, seq, head FROM heads WHERE checkpoint = ? AND operation_id > ? ORDER BY operation_id LIMIT ?"
)
PRUNED: Final = (
    "SELECT operation_id, seq, head, pruned_at FROM pruned WHERE checkpoint = ? AND operation_id > ?"
    " ORDER BY operation_id LIMIT ?"
)
_KEEP: Final = f"INSERT INTO checkpoints ({_NAMED}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


def load(row: Sequence[Any]) -> SignedCheckpoint:
    """One row of `LAST` or `ALL`."""
    number, at, position, previous, heads, pruned, root, digest, public_key, signature = row
    checkpoint = Checkpoint(number, at, position, previous, heads, pruned, root)
    return SignedCheckpoint(checkpoint, digest, public_key, signature)


async def last(reader: Reader) -> SignedCheckpoint | None:
    """The newest checkpoint; None before the first."""
    found = await reader.execute_fetchall(LAST)
    return load(found[0]) if found else None


async def last_position(reader: Reader) -> int:
    """The newest position that was ever given."""
    return int((await reader.execute_fetchall(history.LAST_POSITION))[0][0])


async def has_unsigned_pruning(reader: Reader) -> bool:
    """Whether chains were pruned that no checkpoint tells of yet."""
    return bool((await reader.execute_fetchall(_UNSIGNED_PRUNED))[0][0])


async def gathered(reader: Reader, number: int) -> int:
    """The position up to which heads are gathered under one number; 0 where none is."""
    return int((await reader.execute_fetchall(_GATHERED, (number,)))[0][0])


async def told_of(reader: Reader) -> int:
    """The highest number that a checkpoint must once have had, by all else that stands in the file; 0: none."""
    return int((await reader.execute_fetchall(_TOLD_OF))[0][0])


async def heads(reader: Reader, number: int, *, after: str) -> list[Head]:
    """A slice of the heads under one number, in the order of their operations' ids."""
    return [Head(*row) for row in await reader.execute_fetchall(HEADS, (number, after, SLICE))]


async def pruned_heads(reader: Reader, number: int, *, after: str) -> list[PrunedHead]:
    """A slice of what was pruned under one number, in the order of the operations' ids."""
    return [PrunedHead(*row) for row in await reader.execute_fetchall(PRUNED, (number, after, SLICE))]


def _gather(connection: sqlite3.Connection, wish: Gathering) -> Done:
    """One slice; answered with the position up to which the heads are gathered."""
    upto = min(wish.after + SLICE, wish.upto)
    connection.execute(_GATHER, (wish.number, wish.after, upto))
    return Done(upto)


def _gather_pruned(connection: sqlite3.Connection, number: int) -> Done:
    """One slice; answered with how many there were."""
    return Done(connection.execute(_GATHER_PRUNED, (number, SLICE)).rowcount)


def _keep(connection: sqlite3.Connection, signed: SignedCheckpoint) -> Done:
    checkpoint = signed.checkpoint
    found = connection.execute(LAST).fetchone()
    before = None if found is None else load(found)
    if checkpoint.number != (1 if before is None else before.checkpoint.number + 1):
        raise WriteRefused(f"checkpoint {checkpoint.number} does not follow the last one in the file")
    values = (
        checkpoint.number,
        checkpoint.at,
        checkpoint.position,
        checkpoint.previous,
        checkpoint.heads,
        checkpoint.pruned,
        checkpoint.root,
        signed.hash,
        signed.public_key,
        signed.signature,
    )
    connection.execute(_KEEP, values)
    return Done()


GATHER: Final = Kind("gather_heads", lambda connection, payloads: [_gather(connection, wish) for wish in payloads])
GATHER_PRUNED: Final = Kind(
    "gather_pruned", lambda connection, payloads: [_gather_pruned(connection, n) for n in payloads]
)
KEEP: Final = Kind("checkpoint", lambda connection, payloads: [_keep(connection, signed) for signed in payloads])

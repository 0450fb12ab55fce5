"""The whole record, verified: checkpoints first (what was signed speaks against the rest), then every chain, then that
no position is missing.
"""

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from reconcile.checkpoint import SignedCheckpoint, SignedSpan, spans_of_others
from reconcile.errors import RecordDamaged
from reconcile.store.audit import chains, signed
from reconcile.store.audit.chains import Walked
from reconcile.store.audit.signed import Signed
from reconcile.store.audit.whereabouts import Whereabouts
from reconcile.store.history import LAST_POSITION
from reconcile.store.looking import DATABASE_FAULTS, has_checkpoints, told
from reconcile.store.schema import OBJECTS, made, newest, refuse_stranger

#: From the table itself: a damaged index must not hide rows.
COUNTED: Final = "SELECT count(*) FROM history NOT INDEXED"
#: A float, which overflows nowhere: it is only for the person who waits.
_HEADS: Final = "SELECT total(heads) FROM checkpoints"
_HIGHEST: Final = "SELECT coalesce(max(position), 0) FROM history"
POSITIONS: Final = "SELECT position FROM history NOT INDEXED WHERE position > ? ORDER BY position"


#: More heads than any file holds.
_MANY: Final = 2**40


@dataclass(frozen=True, slots=True)
class Verified:
    """A record that is as it was written, and how far that is signed."""

    schema: int
    rows: int
    operations: int
    #: None: of a release that made none.
    checkpoints: int | None
    newest: SignedCheckpoint | None
    #: Rows after the newest checkpoint: their chains hold, and nothing is signed over them yet.
    unsigned_rows: int
    pruned: int
    #: Prunings that no checkpoint tells of yet.
    unsigned_prunings: int
    #: Checkpoints of other keys than the newest one's, which vouches for them all the same: each names the hash of the
    #: one before.
    of_other_keys: tuple[SignedSpan, ...]


def verify(
    connection: sqlite3.Connection,
    *,
    trusted: Collection[str] = (),
    noted: Collection[str] = (),
    tell: Callable[[int, int], None] = lambda *_: None,
) -> Verified:
    """Walk the record on a connection that stands in a read transaction; the memory that it needs does not grow.

    `trusted`: public keys, base64, one of which must have signed the newest checkpoint; none: any. `noted`: hashes of
    checkpoints that must be there. `tell(done, whole)`: hears now and then of how many rows and heads are walked.

    Raises: RecordDamaged, naming the first bad row; StoreBusy.
    """
    whereabouts = Whereabouts(tell)
    try:
        return _verify(connection, whereabouts, trusted, noted)
    except DATABASE_FAULTS as fault:
        raise told(fault, str(whereabouts.near)) from fault


def _verify(
    connection: sqlite3.Connection, whereabouts: Whereabouts, trusted: Collection[str], noted: Collection[str]
) -> Verified:
    schema, is_signing = refuse_stranger(connection), has_checkpoints(connection)
    if schema == newest():  # an older one is brought to it before anything is written
        _objects(connection)
    last = _last_given(connection)
    whereabouts.whole = last
    if is_signing:
        (heads,) = connection.execute(_HEADS).fetchone()
        whereabouts.whole += int(max(0, min(heads, _MANY)))
        seen = signed.walk(connection, whereabouts, trusted=trusted, noted=noted)
        whereabouts.whole -= seen.pruned_rows
    elif noted:
        raise RecordDamaged(f"no checkpoint has the hash {min(noted)}: the file is of a release that made none")
    else:
        seen = Signed()
    walked = chains.walk(connection, seen, whereabouts)
    whereabouts.near = "its end"
    _positions(connection, seen, walked, last)
    return Verified(
        schema=schema,
        rows=walked.rows,
        operations=walked.operations,
        checkpoints=seen.count if is_signing else None,
        newest=seen.newest,
        unsigned_rows=last - seen.covered,
        pruned=seen.pruned,
        unsigned_prunings=seen.unsigned_prunings,
        of_other_keys=spans_of_others(seen.spans, seen.newest),
    )


def _objects(connection: sqlite3.Connection) -> None:
    """Tables, views, indexes and triggers as this release makes them: others could show another record, or change it.

    A trigger that is not there changes nothing; what it would have refused shows in the rows. Raises: RecordDamaged.
    """
    there, meant = set(connection.execute(OBJECTS)), made()
    missing = {each for each in meant - there if each[0] != "trigger"}
    for kind, name, *_ in sorted(missing | (there - meant), key=repr):
        raise RecordDamaged(f"the {kind} {name}: it is not, or is no longer, as this release makes it")


def _last_given(connection: sqlite3.Connection) -> int:
    (last,) = connection.execute(LAST_POSITION).fetchone()
    if type(last) is not int:
        raise RecordDamaged("the count of positions that were given has another type than was written")
    return last


def _positions(connection: sqlite3.Connection, seen: Signed, walked: Walked, last: int) -> None:
    """Every position that was given has its row, but for those of chains that were pruned. Raises: RecordDamaged."""
    (counted,) = connection.execute(COUNTED).fetchone()
    if counted != walked.rows:
        raise RecordDamaged(
            f"the file holds {counted} history rows, and its index leads to {walked.rows}: the index is damaged"
        )
    # What is pruned was signed before: after the newest checkpoint no position can be missing.
    after = seen.covered if seen.pruned else 0
    (highest,) = connection.execute(_HIGHEST).fetchone()
    if counted + seen.pruned_rows == last and highest <= last:
        return  # each stands once, and none stands higher: there is no room for a gap
    expected = after + 1
    for (position,) in connection.execute(POSITIONS, (after,)):
        if position != expected:
            break
        expected += 1
    if expected <= last:
        raise RecordDamaged(f"position {expected}: no row stands there, and no pruning tells of it")
    raise RecordDamaged(
        f"{counted} rows and {seen.pruned_rows} that were pruned do not make up the {last} positions that were given"
    )

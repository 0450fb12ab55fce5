"""What SQLite's result codes mean here: the file is in doubt, a batch is lost and may be tried again, or one write."""

import sqlite3
from typing import Final

from reconcile.errors import StoreBroken, StoreBusy, StoreError, WriteRefused

#: Result codes after which only the file itself can tell what was written: the process ends (SQLite result codes).
_BROKEN: Final = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
#: Result codes that concern every write alike and may pass: the batch is rolled back.
_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
    }
)


def _code(fault: sqlite3.Error) -> int | None:
    extended = getattr(fault, "sqlite_errorcode", None)
    return None if extended is None else extended & 0xFF


def is_batch_lost(connection: sqlite3.Connection, fault: Exception) -> bool:
    """Whether a fault concerns every write alike, so that none may go on in this transaction.

    SQLITE_FULL and its like end the whole transaction, savepoints included; what ran next would autocommit.
    """
    is_everybodys = isinstance(fault, sqlite3.Error) and _code(fault) in _BROKEN | _PASSING
    return is_everybodys or not connection.in_transaction


def is_broken(fault: sqlite3.Error) -> bool:
    """Whether the file itself, or what was written to it, is in doubt: trying again would not help."""
    return _code(fault) in _BROKEN


def as_store_error(fault: Exception) -> StoreError:
    """What a fault of a whole batch is to each of its callers."""
    if not isinstance(fault, sqlite3.Error):
        return StoreBroken(f"the outcome of a write is unknown: {type(fault).__name__}: {fault}")
    cause = fault.__cause__ if _code(fault) is None and isinstance(fault.__cause__, sqlite3.Error) else fault
    if _code(cause) in _BROKEN:
        return StoreBroken(f"the outcome of a write is unknown: {cause}")
    return StoreBusy(f"rolled back whole: {cause}")


def as_refusal(fault: Exception) -> StoreError:
    """What a fault of one write is to its caller."""
    if isinstance(fault, StoreError):
        return fault
    refusal = WriteRefused(f"{type(fault).__name__}: {fault}")
    refusal.__cause__ = fault
    return refusal

"""The mark of a backup, which stands in a copy until its first start is through, and the rows that start has to see."""

import sqlite3
from typing import Final

from reconcile.model import Operation, UnixMs
from reconcile.states import State
from reconcile.store import rows
from reconcile.store.reading import Reader
from reconcile.store.schema import listed
from reconcile.store.writer import Done, Kind

#: Rows of one page. 200: arbitrary; as many are brought up to date in one commit.
PAGE: Final = 200
_MADE_AT: Final = "SELECT min(made_at) FROM backup"
#: What the original may have sent, or sent again, or a person of its let be sent, after the copy was made.
_MAY_HAVE_SENT: Final = listed(
    [
        State.CREATE_PENDING,
        State.CREATE_UNKNOWN,
        State.CREATE_UNRESOLVED,
        State.INPUT_GIVEN,
        State.CANCEL_REQUESTED,
        State.CANCELLATION_UNCONFIRMED,
        State.RESULT_COLLECTING,
    ]
)
_OPEN_SENDS: Final = f"{rows.SELECT} WHERE o.state IN {_MAY_HAVE_SENT} AND o.key > ? ORDER BY o.key LIMIT ?"


async def made_at(reader: Reader) -> UnixMs | None:
    """When the backup was made that this file is; None where it is none, or its first start is through."""
    moment: UnixMs | None = (await reader.execute_fetchall(_MADE_AT))[0][0]
    return moment


async def open_sends(reader: Reader, *, after: int) -> list[tuple[int, Operation]]:
    """A page of the operations of which more may have been sent than stands here, in the order of their keys."""
    found = await reader.execute_fetchall(_OPEN_SENDS, (after, PAGE))
    return [rows.load(row) for row in found]


def _settle(connection: sqlite3.Connection, _: None) -> Done:
    connection.execute("DELETE FROM backup")
    return Done()


SETTLE: Final = Kind("settle_backup", lambda connection, payloads: [_settle(connection, p) for p in payloads])

"""The one door of every read: what the database raises comes out as an error of ours."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from reconcile.errors import StoreBroken, StoreBusy, StoreError
from reconcile.store.faults import is_broken
from reconcile.store.schema import Connection


class Reader:
    """A connection that only reads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def execute_fetchall(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """All rows of one statement. Raises: StoreBusy; StoreBroken, where the file itself is in doubt."""
        try:
            return await self._connection.execute_fetchall(sql, parameters)
        except sqlite3.Error as fault:
            raise store_error(f"the store cannot be read: {fault}", fault) from fault

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


def store_error(told: str, fault: sqlite3.Error) -> StoreError:
    """What an error of the database is to everybody else."""
    return StoreBroken(told) if is_broken(fault) else StoreBusy(told)

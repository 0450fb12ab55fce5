"""Pauses of whole providers: one row while it lasts, none for a provider that answers."""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from reconcile.limits import Pause
from reconcile.store.schema import Connection
from reconcile.store.writer import Done, Kind

_KEEP: Final = (
    "INSERT INTO pauses (provider, until_at, reason, failures, opened_at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (provider) DO UPDATE SET until_at = excluded.until_at, reason = excluded.reason,"
    " failures = excluded.failures, opened_at = excluded.opened_at"
)


def _keep(connection: sqlite3.Connection, pauses: Mapping[str, Pause]) -> Done:
    lasting = [(name, p.until_ms, p.reason, p.failures, p.opened_at_ms) for name, p in pauses.items() if p.is_open]
    over = [(name,) for name, p in pauses.items() if not p.is_open]
    connection.executemany(_KEEP, lasting)
    connection.executemany("DELETE FROM pauses WHERE provider = ?", over)
    return Done()


async def load(reader: Connection) -> dict[str, Pause]:
    """The pauses that last, by provider."""
    found = await reader.execute_fetchall("SELECT provider, until_at, reason, failures, opened_at FROM pauses")
    return {provider: Pause(*values) for provider, *values in found}


def _run(connection: sqlite3.Connection, payloads: Sequence[Mapping[str, Pause]]) -> list[Done]:
    return [_keep(connection, pauses) for pauses in payloads]


KEEP: Final = Kind("pauses", _run)

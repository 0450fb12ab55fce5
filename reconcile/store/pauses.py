"""Pauses of whole providers: one row while it lasts, none for a provider that answers."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconcile.limits import Pause
from reconcile.model import UnixMs
from reconcile.states import STOPPED, Priority
from reconcile.store.reading import Reader
from reconcile.store.writer import Done, Kind

_KEEP: Final = (
    "INSERT INTO pauses (provider, until_at, reason, failures, opened_at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (provider) DO UPDATE SET until_at = excluded.until_at, reason = excluded.reason,"
    " failures = excluded.failures, opened_at = excluded.opened_at"
)
#: What polling stopped for may have been the provider, not the job: each such row is read once when it is back (N22).
_RING: Final = (
    "UPDATE schedule SET due_at = min(due_at, ?), priority = min(priority, ?),"
    " ring = coalesce(ring, 'pause:' || provider) WHERE key IN (SELECT key FROM operations WHERE provider = ?"
    f" AND state IN ({', '.join(repr(state.value) for state in sorted(STOPPED))}))"
)


@dataclass(frozen=True, slots=True)
class Changed:
    """Pauses that were opened, grew longer or ended since the last time."""

    pauses: Mapping[str, Pause]
    at: UnixMs


def _keep(connection: sqlite3.Connection, changed: Changed) -> Done:
    pauses = changed.pauses
    lasting = [(name, p.until_ms, p.reason, p.failures, p.opened_at_ms) for name, p in pauses.items() if p.is_open]
    over = [name for name, p in pauses.items() if not p.is_open]
    connection.executemany(_KEEP, lasting)
    connection.executemany("DELETE FROM pauses WHERE provider = ?", [(name,) for name in over])
    connection.executemany(_RING, [(changed.at, Priority.RUNG, name) for name in over])
    return Done(due_at=changed.at if over else None)


async def load(reader: Reader) -> dict[str, Pause]:
    """The pauses that last, by provider."""
    found = await reader.execute_fetchall("SELECT provider, until_at, reason, failures, opened_at FROM pauses")
    return {provider: Pause(*values) for provider, *values in found}


def _run(connection: sqlite3.Connection, payloads: Sequence[Changed]) -> list[Done]:
    return [_keep(connection, changed) for changed in payloads]


KEEP: Final = Kind("pauses", _run)

"""Kept events that are asked for again, inside the transaction that needs them.

Those that came before anybody knew their job (B5), and the newest that told a job's end: where no read shows the job
any more, that one is all there is.
"""

import sqlite3
from dataclasses import dataclass
from typing import Final

from reconcile.model import ENDS
from reconcile.store.schema import listed


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """One of them. `is_other_content`: its id had come before, with another body."""

    event_id: str
    word: str | None
    is_other_content: bool


_KEPT: Final = (
    "SELECT e.key, e.event_id, e.word, EXISTS (SELECT 1 FROM events other WHERE other.provider = e.provider"
    " AND other.event_id = e.event_id AND other.key < e.key) OR EXISTS (SELECT 1 FROM event_ids gone"
    " WHERE gone.provider = e.provider AND gone.event_id = e.event_id AND gone.body_sha256 <> e.body_sha256)"
    " FROM events e"
    " WHERE e.provider = ? AND e.remote_job_id = ? AND e.operation_key IS NULL ORDER BY e.key"
)
#: Not by one whose id had come with another body: which of the two is true nobody can tell.
_END_TOLD: Final = (
    "SELECT word FROM events WHERE operation_key = ? AND remote_job_id = ?"
    f" AND verdict IN {listed(ENDS)} AND disposition <> 'contradiction' ORDER BY key DESC LIMIT 1"
)
_MATCHED: Final = "UPDATE events SET operation_key = ?, disposition = ? WHERE key = ?"


def take(connection: sqlite3.Connection, provider: str, remote_job_id: str, operation_key: int) -> list[KeptEvent]:
    """Give the kept events of a job to its operation, in the order in which they came."""
    found = connection.execute(_KEPT, (provider, remote_job_id)).fetchall()
    connection.executemany(
        _MATCHED, [(operation_key, "contradiction" if other else "rings", key) for key, _, _, other in found]
    )
    return [KeptEvent(event_id, word, bool(other)) for _, event_id, word, other in found]


def end_told(connection: sqlite3.Connection, operation_key: int, remote_job_id: str) -> str | None:
    """The word of the newest verified event that told the end of an operation's job."""
    found = connection.execute(_END_TOLD, (operation_key, remote_job_id)).fetchone()
    return None if found is None else str(found[0])

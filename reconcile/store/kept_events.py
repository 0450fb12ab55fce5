"""Events that came before anybody knew their job: found again in the transaction that makes the job known (B5)."""

import sqlite3
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class KeptEvent:
    """One of them. `is_other_content`: its id had come before, with another body."""

    event_id: str
    word: str | None
    is_other_content: bool


_KEPT: Final = (
    "SELECT e.key, e.event_id, e.word, EXISTS (SELECT 1 FROM events other WHERE other.provider = e.provider"
    " AND other.event_id = e.event_id AND other.key < e.key) FROM events e"
    " WHERE e.provider = ? AND e.remote_job_id = ? AND e.operation_key IS NULL ORDER BY e.key"
)
_MATCHED: Final = "UPDATE events SET operation_key = ?, disposition = ? WHERE key = ?"


def take(connection: sqlite3.Connection, provider: str, remote_job_id: str, operation_key: int) -> list[KeptEvent]:
    """Give the kept events of a job to its operation, in the order in which they came."""
    found = connection.execute(_KEPT, (provider, remote_job_id)).fetchall()
    connection.executemany(
        _MATCHED, [(operation_key, "contradiction" if other else "rings", key) for key, _, _, other in found]
    )
    return [KeptEvent(event_id, word, bool(other)) for _, event_id, word, other in found]

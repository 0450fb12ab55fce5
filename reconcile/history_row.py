"""One history row as it is shown: read from the file, or handed on from memory right after the commit that wrote it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One history row; `at` is unix ms."""

    position: int
    operation_id: str
    seq: int
    at: int
    actor: str
    kind: str
    from_state: str | None
    to_state: str | None
    cause: str
    remote_job_id: str | None
    reason: str
    facts: dict[str, Any]
    hash: str

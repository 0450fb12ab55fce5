"""What is kept of a request that we sent and of a fact that told something new: rows beside the history (A7, C9)."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.model import Change, Observation, UnixMs

#: Raw bytes kept with an observation. 64 KiB: a job's body is a few KiB; an end's longer one is cut at this.
MAX_RAW: Final = 65_536


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What is kept of a request we sent (A7)."""

    request_id: str
    purpose: str
    attempt: int
    sent_at: UnixMs
    ended_at: UnixMs
    status: int | None
    error_class: str | None
    remote_request_id: str | None
    credential: str | None


@dataclass(frozen=True, slots=True)
class ObservationRecord:
    """What is kept of an observation that told something new (C9)."""

    observation_id: str
    road: str
    raw: bytes
    observation: Observation | None = None
    error_class: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """One kept observation as it is shown; `number` grows in the order of keeping."""

    number: int
    observation_id: str
    at: UnixMs
    road: str
    word: str | None
    remote_status: str | None
    verdict: str | None
    known: int
    error_class: str | None
    request_id: str | None
    contract_version: int
    raw: bytes


_KEEP_REQUEST: Final = "INSERT INTO requests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_KEEP_OBSERVATION: Final = "INSERT INTO observations VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
#: Kept observations of one operation after a number, oldest first.
OBSERVATIONS: Final = (
    "SELECT n.number, n.observation_id, n.at, n.road, n.word, n.remote_status, n.verdict, n.known,"
    " n.error_class, n.request_id, n.contract_version, n.raw"
    " FROM observations n JOIN operations o ON o.key = n.operation_key"
    " WHERE o.operation_id = ? AND n.number > ? ORDER BY n.number LIMIT ?"
)


class Keeper:
    """The rows of one transaction; they leave in a statement a table.

    A request is one row, however many operations its answer told of: a list page's stands under the first of them, and
    the observations of all of them name it.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._requests: list[tuple[Any, ...]] = []
        self._kept: set[str] = set()
        self._observations: list[tuple[Any, ...]] = []

    def keep(
        self,
        key: int,
        change: Change,
        requests: Sequence[RequestRecord],
        observed: ObservationRecord | None,
        at: UnixMs,
    ) -> None:
        """Keep what brought a change that tells something new; a read that only repeats the last leaves no row."""
        if not (change.is_news or change.entries):
            return
        for sent in requests:
            if sent.request_id in self._kept:
                continue
            self._kept.add(sent.request_id)
            self._requests.append(
                (
                    sent.request_id,
                    key,
                    sent.purpose,
                    sent.attempt,
                    sent.sent_at,
                    sent.ended_at,
                    sent.status,
                    sent.error_class,
                    sent.remote_request_id,
                    sent.credential,
                )
            )
        if observed is not None:
            seen = observed.observation or Observation(None)
            self._observations.append(
                (
                    observed.observation_id,
                    key,
                    at,
                    observed.road,
                    seen.word,
                    seen.remote_status or seen.word,
                    change.verdict.kind if change.verdict else None,
                    change.verdict.known if change.verdict else True,
                    observed.error_class,
                    requests[-1].request_id if requests else None,
                    change.contract_version,
                    observed.raw,
                )
            )

    def flush(self) -> None:
        """Write them."""
        self._connection.executemany(_KEEP_REQUEST, self._requests)
        self._connection.executemany(_KEEP_OBSERVATION, self._observations)
        self._requests.clear()
        self._observations.clear()

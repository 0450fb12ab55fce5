"""Notices: one row for each present cause, acknowledged or not; questions stand in the operations themselves."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.model import UnixMs
from reconcile.notice import CONDITIONS, Notice
from reconcile.store.reading import Reader
from reconcile.store.writer import Done, Kind


@dataclass(frozen=True, slots=True)
class Conditions:
    """Every condition that stands now: what is not among them is over."""

    notices: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A person has seen a notice."""

    notice_id: str
    by: str
    because: str
    at: UnixMs


_COLUMNS: Final = "n.reason, n.since, n.message, n.provider, o.operation_id, n.evidence"
_OPEN: Final = (
    f"SELECT {_COLUMNS} FROM notices n LEFT JOIN operations o ON o.key = n.operation_key"
    " WHERE n.acknowledged_at IS NULL AND (n.since, n.notice_id) > (?, ?) ORDER BY n.since, n.notice_id LIMIT ?"
)
_CONDITIONS: Final = "SELECT notice_id, message, evidence FROM notices WHERE reason IN (SELECT value FROM json_each(?))"
#: One more of the same is told anew, with what is known of it now; a condition that lasts keeps its acknowledgement.
_TELL: Final = (
    "INSERT INTO notices (notice_id, reason, provider, operation_key, since, message, evidence)"
    " VALUES (?, ?, ?, (SELECT key FROM operations WHERE operation_id = ?), ?, ?, ?)"
    " ON CONFLICT (notice_id) DO UPDATE SET message = excluded.message, evidence = excluded.evidence"
)
_AGAIN: Final = (
    _TELL + ", since = excluded.since, acknowledged_at = NULL, acknowledged_by = NULL, because = NULL"
    " WHERE acknowledged_at IS NOT NULL OR message <> excluded.message"
)
_ACKNOWLEDGE: Final = (
    "UPDATE notices SET acknowledged_at = ?, acknowledged_by = ?, because = ?"
    " WHERE notice_id = ? AND acknowledged_at IS NULL"
)


def tell(connection: sqlite3.Connection, notices: Sequence[Notice]) -> None:
    """Tell of what happened, in the transaction in which it happened."""
    connection.executemany(_AGAIN, [_values(notice) for notice in notices])


def _stand(connection: sqlite3.Connection, standing: Conditions) -> Done:
    """Bring the conditions in the file to those that stand; answered with (opened, closed) ids."""
    wanted = {notice.notice_id: notice for notice in standing.notices}
    found = {
        notice_id: (message, evidence)
        for notice_id, message, evidence in connection.execute(_CONDITIONS, (json.dumps(sorted(CONDITIONS)),))
    }
    told = [_values(n) for n in wanted.values() if found.get(n.notice_id) != (n.message, _json(n.evidence))]
    over = sorted(found.keys() - wanted.keys())
    connection.executemany(_TELL, told)
    connection.executemany("DELETE FROM notices WHERE notice_id = ?", [(notice_id,) for notice_id in over])
    return Done((sorted(wanted.keys() - found.keys()), over))


def acknowledge(connection: sqlite3.Connection, notice_id: str, *, by: str, because: str, at: UnixMs) -> bool:
    """Take a notice from the inbox, in the transaction of what else was decided; False where it is not there."""
    return connection.execute(_ACKNOWLEDGE, (at, by, because, notice_id)).rowcount == 1


def _acknowledge(connection: sqlite3.Connection, said: Acknowledgement) -> Done:
    return Done(acknowledge(connection, said.notice_id, by=said.by, because=said.because, at=said.at))


def _values(notice: Notice) -> tuple[Any, ...]:
    return (
        notice.notice_id,
        notice.reason,
        notice.provider,
        notice.operation_id,
        notice.since,
        notice.message,
        _json(notice.evidence),
    )


def _json(evidence: Any) -> str:
    return json.dumps(evidence, separators=(",", ":"), ensure_ascii=False)


async def load(reader: Reader, *, after: tuple[UnixMs, str], limit: int) -> list[Notice]:
    """The notices that nobody has acknowledged, oldest first, after one named by since when it is told and its id."""
    found = await reader.execute_fetchall(_OPEN, (*after, limit))
    return [
        Notice(reason, since, message, provider, operation_id, json.loads(evidence))
        for reason, since, message, provider, operation_id, evidence in found
    ]


async def counts(reader: Reader) -> dict[str, int]:
    """How many notices nobody has acknowledged, by reason."""
    found = await reader.execute_fetchall(
        "SELECT reason, count(*) FROM notices WHERE acknowledged_at IS NULL GROUP BY reason ORDER BY reason"
    )
    return dict(found)


STAND: Final = Kind("notices", lambda connection, payloads: [_stand(connection, standing) for standing in payloads])
TELL: Final = Kind("tell_notices", lambda connection, payloads: [_tell(connection, told) for told in payloads])
ACKNOWLEDGE: Final = Kind("acknowledge", lambda connection, payloads: [_acknowledge(connection, s) for s in payloads])


def _tell(connection: sqlite3.Connection, notices: Sequence[Notice]) -> Done:
    tell(connection, notices)
    return Done()

"""What a question rests on: the last requests that an operation sent, and what was last observed of it (E3, B4)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconcile.model import UnixMs
from reconcile.store.kept import RequestRecord
from reconcile.store.reading import Reader

#: Requests and observations shown beside a question, the newest. 10: arbitrary; the rest has pages of its own.
SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Noted:
    """One observation that was kept, without its bytes."""

    observation_id: str
    at: UnixMs
    road: str
    remote_status: str | None
    verdict: str | None
    error_class: str | None
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Grounds:
    """Both, oldest first."""

    requests: tuple[RequestRecord, ...] = ()
    observations: tuple[Noted, ...] = ()


_REQUESTS: Final = (
    "SELECT operation_id, request_id, purpose, attempt, sent_at, ended_at, status, error_class, remote_request_id,"
    " credential FROM (SELECT o.operation_id, r.*, row_number() OVER (PARTITION BY o.key ORDER BY r.sent_at DESC,"
    " r.ended_at DESC, r.request_id DESC) AS place FROM operations o JOIN requests r ON r.operation_key = o.key"
    " WHERE o.operation_id IN (SELECT value FROM json_each(?))) WHERE place <= ? ORDER BY operation_id, place DESC"
)
_OBSERVATIONS: Final = (
    "SELECT operation_id, observation_id, at, road, remote_status, verdict, error_class, request_id"
    " FROM (SELECT o.operation_id, n.observation_id, n.at, n.road, n.remote_status, n.verdict, n.error_class,"
    " n.request_id, row_number() OVER (PARTITION BY o.key ORDER BY n.number DESC) AS place"
    " FROM operations o JOIN observations n ON n.operation_key = o.key"
    " WHERE o.operation_id IN (SELECT value FROM json_each(?))) WHERE place <= ? ORDER BY operation_id, place DESC"
)


async def load(reader: Reader, operation_ids: Sequence[str]) -> dict[str, Grounds]:
    """The grounds of each operation named, in two statements for all."""
    ids = json.dumps(list(operation_ids))
    sent: dict[str, list[RequestRecord]] = {}
    for operation_id, *columns in await reader.execute_fetchall(_REQUESTS, (ids, SHOWN)):
        sent.setdefault(operation_id, []).append(RequestRecord(*columns))
    noted: dict[str, list[Noted]] = {}
    for operation_id, *columns in await reader.execute_fetchall(_OBSERVATIONS, (ids, SHOWN)):
        noted.setdefault(operation_id, []).append(Noted(*columns))
    return {name: Grounds(tuple(sent.get(name, ())), tuple(noted.get(name, ()))) for name in operation_ids}

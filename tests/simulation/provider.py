"""The stand-in's account as the provider of a simulated world, and a log of all that reached it.

It is no part of the process under test, so it outlives that process's crashes: its jobs, its uploads, the order in
which requests came and what was said of its webhooks. The log is what the rules call truth.
"""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiohttp import web

from daemon.standin.deliveries import Delivery
from daemon.standin.openai_bodies import Body
from daemon.standin.scenarios import Scenario
from daemon.standin.world import World
from reconcile.store.schema import read_only_uri
from tests.simulation.watch import Arrival, Handler, Watch

#: The daemon's own key in a job's metadata; typed here, so that a changed spelling shows.
OPERATION_KEY: Final = "reconciled_operation"
_CODES: Final = {"batch_expired": "expired", "batch_cancelled": "cancelled"}


class Ack(NamedTuple):
    """A webhook that the sender knows to be taken: it read a 2xx."""

    event_id: str
    body: bytes


class StandInAccount(World):
    """The stand-in's account; it knows which of its webhooks are on their way, and which were taken."""

    def __init__(self, scenario: Scenario, *, ids: Callable[[str], str]) -> None:
        super().__init__(scenario, ids=ids)
        self.acks: list[Ack] = []
        self._under_way: dict[str, Delivery] = {}

    def events_due(self, now_ms: int) -> list[Delivery]:
        """As the account does, and remember what is on its way."""
        due = super().events_due(now_ms)
        self._under_way.update((delivery.event_id, delivery) for delivery in due)
        return due

    def delivered(self, event_id: str, ok: bool, now_ms: int) -> None:
        """As the account does, and keep what was acknowledged."""
        delivery = self._under_way.pop(event_id)
        if ok:
            self.taken(delivery, now_ms)
        super().delivered(event_id, ok, now_ms)

    def taken(self, delivery: Delivery, now_ms: int) -> None:
        """Keep that a webhook was acknowledged."""
        self.acks.append(Ack(delivery.event_id, delivery.body))

    def break_off(self, now_ms: int) -> None:
        """The receiver died: what was on its way to it was not taken."""
        for event_id in sorted(self._under_way):
            self.delivered(event_id, False, now_ms)

    def owes(self, now_ms: int) -> bool:
        """Whether a webhook is on its way or still to be sent."""
        return bool(self._under_way) or self.next_event_at(now_ms) is not None

    def item_outcomes(self, job: Any) -> dict[str, str]:
        """What each item of an ended batch came to, read from the provider's own result files."""
        outcomes: dict[str, str] = {}
        for file_id in (job.output_file_id, job.error_file_id):
            for line in self._files[file_id].lines() if file_id else ():
                item = json.loads(line)
                response = item.get("response") or {}
                well = response.get("status_code") == 200 and not item.get("error")
                code = (item.get("error") or {}).get("code", "")
                outcomes[item["custom_id"]] = "succeeded" if well else _CODES.get(code, "failed")
        return outcomes


@dataclass(frozen=True, slots=True)
class Create:
    """A create at its arrival, and the committed row that was found for it (None: there was none)."""

    body: dict[str, Any]
    input: bytes
    row: dict[str, Any] | None


@dataclass(slots=True)
class Log:
    """What changed something at the provider, in order."""

    creates: list[Create] = field(default_factory=list)
    #: The committed row of each cancel at its arrival.
    cancels: list[dict[str, Any] | None] = field(default_factory=list)
    uploads: dict[str, bytes] = field(default_factory=dict)


class ClosingWatch(Watch):
    """A watch over a server that closes some connections."""

    #: Paths after whose answer the connection is closed, so that the next request needs one of its own.
    closes_after: frozenset[str] = frozenset()

    async def answered(self, request: web.Request, handler: Handler, arrival: Arrival) -> web.StreamResponse:
        """As the server answers."""
        response = await super().answered(request, handler, arrival)
        if request.path in self.closes_after:
            response.force_close()
        return response


class Provider(StandInAccount):
    """One account, watched. `database` is the daemon's file, looked into by a second, read-only connection."""

    def __init__(self, scenario: Scenario, *, ids: Callable[[str], str], database: Path, api_key: str) -> None:
        super().__init__(scenario, ids=ids)
        self.log = Log()
        self.watch = ClosingWatch(("Authorization", f"Bearer {api_key}"))
        self._database = database

    def watch_file(self, database: Path) -> None:
        """Look into another file from now on: the daemon's was lost, and it goes on from a backup."""
        self._database = database

    def upload(self, data: bytes, purpose: str, now_ms: int, *, filename: str = "batch.jsonl") -> Body:
        """As the account does, and keep the bytes."""
        body = super().upload(data, purpose, now_ms, filename=filename)
        self.log.uploads[str(body["id"])] = data
        return body

    def create(self, body: object, now_ms: int) -> Body:
        """Look for the row first (N1): what is not committed by now was not committed before the send."""
        assert isinstance(body, dict)
        operation_id = (body.get("metadata") or {}).get(OPERATION_KEY)
        sent = self.log.uploads.get(str(body.get("input_file_id")), b"")
        self.log.creates.append(Create(body, sent, self._committed(operation_id)))
        return super().create(body, now_ms)

    def cancel(self, job_id: str, now_ms: int) -> Body:
        """Look for the row first, as for a create (E1)."""
        metadata = next((job.metadata or {} for job in self.truth().jobs if job.id == job_id), {})
        self.log.cancels.append(self._committed(metadata.get(OPERATION_KEY)))
        return super().cancel(job_id, now_ms)

    def _committed(self, operation_id: object) -> dict[str, Any] | None:
        connection = sqlite3.connect(read_only_uri(str(self._database)), uri=True)
        try:
            connection.row_factory = sqlite3.Row
            row = connection.execute(
                "SELECT o.operation_id, o.token, o.fingerprint, o.trace_id, o.state, o.living, s.mark_at"
                " FROM operations o LEFT JOIN schedule s ON s.key = o.key WHERE o.operation_id = ?",
                (operation_id,),
            ).fetchone()
        finally:
            connection.close()
        return dict(row) if row is not None else None

    def jobs_of(self, operation_id: str) -> list[Any]:
        """The jobs that bear an operation's mark."""
        return [job for job in self.truth().jobs if (job.metadata or {}).get(OPERATION_KEY) == operation_id]

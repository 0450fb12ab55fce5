"""The provider of a simulated world: the stand-in's own world and face, and a log of all that reached them.

It is no part of the process under test, so it outlives that process's crashes: its jobs, its uploads, the order in
which requests came and what was said of its webhooks. The log is what the invariants call truth.
"""

import json
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from daemon.standin.deliveries import Delivery
from daemon.standin.openai_bodies import Body
from daemon.standin.scenarios import Scenario
from daemon.standin.world import World
from reconcile.store.schema import read_only_uri

#: The daemon's own key in a job's metadata; typed here, so that a changed spelling shows.
OPERATION_KEY: Final = "reconciled_operation"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Arrival:
    """One request that reached the provider; `body` is kept of creates only."""

    at_ms: int
    method: str
    path: str
    trace_id: str
    is_authenticated: bool
    body: bytes = b""
    #: None until it was answered; no answer leaves a process that was killed meanwhile.
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Create:
    """A create at its arrival, and the committed row that was found for it (None: there was none)."""

    body: dict[str, Any]
    input: bytes
    row: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Ack:
    """A webhook that the sender knows to be taken: it read a 2xx."""

    event_id: str
    body: bytes


@dataclass(slots=True)
class Log:
    """What happened at the provider, in order."""

    arrivals: list[Arrival] = field(default_factory=list)
    creates: list[Create] = field(default_factory=list)
    #: The committed row of each cancel at its arrival.
    cancels: list[dict[str, Any] | None] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    uploads: dict[str, bytes] = field(default_factory=dict)


class Provider(World):
    """One account, watched. `database` is the daemon's file, looked into by a second, read-only connection."""

    def __init__(self, scenario: Scenario, *, ids: Callable[[str], str], database: Path, api_key: str) -> None:
        super().__init__(scenario, ids=ids)
        self.log = Log()
        #: Paths after whose answer the connection is closed, so that the next request needs one of its own.
        self.closes_after: frozenset[str] = frozenset()
        self._database = database
        self._authorization = f"Bearer {api_key}"
        self._under_way: dict[str, Delivery] = {}

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

    # ---- webhooks ----

    def events_due(self, now_ms: int) -> list[Delivery]:
        """As the account does, and remember what is on its way."""
        due = super().events_due(now_ms)
        self._under_way.update((delivery.event_id, delivery) for delivery in due)
        return due

    def delivered(self, event_id: str, ok: bool, now_ms: int) -> None:
        """As the account does, and keep what was acknowledged."""
        delivery = self._under_way.pop(event_id)
        if ok:
            self.log.acks.append(Ack(event_id, delivery.body))
        super().delivered(event_id, ok, now_ms)

    def break_off(self, now_ms: int) -> None:
        """The receiver died: what was on its way to it was not taken."""
        for event_id in sorted(self._under_way):
            self.delivered(event_id, False, now_ms)

    def owes(self, now_ms: int) -> bool:
        """Whether a webhook is on its way or still to be sent."""
        return bool(self._under_way) or self.next_event_at(now_ms) is not None

    # ---- truth ----

    def jobs_of(self, operation_id: str) -> list[Any]:
        """The jobs that bear an operation's mark."""
        return [job for job in self.truth().jobs if (job.metadata or {}).get(OPERATION_KEY) == operation_id]

    def item_outcomes(self, job: Any) -> dict[str, str]:
        """What each item of an ended job came to, read from the provider's own result files."""
        outcomes: dict[str, str] = {}
        for file_id in (job.output_file_id, job.error_file_id):
            for line in self.content(file_id, 0).lines() if file_id else ():
                item = json.loads(line)
                response = item.get("response") or {}
                well = response.get("status_code") == 200 and not item.get("error")
                code = (item.get("error") or {}).get("code", "")
                word = {"batch_expired": "expired", "batch_cancelled": "cancelled"}.get(code, "failed")
                outcomes[item["custom_id"]] = "succeeded" if well else word
        return outcomes

    # ---- HTTP ----

    def watch(self, app: web.Application, now: Callable[[], int]) -> web.Application:
        """Log every request of `app` before anything else sees it."""

        @web.middleware
        async def watching(request: web.Request, handler: Handler) -> web.StreamResponse:
            trace = request.headers.get("traceparent", "").split("-")
            arrival = Arrival(
                now(),
                request.method,
                request.path,
                trace[1] if len(trace) == 4 else "",
                request.headers.get("Authorization") == self._authorization,
            )
            self.log.arrivals.append(arrival)
            if (request.method, request.path) == ("POST", "/v1/batches"):
                arrival.body = await request.read()
            response = await handler(request)
            arrival.status = response.status
            if request.path in self.closes_after:
                response.force_close()
            return response

        app.middlewares.insert(0, watching)
        return app

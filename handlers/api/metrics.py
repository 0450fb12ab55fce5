"""`/metrics`: what was counted, and what stands in the rows at the moment of the scrape, as Prometheus reads it.

What a scrape asks of the file is answered by an index each, whose cost follows the open operations and, for the counts
by state, the number of operations at a few tens of nanoseconds each.
"""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from handlers import exposition
from handlers.api.deps import LocalDeps
from handlers.api.inbox import sizes
from handlers.api.query import take_only
from handlers.exposition import Series
from reconcile.meter_families import METERS, Family
from reconcile.states import State

_INFO: Final = Family("reconciled_build_info", "gauge", "Always 1; the version of this daemon.", ("version",))
_OPERATIONS: Final = Family("reconciled_operations", "gauge", "Operations by state, ended ones included.", ("state",))
_DUE: Final = Family(
    "reconciled_due_operations", "gauge", "Operations whose next action is due and not yet begun.", ("provider",)
)
_LAG: Final = Family(
    "reconciled_due_lag_seconds",
    "gauge",
    "For how long the oldest of them has been due; 0 where none is.",
    ("provider",),
)
_INBOX: Final = Family(
    "reconciled_inbox_entries", "gauge", "What waits for a person: a question holds up its operation.", ("kind",)
)
_NOTICES: Final = Family("reconciled_notices", "gauge", "Notices that nobody has acknowledged.", ("reason",))
_PAUSED: Final = Family(
    "reconciled_provider_paused",
    "gauge",
    "1 while a provider asked to wait, refused us or failed in a row.",
    ("provider",),
)
_ERRORS: Final = Family(
    "reconciled_provider_error_ratio", "gauge", "Share of failures among a provider's last requests.", ("provider",)
)
_GOOD_READ: Final = Family(
    "reconciled_provider_last_good_read_timestamp_seconds",
    "gauge",
    "When a job, or a list of jobs, was last read well; since the start of the process.",
    ("provider",),
)
_CHECKPOINTS: Final = Family("reconciled_checkpoints_total", "counter", "Checkpoints signed over the record, ever.")
_CHECKPOINT_AT: Final = Family(
    "reconciled_last_checkpoint_timestamp_seconds", "gauge", "When the newest checkpoint was signed."
)
_READY: Final = Family("reconciled_ready", "gauge", "1 while /readyz answers 200.")
#: Of the process, under the names that all of Prometheus' own clients use.
_PROCESS: Final = {
    "start_time": Family("process_start_time_seconds", "gauge", "When the process began to serve, as Unix time."),
    "cpu": Family("process_cpu_seconds_total", "counter", "User and system time spent."),
    "resident": Family("process_resident_memory_bytes", "gauge", "Memory held in RAM."),
    "open_fds": Family("process_open_fds", "gauge", "File descriptors in use."),
    "max_fds": Family("process_max_fds", "gauge", "File descriptors that may be in use."),
}
#: Every family that a scrape can tell, for whoever documents or checks them.
FAMILIES: Final = (
    *METERS.values(),
    *(_INFO, _READY, _OPERATIONS, _DUE, _LAG, _INBOX, _NOTICES, _PAUSED, _ERRORS, _GOOD_READ),
    *(_CHECKPOINTS, _CHECKPOINT_AT),
    *_PROCESS.values(),
)


class MetricsRoute:
    """The one route."""

    def __init__(self, deps: LocalDeps) -> None:
        self._deps = deps

    async def metrics(self, request: web.Request) -> web.Response:
        """GET: everything, as it stands now."""
        take_only(request)
        told: dict[Family, list[Series]] = {family: [] for family in FAMILIES}
        for name, labels, value in self._deps.meters.read():
            if (family := METERS.get(name)) is not None:
                told[family].append((labels, value))
        told[_INFO] = [((("version", self._deps.version),), 1)]
        told[_READY] = [((), float(self._deps.is_ready()))]
        told.update(await self._rows())
        told.update(self._peers())
        known = {"start_time": self._deps.started_at / 1000, **self._deps.process()}
        told.update({_PROCESS[name]: [((), value)] for name, value in known.items()})
        text = exposition.render(told.items())
        return web.Response(body=text.encode(), headers={"Content-Type": exposition.CONTENT_TYPE})

    async def _rows(self) -> dict[Family, list[Series]]:
        store, now = self._deps.store, self._deps.clock.now()
        counts = await store.counts()
        due = await store.due_backlog(now)
        notices = await store.notice_counts()
        signed = await store.record.last_checkpoint()
        overdue = {name: due.get(name, (0, now)) for name in self._deps.peers}
        told: dict[Family, list[Series]] = {
            _OPERATIONS: _by("state", {state.value: counts.get(state, 0) for state in State}),
            _DUE: _by("provider", {name: n for name, (n, _) in overdue.items()}),
            _LAG: _by("provider", {name: max(0, now - oldest) / 1000 for name, (_, oldest) in overdue.items()}),
            _INBOX: _by("kind", sizes(counts, notices)),
            _NOTICES: _by("reason", notices),
            _CHECKPOINTS: [((), signed.checkpoint.number if signed else 0)],
        }
        if signed is not None:
            told[_CHECKPOINT_AT] = [((), signed.checkpoint.at / 1000)]
        return told

    def _peers(self) -> dict[Family, list[Series]]:
        peers = [peer for peer in self._deps.peers.values() if peer.absence is None]
        return {
            _PAUSED: _by("provider", {peer.name: float(peer.pause.until_ms is not None) for peer in peers}),
            _ERRORS: _by("provider", {peer.name: rate for peer in peers if (rate := peer.error_rate) is not None}),
            _GOOD_READ: _by("provider", {p.name: at / 1000 for p in peers if (at := p.last_good_read_at) is not None}),
        }


def _by(label: str, values: Mapping[str, float]) -> list[Series]:
    return [(((label, name),), value) for name, value in values.items()]

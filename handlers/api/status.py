"""How the daemon fares: liveness, readiness, and one page of numbers."""

from aiohttp import web

from handlers import bodies
from handlers.answer import answer
from handlers.api.deps import LocalDeps
from handlers.api.inbox import sizes
from handlers.api.query import take_only
from reconcile.checkpoint import SignedCheckpoint


class StatusRoutes:
    """Routes that speak of the daemon itself."""

    def __init__(self, deps: LocalDeps) -> None:
        self._deps = deps

    async def healthz(self, _: web.Request) -> web.Response:
        """GET: the loop turns."""
        return answer({"status": "alive"})

    async def readyz(self, _: web.Request) -> web.Response:
        """GET: it serves, and what it is told can be stored."""
        if not self._deps.is_ready():
            return answer({"status": "not ready"}, status=503)
        return answer({"status": "ready"})

    async def status(self, request: web.Request) -> web.Response:
        """GET: version, uptime, operations by state, backlog, and each provider."""
        take_only(request)
        deps = self._deps
        now = deps.clock.now()
        counts = await deps.store.counts()
        due = await deps.store.due_backlog(now)
        oldest = min((since for _, since in due.values()), default=now)
        events = await deps.store.event_counts()
        inbox = sizes(counts, await deps.store.notice_counts())
        shown = {n: p for n, p in deps.peers.items() if p.absence is None or await deps.store.has_open(n)}
        return answer(
            {
                "version": deps.version,
                "uptime_seconds": max(0, (now - deps.started_at) // 1000),
                "operations": counts,
                "due": {"count": sum(n for n, _ in due.values()), "lag_seconds": max(0, (now - oldest) // 1000)},
                "checkpoint": _checkpoint(await deps.store.record.last_checkpoint()),
                "callbacks": await _callbacks(deps),
                "inbox": sum(inbox.values()),
                "providers": {
                    name: {
                        "kind": peer.provider.contract.kind,
                        "missing": peer.absence is not None,
                        "status_page": peer.provider.contract.status_page,
                        "webhooks": {
                            "accepted": events.get(name, {}).get("accepted", 0),
                            "duplicate": events.get(name, {}).get("duplicate", 0),
                            "refused": deps.meters.total("webhooks", provider=name, answer="refused"),
                            "missed": deps.meters.total("ends_missed", provider=name),
                            "late": deps.meters.total("webhooks_late", provider=name),
                            "unmatched": events.get(name, {}).get("unmatched", 0),
                            "last_at": bodies.rfc3339(events.get(name, {}).get("last_at")),
                        },
                        "last_good_poll": bodies.rfc3339(peer.last_good_read_at),
                        "error_rate": peer.error_rate,
                        "paused_until": bodies.rfc3339(peer.pause.until_ms),
                        "pause_reason": peer.pause.reason or None,
                    }
                    for name, peer in shown.items()
                },
            }
        )


async def _callbacks(deps: LocalDeps) -> dict[str, object]:
    """Each callback that is configured, or that deliveries are kept of: how they fare."""
    counts = await deps.store.deliveries.counts()
    fates = ("waiting", "delivered", "exhausted")
    return {
        name: {
            "missing": deps.callbacks.named(name) is None,
            **{fate: counts.get(name, {}).get(fate, 0) for fate in fates},
        }
        for name in sorted({*deps.callbacks.names, *counts})
    }


def _checkpoint(signed: SignedCheckpoint | None) -> dict[str, object] | None:
    """The newest signature over the record: whoever notes its hash can tell later that no end was cut off."""
    if signed is None:
        return None
    checkpoint = signed.checkpoint
    return {
        "number": checkpoint.number,
        "at": bodies.rfc3339(checkpoint.at),
        "position": checkpoint.position,
        "hash": signed.hash,
        "public_key": signed.public_key,
    }

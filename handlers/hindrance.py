"""Why nothing is sent about an open operation just now: a pause of its provider, or an absence, in words."""

from handlers import words
from reconcile import absence, limits
from reconcile.limits import Pause
from reconcile.model import Operation, UnixMs
from reconcile.peer import Peer
from reconcile.schedule import rfc3339


def why_held(peer: Peer | None, op: Operation, now: UnixMs) -> str | None:
    """Why no request about `op` is sent, as the configuration and its provider's pause stand; None: they are."""
    if peer is None or op.is_terminal:
        return None
    if (why := peer.absence_for(op)) is not None:
        return absence.question(why, op.provider, started_at=op.origin, is_at=peer.origin)
    return _paused(op.provider, peer.pause, now)


def _paused(provider: str, pause: Pause, now: UnixMs) -> str | None:
    if pause.until_ms is None:
        return None
    if limits.may_send(pause, now):
        return words.ONE_AT_A_TIME.format(provider=provider, reason=pause.reason)
    return words.LEFT_ALONE.format(provider=provider, reason=pause.reason, until=rfc3339(pause.until_ms))

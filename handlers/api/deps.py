"""What the local API needs of the rest; handed in once, so that many daemons fit in one process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from handlers import bodies
from reconcile.changes import Changes
from reconcile.contract import Contract
from reconcile.desk import Desk
from reconcile.files import Files
from reconcile.model import Operation
from reconcile.peer import Peer
from reconcile.seams import Clock, Dice, Meters
from reconcile.start import Starter
from reconcile.store.store import Store


@dataclass(frozen=True, slots=True)
class LocalDeps:
    """The rooms behind the local API. `is_ready` tells whether the daemon serves and its writer lives."""

    store: Store
    changes: Changes
    starter: Starter
    desk: Desk
    files: Files
    peers: Mapping[str, Peer]
    clock: Clock
    dice: Dice
    meters: Meters
    log: Any
    token: str
    hosts: frozenset[str]
    version: str
    started_at: int
    max_start_body: int
    is_ready: Callable[[], bool]

    def contract(self, provider: str) -> Contract | None:
        """The contract of a provider that is configured now."""
        peer = self.peers.get(provider)
        return peer.provider.contract if peer is not None else None

    def body(self, op: Operation) -> dict[str, Any]:
        """The operation body, as of now."""
        return bodies.operation(op, self.clock.now(), self.contract(op.provider))

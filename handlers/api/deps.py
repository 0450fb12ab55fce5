"""What the local API needs of the rest; handed in once, so that many daemons fit in one process."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handlers import bodies, hindrance
from handlers.access import Token
from handlers.api import inline
from reconcile.callback import Callbacks
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
    callbacks: Callbacks
    clock: Clock
    dice: Dice
    meters: Meters
    log: Any
    tokens: Sequence[Token]
    hosts: Container[str]
    version: str
    started_at: int
    max_start_body: int
    is_ready: Callable[[], bool]
    #: What the system tells of the process: cpu, resident, open_fds, max_fds, as far as it does.
    process: Callable[[], Mapping[str, float]]

    def contract(self, provider: str) -> Contract | None:
        """The contract of a provider that is configured now."""
        peer = self.peers.get(provider)
        return peer.provider.contract if peer is not None else None

    async def body(self, op: Operation, *, is_start: bool = False) -> dict[str, Any]:
        """The operation body, as of now, on whatever road; `is_start`: it answers the start itself."""
        op, now = await self.store.as_shown(op), self.clock.now()
        held = hindrance.why_held(self.peers.get(op.provider), op, now)
        return bodies.operation(op, now, self.contract(op.provider), held=held, is_start=is_start)

    async def whole_body(self, op: Operation) -> dict[str, Any]:
        """The same with the result itself, where that is final and small: it costs a read of the file."""
        body = await self.body(op)
        if op.result is not None and op.is_terminal:
            body["result"]["inline"] = await inline.value_of(self.files, op.result)
        return body

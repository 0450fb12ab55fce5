"""What the local API needs of the rest; handed in once, so that many daemons fit in one process."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reconcile.changes import Changes
from reconcile.client import Peer
from reconcile.files import Files
from reconcile.seams import Clock, Dice, Meters
from reconcile.start import Starter
from reconcile.store.store import Store


@dataclass(frozen=True, slots=True)
class LocalDeps:
    """The rooms behind the local API. `is_ready` tells whether the daemon serves and its writer lives."""

    store: Store
    changes: Changes
    starter: Starter
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

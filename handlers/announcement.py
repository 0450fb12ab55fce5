"""What a callback is told: a type, when it came to be, and the operation body as it then stood. Pure.

Handed in to the store, which freezes the bytes in the transaction of the move that they tell of.
"""

import json
from collections.abc import Callable

from handlers import bodies
from reconcile.callback import CallbackEvent, Callbacks
from reconcile.contract import Contract
from reconcile.model import Operation, UnixMs
from reconcile.store.evidence import Announce


def announce_by(contracts: Callable[[str], Contract], callbacks: Callbacks) -> Announce:
    """The bodies of those callbacks that want to be told."""

    def announce(op: Operation, event: CallbackEvent, at: UnixMs) -> bytes | None:
        if op.callback is None or not callbacks.wants(op.callback, event):
            return None
        told = {
            "type": event.value,
            "timestamp": bodies.rfc3339(at),
            "data": bodies.operation(op, at, contracts(op.provider)),
        }
        # In ASCII: no text of a stranger's can make it unspeakable, and keep a move from being written.
        return json.dumps(told, separators=(",", ":")).encode("ascii")

    return announce

"""The public listener's door: so many strangers at once, and whoever comes beyond is turned away as it comes.

A stranger costs memory before it has said a word, with TLS most of all, since asyncio makes a connection's buffers and
its TLS state as it takes it. So they are counted where the kernel hands them over, before anything is made for them.
"""

import socket
import weakref
from typing import Any, Final

from daemon.limits import QUIET_MS
from reconcile.seams import Clock

#: Connections of the public listener at once, those in mid-handshake among them. 1,000: an idle one costs some 150 KiB
#: with TLS (measured), so that all of them stay within 150 MiB of the unit's 1 GiB; providers need a few.
MAX_STRANGERS: Final = 1_000


class Door(socket.socket):
    """A bound socket that takes the place of `sock`, and accepts no more than `most` connections at once."""

    def __init__(self, sock: socket.socket, clock: Clock, log: Any, *, most: int = MAX_STRANGERS) -> None:
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self._clock = clock
        self._log = log
        self._most = most
        #: Weak, so that one which is dropped without being closed takes up no place either.
        self._inside: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._turned_away = 0
        self._told_at: int | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection. Raises: BlockingIOError, where none waits or the next one was turned away.

        asyncio then goes on with its other work first, so that a crowd at the door holds up nobody inside.
        """
        taken, address = super().accept()
        if len(self._inside) >= self._most:
            taken.close()
            self._turned_away += 1
            self._tell()
            raise BlockingIOError
        inside = _Inside(taken, self)
        self._inside.add(inside)
        return inside, address

    def left(self, inside: socket.socket) -> None:
        """A connection has been closed."""
        self._inside.discard(inside)

    def _tell(self) -> None:
        now = self._clock.now()
        if self._told_at is None or abs(now - self._told_at) >= QUIET_MS:
            self._log.warning("connections_refused", refused=self._turned_away, connections=len(self._inside))
            self._told_at, self._turned_away = now, 0


class _Inside(socket.socket):
    """A connection that tells its door when it is closed, whoever closes it and why."""

    def __init__(self, taken: socket.socket, door: Door) -> None:
        super().__init__(taken.family, taken.type, taken.proto, fileno=taken.detach())
        self._door = door

    def close(self) -> None:
        """Close it; again is no fault."""
        super().close()
        self._door.left(self)

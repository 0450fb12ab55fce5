"""Words to systemd (sd_notify): ready, stopping, alive, so much longer. Silent where nobody listens."""

import os
import socket
from collections.abc import Mapping
from typing import Final

#: Seconds that a word which is said once may wait for its place. 5: arbitrary; the loop stands still meanwhile.
PLACE_SECONDS: Final = 5


class Notifier:
    """Sends to `$NOTIFY_SOCKET`; a missing or broken socket is no error of ours."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        known = os.environ if environ is None else environ
        self._path = known.get("NOTIFY_SOCKET", "")

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens, as far as is known."""
        return bool(self._path)

    def send(self, *words: str, waits: bool = False) -> None:
        """One datagram of assignments, such as "READY=1" and "STATUS=...".

        Where the queue is full (ten datagrams; a busy manager) the word is lost: it is one that is said again. With
        `waits`, for one that is said once, the process waits for a place.
        """
        if not self._path:
            return
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(PLACE_SECONDS if waits else 0)
                sock.sendto("\n".join(words).encode(), address)
        except (BlockingIOError, TimeoutError):
            return
        except OSError:
            # The supervisor's socket is gone: it will notice without our word.
            self._path = ""

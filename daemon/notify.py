"""Words to systemd (sd_notify): ready, stopping, alive. Silent where nobody listens."""

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends to `$NOTIFY_SOCKET`; a missing or broken socket is no error of ours."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        known = os.environ if environ is None else environ
        self._path = known.get("NOTIFY_SOCKET", "")

    def send(self, words: str) -> None:
        """One datagram, such as "READY=1"."""
        if not self._path:
            return
        address = "\0" + self._path[1:] if self._path.startswith("@") else self._path
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.sendto(words.encode(), address)
        except OSError:
            # The supervisor's socket is gone: it will notice without our word.
            self._path = ""

"""A terminal of a test's own: commands run in it as processes, as a person runs them."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

from tests.handlers.ground import Ground, until

ROOT = Path(__file__).parents[2]
#: Colours and other looks, and everything that a terminal is told beside text.
LOOKS = re.compile(r"\x1b\[[0-9;]*m")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


def environ(**more: str) -> dict[str, str]:
    """What a command is run with: nothing of whoever runs the tests that changes how things look."""
    looks = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    ours = {k: v for k, v in os.environ.items() if k not in looks and not k.startswith("RECONCILED_")}
    return {**ours, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **more}


def place(ground: Ground) -> list[str]:
    """Where the daemon of that ground is."""
    return ["--url", f"http://127.0.0.1:{ground.local_port}", "--token-file", str(ground.folder / "api-token")]


class Terminal:
    """One command in a terminal of so many columns."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self._process = process
        self._master = master
        self._bytes = b""
        self._closed = asyncio.Event()
        asyncio.get_running_loop().add_reader(master, self._read)

    @classmethod
    async def start(
        cls, *arguments: str, width: int = 80, height: int = 24, env: Mapping[str, str] | None = None
    ) -> "Terminal":
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "daemon", *arguments),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env=environ(**(env or {})),
        )
        os.close(slave)
        return cls(process, master)

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65_536)
        except OSError:  # the last one has left it
            data = b""
        self._bytes += data
        if not data:
            asyncio.get_running_loop().remove_reader(self._master)
            self._closed.set()

    @property
    def written(self) -> str:
        return self._bytes.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """What was written, without looks and moves."""
        return ESCAPES.sub("", self.written).replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    async def shows(self, text: str) -> None:
        """Wait until it stands there."""

        async def is_there() -> bool:
            return text in self.text or self._process.returncode is not None

        await until(is_there)
        assert text in self.text, self.text

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def end(self) -> int:
        """Its exit status, once it has ended."""
        try:
            async with asyncio.timeout(30):
                await self._closed.wait()
                return await self._process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            os.close(self._master)


async def seen(*arguments: str, width: int = 80, env: Mapping[str, str] | None = None) -> tuple[int, Terminal]:
    """A command that ends by itself."""
    terminal = await Terminal.start(*arguments, width=width, env=env)
    return await terminal.end(), terminal

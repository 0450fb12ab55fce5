"""Daemons by the hundred: one process that has imported everything once, and forks a `reconciled serve` when asked to.

What is forked then runs what the console script runs, on sockets and files of its own; only the second in which Python
reads the modules is saved, which is three quarters of what a short life costs. Run as `python -m tests.faults.nursery`:
a line of JSON on stdin asks for a life, lines on stdout say who was born and how each ended.
"""

import asyncio
import ctypes
import gc
import json
import os
import resource
import select
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from daemon import cli
from tests.stories.stage import PATIENCE, ROOT, SECRET, TOKEN, Home

#: The key that every provider of a story is called with.
KEY_OF_NOBODY: Final = "key-of-nobody"
#: prctl(2): the signal that a child gets when its parent ends.
_PR_SET_PDEATHSIG: Final = 1


# ---- the process that forks --------------------------------------------------------------------------------------


def main() -> None:
    """Fork a daemon for each line until stdin ends."""
    cli.build_parser()  # which imports all that any command needs
    gc.collect()
    gc.freeze()  # or each child's first collection would copy every page of ours
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    asked = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_of_the_dead()
        if 0 in ready:
            more = os.read(0, 65536)
            if not more:
                return  # whoever still lives is ended with us
            *lines, asked = (asked + more).split(b"\n")
            for line in lines:
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for fd in (woken, wakes):
                        os.close(fd)
                    _live(json.loads(line))
                _tell("born", pid)


def _live(wish: Mapping[str, Any]) -> None:
    """What a forked process does with the rest of its life."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    log = os.open(wish["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(old, new)
    os.close(log)
    os.close(nothing)
    os.environ.update(wish["environ"])
    if wish["descriptors"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wish["descriptors"], wish["descriptors"]))
    try:
        status = cli.main(wish["arguments"])
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _tell_of_the_dead() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell("gone", pid, os.waitstatus_to_exitcode(status))


def _tell(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


# ---- the test's half ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Life:
    """One daemon from its fork to its end; `returncode` as subprocess has it, negative for a signal."""

    pid: int
    log: Path
    _ended: "asyncio.Future[int]"

    @property
    def is_alive(self) -> bool:
        """Whether it still runs, as far as we have heard."""
        return not self._ended.done()

    @property
    def said(self) -> str:
        """All that it wrote to stdout and stderr."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    async def end(self) -> int:
        """Wait until it has ended by itself; its exit status."""
        async with asyncio.timeout(PATIENCE):
            return await asyncio.shield(self._ended)

    async def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; its exit status."""
        if self.is_alive:
            os.kill(self.pid, by)
        return await self.end()


@dataclass(slots=True)
class Nursery:
    """Where lives come from, one after another or several at once."""

    _process: asyncio.subprocess.Process
    _ends: "dict[int, asyncio.Future[int]]" = field(default_factory=dict)
    _births: "list[asyncio.Future[int]]" = field(default_factory=list)

    def serving(
        self, home: Home, environ: Mapping[str, str] | None = None, *, descriptors: int | None = None
    ) -> AbstractAsyncContextManager[Life]:
        """`reconciled serve` on that home, not yet ready; killed on the way out if it still runs."""
        return self.running(home, "serve", environ=environ, descriptors=descriptors)

    @asynccontextmanager
    async def running(
        self, home: Home, *arguments: str, environ: Mapping[str, str] | None = None, descriptors: int | None = None
    ) -> AsyncIterator[Life]:
        """`reconciled ARGUMENTS` with the configuration of that home; killed on the way out if it still runs."""
        log = home.folder / f"{len(list(home.folder.glob('*.log')))}.log"
        log.touch()
        wish: dict[str, Any] = {"arguments": [*arguments, "--config", str(home.config)], "log": str(log)}
        wish |= {"environ": dict(environ or {}), "descriptors": descriptors}
        born: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._births.append(born)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(wish).encode() + b"\n")
        async with asyncio.timeout(PATIENCE):
            pid = await born
        life = Life(pid, log, self._ends[pid])
        try:
            yield life
        finally:
            if life.is_alive:
                os.kill(pid, signal.SIGKILL)
                await life.end()

    async def listen(self) -> None:
        """Hear of births and ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            match line.split():
                case [b"born", pid]:
                    # A number that was somebody's before is another's now.
                    self._ends[int(pid)] = asyncio.get_running_loop().create_future()
                    self._births.pop(0).set_result(int(pid))
                case [b"gone", pid, status]:
                    self._ends[int(pid)].set_result(int(status))


@asynccontextmanager
async def nursery(disk: Path | None = None) -> AsyncIterator[Nursery]:
    """A nursery, its lives on the `disk` of disk.py where that is given."""
    environ = {**os.environ, "STORY_TOKEN": TOKEN, "STORY_KEY": KEY_OF_NOBODY, "STORY_SECRET": SECRET}
    environ |= {"PYTHONPATH": str(ROOT)} | ({} if disk is None else {"LD_PRELOAD": str(disk)})
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.nursery", stdin=pipe, stdout=pipe, env=environ
    )
    lives = Nursery(process)
    listening = asyncio.create_task(lives.listen())
    try:
        yield lives
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        await listening


if __name__ == "__main__":
    main()

"""One process put together: opens, starts and stops everything in order, under one task group.

Order of stopping: listeners first (nothing new comes in), then the worker, the outbox, the watchman and the upkeep
(running actions end), then the last checkpoint, over all that they wrote, then the store. The row is the programme
counter, so a stop in mid-work and a kill leave the same thing behind.
"""

import asyncio
import errno
import fcntl
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from daemon.assembly import Daemon, assemble
from daemon.config import Config, warnings_of
from daemon.door import Door
from daemon.limits import LoopErrors, raise_file_limit
from daemon.listeners import hosts_of, listen, make_runner, raise_what_aiohttp_warns_of, taken
from daemon.notify import Notifier
from daemon.rooms import Seams
from daemon.version import version
from daemon.watchdog import Heart, ask_for_time, patience_of
from reconcile.errors import AlreadyRunning


class StateLock:
    """One daemon a state directory: an flock that dies with the process."""

    def __init__(self, state_dir: Path) -> None:
        """Raises: AlreadyRunning, OSError, which names the path."""
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError as fault:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(state_dir)) from fault
        path = state_dir / "lock"
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError as fault:
            if fault.errno != errno.ELOOP:
                raise
            raise OSError(errno.ELOOP, "a symbolic link, and none is followed", str(path)) from fault
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            os.close(self._fd)
            raise AlreadyRunning(
                f"another daemon is running on {state_dir.absolute()}; stop it, or give this one another state_dir"
            ) from fault

    def release(self) -> None:
        """Let the next daemon in."""
        os.close(self._fd)


async def serve(
    config: Config,
    seams: Seams,
    *,
    on_ready: Callable[[str, str], None] = lambda _, __: None,
    environ: Mapping[str, str] | None = None,
    is_last: bool = False,
) -> None:
    """Run until SIGTERM or SIGINT. Raises: AlreadyRunning, StoreError, OSError, ConfigError.

    `on_ready` is told the addresses of the local and the public listener; `environ` says where systemd listens. With
    `is_last` the process ends after it, and signals are ignored until then: they must not change its exit status.
    """
    os.umask(0o077)  # whatever is made here is its owner's alone (S25)
    raise_file_limit()
    raise_what_aiohttp_warns_of()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(LoopErrors(seams.log, seams.clock))
    lock = StateLock(config.state_dir)
    try:
        with taken(config) as sockets:
            await _serve_on(sockets, config, seams, on_ready, os.environ if environ is None else environ)
    finally:
        lock.release()
        # Not before the last row is written: a second signal must not end what the first one brings to an end.
        _let_go_of_signals(loop, is_last=is_last)


def _let_go_of_signals(loop: asyncio.AbstractEventLoop, *, is_last: bool) -> None:
    ours = {signal.SIGTERM, signal.SIGINT}
    # Removed here in any case: a loop that is closed with handlers goes back to what ends the process.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ours)
    for name in ours:
        loop.remove_signal_handler(name)
        if is_last:
            signal.signal(name, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


async def _serve_on(
    sockets: tuple[socket.socket, socket.socket],
    config: Config,
    seams: Seams,
    on_ready: Callable[[str, str], None],
    environ: Mapping[str, str],
) -> None:
    notifier = Notifier(environ)
    async with _more_time(seams, notifier):
        notifier.send("STATUS=Opening the file; a new release may bring it to a newer schema.")
        daemon = await assemble(config, seams, local_hosts=hosts_of(config.api, sockets[0]))
    writer = seams.supervisor.start("writer", daemon.store.run())
    try:
        async with _more_time(seams, notifier):
            notifier.send("STATUS=Looking at what the last process left.")
            await daemon.recover()
        async with _alive(seams, notifier, daemon, environ):
            await _run(config, seams, daemon, sockets, writer, notifier, on_ready)
    finally:
        daemon.store.stop()
        await asyncio.wait({writer})
        await daemon.outbox.close()
        await daemon.client.close()
        await daemon.store.close()
    if (fault := writer.exception()) is not None:
        raise fault


@asynccontextmanager
async def _more_time(seams: Seams, notifier: Notifier) -> AsyncIterator[None]:
    """Meanwhile systemd is asked to wait, so that no large upgrade is ended in its middle."""
    if not notifier.is_heard:
        yield
        return
    over = asyncio.Event()
    asking = seams.supervisor.start("start_time", ask_for_time(notifier, over))
    try:
        yield
    finally:
        over.set()
        await asyncio.wait({asking})


@asynccontextmanager
async def _alive(seams: Seams, notifier: Notifier, daemon: Daemon, environ: Mapping[str, str]) -> AsyncIterator[None]:
    """Meanwhile the watchdog is told so, where systemd keeps one: also while the daemon stops."""
    patience = patience_of(environ, os.getpid())
    if patience is None:
        yield
        return
    over = asyncio.Event()
    heart = Heart(patience, notifier, seams.clock, lambda: daemon.store.pulse)
    beating = seams.supervisor.start("watchdog", heart.beat(over))
    try:
        yield
    finally:
        over.set()
        await asyncio.wait({beating})


async def _run(
    config: Config,
    seams: Seams,
    daemon: Daemon,
    sockets: tuple[socket.socket, socket.socket],
    writer: "asyncio.Task[None]",
    notifier: Notifier,
    on_ready: Callable[[str, str], None],
) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, _stop_all, stop, daemon)
    runners = [make_runner(app, public=app is daemon.public, log=seams.log) for app in (daemon.local, daemon.public)]
    at_work = {
        seams.supervisor.start("worker", daemon.worker.run(stop)),
        seams.supervisor.start("watchman", daemon.watchman.run(stop)),
        seams.supervisor.start("outbox", daemon.outbox.run(stop)),
    }
    try:
        local = await listen(runners[0], sockets[0])
        door = Door(sockets[1], seams.clock, seams.log)
        public = await listen(runners[1], door, config.tls.context if config.tls is not None else None)
        seams.log.info(
            "ready",
            version=version(),
            api=local,
            webhooks=public,
            providers=sorted(config.providers),
            audit_key=daemon.audit_public_key,
        )
        for event, fields in warnings_of(config):
            seams.log.warning(event, **fields)
        notifier.send("READY=1", f"STATUS=Serving: the local API at {local}, webhooks at {public}.", waits=True)
        on_ready(local, public)
        at_work.add(seams.supervisor.start("upkeep", daemon.upkeep.run(stop)))
        stopped = seams.supervisor.start("stop", _waited(stop))
        await asyncio.wait({*at_work, writer, stopped}, return_when=asyncio.FIRST_COMPLETED)
        notifier.send("STOPPING=1", "STATUS=Stopping: requests under way come to their end.", waits=True)
        seams.log.info("stopping")
    finally:
        _stop_all(stop, daemon)
        for runner in reversed(runners):
            await runner.cleanup()
        await asyncio.wait(at_work)
        await daemon.upkeep.close()
    for task in at_work:
        if (fault := task.exception()) is not None:
            raise fault


def _stop_all(stop: asyncio.Event, daemon: Daemon) -> None:
    stop.set()
    daemon.stopping.set()
    daemon.changes.close()
    daemon.worker.wake(0)
    daemon.watchman.wake()
    daemon.outbox.wake()


async def _waited(stop: asyncio.Event) -> None:
    await stop.wait()

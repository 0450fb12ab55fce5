"""A Unix socket in the file system: who may reach it, and what happens to the file that an earlier daemon left.

The file stays when its daemon dies, and refuses connections from then on. Only such a one is replaced: what is no
socket, and what somebody answers at, is left alone. A lock beside it (`PATH.lock`, which stays) lets one daemon at a
time look and take: two that start at once would both find a dead socket, and the second remove the first one's.
"""

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

#: Its owner and its group connect; the group is the directory's where that has the setgid bit, else the daemon's own.
SOCKET_MODE: Final = 0o660
#: Connections that wait for the daemon to be ready. 128: aiohttp's own number.
_BACKLOG: Final = 128


@contextmanager
def taken(path: Path) -> Iterator[socket.socket]:
    """The socket, already listening, so that nobody takes it for a dead one; gone from the file system afterwards.

    `fault_of(path)` must have been asked before. Raises: OSError, where somebody answers there already.
    """
    with _locked(path), closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as sock:
        _make_way(path)
        before = os.umask(0o177)  # nobody's but ours until it has its mode
        try:
            sock.bind(str(path))
        finally:
            os.umask(before)
        ours = path.lstat()
        try:
            path.chmod(SOCKET_MODE)
            sock.listen(_BACKLOG)
            yield sock
        finally:
            with suppress(OSError):
                if os.path.samestat(path.lstat(), ours):
                    path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The lock beside the socket, held until the end; it dies with the process. Raises: OSError."""
    beside = path.with_name(f"{path.name}.lock")
    fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            raise OSError(errno.EADDRINUSE, "another daemon answers there") from fault
        yield
    finally:
        os.close(fd)


def fault_of(path: Path) -> tuple[str, str] | None:
    """What makes a path unfit for a socket, as found and expected; None where nothing does."""
    try:
        folder = path.parent.stat()
        if not stat.S_ISDIR(folder.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    except OSError as fault:
        return f"{path.parent}: {fault.strerror}", "a directory that is there, such as the unit's RuntimeDirectory"
    if folder.st_mode & stat.S_IWOTH:
        # Whoever puts a socket of his own there is told every client's token.
        return f"{path.parent}, where everybody can write", "a directory of mode 0750"
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return f"{path}, where something else stands that is no socket", "a socket, or nothing"
    except OSError:
        return None
    return None


def is_alive(path: Path) -> bool:
    """Whether somebody answers there, or may: only a refused connection tells that nobody does."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as caller:
        caller.setblocking(False)  # a full queue is answered at once, too
        try:
            caller.connect(str(path))
        except OSError as fault:
            return fault.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True


def _make_way(path: Path) -> None:
    """Take away the socket of a daemon that is gone. Raises: OSError."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return  # the bind will be refused
    except FileNotFoundError:
        return
    if is_alive(path):
        raise OSError(errno.EADDRINUSE, "another daemon answers there")
    path.unlink()

"""A file that somebody's configuration names: a plain one, of a size that fits its use, read without ever waiting."""

import errno
import os
import stat
from pathlib import Path
from typing import Final

#: Bytes of a configuration. 1 MiB: fifty times the longest one of ours, with every key in it; arbitrary above that.
MAX_CONFIGURATION: Final = 1 << 20
#: Bytes of a secret, and of a certificate with those that vouch for it. 64 KiB: no header or key has as many, and a
#: chain of ten certificates has about 20 KiB; arbitrary above that.
MAX_SECRET: Final = 64 << 10


def read(path: Path, most: int) -> bytes:
    """What stands there. Raises: OSError, also for a pipe, a device and whatever is larger than `most`.

    A pipe without a writer is not waited for, and no terminal becomes ours.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(fd, "rb") as file:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError("no regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(f"more than {most} bytes")
    return data

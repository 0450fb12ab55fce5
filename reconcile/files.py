"""Files under the state directory: inputs in spool/, collected results in results/.

A file is written under tmp/, fsynced and renamed before any row names it; whatever stands in tmp/ at start is left
over from a crash and goes. A `ref` is a relative path made of our own ids only, never of a stranger's words.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from reconcile.seams import Supervisor

T = TypeVar("T")

#: Bytes read at once. 64 KiB: large enough that calls do not count, small enough that the loop is never held up.
CHUNK: Final = 65536
#: Bytes of a file that comes in pieces which are written at once. 1 MiB: arbitrary; a thread's turn costs little.
BLOCK: Final = 2**20
#: Bytes after which the disk is waited for. 16 MiB: so that no sync beside it, such as the database's, waits for all of
#: a large file.
STEP: Final = 2**24
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MORE: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Written:
    """What a finished file holds."""

    ref: str
    bytes: int
    sha256: str


class FileWriter:
    """One file on its way: written under tmp/, there for good only after `finish`."""

    def __init__(self, files: "Files", ref: str, temp: Path, digest: Any) -> None:
        self._files = files
        self._ref = ref
        self._temp = temp
        self._fd = os.open(temp, _NEW, 0o600)
        #: The descriptor again, until somebody has taken it on to close it.
        self._unowned = [self._fd]
        files.under_way.add(temp.name)
        self._digest = digest
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._written_bytes = 0
        self._unsynced = 0

    @property
    def size(self) -> int:
        """How many it holds."""
        return self._written_bytes + self._waiting_bytes

    def write(self, data: bytes) -> None:
        """Append what is small, on the loop. Raises: OSError."""
        self._append(self._fd, data)

    async def add(self, data: bytes) -> None:
        """Append a piece of what may be large; off the loop, which a write to a busy disk holds up. Raises: OSError."""
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= BLOCK:
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        data, self._waiting, self._waiting_bytes = b"".join(self._waiting), [], 0
        await self._files.offload(partial(self.write_on_thread, data))

    def write_on_thread(self, data: bytes) -> None:
        """Append what may be too much for the loop. Raises: OSError, also where the file was discarded meanwhile.

        By a descriptor of its own: a caller that was cancelled may discard the file while the thread goes on, and the
        number of a closed descriptor may be another file's by then.
        """
        fd = os.open(self._temp, _MORE)
        try:
            self._append(fd, data)
            self._unsynced += len(data)
            if self._unsynced >= STEP:
                os.fdatasync(fd)
                self._unsynced = 0
        finally:
            os.close(fd)

    def _append(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        self._digest.update(data)
        self._written_bytes += len(data)

    async def finish(self) -> Written:
        """Make the file durable under its ref. Raises: OSError."""
        if self._waiting:
            await self._write_waiting()
        await self._files.offload(self._settle)
        return self._written()

    def finish_here(self) -> Written:
        """The same on the loop, which it holds up: for what is small, before anybody is served. Raises: OSError."""
        self._settle()
        return self._written()

    def _written(self) -> Written:
        return Written(self._ref, self.size, self._digest.hexdigest())

    def discard(self) -> None:
        """Drop what was written; harmless after `finish`."""
        if (fd := self._take_on()) is not None:
            os.close(fd)
            self._temp.unlink(missing_ok=True)
            self._files.under_way.discard(self._temp.name)

    def _take_on(self) -> int | None:
        """The descriptor, for whoever asks first: the thread that settles, or who discards where no thread came to it.

        Once the thread has it, whoever is cancelled meanwhile must not close it.
        """
        try:
            return self._unowned.pop()  # one step, for all threads
        except IndexError:
            return None

    def _settle(self) -> None:
        if (fd := self._take_on()) is None:  # discarded meanwhile: nobody waits for it any more
            return
        try:
            self._make_durable(fd)
        finally:
            self._files.under_way.discard(self._temp.name)

    def _make_durable(self, fd: int) -> None:
        step = self._files.step
        try:
            step("fsync", self._temp)
            os.fsync(fd)
        finally:
            os.close(fd)
        target = self._files.path(self._ref)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        step("rename", target)
        self._temp.rename(target)
        step("fsync directory", target.parent)
        for folder in self._files.up_from(target.parent):  # each of them may have just been made
            _fsync_directory(folder)


class Files:
    """The files of one state directory. `hook(step, path)` is a fault point for tests."""

    def __init__(self, root: Path, supervisor: Supervisor, hook: Callable[[str, Path], None] | None = None) -> None:
        self._root = root
        self._supervisor = supervisor
        self._hook = hook
        self._count = 0
        #: Names in tmp/ that somebody is writing.
        self.under_way: set[str] = set()

    def prepare(self) -> None:
        """Make the folders and clear tmp/; only under the state directory's lock."""
        shutil.rmtree(self._root / "tmp", ignore_errors=True)
        for name in ("tmp", "spool", "results"):
            (self._root / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    def create(self, ref: str, digest: Any = None) -> FileWriter:
        """Begin a file; `digest` goes on with its bytes, where they follow those of another one. Raises: OSError."""
        self._count += 1
        temp = self._root / "tmp" / f"{self._count}-{ref.replace('/', '_')}"
        self.step("create", temp)
        return FileWriter(self, ref, temp, hashlib.sha256() if digest is None else digest)

    def keep(self, ref: str, data: bytes) -> Written:
        """A small file, whole and durable, before anybody is served. Raises: OSError."""
        writer = self.create(ref)
        try:
            writer.write(data)
            return writer.finish_here()
        finally:
            writer.discard()

    def path(self, ref: str) -> Path:
        """Where a finished file stands."""
        return self._root / ref

    def remove(self, ref: str) -> None:
        """Remove a file or a folder of files that no row names."""
        path = self.path(ref)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    async def remove_all(self, refs: Sequence[str]) -> None:
        """Remove them off the loop: a large file takes its time. One that cannot go keeps no other. Raises: OSError."""

        def remove() -> None:
            fault: OSError | None = None
            for ref in refs:
                try:
                    self.remove(ref)
                except OSError as this:
                    fault = this
            if fault is not None:
                raise fault

        if refs:
            await self.offload(remove)

    def set_aside(self, refs: Iterable[str], folder: str) -> None:
        """Move files, or folders of files, to the same places under `folder`, durably; what stands there already stays.

        Raises: OSError.
        """
        touched: dict[Path, None] = {}
        for ref in refs:
            source, target = self.path(ref), self.path(f"{folder}/{ref}")
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            while target.exists():
                target = target.with_name(f"{target.name}+")
            self.step("set aside", target)
            source.rename(target)
            touched |= dict.fromkeys((source.parent, *self.up_from(target.parent)))
        for each in touched:
            _fsync_directory(each)

    def names(self, ref: str) -> list[str]:
        """What stands in a folder, by name; nothing where there is no such folder.

        A link below spool/ or results/ is one entry and leads nowhere (S36): those two themselves may lie elsewhere.
        """
        path = self.path(ref)
        leads_away = "/" in ref and path.is_symlink()
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() and not leads_away else []

    def make(self, ref: str) -> None:
        """Make a folder where there is none. Raises: OSError."""
        self.path(ref).mkdir(mode=0o700, parents=True, exist_ok=True)

    def leftovers(self) -> list[str]:
        """What stands in tmp/ and nobody is writing: a disk that was full left it there."""
        return [f"tmp/{name}" for name in self.names("tmp") if name not in self.under_way]

    def open(self, ref: str) -> BinaryIO:
        """A finished file, to be read; a link in its place is not followed. Raises: OSError."""
        return open(os.open(self.path(ref), os.O_RDONLY | os.O_NOFOLLOW), "rb")  # noqa: PTH123 - by descriptor

    def read(self, ref: str, start: int, length: int) -> bytes:
        """A stretch of a file. Raises: OSError."""
        with self.open(ref) as file:
            file.seek(start)
            return file.read(length)

    def free_bytes(self) -> int:
        """What is free where the state directory is, bytes. Raises: OSError."""
        return shutil.disk_usage(self._root).free

    def up_from(self, folder: Path) -> list[Path]:
        """A folder and those above it, up to the root."""
        return [folder, *(above for above in folder.parents if above.is_relative_to(self._root))]

    async def offload(self, function: Callable[[], T]) -> T:
        """Run a blocking step off the loop."""
        return await self._supervisor.offload(function)

    def step(self, name: str, path: Path) -> None:
        """Tell the fault point where we are."""
        if self._hook is not None:
            self._hook(name, path)


def _fsync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

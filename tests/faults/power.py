"""What is left on a disk when the power goes: all that was synced, and of the rest whatever happened to get there.

Made from a record: of each file's writes since its last sync none, all or some are kept, some of those torn between
sectors; of the names that were made, changed and removed since their folder was synced, the first few. Nothing that was
synced is lost, and what was never written is never there.
"""

import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.faults.record import Entry

#: What a disk writes whole or not at all, bytes. 512: the smallest that any disk promises.
SECTOR: Final = 512


@dataclass(slots=True, eq=False)
class _File:
    """One file, whatever its name: what is safe of it, and what was done since."""

    safe: bytearray = field(default_factory=bytearray)
    since: list[Entry] = field(default_factory=list)

    def after(self, dice: random.Random) -> bytes:
        """What is found of it once the power is back."""
        content, kept = bytearray(self.safe), dice.choice((0.0, 1.0, 0.5, 0.9))
        for entry in self.since:
            if dice.random() < kept:
                for piece in _torn(entry, dice) if dice.random() < 0.25 else (entry,):
                    _do(content, piece)
        return bytes(content)


def _torn(entry: Entry, dice: random.Random) -> Iterable[Entry]:
    """Those sectors of a write that got there."""
    if entry.kind != "w":
        return
    at, end = entry.where, entry.where + len(entry.data)
    while at < end:
        until = min(end, (at // SECTOR + 1) * SECTOR)
        if dice.random() < 0.5:
            yield entry._replace(where=at, data=entry.data[at - entry.where : until - entry.where])
        at = until


def _do(content: bytearray, entry: Entry) -> None:
    length = entry.where + len(entry.data)
    content.extend(bytes(max(0, length - len(content))))
    if entry.kind == "t":
        del content[length:]
    else:
        content[entry.where : length] = entry.data


class Drive:
    """A folder as it lies on a disk: what is there, and what of that is safe."""

    def __init__(self, root: Path, image: Path | None = None) -> None:
        """`image`: what stood in the folder at first, all of it safe."""
        self._root = root
        self._folders = {root}
        self._names: dict[Path, _File] = {}
        for path in sorted(image.rglob("*")) if image is not None else ():
            place = root / path.relative_to(image or root)
            if path.is_dir():
                self._folders.add(place)
            else:
                self._names[place] = _File(bytearray(path.read_bytes()))
        self._safe = dict(self._names)
        self._renamed: list[Entry] = []
        #: The file that a name stood for when something was done to it.
        self._meant: list[_File] = []

    def do(self, entry: Entry) -> None:
        """One thing that the process did."""
        match entry.kind:
            case "m":
                self._folders.add(entry.path)
            case "w" | "t":
                if (file := self._names.get(entry.path)) is not None:  # else it was removed, and is written to still
                    file.since.append(entry)
            case "s" if entry.path in self._folders:
                self._sync_folder(entry.path)
            case "s":
                if (file := self._names.get(entry.path)) is not None:
                    for done in file.since:
                        _do(file.safe, done)
                    file.since.clear()
            case "c" | "r" | "u":
                self._meant.append(_File() if entry.kind == "c" else self._names.get(entry.path) or _File())
                self._renamed.append(entry)
                _rename(self._names, entry, self._meant[-1])

    def _sync_folder(self, folder: Path) -> None:
        left: list[tuple[Entry, _File]] = []
        for entry, file in zip(self._renamed, self._meant, strict=True):
            if folder in (entry.path.parent, _target(entry).parent):
                _rename(self._safe, entry, file)
            else:
                left.append((entry, file))
        self._renamed, self._meant = [entry for entry, _ in left], [file for _, file in left]

    def cut_power(self, dice: random.Random, folder: Path) -> None:
        """Write what is found once the power is back into `folder`, in place of what is there."""
        shutil.rmtree(folder, ignore_errors=True)
        for made in self._folders:
            (folder / made.relative_to(self._root)).mkdir(parents=True, exist_ok=True, mode=0o700)
        names, most = dict(self._safe), len(self._renamed)
        for entry, file in list(zip(self._renamed, self._meant, strict=True))[
            : dice.choice((0, most, dice.randint(0, most)))
        ]:
            _rename(names, entry, file)
        for path, file in names.items():
            if not path.name.endswith("-shm"):  # mapped, never synced, and made anew by whoever opens the file first
                place = folder / path.relative_to(self._root)
                place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                place.write_bytes(file.after(dice))
                place.chmod(0o600)


def _target(entry: Entry) -> Path:
    return Path(entry.data.decode()) if entry.kind == "r" else entry.path


def _rename(names: dict[Path, _File], entry: Entry, file: _File) -> None:
    if entry.kind != "c":
        names.pop(entry.path, None)
    if entry.kind != "u":
        names[_target(entry)] = file

"""What a process on the disk of disk.c did, in the order in which it did it: its files, and what it said and heard."""

import struct
from pathlib import Path
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct("<cqII")


class Entry(NamedTuple):
    """One call. Kinds: "c" a file is made, "m" a folder, "w" bytes written at `where`, "t" a length set, "s" synced,
    "r" renamed to `data`, "u" removed; "e" a call that the rule let fail, `data` its kind; "f" a file opened, `where`
    is the access asked for (`os.O_RDONLY`, ...); "i" bytes heard and "o" said on the socket `where`.
    """

    kind: str
    where: int
    path: Path
    data: bytes

    @property
    def is_of_files(self) -> bool:
        """Whether it is something that a power cut may undo, or a sync."""
        return self.kind not in "efio"


def entries_in(record: Path) -> list[Entry]:
    """All that stands in a record; an entry that was cut off at its end is left out."""
    data, at, found = record.read_bytes(), 0, []
    while at + _HEAD.size <= len(data):
        kind, where, path, length = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if at + path + length > len(data):
            break
        name, content = data[at : at + path].decode(), data[at + path : at + path + length]
        found.append(Entry(kind.decode(), where, Path(name), content))
        at += path + length
    return found


def refused_in(record: Path, suffix: str) -> int:
    """How many calls on files whose path ends in `suffix` the rule let fail."""
    return sum(entry.kind == "e" and str(entry.path).endswith(suffix) for entry in entries_in(record))


def commits_in(entries: list[Entry]) -> int:
    """How often the log was synced: at least once for each transaction that wrote anything."""
    return sum(entry.kind == "s" and entry.path.name.endswith("-wal") for entry in entries)

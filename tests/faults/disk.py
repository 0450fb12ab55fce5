"""The disk of disk.c, put under a daemon that does not know: how it is made, and the words of its one rule."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.stories.stage import Home

_SOURCE: Final = Path(__file__).with_name("disk.c")
#: More often than anything happens here.
ALWAYS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Rule:
    """What befalls the calls of one kind on files whose path ends in `suffix`, from the `first` such call on.

    `op`: "write", "run" (the first of several writes to one file in a row), "sync", "cut" (a change of length), "name"
    (a file is made, renamed or removed) or "any". `verb`: "kill" before the call, "killed" after it, "slow:USEC", or
    the number of the error that the call gives.
    """

    op: str
    verb: str | int
    suffix: str = "*"
    first: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.op} {self.suffix} {self.first} {self.count} {self.verb}"


def environ_of(
    home: Home, rule: Rule | None = None, *, while_there: Path | None = None, record: Path | None = None
) -> dict[str, str]:
    """What a process on the disk must be told: the rule, the file that must exist for it to hold, where to record."""
    given = {"DISK_UNDER": str(home.state_dir), "DISK_RULE": rule, "DISK_WHILE": while_there, "DISK_RECORD": record}
    return {name: str(value) for name, value in given.items() if value is not None}


def made(folder: Path) -> Path:
    """The compiled disk; the test is skipped where nothing compiles it, or nobody would load it."""
    if sys.platform != "linux":
        pytest.skip("LD_PRELOAD is Linux's")
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        pytest.skip("no C compiler (cc, or $CC): nothing can be put between SQLite and the kernel")
    library = folder / "disk.so"
    if not library.exists():
        command = [compiler, "-O2", "-shared", "-fPIC", "-pthread", "-o", str(library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
    return library

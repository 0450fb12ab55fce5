"""What the daemon costs: all figures, or those of the subjects named, in one table.

Exits 0 only if every bound was kept, which small sizes and a busy machine may miss. See benchmarks/README.md.
"""

import argparse
import importlib
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.table import Figure, show, tell

#: The tools that each subject needs, beside what all of them need.
SUBJECTS: Final = {
    "ingest": ("wrk", "cc"),
    "soak": ("wrk",),
    "collection": (),
    "standing": ("wrk",),
    "outage": (),
    "restart": (),
    "tracking": (),
}
#: What each tool is for, and Debian's package of it.
TOOLS: Final = {
    "taskset": "gives each process its core; package util-linux",
    "wrk": "makes the load; package wrk",
    "cc": "builds the slow disk; package gcc",
}

STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Exit 0 only if every bound was kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it runs, not to quote")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where to work; a disk that is worth measuring")
    given = parser.parse_args()
    unknown = set(given.subjects) - set(SUBJECTS)
    if unknown:
        parser.error(f"no subject {', '.join(sorted(unknown))}: {', '.join(SUBJECTS)}")
    if given.folder is not None and not given.folder.is_dir():
        parser.error(f"no folder {given.folder}")
    subjects = list(dict.fromkeys(given.subjects or SUBJECTS))
    needed = {"taskset", *(tool for subject in subjects for tool in SUBJECTS[subject])}
    missing = [f"{tool} ({told})" for tool, told in TOOLS.items() if tool in needed and shutil.which(tool) is None]
    if missing:
        parser.error(f"not installed: {', '.join(missing)}")
    for number in STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    figures: list[Figure] = []
    for subject in subjects:
        tell(f"--- {subject}")
        with tempfile.TemporaryDirectory(prefix="reconciled-bench-", dir=given.folder) as folder:
            for figure in importlib.import_module(f"benchmarks.{subject}").measure(Path(folder), quick=given.quick):
                figures.append(figure)
                tell(show([figure]).splitlines()[1])
    print(show(figures))
    return 0 if all(figure.is_met for figure in figures) else 1


def _leave(number: int, _: object) -> None:
    """Whatever was started is ended on the way out, and the folder goes; another signal does not cut that short."""
    for stop in STOPS:
        signal.signal(stop, signal.SIG_IGN)
    tell(f"stopped by {signal.Signals(number).name}")
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())

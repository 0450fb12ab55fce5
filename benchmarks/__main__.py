"""All figures, or those of the subjects named: `python -m benchmarks [SUBJECT ...] [--quick] [--folder DIR]`."""

import argparse
import importlib
import sys
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.table import Figure, show, tell

SUBJECTS: Final = ("ingest", "soak", "collection", "standing", "outage", "restart", "tracking")


def main() -> int:
    """Exit 0 only if every bound was kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it runs, not to quote")
    parser.add_argument("--folder", type=Path, help="where to work; a disk that is worth measuring")
    given = parser.parse_args()
    unknown = set(given.subjects) - set(SUBJECTS)
    if unknown:
        parser.error(f"no subject {', '.join(sorted(unknown))}: {', '.join(SUBJECTS)}")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="reconciled-bench-", dir=given.folder) as folder:
        for subject in given.subjects or SUBJECTS:
            tell(f"--- {subject}")
            found = importlib.import_module(f"benchmarks.{subject}").measure(Path(folder), quick=given.quick)
            for figure in found:
                figures.append(figure)
                tell(show([figure]).splitlines()[1])
    print(show(figures))
    return 0 if all(figure.is_met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())

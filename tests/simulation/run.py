"""Thousands of random worlds: `python -m tests.simulation.run [SEEDS]`, on all cores. README.md says what is drawn.

Seeds that once failed come first (seeds.txt). Exit 1: a rule was broken, or a pair of fault and state that is listed
(ledger.txt) was not seen. A seed that fails is printed with the command that tells it again.
"""

import argparse
import contextlib
import gc
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.simulation.histories.told import Report, told

HERE: Final = Path(__file__).parent
#: Seeds that once failed, one a line; whatever follows `#` says what they found.
KNOWN_SEEDS: Final = HERE / "seeds.txt"
#: Pairs of fault and state that a run of at least `LEDGER_SEEDS` seeds has to see.
LEDGER: Final = HERE / "ledger.txt"
LEDGER_SEEDS: Final = 300
#: About 25 operations a world: a hundred thousand histories.
USUAL_SEEDS: Final = 4_000
MEMORY: Final = Path("/dev/shm")


def known_seeds() -> list[int]:
    """Those of the permanent list."""
    return [int(line) for line in _lines(KNOWN_SEEDS)]


def listed_pairs() -> set[tuple[str, str]]:
    """Those of the ledger's list."""
    pairs = set()
    for line in _lines(LEDGER):
        fault, state = line.split()
        pairs.add((fault, state))
    return pairs


def _lines(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if words := line.partition("#")[0].strip():
            yield words


class Total:
    """What a run came to."""

    def __init__(self) -> None:
        self.worlds = self.histories = self.crashes = self.lives = self.sends = 0
        self.hours = 0.0
        self.ledger: Counter[tuple[str, str]] = Counter()
        self.ends: Counter[str] = Counter()
        self.failed: list[Report] = []

    def take(self, report: Report) -> None:
        """One more world."""
        self.worlds += 1
        self.histories += report.histories
        self.crashes += report.crashes
        self.lives += report.lives
        self.sends += report.sends
        self.hours += report.virtual_hours
        self.ledger += report.ledger
        self.ends += report.ends
        if report.violations:
            self.failed.append(report)

    @property
    def violations(self) -> int:
        """In all worlds."""
        return sum(len(report.violations) for report in self.failed)

    def unseen(self) -> list[tuple[str, str]]:
        """Listed pairs of fault and state that did not come up."""
        return sorted(listed_pairs() - set(self.ledger))


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """A folder for worlds, in memory where there is such a place: no power is cut here."""
    with tempfile.TemporaryDirectory(prefix="reconciled-histories-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def _one(seed: int) -> Report:
    """In a process of its own, which freezes what it has imported: each life ends with a garbage collection."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    with in_memory() as folder:
        return told(folder, seed)


def ran(seeds: Sequence[int], *, jobs: int, shows: bool = True) -> Total:
    """Every seed told, on so many processes."""
    total, began = Total(), time.monotonic()
    shown = began
    with contextlib.ExitStack() as stack:
        reports: Iterator[Report] = map(_one, seeds)
        if jobs > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(jobs))
            reports = pool.imap_unordered(_one, seeds)
        for report in reports:
            total.take(report)
            for words in report.violations[:5]:
                print(f"\nseed {report.seed}: {words}", flush=True)
            if report.violations:
                print(f"again: {again(report.seed)}", flush=True)
            now, is_seen = time.monotonic(), sys.stdout.isatty()
            if shows and (now - shown > (1 if is_seen else 60) or total.worlds == len(seeds)):
                shown = now
                print(_progress(total, len(seeds), now - began), end="\r" if is_seen else "\n", flush=True)
    return total


def again(seed: int) -> str:
    """The command that tells a seed again."""
    return f"{Path(sys.executable).name} -m tests.simulation.run --seed {seed}"


def _progress(total: Total, worlds: int, seconds: float) -> str:
    rate = total.histories / max(seconds, 0.001) * 60
    left = seconds / total.worlds * (worlds - total.worlds)
    words = f"{total.worlds}/{worlds} worlds, {total.histories} histories ({rate:,.0f} a minute)"
    return f"{words}, {left / 60:.0f} min left, {total.violations} violations"


def main(argv: Sequence[str] | None = None) -> int:
    """Run; what to exit with."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__.partition("\n")[0])
    parser.add_argument("seeds", type=int, nargs="?", default=USUAL_SEEDS, help="how many fresh seeds")
    parser.add_argument("--first", type=int, default=None, help="the first of them; default: by the time of day")
    parser.add_argument("--seed", type=int, action="append", default=[], help="just this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pairs", action="store_true", help="print every pair of fault and state that was seen")
    given = parser.parse_args(argv)
    first = given.first if given.first is not None else time.time_ns() // 1_000_000_000 * 10_000 % 2**40
    seeds = given.seed or [*known_seeds(), *range(first, first + given.seeds)]
    began = time.monotonic()
    total = ran(seeds, jobs=min(given.jobs, len(seeds)), shows=not given.seed)
    unseen = total.unseen() if len(seeds) >= LEDGER_SEEDS else []
    _table(total, time.monotonic() - began, seeds)
    if given.pairs:
        for (fault, state), n in sorted(total.ledger.items()):
            print(f"{fault} {state} {n}")
    for fault, state in unseen:
        print(f"never seen: {fault} in {state}")
    if total.failed:
        print(f"Write these seeds down in {KNOWN_SEEDS.relative_to(HERE.parents[1])}, with what they found:")
        print(*(report.seed for report in total.failed))
    return 1 if total.failed or unseen else 0


def _table(total: Total, seconds: float, seeds: Sequence[int]) -> None:
    rows = {
        "worlds": f"{total.worlds:,} (seeds {seeds[0]} to {seeds[-1]})",
        "operation histories": f"{total.histories:,}",
        "crashes": f"{total.crashes:,} in {total.lives:,} lives",
        "virtual hours": f"{total.hours:,.0f}",
        "requests to providers": f"{total.sends:,}",
        "pairs of fault and state": f"{len(total.ledger):,} kinds, {sum(total.ledger.values()):,} times",
        "ends": ", ".join(f"{n:,} {end}" for end, n in sorted(total.ends.items(), key=lambda each: -each[1])),
        "minutes": f"{seconds / 60:.1f}",
        "violations": f"{total.violations:,}",
    }
    print()
    for name, value in rows.items():
        print(f"{name:<26} {value}")


if __name__ == "__main__":
    sys.exit(main())

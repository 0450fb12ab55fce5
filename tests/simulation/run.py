"""Thousands of random worlds: `python -m tests.simulation.run [SEEDS]`, on all cores. README.md says what is drawn.

Seeds that once failed come first (seeds.txt). Exit 1: a rule was broken, or a pair of fault and state that is listed
(ledger.txt) was not seen. A seed that fails is printed with the command that tells it again.
"""

import argparse
import contextlib
import functools
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.simulation.histories.told import Report, told

HERE: Final = Path(__file__).parent
#: Seeds that once failed, one a line; whatever follows `#` says what they found.
KNOWN_SEEDS: Final = HERE / "seeds.txt"
#: Pairs of fault and state that a run of at least `LEDGER_SEEDS` seeds has to see. 1000: the rarest came up six times
#: in the 420 fixed ones, so that fewer may miss it by chance.
LEDGER: Final = HERE / "ledger.txt"
LEDGER_SEEDS: Final = 1_000
#: About 25 operations a world: a hundred thousand histories.
USUAL_SEEDS: Final = 4_100
MEMORY: Final = Path("/dev/shm")
#: Seconds between two progress lines where nobody watches, and where somebody does.
SHOWN_EVERY, SEEN_EVERY = 15, 1
#: Lines that are shown of what went over the network last.
TAIL: Final = 40
#: What a shell says of a command that SIGINT ended.
INTERRUPTED: Final = 130


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
        #: Ctrl-C came before its end.
        self.is_interrupted = False
        #: The same by provider.
        self.ends_of: defaultdict[str, Counter[str]] = defaultdict(Counter)

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
        for (provider, end), n in report.ends_of.items():
            self.ends_of[provider][end] += n
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


def _settle() -> None:
    """A process begins: what it has imported is frozen, since each life ends with a garbage collection.

    SIGINT is for the process that started it, which ends it, and takes the folder away for all.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()


def ran(seeds: Sequence[int], *, jobs: int, shows: bool = True) -> Total:
    """Every seed told, on so many processes; what they came to until Ctrl-C, where that comes first."""
    total, began = Total(), time.monotonic()
    shown = began
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(in_memory())
        one = functools.partial(told, folder)
        reports: Iterator[Report] = map(one, seeds)
        if jobs > 1:
            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(context.Pool(jobs, initializer=_settle))
            reports = pool.imap_unordered(one, seeds)
        try:
            for report in reports:
                total.take(report)
                _show_violations(report, is_whole=not shows)
                now, is_seen = time.monotonic(), sys.stdout.isatty()
                if shows and (now - shown > (SEEN_EVERY if is_seen else SHOWN_EVERY) or total.worlds == len(seeds)):
                    shown = now
                    print(_progress(total, len(seeds), now - began), end="\r" if is_seen else "\n", flush=True)
        except KeyboardInterrupt:
            total.is_interrupted = True
    return total


def _show_violations(report: Report, *, is_whole: bool) -> None:
    """What a world broke, and how to tell it again; `is_whole`: with all that is known of it."""
    for words in report.violations[: None if is_whole else 5]:
        print(f"\nseed {report.seed}: {words}", flush=True)
    if report.violations and is_whole:
        print("\nWhat went over the network last (virtual seconds, what, bytes):")
        print(*report.tail[-TAIL:], sep="\n")
        print(report.trace)
    if report.violations:
        print(f"again: {again(report.seed)}", flush=True)


def again(seed: int) -> str:
    """The command that tells a seed again."""
    python, here = Path(sys.executable), Path.cwd()
    shown = python.relative_to(here) if python.is_relative_to(here) else python
    return f"{shown} -m tests.simulation.run --seed {seed}"


def _progress(total: Total, worlds: int, seconds: float) -> str:
    rate = total.histories / max(seconds, 0.001) * 60
    left = seconds / total.worlds * (worlds - total.worlds)
    words = f"{total.worlds}/{worlds} worlds, {total.histories} histories ({rate:,.0f} a minute)"
    return f"{words}, {left / 60:.0f} min left, {total.violations} violations"


def main(argv: Sequence[str] | None = None) -> int:
    """Run; what to exit with."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__.partition("\n")[0])
    parser.add_argument("seeds", type=at_least(1), nargs="?", help=f"how many fresh seeds (default: {USUAL_SEEDS})")
    parser.add_argument("--first", type=at_least(0), help="the first of them (default: by the time of day)")
    parser.add_argument("--seed", type=at_least(0), action="append", default=[], help="just this one; may be repeated")
    parser.add_argument(
        "--jobs", type=at_least(1), default=os.cpu_count() or 1, help="processes (default: a core each)"
    )
    parser.add_argument("--pairs", action="store_true", help="print every pair of fault and state that was seen")
    given = parser.parse_args(argv)
    if given.seed and (given.seeds is not None or given.first is not None):
        parser.error("--seed tells just the seeds that it names: neither SEEDS nor --first goes with it")
    count = given.seeds or USUAL_SEEDS
    first = given.first if given.first is not None else time.time_ns() // 1_000_000_000 * 10_000 % 2**40
    known = [] if given.seed else known_seeds()
    seeds = given.seed or [*known, *range(first, first + count)]
    jobs, told_of = min(given.jobs, len(seeds)), f"{len(seeds):,}"
    if not given.seed:
        told_of += f" ({len(known)} that once failed, {count:,} fresh ones from {first} on)"
        print(f"{told_of} worlds on {jobs} {'process' if jobs == 1 else 'processes'}", flush=True)
    began = time.monotonic()
    total = ran(seeds, jobs=jobs, shows=not given.seed)
    unseen = total.unseen() if len(seeds) >= LEDGER_SEEDS and not total.is_interrupted else []
    _table(total, time.monotonic() - began, told_of)
    if given.pairs:
        for (fault, state), n in sorted(total.ledger.items()):
            print(f"{fault} {state} {n}")
    for fault, state in unseen:
        print(f"never seen: {fault} in {state}")
    if total.failed:
        print(f"Write these seeds down in {KNOWN_SEEDS.relative_to(HERE.parents[1])}, with what they found:")
        print(*(report.seed for report in total.failed))
    if total.is_interrupted:
        return INTERRUPTED
    return 1 if total.failed or unseen else 0


def at_least(least: int) -> Callable[[str], int]:
    """A whole number of an argument, not below `least`."""

    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} on")
        return int(text)

    return number


def _table(total: Total, seconds: float, told_of: str) -> None:
    rows = {
        "worlds": f"{total.worlds:,} of {told_of}",
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

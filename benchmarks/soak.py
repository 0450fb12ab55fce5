"""Five minutes of deliveries at half of what the daemon can take (P18)."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from benchmarks import load
from benchmarks.adopting import adopt, job_ids
from benchmarks.home import DECLARED, SECRET, Home, daemon
from benchmarks.ingest import JOBS
from benchmarks.load import Target
from benchmarks.processes import Running, free_port
from benchmarks.table import Figure, tell

CONNECTIONS: Final = 32
MINUTES: Final = 5


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """A minute after another; the rate is held by a pause of each connection before its next request."""
    seconds, jobs = (5, 1000) if quick else (60, JOBS)
    home = Home(folder / "soak", DECLARED, free_port())  # nobody listens there: reads fail, deliveries do not mind
    with daemon(home) as ours:
        adopt(home, "acme", job_ids(jobs))
        env = {"BENCH_SECRET": SECRET, "BENCH_JOBS": str(jobs)}
        target = Target("ours", Running(ours.process, home.hooks), "/webhooks/acme", env)
        most = load.shoot(target, "webhooks.lua", connections=CONNECTIONS, seconds=5)
        pause = CONNECTIONS / (most.rate / 2) * 1000 - most.p50
        paced = replace(target, env={**env, "BENCH_PAUSE": f"{max(1.0, pause):.0f}"})
        with Largest(home.wal) as wal:
            minutes = []
            for number in range(MINUTES):
                minutes.append(load.shoot(paced, "webhooks.lua", connections=CONNECTIONS, seconds=seconds))
                tell(f"soak: minute {number + 1}: {minutes[-1].rate:.0f}/s, p99 {minutes[-1].p99:.1f} ms")
    first, last = minutes[0], minutes[-1]
    yield Figure(
        "P18",
        f"{MINUTES} x {seconds} s at half of {most.rate:.0f}/s: p99 of the last against the first",
        last.p99 / first.p99,
        made_of=f"{last.p99:.1f} / {first.p99:.1f} ms, {last.rate:.0f}/s",
    )
    yield Figure("P18", "the write-ahead log's largest size meanwhile", wal.largest / 2**20, unit="MiB")


class Largest:
    """The largest size that a file has while the block runs, looked at ten times a second."""

    def __init__(self, path: Path) -> None:
        self.largest = 0
        self._path = path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            if self._path.exists():
                self.largest = max(self.largest, self._path.stat().st_size)

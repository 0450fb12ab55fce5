"""A start on a large backlog: every operation due at once, in a file that a killed daemon left."""

import json
import random
import sqlite3
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.home import Home, daemon
from benchmarks.parked import PATIENT, park
from benchmarks.processes import BESIDE, free_port, running, until
from benchmarks.table import Figure, tell

#: What PATIENT allows: requests a second, and so many at once.
RATE, BURST = 1000, 32
#: Status reads that are timed while the backlog is worked off.
READS: Final = 200


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """At each size: killed while it worked on the backlog, then started again."""
    for size in (1000,) if quick else (10_000, 100_000):
        yield from _restart(Home(folder / f"restart-{size}", PATIENT, free_port()), size)


def _restart(home: Home, size: int) -> Iterator[Figure]:
    tell(f"restart: {size} operations are due at once")
    ids = park(home, size)
    with closing(sqlite3.connect(home.database, isolation_level=None)) as connection:
        connection.execute("UPDATE schedule SET due_at = ?", (time.time_ns() // 1_000_000,))
    port = home.provider_port
    beside = [sys.executable, "-m", "benchmarks.provider", str(port), "--jobs", str(size + 1000)]
    with running(beside, port=port, log=home.log, core=BESIDE):
        _tell(port, "/_begin")
        with daemon(home, seconds=300) as first:
            until(lambda: _tell(port, "/_stats")["get"] >= min(size // 4, RATE), what="some to be read", every=0.01)
            first.process.kill()
            first.process.wait()
        before = _tell(port, "/_stats")["get"]
        began = time.monotonic()
        seen: list[float] = []
        watching = threading.Thread(target=_first_read, args=(port, before, began, seen), daemon=True)
        watching.start()
        with daemon(home, seconds=300):
            ready = time.monotonic() - began
            waits = []
            for name in random.choices(ids, k=READS):
                asked = time.monotonic()
                home.get(f"/v1/operations/{name}")
                waits.append((time.monotonic() - asked) * 1000)
            watching.join()
            if not seen:
                raise SystemExit("restart: nothing is read")
            time.sleep(3)
        stats = _tell(port, "/_stats")
    waits.sort()
    most = max(stats["per_second"].values())
    name = f"restart after a kill, {size:,} due"
    yield Figure("N22", f"{name}: until it is ready", ready, None, unit="s")
    yield Figure("N22", f"{name}: until the first read is sent", seen[0], None, unit="s")
    yield Figure(
        "N22", f"{name}: status answers meanwhile, p99", waits[len(waits) * 99 // 100], None, unit="ms",
        made_of=f"median {waits[len(waits) // 2]:.1f} ms, one at a time",
    )  # fmt: skip
    yield Figure(
        "N22", f"{name}: most requests in a second against the rate and its burst", most / (RATE + BURST), 1.0,
        made_of=f"{most} / {RATE} + {BURST}",
    )  # fmt: skip


def _first_read(port: int, before: int, began: float, seen: list[float]) -> None:
    """Seen only where there is one, and not where the run was stopped meanwhile."""
    with suppress(OSError):
        while time.monotonic() - began < 300:
            if _tell(port, "/_stats")["get"] > before:
                seen.append(time.monotonic() - began)
                return
            time.sleep(0.02)


def _tell(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.load(answer)

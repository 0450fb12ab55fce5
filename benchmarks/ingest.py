"""Webhook ingest against the floor (P1, P1b, P2, P6), on a slower disk (P5), and without a log (P20)."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import load
from benchmarks.adopting import adopt, job_ids
from benchmarks.home import DECLARED, SECRET, Home, daemon
from benchmarks.load import HERE, Compared, Target
from benchmarks.processes import BESIDE, Running, free_port, running
from benchmarks.table import Figure, tell

#: Open operations that the deliveries speak of.
JOBS: Final = 10_000
#: By how much the slower disk's fsync is slower, in µs (P5).
SLOWER_US: Final = 2_000


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Deliveries to daemons that follow the jobs they speak of, at 256 and 32 connections."""
    rounds, seconds, jobs = (2, 2, 1000) if quick else (5, 3, JOBS)
    port, floor_port = free_port(), free_port()
    env = {"BENCH_SECRET": SECRET, "BENCH_JOBS": str(jobs)}
    slow = {"LD_PRELOAD": str(_slow_disk(folder)), "SLOW_FSYNC_US": str(SLOWER_US)}
    with ExitStack() as stack:
        log = folder / "ingest.log"
        stack.enter_context(
            running([sys.executable, "-m", "benchmarks.provider", str(port)], port=port, log=log, core=BESIDE)
        )
        bare = [sys.executable, "-m", "benchmarks.floor", str(floor_port)]
        floor = stack.enter_context(running(bare, port=floor_port, log=log))

        def ours(name: str, module: str = "daemon", more: dict[str, str] | None = None) -> Running:
            home = Home(folder / name, DECLARED, port)
            process = stack.enter_context(daemon(home, env=more, module=module))
            tell(f"ingest: {name}: {jobs} jobs are adopted")
            adopt(home, "acme", job_ids(jobs))
            return Running(process.process, home.hooks)

        usual, silent, slower = ours("usual"), ours("silent", "benchmarks.silent"), ours("slower", more=slow)
        path = "/webhooks/acme"
        targets = [
            Target("floor", floor, "/hook", env),
            Target("usual", usual, path, env),
            Target("repeated", usual, path, {**env, "BENCH_REPEATED": "0.5"}),
            Target("silent", silent, path, env),
            Target("slower", slower, path, env),
        ]
        for connections, cpu, rate in ((256, 3.3, 0.30), (32, 3.5, 0.25)):
            tell(f"ingest: {connections} connections")
            found = load.compare(targets, "webhooks.lua", connections=connections, rounds=rounds, seconds=seconds)
            yield from _figures(found, connections, cpu, rate)


def _slow_disk(folder: Path) -> Path:
    library = folder / "slow_fsync.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "slow_fsync.c"), "-ldl"]
    subprocess.run(command, check=True)
    return library


def _figures(found: dict[str, Compared], connections: int, cpu: float, rate: float) -> Iterator[Figure]:
    floor, usual, repeated, silent, slower = found.values()
    name = "P1" if connections == 256 else "P1b"
    where = f"{connections} connections"
    yield Figure(
        name,
        f"webhook ingest, {where}: CPU a request",
        usual.cpu_ratio,
        cpu,
        made_of=f"{usual.cpu:.0f} / {floor.cpu:.0f} µs",
    )
    yield Figure(
        name,
        f"webhook ingest, {where}: requests a second",
        usual.rate_ratio,
        rate,
        is_floor=True,
        made_of=f"{usual.rate:.0f} / {floor.rate:.0f}",
    )
    yield Figure(
        "P2", f"webhook ingest, {where}: p99", usual.p99_ratio, made_of=f"{usual.p99:.1f} / {floor.p99:.1f} ms"
    )
    yield Figure(
        "P5",
        f"fsync 2 ms slower, {where}: requests a second against itself",
        slower.rate / usual.rate,
        0.80 if connections == 256 else None,
        is_floor=True,
        made_of=f"{slower.rate:.0f} / {usual.rate:.0f}",
    )
    yield Figure(
        "P6",
        f"half of them repeated, {where}: CPU against none",
        repeated.cpu / usual.cpu,
        1.0,
        made_of=f"{repeated.cpu:.0f} / {usual.cpu:.0f} µs",
    )
    yield Figure(
        "P20",
        f"with the log lines against without, {where}: CPU",
        usual.cpu / silent.cpu,
        1.15,
        made_of=f"{usual.cpu:.0f} / {silent.cpu:.0f} µs",
    )
    bad = sum(one.bad for one in found.values())
    yield Figure(
        name,
        f"answers other than 200, {where}",
        float(bad),
        0,
        unit="",
        made_of=f"of {sum(one.requests for one in found.values())}",
    )

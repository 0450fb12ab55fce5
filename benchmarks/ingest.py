"""Webhook ingest against the floor (P1, P1b, P2, P6)."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import load
from benchmarks.adopting import adopt, job_ids
from benchmarks.home import DECLARED, SECRET, Home, daemon
from benchmarks.load import Compared, Target
from benchmarks.processes import BESIDE, Running, free_port, running
from benchmarks.table import Figure, tell

#: Open operations that the deliveries speak of.
JOBS: Final = 10_000


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Deliveries to a daemon that follows the jobs they speak of, at 256 and 32 connections."""
    load.check_tools()
    rounds, seconds, jobs = (2, 2, 1000) if quick else (5, 3, JOBS)
    port, floor_port = free_port(), free_port()
    home = Home(folder / "ingest", DECLARED, port)
    beside = [sys.executable, "-m", "benchmarks.provider", str(port)]
    bare = [sys.executable, "-m", "benchmarks.floor", str(floor_port)]
    home.configure()
    with (
        running(beside, port=port, log=home.log, core=BESIDE),
        running(bare, port=floor_port, log=home.log) as floor,
        daemon(home) as ours,
    ):
        tell(f"ingest: {jobs} jobs are adopted")
        adopt(home, "acme", job_ids(jobs))
        env = {"BENCH_SECRET": SECRET, "BENCH_JOBS": str(jobs)}
        hooks = Running(ours.process, home.hooks)
        targets = [
            Target("floor", floor, "/hook", env),
            Target("new", hooks, "/webhooks/acme", env),
            Target("half repeated", hooks, "/webhooks/acme", {**env, "BENCH_REPEATED": "0.5"}),
        ]
        for connections, cpu, rate in ((256, 3.3, 0.30), (32, 3.5, 0.25)):
            tell(f"ingest: {connections} connections")
            found = load.compare(targets, "webhooks.lua", connections=connections, rounds=rounds, seconds=seconds)
            yield from _figures(found, connections, cpu, rate)


def _figures(found: dict[str, Compared], connections: int, cpu: float, rate: float) -> Iterator[Figure]:
    new, floor, again = found["new"], found["floor"], found["half repeated"]
    name = "P1" if connections == 256 else "P1b"
    where = f"{connections} connections"
    yield Figure(
        name,
        f"webhook ingest, {where}: CPU a request",
        new.cpu_ratio,
        cpu,
        made_of=f"{new.cpu:.0f} / {floor.cpu:.0f} µs",
    )
    yield Figure(
        name,
        f"webhook ingest, {where}: requests a second",
        new.rate_ratio,
        rate,
        is_floor=True,
        made_of=f"{new.rate:.0f} / {floor.rate:.0f}",
    )
    yield Figure(
        "P2", f"webhook ingest, {where}: p99", new.p99_ratio, None, made_of=f"{new.p99:.1f} / {floor.p99:.1f} ms"
    )
    yield Figure(
        "P6",
        f"half of them repeated, {where}: CPU against none",
        again.cpu / new.cpu,
        1.0,
        made_of=f"{again.cpu:.0f} / {new.cpu:.0f} µs",
    )
    yield Figure(
        "P1",
        f"answers other than 200, {where}",
        float(new.bad + again.bad),
        0,
        unit="",
        made_of=f"of {new.requests + again.requests}",
    )

"""Load by wrk, with one core of its own: signed deliveries that are each another one, or reads of random operations."""

import itertools
import json
import os
import re
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.processes import BESIDE, Running

HERE: Final = Path(__file__).parent
_RUNS: Final = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Target:
    """One of those that are compared: where it is asked, and what its cost is read from."""

    name: str
    process: Running
    path: str
    #: For the wrk script.
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Shot:
    """What one load came to. Latencies in ms, `cpu` in µs a request."""

    requests: int
    rate: float
    p50: float
    p99: float
    cpu: float
    bad: int


@dataclass(frozen=True, slots=True)
class Compared:
    """Medians of one target over all rounds, and of its round-by-round ratios to the first one."""

    rate: float
    cpu: float
    p99: float
    rate_ratio: float
    cpu_ratio: float
    p99_ratio: float
    bad: int
    requests: int


def shoot(target: Target, script: str, *, connections: int, seconds: int) -> Shot:
    """Load one target. Each run's ids are its own."""
    run = f"{os.getpid()}-{next(_RUNS)}"
    url = f"http://127.0.0.1:{target.process.port}{target.path}"
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "20s", "-s", str(HERE / script), url]
    before = target.process.cpu()
    told = subprocess.run(
        ["taskset", "-c", str(BESIDE), *argv],
        env={**os.environ, "BENCH_RUN": run, **target.env},
        capture_output=True,
        text=True,
        check=False,
    )
    spent = target.process.cpu() - before
    found = re.search(r"^JSON (.*)$", told.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"wrk: {told.stdout}{told.stderr}")
    said = json.loads(found[1])
    requests = max(1, said["requests"])
    return Shot(
        said["requests"],
        said["requests"] / said["seconds"],
        said["p50_ms"],
        said["p99_ms"],
        spent / requests * 1e6,
        said["bad_status"] + said["socket_errors"],
    )


def compare(
    targets: Sequence[Target], script: str, *, connections: int, rounds: int, seconds: int
) -> dict[str, Compared]:
    """Visit all targets in turns, each round in another order; noise that outlasts a round cancels out.

    CPU time a request hardly moves with whatever else the machine does; rates and latencies do.
    """
    shots: dict[str, list[Shot]] = {target.name: [] for target in targets}
    for number in range(-1, rounds):  # the first round only warms up
        turn = number % len(targets)
        for target in (*targets[turn:], *targets[:turn]):
            shot = shoot(target, script, connections=connections, seconds=seconds if number >= 0 else 1)
            if number >= 0:
                shots[target.name].append(shot)
    first = shots[targets[0].name]
    return {name: _compared(found, first) for name, found in shots.items()}


def _compared(found: Sequence[Shot], first: Sequence[Shot]) -> Compared:
    pairs = list(zip(found, first, strict=True))
    return Compared(
        rate=statistics.median(one.rate for one in found),
        cpu=statistics.median(one.cpu for one in found),
        p99=statistics.median(one.p99 for one in found),
        rate_ratio=statistics.median(one.rate / other.rate for one, other in pairs),
        cpu_ratio=statistics.median(one.cpu / max(other.cpu, 1e-9) for one, other in pairs),
        p99_ratio=statistics.median(one.p99 / max(other.p99, 1e-9) for one, other in pairs),
        bad=sum(one.bad for one in found),
        requests=sum(one.requests for one in found),
    )

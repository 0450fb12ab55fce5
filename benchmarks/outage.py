"""A provider that is down while 10,000 operations are open (N35): declared, read one by one, and listed."""

import json
import sqlite3
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from benchmarks.adopting import adopt, job_ids
from benchmarks.home import DECLARED, LISTED, Home, daemon
from benchmarks.processes import BESIDE, free_port, running, until
from benchmarks.table import Figure, tell

#: By provider: its table of the configuration, and the requests a second that it is given.
KINDS: Final = {"acme": (DECLARED, 500), "openai": (LISTED, 100)}
#: So many at once after a quiet time, as the client counts: the concurrency.
BURST: Final = 8
_POLLED: Final = """\
[providers.{name}.poll]
base = "2s"
cap = "20s"
sweep = "20s"
[providers.{name}.limits]
requests_per_second = {rate}
concurrency = {burst}
"""
#: Seconds that each part of a run may take on a machine that has other work. 600: arbitrary, four times what they take.
PATIENCE: Final = 600
_ASKED: Final = "SELECT count(DISTINCT operation_key) FROM history WHERE to_state = 'observation_failed'"
_WORST: Final = "SELECT coalesce(max(errors), 0), count(*) FILTER (WHERE errors > 0) FROM schedule"


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Both kinds."""
    jobs, down = (500, 5) if quick else (10_000, 30)
    for name in KINDS:
        yield from _outage(folder, name, jobs, down)


def _outage(folder: Path, name: str, jobs: int, down: int) -> Iterator[Figure]:
    providers, rate = KINDS[name]
    port = free_port()
    # Every brace of the rest is filled in by the home.
    polled = _POLLED.format(name=name, rate=rate, burst=BURST)
    home = Home(folder / f"outage-{name}", providers + polled, port)
    home.configure()
    # They end, one after another, only after the outage: until then each is asked by the daemon's own plan.
    lasts = ["--ms", "1", "--spread", "10000", "--word", "failed"]
    beside = [sys.executable, "-m", "benchmarks.provider", str(port), "--jobs", str(jobs), *lasts]
    with running(beside, port=port, log=home.log, core=BESIDE), daemon(home):
        tell(f"outage: {jobs} jobs at {name}")
        adopt(home, name, job_ids(jobs))
        until(lambda: "accepted" not in home.get("/v1/status")["operations"], what="a first read", seconds=PATIENCE,
              every=1)  # fmt: skip
        _tell(port, "/_outage?on=1")
        time.sleep(down)
        worst, charged = _look(home, _WORST)
        before = _tell(port, "/_stats")
        _tell(port, "/_outage?on=0")
        good = before["get"] + before["list"]
        back = until(lambda: sum(_tell(port, "/_stats")[kind] for kind in ("get", "list")) > good, what="a read again",
                     seconds=PATIENCE)  # fmt: skip
        _tell(port, "/_begin")
        until(lambda: home.get("/v1/status")["operations"].get("failed") == jobs, what="all ends", seconds=PATIENCE,
              every=1)  # fmt: skip
        asked = _look(home, _ASKED)[0]
        stats = _tell(port, "/_stats")
    most = max(stats["per_second"].values())
    yield Figure(
        "N35",
        f"outage, {name}: most requests in a second against the rate and its burst",
        most / (rate + BURST),
        1.0,
        made_of=f"{most} / {rate} + {BURST}",
    )
    yield Figure(
        "N35",
        f"outage, {name}: operations that gave up or asked a person",
        float(asked),
        0,
        unit="",
        made_of=f"of {jobs}",
    )
    yield Figure(
        "N35", f"outage, {name}: operations that did not come to their job's end", float(jobs - stats["ends_shown"]), 0,
        unit="", made_of=f"of {jobs}",
    )  # fmt: skip
    yield Figure(
        "N35",
        f"outage, {name}: most failures that one operation was charged with",
        float(worst),
        2,
        unit="",
        made_of=f"{charged} operations, budget 20; {stats['refused']} requests in {down} s of outage",
    )
    yield Figure("N35", f"outage, {name}: until a read came through again", back, None, unit="s")


def _tell(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.load(answer)


def _look(home: Home, sql: str) -> tuple[int, ...]:
    with closing(sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)) as connection:
        found: tuple[int, ...] = connection.execute(sql).fetchone()
        return found

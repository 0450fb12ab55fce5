"""A provider and a daemon that follows its jobs, and what the two have counted."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.home import SECRET, Home, daemon
from benchmarks.processes import BESIDE, MEASURED, Running, free_port, running, until

#: Jobs of the full size.
JOBS: Final = 10_000
#: Put behind a provider of home.py: its own pace, and limits that never decide what is measured.
PACE: Final = """\
[providers.{name}.poll]
base = "{every}s"
cap = "{every}s"
sweep = "{every}s"
[providers.{name}.limits]
requests_per_second = 1000000
concurrency = {at_once}
"""


@dataclass(frozen=True, slots=True)
class Following:
    """Both, while they run."""

    home: Home
    daemon: Running
    name: str

    def stats(self) -> dict[str, Any]:
        """What the provider was asked."""
        return dict(ask(self.home.provider_port, "/_stats"))

    def begin(self) -> None:
        """Let the jobs' time run from now on."""
        ask(self.home.provider_port, "/_begin")

    def wait_for_reads(self, count: int, *, of: str = "get", seconds: float = 300) -> None:
        """Until the provider has been asked so often."""
        until(lambda: self.stats()[of] >= count, what=f"{count} requests ({of})", seconds=seconds, every=0.2)

    def wait_for_ends(self, jobs: int, *, seconds: float = 300) -> None:
        """Until every job has ended, was seen to have ended, and stands so in the daemon's file."""
        until(lambda: self.stats()["ends_shown"] >= jobs, what="all ends to be shown", seconds=seconds, every=0.2)
        until(self._has_none_open, what="all operations to end", every=0.2)

    def _has_none_open(self) -> bool:
        return not self.home.get("/v1/operations?open=true&limit=1")["operations"]


def ask(port: int, path: str) -> Any:
    """One answer of the bench provider."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return json.load(answer)


@contextmanager
def following(folder: Path, name: str, providers: str, *args: str) -> Iterator[Following]:
    """A provider with these arguments, and a daemon that knows it as `name`."""
    port = free_port()
    home = Home(folder, providers, port)
    home.configure()
    beside = [sys.executable, "-m", "benchmarks.provider", str(port), *args]
    with (
        running(beside, port=port, log=home.log, core=BESIDE, env={"BENCH_SECRET": SECRET}),
        daemon(home) as ours,
    ):
        yield Following(home, ours, name)


def bare(port: int, what: str, *args: str) -> tuple[float, int]:
    """Run a bare client where the daemon runs; its seconds on a core, and its requests."""
    argv: Sequence[str] = [sys.executable, "-m", "benchmarks.bare", what, str(port), *args]
    told = subprocess.run(["taskset", "-c", str(MEASURED), *argv], capture_output=True, text=True, check=False)
    if told.returncode != 0:
        raise SystemExit(f"the bare client: {told.stderr}")
    said = json.loads(told.stdout)
    return said["cpu"], said["requests"]

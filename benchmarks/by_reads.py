"""Jobs followed by a read of each (P10), and how late their ends are seen (P13)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.adopting import adopt, job_ids
from benchmarks.following import JOBS, PACE, Following, bare, following
from benchmarks.home import DECLARED
from benchmarks.table import Figure, tell

#: Seconds between two reads of a job, so that the daemon is asked for about half of what it can do.
EVERY: Final = 5
#: Reads of a job before the first ends, and while they end one after the other: 25 on average. A batch that runs for
#: half an hour and is looked at each minute has as many.
READS_BEFORE: Final = 20
READS_WHILE: Final = 10
#: Reads under way at once, by the daemon and by the bare client.
AT_ONCE: Final = 256


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Jobs that are read some twenty times each, and end one after the other."""
    jobs, every = (500, 1) if quick else (JOBS, EVERY)
    pace = PACE.format(name="acme", every=every, at_once=AT_ONCE)
    # Without a result, as collecting is not what is compared.
    times = ("--ms", str(every * 1000 * READS_BEFORE), "--spread", str(every * 1000 * READS_WHILE))
    args = ("--jobs", str(jobs), *times, "--word", "failed")
    with following(folder / "by_reads", "acme", DECLARED + pace, *args) as ours:
        tell(f"reads: {jobs} jobs are adopted")
        adopt(ours.home, "acme", job_ids(jobs))
        ours.wait_for_reads(jobs)
        cpu, reads = _to_the_end(ours, jobs)
        late = ours.stats()["late_ms"]
        each = ("--jobs", str(jobs), "--count", str(reads), "--at-once", str(AT_ONCE))
        bare_cpu, bare_reads = bare(ours.home.provider_port, "reads", *each)
    per_read, per_bare_read = cpu / reads * 1e6, bare_cpu / bare_reads * 1e6
    yield Figure(
        "P10",
        f"{jobs} jobs to their end by reads of each: CPU a read against a bare client",
        per_read / per_bare_read,
        2,
        made_of=f"{per_read:.0f} / {per_bare_read:.0f} µs; {reads / jobs:.2g} reads a job",
    )
    yield Figure(
        "P13",
        f"{jobs} jobs read each {every} s: p99 of how late an end is seen, in intervals",
        late["99"] / every / 1000,
        1.25,
        made_of=f"{late['99']:.0f} ms, median {late['50']:.0f}",
    )


def _to_the_end(ours: Following, jobs: int) -> tuple[float, int]:
    """From now on until all jobs have ended: seconds on a core, and reads."""
    tell("reads: the jobs end")
    cpu, reads = ours.daemon.cpu(), ours.stats()["get"]
    ours.begin()
    ours.wait_for_ends(jobs)
    return ours.daemon.cpu() - cpu, ours.stats()["get"] - reads

"""Jobs followed by the pages of a list (P8, P9, P11, P13).

A batch that ends has failed its validation: nothing is left behind to fetch, and only following is compared.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.adopting import adopt, job_ids
from benchmarks.by_reads import READS_BEFORE, READS_WHILE
from benchmarks.following import JOBS, PACE, Following, bare, following
from benchmarks.home import LISTED
from benchmarks.table import Figure, tell

#: Seconds between two looks at a job, so that a naive client keeps its interval with a third of a core; and sweeps over
#: which a figure is taken.
EVERY: Final = 10
SWEEPS: Final = 5
#: Jobs on a page.
PAGE: Final = 100
#: Slots of the daemon. A list is read page after page, so that they decide nothing.
AT_ONCE: Final = 16


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Jobs that nothing happens to, then the same jobs to their end."""
    jobs, every, sweeps = (500, 1, 2) if quick else (JOBS, EVERY, SWEEPS)
    pace = PACE.format(name="openai", every=every, at_once=AT_ONCE)
    # They end in the order of their numbers: a job is looked at as often as one that is read by itself (by_reads).
    times = ("--ms", str(every * 1000 * READS_BEFORE), "--spread", str(every * 1000 * READS_WHILE))
    args = ("--jobs", str(jobs), *times)
    with following(folder / "by_lists", "openai", LISTED + pace, *args) as ours:
        tell(f"lists: {jobs} jobs are adopted")
        adopt(ours.home, "openai", job_ids(jobs))
        yield from _unchanged(ours, jobs, sweeps)
        yield from _to_the_end(ours, jobs, every)


def _unchanged(ours: Following, jobs: int, sweeps: int) -> Iterator[Figure]:
    """Whole sweeps in which nothing is new: the first look at each job has to be over."""
    pages = -(-jobs // PAGE)
    seen = ours.stats()["list"]
    # From the end of a sweep on: the sweep under way, and one that told what the jobs are.
    ours.wait_for_reads((seen // pages + 3) * pages, of="list")
    tell(f"lists: {sweeps} sweeps without news")
    before, cpu, written = ours.stats(), ours.daemon.cpu(), ours.daemon.written()
    ours.wait_for_reads(before["list"] + sweeps * pages, of="list")
    after, cpu, written = ours.stats(), ours.daemon.cpu() - cpu, ours.daemon.written() - written
    asked = sum(after[kind] - before[kind] for kind in ("get", "list"))
    swept = (after["list"] - before["list"]) / pages
    bare_cpu, bare_pages = bare(ours.home.provider_port, "pages", "--count", str(sweeps))
    yield Figure(
        "P8",
        f"a sweep of {jobs} open jobs against a client that reads the same pages: CPU",
        cpu / swept / (bare_cpu / sweeps),
        None,
        made_of=f"{cpu / swept * 1000:.0f} / {bare_cpu / sweeps * 1000:.0f} ms",
    )
    yield Figure(
        "P9",
        f"requests an open job and sweep, {jobs} jobs",
        asked / swept / jobs,
        0.011,
        unit="",
        made_of=f"{asked / swept:.0f} / {jobs}; the bare client {bare_pages // sweeps}",
    )
    yield Figure(
        "P9",
        "bytes written for an unchanged job and sweep: WAL, checkpoints and log",
        written / swept / jobs,
        50,
        unit="B",
        made_of=f"{written / swept / 1024:.0f} KiB a sweep",
    )


def _to_the_end(ours: Following, jobs: int, every: int) -> Iterator[Figure]:
    """All jobs end, one after the other."""
    tell("lists: the jobs end")
    before, cpu = ours.stats(), ours.daemon.cpu()
    ours.begin()
    ours.wait_for_ends(jobs, seconds=2 * every * (READS_BEFORE + READS_WHILE))
    after, cpu = ours.stats(), ours.daemon.cpu() - cpu
    asked = sum(after[kind] - before[kind] for kind in ("get", "list"))
    late = after["late_ms"]
    ours.begin()  # for the other client, from the start
    tell("lists: a task a job")
    naive_cpu, naive_asked = bare(ours.home.provider_port, "naive", "--jobs", str(jobs), "--seconds", str(every))
    what = f"{jobs} jobs to their end by list pages against a task a job"
    yield Figure("P11", f"{what}: requests", asked / naive_asked, 1 / 40, made_of=f"{asked} / {naive_asked}")
    yield Figure("P11", f"{what}: CPU", cpu / naive_cpu, 1 / 8, made_of=f"{cpu:.2f} / {naive_cpu:.2f} s")
    yield Figure(
        "P13",
        f"{jobs} jobs, their list read each {every} s: p99 of how late an end is seen, in intervals",
        late["99"] / every / 1000,
        1.25,
        made_of=f"{late['99']:.0f} ms, median {late['50']:.0f}",
    )

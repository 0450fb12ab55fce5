"""Results of 1 GiB collected while others ask (N36): a million items, one item as a whole, and how they are read."""

import json
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.beside import Heard, others, quantile
from benchmarks.home import DECLARED, LISTED, TOKEN, Home, daemon
from benchmarks.processes import BESIDE, Running, free_port, running, until
from benchmarks.table import Figure, tell
from handlers.api.query import cursor_for

#: What N36 asks: MiB that memory may grow by, and ms that a status answer may take.
MOST_MEMORY: Final = 64
LATEST: Final = 100
#: Seconds that a collection gets.
PATIENCE: Final = 1800
#: The provider of a result that is one item.
WHOLE: Final = """\
[providers.acme.result]
request = "GET /jobs/{{job_id}}/result"
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one collection took: seconds, seconds of a core, MiB of growth, and what others heard meanwhile."""

    seconds: float
    cpu: float
    growth: float
    heard: Heard
    operation: Any


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Each result is there at once; its collection begins with the adoption of its job."""
    many, some, size = (100_000, 20_000, 2**27) if quick else (1_000_000, 100_000, 2**30)
    port = free_port()
    home = Home(folder / "collection", LISTED + DECLARED + WHOLE, port)
    home.configure()
    jobs = ["1000", f"{some}:partial-failure", str(many)]
    beside = [sys.executable, "-m", "benchmarks.standin", str(port), *jobs]
    with running(beside, port=port, log=home.log, core=BESIDE), daemon(home) as ours:
        warm, partly, all_of = _batches(port)
        _collect(home, ours, "openai", warm, "1,000 items, to begin with")
        # The first of the large ones: a daemon that has collected such a result has grown already.
        found = _collect(home, ours, "openai", all_of, f"{many} items")
        named = f"{many:,} items"
        yield from _bounds(named, found)
        yield _wrong(f"{named}: counted wrong", found, many, 0)
        yield _speed(named, found, found.operation["result"]["bytes"])
        yield Figure(
            "N36",
            f"{named}: CPU an item",
            found.cpu / many * 1e6,
            unit="µs",
            made_of=f"{found.cpu:.1f} s of a core",
        )
        yield from _pages(home, found.operation["operation_id"], many)
        part = _collect(home, ours, "openai", partly, f"{some} items, a quarter of them failed")
        yield _wrong(f"{some:,} items, a quarter of them failed: counted wrong", part, some, some // 4)
        whole = _collect(home, ours, "acme", str(size), f"one item of {size >> 20} MiB", reads=4)
        yield from _bounds("one item", whole)
        yield _speed("one item", whole, size)
        yield from _fetched(home, ours, whole.operation["operation_id"], size)


def _batches(port: int) -> list[str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/batches", headers={"Authorization": "Bearer any"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return [batch["id"] for batch in reversed(json.load(answer)["data"])]


def _collect(home: Home, ours: Running, provider: str, job_id: str, what: str, *, reads: int = 1) -> Taken:
    tell(f"collection: {what}")
    ours.forget_peak()
    memory, cpu, began = ours.memory(), ours.cpu(), time.monotonic()
    given = home.post("/v1/operations", {"provider": provider, "remote_job_id": job_id})
    path = f"/v1/operations/{given['operation_id']}"
    with others(home, path, "openai", reads=reads) as heard:
        until(lambda: home.get(path)["status"] != "working", what=what, seconds=PATIENCE, every=0.5)
        seconds, cpu, growth = time.monotonic() - began, ours.cpu() - cpu, ours.memory("VmHWM") - memory
    operation = home.get(path)
    if operation["status"] != "done":
        raise SystemExit(f"{what}: {json.dumps(operation)}")
    tell(f"  {seconds:.1f} s, {cpu:.1f} s of a core, {memory:.0f} MiB + {growth:.1f}, log {heard.wal:.0f} MiB")
    return Taken(seconds, cpu, growth, heard, operation)


def _bounds(name: str, taken: Taken) -> Iterator[Figure]:
    heard = taken.heard
    yield Figure("N36", f"{name}: growth of the peak memory", taken.growth, MOST_MEMORY, unit="MiB")
    yield Figure(
        "N36",
        f"{name}: p99 of status reads",
        quantile(heard.reads, 0.99),
        LATEST,
        unit="ms",
        made_of=f"{len(heard.reads)} reads, max {max(heard.reads, default=0):.0f} ms; {_naps(heard)}",
    )
    yield Figure(
        "N36",
        f"{name}: p99 of deliveries",
        quantile(heard.deliveries, 0.99),
        unit="ms",
        made_of=f"{len(heard.deliveries)} deliveries, max {max(heard.deliveries, default=0):.0f} ms",
    )
    yield Figure("N36", f"{name}: answers other than 200", float(heard.bad), 0, unit="")
    yield Figure("N36", f"{name}: largest write-ahead log", heard.wal, unit="MiB")


def _naps(heard: Heard) -> str:
    """What the machine itself adds: nobody on that core is woken sooner."""
    return f"bare sleeps late by p99 {quantile(heard.naps, 0.99):.0f}, max {max(heard.naps, default=0):.0f} ms"


def _wrong(what: str, taken: Taken, items: int, failed: int) -> Figure:
    """How far the counts are from those of the job that was put in; all must be found, and the end be right."""
    told = taken.operation
    summary = told["summary"]
    end = "completed_with_errors" if failed else "succeeded"
    off = abs(summary["succeeded"] - items + failed) + abs(summary["failed"] - failed)
    off += abs(told["result"]["items"] - items) + (told["state"] != end)
    return Figure("N36", what, float(off), 0, unit="", made_of=f"{json.dumps(summary)}, {told['state']}")


def _speed(name: str, taken: Taken, size: int) -> Figure:
    rate = size / 2**20 / taken.seconds
    made_of = f"{size >> 20} MiB in {taken.seconds:.1f} s, {taken.cpu:.1f} s of a core"
    return Figure("N36", f"{name}: MiB a second", rate, unit="MiB/s", is_floor=True, made_of=made_of)


def _pages(home: Home, operation_id: str, items: int) -> Iterator[Figure]:
    """Pages of 500 items: the first one, one in the middle, those of an outcome, and one item by its id."""
    path = f"/v1/operations/{operation_id}/items"
    named = f"item-{items // 2:08d}"
    middle = f"cursor={cursor_for(named)}"
    asked = {
        "first": "?limit=500",
        "middle": f"?limit=500&{middle}",
        "succeeded": f"?limit=500&outcome=succeeded&{middle}",
        "failed": f"?limit=500&outcome=failed&{middle}",
        "one item": f"/{named}",
    }
    taken = {
        name: statistics.median(_timed(partial(home.get, path + query)) for _ in range(20))
        for name, query in asked.items()
    }
    wrong = [name for name in ("first", "middle", "succeeded") if len(home.get(path + asked[name])["items"]) != 500]
    made_of = ", ".join(f"{name} {each:.1f}" for name, each in taken.items())
    yield Figure("N36", f"a page of 500 among {items:,} items", max(taken.values()), unit="ms", made_of=f"{made_of} ms")
    yield Figure("N36", "pages that lack items", float(len(wrong)), 0, unit="", made_of=", ".join(wrong))


def _timed(ask: Callable[[], object]) -> float:
    began = time.perf_counter()
    ask()
    return (time.perf_counter() - began) * 1000


def _fetched(home: Home, ours: Running, operation_id: str, size: int) -> Iterator[Figure]:
    """The result of 1 GiB read by a client, some times over, while others ask for its status."""
    tell("collection: the whole result is fetched")
    path = f"/v1/operations/{operation_id}"
    ours.forget_peak()
    memory, cpu, began = ours.memory(), ours.cpu(), time.monotonic()
    got, times = 0, 4

    def fetch() -> None:
        nonlocal got
        asked = urllib.request.Request(f"{home.api_url}{path}/result", headers={"Authorization": f"Bearer {TOKEN}"})
        for _ in range(times):
            with urllib.request.urlopen(asked, timeout=60) as answer:
                while piece := answer.read(2**18):
                    got += len(piece)

    with others(home, path, "openai", reads=4) as heard:
        thread = threading.Thread(target=fetch)
        thread.start()
        thread.join()
    seconds, cpu, growth = time.monotonic() - began, ours.cpu() - cpu, ours.memory("VmHWM") - memory
    yield from _bounds("a result fetched", taken := Taken(seconds, cpu, growth, heard, None))
    yield Figure("N36", "a result fetched: bytes missing", float(times * size - got), 0, unit="")
    yield _speed("a result fetched", taken, times * size)

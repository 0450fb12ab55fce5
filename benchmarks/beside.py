"""What others hear meanwhile: status reads and deliveries, each timed for itself, and how large the journal grew.

A thread that does nothing but sleep, on the core of what is measured, tells how late the machine itself wakes anybody.
"""

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from benchmarks.home import SECRET, TOKEN, Home
from benchmarks.processes import BESIDE, MEASURED
from reconcile.signatures import read_secret, sign_standard

#: Seconds between two status reads, and between two deliveries.
READ_EVERY: Final = 0.05
SEND_EVERY: Final = 0.1
#: Seconds of one sleep of the thread that only sleeps.
NAP: Final = 0.02


@dataclass(slots=True)
class Heard:
    """Milliseconds of each request, those that went wrong, and the largest size of the write-ahead log in MiB."""

    reads: list[float] = field(default_factory=list)
    deliveries: list[float] = field(default_factory=list)
    #: By how many milliseconds each sleep was longer than it should.
    naps: list[float] = field(default_factory=list)
    bad: int = 0
    wal: float = 0.0


def quantile(found: list[float], share: float) -> float:
    """That share of them is no larger; 0 of none."""
    ordered = sorted(found)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


@contextmanager
def others(home: Home, path: str, provider: str, *, reads: int = 1) -> Iterator[Heard]:
    """Clients that ask for `path`, and one that delivers to `provider`, until the block ends."""
    heard, stop = Heard(), threading.Event()
    ask = [lambda: _ask(home, path, heard, stop)] * reads
    threads = [threading.Thread(target=work) for work in (*ask, lambda: _deliver(home, provider, heard, stop))]
    threads += [threading.Thread(target=lambda: _watch(home, heard, stop))]
    threads += [threading.Thread(target=lambda: _sleep(heard, stop))]
    for thread in threads:
        thread.start()
    try:
        yield heard
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _ask(home: Home, path: str, heard: Heard, stop: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", home.api, timeout=60)

    def once() -> None:
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})

    _repeat(connection, once, heard.reads, heard, stop, READ_EVERY)


def _deliver(home: Home, provider: str, heard: Heard, stop: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", home.hooks, timeout=60)
    keys, number = [read_secret(SECRET)], iter(range(10**9))

    def once() -> None:
        now = int(time.time())
        event = {"type": "batch.completed", "created_at": now, "data": {"id": "batch_of_somebody"}}
        body = json.dumps(event).encode()
        headers = sign_standard(body, event_id=f"evt_{os.getpid()}_{next(number)}", timestamp_seconds=now, keys=keys)
        connection.request("POST", f"/webhooks/{provider}", body, {**headers, "Content-Type": "application/json"})

    _repeat(connection, once, heard.deliveries, heard, stop, SEND_EVERY)


def _repeat(
    connection: http.client.HTTPConnection,
    send: Callable[[], None],
    taken: list[float],
    heard: Heard,
    stop: threading.Event,
    every: float,
) -> None:
    os.sched_setaffinity(0, {BESIDE})  # of this thread alone
    while not stop.wait(every):
        began = time.perf_counter()
        send()
        answer = connection.getresponse()
        answer.read()
        taken.append((time.perf_counter() - began) * 1000)
        heard.bad += answer.status != 200


def _watch(home: Home, heard: Heard, stop: threading.Event) -> None:
    os.sched_setaffinity(0, {BESIDE})
    while not stop.wait(0.05):
        if home.wal.exists():
            heard.wal = max(heard.wal, home.wal.stat().st_size / 2**20)


def _sleep(heard: Heard, stop: threading.Event) -> None:
    os.sched_setaffinity(0, {MEASURED})
    while True:
        began = time.perf_counter()
        if stop.wait(NAP):
            return
        heard.naps.append((time.perf_counter() - began - NAP) * 1000)

"""Very many operations that wait: what they cost while nothing is due, and what a read or a claim costs among them.

P7, P15, P16, P17, and P19 on a file of its own.
"""

import asyncio
import base64
import hashlib
import hmac
import random
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import aiohttp

from benchmarks import load
from benchmarks.home import SECRET, TOKEN, Home, daemon
from benchmarks.load import Target
from benchmarks.parked import PATIENT, grow, park
from benchmarks.processes import Running, free_port, running, until
from benchmarks.table import Figure, tell
from daemon.runtime import open_sqlite
from reconcile.model import Change, Operation
from reconcile.store.claims import ClaimWish
from reconcile.store.events import HasRead
from reconcile.store.evidence import Arrival
from reconcile.store.store import open_store

#: Ids that a load draws from at most: wrk keeps them all in memory.
DRAWN: Final = 200_000
#: Rows of one claim, and how many claims are measured.
ROWS, CLAIMS = 100, 20
#: Deliveries under way at a time.
AT_ONCE: Final = 32


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """All of it at each size, the largest last; the bounds are those of the largest."""
    sizes = [1000, 10_000] if quick else [1000, 10_000, 100_000, 1_000_000]
    memory, idle, claims = {}, {}, {}
    for size in [0, *sizes]:
        home = Home(folder / f"standing-{size}", PATIENT, free_port())
        tell(f"standing: {size} operations are parked")
        ids = park(home, size) if size else []
        if size:
            _settle(home)
            claims[size] = _claim(home, ids)
        is_last = size == sizes[-1]
        if size and not is_last:
            yield from _reads(home, ids, size, quick=quick, is_last=False)
            continue
        with daemon(home, seconds=300) as ours:
            time.sleep(5 if quick else 15)  # what a start does by the way
            memory[size], idle[size] = ours.memory(), _idle(ours, 10 if quick else 60)
        if size:
            yield from _reads(home, ids, size, quick=quick, is_last=True)
    last = sizes[-1]
    yield Figure(
        "P15",
        f"memory a parked operation, at {last:,}",
        (memory[last] - memory[0]) * 1024 / last,
        None if quick else 0.1,
        unit="KiB",
        made_of=f"{memory[last]:.0f} - {memory[0]:.0f} MiB",
    )
    yield Figure(
        "P16",
        f"CPU of one core while idle, {last:,} parked",
        idle[last],
        0.5,
        unit="%",
        made_of=f"with none {idle[0]:.2f} %, over {10 if quick else 60} s",
    )
    yield Figure(
        "P17",
        f"claim of {ROWS} due rows at {last:,} stored against 1,000: CPU",
        claims[last] / claims[1000],
        3.0,
        made_of=f"{claims[last]:.2f} / {claims[1000]:.2f} ms",
    )
    yield _disk(Home(folder / "disk", PATIENT, free_port()), 1000 if quick else 10_000)


def _settle(home: Home) -> None:
    """One start, whose checkpoint takes in all that was parked: it comes once, and is not what is measured."""
    with daemon(home, seconds=300), closing(sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)) as connection:
        last = connection.execute("SELECT max(position) FROM history").fetchone()[0]

        def is_signed() -> bool:
            return bool(connection.execute("SELECT max(position) FROM checkpoints").fetchone()[0] == last)

        until(is_signed, what="all to be signed", seconds=600, every=1)


def _idle(ours: Running, seconds: int) -> float:
    """Percent of a core."""
    before = ours.cpu()
    time.sleep(seconds)
    return (ours.cpu() - before) / seconds * 100


# ---- status reads ----


def _reads(home: Home, ids: list[str], size: int, *, quick: bool, is_last: bool) -> Iterator[Figure]:
    """GET of random operations against the floor's fixed document."""
    rounds, seconds = (2, 2) if quick else (5, 3)
    drawn = home.folder / "ids"
    drawn.write_text("\n".join(random.sample(ids, min(len(ids), DRAWN))) + "\n", encoding="ascii")
    port = free_port()
    bare = [sys.executable, "-m", "benchmarks.floor", str(port)]
    with running(bare, port=port, log=home.log) as floor, daemon(home, seconds=300) as ours:
        env = {"BENCH_IDS": str(drawn), "BENCH_TOKEN": TOKEN}
        targets = [
            Target("floor", floor, "/operations/{id}", env),
            Target("ours", ours, "/v1/operations/{id}", env),
        ]
        for connections in (32, 256) if is_last else (32,):
            tell(f"standing: reads among {size}, {connections} connections")
            found = load.compare(targets, "reads.lua", connections=connections, rounds=rounds, seconds=seconds)
            one, other = found["ours"], found["floor"]
            yield Figure(
                "P7",
                f"status read at {size:,}, {connections} connections: CPU a request",
                one.cpu_ratio,
                2.0,
                made_of=f"{one.cpu:.0f} / {other.cpu:.0f} µs, p99 {one.p99:.1f} / {other.p99:.1f} ms",
            )
            if one.bad:
                yield Figure("P7", "status reads that failed", one.bad, 0, unit="", made_of=f"of {one.requests}")


# ---- claims ----


def _claim(home: Home, ids: list[str]) -> float:
    """CPU ms of one claim, by the store as the worker asks it; the file is left as it was found."""
    return asyncio.run(_claimed(home, len(ids)))


async def _claimed(home: Home, stored: int) -> float:
    now = time.time_ns() // 1_000_000
    due = ROWS * min(CLAIMS, stored // ROWS)
    with closing(sqlite3.connect(home.database, isolation_level=None)) as connection:
        before = connection.execute(
            "SELECT due_at, key FROM schedule WHERE key % ? = 0 ORDER BY key LIMIT ?", (stored // due, due)
        ).fetchall()
        connection.executemany("UPDATE schedule SET due_at = ? WHERE key = ?", [(now - 1, key) for _, key in before])
    store = await open_store(
        str(home.database),
        opener=open_sqlite,
        judge=_nobody_judges,
        has_read=HasRead(()),
        on_done=lambda _: None,
    )
    writer = asyncio.ensure_future(store.run())
    spent = []
    for number in range(CLAIMS):
        if number % (due // ROWS) == 0:
            await store.release_all()
        began = time.process_time()
        claimed = await store.claim(ClaimWish("bench", now, 60_000, {"acme": ROWS}))
        spent.append(time.process_time() - began)
        if len(claimed.claims) != ROWS:
            raise SystemExit(f"standing: a claim took {len(claimed.claims)} rows")
    await store.release_all()
    await store.close()
    await writer
    with closing(sqlite3.connect(home.database, isolation_level=None)) as connection:
        connection.executemany("UPDATE schedule SET due_at = ? WHERE key = ?", before)
    return sorted(spent)[len(spent) // 2] * 1000


def _nobody_judges(_: Operation, __: Arrival) -> Change:
    raise AssertionError("a claim brings no evidence")


# ---- disk ----


def _disk(home: Home, count: int) -> Figure:
    """What one operation takes that was adopted, read once and told of by one delivery of 1 KiB; all by the product."""
    tell(f"standing: {count} operations with an event each")
    grow(home, count)
    with daemon(home):
        asyncio.run(_deliver(home, count))
    with closing(sqlite3.connect(home.database, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        found = [
            connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for name in ("operations", "events", "history")
        ]
    if found != [count, count, 2 * count]:
        raise SystemExit(f"standing: operations, events, history rows: {found}")
    size = home.database.stat().st_size
    return Figure(
        "P19",
        "disk an operation with one event of 1 KiB and two history rows",
        size / count / 1024,
        3.0,
        unit="KiB",
        made_of=f"{size / 2**20:.1f} MiB for {count:,}",
    )


async def _deliver(home: Home, count: int) -> None:
    """One delivery for each job, as large as those of the ingest load."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    numbers = iter(range(count))
    async with aiohttp.ClientSession(f"http://127.0.0.1:{home.hooks}") as session:

        async def some() -> None:
            for number in numbers:
                name, at = f"evt-{number:08d}", str(int(time.time()))
                data = f'{{"id":"job_{number:07d}","status":"running"}}'
                head = f'{{"id":"{name}","type":"job.changed","data":{data},"pad":"'
                body = (head + "x" * (1024 - len(head) - 2) + '"}').encode()
                proof = hmac.new(key, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()
                headers = {
                    "content-type": "application/json",
                    "webhook-id": name,
                    "webhook-timestamp": at,
                    "webhook-signature": "v1," + base64.b64encode(proof).decode(),
                }
                async with session.post("/webhooks/acme", data=body, headers=headers) as answer:
                    if answer.status not in (200, 202):
                        raise SystemExit(f"a delivery was answered {answer.status}: {await answer.text()}")

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))

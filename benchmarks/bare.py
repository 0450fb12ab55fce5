"""What tracking is compared with: clients that only ask and parse, and keep nothing.

    python -m benchmarks.bare reads PORT --jobs N --count M [--at-once K]    M reads of jobs in turn, K at a time
    python -m benchmarks.bare pages PORT --count M                           M walks over the whole list
    python -m benchmarks.bare naive PORT --jobs N --seconds T                a task a job, polling it to its end

Each prints {"cpu": seconds on a core, "requests": how many}; what comes before the first request does not count.
"""

import argparse
import asyncio
import json
import time
from typing import Any, Final

import aiohttp

#: Connections of the naive client, which has a task a job: as many as let it keep its interval.
_NAIVE_CONNECTIONS: Final = 64


async def _get(session: aiohttp.ClientSession, path: str) -> Any:
    async with session.get(path) as answer:
        return json.loads(await answer.read())


async def reads(session: aiohttp.ClientSession, jobs: int, count: int, at_once: int) -> int:
    """Status reads, `at_once` under way at a time."""
    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            await _get(session, f"/jobs/job_{number % jobs:07d}")

    await asyncio.gather(*(some() for _ in range(at_once)))
    return count


async def pages(session: aiohttp.ClientSession, walks: int) -> int:
    """Whole lists, page by page."""
    count = 0
    for _ in range(walks):
        after = ""
        while True:
            page = await _get(session, f"/v1/batches?limit=100{after}")
            count += 1
            if not page["has_more"]:
                break
            after = f"&after={page['last_id']}"
    return count


async def naive(session: aiohttp.ClientSession, jobs: int, seconds: float) -> int:
    """A task a job, each asking for its own until it has ended."""
    count = 0

    async def follow(number: int) -> None:
        nonlocal count
        await asyncio.sleep(seconds * number / jobs)  # not all at once, as jobs are not made at once either
        while True:
            count += 1
            batch = await _get(session, f"/v1/batches/job_{number:07d}")
            if batch["status"] in ("completed", "failed", "expired", "cancelled"):
                return
            await asyncio.sleep(seconds)

    await asyncio.gather(*(follow(number) for number in range(jobs)))
    return count


async def run(given: argparse.Namespace) -> dict[str, float]:
    """Do what the command line says; what it cost."""
    at_once = _NAIVE_CONNECTIONS if given.what == "naive" else given.at_once
    connector = aiohttp.TCPConnector(limit=at_once)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{given.port}", connector=connector) as session:
        before = time.process_time()
        match given.what:
            case "reads":
                count = await reads(session, given.jobs, given.count, at_once)
            case "pages":
                count = await pages(session, given.count)
            case _:
                count = await naive(session, given.jobs, given.seconds)
        return {"cpu": time.process_time() - before, "requests": count}


def main() -> None:
    """Do it, and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("reads", "pages", "naive"))
    parser.add_argument("port", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--at-once", type=int, default=1)
    print(json.dumps(asyncio.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()

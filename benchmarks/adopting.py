"""Jobs that others made, given to the daemon by its own API: many at once, as many clients would."""

import asyncio
from collections.abc import Sequence
from typing import Final

import aiohttp

from benchmarks.home import TOKEN, Home

#: Starts under way at a time.
AT_ONCE: Final = 64


def job_ids(count: int) -> list[str]:
    """The names of the bench provider's jobs."""
    return [f"job_{number:07d}" for number in range(count)]


def adopt(home: Home, provider: str, jobs: Sequence[str]) -> list[str]:
    """Let the daemon follow these jobs; its own ids for them, in order."""
    return asyncio.run(_adopt(home, provider, jobs))


async def _adopt(home: Home, provider: str, jobs: Sequence[str]) -> list[str]:
    ids = [""] * len(jobs)
    numbers = iter(range(len(jobs)))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(home.api_url, headers=headers) as session:

        async def some() -> None:
            for number in numbers:
                body = {"provider": provider, "remote_job_id": jobs[number]}
                async with session.post("/v1/operations", json=body) as answer:
                    told = await answer.json()
                    if answer.status not in (200, 201, 202):
                        raise SystemExit(f"{jobs[number]} was not taken: {told}")
                    ids[number] = told["operation_id"]

        await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return ids

"""The stand-in provider with large results in it, none of them kept: `python -m benchmarks.standin PORT JOB ...`.

A JOB is ITEMS or ITEMS:SCENARIO, a batch that nobody uploaded and that ends at once; its lines have about 1 KiB each.
Beside its own calls the stand-in shows, of any size,
    GET /jobs/BYTES          a job that has succeeded
    GET /jobs/BYTES/result   its result: one item of that many bytes
"""

import argparse
import asyncio
import dataclasses
import logging
from typing import Final

import aiohttp
import structlog
from aiohttp import web

from daemon.runtime import SystemClock, SystemDice, TaskSupervisor
from daemon.standin.openai_face import build_app
from daemon.standin.scenarios import find_scenario
from daemon.standin.wire import CHUNK_BYTES
from daemon.standin.world import World

#: Characters that a line of the stand-in's lacks to 1,074 bytes, so that a million of them are 1 GiB.
LONGER: Final = 242


def seeded(jobs: list[str]) -> World:
    """A world with these jobs in it, the first one first."""
    world = World(find_scenario("normal"), ids=SystemDice().identifier, speed=1000)
    for job in jobs:
        items, _, name = job.partition(":")
        scenario = dataclasses.replace(find_scenario(name or "normal"), longer_answers=LONGER)
        world.seed_job(items=int(items), now_ms=SystemClock().now(), scenario=scenario)
    return world


async def show(request: web.Request) -> web.Response:
    """A job that has succeeded."""
    return web.json_response({"id": request.match_info["bytes"], "status": "succeeded"})


async def send(request: web.Request) -> web.StreamResponse:
    """Its result: so many bytes that are no JSON."""
    answer = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    left = answer.content_length = int(request.match_info["bytes"])
    await answer.prepare(request)
    piece = bytes(range(256)) * (CHUNK_BYTES // 256)
    while left:
        await answer.write(piece[:left])
        left -= min(left, len(piece))
    return answer


async def serve(port: int, jobs: list[str]) -> None:
    """Until the process is ended."""
    log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    world, supervisor = seeded(jobs), TaskSupervisor(log)
    app = build_app(
        world,
        SystemClock(),
        supervisor,
        webhook_url=None,
        webhook_secret=None,
        session_factory=aiohttp.ClientSession,
        log=log,
    )
    app.router.add_get("/jobs/{bytes}", show)
    app.router.add_get("/jobs/{bytes}/result", send)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


def main() -> None:
    """Serve, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    given = parser.parse_args()
    asyncio.run(serve(given.port, given.jobs))


if __name__ == "__main__":
    main()

"""The floor: an aiohttp server that does as little as a receiver and a status endpoint could.

    python -m benchmarks.floor PORT

POST /hook reads the body and answers 200; GET /operations/{n} answers a fixed document of 400 bytes.
"""

import asyncio
import sys

from aiohttp import web

DOCUMENT = b'{"operation_id":"op","state":"observing","provider":"p","pad":"' + b"x" * 335 + b'"}'


async def take(request: web.Request) -> web.Response:
    """A delivery, read and forgotten."""
    await request.read()
    return web.Response(status=200)


async def show(_: web.Request) -> web.Response:
    """The same for everyone."""
    return web.Response(body=DOCUMENT, content_type="application/json")


async def serve(port: int) -> None:
    """Until the process is ended."""
    app = web.Application()
    app.router.add_post("/hook", take)
    app.router.add_get("/operations/{n}", show)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))

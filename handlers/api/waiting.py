"""How an answer is held: in memory, until what was committed is enough, time is up, or the daemon stops."""

import asyncio
from collections.abc import Callable

from reconcile.changes import Watch
from reconcile.model import Operation


async def hold(watch: Watch, ops: dict[str, Operation], seconds: float, is_enough: Callable[[], bool]) -> None:
    """Put newer states into `ops`, by their ids, until that is enough or nothing more is to be waited for."""
    try:
        async with asyncio.timeout(seconds):
            while not is_enough() and (newer := await watch.next()) is not None:
                ops[newer.operation_id] = newer
    except TimeoutError:
        pass

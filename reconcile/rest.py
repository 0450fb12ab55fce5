"""The rest between two slices of something that is never in a hurry: the one writer is left to everybody else."""

import asyncio
from typing import Final

#: A rest is so many times what the slice took, so that others are given more time the busier the disk is. 2: as
#: measured for pruning beside 200 writes a second; the p99 of their answers stays below twice what it is without.
REST: Final = 2
#: Seconds that a rest takes at least. 0.01: arbitrary, a few transactions of everybody else.
MIN_REST_SECONDS: Final = 0.01


async def rest(took_seconds: float, stop: asyncio.Event) -> None:
    """Rest after a slice that took so long; ended at once by `stop`."""
    try:
        async with asyncio.timeout(max(MIN_REST_SECONDS, REST * took_seconds)):
            await stop.wait()
    except TimeoutError:
        pass

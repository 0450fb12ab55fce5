"""A result far larger than what the process may grow by (N36), collected while somebody looks.

A fourth of the size that `make bench` collects (benchmarks/collection.py), so that it is held to its bound by each run.
"""

import asyncio
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from daemon.runtime import SystemClock, SystemDice
from daemon.standin.scenarios import SCENARIOS
from daemon.standin.world import World
from tests.stories.stage import ASK_AGAIN, PROVIDER, Client, client_of, provider, serving, settle

MIB: Final = 2**20
#: Lines of 64 KiB in place of 1 KiB: as many bytes, and an index that takes far less time to write.
LARGE: Final = replace(SCENARIOS["normal"], longer_answers=2**16)
ITEMS: Final = 256 * MIB // 2**16
#: What N36 lets memory grow by, MiB.
MOST_MEMORY: Final = 64
#: Seconds that a look may take. N36 says 0.1; the provider and whatever else runs here share the machine.
LATEST: Final = 1.0


def memory_of(pid: int, name: str) -> float:
    """Its memory in MiB: `VmRSS` now, `VmHWM` at its peak."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[0]) / 1024


def forget_peak(pid: int) -> None:
    """Let the peak begin anew (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


async def collected(client: Client, job_id: str, looks: list[float]) -> dict[str, Any]:
    """The operation that adopted a job, once it has ended; each look at the list meanwhile is timed."""
    answer = await client.call("POST", "/v1/operations", {"provider": PROVIDER, "remote_job_id": job_id})
    assert answer.status == 202, answer
    while True:
        began = time.monotonic()
        (body,) = (await client.get("/v1/operations?limit=1"))["operations"]
        looks.append(time.monotonic() - began)
        if body["done"] or body["attention"]:
            return dict(body)
        await asyncio.sleep(ASK_AGAIN)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
async def test_a_large_result_is_collected_in_flat_memory_while_looks_are_answered(tmp_path: Path) -> None:
    home, looks = settle(tmp_path, base="200ms", cap="400ms"), list[float]()
    world = World(SCENARIOS["normal"], ids=SystemDice().identifier, speed=100)
    small, large = (world.seed_job(items=n, now_ms=SystemClock().now(), scenario=LARGE) for n in (10, ITEMS))
    async with provider(home, world), serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        await collected(client, small, [])  # what one collection needs, whatever its size, is held from here on
        pid = daemon.process.pid
        forget_peak(pid)
        before = memory_of(pid, "VmRSS")
        body = await collected(client, large, looks)
        grown = memory_of(pid, "VmHWM") - before
        assert await daemon.stop() == 0
    print(f"grown by {grown:.1f} MiB, {len(looks)} looks, at worst {max(looks) * 1000:.0f} ms")
    assert (body["outcome"], body["summary"]["succeeded"]) == ("succeeded", ITEMS)
    assert body["result"]["bytes"] > 256 * MIB
    assert grown <= MOST_MEMORY
    assert len(looks) > 10
    assert max(looks) < LATEST

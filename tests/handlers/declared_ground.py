"""The daemon with a provider that the README declares: its own TOML, with another address and quicker polls."""

import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.handlers import ci_server, transcoder
from tests.handlers.ground import Ground, HandClock, running, until
from tests.handlers.test_collect import serving

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
ENVIRON = {"MEDIA_TOKEN": transcoder.TOKEN, "MEDIA_HOOK": transcoder.HOOK_SECRET, "CI_TOKEN": ci_server.TOKEN}
#: So that a test takes no longer than it must.
QUICK: dict[str, Any] = {
    "poll": {"base": "2ms", "cap": "20ms", "sweep": "20ms", "deadline": "1h"},
    "limits": {"requests_per_second": 1000},
}


def example(name: str) -> dict[str, Any]:
    """One `[providers.NAME]` of the README, as it stands there."""
    found = re.search(rf"<!-- example: {name} -->\n```toml\n(.*?)```", README, re.DOTALL)
    assert found is not None
    table: dict[str, Any] = tomllib.loads(found[1])["providers"][name]
    return table


@dataclass
class Stage:
    """The daemon, and the name of the provider that it talks to."""

    ground: Ground
    name: str

    async def start(self, request: Any = None, **fields: Any) -> str:
        body = {"provider": self.name, "request": request or {"source": "in.mov"}, **fields}
        answer = await self.ground.api("POST", "/v1/operations", body=body)
        assert answer.status == 202, answer
        return str(answer.json()["operation_id"])

    async def state(self, operation: str, *states: str) -> Any:
        """Wait for one of the states; the body then."""

        async def is_so() -> bool:
            return (await self.ground.row(operation)).state in states

        await until(is_so)
        return await self.ground.get(f"/v1/operations/{operation}")

    async def history(self, operation: str) -> list[Any]:
        rows: list[Any] = (await self.ground.get(f"/v1/operations/{operation}/history"))["history"]
        return rows

    async def reasons(self, operation: str) -> str:
        return "\n".join(str(row["reason"]) for row in await self.history(operation))

    async def items(self, operation: str) -> dict[str, tuple[str, str | None]]:
        page = await self.ground.get(f"/v1/operations/{operation}/items")
        return {item["item_id"]: (item["outcome"], item["reason"]) for item in page["items"]}

    async def result(self, operation: str) -> bytes:
        answer = await self.ground.api("GET", f"/v1/operations/{operation}/result")
        assert answer.status == 200, answer
        return answer.body


@asynccontextmanager
async def declared(
    folder: Path, name: str, app: web.Application, *, path: str = "", clock: HandClock | None = None, **changes: Any
) -> AsyncIterator[Stage]:
    """The daemon and a server of `app`, told of each other; `changes` replace tables of the example (None: none)."""
    async with serving(app) as url, standing(folder, name, f"{url}{path}", clock, **changes) as on:
        yield on


@asynccontextmanager
async def standing(
    folder: Path,
    name: str,
    url: str,
    clock: HandClock | None = None,
    *,
    worker: bool = True,
    caps: dict[str, str] | None = None,
    **changes: Any,
) -> AsyncIterator[Stage]:
    """The daemon alone, the provider at `url`."""
    table = {**example(name), **QUICK, **changes, "base_url": url}
    table = {key: value for key, value in table.items() if value is not None}
    if clock is None:
        clock = HandClock()
        clock.run()
    sections = {"caps": caps} if caps else None
    async with running(
        folder, providers={name: table}, environ=ENVIRON, worker=worker, clock=clock, sections=sections
    ) as ground:
        yield Stage(ground, name)

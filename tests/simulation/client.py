"""The one client of a simulated world: starts its work under one key, asks again until it is answered, and waits.

It is no part of the process under test: what it was told outlives each crash, and is held against the file.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

#: The provider's name in the configuration.
NAME: Final = "openai"
CLIENT_KEY: Final = "simulated-start-1"
ITEM_IDS: Final = tuple(f"item-{n}" for n in range(5))
REQUEST: Final = {"endpoint": "/v1/responses", "metadata": {"who": "simulated"}}
#: Who asks for a cancel, and why.
CANCEL: Final = {"by": "simulation", "reason": "not needed any more", "effect": "no more items run"}
CREATE_WITHIN_MS: Final = 120_000
START: Final[Mapping[str, Any]] = {
    "provider": NAME,
    "caller": "simulation",
    "request": REQUEST,
    "create_within": "120s",
    "items": [
        {"custom_id": item_id, "url": "/v1/responses", "body": {"model": "example-model", "input": f"say {item_id}"}}
        for item_id in ITEM_IDS
    ],
}


@dataclass(slots=True)
class Client:
    """What it asks for, and what it was told."""

    api: str
    start: Mapping[str, Any] = field(default_factory=lambda: START)
    #: The operation of each 202 or 200 that answered the start.
    started: list[str] = field(default_factory=list)
    #: The last body it read.
    body: dict[str, Any] = field(default_factory=dict)
    #: When it asks for a cancel, seen from the body it read last; None: never.
    cancels_when: Callable[[Mapping[str, Any]], bool] | None = None
    #: The answers to that; after the first it asks no more.
    cancels: list[int] = field(default_factory=list)
    #: Answers that a daemon in good health never gives.
    surprises: list[str] = field(default_factory=list)

    @property
    def is_through(self) -> bool:
        """Whether nothing is left to wait for: done, or in a person's inbox."""
        return bool(self.body.get("done") or self.body.get("attention"))

    @property
    def wants_a_cancel(self) -> bool:
        """Whether the time to ask has come, and no answer to it."""
        return self.cancels_when is not None and not self.cancels and self.cancels_when(self.body)

    async def run(self, session: aiohttp.ClientSession) -> None:
        """One life's worth: start, in every life anew under the same key, then wait to the end."""
        is_started = False
        while not (is_started and self.is_through):
            try:
                if is_started and self.wants_a_cancel:
                    await self.cancel(session)
                elif is_started:
                    await self.wait(session)
                else:
                    is_started = await self.ask(session)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(1)

    async def ask(self, session: aiohttp.ClientSession) -> bool:
        """Start; whether it was answered so."""
        url, headers = f"{self.api}/v1/operations", {"Idempotency-Key": CLIENT_KEY}
        async with session.post(url, json=self.start, headers=headers) as answer:
            body = await answer.json(content_type=None)
        if answer.status not in (200, 202):
            self.surprises.append(f"POST: {answer.status} {body}")
            await asyncio.sleep(1)
            return False
        self.started.append(body["operation_id"])
        self.body = body
        return True

    async def wait(self, session: aiohttp.ClientSession) -> None:
        """Hold one GET until something is told; not for long where it has more to ask."""
        seconds = 30 if self.cancels_when is None or self.cancels else 1
        async with session.get(f"{self.api}/v1/operations/{self.started[-1]}?wait={seconds}") as answer:
            body = await answer.json(content_type=None)
        if answer.status == 200:
            self.body = body
        else:
            self.surprises.append(f"GET: {answer.status} {body}")
            await asyncio.sleep(1)

    async def cancel(self, session: aiohttp.ClientSession) -> None:
        """Ask for a cancel. 409: the operation has ended, or nobody knows its job."""
        async with session.post(f"{self.api}/v1/operations/{self.started[-1]}/cancel", json=CANCEL) as answer:
            body = await answer.json(content_type=None)
        if answer.status in (202, 409):
            self.cancels.append(answer.status)
        else:
            self.surprises.append(f"cancel: {answer.status} {body}")
            await asyncio.sleep(1)

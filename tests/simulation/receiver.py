"""Whoever is called back in a simulated world: takes, refuses, hangs or forgets to answer, and drops repeats by id.

It is no part of the process under test, so it outlives that process's crashes. At each arrival it looks into the
daemon's file by a second connection: what is not committed by then was not committed before it was sent (N29).
"""

import asyncio
import base64
import hashlib
import hmac
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from reconcile.store.schema import read_only_uri

#: Its name, the public address that the name leads to, and its port.
HOST, ADDRESS, PORT = "ci.test", "93.184.215.14", 443
URL: Final = f"https://{HOST}/hooks/"
SECRETS: Final = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_bmV3LXNlY3JldC1vZi10aGUtcmVjZWl2ZXItMDAwMQ==")
#: What may become of a delivery. `take`: 200. `forget`: it has its effect, and no answer comes. `slow`: 200 after 20 s.
#: Any other word has no effect.
REPLIES: Final = ("take", "forget", "slow", "500", "307", "410", "hang", "reset")
TAKING: Final = frozenset({"take", "forget", "slow"})


@dataclass(frozen=True, slots=True)
class Got:
    """One delivery at its arrival."""

    at_ms: int
    event_id: str
    body: bytes
    #: By each of the secrets, over the time of this attempt.
    is_signed: bool
    #: The committed row of this id: its body and state; None: there was none.
    row: tuple[bytes, str] | None


@dataclass(slots=True)
class Receiver:
    """`reply(n)` says what becomes of the n-th arrival, from 1."""

    database: Path
    reply: Callable[[int], str] = lambda _: "take"
    got: list[Got] = field(default_factory=list)
    #: By id: how often its effect was had by somebody who drops repeats, and by somebody who does not.
    effects: dict[str, int] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)

    def app(self, now: Callable[[], int]) -> web.Application:
        """Its one call, whatever the path."""

        async def take(request: web.Request) -> web.StreamResponse:
            body = await request.read()
            event_id = request.headers["webhook-id"]
            seen = Got(now(), event_id, body, _is_signed(request, body, now()), self._committed(event_id))
            self.got.append(seen)
            reply = self.reply(len(self.got))
            assert reply in REPLIES
            if reply in TAKING:
                self.effects[event_id] = self.effects.get(event_id, 0) + 1
            if reply == "hang":
                await asyncio.sleep(60)  # whoever called has given up long before
            if reply in ("forget", "reset"):
                assert request.transport is not None
                request.transport.abort()
            if reply == "slow":
                await asyncio.sleep(20)
            status = int(reply) if reply.isdigit() else 200
            if reply in ("take", "slow"):
                self.answered[event_id] = self.answered.get(event_id, 0) + 1
            return web.Response(status=status, headers={"Location": "/hooks/elsewhere"} if status == 307 else {})

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", take)
        return app

    def _committed(self, event_id: str) -> tuple[bytes, str] | None:
        with closing(sqlite3.connect(read_only_uri(str(self.database)), uri=True)) as connection:
            sql = "SELECT body, state FROM deliveries WHERE delivery_id = ?"
            row: tuple[bytes, str] | None = connection.execute(sql, (event_id,)).fetchone()
            return row


class Names(AbstractResolver):
    """The one name of this world."""

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        """Its public address. Raises: OSError, for any other name."""
        await asyncio.sleep(0)
        if host != HOST:
            raise OSError(f"nobody knows {host}")
        return [ResolveResult(hostname=host, host=ADDRESS, port=port, family=2, proto=6, flags=0)]

    async def close(self) -> None:
        """Nothing is held."""


def _is_signed(request: web.Request, body: bytes, now_ms: int) -> bool:
    """By the standard's own words: every secret has signed `id.timestamp.body`, just now."""
    event_id, stamp = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    expected = []
    for secret in SECRETS:
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = hmac.digest(key, f"{event_id}.{stamp}.".encode() + body, hashlib.sha256)
        expected.append("v1," + base64.b64encode(signed).decode())
    is_fresh = abs(now_ms // 1000 - int(stamp)) <= 2
    return is_fresh and request.headers["webhook-signature"] == " ".join(expected)

"""Who talks to the daemon of a random world: clients who start, wait, cancel and claim, and people who decide.

They are no part of the process under test: what they were told outlives each crash and is held against the file.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from tests.simulation.histories.scripts import Draws, Wish

#: Longest that one GET is held, seconds.
HOLD_SECONDS: Final = 300
CANCEL: Final = {"by": "simulation", "reason": "not needed", "effect": "no more is done"}
#: How often one caller asks again, after a connection that broke or an answer that was none, seconds.
AGAIN_SECONDS: Final = 1.0


@dataclass(slots=True)
class Told:
    """What the people around one operation were told."""

    started: list[str] = field(default_factory=list)
    #: The last body that was read.
    body: dict[str, Any] = field(default_factory=dict)
    #: Statuses that its cancels were answered with; and how many were asked for, answered or not.
    cancels: list[int] = field(default_factory=list)
    cancels_asked: int = 0
    #: (decision, status) of each answered decision; and all that were asked for.
    decisions: list[tuple[str, int]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    inputs_asked: int = 0
    #: By consumer: the statuses of its claims, without a key.
    claims: dict[str, list[int]] = field(default_factory=dict)
    #: By consumer: how many claims were asked for, answered or not.
    claims_asked: Counter[str] = field(default_factory=Counter)
    #: (operation, asked at, answered at) of each GET that was held, virtual seconds.
    waits: list[tuple[str, float, float]] = field(default_factory=list)
    #: Inputs that were taken with a 202; and refused with a 409.
    inputs: int = 0
    inputs_refused: int = 0
    #: Answers that a healthy daemon never gives.
    surprises: list[str] = field(default_factory=list)
    #: What a person still does; kept over crashes.
    decided: int = 0
    has_given: bool = False
    questions: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be told of it."""
        return bool(self.body.get("done"))


class Customer:
    """One operation's people, in every life anew."""

    def __init__(self, wish: Wish, api: str, seed: int) -> None:
        self.wish = wish
        self.told = Told()
        self._api = f"{api}/v1/operations"
        self._seed = seed

    async def run(self, session: aiohttp.ClientSession, *, now: float) -> None:
        """To the end of the operation, or of the life."""
        loop, told = asyncio.get_running_loop(), self.told
        dice = Draws(f"people/{self._seed}/{self.wish.number}/{now:.3f}")
        if loop.time() < self.wish.begins_at:
            await asyncio.sleep(self.wish.begins_at - loop.time())
        is_started = False
        while not (is_started and told.is_over):
            try:
                if not is_started:
                    is_started = await self._start(session)
                else:
                    await self._next(session, dice)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(AGAIN_SECONDS)
        while not await self._claim(session):  # noqa: ASYNC110 - it asks again, as a consumer does
            await asyncio.sleep(AGAIN_SECONDS)

    @property
    def has_claimed(self) -> bool:
        """Whether each consumer has two answers."""
        return all(len(self.told.claims.get(f"consumer-{n}", ())) >= 2 for n in range(self.wish.consumers))

    # ---- start ----

    async def _start(self, session: aiohttp.ClientSession) -> bool:
        """Start, by several callers at once where the wish says so; then somebody comes with other content."""
        is_started = any(await asyncio.gather(*(self._ask(session) for _ in range(self.wish.parallel))))
        if is_started and self.wish.is_contested:
            await self._contest(session)
        return is_started

    async def _ask(self, session: aiohttp.ClientSession) -> bool:
        told = self.told
        try:
            status, body = await self._post(session, self._api, self.wish.body, key=True)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            await asyncio.sleep(AGAIN_SECONDS)
            return False
        if status in (200, 202):
            told.started.append(body["operation_id"])
            told.body = body
            return True
        if status != 503:
            told.surprises.append(f"POST: {status} {body}")
        await asyncio.sleep(AGAIN_SECONDS)
        return False

    async def _contest(self, session: aiohttp.ClientSession) -> None:
        other = {**self.wish.body, "request": {**self.wish.body["request"], "endpoint": "/v1/embeddings"}}
        status, _ = await self._post(session, self._api, other, key=True)
        if status not in (422, 503):
            self.told.surprises.append(f"another body under the same key was answered {status}")

    async def _post(
        self, session: aiohttp.ClientSession, url: str, body: dict[str, Any], *, key: bool = False
    ) -> tuple[int, Any]:
        headers = {"Idempotency-Key": f"key-{self.wish.number}"} if key else {}
        async with session.post(url, json=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)

    # ---- wait and wish ----

    async def _next(self, session: aiohttp.ClientSession, dice: Draws) -> None:
        told, wish = self.told, self.wish
        loop = asyncio.get_running_loop()
        cancels_at = None
        if wish.cancels_after is not None and not told.cancels:
            cancels_at = wish.begins_at + wish.cancels_after
            if loop.time() >= cancels_at:
                await self._cancel(session)
                return
        attention = told.body.get("attention")
        if attention and await self._answers(session, attention, dice):
            return
        hold = HOLD_SECONDS if cancels_at is None else max(1, min(HOLD_SECONDS, int(cancels_at - loop.time()) + 1))
        if attention:
            await asyncio.sleep(60)  # a question that nobody answers: its deadline does
            hold = 0
        await self._read(session, hold)

    async def _read(self, session: aiohttp.ClientSession, hold: int) -> None:
        operation_id, loop = self.told.started[-1], asyncio.get_running_loop()
        asked = loop.time()
        async with session.get(f"{self._api}/{operation_id}?wait={hold}") as answer:
            body = await answer.json(content_type=None)
        if answer.status == 200 and hold:
            self.told.waits.append((operation_id, asked, loop.time()))
        if answer.status == 200:
            if self.told.body.get("done") and body != self.told.body:
                self.told.surprises.append("the body of an ended operation changed")
            self.told.body = body
        elif answer.status != 503:
            self.told.surprises.append(f"GET: {answer.status} {body}")
        if answer.status != 200:
            await asyncio.sleep(AGAIN_SECONDS)

    async def _cancel(self, session: aiohttp.ClientSession) -> None:
        self.told.cancels_asked += 1
        async with session.post(f"{self._api}/{self.told.started[-1]}/cancel", json=CANCEL) as answer:
            body = await answer.json(content_type=None)
        if answer.status in (202, 409):
            self.told.cancels.append(answer.status)
        else:
            if answer.status != 503:
                self.told.surprises.append(f"cancel: {answer.status} {body}")
            await asyncio.sleep(AGAIN_SECONDS)

    async def _answers(self, session: aiohttp.ClientSession, attention: dict[str, Any], dice: Draws) -> bool:
        """Give an input or a decision; whether anything was done."""
        told, wish = self.told, self.wish
        told.questions.add(str(attention["reason"]))
        if wish.thinks is None or told.decided >= wish.decides:
            return False
        await asyncio.sleep(wish.thinks)
        if attention["reason"] in ("input_required", "input_unknown") and wish.gives_input and dice.chance(0.8):
            await self._give(session)
        else:
            await self._decide(session, attention, dice)
        await self._read(session, 0)
        return True

    async def _give(self, session: aiohttp.ClientSession) -> None:
        self.told.inputs_asked += 1
        url, data = f"{self._api}/{self.told.started[-1]}/input?by=simulation", {"answer": "blue"}
        async with session.post(url, json=data) as answer:
            await answer.read()
        if answer.status in (202, 409):
            self.told.decided += answer.status == 202
            self.told.inputs += answer.status == 202
            self.told.inputs_refused += answer.status == 409
        elif answer.status != 503:
            self.told.surprises.append(f"input: {answer.status}")

    async def _decide(self, session: aiohttp.ClientSession, attention: dict[str, Any], dice: Draws) -> None:
        told = self.told
        offers = [offer["decision"] for offer in attention["decisions"]]
        # Now and then one that is not open: it must change nothing.
        decision = dice.pick(("resume", "keep", "resend", "accept")) if dice.chance(0.15) else dice.pick(offers)
        asked = {"decision": decision, "by": "simulation", "reason": "drawn"}
        if decision in ("adopt_job", "choose_job"):
            entry = await self._entry(session)
            candidates = [str(c.get("remote_job_id", c) if isinstance(c, dict) else c) for c in entry]
            if not candidates:
                told.decided += 1
                return
            asked["remote_job_id"] = dice.pick(candidates)
        if decision == "resume" and dice.chance(0.5):
            asked["within"] = "30s"
        told.asked.append(decision)
        url = f"{self._api}/{told.started[-1]}/decisions"
        async with session.post(url, json=asked) as answer:
            body = await answer.json(content_type=None)
        if answer.status in (200, 202, 409):
            told.decided += 1
            told.decisions.append((decision, answer.status))
        elif answer.status == 422:
            told.decided += 1  # a span where none is taken, and the like
        elif answer.status != 503:
            told.surprises.append(f"decision {decision}: {answer.status} {body}")

    async def _entry(self, session: aiohttp.ClientSession) -> list[Any]:
        async with session.get(self._api.replace("/operations", "/inbox?limit=100")) as answer:
            body = await answer.json(content_type=None)
        mine = [e for e in body.get("inbox", ()) if e.get("operation_id") == self.told.started[-1]]
        return list(mine[0].get("candidates") or ()) if mine else []

    # ---- claim ----

    async def _claim(self, session: aiohttp.ClientSession) -> bool:
        """Each consumer claims twice at once, until it has an answer to both."""
        told, url = self.told, f"{self._api}/{self.told.started[-1]}/claim"

        async def claim(consumer: str) -> None:
            told.claims_asked[consumer] += 1
            async with session.post(url, json={"consumer": consumer}) as answer:
                await answer.read()
            if answer.status in (200, 409):
                told.claims.setdefault(consumer, []).append(answer.status)
            elif answer.status != 503:
                told.surprises.append(f"claim: {answer.status}")

        try:
            for n in range(self.wish.consumers):
                consumer = f"consumer-{n}"
                if len(told.claims.get(consumer, ())) < 2:
                    await asyncio.gather(claim(consumer), claim(consumer))
        except (aiohttp.ClientError, TimeoutError):
            return False
        return self.has_claimed

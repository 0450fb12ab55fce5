"""Following operations: a story row by row, an end, or all of them; a daemon that restarts meanwhile is waited for.

Whoever looks at a terminal is shown a display that moves, from the event streams. A script is told what it always was:
lines, from calls that the daemon holds.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final, Protocol
from urllib.parse import quote

from daemon import words
from daemon.cli import live, patience, terminal
from daemon.cli.events import Event, Garbled, Reader
from daemon.local_api import MISREAD, LocalApi, Refused, Unreachable
from daemon.logs import make_log
from daemon.runtime import SystemClock, TaskSupervisor
from daemon.shapes import clean
from reconcile.redact import Redactor

#: Seconds of one held call while waiting; the command goes on until the end.
WAIT_SECONDS: Final = 30
#: The same where a display shows how far several have come. 5: arbitrary.
SHOWN_SECONDS: Final = 5
#: Seconds between two looks at a body on a display, at least. 2: arbitrary; one cheap call.
REFRESH_SECONDS: Final = 2

Body = dict[str, Any]


class Teller(Protocol):
    """Whoever is told what happens while something is followed."""

    def event(self, event: Event) -> None:
        """A history row, a body or a gap."""

    def away(self, what: str) -> None:
        """The daemon cannot be asked just now."""


@asynccontextmanager
async def going_on(told: str) -> AsyncIterator[None]:
    """Whoever stops following is told that the work does not stop."""
    try:
        yield
    except (asyncio.CancelledError, Unreachable):
        print(clean(told), file=sys.stderr, flush=True)
        raise


def without_you(operation_id: str) -> str:
    """What whoever stops following one operation is told."""
    return f"{operation_id} goes on without you: reconciled show {operation_id}"


def is_over(body: Body) -> bool:
    """Whether there is nothing to wait for: it has ended, or a person is needed."""
    return bool(body["done"] or body["attention"])


# ---- one operation ----


async def story(api: LocalApi, operation_id: str, path: str, *, quiet: bool) -> Body:
    """Print each history row as it comes; ends at the end, or when a person is needed."""
    async with going_on(without_you(operation_id)):
        if not quiet and terminal.can_move(sys.stderr):
            with live.One(sys.stderr) as display:
                return await shown(api, path, display)
        return await _told(api, path, quiet=quiet)


async def _told(api: LocalApi, path: str, *, quiet: bool) -> Body:
    seen = 0
    while True:
        # The body first, its rows after it: once nothing more will come by itself, no call is held for more.
        body = await _asked(api, path)
        seconds = 0 if is_over(body) else WAIT_SECONDS
        page = await _asked(api, f"{path}/history?cursor={seen}&limit=500&wait={seconds}", seconds=seconds)
        for row in page["history"]:
            seen = row["seq"]
            if not quiet:
                print(words.history_row(row), file=sys.stderr, flush=True)
        if is_over(body) and page["next_cursor"] is None:
            return body


async def end(api: LocalApi, operation_id: str, path: str, *, most_seconds: float | None, quiet: bool) -> Body:
    """The body at the end, when a person is needed, or when `most_seconds` are over."""
    async with going_on(without_you(operation_id)):
        if not quiet and terminal.can_move(sys.stderr):
            body = await _asked(api, path)
            if is_over(body):
                return body
            with live.One(sys.stderr, body=body, tells_rows=False) as display:
                return await _within(most_seconds, shown(api, path, display), lambda: _asked(api, path))

        async def held(seconds: int) -> Body:
            return await _asked(api, f"{path}?wait={seconds}", seconds=seconds)

        return await _held(held, is_over, most_seconds)


async def _within(most_seconds: float | None, work: Awaitable[Body], at_the_end: Callable[[], Awaitable[Body]]) -> Body:
    try:
        async with asyncio.timeout(most_seconds):
            return await work
    except TimeoutError:
        return await at_the_end()


async def _held(
    ask: Callable[[int], Awaitable[Body]],
    is_enough: Callable[[Body], bool],
    most_seconds: float | None,
    seconds_each: int = WAIT_SECONDS,
) -> Body:
    """Calls that the daemon holds, until one answers enough or `most_seconds` are over."""
    clock = SystemClock()
    began = clock.monotonic()
    while True:
        left = None if most_seconds is None else max(0.0, most_seconds - (clock.monotonic() - began))
        body = await ask(seconds_each if left is None else min(seconds_each, max(1, round(left))))
        if is_enough(body) or (most_seconds is not None and clock.monotonic() - began >= most_seconds):
            return body


async def shown(api: LocalApi, path: str, display: live.One) -> Body:
    """One operation on a display; ends at the end, or when a person is needed."""
    task = TaskSupervisor(make_log(Redactor([]))).start("refresh", _refreshed(api, path, display))
    try:
        return await streamed(api, path, display)
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _refreshed(api: LocalApi, path: str, display: live.One) -> None:
    """Ask again once what was to be done next is past: a read that found nothing new is told by no event."""
    while True:
        await asyncio.sleep(REFRESH_SECONDS)
        if display.is_stale():
            with suppress(Unreachable, Refused, *MISREAD):  # the stream tells that, and goes on by itself
                display.event(Event("operation", None, await api.call("GET", path)))


async def streamed(api: LocalApi, path: str, teller: Teller) -> Body:
    """One operation by its event stream, each row and body told; ends at the end, or when a person is needed."""
    state: str | None = None  # where the last row that was told has moved it
    body: Body | None = None
    async with aclosing(batches(api, f"{path}/events", teller, ends=True)) as stream:
        async for batch in stream:
            for event in batch:
                teller.event(event)
                if event.kind == "history" and event.data["kind"] == "move":
                    state = event.data["to"]
                elif event.kind == "operation":
                    body = event.data
            if body is not None and batch[-1].kind != "operation":
                # Not every row comes with a body; before the first one the rows are those of long ago.
                body = await _asked(api, path, teller)
                teller.event(Event("operation", None, body))
            if body is not None and is_over(body) and body["state"] == state:
                return body
    return await _asked(api, path, teller)


# ---- several ----


async def several(api: LocalApi, ids: Sequence[str], mode: str, *, most_seconds: float | None, quiet: bool) -> Body:
    """The answer once any or all of them have ended or need a person, or when `most_seconds` are over."""
    query = "&".join(f"id={quote(one, safe='')}" for one in ids)

    async def held(seconds: int) -> Body:
        answer = await _asked(api, f"/v1/wait?{query}&mode={mode}&wait={seconds}", display, seconds=seconds)
        for body in answer["operations"]:
            display.event(Event("operation", None, body))
        return answer

    def is_enough(answer: Body) -> bool:
        return not answer["timed_out"]

    display: Teller = Quiet()
    async with going_on("they go on without you: reconciled list --open"):
        if quiet or not terminal.can_move(sys.stderr):
            return await _held(held, is_enough, most_seconds)
        with live.Many(sys.stderr, keeps_ended=True) as display:
            return await _held(held, is_enough, most_seconds, SHOWN_SECONDS)


class Quiet:
    """Tells nothing but that the daemon is away."""

    def event(self, event: Event) -> None:
        """Nothing."""

    def away(self, what: str) -> None:
        """On stderr."""
        patience.tell_away(what)


# ---- asking ----


async def batches(api: LocalApi, path: str, teller: Teller, *, ends: bool) -> AsyncGenerator[list[Event], None]:
    """What a stream tells, in the pieces in which it comes, over interruptions: resumed after the last event.

    A stream that `ends` is over once the daemon has nothing more to tell of what has ended. One that is cut, or that a
    daemon closed which stopped, is asked for again. Raises: Refused, Unreachable.
    """
    patient = patience.Patience(teller.away)
    last: str | None = None
    while True:
        reader, is_empty = Reader(), True
        try:
            async with aclosing(api.stream(path, last_event_id=last)) as pieces:
                async for piece in pieces:
                    patient.is_back()
                    is_empty = False
                    if events := reader.feed(piece):
                        last = next((event.id for event in reversed(events) if event.id is not None), last)
                        yield events
            if ends and is_empty and (await _asked(api, path.removesuffix("/events"), teller))["done"]:
                return
            await asyncio.sleep(patience.AGAIN_SECONDS)  # a daemon that stops lets its streams go
        except (Unreachable, Refused) as fault:
            await patient.wait(fault)
        except Garbled as fault:
            raise Unreachable(f"{fault}; is it the daemon, and of this version?") from fault


async def _asked(api: LocalApi, path: str, teller: Teller | None = None, *, seconds: float = 0) -> Body:
    """One question, asked again while the daemon is away. Raises: Refused, Unreachable."""
    patient = patience.Patience((teller or Quiet()).away)
    while True:
        try:
            return await api.call("GET", path, seconds=seconds)
        except (Unreachable, Refused) as fault:
            await patient.wait(fault)

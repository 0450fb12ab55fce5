"""When all is well, by the writer and the clock alone; and when it is said, in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from daemon.notify import Notifier
from daemon.watchdog import MORE_EVERY_SECONDS, Heart, Watchdog, ask_for_time, patience_of
from reconcile.store.writer import Pulse
from tests.simulation.loop import VirtualLoop, dispose

IDLE, BUSY = False, True


@pytest.mark.parametrize(
    ("looks", "is_well"),
    [
        pytest.param([(0, 0, IDLE), (1000, 0, IDLE)], True, id="idle for ever"),
        pytest.param([(0, 0, BUSY), (30, 0, BUSY)], True, id="one batch for just the whole time"),
        pytest.param([(0, 0, BUSY), (30.1, 0, BUSY)], False, id="one batch for longer"),
        pytest.param([(0, 0, BUSY), (20, 1, BUSY), (40, 2, BUSY), (60, 3, BUSY)], True, id="slow batches, each ended"),
        pytest.param([(0, 0, BUSY), (20, 1, BUSY), (40, 1, BUSY), (51, 1, BUSY)], False, id="the second one is stuck"),
        pytest.param([(0, 0, BUSY), (40, 0, BUSY), (41, 1, IDLE)], True, id="stuck, and well again"),
        pytest.param([(0, 0, BUSY), (10, 1, IDLE), (1000, 1, BUSY)], True, id="busy again after a long rest"),
        pytest.param([(0, 7, BUSY), (5, 7, BUSY)], True, id="seen first in the middle"),
    ],
)
def test_a_batch_in_hand_for_longer_than_the_watchdogs_time_is_stuck(
    looks: list[tuple[float, int, bool]], is_well: bool
) -> None:
    watchdog = Watchdog(30)
    said = [watchdog.may_say(Pulse(ended, is_busy=busy), now) for now, ended, busy in looks]
    assert said[-1] is is_well


def test_slow_fsyncs_are_no_hang() -> None:
    """F22: five seconds each, under load, for an hour."""
    watchdog = Watchdog(30)
    assert all(watchdog.may_say(Pulse(now // 5, is_busy=True), now) for now in range(0, 3600, 10))


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "42"}, 30.0),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "43"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": ""}, None),
        ({"WATCHDOG_USEC": "1"}, 0.1),
        ({"WATCHDOG_USEC": "999999999999"}, 999_999.999999),
        ({"WATCHDOG_USEC": "9" * 13}, None),
        ({"WATCHDOG_USEC": "9" * 5_000}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": ""}, None),
        ({"WATCHDOG_USEC": "³"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_PID": "42"}, None),
        ({}, None),
    ],
)
def test_the_watchdogs_time_is_taken_where_it_is_meant_for_us(environ: dict[str, str], seconds: float | None) -> None:
    assert patience_of(environ, 42) == seconds


# ---- when it is said --------------------------------------------------------------------------------------------


@dataclass
class Said(Notifier):
    """systemd's end: each word with its virtual second."""

    words: list[tuple[float, str]] = field(default_factory=list)

    def send(self, *words: str, waits: bool = False) -> None:
        self.words += [(asyncio.get_running_loop().time(), word) for word in words]


class LoopClock:
    """A clock that runs with the virtual loop."""

    def now(self) -> int:
        return int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def lived(seconds: float, life: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """So much of a life that ends when it is told to."""

    async def story() -> None:
        stop = asyncio.Event()
        living = asyncio.ensure_future(life(stop))
        await asyncio.sleep(seconds)
        stop.set()
        await living

    loop = VirtualLoop()
    try:
        loop.run_until_complete(story())
    finally:
        dispose(loop)


def beats(seconds: float, pulse: Callable[[float], Pulse]) -> list[float]:
    """When the word was said, with a watchdog of 30 s."""
    said = Said()
    lived(
        seconds,
        lambda stop: Heart(30, said, LoopClock(), lambda: pulse(asyncio.get_running_loop().time())).beat(stop),
    )
    assert {word for _, word in said.words} == {"WATCHDOG=1"}
    return [round(at) for at, _ in said.words]


def test_all_is_well_is_said_three_times_in_each_watchdog_time_until_the_end() -> None:
    assert beats(65, lambda _: Pulse(0, is_busy=False)) == [0, 10, 20, 30, 40, 50, 60]


def test_a_writer_that_hangs_silences_it_after_the_watchdogs_time_and_until_it_goes_on() -> None:
    """Busy with one batch from second 15 to 75: seen first at 20, vouched for until 50."""
    assert beats(95, lambda now: Pulse(int(now > 75), is_busy=15 < now <= 75)) == [0, 10, 20, 30, 40, 50, 80, 90]


def test_a_start_asks_for_a_minute_more_every_ten_seconds_until_it_is_over() -> None:
    said = Said()
    lived(35, lambda stop: ask_for_time(said, stop))
    assert said.words == [(n * MORE_EVERY_SECONDS, "EXTEND_TIMEOUT_USEC=60000000") for n in range(4)]

"""When all is well, by the writer and the clock alone."""

import pytest

from daemon.watchdog import Watchdog, patience_of
from reconcile.store.writer import Pulse

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

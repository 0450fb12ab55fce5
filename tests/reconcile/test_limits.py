"""A provider is asked no faster than its rate, and hardly at all while it is down."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.limits import (
    NO_PAUSE,
    Allowance,
    Pause,
    Rate,
    after_failure,
    after_restart,
    after_success,
    max_in_flight,
    may_send,
)

NOW = 1_795_953_600_000
HOUR = 3_600_000
ALMOST_ONE = 1 - 2**-53


def failed(pause: Pause = NO_PAUSE, **changes: Any) -> Pause:
    """`pause` after one more failure: an HTTP 500 now, unless told otherwise."""
    values: dict[str, Any] = {
        "error_class": "http_500",
        "status": 500,
        "retry_after_ms": None,
        "now_ms": NOW,
        "draw": 0.5,
    }
    return after_failure(pause, **{**values, **changes})


# Rate


def test_a_quiet_provider_may_be_asked_a_burst_at_once_and_then_at_its_rate() -> None:
    allowance, rate = Allowance(), Rate(per_second=10, burst=3)
    for _ in range(3):
        allowance, wait = allowance.take(rate, NOW)
        assert wait == 0
    allowance, wait = allowance.take(rate, NOW)
    assert wait == 100
    allowance, wait = allowance.take(rate, NOW + 99)
    assert wait == 1
    allowance, wait = allowance.take(rate, NOW + 100)
    assert wait == 0
    assert allowance.take(rate, NOW + 100)[1] == 100


@pytest.mark.parametrize("per_second", [0.3, 3, 6, 7, 11, 35, 57, 333, 1_000, 3_000])
def test_a_burst_is_whole_at_any_rate_and_the_wait_after_it_is_rounded_up(per_second: float) -> None:
    allowance, rate = Allowance(), Rate(per_second, burst=10)
    for _ in range(10):
        allowance, wait = allowance.take(rate, NOW)
        assert wait == 0
    assert allowance.take(rate, NOW)[1] == math.ceil(1000 / per_second)


def test_asking_too_early_takes_nothing() -> None:
    rate = Rate(per_second=1, burst=1)
    allowance, _ = Allowance().take(rate, NOW)
    for _ in range(10):
        allowance, wait = allowance.take(rate, NOW)
        assert wait == 1_000
    assert allowance.take(rate, NOW + 1_000)[1] == 0


def test_a_step_back_of_the_clock_costs_one_interval_and_not_the_step() -> None:
    rate = Rate(per_second=2, burst=4)
    allowance, _ = Allowance().take(rate, NOW)
    stepped = NOW - HOUR
    allowance, wait = allowance.take(rate, stepped)
    assert wait == 500
    assert allowance.take(rate, stepped + 500)[1] == 0


@given(
    st.floats(0.01, 2_000),
    st.integers(1, 50),
    st.lists(st.integers(0, 3_000), min_size=1, max_size=200),
)
def test_no_span_of_time_sees_more_requests_than_the_rate_and_one_burst(
    per_second: float, burst: int, gaps: list[int]
) -> None:
    rate, allowance, now = Rate(per_second, burst), Allowance(), NOW
    sent = []
    for gap in gaps:
        now += gap
        allowance, wait = allowance.take(rate, now)
        if wait == 0:
            sent.append(now)
        else:
            assert allowance.take(rate, now + wait)[1] == 0  # the wait it names is enough
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            allowed = burst + (sent[last] - sent[first]) * per_second / 1000
            assert last - first + 1 <= allowed + 0.01


# Pause


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": 429}, "rate_limited"),
        ({"status": 503}, "unavailable"),
        ({"status": 401}, "credentials_refused"),
        ({"status": 500, "retry_after_ms": 1}, "retry_after: http_500"),
        ({"status": 402, "create_not_accepted": True}, "create_not_accepted"),
        ({"status": 403, "create_not_accepted": True}, "create_not_accepted"),
        ({"status": 404, "create_not_accepted": True}, "create_not_accepted"),
        ({"status": 405, "create_not_accepted": True}, "create_not_accepted"),
    ],
)
def test_what_speaks_of_the_whole_provider_pauses_it_at_once(changes: dict[str, Any], reason: str) -> None:
    pause = failed(**changes)
    assert pause.reason == reason
    assert pause.opened_at_ms == NOW
    assert pause.until_ms is not None
    assert not may_send(pause, NOW)
    assert not may_send(pause, pause.until_ms - 1)
    assert may_send(pause, pause.until_ms)


@pytest.mark.parametrize("status", [None, 200, 302, 403, 408, 500, 502, 504, 529])
def test_five_failures_in_a_row_pause_and_four_do_not(status: int | None) -> None:
    pause = NO_PAUSE
    for count in range(1, 5):
        pause = failed(pause, status=status, error_class="read_timeout")
        assert may_send(pause, NOW)
        assert pause.failures == count
    pause = failed(pause, status=status, error_class="read_timeout")
    assert not may_send(pause, NOW)
    assert pause.reason == "failures: read_timeout"


def test_a_good_answer_in_between_starts_the_count_anew() -> None:
    pause = NO_PAUSE
    for _ in range(4):
        pause = failed(pause)
    pause = after_success(pause, now_ms=NOW)
    assert pause == NO_PAUSE
    assert may_send(failed(pause), NOW)


@pytest.mark.parametrize("status", [400, 402, 404, 405, 409, 410, 422])
def test_an_answer_about_one_job_never_pauses_the_provider(status: int) -> None:
    pause = NO_PAUSE
    for _ in range(20):
        pause = failed(pause, status=status, retry_after_ms=60_000)
    assert pause == NO_PAUSE


def test_an_answer_about_one_job_ends_a_pause_when_it_answers_the_probe() -> None:
    pause = failed(status=503)
    assert failed(pause, status=404, now_ms=NOW + HOUR) == NO_PAUSE
    assert failed(pause, status=404, now_ms=NOW) == pause


def test_a_pause_for_a_refused_create_is_not_ended_by_a_probe_that_meets_the_same_refusal() -> None:
    pause = failed(status=404, create_not_accepted=True)
    again = failed(pause, status=404, now_ms=NOW + HOUR)
    assert not may_send(again, NOW + HOUR)
    assert again.reason == "create_not_accepted"
    assert after_success(again, now_ms=NOW + 2 * HOUR) == NO_PAUSE


@pytest.mark.parametrize(
    ("asked", "waited"),
    [(60_000, 60_000), (HOUR, HOUR), (10**15, HOUR), (0, 1_000), (-5, 1_000), (None, 1_000)],
)
def test_a_pause_lasts_as_long_as_retry_after_asks_up_to_an_hour(asked: int | None, waited: int) -> None:
    assert failed(status=429, retry_after_ms=asked, draw=0.0).until_ms == NOW + waited


def test_a_provider_with_a_longer_bound_is_paused_up_to_that() -> None:
    assert failed(status=429, retry_after_ms=3 * HOUR, retry_after_cap_ms=2 * HOUR).until_ms == NOW + 2 * HOUR


def test_each_failed_probe_makes_the_next_pause_longer_up_to_five_minutes() -> None:
    pause, now, lengths = NO_PAUSE, NOW, []
    for _ in range(12):
        pause = failed(pause, status=503, now_ms=now, draw=ALMOST_ONE)
        assert pause.until_ms is not None
        lengths.append(pause.until_ms - now)
        now = pause.until_ms
    assert lengths[:8] == sorted(set(lengths[:8]))
    assert lengths[0] == pytest.approx(2_000, abs=1)
    assert lengths[-1] == pytest.approx(300_000, abs=1)
    assert pause.opened_at_ms == NOW  # the outage began with the first of them
    assert after_success(pause, now_ms=now) == NO_PAUSE


def test_a_list_or_a_look_up_that_is_refused_alone_opens_a_pause_and_does_not_lengthen_it() -> None:
    pause, now, lengths = NO_PAUSE, NOW, []
    for count in range(1, 5):
        pause = failed(pause, status=403, lengthens=False)
        assert (pause.failures, pause.is_open) == (count, False)
    for _ in range(12):
        pause = failed(pause, status=403, lengthens=False, now_ms=now, draw=ALMOST_ONE)
        assert pause.until_ms is not None
        lengths.append(pause.until_ms - now)
        now = pause.until_ms
    assert lengths == [pytest.approx(32_000, abs=1)] * 12


def test_a_probe_without_an_answer_keeps_the_reason_for_which_the_pause_was_opened() -> None:
    pause = failed(status=429)
    again = failed(pause, status=None, error_class="read_timeout", now_ms=NOW + HOUR)
    assert again.reason == "rate_limited"
    assert not may_send(again, NOW + HOUR)


def test_answers_to_what_was_sent_before_the_pause_count_once_but_may_ask_for_more_time() -> None:
    pause = failed(status=503)
    for _ in range(100):
        assert failed(pause, status=503, now_ms=NOW + 1) == pause
    longer = failed(pause, status=429, retry_after_ms=60_000, now_ms=NOW + 1)
    assert longer.until_ms == NOW + 60_001
    assert longer.failures == pause.failures
    assert failed(longer, status=429, retry_after_ms=5_000, now_ms=NOW + 2) == longer


def test_what_a_provider_asked_for_while_it_was_paused_for_our_own_caution_outlives_a_restart() -> None:
    """A wrong key lets a new process try at once, a wait that the provider asked for does not."""
    cautious = failed(NO_PAUSE, status=401)
    assert after_restart(cautious, now_ms=NOW + 2).until_ms == NOW + 2
    asked = failed(cautious, status=429, retry_after_ms=60_000, now_ms=NOW + 1)
    assert after_restart(asked, now_ms=NOW + 2).until_ms == NOW + 60_001


def test_a_good_answer_to_what_was_sent_before_the_pause_does_not_end_it() -> None:
    pause = failed(status=429, retry_after_ms=60_000)
    assert after_success(pause, now_ms=NOW + 50) == pause
    assert after_success(pause, now_ms=NOW + 60_000) == NO_PAUSE


def test_a_new_process_goes_on_with_the_pause_that_it_finds() -> None:
    for status in (429, 503, 500):
        pause = failed(status=status, retry_after_ms=60_000)
        assert after_restart(pause, now_ms=NOW + 10) == pause
    assert after_restart(NO_PAUSE, now_ms=NOW) == NO_PAUSE


@pytest.mark.parametrize(
    "changes",
    [
        {"status": 401},
        {"status": 402, "create_not_accepted": True},
        {"status": 403},
        {"status": None, "error_class": "dns"},
    ],
)
def test_a_new_process_probes_at_once_what_an_operator_may_have_mended(changes: dict[str, Any]) -> None:
    pause = Pause(None, "", 4, None)
    found = after_restart(failed(pause, **changes), now_ms=NOW + 10)
    assert max_in_flight(found, 8, NOW + 10) == 1
    again = failed(found, now_ms=NOW + 20, **changes)
    assert not may_send(again, NOW + 20)
    assert again.failures == 6


def test_a_pause_of_a_clock_that_was_ahead_lasts_an_hour_at_most() -> None:
    pause = failed(status=503, now_ms=NOW + 24 * HOUR)
    assert after_restart(pause, now_ms=NOW).until_ms == NOW + HOUR


@pytest.mark.parametrize("draw", [0.0, 0.3, ALMOST_ONE])
@pytest.mark.parametrize("failures", [0, 1, 5, 10**6])
def test_no_pause_is_shorter_than_a_second_or_longer_than_five_minutes(failures: int, draw: float) -> None:
    pause = failed(Pause(None, "", failures, None), status=503, draw=draw)
    assert pause.until_ms is not None
    assert 1_000 <= pause.until_ms - NOW <= 300_000


def test_a_pause_lets_nothing_through_and_then_one_probe_at_a_time() -> None:
    pause = failed(status=503)
    assert pause.until_ms is not None
    assert max_in_flight(NO_PAUSE, 8, NOW) == 8
    assert max_in_flight(pause, 8, NOW) == 0
    assert max_in_flight(pause, 8, pause.until_ms) == 1
    assert max_in_flight(after_success(pause, now_ms=pause.until_ms), 8, pause.until_ms) == 8

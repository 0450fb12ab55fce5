"""Waits stay within our own bounds whatever was asked for, and nothing that a provider writes about time raises."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.schedule import MAX_TIME_MS, hint_ms, poll_delay_ms, read_time_ms, retry_after_ms, rfc3339

HOUR = 3_600_000
ONE_YEAR = 366 * 86_400_000
#: 2026-11-29T12:00:00Z
NOW = 1_795_953_600_000
ALMOST_ONE = 1 - 2**-53


@dataclass(frozen=True)
class Plan:
    base_ms: int = 1_000
    cap_ms: int = 60_000
    sweep_ms: int = 600_000


PLAN = Plan()
DRAWS = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("n", "longest"),
    [(1, 2_000), (2, 4_000), (5, 32_000), (6, 60_000), (7, 60_000), (10**6, 60_000), (0, 2_000), (-3, 2_000)],
)
def test_a_poll_delay_spans_from_the_base_to_twice_as_much_each_time_up_to_the_cap(n: int, longest: int) -> None:
    assert poll_delay_ms(PLAN, n, draw=0.0) == 1_000
    assert poll_delay_ms(PLAN, n, draw=ALMOST_ONE) == longest
    assert poll_delay_ms(PLAN, n, draw=0.5) == pytest.approx((1_000 + longest) / 2, abs=1)


def test_a_swept_job_is_polled_up_to_the_sweep_interval_whatever_its_count() -> None:
    for n in (1, 10**6):
        assert poll_delay_ms(PLAN, n, draw=0.0, sweeping=True) == 1_000
        assert poll_delay_ms(PLAN, n, draw=ALMOST_ONE, sweeping=True) == 600_000


@given(
    st.integers(-5, 10**7), DRAWS, st.booleans(), st.integers(1, 10**7), st.integers(0, 10**7), st.integers(0, 10**7)
)
def test_a_poll_gap_lies_within_its_bounds(
    n: int, draw: float, sweeping: bool, base: int, cap: int, sweep: int
) -> None:
    gap = poll_delay_ms(Plan(base, cap, sweep), n, draw=draw, sweeping=sweeping)
    assert base <= gap <= max(base, sweep if sweeping else cap)


@pytest.mark.parametrize(
    ("plan", "asked", "waited"),
    [
        (PLAN, 7_000, 7_000),
        (PLAN, 0, 1_000),
        (PLAN, 500, 1_000),
        (PLAN, -5_000, 1_000),
        (PLAN, HOUR, HOUR),
        (PLAN, HOUR + 1, HOUR),
        (PLAN, 10**18, HOUR),
        (Plan(cap_ms=2 * HOUR), 3 * HOUR, 2 * HOUR),
        (Plan(cap_ms=2 * HOUR), HOUR + 1, HOUR + 1),
    ],
)
def test_retry_after_raises_a_poll_delay_up_to_the_cap_or_an_hour(plan: Plan, asked: int, waited: int) -> None:
    assert poll_delay_ms(plan, 1, draw=0.0, retry_after_ms=asked) == waited
    assert poll_delay_ms(plan, 1, draw=0.0, retry_after_ms=asked, sweeping=True) == waited


@pytest.mark.parametrize(
    ("asked", "waited"), [(30_000, 30_000), (1, 1_000), (60_000, 60_000), (61_000, 60_000), (10**21, 60_000)]
)
def test_a_hint_raises_a_poll_delay_up_to_the_cap(asked: int, waited: int) -> None:
    assert poll_delay_ms(PLAN, 1, draw=0.0, hint_ms=asked) == waited


def test_of_a_draw_a_retry_after_and_a_hint_the_longest_holds() -> None:
    assert poll_delay_ms(PLAN, 10, draw=ALMOST_ONE, retry_after_ms=5_000, hint_ms=4_000) == 60_000
    assert poll_delay_ms(PLAN, 1, draw=0.0, retry_after_ms=5_000, hint_ms=4_000) == 5_000
    assert poll_delay_ms(PLAN, 1, draw=0.0, retry_after_ms=4_000, hint_ms=5_000) == 5_000


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": ["7"]}, 7_000),
        ({"retry-after": [" 7\t"]}, 7_000),
        ({"retry-after": ["0"]}, 0),
        ({"retry-after": ["1.5"]}, 1_500),
        ({"retry-after": ["0.0001"]}, 1),
        ({"retry-after": ["0.07"]}, 70),
        ({"retry-after": ["Sun, 29 Nov 2026 12:00:30 GMT"]}, 30_000),
        ({"retry-after": ["Sunday, 29-Nov-26 12:00:30 GMT"]}, 30_000),
        ({"retry-after": ["Sun Nov 29 12:00:30 2026"]}, 30_000),
        ({"retry-after": ["Sun, 29 Nov 2026 14:00:30 +0200"]}, 30_000),
        ({"retry-after": ["Sun, 29 Nov 2026 11:00:00 GMT"]}, 0),
        ({"retry-after": ["Wed, 21 Oct 2099 07:28:00 GMT"]}, ONE_YEAR),
        ({"retry-after": ["9" * 64]}, ONE_YEAR),
        ({"retry-after-ms": ["1500"]}, 1_500),
        ({"retry-after-ms": ["1500.2"]}, 1_501),
        ({"retry-after": ["2"], "retry-after-ms": ["1500"]}, 2_000),
        ({"retry-after": ["1"], "retry-after-ms": ["1500"]}, 1_500),
        ({"retry-after": ["1", "3", "2"]}, 3_000),
        ({"retry-after": ["junk", "3"]}, 3_000),
        ({"retry-after": ["-5"], "retry-after-ms": ["junk"]}, None),
        ({"retry-after-ms": ["Sun, 29 Nov 2026 12:00:30 GMT"]}, None),
        ({}, None),
        ({"retry-after": []}, None),
    ],
)
def test_retry_after_is_read_in_each_of_its_shapes(headers: Mapping[str, Sequence[str]], wait: int | None) -> None:
    assert retry_after_ms(headers, now_ms=NOW) == wait


@pytest.mark.parametrize(
    "given_value",
    [
        *("", " ", "-5", "+5", "120junk", "soon", "1e3", "0x10", "1_000", "NaN", "inf", "5, 10", ".", "1.", "٣"),
        *("9" * 65, "Wed, 21 Oct", "Wed, 99 Foo 2099 07:28:00 GMT", "Wed, 21 Oct 2099 99:99:99 GMT", "7 8 9 10:10:10"),
        *("21 Oct 2099 07:28:00 GMT", "1 Jan 2099", "Oct 21 2099 07:28:00"),
        *("2026-11-29T12:00:30Z", "Wed, 21 Oct 99999999 07:28:00 GMT", "Wed, 21 Oct 2099 07:28:00 +999999", "\ud800"),
    ],
)
def test_an_unreadable_retry_after_is_ignored(given_value: str) -> None:
    assert retry_after_ms({"retry-after": [given_value]}, now_ms=NOW) is None


@given(st.text() | st.from_regex(r"(Mon|Sun)[a-z]*,? .{0,20}[0-9]{2}:[0-9]{2}:[0-9]{2}( .{0,8})?", fullmatch=True))
def test_no_retry_after_raises_or_leaves_the_bounds(given_value: str) -> None:
    wait = retry_after_ms({"retry-after": [given_value], "retry-after-ms": [given_value]}, now_ms=NOW)
    assert wait is None or 0 <= wait <= ONE_YEAR


@pytest.mark.parametrize(
    ("value", "unix_ms"),
    [
        (1774747800, 1774747800_000),
        (1774747800.5, 1774747800_500),
        (1774747800.123, 1774747800_123),
        (1099028282.383, 1099028282_383),
        (0, 0),
        ("2026-03-29T01:30:00Z", 1774747800_000),
        ("2026-03-29t01:30:00z", 1774747800_000),
        ("2026-03-29 01:30:00Z", 1774747800_000),
        ("2026-03-29T03:30:00+02:00", 1774747800_000),
        ("2026-03-28T20:00:00-05:30", 1774747800_000),
        ("2026-03-29T01:30:00-00:00", 1774747800_000),
        ("2026-03-29T01:30:00.123456789Z", 1774747800_123),
        ("2026-03-29T01:30:00.9999Z", 1774747800_999),
        ("2026-03-29T01:30:00.5+00:00", 1774747800_500),
        ("9999-12-31T23:59:59.999Z", 253402300799_999),
    ],
)
def test_a_timestamp_is_read_as_the_instant_it_states(value: object, unix_ms: int) -> None:
    assert read_time_ms(value) == unix_ms


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, -1, 1774747800000, 10**400, float("nan"), float("inf"), float("-inf"), 1e308, [], {}),
        *(
            "",
            "soon",
            "1774747800",
            "2026-03-29",
            "2026-03-29T01:30:00",
            "2026-02-30T01:30:00Z",
            "2026-03-29T25:00:00Z",
        ),
        *(
            "2026-03-29T01:30:00.1234567890Z",
            "2026-03-29T01:30:00.Z",
            "2026-03-29T01:30:00+2:00",
            " 2026-03-29T01:30:00Z",
        ),
        *("0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59-99:99", "0001-01-01T00:00:00+23:59"),
        *("٢٠٢٦-03-29T01:30:00Z", "2026-03-29T01:30:00Z\n"),
    ],
)
def test_an_unreadable_timestamp_is_ignored(value: object) -> None:
    assert read_time_ms(value) is None


@given(st.integers() | st.floats() | st.text() | st.none())
def test_no_timestamp_or_hint_raises(value: object) -> None:
    moment, hint = read_time_ms(value), hint_ms(value)
    assert moment is None or 0 <= moment <= 253402300799_999
    assert hint is None or 0 < hint <= ONE_YEAR


@given(st.integers(86_400, 253_402_214_399), st.integers(-(23 * 60 + 59), 23 * 60 + 59))
def test_any_rfc_3339_time_is_read_whatever_its_offset(seconds: int, offset_minutes: int) -> None:
    zone = timezone(timedelta(minutes=offset_minutes))
    assert read_time_ms(datetime.fromtimestamp(seconds, zone).isoformat()) == seconds * 1000


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        *[(5, 5_000), ("5", 5_000), ("2.5", 2_500), (0.001, 1), (0.0001, 1), (30, 30_000), (2592000, 2592000_000)],
        *[(10**18, ONE_YEAR), (10**400, ONE_YEAR), (1e308, ONE_YEAR), ("9" * 64, ONE_YEAR)],
        *[(0, None), (-1, None), (0.0, None), ("0", None), (None, None), ("soon", None), ("5s", None), ("-5", None)],
        *[("", None), (True, None), (float("nan"), None), (float("inf"), None), ([5], None), ("9" * 65, None)],
    ],
)
def test_a_poll_hint_is_a_positive_wait_or_nothing(value: object, wait: int | None) -> None:
    assert hint_ms(value) == wait


@given(st.integers(0, MAX_TIME_MS))
def test_a_time_of_our_own_is_read_as_it_was_written(at: int) -> None:
    assert read_time_ms(rfc3339(at, "milliseconds")) == at
    assert read_time_ms(rfc3339(at)) == at - at % 1000


def test_a_time_of_our_own_ends_with_a_z() -> None:
    assert (rfc3339(NOW + 999), rfc3339(NOW, "milliseconds")) == ("2026-11-29T12:00:00Z", "2026-11-29T12:00:00.000Z")

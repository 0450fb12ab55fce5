"""Which conditions people are told of: typed by hand, each with the moment from which it stands."""

import pytest

from reconcile import notices
from reconcile.limits import NO_PAUSE, Pause
from reconcile.states import State
from tests.reconcile.rows import DAY, MINUTE, NOW, in_state

GIB = 1 << 30


def pause(reason: str, *, since: int, until: int) -> Pause:
    return Pause(until_ms=until, reason=reason, failures=3, opened_at_ms=since)


@pytest.mark.parametrize(
    ("reason", "told"), [("credentials_refused", "credentials_refused"), ("create_not_accepted", "provider_paused")]
)
def test_a_pause_that_only_a_person_can_end_is_told_at_once(reason: str, told: str) -> None:
    notice = notices.of_pause("openai", pause(reason, since=NOW, until=NOW + 1), NOW)
    assert notice is not None
    assert (notice.reason, notice.provider, notice.since) == (told, "openai", NOW)


@pytest.mark.parametrize(
    ("since", "until", "stands"),
    [
        (NOW, NOW + MINUTE, False),
        (NOW - 4 * MINUTE, NOW + 59_999, False),
        (NOW, NOW + 5 * MINUTE, True),
        (NOW - 5 * MINUTE, NOW - 1, True),
    ],
    ids=["a minute", "not quite five", "a long Retry-After", "probes that go on failing"],
)
def test_any_other_pause_is_told_once_it_lasts_five_minutes(since: int, until: int, stands: bool) -> None:
    notice = notices.of_pause("openai", pause("rate_limited", since=since, until=until), NOW)
    assert (notice is not None) is stands
    if notice is not None:
        assert (notice.reason, notice.since) == ("provider_paused", since)


def test_a_provider_that_answers_is_no_notice() -> None:
    assert notices.of_pause("openai", NO_PAUSE, NOW) is None


def test_a_result_that_is_not_here_is_told_before_and_after_the_provider_drops_it() -> None:
    soon = notices.of_result(in_state(State.RESULT_UNAVAILABLE, results_kept_until=NOW + DAY), NOW)
    late = notices.of_result(in_state(State.RESULT_UNAVAILABLE, results_kept_until=NOW), NOW)
    assert soon is not None
    assert late is not None
    assert (soon.reason, soon.operation_id) == ("result_expiring", "op_1")
    assert "will soon drop" in soon.message
    assert "has dropped" in late.message
    assert notices.of_result(in_state(State.RESULT_UNAVAILABLE), NOW) is None


def test_a_disk_is_low_below_one_gibibyte() -> None:
    assert notices.of_disk(GIB, NOW) is None
    assert notices.of_disk(GIB - 1, NOW) is not None


def test_a_step_of_the_clock_is_told_with_its_way_and_length() -> None:
    forward, back = notices.of_clock(6_000, NOW).message, notices.of_clock(-DAY, NOW).message
    assert "forward by 6 s" in forward
    assert "back by 86400 s" in back
    assert "early" in forward
    assert "late" not in forward
    assert "cut" not in forward, "waits are cut only where the clock went back"
    assert "late" in back
    assert "early" not in back
    assert "cut" in back

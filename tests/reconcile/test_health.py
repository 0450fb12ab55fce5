"""When webhooks count as healthy, and when people are told that they do not come: typed by hand from design.md."""

import pytest

from reconcile.health import is_healthy, with_end
from reconcile.notices import of_silence
from tests.reconcile.rows import NOW


@pytest.mark.parametrize(
    ("recent", "healthy"),
    [
        ("", False),
        ("1" * 19, False),  # not known yet: 20 ends are looked back upon
        ("1" * 20, True),
        ("0" + "1" * 19, True),
        ("1" * 19 + "0", True),
        ("1" * 10 + "0" + "1" * 9, True),
        ("00" + "1" * 18, False),
        ("0" * 20, False),
    ],
)
def test_webhooks_are_healthy_when_19_of_the_last_20_ends_were_announced(recent: str, healthy: bool) -> None:
    assert is_healthy(recent) is healthy


def test_the_window_holds_the_last_20_ends_newest_last() -> None:
    recent = ""
    for number in range(25):
        recent = with_end(recent, announced=number >= 4)
    assert recent == "1" * 20
    assert with_end(recent, announced=False) == "1" * 19 + "0"
    assert with_end("", announced=True) == "1"


def test_a_second_miss_within_20_ends_ends_the_health_and_20_good_ones_bring_it_back() -> None:
    recent = with_end("1" * 20, announced=False)
    assert is_healthy(recent)
    recent = with_end(recent, announced=False)
    assert not is_healthy(recent)
    for _ in range(18):
        recent = with_end(recent, announced=True)
        assert not is_healthy(recent)
    assert is_healthy(with_end(recent, announced=True))


@pytest.mark.parametrize(
    ("recent", "is_told"),
    [
        ("", False),
        ("00", False),
        ("0000", False),  # fewer than 5 ends are known
        ("00000", True),
        ("11100", True),
        ("11110", False),  # one miss is weather
        ("0" + "1" * 18, False),
        ("00" + "1" * 17, True),
        ("0" + "1" * 19, False),  # healthy
        ("1" * 20, False),
        ("00" + "1" * 18, True),
    ],
)
def test_silence_is_told_from_two_misses_among_five_ends_on(recent: str, is_told: bool) -> None:
    assert (of_silence("openai", recent, NOW) is not None) is is_told


def test_the_notice_names_the_provider_the_numbers_and_what_to_look_at() -> None:
    notice = of_silence("openai", "11100", NOW)
    assert notice is not None
    assert (notice.notice_id, notice.since, notice.provider) == ("webhooks_silent.openai", NOW, "openai")
    assert notice.evidence == {"ends": 5, "missed": 2}
    assert "2 of the last 5 ends of openai came without their webhook" in notice.message

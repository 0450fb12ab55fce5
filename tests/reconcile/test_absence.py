"""Which operations may be asked about, as the configuration stands, and what people are told where none may."""

import pytest
from yarl import URL

from reconcile.absence import OpenAt, Served, notices, origin_of, question
from reconcile.model import Absence
from reconcile.notice import Notice

NOW = 1_800_000_000_000
OLD, NEW, ELSEWHERE = "https://old.example", "https://new.example", "http://new.example"
SERVED = Served({"a": frozenset({NEW}), "b": frozenset({NEW, OLD})})


@pytest.mark.parametrize(
    ("provider", "origin", "absence"),
    [
        ("a", NEW, None),
        ("a", None, None),
        ("a", OLD, "provider_moved"),
        ("a", ELSEWHERE, "provider_moved"),
        ("a", f"{NEW}:8443", "provider_moved"),
        ("b", OLD, None),
        ("c", NEW, "provider_missing"),
        ("c", None, "provider_missing"),
    ],
)
def test_where_an_operation_may_be_asked_about(provider: str, origin: str | None, absence: str | None) -> None:
    """Scheme, host and port must be those that it was started at, or that `moved_from` names."""
    assert SERVED.absence(provider, origin) == absence


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://api.example/v1", "https://api.example"),
        ("https://api.example:443", "https://api.example"),
        ("https://API.example/", "https://api.example"),
        ("http://api.example:443/v1", "http://api.example:443"),
        ("http://127.0.0.1:8790/v1", "http://127.0.0.1:8790"),
        ("http://[::1]:80/v1", "http://[::1]"),
        ("https://exämple.de", "https://xn--exmple-cua.de"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, origin: str) -> None:
    assert origin_of(URL(url)) == origin


def test_one_notice_tells_of_all_operations_of_a_provider() -> None:
    standing = [
        OpenAt("a", NEW, 7),
        OpenAt("a", OLD, 2),
        OpenAt("a", ELSEWHERE, 3),
        OpenAt("b", OLD, 4),
        OpenAt("c", NEW, 1),
        OpenAt("c", None, 5),
    ]
    moved, missing = notices(SERVED, standing, now=NOW)
    assert (moved.notice_id, moved.since, moved.evidence) == (
        "provider_moved.a",
        NOW,
        {"operations": 5, "origins": [OLD, ELSEWHERE]},
    )
    assert "moved_from of [providers.a]" in moved.message
    assert (missing.notice_id, missing.evidence) == ("provider_missing.c", {"operations": 6})
    assert "Put [providers.c] back" in missing.message


def test_a_notice_stays_the_same_while_only_the_count_changes() -> None:
    """Else an acknowledged one would be told again."""

    def message(count: int) -> str:
        (told,) = notices(SERVED, [OpenAt("c", NEW, count)], now=NOW)
        return told.message

    assert message(1) == message(2)


@pytest.mark.parametrize("standing", [[], [OpenAt("a", NEW, 7), OpenAt("b", OLD, 4), OpenAt("a", None, 1)]])
def test_where_everything_may_be_asked_about_nobody_is_told(standing: list[OpenAt]) -> None:
    assert notices(SERVED, standing, now=NOW) == ()


def test_the_question_names_what_puts_it_right() -> None:
    gone = question(Absence.MISSING, "openai", started_at=OLD, is_at="http://missing.invalid")
    assert "[providers.openai]" in gone
    assert "invalid" not in gone
    moved = question(Absence.MOVED, "openai", started_at=OLD, is_at=NEW)
    for part in (OLD, NEW, "moved_from of [providers.openai]", "base_url"):
        assert part in moved


def test_the_reasons_are_those_of_the_page() -> None:
    assert sorted(Absence) == ["provider_missing", "provider_moved"]
    assert Notice(Absence.MISSING, NOW, "", provider="a").notice_id == "provider_missing.a"

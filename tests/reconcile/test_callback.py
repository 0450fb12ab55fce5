"""Callbacks as values: which URLs lie under one, when a delivery is tried again, and when not."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from reconcile.callback import Attempt, Callback, CallbackEvent, Callbacks, Fate, after
from reconcile.errors import RequestInvalid
from reconcile.intents import CallbackWish
from reconcile.signatures import Key, KeyType

KEYS = (Key(KeyType.HMAC, b"k" * 24),)
#: The schedule of the design, typed by hand, ms.
WAITS = [5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 36_000_000]
HOUR = 3_600_000


def callback(name: str = "ci", url: str = "https://ci.example.com/hooks/", **more: Any) -> Callback:
    return Callback(name, URL(url), KEYS, **more)


CI = Callbacks([callback()])

LIES_UNDER = {
    "https://ci.example.com/hooks/": "https://ci.example.com/hooks/",
    "https://ci.example.com/hooks/build/7": "https://ci.example.com/hooks/build/7",
    "HTTPS://CI.Example.COM/hooks/x": "https://ci.example.com/hooks/x",
    "https://ci.example.com:443/hooks/x": "https://ci.example.com/hooks/x",
    "https://ci.example.com/hooks/x?build=7&by=ana": "https://ci.example.com/hooks/x?build=7&by=ana",
    "https://ci.example.com/%68ooks/x": "https://ci.example.com/hooks/x",
    "https://ci.example.com/hooks/a%20b": "https://ci.example.com/hooks/a%20b",
    "https://ci.example.com/hooks/...": "https://ci.example.com/hooks/...",
    "https://ci.example.com/hooks/x?next=../y": "https://ci.example.com/hooks/x?next=../y",
    "https://ci.example.com/hooks//x": "https://ci.example.com/hooks//x",
}
DOES_NOT = (
    "", "x", "/hooks/x", "//ci.example.com/hooks/x", "ci.example.com/hooks/x", "file:///hooks/x",
    "ftp://ci.example.com/hooks/x", "javascript:alert(1)", "https:ci.example.com/hooks/x", "https:///hooks/x",
    "http://ci.example.com/hooks/x", "https://ci.example.com:8443/hooks/x", "https://ci.example.com:80/hooks/x",
    "https://ci.example.com", "https://ci.example.com/", "https://ci.example.com/hooks", "https://ci.example.com/Hooks/x",
    "https://ci.example.com/hooksx", "https://ci.example.com./hooks/x", "https://evil.example/hooks/x",
    "https://ci.example.com.evil.example/hooks/x", "https://evil.example#@ci.example.com/hooks/x",
    "https://ci.example.com@evil.example/hooks/x", "https://evil.example@ci.example.com/hooks/x",
    "https://user:pw@ci.example.com/hooks/x", "https://@ci.example.com/hooks/x",
    "https://ci.example.com/hooks/x#top", "https://ci.example.com/hooks/x#", "https://ci.example.com/hooks/#/../x",
    "https://ci.example.com/hooks/../x", "https://ci.example.com/hooks/..", "https://ci.example.com/hooks/./x",
    "https://ci.example.com/hooks/%2e%2e/x", "https://ci.example.com/hooks/%2E./x", "https://ci.example.com/hooks/.%2e",
    "https://ci.example.com/hooks/%252e%252e/x", "https://ci.example.com/hooks/%25252e%25252e/x",
    "https://ci.example.com/hooks/..%2fx", "https://ci.example.com/hooks/%2e%2e%2fx", "https://ci.example.com/hooks/a%2Fb",
    "https://ci.example.com/hooks/a%252Fb", "https://ci.example.com/hooks/..;/x", "https://ci.example.com/hooks/..;a=b/x",
    "https://ci.example.com/hooks/%2e%2e;/x", "https://ci.example.com/hooks\\..\\x", "https://ci.example.com/hooks/..%5cx",
    "https://ci.example.com/hooks/a%5cb", "https://ci.example.com\\@evil.example/hooks/x",
    "https://ci.example.com/hooks/a b", " https://ci.example.com/hooks/x", "https://ci.example.com/hooks/x\n",
    "https://ci.example.com/hooks/x\r\nHost: evil", "https://ci.example.com/hooks/a%00b", "https://ci.example.com/hooks/a%0d%0ab",
    "https://ci.example.com/hooks/ü", "https://ci.example.com/hooks/%", "https://ci.example.com/hooks/%zz",
    "https://ci.example.com/hooks/<x>", "https://ci.example.com:x/hooks/x", "https://ci.example.com:99999/hooks/x",
    "https://ci.example.com/x/../hooks/y", "https://ci.example.com/hooks/" + "%" + "25" * 20 + "2e",
    "https://ci.example.com/hooks/" + "x" * 3_000,
)  # fmt: skip


@pytest.mark.parametrize("given", LIES_UNDER)
def test_a_url_under_a_callback_is_taken_and_spelled_in_one_way(given: str) -> None:
    assert CI.choose(given) == CallbackWish("ci", LIES_UNDER[given])


@pytest.mark.parametrize("given", DOES_NOT)
def test_whatever_could_be_another_place_is_refused_at_its_field(given: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        CI.choose(given)
    assert (refused.value.pointer, refused.value.status) == ("/callback_url", 422)


@given(st.text(max_size=60))
def test_no_text_is_anything_but_taken_or_refused(tail: str) -> None:
    for text in (tail, "https://ci.example.com/hooks/" + tail):
        try:
            taken = URL(CI.choose(text).url, encoded=True)
        except RequestInvalid:
            continue
        assert (taken.host, taken.raw_path.startswith("/hooks/")) == ("ci.example.com", True)
        assert ".." not in taken.path.split("/")


def test_a_refusal_names_what_is_allowed_and_hides_a_query() -> None:
    with pytest.raises(RequestInvalid) as refused:
        CI.choose("https://evil.example/x?token=abc")
    assert "https://ci.example.com/hooks/" in refused.value.message
    assert "abc" not in refused.value.message


def test_without_a_callback_the_refusal_says_that_there_is_none() -> None:
    with pytest.raises(RequestInvalid, match=r"no \[callbacks.NAME\] is configured"):
        Callbacks().choose("https://ci.example.com/hooks/x")


def test_of_several_that_cover_a_url_the_longest_path_wins() -> None:
    both = Callbacks(
        [
            callback("all", "https://ci.example.com/"),
            callback("hooks"),
            callback("deep", "https://ci.example.com/hooks/deep"),
        ]
    )
    assert both.choose("https://ci.example.com/hooks/deep/x").name == "deep"
    assert both.choose("https://ci.example.com/hooks/deep").name == "deep"
    assert both.choose("https://ci.example.com/hooks/deeper").name == "hooks"
    assert both.choose("https://ci.example.com/x").name == "all"


def test_the_root_covers_its_whole_origin() -> None:
    root = Callbacks([callback(url="http://127.0.0.1:9000")])
    for path in ("", "/", "/x/y"):
        assert root.choose(f"http://127.0.0.1:9000{path}").name == "ci"


def test_one_that_is_gone_from_the_configuration_is_told_everything() -> None:
    wish = CallbackWish("ci", "https://ci.example.com/hooks/x")
    some = Callbacks([callback(events=frozenset({CallbackEvent.DONE}))])
    assert [some.wants(wish, event) for event in CallbackEvent] == [True, False]
    assert [Callbacks().wants(wish, event) for event in CallbackEvent] == [True, True]


@pytest.mark.parametrize(
    ("url", "is_by_name"),
    [
        ("https://ci.example.com/", True),
        ("http://127.0.0.1:1/", False),
        ("http://[::1]/", False),
        ("http://localhost/", False),
        ("http://127.1/", True),
        ("http://2130706433/", True),
        ("http://0x7f.1/", True),
        ("http://sub.localhost/", True),
    ],
)
def test_only_what_is_written_out_is_trusted_as_it_is_written(url: str, is_by_name: bool) -> None:
    assert callback(url=url).is_by_name is is_by_name


# ---- attempts --------------------------------------------------------------------------------------------------------


def fate(status: int | None, *, attempts: int = 0, draw: float = 0.0, **more: Any) -> Fate:
    return after(Attempt(status, **more), attempts=attempts, now=1_000, draw=draw)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_ends_it(status: int) -> None:
    assert fate(status, attempts=3) == Fate("delivered", 4, None, status, None)


@pytest.mark.parametrize("status", [301, 302, 307, 308, 304, 400, 401, 404, 409, 429, 500, 502, 503, None])
def test_everything_else_is_tried_again_by_the_schedule_and_then_given_up(status: int | None) -> None:
    attempts, waited = 0, []
    while (now := after(Attempt(status, None if status else "timeout"), attempts=attempts, now=0, draw=0.0)).due_at:
        assert now.state == "waiting"
        attempts = now.attempts
        waited.append(now.due_at)
    assert waited == WAITS
    assert (now.state, now.attempts, now.due_at) == ("exhausted", 8, None)


def test_410_asks_never_to_come_again() -> None:
    assert fate(410) == Fate("exhausted", 1, None, 410, "http_410")


def test_a_redirect_is_a_failure_that_says_so() -> None:
    assert fate(307).error == "redirect_not_followed"


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 6))
def test_jitter_makes_a_wait_longer_and_never_shorter(draw: float, attempts: int) -> None:
    due_at = fate(500, attempts=attempts, draw=draw).due_at
    assert due_at is not None
    assert WAITS[attempts] <= due_at - 1_000 <= WAITS[attempts] * 1.2 + 1


@pytest.mark.parametrize(
    ("asked", "waits"), [(0, 5_000), (60_000, 60_000), (10 * HOUR, 10 * HOUR), (1000 * HOUR, 10 * HOUR)]
)
def test_what_the_target_asks_for_is_respected_up_to_ten_hours(asked: int, waits: int) -> None:
    assert fate(503, retry_after_ms=asked).due_at == 1_000 + waits

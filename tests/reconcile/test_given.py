"""What a client gave: spans are spelled one way, wherever they stand."""

from typing import Any

import pytest

from reconcile.given import span_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [("200ms", 200), ("1s", 1_000), ("30s", 30_000), ("10m", 600_000), ("26h", 93_600_000), ("7d", 604_800_000)],
)
def test_a_span_is_read_in_ms(text: str, ms: int) -> None:
    """interface.md's examples."""
    assert span_ms(text) == ms


NO_TEXT: list[Any] = [5, 1.5, True, None, [], {}, ["1s"], b"1s"]
OTHER_TEXT = [
    "",
    "5",
    "s",
    "1 s",
    " 1s",
    "1s ",
    "1s\n",
    "-1s",
    "+1s",
    "1.5h",
    "1w",
    "1S",
    "0s",
    "000ms",
    "٣s",
    "1234567890s",
]


@pytest.mark.parametrize("value", [*OTHER_TEXT, *NO_TEXT])
def test_whatever_else_is_given_is_no_span(value: Any) -> None:
    assert span_ms(value) is None

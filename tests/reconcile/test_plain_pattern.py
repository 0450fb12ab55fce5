"""What looking for a pattern costs at most: enough for the worst text, little for what people really write."""

import pytest

from reconcile.errors import Unreadable
from reconcile.plain_pattern import PlainPattern

UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.mark.parametrize(
    ("pattern", "length", "at_least"),
    [
        ("b", 1_000_000, 1_000_000),
        ("a{999}" * 42 + "b", 1_000_000, 42 * 999 * 1_000_000),
        ("^" + "a{999}" * 42 + "b", 50_000, 42 * 999),
        ("^a{999}", 10, 10),
        ("^a*a*$", 1_000, 1_000 * 1_000),
        ("a*a*b", 1_000, 1_000 * 1_000 * 1_000),
        ("^a{3,}a{3,}b", 1_000, 900 * 900),
        ("^a{0,20}a{0,20}a{0,20}b", 100, 20 * 20 * 20),
        ("^" + "a?" * 20 + "b", 30, 2**20),
        ("[" + "\U00010300\U00010500" * 50 + "]", 1_000, 10 * 1_000),
    ],
)
def test_the_cost_that_is_told_is_no_less_than_the_worst_case(pattern: str, length: int, at_least: int) -> None:
    """Counts written by hand: starts, times the choices of counts, times the characters gone along."""
    assert PlainPattern(pattern).tries(length) >= at_least


@pytest.mark.parametrize(
    ("pattern", "length", "at_most"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", 10, 50),
        (f"^{UUID}$", 36, 200),
        (UUID, 36, 5_000),
        ("^a+$", 1_000, 3_000),
        ("x{3}", 1_000, 10_000),
    ],
)
def test_an_exact_count_leaves_no_choice_and_so_costs_little(pattern: str, length: int, at_most: int) -> None:
    assert PlainPattern(pattern).tries(length) <= at_most


def test_the_reason_for_a_refusal_says_nothing_of_the_pattern() -> None:
    with pytest.raises(Unreadable, match=r"^has more than 256 characters$"):
        PlainPattern("x" * 257)
    with pytest.raises(Unreadable, match=r"^is no regular expression$"):
        PlainPattern("a{9,2}")

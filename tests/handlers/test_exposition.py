"""The text format itself: escaped, ordered, each family told once."""

import pytest

from handlers.exposition import render
from reconcile.meter_families import Family, Spread
from tests.prometheus import read

COUNTER = Family("x_total", "counter", "What it is.", ("a", "b"))
HISTOGRAM = Family("x_seconds", "histogram", "What it is.", ("a",), (0.5, 1.0, 10.0))


@pytest.mark.parametrize("value", ['"', "\\", "\n", 'a"b\\c\nd', '\\"', "\\n", "},x=", "ü", ""])
def test_whatever_a_label_holds_comes_back_as_it_was(value: str) -> None:
    family = read(render([(COUNTER, [((("a", value), ("b", "1")), 7)])]))["x_total"]
    assert family.value("", a=value, b="1") == 7


def test_help_of_several_lines_stays_one_line() -> None:
    text = render([(Family("x", "gauge", "a\nb\\n"), [((), 1)])])
    assert text == "# HELP x a\\nb\\\\n\n# TYPE x gauge\nx 1\n"


def test_every_series_of_a_family_has_all_its_labels_in_one_order() -> None:
    text = render([(COUNTER, [((("b", "2"), ("a", "1")), 3), ((("a", "0"),), 4)])])
    assert text.splitlines()[2:] == ['x_total{a="0",b=""} 4', 'x_total{a="1",b="2"} 3']


def test_a_histogram_tells_how_many_came_up_to_each_bound() -> None:
    text = render([(HISTOGRAM, [((("a", "1"),), Spread((2, 0, 3, 1), 41.25))])])
    assert text.splitlines()[2:] == [
        'x_seconds_bucket{a="1",le="0.5"} 2',
        'x_seconds_bucket{a="1",le="1"} 2',
        'x_seconds_bucket{a="1",le="10"} 5',
        'x_seconds_bucket{a="1",le="+Inf"} 6',
        'x_seconds_sum{a="1"} 41.25',
        'x_seconds_count{a="1"} 6',
    ]


def test_a_family_of_which_nothing_is_known_is_told_all_the_same() -> None:
    assert read(render([(COUNTER, [])]))["x_total"].samples == {}


@pytest.mark.parametrize(
    "text",
    [
        "x 1\n",
        "# HELP x a\nx 1\n",
        "# HELP x a\n# TYPE x gauge\nx 1",
        "# HELP x a\n# TYPE x gauge\ny 1\n",
        "# HELP x a\n# TYPE x gauge\nx 1\nx 1\n",
        '# HELP x a\n# TYPE x gauge\nx{a="\n"} 1\n',
        '# HELP x a\n# TYPE x gauge\nx{a="b"c"} 1\n',
        "# HELP x a\n# TYPE x counter\nx 1\n",
        "# HELP x a\n# TYPE x gauge\nx 1\n# HELP x a\n# TYPE x gauge\n",
        '# HELP x a\n# TYPE x histogram\nx_bucket{le="1"} 2\nx_bucket{le="+Inf"} 1\nx_sum 1\nx_count 1\n',
    ],
)
def test_the_reader_of_these_tests_takes_no_text_that_is_wrong(text: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        read(text)

"""The client's promises about a result that are no schema."""

import pytest

from reconcile.balance import add_up
from reconcile.errors import RequestInvalid
from reconcile.model import Operation
from reconcile.promises import Expected, is_of_type
from reconcile.states import State
from reconcile.store.items import Tally
from tests.reconcile.store.ground import operation


@pytest.mark.parametrize(
    ("promised", "seen", "kept"),
    [
        ("application/jsonl", "application/jsonl", True),
        ("application/jsonl", "Application/JSONL; charset=utf-8", True),
        ("application/jsonl", "application/json", False),
        ("application/jsonl", None, False),
        ("application/jsonl", "", False),
        ("text/csv; charset=utf-8", "text/csv", False),
        ("text/csv; charset=utf-8", 'text/csv;header=present;Charset="UTF-8"', True),
        ("text/csv; charset=utf-8", "text/csv; charset=latin-1", False),
        ("text/csv", "text/csv;;", True),
    ],
)
def test_a_content_type_is_compared_without_parameters_unless_some_were_promised(
    promised: str, seen: str | None, kept: bool
) -> None:
    assert is_of_type(promised, seen) is kept


@pytest.mark.parametrize(
    ("expected", "pointer"),
    [
        (Expected(items=3), "/expect/items"),
        (Expected(ids=("a",)), "/expect/items"),
        (Expected(ids=("a", "c")), "/expect/items/1"),
        (Expected(ids=("b", "a", "c")), "/expect/items/2"),
    ],
)
def test_what_contradicts_the_items_sent_is_refused(expected: Expected, pointer: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        expected.agree({"a", "b"})
    assert refused.value.pointer == pointer


@pytest.mark.parametrize("expected", [Expected(), Expected(items=2), Expected(ids=("b", "a"))])
def test_what_only_repeats_the_items_sent_is_taken(expected: Expected) -> None:
    expected.agree({"a", "b"})


def test_only_what_was_promised_is_kept() -> None:
    """The ids become the submitted ones, and stand nowhere twice."""
    assert Expected(ids=("a",)).kept() == {}
    full = Expected(items=2, content_type="text/csv", sha256="ab", json_schema={})
    assert full.kept() == {"items": 2, "content_type": "text/csv", "sha256": "ab", "json_schema": {}}


def counted(promised: int | None, told: int | None) -> Operation:
    return operation(
        1,
        State.RESULT_COLLECTING,
        input_items=None,
        total_items=told,
        expect={} if promised is None else {"items": promised},
    )


@pytest.mark.parametrize(
    ("promised", "told", "absent", "expected", "total"),
    [
        (3, None, "missing", (None, None), 3),
        (3, 7, "missing", (None, None), 3),
        (4, 3, "missing", (4, 3), 4),
        (2, 3, "missing", (2, 3), 3),
        (None, 4, "missing", (4, 3), 4),
        (None, None, "missing", (None, None), 3),
        (4, None, "cancelled", (None, None), 4),
        (2, None, "cancelled", (2, 3), 3),
    ],
)
def test_a_promised_count_goes_before_the_providers(
    promised: int | None, told: int | None, absent: str, expected: tuple[int | None, int | None], total: int
) -> None:
    """Three items were found. What a cancelled job lacks of its count was cancelled: it breaks nothing."""
    tally = Tally({"succeeded": 3}, (), (), (), 3)
    summary, problems = add_up(tally, absent, counted(promised, told), ())
    assert (problems.expected, problems.found) == expected
    assert (summary.total, summary.succeeded) == (total, 3)

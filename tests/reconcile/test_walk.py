"""What one sweep has seen of the jobs that it set out to see, and when it turns to another page."""

from hypothesis import given
from hypothesis import strategies as st

from reconcile.contract import Lookup
from reconcile.model import Observation
from reconcile.provider import Page
from reconcile.walk import Keys, Scope, Walk
from tests.reconcile.rows import MINUTE, NOW

LOOKUP = Lookup(is_sure=True, page_size=100)
KEYS = st.sets(st.integers(0, 5_000))


def keys_of(*keys: int) -> Keys:
    found = Keys()
    for at in range(0, len(keys), 3):  # slice by slice, as a scope is read
        found.add(keys[at : at + 3])
    return found


def walk(*open_jobs: int) -> Walk:
    scope = Scope()
    for key in open_jobs:
        scope.add([key], NOW)
    return Walk(fence=1, trace_id="0" * 32, began_at=NOW, renewed_at=NOW, scope=scope)


def page(next_cursor: str | None, *created_at: int) -> Page:
    return Page(tuple(Observation("running", remote_job_id="j", created_at=at) for at in created_at), next_cursor)


@given(KEYS, KEYS)
def test_keys_are_a_set_of_numbers(there: set[int], taken: set[int]) -> None:
    keys = keys_of(*sorted(there))
    for key in taken:
        keys.discard(key)
        keys.discard(key)
    left = there - taken
    assert (len(keys), list(keys)) == (len(left), sorted(left))
    assert all((key in keys) is (key in left) for key in range(-9, 5_020))


def test_keys_take_a_bit_each_from_the_first_one_on() -> None:
    """A file that bore a thousand million operations costs an account of two open jobs two bytes."""
    keys = keys_of(10**9, 10**9 + 15)
    assert len(keys._bits) == 2
    assert list(keys) == [10**9, 10**9 + 15]


def test_what_a_sweep_did_not_set_out_to_see_stands_for_nothing_that_it_did() -> None:
    """Jobs that were accepted meanwhile, before, after and between its own, are the next sweep's."""
    on = walk(3, 5, 9)
    on.see([1, 4, 6, 7, 11, 12])
    assert not on.has_seen_all
    on.see([3, 5, 3, 5])
    assert list(on.scope.unseen) == [9]
    on.see([9])
    assert on.has_seen_all


def test_a_scope_knows_how_many_jobs_it_has_and_how_old_the_oldest_is() -> None:
    assert (Scope().open_jobs, Scope().oldest_at, walk().has_seen_all) == (0, None, True)
    scope = Scope()
    for key, created_at in ((1, NOW), (2, NOW - MINUTE), (9, NOW + MINUTE)):
        scope.add([key], created_at)
    assert (scope.open_jobs, scope.oldest_at) == (3, NOW - MINUTE)


def test_a_sweep_goes_on_until_all_was_seen_the_list_ends_circles_grows_old_or_is_too_long() -> None:
    on = walk(1)
    assert not on.turn(page(None), LOOKUP)
    assert on.turn(page("a"), LOOKUP)
    assert on.cursor == "a"
    assert on.turn(page("b"), LOOKUP)
    assert not on.turn(page("a"), LOOKUP)
    ordered = Lookup(is_sure=True, page_size=100, skew_ms=MINUTE)
    assert on.turn(page("c", NOW - MINUTE), ordered)
    assert not on.turn(page("d", NOW - MINUTE - 1), ordered)
    on.pages = 20
    assert not on.turn(page("e"), LOOKUP)
    seen = walk(1)
    seen.see([1])
    assert not seen.turn(page("a"), LOOKUP)

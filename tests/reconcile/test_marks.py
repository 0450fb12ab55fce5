"""The mark in item ids: put on for the provider, taken off whatever pieces the bytes come in."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reconcile import marks

MARK = "0123456789ab"


def taken_off(data: bytes, cuts: list[int]) -> tuple[bytes, list[bool]]:
    """The bytes that pass when they come in pieces, and what is said of each line."""
    off = marks.TakenOff(MARK)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    passed = b"".join(off.feed(data[a:b]) for a, b in pairwise(edges)) + off.end()
    return passed, [off.next_line() for _ in data.split(b"\n")]


def test_a_mark_is_the_random_end_of_the_operation_id() -> None:
    assert marks.of("op_01JDfedcba0123456789ab") == MARK
    assert marks.put_on(MARK, "q-1") == "0123456789ab_q-1"
    assert len(marks.put_on(MARK, "")) == marks.ADDED == 13


@given(
    st.lists(
        st.sampled_from([b'{"custom_id":"', b"0123456789ab_", b"0123456789ab", b"_", b"0", b"q-1", b"\n", b"\xff"])
    ),
    st.lists(st.integers(min_value=0, max_value=200)),
)
def test_the_mark_is_taken_off_however_the_bytes_are_cut(pieces: list[bytes], cuts: list[int]) -> None:
    data = b"".join(pieces)
    passed, lines = taken_off(data, cuts)
    assert passed == data.replace(b"0123456789ab_", b"")
    assert lines == [b"0123456789ab_" in line for line in data.split(b"\n")]


def test_an_id_without_the_mark_cannot_be_taken_for_one_that_was_sent() -> None:
    passed, lines = taken_off(b'{"custom_id":"0123456789ab_q-1"}\n{"custom_id":"q-2"}\n', [20])
    assert passed == b'{"custom_id":"q-1"}\n{"custom_id":"q-2"}\n'
    assert lines == [True, False, False]
    assert marks.of_a_stranger("q-2") == "unmarked: q-2"

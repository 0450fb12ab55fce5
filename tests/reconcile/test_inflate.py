"""gzip taken off piece by piece: whole, bounded, and never a cut stream for a whole one."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.errors import OutcomeUnknown
from reconcile.inflate import MAX_FRAMES, PIECE, Gunzip, Plain, decoder


def taken_off(data: bytes, step: int = 7) -> bytes:
    coding, out = Gunzip(), b""
    for at in range(0, len(data), step):
        out += b"".join(coding.pieces(data[at : at + step]))
    coding.end()
    return out


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(1, 400))
def test_members_in_a_row_are_one_content_however_they_arrive(parts: list[bytes], step: int) -> None:
    assert taken_off(b"".join(map(gzip.compress, parts)), step) == b"".join(parts)


@given(st.binary(max_size=200), st.data())
def test_a_stream_that_ends_too_early_is_never_whole(content: bytes, data: st.DataObject) -> None:
    """Wherever it is cut but before its first byte: an empty body is an empty result, and the lines tell."""
    whole = gzip.compress(content)
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(OutcomeUnknown) as fault:
        taken_off(whole[:cut])
    assert fault.value.error_class == "cut"


@pytest.mark.parametrize(
    "data", [b"junk", b"\x1f\x8b\x08\x00junk", gzip.compress(b"x")[:-8] + b"\0" * 8, b"\x1f\x8b\x09"]
)
def test_what_is_no_gzip_is_told(data: bytes) -> None:
    with pytest.raises(OutcomeUnknown):
        taken_off(data)


def test_what_follows_a_member_is_no_content() -> None:
    with pytest.raises(OutcomeUnknown):
        taken_off(gzip.compress(b"x") + b"junk")


def test_members_and_blocks_that_hold_nothing_are_cut_off() -> None:
    """S33: a cap on the content would never count them."""
    nothing = gzip.compress(b"")
    block = gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 100_000  # stored blocks of no length, without an end
    for data in (nothing * 1_000_000, block, (nothing * 1_000 + gzip.compress(b"x")) * 100):
        with pytest.raises(OutcomeUnknown) as fault:
            taken_off(data[: 2 * MAX_FRAMES], 4_096)
        assert fault.value.error_class == "bad_encoding"


def test_empty_members_among_others_are_taken() -> None:
    lines = [b"" if n % 3 else b'{"id": %d}\n' % n for n in range(30_000)]
    assert taken_off(b"".join(map(gzip.compress, lines)), PIECE) == b"".join(lines)


@pytest.mark.parametrize("step", [1, 63, 64, 65, 4_096, 10**9])
def test_a_large_member_between_small_ones_comes_out_whole_in_any_steps(step: int) -> None:
    parts = [b"a", b"", bytes(range(256)) * 600, b"\0" * (2 * PIECE), b"z"]
    assert taken_off(b"".join(map(gzip.compress, parts)), step) == b"".join(parts)


@pytest.mark.parametrize("size", [PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 50 * PIECE])
def test_no_piece_is_larger_than_its_bound(size: int) -> None:
    """A bomb is counted while it grows. A size of whole pieces leaves bytes inside zlib, which must come out too."""
    coding = Gunzip()
    pieces = list(coding.pieces(gzip.compress(b"\0" * size)))
    coding.end()
    assert max(map(len, pieces)) <= PIECE
    assert sum(map(len, pieces)) == size


@pytest.mark.parametrize(
    ("codings", "kind"),
    [
        ((), Plain),
        (("identity",), Plain),
        (("",), Plain),
        (("gzip",), Gunzip),
        (("X-GZip",), Gunzip),
        (("identity, gzip",), Gunzip),
    ],
)
def test_a_coding_is_known_by_its_name(codings: tuple[str, ...], kind: type) -> None:
    assert isinstance(decoder(codings), kind)


@pytest.mark.parametrize("codings", [("br",), ("deflate",), ("gzip, gzip",), ("gzip", "gzip"), ("zstd",), ("none",)])
def test_a_coding_that_was_not_asked_for_is_refused(codings: tuple[str, ...]) -> None:
    with pytest.raises(OutcomeUnknown) as fault:
        decoder(codings)
    assert fault.value.error_class == "bad_encoding"

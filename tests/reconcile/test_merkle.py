"""The tree of RFC 9162 (as of RFC 6962): roots and paths against the published vectors and a second, recursive tree."""

import hashlib
from collections.abc import Sequence
from typing import Final

import pytest

from reconcile.merkle import EMPTY_ROOT, Tree, root_by_path

#: The eight leaves that the reference implementations of RFC 6962 test with, and the root over the first n of them.
LEAVES: Final = [bytes.fromhex(data) for data in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
)]  # fmt: skip
ROOTS: Final = (
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def split(size: int) -> int:
    """The largest power of two below `size`."""
    half = 1
    while half * 2 < size:
        half *= 2
    return half


def root_of(leaves: Sequence[bytes]) -> bytes:
    """RFC 9162, 2.1.1, as it is written there."""
    if not leaves:
        return sha256()
    if len(leaves) == 1:
        return sha256(b"\x00", leaves[0])
    k = split(len(leaves))
    return sha256(b"\x01", root_of(leaves[:k]), root_of(leaves[k:]))


def path_of(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    """RFC 9162, 2.1.3.1, as it is written there."""
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if index < k:
        return [*path_of(index, leaves[:k]), root_of(leaves[k:])]
    return [*path_of(index - k, leaves[k:]), root_of(leaves[:k])]


def grown(leaves: Sequence[bytes], watched: int | None = None) -> tuple[str, tuple[str, ...]]:
    """Root and path of the tree under test."""
    tree = Tree(watched)
    for leaf in leaves:
        tree.add(leaf)
    assert tree.size == len(leaves)
    return tree.finish(), tree.path


def leaves_of(size: int) -> list[bytes]:
    return [f"leaf {n}".encode() for n in range(size)]


@pytest.mark.parametrize("size", range(9))
def test_the_roots_are_the_published_ones(size: int) -> None:
    assert grown(LEAVES[:size])[0] == ROOTS[size] == root_of(LEAVES[:size]).hex()


def test_no_leaves_have_the_root_of_nothing() -> None:
    assert grown([]) == (EMPTY_ROOT, ())
    assert ROOTS[0] == EMPTY_ROOT


@pytest.mark.parametrize("size", range(1, 41))
def test_every_leaf_has_the_path_of_the_rfc_and_leads_to_the_root(size: int) -> None:
    leaves = leaves_of(size)
    for index, leaf in enumerate(leaves):
        root, path = grown(leaves, index)
        assert root == root_of(leaves).hex()
        assert [*path] == [step.hex() for step in path_of(index, leaves)]
        assert root_by_path(leaf, index, size, path) == root


@pytest.mark.parametrize("size", range(1, 41))
def test_a_path_proves_nothing_else(size: int) -> None:
    """Another leaf, index, or path gives another root, or none; another size does where it makes another shape."""
    leaves = leaves_of(size)
    for index, leaf in enumerate(leaves):
        root, path = grown(leaves, index)
        assert root_by_path(b"another", index, size, path) != root
        for other in range(size):
            assert (root_by_path(leaf, other, size, path) == root) == (other == index)
        assert root_by_path(leaf, index, size, (*path, "00" * 32)) is None
        for step in range(len(path)):
            assert root_by_path(leaf, index, size, (*path[:step], *path[step + 1 :])) != root
            assert root_by_path(leaf, index, size, (*path[:step], "11" * 32, *path[step + 1 :])) != root
        for other in (-1, size, size + 7):
            assert root_by_path(leaf, other, size, path) is None
        assert root_by_path(leaf, index, 0, path) is None


def test_a_size_that_asks_for_another_number_of_steps_is_refused() -> None:
    _, path = grown(leaves_of(7), 0)
    for size in (1, 2, 3, 4, 9, 100):
        assert root_by_path(b"leaf 0", 0, size, path) is None


def test_a_path_that_is_no_hex_is_told_as_such() -> None:
    with pytest.raises(ValueError, match="hex"):
        root_by_path(b"leaf 0", 0, 2, ("xy",))


def test_a_leaf_is_no_node() -> None:
    """A leaf that spells the two hashes under a root must not pass for that root."""
    left, right = (sha256(b"\x00", leaf) for leaf in leaves_of(2))
    assert grown([left + right])[0] != root_of(leaves_of(2)).hex()
    assert root_by_path(left + right, 0, 1, ()) != root_of(leaves_of(2)).hex()


def test_order_counts() -> None:
    assert grown(leaves_of(3))[0] != grown(leaves_of(3)[::-1])[0]


def test_a_tree_holds_a_hash_a_level() -> None:
    tree = Tree()
    for n in range(5000):
        tree.add(b"%d" % n)
        assert len(tree._peaks) <= 13

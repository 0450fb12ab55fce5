"""Kept directories can be made again: the same code leaves the same bytes."""

from pathlib import Path

from tests.upgrade.make import make


def test_a_kept_directory_that_is_made_twice_is_the_same_to_the_byte(tmp_path: Path) -> None:
    made = [tmp_path / "once", tmp_path / "again"]
    for target in made:
        make(target)
    once, again = ({p.relative_to(t): p.read_bytes() for p in t.rglob("*") if p.is_file()} for t in made)
    assert len(once) > 25
    assert once == again

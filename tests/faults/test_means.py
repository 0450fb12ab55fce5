"""What the tests here stand on: a disk that loses nothing proves nothing, nor does a witness who misses nothing."""

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

from reconcile.store.schema import prepare_writer
from tests.faults.power import Drive
from tests.faults.record import Entry
from tests.faults.witness import Witness
from tests.stories.stage import Home


def test_the_drive_keeps_what_was_synced_and_loses_what_was_not(tmp_path: Path) -> None:
    """A disk that loses nothing would prove nothing, nor one that loses what it was asked to keep."""
    root, found = tmp_path / "root", set[tuple[str, bytes]]()
    dice, old, new = random.Random(1), root / "old", root / "new"
    for _ in range(300):
        drive = Drive(root)
        for entry in (
            Entry("c", 0, old, b""),
            Entry("w", 0, old, b"a" * 1024),
            Entry("s", 0, old, b""),
            Entry("s", 0, root, b""),
            Entry("w", 0, old, b"b" * 1024),
            Entry("r", 0, old, str(new).encode()),
        ):
            drive.do(entry)
        drive.cut_power(dice, tmp_path / "after")
        (left,) = (tmp_path / "after").iterdir()
        found.add((left.name, left.read_bytes()))
    whole = {b"a" * 1024, b"b" * 1024, b"a" * 512 + b"b" * 512, b"b" * 512 + b"a" * 512}
    assert found == {(name, content) for name in ("old", "new") for content in whole}


def test_the_witness_misses_what_is_gone(tmp_path: Path) -> None:
    """A check that cannot fail proves nothing."""
    home = Home(tmp_path)
    home.state_dir.mkdir()
    with closing(sqlite3.connect(home.database, isolation_level=None)) as connection:
        prepare_writer(connection)
    witness = Witness()
    for kind, data in (
        ("i", b"POST /v1/operations HTTP/1.1\r\n\r\n"),
        ("o", b"HTTP/1.1 202 Accepted\r\nLocation: /v1/operations/op_1\r\n\r\n"),
        ("o", json.dumps({"metadata": {"reconciled_operation": "op_1"}}).encode()),
        ("i", b"POST /webhooks/standin HTTP/1.1\r\nwebhook-id: wh_1\r\n\r\n"),
        ("o", b"HTTP/1.1 200 OK\r\n\r\n"),
    ):
        witness.hear(Entry(kind, 7, Path(), data))
    assert len(list(witness.misses(home))) == 3

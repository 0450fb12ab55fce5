"""An input on its way to the spool: the same items whatever the pieces, in memory that does not grow with them."""

import hashlib
import json
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from yarl import URL

from reconcile.errors import RequestInvalid
from reconcile.files import Files, FileWriter
from reconcile.input_file import InputFile
from reconcile.peer import Peer
from reconcile.registry import provider_for
from reconcile.store.starts import SubmittedItem

T = TypeVar("T")
PEER = Peer("claude", provider_for("anthropic_batches"), URL("http://127.0.0.1:9/v1"), {})
LINES = (
    b'{"custom_id":"a","params":{}}\r\n\n \t\n'
    b'{"custom_id":"\xc3\xa4","params":{"x":"\\n"}}\n{"custom_id":"c","params":{}}'
)


class Here:
    """Runs what would go to a thread at once."""

    async def offload(self, function: Callable[[], T]) -> T:
        return function()

    def start(self, name: str, work: Any) -> Any:
        raise AssertionError("nothing is started here")


def writer_in(folder: Path) -> FileWriter:
    files = Files(folder, Here())
    files.prepare()
    return files.create("spool/op.jsonl")


def input_to(writer: FileWriter, **over: Any) -> InputFile:
    return InputFile(PEER, writer, **{"most_bytes": 10**9, "longest_line": 10**6, "mark": None, **over})


async def spooled(folder: Path, pieces: Sequence[bytes]) -> tuple[bytes, list[SubmittedItem], str]:
    writer = writer_in(folder)
    made = input_to(writer)
    for piece in pieces:
        made.feed(piece)
    made.end()
    await writer.finish()
    return (folder / "spool" / "op.jsonl").read_bytes(), list(made.submitted), made.given_sha256


async def test_the_same_items_come_of_every_way_to_cut_the_stream(tmp_path: Path) -> None:
    whole = await spooled(tmp_path / "whole", [LINES])
    assert [item.item_id for item in whole[1]] == ["a", "ä", "c"]
    assert whole[2] == hashlib.sha256(LINES).hexdigest()
    for item in whole[1]:
        assert item.start is not None
        assert item.length is not None
        stretch = whole[0][item.start : item.start + item.length]
        assert json.loads(stretch)["custom_id"] == item.item_id
        assert stretch.endswith(b"\n")
    for cut in range(len(LINES) + 1):
        assert await spooled(tmp_path / "cut", [LINES[:cut], b"", LINES[cut:]]) == whole
    assert await spooled(tmp_path / "bytes", [LINES[n : n + 1] for n in range(len(LINES))]) == whole


def test_parsed_items_and_lines_are_refused_alike(tmp_path: Path) -> None:
    for number, bad in enumerate([{"custom_id": "a", "params": []}, {"custom_id": 7}, [], {"custom_id": "z"}]):
        items = [{"custom_id": "z", "params": {}}, bad]
        writer = writer_in(tmp_path / str(number))
        with pytest.raises(RequestInvalid) as parsed:
            input_to(writer).add(items)
        with pytest.raises(RequestInvalid) as streamed:
            input_to(writer).feed(b"".join(json.dumps(item).encode() + b"\n" for item in items))
        writer.discard()
        assert str(parsed.value) == str(streamed.value)
        assert parsed.value.pointer.startswith("/items/1")


def test_memory_does_not_grow_with_the_bytes_of_the_input(tmp_path: Path) -> None:
    """40 MB pass; what stays is the ids."""
    writer = writer_in(tmp_path)
    made = input_to(writer)
    pad = b"p" * 4_000
    tracemalloc.start()
    try:
        for n in range(10_000):
            made.feed(b'{"custom_id":"%d","params":{"p":"%s"}}\n' % (n, pad))
        made.end()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        writer.discard()
    assert writer.size > 40_000_000
    assert len(made.submitted) == 10_000
    assert peak < 4_000_000

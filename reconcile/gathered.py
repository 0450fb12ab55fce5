"""What one try at a result has gathered so far, and what is told of it line by line and file by file."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any, Final

from reconcile import marks, promises
from reconcile.client import Exchange, Stream
from reconcile.files import CHUNK
from reconcile.json_schema import Schema
from reconcile.model import SAYS_DONE, Operation, Verdict
from reconcile.provider import first_value
from reconcile.read_json import JsonValue
from reconcile.store.items import SLICE, ItemRow

_BOM: Final = b"\xef\xbb\xbf"
#: Rows that are put in order before they are written. 25,000: half of OpenAI's largest batch, some 8 MB.
HEAP: Final = 25_000


class Heap:
    """Rows on their way to the index, put in the order of its key: neighbours there are written to one page.

    A result comes in any order. Its rows, written as they come, would each change a page of their own.
    """

    def __init__(self) -> None:
        self._runs: list[list[ItemRow]] = []
        self._rows = 0

    @property
    def is_full(self) -> bool:
        """Whether it should be emptied."""
        return self._rows >= HEAP

    def add(self, rows: list[ItemRow]) -> None:
        """A slice more, which is sorted for itself: all at once would hold up the loop."""
        self._runs.append(sorted(rows))
        self._rows += len(rows)

    def emptied(self) -> Iterator[tuple[ItemRow, ...]]:
        """All rows in order, in slices as they are written."""
        runs, self._runs, self._rows = self._runs, [], 0
        rows = merge(*runs)
        while part := tuple(islice(rows, SLICE)):
            yield part


@dataclass(slots=True)
class Try:
    """What one try has gathered so far."""

    op: Operation
    attempt: int
    exchanges: list[Exchange] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    #: Those of them that only hold the items of a document among the others.
    indexes: list[str] = field(default_factory=list)
    bytes: int = 0
    #: Over all files that are the result, in order: one checksum for the whole.
    digest: Any = field(default_factory=hashlib.sha256)
    content_type: str | None = None
    lines: int = 0
    #: What the first file that is not of the promised content type came as; None: each that holds anything is.
    other_type: str | None = None
    #: Takes the operation's mark off the file under way; None: its ids went out as they came.
    taken_off: marks.TakenOff | None = None
    #: Rows whose bodies are not held against the schema yet, and those that are, if there is one.
    pending: list[ItemRow] = field(default_factory=list)
    heap: Heap = field(default_factory=Heap)
    schema: Schema | None = None
    #: Bodies of pending rows, by their place there, and the bytes of their lines.
    bodies: dict[int, JsonValue] = field(default_factory=dict)
    waiting: int = 0
    off_schema: list[str] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)

    def next_line_is_marked(self) -> bool:
        """Whether the next line of the file is the operation's own by its mark; one without a mark asks for none."""
        return self.taken_off is None or self.taken_off.next_line()


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file, and where it stands there."""

    #: From 1, blank lines counted.
    number: int
    start: int
    length: int
    #: Without the byte order mark that may stand before the first line.
    data: bytes | None
    #: Whether its id bore the operation's mark, where the operation has one.
    is_marked: bool

    @property
    def is_blank(self) -> bool:
        """Whether nothing stands in it."""
        return self.data is not None and not self.data.strip()

    @property
    def is_page(self) -> bool:
        """Whether it begins as markup does and JSON never: a proxy or a login page speaks (C33)."""
        return self.data is not None and self.data.lstrip().startswith(b"<")


async def unmarked(chunks: AsyncIterator[bytes], taken_off: marks.TakenOff) -> AsyncGenerator[bytes, None]:
    """The same bytes with the operation's mark taken off their ids."""
    async for chunk in chunks:
        yield taken_off.feed(chunk)
    yield taken_off.end()


def next_file(this: Try, stream: Stream) -> str:
    """The name of the next file of this try; the first one's type is the result's."""
    this.content_type = this.content_type or first_value(stream.headers, "content-type")
    return numbered(this)


def numbered(this: Try) -> str:
    """The name of the next file of this try."""
    return f"results/{this.op.operation_id}/{this.attempt}/{len(this.files)}.jsonl"


def hold_to_type(this: Try, name: str, size: int, stream: Stream) -> None:
    """One more file is there; was it promised to be of another type?"""
    this.files.append(name)
    promised, found = this.op.expect.get("content_type"), first_value(stream.headers, "content-type")
    if promised is not None and size and not promises.is_of_type(promised, found):
        this.other_type = this.other_type or found or "none"


async def in_chunks(data: bytes) -> AsyncGenerator[bytes, None]:
    """What is in memory already, in the pieces in which a file comes over the network."""
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]


def without_bom(data: bytes, number: int) -> bytes:
    """A line of that number without the byte order mark that may stand before a file's first one."""
    return data.removeprefix(_BOM) if number == 1 else data


def off_schema_of(schema: Schema, bodies: Mapping[int, JsonValue], room: int) -> list[tuple[int, str]]:
    """Which bodies break the schema, and where; no more than there is room to name."""
    broken = ((place, why) for place, body in bodies.items() if (why := schema.broken_by(body)) is not None)
    return list(islice(broken, room))


def broken_promises(this: Try, verdict: Verdict) -> dict[str, str]:
    """The promises of `expect` that the result does not keep, each with what was expected and what was found.

    A job that was cut off has no whole result, so that nobody can have promised its checksum.
    """
    broken: dict[str, str] = {}
    if this.other_type is not None:
        broken["content_type"] = f"expected {this.op.expect['content_type']}, got {this.other_type}"
    promised, found = this.op.expect.get("sha256"), this.digest.hexdigest()
    if promised is not None and verdict.kind in SAYS_DONE and promised != found:
        broken["sha256"] = f"expected sha256 {promised}, got {found}"
    if this.off_schema:
        count = len(set(this.off_schema))
        told = "1 item breaks" if count == 1 else f"{count} items break"
        broken["json_schema"] = f"{told} the json_schema, the first {this.off_schema[0]!r}"
    return broken

"""An input on its way to the spool: each item checked, its line written, its id and place kept for the balance (J3).

Items come parsed, or as a stream of JSON lines; both are checked alike and told alike, by pointer (`/items/N`). Memory
is a line and what each item costs below, never the input.
"""

import hashlib
from array import array
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from reconcile.errors import RequestInvalid, Unreadable
from reconcile.files import FileWriter
from reconcile.peer import Peer
from reconcile.read_json import read_json
from reconcile.store.starts import SubmittedItem

#: Items of one input where the provider names no fewer. 10^6: arbitrary; each costs some 150 bytes of memory, and its
#: row some microseconds of the one writer, until the start has committed.
MAX_ITEMS: Final = 1_000_000


class InputFile:
    """One input. `add`, `feed` and `end` block for as long as what they are given takes: one at a time, on a thread.

    Each of them raises: RequestInvalid, OSError.
    """

    def __init__(self, peer: Peer, writer: FileWriter, *, most_bytes: int, longest_line: int, mark: str | None) -> None:
        self._provider = peer.provider
        self._writer = writer
        self._most_bytes = most_bytes
        self._most_items = min(peer.provider.contract.limits.max_items or MAX_ITEMS, MAX_ITEMS)
        self._longest_line = longest_line
        self._mark = mark
        self._digest = hashlib.sha256()
        self._line = 0
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self._made: list[bytes] = []
        self.submitted = Submitted()

    @property
    def given_sha256(self) -> str:
        """Digest of the bytes that were fed, as they came."""
        return self._digest.hexdigest()

    def add(self, items: Sequence[Any]) -> None:
        """Take parsed items, in order."""
        for item in items:
            self._take(item)
        self._write()

    def feed(self, chunk: bytes) -> None:
        """Take a piece of JSON lines, wherever it ends. Lines end in `\\n` alone; a blank one holds no item."""
        self._digest.update(chunk)
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._begin(part)
            self._take_line()
        if rest:
            self._begin(rest)
        self._write()

    def end(self) -> None:
        """No piece follows: what no newline ended is the last line."""
        if self._begun:
            self._take_line()
        self._write()

    def _begin(self, part: bytes) -> None:
        self._begun_bytes += len(part)
        if self._begun_bytes > self._longest_line:
            raise RequestInvalid(self._at, f"its line is longer than {self._longest_line} bytes", status=413)
        self._begun.append(part)

    def _take_line(self) -> None:
        line, self._begun, self._begun_bytes = b"".join(self._begun), [], 0
        self._line += 1
        if not line.strip():
            return
        try:
            item = read_json(line)
        except Unreadable as fault:
            raise RequestInvalid(self._at, f"line {self._line} of the input: {fault.reason}") from fault
        self._take(item)

    @property
    def _at(self) -> str:
        return f"/items/{len(self.submitted)}"

    def _take(self, item: Any) -> None:
        index = len(self.submitted)
        if index >= self._most_items:
            raise RequestInvalid("/items", f"more than {self._most_items} items, the most that are taken in one start")
        item_id, line = self._provider.item_line(item, index, self._mark)
        if item_id in self.submitted.ids:
            first = self.submitted.index(item_id)
            raise RequestInvalid(self._at, f"the id {item_id!r} stands at /items/{first} already")
        if self.submitted.bytes + len(line) > self._most_bytes:
            raise RequestInvalid(self._at, f"the input is larger than {self._most_bytes} bytes here", status=413)
        self._made.append(line)
        self.submitted.append(item_id, len(line))

    def _write(self) -> None:
        made, self._made = self._made, []
        if made:
            self._writer.write_on_thread(b"".join(made))


class Submitted(Collection[SubmittedItem]):
    """The submitted items of one input, in order. Kept narrow, since there may be a million: an id and eight bytes."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}
        self._ends = array("Q", [0])

    @property
    def ids(self) -> Collection[str]:
        """All ids."""
        return self._ids.keys()

    @property
    def bytes(self) -> int:
        """How long their lines are together."""
        return self._ends[-1]

    def append(self, item_id: str, length: int) -> None:
        """One more, whose line follows the last one's."""
        self._ids[item_id] = None
        self._ends.append(self._ends[-1] + length)

    def index(self, item_id: str) -> int:
        """The place of an id that is there."""
        return next(index for index, known in enumerate(self._ids) if known == item_id)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[SubmittedItem]:
        for index, item_id in enumerate(self._ids):
            start = self._ends[index]
            yield SubmittedItem(item_id, start, self._ends[index + 1] - start)

    def __contains__(self, item: object) -> bool:
        return any(item == one for one in self)

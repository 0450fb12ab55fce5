"""What streams send: server-sent events as bytes, each made once however many readers it has."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from handlers import bodies, words
from handlers.api.deps import LocalDeps
from reconcile.changes import Batch, Told
from reconcile.history_row import HistoryRow
from reconcile.model import Operation

#: A line that no reader is shown: it opens a stream, and keeps one alive on which nothing happens.
COMMENT: Final = b":\n\n"
#: Bytes that are sent in one piece. 64 KiB: what the transport holds for a slow reader before it makes us wait.
MAX_PIECE: Final = 65_536


def event(name: str, data: Any, position: int | None = None) -> bytes:
    """One server-sent event; JSON holds no line end, so its data is one line."""
    spelled = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    numbered = "" if position is None else f"id: {position}\n"
    return f"event: {name}\n{numbered}data: {spelled}\n\n".encode("utf-8", "replace")


def row(told: HistoryRow) -> bytes:
    """A history row, which says of which operation it is."""
    return event("history", {"operation_id": told.operation_id, **bodies.history_row(told)}, told.position)


def place(position: int) -> bytes:
    """Where a stream begins that was given no position: whoever is cut off before the first row resumes from here."""
    return event("position", {"position": position}, position)


def pruned(first: int, last: int, missing: int, position: int) -> bytes:
    """Positions between these are gone; `position` is the last before which nothing is left to be told."""
    return event(
        "gap",
        {"from": first, "to": last, "missing": missing, "reason": "pruned", "message": words.GAP_REMOVED},
        position,
    )


def other_record(newest: int, position: int | None) -> bytes:
    """The reader's position is of another record."""
    told = {"from": 1, "to": newest, "missing": None, "reason": "unknown_position", "message": words.GAP_OTHER_RECORD}
    return event("gap", told, position)


def pieces(frames: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of which none is much larger than what is sent at once."""
    piece: list[bytes] = []
    size = 0
    for frame in frames:
        if piece and size + len(frame) > MAX_PIECE:
            yield b"".join(piece)
            piece, size = [], 0
        piece.append(frame)
        size += len(frame)
    if piece:
        yield b"".join(piece)


class Frames:
    """Batches as they are sent."""

    def __init__(self, deps: LocalDeps) -> None:
        self._deps = deps

    async def operation(self, op: Operation) -> bytes:
        """How an operation stands now; no position, since whoever resumes is told anew."""
        return event("operation", await self._deps.body(op))

    async def of(self, batch: Batch, cursor: int) -> Iterable[bytes]:
        """What of a batch lies after the cursor."""
        if batch.first_position is not None and batch.first_position <= cursor:
            return pieces([await self._one(told) for told in batch.told if not _is_known(told, cursor)])
        if batch.chunks is None:
            batch.chunks = tuple(pieces([await self._one(told) for told in batch.told]))
        return batch.chunks

    async def _one(self, told: Told) -> bytes:
        if told.frame is None:
            told.frame = row(told.what) if isinstance(told.what, HistoryRow) else await self.operation(told.what)
        return told.frame


def _is_known(told: Told, cursor: int) -> bool:
    return isinstance(told.what, HistoryRow) and told.what.position <= cursor

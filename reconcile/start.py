"""A start: checked whole, its input spooled and durable, then its row. Nothing is sent before the row is committed."""

import hashlib
from collections.abc import AsyncIterable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from reconcile import deadlines, marks
from reconcile.callback import Callbacks
from reconcile.errors import JobHeld, KeyReused, StoreBusy, WriteRefused
from reconcile.files import Files
from reconcile.fingerprint import canonical_json, fingerprint
from reconcile.input_file import InputFile
from reconcile.model import JsonObject, Operation, Schedule, Spans
from reconcile.peer import Peer
from reconcile.promises import Expected
from reconcile.replacing import replace
from reconcile.seams import Clock, Dice
from reconcile.states import Priority, State
from reconcile.store.starts import Started, StartRecord, SubmittedItem
from reconcile.store.store import Store

#: Items that are written in one go off the loop. 1,000: some ten milliseconds of another thread.
_SLICE: Final = 1_000


@dataclass(frozen=True, slots=True)
class StartWish:
    """A start body whose own fields were checked; what the provider takes is checked here."""

    request: JsonObject
    #: Parsed, or a stream of JSON lines, which is read once.
    items: Sequence[Any] | AsyncIterable[bytes] | None = None
    type: str | None = None
    remote_job_id: str | None = None
    caller: str | None = None
    #: The history's word for who asks.
    actor: str = "client:anonymous"
    approval: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    expect: Expected = field(default_factory=Expected)
    spans: Spans = field(default_factory=Spans)
    #: Where the client wants to be called back; held against the configuration by the starter.
    callback_url: str | None = None
    client_key: str | None = None
    #: Digest of the whole body: what a repeated client key is compared by. A stream's own bytes are added to it.
    content: str = ""


class Starter:
    """Turns wishes into operations."""

    def __init__(
        self,
        *,
        store: Store,
        files: Files,
        clock: Clock,
        dice: Dice,
        max_input: int,
        max_line: int,
        callbacks: Callbacks,
    ) -> None:
        self._store = store
        self._files = files
        self._clock = clock
        self._dice = dice
        self._max_input = max_input
        self._max_line = max_line
        self._callbacks = callbacks

    async def start(self, peer: Peer, wish: StartWish) -> Started:
        """A new operation, or the one that the client key stands for.

        Raises: RequestInvalid, KeyReused, JobHeld, StoreError, OSError. No input is left where surely no row stands.
        """
        callback = None if wish.callback_url is None else self._callbacks.choose(wish.callback_url)
        adopts = wish.remote_job_id is not None
        request = wish.request if adopts else peer.provider.check_start(wish.request, _counted(wish.items))
        operation_id = self._dice.identifier("op_")
        marks_items = peer.provider.contract.item_marks == "on"
        mark = marks.of(operation_id) if marks_items and wish.items is not None else None
        items = wish.items
        spooled = await self._spool(peer, operation_id, wish, items, mark) if items is not None else None
        op = replace(self._operation(peer, wish, request, operation_id, spooled), item_mark=mark, callback=callback)
        record = StartRecord(
            op,
            actor=wish.actor,
            cause=f"start:{operation_id}",
            reason="started" if wish.remote_job_id is None else f"adopted: follows {wish.remote_job_id}",
            items=spooled.items if spooled else _named(wish.expect),
            client_key=wish.client_key,
            content=spooled.content if spooled else wish.content,
            draw=self._dice.draw(),
        )
        try:
            started = await self._store.start(record)
        except (KeyReused, JobHeld, StoreBusy, WriteRefused):
            # Only where the row surely does not stand: after an unknown commit, or a caller that went away, it may.
            self._drop(spooled)
            raise
        if not started.is_new:
            self._drop(spooled)
        return started

    def _operation(
        self,
        peer: Peer,
        wish: StartWish,
        request: JsonObject,
        operation_id: str,
        spooled: "_Spooled | None",
    ) -> Operation:
        now, contract = self._clock.now(), peer.provider.contract
        create_ms = wish.spans.create_ms if wish.spans.create_ms is not None else contract.create_within_ms
        result_ms = wish.spans.result_ms
        if wish.remote_job_id is not None and result_ms is None:
            result_ms = contract.result_within_ms
        running = deadlines.at_start(now, create_ms=create_ms, result_ms=result_ms)
        return Operation(
            operation_id=operation_id,
            provider=peer.name,
            origin=peer.origin,
            type=wish.type or contract.operation_type,
            state=State.CREATE_PENDING if wish.remote_job_id is None else State.ACCEPTED,
            remote_job_id=wish.remote_job_id,
            adopted=wish.remote_job_id is not None,
            started_at=None if wish.remote_job_id is None else now,
            token=self._dice.identifier("tok_"),
            trace_id=self._dice.trace_id(),
            fingerprint=fingerprint(
                request, provider=peer.name, kind=contract.kind, input_sha256=spooled.sha256 if spooled else None
            ),
            request=request,
            created_at=now,
            schedule=Schedule(due_at=now, priority=Priority.CREATE if wish.remote_job_id is None else Priority.RUNG),
            contract_version=contract.version,
            input_ref=spooled.ref if spooled else None,
            input_items=len(spooled.items) if spooled else len(wish.expect.ids) or None,
            caller=wish.caller,
            approval=wish.approval,
            labels=wish.labels,
            expect=wish.expect.kept(),
            spans=wish.spans,
            deadlines=running if wish.remote_job_id is None else replace(running, create=None),
        )

    async def _spool(
        self,
        peer: Peer,
        operation_id: str,
        wish: StartWish,
        items: Sequence[Any] | AsyncIterable[bytes],
        mark: str | None,
    ) -> "_Spooled":
        """Check every item and write the input file, off the loop; ids, unmarked, are kept for the balance (J3)."""
        limit = min(self._max_input, peer.provider.contract.limits.max_input_bytes or self._max_input)
        writer = self._files.create(f"spool/{operation_id}.jsonl")
        content = wish.content
        try:
            made = InputFile(peer, writer, most_bytes=limit, longest_line=self._max_line, mark=mark)
            if isinstance(items, AsyncIterable):
                async for chunk in items:
                    await self._files.offload(partial(made.feed, chunk))
                await self._files.offload(made.end)
                peer.provider.check_start(wish.request, range(len(made.submitted)))
                content = content_digest({"operation": wish.content, "input": made.given_sha256})
            else:
                for begin in range(0, len(items), _SLICE):
                    await self._files.offload(partial(made.add, items[begin : begin + _SLICE]))
            wish.expect.agree(made.submitted.ids)
            written = await writer.finish()
        finally:
            writer.discard()
        return _Spooled(written.ref, written.sha256, made.submitted, content)

    def _drop(self, spooled: "_Spooled | None") -> None:
        if spooled is not None:
            self._files.remove(spooled.ref)


@dataclass(frozen=True, slots=True)
class _Spooled:
    ref: str
    sha256: str
    items: Collection[SubmittedItem]
    content: str


def _counted(items: Sequence[Any] | AsyncIterable[bytes] | None) -> Sequence[Any] | None:
    """What an adapter counts. A stream is counted at its end, and taken for one item before."""
    return range(1) if isinstance(items, AsyncIterable) else items


def _named(expected: Expected) -> list[SubmittedItem]:
    """Ids of a job whose input we did not send: they close the balance, and stand in no file of ours."""
    return [SubmittedItem(item_id, None, None) for item_id in expected.ids]


def content_digest(body: Any) -> str:
    """What a repeated client key is compared by: the canonical JSON of the whole body. Raises: Unreadable."""
    return hashlib.sha256(canonical_json(body)).hexdigest()

"""A start: checked whole, its input spooled and durable, then its row. Nothing is sent before the row is committed."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reconcile import deadlines, marks
from reconcile.errors import JobHeld, KeyReused, RequestInvalid, StoreBusy, WriteRefused
from reconcile.files import Files, FileWriter
from reconcile.fingerprint import canonical_json, fingerprint
from reconcile.model import JsonObject, Operation, Schedule, Spans
from reconcile.peer import Peer
from reconcile.promises import Expected
from reconcile.seams import Clock, Dice
from reconcile.states import Priority, State
from reconcile.store.starts import Started, StartRecord, SubmittedItem
from reconcile.store.store import Store


@dataclass(frozen=True, slots=True)
class StartWish:
    """A start body whose own fields were checked; what the provider takes is checked here."""

    request: JsonObject
    items: Sequence[Any] | None = None
    type: str | None = None
    remote_job_id: str | None = None
    caller: str | None = None
    approval: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    expect: Expected = field(default_factory=Expected)
    spans: Spans = field(default_factory=Spans)
    client_key: str | None = None
    #: Digest of the whole body: what a repeated client key is compared by.
    content: str = ""


class Starter:
    """Turns wishes into operations."""

    def __init__(self, *, store: Store, files: Files, clock: Clock, dice: Dice, max_input: int) -> None:
        self._store = store
        self._files = files
        self._clock = clock
        self._dice = dice
        self._max_input = max_input

    async def start(self, peer: Peer, wish: StartWish) -> Started:
        """A new operation, or the one that the client key stands for.

        Raises: RequestInvalid, KeyReused, JobHeld, StoreError, OSError. No input is left where surely no row stands.
        """
        adopts = wish.remote_job_id is not None
        request = wish.request if adopts else peer.provider.check_start(wish.request, wish.items)
        operation_id = self._dice.identifier("op_")
        marks_items = peer.provider.contract.item_marks == "on"
        mark = marks.of(operation_id) if marks_items and wish.items is not None else None
        spooled = await self._spool(peer, operation_id, wish, mark) if wish.items is not None else None
        op = replace(self._operation(peer, wish, request, operation_id, spooled), item_mark=mark)
        record = StartRecord(
            op,
            actor=f"client:{wish.caller or 'anonymous'}",
            cause=f"start:{operation_id}",
            reason="started" if wish.remote_job_id is None else f"adopted: follows {wish.remote_job_id}",
            items=spooled.items if spooled else _named(wish.expect),
            client_key=wish.client_key,
            content=wish.content,
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

    async def _spool(self, peer: Peer, operation_id: str, wish: StartWish, mark: str | None) -> "_Spooled":
        """Check every item and write the input file; ids, unmarked, and places are kept for the balance (J3)."""
        limit = min(self._max_input, peer.provider.contract.limits.max_input_bytes or self._max_input)
        writer = self._files.create(f"spool/{operation_id}.jsonl")
        try:
            submitted = _write_items(peer, writer, wish.items or (), limit, mark)
            wish.expect.agree({item.item_id for item in submitted})
            written = await writer.finish()
        finally:
            writer.discard()
        return _Spooled(written.ref, written.sha256, submitted)

    def _drop(self, spooled: "_Spooled | None") -> None:
        if spooled is not None:
            self._files.remove(spooled.ref)


@dataclass(frozen=True, slots=True)
class _Spooled:
    ref: str
    sha256: str
    items: list[SubmittedItem]


def _named(expected: Expected) -> list[SubmittedItem]:
    """Ids of a job whose input we did not send: they close the balance, and stand in no file of ours."""
    return [SubmittedItem(item_id, None, None) for item_id in expected.ids]


def _write_items(
    peer: Peer, writer: FileWriter, items: Sequence[Any], limit: int, mark: str | None
) -> list[SubmittedItem]:
    submitted: list[SubmittedItem] = []
    first_seen: dict[str, int] = {}
    for index, item in enumerate(items):
        item_id, line = peer.provider.item_line(item, index, mark)
        if item_id in first_seen:
            raise RequestInvalid(
                f"/items/{index}", f"the id {item_id!r} stands at /items/{first_seen[item_id]} already"
            )
        first_seen[item_id] = index
        submitted.append(SubmittedItem(item_id, writer.bytes, len(line)))
        writer.write(line)
        if writer.bytes > limit:
            raise RequestInvalid(f"/items/{index}", f"the input is larger than {limit} bytes here", status=413)
    return submitted


def content_digest(body: Any) -> str:
    """What a repeated client key is compared by: the canonical JSON of the whole body. Raises: Unreadable."""
    return hashlib.sha256(canonical_json(body)).hexdigest()

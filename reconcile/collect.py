"""Results: streamed to disk, split on newline bytes only, judged line by line, indexed, and made to add up.

A try writes under an attempt of its own (the fence of its lease), so that nothing of a half-finished one is served.
Memory stays flat: a chunk, one line, one slice of rows.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from reconcile import conclude, marks
from reconcile.balance import add_up, other_count
from reconcile.client import Client, Exchange, Stream
from reconcile.errors import OutcomeUnknown, ProviderError, Unreadable
from reconcile.evidence import Collected, CollectFailed, ResultIsFailure
from reconcile.files import Files, FileWriter
from reconcile.gathered import (
    Line,
    Try,
    broken_promises,
    hold_to_type,
    in_chunks,
    next_file,
    numbered,
    off_schema_of,
    unmarked,
    without_bom,
)
from reconcile.json_schema import Schema
from reconcile.model import SAYS_DONE, Operation, ResultInfo, ResultRef, UnixMs, Verdict, VerdictKind
from reconcile.peer import Peer
from reconcile.provider import (
    DOCUMENT,
    INLINE,
    THE_RESULT,
    WHOLE,
    Headers,
    HttpRequest,
    HttpResponse,
    Item,
    Unfolds,
    first_value,
)
from reconcile.read_json import read_json
from reconcile.schedule import retry_after_ms
from reconcile.seams import Clock
from reconcile.store.items import MAX_NAMED, SLICE, Absentees, Doubled, ItemRow, ItemSlice
from reconcile.store.store import Store

#: Bytes read of an answer that is no result; its error is in the first few.
MAX_ERROR_BODY: Final = 65536
#: Lines after which the loop is given up for a moment. 100: about two milliseconds of lines of 1 KiB.
LINES_A_TURN: Final = 100
#: Bytes of lines whose bodies wait to be held against a schema. 1 MiB: arbitrary; a longer line waits alone.
MAX_WAITING: Final = 2**20
#: What a body came as that was read as a status.
_JSON: Final[Headers] = {"content-type": ("application/json",)}
#: Bytes of a result that is one item up to which the item shows them. 1 MiB: arbitrary; the result itself has them all.
MAX_SHOWN: Final = 2**20


def inline_file(operation_id: str) -> str:
    """Where a body stands that showed the end and holds the result, until that is collected."""
    return f"spool/{operation_id}.inline.json"


@dataclass(frozen=True, slots=True)
class Caps:
    """Sizes beyond which a stranger's bytes are not taken."""

    result: int
    line: int
    #: Of a document that holds items, which is taken apart in memory.
    answer: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """One try's evidence, and the exchanges it made for the record."""

    evidence: Collected | CollectFailed | ResultIsFailure
    exchanges: tuple[Exchange, ...]


class _Stop(Exception):
    """The try is over; carries its evidence."""

    def __init__(self, evidence: CollectFailed | ResultIsFailure) -> None:
        self.evidence = evidence
        super().__init__()


class Collector:
    """Fetches, checks and indexes what an ended job left behind."""

    def __init__(self, *, client: Client, store: Store, files: Files, clock: Clock, caps: Caps) -> None:
        self._client = client
        self._store = store
        self._files = files
        self._clock = clock
        self._caps = caps

    async def collect(self, peer: Peer, op: Operation, attempt: int) -> Outcome:
        """One try. Raises: StoreError, OSError (our own disk or descriptors: it was no fault of the provider)."""
        verdict = op.verdict or Verdict(VerdictKind.DONE_UNKNOWN_OUTCOME, None)
        if op.results_gone:
            return Outcome(CollectFailed("results_dropped", is_final=True), ())
        if is_not_ready(op, verdict):
            return Outcome(CollectFailed("no_result_named"), ())
        schema = op.expect.get("json_schema")
        this = Try(op, attempt, schema=Schema(schema) if schema is not None else None)
        try:
            for ref in op.results:
                await self._fetch(peer, this, ref)
        except (_Stop, OSError) as fault:
            # Each of many tries would leave what it had fetched so far until upkeep came.
            await self._files.remove_all(this.files)
            if isinstance(fault, OSError):
                raise
            return Outcome(fault.evidence, tuple(this.exchanges))
        await self._pass_on(this)
        await self._index(this)
        return Outcome(await self._add_up(this, verdict), tuple(this.exchanges))

    async def tidy(self, op: Operation) -> None:
        """Drop what earlier tries left, once the operation names the one that counts."""
        while await self._store.prune_items(op.operation_id, op.collect_attempt):
            pass
        kept = {name.split("/")[2] for name in (op.result.files if op.result else ())}
        folder = f"results/{op.operation_id}"
        found = await self._files.offload(lambda: self._files.names(folder))
        refs = [f"{folder}/{name}" for name in found if name not in kept]
        if op.is_terminal and any(ref.name == INLINE for ref in op.results):
            refs.append(inline_file(op.operation_id))
        await self._files.remove_all(refs)

    # ---- fetching ----

    async def _fetch(self, peer: Peer, this: Try, ref: ResultRef) -> None:
        if ref.name == INLINE:
            await self._take_apart(peer, this, ref, self._inline(this.op), _JSON)
            return
        request = peer.provider.result(this.op, ref)
        sent_at = self._clock.now()
        try:
            async with self._client.stream(peer, this.op, request) as stream:
                this.exchanges.append(_exchange(request, sent_at, self._clock.now(), stream, peer))
                if stream.status != 200:
                    raise _Stop(await self._refusal(peer, stream))
                await self._take(peer, this, ref, stream)
        except ProviderError as fault:
            if not this.exchanges or this.exchanges[-1].request is not request:
                this.exchanges.append(Exchange(request, sent_at, self._clock.now(), None, fault, peer.credential_name))
            raise _Stop(CollectFailed(fault.error_class)) from fault

    async def _refusal(self, peer: Peer, stream: Stream) -> CollectFailed | ResultIsFailure:
        body = bytearray()
        async for chunk in stream.chunks:
            body += chunk
            if len(body) > MAX_ERROR_BODY:
                break
        wait = retry_after_ms(stream.headers, now_ms=self._clock.now())
        return peer.provider.read_result_error(HttpResponse(stream.status, stream.headers, bytes(body), wait))

    async def _take(self, peer: Peer, this: Try, ref: ResultRef, stream: Stream) -> None:
        """By what it was said to be: lines, one item as a whole, or a document with items in it."""
        if ref.role not in (WHOLE, DOCUMENT):
            await self._keep(peer, this, ref, stream)
        elif (first_value(stream.headers, "content-type") or "").lower().startswith("text/html"):
            raise _Stop(CollectFailed("html_page"))
        elif ref.role == WHOLE:
            await self._keep_whole(this, stream)
        else:
            body = bytearray()
            async for chunk in stream.chunks:
                body += chunk
                if len(body) > self._caps.answer:
                    raise OutcomeUnknown("answer_too_large", f"more than {self._caps.answer} bytes")
            await self._take_apart(peer, this, ref, bytes(body), stream.headers)

    def _inline(self, op: Operation) -> bytes:
        """The body that showed the end; where it was not kept, the job is read again before the next try."""
        try:
            with self._files.open(inline_file(op.operation_id)) as file:
                return file.read()
        except FileNotFoundError as fault:
            raise _Stop(CollectFailed("our_file")) from fault

    async def _take_apart(self, peer: Peer, this: Try, ref: ResultRef, body: bytes, headers: Headers) -> None:
        if not isinstance(peer.provider, Unfolds):
            raise _Stop(CollectFailed("unreadable"))
        try:
            parts = peer.provider.unfold(ref, body)
        except Unreadable as fault:
            raise _Stop(CollectFailed("unreadable")) from fault
        for part in parts:
            stream = Stream(200, headers, in_chunks(part.data))
            if part.holds == "items":
                await self._keep_index(peer, this, ref, part.data)
            else:
                await self._keep_whole(this, stream, is_item=part.holds == "item")

    async def _keep_index(self, peer: Peer, this: Try, ref: ResultRef, data: bytes) -> None:
        """A document's items, a line each, for items to be found in: the result is the document, and has them once."""
        name, index = numbered(this), len(this.files)
        writer = self._files.create(name)
        try:
            async with aclosing(self._lines(this, in_chunks(data), writer.add)) as lines:
                async for line in lines:
                    this.lines += 1
                    await self._judge(peer, this, ref, index, line)
            await writer.finish()
        finally:
            writer.discard()
        this.files.append(name)
        this.indexes.append(name)

    async def _keep_whole(self, this: Try, stream: Stream, *, is_item: bool = True) -> None:
        """A file that is one item, or none: its bytes as they come, and not looked into."""
        name = next_file(this, stream)
        writer = self._files.create(name, this.digest)
        try:
            async for chunk in stream.chunks:
                await self._write(this, writer, chunk)
                await asyncio.sleep(0)
            if not writer.size:
                raise _Stop(CollectFailed("empty_result"))
            await writer.finish()
        finally:
            writer.discard()
        hold_to_type(this, name, writer.size, stream)
        if is_item:
            self._note_whole(this, name, writer.size)

    def _note_whole(self, this: Try, name: str, size: int) -> None:
        this.lines += 1
        verdict = this.op.verdict
        cut_off = None if verdict is None or verdict.kind in SAYS_DONE else conclude.absent_word(verdict)
        outcome, reason = ("succeeded", "") if cut_off is None else (cut_off, "partial")
        if this.schema is not None and cut_off is None:
            self._await_schema(this, name, size)
        shown = size if size <= MAX_SHOWN else 0
        this.pending.append(ItemRow(THE_RESULT, this.lines, outcome, reason, len(this.files) - 1, 0, shown))

    def _await_schema(self, this: Try, name: str, size: int) -> None:
        """The body of the item that the whole file is, to be held against the schema with the next slice."""
        if size > self._caps.line:
            this.unreadable.append(1)
            return
        try:
            this.bodies[len(this.pending)] = read_json(self._files.read(name, 0, size))
        except Unreadable:
            this.unreadable.append(1)

    async def _write(self, this: Try, writer: FileWriter, chunk: bytes) -> None:
        this.bytes += len(chunk)
        if this.bytes > self._caps.result:
            raise OutcomeUnknown("result_too_large", f"more than {self._caps.result} bytes")
        await writer.add(chunk)

    async def _keep(self, peer: Peer, this: Try, ref: ResultRef, stream: Stream) -> None:
        name, index = next_file(this, stream), len(this.files)
        this.taken_off = marks.TakenOff(this.op.item_mark) if this.op.item_mark is not None else None
        chunks = stream.chunks if this.taken_off is None else unmarked(stream.chunks, this.taken_off)
        writer = self._files.create(name, this.digest)
        has_begun = False
        try:
            async with aclosing(self._lines(this, chunks, partial(self._write, this, writer))) as lines:
                async for line in lines:
                    if not has_begun and line.is_page:
                        raise _Stop(CollectFailed("html_page"))
                    has_begun = has_begun or not line.is_blank
                    this.lines += 1
                    await self._judge(peer, this, ref, index, line)
            await writer.finish()
        finally:
            writer.discard()
        hold_to_type(this, name, writer.size, stream)

    async def _lines(
        self, this: Try, chunks: AsyncIterator[bytes], write: Callable[[bytes], Awaitable[None]]
    ) -> AsyncGenerator[Line, None]:
        """Every line that is not blank; its data are None where it is too long to be looked at."""
        buffer, start, size, number = bytearray(), 0, 0, 0
        async for chunk in chunks:
            await write(chunk)
            *whole, rest = chunk.split(b"\n")
            for part in whole:
                number, size, is_marked = number + 1, size + len(part), this.next_line_is_marked()
                if size > self._caps.line:
                    yield Line(number, start, size, None, is_marked)
                elif buffer or part.strip():
                    yield Line(number, start, size, without_bom(bytes(buffer) + part, number), is_marked)
                start, size = start + size + 1, 0
                buffer.clear()
                if number % LINES_A_TURN == 0:
                    await asyncio.sleep(0)
            size += len(rest)
            if size <= self._caps.line:
                buffer += rest
            else:
                buffer.clear()
            # A body that arrives faster than it is judged must not starve everyone else on the loop.
            await asyncio.sleep(0)
        if size:
            data = without_bom(bytes(buffer), number + 1) if size <= self._caps.line else None
            yield Line(number + 1, start, size, data, this.next_line_is_marked())

    async def _judge(self, peer: Peer, this: Try, ref: ResultRef, file: int, at: Line) -> None:
        if at.is_blank:
            return
        if at.data is not None:
            try:
                item = peer.provider.read_item(at.data, ref)
            except Unreadable:
                pass
            else:
                self._note(this, item, file, at)
                if len(this.pending) >= SLICE or this.waiting >= MAX_WAITING:
                    await self._pass_on(this)
                return
        if len(this.unreadable) < MAX_NAMED:
            this.unreadable.append(at.number)

    def _note(self, this: Try, item: Item, file: int, at: Line) -> None:
        if this.schema is not None and item.outcome == "succeeded":
            this.bodies[len(this.pending)] = item.body
            this.waiting += at.length
        reason = self._client.redactor.text(item.reason)  # a provider's words may quote what it was sent
        item_id = item.item_id if at.is_marked else marks.of_a_stranger(item.item_id)
        this.pending.append(ItemRow(item_id, this.lines, item.outcome, reason, file, at.start, at.length))

    async def _pass_on(self, this: Try) -> None:
        await self._hold_to_schema(this)
        this.heap.add(this.pending)
        this.pending = []
        if this.heap.is_full:
            await self._index(this)

    async def _index(self, this: Try) -> None:
        for rows in this.heap.emptied():
            await self._store.index(ItemSlice(this.op.operation_id, this.attempt, rows))

    async def _hold_to_schema(self, this: Try) -> None:
        """Judge the waiting bodies; a broken promise is told on the item, whose outcome stays the provider's."""
        bodies, this.bodies, this.waiting = this.bodies, {}, 0
        schema, room = this.schema, MAX_NAMED - len(this.off_schema)
        if schema is None or not bodies or room <= 0:
            return
        # Off the loop: a slice of costly bodies may take seconds, and everyone else would stand still for them.
        for place, why in await self._files.offload(lambda: off_schema_of(schema, bodies, room)):
            this.pending[place] = this.pending[place]._replace(reason=f"json_schema: {why}")
            this.off_schema.append(this.pending[place].item_id)

    # ---- adding up ----

    async def _add_up(self, this: Try, verdict: Verdict) -> Collected:
        op = this.op
        absent = conclude.absent_word(verdict)
        doubled = await self._store.doubled_ids(op.operation_id, this.attempt, after="")
        while doubled:
            await self._store.mark_doubled(Doubled(op.operation_id, this.attempt, doubled))
            doubled = await self._store.doubled_ids(op.operation_id, this.attempt, after=doubled[-1])
        if op.input_items is not None:
            count, last = SLICE, ""
            while count == SLICE:
                count, last = await self._store.index_absent(Absentees(op.operation_id, this.attempt, absent, last))
        tally = await self._store.tally(op.operation_id, this.attempt)
        summary, problems = add_up(tally, absent, op, tuple(this.unreadable))
        broken = broken_promises(this, verdict)
        counted = other_count(op, problems)
        is_all = not (problems.duplicate or problems.unknown or problems.missing or problems.unreadable_lines)
        is_all = is_all and (problems.expected == problems.found or bool(counted))
        differences = (*broken.values(), *counted)
        problems = replace(problems, broken=tuple(broken), off_schema=tuple(dict.fromkeys(this.off_schema)))
        info = ResultInfo(
            attempt=this.attempt,
            bytes=this.bytes,
            sha256=this.digest.hexdigest(),
            content_type=this.content_type,
            items=tally.found,
            files=tuple(this.files),
            problems=problems or None,
            indexes=tuple(this.indexes),
        )
        only_promises = bool(differences) and is_all
        return Collected(info, summary, differences=differences, breaks_only_promises=only_promises)


def is_not_ready(op: Operation, verdict: Verdict) -> bool:
    """Whether the job may hold results that it has not named: counts without a file are no empty result."""
    return not op.results and (verdict.kind in SAYS_DONE or bool(op.finished_items) or op.end_unread)


def _exchange(request: HttpRequest, sent_at: UnixMs, ended_at: UnixMs, stream: Stream, peer: Peer) -> Exchange:
    head = HttpResponse(stream.status, stream.headers, b"")
    return Exchange(request, sent_at, ended_at, head, None, peer.credential_name)

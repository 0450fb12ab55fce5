"""Results: streamed to disk, split on newline bytes only, judged line by line, indexed, and made to add up.

A try writes under an attempt of its own (the fence of its lease), so that nothing of a half-finished one is served.
Memory stays flat: a chunk, one line, one slice of rows.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from reconcile import conclude, marks, promises
from reconcile.client import Client, Exchange, Stream
from reconcile.errors import OutcomeUnknown, ProviderError, Unreadable
from reconcile.evidence import Collected, CollectFailed, ResultIsFailure
from reconcile.files import Files, FileWriter
from reconcile.json_schema import Schema
from reconcile.model import SAYS_DONE, Operation, Problems, ResultInfo, ResultRef, Summary, UnixMs, Verdict, VerdictKind
from reconcile.peer import Peer
from reconcile.provider import Headers, HttpRequest, HttpResponse, Item
from reconcile.read_json import JsonValue
from reconcile.schedule import retry_after_ms
from reconcile.seams import Clock
from reconcile.store.items import MAX_NAMED, SLICE, Absentees, Doubled, ItemRow, ItemSlice, Tally
from reconcile.store.store import Store

#: Bytes read of an answer that is no result; its error is in the first few.
MAX_ERROR_BODY: Final = 65536
#: Lines after which the loop is given up for a moment. 1,000: about two milliseconds of short ones.
LINES_A_TURN: Final = 1000
#: Bytes of lines whose bodies wait to be held against a schema. 1 MiB: arbitrary; a longer line waits alone.
MAX_WAITING: Final = 2**20
_BOM: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Caps:
    """Sizes beyond which a stranger's bytes are not taken."""

    result: int
    line: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """One try's evidence, and the exchanges it made for the record."""

    evidence: Collected | CollectFailed | ResultIsFailure
    exchanges: tuple[Exchange, ...]


@dataclass(slots=True)
class _Try:
    """What one try has gathered so far."""

    op: Operation
    attempt: int
    exchanges: list[Exchange] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    bytes: int = 0
    #: Over all files in order: one checksum for the whole result.
    digest: Any = field(default_factory=hashlib.sha256)
    content_type: str | None = None
    lines: int = 0
    #: What the first file that is not of the promised content type came as; None: each that holds anything is.
    other_type: str | None = None
    #: Takes the operation's mark off the file under way; None: its ids went out as they came.
    taken_off: marks.TakenOff | None = None
    pending: list[ItemRow] = field(default_factory=list)
    schema: Schema | None = None
    #: Bodies of pending rows, by their place there, and the bytes of their lines.
    bodies: dict[int, JsonValue] = field(default_factory=dict)
    waiting: int = 0
    off_schema: list[str] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)

    def next_line_is_marked(self) -> bool:
        """Whether the next line of the file is the operation's own by its mark; one without a mark asks for none."""
        return self.taken_off is None or self.taken_off.next_line()


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
        """One try. Raises: StoreError, OSError (a full disk: the lease runs out and the try is made again)."""
        verdict = op.verdict or Verdict(VerdictKind.DONE_UNKNOWN_OUTCOME, None)
        if op.results_gone:
            return Outcome(CollectFailed("results_dropped", is_final=True), ())
        if is_not_ready(op, verdict):
            return Outcome(CollectFailed("no_result_named"), ())
        schema = op.expect.get("json_schema")
        this = _Try(op, attempt, schema=Schema(schema) if schema is not None else None)
        try:
            for index, ref in enumerate(op.results):
                await self._fetch(peer, this, index, ref)
        except _Stop as stop:
            return Outcome(stop.evidence, tuple(this.exchanges))
        await self._index(this)
        return Outcome(await self._add_up(this, verdict), tuple(this.exchanges))

    async def tidy(self, op: Operation) -> None:
        """Drop what earlier tries left, once the operation names the one that counts."""
        while await self._store.prune_items(op.operation_id, op.collect_attempt):
            pass
        kept = {name.split("/")[2] for name in (op.result.files if op.result else ())}
        folder = f"results/{op.operation_id}"
        found = await self._files.offload(lambda: self._files.names(folder))
        await self._files.remove_all([f"{folder}/{name}" for name in found if name not in kept])

    # ---- fetching ----

    async def _fetch(self, peer: Peer, this: _Try, index: int, ref: ResultRef) -> None:
        request = peer.provider.result(this.op, ref)
        sent_at = self._clock.now()
        try:
            async with self._client.stream(peer, this.op, request) as stream:
                this.exchanges.append(_exchange(request, sent_at, self._clock.now(), stream, peer))
                if stream.status != 200:
                    raise _Stop(await self._refusal(peer, stream))
                await self._keep(peer, this, index, ref, stream)
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

    async def _keep(self, peer: Peer, this: _Try, index: int, ref: ResultRef, stream: Stream) -> None:
        name = f"results/{this.op.operation_id}/{this.attempt}/{index}.jsonl"
        content_type = _first(stream.headers, "content-type")
        this.content_type = this.content_type or content_type
        this.taken_off = marks.TakenOff(this.op.item_mark) if this.op.item_mark is not None else None
        chunks = stream.chunks if this.taken_off is None else _unmarked(stream.chunks, this.taken_off)
        writer = self._files.create(name)
        has_begun = False
        try:
            async with aclosing(self._lines(this, writer, chunks)) as lines:
                async for line in lines:
                    if not has_begun and line.is_page:
                        raise _Stop(CollectFailed("html_page"))
                    has_begun = has_begun or not line.is_blank
                    this.lines += 1
                    await self._judge(peer, this, ref, index, line)
            await writer.finish()
        finally:
            writer.discard()
        this.files.append(name)
        promised = this.op.expect.get("content_type")
        if promised is not None and writer.bytes and not promises.is_of_type(promised, content_type):
            this.other_type = this.other_type or content_type or "none"

    async def _lines(
        self, this: _Try, writer: FileWriter, chunks: AsyncIterator[bytes]
    ) -> AsyncGenerator["_Line", None]:
        """Every line that is not blank; its data are None where it is too long to be looked at."""
        buffer, start, size, number = bytearray(), 0, 0, 0
        async for chunk in chunks:
            this.bytes += len(chunk)
            if this.bytes > self._caps.result:
                raise OutcomeUnknown("result_too_large", f"more than {self._caps.result} bytes")
            writer.write(chunk)
            this.digest.update(chunk)
            *whole, rest = chunk.split(b"\n")
            for part in whole:
                number, size, is_marked = number + 1, size + len(part), this.next_line_is_marked()
                if size > self._caps.line:
                    yield _Line(number, start, size, None, is_marked)
                elif buffer or part.strip():
                    yield _Line(number, start, size, _without_bom(bytes(buffer) + part, number), is_marked)
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
            data = _without_bom(bytes(buffer), number + 1) if size <= self._caps.line else None
            yield _Line(number + 1, start, size, data, this.next_line_is_marked())

    async def _judge(self, peer: Peer, this: _Try, ref: ResultRef, file: int, at: "_Line") -> None:
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
                    await self._index(this)
                return
        if len(this.unreadable) < MAX_NAMED:
            this.unreadable.append(at.number)

    def _note(self, this: _Try, item: Item, file: int, at: "_Line") -> None:
        if this.schema is not None and item.outcome == "succeeded":
            this.bodies[len(this.pending)] = item.body
            this.waiting += at.length
        reason = self._client.redactor.text(item.reason)  # a provider's words may quote what it was sent
        item_id = item.item_id if at.is_marked else marks.of_a_stranger(item.item_id)
        this.pending.append(ItemRow(item_id, this.lines, item.outcome, reason, file, at.start, at.length))

    async def _index(self, this: _Try) -> None:
        if this.pending:
            await self._hold_to_schema(this)
            rows, this.pending = tuple(this.pending), []
            await self._store.index(ItemSlice(this.op.operation_id, this.attempt, rows))

    async def _hold_to_schema(self, this: _Try) -> None:
        """Judge the waiting bodies; a broken promise is told on the item, whose outcome stays the provider's."""
        bodies, this.bodies, this.waiting = this.bodies, {}, 0
        schema, room = this.schema, MAX_NAMED - len(this.off_schema)
        if schema is None or not bodies or room <= 0:
            return
        # Off the loop: a slice of costly bodies may take seconds, and everyone else would stand still for them.
        for place, why in await self._files.offload(lambda: _off_schema(schema, bodies, room)):
            this.pending[place] = replace(this.pending[place], reason=f"json_schema: {why}")
            this.off_schema.append(this.pending[place].item_id)

    # ---- adding up ----

    async def _add_up(self, this: _Try, verdict: Verdict) -> Collected:
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
        broken = _broken(this, verdict)
        counted = _other_count(op, problems)
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
        )
        only_promises = bool(differences) and is_all
        return Collected(info, summary, differences=differences, breaks_only_promises=only_promises)


@dataclass(frozen=True, slots=True)
class _Line:
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


async def _unmarked(chunks: AsyncIterator[bytes], taken_off: marks.TakenOff) -> AsyncGenerator[bytes, None]:
    async for chunk in chunks:
        yield taken_off.feed(chunk)
    yield taken_off.end()


def _without_bom(data: bytes, number: int) -> bytes:
    return data.removeprefix(_BOM) if number == 1 else data


def is_not_ready(op: Operation, verdict: Verdict) -> bool:
    """Whether the job must hold results that it does not name yet: counts without a file are no empty result."""
    return not op.results and (verdict.kind in SAYS_DONE or bool(op.finished_items))


def add_up(tally: Tally, absent: str, op: Operation, unreadable: tuple[int, ...]) -> tuple[Summary, Problems]:
    """The balance of one attempt (J3), and how it breaks the contract.

    A job whose ids nobody knows is held to a count: the one that the client promised, else the provider's.
    """
    counts = dict(tally.by_outcome)
    expected = found = None
    total_items: int | None = op.expect.get("items", op.total_items)
    if op.input_items is None and total_items is not None:
        short = total_items - tally.found
        counts[absent] = counts.get(absent, 0) + max(0, short)
        if short < 0 or (short > 0 and absent == "missing"):
            expected, found = total_items, tally.found
    total = sum(counts.values())
    words = ("succeeded", "failed", "cancelled", "expired", "missing")
    summary = Summary(total=total, **{word: counts.get(word, 0) for word in words})
    problems = Problems(
        duplicate=tally.duplicate,
        unknown=tally.unknown,
        missing=tally.missing,
        unreadable_lines=unreadable,
        expected=expected,
        found=found,
    )
    return summary, problems


def _off_schema(schema: Schema, bodies: Mapping[int, JsonValue], room: int) -> list[tuple[int, str]]:
    """Which bodies break the schema, and where; no more than there is room to name."""
    broken = ((place, why) for place, body in bodies.items() if (why := schema.broken_by(body)) is not None)
    return list(islice(broken, room))


def _broken(this: _Try, verdict: Verdict) -> dict[str, str]:
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


def _other_count(op: Operation, problems: Problems) -> tuple[str, ...]:
    """The same for the number of items, where it was the start that named one."""
    if "items" not in op.expect or problems.expected is None or problems.expected == problems.found:
        return ()
    return (f"expected {problems.expected} items, got {problems.found}",)


def _exchange(request: HttpRequest, sent_at: UnixMs, ended_at: UnixMs, stream: Stream, peer: Peer) -> Exchange:
    head = HttpResponse(stream.status, stream.headers, b"")
    return Exchange(request, sent_at, ended_at, head, None, peer.credential_name)


def _first(headers: Headers, name: str) -> str | None:
    values = headers.get(name)
    return values[0] if values else None

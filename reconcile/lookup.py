"""Looking for the job of a lost create: the account's list, and a peek into what an ended candidate left.

Reads only. Not being found proves nothing; what is sure is said by the evidence, what follows from it by the rules.
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from reconcile import marks
from reconcile.client import Client, Exchange, Stream
from reconcile.contract import Lookup
from reconcile.errors import ProviderError, Unreadable
from reconcile.evidence import Accepted, LookedAgain, LookupFound, ReadFailed
from reconcile.model import Observation, Operation, ResultRef
from reconcile.peer import Peer
from reconcile.provider import AsksByMarker, HttpResponse, Page, Purpose
from reconcile.seams import Clock
from reconcile.states import State

#: Bytes of a candidate's result that are looked at. 64 KiB: arbitrary; the id stands at the head of a line.
MAX_PEEK: Final = 65536
#: Candidates that one look-up peeks into. 20: arbitrary; those it leaves out stay candidates until the next one.
MAX_PEEKS: Final = 20


@dataclass(frozen=True, slots=True)
class Looked:
    """What one look-up came to, and the exchanges it made for the record; none where there was nothing to ask."""

    evidence: Accepted | LookupFound | ReadFailed
    exchanges: tuple[Exchange, ...] = ()
    #: The list was read to its end.
    is_whole: bool = True
    #: Jobs on it of which nobody can tell whose they are.
    in_doubt: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LookedTwice:
    """What a look-up after a re-send came to."""

    evidence: LookedAgain | ReadFailed
    exchanges: tuple[Exchange, ...]


class Looker:
    """Looks for jobs."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def look_up(self, peer: Peer, op: Operation) -> Looked:
        """One look-up: the whole list as far as the contract asks for it, then the peeks."""
        provider, terms = peer.provider, peer.provider.contract.lookup
        if terms is None or (terms.is_sure and provider.marker(op) is None):
            return Looked(LookupFound((), is_whole=False))
        seen: dict[str, Observation] = {}
        exchanges: list[Exchange] = []
        cursor, is_whole = None, False
        for _ in range(terms.max_pages):
            page = await self._page(peer, op, cursor, exchanges)
            if isinstance(page, ReadFailed):
                return Looked(page, tuple(exchanges))
            seen.update({str(job.remote_job_id): job for job in page.jobs if provider.is_candidate(op, job)})
            cursor = page.next
            is_whole = cursor is None or _shows_older(page, op, terms)
            if is_whole:
                break
        in_doubt: tuple[str, ...] = ()
        if terms.is_sure or op.item_mark is None:
            evidence = _found(seen, is_sure=terms.is_sure)
        else:
            evidence, in_doubt = await self._by_mark(peer, op, op.item_mark, seen, exchanges)
        if isinstance(evidence, LookupFound):
            same_size = _same_size(op, seen, evidence)
            evidence = replace(evidence, is_whole=is_whole, same_size=same_size, asked_at=exchanges[0].sent_at)
        return Looked(evidence, tuple(exchanges), is_whole, in_doubt)

    async def look_again(self, peer: Peer, op: Operation) -> "LookedTwice":
        """The same for an operation that holds the job of a re-sent create: is the first one's job there too?"""
        looked = await self.look_up(peer, op)
        match looked.evidence:
            case ReadFailed():
                return LookedTwice(looked.evidence, looked.exchanges)
            case Accepted(observation=seen):
                found: tuple[str, ...] = (str(seen.remote_job_id),)
            case LookupFound(job_ids=job_ids, is_sure=is_sure):
                found = job_ids if is_sure else ()
        others = tuple(job_id for job_id in found if job_id != op.remote_job_id)
        is_whole = looked.is_whole and not set(looked.in_doubt) - {op.remote_job_id}
        return LookedTwice(LookedAgain(others, is_whole), looked.exchanges)

    async def _page(
        self, peer: Peer, op: Operation, cursor: str | None, exchanges: list[Exchange]
    ) -> Page | ReadFailed:
        provider = peer.provider
        request = provider.look_up(op) if isinstance(provider, AsksByMarker) else provider.list_page(cursor)
        exchange = await self._client.send(peer, op, request)
        exchanges.append(exchange)
        if exchange.response is None:
            return ReadFailed(exchange.error_class or "unknown")
        return peer.provider.read_list(exchange.response)

    # ---- by the mark in the item ids ----

    async def _by_mark(
        self, peer: Peer, op: Operation, mark: str, seen: Mapping[str, Observation], exchanges: list[Exchange]
    ) -> tuple[Accepted | LookupFound, tuple[str, ...]]:
        """Candidates that have ended show their ids: this operation's, or somebody else's. The others stay in doubt."""
        left = {job_id: job for job_id, job in seen.items() if job_id not in op.ruled_out}
        ours: dict[str, Observation] = {}
        ruled_out: list[str] = []
        for job_id in [job_id for job_id, job in left.items() if job.results][:MAX_PEEKS]:
            match await self._bears(peer, op, mark, left[job_id].results[0], exchanges):
                case True:
                    ours[job_id] = left[job_id]
                case False:
                    ruled_out.append(job_id)
        in_doubt = tuple(job_id for job_id in left if job_id not in ruled_out and job_id not in ours)
        if ours:
            return _found(ours, is_sure=True), in_doubt
        return LookupFound(in_doubt, is_sure=False, ruled_out=tuple(ruled_out)), in_doubt

    async def _bears(
        self, peer: Peer, op: Operation, mark: str, ref: ResultRef, exchanges: list[Exchange]
    ) -> bool | None:
        """Whether the first line of a result bears the mark; None: that cannot be told."""
        request = replace(peer.provider.result(op, ref), purpose=Purpose.LOOKUP)
        sent_at = self._clock.now()
        try:
            async with self._client.stream(peer, op, request) as stream:
                status, headers = stream.status, stream.headers
                line = await _first_line(stream)
        except ProviderError as fault:
            now = self._clock.now()
            exchanges.append(Exchange(request, sent_at, now, None, fault, peer.credential_name))
            return None
        answer = HttpResponse(status, headers, self._client.redactor.data(line))
        exchanges.append(Exchange(request, sent_at, self._clock.now(), answer, credential=peer.credential_name))
        if status != 200:
            return None
        if marks.is_on(mark, line):
            return True
        return False if _is_item(peer, line, ref) else None


async def _first_line(stream: Stream) -> bytes:
    """The first line, or as much of it as is looked at. Raises: OutcomeUnknown, where the body is cut."""
    data = bytearray()
    async with aclosing(stream.chunks) as chunks:
        async for chunk in chunks:
            data += chunk
            if b"\n" in chunk or len(data) > MAX_PEEK:
                break
    return bytes(data).partition(b"\n")[0][:MAX_PEEK]


def _is_item(peer: Peer, line: bytes, ref: ResultRef) -> bool:
    try:
        peer.provider.read_item(line, ref)
    except Unreadable:
        return False
    return True


def owes_second_look(peer: Peer, op: Operation) -> bool:
    """Whether a create that was sent again, or may have been before a backup was restored, ended so that its result is
    next, and nobody has looked for a second job.

    Just before the result is believed: by then a list that lagged has had its time, and marked ids can be read.
    """
    terms = peer.provider.contract.lookup
    may_be_two = op.resends > 0 or op.restored
    if terms is None or op.state is not State.RESULT_COLLECTING or not may_be_two or op.resend_checked:
        return False
    return op.item_mark is not None or (terms.is_sure and peer.provider.marker(op) is not None)


def _found(seen: Mapping[str, Observation], *, is_sure: bool) -> Accepted | LookupFound:
    if is_sure and len(seen) == 1:
        return Accepted(next(iter(seen.values())), by_lookup=True)
    return LookupFound(tuple(seen), is_sure=is_sure)


def _same_size(op: Operation, seen: Mapping[str, Observation], found: LookupFound) -> tuple[str, ...]:
    """The candidates of a guess that are known to have as many items as were sent."""
    if found.is_sure or op.input_items is None:
        return ()
    return tuple(job_id for job_id in found.job_ids if seen[job_id].total_items == op.input_items)


def _shows_older(page: Page, op: Operation, terms: Lookup) -> bool:
    """Whether a list that goes from new to old has come to jobs made before the operation was."""
    times = [job.created_at for job in page.jobs if job.created_at is not None]
    return terms.skew_ms is not None and any(at < op.created_at - terms.skew_ms for at in times)

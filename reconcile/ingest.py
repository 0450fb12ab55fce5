"""Evidence in: what an exchange or a delivery said becomes an arrival, and the store decides it.

Every road ends here: polls, create and cancel answers, webhooks, deadlines. Logs and counts are made from what was
committed, never from what was hoped.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from reconcile.changes import Changes
from reconcile.client import Exchange
from reconcile.contract import Contract
from reconcile.decide import decide
from reconcile.evidence import Accepted, CancelAnswered, Evidence, FinishedAtOnce, JobRead
from reconcile.model import Change, EntryKind, Observation, Operation, UnixMs
from reconcile.redact import Redactor
from reconcile.seams import Clock, Dice, Meters
from reconcile.store.events import EventRecord
from reconcile.store.evidence import Arrival, Judge, ObservationRecord, RequestRecord
from reconcile.store.store import Store
from reconcile.store.writer import Done

#: Raw bytes kept with an observation. 64 KiB: a job's body is a few KiB; an end's longer one is cut at this.
MAX_RAW: Final = 65536
#: Undocumented words remembered, so that each is logged once; beyond, they are only counted.
MAX_WORDS: Final = 1000
_REQUEST_IDS: Final = ("x-request-id", "request-id")


def judge_by(contracts: Callable[[str], Contract]) -> Judge:
    """classify and decide as the store calls them, inside its transaction."""

    def judge(op: Operation, arrival: Arrival) -> Change:
        return decide(
            op,
            contracts(op.provider),
            arrival.evidence,
            now=arrival.at,
            draw=arrival.draw,
            cause=arrival.cause,
        )

    return judge


class Ingest:
    """Makes arrivals of what came in; the one caller of `Store.apply` and `Store.receive`."""

    def __init__(self, *, store: Store, clock: Clock, dice: Dice, redactor: Redactor) -> None:
        self._store = store
        self._clock = clock
        self._dice = dice
        self._redactor = redactor

    async def answer(
        self,
        op: Operation,
        evidence: Evidence,
        *exchanges: Exchange,
        actor: str,
        fence: int,
        holds: bool = False,
        attempt: int = 1,
    ) -> Change:
        """What one or more exchanges said about `op`; the last one brought the evidence. Raises: StoreError."""
        exchange = exchanges[-1]
        requests = tuple(self._request_record(each, attempt) for each in exchanges)
        request = requests[-1]
        seen = _observation_of(evidence)
        record = None
        cause = f"request:{request.request_id}"
        if seen is not None or isinstance(evidence, JobRead):
            record = ObservationRecord(
                self._dice.identifier("obs_"),
                request.purpose,
                self._raw(exchange),
                seen,
                exchange.error_class,
            )
            if request.purpose in ("status", "lookup"):
                cause = f"observation:{record.observation_id}"
        return await self._apply(
            op, evidence, actor=actor, cause=cause, fence=fence, holds=holds, requests=requests, observation=record
        )

    async def fact(
        self,
        op: Operation,
        evidence: Evidence,
        *,
        actor: str,
        cause: str,
        fence: int | None = None,
        holds: bool = False,
    ) -> Change:
        """Evidence without an exchange: a deadline, a restart, a collected result, a person. Raises: StoreError."""
        return await self._apply(op, evidence, actor=actor, cause=cause, fence=fence, holds=holds)

    async def event(self, provider: str, event_id: str, body: bytes, observation: Observation | None) -> str:
        """A verified delivery; "new" or "duplicate", once it is durable. Raises: StoreError."""
        return await self._store.receive(
            EventRecord(
                provider,
                event_id,
                hashlib.sha256(body).hexdigest(),
                self._redactor.data(body),
                self._clock.now(),
                self._dice.draw(),
                observation,
            )
        )

    async def _apply(self, op: Operation, evidence: Evidence, **how: Any) -> Change:
        change: Change = await self._store.apply(
            Arrival(op.operation_id, evidence, at=self._clock.now(), draw=self._dice.draw(), **how)
        )
        return change

    def _request_record(self, exchange: Exchange, attempt: int) -> RequestRecord:
        answer = exchange.response
        remote_id = None
        if answer is not None:
            remote_id = next((value for name in _REQUEST_IDS if (value := answer.header(name))), None)
        return RequestRecord(
            request_id=self._dice.identifier("req_"),
            purpose=exchange.request.purpose.value,
            attempt=attempt,
            sent_at=exchange.sent_at,
            ended_at=exchange.ended_at,
            status=answer.status if answer else None,
            error_class=exchange.error_class,
            remote_request_id=remote_id[:200] if remote_id else None,
            credential=exchange.credential,
        )

    def _raw(self, exchange: Exchange) -> bytes:
        return self._redactor.data(exchange.response.body)[:MAX_RAW] if exchange.response else b""


def _observation_of(evidence: Evidence) -> Observation | None:
    match evidence:
        case JobRead(observation=seen) | Accepted(observation=seen) | FinishedAtOnce(observation=seen):
            return seen
        case CancelAnswered(observation=seen):
            return seen
        case _:
            return None


class Reporter:
    """Tells of committed changes: to the log, the meters, the watchers, and whoever sleeps until something is due."""

    def __init__(self, *, changes: Changes, meters: Meters, log: Any, on_due: Callable[[UnixMs], None]) -> None:
        self._changes = changes
        self._meters = meters
        self._log = log
        self._on_due = on_due
        self._words: set[tuple[str, str | None]] = set()

    def __call__(self, done: Sequence[Done]) -> None:
        """One commit's outcomes, on the loop, before the callers hear of them."""
        for outcome in done:
            for change in outcome.changes:
                self._tell(change)
            if outcome.due_at is not None:
                self._on_due(outcome.due_at)

    def _tell(self, change: Change) -> None:
        op = change.operation
        for entry in change.entries:
            if entry.kind is EntryKind.FACT:
                continue
            event = "state_changed" if entry.kind is EntryKind.MOVE else f"evidence_{entry.kind}"
            self._meters.count(event, provider=op.provider, to=entry.to_state or "")
            self._log.info(
                event,
                operation_id=op.operation_id,
                trace_id=op.trace_id,
                provider=op.provider,
                from_state=entry.from_state,
                to_state=entry.to_state,
                cause=entry.cause,
                reason=entry.reason,
            )
        if change.verdict is not None and not change.verdict.known:
            self._tell_unknown(op, change.verdict.word)
        if change.entries or change.is_news:
            self._changes.publish(change)

    def _tell_unknown(self, op: Operation, word: str | None) -> None:
        self._meters.count("unknown_status", provider=op.provider)
        if (op.provider, word) not in self._words and len(self._words) < MAX_WORDS:
            self._words.add((op.provider, word))
            self._log.warning("unknown_status", provider=op.provider, word=word, operation_id=op.operation_id)

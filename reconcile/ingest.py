"""Evidence in: what an exchange or a delivery said becomes an arrival, and the store decides it.

Every road ends here: polls, create and cancel answers, webhooks, deadlines. Logs and counts are made from what was
committed, never from what was hoped.
"""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, Final

from reconcile.absence import Served
from reconcile.classify import classify
from reconcile.client import Exchange
from reconcile.contract import Contract
from reconcile.decide import decide
from reconcile.errors import LeaseLost, StoreBusy
from reconcile.evidence import Accepted, CancelAnswered, Evidence, FinishedAtOnce, JobGone, JobRead, ReadFailed
from reconcile.model import Change, Observation, Operation
from reconcile.provider import Page
from reconcile.redact import Redactor
from reconcile.report import Reporter
from reconcile.schedule import Pace
from reconcile.seams import Clock, Dice
from reconcile.store.events import EventRecord
from reconcile.store.evidence import Arrival, Judge
from reconcile.store.kept import MAX_RAW, ObservationRecord, RequestRecord
from reconcile.store.list_pages import ListedJob, PageKept, PageRecord
from reconcile.store.repeats import Repeat
from reconcile.store.store import Store
from reconcile.unchanged import next_wait_ms

#: Raw bytes kept of an answer that could not be read. 1 KiB: enough to tell whose page it is.
MAX_RAW_OF_A_FAULT: Final = 1024
#: Seconds between tries to store an answer while the disk is busy or full: doubled from the first to the last.
FIRST_RETRY_SECONDS: Final = 0.5
LAST_RETRY_SECONDS: Final = 8.0
_REQUEST_IDS: Final = ("x-request-id", "request-id")


def judge_by(contracts: Callable[[str], Contract], pace: Callable[[str], Pace] = lambda _: Pace.POLLED) -> Judge:
    """classify and decide as the store calls them, inside its transaction; `pace`: how jobs are watched just now."""

    def judge(op: Operation, arrival: Arrival) -> Change:
        return decide(
            op,
            contracts(op.provider),
            arrival.evidence,
            now=arrival.at,
            draw=arrival.draw,
            cause=arrival.cause,
            pace=pace(op.provider),
        )

    return judge


class Ingest:
    """Makes arrivals of what came in; the one caller of `Store.apply` and `Store.receive`."""

    def __init__(
        self,
        *,
        store: Store,
        contracts: Callable[[str], Contract],
        reporter: Reporter,
        clock: Clock,
        dice: Dice,
        redactor: Redactor,
        pace: Callable[[str], Pace] = lambda _: Pace.POLLED,
    ) -> None:
        self._store = store
        self._contracts = contracts
        self._reporter = reporter
        self._clock = clock
        self._dice = dice
        self._redactor = redactor
        self._pace = pace

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
        """What one or more exchanges said about `op`; the last one brought the evidence.

        Raises: StoreError; LeaseLost: act no further.
        """
        if not holds and await self._repeats(op, evidence, fence):
            return Change(op)
        exchange = exchanges[-1]
        requests = tuple(self._request_record(each, attempt) for each in exchanges)
        request = requests[-1]
        seen = observation_of(evidence)
        error_class = evidence.error_class if isinstance(evidence, ReadFailed | JobGone) else None
        record = None
        cause = f"request:{request.request_id}"
        if seen is not None or error_class is not None:
            observation_id = self._dice.identifier("obs_")
            raw = self._raw(exchange, MAX_RAW if seen else MAX_RAW_OF_A_FAULT)
            record = ObservationRecord(observation_id, request.purpose, raw, seen, error_class)
            if request.purpose in ("status", "lookup"):
                cause = f"observation:{observation_id}"
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
        """A verified delivery; "new" or "duplicate", once it is durable. Raises: StoreError.

        What it says is classified and kept; where the job can be read it only rings, and the read is believed (J1).
        """
        verdict = None if observation is None else classify(self._contracts(provider), observation.word)
        answer = await self._store.receive(
            EventRecord(
                provider,
                event_id,
                hashlib.sha256(body).hexdigest(),
                self._redactor.data(body),
                self._clock.now(),
                self._dice.draw(),
                observation,
                verdict,
            )
        )
        if verdict is not None and verdict.word is not None and not verdict.known and answer == "new":
            self._reporter.unknown_word(provider, verdict.word, event_id=event_id)
        return answer

    async def page(
        self,
        provider: str,
        page: Page,
        exchange: Exchange,
        *,
        owner: str,
        fence: int,
        served: Served,
        renew_ms: int,
    ) -> PageKept:
        """What a list page shows, in one write; `renew_ms` above 0 keeps the sweep's lease so much longer.

        Raises: StoreError.
        """
        contract, now = self._contracts(provider), self._clock.now()
        entries = page.entries or (b"",) * len(page.jobs)
        return await self._store.sweeps.keep_page(
            PageRecord(
                provider,
                owner,
                fence,
                served=served,
                at=now,
                draw=self._dice.draw(),
                request=self._request_record(exchange, 1),
                page_id=self._dice.identifier(""),
                jobs=tuple(
                    ListedJob(job, classify(contract, job.word), entry)
                    for job, entry in zip(page.jobs, entries, strict=True)
                    if job.remote_job_id is not None
                ),
                renew_until=now + renew_ms if renew_ms > 0 else None,
            )
        )

    async def _repeats(self, op: Operation, evidence: Evidence, fence: int) -> bool:
        """Whether a read told nothing new, and only the next one had to be planned. Raises: StoreError."""
        contract, now = self._contracts(op.provider), self._clock.now()
        wait = next_wait_ms(op, contract, evidence, draw=self._dice.draw(), pace=self._pace(op.provider))
        if wait is None:
            return False
        try:
            return await self._store.repeat(Repeat(op, fence, now, now + wait))
        except StoreBusy:
            return False  # evidence waits for the disk

    async def _apply(self, op: Operation, evidence: Evidence, **how: Any) -> Change:
        arrival = Arrival(op.operation_id, evidence, at=self._clock.now(), draw=self._dice.draw(), **how)
        change: Change = await self._until_taken(arrival)
        if change.is_late:
            raise LeaseLost(f"{op.operation_id}: another owner holds the row; what was learned is kept")
        return change

    async def _until_taken(self, arrival: Arrival) -> Any:
        """An answer in hand is worth waiting for a busy or full disk: nobody else knows it, it may hold a job id."""
        wait = FIRST_RETRY_SECONDS
        while True:
            try:
                return await self._store.apply(arrival)
            except StoreBusy:
                if not arrival.requests or not self._store.is_writable:
                    raise
            await asyncio.sleep(wait)
            wait = min(2 * wait, LAST_RETRY_SECONDS)

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
            remote_request_id=self._redactor.text(remote_id[:200]) if remote_id else None,
            credential=exchange.credential,
        )

    def _raw(self, exchange: Exchange, most: int) -> bytes:
        return self._redactor.data(exchange.response.body)[:most] if exchange.response else b""


def observation_of(evidence: Evidence) -> Observation | None:
    """The job's body in it, whatever brought it."""
    match evidence:
        case JobRead(observation=seen) | Accepted(observation=seen) | FinishedAtOnce(observation=seen):
            return seen
        case CancelAnswered(observation=seen):
            return seen
        case _:
            return None

"""Due rows to actions: lease what is due, do the one thing its state names, hand back what came of it as evidence.

No job has a task, timer or loop of its own: a task lives as long as one running action. Between actions everything
stands in the rows; a restart, a crash and a second worker all find the same thing: a row that is due.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from reconcile import limits
from reconcile.client import Client, Exchange, Peer
from reconcile.collect import Collector
from reconcile.contract import Lookup
from reconcile.decide import next_action
from reconcile.errors import NotSent, StoreBroken, StoreError
from reconcile.evidence import (
    AboutToSend,
    Accepted,
    CancelAnswer,
    CancelAnswered,
    CreateNotAccepted,
    CreateUnknown,
    DeadlinePassed,
    Evidence,
    FoundAtStart,
    JobRead,
    LookupFound,
    ReadFailed,
    StepDone,
)
from reconcile.ingest import Ingest
from reconcile.model import Change, Observation, Operation, UnixMs
from reconcile.provider import Page, Step
from reconcile.seams import Clock, Supervisor
from reconcile.states import STOPPED, Action, State
from reconcile.store.claims import Claim, ClaimWish, Renewal
from reconcile.store.store import Store

#: How long a lease lasts, and how often it is renewed while its action runs, ms. 60 s and 20 s: a lease survives two
#: missed renewals, and a dead owner's work waits no longer than a minute.
LEASE_MS: Final = 60_000
RENEW_MS: Final = 20_000
#: Bytes shown of an answer that could not be read. 200: enough to tell a proxy's page from the provider.
MAX_SHOWN: Final = 200
#: Seconds that running actions get at a stop. 20: below the unit's TimeoutStopSec (45), above most requests.
GRACE_SECONDS: Final = 20
#: Wait after the store refused a claim, ms. 1 s: arbitrary; a full disk does not clear faster.
STORE_BUSY_MS: Final = 1_000


class Worker:
    """One owner of leases. `run` loops until `stop`; `wake` is told of every time that comes due."""

    def __init__(
        self,
        *,
        owner: str,
        peers: Mapping[str, Peer],
        store: Store,
        client: Client,
        ingest: Ingest,
        collector: Collector,
        clock: Clock,
        supervisor: Supervisor,
        log: Any,
    ) -> None:
        self._owner = owner
        self._peers = peers
        self._store = store
        self._client = client
        self._ingest = ingest
        self._collector = collector
        self._clock = clock
        self._supervisor = supervisor
        self._log = log
        self._running: dict[str, Claim] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._sleeping_until: UnixMs | None = None

    def wake(self, due_at: UnixMs) -> None:
        """Something comes due at `due_at`: wake the loop if that is sooner than it would."""
        if self._sleeping_until is None or due_at < self._sleeping_until:
            self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Claim and act until `stop` (whoever sets it also calls `wake`); then let running actions end.

        Raises: StoreBroken.
        """
        renew_at = self._clock.now() + RENEW_MS
        while not stop.is_set():
            self._wake.clear()
            if self._clock.now() >= renew_at:
                await self._renew()
                renew_at = self._clock.now() + RENEW_MS
            until = await self._pass(stop)
            await self._sleep(min(until, renew_at) if self._running else until)
        await self._wind_down()

    async def _wind_down(self) -> None:
        """Let running actions end; what takes too long is dropped, its send mark tells the next start what it was."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=GRACE_SECONDS)
        for task in late:
            self._log.warning("action_dropped", task=task.get_name())
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _pass(self, stop: asyncio.Event) -> UnixMs:
        """Lease what is due and start its actions; gives the time to look again."""
        now = self._clock.now()
        room = {name: self._room(peer, now) for name, peer in self._peers.items()}
        paused = frozenset(name for name, peer in self._peers.items() if not limits.may_send(peer.pause, now))
        try:
            claimed = await self._store.claim(ClaimWish(self._owner, now, LEASE_MS, room, paused))
        except StoreBroken:
            raise
        except StoreError as fault:
            self._log.warning("claim_refused", error=str(fault))
            return now + STORE_BUSY_MS
        if stop.is_set():
            return now  # what was claimed meanwhile is released at the next start, under the lock
        for claim in claimed.claims:
            self._start(claim)
        times = [self._look_again(name, due_at) for name, due_at in claimed.next_due.items()]
        times += [self._peers[name].pause.until_ms for name in paused]
        if claimed.next_expiry is not None:
            times.append(claimed.next_expiry)
        return min((t for t in times if t is not None), default=_far(now))

    def _look_again(self, name: str, next_at: UnixMs) -> UnixMs | None:
        """When a provider's next row can be taken; None: when a running action ends, which wakes the loop."""
        peer, now = self._peers[name], self._clock.now()
        until = peer.pause.until_ms
        if until is not None and now < until:
            return min(next_at, until)
        return next_at if next_at > now or self._room(peer, now) > 0 else None

    def _room(self, peer: Peer, now: UnixMs) -> int:
        concurrency = peer.provider.contract.limits.concurrency
        return max(0, limits.max_in_flight(peer.pause, concurrency, now) - self._busy(peer.name))

    def _busy(self, provider: str) -> int:
        return sum(claim.operation.provider == provider for claim in self._running.values())

    async def _sleep(self, until: UnixMs) -> None:
        self._sleeping_until = until
        waits = max(0, until - self._clock.now()) / 1000
        try:
            async with asyncio.timeout(waits):
                await self._wake.wait()
        except TimeoutError:
            pass
        finally:
            self._sleeping_until = None

    def _start(self, claim: Claim) -> None:
        operation_id = claim.operation.operation_id
        self._running[operation_id] = claim
        task = self._supervisor.start(f"action:{operation_id}", self._run_action(claim))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_action(self, claim: Claim) -> None:
        op = claim.operation
        try:
            peer = self._peers[op.provider]
            await Act(peer, claim, self._client, self._ingest, self._collector, self._clock, self._log).run()
        except StoreBroken:
            raise  # the writer's own task ends the process
        except (StoreError, OSError) as fault:
            # Nothing of it was kept; the lease runs out and the action is done again.
            self._log.warning("action_not_recorded", operation_id=op.operation_id, error=str(fault))
        finally:
            del self._running[op.operation_id]
            self._wake.set()

    async def _renew(self) -> None:
        until = self._clock.now() + LEASE_MS
        for claim in list(self._running.values()):
            try:
                await self._store.renew(Renewal(claim.operation.operation_id, self._owner, claim.fence, until))
            except StoreError as fault:
                self._log.warning("lease_not_renewed", operation_id=claim.operation.operation_id, error=str(fault))


def _far(now: UnixMs) -> UnixMs:
    return now + 3_600_000


class Act:
    """One action on one leased row."""

    def __init__(
        self,
        peer: Peer,
        claim: Claim,
        client: Client,
        ingest: Ingest,
        collector: Collector,
        clock: Clock,
        log: Any,
    ) -> None:
        self._peer = peer
        self._claim = claim
        self._client = client
        self._ingest = ingest
        self._collector = collector
        self._clock = clock
        self._log = log

    async def run(self) -> None:
        """Do what the row's state names. Raises: StoreError, OSError."""
        op = self._claim.operation
        if self._claim.open_mark:
            await self._fact(op, FoundAtStart(is_repeatable=self._is_repeatable(op)), "start")
            return
        passed = self._deadline_while_paused(op) or self._deadline_without_a_read(op)
        if passed is not None:
            await self._fact(op, passed, "clock", cause=f"deadline:{passed.name}")
            return
        match next_action(op) or _owed_read(op):
            case Action.SUBMIT:
                await self._submit(op)
            case Action.RECONCILE_CREATE:
                await self._look_up(op)
            case Action.POLL:
                await self._poll(op)
            case Action.SEND_CANCEL:
                await self._send_cancel(op)
            case Action.COLLECT:
                await self._collect(op)
            case _:  # nothing to do before the deadline: only the due time is set right again
                await self._fact(op, DeadlinePassed(op.state_deadline_name or ""), "clock")

    def _deadline_while_paused(self, op: Operation) -> DeadlinePassed | None:
        """Nothing may be sent, so the deadline fires without the last read; late evidence is still taken (J6)."""
        if limits.may_send(self._peer.pause, self._clock.now()):
            return None
        return DeadlinePassed(op.state_deadline_name or "", last_read=True)

    def _deadline_without_a_read(self, op: Operation) -> DeadlinePassed | None:
        """A deadline that fires without asking the provider: nothing was sent yet, or a person let it pass."""
        name = op.state_deadline_name
        deadline = op.deadline(name) if name else None
        if name is None or deadline is None or self._clock.now() < deadline:
            return None
        reads_first = (Action.POLL, Action.RECONCILE_CREATE, Action.COLLECT)
        return None if next_action(op) in reads_first and name != "attention" else DeadlinePassed(name)

    def _is_repeatable(self, op: Operation) -> bool:
        contract = self._peer.provider.contract
        if op.state is State.INPUT_GIVEN:
            return contract.input_is_repeatable
        return contract.cancel is not None and contract.cancel.is_repeatable

    # ---- submit ----

    async def _submit(self, op: Operation) -> None:
        while op.state is State.CREATE_PENDING:
            step = self._peer.provider.submit(op)
            if step.has_effect and op.schedule.mark_at is None:
                marked = await self._fact(op, AboutToSend(), "worker", holds=True)
                op = _with_request(marked.operation, op)
                continue
            evidence, exchange = await self._send_step(op, step)
            goes_on = isinstance(evidence, StepDone)
            change = await self._answer(op, evidence, exchange, holds=goes_on)
            if not goes_on:
                return
            op = _with_request(change.operation, op)

    async def _send_step(self, op: Operation, step: Step) -> tuple[Evidence, Exchange]:
        exchange = await self._client.send(self._peer, op, step.request)
        evidence: Evidence
        if exchange.response is not None:
            evidence = self._peer.provider.read_submit(op, step, exchange.response)
        elif isinstance(exchange.error, NotSent) or not step.has_effect:
            evidence = CreateNotAccepted(exchange.error_class or "unknown")
        else:
            evidence = CreateUnknown(exchange.error_class or "unknown")
        if isinstance(evidence, CreateNotAccepted):
            self._client.note(self._peer, exchange, create_not_accepted=True)
        return evidence, exchange

    async def _look_up(self, op: Operation) -> None:
        """Walk the list for the job of a lost create. Not being found proves nothing (B2)."""
        provider, terms = self._peer.provider, self._peer.provider.contract.lookup
        if terms is None or (terms.is_sure and provider.marker(op) is None):
            await self._fact(op, LookupFound(()), "worker")
            return
        found: dict[str, Observation] = {}
        cursor: str | None = None
        for _ in range(terms.max_pages):
            exchange = await self._client.send(self._peer, op, provider.list_page(cursor))
            page: Page | ReadFailed = (
                provider.read_list(exchange.response)
                if exchange.response is not None
                else ReadFailed(exchange.error_class or "unknown")
            )
            if isinstance(page, ReadFailed):
                await self._answer(op, page, exchange)
                return
            found.update({str(job.remote_job_id): job for job in page.jobs if provider.is_candidate(op, job)})
            cursor = page.next
            if cursor is None or _shows_older(page, op, terms):
                break
        await self._answer(op, _looked_up(found, is_sure=terms.is_sure), exchange)

    # ---- observe, cancel, collect ----

    async def _poll(self, op: Operation, *, holds: bool = False) -> Change:
        exchange = await self._client.send(self._peer, op, self._peer.provider.status(op))
        evidence: Evidence
        if exchange.response is None:
            evidence = ReadFailed(exchange.error_class or "unknown")
        else:
            evidence = self._peer.provider.read_status(exchange.response)
        if isinstance(evidence, JobRead):
            evidence = replace(evidence, rung_by=self._claim.ring)
        return await self._answer(op, evidence, exchange, holds=holds)

    async def _send_cancel(self, op: Operation) -> None:
        exchange = await self._client.send(self._peer, op, self._peer.provider.cancel(op))
        if exchange.response is not None:
            evidence = self._peer.provider.read_cancel(exchange.response)
        else:
            surely_not = isinstance(exchange.error, NotSent)
            answer = CancelAnswer.NOT_ACCEPTED if surely_not else CancelAnswer.UNKNOWN
            evidence = CancelAnswered(answer, exchange.error_class)
        await self._answer(op, evidence, exchange)

    async def _collect(self, op: Operation) -> None:
        if op.schedule.errors > 0:
            # An earlier try failed: what the job names may have changed since.
            op = (await self._poll(op, holds=True)).operation
            if op.state is not State.RESULT_COLLECTING:
                return
        outcome = await self._collector.collect(self._peer, op, self._claim.fence)
        if outcome.exchanges:
            change = await self._answer(op, outcome.evidence, *outcome.exchanges)
        else:
            change = await self._fact(op, outcome.evidence, "worker")
        if change.operation.collect_attempt == self._claim.fence:
            await self._collector.tidy(change.operation)

    # ---- handing back ----

    async def _answer(self, op: Operation, evidence: Evidence, *exchanges: Exchange, holds: bool = False) -> Change:
        claim = self._claim
        if isinstance(evidence, ReadFailed) and exchanges and exchanges[-1].response is not None:
            answer = exchanges[-1].response
            self._log.warning(
                "read_failed",
                operation_id=op.operation_id,
                trace_id=op.trace_id,
                error_class=evidence.error_class,
                status=answer.status,
                body=answer.body[:MAX_SHOWN].decode("utf-8", "replace"),
            )
        return await self._ingest.answer(
            op,
            evidence,
            *exchanges,
            actor="worker:1",
            fence=claim.fence,
            holds=holds,
            attempt=max(op.schedule.errors, op.schedule.polls) + 1,
        )

    async def _fact(
        self, op: Operation, evidence: Evidence, actor: str, *, cause: str | None = None, holds: bool = False
    ) -> Change:
        return await self._ingest.fact(
            op, evidence, actor=actor, cause=cause or f"start:{op.operation_id}", fence=self._claim.fence, holds=holds
        )


def _owed_read(op: Operation) -> Action | None:
    """Where polling has stopped, a row that is due before its deadline was rung: it is owed one confirming read."""
    return Action.POLL if op.state in STOPPED else None


def _with_request(op: Operation, known: Operation) -> Operation:
    """The row as it stands, with the request that only a claim reads."""
    return replace(op, request=known.request, expect=known.expect)


def _shows_older(page: Page, op: Operation, terms: Lookup) -> bool:
    """Whether a list that goes from new to old has come to jobs made before the operation was."""
    times = [job.created_at for job in page.jobs if job.created_at is not None]
    return terms.skew_ms is not None and any(at < op.created_at - terms.skew_ms for at in times)


def _looked_up(found: Mapping[str, Observation], *, is_sure: bool) -> Evidence:
    if is_sure and len(found) == 1:
        return Accepted(next(iter(found.values())), by_lookup=True)
    return LookupFound(tuple(found), is_sure=is_sure)

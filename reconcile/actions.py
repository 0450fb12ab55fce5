"""One action on one leased row: the request its state names, and what came of it handed back as evidence."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from reconcile import limits
from reconcile.absence import question
from reconcile.answers import ACCOUNT_OR_PATH
from reconcile.client import Client, Exchange
from reconcile.collect import Collector, Outcome, inline_file
from reconcile.decide import next_action
from reconcile.errors import NotSent, Unreadable
from reconcile.evidence import (
    AboutToSend,
    CancelAnswer,
    CancelAnswered,
    CollectFailed,
    CreateNotAccepted,
    CreateUnknown,
    DeadlinePassed,
    Evidence,
    FoundAtStart,
    InputAnswer,
    InputAnswered,
    JobGone,
    JobRead,
    LookedAgain,
    ProviderAbsent,
    ReadFailed,
    StepDone,
)
from reconcile.files import Files
from reconcile.ingest import Ingest, observation_of
from reconcile.lookup import Looker, owes_second_look
from reconcile.model import Change, Operation
from reconcile.peer import Peer
from reconcile.provider import INLINE, Step, TakesInput
from reconcile.read_json import read_json
from reconcile.replacing import replace
from reconcile.seams import Clock
from reconcile.states import STOPPED, Action, Priority, State
from reconcile.store.claims import Claim

#: Bytes shown of an answer that could not be read. 200: enough to tell a proxy's page from the provider.
MAX_SHOWN: Final = 200
#: Failed tries to look for a second job of a re-sent create after which the next one is the last, and the result is
#: collected whatever it says. 3: arbitrary.
SECOND_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class Rooms:
    """What an action uses."""

    client: Client
    ingest: Ingest
    collector: Collector
    files: Files
    clock: Clock
    log: Any


class Act:
    """One action on one leased row.

    `on_asked` is told once the provider is asked nothing more under this lease, and what it sent as a result is in its
    file: bodies that wait for a slow disk are no more than may be asked for at once.
    """

    def __init__(
        self, peer: Peer, claim: Claim, rooms: Rooms, *, owner: str, on_asked: Callable[[], None] = lambda: None
    ) -> None:
        self._peer = peer
        self._claim = claim
        self._client = rooms.client
        self._ingest = rooms.ingest
        self._collector = rooms.collector
        self._files = rooms.files
        self._clock = rooms.clock
        self._log = rooms.log
        self._owner = f"worker:{owner}"
        self._on_asked = on_asked
        self._may_have_sent = False

    async def run(self) -> None:
        """Do what the row's state names. Raises: StoreError, OSError."""
        op = self._claim.operation
        if self._claim.open_mark:
            is_repeatable = self._peer.provider.contract.is_repeatable(op.state)
            await self._fact(op, FoundAtStart(is_repeatable=is_repeatable), "start")
            return
        if (absence := self._peer.absence_for(op)) is not None:
            message = question(absence, op.provider, started_at=op.origin, is_at=self._peer.origin)
            await self._fact(op, ProviderAbsent(absence, message), self._owner)
            return
        passed = self._deadline_without_room(op) or self._deadline_without_a_read(op)
        if passed is not None:
            await self._fact(op, passed, "clock", cause=f"deadline:{passed.name}")
            return
        if owes_second_look(self._peer, op):
            looked = await self._look_again(op)
            if looked is None:
                return
            op = looked
        match next_action(op) or _owed_read(op):
            case Action.SUBMIT:
                await self._submit(op)
            case Action.RECONCILE_CREATE:
                await self._reconcile_create(op)
            case Action.POLL:
                await self._poll(op)
            case Action.SEND_CANCEL:
                await self._send_cancel(op)
            case Action.SEND_INPUT:
                await self._send_input(op)
            case Action.COLLECT:
                await self._collect(op)
            case _:  # nothing to do before the deadline, which has not come: only the due time is set right again
                name = op.state_deadline_name or ""
                await self._fact(op, DeadlinePassed(name), "clock", cause=f"deadline:{name}")

    async def fail(self) -> None:
        """A fault of ours ended the action: told as evidence, so that budgets and deadlines still bite.

        Raises: StoreError.
        """
        op, evidence = self._claim.operation, _own_fault(self._claim.operation, may_have_sent=self._may_have_sent)
        if evidence is not None:
            await self._fact(op, evidence, self._owner)

    def _deadline_without_room(self, op: Operation) -> DeadlinePassed | None:
        """Nothing can be sent, so the deadline fires without the last read; late evidence is still taken (J6)."""
        if not self._claim.is_overdue and limits.may_send(self._peer.pause, self._clock.now()):
            return None
        return DeadlinePassed(op.state_deadline_name or "", last_read=True)

    def _deadline_without_a_read(self, op: Operation) -> DeadlinePassed | None:
        """A deadline that fires without asking the provider: nothing was sent yet, or a person let it pass."""
        name = op.state_deadline_name
        deadline = op.deadline(name) if name else None
        if name is None or deadline is None or self._clock.now() < deadline:
            return None
        # An input that waits to be sent is sent late rather than not at all; its answer lets the deadline fire.
        reads_first = (Action.POLL, Action.RECONCILE_CREATE, Action.COLLECT, Action.SEND_INPUT)
        return None if next_action(op) in reads_first and name != "attention" else DeadlinePassed(name)

    # ---- submit ----

    async def _submit(self, op: Operation) -> None:
        while op.state is State.CREATE_PENDING:
            step = self._peer.provider.submit(op)
            if step.has_effect and op.schedule.mark_at is None:
                marked = await self._fact(op, AboutToSend(), self._owner, holds=True)
                op = _with_request(marked.operation, op)
                continue
            evidence, exchange = await self._send_step(op, step)
            goes_on = isinstance(evidence, StepDone)
            change = await self._answer(op, evidence, exchange, holds=goes_on)
            if not goes_on:
                return
            op = _with_request(change.operation, op)

    async def _send_step(self, op: Operation, step: Step) -> tuple[Evidence, Exchange]:
        self._may_have_sent = self._may_have_sent or step.has_effect
        exchange = await self._client.send_unnoted(self._peer, op, step.request)
        not_accepted = False
        try:
            evidence = self._read_step(op, step, exchange)
            answer = exchange.response
            is_account_or_path = answer is not None and answer.status in ACCOUNT_OR_PATH
            not_accepted = is_account_or_path and isinstance(evidence, CreateNotAccepted)
        finally:  # an answer that we fail to read tells of the provider all the same
            self._client.note(self._peer, exchange, create_not_accepted=not_accepted)
        return evidence, exchange

    def _read_step(self, op: Operation, step: Step, exchange: Exchange) -> Evidence:
        if exchange.response is not None:
            return self._peer.provider.read_submit(op, step, exchange.response)
        if isinstance(exchange.error, NotSent) or not step.has_effect:
            return CreateNotAccepted(exchange.error_class or "unknown")
        return CreateUnknown(exchange.error_class or "unknown")

    async def _reconcile_create(self, op: Operation) -> None:
        """Send the same bytes again where their token is honoured, else look; after a failure the two take turns."""
        contract = self._peer.provider.contract
        is_its_turn = contract.lookup is None or op.schedule.errors % 2 == 0
        if is_its_turn and contract.may_repeat(op, self._clock.now()):
            evidence, exchange = await self._send_step(op, self._peer.provider.submit(op))
            await self._answer(op, evidence, exchange)
        else:
            await self._look_up(op)

    async def _look_up(self, op: Operation) -> None:
        """Look for the job of a lost create. Not being found proves nothing (B2)."""
        looked = await self._looker().look_up(self._peer, op)
        if looked.exchanges:
            await self._answer(op, looked.evidence, *looked.exchanges)
        else:
            await self._fact(op, looked.evidence, self._owner)

    async def _look_again(self, op: Operation) -> Operation | None:
        """Look for a second job of a re-sent create before its result is collected; None: the action has ended."""
        looked = await self._looker().look_again(self._peer, op)
        if isinstance(looked.evidence, ReadFailed):
            failed = looked.evidence.error_class
            if op.schedule.errors < SECOND_LOOKS:
                told = CollectFailed(f"second_look_{failed}", looked.evidence.retry_after_ms)
                await self._answer(op, told, *looked.exchanges)
                return None
            evidence = LookedAgain((), is_whole=False, error_class=failed)
        else:
            evidence = looked.evidence
        change = await self._answer(op, evidence, *looked.exchanges, holds=True)
        return _with_request(change.operation, op) if change.operation.state is op.state else None

    def _looker(self) -> Looker:
        return Looker(self._client, self._clock)

    # ---- observe, cancel, collect ----

    async def _poll(self, op: Operation, *, holds: bool = False) -> Change:
        exchange = await self._client.send(self._peer, op, self._peer.provider.status(op))
        evidence: Evidence
        if exchange.response is None:
            evidence = ReadFailed(exchange.error_class or "unknown")
        else:
            evidence = self._peer.provider.read_status(exchange.response)
        if isinstance(evidence, JobRead):
            if self._claim.ring is not None:
                evidence = replace(evidence, rung_by=self._claim.ring)
        elif isinstance(evidence, ReadFailed) and self._is_refused_alone():
            evidence = replace(evidence, counts=True)
        return await self._answer(op, evidence, exchange, holds=holds)

    def _is_refused_alone(self) -> bool:
        """Whether another job was read well with the same key since this one was last asked: then it is not the key."""
        last, good = self._claim.last_read_at, self._peer.last_good_read_at
        return last is not None and good is not None and good > last

    async def _send_cancel(self, op: Operation) -> None:
        exchange = await self._client.send(self._peer, op, self._peer.provider.cancel(op))
        if exchange.response is not None:
            evidence = self._peer.provider.read_cancel(exchange.response)
        else:
            surely_not = isinstance(exchange.error, NotSent)
            answer = CancelAnswer.NOT_ACCEPTED if surely_not else CancelAnswer.UNKNOWN
            evidence = CancelAnswered(answer, exchange.error_class)
        await self._answer(op, evidence, exchange)

    async def _send_input(self, op: Operation) -> None:
        """Give the job what a client gave us. What cannot be sent at all is told too, or it would wait for ever."""
        provider, given = self._peer.provider, op.input
        if given is None or given.ref is None or not isinstance(provider, TakesInput):
            await self._fact(op, InputAnswered(InputAnswer.REFUSED, "nothing_to_send"), self._owner)
            return
        try:
            with self._files.open(given.ref) as file:
                data = read_json(file.read())
        except (OSError, Unreadable) as fault:
            self._log.error("input_not_read", operation_id=op.operation_id, error=str(fault))
            await self._fact(op, InputAnswered(InputAnswer.NOT_ACCEPTED, "our_file"), self._owner)
            return
        exchange = await self._client.send(self._peer, op, provider.input(op, data))
        if exchange.response is not None:
            evidence = provider.read_input(exchange.response)
        else:
            surely_not = isinstance(exchange.error, NotSent)
            answer = InputAnswer.NOT_ACCEPTED if surely_not else InputAnswer.UNKNOWN
            evidence = InputAnswered(answer, exchange.error_class)
        await self._answer(op, evidence, exchange)

    async def _collect(self, op: Operation) -> None:
        if op.schedule.errors > 0 and op.remote_job_id is not None:
            # An earlier try failed: what the job names may have changed since.
            op = (await self._poll(op, holds=True)).operation
            if op.state is not State.RESULT_COLLECTING:
                return
        try:
            outcome = await self._collector.collect(self._peer, op, self._claim.fence)
        except OSError as fault:
            # A failed try: a result that never fits is fetched until the deadline, and not for ever.
            self._log.error("result_not_kept", operation_id=op.operation_id, error=str(fault))
            outcome = Outcome(CollectFailed("our_disk", is_ours=True), ())
        if outcome.exchanges:
            change = await self._answer(op, outcome.evidence, *outcome.exchanges)
        else:
            change = await self._fact(op, outcome.evidence, self._owner)
        if change.operation.collect_attempt == self._claim.fence:
            await self._collector.tidy(change.operation)

    # ---- handing back ----

    async def _answer(self, op: Operation, evidence: Evidence, *exchanges: Exchange, holds: bool = False) -> Change:
        claim = self._claim
        if isinstance(evidence, ReadFailed | JobGone):
            self._tell_failed_read(op, evidence.error_class, exchanges[-1])
        seen = observation_of(evidence)
        if seen is not None and any(ref.name == INLINE for ref in seen.results):
            await self._keep_inline(op, exchanges[-1])
        if not holds:
            self._on_asked()
        return await self._ingest.answer(
            op,
            evidence,
            *exchanges,
            actor=self._owner,
            fence=claim.fence,
            holds=holds,
            attempt=max(op.schedule.errors, op.schedule.polls) + 1,
        )

    async def _keep_inline(self, op: Operation, exchange: Exchange) -> None:
        """Make a body durable that holds its result, before the row says that there is one.

        Where the disk refuses it the end counts all the same: the job is read again when its result is collected.
        """
        if exchange.response is None:
            return
        try:
            writer = self._files.create(inline_file(op.operation_id))
            try:
                await writer.add(exchange.response.body)
                await writer.finish()
            finally:
                writer.discard()
        except OSError as fault:
            self._log.error("result_not_kept", operation_id=op.operation_id, error=str(fault))

    def _tell_failed_read(self, op: Operation, error_class: str, exchange: Exchange) -> None:
        answer = exchange.response
        self._log.warning(
            "read_failed",
            operation_id=op.operation_id,
            trace_id=op.trace_id,
            provider=op.provider,
            error_class=error_class,
            detail=exchange.error.detail if exchange.error else "",
            body=answer.body[:MAX_SHOWN].decode("utf-8", "replace") if answer else "",
        )

    async def _fact(
        self, op: Operation, evidence: Evidence, actor: str, *, cause: str | None = None, holds: bool = False
    ) -> Change:
        return await self._ingest.fact(
            op, evidence, actor=actor, cause=cause or f"start:{op.operation_id}", fence=self._claim.fence, holds=holds
        )


def _own_fault(op: Operation, *, may_have_sent: bool) -> Evidence | None:
    match next_action(op) or _owed_read(op):
        case Action.SUBMIT if may_have_sent:
            return CreateUnknown("our_fault")  # a create may have arrived: it is looked up
        case Action.SUBMIT:
            return CreateNotAccepted("our_fault")
        case Action.COLLECT:
            return CollectFailed("our_fault")
        case Action.SEND_CANCEL:
            return CancelAnswered(CancelAnswer.UNKNOWN, "our_fault")
        case Action.SEND_INPUT:
            return InputAnswered(InputAnswer.UNKNOWN, "our_fault")
        case None:
            return None
        case _:
            return ReadFailed("our_fault")


def _owed_read(op: Operation) -> Action | None:
    """Where polling has stopped, a row that was rung is owed one confirming read."""
    return Action.POLL if op.state in STOPPED and op.schedule.priority <= Priority.RUNG else None


def _with_request(op: Operation, known: Operation) -> Operation:
    """The row as it stands, with the request that only a claim reads."""
    return replace(op, request=known.request, expect=known.expect)

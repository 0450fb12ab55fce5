"""One decision while it is being made: the row as it stands so far and the history it will write.

Lives for the length of one call of `decide`; it knows no provider word and no evidence, only how a row may change:
along `TRANSITIONS`, with its deadlines, its question to a person and its due time following from the state.
"""

from dataclasses import replace
from typing import Any

from reconcile import conclude, deadlines
from reconcile.contract import Contract
from reconcile.health import EndSeen
from reconcile.model import Attention, Change, Entry, EntryKind, JsonObject, Operation, UnixMs, Verdict
from reconcile.schedule import Pace, poll_delay_ms
from reconcile.states import (
    ACTIONS,
    LISTED,
    REASON_OF,
    STOPPED,
    TERMINAL,
    Action,
    Priority,
    State,
    is_legal,
)

PRIORITY_OF = {
    Action.SUBMIT: Priority.CREATE,
    Action.RECONCILE_CREATE: Priority.CREATE,
    Action.POLL: Priority.SWEPT,
    Action.SEND_INPUT: Priority.CREATE,
    Action.SEND_CANCEL: Priority.CANCEL,
    Action.COLLECT: Priority.COLLECT,
}
#: Read slowly: only a person or the provider can move these on, so the sweep interval is soon enough.
_SLOW = frozenset({State.BLOCKED, State.CANCELLATION_UNCONFIRMED})


def next_action(op: Operation) -> Action | None:
    """What a worker does next for this row.

    A cancel or an input is sent once: where its answer is known and settles nothing, or may have been lost, the next
    step is one read of the job instead.
    """
    action = ACTIONS[op.state]
    if action is Action.SEND_CANCEL and op.cancel is not None and op.cancel.answer is not None:
        return Action.POLL
    if action is Action.SEND_INPUT and op.input is not None and op.input.answer is not None:
        return Action.POLL
    return action


class Draft:
    """A row on its way from `op` to the next; `finish` gives the change."""

    def __init__(self, op: Operation, contract: Contract, *, now: UnixMs, draw: float, cause: str, pace: Pace) -> None:
        self.before = op
        self.op = op
        self.contract = contract
        self.now = now
        self.cause = cause
        self.verdict: Verdict | None = None
        self.refusal: str | None = None
        self.is_news = False
        self.end_seen: EndSeen | None = None
        self.is_late_event = False
        self.reminds = False
        self._draw = draw
        self._pace = pace
        self._entries: list[Entry] = []
        self._next_at: UnixMs | None = None
        self._rung = False
        self._is_carried = False

    def set(self, **values: Any) -> None:
        """Change plain fields of the row."""
        self.op = replace(self.op, **values)

    def set_schedule(self, **values: Any) -> None:
        """Change fields of the narrow half."""
        self.op = replace(self.op, schedule=replace(self.op.schedule, **values))

    # ---- history ----

    def move(
        self,
        to: State,
        reason: str,
        *,
        facts: JsonObject | None = None,
        question: str | None = None,
        cause: str | None = None,
    ) -> bool:
        """Go to `to`, or record why not. `question`: a narrower reason than the state's own, shown to the person."""
        op = self.op
        if not is_legal(op.state, to):
            self._write(EntryKind.REFUSED, to, f"refused: no arrow from {op.state} to {to} ({reason})", facts, cause)
            return False
        self._write(EntryKind.MOVE, to, reason, facts, cause)
        becomes_unknown = op.state is State.CREATE_PENDING and to is State.CREATE_UNKNOWN
        self.op = replace(
            op,
            state=to,
            unknown_since=self.now if becomes_unknown else op.unknown_since,
            deadlines=deadlines.on_entry(op, to, self.contract, self.now),
            attention=self._attention(to, question, reason),
            completed_at=self.now if to in TERMINAL else None,
            schedule=replace(op.schedule, errors=0, polls=0, gone_reads=0, gone_since=None, mark_at=None),
        )
        self.is_news = True
        self._next_at = self._first_time(to)
        return True

    def fact(self, reason: str, **facts: Any) -> None:
        """Record something that moves nothing."""
        self._write(EntryKind.FACT, None, reason, facts, None)

    def contradiction(self, reason: str, **facts: Any) -> None:
        """Record evidence that speaks against what stands; the state stays (D2)."""
        self.set(contradictions=self.op.contradictions + 1)
        self.is_news = True
        self._write(EntryKind.CONTRADICTION, None, reason, facts, None)

    def refuse(self, why: str) -> None:
        """Answer a client's wish with a no that changes nothing."""
        self.refusal = why

    # ---- time ----

    def due_now(self, *, rung: bool = False) -> None:
        """The next action follows at once; `rung`: before what only the sweep would reach.

        Where polling has stopped, being rung means that one read is owed.
        """
        self._next_at = self.now
        self._rung = rung

    def due_by_polls(self, *, hint_ms: int | None = None) -> None:
        """The next read follows by the backoff over unchanged polls; where polling has stopped, none does."""
        if self.op.state in STOPPED:
            return
        if self._pace is Pace.LISTED and self.op.state in LISTED:
            # The list shows it to whoever reads it: its own due time is its deadline, or a ring.
            self._next_at, self._is_carried = None, True
            return
        schedule = self.op.schedule
        self._next_at = self.now + self._delay(schedule.polls, hint_ms=hint_ms)

    def due_soon(self) -> None:
        """The next read follows by the shortest backoff, whatever else tells of the job."""
        self.set_schedule(polls=1)
        self._is_carried = False
        self._next_at = self.now + self._delay(1, plain=True)

    def due_by_sweep(self) -> None:
        """The row is looked at again when the sweep comes round: nothing is asked, so nothing is backed off from."""
        self._next_at = self.now + poll_delay_ms(self.contract.poll, 1, draw=self._draw, sweeping=True)

    def due_by_errors(self, *, retry_after_ms: int | None = None, n: int | None = None) -> None:
        """The next try follows by the backoff over errors in a row, not before Retry-After."""
        self._next_at = self.now + self._delay(n or self.op.schedule.errors, retry_after_ms=retry_after_ms, plain=True)

    def _delay(
        self, n: int, *, retry_after_ms: int | None = None, hint_ms: int | None = None, plain: bool = False
    ) -> int:
        sweeping = not plain and (self._pace is not Pace.POLLED or self.op.state in _SLOW)
        return poll_delay_ms(
            self.contract.poll,
            max(1, n),
            draw=self._draw,
            retry_after_ms=retry_after_ms,
            hint_ms=hint_ms,
            sweeping=sweeping,
        )

    def _first_time(self, state: State) -> UnixMs | None:
        if ACTIONS[state] is None:
            return None
        if ACTIONS[state] is Action.POLL:
            return self.now + poll_delay_ms(
                self.contract.poll, 1, draw=self._draw, sweeping=state in _SLOW or self._pace is not Pace.POLLED
            )
        return self.now

    # ---- the end of the decision ----

    def finish(self) -> Change:
        """The change; the facts that a fold of the history needs are added where a row does not bear them yet."""
        if self.refusal is not None:
            return Change(self.before, refusal=self.refusal)
        if self.op.summary is None and self.op.is_terminal and not self.before.is_terminal:
            self.set(summary=conclude.balance_of(self.op.state, self.op.input_items))
        facts = self._fold_facts()
        if facts and not self._entries:
            self.fact("the row was brought up to date")
        if facts:
            last = self._entries[-1]
            self._entries[-1] = replace(last, facts={**last.facts, **facts})
        self._plan()
        return Change(
            self.op,
            tuple(self._entries),
            is_news=self.is_news,
            verdict=self.verdict,
            end_seen=self.end_seen,
            is_late_event=self.is_late_event,
            reminds=self.reminds,
            contract_version=self.contract.version,
        )

    def _plan(self) -> None:
        op = self.op
        action = next_action(op)
        deadline_name = op.state_deadline_name
        deadline = op.deadline(deadline_name) if deadline_name else None
        acts = action is not None or op.state in STOPPED
        # A question is put again when half of its time is over; where the job is read now and then, a read sees to it.
        again = deadlines.half_way(op) if action is None or self._is_carried else None
        times = [t for t in (self._next_at if acts else None, again, deadline) if t is not None]
        priority = PRIORITY_OF[action] if action else Priority.SWEPT
        if self._next_at is None and action is not None and not (self._is_carried and deadline is not None):
            # What plans nothing anew leaves the plan as it is, and takes no ring away.
            times.append(op.schedule.due_at)
            if op.state is self.before.state:
                priority = min(priority, op.schedule.priority)
        self.set_schedule(
            deadline_at=deadline,
            due_at=min(times, default=op.schedule.due_at),
            priority=min(priority, Priority.RUNG) if self._rung else priority,
            marks_on_claim=self._next_has_effect(action),
        )

    def _next_has_effect(self, action: Action | None) -> bool:
        """Whether the first request of the next action has an effect, so that the claim itself must set the mark."""
        if action is Action.COLLECT:
            return self.contract.result_fetch == "consuming"
        return action in (Action.SEND_CANCEL, Action.SEND_INPUT)

    def _fold_facts(self) -> JsonObject:
        facts: JsonObject = {}
        if self.op.remote_job_id != self.before.remote_job_id:
            facts["remote_job_id"] = self.op.remote_job_id
        if self.op.deadlines != self.before.deadlines:
            names = ("create", "result", "cancel", "input", "collect", "attention")
            facts["deadlines"] = {n: self.op.deadline(n) for n in names if self.op.deadline(n) is not None}
        if self.op.is_terminal and not self.before.is_terminal:
            facts["outcome"] = self.op.outcome
        return facts

    def _attention(self, to: State, question: str | None, reason: str) -> Attention | None:
        if to not in REASON_OF:
            return None
        return Attention(question or REASON_OF[to], self.now, reason)

    def _write(
        self, kind: EntryKind, to: State | None, reason: str, facts: JsonObject | None, cause: str | None
    ) -> None:
        self._entries.append(Entry(kind, self.op.state, to, cause or self.cause, reason, facts or {}))

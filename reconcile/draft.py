"""One decision while it is being made: the row as it stands so far and the history it will write.

Lives for the length of one call of `decide`; it knows no provider word and no evidence, only how a row may change:
along `TRANSITIONS`, with its deadlines, its question to a person and its due time following from the state.
"""

from dataclasses import dataclass
from typing import Any

from reconcile import conclude, deadlines
from reconcile.contract import Contract
from reconcile.health import EndSeen
from reconcile.model import Attention, Change, Entry, EntryKind, JsonObject, Operation, UnixMs, Verdict
from reconcile.replacing import replace
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


@dataclass(frozen=True, slots=True)
class _Due:
    """When the next action follows. `at` None: the provider's list shows the job to whoever reads it, so that the row
    is due by itself only at its deadline.
    """

    at: UnixMs | None
    rung: bool = False
    #: A try has just failed, and its wait is kept to whatever else presses.
    is_retry: bool = False


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
        self._due: _Due | None = None

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
            token_since=self.token_since() if becomes_unknown else op.token_since,
            deadlines=deadlines.on_entry(op, to, self.contract, self.now),
            attention=self._attention(to, question, reason),
            completed_at=self.now if to in TERMINAL else None,
            our_faults=0,
            schedule=replace(op.schedule, errors=0, polls=0, gone_reads=0, gone_since=None, mark_at=None),
        )
        self.is_news = True
        self._due = self._first_due(to)
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

    def token_since(self) -> UnixMs:
        """Since when the token of a create that may have arrived has counted: a later send begins no new life."""
        op = self.op
        if op.token_since is not None:
            return op.token_since
        if op.resends:  # of a file from before this was kept: no token left before its operation was made
            return op.created_at
        return self.now if op.schedule.mark_at is None else op.schedule.mark_at

    def due_now(self, *, rung: bool = False) -> None:
        """The next action follows at once; `rung`: before what only the sweep would reach.

        Where polling has stopped, being rung means that one read is owed.
        """
        self._due = _Due(self.now, rung=rung)

    def due_by_polls(self, *, hint_ms: int | None = None, retry_after_ms: int | None = None) -> None:
        """The next read follows by the backoff over unchanged polls; where polling has stopped, none does."""
        if self.op.state in STOPPED:
            return
        if self._pace is Pace.LISTED and self.op.state in LISTED:
            self._due = _Due(None)
            return
        slow = self._is_slow(self.op.state)
        wait = self._wait(self.op.schedule.polls, retry_after_ms=retry_after_ms, hint_ms=hint_ms, sweeping=slow)
        self._due = _Due(self.now + wait)

    def due_soon(self) -> None:
        """The next read follows by the shortest backoff, whatever else tells of the job."""
        self.set_schedule(polls=1)
        self._due = _Due(self.now + self._wait(1))

    def due_by_sweep(self) -> None:
        """The row is looked at again when the sweep comes round: nothing is asked, so nothing is backed off from."""
        self._due = _Due(self.now + self._wait(1, sweeping=True))

    def due_by_errors(self, *, retry_after_ms: int | None = None, n: int | None = None, rung: bool = False) -> None:
        """The next try follows by the backoff over errors in a row, not before Retry-After."""
        wait = self._wait(n or self.op.schedule.errors, retry_after_ms=retry_after_ms)
        self._due = _Due(self.now + wait, rung=rung, is_retry=True)

    def _wait(
        self, n: int, *, retry_after_ms: int | None = None, hint_ms: int | None = None, sweeping: bool = False
    ) -> int:
        return poll_delay_ms(
            self.contract.poll,
            max(1, n),
            draw=self._draw,
            retry_after_ms=retry_after_ms,
            hint_ms=hint_ms,
            sweeping=sweeping,
        )

    def _is_slow(self, state: State) -> bool:
        """Whether reads in this state wait for the sweep: little is to be learned, or an end is told in another way."""
        return state in _SLOW or (self._pace is not Pace.POLLED and state in LISTED)

    def _first_due(self, state: State) -> "_Due | None":
        if ACTIONS[state] is None:
            return None
        if ACTIONS[state] is Action.POLL:
            return _Due(self.now + self._wait(1, sweeping=self._is_slow(state)))
        return _Due(self.now)

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
            whole = {**last.facts, **facts}
            self._entries[-1] = Entry(last.kind, last.from_state, last.to_state, last.cause, last.reason, whole)
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
        op, due = self.op, self._due
        action = next_action(op)
        deadline_name = op.state_deadline_name
        deadline = op.deadline(deadline_name) if deadline_name else None
        priority = PRIORITY_OF[action] if action else Priority.SWEPT
        times: list[UnixMs | None] = []
        if due is not None and (action is not None or op.state in STOPPED):
            times.append(due.at)
            priority = min(priority, Priority.RUNG) if due.rung else priority
        elif action is not None:  # what plans nothing anew leaves the plan as it is, and takes no ring away
            times.append(op.schedule.due_at)
            priority = min(priority, op.schedule.priority) if op.state is self.before.state else priority
        if action is None or (due is not None and due.at is None):
            # A question is put again when half of its time is over; where the job is read, such a read sees to it.
            times.append(deadlines.half_way(op))
        was_tried = due is not None and due.is_retry and op.state is self.before.state
        if deadline is None or deadline > self.now or not was_tried:
            times.append(deadline)  # else it fires at the next try, which comes no sooner for that
        self.set_schedule(
            deadline_at=deadline,
            due_at=min((t for t in times if t is not None), default=op.schedule.due_at),
            priority=priority,
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

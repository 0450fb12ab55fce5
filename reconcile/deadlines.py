"""Which deadlines a state starts. Wall clock only, set once, stored in the row; nothing here asks the time."""

from reconcile.contract import CANCEL_WITHIN_MS, Contract
from reconcile.model import Deadlines, Operation, UnixMs
from reconcile.replacing import replace
from reconcile.states import DEADLINE_OF, State


def at_start(created_at: UnixMs, *, create_ms: int, result_ms: int | None) -> Deadlines:
    """A new operation's deadlines: the result's runs from the start only where the caller gave it (B3)."""
    return Deadlines(create=created_at + create_ms, result=None if result_ms is None else created_at + result_ms)


def on_entry(op: Operation, state: State, contract: Contract, now: UnixMs) -> Deadlines:
    """`op.deadlines` with what entering `state` adds, and without those that only the state left behind needed."""
    kept = op.deadlines
    if (kept.input, kept.collect, kept.attention) != (None, None, None):
        kept = replace(kept, input=None, collect=None, attention=None)
    match state:
        case State.ACCEPTED if kept.result is None:
            return replace(kept, result=now + _or(op.spans.result_ms, contract.result_within_ms))
        case State.BLOCKED:
            return replace(kept, input=now + _or(op.spans.input_ms, contract.input_within_ms))
        case State.CANCEL_REQUESTED:
            default = contract.cancel.within_ms if contract.cancel else CANCEL_WITHIN_MS
            return replace(kept, cancel=now + _or(op.spans.cancel_ms, default))
        case State.RESULT_COLLECTING:
            return replace(kept, collect=_collect_end(op, contract, now))
        case _ if DEADLINE_OF[state] == "attention":
            return replace(kept, attention=now + contract.attention_within_ms)
        case _:
            return kept


def _collect_end(op: Operation, contract: Contract, now: UnixMs) -> UnixMs:
    """How long collection is tried: the default, or as long as the provider keeps the result where that is sooner (J7).

    One try is made in any case: what should have been dropped may still be there.
    """
    end = now + contract.collect_within_ms
    return end if op.results_kept_until is None else min(end, op.results_kept_until)


def half_way(op: Operation) -> UnixMs | None:
    """When a question that nobody answers is put once more: in the middle of its time; None where none waits."""
    name = op.state_deadline_name
    deadline = op.deadline(name) if name else None
    if op.attention is None or deadline is None or op.attention.reminded_at is not None:
        return None
    return op.attention.since + (deadline - op.attention.since) // 2


def _or(value: int | None, default: int) -> int:
    return default if value is None else value

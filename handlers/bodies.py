"""An operation as others read it: the JSON body. Its words are of a table of their own (words.py)."""

import math
from dataclasses import asdict
from typing import Any, Final

from handlers import message as telling
from handlers import questions
from reconcile import schedule
from reconcile.contract import Contract
from reconcile.decide import next_action
from reconcile.decisions import open_to
from reconcile.history_row import HistoryRow
from reconcile.model import Operation, UnixMs
from reconcile.redact import redact_urls_in
from reconcile.states import ENDED_REMOTELY, STATUS_OF, Action, State
from reconcile.store.items import ItemView
from reconcile.store.kept import Seen

#: Bounds of `poll_after_seconds`: never a hot loop, never so long that a reader forgets.
MIN_POLL_AFTER: Final = 1
MAX_POLL_AFTER: Final = 600


def operation(
    op: Operation, now: UnixMs, contract: Contract | None = None, *, held: str | None = None, is_start: bool = False
) -> dict[str, Any]:
    """The operation body of the local API; without a contract (an unknown provider) no decision is open.

    `held`: why nothing is sent about it just now (hindrance.py). `is_start`: the body answers the start itself.
    """
    done, deadlines = op.is_terminal, op.deadlines
    seconds = poll_after_seconds(op, now)
    action = next_action(op)
    here = f"/v1/operations/{op.operation_id}"
    return {
        "operation_id": op.operation_id,
        "provider": op.provider,
        "type": op.type,
        "labels": dict(op.labels),
        "status": STATUS_OF[op.state],
        "state": op.state,
        "done": done,
        "outcome": op.state if done else None,
        "remote_job_id": op.remote_job_id,
        "adopted": op.adopted,
        "parent": op.parent,
        "remote_status": op.remote_status,
        "message": telling.message(op, seconds, contract, held=held, is_start=is_start),
        "poll_after_seconds": None if done else seconds,
        "elapsed_seconds": max(0, ((op.completed_at or now) - op.created_at) // 1000),
        "estimated_duration_seconds": None,
        "progress": asdict(op.progress) if op.progress and not (done or op.state in ENDED_REMOTELY) else None,
        "summary": asdict(op.summary) if op.summary else None,
        "cancel": _cancel(op),
        "input": _input(op),
        "result": _result(op),
        "result_url": f"{here}/result" if op.result and done else None,
        "errors_url": f"{here}/items?outcome=failed" if op.summary and op.summary.failed else None,
        "error": asdict(op.error) if op.error and done else None,
        "attention": attention(op, contract),
        "next_action": action,
        "next_action_at": rfc3339(_next_action_at(op, action)),
        "created_at": rfc3339(op.created_at),
        "started_at": rfc3339(op.started_at),
        "completed_at": rfc3339(op.completed_at),
        "deadlines": {
            "create": rfc3339(deadlines.create),
            "result": rfc3339(deadlines.result),
            "cancel": rfc3339(deadlines.cancel),
            "input": rfc3339(deadlines.input),
        },
        "trace_id": op.trace_id,
        "caller": op.caller,
        "approval": op.approval,
        "status_url": here,
        "events_url": f"{here}/events",
        "history_url": f"{here}/history",
        "observations_url": f"{here}/observations",
        "items_url": f"{here}/items",
    }


def message(
    op: Operation, now: UnixMs, contract: Contract | None = None, *, held: str | None = None, is_start: bool = False
) -> str:
    """What is so and what to do next, in words for a person or an agent."""
    return telling.message(op, poll_after_seconds(op, now), contract, held=held, is_start=is_start)


def poll_after_seconds(op: Operation, now: UnixMs) -> int:
    """When asking again may tell something new: just after the next action, within bounds."""
    wait = math.ceil((op.schedule.due_at - now) / 1000) + 1
    return max(MIN_POLL_AFTER, min(wait, MAX_POLL_AFTER))


def _next_action_at(op: Operation, action: Action | None) -> UnixMs | None:
    """When the next action is due; where there is none, when the waiting ends by itself."""
    if op.is_terminal:
        return None
    name = op.state_deadline_name if action is None else None
    deadline = op.deadline(name) if name is not None else None
    return op.schedule.due_at if deadline is None else deadline


def wait_result(op: Operation) -> str | None:
    """The word with which a wait ends here; None while there is something to wait for."""
    if op.is_terminal:
        return op.outcome
    return "needs_attention" if op.attention is not None else None


def history_row(row: HistoryRow) -> dict[str, Any]:
    """One history row of the local API."""
    return {
        "position": row.position,
        "seq": row.seq,
        "at": rfc3339(row.at),
        "actor": row.actor,
        "kind": row.kind,
        "from": row.from_state,
        "to": row.to_state,
        "cause": row.cause,
        "remote_job_id": row.remote_job_id,
        "reason": row.reason,
        "facts": row.facts,
        "hash": row.hash,
    }


def observation(seen: Seen) -> dict[str, Any]:
    """One observation of the local API; `raw` is what was read, as text, but for what stands behind a URL's path."""
    return {
        "observation_id": seen.observation_id,
        "at": rfc3339(seen.at),
        "road": seen.road,
        "remote_status": seen.remote_status,
        "word": seen.word,
        "verdict": seen.verdict,
        "known": bool(seen.known),
        "error_class": seen.error_class,
        "request_id": seen.request_id,
        "contract_version": seen.contract_version,
        "raw": redact_urls_in(seen.raw).decode("utf-8", "replace"),
    }


def item(view: ItemView, op: Operation) -> dict[str, Any]:
    """One item of the local API; a submitted id that no result names takes the end's own word."""
    outcome, reason = view.outcome, view.reason
    if outcome == "submitted":
        outcome = absent_outcome(op) or "pending"
        reason = "absent" if op.is_terminal else ""
    return {"item_id": view.item_id, "outcome": outcome, "reason": reason or None}


def absent_outcome(op: Operation) -> str | None:
    """What a submitted id that no result names came to: the word of the end, None while there is none."""
    return op.outcome if op.outcome in ("failed", "cancelled") else None


def rfc3339(at: UnixMs | None) -> str | None:
    """A time point as RFC 3339, UTC, to the millisecond."""
    return None if at is None else schedule.rfc3339(at, "milliseconds")


def _cancel(op: Operation) -> dict[str, Any] | None:
    if op.cancel is None:
        return None
    answer = {"accepted": "accepted", "refused": "refused", "not_found": "refused", "too_late": "too_late"}
    return {
        "by": op.cancel.by,
        "reason": op.cancel.reason,
        "effect": op.cancel.effect,
        "requested_at": rfc3339(op.cancel.requested_at),
        "answer": answer.get(op.cancel.answer or ""),
        "may_remain": op.cancel.may_remain,
    }


def _input(op: Operation) -> dict[str, Any] | None:
    """Who gave what the job waited for, and what became of it; the input itself is not shown."""
    if op.input is None:
        return None
    given = op.input
    return {"by": given.by, "given_at": rfc3339(given.given_at), "answer": given.answer}


def _result(op: Operation) -> dict[str, Any] | None:
    """What was collected; `inline` is filled in only where one operation is asked for (api/inline.py)."""
    if op.result is None:
        return None
    return {
        "bytes": op.result.bytes,
        "sha256": op.result.sha256,
        "content_type": op.result.content_type,
        "items": op.result.items,
        "problems": {k: v for k, v in asdict(op.result.problems).items() if v} if op.result.problems else None,
        "inline": None,
    }


def attention(op: Operation, contract: Contract | None) -> dict[str, Any] | None:
    """The question that waits for a person, and what can be decided."""
    if op.attention is None:
        return None
    name = op.state_deadline_name
    offers = open_to(op, contract) if contract is not None else ()
    return {
        "reason": questions.reason(op),
        "message": questions.told(op, contract),
        "since": rfc3339(op.attention.since),
        "deadline": rfc3339(op.deadline(name)) if name else None,
        "decisions": [{"decision": offer.decision.value, "effect": offer.effect} for offer in offers],
        "candidates": candidates(op),
    }


def candidates(op: Operation) -> list[dict[str, Any]]:
    """Jobs that may be meant; in a violation the one that is held is one of them."""
    held = op.remote_job_id if op.state is State.CONTRACT_VIOLATION else None
    jobs = dict.fromkeys(([held] if held is not None else []) + list(op.candidates))
    return [{"remote_job_id": job, "is_held": job == held} for job in jobs]

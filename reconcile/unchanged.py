"""Reads that tell nothing new: what most of them are, and what is planned after one without a decision. Pure."""

from reconcile.classify import classify
from reconcile.contract import Contract
from reconcile.evidence import Evidence, JobRead
from reconcile.model import Operation, VerdictKind
from reconcile.schedule import Pace, poll_delay_ms
from reconcile.states import State


def next_wait_ms(op: Operation, contract: Contract, evidence: Evidence, *, draw: float, pace: Pace) -> int | None:
    """How long until the next read, where this one only repeats what `op` says; None: it is to be decided.

    `decide` would come to the same row, to no history, and to no news.
    """
    if not isinstance(evidence, JobRead) or evidence.rung_by is not None or pace is Pace.LISTED:
        return None
    seen, plan = evidence.observation, op.schedule
    verdict = classify(contract, seen.word)
    is_same = (
        op.state is State.OBSERVING
        and verdict.known
        and verdict.kind is VerdictKind.PENDING
        and (seen.remote_status or seen.word) == op.remote_status
        and seen.remote_job_id in (None, op.remote_job_id)
        and seen.progress in (None, op.progress)
        and seen.total_items in (None, op.total_items)
    )
    if not is_same or plan.errors or plan.gone_reads or plan.mark_at is not None:
        return None
    return poll_delay_ms(
        contract.poll,
        plan.polls + 1,
        draw=draw,
        retry_after_ms=evidence.retry_after_ms,
        hint_ms=evidence.hint_ms,
        sweeping=pace is Pace.SWEPT,
    )

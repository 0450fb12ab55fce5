"""A provider that the configuration does not name any more, or names at another address: nothing is asked."""

from reconcile.draft import Draft, next_action
from reconcile.evidence import DeadlinePassed, ProviderAbsent
from reconcile.model import Absence
from reconcile.replacing import replace
from reconcile.rules.waiting import deadline_passed, waits_for_its_send
from reconcile.states import TERMINAL, WATCHING, State


def provider_absent(draft: Draft, evidence: ProviderAbsent) -> None:
    """What is being observed becomes a question that says so; all else stays, and its deadline runs without a read."""
    op = draft.op
    if op.state in TERMINAL:
        return
    draft.set_schedule(mark_at=None)  # the claim set it for a request that did not leave
    if op.state in WATCHING and not waits_for_its_send(op):
        draft.move(State.OBSERVATION_FAILED, evidence.message, question=evidence.absence.value)
        return
    asked = op.attention
    if asked is not None and _is_absence(asked.reason) and asked.reason != evidence.absence:
        draft.set(attention=replace(asked, reason=evidence.absence.value, message=evidence.message))
        draft.fact(evidence.message)
    name = op.state_deadline_name
    deadline = op.deadline(name) if name else None
    acts = next_action(op) is not None
    if name is not None and deadline is not None and draft.now >= deadline:
        if acts:  # else a person was waited for, and it made no difference
            draft.fact(f"{op.provider} was not asked ({evidence.absence}): {evidence.message}")
        deadline_passed(draft, DeadlinePassed(name, last_read=True))
    elif acts:
        draft.due_by_sweep()


def asked_again(draft: Draft) -> None:
    """The absence is over, since a request left: whatever came of it is judged as for any job that is being watched.

    Otherwise a read that fails once would leave the question standing with a reason that is no longer true.
    """
    asked = draft.op.attention
    if draft.op.state is State.OBSERVATION_FAILED and asked is not None and _is_absence(asked.reason):
        draft.move(State.OBSERVING, f"{draft.op.provider} is asked again")


def _is_absence(reason: str) -> bool:
    return reason in set(Absence)

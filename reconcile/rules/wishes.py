"""What people ask of a running job, cancel and input, and the answers of the provider to our one call for each."""

from typing import Final

from reconcile.draft import Draft
from reconcile.evidence import (
    CancelAnswer,
    CancelAnswered,
    CancelAsked,
    InputAnswer,
    InputAnswered,
    InputAsked,
    JobRead,
)
from reconcile.intents import CancelIntent, InputIntent
from reconcile.model import Operation
from reconcile.quoted import quoted
from reconcile.replacing import replace
from reconcile.rules.ending import ended_as
from reconcile.rules.observing import apply_read, is_of_another_job
from reconcile.rules.waiting import deadline_after_a_try, input_may_have_arrived, is_unsent
from reconcile.states import CANCELLING, CREATING, ENDED_REMOTELY, GIVEN_UP, TERMINAL, State

#: What a cancel leaves behind where no create has left: the steps before it make no job, but may leave a file.
WITHDRAWN_REMAINS: Final = "An input file that was uploaded for it may stay in the account."


def cancel_asked(draft: Draft, evidence: CancelAsked) -> None:
    """Recorded as an intent before anything is sent (E1); asked again, the same answer and no second cancel."""
    op = draft.op
    was_asked = op.cancel is not None
    if op.state in ENDED_REMOTELY or (op.state in TERMINAL and not was_asked):
        draft.refuse(_over(op))
    elif op.state is State.CREATE_UNRESOLVED:
        draft.refuse("the job is not known; decide `give_up` or `adopt_job`")
    elif was_asked and op.state in TERMINAL | CREATING | CANCELLING:
        return
    elif draft.contract.cancel is None and not is_unsent(op):
        draft.refuse("this provider has no cancel; the job runs on")
    else:
        _take_cancel(draft, evidence)


def _over(op: Operation) -> str:
    """Why there is nothing to cancel any more."""
    if op.state in GIVEN_UP:
        return f"the operation has ended as {op.state}; nothing is sent to its job any more"
    if op.state in TERMINAL and op.remote_job_id is None:
        return f"the operation has ended as {op.state}, and no job of it is known"
    if op.state in TERMINAL:
        return f"the job has ended, and the operation with it as {op.state}"
    return f"the job has ended, in its word {quoted(ended_as(op))}; the operation is {op.state} and NOT complete"


def _take_cancel(draft: Draft, evidence: CancelAsked) -> None:
    terms = draft.contract.cancel
    remains = terms.may_remain if terms else None
    intent = CancelIntent(
        evidence.cancel_id,
        evidence.by,
        evidence.reason,
        evidence.effect,
        draft.now,
        may_remain=WITHDRAWN_REMAINS if is_unsent(draft.op) else remains,
    )
    facts = {"by": evidence.by, "because": evidence.reason, "effect": evidence.effect}
    draft.set(cancel=intent)
    if is_unsent(draft.op):
        told = f"withdrawn by {evidence.by} before anything was sent: {evidence.reason}"
        draft.move(State.CANCELLED, told, facts=facts)
    elif draft.op.state in CREATING:
        draft.fact(f"{evidence.by} asked for a cancel: {evidence.reason}; it is sent once the job id is known", **facts)
    else:
        draft.move(State.CANCEL_REQUESTED, f"{evidence.by} asked for a cancel: {evidence.reason}", facts=facts)


def cancel_answered(draft: Draft, evidence: CancelAnswered) -> None:
    """Whatever the answer, only the provider's word about the job ends it (E2)."""
    op = draft.op
    if op.state is not State.CANCEL_REQUESTED or op.cancel is None:
        if op.state in TERMINAL:
            draft.fact(f"the cancel was answered {evidence.answer} after the end")
        return
    if evidence.observation is not None and is_of_another_job(op, evidence.observation):
        draft.fact(f"the cancel was answered about another job, {evidence.observation.remote_job_id}: it tells nothing")
        evidence = CancelAnswered(CancelAnswer.UNKNOWN, "another_job")
    if evidence.answer is CancelAnswer.NOT_ACCEPTED:
        draft.set_schedule(errors=op.schedule.errors + 1, mark_at=None)
        draft.fact(f"the cancel was not accepted ({evidence.error_class}); it is sent again")
        draft.due_by_errors(retry_after_ms=evidence.retry_after_ms)
        deadline_after_a_try(draft)
        return
    draft.set(cancel=replace(op.cancel, answer=evidence.answer.value))
    draft.set_schedule(mark_at=None)
    if evidence.answer is CancelAnswer.ACCEPTED:
        draft.move(State.CANCELLING, "the provider accepted the cancel request; only its own word ends the job")
        if evidence.observation is not None:
            apply_read(draft, JobRead(evidence.observation))
        return
    draft.fact(f"the cancel was answered {evidence.answer}; the job is read once more")
    draft.due_now()


def input_asked(draft: Draft, evidence: InputAsked) -> None:
    """Input for a blocked job (G7)."""
    if not draft.contract.takes_input:
        draft.refuse("this provider takes no input through us")
    elif draft.op.state is not State.BLOCKED:
        draft.refuse("the job is not waiting for input")
    else:
        draft.set(input=InputIntent(evidence.input_id, evidence.by, draft.now, ref=evidence.ref))
        facts = {"by": evidence.by, "input": evidence.input_id, "sha256": evidence.sha256}
        draft.move(State.INPUT_GIVEN, f"{evidence.by} gave the input", facts=facts)


def input_answered(draft: Draft, evidence: InputAnswered) -> None:
    """The answer to our one input call."""
    op = draft.op
    if op.state is not State.INPUT_GIVEN or op.input is None:
        return
    match evidence.answer:
        case InputAnswer.ACCEPTED:
            draft.set(input=replace(op.input, answer=evidence.answer.value))
            draft.move(State.OBSERVING, "the provider took the input")
        case InputAnswer.REFUSED:
            draft.set(input=replace(op.input, answer=evidence.answer.value))
            draft.move(State.BLOCKED, f"the provider refused the input ({evidence.error_class})")
        case InputAnswer.NOT_ACCEPTED:
            draft.set_schedule(errors=op.schedule.errors + 1, mark_at=None)
            draft.fact(f"the input was not accepted ({evidence.error_class}); it is sent again")
            draft.due_by_errors(retry_after_ms=evidence.retry_after_ms)
            deadline_after_a_try(draft)
        case InputAnswer.UNKNOWN:
            input_may_have_arrived(draft, op.input)

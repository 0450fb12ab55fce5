"""What the first start of a restored backup makes of its open rows (F24).

What its original sent after the copy was made is not known here, and a mark that the copy lacks proves nothing. So
whatever may have been sent counts as sent, and every permission that may have been taken counts as taken: what can be
looked up is looked up, what can be read is read, and for the rest a person is asked.

A start that is killed half-way is made up for by the next one, which sees every row again. That moves no row further,
and says nothing anew but of a send that may be repeated: as no request leaves before a start is through, that one is
still to be sent, and the history tells of it once for each start.
"""

from reconcile.draft import Draft
from reconcile.evidence import CancelAnswer, FoundInBackup
from reconcile.model import UnixMs
from reconcile.replacing import replace
from reconcile.rules.waiting import cancel_may_have_arrived, input_may_have_arrived
from reconcile.schedule import rfc3339
from reconcile.states import State


def found_in_backup(draft: Draft, evidence: FoundInBackup) -> None:
    """Take for sent what the original may have sent since the backup was made."""
    op, whose = draft.op, f"this file is a restored backup of {rfc3339(evidence.made_at)}"
    match op.state:
        case State.CREATE_PENDING:
            draft.set(restored=True)
            told = "the create may have been sent since; it is looked up, not sent again"
            draft.move(State.CREATE_UNKNOWN, f"{whose}: {told}")
        case State.CREATE_UNKNOWN if not op.restored:
            draft.set(restored=True)
            draft.fact(f"{whose}: the job may have been found since, or the create sent again; it is looked up")
        case State.CREATE_UNRESOLVED:
            draft.set(restored=True)
            _question_may_be_answered(draft, f"{whose}: it may have been decided since to send the create again")
        case State.CANCELLATION_UNCONFIRMED:
            _question_may_be_answered(draft, f"{whose}: it may have been decided since to send the cancel again")
        case State.CANCEL_REQUESTED if op.cancel is not None and op.cancel.answer is None:
            if evidence.is_repeatable and not _is_over(draft, op.deadlines.cancel):
                _send_again(draft, f"{whose}: the cancel may have been sent since; it is sent again, as may be done")
            else:
                told = f"{whose}: the cancel may have been sent since; the job is read once"
                cancel_may_have_arrived(draft, op.cancel, told=told)
        case State.INPUT_GIVEN if op.input is not None and op.input.answer is None:
            if evidence.is_repeatable:
                _send_again(draft, f"{whose}: the input may have been sent since; it is sent again, as may be done")
            else:
                told = f"{whose}: the input may have been sent since; the job is read once"
                input_may_have_arrived(draft, op.input, told=told)
        case State.RESULT_COLLECTING if draft.contract.result_fetch == "consuming":
            told = f"{whose}: the only fetch that the provider allows may have been made since"
            draft.move(State.RESULT_UNAVAILABLE, told)
        case _:
            pass
    _waiting_cancel_may_be_sent(draft, whose, is_repeatable=evidence.is_repeatable)


def _is_over(draft: Draft, deadline: UnixMs | None) -> bool:
    """Whether no cancel leaves any more: then a read at least comes before the question."""
    return deadline is not None and draft.now >= deadline


def _send_again(draft: Draft, told: str) -> None:
    draft.set_schedule(mark_at=None)
    draft.fact(told)
    draft.due_now()


def _waiting_cancel_may_be_sent(draft: Draft, whose: str, *, is_repeatable: bool) -> None:
    """A cancel that waits for the job id: the original may have learned the id since, and sent it (N15)."""
    cancel = draft.op.cancel
    has_no_job = draft.op.state in (State.CREATE_UNKNOWN, State.CREATE_UNRESOLVED)
    if cancel is None or cancel.answer is not None or is_repeatable or not has_no_job:
        return
    draft.set(cancel=replace(cancel, answer=CancelAnswer.UNKNOWN.value))
    draft.fact(f"{whose}: the cancel that waits may have been sent since; once the job is held, it is read instead")


def _question_may_be_answered(draft: Draft, told: str) -> None:
    """Whoever answers it now must know that it may have been answered, and acted upon, before."""
    attention = draft.op.attention
    if attention is None or told in attention.message:
        return
    draft.set(attention=replace(attention, message=f"{attention.message}; {told}".removeprefix("; ")))
    draft.fact(told)

"""Deadlines, and what a restart finds: the rows of the tables that time brings."""

from reconcile import deadlines
from reconcile.draft import Draft
from reconcile.evidence import CancelAnswer, DeadlinePassed, FoundAtStart, InputAnswer
from reconcile.intents import CancelIntent, InputIntent
from reconcile.model import Operation, RemoteError
from reconcile.replacing import replace
from reconcile.states import WATCHING, State


def is_unsent(op: Operation) -> bool:
    """Whether surely no create has left."""
    return op.state is State.CREATE_PENDING and op.schedule.mark_at is None and op.resends == 0


def is_input_answered(op: Operation) -> bool:
    """Whether our one input call was answered, or its answer lost."""
    return op.input is not None and op.input.answer is not None


def waits_for_its_send(op: Operation) -> bool:
    """Whether a person's input stands in the row and has not been sent: it must not be lost."""
    return op.state is State.INPUT_GIVEN and not is_input_answered(op)


def what_follows(draft: Draft) -> str:
    """What is done next about a create that may have arrived, in words (B2)."""
    repeats = draft.contract.may_repeat(replace(draft.op, token_since=draft.token_since()), draft.now)
    return "sent again with the same token" if repeats else "looked up, not sent again"


def deadline_after_a_try(draft: Draft) -> None:
    """After a try that showed no end: fire the state's deadline if its time has come (C5)."""
    name, state, before = draft.op.state_deadline_name, draft.op.state, draft.before.state
    if name is not None and (state is before or {state, before} <= WATCHING):
        deadline_passed(draft, DeadlinePassed(name, last_read=True))


def nothing_was_sent(draft: Draft) -> None:
    """A claim that marks its row looked at the time and sent nothing: an open mark would read as "may have arrived"."""
    if draft.op.schedule.marks_on_claim:
        draft.set_schedule(mark_at=None)


def deadline_passed(draft: Draft, evidence: DeadlinePassed) -> None:
    """Where the waiting of each state leads; nothing happens before its time, or to a deadline that does not run."""
    op, name = draft.op, evidence.name
    deadline = op.deadline(name)
    if name != op.state_deadline_name or deadline is None or draft.now < deadline:
        return
    cause = f"deadline:{name}"
    match op.state:
        case State.CREATE_PENDING if is_unsent(op):
            told = _why_no_job(op)
            draft.set(error=RemoteError("never_sent", f"No job was made: {told}."))
            draft.move(State.FAILED, f"the create deadline passed: {told}; no job was made", cause=cause)
        case State.CREATE_PENDING:
            draft.move(State.CREATE_UNKNOWN, "the create deadline passed and a create may have arrived", cause=cause)
        case State.CREATE_UNKNOWN:
            found = "the job was not found"
            if op.schedule.errors:
                found = f"the account could not be looked through ({op.schedule.errors} tries in a row failed)"
            if draft.contract.replays and draft.contract.lookup is None:
                found = "sending it again brought no clear answer either"
            draft.move(State.CREATE_UNRESOLVED, f"the create deadline passed and {found}", cause=cause)
        case state if state in WATCHING and not evidence.last_read:
            draft.due_now()
        case state if state in WATCHING:
            reason = f"the {name} deadline passed; the job may still be running"
            draft.move(State.RESULT_TIMED_OUT, reason, cause=cause, question=name)
        case State.CANCEL_REQUESTED | State.CANCELLING:
            reason = "the cancel deadline passed without the provider's word"
            draft.move(State.CANCELLATION_UNCONFIRMED, reason, cause=cause)
        case State.RESULT_COLLECTING:
            draft.move(State.RESULT_UNAVAILABLE, "the result could not be fetched in time", cause=cause)
        case State.RESULT_TIMED_OUT:
            draft.move(State.TIMED_OUT, "nobody decided in time; the job may still run and cost", cause=cause)
        case _:
            draft.move(State.ABANDONED, "nobody decided in time; the job may still run and cost", cause=cause)


def remind_half_way(draft: Draft) -> None:
    """Say again that a person is asked, once, when half of the time for an answer is over."""
    at, attention = deadlines.half_way(draft.op), draft.op.attention
    if attention is not None and at is not None and draft.now >= at:
        draft.set(attention=replace(attention, reminded_at=draft.now))
        draft.fact(f"nobody has answered yet and half of the time is over: {attention.reason}")
        draft.reminds = True


def _why_no_job(op: Operation) -> str:
    """What kept the create from being accepted in time, for whoever has to mend it."""
    if op.last_refusal is None:
        return "the create could not be sent in time"
    tries = "1 try" if op.schedule.errors == 1 else f"{op.schedule.errors} tries"
    return f"the create was not accepted in {tries}, the last came to {op.last_refusal}"


def found_at_start(draft: Draft, evidence: FoundAtStart) -> None:
    """What an open send mark means once nobody waits for its answer any more."""
    op = draft.op
    if op.schedule.mark_at is None:
        return
    match op.state:
        case State.CREATE_PENDING:
            told = f"the create was cut off while its answer was awaited; it is {what_follows(draft)}"
            draft.move(State.CREATE_UNKNOWN, told)
        case State.CANCEL_REQUESTED if not evidence.is_repeatable and op.cancel is not None:
            told = "the cancel was cut off while its answer was awaited; the job is read once"
            cancel_may_have_arrived(draft, op.cancel, told=told)
        case State.INPUT_GIVEN if not evidence.is_repeatable and op.input is not None:
            input_may_have_arrived(draft, op.input)
        case State.RESULT_COLLECTING if draft.contract.result_fetch == "consuming":
            draft.move(State.RESULT_UNAVAILABLE, "the only fetch that the provider allows was cut off")
        case _:
            draft.set_schedule(mark_at=None)
            draft.due_now()


def cancel_may_have_arrived(draft: Draft, asked: CancelIntent, *, told: str) -> None:
    """The answer to the cancel was lost, or is not known here: one read shows whether it took effect."""
    draft.set(cancel=replace(asked, answer=CancelAnswer.UNKNOWN.value))
    draft.set_schedule(mark_at=None)
    draft.fact(told)
    draft.due_now()


def input_may_have_arrived(
    draft: Draft, given: InputIntent, *, told: str = "the input may have arrived; the job is read once"
) -> None:
    """The answer to the input was lost, or is not known here: one read shows whether the job went on."""
    draft.set(input=replace(given, answer=InputAnswer.UNKNOWN.value))
    draft.set_schedule(mark_at=None)
    draft.fact(told)
    draft.due_now()

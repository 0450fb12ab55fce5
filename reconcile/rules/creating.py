"""The create: accepted, refused, not accepted, unknown, and the second job that must not be."""

from reconcile.classify import classify
from reconcile.draft import Draft
from reconcile.evidence import (
    AboutToSend,
    Accepted,
    CreateNotAccepted,
    CreateRejected,
    CreateUnknown,
    EventSeen,
    FinishedAtOnce,
    JobIsHeld,
    JobRead,
    StepDone,
)
from reconcile.model import Verdict, VerdictKind
from reconcile.rules.ending import end
from reconcile.rules.observing import apply_read
from reconcile.rules.waiting import deadline_after_a_try, is_unsent, what_follows
from reconcile.states import CREATING, TERMINAL, WATCHING, State


def accepted(draft: Draft, evidence: Accepted, *, unconfirmed: bool = False) -> None:
    """A job is named for the create. Naming another one than is held is a violation; nothing is overwritten (B4)."""
    op, job_id = draft.op, evidence.observation.remote_job_id
    if job_id is None:
        create_unknown(draft, CreateUnknown("no_job_id"))
    elif op.state in CREATING:
        take_job(draft, evidence, job_id, unconfirmed=unconfirmed)
    elif op.state is State.CREATE_UNRESOLVED:
        add_candidates(draft, (job_id,))
    elif op.state in TERMINAL:
        draft.contradiction("a create was accepted although the operation had ended", job_id=job_id)
    elif op.remote_job_id is None:
        draft.set(remote_job_id=job_id)
        draft.fact(f"the job that brought the result is named: {job_id}")
    elif op.remote_job_id == job_id:
        draft.fact("the same job was named again")
    else:
        second_jobs(draft, (job_id,))


def take_job(
    draft: Draft, evidence: Accepted, job_id: str, *, unconfirmed: bool = False, how: str | None = None
) -> None:
    """Hold the job, apply what came with its name, and let a waiting cancel follow. `how` it was found, in words."""
    how = how or ("found by look-up" if evidence.by_lookup else "accepted by the provider")
    draft.set(remote_job_id=job_id, started_at=draft.now)
    draft.move(State.ACCEPTED, f"the job was {how}: {job_id}", facts={"remote_job_id": job_id})
    draft.verdict = classify(draft.contract, evidence.observation.word)
    if evidence.observation.word is not None:
        read = JobRead(evidence.observation, retry_after_ms=evidence.retry_after_ms)
        apply_read(draft, read, first=True, unconfirmed=unconfirmed)
    send_a_waiting_cancel(draft)


def send_a_waiting_cancel(draft: Draft) -> None:
    """Where a cancel was asked for before the job was known, and the job runs, it is sent now."""
    cancel = draft.op.cancel
    if cancel is not None and draft.op.state in WATCHING:
        cause = f"cancel:{cancel.cancel_id}"
        draft.move(State.CANCEL_REQUESTED, "a cancel was waiting for the job id", cause=cause)


def second_jobs(draft: Draft, job_ids: tuple[str, ...]) -> None:
    """Other jobs than the held one are this operation's too: all are shown, none is overwritten (B4)."""
    facts = {"held": draft.op.remote_job_id, "named": job_ids[0] if len(job_ids) == 1 else list(job_ids)}
    draft.set(candidates=merged(draft.op.candidates, job_ids))
    draft.move(State.CONTRACT_VIOLATION, "the provider names another job for the same create", facts=facts)


def job_is_held(draft: Draft, evidence: JobIsHeld) -> None:
    """Two of our operations cannot have made one job: both are shown, and a person decides (B4, N5)."""
    facts = {"named": evidence.job_id, "held_by": evidence.by}
    draft.set(candidates=merged(draft.op.candidates, (evidence.job_id,)))
    told = f"the job that is named for this create, {evidence.job_id}, is held by {evidence.by}"
    if draft.op.state in CREATING:
        draft.move(State.CONTRACT_VIOLATION, told, facts=facts)
    else:
        draft.contradiction(told, **facts)


def finished_at_once(draft: Draft, evidence: FinishedAtOnce) -> None:
    """The create answer holds the result (A5). Only a failure needs no collecting, whatever word stands beside it."""
    op, observation = draft.op, evidence.observation
    verdict = classify(draft.contract, observation.word)
    draft.verdict = verdict
    if op.state in TERMINAL:
        draft.contradiction("a result arrived after the operation had ended")
    elif op.state in CREATING:
        if not verdict.is_end or verdict.kind in (VerdictKind.CANCELLED, VerdictKind.EXPIRED):
            kind = verdict.kind if verdict.is_end else VerdictKind.DONE_UNKNOWN_OUTCOME
            verdict = Verdict(kind, verdict.word, verdict.known, may_hold_results=True)
        draft.set(remote_job_id=observation.remote_job_id, started_at=draft.now)
        end(draft, verdict, observation, "the create answer held the result")
    elif op.state is State.CREATE_UNRESOLVED and observation.remote_job_id is not None:
        add_candidates(draft, (observation.remote_job_id,))
    else:
        draft.fact("a create answer with a result came again")


def create_rejected(draft: Draft, evidence: CreateRejected) -> None:
    """A definite no. After an unknown create it ends nothing, unless the token makes it the answer to the first one."""
    state = draft.op.state
    reason = f"the provider refused the create: {evidence.error.code}: {evidence.error.message}"
    replays = draft.contract.replays
    is_first = state is State.CREATE_PENDING and draft.op.resends == 0
    until = draft.contract.token_known_until(draft.op)
    is_forgotten = state is State.CREATE_PENDING and until is not None and draft.now >= until
    if is_first or (state in CREATING and replays and not is_forgotten):
        draft.set(error=evidence.error)
        draft.move(State.FAILED, reason)
    elif state is State.CREATE_PENDING:
        draft.move(State.CREATE_UNKNOWN, reason + "; the lost create may still have arrived")
    elif state in CREATING or state is State.CREATE_UNRESOLVED:
        draft.fact(reason + "; the lost create may still have arrived")
    else:
        draft.contradiction(reason)


def create_not_accepted(draft: Draft, evidence: CreateNotAccepted) -> None:
    """Surely no job was made: the same bytes go out again after the wait, unless a cancel waits for them."""
    if draft.op.state not in CREATING:
        return
    draft.set(last_refusal=evidence.error_class)
    draft.set_schedule(errors=draft.op.schedule.errors + 1, mark_at=None)
    if draft.op.state is State.CREATE_UNKNOWN:
        draft.fact(f"the create was sent again and not accepted ({evidence.error_class}); the first may have arrived")
        draft.due_by_errors(retry_after_ms=evidence.retry_after_ms)
        deadline_after_a_try(draft)
        return
    told = f"the create was not accepted ({evidence.error_class}), so no job was made"
    if draft.op.cancel is not None and is_unsent(draft.op):
        draft.move(State.CANCELLED, f"{told}; it is withdrawn, as {draft.op.cancel.by} asked")
        return
    draft.fact(f"{told}; it is sent again unchanged")
    draft.due_by_errors(retry_after_ms=evidence.retry_after_ms)
    deadline_after_a_try(draft)


def create_unknown(draft: Draft, evidence: CreateUnknown) -> None:
    """It may have arrived: from here on it is sent again only where its token is honoured, else looked up."""
    match draft.op.state:
        case State.CREATE_PENDING:
            reason = f"the create may have arrived ({evidence.error_class}); it is {what_follows(draft)}"
            draft.move(State.CREATE_UNKNOWN, reason, facts={"error_class": evidence.error_class})
        case State.CREATE_UNKNOWN:
            draft.set_schedule(errors=draft.op.schedule.errors + 1, mark_at=None)
            draft.due_by_errors()
            deadline_after_a_try(draft)
        case _:
            draft.fact(f"a create without a clear answer ({evidence.error_class}) came to light late")


def step_done(draft: Draft, evidence: StepDone) -> None:
    """A step before the create succeeded; the create's own mark is set with it, since it follows at once."""
    if draft.op.state is not State.CREATE_PENDING:
        draft.fact(f"{evidence.step} finished late", step=evidence.step, value=evidence.value)
        return
    draft.set(steps={**draft.op.steps, evidence.step: evidence.value})
    draft.set_schedule(mark_at=draft.now, errors=0)
    draft.fact(f"{evidence.step} done; the create is about to be sent", step=evidence.step, value=evidence.value)


def about_to_send(draft: Draft, _: AboutToSend) -> None:
    """The create leaves next, unless it was withdrawn meanwhile."""
    if draft.op.state is State.CREATE_PENDING:
        draft.set_schedule(mark_at=draft.now)


def event_before_the_job(draft: Draft, evidence: EventSeen) -> None:
    """A verified event while the job id is not known: only our own marker ties it to this operation (J2)."""
    state, job_id = draft.op.state, evidence.observation.remote_job_id
    draft.verdict = classify(draft.contract, evidence.observation.word)
    if evidence.is_other_content:
        draft.contradiction(f"an event id came again with other content, now {evidence.observation.word!r}")
    if not evidence.is_ours or job_id is None:
        return
    if state in CREATING and not draft.contract.has_read:
        accepted(draft, Accepted(evidence.observation), unconfirmed=True)
        return
    add_candidates(draft, (job_id,))
    if state is State.CREATE_PENDING and draft.op.resends and draft.op.schedule.mark_at is None:
        told = f"the create is not sent again: {job_id}, which bears this operation's marker, may be the first one's"
        draft.move(State.CREATE_UNKNOWN, told)
    elif state in CREATING:
        draft.due_now()


def add_candidates(draft: Draft, job_ids: tuple[str, ...]) -> None:
    """Show jobs that may be this operation's; none of them is held by that."""
    fresh = tuple(job_id for job_id in job_ids if job_id not in draft.op.candidates)
    if fresh:
        draft.set(candidates=merged(draft.op.candidates, fresh))
        draft.fact("jobs that may be this operation's were seen", candidates=list(fresh))


def merged(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    """Both, each job once."""
    return tuple(dict.fromkeys((*left, *right)))

"""Reads of the job, reads that failed, jobs that are gone, and events that ring."""

from typing import Final

from reconcile.classify import classify
from reconcile.contract import GONE_RUN_MS, GONE_RUN_READS
from reconcile.draft import Draft
from reconcile.evidence import CancelAnswer, EventSeen, JobGone, JobRead, ReadFailed
from reconcile.health import EndSeen
from reconcile.model import Observation, Operation, Verdict, VerdictKind
from reconcile.replacing import replace
from reconcile.rules.absence import asked_again
from reconcile.rules.ending import another_end, end, ended_as
from reconcile.rules.waiting import deadline_after_a_try, is_input_answered, waits_for_its_send
from reconcile.states import CANCELLING, CREATING, ENDED_REMOTELY, RINGS, STOPPED, TERMINAL, WATCHING, Priority, State

#: Failed look-ups in a row after which the create deadline may fire: one lost answer is no "not found". 5: arbitrary,
#: as many as open a provider's pause.
LOOKUPS_TO_GIVE_UP: Final = 5


def job_read(draft: Draft, evidence: JobRead) -> None:
    """A read of the job was answered."""
    if is_of_another_job(draft.op, evidence.observation):
        read_failed(draft, ReadFailed("another_job"))  # an answer about some other job tells nothing of this one
        return
    apply_read(draft, evidence)
    if evidence.is_announced and draft.op.state in WATCHING and draft.verdict is not None and not draft.verdict.is_end:
        draft.due_soon()  # the event and the read disagree: one of them is ahead, and the other follows shortly
    deadline_after_a_try(draft)


def is_of_another_job(op: Operation, observation: Observation) -> bool:
    """Whether a body names another job than the one that was asked about."""
    told = observation.remote_job_id
    return told is not None and op.remote_job_id is not None and told != op.remote_job_id


def apply_read(draft: Draft, evidence: JobRead, *, first: bool = False, unconfirmed: bool = False) -> None:
    """What a body says of the job. `first`: it came with the acceptance, so it is no poll of its own."""
    op, observation = draft.op, evidence.observation
    verdict = classify(draft.contract, observation.word)
    draft.verdict = verdict
    if op.state in CREATING or op.state is State.CREATE_UNRESOLVED:
        return
    if verdict.kind is VerdictKind.GONE:
        job_gone(draft, JobGone(f"word:{verdict.word}"))
        return
    if op.state not in TERMINAL:
        _show(draft, observation, first=first)
    if verdict.is_end:
        _an_end(draft, verdict, evidence, first=first, unconfirmed=unconfirmed)
    elif op.state in TERMINAL | ENDED_REMOTELY:
        draft.contradiction(f"the job ended as {ended_as(op)}, and is now said to be {observation.word!r}")
    elif verdict.kind is VerdictKind.BLOCKED:
        _blocked(draft, evidence)
    else:
        _pending(draft, evidence)


def _show(draft: Draft, observation: Observation, *, first: bool) -> None:
    """Bring what people see up to date, and count the poll."""
    op = draft.op
    status = observation.remote_status or observation.word
    changed = status != op.remote_status
    progress = observation.progress or op.progress  # a body that tells none is no news of it
    is_watched = op.state not in ENDED_REMOTELY  # beyond, `errors` counts the tries to collect
    is_recovered = is_watched and op.schedule.errors > 0
    draft.is_news = draft.is_news or changed or progress != op.progress or is_recovered
    plan = replace(op.schedule, gone_reads=0, gone_since=None)
    if is_watched:
        polls = 1 if changed else op.schedule.polls + 1
        plan = replace(plan, polls=0 if first else polls, errors=0)
    draft.set(
        remote_status=status,
        progress=progress,
        total_items=observation.total_items if observation.total_items is not None else op.total_items,
        schedule=plan,
    )


def _an_end(draft: Draft, verdict: Verdict, evidence: JobRead, *, first: bool, unconfirmed: bool) -> None:
    op = draft.op
    if op.state in TERMINAL | ENDED_REMOTELY:
        another_end(draft, verdict, evidence.observation)
        return
    told = f"the provider says {verdict.word}"
    if evidence.rung_by is not None:
        told += f" (read because {evidence.rung_by} rang)"
    # A job that had ended when it was first read (adopted, named by a person, looked up) was nobody's to announce.
    if unconfirmed or not (first or draft.before.remote_status is None):
        is_expected = draft.contract.webhook is not None
        draft.end_seen = EndSeen(evidence.is_announced or unconfirmed, is_expected, evidence.observation.provider_at)
        draft.set(end_missed=draft.end_seen.is_missed)
        if draft.end_seen.is_missed and evidence.rung_by is None:
            told += " (found by polling: no webhook had told of it)"
    if op.cancel is not None:
        told += f"; {op.cancel.by} had asked for a cancel before that"
    if unconfirmed:
        draft.set(unconfirmed=True)
        told += " in a verified event, which no read can confirm"
    end(draft, verdict, evidence.observation, told)


def _pending(draft: Draft, evidence: JobRead) -> None:
    observation = evidence.observation
    match draft.op.state:
        case State.INPUT_GIVEN if is_input_answered(draft.op):
            # The one read after an input whose answer was lost: still running, so the input was taken.
            draft.move(State.OBSERVING, f"the provider says {observation.word}")
        case State.INPUT_GIVEN:
            return  # else the input that a person gave would be lost
        case State.ACCEPTED | State.BLOCKED:
            draft.move(State.OBSERVING, f"the provider says {observation.word}")
        case State.OBSERVATION_FAILED:
            draft.move(State.OBSERVING, f"the job can be read again; the provider says {observation.word}")
        case State.CANCEL_REQUESTED:
            _after_the_cancel(draft, observation)
        case _:
            pass
    draft.due_by_polls(hint_ms=evidence.hint_ms, retry_after_ms=evidence.retry_after_ms)


def _blocked(draft: Draft, evidence: JobRead) -> None:
    observation = evidence.observation
    match draft.op.state:
        case State.INPUT_GIVEN if is_input_answered(draft.op):
            draft.move(State.BLOCKED, "the input may not have arrived", question="input_unknown")
        case State.INPUT_GIVEN:
            return
        case State.ACCEPTED | State.OBSERVING | State.OBSERVATION_FAILED:
            draft.move(State.BLOCKED, f"the job waits for input; the provider says {observation.word}")
        case State.CANCEL_REQUESTED:
            _after_the_cancel(draft, observation)
        case _:
            pass
    draft.due_by_polls(hint_ms=evidence.hint_ms, retry_after_ms=evidence.retry_after_ms)


def _after_the_cancel(draft: Draft, observation: Observation) -> None:
    """The one read after a cancel that was refused, or whose answer was lost, shows a job that still runs."""
    cancel = draft.op.cancel
    if cancel is None or cancel.answer is None:
        return
    if cancel.answer == CancelAnswer.UNKNOWN:
        draft.move(State.CANCELLING, "the cancel's answer was lost; the job is watched for its end")
    else:
        told = f"the cancel was answered {cancel.answer}, and the provider still says {observation.word}"
        draft.move(State.CANCELLATION_UNCONFIRMED, told, question="refused")


def read_failed(draft: Draft, evidence: ReadFailed) -> None:
    """A read without a readable answer: it may cost budget, and never says how the job fares (C6)."""
    asked_again(draft)
    op = draft.op
    if op.state in STOPPED:
        _ring_once_more(draft, retry_after_ms=evidence.retry_after_ms)
    if op.state in TERMINAL | STOPPED | ENDED_REMOTELY or op.state is State.CREATE_UNRESOLVED:
        deadline_after_a_try(draft)
        return
    if evidence.counts or op.state in CREATING:  # a look-up spends no budget: it only shows that none can be made
        draft.is_news = op.schedule.errors == 0
        draft.set_schedule(errors=op.schedule.errors + 1, gone_reads=0, gone_since=None)
    errors = draft.op.schedule.errors
    if waits_for_its_send(op):
        pass  # else the input that a person gave would be lost
    elif op.state in WATCHING and errors >= draft.contract.poll.error_budget:
        reason = f"{errors} reads in a row failed, the last with {evidence.error_class}"
        draft.move(State.OBSERVATION_FAILED, reason)
    else:
        draft.due_by_errors(retry_after_ms=evidence.retry_after_ms)
    if op.state not in CREATING or errors >= LOOKUPS_TO_GIVE_UP:
        deadline_after_a_try(draft)


def _ring_once_more(draft: Draft, *, retry_after_ms: int | None = None) -> None:
    """A read that was owed and failed is owed still, up to the budget: one lost answer costs no late end (J6)."""
    if draft.op.schedule.priority > Priority.RUNG:
        return
    errors = draft.op.schedule.errors + 1
    if errors < draft.contract.poll.error_budget:
        draft.set_schedule(errors=errors)
        draft.due_by_errors(retry_after_ms=retry_after_ms, rung=True)
    else:
        draft.set_schedule(errors=0)  # the next ring has a budget of its own


def job_gone(draft: Draft, evidence: JobGone) -> None:
    """One answer of a run: only a whole run counts, and it never says that the job failed."""
    asked_again(draft)
    op = draft.op
    if op.state in STOPPED:
        _ring_once_more(draft)  # one such answer is no run: the job may be there again at the next read
    if op.state in TERMINAL | STOPPED | CREATING or op.state is State.CREATE_UNRESOLVED or waits_for_its_send(op):
        deadline_after_a_try(draft)
        return
    # Never in the future: a clock that was set back must not make the run longer.
    run_since = draft.now if op.schedule.gone_since is None else min(op.schedule.gone_since, draft.now)
    reads = op.schedule.gone_reads + 1
    draft.is_news = reads == 1
    draft.set_schedule(gone_reads=reads, gone_since=run_since)
    if reads >= GONE_RUN_READS and draft.now - run_since >= GONE_RUN_MS:
        _whole_gone_run(draft, reads, evidence.announced)
    else:
        draft.due_by_errors(n=reads)
    deadline_after_a_try(draft)


def _whole_gone_run(draft: Draft, reads: int, announced: str | None) -> None:
    was_read = draft.op.remote_status is not None
    known = "does not know the job any more" if was_read else "knows no job of this id, and never did as far as we saw"
    reason = f"the provider {known} ({reads} reads in a row)"
    state, told = draft.op.state, classify(draft.contract, announced)
    if state in WATCHING and told.is_end:
        draft.set(end_unread=True)
        end(draft, told, Observation(told.word), f"{reason}, after an event told its end")
    elif state in WATCHING:
        draft.move(State.OBSERVATION_FAILED, reason, question="gone")
    elif state in CANCELLING:
        if draft.contract.cancel is not None and draft.contract.cancel.gone_means_cancelled:
            draft.move(State.CANCELLED, reason)
        elif state is State.CANCELLATION_UNCONFIRMED:
            draft.due_by_errors(n=reads)  # a person is asked already; the job may be there again at a later read
        else:
            draft.move(State.CANCELLATION_UNCONFIRMED, reason, question="gone")
    elif state is State.RESULT_COLLECTING:
        draft.move(State.RESULT_UNAVAILABLE, reason)


def event_seen(draft: Draft, evidence: EventSeen) -> None:
    """A verified event for a job that the operation holds: it rings, and is evidence itself only without a read."""
    op, observation = draft.op, evidence.observation
    verdict = classify(draft.contract, observation.word)
    draft.verdict = verdict
    draft.is_late_event = op.end_missed and verdict.is_end and not evidence.is_other_content
    if evidence.is_other_content:
        draft.contradiction(f"an event id came again with other content, now {observation.word!r}")
        ring(draft)
    elif not draft.contract.has_read:
        apply_read(draft, JobRead(observation), unconfirmed=True)
    elif op.state in TERMINAL:
        if verdict.is_end:
            another_end(draft, verdict, observation)
    else:
        ring(draft)


def ring(draft: Draft) -> None:
    """Read the job next, before those that only the sweep would reach."""
    if draft.op.state in RINGS:
        draft.due_now(rung=True)

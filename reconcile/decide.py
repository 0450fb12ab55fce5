"""What evidence does to an operation: the evidence table, a function a row, a `match` over its columns.

`decide` is called inside the transaction, on the row as it stands, and touches nothing but its arguments. What comes
in is evidence of any kind; what goes out is the row as it becomes and the history that says why.
"""

from dataclasses import replace

from reconcile import conclude
from reconcile.classify import classify
from reconcile.contract import GONE_RUN_MS, GONE_RUN_READS, Contract
from reconcile.draft import Draft, next_action
from reconcile.model import (
    AboutToSend,
    Accepted,
    CancelAnswer,
    CancelAnswered,
    CancelAsked,
    CancelIntent,
    Change,
    Collected,
    CollectFailed,
    CreateNotAccepted,
    CreateRejected,
    CreateUnknown,
    DeadlinePassed,
    EventSeen,
    Evidence,
    FinishedAtOnce,
    FoundAtStart,
    InputAnswer,
    InputAnswered,
    InputAsked,
    InputIntent,
    JobGone,
    JobRead,
    LookupFound,
    Observation,
    Operation,
    ReadFailed,
    RemoteError,
    ResultIsFailure,
    StepDone,
    UnixMs,
    Verdict,
    VerdictKind,
)
from reconcile.states import (
    CANCELLING,
    CREATING,
    ENDED_REMOTELY,
    STOPPED,
    TERMINAL,
    WATCHING,
    State,
)

__all__ = ["decide", "next_action"]


def decide(
    op: Operation,
    contract: Contract,
    evidence: Evidence,
    *,
    now: UnixMs,
    draw: float,
    cause: str,
    sweeping: bool = False,
) -> Change:
    """What `op` becomes by `evidence`.

    `cause` names the record that the history rows point at ("observation:ID", "request:ID", "person:ID", ...);
    `draw` in [0, 1) feeds the jitter; `sweeping`: webhooks are known to arrive, so reads may wait for the sweep.
    """
    draft = Draft(op, contract, now=now, draw=draw, cause=cause, sweeping=sweeping)
    _apply(draft, evidence)
    return draft.finish()


def _apply(draft: Draft, evidence: Evidence) -> None:  # noqa: C901 - a dispatch: one line a row of the table
    if draft.op.state is State.CONTRACT_VIOLATION and not isinstance(evidence, DeadlinePassed):
        _in_contract_violation(draft, evidence)
        return
    match evidence:
        case Accepted():
            _accepted(draft, evidence)
        case FinishedAtOnce():
            _finished_at_once(draft, evidence)
        case CreateRejected():
            _create_rejected(draft, evidence)
        case CreateNotAccepted():
            _create_not_accepted(draft, evidence)
        case CreateUnknown():
            _create_unknown(draft, evidence)
        case StepDone():
            _step_done(draft, evidence)
        case AboutToSend():
            if draft.op.state is State.CREATE_PENDING:
                draft.set_schedule(mark_at=draft.now)
        case LookupFound():
            _lookup_found(draft, evidence)
        case JobRead():
            _job_read(draft, evidence)
        case ReadFailed():
            _read_failed(draft, evidence)
        case JobGone():
            _job_gone(draft, evidence)
        case EventSeen():
            _event_seen(draft, evidence)
        case CancelAsked():
            _cancel_asked(draft, evidence)
        case CancelAnswered():
            _cancel_answered(draft, evidence)
        case InputAsked():
            _input_asked(draft, evidence)
        case InputAnswered():
            _input_answered(draft, evidence)
        case Collected():
            _collected(draft, evidence)
        case CollectFailed():
            _collect_failed(draft, evidence)
        case ResultIsFailure():
            _result_is_failure(draft, evidence)
        case DeadlinePassed():
            _deadline_passed(draft, evidence)
        case FoundAtStart():
            _found_at_start(draft, evidence)


# ---- creating ------------------------------------------------------------------------------------------------


def _accepted(draft: Draft, evidence: Accepted) -> None:
    op, job_id = draft.op, evidence.observation.remote_job_id
    if job_id is None:
        _create_unknown(draft, CreateUnknown("no_job_id"))
    elif op.state in CREATING:
        _take_job(draft, evidence, job_id)
    elif op.state is State.CREATE_UNRESOLVED:
        _add_candidates(draft, (job_id,))
    elif op.state in TERMINAL and op.remote_job_id != job_id:
        draft.contradiction("a job turned up after the operation had ended", job_id=job_id)
    elif op.remote_job_id == job_id:
        draft.fact("the same job was named again")
    else:
        _second_job(draft, job_id)


def _take_job(draft: Draft, evidence: Accepted, job_id: str) -> None:
    observation = evidence.observation
    how = "found by look-up" if evidence.by_lookup else "accepted by the provider"
    draft.set(remote_job_id=job_id, started_at=draft.now)
    draft.move(State.ACCEPTED, f"the job was {how}: {job_id}", facts={"remote_job_id": job_id})
    _apply_read(draft, JobRead(observation), first=True)
    if draft.op.cancel is not None and draft.op.state in WATCHING:
        draft.move(State.CANCEL_REQUESTED, "a cancel was waiting for the job id", cause=_cancel_cause(draft.op))


def _second_job(draft: Draft, job_id: str) -> None:
    facts = {"held": draft.op.remote_job_id, "named": job_id}
    draft.set(candidates=_merged(draft.op.candidates, (job_id,)))
    draft.move(State.CONTRACT_VIOLATION, "the provider names another job for the same create", facts=facts)


def _finished_at_once(draft: Draft, evidence: FinishedAtOnce) -> None:
    op, observation = draft.op, evidence.observation
    if op.state in TERMINAL:
        draft.contradiction("a result arrived after the operation had ended")
    elif op.state in CREATING:
        verdict = classify(draft.contract, observation.word)
        draft.verdict = verdict
        draft.set(remote_job_id=observation.remote_job_id, started_at=draft.now)
        _end(draft, verdict, observation, "the create answer held the result")
    else:
        draft.fact("a create answer with a result came again")


def _create_rejected(draft: Draft, evidence: CreateRejected) -> None:
    state = draft.op.state
    reason = f"the provider refused the create: {evidence.error.code}: {evidence.error.message}"
    replays = draft.contract.idempotency == "replays"
    if state is State.CREATE_PENDING or (state is State.CREATE_UNKNOWN and replays):
        draft.set(error=evidence.error)
        draft.move(State.FAILED, reason)
    elif state in CREATING or state is State.CREATE_UNRESOLVED:
        draft.fact(reason + "; the lost create may still have arrived")
    else:
        draft.contradiction(reason)


def _create_not_accepted(draft: Draft, evidence: CreateNotAccepted) -> None:
    if draft.op.state not in CREATING:
        return
    errors = draft.op.schedule.errors + 1
    draft.set_schedule(errors=errors, mark_at=None)
    draft.fact(f"the create was not accepted ({evidence.error_class}), so no job was made; it is sent again unchanged")
    draft.due_by_errors(retry_after_ms=evidence.retry_after_ms)


def _create_unknown(draft: Draft, evidence: CreateUnknown) -> None:
    match draft.op.state:
        case State.CREATE_PENDING:
            draft.move(
                State.CREATE_UNKNOWN,
                f"the create may have arrived ({evidence.error_class}); it is looked up, not sent again",
                facts={"error_class": evidence.error_class},
            )
        case State.CREATE_UNKNOWN:
            draft.set_schedule(errors=draft.op.schedule.errors + 1, mark_at=None)
            draft.due_by_errors()
        case _:
            draft.fact(f"a create without a clear answer ({evidence.error_class}) came to light late")


def _step_done(draft: Draft, evidence: StepDone) -> None:
    if draft.op.state is not State.CREATE_PENDING:
        draft.fact(f"{evidence.step} finished late", step=evidence.step, value=evidence.value)
        return
    draft.set(steps={**draft.op.steps, evidence.step: evidence.value})
    draft.set_schedule(mark_at=draft.now, errors=0)
    draft.fact(f"{evidence.step} done; the create is about to be sent", step=evidence.step, value=evidence.value)


def _lookup_found(draft: Draft, evidence: LookupFound) -> None:
    if draft.op.state not in CREATING:
        _add_candidates(draft, evidence.job_ids)
    elif evidence.is_sure and len(evidence.job_ids) > 1:
        draft.set(candidates=_merged(draft.op.candidates, evidence.job_ids))
        draft.move(
            State.CONTRACT_VIOLATION,
            f"{len(evidence.job_ids)} jobs bear this operation's marker",
            facts={"candidates": list(evidence.job_ids)},
        )
    else:
        _add_candidates(draft, evidence.job_ids)
        polls = draft.op.schedule.polls + 1
        draft.set_schedule(polls=polls)
        draft.due_by_polls()
        _deadline_after_a_try(draft)


def _add_candidates(draft: Draft, job_ids: tuple[str, ...]) -> None:
    fresh = tuple(job_id for job_id in job_ids if job_id not in draft.op.candidates)
    if fresh:
        draft.set(candidates=_merged(draft.op.candidates, fresh))
        draft.fact("jobs that may be this operation's were seen", candidates=list(fresh))


def _merged(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*left, *right)))


# ---- observing -----------------------------------------------------------------------------------------------


def _job_read(draft: Draft, evidence: JobRead) -> None:
    told = evidence.observation.remote_job_id
    if told is not None and draft.op.remote_job_id is not None and told != draft.op.remote_job_id:
        _read_failed(draft, ReadFailed("another_job"))  # an answer about some other job tells nothing of this one
        return
    _apply_read(draft, evidence)
    _deadline_after_a_try(draft)


def _apply_read(draft: Draft, evidence: JobRead, *, first: bool = False, unconfirmed: bool = False) -> None:
    """A read that was answered. `first`: it came with the acceptance, so it is no poll of its own."""
    observation = evidence.observation
    verdict = classify(draft.contract, observation.word)
    draft.verdict = verdict
    if draft.op.state in CREATING or draft.op.state is State.CREATE_UNRESOLVED:
        return
    if draft.op.state not in TERMINAL:
        _show(draft, observation, first=first)
    if verdict.is_end:
        _read_an_end(draft, verdict, evidence, unconfirmed=unconfirmed)
    elif draft.op.state in TERMINAL | ENDED_REMOTELY:
        draft.contradiction(f"the job ended as {_ended_as(draft.op)}, and is now said to be {observation.word!r}")
    elif verdict.kind is VerdictKind.BLOCKED:
        _read_blocked(draft, observation, evidence.hint_ms)
    else:
        _read_pending(draft, observation, evidence.hint_ms)


def _show(draft: Draft, observation: Observation, *, first: bool) -> None:
    """Bring what people see up to date, and count the poll."""
    op = draft.op
    status = observation.remote_status or observation.word
    changed = status != op.remote_status
    draft.is_news = draft.is_news or changed or observation.progress != op.progress or op.schedule.errors > 0
    draft.set(
        remote_status=status,
        progress=observation.progress or op.progress,
        total_items=observation.total_items if observation.total_items is not None else op.total_items,
    )
    if op.state in ENDED_REMOTELY:
        return  # here `errors` counts the tries to collect
    polls = 1 if changed else op.schedule.polls + 1
    draft.set_schedule(polls=0 if first else polls, errors=0, gone_reads=0, gone_since=None)


def _read_an_end(draft: Draft, verdict: Verdict, evidence: JobRead, *, unconfirmed: bool) -> None:
    op, observation = draft.op, evidence.observation
    if op.state in TERMINAL | ENDED_REMOTELY:
        _another_end(draft, verdict, observation)
        return
    told = f"the provider says {verdict.word}"
    if evidence.rung_by is not None:
        told += f" (read because {evidence.rung_by} rang)"
    if op.cancel is not None:
        told += f"; a cancel was asked at {op.cancel.requested_at} before that"
    if unconfirmed:
        draft.set(unconfirmed=True)
        told += " in a verified event, which no read can confirm"
    _end(draft, verdict, observation, told)


def _end(draft: Draft, verdict: Verdict, observation: Observation, reason: str) -> None:
    """The verdict's own state: through collection wherever results may exist, else straight to the end."""
    draft.set(
        verdict=verdict,
        results=observation.results,
        finished_items=observation.finished_items,
        error=observation.error or draft.op.error,
    )
    facts = {"verdict": verdict.kind.value, "word": verdict.word}
    if verdict.kind in (VerdictKind.DONE, VerdictKind.DONE_UNKNOWN_OUTCOME) or verdict.may_hold_results:
        draft.move(State.RESULT_COLLECTING, f"{reason}; its results are collected", facts=facts)
        return
    draft.set(summary=conclude.without_results(verdict, draft.op.input_items))
    if verdict.kind is VerdictKind.CANCELLED:
        draft.move(State.CANCELLED, reason, facts=facts)
        return
    if draft.op.error is None:
        draft.set(error=RemoteError(str(verdict.word), f"The provider ended the job as {verdict.word}."))
    draft.move(State.FAILED, reason, facts=facts)


def _another_end(draft: Draft, verdict: Verdict, observation: Observation) -> None:
    op = draft.op
    if op.verdict is not None and op.verdict.kind is verdict.kind:
        if op.state is State.RESULT_COLLECTING and observation.results != op.results:
            draft.set(results=observation.results, finished_items=observation.finished_items)
            draft.fact("the ended job now names its results", results=[ref.name for ref in observation.results])
            draft.due_now()
        return
    draft.contradiction(f"the job ended as {_ended_as(op)}, and is now said to be {verdict.word}", word=verdict.word)


def _ended_as(op: Operation) -> str:
    return str(op.verdict.word if op.verdict else op.state)


def _read_pending(draft: Draft, observation: Observation, hint_ms: int | None) -> None:
    match draft.op.state:
        case State.INPUT_GIVEN if draft.op.input is not None and draft.op.input.answer is not None:
            # The one read after an input whose answer was lost: still running, so the input was taken.
            draft.move(State.OBSERVING, f"the provider says {observation.word}")
        case State.INPUT_GIVEN:
            return  # else the input that a person gave would be lost
        case State.ACCEPTED | State.BLOCKED:
            draft.move(State.OBSERVING, f"the provider says {observation.word}")
        case State.OBSERVATION_FAILED:
            draft.move(State.OBSERVING, f"the job can be read again; the provider says {observation.word}")
        case State.CANCEL_REQUESTED:
            _cancel_read(draft, observation)
        case _:
            pass
    draft.due_by_polls(hint_ms=hint_ms)


def _read_blocked(draft: Draft, observation: Observation, hint_ms: int | None) -> None:
    match draft.op.state:
        case State.INPUT_GIVEN if draft.op.input is not None and draft.op.input.answer is not None:
            draft.move(State.BLOCKED, "the input may not have arrived", question="input_unknown")
        case State.INPUT_GIVEN:
            return
        case State.ACCEPTED | State.OBSERVING | State.OBSERVATION_FAILED:
            draft.move(State.BLOCKED, f"the job waits for input; the provider says {observation.word}")
        case State.CANCEL_REQUESTED:
            _cancel_read(draft, observation)
        case _:
            pass
    draft.due_by_polls(hint_ms=hint_ms)


def _cancel_read(draft: Draft, observation: Observation) -> None:
    """The one read after a cancel that was refused, or whose answer was lost, shows a job that still runs."""
    cancel = draft.op.cancel
    if cancel is None or cancel.answer is None:
        return
    if cancel.answer == CancelAnswer.UNKNOWN:
        draft.move(State.CANCELLING, "the cancel's answer was lost; the job is watched for its end")
    else:
        draft.move(
            State.CANCELLATION_UNCONFIRMED,
            f"the cancel was answered {cancel.answer}, and the provider still says {observation.word}",
            question="refused",
        )


def _read_failed(draft: Draft, evidence: ReadFailed) -> None:
    op = draft.op
    if op.state in WATCHING | CANCELLING and evidence.counts:
        draft.is_news = op.schedule.errors == 0
        draft.set_schedule(errors=op.schedule.errors + 1, gone_reads=0, gone_since=None)
    if op.state in WATCHING and draft.op.schedule.errors >= draft.contract.poll.error_budget:
        draft.move(
            State.OBSERVATION_FAILED,
            f"{draft.op.schedule.errors} reads in a row failed, the last with {evidence.error_class}",
        )
    elif op.state in WATCHING | CANCELLING | CREATING:
        draft.due_by_errors(retry_after_ms=evidence.retry_after_ms)
    _deadline_after_a_try(draft)


def _job_gone(draft: Draft, evidence: JobGone) -> None:
    op = draft.op
    if op.state in TERMINAL | STOPPED | CREATING or op.state is State.CREATE_UNRESOLVED:
        return
    run_since = op.schedule.gone_since if op.schedule.gone_since is not None else draft.now
    reads = op.schedule.gone_reads + 1
    draft.is_news = reads == 1
    draft.set_schedule(gone_reads=reads, gone_since=run_since)
    if reads >= GONE_RUN_READS and draft.now - run_since >= GONE_RUN_MS:
        _whole_gone_run(draft, reads, evidence.announced)
    else:
        draft.due_by_errors(n=reads)
    _deadline_after_a_try(draft)


def _whole_gone_run(draft: Draft, reads: int, announced: Verdict | None) -> None:
    reason = f"the provider does not know the job any more ({reads} reads in a row)"
    state = draft.op.state
    if state in WATCHING and announced is not None:
        _end(draft, announced, Observation(announced.word), f"{reason}, after an event told its end")
    elif state in WATCHING:
        draft.move(State.OBSERVATION_FAILED, reason, question="gone")
    elif state in CANCELLING:
        if draft.contract.cancel is not None and draft.contract.cancel.gone_means_cancelled:
            draft.move(State.CANCELLED, reason)
        elif state is not State.CANCELLATION_UNCONFIRMED:
            draft.move(State.CANCELLATION_UNCONFIRMED, reason, question="gone")
    elif state is State.RESULT_COLLECTING:
        draft.move(State.RESULT_UNAVAILABLE, reason)


def _event_seen(draft: Draft, evidence: EventSeen) -> None:
    op, observation = draft.op, evidence.observation
    verdict = classify(draft.contract, observation.word)
    draft.verdict = verdict
    if evidence.is_other_content:
        draft.contradiction(f"an event id came again with other content, now {observation.word!r}")
        if op.state in WATCHING | CANCELLING | STOPPED:
            draft.due_now()
    elif op.state in CREATING:
        if evidence.is_ours and observation.remote_job_id is not None:
            _event_names_our_job(draft, observation)
    elif op.state in TERMINAL:
        if verdict.is_end:
            _another_end(draft, verdict, observation)
    elif not draft.contract.has_read:
        _apply_read(draft, JobRead(observation), unconfirmed=True)
    elif op.state in WATCHING | CANCELLING | STOPPED:
        draft.due_now()


def _event_names_our_job(draft: Draft, observation: Observation) -> None:
    if not draft.contract.has_read:
        _accepted(draft, Accepted(observation))
        return
    _add_candidates(draft, (str(observation.remote_job_id),))
    draft.due_now()


# ---- cancel and input ----------------------------------------------------------------------------------------


def _cancel_asked(draft: Draft, evidence: CancelAsked) -> None:
    op = draft.op
    if op.cancel is not None and op.state not in STOPPED | WATCHING:
        return  # the same answer, no second cancel
    if op.state in TERMINAL:
        draft.refuse("the operation has ended")
    elif op.state in ENDED_REMOTELY:
        draft.refuse("the job has ended; its results are being collected")
    elif op.state is State.CREATE_UNRESOLVED:
        draft.refuse("the job is not known; decide `give_up` or `adopt_job`")
    elif draft.contract.cancel is None and not _is_unsent(op):
        draft.refuse("this provider has no cancel; the job runs on")
    else:
        _take_cancel(draft, evidence)


def _take_cancel(draft: Draft, evidence: CancelAsked) -> None:
    terms = draft.contract.cancel
    intent = CancelIntent(
        evidence.cancel_id,
        evidence.by,
        evidence.reason,
        evidence.effect,
        draft.now,
        may_remain=terms.may_remain if terms else None,
    )
    draft.set(cancel=intent)
    state = draft.op.state
    if _is_unsent(draft.op):
        draft.move(State.CANCELLED, f"withdrawn by {evidence.by} before anything was sent: {evidence.reason}")
    elif state in CREATING:
        draft.fact(f"{evidence.by} asked for a cancel: {evidence.reason}; it is sent once the job id is known")
    else:
        draft.move(State.CANCEL_REQUESTED, f"{evidence.by} asked for a cancel: {evidence.reason}")


def _is_unsent(op: Operation) -> bool:
    """Whether surely no create has left."""
    return op.state is State.CREATE_PENDING and op.schedule.mark_at is None


def _cancel_answered(draft: Draft, evidence: CancelAnswered) -> None:
    op = draft.op
    if op.state is not State.CANCEL_REQUESTED or op.cancel is None:
        if op.state in TERMINAL:
            draft.fact(f"the cancel was answered {evidence.answer} after the end")
        return
    if evidence.answer is CancelAnswer.NOT_ACCEPTED:
        draft.set_schedule(errors=op.schedule.errors + 1, mark_at=None)
        draft.fact(f"the cancel was not accepted ({evidence.error_class}); it is sent again")
        draft.due_by_errors(retry_after_ms=evidence.retry_after_ms)
        _deadline_after_a_try(draft)
        return
    draft.set(cancel=replace(op.cancel, answer=evidence.answer.value))
    draft.set_schedule(mark_at=None)
    if evidence.answer is CancelAnswer.ACCEPTED:
        draft.move(State.CANCELLING, "the provider accepted the cancel request; only its own word ends the job")
        if evidence.observation is not None:
            _apply_read(draft, JobRead(evidence.observation))
        return
    draft.fact(f"the cancel was answered {evidence.answer}; the job is read once more")
    draft.due_now()


def _cancel_cause(op: Operation) -> str | None:
    return f"cancel:{op.cancel.cancel_id}" if op.cancel else None


def _input_asked(draft: Draft, evidence: InputAsked) -> None:
    if draft.op.state is not State.BLOCKED or not draft.contract.takes_input:
        draft.refuse("the job is not waiting for input")
        return
    draft.set(input=InputIntent(evidence.input_id, evidence.by, draft.now))
    draft.move(State.INPUT_GIVEN, f"{evidence.by} gave the input")


def _input_answered(draft: Draft, evidence: InputAnswered) -> None:
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
            draft.due_by_errors(retry_after_ms=evidence.retry_after_ms)
            _deadline_after_a_try(draft)
        case InputAnswer.UNKNOWN:
            _input_may_have_arrived(draft, op.input)


def _input_may_have_arrived(draft: Draft, given: InputIntent) -> None:
    draft.set(input=replace(given, answer=InputAnswer.UNKNOWN.value))
    draft.set_schedule(mark_at=None)
    draft.fact("the input may have arrived; the job is read once")
    draft.due_now()


# ---- collecting ----------------------------------------------------------------------------------------------


def _collected(draft: Draft, evidence: Collected) -> None:
    op = draft.op
    if op.state is not State.RESULT_COLLECTING or op.verdict is None:
        return
    draft.set(result=evidence.info, summary=evidence.summary, collect_attempt=evidence.info.attempt)
    end = conclude.end_of(op.verdict, evidence.summary, evidence.info.problems, is_partial=evidence.is_partial)
    s = evidence.summary
    reason = f"collected: {s.succeeded} of {s.total} items succeeded"
    if end is State.FAILED and draft.op.error is None:
        draft.set(error=_end_error(op.verdict, s.total))
    if end is State.RESULT_VALIDATION_FAILED:
        reason = f"the result breaks the contract: {_problem_words(evidence)}"
    draft.move(end, reason)
    _note_differing_counts(draft, evidence)


def _end_error(verdict: Verdict, total: int) -> RemoteError:
    if verdict.kind is VerdictKind.EXPIRED:
        return RemoteError("expired", "The provider's window closed before the work was done.", retryable=True)
    return RemoteError("all_items_failed", f"All {total} items failed; each has its own error.")


def _problem_words(evidence: Collected) -> str:
    problems, words = evidence.info.problems, []
    if problems is not None:
        words = [
            f"{len(ids)} {name}"
            for name, ids in (
                ("doubled ids", problems.duplicate),
                ("ids that were never sent", problems.unknown),
                ("missing ids", problems.missing),
                ("unreadable lines", problems.unreadable_lines),
                ("broken promises", problems.broken),
            )
            if ids
        ]
        if problems.expected != problems.found:
            words.append(f"{problems.found} items instead of {problems.expected}")
    return ", ".join(words) or "it holds no item at all"


def _note_differing_counts(draft: Draft, evidence: Collected) -> None:
    told = draft.op.finished_items
    found = evidence.info.items
    if told is not None and told != found:
        draft.fact(f"the provider counted {told} finished items, the result holds {found}; the ids decide")


def _collect_failed(draft: Draft, evidence: CollectFailed) -> None:
    op = draft.op
    if op.state is not State.RESULT_COLLECTING:
        return
    errors = op.schedule.errors + 1
    draft.set_schedule(errors=errors, mark_at=None)
    draft.is_news = True
    deadline = op.deadlines.collect
    spent = errors >= draft.contract.collect_budget or (deadline is not None and draft.now >= deadline)
    if evidence.is_final or spent:
        draft.move(State.RESULT_UNAVAILABLE, f"the result cannot be fetched ({evidence.error_class}, try {errors})")
        return
    draft.fact(f"the result could not be fetched ({evidence.error_class}, try {errors}); the job is read again first")
    draft.due_by_errors(retry_after_ms=evidence.retry_after_ms)


def _result_is_failure(draft: Draft, evidence: ResultIsFailure) -> None:
    if draft.op.state is State.RESULT_COLLECTING:
        draft.set(error=evidence.error)
        draft.move(State.FAILED, f"the result is the job's own failure: {evidence.error.code}")


# ---- time and restarts ---------------------------------------------------------------------------------------


def _deadline_after_a_try(draft: Draft) -> None:
    """After a try that showed no end: fire the state's deadline if its time has come (C5)."""
    name = draft.op.state_deadline_name
    if name is not None and draft.op.state is draft.before.state:
        _deadline_passed(draft, DeadlinePassed(name, last_read=True))


def _deadline_passed(draft: Draft, evidence: DeadlinePassed) -> None:
    op, name = draft.op, evidence.name
    deadline = op.deadline(name)
    if name != op.state_deadline_name or deadline is None or draft.now < deadline:
        return
    cause = f"deadline:{name}"
    match op.state:
        case State.CREATE_PENDING if _is_unsent(op):
            draft.set(error=RemoteError("never_sent", "The create could not be sent in time; no job was made."))
            draft.move(State.FAILED, "the create deadline passed and nothing was ever sent", cause=cause)
        case State.CREATE_PENDING:
            draft.move(State.CREATE_UNKNOWN, "the create deadline passed with a send still open", cause=cause)
        case State.CREATE_UNKNOWN:
            draft.move(State.CREATE_UNRESOLVED, "the create deadline passed and the job was not found", cause=cause)
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


def _found_at_start(draft: Draft, evidence: FoundAtStart) -> None:
    """The restart table: what an open send mark means once nobody waits for its answer any more."""
    op = draft.op
    marked = op.schedule.mark_at is not None or evidence.is_restored_backup
    if not marked:
        return
    match op.state:
        case State.CREATE_PENDING:
            draft.move(State.CREATE_UNKNOWN, "the daemon stopped while the create was open; it is looked up")
        case State.CANCEL_REQUESTED if not evidence.is_repeatable and op.cancel is not None:
            draft.set(cancel=replace(op.cancel, answer=CancelAnswer.UNKNOWN.value))
            draft.set_schedule(mark_at=None)
            draft.fact("the daemon stopped while the cancel was open; the job is read once")
            draft.due_now()
        case State.INPUT_GIVEN if not evidence.is_repeatable and op.input is not None:
            _input_may_have_arrived(draft, op.input)
        case State.RESULT_COLLECTING if draft.contract.result_fetch == "consuming":
            draft.move(State.RESULT_UNAVAILABLE, "the daemon stopped during the only fetch that the provider allows")
        case _:
            draft.set_schedule(mark_at=None)
            draft.due_now()


def _in_contract_violation(draft: Draft, evidence: Evidence) -> None:
    """All evidence is kept, nothing moves, no request leaves (N31)."""
    match evidence:
        case CancelAsked() | InputAsked():
            draft.refuse("two jobs stand for this operation; decide `choose_job` or `give_up` first")
        case JobRead(observation=observation) | Accepted(observation=observation):
            draft.is_news = True
            draft.fact(f"kept while a person decides: {observation.remote_job_id} is {observation.word}")
        case FoundAtStart() | StepDone() | AboutToSend():
            pass
        case _:
            draft.fact(f"kept while a person decides: {type(evidence).__name__}")

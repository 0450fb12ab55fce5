"""What a person decides about an operation that waits for one: each decision does what its offer said, or is refused.

A decision is a history row of its own, with who, why and the promised effect; what it moves follows in the next row.
"""

from reconcile.conclude import absent_word
from reconcile.decisions import NAMES_A_JOB, Decision, Offer, end_by_accept, has_waiting_cancel, open_to
from reconcile.draft import Draft
from reconcile.evidence import CancelAsked, PersonDecided
from reconcile.model import SAYS_DONE, Operation, RemoteError, Summary, UnixMs, Verdict, VerdictKind
from reconcile.quoted import quoted
from reconcile.replacing import replace
from reconcile.rules.creating import send_a_waiting_cancel
from reconcile.rules.ending import error_of
from reconcile.rules.wishes import cancel_asked
from reconcile.states import State


def person_decided(draft: Draft, evidence: PersonDecided) -> None:
    """A decision that is not open is refused and changes nothing; an open one does what its effect said (N32)."""
    draft.cause = f"decision:{evidence.decision_id}"
    offers = open_to(draft.op, draft.contract)
    offer = next((o for o in offers if o.decision is evidence.decision), None)
    if offer is None:
        draft.refuse(_not_open(draft.op, evidence.decision, offers))
        return
    misnamed = _misnamed_job(draft.op, evidence)
    if misnamed is not None:
        draft.refuse(misnamed)
        return
    draft.fact(
        f"{evidence.by} decided {evidence.decision}: {evidence.reason}",
        decision=evidence.decision.value,
        by=evidence.by,
        because=evidence.reason,
        effect=offer.effect,
    )
    _do(draft, evidence, offer)


def _not_open(op: Operation, decision: Decision, offers: tuple[Offer, ...]) -> str:
    if op.is_terminal:
        return f"{decision} is not open: the operation has ended as {op.outcome}"
    if not offers:
        return f"{decision} is not open: nothing waits for a person here"
    return f"{decision} is not open here; open are {', '.join(offer.decision for offer in offers)}"


def _misnamed_job(op: Operation, evidence: PersonDecided) -> str | None:
    decision, job_id = evidence.decision, evidence.remote_job_id
    if decision in NAMES_A_JOB and not job_id:
        return f"{decision} needs a remote_job_id"
    shown = _jobs_shown(op)
    if decision is Decision.CHOOSE_JOB and len(shown) > 1 and job_id not in shown:
        return f"{decision} takes one of the jobs that stand for this operation: {', '.join(map(quoted, shown))}"
    return None


def _do(draft: Draft, evidence: PersonDecided, offer: Offer) -> None:
    match evidence.decision:
        case Decision.ADOPT_JOB:
            _adopt_job(draft, str(evidence.remote_job_id))
        case Decision.LOOK_AGAIN:
            draft.move(State.CREATE_UNKNOWN, "the job is looked for until a new create deadline")
            _new_create_deadline(draft)
        case Decision.RESEND:
            _resend(draft, evidence)
        case Decision.CHOOSE_JOB:
            _choose_job(draft, str(evidence.remote_job_id))
        case Decision.RESUME:
            draft.move(State.OBSERVING, "the job is read again, with a new error budget and a new result deadline")
            _new_result_deadline(draft, evidence.within_ms)
            draft.due_now()
        case Decision.CANCEL | Decision.CANCEL_AGAIN:
            _cancel(draft, evidence, offer)
        case Decision.KEEP:
            _keep(draft)
        case Decision.COLLECT_AGAIN:
            # What the provider said of dropped results is asked anew too, else no fetch would be tried.
            draft.set(results_gone=False)
            draft.move(State.RESULT_COLLECTING, "the result is fetched again, with a new budget of tries")
        case Decision.ACCEPT:
            _accept(draft)
        case Decision.GIVE_UP:
            draft.move(State.ABANDONED, f"given up by {evidence.by}; nothing more is asked of the provider")


# ---- which job ----


def _adopt_job(draft: Draft, job_id: str) -> None:
    others = tuple(candidate for candidate in draft.op.candidates if candidate != job_id)
    draft.set(remote_job_id=job_id, started_at=draft.now, candidates=others)
    draft.move(State.ACCEPTED, f"the job was named by a person: {job_id}", facts={"remote_job_id": job_id})
    _watch_on(draft)
    send_a_waiting_cancel(draft)


def _resend(draft: Draft, evidence: PersonDecided) -> None:
    told = f"the create is sent again, same token and same bytes: {evidence.by} allowed a second one to arrive"
    draft.set(resends=draft.op.resends + 1)
    draft.move(State.CREATE_PENDING, told, facts={"resend_allowed_by": evidence.by})
    _new_create_deadline(draft)


def _choose_job(draft: Draft, chosen: str) -> None:
    """The other jobs stay candidates: shown, and never held by this operation again unless a person says so."""
    op = draft.op
    others = tuple(job_id for job_id in _jobs_shown(op) if job_id != chosen)
    facts = {"remote_job_id": chosen, "held": op.remote_job_id, "others": list(others)}
    was_read = chosen == op.remote_job_id and op.remote_status is not None
    waits = has_waiting_cancel(op)
    draft.set(
        remote_job_id=chosen,
        candidates=others,
        verdict=None,
        results=(),
        results_gone=False,
        end_unread=False,
        finished_items=None,
        unconfirmed=False,
        by_count=False,
        collect_attempt=0,
        summary=None,
        result=None,
        error=None,
    )
    if chosen != op.remote_job_id:
        # What was read, and what was cancelled, was another job.
        cancel = op.cancel if waits else None
        kept = replace(op.deadlines, cancel=None)
        draft.set(
            remote_status=None, progress=None, total_items=None, started_at=draft.now, cancel=cancel, deadlines=kept
        )
    draft.move(
        State.OBSERVING if was_read else State.ACCEPTED, f"the job was chosen by a person: {chosen}", facts=facts
    )
    _watch_on(draft)
    if waits:
        send_a_waiting_cancel(draft)


def _jobs_shown(op: Operation) -> tuple[str, ...]:
    held = () if op.remote_job_id is None else (op.remote_job_id,)
    return tuple(dict.fromkeys((*held, *op.candidates)))


# ---- cancel or keep ----


def _cancel(draft: Draft, evidence: PersonDecided, offer: Offer) -> None:
    """A new intent, on the road of any other cancel: a call is never sent twice for one intent (N15)."""
    draft.set(cancel=None)
    cancel_asked(draft, CancelAsked(evidence.decision_id, evidence.by, evidence.reason, offer.effect))


def _keep(draft: Draft) -> None:
    draft.set(cancel=None, deadlines=replace(draft.op.deadlines, cancel=None))
    draft.move(State.OBSERVING, "the cancel is withdrawn and the job followed to its end")
    _watch_on(draft)


# ---- the result as it is ----


def _accept(draft: Draft) -> None:
    op = draft.op
    verdict = op.verdict or Verdict(VerdictKind.DONE_UNKNOWN_OUTCOME, None)
    end = end_by_accept(op)
    summary = op.summary or _of_what_was_never_read(op, verdict)
    if end is State.FAILED and op.error is None:
        draft.set(error=_end_error(verdict))
    despite = op.attention.message if op.attention is not None else None
    if despite is not None and op.attention is not None and op.attention.reason == "promise_broken":
        despite = f"the result {despite}"
    draft.set(summary=summary, accepted_despite=despite)
    draft.move(end, f"accepted as it is: {_in_words(summary)}")


def _of_what_was_never_read(op: Operation, verdict: Verdict) -> Summary | None:
    """Items that the provider says it finished were not cut off with the rest: they are missing, not expired."""
    total = op.input_items if op.input_items is not None else op.total_items
    if total is None:
        return None
    finished = min(op.finished_items or 0, total)
    counts = {"missing": finished}
    counts[absent_word(verdict)] = counts.get(absent_word(verdict), 0) + total - finished
    return Summary(total=total, **counts)


def _end_error(verdict: Verdict) -> RemoteError:
    if verdict.kind in SAYS_DONE:
        return RemoteError("no_item_succeeded", "A result without one succeeded item was accepted as it is.")
    return error_of(verdict)


def _in_words(summary: Summary | None) -> str:
    if summary is None:
        return "nobody knows how many items there were"
    return f"{summary.succeeded} of {summary.total} items succeeded, {summary.missing} are missing"


# ---- deadlines anew ----


def _new_create_deadline(draft: Draft) -> None:
    span = draft.op.spans.create_ms
    end = draft.now + (draft.contract.create_within_ms if span is None else span)
    draft.set(deadlines=replace(draft.op.deadlines, create=end))


def _new_result_deadline(draft: Draft, within_ms: int | None = None) -> None:
    end: UnixMs = draft.now + (draft.contract.result_within_ms if within_ms is None else within_ms)
    draft.set(deadlines=replace(draft.op.deadlines, result=end))


def _watch_on(draft: Draft) -> None:
    """A result deadline that still runs is not moved (B3); one that is over is not fired twice (N22)."""
    end = draft.op.deadlines.result
    if end is None or end <= draft.now:
        _new_result_deadline(draft)

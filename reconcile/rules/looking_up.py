"""What a look-up for a lost create found, and what an operator allows where it found nothing, or nothing sure (B2).

Not being found proves nothing, and a job of the right size is no proof either. Each permission is a word of the
configuration, stands in the history as such, and is taken once: what it may cost is at most one job.
"""

from reconcile.draft import Draft
from reconcile.evidence import Accepted, LookedAgain, LookupFound
from reconcile.model import Observation, UnixMs
from reconcile.rules.creating import add_candidates, merged, second_jobs, take_job
from reconcile.rules.waiting import deadline_after_a_try
from reconcile.states import CREATING, TERMINAL, State


def lookup_found(draft: Draft, evidence: LookupFound) -> None:
    """None, or several, or one that nothing surely marks. Several by a sure marker are a violation."""
    _drop_candidates(draft, evidence)
    if draft.op.state not in CREATING:
        add_candidates(draft, evidence.job_ids)
    elif evidence.is_sure and len(evidence.job_ids) > 1:
        draft.set(candidates=merged(draft.op.candidates, evidence.job_ids))
        told = f"{len(evidence.job_ids)} jobs bear this operation's marker"
        draft.move(State.CONTRACT_VIOLATION, told, facts={"candidates": list(evidence.job_ids)})
    elif _may_adopt_by_count(draft, evidence):
        _adopt_by_count(draft, evidence.job_ids[0])
    else:
        add_candidates(draft, evidence.job_ids)
        draft.set_schedule(polls=draft.op.schedule.polls + 1, errors=0)
        draft.due_by_polls()
        if _may_resend(draft, evidence):
            _resend(draft, evidence)
        else:
            deadline_after_a_try(draft)


def looked_again(draft: Draft, evidence: LookedAgain) -> None:
    """Whether the first create, taken for absent, had arrived after all: two jobs never run on unseen (B4)."""
    others = tuple(job_id for job_id in evidence.others if job_id != draft.op.remote_job_id)
    draft.set(resend_checked=True)
    if not others:
        draft.fact(_no_second_job(evidence, was_resent=draft.op.resends > 0), is_whole=evidence.is_whole)
    elif draft.op.state in TERMINAL:
        draft.contradiction("a second job of this operation shows after it had ended", others=list(others))
    elif draft.op.remote_job_id is None:
        add_candidates(draft, others)
    else:
        second_jobs(draft, others)


def _no_second_job(evidence: LookedAgain, *, was_resent: bool) -> str:
    """What was seen, and no more than that."""
    why = "after the re-send" if was_resent else "since the create may have been sent again before the restore"
    if evidence.error_class is not None:
        return (
            f"the account could not be looked through once more {why} ({evidence.error_class}), and the"
            " result is collected all the same: a second job may have run unseen"
        )
    told = f"the account was looked through once more {why}: no second job shows"
    return told if evidence.is_whole else told + ", but not every job there could be told"


def _drop_candidates(draft: Draft, evidence: LookupFound) -> None:
    """Jobs that other operations hold, or whose item ids are somebody else's, are shown to nobody as this one's."""
    op = draft.op
    ruled_out = tuple(job_id for job_id in evidence.ruled_out if job_id not in op.ruled_out)
    no_more = [job_id for job_id in op.candidates if job_id in (*evidence.held, *evidence.ruled_out)]
    if ruled_out or no_more:
        left = tuple(job_id for job_id in op.candidates if job_id not in no_more)
        draft.set(candidates=left, ruled_out=merged(op.ruled_out, ruled_out))
        told = "jobs that other operations hold, or whose item ids are not this one's, are no candidates"
        draft.fact(told, ruled_out=list(ruled_out), no_more=no_more)


# ---- one job of the right size ----


def _may_adopt_by_count(draft: Draft, evidence: LookupFound) -> bool:
    """Only where nothing speaks for another: a list that was not read to its end may show a second one further on, a
    job of unknown size may be the one, and after a re-send there may be two, of which one shows.
    """
    op = draft.op
    return (
        draft.contract.adopt == "by_count"
        and op.state is State.CREATE_UNKNOWN
        and not evidence.is_sure
        and evidence.is_whole
        and evidence.is_only_lost
        and op.resends == 0
        and not op.restored  # nor after a time in which others were started that nobody here knows of
        and len(evidence.job_ids) == 1
        and evidence.job_ids[0] in evidence.same_size
        and set(op.candidates) <= set(evidence.job_ids)
    )


def _adopt_by_count(draft: Draft, job_id: str) -> None:
    how = "taken because it is the only one of so many items and no other create is lost, as the configuration allows"
    draft.set(by_count=True, candidates=())
    take_job(draft, Accepted(Observation(None, remote_job_id=job_id), by_lookup=True), job_id, how=how)


# ---- no job at all ----


def _may_resend(draft: Draft, evidence: LookupFound) -> bool:
    """Whether the create counts as absent and the configuration's one permission is still there.

    A look-up that is not whole counts only where the provider has none at all: there the operator knew it.
    """
    op, contract = draft.op, draft.contract
    deadline = op.deadlines.create
    return (
        contract.on_absent == "resend"
        and op.state is State.CREATE_UNKNOWN
        and op.resends == 0
        and not op.restored  # the one permission may be spent
        and op.cancel is None  # nothing is made anew only to be cancelled
        and (evidence.is_whole or contract.lookup is None)
        and not (evidence.job_ids or op.candidates)
        and op.unknown_since is not None
        and _seen_at(draft, evidence) - op.unknown_since >= contract.settle_ms
        and (deadline is None or draft.now < deadline)
    )


def _seen_at(draft: Draft, evidence: LookupFound) -> UnixMs:
    """The moment of which the look-up tells; a clock that was set back since makes it none of the future."""
    return draft.now if evidence.asked_at is None else min(evidence.asked_at, draft.now)


def _resend(draft: Draft, evidence: LookupFound) -> None:
    """There is no arrow from unknown to pending: what a person would be asked is answered by the configuration.

    `passing` stands in the facts of both rows: the question lasts no time, and whoever acts on entries into blocked
    states passes it over (`Entry.is_passing`).
    """
    seconds = (_seen_at(draft, evidence) - (draft.op.unknown_since or draft.now)) // 1000
    told = f"nothing was found {seconds} s after the create became unknown"
    draft.move(State.CREATE_UNRESOLVED, told, facts={"passing": True})
    draft.set(resends=draft.op.resends + 1)
    told = "the create is sent again, same token and same bytes: the configuration allows a second one to arrive"
    draft.move(State.CREATE_PENDING, told, facts={"resend_allowed_by": "create.on_absent", "passing": True})

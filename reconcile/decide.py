"""What evidence does to an operation: the one road by which a state changes.

`decide` is called inside the transaction, on the row as it stands, and touches nothing but its arguments. What comes
in is evidence of any kind; what goes out is the row as it becomes and the history that says why. The table itself
stands in `rules`, a file a group of rows; here is only which rule answers for which evidence.
"""

from typing import assert_never

from reconcile.contract import Contract
from reconcile.draft import Draft, next_action
from reconcile.evidence import (
    AboutToSend,
    Accepted,
    CancelAnswered,
    CancelAsked,
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
    FoundInBackup,
    InputAnswered,
    InputAsked,
    JobGone,
    JobIsHeld,
    JobRead,
    LookedAgain,
    LookupFound,
    PersonDecided,
    ProviderAbsent,
    ReadFailed,
    ResultIsFailure,
    StepDone,
)
from reconcile.model import Change, Operation, UnixMs
from reconcile.rules import absence, collecting, creating, deciding, looking_up, observing, restoring, waiting, wishes
from reconcile.schedule import Pace
from reconcile.states import CREATING, State

__all__ = ["decide", "next_action"]


def decide(
    op: Operation,
    contract: Contract,
    evidence: Evidence,
    *,
    now: UnixMs,
    draw: float,
    cause: str,
    pace: Pace = Pace.POLLED,
) -> Change:
    """What `op` becomes by `evidence`.

    `cause` names the record that the history rows point at ("observation:ID", "request:ID", "decision:ID", ...);
    `draw` in [0, 1) feeds the jitter; `pace`: how the jobs of this provider are watched just now.
    """
    draft = Draft(op, contract, now=now, draw=draw, cause=cause, pace=pace)
    if op.state is State.CONTRACT_VIOLATION and not isinstance(
        evidence, DeadlinePassed | PersonDecided | ProviderAbsent
    ):
        _keep_only(draft, evidence)
    else:
        _apply(draft, evidence)
    waiting.remind_half_way(draft)
    return draft.finish()


def _apply(draft: Draft, evidence: Evidence) -> None:  # noqa: C901 - a dispatch: one line a row of the table
    match evidence:
        case Accepted():
            creating.accepted(draft, evidence)
        case JobIsHeld():
            creating.job_is_held(draft, evidence)
        case FinishedAtOnce():
            creating.finished_at_once(draft, evidence)
        case CreateRejected():
            creating.create_rejected(draft, evidence)
        case CreateNotAccepted():
            creating.create_not_accepted(draft, evidence)
        case CreateUnknown():
            creating.create_unknown(draft, evidence)
        case StepDone():
            creating.step_done(draft, evidence)
        case AboutToSend():
            creating.about_to_send(draft, evidence)
        case LookupFound():
            looking_up.lookup_found(draft, evidence)
        case LookedAgain():
            looking_up.looked_again(draft, evidence)
        case EventSeen() if draft.op.state in CREATING | {State.CREATE_UNRESOLVED}:
            creating.event_before_the_job(draft, evidence)
        case EventSeen():
            observing.event_seen(draft, evidence)
        case JobRead():
            observing.job_read(draft, evidence)
        case ReadFailed():
            observing.read_failed(draft, evidence)
        case JobGone():
            observing.job_gone(draft, evidence)
        case CancelAsked():
            wishes.cancel_asked(draft, evidence)
        case CancelAnswered():
            wishes.cancel_answered(draft, evidence)
        case InputAsked():
            wishes.input_asked(draft, evidence)
        case InputAnswered():
            wishes.input_answered(draft, evidence)
        case Collected():
            collecting.collected(draft, evidence)
        case CollectFailed():
            collecting.collect_failed(draft, evidence)
        case ResultIsFailure():
            collecting.result_is_failure(draft, evidence)
        case DeadlinePassed():
            waiting.nothing_was_sent(draft)
            waiting.deadline_passed(draft, evidence)
        case ProviderAbsent():
            absence.provider_absent(draft, evidence)
        case FoundAtStart():
            waiting.found_at_start(draft, evidence)
        case FoundInBackup():
            restoring.found_in_backup(draft, evidence)
        case PersonDecided():
            deciding.person_decided(draft, evidence)
        case forgotten:
            assert_never(forgotten)


def _keep_only(draft: Draft, evidence: Evidence) -> None:
    """In `contract_violation` all evidence is kept, nothing moves, no request leaves (N31)."""
    match evidence:
        case CancelAsked() | InputAsked():
            draft.refuse("two jobs stand for this operation; decide `choose_job` or `give_up` first")
        case JobRead(observation=observation) | Accepted(observation=observation):
            draft.is_news = True
            draft.fact(f"kept while a person decides: {observation.remote_job_id} is {observation.word}")
        case FoundAtStart() | FoundInBackup() | StepDone() | AboutToSend():
            pass
        case _:
            draft.fact(f"kept while a person decides: {type(evidence).__name__}")

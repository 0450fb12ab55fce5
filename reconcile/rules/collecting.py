"""What a try to collect came to: the end by verdict and items, another try, or a question."""

from reconcile import conclude
from reconcile.draft import Draft
from reconcile.evidence import Collected, CollectFailed, ResultIsFailure
from reconcile.model import SAYS_DONE, RemoteError, Verdict
from reconcile.rules.ending import error_of
from reconcile.states import State


def collected(draft: Draft, evidence: Collected) -> None:
    """Everything was fetched, checked and indexed."""
    op = draft.op
    if op.state is not State.RESULT_COLLECTING or op.verdict is None:
        return
    draft.set(result=evidence.info, summary=evidence.summary, collect_attempt=evidence.info.attempt)
    end = conclude.end_of(op.verdict, evidence.summary, evidence.info.problems, is_partial=evidence.is_partial)
    s = evidence.summary
    reason = f"collected: {s.succeeded} of {s.total} items succeeded"
    if end is State.FAILED and draft.op.error is None:
        draft.set(error=_end_error(op.verdict, s.total))
    question = None
    if end is State.RESULT_VALIDATION_FAILED and evidence.breaks_only_promises:
        question = "promise_broken"  # the provider kept its own contract, and is not to be blamed
        reason = f"is not what the start expects: {'; '.join(evidence.differences)}"
    elif end is State.RESULT_VALIDATION_FAILED:
        reason = f"the result breaks the contract: {_problem_words(evidence)}"
    if end is State.RESULT_VALIDATION_FAILED and op.by_count and _has_other_ids(evidence):
        end, question = State.CONTRACT_VIOLATION, None
        reason = f"the job was taken by count, and its ids are not this operation's: {_problem_words(evidence)}"
    draft.move(end, reason, question=question)
    told, found, ran = op.finished_items, evidence.info.items, s.succeeded + s.failed
    # Some providers give a line to items that never ran, and do not count them: that is no difference.
    if told is not None and told not in (found, ran):
        draft.fact(f"the provider counted {told} finished items, the result holds {found}; the ids decide")


def _has_other_ids(evidence: Collected) -> bool:
    problems = evidence.info.problems
    return evidence.summary.missing > 0 or (problems is not None and bool(problems.unknown or problems.missing))


def _end_error(verdict: Verdict, total: int) -> RemoteError:
    if verdict.kind in SAYS_DONE:
        return RemoteError("all_items_failed", f"All {total} items failed; each has its own error.")
    return error_of(verdict)


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
            )
            if ids
        ]
        if problems.broken:
            told = "; ".join(evidence.differences) or ", ".join(problems.broken)
            words.append(f"broken promises of the start: {told}")
        if problems.expected != problems.found:
            words.append(f"{problems.found} items instead of {problems.expected}")
    return ", ".join(words) or "it holds no item at all"


def collect_failed(draft: Draft, evidence: CollectFailed) -> None:
    """One try failed: another follows by backoff, until budget or time is spent."""
    op = draft.op
    if op.state is not State.RESULT_COLLECTING:
        return
    errors, ours = op.schedule.errors + 1, op.our_faults + int(evidence.is_ours)
    draft.set_schedule(errors=errors, mark_at=None)
    draft.set(our_faults=ours)
    draft.is_news = True
    deadline = op.deadlines.collect
    is_late = deadline is not None and draft.now >= deadline
    spent = is_late or errors - ours >= draft.contract.collect_budget
    if evidence.is_final or spent:
        draft.move(State.RESULT_UNAVAILABLE, f"the result cannot be fetched ({evidence.error_class}, try {errors})")
        return
    draft.fact(f"the result could not be fetched ({evidence.error_class}, try {errors}); the job is read again first")
    draft.due_by_errors(retry_after_ms=evidence.retry_after_ms)


def result_is_failure(draft: Draft, evidence: ResultIsFailure) -> None:
    """The result call answered with the job's own failure."""
    if draft.op.state is State.RESULT_COLLECTING:
        draft.set(error=evidence.error)
        draft.move(State.FAILED, f"the result is the job's own failure: {evidence.error.code}")

"""The provider's word for the end, and what it leads to: through collection wherever results may exist."""

from reconcile import conclude
from reconcile.draft import Draft
from reconcile.model import SAYS_DONE, Observation, Operation, RemoteError, ResultRef, UnixMs, Verdict, VerdictKind
from reconcile.states import State


def end(draft: Draft, verdict: Verdict, observation: Observation, reason: str) -> None:
    """Move to the verdict's own state and remember what it named."""
    draft.set(
        verdict=verdict,
        results=observation.results,
        results_gone=observation.results_gone,
        results_kept_until=_kept_until(draft, observation),
        finished_items=observation.finished_items,
        error=observation.error or draft.op.error,
    )
    facts = {"verdict": verdict.kind.value, "word": verdict.word}
    if verdict.kind in SAYS_DONE or verdict.may_hold_results:
        draft.move(State.RESULT_COLLECTING, f"{reason}; its results are collected", facts=facts)
        return
    draft.set(summary=conclude.without_results(verdict, draft.op.input_items))
    if verdict.kind is VerdictKind.CANCELLED:
        draft.move(State.CANCELLED, reason, facts=facts)
        return
    if draft.op.error is None:
        draft.set(error=error_of(verdict))
    draft.move(State.FAILED, reason, facts=facts)


def _kept_until(draft: Draft, observation: Observation) -> UnixMs | None:
    """When the provider drops the results, counted from its own end time as far as it tells one (J7)."""
    kept_ms = draft.contract.results_kept_ms
    if kept_ms is None:
        return None
    ended_at = draft.now if observation.provider_at is None else min(observation.provider_at, draft.now)
    return ended_at + kept_ms


def another_end(draft: Draft, verdict: Verdict, observation: Observation) -> None:
    """An end told again: the same is kept and may name results by now; another is a contradiction (D2)."""
    op = draft.op
    if op.verdict is None or op.verdict.kind is not verdict.kind:
        told = f"the job ended as {ended_as(op)}, and is now said to be {verdict.word}"
        draft.contradiction(told, word=verdict.word)
    elif op.state is State.RESULT_COLLECTING and (op.end_unread or _left_by(observation) != _left_by(op)):
        draft.set(
            results=observation.results,
            results_gone=observation.results_gone,
            end_unread=False,
            finished_items=observation.finished_items,
        )
        names = "names its results" if observation.results else "names no result"
        told = "has dropped its results" if observation.results_gone else names
        draft.fact(f"the ended job now {told}", results=[ref.name for ref in observation.results])
        draft.due_now()


def _left_by(job: Observation | Operation) -> tuple[tuple[ResultRef, ...], bool]:
    return job.results, job.results_gone


def ended_as(op: Operation) -> str:
    """The end that stands, in words."""
    return str(op.verdict.word if op.verdict else op.state)


def error_of(verdict: Verdict) -> RemoteError:
    """Our own words for an end that the provider gave no reason for."""
    if verdict.kind is VerdictKind.EXPIRED:
        return RemoteError("expired", "The provider's window closed before the work was done.", retryable=True)
    return RemoteError(str(verdict.word), f"The provider ended the job as {verdict.word}.")

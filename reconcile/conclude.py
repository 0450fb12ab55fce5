"""How a job ends, from the verdict that the provider gave and the items that were found. Pure; F3 and N10 live here."""

from typing import Final

from reconcile.model import Problems, Summary, Verdict, VerdictKind
from reconcile.states import State

#: What an id that stands in no result counts as, by the verdict; for any other verdict it is missing.
ABSENT_AS: Final = {
    VerdictKind.EXPIRED: "expired",
    VerdictKind.CANCELLED: "cancelled",
    VerdictKind.FAILED: "failed",
}


def absent_word(verdict: Verdict) -> str:
    """The outcome of a submitted id that stands in no result."""
    return ABSENT_AS.get(verdict.kind, "missing")


def without_results(verdict: Verdict, items: int | None) -> Summary | None:
    """The summary of a job that can hold no results; None where its number of items is not known."""
    if items is None:
        return None
    return Summary(total=items, **{absent_word(verdict): items})


#: The word that every submitted item takes where an operation ends so and nothing was ever collected (N12).
_COUNTS_ALL_AS: Final = {State.FAILED: "failed", State.CANCELLED: "cancelled"}


def balance_of(end: State, items: int | None) -> Summary | None:
    """The summary of an end that no result and no job stands behind: a refused create, a withdrawn start."""
    word = _COUNTS_ALL_AS.get(end)
    if word is None or items is None:
        return None
    return Summary(total=items, **{word: items})


def end_of(verdict: Verdict, summary: Summary, problems: Problems | None, *, is_partial: bool = False) -> State:
    """The state that a collected result leads to."""
    if problems or summary.missing:
        return State.RESULT_VALIDATION_FAILED
    match verdict.kind:
        case VerdictKind.CANCELLED:
            return State.CANCELLED
        case VerdictKind.FAILED:
            return State.FAILED
        case VerdictKind.EXPIRED:
            return State.COMPLETED_WITH_ERRORS if summary.succeeded else State.FAILED
        case _:
            return _end_of_done(summary, is_partial=is_partial)


def _end_of_done(summary: Summary, *, is_partial: bool) -> State:
    if is_partial:
        return State.COMPLETED_WITH_ERRORS
    if summary.total == 0:
        # "Done" with no item at all is no success that anybody could show: a person looks at it.
        return State.RESULT_VALIDATION_FAILED
    if summary.succeeded == summary.total:
        return State.SUCCEEDED
    return State.COMPLETED_WITH_ERRORS if summary.succeeded else State.FAILED

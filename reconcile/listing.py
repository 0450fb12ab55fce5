"""When an account's list is read in place of each of its jobs, how far, and what on a page is news. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from reconcile.contract import Contract, Lookup, PollPlan
from reconcile.model import Observation, Progress, UnixMs, Verdict, VerdictKind
from reconcile.provider import Page
from reconcile.states import CANCELLING, LISTED, STOPPED, TERMINAL, WATCHING, State

#: Open jobs from which on a list may carry them. 20: arbitrary; below, reads of each cost next to nothing.
MIN_OPEN: Final = 20
#: A list begins to pay where it needs less than one request for so many open jobs. 2: arbitrary, so that an estimate
#: that is somewhat off does no harm.
JOBS_A_PAGE: Final = 2
#: Begun, it goes on down to half of both, or an account at the border would change its ways with each job.
_HYSTERESIS: Final = 2
#: Sweeps in a row that were cut short before the jobs are read one by one again. 3: arbitrary, two may be weather.
ERRORS_TO_LEAVE: Final = 3
#: The longest wait before a list that was left is tried again, ms; it doubles up to this. 1 h: arbitrary; each try of
#: a list that is refused may pause its provider for a second or two.
RETRY_CAP_MS: Final = 3_600_000
#: How long it is believed that a list did not pay, ms. 1 h: arbitrary; what made it long may have passed.
BELIEVED_MS: Final = 3_600_000


def can_list(contract: Contract) -> bool:
    """Whether the provider's jobs can be read by list pages at all."""
    return contract.has_read and contract.lookup is not None and contract.lookup.page_size is not None


def is_worth_it(open_jobs: int, needed: int, *, page_size: int, is_listed: bool) -> bool:
    """Whether list pages need clearly fewer requests than reads of each.

    `needed`: requests that the last whole sweep came to, reads of what it did not show included; 0 where none is known.
    """
    needed = needed or open_jobs // page_size + 1
    if is_listed:
        return open_jobs * _HYSTERESIS >= MIN_OPEN and open_jobs * _HYSTERESIS > JOBS_A_PAGE * needed
    return open_jobs >= MIN_OPEN and open_jobs > JOBS_A_PAGE * needed


def max_pages(open_jobs: int, lookup: Lookup) -> int:
    """Pages of one sweep at most: those of a look-up, or as many as twice the open jobs would fill.

    An account of many jobs needs more than a look-up's walk; beyond twice as much, a list mostly shows other jobs.
    """
    return max(lookup.max_pages, 2 * (open_jobs // (lookup.page_size or 1) + 1))


def retry_plan(poll: PollPlan, errors: int) -> PollPlan:
    """By which waits a list is tried again after so many sweeps in a row were cut short.

    While it carries the jobs, as a read of them would be; once they are polled without it, up to `RETRY_CAP_MS`.
    """
    if errors < ERRORS_TO_LEAVE:
        return poll
    return replace(poll, cap_ms=max(poll.cap_ms, RETRY_CAP_MS))


def shows_older(page: Page, oldest_at: UnixMs, lookup: Lookup) -> bool:
    """Whether a list that goes from new to old has come to jobs made before the oldest open one."""
    times = [at for at in (page.last_at, *(job.created_at for job in page.jobs)) if at is not None]
    return lookup.skew_ms is not None and any(at < oldest_at - lookup.skew_ms for at in times)


@dataclass(frozen=True, slots=True)
class Stands:
    """How the operation of a listed job stands in the file."""

    state: State
    remote_status: str | None
    progress: Progress | None
    total_items: int | None
    errors: int
    gone_reads: int
    last_read_at: UnixMs | None
    is_leased: bool


def is_news(stands: Stands, seen: Observation, verdict: Verdict, *, sent_at: UnixMs) -> bool:
    """Whether a listed job tells something that its operation does not know yet, as a read of it alone would.

    Where the job is not watched, or read quicker than a list is, only its end counts. A page that was asked for before
    the last read of the job itself is older than that; and what is leased is being read or acted on just now.
    """
    state = stands.state
    if stands.is_leased:
        return False
    if verdict.is_end and state in WATCHING | CANCELLING | STOPPED:
        return True
    if stands.last_read_at is not None and sent_at < stands.last_read_at:
        return False
    if state is State.OBSERVATION_FAILED:
        return True
    if state not in LISTED:
        return False
    repeats = {State.OBSERVING: VerdictKind.PENDING, State.BLOCKED: VerdictKind.BLOCKED}
    return not (
        repeats.get(state) is verdict.kind
        and (seen.remote_status or seen.word) == stands.remote_status
        and seen.progress in (None, stands.progress)
        and seen.total_items in (None, stands.total_items)
        and stands.errors == 0
        and stands.gone_reads == 0
    )


def is_known(stands: Stands, *, sent_at: UnixMs) -> bool:
    """Whether a listed job that is no news is none because its operation shows just that, or has ended.

    Not where it was not looked at, for a lease or a later read.
    """
    is_older = stands.last_read_at is not None and sent_at < stands.last_read_at
    return stands.state in TERMINAL or (stands.state in LISTED and not stands.is_leased and not is_older)

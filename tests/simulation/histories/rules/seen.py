"""Who is who in a random world and in its file, and what is surely known of a request that left or came."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

from tests.simulation.histories.people import Customer, Told
from tests.simulation.histories.scripts import BY_NAME, Creed, Wish
from tests.simulation.histories.truth import TrueJob, jobs_by_trace
from tests.simulation.histories.world import HistoryWorld, Send
from tests.simulation.view import Row, View
from tests.simulation.watch import Arrival, Asking

#: Answers to a request that was not taken: the same request may follow (B1). With a page instead of the provider's own
#: error, 404 and its like are the account's or the path's.
_SURELY_NOT_TAKEN: Final = frozenset({401, 402, 403, 404, 405, 429})
#: States whose next step is a read.
POLLED: Final = frozenset(
    {"accepted", "observing", "blocked", "cancelling", "cancellation_unconfirmed", "create_unknown"}
)
Traced = TypeVar("Traced", Send, Arrival)


@dataclass
class Seen:
    """A world, its file, and who is who in both."""

    world: HistoryWorld
    view: View
    at_the_end: bool

    @cached_property
    def jobs(self) -> Mapping[str, list[TrueJob]]:
        """Every true job by the trace of its create."""
        return jobs_by_trace(self.world)

    @cached_property
    def by_id(self) -> Mapping[tuple[str, str], TrueJob]:
        """Every true job by provider and id."""
        return {(job.provider, job.id): job for jobs in self.jobs.values() for job in jobs}

    @cached_property
    def customers(self) -> Mapping[str, Customer]:
        """Who started each operation, by its id; nobody, where its client key is not there (N28)."""
        keys = {row["operation_key"]: row["client_key"] for row in self.view.client_keys}
        by_key = {f"key-{customer.wish.number}": customer for customer in self.world.customers}
        return {op["operation_id"]: by_key[keys[op["key"]]] for op in self.view.operations if op["key"] in keys}

    @cached_property
    def sends(self) -> Mapping[str, list[Send]]:
        """What left the daemon, by trace."""
        return _by_trace(self.world.sends)

    @cached_property
    def arrivals(self) -> Mapping[str, list[Arrival]]:
        """What came to a provider, by trace."""
        return _by_trace(arrival for watch in self.world.watches.values() for arrival in watch.arrivals)

    # ---- of one operation ----

    def job(self, op: Row) -> TrueJob | None:
        """The true job that it holds."""
        return self.by_id.get((op["provider"], op["remote_job_id"]))

    def its_jobs(self, op: Row) -> list[TrueJob]:
        """The true jobs that its creates made."""
        return self.jobs.get(op["trace_id"], [])

    def its_sends(self, op: Row) -> list[Send]:
        """What left the daemon for it."""
        return self.sends.get(op["trace_id"], [])

    def its_arrivals(self, op: Row) -> list[Arrival]:
        """What came to its provider for it."""
        return self.arrivals.get(op["trace_id"], [])

    def wish(self, op: Row) -> Wish:
        """What was wanted of it."""
        return self._customer(op).wish

    def told(self, op: Row) -> Told:
        """What the people around it asked for and were told."""
        return self._customer(op).told

    def asked(self, op: Row, *words: str) -> int:
        """How often people asked for one of these decisions, answered or not."""
        return sum(self.told(op).asked.count(word) for word in words)

    def _customer(self, op: Row) -> Customer:
        found = self.customers.get(op["operation_id"])
        return found if found is not None else Customer(self.world.plan.wishes[0], "", 0)  # who was told nothing


def _by_trace(log: Iterable[Traced]) -> Mapping[str, list[Traced]]:
    found: defaultdict[str, list[Traced]] = defaultdict(list)
    for each in log:
        found[each.trace_id].append(each)
    return found


def creed_of(op: Row) -> Creed | None:
    """What its provider promises; None: it is one of the stand-in's accounts."""
    return BY_NAME.get(op["provider"])


# ---- what is sure ----------------------------------------------------------------------------------------------------


def may_have_arrived(seen: Seen, op: Row, is_it: Callable[[Asking], bool]) -> int:
    """Such requests that left for it, less those that were surely not taken."""
    left = sum(send.has_effect and is_it(send) for send in seen.its_sends(op))
    return left - sum(is_it(arrival) and arrival.status in _SURELY_NOT_TAKEN for arrival in seen.its_arrivals(op))


def creates_that_may_have_arrived(seen: Seen, op: Row) -> int:
    """Of its creates those that may have made a job."""
    return may_have_arrived(seen, op, lambda request: request.is_create)


def shows(arrival: Arrival, since_ms: int = 0) -> bool:
    """Whether it was answered well by the provider itself, since some moment."""
    is_good = arrival.status is not None and 200 <= arrival.status < 300 and not arrival.mischief
    return is_good and arrival.at_ms >= since_ms


def surely_answered(seen: Seen, trace_id: str) -> set[tuple[int, str, str]]:
    """(when, method, path) of requests whose good answer came whole; of two in one moment neither is sure."""
    sends = seen.sends.get(trace_id, ())
    arrivals = seen.arrivals.get(trace_id, ())
    left, came = (Counter((each.at_ms, each.method, each.path) for each in log) for log in (sends, arrivals))
    spoiled = {(s.at_ms, s.method, s.path) for s in sends if s.fault}
    good = {(a.at_ms, a.method, a.path) for a in arrivals if shows(a)}
    return {request for request in good - spoiled if left[request] == came[request] == 1}


def is_calm(seen: Seen) -> bool:
    """Whether networks and providers did what they should, all the time, and the clock as well."""
    plan = seen.world.plan
    return not (plan.bad_until or plan.outages or seen.world.jumped)

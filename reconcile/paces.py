"""How each provider's open jobs are watched just now: in memory, from the file at the start and every commit since.

`decide` asks it for each row, inside the transaction; sweep.py brings the due times in the file to what it says. A
provider's list carries its jobs only from the commit that took their own polls away, and up to the decision that they
have to be polled again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconcile import health, listing, notices
from reconcile.absence import Served, absence_of
from reconcile.contract import Contract
from reconcile.familiar import Familiar
from reconcile.model import Change, EntryKind, UnixMs
from reconcile.notice import Notice
from reconcile.schedule import Pace
from reconcile.states import LISTED


@dataclass(slots=True)
class Watch:
    """What is known of one provider."""

    contract: Contract
    #: Where the operations were started that it may be asked about (absence.py); None: wherever.
    origins: frozenset[str] | None = None
    #: How its newest ends came to light (health.py).
    recent_ends: str = ""
    #: Jobs in a state whose polls a list can carry.
    open_jobs: int = 0
    #: It has a row in `sweeps`.
    has_sweep: bool = False
    #: Requests that the last whole sweep came to; 0: not known.
    needed: int = 0
    #: Sweeps in a row that were cut short.
    errors: int = 0
    #: The pace that the due times in the file were set by.
    in_file: Pace = Pace.POLLED
    #: What its list said last.
    familiar: Familiar = field(default_factory=Familiar)

    def is_its_own(self, origin: str | None) -> bool:
        """Whether it may be asked about an operation that was started there."""
        return self.origins is None or absence_of(self.origins, origin) is None

    @property
    def expects_events(self) -> bool:
        """Whether an end without an event is one that was missed."""
        return self.contract.webhook is not None

    @property
    def is_healthy(self) -> bool:
        """Whether its webhooks are known to arrive."""
        return self.expects_events and health.is_healthy(self.recent_ends)

    @property
    def is_worth_a_sweep(self) -> bool:
        """Whether its list is to be read, or tried again."""
        terms = self.contract.lookup
        if not listing.can_list(self.contract) or terms is None:
            return False
        return listing.is_worth_it(
            self.open_jobs, self.needed, page_size=terms.page_size or 1, is_listed=self.has_sweep
        )

    @property
    def goal(self) -> Pace:
        """How its jobs are to be watched."""
        if self.is_worth_a_sweep and self.errors < listing.ERRORS_TO_LEAVE:
            return Pace.LISTED
        return self._without_list

    @property
    def pace(self) -> Pace:
        """How its jobs are watched."""
        return self.goal if self.in_file is Pace.LISTED else self._without_list

    @property
    def _without_list(self) -> Pace:
        return Pace.SWEPT if self.is_healthy else Pace.POLLED


@dataclass(slots=True)
class Paces:
    """The watch of each configured provider."""

    watches: dict[str, Watch] = field(default_factory=dict)

    @classmethod
    def of(cls, contracts: Mapping[str, Contract], served: Served | None = None) -> "Paces":
        """Nothing is known yet: every job is polled."""
        origins = served.origins if served is not None else {}
        return cls({name: Watch(contract, origins.get(name)) for name, contract in contracts.items()})

    def __call__(self, provider: str) -> Pace:
        """How the jobs of `provider` are watched."""
        watch = self.watches.get(provider)
        return watch.pace if watch is not None else Pace.POLLED

    def take(self, change: Change) -> bool:
        """Take in what was committed; whether the provider's jobs are to be watched otherwise from now on."""
        watch = self.watches.get(change.operation.provider)
        moves = [entry for entry in change.entries if entry.kind is EntryKind.MOVE]
        if watch is not None and change.operation.remote_job_id is not None:
            watch.familiar.forget(change.operation.remote_job_id)
        if watch is None or not (moves or change.recent_ends is not None):
            return False
        before = watch.goal, watch.is_healthy
        for move in moves if watch.is_its_own(change.operation.origin) else ():
            watch.open_jobs += (move.to_state in LISTED) - (move.from_state in LISTED)
        if change.recent_ends is not None:
            watch.recent_ends = change.recent_ends
        return (watch.goal, watch.is_healthy) != before

    def silent(self, now: UnixMs) -> list[Notice]:
        """A notice for each provider whose webhooks fail to come."""
        expected = [(name, watch) for name, watch in self.watches.items() if watch.expects_events]
        told = [notices.of_silence(name, watch.recent_ends, now) for name, watch in expected]
        return [notice for notice in told if notice is not None]

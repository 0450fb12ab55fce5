"""One configured provider account as everyone who sends to it knows it. How it fares is kept here, decided nowhere."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

from yarl import URL

from reconcile.absence import Served, absence_of, origin_of
from reconcile.limits import NO_PAUSE, Allowance, Pause, Rate
from reconcile.model import Absence, UnixMs
from reconcile.provider import Provider

#: Requests that an error rate is told over. 100: arbitrary.
RECENT: Final = 100

#: Asked with each request, of an address that stays the same.
_known_origin_of = lru_cache(maxsize=64)(origin_of)


@lru_cache(maxsize=64)
def _rate(per_second: float, concurrency: int) -> Rate:
    """Asked with each request, and the same as long as the configuration is."""
    return Rate(per_second=per_second, burst=max(1, concurrency))


class Traced(Protocol):
    """What a request is sent for: an operation, or a sweep of many."""

    @property
    def trace_id(self) -> str:
        """32 hex digits (W3C trace context)."""
        ...

    @property
    def origin(self) -> str | None:
        """Where an operation was started; None: it may be asked about wherever its provider is."""
        ...


@dataclass(slots=True)
class Peer:
    """One configured provider account: its adapter, where it lives, what proves us, and how it fares right now."""

    name: str
    provider: Provider
    base_url: URL
    #: Secret headers, sent to `base_url`'s origin and nowhere else (F6).
    credentials: Mapping[str, str]
    #: The credential's name for the record, never its value (A7).
    credential_name: str | None = None
    #: Origins of earlier addresses of the same account: operations that were started there are its own (`moved_from`).
    earlier: frozenset[str] = frozenset()
    #: Set where the configuration does not name it any more: its operations stand, and nothing is ever sent.
    absence: Absence | None = None
    pause: Pause = NO_PAUSE
    #: Both clocks, wall (unix ms) and monotonic (s), when a request last set the end of the pause: by them it is known
    #: whether the wall clock was set before or after that. None: no request has.
    paused_at: tuple[UnixMs, float] | None = None
    allowance: Allowance = field(default_factory=Allowance)
    #: How the last requests went, for people: True where an answer came that was no error of the provider.
    recent: "deque[bool]" = field(default_factory=lambda: deque(maxlen=RECENT))
    last_good_read_at: UnixMs | None = None

    @property
    def origin(self) -> str:
        """Scheme, host and port of its address."""
        return _known_origin_of(self.base_url)

    @property
    def origins(self) -> frozenset[str] | None:
        """The origins of the operations that it may be asked about; None: of none."""
        return None if self.absence is not None else self.earlier | {self.origin}

    def absence_for(self, op: Traced) -> Absence | None:
        """Why it may not be asked about `op`; None: it may."""
        if self.absence is None and op.origin == self.origin:  # nearly always
            return None
        return absence_of(self.origins, op.origin)

    @property
    def error_rate(self) -> float | None:
        """The share of failures among its last requests; None before the first."""
        return round(1 - sum(self.recent) / len(self.recent), 3) if self.recent else None

    @property
    def rate(self) -> Rate:
        """What the contract, or the operator, allows."""
        limits = self.provider.contract.limits
        return _rate(limits.requests_per_second, limits.concurrency)


def served_by(peers: Iterable[Peer]) -> Served:
    """Which operations these may be asked about."""
    return Served({peer.name: peer.origins for peer in peers if peer.origins is not None})

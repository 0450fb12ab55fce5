"""How well a provider's webhooks fare, by what its newest ends say of them. Pure.

An end is *announced* when an event rang for its job before a read saw it, else it was *missed*: the sweep found it. One
that the first read of a job shows is neither, it may be older than our knowledge of the job. The window of the newest
ends travels as text, newest last: `1` announced, `0` missed.
"""

from dataclasses import dataclass
from typing import Final

ANNOUNCED: Final = "1"
MISSED: Final = "0"
#: Ends that are looked back upon, and how many of them must have been announced. 20 and 19: design's default; one in
#: twenty may be lost before polling carries the provider again.
WINDOW: Final = 20
ANNOUNCED_TO_BE_HEALTHY: Final = 19


@dataclass(frozen=True, slots=True)
class EndSeen:
    """How the end of a job came to light (J5): whether an event told of it, and whether one should have."""

    is_announced: bool
    is_expected: bool
    #: When the job ended, as the provider says; unix ms.
    provider_at: int | None = None

    @property
    def is_missed(self) -> bool:
        """Whether an event should have told of it and none did."""
        return self.is_expected and not self.is_announced


def with_end(recent: str, *, announced: bool) -> str:
    """The window after one more end."""
    return (recent + (ANNOUNCED if announced else MISSED))[-WINDOW:]


def is_healthy(recent: str) -> bool:
    """Whether webhooks are known to arrive, so that reads may wait for the sweep; never before a whole window."""
    return len(recent) >= WINDOW and recent.count(ANNOUNCED) >= ANNOUNCED_TO_BE_HEALTHY

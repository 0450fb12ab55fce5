"""What people are told without being asked anything: one value, which a store keeps and an inbox shows."""

from dataclasses import dataclass, field
from typing import Final

from reconcile.model import JsonObject, UnixMs

#: Notices of something that lasts: each goes when it is over.
CONDITIONS: Final = frozenset(
    {
        "credentials_refused",
        "provider_paused",
        "provider_missing",
        "provider_moved",
        "webhooks_silent",
        "result_expiring",
        "disk_low",
    }
)
#: Notices of something that happened: each stays until a person has seen it.
HAPPENED: Final = frozenset({"callback_exhausted", "contradiction", "clock_stepped"})


@dataclass(frozen=True, slots=True)
class Notice:
    """What people are told without being asked anything (G8): it changes no state, and goes when its cause is gone.

    It speaks of a provider, of an operation, or of neither. `evidence` is shown as it is.
    """

    reason: str
    since: UnixMs
    message: str
    provider: str | None = None
    operation_id: str | None = None
    evidence: JsonObject = field(default_factory=dict)

    @property
    def notice_id(self) -> str:
        """Reason and subject: one cause is one notice, however often it is seen."""
        subject = self.operation_id or self.provider
        return self.reason if subject is None else f"{self.reason}.{subject}"

"""Every error this project raises, in one small tree; each is caught by branch, never by message.

Duplicates, late events and contradictions are outcomes, not errors, and do not stand here.
"""

from typing import Final

#: What a sender of webhooks may be told, whatever the reason was: all refusals look alike (S13).
UNAUTHORIZED: Final = 401

#: Characters of a key path that an error shows. 300: arbitrary; the longest of ours have about 100.
_MAX_KEY_PATH: Final = 300


class ReconciledError(Exception):
    """The root: whatever we raise on purpose."""


class ConfigError(ReconciledError):
    """A configuration that cannot be used; exit status 78, which systemd does not restart on."""

    def __init__(self, file: str, key_path: str, found: str, expected: str) -> None:
        self.file, self.key_path, self.found, self.expected = file, key_path, found, expected
        # A key of a million characters is taken to be no one's words.
        shown = key_path if len(key_path) <= _MAX_KEY_PATH else f"{key_path[:_MAX_KEY_PATH]}…"
        where = f"{file}: {shown}" if key_path else file
        super().__init__(f"{where}: found {found}; expected {expected}")


class SettingsAtOdds(ConfigError):
    """A setting that is wrong only beside others: no fault of its own where one of those was taken out as wrong."""

    #: The key paths of the others.
    others: tuple[str, ...] = ()


class SecretAbsent(ConfigError):
    """A secret that whoever starts the daemon hands to it, by the environment or as a credential: not handed to us."""


class CredentialAbsent(SecretAbsent):
    """A credential that systemd hands to the service alone, looked for outside of it."""


class SecretInvalid(ReconciledError):
    """A webhook secret or key whose shape is wrong. The message states the expected shape, never the secret."""

    def __init__(self, found: str, expected: str | None = None) -> None:
        self.found = found
        super().__init__(found if expected is None else f"{found}; expected {expected}")


class DeclarationInvalid(ReconciledError):
    """A path or a request of a declared provider that cannot be used; the message is safe to show."""


class RequestInvalid(ReconciledError):
    """A client's body that cannot be used; `pointer` is a JSON pointer (RFC 6901) to the fault."""

    def __init__(self, pointer: str, message: str, *, status: int = 422) -> None:
        self.pointer, self.message, self.status = pointer, message, status
        super().__init__(f"{pointer or '/'}: {message}")


class Unreadable(ReconciledError):
    """Bytes from a stranger that are not the JSON we accept; `reason` is safe to log."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class WebhookRefused(ReconciledError):
    """A delivery that is not taken. `reason` goes to log and metrics, never to the sender."""

    status: int = UNAUTHORIZED

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class SignatureMissing(WebhookRefused):
    """A header that the scheme needs is absent, doubled or empty."""


class SignatureInvalid(WebhookRefused):
    """No configured key made any of the signatures."""


class TimestampOutsideTolerance(WebhookRefused):
    """The signed time is unreadable, too old or too far ahead."""


class BodyTooLarge(WebhookRefused):
    """More bytes than `webhooks.max_body`."""

    status = 413


class ProviderError(ReconciledError):
    """A request to a provider that gave no readable answer; the branch says whether it may have arrived."""

    def __init__(self, error_class: str, detail: str = "") -> None:
        self.error_class, self.detail = error_class, detail
        super().__init__(f"{error_class}: {detail}" if detail else error_class)


class NotSent(ProviderError):
    """Surely never arrived: the name did not resolve, or no connection was made."""


class NotTried(NotSent):
    """We refused by ourselves and nobody was asked: of the provider nothing is learned."""


class OutcomeUnknown(ProviderError):
    """It may have arrived: time-out, reset, cut or unreadable answer."""


class IllegalTransition(ReconciledError):
    """A move that `TRANSITIONS` does not know: a fault of ours, refused and recorded."""

    def __init__(self, operation_id: str, from_state: str, to_state: str) -> None:
        self.operation_id, self.from_state, self.to_state = operation_id, from_state, to_state
        super().__init__(f"{operation_id}: no arrow from {from_state} to {to_state}")


class NotOpen(ReconciledError):
    """What a person or client asks is not open as the operation stands; the message says why. Nothing was changed."""


class StoreError(ReconciledError):
    """The store could not do what it was asked; nothing of it was kept."""


class StoreBusy(StoreError):
    """Locked or full: rolled back whole, try later (503)."""


class StoreBroken(StoreError):
    """The outcome of a commit is unknown: the process ends and the file decides (exit status 74)."""


class WriteRefused(StoreError):
    """One write that the database would not take (a constraint, an unbindable value); its neighbours stand."""


class SchemaTooNew(StoreError):
    """The file was written by a later release; nothing was touched."""


class RecordDamaged(StoreError):
    """The record is not as it was written: the message names the first thing in it that is not."""


class NotRecorded(StoreError):
    """No such operation stands in the file; `pruned_at` (unix ms) where it stood there once, and was pruned."""

    def __init__(self, operation_id: str, *, pruned_at: int | None = None, is_leaving: bool = False) -> None:
        self.operation_id, self.pruned_at, self.is_leaving = operation_id, pruned_at, is_leaving
        super().__init__(f"no operation {operation_id}")


class AlreadyRunning(StoreError):
    """Another daemon holds the lock of this state directory."""


class LeaseLost(StoreError):
    """Another owner holds the row: the action's answer is refused, its facts are kept."""


class KeyReused(StoreError):
    """A client key that already stands for other content (A4, G5)."""

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__(f"this idempotency key already started {operation_id} with other content")


class JobHeld(StoreError):
    """A remote job that an open operation already holds (N5)."""

    def __init__(self, operation_id: str) -> None:
        self.operation_id = operation_id
        super().__init__(f"this job is already held by {operation_id}")

"""What people are told without being asked anything: which conditions stand now, each as a notice. Pure.

A condition is looked at as it is, again and again, never counted up from events: what is not found any more is over.

Each sentence says what is so, what was not done, and what to do next; a provider's words are quoted. They are read in
tests/handlers/words.txt, with all else that people and agents are told (absence.py has two more).
"""

from collections.abc import Sequence
from typing import Any, Final

from reconcile import health
from reconcile.limits import NOT_ACCEPTED, Pause
from reconcile.model import JsonObject, Operation, UnixMs
from reconcile.notice import Notice
from reconcile.quoted import quoted

#: A pause is told once it lasts, or will last, so long, ms: a provider that says "in a minute" needs nobody. 5 min:
#: arbitrary, the longest wait between two probes.
LONG_PAUSE_MS: Final = 300_000
#: Pauses that only a person can end are told at once.
_FOR_A_PERSON: Final = frozenset({"credentials_refused", NOT_ACCEPTED})
#: The share of its retention that a result has left when it is told: a quarter, arbitrary; a week of OpenAI's 30 days.
EXPIRING_SHARE: Final = 4
#: Ends known, and missed among them, from which on people are told. 5 and 2: arbitrary; one lost delivery is weather.
KNOWN_TO_TELL: Final = 5
MISSED_TO_TELL: Final = 2
#: Free bytes in the state directory below which it is told. 1 GiB: arbitrary; below it one large result fills the disk.
LOW_DISK_BYTES: Final = 1 << 30
#: Wall time against monotonic time, ms, from which it counts as a step. 5 s: design's default.
CLOCK_STEP_MS: Final = 5_000


def of_pause(provider: str, pause: Pause, now: UnixMs) -> Notice | None:
    """A provider that is being left alone for long, or until a person mends something."""
    if pause.until_ms is None or pause.opened_at_ms is None:
        return None
    if pause.reason not in _FOR_A_PERSON and max(now, pause.until_ms) - pause.opened_at_ms < LONG_PAUSE_MS:
        return None
    evidence = {"pause_reason": pause.reason}
    if pause.reason == "credentials_refused":
        told = (
            f"{provider} refuses the key (401). Nothing is sent but a probe now and then. No job fails by it, but a"
            " create that is not accepted by its deadline does. Put the right key in place and start the daemon again."
        )
        return Notice("credentials_refused", pause.opened_at_ms, told, provider, evidence=evidence)
    told = (
        f"{provider} is being left alone ({pause.reason}): nothing is sent to it but a probe now and then, which"
        " finds out when it is back. What waits for it waits on, and its deadlines run. If this lasts, look at the"
        " status page of the provider."
    )
    if pause.reason == NOT_ACCEPTED:
        told = (
            f"{provider} does not accept creates (402, 403, 404 or 405). No job was made; the same creates are sent"
            " again until their deadlines. Look at the account, at the rights of the key, and at base_url."
        )
    return Notice("provider_paused", pause.opened_at_ms, told, provider, evidence=evidence)


def of_result(op: Operation, now: UnixMs) -> Notice | None:
    """A result that the provider will soon have dropped, and that is not safely here."""
    if op.results_kept_until is None:
        return None
    is_over = op.results_kept_until <= now
    told = (
        f"{op.provider} {'has dropped' if is_over else 'will soon drop'} the result of the job"
        f" {quoted(op.remote_job_id or '')}, and it is NOT collected: the operation is {op.state}."
    )
    if is_over:
        told += " It cannot be fetched there any more. Look at the operation for what can still be decided."
    else:
        told += " Look at the operation: decide what it asks, or see to it that the provider can be reached again."
    return Notice("result_expiring", now, told, operation_id=op.operation_id, evidence={"until": op.results_kept_until})


def of_silence(provider: str, recent: str, now: UnixMs) -> Notice | None:
    """Webhooks that fail to come, of a provider whose events are expected. `recent`: its newest ends (health.py)."""
    known, missed = len(recent), recent.count(health.MISSED)
    if health.is_healthy(recent) or known < KNOWN_TO_TELL or missed < MISSED_TO_TELL:
        return None
    message = (
        f"{missed} of the last {known} ends of {provider} came without their webhook: polling found them first. Nothing"
        " is lost, but ends are seen later. Check the endpoint at the provider, its secret, and the way"
        " to our webhook listener."
    )
    return Notice("webhooks_silent", now, message, provider, evidence={"ends": known, "missed": missed})


def of_disk(free: int, now: UnixMs) -> Notice | None:
    """A state directory that is nearly full: then nothing new is taken, and nothing acknowledged is lost."""
    if free >= LOW_DISK_BYTES:
        return None
    told = (
        "Less than 1 GiB is free where the state directory is. When it is full, starts and webhooks are answered 503;"
        " nothing that was acknowledged is lost. Make room there."
    )
    return Notice("disk_low", now, told)


def of_clock(step_ms: int, now: UnixMs) -> Notice:
    """The wall clock went another way than the monotonic one."""
    if step_ms > 0:
        way, then = "forward", "so some may pass early by as much. What was planned comes due early too"
    else:
        way, then = "back", "so some may pass late by as much. Waits longer than usual were cut, so no read is delayed"
    told = (
        f"The wall clock went {way} by {abs(step_ms) // 1000} s (set by hand or by NTP, or the machine slept)."
        f" Deadlines are wall time, {then}. Check that the machine keeps its time."
    )
    return Notice("clock_stepped", now, told, evidence={"by_seconds": step_ms // 1000})


def of_contradiction(operation_id: str, reason: str, now: UnixMs) -> Notice:
    """Something that does not fit what stands; `reason` may hold words of the provider's."""
    told = (
        f"What was told of {operation_id} does not fit its record: {quoted(reason)}. It was kept, and nothing was moved"
        " by it. Look at the history of the operation, and at the job at the provider, before you act on either."
    )
    return Notice("contradiction", now, told, operation_id=operation_id)


def of_given_up(operation_id: str, given_up: Sequence[JsonObject], now: UnixMs) -> Notice:
    """Deliveries of an operation that nobody took, the newest last: each with callback, type, attempts, last_error."""
    newest: Any = given_up[-1]
    tried = "1 time" if newest["attempts"] == 1 else f"{newest['attempts']} times"
    many = f" ({len(given_up)} in all)" if len(given_up) > 1 else ""
    told = (
        f"The callback {newest['callback']} did not take {newest['type']} of {operation_id}: tried {tried}, the last"
        f" came to {newest['last_error']}{many}. It is not tried again by itself; the operation is not touched by it."
        " Look at who should take it, then decide `redeliver`."
    )
    return Notice("callback_exhausted", now, told, operation_id=operation_id, evidence={"deliveries": list(given_up)})

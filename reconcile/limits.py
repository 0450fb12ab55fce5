"""How much one provider is asked at once: rate, concurrency and pause, as arithmetic on small frozen values.

Who keeps the values, and who waits, is the client's business. A pause is for the provider as a whole, so that ten
thousand jobs do not each find out by themselves that it is down (N35): nothing is sent until the pause has passed, then
one probe at a time; a failed probe makes the next pause longer, a good answer ends it.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

#: Failures in a row that open a pause when none of them opens one alone. 5: design's default.
FAILURES_TO_PAUSE: Final = 5
#: The shortest pause, ms. 1 s: arbitrary; what one lost answer should cost at least.
PAUSE_BASE_MS: Final = 1_000
#: The longest pause between two probes, ms. 5 min: arbitrary; an end that is told of five minutes late harms nobody.
PAUSE_CAP_MS: Final = 300_000
#: A Retry-After is kept up to this, ms. 1 h: design's default; a provider with a longer poll cap hands in its own.
RETRY_AFTER_CAP_MS: Final = 3_600_000
#: Doublings after which a pause is at its cap anyway; only keeps huge counters cheap.
MAX_DOUBLINGS: Final = 20

_NS_PER_MS: Final = 1_000_000

#: Statuses that stand for the provider (credential, time, rate), not for the one job that was asked about. Other 4xx
#: are answers of a provider that is well.
_ABOUT_THE_PROVIDER: Final = frozenset({401, 403, 408, 429})
#: Why a pause was opened at once, by status.
_OPENS_AT_ONCE: Final = {401: "credentials_refused", 429: "rate_limited", 503: "unavailable"}
_RETRY_AFTER: Final = "retry_after: "
#: Reasons of a provider that asks to be left alone.
_ASKED_FOR: Final = frozenset({_OPENS_AT_ONCE[429], _OPENS_AT_ONCE[503]})
#: Account, key or path: a create refused so was not made, and the next would be refused alike. While a pause for it
#: is probed, the same statuses do not show that the cause is gone, whatever the probe asked for.
NOT_ACCEPTED: Final = "create_not_accepted"
_CREATE_NOT_ACCEPTED: Final = frozenset({402, 403, 404, 405})


@dataclass(frozen=True, slots=True)
class Rate:
    """So many requests a second on average, and so many at once after a quiet time. Both above 0."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of a rate, as one number: when the bucket will be full again (GCRA's theoretical arrival time)."""

    #: Unix ns, a whole number: added up as floats, a burst would end one request early.
    full_at_ns: int = 0

    def take(self, rate: Rate, now_ms: int) -> tuple["Allowance", int]:
        """One request's share: the allowance afterwards and 0 to go now, or this allowance and the ms to wait first.

        A wait takes nothing: ask again when it is over. After a step back of the clock the bucket counts as empty, and
        never as in debt for the length of the step.
        """
        interval = math.ceil(1_000_000_000 / rate.per_second)
        now = now_ms * _NS_PER_MS
        empty_at = now + interval * rate.burst
        full_at = min(max(self.full_at_ns, now), empty_at)
        wait = full_at + interval - empty_at
        if wait > 0:
            return Allowance(full_at), -(-wait // _NS_PER_MS)
        return Allowance(full_at + interval), 0


@dataclass(frozen=True, slots=True)
class Pause:
    """How a provider has been answering; small enough to keep in a row."""

    #: Nothing is sent before this, unix ms; None: not paused.
    until_ms: int | None
    #: One word for the operator, or `failures: ` and the class of the last one; empty while not paused.
    reason: str
    #: Failures in a row. Those of requests that were under way when the pause was opened are not counted.
    failures: int
    opened_at_ms: int | None

    @property
    def is_open(self) -> bool:
        """Whether the provider is being left alone, or probed after that."""
        return self.until_ms is not None


#: A provider that answers well.
NO_PAUSE: Final = Pause(until_ms=None, reason="", failures=0, opened_at_ms=None)


def after_failure(
    pause: Pause,
    *,
    error_class: str,
    status: int | None,
    retry_after_ms: int | None,
    now_ms: int,
    draw: float,
    create_not_accepted: bool = False,
    lengthens: bool = True,
    retry_after_cap_ms: int = RETRY_AFTER_CAP_MS,
) -> Pause:
    """The pause after a request that failed; `status` None: no answer came. `draw` in [0, 1).

    Opened by 401, 429, 503, by a Retry-After on a failure of the provider, by 402 to 405 where they mean that a create
    was not accepted, and by `FAILURES_TO_PAUSE` failures in a row. A 4xx about one job shows that the provider is well.
    `lengthens` False: a failure of a list or a look-up, which may be refused where all else would go through. It opens
    a pause as any does, and makes the next no longer than the last.
    """
    not_accepted = status in _CREATE_NOT_ACCEPTED and (create_not_accepted or pause.reason == NOT_ACCEPTED)
    if not (not_accepted or _is_about_the_provider(status)):
        return after_success(pause, now_ms=now_ms)
    wanted = 0 if retry_after_ms is None else min(max(retry_after_ms, 0), retry_after_cap_ms)
    reason = _reason(status, error_class, not_accepted=not_accepted, asked_to_wait=retry_after_ms is not None)
    if pause.until_ms is not None and now_ms < pause.until_ms:
        # An answer to what was sent before the pause: of one outage, so it tells nothing new but a longer Retry-After.
        if now_ms + wanted <= pause.until_ms:
            return pause
        return replace(pause, until_ms=now_ms + wanted, reason=reason or pause.reason)  # a restart keeps what was asked
    failures = pause.failures + (1 if lengthens or not pause.is_open else 0)
    if pause.until_ms is None and reason is None and failures < FAILURES_TO_PAUSE:
        return replace(pause, failures=failures)
    return Pause(
        until_ms=now_ms + max(wanted, _backoff_ms(failures, draw)),
        reason=reason or pause.reason or f"failures: {error_class}",
        failures=failures,
        opened_at_ms=now_ms if pause.opened_at_ms is None else pause.opened_at_ms,
    )


def after_success(pause: Pause, *, now_ms: int) -> Pause:
    """The pause after a good answer: over, unless it still runs.

    While it runs nothing is sent, so the answer is to a request from before, and a Retry-After outweighs it.
    """
    if pause.until_ms is not None and now_ms < pause.until_ms:
        return pause
    return NO_PAUSE


def after_restart(pause: Pause, *, now_ms: int) -> Pause:
    """The pause that a new process finds in its file.

    What the provider asked for is kept. Any other pause is our own caution, and an operator who mended a key or an
    address starts anew to see it work: it lets a probe go with the next row that is due, and goes on if that fails. The
    bound keeps a clock that was ahead from silencing a provider for long.
    """
    if pause.until_ms is None:
        return pause
    is_asked_for = pause.reason in _ASKED_FOR or pause.reason.startswith(_RETRY_AFTER)
    return replace(pause, until_ms=min(pause.until_ms, now_ms + (RETRY_AFTER_CAP_MS if is_asked_for else 0)))


def not_longer(pause: Pause, *, now_ms: int) -> Pause:
    """The same pause, no longer than any that is opened: its end was written by a clock that was ahead."""
    if pause.until_ms is None:
        return pause
    return replace(pause, until_ms=min(pause.until_ms, now_ms + RETRY_AFTER_CAP_MS))


def shifted(pause: Pause, by_ms: int) -> Pause:
    """The same pause after the wall clock was set by `by_ms`: it lasts as long as it would have."""
    if pause.until_ms is None or pause.opened_at_ms is None:
        return pause
    return replace(pause, until_ms=pause.until_ms + by_ms, opened_at_ms=pause.opened_at_ms + by_ms)


def may_send(pause: Pause, now_ms: int) -> bool:
    """Whether anything may be sent: not paused, or time for a probe (see `max_in_flight`)."""
    return pause.until_ms is None or now_ms >= pause.until_ms


def max_in_flight(pause: Pause, concurrency: int, now_ms: int) -> int:
    """How many requests may be under way: `concurrency`; none while the pause runs; one, a probe, after it."""
    if pause.until_ms is None:
        return concurrency
    return min(1, concurrency) if now_ms >= pause.until_ms else 0


def _is_about_the_provider(status: int | None) -> bool:
    return status is None or not 400 <= status < 500 or status in _ABOUT_THE_PROVIDER


def _reason(status: int | None, error_class: str, *, not_accepted: bool, asked_to_wait: bool) -> str | None:
    """Why this failure alone opens a pause; None where it only counts."""
    if status is not None and status in _OPENS_AT_ONCE:
        return _OPENS_AT_ONCE[status]
    if not_accepted:
        return NOT_ACCEPTED
    return f"{_RETRY_AFTER}{error_class}" if asked_to_wait else None


def _backoff_ms(failures: int, draw: float) -> int:
    """Jitter over [base, base * 2**failures], up to the cap; from base, not 0, or a low draw would be no pause."""
    ceiling = min(PAUSE_CAP_MS, PAUSE_BASE_MS << min(failures, MAX_DOUBLINGS))
    return PAUSE_BASE_MS + int(draw * (ceiling - PAUSE_BASE_MS))

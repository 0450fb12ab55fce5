"""When to ask again, and what other people's times and waits mean; pure arithmetic in milliseconds.

The random draw is handed in. Whatever a provider says about time is advice within our own bounds: a wait that makes no
sense is cut to them or ignored, and never stops a loop or turns it into a hot one.
"""

import email.utils
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal, Protocol

#: Retry-After is honoured up to this, ms, even where a provider's poll cap is shorter. 1 h: design's default.
MAX_RETRY_AFTER_MS: Final = 3_600_000
#: Doublings of the base after which a poll delay grows no more; 2**40 ms is 34 years. Only keeps huge counters cheap.
MAX_DOUBLINGS: Final = 40
#: The longest wait that is read at all, ms; longer ones are read as this. 366 d: arbitrary, so that any sum fits a row.
MAX_WAIT_MS: Final = 366 * 86_400_000
#: Characters of a header value or hint that are looked at. 64: arbitrary; the longest HTTP date has 33.
MAX_WAIT_LENGTH: Final = 64
#: The last ms of the year 9999, up to which RFC 3339 can write a time. Unix ms taken for seconds lie beyond it.
MAX_TIME_MS: Final = 253_402_300_799_999

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: Numbers as a time of day spells them.
_TWO_DIGITS: Final = tuple(f"{number:02}" for number in range(60))
_THREE_DIGITS: Final = tuple(f"{number:03}" for number in range(1000))
_ONE_MS: Final = timedelta(milliseconds=1)
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
# The three forms of RFC 9110, 5.6.7, all starting with a day's name: the parser behind it takes far more, and has read
# bare numbers as years.
_HTTP_DATE: Final = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? .*[0-9]{2}:[0-9]{2}:[0-9]{2}(?: .*)?")
_RFC_3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)


class Pace(StrEnum):
    """How the open jobs of one provider are watched just now."""

    #: Each job by reads of its own, over [base, cap]: nothing else tells of its end.
    POLLED = "polled"
    #: Webhooks are known to arrive, so reads of its own wait for the sweep: [base, sweep].
    SWEPT = "swept"
    #: The account's list is read for all of them: a job has a read of its own only where the list does not show it.
    LISTED = "listed"


class PollPlan(Protocol):
    """A provider's own numbers, ms, as its contract has them."""

    @property
    def base_ms(self) -> int:
        """The shortest wait."""
        ...

    @property
    def cap_ms(self) -> int:
        """The longest wait while only polls tell us anything."""
        ...

    @property
    def sweep_ms(self) -> int:
        """The longest wait while webhooks are healthy or a list is swept."""
        ...


def poll_delay_ms(
    plan: PollPlan,
    n: int,
    *,
    draw: float,
    retry_after_ms: int | None = None,
    hint_ms: int | None = None,
    sweeping: bool = False,
) -> int:
    """How long until the next poll, ms: uniform over [base, min(cap, base * 2**n)], or over [base, sweep] (N21).

    `n` counts polls since the last change, or errors in a row, from 1: at 0 the span would be empty and every job of a
    backlog would come at once. A Retry-After and a hint can only make it longer, each up to its own bound.
    """
    base = plan.base_ms
    # A cap below the base would be a mistake in a configuration; the base then wins, since it protects the provider.
    ceiling = max(base, plan.sweep_ms if sweeping else min(plan.cap_ms, base << min(max(n, 1), MAX_DOUBLINGS)))
    delay = base + min(ceiling - base, int(draw * (ceiling - base + 1)))
    if retry_after_ms is not None:
        delay = max(delay, min(retry_after_ms, max(plan.cap_ms, MAX_RETRY_AFTER_MS)))
    if hint_ms is not None:
        delay = max(delay, min(hint_ms, max(base, plan.cap_ms)))
    return delay


def retry_after_ms(headers: Mapping[str, Sequence[str]], *, now_ms: int) -> int | None:
    """The wait that `retry-after` and `retry-after-ms` ask for, ms: the longest of several, None if none is readable.

    Names are lower-cased. Seconds may have a fraction, a date that has passed is 0; whatever else stands there is
    ignored (RFC 9110, 10.2.3; field case C27).
    """
    if "retry-after" not in headers and "retry-after-ms" not in headers:  # nearly always
        return None
    return max(_waits(headers, now_ms), default=None)


def hint_ms(value: object) -> int | None:
    """A poll hint out of a body, given in seconds as a number or as digits in a string, as ms; None unless positive."""
    if isinstance(value, str):
        return _number_ms(value, Decimal(1000)) or None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        return None
    # Bounded before anything is computed: a product of huge numbers overflows, a comparison never does.
    # By way of its shortest text, since the exact value of the double 0.001 lies above 0.001 and would be rounded up.
    return _bounded_wait(Decimal(str(min(value, MAX_WAIT_MS))) * 1000)


def read_time_ms(value: object) -> int | None:
    """A provider's timestamp as unix ms: unix seconds, or an RFC 3339 string with its offset; None for anything else.

    Fractions beyond ms are dropped. A time without an offset could be anybody's local one and is not guessed at (C42).
    """
    if isinstance(value, str):
        return _rfc_3339_ms(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_TIME_MS / 1000:
        return None
    return _bounded_time(round(value * 1000))


def rfc3339(at_ms: int, timespec: Literal["seconds", "milliseconds"] = "seconds") -> str:
    """A time of our own as RFC 3339 in UTC, never later than it is: what `read_time_ms` reads."""
    seconds, ms = divmod(at_ms, 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    # Read out of tables, as five of them stand in each body: a format costs three times as much (measured).
    fraction = "" if timespec == "seconds" else f".{_THREE_DIGITS[ms]}"
    return f"{_date(day)}T{_TWO_DIGITS[hour]}:{_TWO_DIGITS[minute]}:{_TWO_DIGITS[second]}{fraction}Z"


@lru_cache(maxsize=128)
def _date(day: int) -> str:
    """The date so many days after the epoch. Kept, since the times of many operations lie on few days."""
    return (_EPOCH + timedelta(days=day)).date().isoformat()


def _waits(headers: Mapping[str, Sequence[str]], now_ms: int) -> Iterator[int]:
    for given in headers.get("retry-after-ms", ()):
        wait = _number_ms(given, Decimal(1))
        if wait is not None:
            yield wait
    for given in headers.get("retry-after", ()):
        wait = _number_ms(given, Decimal(1000))
        if wait is None:
            wait = _until_date_ms(given, now_ms)
        if wait is not None:
            yield wait


def _number_ms(given: str, unit: Decimal) -> int | None:
    """Plain digits with an optional fraction, times `unit`, rounded up: a wait is never cut short."""
    bare = given.strip(" \t")
    if len(bare) > MAX_WAIT_LENGTH or not _NUMBER.fullmatch(bare):
        return None
    return _bounded_wait(Decimal(bare) * unit)


def _bounded_wait(milliseconds: Decimal) -> int:
    return math.ceil(min(milliseconds, Decimal(MAX_WAIT_MS)))


def _until_date_ms(given: str, now_ms: int) -> int | None:
    bare = given.strip(" \t")
    if len(bare) > MAX_WAIT_LENGTH or not _HTTP_DATE.fullmatch(bare):
        return None
    try:
        moment = email.utils.parsedate_to_datetime(bare)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:  # asctime form: HTTP dates are UTC, never local time
        moment = moment.replace(tzinfo=UTC)
    return min(max((moment - _EPOCH) // _ONE_MS - now_ms, 0), MAX_WAIT_MS)


def _rfc_3339_ms(given: str) -> int | None:
    match = _RFC_3339.fullmatch(given)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.group(1, 2, 3, 4, 5, 6))
    sign, offset_hours, offset_minutes = match.group(8, 9, 10)
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        offset = timedelta()
        if sign:
            offset = timedelta(hours=int(offset_hours), minutes=int(offset_minutes))
    except ValueError:
        return None
    fraction = int((match.group(7) or "0").ljust(3, "0")[:3])
    # Taken away from the span, not from the moment: a moment near the year 1 or 9999 would overflow.
    since = moment - _EPOCH
    return _bounded_time((since + offset if sign == "-" else since - offset) // _ONE_MS + fraction)


def _bounded_time(milliseconds: int) -> int | None:
    return milliseconds if 0 <= milliseconds <= MAX_TIME_MS else None

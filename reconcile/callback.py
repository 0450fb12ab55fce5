"""Callbacks as values and arithmetic: who may be called, which URLs lie under it, and when a delivery is tried again.

Pure. A callback URL comes from a client and is fetched by us, so it is read strictly: where two readers could take one
spelling for different places (dots and slashes behind percent signs, backslashes, user names), it is refused.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

from yarl import URL

from reconcile import addresses
from reconcile.absence import origin_of
from reconcile.errors import RequestInvalid
from reconcile.intents import CallbackWish
from reconcile.model import UnixMs
from reconcile.redact import redact_url
from reconcile.signatures import Key

#: Waits after each failed attempt, ms; as many attempts follow the first. 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 10 h: the
#: example of the Standard Webhooks specification up to 27 hours, so that a target may be down for a day.
WAITS_MS: Final = (5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 36_000_000)
#: A wait grows by up to this share of itself, drawn for each. 0.2: arbitrary; it is never cut short.
JITTER: Final = 0.2
#: What a target may ask for with Retry-After at most, ms. 10 h: the longest of our own waits.
MAX_RETRY_AFTER_MS: Final = 36_000_000
#: No wait that is planned is longer, ms.
LONGEST_MS: Final = round(max(*WAITS_MS, MAX_RETRY_AFTER_MS) * (1 + JITTER))
#: Characters of a callback URL. 2,048: arbitrary, what common servers take in a request line.
MAX_URL: Final = 2_048
#: How often an escape may hide another one before it is refused. 8: arbitrary; honest URLs have one level.
_MAX_LEVELS: Final = 8
_POINTER: Final = "/callback_url"
_SHAPE: Final = re.compile(r"(?i:https?)://[^/?#@]+(/[^?#]*)?(\?[^#]*)?")
#: What a URL can be made of (RFC 3986, 2); an escape is two hex digits behind a percent sign.
_SPELLED: Final = re.compile(r"(?:[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*")


class CallbackEvent(StrEnum):
    """What a callback tells of; the value is its `type`."""

    DONE = "operation.done"
    NEEDS_ATTENTION = "operation.needs_attention"


#: As the configuration names them.
EVENT_WORDS: Final = {event.value.removeprefix("operation."): event for event in CallbackEvent}


@dataclass(frozen=True, slots=True)
class Callback:
    """One `[callbacks.NAME]`: where its URLs lie, what signs, and which events it wants."""

    name: str
    url: URL
    #: All of them sign, so that a receiver may rotate.
    keys: tuple[Key, ...] = field(repr=False)
    events: frozenset[CallbackEvent] = frozenset(CallbackEvent)
    #: `unsafe = ["private_addresses"]`: its name may lead anywhere.
    allows_private: bool = False

    @property
    def is_by_name(self) -> bool:
        """Whether its host has to be looked up; an address, or localhost, is trusted as it is written."""
        host = self.url.host or ""
        return host != "localhost" and addresses.literal(host) is None

    def covers(self, url: URL) -> bool:
        """Whether `url` has this origin and lies under this path, segment by segment."""
        base = self.url.raw_path
        under = base if base.endswith("/") else f"{base}/"
        is_under = url.raw_path == base or url.raw_path.startswith(under)
        return is_under and origin_of(url) == origin_of(self.url)


class Callbacks:
    """The configured ones, by name."""

    def __init__(self, callbacks: Iterable[Callback] = ()) -> None:
        self._by_name = {callback.name: callback for callback in callbacks}

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in an order that stays."""
        return tuple(sorted(self._by_name))

    def named(self, name: str) -> Callback | None:
        """The one of that name; None where the configuration does not have it any more."""
        return self._by_name.get(name)

    def choose(self, text: str) -> CallbackWish:
        """Whose URL it is: of several that cover it the one with the longest path. Raises: RequestInvalid, 422."""
        url = read_url(text)
        covering = [callback for callback in self._by_name.values() if callback.covers(url)]
        if not covering:
            allowed = ", ".join(sorted(str(callback.url) for callback in self._by_name.values()))
            if not allowed:
                raise RequestInvalid(_POINTER, "no [callbacks.NAME] is configured, so nobody can be called back")
            raise RequestInvalid(_POINTER, f"{redact_url(text)!r} lies under no configured callback: {allowed}")
        chosen = max(covering, key=lambda callback: (len(callback.url.raw_path), callback.name))
        return CallbackWish(chosen.name, str(url))

    def wants(self, wish: CallbackWish, event: CallbackEvent) -> bool:
        """Whether it is to be told of; by one that is not configured now everything is, since it may come back."""
        callback = self.named(wish.name)
        return callback is None or event in callback.events


def read_url(text: str) -> URL:
    """A URL out of a stranger's hands, spelled in one way. Raises: RequestInvalid."""
    if len(text) > MAX_URL:
        raise RequestInvalid(_POINTER, f"longer than {MAX_URL} characters")
    shape = _SHAPE.fullmatch(text)
    if shape is None or not _SPELLED.fullmatch(text):
        told = "must be an http or https URL without user, password and fragment, other characters as %XX"
        raise RequestInvalid(_POINTER, told)
    if (fault := _ambiguity(shape[1] or "/")) is not None:
        raise RequestInvalid(_POINTER, f"its path {fault}")
    try:
        url = URL(text)
        origin_of(url)  # its port is read here
    except ValueError as error:
        raise RequestInvalid(_POINTER, f"is no URL: {error}") from error
    return url


def _ambiguity(path: str) -> str | None:
    """What a server could read in another way than we do; None: nothing."""
    for _ in range(_MAX_LEVELS):
        if any(segment.partition(";")[0] in (".", "..") for segment in path.split("/")):
            return "has a segment `.` or `..`"
        if "\\" in path or any(not " " <= character <= "~" for character in path):
            return "hides a backslash or a character that is not printable ASCII"
        decoded = unquote(path, errors="replace") if "%" in path else path
        if decoded == path:
            return None
        if decoded.count("/") != path.count("/"):
            return "hides a slash"
        path = decoded
    return "has escapes within escapes"


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt came to: a status, or why there was none."""

    status: int | None
    error: str | None = None
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Fate:
    """How a delivery stands after an attempt; `due_at` None: nothing more is tried by itself."""

    state: str
    attempts: int
    due_at: UnixMs | None
    status: int | None
    error: str | None


def after(attempt: Attempt, *, attempts: int, now: UnixMs, draw: float) -> Fate:
    """How a delivery stands that had so many attempts before this one.

    2xx ends it; a redirect is a failure, since only the configured place may be called; 410 asks never to come again.
    """
    status, tried = attempt.status, attempts + 1
    if status is not None and 200 <= status < 300:
        return Fate("delivered", tried, None, status, None)
    error = attempt.error or _told(status)
    if status == 410 or tried > len(WAITS_MS):
        return Fate("exhausted", tried, None, status, error)
    wait = round(WAITS_MS[tried - 1] * (1 + JITTER * draw))
    if attempt.retry_after_ms is not None:
        wait = max(wait, min(attempt.retry_after_ms, MAX_RETRY_AFTER_MS))
    return Fate("waiting", tried, now + wait, status, error)


def _told(status: int | None) -> str:
    return "redirect_not_followed" if status is not None and 300 <= status < 400 else f"http_{status}"

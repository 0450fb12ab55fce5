"""Which operations may be asked about, as the configuration stands, and what people are told where none may.

An operation remembers the origin (scheme, host, port) of the address that it was started at: a request about it goes
to that origin, or to one whose provider names it in `moved_from`, and nowhere else. Another account behind the same
name would otherwise be asked about a stranger's job, and its "not found" believed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from yarl import URL

from reconcile.model import Absence, UnixMs
from reconcile.notice import Notice


@dataclass(frozen=True, slots=True)
class OpenAt:
    """How many operations are open of one provider that were started at one origin."""

    provider: str
    origin: str | None
    count: int


@dataclass(frozen=True, slots=True)
class Served:
    """The configured providers, each with the origins of the operations that it may be asked about."""

    origins: Mapping[str, frozenset[str]]

    def absence(self, provider: str, origin: str | None) -> Absence | None:
        """Why nothing may be asked about operations of `provider` that were started at `origin`; None: it may."""
        return absence_of(self.origins.get(provider), origin)


def origin_of(url: URL) -> str:
    """Scheme, host and port of a URL; a port that is spelled out may be the default one, and is left out then."""
    port = "" if url.port is None or url.is_default_port() else f":{url.port}"
    return f"{url.scheme}://{url.host_subcomponent}{port}"


def absence_of(served: frozenset[str] | None, origin: str | None) -> Absence | None:
    """The same by the origins themselves; `served` None: the provider is not configured."""
    if served is None:
        return Absence.MISSING
    return None if origin is None or origin in served else Absence.MOVED


def question(absence: Absence, provider: str, *, started_at: str | None, is_at: str) -> str:
    """What is so and what puts it right, for whoever looks at one operation."""
    if absence is Absence.MISSING:
        return (
            f"{provider} is not in the configuration any more, so nothing is asked about this job. Put"
            f" [providers.{provider}] back and start the daemon again: the job is then read at once."
        )
    return (
        f"The job was started at {started_at}, and {provider} is at {is_at} now, which is not asked about it. If that"
        f" is the same account, name the old address in moved_from of [providers.{provider}], else set base_url back;"
        " then start the daemon again: the job is read at once."
    )


def notices(served: Served, standing: Iterable[OpenAt], *, now: UnixMs) -> tuple[Notice, ...]:
    """One notice for all open operations of a provider that nothing may be asked about."""
    held: dict[tuple[str, Absence], list[OpenAt]] = {}
    for each in standing:
        if (absence := served.absence(each.provider, each.origin)) is not None:
            held.setdefault((each.provider, absence), []).append(each)
    return tuple(_notice(provider, absence, held[provider, absence], now) for provider, absence in sorted(held))


def _notice(provider: str, absence: Absence, held: list[OpenAt], now: UnixMs) -> Notice:
    evidence = {"operations": sum(each.count for each in held)}
    if absence is Absence.MISSING:
        message = (
            f"Operations of {provider} are open, and it is not in the configuration any more: nothing is asked about"
            f" them. Put [providers.{provider}] back and start the daemon again."
        )
        return Notice(absence.value, now, message, provider=provider, evidence=evidence)
    message = (
        f"Operations of {provider} are open that were started at another address: nothing is asked about them. Name it"
        f" in moved_from of [providers.{provider}] if it is the same account, else set base_url back, and start the"
        " daemon again."
    )
    origins = [each.origin for each in held]
    return Notice(absence.value, now, message, provider=provider, evidence={**evidence, "origins": origins})

"""The configuration held against what the file knows: who is missing, what may be asked, what must not change.

Decided once at the start, before anything is written: the configuration is not read again while the daemon runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from yarl import URL

from daemon.config import Config
from reconcile.absence import OpenAt, Served
from reconcile.errors import ConfigError
from reconcile.model import Absence
from reconcile.peer import Peer, served_by
from reconcile.registry import KINDS, provider_for
from reconcile.store.store import Store

#: Where a provider is that the configuration does not name: at no address (RFC 2606), and nothing is sent there.
NOWHERE: Final = URL("http://missing.invalid/")


@dataclass(frozen=True, slots=True)
class Standing:
    """Who is configured and with which kind, and which operations may be asked about."""

    kinds: Mapping[str, str]
    served: Served
    #: The open operations of this start.
    open_at: tuple[OpenAt, ...]

    def absent(self) -> dict[tuple[str, Absence], int]:
        """How many open operations of each provider nothing may be asked about, and why."""
        counts: dict[tuple[str, Absence], int] = {}
        for each in self.open_at:
            if (absence := self.served.absence(each.provider, each.origin)) is not None:
                counts[each.provider, absence] = counts.get((each.provider, absence), 0) + each.count
        return counts


async def held_against(store: Store, config: Config, peers: dict[str, Peer]) -> Standing:
    """What this start stands on; the peers that are missing are added to `peers`.

    Raises: ConfigError, StoreError.
    """
    known = {name: each.kind for name, each in (await store.known_providers()).items()}
    stands = _standing(config, list(peers.values()), known, await store.open_at())
    peers |= _missing_peers(config, known)
    return stands


def _standing(config: Config, peers: Sequence[Peer], known: Mapping[str, str], open_at: tuple[OpenAt, ...]) -> Standing:
    """How the configured `peers` stand to the file. Raises: ConfigError, where open operations forbid the start."""
    kinds = {peer.name: peer.provider.contract.kind for peer in peers}
    for name, count in _counted(open_at).items():
        _refuse(config.file, name, kinds.get(name), known.get(name), count)
    return Standing(kinds, served_by(peers), open_at)


def _missing_peers(config: Config, known: Mapping[str, str]) -> dict[str, Peer]:
    """A peer for each provider that the file knows and the configuration does not: its operations are judged by the
    contract of its kind, and nothing is ever sent.
    """
    return {
        name: _missing(name, kind, config.attention_within_ms)
        for name, kind in known.items()
        if name not in config.providers and kind in KINDS
    }


def _missing(name: str, kind: str, attention_ms: int | None) -> Peer:
    own = provider_for(kind).contract
    contract = replace(own, attention_within_ms=attention_ms or own.attention_within_ms)
    return Peer(name, provider_for(kind, contract), NOWHERE, {}, absence=Absence.MISSING)


def _counted(open_at: Iterable[OpenAt]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in open_at:
        counts[each.provider] = counts.get(each.provider, 0) + each.count
    return counts


def _refuse(file: str, name: str, kind: str | None, known: str | None, count: int) -> None:
    """What cannot be gone on with: another kind would read the open jobs' answers wrongly."""
    held = f"{count} open operation{'s' if count > 1 else ''} of it"
    if kind is not None and known not in (None, kind):
        expected = f"{known!r} as long as there are open operations of it ({count}); a new kind takes a name of its own"
        raise ConfigError(file, f"providers.{name}.kind", repr(kind), expected)
    if kind is None and known not in KINDS:
        found = "nothing" if known is None else f"nothing, and {known!r} is no kind that this release knows"
        raise ConfigError(file, f"providers.{name}", found, f"this table: there are {held}, and nobody knows its kind")

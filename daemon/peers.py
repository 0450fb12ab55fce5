"""The configured providers as those who send to them know them."""

from collections.abc import Callable, Mapping

from daemon.config import Config
from daemon.provider_config import ProviderConfig
from reconcile.absence import origin_of
from reconcile.contract import Contract
from reconcile.peer import Peer


def peers_of(config: Config) -> dict[str, Peer]:
    """A peer for each, in the order of their names."""
    return {name: _peer(config.providers[name]) for name in sorted(config.providers)}


def contracts_of(peers: Mapping[str, Peer]) -> Callable[[str], Contract]:
    """The contract of each by its name; of those that are added to `peers` later too."""
    return lambda provider: peers[provider].provider.contract


def _peer(p: ProviderConfig) -> Peer:
    earlier = frozenset(origin_of(url) for url in p.moved_from)
    return Peer(p.name, p.provider, p.base_url, p.credentials, p.credential_name, earlier)

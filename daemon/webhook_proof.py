"""How a provider's deliveries are proven, as its kind's scheme asks: secrets, a shared value, or a word for none."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from daemon.sections import Section
from daemon.webhook_keys import read_key, standard_shape
from reconcile.contract import Contract, WebhookTerms
from reconcile.signatures import (
    ED25519_KEY_BYTES,
    MIN_HMAC_KEY_BYTES,
    UNSIGNED,
    Key,
    KeyType,
    public_key,
    raw_secret,
    read_secret,
)

#: The setting that lets deliveries in which nothing proves.
_UNSIGNED: Final = "unsigned_webhooks"
#: How a secret of a scheme is read, and what it looks like, where it stands in `webhook_secrets`.
_SECRETS: Final[dict[str, tuple[Callable[[str], Key], str]]] = {
    "standard": (read_secret, standard_shape(KeyType.ED25519_PUBLIC)),
    "hmac-sha256": (raw_secret, "the secret as the provider shows it"),
    "ed25519": (public_key, f"`whpk_` and base64, or the {ED25519_KEY_BYTES} bytes of a public key as hex or base64"),
}
#: The scheme that `webhook_token` proves.
_SHARED: Final = "shared-header"


@dataclass(frozen=True, slots=True)
class Proof:
    """What a provider's deliveries are held to; `terms` None: none is taken."""

    terms: WebhookTerms | None
    keys: tuple[Key, ...] = field(repr=False, default=())
    #: Keys of the configuration whose secrets are shorter than a signature scheme should have.
    short: tuple[str, ...] = ()


def read(section: Section, contract: Contract) -> Proof:
    """The proof that the configuration names. Raises: ConfigError."""
    terms = contract.webhook
    is_unsigned = _is_unsigned(section, terms is not None, contract)
    secrets = _read(section, "webhook_secrets", section.secrets("webhook_secrets"), contract)
    tokens = _read(section, "webhook_token", _tokens(section), contract)
    if section.has("jwks_url"):
        section.know("jwks_url")
        raise section.fault("jwks_url", "a key set's address", _instead(contract))
    keys = (*secrets, *tokens)
    if terms is None:
        return Proof(None)
    if is_unsigned:
        if keys:
            raise section.fault("unsafe", f"{_UNSIGNED} beside a proof", "either of them")
        return Proof(replace(terms, scheme=UNSIGNED))
    if not keys:
        return Proof(None)
    short = [path for path, key in keys if key.type is KeyType.HMAC and len(key.material) < MIN_HMAC_KEY_BYTES]
    return Proof(terms, tuple(key for _, key in keys), tuple(short))


def _is_unsigned(section: Section, has_webhooks: bool, contract: Contract) -> bool:
    is_named = bool(section.words("unsafe", _UNSIGNED))
    if is_named and not has_webhooks:
        expected = f"nothing: {contract.kind} has no webhooks{_here(contract)}"
        raise section.at_odds("unsafe", _UNSIGNED, expected, "webhook")
    return is_named


def _tokens(section: Section) -> list[tuple[str, str]]:
    """One shared value, or several while it is changed; each may stand behind a prefix, as a bearer token does."""
    key, given = "webhook_token", section.given("webhook_token")
    section.know(key)
    if given == []:
        raise section.fault(key, "an empty list", "a secret, or a list of one at least")
    several = given if isinstance(given, list) else [given]
    paths = [f"{key}[{i}]" for i in range(len(several))] if isinstance(given, list) else [key]
    return [
        (path, "".join(section.prefixed_secret(path, value)))
        for path, value in zip(paths, several, strict=True)
        if given is not None
    ]


def _read(section: Section, name: str, secrets: list[tuple[str, str]], contract: Contract) -> list[tuple[str, Key]]:
    """The keys in `secrets`, where the kind's scheme is proven by them."""
    if not secrets:
        return []
    scheme = contract.webhook.scheme if contract.webhook is not None else None
    takes = "webhook_token" if scheme == _SHARED else "webhook_secrets"
    if scheme is None or takes != name:
        found = "secrets" if name == "webhook_secrets" else "a secret"
        raise section.at_odds(name, found, _instead(contract), "webhook")
    reads, shape = _SECRETS.get(scheme, (raw_secret, "the value that both sides know"))
    return [(path, read_key(section, path, secret, reads, shape)) for path, secret in secrets]


def _instead(contract: Contract) -> str:
    """What proves deliveries of this kind."""
    if contract.webhook is None:
        return f"none: {contract.kind} has no webhooks{_here(contract)}"
    takes = "webhook_token" if contract.webhook.scheme == _SHARED else "webhook_secrets"
    return f"{takes}: deliveries of {contract.kind} are proven by the scheme {contract.webhook.scheme}"


def _here(contract: Contract) -> str:
    return ", as long as no table `webhook` declares them" if contract.kind == "http" else ""

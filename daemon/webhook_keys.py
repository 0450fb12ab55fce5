"""A key that signs or proves messages, read from a secret of the configuration."""

from collections.abc import Callable

from daemon.sections import Section
from reconcile.errors import SecretInvalid
from reconcile.signatures import ED25519_KEY_BYTES, MIN_HMAC_KEY_BYTES, Key, KeyType


def standard_shape(asymmetric: KeyType) -> str:
    """What a Standard Webhooks secret looks like, where Ed25519 keys are of this half."""
    return (
        f"`{KeyType.HMAC.value}` followed by base64 of at least {MIN_HMAC_KEY_BYTES} bytes, or `{asymmetric.value}`"
        f" followed by base64 of {ED25519_KEY_BYTES}, and nothing around it"
    )


def read_key(section: Section, path: str, secret: str, reads: Callable[[str], Key], shape: str) -> Key:
    """The key in the secret that stands at `path`. Raises: ConfigError, which names every shape that is taken."""
    try:
        return reads(secret)
    except SecretInvalid as fault:
        raise section.fault(path, f"a secret that cannot be used ({fault.found})", shape) from fault

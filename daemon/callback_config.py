"""One `[callbacks.NAME]` of the configuration: who may be called back, what signs, and what it is told of."""

from typing import Final

from yarl import URL

from daemon.addresses import address
from daemon.sections import Section
from daemon.webhook_keys import read_key, standard_shape
from reconcile.callback import EVENT_WORDS, Callback, CallbackEvent, read_url
from reconcile.errors import RequestInvalid
from reconcile.signatures import Key, KeyType, read_secret

#: The one risky setting: a name may lead into our own network.
PRIVATE_ADDRESSES: Final = "private_addresses"
_SECRET_SHAPES: Final = standard_shape(KeyType.ED25519_PRIVATE)


def callback_config(name: str, section: Section) -> Callback:
    """The typed table. Raises: ConfigError, for the first fault found."""
    return Callback(
        name=name,
        url=_url(section),
        keys=_keys(section),
        events=_events(section),
        allows_private=PRIVATE_ADDRESSES in (section.words("unsafe", PRIVATE_ADDRESSES) or ()),
    )


def _url(section: Section) -> URL:
    """Raises: ConfigError, also for one that no callback_url could lie under."""
    text = section.text("url")
    url = address(section, "url", text)
    try:
        is_itself = Callback("", url, ()).covers(read_url(text))
    except RequestInvalid as fault:
        raise section.fault(
            "url", "a URL that can be read in two ways", f"one whose path is plain ({fault.message})"
        ) from fault
    if not is_itself:
        raise section.fault("url", "a URL that can be read in two ways", "one that is spelled plainly")
    return url


def _keys(section: Section) -> tuple[Key, ...]:
    keys = []
    for path, secret in section.secrets("secrets"):
        key = read_key(section, path, secret, read_secret, _SECRET_SHAPES)
        if key.type is KeyType.ED25519_PUBLIC:
            raise section.fault(path, "a public key, which cannot sign", _SECRET_SHAPES)
        keys.append(key)
    if not keys:
        found = "an empty list" if section.has("secrets") else "nothing"
        raise section.fault("secrets", found, "a list of one secret at least: nobody can trust what is not signed")
    return tuple(keys)


def _events(section: Section) -> frozenset[CallbackEvent]:
    words = section.words("events", *EVENT_WORDS)
    if words is not None and not words:
        raise section.fault(
            "events", "an empty list", f"one at least of {', '.join(EVENT_WORDS)}, or no such key: both"
        )
    return frozenset(EVENT_WORDS[word] for word in words or EVENT_WORDS)

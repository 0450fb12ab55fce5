"""What proves us to a provider: `api_key` in the header that its kind asks for, or `headers` as somebody wrote them."""

import re
from typing import Any, Final

from daemon.sections import Section
from reconcile.contract import Contract
from reconcile.given import HEADER_NAME

#: Headers that are ours, or the connection's: whoever set them would break requests.
_OURS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
#: Names whose values are secrets most of the time: never written into a file that is not one.
_BEARS_A_SECRET: Final = re.compile(r"auth|cookie|credential|key|passw|secret|session|signature|token", re.IGNORECASE)
_SHAPE: Final = (
    'a secret as { env = "NAME" }, { credential = "NAME" } or { file = "PATH" }, each with an optional prefix = "TEXT"'
)


def read(section: Section, contract: Contract) -> tuple[dict[str, str], str | None]:
    """The headers of every request to the provider's own origin, and the names of the secrets in them.

    Raises: ConfigError.
    """
    headers: dict[str, str] = {}
    names: list[str | None] = []
    secret = section.secret_or_none("api_key")
    if secret is not None:
        _refuse_unfit(section, "api_key", secret)
        headers[contract.api_key_header] = f"{contract.api_key_prefix}{secret}"
        names.append(section.secret_name("api_key"))
    table = section.section("headers")
    for name in table.names():
        if not HEADER_NAME.fullmatch(name) or name.lower() in _OURS:
            raise table.fault(name, repr(name), "a header's name that is neither ours nor the connection's")
        if name.lower() in map(str.lower, headers):
            raise table.fault(name, repr(name), "a header that is named nowhere else, in api_key neither")
        headers[name] = _value(table, name, table.given(name), names)
    return headers, ", ".join(filter(None, names)) or None


def _value(table: Section, name: str, given: Any, names: list[str | None]) -> str:
    """A secret, or a harmless text under a name that bears no secrets."""
    if isinstance(given, str):
        if _BEARS_A_SECRET.search(name):
            raise table.fault(name, "a value of another shape", _SHAPE)  # not shown: it may be the secret itself
        text = table.text(name)
        if not text.isascii() or not text.isprintable():
            raise table.fault(name, "a text that no header can hold", "printable ASCII")
        return text
    prefix, secret = table.prefixed_secret(name, given)
    _refuse_unfit(table, name, secret)
    names.append(table.secret_name(name))
    return f"{prefix}{secret}"


def _refuse_unfit(section: Section, key: str, secret: str) -> None:
    """Raises: ConfigError, where no header would carry the secret as it is."""
    if not secret.isascii() or secret != secret.strip():
        found = "a secret that no header can carry as it is"
        raise section.fault(key, found, "printable ASCII, and no blanks at its ends")

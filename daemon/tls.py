"""TLS of the webhook listener: a certificate and its key, tried on each other before anything listens."""

import ssl
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cryptography import x509

from daemon.sections import Section

_CERT: Final = "tls_cert"
_KEY: Final = "tls_key"


@dataclass(frozen=True, slots=True)
class Tls:
    """A pair that fits together, read once: a renewed certificate is shown after the next start."""

    context: ssl.SSLContext = field(repr=False)
    ends_at: datetime


def tls(webhooks: Section) -> Tls | None:
    """`tls_cert` and `tls_key`; None where neither is given. Raises: ConfigError."""
    cert = webhooks.file_or_none(_CERT, is_secret=False)
    key = webhooks.file_or_none(_KEY, is_secret=True)
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        missing, given = (_CERT, _KEY) if cert is None else (_KEY, _CERT)
        expected = f"the file that belongs to webhooks.{given}, or neither of the two"
        raise webhooks.at_odds(missing, "nothing", expected, missing)
    try:
        first = x509.load_pem_x509_certificates(cert[1].encode())[0]
    except ValueError as fault:
        expected = "certificates in PEM form, the server's own first, those that vouch for it after it"
        raise webhooks.fault(_CERT, f"{cert[0]}, which holds none", expected) from fault
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # 1.2: RFC 8996 retired what came before, and every provider's HTTP client has it.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A password that is never right: a key that needs one would else be asked for on the terminal.
        context.load_cert_chain(cert[0], key[0], password="")
    except (ssl.SSLError, OSError, ValueError) as fault:
        expected = f"the private key of webhooks.{_CERT}, in PEM form and without a password"
        raise webhooks.fault(_KEY, f"{key[0]}, which cannot be used with {cert[0]}", expected) from fault
    return Tls(context, first.not_valid_after_utc)

"""Certificates of a test's own, as files."""

from datetime import datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

#: A day within the certificates' lives.
ISSUED = datetime(2026, 1, 1)  # noqa: DTZ001 - x509 takes UTC without saying so


def make_pair(
    folder: Path, name: str = "tls", *, password: bytes | None = None, days: int = 36_500
) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key of mode 0600."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(ISSUED).not_valid_after(ISSUED + timedelta(days=days))
    names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    cert_file, key_file = folder / f"{name}.crt", folder / f"{name}.key"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    how: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        how = serialization.BestAvailableEncryption(password)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
    key_file.touch(mode=0o600)
    key_file.write_bytes(pem)
    return cert_file, key_file

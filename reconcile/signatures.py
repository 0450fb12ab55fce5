"""Signature schemes as pure functions: raw bytes, headers, keys and the time in, an event id or a refusal out.

The receiver verifies with them, our own callbacks and the stand-in sign with them. The signature covers the bytes as
they came: nothing here trims, decodes or parses a body. Each header is read with care, since all of it is written by
whoever sent it, and most of that before anything is proven.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from reconcile.errors import SecretInvalid, SignatureInvalid, SignatureMissing, TimestampOutsideTolerance
from reconcile.proof import ProofPlace

#: Lower-cased header names, each with every value that came under it.
Headers: TypeAlias = Mapping[str, Sequence[str]]

#: Webhook timestamp accepted this far from now, seconds, either way. 300: what every Standard Webhooks library uses.
#: Raising it only widens the replay window; inside it duplicates are caught by event id.
TIMESTAMP_TOLERANCE_SECONDS: Final = 300
#: Bytes in an HMAC key. 24: the least the Standard Webhooks specification promises (24 to 64; longer harms nobody).
MIN_HMAC_KEY_BYTES: Final = 24
#: Entries of one signature header that are looked at. 32: arbitrary; a rotation needs two, each costs a check.
MAX_SIGNATURES: Final = 32
#: Characters in an event id. 256: arbitrary; ids in use have about 40.
MAX_EVENT_ID_LENGTH: Final = 256
#: RFC 8032: seed, public key, and the 64-byte form that holds the seed before the public key.
ED25519_KEY_BYTES: Final = 32
ED25519_PAIR_BYTES: Final = 64

# int() takes spaces, signs, underscores and other scripts' digits (S3). 12 digits reach the year 33658.
_TIMESTAMP: Final = re.compile("[0-9]{1,12}")
_HEX: Final = re.compile("(?:[0-9A-Fa-f]{2}){1,256}")
_EVENT_ID: Final = re.compile(f"[ -~]{{1,{MAX_EVENT_ID_LENGTH}}}")


#: The scheme of deliveries that nothing proves.
UNSIGNED: Final = "unsigned"


class KeyType(Enum):
    """What a key can do; the value is the prefix under which Standard Webhooks writes it."""

    HMAC = "whsec_"
    ED25519_PUBLIC = "whpk_"
    ED25519_PRIVATE = "whsk_"


@dataclass(frozen=True, slots=True)
class Key:
    """A key of one type. Its repr shows no byte of it, whatever the type."""

    type: KeyType
    material: bytes = field(repr=False)


class Verify(Protocol):
    """One scheme's check of a delivery."""

    def __call__(
        self,
        body: bytes,
        headers: Headers,
        keys: Sequence[Key],
        *,
        now_ms: int,
        tolerance_seconds: int = TIMESTAMP_TOLERANCE_SECONDS,
        place: ProofPlace | None = None,
    ) -> str | None:
        """The delivery's event id where the scheme itself has one, else None. Raises: WebhookRefused.

        `place`: where the proof stands, for schemes that leave that to the sender.
        """
        ...


def read_secret(text: str) -> Key:
    """The key in a Standard Webhooks secret: `whsec_` (HMAC), `whpk_` or `whsk_` (Ed25519) and base64, padded or not.

    Nothing is put right in silence: a daemon that starts with a secret pasted wrong would refuse every delivery (C17).

    Raises: SecretInvalid, which never shows the secret.
    """
    for key_type in KeyType:
        if text.startswith(key_type.value):
            return _read_key(key_type, text.removeprefix(key_type.value))
    raise SecretInvalid(_fault_of_shape(text), "`whsec_` followed by base64, or `whpk_` for a public key")


def verify_standard(
    body: bytes,
    headers: Headers,
    keys: Sequence[Key],
    *,
    now_ms: int,
    tolerance_seconds: int = TIMESTAMP_TOLERANCE_SECONDS,
    place: ProofPlace | None = None,  # noqa: ARG001 - its headers are the specification's
) -> str:
    """The event id of a delivery that one of `keys` signed (Standard Webhooks, `v1` and `v1a`).

    Raises: SignatureMissing (`missing-header`, `doubled-header`), TimestampOutsideTolerance (`timestamp-invalid`,
    `timestamp-too-old`, `timestamp-too-new`), SignatureInvalid (`signature`); looked for in this order.
    """
    event_id = _only(headers, "webhook-id")
    timestamp = _only(headers, "webhook-timestamp")
    signatures = _only(headers, "webhook-signature")
    if not _EVENT_ID.fullmatch(event_id):
        raise SignatureMissing("missing-header")
    _check_timestamp(timestamp, now_ms, tolerance_seconds)
    signed = f"{event_id}.{timestamp}.".encode("ascii") + body
    candidates = _candidates(signatures)
    if not any(_is_signed(key, signed, candidates) for key in keys):
        raise SignatureInvalid("signature")
    return event_id


def verify_hmac_sha256(
    body: bytes,
    headers: Headers,
    keys: Sequence[Key],
    *,
    now_ms: int,
    tolerance_seconds: int = TIMESTAMP_TOLERANCE_SECONDS,
    place: ProofPlace | None = None,
) -> None:
    """Whether one of `keys` made one of the signatures over the body, or over TIMESTAMP.BODY.

    Raises: WebhookRefused, as `verify_standard`.
    """
    signed, signatures = _signed_at(body, headers, now_ms, tolerance_seconds, place)
    made = [hmac.digest(key.material, signed, hashlib.sha256) for key in keys if key.type is KeyType.HMAC]
    if not any(hmac.compare_digest(one, given) for one in made for given in signatures):
        raise SignatureInvalid("signature")


def verify_ed25519(
    body: bytes,
    headers: Headers,
    keys: Sequence[Key],
    *,
    now_ms: int,
    tolerance_seconds: int = TIMESTAMP_TOLERANCE_SECONDS,
    place: ProofPlace | None = None,
) -> None:
    """The same where the sender has the private half of a key. Raises: WebhookRefused, as `verify_standard`."""
    signed, signatures = _signed_at(body, headers, now_ms, tolerance_seconds, place)
    public = [key.material for key in keys if key.type is KeyType.ED25519_PUBLIC]
    if not any(_is_ed25519(one, given, signed) for one in public for given in signatures):
        raise SignatureInvalid("signature")


def verify_shared_header(
    body: bytes,  # noqa: ARG001 - nothing ties such a proof to what it comes with
    headers: Headers,
    keys: Sequence[Key],
    *,
    now_ms: int,  # noqa: ARG001 - nor to a time
    tolerance_seconds: int = TIMESTAMP_TOLERANCE_SECONDS,  # noqa: ARG001
    place: ProofPlace | None = None,
) -> None:
    """Whether a header holds the value that both sides know. Raises: WebhookRefused, as `verify_standard`."""
    if place is None:
        raise SignatureInvalid("signature")
    given = hashlib.sha256(_only(headers, place.signature).encode("utf-8", "surrogateescape")).digest()
    known = [hashlib.sha256(key.material).digest() for key in keys if key.type is KeyType.HMAC]
    # Digests are compared: neither a length nor how far a guess is right shows in the time that it takes.
    if not any(hmac.compare_digest(one, given) for one in known):
        raise SignatureInvalid("signature")


def verify_nothing(
    body: bytes,
    headers: Headers,
    keys: Sequence[Key],
    *,
    now_ms: int,
    tolerance_seconds: int = TIMESTAMP_TOLERANCE_SECONDS,
    place: ProofPlace | None = None,
) -> None:
    """Takes whatever comes: only where the configuration says `unsafe`. An event rings, and the read is believed."""


def sign_standard(body: bytes, *, event_id: str, timestamp_seconds: int, keys: Sequence[Key]) -> dict[str, str]:
    """The three headers of a delivery, with one signature for each key, so that a receiver may rotate.

    Raises: SecretInvalid, without a key or with one that can only verify.
    """
    if not keys:
        raise SecretInvalid("no key to sign with")
    signed = f"{event_id}.{timestamp_seconds}.".encode() + body
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp_seconds),
        "webhook-signature": " ".join(_signature(key, signed) for key in keys),
    }


#: A contract names its scheme; this is where the name is looked up.
SCHEMES: Final[Mapping[str, Verify]] = {
    "standard": verify_standard,
    "hmac-sha256": verify_hmac_sha256,
    "ed25519": verify_ed25519,
    "shared-header": verify_shared_header,
    UNSIGNED: verify_nothing,
}


def raw_secret(text: str) -> Key:
    """A secret that is used as it is written, prefix and all: an HMAC key, or a shared value. Raises: SecretInvalid."""
    if not text.strip():
        raise SecretInvalid("the secret is empty")
    return Key(KeyType.HMAC, text.encode())


def public_key(text: str) -> Key:
    """An Ed25519 public key: `whpk_` and base64, or the bare 32 bytes as base64 or hex. Raises: SecretInvalid."""
    if text.startswith(KeyType.ED25519_PUBLIC.value):
        return read_secret(text)
    material = _hex(text) if len(text) == 2 * ED25519_KEY_BYTES else _key_bytes(text)
    if material is None or len(material) != ED25519_KEY_BYTES:
        raise SecretInvalid(f"the public key is not {ED25519_KEY_BYTES} bytes as hex or base64")
    return Key(KeyType.ED25519_PUBLIC, material)


def _signed_at(
    body: bytes, headers: Headers, now_ms: int, tolerance_seconds: int, place: ProofPlace | None
) -> tuple[bytes, list[bytes]]:
    """What was signed, its time checked where it has one, and the signatures that can be read."""
    if place is None:
        raise SignatureInvalid("signature")
    signatures = _only(headers, place.signature)
    if place.timestamp is None:
        return body, _bare_signatures(signatures, place)
    timestamp = _only(headers, place.timestamp)
    _check_timestamp(timestamp, now_ms, tolerance_seconds)
    return f"{timestamp}.".encode("ascii") + body, _bare_signatures(signatures, place)


def _bare_signatures(header: str, place: ProofPlace) -> list[bytes]:
    """The bytes of each entry that can be read, be it bare or behind `sha256=`; entries stand between commas or spaces.

    Raises: SignatureInvalid, where more stand there than an honest sender has use for (S4).
    """
    entries = [entry for entry in header.replace(",", " ").split(" ") if entry]
    if len(entries) > MAX_SIGNATURES:
        raise SignatureInvalid("signature")
    decode = _hex if place.encoding == "hex" else _base64
    read = [decode(entry.removeprefix("sha256=")) for entry in entries]
    return [signature for signature in read if signature is not None]


def _hex(encoded: str) -> bytes | None:
    """Strict hex; None for anything else (bytes.fromhex takes white space too)."""
    return bytes.fromhex(encoded) if _HEX.fullmatch(encoded) else None


def _read_key(key_type: KeyType, encoded: str) -> Key:
    material = _key_bytes(encoded)
    if material is None:
        raise SecretInvalid(
            f"the secret is not `{key_type.value}` followed by nothing but base64 (A-Z a-z 0-9 + / and = at the end; "
            "no white space, no quotes)"
        )
    if key_type is KeyType.HMAC:
        if len(material) < MIN_HMAC_KEY_BYTES:
            raise SecretInvalid(
                f"the secret is shorter than {MIN_HMAC_KEY_BYTES} bytes", "`whsec_` and base64 of 24 to 64 bytes"
            )
        return Key(key_type, material)
    if key_type is KeyType.ED25519_PRIVATE:
        return Key(key_type, _seed(material))
    if len(material) != ED25519_KEY_BYTES:
        raise SecretInvalid(f"the public key is not `whpk_` followed by base64 of {ED25519_KEY_BYTES} bytes")
    return Key(key_type, material)


def _key_bytes(encoded: str) -> bytes | None:
    """`encoded` as bytes, padding optional; None where it is no base64."""
    bare = encoded.rstrip("=")
    if len(encoded) - len(bare) > 2:
        return None
    return _base64(bare + "=" * (-len(bare) % 4))


def _seed(material: bytes) -> bytes:
    """The 32-byte seed of a secret key given alone or, as some tools write it, together with its public key."""
    seed = material[:ED25519_KEY_BYTES]
    if len(material) == ED25519_KEY_BYTES:
        return seed
    if len(material) == ED25519_PAIR_BYTES and _public_bytes(seed) == material[ED25519_KEY_BYTES:]:
        return seed
    raise SecretInvalid(
        f"the secret key is not `whsk_` followed by base64 of {ED25519_KEY_BYTES} bytes, or of {ED25519_PAIR_BYTES} "
        "with its public key"
    )


def _fault_of_shape(text: str) -> str:
    """What is wrong with a secret that starts with none of the prefixes, in an operator's words."""
    if not text:
        return "the secret is empty"
    if text != text.strip():
        return "the secret has white space around it"
    if text[0] in "\"'`":
        return "the secret has quotes around it"
    if text.startswith(("v1,", "v1a,")):
        return "the secret carries a version tag: leave out all up to the comma"
    return "the secret has an unknown prefix"


def _only(headers: Headers, name: str) -> str:
    """The one value of a header. Twice is refused: which of the two was meant is not ours to choose (C21)."""
    values = headers.get(name, ())
    if len(values) > 1:
        raise SignatureMissing("doubled-header")
    if not values or not values[0]:
        raise SignatureMissing("missing-header")
    return values[0]


def _check_timestamp(timestamp: str, now_ms: int, tolerance_seconds: int) -> None:
    """Whole seconds on both sides: exactly the tolerance is accepted, one second more is not."""
    if not _TIMESTAMP.fullmatch(timestamp):
        raise TimestampOutsideTolerance("timestamp-invalid")
    age = now_ms // 1000 - int(timestamp)
    if age > tolerance_seconds:
        raise TimestampOutsideTolerance("timestamp-too-old")
    if age < -tolerance_seconds:
        raise TimestampOutsideTolerance("timestamp-too-new")


def _candidates(header: str) -> list[tuple[str, bytes]]:
    """Version and bytes of each entry that can be read; the others are skipped, as the specification asks.

    Raises: SignatureInvalid, where more stand there than an honest sender has use for (S4).
    """
    entries = [entry for entry in header.split(" ") if entry]
    if len(entries) > MAX_SIGNATURES:
        raise SignatureInvalid("signature")
    found = []
    for entry in entries:
        version, _, encoded = entry.partition(",")
        signature = _base64(encoded)
        if signature is not None:
            found.append((version, signature))
    return found


def _base64(encoded: str) -> bytes | None:
    """Strict base64, padding and all; None for anything else, text that is not ASCII included."""
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:
        return None


def _is_signed(key: Key, signed: bytes, candidates: Sequence[tuple[str, bytes]]) -> bool:
    """Whether `key` made one of the signatures. The key's type picks the version, never the sender (S6)."""
    if key.type is KeyType.HMAC:
        expected = hmac.digest(key.material, signed, hashlib.sha256)
        return any(version == "v1" and hmac.compare_digest(expected, given) for version, given in candidates)
    public = _public_bytes(key.material) if key.type is KeyType.ED25519_PRIVATE else key.material
    return any(version == "v1a" and _is_ed25519(public, given, signed) for version, given in candidates)


def _is_ed25519(public: bytes, signature: bytes, signed: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def _public_bytes(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def _signature(key: Key, signed: bytes) -> str:
    if key.type is KeyType.ED25519_PUBLIC:
        raise SecretInvalid("a public key (`whpk_`) cannot sign; `whsec_` or `whsk_` is expected")
    if key.type is KeyType.HMAC:
        return "v1," + base64.b64encode(hmac.digest(key.material, signed, hashlib.sha256)).decode("ascii")
    made = Ed25519PrivateKey.from_private_bytes(key.material).sign(signed)
    return "v1a," + base64.b64encode(made).decode("ascii")

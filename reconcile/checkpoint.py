"""A signed checkpoint: one Ed25519 signature over the newest head of every chain that moved since the one before (D3).

Chains show what was changed inside them; a checkpoint shows what was cut off their ends, or taken away whole. Each
names the hash of the one before, so the newest vouches for all. Its hash is also logged: a second place.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from reconcile.chain import GENESIS
from reconcile.errors import SecretInvalid

#: Of a public key (RFC 8032).
_PUBLIC_BYTES: Final = 32
#: Stands before what is signed, so that no signature made for something else can pass for one of a checkpoint.
_CONTEXT: Final = b"reconciled checkpoint v1\n"


@dataclass(frozen=True, slots=True)
class Head:
    """The newest row of one chain, as a checkpoint covers it."""

    operation_id: str
    seq: int
    head: str

    def leaf(self) -> bytes:
        """Its bytes in the tree."""
        return _spelled(["head", self.operation_id, self.seq, self.head])


@dataclass(frozen=True, slots=True)
class PrunedHead:
    """The last head of a chain that was pruned, and when (unix ms)."""

    operation_id: str
    seq: int
    head: str
    pruned_at: int

    def leaf(self) -> bytes:
        """Its bytes in the tree."""
        return _spelled(["pruned", self.operation_id, self.seq, self.head, self.pruned_at])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is signed. `root` is over the leaves of its heads, then of what was pruned, each in the order of ids."""

    number: int
    #: Unix ms.
    at: int
    #: The last history position that it covers.
    position: int
    #: The hash of the checkpoint before.
    previous: str
    #: How many leaves there are of either kind.
    heads: int
    pruned: int
    root: str

    @property
    def hash(self) -> str:
        """SHA-256, hex, of its canonical form; what the next one names."""
        return hashlib.sha256(self._spelled()).hexdigest()

    def _spelled(self) -> bytes:
        return _spelled(
            {
                "number": self.number,
                "at": self.at,
                "position": self.position,
                "previous": self.previous,
                "heads": self.heads,
                "pruned": self.pruned,
                "root": self.root,
            }
        )

    def signed_bytes(self) -> bytes:
        """What the signature is over."""
        return _CONTEXT + self._spelled()


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint as it is kept: `hash` is what stands in the file, whether or not it fits."""

    checkpoint: Checkpoint
    hash: str
    #: Base64 of the 32 bytes.
    public_key: str
    #: Base64 of the 64 bytes.
    signature: str


@dataclass(frozen=True, slots=True)
class SignedSpan:
    """Checkpoints that follow each other and bear the same key: the first and the last number, and how many."""

    first: int
    last: int
    count: int
    #: Base64 of the 32 bytes.
    public_key: str


class AuditKey:
    """The private key that signs checkpoints."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = _public_text(key.public_key())

    @classmethod
    def made(cls, seed: bytes) -> "AuditKey":
        """The key that grows out of 32 random bytes."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def read(cls, pem: str) -> "AuditKey":
        """The key in a PEM text (PKCS #8, as `openssl genpkey -algorithm ed25519` writes it). Raises: SecretInvalid."""
        try:
            key = serialization.load_pem_private_key(pem.encode(), password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as fault:
            raise SecretInvalid("not an unencrypted private key in PEM form") from fault
        if not isinstance(key, Ed25519PrivateKey):
            raise SecretInvalid("a private key, but none of Ed25519")
        return cls(key)

    def pem(self) -> str:
        """Its PEM text (PKCS #8)."""
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return self._key.private_bytes(*form).decode("ascii")

    def sign(self, checkpoint: Checkpoint) -> SignedCheckpoint:
        """The checkpoint with its signature."""
        signature = base64.b64encode(self._key.sign(checkpoint.signed_bytes())).decode("ascii")
        return SignedCheckpoint(checkpoint, checkpoint.hash, self.public_key, signature)


def read_public_key(pem: str) -> str:
    """The public key in a PEM text, or that of a private key in it, as base64; that itself does as well.

    Raises: SecretInvalid.
    """
    if _is_public_text(pem.strip()):
        return pem.strip()
    if "PRIVATE KEY" in pem:
        return AuditKey.read(pem).public_key
    try:
        key = serialization.load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm) as fault:
        raise SecretInvalid("not a public key in PEM form") from fault
    if not isinstance(key, Ed25519PublicKey):
        raise SecretInvalid("a public key, but none of Ed25519")
    return _public_text(key)


def _is_public_text(text: str) -> bool:
    """Whether it is a key as the log and the status tell it."""
    try:
        return len(base64.b64decode(text, validate=True)) == _PUBLIC_BYTES
    except ValueError:
        return False


def fault_of(signed: SignedCheckpoint, before: SignedCheckpoint | None) -> str | None:
    """Why a checkpoint is not what was signed behind the one `before`; None where it is."""
    checkpoint, name = signed.checkpoint, f"checkpoint {signed.checkpoint.number}"
    number, previous, position = 1, GENESIS, 0
    if before is not None:
        last = before.checkpoint
        number, previous, position = last.number + 1, before.hash, last.position
    if checkpoint.number != number:
        return f"{name}: checkpoint {number} was expected"
    if checkpoint.previous != previous:
        return f"{name}: it does not follow the one before"
    if checkpoint.position < position:
        return f"{name}: it covers less than the one before"
    return own_fault(signed)


def own_fault(signed: SignedCheckpoint) -> str | None:
    """Why a checkpoint is not what was signed, whatever stood before it; None where it is."""
    name = f"checkpoint {signed.checkpoint.number}"
    if signed.checkpoint.hash != signed.hash:
        return f"{name}: its hash does not fit"
    if not _is_signed(signed):
        return f"{name}: its signature does not fit"
    return None


def _is_signed(signed: SignedCheckpoint) -> bool:
    try:
        key = Ed25519PublicKey.from_public_bytes(_bytes(signed.public_key))
        key.verify(_bytes(signed.signature), signed.checkpoint.signed_bytes())
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True


def _bytes(text: str) -> bytes:
    """What base64 spells, in its one right spelling: some of its last bits may be changed and say the same.

    Raises: ValueError.
    """
    data = base64.b64decode(text, validate=True)
    if base64.b64encode(data).decode("ascii") != text:
        raise ValueError("not as it was written")
    return data


def spans_of_others(spans: Iterable[SignedSpan], newest: SignedCheckpoint | None) -> tuple[SignedSpan, ...]:
    """Those of another key than the newest checkpoint bears."""
    return tuple(span for span in spans if newest is None or span.public_key != newest.public_key)


def add_to_spans(spans: list[SignedSpan], signed: SignedCheckpoint) -> None:
    """Take the next checkpoint into the last span, or begin one with it."""
    number, last = signed.checkpoint.number, spans[-1] if spans else None
    if last is None or last.public_key != signed.public_key:
        spans.append(SignedSpan(number, number, 1, signed.public_key))
    else:
        spans[-1] = SignedSpan(last.first, number, last.count + 1, last.public_key)


def newest_key_fault(signed: SignedCheckpoint | None, trusted: Iterable[str]) -> str | None:
    """Why the newest checkpoint is not one of ours; None where one of the `trusted` public keys signed it."""
    keys = tuple(trusted)
    if signed is None or not keys or signed.public_key in keys:
        return None
    name = f"checkpoint {signed.checkpoint.number}"
    return f"{name}: it was signed with another key ({signed.public_key}) than the one that is trusted ({keys[0]})"


def _spelled(value: object) -> bytes:
    """Canonical JSON. surrogatepass: verification meets whatever somebody wrote into the file, and must name it."""
    spelled = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return spelled.encode("utf-8", "surrogatepass")


def _public_text(key: Ed25519PublicKey) -> str:
    form = (serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return base64.b64encode(key.public_bytes(*form)).decode("ascii")

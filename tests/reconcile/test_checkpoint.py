"""Checkpoints: every field stands under the signature, in an order that no field can leave, by one key and no other."""

import base64
import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st

from reconcile.chain import GENESIS
from reconcile.checkpoint import (
    AuditKey,
    Checkpoint,
    Head,
    PrunedHead,
    SignedCheckpoint,
    fault_of,
    newest_key_fault,
    own_fault,
    read_public_key,
)
from reconcile.errors import SecretInvalid

KEY: Final = AuditKey.made(bytes(range(32)))
OTHER: Final = AuditKey.made(bytes(32))
FIRST: Final = KEY.sign(Checkpoint(1, 1_800_000_000_000, 7, GENESIS, 3, 0, "ab" * 32))
SECOND: Final = KEY.sign(Checkpoint(2, 1_800_003_600_000, 9, FIRST.hash, 1, 1, "cd" * 32))


def altered(signed: SignedCheckpoint, **fields: Any) -> SignedCheckpoint:
    """Another checkpoint under the same signature, its hash made to fit."""
    checkpoint = replace(signed.checkpoint, **fields)
    return replace(signed, checkpoint=checkpoint, hash=checkpoint.hash)


def test_two_that_follow_each_other_are_as_they_were_signed() -> None:
    assert fault_of(FIRST, None) is None
    assert fault_of(SECOND, FIRST) is None
    assert own_fault(SECOND) is None


def test_what_is_signed_is_spelled_once_and_for_all() -> None:
    """Whoever verifies in ten years, with other code, needs exactly these bytes."""
    spelled = (
        '{"at":1800000000000,"heads":3,"number":1,"position":7,'
        f'"previous":"{"0" * 64}","pruned":0,"root":"{"ab" * 32}"}}'
    )
    assert FIRST.checkpoint.signed_bytes() == b"reconciled checkpoint v1\n" + spelled.encode()
    assert FIRST.hash == hashlib.sha256(spelled.encode()).hexdigest()
    key = ed25519.Ed25519PublicKey.from_public_bytes(base64.b64decode(FIRST.public_key))
    key.verify(base64.b64decode(FIRST.signature), b"reconciled checkpoint v1\n" + spelled.encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [("at", 1), ("position", 10), ("heads", 2), ("pruned", 0), ("root", "ce" * 32), ("root", "CD" * 32)],
)
def test_every_field_stands_under_the_signature(field: str, value: object) -> None:
    assert fault_of(altered(SECOND, **{field: value}), FIRST) == "checkpoint 2: its signature does not fit"
    unmended = replace(altered(SECOND, **{field: value}), hash=SECOND.hash)
    assert fault_of(unmended, FIRST) == "checkpoint 2: its hash does not fit"


def test_number_and_previous_stand_under_it_too() -> None:
    assert own_fault(altered(SECOND, number=3)) is not None
    assert own_fault(altered(SECOND, previous=GENESIS)) is not None


@pytest.mark.parametrize(
    ("signed", "before", "words"),
    [
        (SECOND, None, "checkpoint 2: checkpoint 1 was expected"),
        (FIRST, SECOND, "checkpoint 1: checkpoint 3 was expected"),
        (KEY.sign(replace(SECOND.checkpoint, number=3)), FIRST, "checkpoint 3: checkpoint 2 was expected"),
        (KEY.sign(replace(SECOND.checkpoint, previous="0" * 64)), FIRST, "checkpoint 2: it does not follow"),
        (KEY.sign(replace(SECOND.checkpoint, position=6)), FIRST, "checkpoint 2: it covers less"),
        (replace(SECOND, hash=FIRST.hash), FIRST, "checkpoint 2: its hash does not fit"),
        (replace(SECOND, signature=FIRST.signature), FIRST, "checkpoint 2: its signature does not fit"),
        (replace(SECOND, public_key=OTHER.public_key), FIRST, "checkpoint 2: its signature does not fit"),
    ],
)
def test_what_does_not_follow_is_named(signed: SignedCheckpoint, before: SignedCheckpoint | None, words: str) -> None:
    assert str(fault_of(signed, before)).startswith(words)


@pytest.mark.parametrize("text", ["", "AAAA", "no base64", "é" * 88, "A" * 88, SECOND.signature.rstrip("=")])
def test_whatever_stands_for_a_signature_or_a_key_is_a_fault_and_no_error(text: str) -> None:
    assert own_fault(replace(SECOND, signature=text)) == "checkpoint 2: its signature does not fit"
    assert own_fault(replace(SECOND, public_key=text)) == "checkpoint 2: its signature does not fit"


@pytest.mark.parametrize("field", ["signature", "public_key"])
def test_another_spelling_of_the_same_bytes_is_not_what_was_written(field: str) -> None:
    text: str = getattr(SECOND, field)
    at = len(text.rstrip("=")) - 1
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = text[:at] + alphabet[alphabet.index(text[at]) ^ 1] + text[at + 1 :]
    assert base64.b64decode(other) == base64.b64decode(text)
    respelled: dict[str, Any] = {field: other}
    assert own_fault(replace(SECOND, **respelled)) is not None


def test_the_newest_must_be_signed_by_one_of_ours() -> None:
    assert newest_key_fault(SECOND, [KEY.public_key]) is None
    assert newest_key_fault(SECOND, [OTHER.public_key, KEY.public_key]) is None
    assert newest_key_fault(SECOND, []) is None
    assert newest_key_fault(None, [KEY.public_key]) is None
    told = str(newest_key_fault(SECOND, [OTHER.public_key]))
    assert told.startswith("checkpoint 2: it was signed with another key")
    assert KEY.public_key in told
    assert OTHER.public_key in told


_text = st.text(max_size=5)


@given(_text, st.integers(0, 99), _text, _text, st.integers(0, 99), _text, st.integers(0, 99))
def test_no_two_heads_share_a_leaf(a: str, n: int, b: str, c: str, m: int, d: str, at: int) -> None:
    """However text moves between fields, and whether it was pruned or not."""
    one, two = Head(a, n, b), Head(c, m, d)
    assert (one.leaf() == two.leaf()) == (one == two)
    assert PrunedHead(a, n, b, at).leaf() != two.leaf()
    assert json.loads(one.leaf()) == ["head", a, n, b]
    assert json.loads(PrunedHead(a, n, b, at).leaf()) == ["pruned", a, n, b, at]


# ---- keys ----


def test_a_key_comes_back_from_its_own_text() -> None:
    again = AuditKey.read(KEY.pem())
    assert again.public_key == KEY.public_key
    assert again.sign(FIRST.checkpoint) == FIRST
    assert read_public_key(KEY.pem()) == KEY.public_key
    assert len(base64.b64decode(KEY.public_key)) == 32


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_key_that_openssl_made_is_taken_and_openssl_takes_our_signature(tmp_path: Path) -> None:
    """By somebody else's code, from end to end."""
    private, public = tmp_path / "key.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    key = AuditKey.read(private.read_text())
    assert read_public_key(public.read_text()) == key.public_key
    signed = key.sign(SECOND.checkpoint)
    assert fault_of(signed, FIRST) is None
    (tmp_path / "signature").write_bytes(base64.b64decode(signed.signature))
    (tmp_path / "bytes").write_bytes(signed.checkpoint.signed_bytes())
    verify = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "public.pem", "-rawin"]
    files = ["-in", "bytes", "-sigfile", "signature"]
    assert subprocess.run([*verify, *files], check=False, capture_output=True, cwd=tmp_path).returncode == 0


def _pem(key: Any) -> str:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return str(key.private_bytes(*form).decode())


def _public_pem(key: Any) -> str:
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return str(key.public_key().public_bytes(*form).decode())


def test_a_public_key_is_read_as_it_is() -> None:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    assert read_public_key(_public_pem(key)) == KEY.public_key


@pytest.mark.parametrize(
    "pem",
    [
        "",
        "secret-words",
        "-----BEGIN PRIVATE KEY-----\nsecret-words\n-----END PRIVATE KEY-----",
        "-----BEGIN PUBLIC KEY-----\nsecret-words\n-----END PUBLIC KEY-----",
        _pem(ec.generate_private_key(ec.SECP256R1())),
        _public_pem(ec.generate_private_key(ec.SECP256R1())),
    ],
    ids=["empty", "words", "broken private", "broken public", "another private kind", "another public kind"],
)
def test_what_is_no_such_key_is_refused_and_not_repeated(pem: str) -> None:
    with pytest.raises(SecretInvalid) as fault:
        read_public_key(pem)
    assert "secret-words" not in str(fault.value)
    with pytest.raises(SecretInvalid):
        AuditKey.read(pem)


def test_an_encrypted_key_is_refused() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    encryption = serialization.BestAvailableEncryption(b"x")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()
    with pytest.raises(SecretInvalid):
        AuditKey.read(pem)

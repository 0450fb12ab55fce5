"""Schemes that leave names and encodings to the sender: HMAC-SHA256, Ed25519, a shared header. S1 to S6, S10, S13."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from reconcile.errors import SecretInvalid, SignatureInvalid, SignatureMissing, WebhookRefused
from reconcile.proof import ProofPlace
from reconcile.signatures import SCHEMES, Key, KeyType, public_key, raw_secret

NOW = 1_795_953_600
BODY = b'{"id": "j"}'
SECRET = "a secret of the tests, 32 bytes!"
PRIVATE = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
PUBLIC = PRIVATE.public_key().public_bytes_raw()
ENCODE: dict[str, Callable[[bytes], str]] = {
    "hex": bytes.hex,
    "base64": lambda made: base64.b64encode(made).decode(),
}
SIGN: dict[str, Callable[[bytes], bytes]] = {
    "hmac-sha256": lambda signed: hmac.digest(SECRET.encode(), signed, hashlib.sha256),
    "ed25519": PRIVATE.sign,
}
KEYS = {"hmac-sha256": raw_secret(SECRET), "ed25519": public_key(PUBLIC.hex())}
signed_schemes = pytest.mark.parametrize("scheme", list(SIGN))
encodings = pytest.mark.parametrize("encoding", list(ENCODE))


def verify(scheme: str, headers: dict[str, Any], *, body: bytes = BODY, keys: Any = None, **place: Any) -> Any:
    told = {name: value if isinstance(value, tuple) else (value,) for name, value in headers.items()}
    where = ProofPlace("x-sig", **place)
    known = [KEYS[scheme]] if keys is None else keys
    return SCHEMES[scheme](body, told, known, now_ms=NOW * 1000 + 500, tolerance_seconds=300, place=where)


def signature(scheme: str, encoding: str, signed: bytes = BODY) -> str:
    return ENCODE[encoding](SIGN[scheme](signed))


@signed_schemes
@encodings
def test_what_the_sender_signed_is_taken(scheme: str, encoding: Any) -> None:
    assert verify(scheme, {"x-sig": signature(scheme, encoding)}, encoding=encoding) is None
    assert verify(scheme, {"x-sig": f"sha256={signature(scheme, encoding)}"}, encoding=encoding) is None


@signed_schemes
@pytest.mark.parametrize("body", [BODY + b" ", b" " + BODY, BODY.replace(b": ", b":"), b"", BODY[:-1] + b"]"])
def test_s1_one_changed_byte_is_refused(scheme: str, body: bytes) -> None:
    with pytest.raises(SignatureInvalid):
        verify(scheme, {"x-sig": signature(scheme, "hex")}, body=body)


@signed_schemes
@pytest.mark.parametrize(("age", "is_taken"), [(299, True), (300, True), (301, False), (-300, True), (-301, False)])
def test_s2_a_declared_timestamp_has_a_tolerance(scheme: str, age: int, is_taken: bool) -> None:
    at = str(NOW - age)
    headers = {"x-sig": signature(scheme, "hex", f"{at}.".encode() + BODY), "x-at": at}
    if is_taken:
        verify(scheme, headers, timestamp="x-at")
    else:
        with pytest.raises(WebhookRefused, match="timestamp-too"):
            verify(scheme, headers, timestamp="x-at")


@signed_schemes
def test_a_timestamp_is_under_the_signature(scheme: str) -> None:
    headers = {"x-sig": signature(scheme, "hex"), "x-at": str(NOW)}
    with pytest.raises(SignatureInvalid):
        verify(scheme, headers, timestamp="x-at")
    moved = {"x-sig": signature(scheme, "hex", f"{NOW}.".encode() + BODY), "x-at": str(NOW + 1)}
    with pytest.raises(SignatureInvalid):
        verify(scheme, moved, timestamp="x-at")


ODD_TIMES = [
    f" {NOW}",
    f"+{NOW}",
    "1_795_953_600",
    "१७९५९५३६००",
    "9" * 400,
    "",
    (),
    (str(NOW), str(NOW)),
    f"{NOW}.0",
    "-1",
]


@signed_schemes
@pytest.mark.parametrize("at", ODD_TIMES)
def test_s3_a_timestamp_is_read_strictly(scheme: str, at: Any) -> None:
    with pytest.raises(WebhookRefused):
        verify(scheme, {"x-sig": signature(scheme, "hex"), "x-at": at}, timestamp="x-at")


ODD_SIGNATURES = [
    "é",
    "zz",
    "=",
    "AAAA\n",
    " ",
    "",
    "sha256=",
    "," * 10_000,
    "00 " * 10_000,
    "\udcff",
    "0" * 63,
    (),
    ("a", "b"),
]


@pytest.mark.parametrize("scheme", ["hmac-sha256", "ed25519", "shared-header"])
@encodings
@pytest.mark.parametrize("given_signature", ODD_SIGNATURES)
def test_s4_a_signature_that_cannot_be_read_is_refused(scheme: str, encoding: Any, given_signature: Any) -> None:
    with pytest.raises(WebhookRefused):
        verify(scheme, {"x-sig": given_signature}, encoding=encoding, keys=[raw_secret(SECRET)])


@signed_schemes
def test_s5_one_right_signature_among_others_is_enough(scheme: str) -> None:
    right = signature(scheme, "hex")
    for beside in (f"{'0' * 64}, {right}", f"sha1=abcd,sha256={right}", f"v0=zz {right}"):
        verify(scheme, {"x-sig": beside})
    with pytest.raises(SignatureInvalid):
        verify(scheme, {"x-sig": ",".join(["00"] * 32 + [right])})


def test_s6_the_keys_type_picks_the_algorithm() -> None:
    """A public key is no secret: nobody who knows it can make an HMAC that passes."""
    forged = hmac.digest(PUBLIC, BODY, hashlib.sha256).hex()
    for scheme in SIGN:
        with pytest.raises(SignatureInvalid):
            verify(scheme, {"x-sig": forged}, keys=[KEYS["ed25519"]])
    for scheme in ("hmac-sha256", "ed25519"):
        with pytest.raises(SignatureInvalid):
            verify(scheme, {"x-sig": signature(scheme, "hex")}, keys=[])


@signed_schemes
def test_s11_the_old_key_counts_as_long_as_it_is_configured(scheme: str) -> None:
    other = raw_secret("another secret") if scheme == "hmac-sha256" else public_key("ab" * 32)
    verify(scheme, {"x-sig": signature(scheme, "hex")}, keys=[other, KEYS[scheme]])
    with pytest.raises(SignatureInvalid):
        verify(scheme, {"x-sig": signature(scheme, "hex")}, keys=[other])


def test_a_shared_header_is_the_whole_value_and_only_that() -> None:
    keys = [raw_secret("Bearer old"), raw_secret("Bearer new-é")]
    for value in ("Bearer old", "Bearer new-é"):
        assert verify("shared-header", {"x-sig": value}, keys=keys) is None
    for value in ("bearer old", "Bearer old ", "old", "", "Bearer ", "Bearer old, Bearer old"):
        with pytest.raises(WebhookRefused):
            verify("shared-header", {"x-sig": value}, keys=keys)
    with pytest.raises(SignatureMissing):
        verify("shared-header", {"x-sig": ("Bearer old", "Bearer old")}, keys=keys)
    with pytest.raises(SignatureInvalid):
        verify("shared-header", {"x-sig": "Bearer old"}, keys=[])


@pytest.mark.parametrize("scheme", ["hmac-sha256", "ed25519", "shared-header"])
def test_without_a_place_nothing_is_proven(scheme: str) -> None:
    with pytest.raises(SignatureInvalid):
        SCHEMES[scheme](BODY, {"x-sig": ("x",)}, [raw_secret("x")], now_ms=0)


def test_public_keys_are_read_in_each_spelling() -> None:
    encoded = base64.b64encode(PUBLIC).decode()
    for text in (PUBLIC.hex(), PUBLIC.hex().upper(), encoded, encoded.rstrip("="), f"whpk_{encoded}"):
        assert public_key(text) == Key(KeyType.ED25519_PUBLIC, PUBLIC)
    for bad in (
        "",
        "zz" * 32,
        PUBLIC.hex()[:-2],
        f"whsec_{encoded}",
        base64.b64encode(b"short").decode(),
        " " + encoded,
    ):
        with pytest.raises(SecretInvalid):
            public_key(bad)


def test_s10_an_empty_secret_is_none() -> None:
    for bad in ("", " "):
        with pytest.raises(SecretInvalid):
            raw_secret(bad)
    assert "SECRET" not in repr(raw_secret("SECRET"))


headers = st.dictionaries(
    st.sampled_from(["x-sig", "x-at"]),
    st.lists(st.text(max_size=80) | st.text("0123456789abcdef=, .", max_size=80), max_size=3).map(tuple),
)


@pytest.mark.parametrize("scheme", ["hmac-sha256", "ed25519", "shared-header"])
@given(headers=headers, encoding=st.sampled_from(["hex", "base64"]), body=st.binary(max_size=8))
def test_whatever_is_sent_is_refused_and_nothing_else(scheme: str, headers: Any, encoding: Any, body: bytes) -> None:
    """S13: a refusal of ours, never another fault."""
    keys = [raw_secret(SECRET), public_key(PUBLIC.hex())]
    for timestamp in (None, "x-at"):
        with pytest.raises(WebhookRefused):
            verify(scheme, headers, body=body, keys=keys, encoding=encoding, timestamp=timestamp)

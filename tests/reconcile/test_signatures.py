"""A delivery is taken exactly when a configured key signed these bytes lately; all else is refused, and by its kind."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from reconcile.errors import (
    SecretInvalid,
    SignatureInvalid,
    SignatureMissing,
    TimestampOutsideTolerance,
    WebhookRefused,
)
from reconcile.signatures import SCHEMES, Key, KeyType, read_secret, sign_standard, verify_standard

FIXTURES = Path(__file__).parent.parent / "fixtures"
DELIVERIES: dict[str, Any] = {
    name: expected
    for name, expected in json.loads((FIXTURES / "EXPECT.json").read_text())["deliveries"].items()
    if name.startswith(("openai/", "standard-webhooks/"))
}

SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes ......").decode()
OTHER_SECRET = "whsec_" + base64.b64encode(b"another key of thirty-two bytes ").decode()
SEED = b"\x07" * 32
PUBLIC = Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()
KEY, OTHER_KEY = read_secret(SECRET), read_secret(OTHER_SECRET)
PRIVATE_KEY = read_secret("whsk_" + base64.b64encode(SEED).decode())
PUBLIC_KEY = read_secret("whpk_" + base64.b64encode(PUBLIC).decode())

BODY = b'{"type":"batch.completed","data":{"id":"b1"}}'
SECONDS = 1_795_954_531
NOW = SECONDS * 1000


def signed(body: bytes = BODY, *keys: Key, at: int = SECONDS, **changes: str) -> dict[str, list[str]]:
    """Headers as they arrive for `body`, with some of them put differently."""
    headers = sign_standard(body, event_id="msg_7", timestamp_seconds=at, keys=keys or (KEY,))
    headers |= {f"webhook-{name}": value for name, value in changes.items()}
    return {name: [value] for name, value in headers.items()}


def refusal(headers: Any, body: bytes = BODY, keys: tuple[Key, ...] = (KEY,), now_ms: int = NOW) -> WebhookRefused:
    with pytest.raises(WebhookRefused) as caught:
        verify_standard(body, headers, keys, now_ms=now_ms)
    return caught.value


# Fixtures and foreign code


@pytest.mark.parametrize("name", DELIVERIES)
def test_each_delivery_of_the_fixtures_is_judged_as_expected(name: str) -> None:
    delivery = json.loads((FIXTURES / name).read_text())
    body = delivery["body"].encode()
    assert hashlib.sha256(body).hexdigest() == delivery["body_sha256"]
    headers = {key.lower(): [value] for key, value in delivery["headers"].items()}
    secrets = delivery.get("secrets") or [delivery[key] for key in ("secret", "public_key") if key in delivery]
    keys = [read_secret(secret) for secret in secrets]
    verify = SCHEMES["standard"]
    if DELIVERIES[name]["answer"] == 200:
        assert verify(body, headers, keys, now_ms=delivery["clock"] * 1000) == delivery["event_id"]
    else:
        with pytest.raises(WebhookRefused) as caught:
            verify(body, headers, keys, now_ms=delivery["clock"] * 1000)
        assert caught.value.reason == DELIVERIES[name]["reason"]
        assert caught.value.status == DELIVERIES[name]["answer"]


def test_the_fixtures_are_all_there() -> None:
    on_disk = {path.relative_to(FIXTURES).as_posix() for path in (FIXTURES / "standard-webhooks").glob("*.json")}
    on_disk |= {path.relative_to(FIXTURES).as_posix() for path in (FIXTURES / "openai").glob("webhook_*.json")}
    assert on_disk - DELIVERIES.keys() == {"openai/webhook_endpoint_created.json"}  # an answer, not a delivery


def test_either_key_alone_takes_a_delivery_signed_with_both() -> None:
    delivery = json.loads((FIXTURES / "standard-webhooks/v1_and_v1a.json").read_text())
    headers = {key: [value] for key, value in delivery["headers"].items()}
    for secret in (delivery["secret"], delivery["public_key"]):
        event_id = verify_standard(
            delivery["body"].encode(), headers, [read_secret(secret)], now_ms=delivery["clock"] * 1000
        )
        assert event_id == delivery["event_id"]


@given(st.text(), st.binary(min_size=24, max_size=64), st.integers(0, 2**31))
def test_what_the_reference_library_signs_is_taken(body: str, material: bytes, seconds: int) -> None:
    secret = "whsec_" + base64.b64encode(material).decode()
    signature = standardwebhooks.Webhook(secret).sign("msg_1", datetime.fromtimestamp(seconds, UTC), body)
    headers = {"webhook-id": ["msg_1"], "webhook-timestamp": [str(seconds)], "webhook-signature": [signature]}
    assert verify_standard(body.encode(), headers, [read_secret(secret)], now_ms=seconds * 1000) == "msg_1"


def test_what_we_sign_is_taken_by_the_reference_library() -> None:
    seconds = int(datetime.now(UTC).timestamp())
    headers = sign_standard(BODY, event_id="evt_1", timestamp_seconds=seconds, keys=(OTHER_KEY, KEY))
    assert standardwebhooks.Webhook(SECRET).verify(BODY, headers) == json.loads(BODY)
    headers["webhook-signature"] = headers["webhook-signature"].split(" ")[0]
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(BODY, headers)


# Bodies


@pytest.mark.parametrize(
    "body",
    [
        BODY + b"\r\n",
        b"  " + BODY,
        BODY + b"\n\n",
        rb'{ "b":1.0,  "a":1e2, "u":"\u00e9", "n":10000000000000000000001, "type":"batch.completed" }',
        b"",
        b"\xff\x00not text",
    ],
)
def test_the_signature_is_over_the_exact_bytes(body: bytes) -> None:
    assert verify_standard(body, signed(body), [KEY], now_ms=NOW) == "msg_7"
    assert refusal(signed(body), body + b" ").reason == "signature"
    assert refusal(signed(body + b" "), body).reason == "signature"


@given(st.binary(min_size=1), st.data())
def test_a_changed_byte_is_refused(body: bytes, data: st.DataObject) -> None:
    index, flip = data.draw(st.integers(0, len(body) - 1)), data.draw(st.integers(1, 255))
    other = body[:index] + bytes([body[index] ^ flip]) + body[index + 1 :]
    for key, verifier in ((KEY, KEY), (PRIVATE_KEY, PUBLIC_KEY)):
        assert verify_standard(body, signed(body, key), [verifier], now_ms=NOW) == "msg_7"
        assert refusal(signed(body, key), other, (verifier,)).reason == "signature"


# Headers


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_header_that_is_absent_empty_or_doubled_is_refused(name: str) -> None:
    absent = signed()
    del absent[name]
    for headers in (absent, signed() | {name: []}, signed() | {name: [""]}):
        error = refusal(headers)
        assert isinstance(error, SignatureMissing)
        assert error.reason == "missing-header"
    error = refusal(signed() | {name: signed()[name] * 2})
    assert isinstance(error, SignatureMissing)
    assert error.reason == "doubled-header"


@pytest.mark.parametrize("event_id", ["\x00", "a\nb", "é", "x" * 257, "\ud800", "a\x7f"])
def test_an_event_id_that_is_not_plain_ascii_counts_as_missing(event_id: str) -> None:
    assert refusal(signed(id=event_id)).reason == "missing-header"


def test_an_event_id_of_256_characters_is_taken() -> None:
    headers = sign_standard(BODY, event_id="x" * 256, timestamp_seconds=SECONDS, keys=[KEY])
    assert verify_standard(BODY, {k: [v] for k, v in headers.items()}, [KEY], now_ms=NOW) == "x" * 256


def test_another_event_id_is_refused() -> None:
    assert refusal(signed(id="msg_8")).reason == "signature"


def test_headers_under_a_vendors_own_names_are_not_read() -> None:
    headers = {name.replace("webhook-", "svix-"): values for name, values in signed().items()}
    assert refusal(headers).reason == "missing-header"


# Timestamps


@pytest.mark.parametrize(
    ("now_ms", "reason"),
    [
        (NOW + 299_000, None),
        (NOW + 300_000, None),
        (NOW + 300_999, None),
        (NOW + 301_000, "timestamp-too-old"),
        (NOW - 299_000, None),
        (NOW - 300_000, None),
        (NOW - 300_001, "timestamp-too-new"),
        (NOW - 301_000, "timestamp-too-new"),
    ],
)
def test_three_hundred_whole_seconds_either_way_are_tolerated(now_ms: int, reason: str | None) -> None:
    if reason is None:
        assert verify_standard(BODY, signed(), [KEY], now_ms=now_ms) == "msg_7"
    else:
        error = refusal(signed(), now_ms=now_ms)
        assert isinstance(error, TimestampOutsideTolerance)
        assert error.reason == reason


def test_a_contract_may_tolerate_less_or_more() -> None:
    assert verify_standard(BODY, signed(), [KEY], now_ms=NOW + 600_000, tolerance_seconds=600) == "msg_7"
    with pytest.raises(TimestampOutsideTolerance):
        verify_standard(BODY, signed(), [KEY], now_ms=NOW + 11_000, tolerance_seconds=10)


@pytest.mark.parametrize(
    "timestamp",
    [
        f" {SECONDS}",
        f"+{SECONDS}",
        "1_795_954_531",
        "١٧٩٥٩٥٤٥٣١",
        "9" * 400,
        "9" * 13,
        "-1",
        "1.0",
        "hello",
        f"{SECONDS}\n",
    ],
)
def test_a_timestamp_that_is_not_plain_digits_is_refused(timestamp: str) -> None:
    error = refusal(signed(timestamp=timestamp))
    assert isinstance(error, TimestampOutsideTolerance)
    assert error.reason == "timestamp-invalid"


def test_a_timestamp_is_judged_before_the_signature_and_the_headers_before_both() -> None:
    assert refusal(signed(timestamp="hello", signature="v1,junk")).reason == "timestamp-invalid"
    assert refusal(signed(signature="v1,junk"), now_ms=NOW + 301_000).reason == "timestamp-too-old"
    assert refusal(signed(timestamp="hello", id="\n")).reason == "missing-header"


def test_a_timestamp_is_under_the_signature() -> None:
    assert refusal(signed(timestamp=str(SECONDS + 1))).reason == "signature"


# Signature entries and keys

RIGHT = signed()["webhook-signature"][0]
WRONG = signed(b"else")["webhook-signature"][0]


@pytest.mark.parametrize(
    "header",
    [
        RIGHT,
        f"{WRONG} v1a,anything {RIGHT}",
        f"garbage {RIGHT}",
        f"v1,a,b v2,c , v1 v1, {RIGHT}",
        f"v1,not base64! {RIGHT}",
        f"  {WRONG}   {RIGHT} ",
        " ".join([WRONG] * 31 + [RIGHT]),
        f"v1,é v1,\ud800 {RIGHT}",
    ],
)
def test_one_right_signature_among_others_is_enough(header: str) -> None:
    assert verify_standard(BODY, signed(signature=header), [KEY], now_ms=NOW) == "msg_7"


@pytest.mark.parametrize(
    "header",
    [
        *(" ", "v1", "v1,", ",,", "v1,not base64!", "," * 10_000, " ".join([","] * 10_000), WRONG, RIGHT.lower()),
        *(RIGHT.removeprefix("v1,"), RIGHT.replace("v1,", "v2,"), RIGHT.replace("v1,", "V1,"), RIGHT.replace(",", "=")),
        *(
            RIGHT.replace("v1,", "v1a,"),
            RIGHT.rstrip("="),
            RIGHT + "A",
            RIGHT[:-2] + "é=",
            RIGHT.replace("v1,", "v1, "),
        ),
        *("none,", "alg:none", RIGHT.replace(" ", "\t") + "\t", RIGHT[:20], "v1,\ud800", "v1,AAAA"),
        " ".join([WRONG] * 32 + [RIGHT]),
    ],
)
def test_a_header_without_a_right_signature_is_refused_and_never_raises_else(header: str) -> None:
    for key in (KEY, PUBLIC_KEY):
        error = refusal(signed(signature=header), keys=(key,))
        assert isinstance(error, SignatureInvalid)
        assert error.reason == "signature"


@given(st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]), st.lists(st.text())))
def test_no_headers_raise_anything_but_a_refusal(headers: dict[str, list[str]]) -> None:
    refusal(headers, keys=(KEY, PUBLIC_KEY))
    refusal(signed() | {"webhook-signature": ["v1,x"], **headers}, keys=(KEY, PUBLIC_KEY))


def test_in_a_rotation_both_keys_are_taken_and_then_only_the_new_one() -> None:
    for key in (KEY, OTHER_KEY):
        assert verify_standard(BODY, signed(BODY, key), [OTHER_KEY, KEY], now_ms=NOW) == "msg_7"
    assert refusal(signed(BODY, KEY), keys=(OTHER_KEY,)).reason == "signature"
    assert verify_standard(BODY, signed(BODY, KEY, OTHER_KEY), [OTHER_KEY], now_ms=NOW) == "msg_7"


def test_without_a_key_nothing_is_taken() -> None:
    assert refusal(signed(), keys=()).reason == "signature"


def test_a_public_key_is_never_used_as_a_shared_secret() -> None:
    """The public key is known to all: an HMAC made with it, in whatever version, proves nothing (S6)."""
    forged = base64.b64encode(hmac.digest(PUBLIC, f"msg_7.{SECONDS}.".encode() + BODY, "sha256")).decode()
    for version in ("v1", "v1a"):
        assert refusal(signed(signature=f"{version},{forged}"), keys=(PUBLIC_KEY,)).reason == "signature"


def test_a_signature_of_one_version_is_not_taken_under_the_name_of_the_other() -> None:
    ed25519 = signed(BODY, PRIVATE_KEY)["webhook-signature"][0]
    assert verify_standard(BODY, signed(signature=ed25519), [PUBLIC_KEY], now_ms=NOW) == "msg_7"
    assert verify_standard(BODY, signed(signature=ed25519), [PRIVATE_KEY], now_ms=NOW) == "msg_7"
    assert refusal(signed(signature=ed25519.replace("v1a,", "v1,")), keys=(PUBLIC_KEY,)).reason == "signature"
    same_bytes = Key(KeyType.HMAC, SEED)
    assert refusal(signed(signature=ed25519), keys=(same_bytes,)).reason == "signature"


# Secrets


@pytest.mark.parametrize(
    ("secret", "key_type", "length"),
    [
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", KeyType.HMAC, 24),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwBr", KeyType.HMAC, 25),
        ("whsec_" + base64.b64encode(bytes(64)).decode(), KeyType.HMAC, 64),
        ("whsec_" + base64.b64encode(bytes(100)).decode(), KeyType.HMAC, 100),
        ("whpk_" + base64.b64encode(PUBLIC).decode(), KeyType.ED25519_PUBLIC, 32),
        ("whpk_" + base64.b64encode(PUBLIC).decode().rstrip("="), KeyType.ED25519_PUBLIC, 32),
        ("whsk_" + base64.b64encode(SEED).decode(), KeyType.ED25519_PRIVATE, 32),
        ("whsk_" + base64.b64encode(SEED + PUBLIC).decode(), KeyType.ED25519_PRIVATE, 32),
    ],
)
def test_a_secret_is_read_by_its_prefix_padded_or_not(secret: str, key_type: KeyType, length: int) -> None:
    key = read_secret(secret)
    assert (key.type, len(key.material)) == (key_type, length)


BARE = base64.b64encode(b"field-case-secret-0123456").decode().rstrip("=")


@pytest.mark.parametrize(
    ("secret", "hint"),
    [
        ("", "empty"),
        (f"v1,whsec_{BARE}", "version tag"),
        (f"v1a,whpk_{BARE}", "version tag"),
        (f'"whsec_{BARE}"', "quotes"),
        (f"'whsec_{BARE}'", "quotes"),
        (f'whsec_{BARE}"', "no quotes"),
        (f"whsec_{BARE}\n", "no white space"),
        (f" whsec_{BARE}", "white space"),
        (f"whsec_{BARE[:8]} {BARE[8:]}", "no white space"),
        (BARE, "unknown prefix"),
        (f"WHSEC_{BARE}", "unknown prefix"),
        (f"whsec_{BARE[:-1]}é", "base64"),
        (f"whsec_{BARE}===", "base64"),
        (f"whsec_{BARE[:-1]}", "base64"),
        (f"whsec_-{BARE[1:]}", "base64"),
        (f"whsec_{BARE[:30]}", "24 bytes"),
        ("whsec_", "24 bytes"),
        (f"whpk_{BARE}", "32 bytes"),
        (f"whsk_{BARE}", "32 bytes"),
        ("whsk_" + base64.b64encode(SEED + SEED).decode(), "public key"),
    ],
)
def test_a_secret_pasted_wrong_is_refused_with_the_expected_shape_and_is_not_shown(secret: str, hint: str) -> None:
    with pytest.raises(SecretInvalid) as caught:
        read_secret(secret)
    message = str(caught.value)
    assert hint in message
    assert BARE[:8] not in message
    assert "wh" in message


@given(st.sampled_from(["", "whsec_", "whpk_", "whsk_"]), st.text(alphabet=st.characters(exclude_categories=[])))
def test_any_text_is_a_key_or_a_refused_secret(prefix: str, rest: str) -> None:
    try:
        key = read_secret(prefix + rest)
    except SecretInvalid:
        return
    assert len(key.material) >= 24


@pytest.mark.parametrize("key", [KEY, PUBLIC_KEY, PRIVATE_KEY])
def test_a_key_does_not_show_itself(key: Key) -> None:
    shown = f"{key} {key!r}"
    assert repr(key.material)[2:-1] not in shown
    assert base64.b64encode(key.material).decode() not in shown


def test_signing_needs_a_key_that_can_sign() -> None:
    for keys in ([], [PUBLIC_KEY], [KEY, PUBLIC_KEY]):
        with pytest.raises(SecretInvalid):
            sign_standard(BODY, event_id="evt_1", timestamp_seconds=SECONDS, keys=keys)

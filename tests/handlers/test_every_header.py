"""Each header of a webhook delivery, in each scheme that stands: taken away, doubled, and given in every wrong shape.

All of it is written by whoever sent it, before anything is proven. Each refusal looks like every other, and leaves
nothing. A new scheme is added to `SCHEMES` or `DECLARED` below with how it signs.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from reconcile import signatures
from tests.handlers.ground import (
    NOON,
    SECRET,
    Answer,
    Ground,
    event,
    exchange,
    mac,
    provider,
    request_bytes,
    running,
    without_date,
)

BODY: Final = event("batch_1")
STAMP: Final = str(NOON // 1000)
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
PRIVATE: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC: Final = "whpk_" + base64.b64encode(PRIVATE.public_key().public_bytes_raw()).decode()
#: Header names and raw values, in order; a list, since a name may come twice.
Given = list[tuple[str, bytes]]


def by_hmac(event_id: str, stamp: str) -> str:
    return "v1," + mac(BODY, event_id, stamp)


def by_ed25519(event_id: str, stamp: str) -> str:
    over = f"{event_id}.{stamp}.".encode() + BODY
    return "v1a," + base64.b64encode(PRIVATE.sign(over)).decode()


#: Each scheme that stands: the receiver's secret, and a signature by the standard's own words.
SCHEMES: Final[dict[str, tuple[str, Callable[[str, str], str]]]] = {
    "v1": (SECRET, by_hmac),
    "v1a": (PUBLIC, by_ed25519),
}
#: What any header may hold that is not what it should be.
WRONG: Final[dict[str, bytes]] = {
    "empty": b"",
    "spaces": b"   ",
    "garbage": b"garbage",
    "latin-1": b"\xe9\xff",
    "UTF-8": "ключ".encode(),
    "other digits": "١٧٩٥٩٥٣٦٠٠".encode(),
    "wide digits": "１７９５９５３６００".encode(),
    "quotes": b'"%s"',
    "comma": b",",
    "commas": b",,,,",
    "template": b"{0}%s${jndi:x}",
    "tab": b"a\tb",
    "10 KiB": b"x" * 10_240,
    "most": b"x" * 8_000,
}
#: What a timestamp may be written as and is none, though it is signed so.
NO_TIME: Final = [
    f"+{STAMP}",
    f"-{STAMP}",
    f"{STAMP}.0",
    f"{STAMP}e0",
    f"0x{int(STAMP):x}",
    f"{STAMP[:4]}_{STAMP[4:]}",
    f"{STAMP}000",
    "9" * 12,
    "9" * 13,
    "9" * 5_000,
    "0",
    "nan",
    "inf",
    "2026-11-29T12:00:00Z",
]


def good(scheme: str, *, event_id: str = "msg_1", stamp: str = STAMP) -> Given:
    _, sign = SCHEMES[scheme]
    return [(ID, event_id.encode()), (TIMESTAMP, stamp.encode()), (SIGNATURE, sign(event_id, stamp).encode())]


def with_value(given: Given, name: str, value: bytes) -> Given:
    return [(each, value if each == name else was) for each, was in given]


def variants(scheme: str, name: str) -> list[tuple[str, Given]]:
    """The delivery with this header wrong, in all ways."""
    given = good(scheme)
    (value,) = [was for each, was in given if each == name]
    found = [(why, with_value(given, name, wrong)) for why, wrong in WRONG.items()]
    found.append(("absent", [(each, was) for each, was in given if each != name]))
    found.append(("doubled", [*given, (name, value)]))
    found.append(("doubled, other case", [*given, (name.upper(), value)]))
    found.append(("doubled, other first", [(name, b"garbage"), *given]))
    found.append(("doubled, empty", [*given, (name, b"")]))
    found.append(("joined", with_value(given, name, value + b"," + value)))
    found.append(("a name that is only like it", [(f"{each}-" if each == name else each, was) for each, was in given]))
    if name == SIGNATURE:
        bare = value.partition(b",")[2]
        other = b"v1," if scheme == "v1a" else b"v1a,"
        found += [
            (f"signature {n}", with_value(given, name, wrong))
            for n, wrong in enumerate(
                [
                    bare,
                    b"," + bare,
                    b"v1",
                    b"v1,",
                    b"v1a,",
                    b"v2," + bare,
                    other + bare,
                    b"V1," + bare,
                    b"v1 ," + bare,
                    b"v1;" + bare,
                    b"v1,," + bare,
                    value[:-1],
                    value[:-4],
                    value[:6] + bytes([value[6] ^ 1]) + value[7:],
                    value + b"AAAA",
                    value + b"!",
                    value.swapcase(),
                    b"v1,\xff" + bare,
                    b"v1,!!!! v1,@@@@",
                    b" ".join([b"v1," + b"A" * 44] * 150),
                    b"v1," * 2_000,
                    value.replace(b"v1", "v١".encode()),
                ]
            )
        ]
    if name == TIMESTAMP:
        found += [(f"signed, {stamp[:24]}", good(scheme, stamp=stamp)) for stamp in NO_TIME]
        found += [("301 s old", good(scheme, stamp=str(NOON // 1000 - 301)))]
        found += [("301 s ahead", good(scheme, stamp=str(NOON // 1000 + 301)))]
    if name == ID:
        most = signatures.MAX_EVENT_ID_LENGTH
        found += [(f"signed, {len(e)} {e[:9]}", good(scheme, event_id=e)) for e in ("x" * (most + 1), "é", "a\u2028b")]
        found += [("another", with_value(given, name, b"msg_2")), ("with a dot", with_value(given, name, b"msg_1."))]
    return found


async def deliver(ground: Ground, given: Given, *, to: str = "openai") -> Answer:
    headers: list[tuple[str, str | bytes]] = [("Content-Length", str(len(BODY))), *given]
    return await exchange(ground.public_port, request_bytes("POST", f"/webhooks/{to}", headers, BODY))


async def assert_each_is_refused_alike(ground: Ground, found: list[tuple[str, Given]], *, to: str = "openai") -> None:
    """S3, S4, S13: one answer for all, byte for byte; what the HTTP parser itself refuses is a 400. Nothing is kept."""
    await ground.operation("observing", "batch_1")
    before = ground.everything()
    answers: set[bytes] = set()
    for why, given in found:
        answer = await deliver(ground, given, to=to)
        if answer.status == 400:
            assert max(len(value) for _, value in given) > 8_190, why
            continue
        assert answer.status == 401, (why, answer)
        assert answer.body == b"", why
        answers.add(without_date(answer.raw))
    assert len(answers) == 1
    assert ground.everything() == before
    assert not [entry for entry in ground.logged if entry["event"] == "webhook_failed"]


@pytest.fixture(params=sorted(SCHEMES))
async def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def ground(tmp_path: Path, scheme: str) -> AsyncIterator[Ground]:
    async with running(tmp_path / "state", secrets=(SCHEMES[scheme][0],)) as ground:
        yield ground


async def test_the_delivery_itself_is_taken_in_each_scheme(ground: Ground, scheme: str) -> None:
    """Else each refusal below would prove nothing."""
    assert (await deliver(ground, good(scheme))).status == 200
    assert ground.events() == [("unmatched", 0)]


@pytest.mark.parametrize("name", [ID, TIMESTAMP, SIGNATURE])
async def test_a_header_in_a_wrong_shape_is_a_401_like_any_other(ground: Ground, scheme: str, name: str) -> None:
    await assert_each_is_refused_alike(ground, variants(scheme, name))


async def test_no_two_headers_that_are_wrong_together_are_told_apart(ground: Ground, scheme: str) -> None:
    before = ground.everything()
    answers = set()
    for one in (ID, TIMESTAMP, SIGNATURE):
        for other in (ID, TIMESTAMP, SIGNATURE):
            for wrong in (b"", b"garbage", b"\xff"):
                given = with_value(with_value(good(scheme), one, wrong), other, wrong)
                answer = await deliver(ground, given)
                assert answer.status == 401
                answers.add(without_date(answer.raw))
    answers.add(without_date((await deliver(ground, [])).raw))
    assert len(answers) == 1
    assert ground.everything() == before


async def test_a_good_signature_among_others_is_taken(ground: Ground, scheme: str) -> None:
    """A rotation: the receiver looks for one that it knows."""
    (*rest, (name, value)) = good(scheme)
    given = [*rest, (name, b"v2,x v1,AAAA v1a,AAAA " + value + b" v1,!!")]
    assert (await deliver(ground, given)).status == 200


# ---- the schemes of declared providers -----------------------------------------------------------------------------

#: A secret that is used as it is written, and a value that both sides know.
RAW: Final = "a secret of the sender's, 32 b"
SHARED: Final = "a shared value, long enough 0123"
SIGNED, STAMPED, NAMED = "x-signature", "x-timestamp", "x-delivery"


@dataclass(frozen=True)
class Declared:
    """How one declared API proves its deliveries, by its own words."""

    webhook: dict[str, str]
    proof: dict[str, Any]
    secret: str
    #: The bytes that prove what is signed.
    sign: Callable[[bytes], bytes] = field(repr=False)

    @property
    def has_time(self) -> bool:
        return "timestamp" in self.webhook

    @property
    def is_shared(self) -> bool:
        return self.webhook["scheme"] == "shared-header"

    def spelled(self, signature: bytes) -> bytes:
        if self.is_shared:
            return signature
        return base64.b64encode(signature) if self.webhook.get("encoding") == "base64" else signature.hex().encode()

    def good(self, *, stamp: str = STAMP) -> Given:
        over = f"{stamp}.".encode() + BODY if self.has_time else BODY
        given = [(NAMED, b"delivery_1"), (SIGNED, self.spelled(self.sign(over)))]
        return [*given, (STAMPED, stamp.encode())] if self.has_time else given

    @property
    def provider(self) -> dict[str, Any]:
        return {
            "kind": "http",
            "base_url": "http://127.0.0.1:9",
            "create": {"request": "POST /jobs", "idempotency": "none", "job_id": "$.id"},
            "status": {"request": "GET /jobs/{job_id}", "state": "$.state", "pending": ["open"], "succeeded": ["ok"]},
            "webhook": {
                "signature": f"header:{SIGNED}", "event_id": f"header:{NAMED}", "job_id": "$.data.id", **self.webhook
            },
            **self.proof,
        }  # fmt: skip


def _declared() -> Iterator[tuple[str, Declared]]:
    secrets, public = {"webhook_secrets": [{"env": "PROOF"}]}, PRIVATE.public_key().public_bytes_raw().hex()
    for scheme, secret, sign in (
        ("hmac-sha256", RAW, lambda over: hmac.digest(RAW.encode(), over, hashlib.sha256)),
        ("ed25519", public, PRIVATE.sign),
    ):
        for encoding in ("hex", "base64"):
            webhook = {"scheme": scheme, "encoding": encoding}
            yield f"{scheme} {encoding}", Declared(webhook, secrets, secret, sign)
            timed = {**webhook, "timestamp": f"header:{STAMPED}"}
            yield f"{scheme} {encoding} timestamp", Declared(timed, secrets, secret, sign)
    shared = {"webhook_token": {"env": "PROOF", "prefix": "Bearer "}}
    yield "shared-header", Declared({"scheme": "shared-header"}, shared, SHARED, lambda _: f"Bearer {SHARED}".encode())


DECLARED: Final = dict(_declared())


@pytest.fixture(params=list(DECLARED.values()), ids=list(DECLARED))
async def said(request: pytest.FixtureRequest) -> Declared:
    declared: Declared = request.param
    return declared


@pytest.fixture
async def stage(tmp_path: Path, said: Declared) -> AsyncIterator[Ground]:
    providers = {"openai": provider(), "declared": said.provider}
    async with running(tmp_path / "state", providers=providers, environ={"PROOF": said.secret}) as ground:
        yield ground


def declared_variants(said: Declared, name: str) -> list[tuple[str, Given]]:
    """The delivery with this header wrong, in all ways."""
    given = said.good()
    (value,) = [was for each, was in given if each == name]
    found = [(why, with_value(given, name, wrong)) for why, wrong in WRONG.items()]
    found.append(("absent", [(each, was) for each, was in given if each != name]))
    found.append(("doubled", [*given, (name, value)]))
    found.append(("doubled, other case", [*given, (name.upper(), value)]))
    found.append(("doubled, other first", [(name, b"garbage"), *given]))
    found.append(("doubled, empty", [*given, (name, b"")]))
    found.append(("a name that is only like it", [(f"{each}-" if each == name else each, was) for each, was in given]))
    if name == STAMPED:
        found += [(f"signed, {stamp[:24]}", said.good(stamp=stamp)) for stamp in NO_TIME]
        found += [(f"{by} s", said.good(stamp=str(NOON // 1000 + by))) for by in (-301, 301)]
        found += [("another", with_value(given, name, str(NOON // 1000 + 1).encode()))]
        found += [("joined", with_value(given, name, value + b"," + value))]
        return found
    wrong = [
        value[:-1], value[1:], value[:-4], value + b"0", value + b"AAAA", value + b"!", b"=" + value, b"v1=" + value,
        b"v1," + value[::-1], b"sha1=" + value, b"SHA256=" + value, b"sha256=sha256=" + value, b"sha256:" + value,
        b"'" + value + b"'", value.replace(value[4:5], b"\xff"), b"0x" + value, bytes(reversed(value)), b"00" * 32,
        re.sub(rb"[0-9]", lambda digit: chr(0x0660 + int(digit[0])).encode(), value, count=1),
        re.sub(rb"[0-9]", lambda digit: chr(0xFF10 + int(digit[0])).encode(), value, count=1),
        value.decode().translate({code: code + 0xFEE0 for code in range(0x21, 0x7F)}).encode(),
        b",".join([b"00" * 32] * 40 + [value])[-8_000:], b"AAAA " * 1_000,
    ]  # fmt: skip
    if said.is_shared:
        wrong += [SHARED.encode(), value.lower(), value.upper(), value + b"," + value, b"Bearer  " + SHARED.encode()]
    else:
        raw = said.sign(BODY)  # in a scheme with a time the body alone is not what is signed
        other = base64.b64encode(raw) if said.webhook["encoding"] == "hex" else raw.hex().encode()
        wrong += [
            other,
            said.spelled(raw[:-1]),
            said.spelled(raw + b"\0"),
            said.spelled(b""),
            value[:8] + b" " + value[8:],
        ]
        wrong += [said.spelled(raw)] if said.has_time else [said.spelled(said.sign(STAMP.encode() + b"." + BODY))]
    return [*found, *((f"signature {n}", with_value(given, name, each)) for n, each in enumerate(wrong))]


async def test_the_delivery_itself_is_taken_in_each_declared_scheme(stage: Ground, said: Declared) -> None:
    """Else each refusal below would prove nothing; with what several senders write around a signature."""
    assert (await deliver(stage, said.good(), to="declared")).status == 200
    assert stage.events() == [("unmatched", 0)]
    (value,) = [was for name, was in said.good() if name == SIGNED]
    around = [] if said.is_shared else [b"sha256=" + value, b"00ff, " + value, b"nonsense " + value + b" AAAA"]
    for each in around:
        assert (await deliver(stage, with_value(said.good(), SIGNED, each), to="declared")).status == 200, each
    assert stage.events() == [("unmatched", len(around))]


async def test_a_header_of_a_declared_scheme_in_a_wrong_shape_is_a_401_like_any_other(
    stage: Ground, said: Declared
) -> None:
    names = (SIGNED, STAMPED) if said.has_time else (SIGNED,)
    await assert_each_is_refused_alike(
        stage, [v for name in names for v in declared_variants(said, name)], to="declared"
    )


async def test_a_delivery_that_somebody_recorded_is_one_event_under_whatever_id_it_comes(
    stage: Ground, said: Declared
) -> None:
    """N17, S12: what is not signed tells nothing apart; nor is an id taken away from a delivery that is yet to come."""
    for n in range(20):
        given = with_value(said.good(), NAMED, f"delivery_{n}".encode())
        assert (await deliver(stage, given, to="declared")).status == 200
    assert stage.events() == [("unmatched", 19)]


async def test_an_id_that_nothing_signs_refuses_no_delivery_and_breaks_nothing(stage: Ground, said: Declared) -> None:
    """What cannot be an id is none: the same body is one event then, however often it comes."""
    for why, given in declared_variants(said, NAMED)[: len(WRONG) + 6]:
        answer = await deliver(stage, given, to="declared")
        assert answer.status in (200, 400), (why, answer)
        assert answer.status == 200 or max(len(value) for _, value in given) > 8_190, why
    assert not [entry for entry in stage.logged if entry["event"] == "webhook_failed"]
    assert all(len(row[0]) <= signatures.MAX_EVENT_ID_LENGTH for row in stage.rows("SELECT event_id FROM events"))

"""The public listener: what is proven is kept and rings, what is not leaves no trace but a reason in the log.

Each delivery of the fixtures goes to a store of its own; the attacks and field cases follow by their numbers.
"""

import asyncio
import gzip
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from handlers import webhooks
from reconcile.evidence import Accepted, JobGone, JobRead
from reconcile.model import Observation
from reconcile.registry import provider_for
from reconcile.store.writer import Hooks
from tests.handlers.ground import (
    EXPECT,
    FIXTURES,
    NOON,
    OTHER_SECRET,
    SECRET,
    Answer,
    Ground,
    HandClock,
    event,
    exchange,
    mac,
    provider,
    read_answer,
    request_bytes,
    running,
    signed,
    split,
    without_date,
)

JOB = "batch_fx6a1c0e5d9b7f4281"
DELIVERIES = sorted(name for name in EXPECT["deliveries"] if name.split("/")[0] in ("openai", "standard-webhooks"))
PENDING = JobRead(Observation("in_progress", remote_job_id=JOB, remote_status="in_progress"))


def fixture(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FIXTURES / name).read_text(encoding="utf-8"))
    return document


def key_sets(document: dict[str, Any]) -> list[tuple[str, ...]]:
    """The keys a receiver may have: all of them, and where a secret and a public key are given, each alone."""
    secrets = tuple(document.get("secrets") or [document[n] for n in ("secret",) if n in document])
    public = tuple(document[n] for n in ("public_key",) if n in document)
    return [secrets + public, *([secrets, public] if secrets and public else [])]


CASES = [
    pytest.param(name, keys, id=f"{name}-{n}") for name in DELIVERIES for n, keys in enumerate(key_sets(fixture(name)))
]


async def deliver(ground: Ground, document: dict[str, Any]) -> Answer:
    """The delivery as the file has it, at the file's time."""
    ground.clock.set(document["clock"] * 1000)
    return await ground.hook(document["body"].encode("utf-8"), document["headers"])


# ---- the fixtures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "keys"), CASES)
async def test_each_delivery_of_the_fixtures_ends_as_it_should(
    tmp_path: Path, name: str, keys: tuple[str, ...]
) -> None:
    expected, document = EXPECT["deliveries"][name], fixture(name)
    is_ours = expected["kind"] in ("openai_batch", "any with the standard scheme")
    then = expected["then"] if is_ours else expected.get("without_the_job", expected["then"])
    clock = HandClock(document["clock"] * 1000 - 1_000)
    async with running(tmp_path / "state", secrets=keys, clock=clock) as ground:
        job = expected["job"] if is_ours else None
        operation = await ground.operation(job["state"], job["remote_job_id"]) if job else None
        for earlier in expected["before"]:
            assert (await deliver(ground, fixture(earlier))).status == 200
            await ground.act(PENDING)
        # Far from any due time of its own, so that only a ring can make the job due.
        planned = ground.due_at(operation) if operation else 0
        history = await ground.daemon.store.history(operation) if operation else []
        kept = ground.events()

        answer = await deliver(ground, document)

        assert answer.status == expected["answer"]
        assert answer.body == b""
        now = ground.clock.now()
        new = ground.events()[len(kept) :]
        match then:
            case "rings":
                assert new == [("rings", 0)]
                assert operation is not None
                assert ground.due_at(operation) == now
            case "contradiction":
                assert new == [("contradiction", 0)]
                assert operation is not None
                assert ground.due_at(operation) == now
                assert [row.kind for row in await ground.daemon.store.history(operation)][len(history) :] == [
                    "contradiction"
                ]
            case "duplicate":
                assert new == []
                assert ground.events() == [(kept[0][0], kept[0][1] + 1)]
                assert operation is not None
                assert ground.due_at(operation) == planned
            case "kept_unmatched":
                assert new == [("unmatched", 0)]
            case "kept_unreadable":
                assert new == [("unreadable", 0)]
            case "refused":
                assert new == []
                assert ground.reasons() == [expected["reason"]]
                assert ground.meters.total("webhooks", answer="refused", reason=expected["reason"]) == 1
                assert operation is None or ground.due_at(operation) == planned
            case _:
                pytest.fail(f"{then} is not known here")
        if new:
            body = document["body"].encode("utf-8")
            assert ground.rows("SELECT body FROM events ORDER BY key DESC LIMIT 1") == [(body,)]
        if operation is not None:
            assert (await ground.row(operation)).state == "observing"


@pytest.mark.parametrize(
    "name", [n for n, story in EXPECT["deliveries_in_one_store"].items() if story["kind"] == "openai_batch"]
)
async def test_deliveries_into_one_store(tmp_path: Path, name: str) -> None:
    story = EXPECT["deliveries_in_one_store"][name]
    state, job = story["job"]["state"], story["job"]["remote_job_id"]
    clock = HandClock(fixture(story["deliver"][0])["clock"] * 1000 - 1_000)
    keys = key_sets(fixture(story["deliver"][0]))[0]
    async with running(tmp_path / "state", secrets=keys, clock=clock) as ground:
        operation = await ground.operation(state, job)
        for delivery, then in zip(story["deliver"], story["then"], strict=True):
            before, history = ground.events(), await ground.daemon.store.history(operation)
            assert (await deliver(ground, fixture(delivery))).status == 200
            new = ground.events()[len(before) :]
            told = [row.kind for row in await ground.daemon.store.history(operation)][len(history) :]
            match then:
                case "rings":
                    assert new == [("rings", 0)]
                    assert ground.due_at(operation) == ground.clock.now()
                case "duplicate":
                    assert new == []
                    assert ground.events()[0][1] == 1
                case "kept":
                    assert [kind for kind, _ in new] == ["kept"]
                    assert told == []
                case "contradiction":
                    assert len(new) == 1
                    assert told == ["contradiction"]
                case "kept_unmatched":
                    assert new == [("unmatched", 0)]
            assert (await ground.row(operation)).state == state


async def test_an_event_kept_for_an_unknown_job_rings_in_the_transaction_that_learns_the_id(tmp_path: Path) -> None:
    document = fixture("openai/webhook_batch_completed.json")
    clock = HandClock(document["clock"] * 1000 - 1_000)
    async with running(tmp_path / "state", secrets=key_sets(document)[0], clock=clock) as ground:
        operation = await ground.operation("create_unknown", None)
        assert (await deliver(ground, document)).status == 200
        assert ground.events() == [("unmatched", 0)]

        seen = Observation("in_progress", remote_job_id=JOB)
        await ground.apply(operation, Accepted(seen, by_lookup=True))

        assert (await ground.row(operation)).remote_job_id == JOB
        assert ground.due_at(operation) == ground.clock.now()
        assert ground.events() == [("rings", 0)]


# ---- a job that is gone when its end is to be read -------------------------------------------------------------


async def gone_for_a_whole_run(ground: Ground, operation: str) -> str:
    """Five reads over more than two minutes, none of which knows the job; the state they lead to."""
    for _ in range(5):
        ground.clock.advance(31_000)
        await ground.apply(operation, JobGone())
    return str((await ground.row(operation)).state)


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (["completed"], "result_collecting"),
        (["expired"], "result_collecting"),
        (["failed"], "failed"),
        (["completed", "in_progress"], "result_collecting"),
        (["cancelled", "completed"], "result_collecting"),
        (["in_progress"], "observation_failed"),
        ([], "observation_failed"),
    ],
)
async def test_a_job_that_is_gone_after_an_event_told_its_end_is_no_question(
    ground: Ground, words: list[str], state: str
) -> None:
    """The event is the last that anybody will hear of it: its newest end is taken, and what it left is collected."""
    operation, other = await ground.operation("observing", JOB), await ground.operation("observing", "batch_other")
    for number, word in enumerate(words):
        body = event(JOB, word)
        assert (await ground.hook(body, signed(body, event_id=f"msg_{number}"))).status == 200

    assert await gone_for_a_whole_run(ground, operation) == state
    verdict = (await ground.row(operation)).verdict
    ends = [word for word in words if word != "in_progress"]
    assert (verdict.word if verdict else None) == (ends[-1] if ends else None)
    assert await gone_for_a_whole_run(ground, other) == "observation_failed"


async def test_an_end_whose_event_id_came_with_two_bodies_is_not_believed(ground: Ground) -> None:
    """Which of the two is true nobody can tell."""
    operation = await ground.operation("observing", JOB)
    for body in (event(JOB, "in_progress"), event(JOB, "completed")):
        assert (await ground.hook(body, signed(body))).status == 200
    assert [kind for kind, _ in ground.events()] == ["rings", "contradiction"]

    assert await gone_for_a_whole_run(ground, operation) == "observation_failed"


# ---- refusals look alike (S13) ---------------------------------------------------------------------------------


def refused_requests() -> list[tuple[str, bytes]]:
    """One raw request for each way of not being proven."""
    body = event(JOB)
    good = signed(body)

    def raw(*, body: bytes = body, drop: str = "", double: str = "", **changed: str) -> bytes:
        headers = {**good, **{name.replace("_", "-"): value for name, value in changed.items()}}
        lines = [(n, v) for n, v in headers.items() if n != drop]
        lines += [(n, v) for n, v in headers.items() if n == double]
        return request_bytes("POST", "/webhooks/openai", [*lines, ("Content-Length", str(len(body)))], body)

    old, new = NOON // 1000 - 301, NOON // 1000 + 301
    return [
        ("body changed", raw(body=body.replace(b"completed", b"cancelled"))),
        ("space added", raw(body=body + b" ")),
        ("no id", raw(drop="webhook-id")),
        ("no time", raw(drop="webhook-timestamp")),
        ("no signature", raw(drop="webhook-signature")),
        ("two ids", raw(double="webhook-id")),
        ("two times", raw(double="webhook-timestamp")),
        ("two signatures", raw(double="webhook-signature")),
        ("old", raw(webhook_timestamp=str(old), webhook_signature="v1," + mac(body, "msg_1", str(old)))),
        ("new", raw(webhook_timestamp=str(new), webhook_signature="v1," + mac(body, "msg_1", str(new)))),
        ("no time at all", raw(webhook_timestamp="hello")),
        ("another secret", raw(webhook_signature=signed(body, secret=OTHER_SECRET)["webhook-signature"])),
        ("empty signature", raw(webhook_signature="")),
        ("another version", raw(webhook_signature=good["webhook-signature"].replace("v1,", "v9,"))),
        ("another id", raw(webhook_id="msg_2")),
    ]


async def test_every_401_is_the_same_bytes(ground: Ground) -> None:
    """S13: the reason stands in the log and the meters only."""
    await ground.operation("observing", JOB)
    seen: dict[bytes, list[str]] = {}
    for why, request in refused_requests():
        answer = await exchange(ground.public_port, request)
        assert answer.status == 401, why
        assert answer.body == b"", why
        seen.setdefault(without_date(answer.raw), []).append(why)
    assert len(seen) == 1, seen
    assert ground.events() == []
    reasons = ground.reasons()
    assert len(reasons) == len(refused_requests())
    assert set(reasons) == {
        "signature",
        "missing-header",
        "doubled-header",
        "timestamp-too-old",
        "timestamp-too-new",
        "timestamp-invalid",
    }
    assert ground.meters.total("webhooks", provider="openai", answer="refused") == len(reasons)


async def test_each_delivery_that_was_kept_stands_in_the_log_once(ground: Ground) -> None:
    bodies = {f"evt-{n}": event("batch_of_nobody", serial=n) for n in range(55)}
    hooks = [ground.hook(body, signed(body, event_id=name)) for name, body in bodies.items()]
    first = bodies["evt-0"]
    await asyncio.gather(*hooks)
    await ground.hook(first, signed(first, event_id="evt-0"))
    told = [entry for entry in ground.logged if entry["event"] == "webhooks_received"]
    assert {entry["provider"] for entry in told} == {"openai"}
    new = [name for entry in told if entry["answer"] == "new" for name in entry["event_ids"]]
    assert sorted(new) == sorted(bodies)
    assert [entry["event_ids"] for entry in told if entry["answer"] == "duplicate"] == [["evt-0"]]


async def test_no_refusal_logs_the_body_or_the_signature(ground: Ground) -> None:
    body = event("batch_whose_name_must_not_be_logged")
    await ground.hook(body, signed(body, secret=OTHER_SECRET))
    told = repr(ground.logged)
    assert "must_not_be_logged" not in told
    assert "v1," not in told


# ---- S1 to S7: forging -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        lambda body: body.replace(b"completed", b"completee"),
        lambda body: body + b" ",
        lambda body: body + b"\n",
        lambda body: b" " + body,
        lambda body: json.dumps(json.loads(body), separators=(",", ":")).encode(),
        lambda _: b"",
    ],
)
async def test_a_signature_holds_for_its_own_bytes_only(ground: Ground, changed: Any) -> None:
    """S1."""
    body = event(JOB)
    answer = await ground.hook(changed(body), signed(body))
    assert answer.status == 401
    assert ground.events() == []


@pytest.mark.parametrize(("seconds", "status"), [(-301, 401), (301, 401), (-300, 200), (300, 200), (-299, 200)])
async def test_a_timestamp_is_taken_300_seconds_either_way(ground: Ground, seconds: int, status: int) -> None:
    """S2."""
    body = event(JOB)
    answer = await ground.hook(body, signed(body, at_ms=NOON + seconds * 1000))
    assert answer.status == status
    assert len(ground.events()) == (status == 200)


@pytest.mark.parametrize(
    "stamp",
    [
        f" {NOON // 1000}",
        f"{NOON // 1000} ",
        f"+{NOON // 1000}",
        f"-{NOON // 1000}",
        "1_795_953_600",
        "١٧٩٥٩٥٣٦٠٠",
        "１７９５９５３６００",
        f"{NOON // 1000}.0",
        "0x6b0c1a00",
        "1" * 400,
        "NaN",
        "",
    ],
)
async def test_a_timestamp_that_is_no_plain_number_is_refused(ground: Ground, stamp: str) -> None:
    """S3: signed over exactly the odd text, so that only the reading of it can refuse it."""
    body = event(JOB)
    headers = [
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", stamp),
        ("webhook-signature", "v1," + mac(body, "msg_1", stamp)),
        ("Content-Length", str(len(body))),
    ]
    answer = await exchange(ground.public_port, request_bytes("POST", "/webhooks/openai", headers, body))
    assert answer.status in (400, 401)  # 400 where the bytes are no HTTP
    assert ground.events() == []


@pytest.mark.parametrize(
    "signature",
    [
        b"v1,\xff\xfe\xfd",
        "v1,ünïcödé".encode(),
        b"v1,not base64!",
        b"v1,====",
        b"v1,AAAA\x0bAAAA",
        b"v1",
        b"v1,",
        b",,",
        b",",
        b"",
        b" , , ",
        b"v1=abc",
        b"," * 7_000,
        b"v1, " * 1_700,
        b"v1,AA== " * 900,
    ],
)
async def test_a_broken_signature_header_is_a_401(ground: Ground, signature: bytes) -> None:
    """S4, C21."""
    body = event(JOB)
    headers = [
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", str(NOON // 1000)),
        ("webhook-signature", signature),
        ("Content-Length", str(len(body))),
    ]
    answer = await exchange(ground.public_port, request_bytes("POST", "/webhooks/openai", headers, body))  # type: ignore[arg-type]
    assert answer.status in (400, 401)
    assert ground.events() == []


async def test_ten_thousand_entries_are_refused(ground: Ground) -> None:
    """S4, C21: beyond what a header may hold, the parser refuses before any handler."""
    body = event(JOB)
    for value in ("," * 10_000, "v1,AA== " * 10_000):
        headers = [*signed(body).items(), ("webhook-signature", value), ("Content-Length", str(len(body)))]
        answer = await exchange(ground.public_port, request_bytes("POST", "/webhooks/openai", headers, body))
        assert answer.status in (400, 401)
    assert ground.events() == []


async def test_one_right_signature_among_others_is_enough(ground: Ground) -> None:
    """S5, C18: wrong ones and unknown versions beside it do not count, wherever they stand."""
    body = event(JOB)
    right = signed(body)["webhook-signature"]
    wrong = "v1," + mac(b"other", "msg_1", "1")
    for n, value in enumerate((f"{wrong} v1a,AAAA {right}", f"{right} {wrong}", f"v9,x garbage {right} v1 ,,")):
        headers = {**signed(body), "webhook-id": f"msg_{n}"}
        own = signed(body, event_id=f"msg_{n}")["webhook-signature"]
        answer = await ground.hook(body, {**headers, "webhook-signature": value.replace(right, own)})
        assert answer.status == 200, value


@pytest.mark.parametrize("version", ["v1", "v1a", "none", "HS256"])
async def test_a_public_key_is_no_secret(tmp_path: Path, version: str) -> None:
    """S6: an HMAC made with the public key's bytes proves nothing."""
    key = fixture("standard-webhooks/v1a_valid.json")["public_key"]
    body = event(JOB)
    forged = mac(body, "msg_1", str(NOON // 1000), key.replace("whpk_", "whsec_"))
    async with running(tmp_path / "state", secrets=[key]) as ground:
        answer = await ground.hook(body, {**signed(body), "webhook-signature": f"{version},{forged}"})
        assert answer.status == 401
        assert ground.events() == []


async def test_the_path_picks_the_provider_and_the_provider_its_keys(tmp_path: Path) -> None:
    """S7: another account's valid delivery proves nothing here."""
    providers = {"openai": provider(), "openai-eu": provider(name="EU")}
    async with running(tmp_path / "state", providers=providers, environ={"EU_0": OTHER_SECRET}) as ground:
        body = event(JOB)
        assert (await ground.hook(body, signed(body), provider="openai-eu")).status == 401
        assert (await ground.hook(body, signed(body, secret=OTHER_SECRET))).status == 401
        assert ground.events() == []
        assert (await ground.hook(body, signed(body))).status == 200
        assert (await ground.hook(body, signed(body, secret=OTHER_SECRET), provider="openai-eu")).status == 200
        assert ground.rows("SELECT provider FROM events ORDER BY key") == [("openai",), ("openai-eu",)]


async def test_a_rotated_secret_is_taken_while_it_is_configured(tmp_path: Path) -> None:
    """S11: both during the overlap; the old one no more after it was taken out."""
    body = event(JOB)
    async with running(tmp_path / "state", secrets=[SECRET, OTHER_SECRET]) as ground:
        assert (await ground.hook(body, signed(body))).status == 200
        assert (await ground.hook(body, signed(body, event_id="msg_2", secret=OTHER_SECRET))).status == 200
    async with running(tmp_path / "state", secrets=[OTHER_SECRET], seed=2) as ground:
        assert (await ground.hook(body, signed(body, event_id="msg_3"))).status == 401
        assert (await ground.hook(body, signed(body, event_id="msg_4", secret=OTHER_SECRET))).status == 200
        assert len(ground.events()) == 3


# ---- S12: replay -----------------------------------------------------------------------------------------------


async def test_a_replayed_delivery_has_one_effect_also_after_a_restart(tmp_path: Path) -> None:
    """S12: inside the window a duplicate, after it a refusal."""
    body = event(JOB)
    async with running(tmp_path / "state") as ground:
        operation = await ground.operation("observing", JOB)
        assert (await ground.hook(body, signed(body))).status == 200
        await ground.act(PENDING)
        planned = ground.due_at(operation)
        assert (await ground.hook(body, signed(body))).status == 200
        assert ground.events() == [("rings", 1)]
        assert ground.due_at(operation) == planned
    async with running(tmp_path / "state", clock=HandClock(NOON + 299_000), seed=2) as ground:
        assert (await ground.hook(body, signed(body))).status == 200
        assert ground.events() == [("rings", 2)]
        assert ground.due_at(operation) == planned
        ground.clock.advance(2_000)
        assert (await ground.hook(body, signed(body))).status == 401
        assert ground.events() == [("rings", 2)]


async def test_a_hundred_at_once_have_one_effect(ground: Ground) -> None:
    """F4: the same delivery, all at the same moment."""
    operation = await ground.operation("observing", JOB)
    body = event(JOB)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ground.hook(body, signed(body))) for _ in range(100)]
    assert {task.result().status for task in tasks} == {200}
    assert ground.events() == [("rings", 99)]
    assert ground.due_at(operation) == NOON
    assert ground.meters.total("webhooks", answer="new") == 1
    assert ground.meters.total("webhooks", answer="duplicate") == 99


# ---- S14: bodies that no parser should see ---------------------------------------------------------------------


@pytest.fixture
def read_bodies(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every body that reached the adapter."""
    seen: list[bytes] = []
    adapter: Any = type(provider_for("openai_batch"))
    original = adapter.read_webhook

    def spy(self: Any, body: bytes) -> Any:
        seen.append(body)
        return original(self, body)

    monkeypatch.setattr(adapter, "read_webhook", spy)
    return seen


async def test_nothing_is_parsed_before_it_is_proven(ground: Ground, read_bodies: list[bytes]) -> None:
    """S14: 64 KiB of brackets, unsigned."""
    for body in (b"[" * 65_536, b'{"a":' * 20_000, event(JOB)):
        answer = await ground.hook(body, signed(body, secret=OTHER_SECRET))
        assert answer.status == 401
    assert read_bodies == []
    assert ground.events() == []


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 65_536,
        b'{"type":"batch.completed","data":' + b'{"a":' * 500 + b"1" + b"}" * 501,
        b'{"type":"batch.completed","data":{"id":"b1"},"progress":NaN}',
        b'{"type":"batch.completed","data":{"id":"b1"},"n":1e999}',
        b'{"type":"batch.completed","data":{"id":"b1"},"n":' + b"9" * 5_000 + b"}",
        b'{"type":"batch.completed","type":"batch.failed","data":{"id":"b1"}}',
        b'{"type":"batch.completed","data":{"id":"\\ud800"}}',
        b'{"type":"batch.completed","data":{"id":"b\\u0000"}}',
        b'{"type":"batch.completed","data":{"id":17}}',
        b'{"type":"batch.completed","data":{"id":"' + b"x" * 10_000 + b'"}}',
        b'{"type":"batch.completed","data":{"id":"../../v1/files"}}'.replace(b"../../v1/files", b".."),
        b'{"type":"batch.completed"}',
        b'{"type":"batch.","data":{"id":"b1"}}',
        b'{"type":["batch.completed"],"data":{"id":"b1"}}',
        b'{"event":"PING","timestamp":"2026-01-01T00:00:00Z"}',
        b"",
        b"null",
        b"[]",
        b"true",
        b"\xff\xfe{}",
        b"payload=%7B%22kind%22%3A%22hello%22%7D",
    ],
)
async def test_what_is_proven_but_unreadable_is_kept_and_answered_200(ground: Ground, body: bytes) -> None:
    """S14, C22, C23: sending it again would not make it readable."""
    operation = await ground.operation("observing", JOB)
    planned = ground.due_at(operation)
    answer = await ground.hook(body, signed(body))
    assert answer.status == 200
    assert ground.events() == [("unreadable", 0)]
    assert ground.rows("SELECT body FROM events") == [(body,)]
    assert ground.due_at(operation) == planned
    assert [entry["event"] for entry in ground.logged if entry["log_level"] == "warning"] == ["webhook_unreadable"]


# ---- S15: the listener answers one thing -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "statuses"),
    [
        ("GET", "/webhooks/openai", {404, 405}),
        ("HEAD", "/webhooks/openai", {404, 405}),
        ("PUT", "/webhooks/openai", {404, 405}),
        ("DELETE", "/webhooks/openai", {404, 405}),
        ("OPTIONS", "/webhooks/openai", {404, 405}),
        ("GET", "/v1/operations", {404}),
        ("POST", "/v1/operations", {404}),
        ("GET", "/metrics", {404}),
        ("GET", "/healthz", {404}),
        ("GET", "/", {404}),
        ("POST", "/webhooks/nobody", {404}),
        ("POST", "/webhooks/", {404}),
        ("POST", "/webhooks", {404}),
        ("POST", "/webhooks/openai%2fx", {404}),
        ("POST", "/webhooks/a%2fb", {404}),
        ("POST", "/webhooks/../openai", {404}),
        ("POST", "/x/../webhooks/openai", {404}),
        ("POST", "/webhooks/../webhooks/openai", {404}),
        ("POST", "/webhooks/%2e%2e/webhooks/openai", {404}),
        ("POST", "/webhooks/{provider}", {404, 400}),
        ("POST", "/webhooks/.*", {404}),
        ("POST", "/webhooks/OPENAI", {404}),
        ("POST", "/webhooks/openai%00", {404}),
        ("POST", "/webhooks/openai%20", {404}),
        ("POST", "http://evil.example/webhooks/openai", {404}),
        ("POST", "https://evil.example/webhooks/openai", {404, 400}),
        ("POST", "http:/webhooks/openai", {404, 400}),
        ("OPTIONS", "*", {404, 400, 405}),
    ],
)
async def test_the_public_listener_answers_its_one_path_and_nothing_else(
    ground: Ground, method: str, target: str, statuses: set[int]
) -> None:
    """S15."""
    body = event(JOB)
    headers = [*signed(body).items(), ("Content-Length", str(len(body)))]
    answer = await exchange(ground.public_port, request_bytes(method, target, headers, body))
    assert answer.status in statuses
    assert ground.events() == []


async def test_the_local_listener_takes_no_webhooks(ground: Ground) -> None:
    """S15."""
    body = event(JOB)
    answer = await ground.api("POST", "/webhooks/openai", data=body, headers=signed(body))
    assert answer.status == 404
    assert ground.events() == []


async def test_a_provider_without_a_proof_has_no_webhook_path(tmp_path: Path) -> None:
    body = event(JOB)
    async with running(tmp_path / "state", providers={"openai": provider(keys=0)}, secrets=[]) as ground:
        assert (await ground.hook(body, signed(body))).status == 404
        assert ground.events() == []


@pytest.mark.parametrize(
    "target", ["/webhooks/openai/", "//webhooks/openai", "/webhooks//openai", "/webhooks/openai?x=1"]
)
async def test_no_spelling_of_the_path_is_answered_by_a_redirect(ground: Ground, target: str) -> None:
    """C13: a provider follows none and says so to nobody. A 404 is counted, so that an operator can see it."""
    body = event(JOB)
    headers = [*signed(body).items(), ("Content-Length", str(len(body)))]
    answer = await exchange(ground.public_port, request_bytes("POST", target, headers, body))
    assert answer.status in (200, 404)
    if answer.status == 404:
        assert ground.meters.total("webhooks", answer="refused") or ground.logged, (
            "nobody can see that deliveries go to a wrong path"
        )


# ---- S16: sizes and encodings ----------------------------------------------------------------------------------

SMALL = {"webhooks": {"max_body": "2KiB"}}


@pytest.mark.parametrize("size", [2_047, 2_048])
async def test_a_body_up_to_the_cap_is_taken(tmp_path: Path, size: int) -> None:
    body = event(JOB, pad="")
    body = event(JOB, pad="x" * (size - len(body)))
    assert len(body) == size
    async with running(tmp_path / "state", sections=SMALL) as ground:
        assert (await ground.hook(body, signed(body))).status == 200
        assert len(ground.events()) == 1


async def test_a_body_over_the_cap_is_413_with_a_length(tmp_path: Path) -> None:
    """S16: decided by the announcement, before the body is waited for."""
    body = event(JOB, pad="x" * 2_048)
    async with running(tmp_path / "state", sections=SMALL) as ground:
        head = request_bytes(
            "POST", "/webhooks/openai", [*signed(body).items(), ("Content-Length", str(10**12))], b"x" * 10
        )
        answer = await exchange(ground.public_port, head, seconds=5)
        assert answer.status == 413
        assert (await ground.hook(body, signed(body))).status == 413
        assert ground.events() == []
        assert ground.reasons() == ["body-too-large"] * 2


async def test_a_body_over_the_cap_is_413_without_a_length(tmp_path: Path) -> None:
    """S16: chunked, and cut as soon as it is too much; the rest is not waited for."""
    async with running(tmp_path / "state", sections=SMALL) as ground:
        head = request_bytes("POST", "/webhooks/openai", [*signed(b"").items(), ("Transfer-Encoding", "chunked")])
        chunk = b"400\r\n" + b"x" * 1_024 + b"\r\n"
        answer = await exchange(ground.public_port, head + chunk * 3, seconds=5)
        assert answer.status == 413
        assert ground.events() == []


async def test_a_chunked_body_within_the_cap_is_a_delivery_like_any_other(ground: Ground) -> None:
    body = event(JOB)
    head = request_bytes("POST", "/webhooks/openai", [*signed(body).items(), ("Transfer-Encoding", "chunked")])
    chunks = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (10, body[:10], len(body) - 10, body[10:])
    answer = await exchange(ground.public_port, head + chunks)
    assert answer.status == 200
    assert ground.rows("SELECT body FROM events") == [(body,)]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity", "x-unknown", "", "gzip, gzip"])
@pytest.mark.parametrize("spelled", ["good", "bad"])
async def test_any_content_encoding_is_415_before_the_body_is_read(
    ground: Ground, encoding: str, spelled: str, read_bodies: list[bytes]
) -> None:
    """S16: a signature covers the bytes as sent; nothing is unpacked for a stranger."""
    plain = event(JOB)
    body = gzip.compress(plain) if spelled == "good" else b"\x1f\x8b broken"
    headers = [*signed(body).items(), ("Content-Encoding", encoding), ("Content-Length", str(len(body)))]
    answer = await exchange(ground.public_port, request_bytes("POST", "/webhooks/openai", headers, body))
    unknown_to_the_parser = encoding in ("br", "zstd") and answer.status == 400  # refused before the handler
    assert answer.status == 415 or unknown_to_the_parser
    assert read_bodies == []
    assert ground.events() == []


async def test_a_gzip_bomb_is_415(ground: Ground) -> None:
    body = gzip.compress(b"\0" * 32_000_000)
    assert (await ground.hook(body, {**signed(body), "Content-Encoding": "gzip"})).status == 415


# ---- S17, S18: slow and broken senders -------------------------------------------------------------------------


async def test_a_body_that_drips_is_cut(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """S17: answered in bounded time, and nothing of it kept."""
    monkeypatch.setattr(webhooks, "BODY_SECONDS", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.public_port)
    writer.write(request_bytes("POST", "/webhooks/openai", [*signed(b"x" * 100).items(), ("Content-Length", "100")]))
    try:
        async with asyncio.timeout(5):
            answer = split(await read_answer(reader))
        assert answer.status == 408
        assert ground.events() == []
    finally:
        writer.close()


async def test_a_sender_that_leaves_in_the_middle_leaves_nothing(ground: Ground) -> None:
    body = event(JOB)
    _, writer = await asyncio.open_connection("127.0.0.1", ground.public_port)
    head = request_bytes("POST", "/webhooks/openai", [*signed(body).items(), ("Content-Length", str(len(body)))])
    writer.write(head + body[:10])
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.close()
    await writer.wait_closed()
    await asyncio.sleep(0.05)
    assert ground.events() == []
    assert (await ground.hook(body, signed(body))).status == 200


@pytest.mark.parametrize(
    "tail",
    [b"zz\r\nabc\r\n0\r\n\r\n", b"5\r\nabc\r\n0\r\n\r\n", b"-1\r\n\r\n", b"ffffffffffffffffffff\r\n", b"3;x=\n\r\nabc"],
)
async def test_a_broken_chunk_is_no_fault_of_ours(ground: Ground, tail: bytes) -> None:
    """S18: a 4xx, never a 5xx, and nothing kept."""
    head = request_bytes("POST", "/webhooks/openai", [*signed(b"abc").items(), ("Transfer-Encoding", "chunked")])
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.public_port)
    try:
        writer.write(head + tail)
        writer.write_eof()
        async with asyncio.timeout(5):
            raw = await reader.read()
    finally:
        writer.close()
    assert not raw or 400 <= split(raw).status < 500
    assert ground.events() == []


@pytest.mark.parametrize(
    ("name", "request_text"),
    [
        ("long header", b"POST /webhooks/openai HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 9_216 + b"\r\n\r\n"),
        ("bad line", b"POST  HTTP/1.1\r\nHost: x\r\n\r\n"),
        (
            "two lengths",
            b"POST /webhooks/openai HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        ),
        (
            "length and chunks",
            (
                b"POST /webhooks/openai HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            ),
        ),
        ("unknown coding", b"POST /webhooks/openai HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: wat\r\n\r\n"),
        ("folded header", b"POST /webhooks/openai HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n"),
        ("bare LF", b"POST /webhooks/openai HTTP/1.1\nHost: x\n\n"),
        ("no host", b"POST /webhooks/openai HTTP/1.1\r\n\r\n"),
        ("two hosts", b"POST /webhooks/openai HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
        ("hello of TLS", bytes.fromhex("160301020001")),
    ],
)
async def test_what_is_no_http_is_refused_before_any_handler(
    ground: Ground, name: str, request_text: bytes, read_bodies: list[bytes]
) -> None:
    """S18."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.public_port)
    try:
        writer.write(request_text)
        writer.write_eof()
        async with asyncio.timeout(5):
            raw = await reader.read()
    finally:
        writer.close()
    assert not raw or split(raw).status == 400, raw[:80]
    assert read_bodies == []
    assert ground.reasons() == []


async def test_an_expectation_that_nobody_knows_is_417(ground: Ground) -> None:
    """S18."""
    headers = [("Expect", "junk"), ("Content-Length", "0")]
    answer = await exchange(ground.public_port, request_bytes("POST", "/webhooks/openai", headers))
    assert answer.status == 417


# ---- S19: no 200 without a commit ------------------------------------------------------------------------------


async def test_a_locked_store_is_503_and_the_redelivery_is_taken(tmp_path: Path) -> None:
    """S19: nothing stored, Retry-After given, and not a duplicate later."""

    def impatient(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA busy_timeout = 50")

    body = event(JOB)
    async with running(tmp_path / "state", hooks=Hooks(before_begin=impatient)) as ground:
        other = sqlite3.connect(tmp_path / "state" / "reconciled.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        answer = await ground.hook(body, signed(body))
        other.execute("ROLLBACK")
        other.close()
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert ground.events() == []
        assert ground.meters.total("webhooks", answer="not_stored") == 1
        assert (await ground.hook(body, signed(body))).status == 200
        assert ground.events() == [("unmatched", 0)]


async def test_a_full_store_is_503_and_the_redelivery_is_taken(tmp_path: Path) -> None:
    """S19, N33: ENOSPC rolls back, and the process lives."""
    is_full = False

    def fill(connection: sqlite3.Connection) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0] if is_full else 2**30
        connection.execute(f"PRAGMA max_page_count = {pages}")

    body = event(JOB, pad="x" * 500_000)
    async with running(tmp_path / "state", hooks=Hooks(before_begin=fill)) as ground:
        is_full = True
        answer = await ground.hook(body, signed(body))
        assert answer.status == 503
        assert "Retry-After" in answer.headers
        assert ground.events() == []
        is_full = False
        assert (await ground.hook(body, signed(body))).status == 200
        assert ground.events() == [("unmatched", 0)]


async def test_no_200_before_the_commit(tmp_path: Path) -> None:
    """N18: what breaks just before COMMIT was never acknowledged."""

    def refuse(connection: sqlite3.Connection) -> None:
        if connection.execute("SELECT count(*) FROM events").fetchone()[0]:
            raise sqlite3.OperationalError("no room at the last moment")

    body = event(JOB)
    async with running(tmp_path / "state", hooks=Hooks(before_commit=refuse)) as ground:
        assert (await ground.hook(body, signed(body))).status == 503
        assert ground.events() == []


async def test_a_fault_of_ours_shows_nothing_of_our_inside(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """S41: also on this listener."""

    async def broken(*_: Any) -> str:
        raise RuntimeError("SELECT secret FROM /var/lib/reconciled")

    monkeypatch.setattr(type(ground.daemon.ingest), "event", broken)
    body = event(JOB)
    answer = await ground.hook(body, signed(body))
    assert answer.status in (500, 503)
    assert b"SELECT" not in answer.body
    assert b"Traceback" not in answer.body
    assert any("RuntimeError" in repr(entry) or "exc_info" in entry for entry in ground.logged), "nobody was told"


# ---- field cases -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"batch.completed","data":{"id":"b1"}}\r\n',
        b'  {"type":"batch.completed","data":{"id":"b1"}}',
        b'{"type":"batch.completed","data":{"id":"b1"}}\n\n',
    ],
)
async def test_c15_white_space_around_a_signed_body_is_part_of_it(ground: Ground, body: bytes) -> None:
    operation = await ground.operation("observing", "b1")
    assert (await ground.hook(body, signed(body))).status == 200
    assert ground.events() == [("rings", 0)]
    assert ground.due_at(operation) == NOON
    assert ground.rows("SELECT body FROM events") == [(body,)]


async def test_c16_the_body_is_proven_and_kept_as_it_was_sent(ground: Ground) -> None:
    body = b'{ "b":1.0,  "a":1e2, "u":"\\u00e9", "n":10000000000000000000001, '
    body += b'"type":"batch.completed","data":{"id":"b1"} }'
    assert (await ground.hook(body, signed(body))).status == 200
    assert ground.rows("SELECT body FROM events") == [(body,)]


async def test_c19_a_refused_delivery_does_not_enter_the_memory_of_duplicates(ground: Ground) -> None:
    body = event("b1")
    ids = {"event_id": "msg_7"}
    assert (await ground.hook(body, signed(body, at_ms=NOON - 301_000, **ids))).status == 401
    assert (await ground.hook(body, signed(body, at_ms=NOON + 299_000, **ids))).status == 200
    assert ground.events() == [("unmatched", 0)]
    assert (await ground.hook(body, signed(body, at_ms=NOON, **ids))).status == 200
    assert ground.events() == [("unmatched", 1)]


async def test_c19_without_the_second_the_third_is_new(ground: Ground) -> None:
    body = event("b1")
    assert (await ground.hook(body, signed(body, at_ms=NOON - 301_000, event_id="msg_7"))).status == 401
    assert ground.reasons() == ["timestamp-too-old"]
    assert (await ground.hook(body, signed(body, at_ms=NOON, event_id="msg_7"))).status == 200
    assert ground.events() == [("unmatched", 0)]


async def test_c20_the_same_id_with_another_body_is_a_conflict_and_rings(ground: Ground) -> None:
    operation = await ground.operation("observing", "b1")
    x, y = event("b1", "in_progress"), event("b1", "completed")
    of_x = signed(x, event_id="msg_8")
    assert (await ground.hook(x, of_x)).status == 200
    await ground.act(JobRead(Observation("in_progress", remote_job_id="b1")))
    assert ground.due_at(operation) > NOON
    assert (await ground.hook(y, of_x)).status == 401
    assert ground.due_at(operation) > NOON
    assert (await ground.hook(y, signed(y, event_id="msg_8"))).status == 200
    assert ground.events() == [("rings", 0), ("contradiction", 0)]
    assert ground.due_at(operation) == NOON
    assert (await ground.row(operation)).state == "observing"


@pytest.mark.parametrize("name", ["webhook-signature", "WEBHOOK-Signature", "Webhook-signature"])
async def test_c21_header_names_have_no_case(ground: Ground, name: str) -> None:
    body = event("b1")
    headers = signed(body)
    headers[name] = headers.pop("webhook-signature")
    lines = [*headers.items(), ("Content-Length", str(len(body)))]
    answer = await exchange(ground.public_port, request_bytes("POST", "/webhooks/openai", lines, body))
    assert answer.status == 200


@pytest.mark.parametrize("order", [("right", "wrong"), ("wrong", "right"), ("right", "right")])
async def test_c21_a_doubled_header_is_refused_in_either_order(ground: Ground, order: Sequence[str]) -> None:
    body = event("b1")
    values = {"right": signed(body)["webhook-signature"], "wrong": "v1,AAAA"}
    headers = [(n, v) for n, v in signed(body).items() if n != "webhook-signature"]
    headers += [("webhook-signature", values[which]) for which in order]
    headers += [("Content-Length", str(len(body)))]
    answer = await exchange(ground.public_port, request_bytes("POST", "/webhooks/openai", headers, body))
    assert answer.status == 401


@pytest.mark.parametrize(
    "kind", [None, "application/json; charset=iso-8859-1", "text/plain", "application/x-www-form-urlencoded", "junk"]
)
async def test_c22_a_body_is_read_by_its_bytes_whatever_type_it_claims(ground: Ground, kind: str | None) -> None:
    operation = await ground.operation("observing", "b1")
    body = event("b1")
    headers = [*signed(body).items(), ("Content-Length", str(len(body)))]
    headers += [("Content-Type", kind)] if kind else []
    answer = await exchange(ground.public_port, request_bytes("POST", "/webhooks/openai", headers, body))
    assert answer.status == 200
    assert ground.due_at(operation) == NOON


async def test_c23_pings_make_no_noise_for_people(ground: Ground) -> None:
    for n, body in enumerate((b'{"event":"PING","timestamp":"2026-01-01T00:00:00Z"}', b"", b"null", b"[]")):
        assert (await ground.hook(body, signed(body, event_id=f"msg_{n}"))).status == 200
    status = await ground.get("/v1/status")
    assert status["inbox"] == 0
    assert status["providers"]["openai"]["webhooks"]["unmatched"] == 0
    assert status["providers"]["openai"]["webhooks"]["accepted"] == 4


async def test_c23_an_unsigned_empty_body_is_a_401(ground: Ground) -> None:
    assert (await ground.hook(b"", {})).status == 401
    assert ground.events() == []

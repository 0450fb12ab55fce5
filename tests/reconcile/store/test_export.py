"""`audit export` on the file itself: one operation's whole evidence, which verifies by itself and holds no secret."""

import contextlib
import json
import random
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconcile.errors import NotRecorded, RecordDamaged, SchemaTooNew
from reconcile.evidence import Collected
from reconcile.exported import Checked, check, read
from reconcile.intents import CallbackWish
from reconcile.model import ResultRef, Summary
from reconcile.states import State
from reconcile.store.audit.export import export
from reconcile.store.items import ItemRow, ItemSlice
from reconcile.store.looking import look_at
from tests.reconcile.rows import info
from tests.reconcile.store.ground import event, exchange, look, opened, operation, record
from tests.reconcile.store.ground import read as seen
from tests.reconcile.store.records import KEY, checked, copied, notary, prune


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reconciled.db"


def exported(path: Path, operation_id: str = "op_1") -> dict[str, Any]:
    """The document, as it is read back."""
    parts: list[bytes] = []
    look_at(path, lambda connection: export(connection, operation_id, parts.append))
    document: dict[str, Any] = read(b"".join(parts))
    return document


async def _told(path: Path) -> None:
    """Three operations under three checkpoints; the first with all that can hang on one."""
    async with opened(path, announce=lambda _op, event, _at: event.encode()) as ground:
        wish = CallbackWish("ci", "https://ci.example.com/x")
        op = operation(1, labels={"team": "é"}, caller="ci", token="tok-secret-1", callback=wish)
        await ground.store.start(record(op, client_key="monday"))
        await ground.start(operation(2), operation(3))
        await notary(ground).sign()
        await ground.apply(2, seen("waiting", 2), **exchange("b"))
        await notary(ground).sign()
        await ground.store.receive(event("evt_1", "done", body=b"\xff\xfe no text"))
        await ground.apply(1, seen("done"), **exchange("c"))
        for attempt in (0, 1):
            rows = tuple(ItemRow(f"item {n}", n, "succeeded", "", 0, n, 1) for n in range(3))
            await ground.store.index(ItemSlice("op_1", attempt, rows))
        await notary(ground).sign()
        await ground.apply(1, Collected(info(), Summary(3, succeeded=3)), **exchange("d"))


async def test_a_document_holds_the_whole_evidence_and_verifies(path: Path) -> None:
    await _told(path)
    document = exported(path)
    found = check(document, trusted=[KEY.public_key])
    rows = look(path, "SELECT count(*) FROM history JOIN operations ON key = operation_key WHERE operation_id = 'op_1'")
    assert (found.state, found.rows, found.checkpoints) == ("succeeded", rows[0][0], 2)
    assert [one["number"] for one in document["checkpoints"]] == [1, 3]
    assert found.unsigned_rows > 0
    assert document["operation"]["living"]["labels"] == {"team": "é"}
    assert document["request"] == operation(1).request
    assert document["schedule"] is None
    assert [row["seq"] for row in document["history"]] == list(range(1, found.rows + 1))
    assert [row["facts"] for row in document["history"]] == [
        facts for (facts,) in look(path, "SELECT facts FROM history WHERE operation_key = 1 ORDER BY seq")
    ]
    assert [one["request_id"] for one in document["requests"]] == ["req_c", "req_d"]
    assert {one["raw"] for one in document["observations"]} == {'{"raw": true}'}
    (delivered,) = document["events"]
    assert (delivered["event_id"], delivered["body_base64"]) == ("evt_1", "//4gbm8gdGV4dA==")
    assert [(one["attempt"], one["item_id"]) for one in document["items"]] == [
        (attempt, f"item {n}") for attempt in (0, 1) for n in range(3)
    ]
    assert [(one["callback"], one["body"], one["state"]) for one in document["deliveries"]] == [
        ("ci", "operation.done", "waiting")
    ]


async def test_a_signed_url_is_shown_without_its_query(path: Path) -> None:
    """N37: the file has it to fetch the result with; who reads the evidence needs it not."""
    url = "https://files.example.com/out.jsonl?X-Signature=canary"
    async with opened(path) as ground:
        await ground.start(operation(1))
        await ground.store.receive(event("evt_1", "done", body=json.dumps({"url": url}).encode()))
        done = exchange("a")
        done["observation"] = replace(done["observation"], raw=json.dumps({"items_url": url}).encode())
        await ground.apply(1, seen("done", results=(ResultRef(url),)), **done)
    document = exported(path)
    assert "canary" not in json.dumps(document)
    assert document["observations"][0]["raw"] == '{"items_url": "https://files.example.com/out.jsonl?[redacted]"}'
    assert "canary" in json.dumps(look(path, "SELECT living FROM operations"))


async def test_an_open_operation_is_exported_with_what_comes_next(path: Path) -> None:
    await _told(path)
    document = exported(path, "op_3")
    assert document["schedule"]["due_at"] == look(path, "SELECT due_at FROM schedule WHERE key = 3")[0][0]
    assert check(document).state == "observing"


async def test_no_token_is_exported(path: Path) -> None:
    """S38: whoever has it may ask the provider in our name."""
    await _told(path)
    parts: list[bytes] = []
    look_at(path, lambda connection: export(connection, "op_1", parts.append))
    assert b"tok-secret-1" not in b"".join(parts)
    assert b"monday" not in b"".join(parts)
    assert len(exported(path)["operation"]["token_sha256"]) == 64


@pytest.mark.parametrize("seed", range(3))
async def test_one_of_many_is_proven_in_a_tree_with_prunings(path: Path, seed: int) -> None:
    rnd = random.Random(seed)
    async with opened(path) as ground:
        await ground.start(*(operation(n, State.OBSERVING) for n in range(1, 40)))
        for n in range(1, 10):
            await ground.apply(n, seen("failed", n))
        await notary(ground).sign()
        for n in rnd.sample(range(1, 10), 5):
            prune(path, f"op_{n}")
        for n in rnd.sample(range(10, 40), 20):
            await ground.apply(n, seen("waiting", n))
        await notary(ground).sign()
        for n in range(10, 40):
            assert check(exported(path, f"op_{n}"), trusted=[KEY.public_key]).unsigned_rows == 0


async def test_what_is_not_there_or_not_there_any_more_is_told(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1), operation(2))
        for n in (1, 2):
            await ground.apply(n, seen("failed", n))
        await notary(ground).sign()
        prune(path, "op_1", 12_345)
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE operations SET leaving = 1")
        faults = []
        for operation_id in ("op_1", "op_2", "op_none"):
            with pytest.raises(NotRecorded) as fault:
                exported(path, operation_id)
            faults.append((fault.value.pruned_at, fault.value.is_leaving))
    assert faults == [(12_345, False), (None, True), (None, False)]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE history SET reason = 'x' WHERE operation_key = 1 AND seq = 1",
        "DELETE FROM history WHERE operation_key = 1 AND seq = 1",
        "UPDATE history SET facts = CAST(X'FF' AS TEXT) WHERE operation_key = 1 AND seq = 1",
        "UPDATE operations SET head = 'x' WHERE key = 1",
        "UPDATE operations SET living = '{oops}' WHERE key = 1",
        "UPDATE heads SET head = 'x' WHERE operation_id = 'op_3'",
        "UPDATE checkpoints SET root = 'x' WHERE number = 1",
        "UPDATE starts SET request = '{oops}' WHERE operation_key = 1",
    ],
)
async def test_what_does_not_verify_is_not_exported(path: Path, sql: str) -> None:
    await _told(path)
    with copied(path, path.with_name("copy.db"), random.Random(0)) as copy:
        copy.do(sql)
    with pytest.raises(RecordDamaged):
        exported(copy.path)


async def test_a_file_of_before_checkpoints_gives_a_document_without_any(path: Path) -> None:
    await _told(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        for table in ("checkpoints", "heads", "pruned"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA user_version = 3")
    found: Checked = check(exported(path))
    assert (found.checkpoints, found.newest) == (0, None)


async def test_a_file_of_a_later_release_is_refused(path: Path) -> None:
    await _told(path)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(SchemaTooNew):
        exported(path)


async def test_a_text_that_is_none_is_exported_as_json_all_the_same(path: Path) -> None:
    """Beside the history stands whatever somebody wrote there."""
    await _told(path)
    with copied(path, path.with_name("copy.db"), random.Random(0)) as copy:
        copy.do("UPDATE items SET reason = CAST(X'61FF62' AS TEXT) WHERE line = 0 AND attempt = 1")
    assert [one["reason"] for one in exported(copy.path)["items"]][3] == "a\udcffb"
    assert checked(copy.path).rows


async def test_an_export_is_written_piece_by_piece(path: Path) -> None:
    async with opened(path) as ground:
        await ground.start(operation(1))
        for part in range(4):
            rows = tuple(ItemRow(f"item {part} {n}", n, "succeeded", "", 0, n, 1) for n in range(500))
            await ground.store.index(ItemSlice("op_1", 1, rows))
    parts: list[bytes] = []
    look_at(path, lambda connection: export(connection, "op_1", parts.append))
    assert max(map(len, parts)) < 2000 < len(parts)
    assert len(json.loads(b"".join(parts))["items"]) == 2000

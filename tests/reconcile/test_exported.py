"""Evidence that verifies by itself: any change to what is hashed or signed is named; a stranger's JSON is no error."""

import contextlib
import copy
import json
import random
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.chain import GENESIS, fields_hash
from reconcile.checkpoint import AuditKey, Checkpoint, Head, PrunedHead, SignedSpan
from reconcile.errors import RecordDamaged, Unreadable
from reconcile.exported import FORMAT, ROW, VERSION, check, read
from reconcile.merkle import Tree

KEY: Final = AuditKey.made(bytes(range(32)))
OTHER: Final = AuditKey.made(bytes(32))
Document = dict[str, Any]


def _history() -> list[Document]:
    told: list[tuple[int, str, str | None, Document]] = [
        (3, "move", "create_pending", {"deadlines": {"create": 50, "result": None}, "remote_job_id": None}),
        (5, "move", "accepted", {"remote_job_id": "job_é", "deadlines": {"result": 60}}),
        (6, "fact", None, {}),
        (9, "move", "failed", {"outcome": "failed"}),
        (12, "contradiction", None, {}),
    ]
    rows: list[Document] = []
    digest, state = GENESIS, None
    for seq, (position, kind, to_state, facts) in enumerate(told, start=1):
        spelled = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        fields = (position, "op_a", seq, 40 + seq, "worker:w", kind, state, to_state, "cause:c", None, "why", spelled)
        digest = fields_hash(digest, fields)
        rows.append({**dict(zip(ROW, fields, strict=True)), "hash": digest})
        state = to_state or state
    return rows


def _checkpoint(number: int, position: int, seq: int, rows: list[Document], *, key: AuditKey = KEY) -> Document:
    """One of three heads, ours in the middle, and of one pruning."""
    tree = Tree(watched=1)
    head = rows[seq - 1]["hash"]
    for leaf in (Head("op_0", 1, "x"), Head("op_a", seq, head), Head("op_b", 2, "y"), PrunedHead("op_c", 1, "z", 5)):
        tree.add(leaf.leaf())
    checkpoint = Checkpoint(number, 100 + number, position, GENESIS, 3, 1, tree.finish())
    signed = key.sign(checkpoint)
    names = ("number", "at", "position", "previous", "heads", "pruned", "root")
    return {
        **{name: getattr(checkpoint, name) for name in names},
        "hash": signed.hash,
        "public_key": signed.public_key,
        "signature": signed.signature,
        "seq": seq,
        "head": head,
        "index": 1,
        "path": list(tree.path),
    }


def _document() -> Document:
    rows = _history()
    return {
        "format": FORMAT,
        "version": VERSION,
        "operation": {
            "operation_id": "op_a",
            "state": "failed",
            "remote_job_id": "job_é",
            "seq": 5,
            "head": rows[-1]["hash"],
            "living": {"deadlines": {"result": 60}, "labels": {"a": "b"}},
        },
        "history": rows,
        "checkpoints": [_checkpoint(1, 5, 2, rows), _checkpoint(4, 10, 4, rows)],
        "items": [],
    }


WHOLE: Final = _document()


@pytest.fixture
def document() -> Document:
    return copy.deepcopy(WHOLE)


def test_a_document_verifies_by_itself(document: Document) -> None:
    found = check(document, trusted=[KEY.public_key], noted=[document["checkpoints"][0]["hash"]])
    assert (found.operation_id, found.state, found.rows, found.checkpoints) == ("op_a", "failed", 5, 2)
    assert found.newest is not None
    assert (found.newest.checkpoint.number, found.unsigned_rows) == (4, 1)


def test_a_document_without_a_checkpoint_says_that_nothing_is_signed(document: Document) -> None:
    document["checkpoints"] = []
    found = check(document)
    assert (found.newest, found.unsigned_rows) == (None, 5)


def test_checkpoints_of_other_keys_than_the_newest_are_told(document: Document) -> None:
    """A key may have been changed; but the trusted one does not vouch for what the others signed."""
    assert check(document).of_other_keys == ()
    document["checkpoints"][0] = _checkpoint(1, 5, 2, document["history"], key=OTHER)
    document["checkpoints"].insert(1, _checkpoint(3, 6, 3, document["history"], key=OTHER))
    for trusted in ([], [KEY.public_key]):
        assert check(document, trusted=trusted).of_other_keys == (SignedSpan(1, 3, 2, OTHER.public_key),)


def test_it_survives_being_written_and_read_by_anybody(document: Document) -> None:
    spelled = json.dumps(document, indent=3, sort_keys=True).encode("utf-16")
    assert check(json.loads(spelled)) == check(read(json.dumps(document).encode())) == check(document)


@pytest.mark.parametrize("row", range(5))
@pytest.mark.parametrize("field", [*ROW, "hash"])
def test_each_field_of_each_row_is_hashed(document: Document, row: int, field: str) -> None:
    value = document["history"][row][field]
    document["history"][row][field] = "" if value is None else value + (1 if isinstance(value, int) else "x")
    with pytest.raises(RecordDamaged, match=rf"row {row + 1 + (field == 'seq')} of op_ax? \(position \d+\)|op_ax"):
        check(document)


def _swap(document: Document) -> None:
    document["history"][1], document["history"][2] = document["history"][2], document["history"][1]


def _mended(document: Document, seq: int, **over: Any) -> Document:
    """The tail cut off, and the operation's row to match."""
    del document["history"][seq:]
    document["operation"] |= {"seq": seq, "head": document["history"][-1]["hash"], **over}
    return document


def _resigned(document: Document) -> None:
    document["checkpoints"][-1] = _checkpoint(4, 10, 4, document["history"], key=OTHER)


def _rewritten(document: Document) -> None:
    """Hashed anew from the second row on."""
    digest = document["history"][0]["hash"]
    for row in document["history"][1:]:
        row["reason"] += "!"
        digest = row["hash"] = fields_hash(digest, [row[name] for name in ROW])
    document["operation"]["head"] = digest


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: d["history"].pop(), r"row 4 of op_a \(position 9\): the chain ends here after 4 rows"),
        (lambda d: d["history"].pop(1), r"row 3 of op_a \(position 6\): out of order, row 2 was expected"),
        (lambda d: d["history"].clear(), "no row of op_a: the chain ends here"),
        (lambda d: d["history"].append(d["history"][-1]), r"row 5 of op_a \(position 12\): out of order"),
        (_swap, r"row 3 of op_a \(position 6\): out of order"),
        (_rewritten, "checkpoint 1: it covers the history up to row 2"),
        (lambda d: _mended(d, 3), "the operation op_a: its state is failed"),
        (
            lambda d: (_mended(d, 3), d["operation"].update(state="accepted")),
            "checkpoint 4: it covers the history up to",
        ),
        (lambda d: d["operation"].update(head="x"), r"row 5 of op_a \(position 12\): the chain ends here, but another"),
        (lambda d: d["operation"].update(seq=4), r"row 5 of op_a \(position 12\): the chain has 5 rows"),
        (lambda d: d["operation"].update(state="cancelled"), "the operation op_a: its state is cancelled"),
        (lambda d: d["operation"].update(remote_job_id=None), "the operation op_a: its remote_job_id is None"),
        (lambda d: d["operation"]["living"].clear(), "the operation op_a: its result deadline is None"),
        (lambda d: d["checkpoints"][0].update(at=7), "checkpoint 1: its hash does not fit"),
        (lambda d: d["checkpoints"][0].update(signature="AAAA"), "checkpoint 1: its signature does not fit"),
        (lambda d: d["checkpoints"][1].update(index=0), "checkpoint 4: it did not sign row 4 of op_a"),
        (lambda d: d["checkpoints"][1].update(index=-1), "checkpoint 4: it did not sign row 4 of op_a"),
        (lambda d: d["checkpoints"][1]["path"].reverse(), "checkpoint 4: it did not sign row 4 of op_a"),
        (lambda d: d["checkpoints"][1]["path"].append("zz"), "checkpoint 4: it did not sign row 4 of op_a"),
        (lambda d: d["checkpoints"][1].update(seq=3), "checkpoint 4: it covers the history up to row 4"),
        (lambda d: d["checkpoints"][1].update(head="x"), "checkpoint 4: it covers the history up to row 4"),
        (lambda d: d["checkpoints"].reverse(), "checkpoint 1: it does not follow checkpoint 4"),
        (lambda d: d["checkpoints"].append(d["checkpoints"][1]), "checkpoint 4: it does not follow checkpoint 4"),
        (_resigned, "checkpoint 4: it was signed with another key"),
    ],
)
def test_the_first_bad_thing_is_named(document: Document, damage: Callable[[Document], object], words: str) -> None:
    damage(document)
    with pytest.raises(RecordDamaged, match=words):
        check(document, trusted=[KEY.public_key])


def test_a_checkpoint_that_was_noted_must_be_in_it(document: Document) -> None:
    with pytest.raises(RecordDamaged, match="no checkpoint in it has the hash 0000"):
        check(document, noted=["0" * 64])


def test_facts_that_were_hashed_anew_and_are_none_are_told(document: Document) -> None:
    for facts in ("[]", "{", '{"a": 1e999}'):
        row = document["history"][0]
        row["facts"] = facts
        row["hash"] = fields_hash(GENESIS, [row[name] for name in ROW])
        with pytest.raises(RecordDamaged, match=r"row 1 of op_a \(position 3\): its facts"):
            check(document)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda d: d.update(format="x"), "no evidence that `audit export` wrote"),
        (lambda d: d.update(version=2), "evidence of version 2, and this release knows 1"),
        (lambda d: d.pop("operation"), "operation: no object"),
        (lambda d: d["operation"].pop("head"), "operation: head is missing"),
        (lambda d: d["operation"].update(seq=True), "operation: seq is missing, or of another type"),
        (lambda d: d["operation"]["living"].update(deadlines=[]), "operation: deadlines is no object"),
        (lambda d: d.update(history={}), "history and checkpoints must be lists"),
        (lambda d: d["history"].insert(0, 5), "row 1 of the history: no object"),
        (lambda d: d["history"][2].update(at="1"), "row 3 of the history: at is missing, or of another type"),
        (lambda d: d["checkpoints"][0].pop("root"), "entry 1 of the checkpoints: root is missing"),
        (lambda d: d["checkpoints"][0].update(path=[5]), "checkpoint 1: its path holds something else"),
    ],
)
def test_what_is_no_such_document_is_refused(
    document: Document, damage: Callable[[Document], object], words: str
) -> None:
    damage(document)
    with pytest.raises(Unreadable, match=words):
        check(document)


@given(st.integers(0, 2**32), st.sampled_from([None, 0, -1, 1.5, "", "x", [], {}, True, 2**70, "\ud800"]))
def test_whatever_stands_anywhere_in_it_ends_in_words(seed: int, value: Any) -> None:
    """Any one value replaced by any other: it verifies as before, or says what is wrong."""
    document, rnd = copy.deepcopy(WHOLE), random.Random(seed)
    place: Any = document
    while True:
        name = rnd.choice(list(place)) if isinstance(place, dict) else rnd.randrange(len(place))
        if not isinstance(place[name], dict | list) or not place[name] or rnd.random() < 0.1:
            break
        place = place[name]
    place[name] = value
    with contextlib.suppress(RecordDamaged, Unreadable):
        check(document)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"format": 1, "format": 2}', b"\x00", b'{"a": NaN'], ids=range(7)
)
def test_what_is_no_json_or_says_two_things_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable, match="no JSON"):
        read(data)

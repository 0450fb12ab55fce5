"""One operation's evidence as a document, and its verification by itself: no file and no daemon is asked.

What is hashed stands in it exactly as it is hashed. The rest (request, observations, events, items, deliveries) is what
the file holds beside the history; nothing is signed over it.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.chain import Chain
from reconcile.checkpoint import (
    Checkpoint,
    Head,
    SignedCheckpoint,
    SignedSpan,
    add_to_spans,
    newest_key_fault,
    own_fault,
    spans_of_others,
)
from reconcile.errors import RecordDamaged, Unreadable
from reconcile.fold import Fold, read_facts
from reconcile.merkle import root_by_path
from reconcile.states import TERMINAL

FORMAT: Final = "reconciled-evidence"
VERSION: Final = 1
#: A history row as it is hashed, in that order; `hash` beside it.
ROW: Final[Mapping[str, tuple[type, ...]]] = {
    "position": (int,),
    "operation_id": (str,),
    "seq": (int,),
    "at": (int,),
    "actor": (str,),
    "kind": (str,),
    "from_state": (str, type(None)),
    "to_state": (str, type(None)),
    "cause": (str,),
    "remote_job_id": (str, type(None)),
    "reason": (str,),
    "facts": (str,),
}
#: A checkpoint as it is signed, in the order of `Checkpoint`; what stands beside that, and the way to its root.
_SIGNED: Final[Mapping[str, tuple[type, ...]]] = {
    "number": (int,),
    "at": (int,),
    "position": (int,),
    "previous": (str,),
    "heads": (int,),
    "pruned": (int,),
    "root": (str,),
}
_SIGNATURE: Final[Mapping[str, tuple[type, ...]]] = {"hash": (str,), "public_key": (str,), "signature": (str,)}
_PROOF: Final[Mapping[str, tuple[type, ...]]] = {"seq": (int,), "head": (str,), "index": (int,), "path": (list,)}
_OPERATION: Final[Mapping[str, tuple[type, ...]]] = {
    "operation_id": (str,),
    "state": (str,),
    "remote_job_id": (str, type(None)),
    "seq": (int,),
    "head": (str,),
    "living": (dict,),
}


@dataclass(frozen=True, slots=True)
class Checked:
    """A document that verifies, and how far its history is signed."""

    operation_id: str
    state: str
    rows: int
    checkpoints: int
    newest: SignedCheckpoint | None
    #: Rows after the newest checkpoint's: chained to the rest, and not signed.
    unsigned_rows: int
    #: Its checkpoints of other keys than the newest one's, which does not vouch for them: between two that signed one
    #: operation others may be missing, so that not each names the hash of the one before it in the document.
    of_other_keys: tuple[SignedSpan, ...]


def read(data: bytes) -> Any:
    """The JSON of a document; of its size nothing is assumed. Raises: Unreadable."""
    try:
        return json.loads(data, object_pairs_hook=_object)
    except (ValueError, RecursionError) as fault:
        raise Unreadable(f"no JSON: {fault}") from fault


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object that says one thing: of two values under one name another reader may take the other."""
    named = dict(pairs)
    if len(named) != len(pairs):
        raise ValueError("an object has two values under one name")
    return named


def check(document: Any, *, trusted: Collection[str] = (), noted: Collection[str] = ()) -> Checked:
    """Verify a document: its chain, what follows from it, and each checkpoint's signature over a head of it.

    `trusted`: public keys, base64, one of which must have signed the newest checkpoint; none: any. Those before it may
    bear other keys, as they do once a key was changed, and are told. `noted`: hashes of checkpoints that must be in it.

    Raises: RecordDamaged, naming the first bad thing; Unreadable, for what is no such document.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Unreadable("no evidence that `audit export` wrote")
    if document.get("version") != VERSION:
        raise Unreadable(f"evidence of version {document.get('version')}, and this release knows {VERSION}")
    operation: Any = document.get("operation")
    history, checkpoints = document.get("history"), document.get("checkpoints")
    _values(operation, _OPERATION, "operation")
    if not isinstance(history, list) or not isinstance(checkpoints, list):
        raise Unreadable("history and checkpoints must be lists")
    chained = _history(operation, history)
    newest, spans = _checkpoints(operation["operation_id"], chained, checkpoints, trusted, noted)
    return Checked(
        operation_id=operation["operation_id"],
        state=operation["state"],
        rows=len(history),
        checkpoints=len(checkpoints),
        newest=newest,
        unsigned_rows=len(history) - (checkpoints[-1]["seq"] if checkpoints else 0),
        of_other_keys=spans_of_others(spans, newest),
    )


def _history(operation: Mapping[str, Any], history: Sequence[Any]) -> list[tuple[int, str]]:
    """The rows as (position, hash), once they are a chain and tell what the operation's row says."""
    chain, fold, chained = Chain(operation["operation_id"]), Fold(), []
    for number, row in enumerate(history, start=1):
        fields = _values(row, ROW, f"row {number} of the history")
        (stored,) = _values(row, {"hash": (str,)}, f"row {number} of the history")
        _must(chain.take(fields, stored))
        fold.take(row["kind"], row["to_state"], _facts(row["facts"], chain.last))
        chained.append((row["position"], stored))
    _must(chain.end(head=operation["head"], length=operation["seq"]))
    state, deadlines = operation["state"], operation["living"].get("deadlines", {})
    if not isinstance(deadlines, dict):
        raise Unreadable("operation: deadlines is no object")
    difference = fold.difference_from(
        state, operation["remote_job_id"], state if state in TERMINAL else None, deadlines
    )
    if difference is not None:
        raise RecordDamaged(f"the operation {chain.operation_id}: {difference}")
    return chained


def _checkpoints(
    operation_id: str,
    chained: Sequence[tuple[int, str]],
    checkpoints: Sequence[Any],
    trusted: Collection[str],
    noted: Collection[str],
) -> tuple[SignedCheckpoint | None, list[SignedSpan]]:
    """The newest, and the keys of all, once each has signed the row that it says it did."""
    newest: SignedCheckpoint | None = None
    spans: list[SignedSpan] = []
    for number, one in enumerate(checkpoints, start=1):
        signed = SignedCheckpoint(
            Checkpoint(*_values(one, _SIGNED, f"entry {number} of the checkpoints")),
            *_values(one, _SIGNATURE, f"entry {number} of the checkpoints"),
        )
        name = f"checkpoint {signed.checkpoint.number}"
        if newest is not None and signed.checkpoint.number <= newest.checkpoint.number:
            raise RecordDamaged(f"{name}: it does not follow checkpoint {newest.checkpoint.number}")
        _must(own_fault(signed))
        _leaf(operation_id, chained, signed.checkpoint, one, name)
        newest = signed
        add_to_spans(spans, signed)
    _must(newest_key_fault(newest, trusted))
    if missing := set(noted) - {one["hash"] for one in checkpoints}:
        raise RecordDamaged(f"no checkpoint in it has the hash {min(missing)}")
    return newest, spans


def _leaf(
    operation_id: str, chained: Sequence[tuple[int, str]], checkpoint: Checkpoint, one: Mapping[str, Any], name: str
) -> None:
    """The chain's last row under a checkpoint must be the head that it signed."""
    seq, head, index, path = _values(one, _PROOF, name)
    if not all(isinstance(step, str) for step in path):
        raise Unreadable(f"{name}: its path holds something else than hashes")
    under = [stored for position, stored in chained if position <= checkpoint.position]
    if not under or (seq, head) != (len(under), under[-1]):
        raise RecordDamaged(
            f"{name}: it covers the history up to row {len(under)}, and is told to have signed row {seq}"
        )
    try:
        root = root_by_path(Head(operation_id, seq, head).leaf(), index, checkpoint.heads + checkpoint.pruned, path)
    except ValueError:
        root = None
    if root != checkpoint.root:
        raise RecordDamaged(f"{name}: it did not sign row {seq} of {operation_id}: the way to its root does not fit")


def _facts(text: str, name: str) -> Mapping[str, Any]:
    try:
        return read_facts(text)
    except Unreadable as fault:
        raise RecordDamaged(f"{name}: its facts cannot be read: {fault}") from fault


def _values(given: Any, types: Mapping[str, tuple[type, ...]], name: str) -> tuple[Any, ...]:
    """The values of those names, each of its type, in their order. Raises: Unreadable."""
    if not isinstance(given, dict):
        raise Unreadable(f"{name}: no object")
    for key, kinds in types.items():
        if type(given.get(key, ...)) not in kinds:
            raise Unreadable(f"{name}: {key} is missing, or of another type than it should be")
    return tuple(given[key] for key in types)


def _must(fault: str | None) -> None:
    if fault is not None:
        raise RecordDamaged(fault)

"""One operation's whole evidence, written out of the file piece by piece: a million items never stand in memory.

The idempotency token is left out: who has it may ask the provider in our name. Its SHA-256 stands there instead. What
the provider told is shown without the queries of its URLs, for the same reason; nothing that is hashed is changed.
"""

import base64
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any, Final

from reconcile.checkpoint import Head, PrunedHead
from reconcile.errors import NotRecorded, RecordDamaged, Unreadable
from reconcile.exported import FORMAT, ROW, VERSION, check
from reconcile.merkle import Tree
from reconcile.redact import redact_urls_in
from reconcile.store import checkpoints
from reconcile.store.audit import chains
from reconcile.store.audit.signed import LEAVES, SIGNED_PRUNING
from reconcile.store.looking import DATABASE_FAULTS, has_checkpoints, told

_OPERATION: Final = "SELECT * FROM operations WHERE operation_id = ?"
_PRUNED: Final = "SELECT pruned_at FROM pruned WHERE operation_id = ?"
_START: Final = "SELECT request, expect FROM starts WHERE operation_key = ?"
_SCHEDULE: Final = "SELECT * FROM schedule WHERE key = ?"
_COLUMNS: Final = ", ".join(f"c.{name}" for name in checkpoints.COLUMNS)
_SIGNED: Final = (
    f"SELECT {_COLUMNS}, l.seq, l.head,"
    " (SELECT count(*) FROM heads b WHERE b.checkpoint = c.number AND b.operation_id < ?1)"
    " FROM checkpoints c JOIN heads l ON l.checkpoint = c.number AND l.operation_id = ?1 ORDER BY c.number"
)
#: What stands beside the history, each by the operation's key, in an order that stays.
_BESIDE: Final = {
    "requests": "SELECT * FROM requests WHERE operation_key = ? ORDER BY sent_at, request_id",
    "observations": "SELECT * FROM observations WHERE operation_key = ? ORDER BY number",
    "events": "SELECT * FROM events WHERE operation_key = ? ORDER BY key",
    "items": "SELECT * FROM items WHERE operation_key = ? ORDER BY attempt, item_id, line",
    "deliveries": "SELECT * FROM deliveries WHERE operation_key = ? ORDER BY created_at, delivery_id",
}
_HAS_TABLE: Final = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
#: Our own numbers of rows, which say nothing; and the token.
_LEFT_OUT: Final = frozenset({"key", "operation_key", "number", "leaving", "token"})
Write = Callable[[bytes], object]


def export(connection: sqlite3.Connection, operation_id: str, write: Write) -> None:
    """Hand the document to `write`, piece by piece; it is written only where it verifies.

    Raises: NotRecorded, also for what was pruned; RecordDamaged, where its chain does not hold; StoreBusy; and
    whatever `write` raises.
    """
    try:
        key, document = _core(connection, operation_id)
        check(document)
        _write(connection, key, document, write)
    except DATABASE_FAULTS as fault:
        raise told(fault, f"what is kept of {operation_id}") from fault
    except (ValueError, TypeError, RecursionError, Unreadable) as fault:
        raise RecordDamaged(f"{operation_id}: something that is kept of it cannot be read: {fault}") from fault


def _core(connection: sqlite3.Connection, operation_id: str) -> tuple[int, dict[str, Any]]:
    """The operation's key, and what verifies: its row, history and checkpoints."""
    is_signing = has_checkpoints(connection)
    found = next(_named(connection, _OPERATION, operation_id), None)
    if found is None or found.get("leaving"):
        pruned = connection.execute(_PRUNED, (operation_id,)).fetchone() if is_signing else None
        if pruned is not None:
            raise NotRecorded(operation_id, pruned_at=pruned[0])
        raise NotRecorded(operation_id, is_leaving=found is not None)
    key = found["key"]
    operation = {name: value for name, value in found.items() if name not in _LEFT_OUT}
    operation["token_sha256"] = hashlib.sha256(str(found["token"]).encode("utf-8", "surrogatepass")).hexdigest()
    living = str(found["living"]).encode("utf-8", "surrogatepass")
    operation["living"] = json.loads(redact_urls_in(living).decode("utf-8", "surrogatepass"))
    history = [
        dict(zip((*ROW, "hash"), (row[0], operation["operation_id"], *row[2:]), strict=True))
        for row in chains.one(connection, key)
    ]
    return key, {
        "format": FORMAT,
        "version": VERSION,
        "operation": operation,
        "history": history,
        "checkpoints": list(_checkpoints(connection, operation_id)) if is_signing else [],
    }


def _checkpoints(connection: sqlite3.Connection, operation_id: str) -> Iterator[dict[str, Any]]:
    """Each checkpoint that signed a head of the operation, with the way from that head to its root."""
    for *row, seq, head, index in connection.execute(_SIGNED, (operation_id,)).fetchall():
        signed = checkpoints.load(row)
        tree = Tree(watched=index)
        for leaf in connection.execute(LEAVES, (signed.checkpoint.number,)):
            tree.add(Head(*leaf[:3]).leaf())
        for leaf in connection.execute(SIGNED_PRUNING, (signed.checkpoint.number,)):
            tree.add(PrunedHead(*leaf[:4]).leaf())
        tree.finish()
        proof = {"seq": seq, "head": head, "index": index, "path": list(tree.path)}
        yield {**dict(zip(checkpoints.COLUMNS, row, strict=True)), **proof}


def _write(connection: sqlite3.Connection, key: int, document: dict[str, Any], write: Write) -> None:
    write(b"{")
    for name, value in document.items():
        write(_spelled(name) + b": ")
        _write_value(value, write)
        write(b",\n")
    start = connection.execute(_START, (key,)).fetchone()
    for name, text in zip(("request", "expect"), start or ("null", "null"), strict=True):
        write(_spelled(name) + b": " + _spelled(json.loads(text)) + b",\n")
    write(b'"schedule": ' + _spelled(next(_shown(connection, _SCHEDULE, key), None)))
    for name, sql in _BESIDE.items():
        is_there = connection.execute(_HAS_TABLE, (name,)).fetchone()  # a copy keeps its schema, and may be older
        write(b",\n" + _spelled(name) + b": ")
        _write_list(_shown(connection, sql, key) if is_there else iter(()), write)
    write(b"}\n")


def _write_value(value: Any, write: Write) -> None:
    if isinstance(value, list):
        _write_list(iter(value), write)
    else:
        write(_spelled(value))


def _write_list(values: Iterator[Any], write: Write) -> None:
    """A list, one value a line."""
    separator = b"[\n"
    for value in values:
        write(separator + _spelled(value))
        separator = b",\n"
    write(b"[]" if separator == b"[\n" else b"\n]")


def _shown(connection: sqlite3.Connection, sql: str, key: int) -> Iterator[dict[str, Any]]:
    """Rows by column; bytes as the text that they are, else in base64 under a name that says so."""
    for row in _named(connection, sql, key):
        shown: dict[str, Any] = {}
        for name, value in row.items():
            if name in _LEFT_OUT:
                continue
            if not isinstance(value, bytes):
                shown[name] = value
                continue
            value = redact_urls_in(value)
            try:
                shown[name] = value.decode("utf-8")
            except UnicodeDecodeError:
                shown[f"{name}_base64"] = base64.b64encode(value).decode("ascii")
        yield shown


def _named(connection: sqlite3.Connection, sql: str, parameter: object) -> Iterator[dict[str, Any]]:
    found = connection.execute(sql, (parameter,))
    names = [column[0] for column in found.description]
    return (dict(zip(names, row, strict=True)) for row in found)


def _spelled(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # somebody else's bytes in a text: as escapes they are JSON still
        return json.dumps(value, allow_nan=False).encode("ascii")

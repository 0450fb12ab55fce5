"""A start or adoption: the operation row, its request, its submitted ids and its first history row, in one write."""

import json
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from reconcile.errors import JobHeld, KeyReused
from reconcile.model import Change, Entry, EntryKind, Operation
from reconcile.replacing import replace
from reconcile.states import GIVEN_UP
from reconcile.store import rows
from reconcile.store.evidence import Applier, Rules
from reconcile.store.history import Appender
from reconcile.store.schema import listed
from reconcile.store.writer import Done, Kind


@dataclass(frozen=True, slots=True)
class SubmittedItem:
    """One submitted id and where its line stands in the input file, in bytes; nowhere for a job we did not feed."""

    item_id: str
    start: int | None
    length: int | None


@dataclass(frozen=True, slots=True)
class StartRecord:
    """A checked start. `content` is the digest that a repeated client key is compared by (G5)."""

    operation: Operation
    actor: str
    cause: str
    reason: str
    items: Collection[SubmittedItem] = ()
    client_key: str | None = None
    content: str = ""
    draw: float = 0.0


@dataclass(frozen=True, slots=True)
class Started:
    """The operation that stands for the start; not new when the client key was used before."""

    operation: Operation
    is_new: bool


_KEY: Final = (
    "SELECT k.content, o.operation_id FROM client_keys k JOIN operations o ON o.key = k.operation_key"
    " WHERE k.client_key = ?"
)
_HELD: Final = (
    f"SELECT operation_id FROM present WHERE provider = ? AND remote_job_id = ? AND state NOT IN {listed(GIVEN_UP)}"
)
#: What an adopted job was before: an operation that ended without the job's own end (J6), or one that shows it beside
#: the job that it holds. The latter is looked for among the open ones only, since nothing but a walk finds it.
_GIVEN_UP: Final = (
    "SELECT operation_id FROM present WHERE provider = ? AND remote_job_id = ?"
    f" AND state IN {listed(GIVEN_UP)} ORDER BY key DESC LIMIT 1"
)
_SHOWS_IT_TOO: Final = (
    "SELECT o.operation_id FROM schedule s JOIN operations o ON o.key = s.key, json_each(o.living, '$.candidates') c"
    " WHERE s.provider = ? AND c.value = ? AND o.remote_job_id IS NOT NULL ORDER BY o.key DESC LIMIT 1"
)
_SCHEDULE: Final = "INSERT INTO schedule (key, provider, priority, due_at, deadline_at) VALUES (?, ?, ?, ?, ?)"
_ITEM: Final = (
    "INSERT INTO items (operation_key, attempt, item_id, line, outcome, reason, file, start, length)"
    " VALUES (?, 0, ?, ?, 'submitted', '', NULL, ?, ?)"
)


def _start(connection: sqlite3.Connection, record: StartRecord, rules: Rules) -> Done:
    if record.client_key is not None:
        known = connection.execute(_KEY, (record.client_key,)).fetchone()
        if known is not None:
            return Done(_repeated(connection, record, *known))
    op = record.operation
    if op.remote_job_id is not None:
        op = _adopting(connection, op)
    facts: dict[str, Any] = {
        "remote_job_id": op.remote_job_id,
        "deadlines": {"create": op.deadlines.create, "result": op.deadlines.result},
    }
    if op.parent is not None:
        facts["parent"] = op.parent
    first = Entry(EntryKind.MOVE, None, op.state, record.cause, record.reason, facts)
    key = rows.insert(connection, op)
    history = Appender(connection)
    written = history.append(key, op, (first,), at=op.created_at, actor=record.actor)
    history.flush()
    op = replace(op, seq=written[-1].seq, head=written[-1].hash)
    rows.update(connection, [(key, op)])
    connection.execute("INSERT INTO starts VALUES (?, ?, ?)", (key, json.dumps(op.request), json.dumps(op.expect)))
    name = op.state_deadline_name
    deadline = op.deadline(name) if name else None
    connection.execute(_SCHEDULE, (key, op.provider, op.schedule.priority, op.schedule.due_at, deadline))
    connection.executemany(
        _ITEM, ((key, item.item_id, line, item.start, item.length) for line, item in enumerate(record.items, start=1))
    )
    if record.client_key is not None:
        connection.execute(
            "INSERT INTO client_keys VALUES (?, ?, ?, ?)", (record.client_key, record.content, key, op.created_at)
        )
    changes = [Change(op, (first,), rows=written)]
    if op.remote_job_id is not None:
        applier = Applier(connection, rules)
        changes += applier.adopt(key, op, op.created_at, record.draw)
        applier.flush()
    after = changes[-1].operation
    return Done(Started(after, is_new=True), tuple(changes), after.schedule.due_at)


def _adopting(connection: sqlite3.Connection, op: Operation) -> Operation:
    """An adoption, linked to the operation that had the job before. Raises: JobHeld."""
    job = (op.provider, op.remote_job_id)
    held = connection.execute(_HELD, job).fetchone()
    if held is not None:
        raise JobHeld(held[0])
    before = connection.execute(_GIVEN_UP, job).fetchone() or connection.execute(_SHOWS_IT_TOO, job).fetchone()
    return op if before is None else replace(op, parent=before[0])


def _repeated(connection: sqlite3.Connection, record: StartRecord, content: str, operation_id: str) -> Started:
    if content != record.content:
        raise KeyReused(operation_id)
    _, op = rows.by_ids(connection, [operation_id])[operation_id]
    return Started(op, is_new=False)


def kind(rules: Rules) -> Kind:
    """The writes that start operations; they are asked about events that were kept for an adopted job."""
    return Kind("start", lambda connection, payloads: [_start(connection, record, rules) for record in payloads])

"""How an operation stands in its two rows: columns for what is searched, JSON for what only travels along."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from reconcile.intents import CallbackWish, CancelIntent, InputIntent
from reconcile.model import (
    Attention,
    Deadlines,
    Operation,
    Problems,
    Progress,
    RemoteError,
    ResultInfo,
    ResultRef,
    Schedule,
    Spans,
    Summary,
    UnixMs,
    Verdict,
    VerdictKind,
)
from reconcile.replacing import replace
from reconcile.states import State

#: In the order in which every SELECT of an operation names them.
COLUMNS: Final = (
    "key", "operation_id", "provider", "type", "state", "remote_job_id", "remote_status", "created_at", "started_at",
    "completed_at", "token", "trace_id", "fingerprint", "contract_version", "seq", "head", "living",
)  # fmt: skip
SCHEDULE_COLUMNS: Final = (
    "due_at", "deadline_at", "priority", "polls", "errors", "gone_reads",
    "gone_since", "mark_at", "marks_on_claim", "fence",
)  # fmt: skip
#: An operation with its schedule; a terminal one has none. One that is being pruned is shown to nobody.
_SHOWN: Final = ", ".join([*(f"o.{name}" for name in COLUMNS), *(f"s.{name}" for name in SCHEDULE_COLUMNS)])
_FROM: Final = " FROM present o LEFT JOIN schedule s ON s.key = o.key "
SELECT: Final = f"SELECT {_SHOWN}{_FROM}"
#: The same rows as one JSON array of arrays, for whoever reads beside much else: between two rows SQLite's thread gives
#: the interpreter's lock away and has to wait for it again (measured in one process with 32 readers: 35 µs, now 9).
SELECT_AS_ONE: Final = f"SELECT json_group_array(json_array({_SHOWN})){_FROM}"

#: Fields whose value JSON holds as it is.
_PLAIN: Final = (
    "input_ref", "input_items", "caller", "approval", "finished_items", "total_items", "collect_attempt", "end_unread",
    "results_gone", "results_kept_until", "unconfirmed", "contradictions", "parent", "adopted", "resends", "origin",
    "resend_checked", "restored", "unknown_since", "token_since", "by_count", "item_mark", "end_missed", "last_refusal",
    "accepted_despite", "our_faults",
)  # fmt: skip
_WORDS: Final = ("labels", "steps")
_JOBS: Final = ("candidates", "ruled_out")
_NESTED: Final[Mapping[str, Callable[..., Any]]] = {
    "spans": Spans,
    "progress": Progress,
    "deadlines": Deadlines,
    "summary": Summary,
    "error": RemoteError,
    "cancel": CancelIntent,
    "input": InputIntent,
    "callback": CallbackWish,
    "attention": Attention,
}
_WIDE: Final = len(COLUMNS)
#: Made once: `json.dumps` would make one for each row.
_spell: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_STATES: Final = {state.value: state for state in State}
_DEFAULTS: Final = {field.name: field.default for field in fields(Operation)}
#: A row that says nothing, out of which each is made: to set sixty fields one by one costs twice as much (measured).
_QUIET: Final = Operation(
    operation_id="",
    provider="",
    type="",
    state=State.CREATE_PENDING,
    token="",
    trace_id="",
    fingerprint="",
    request={},
    created_at=0,
    schedule=Schedule(due_at=0),
)


def living(op: Operation) -> str:
    """The JSON column: every field that is not its default, so that a quiet row stays narrow."""
    document: dict[str, Any] = {}
    for name in _PLAIN:
        value = getattr(op, name)
        if value != _DEFAULTS[name]:
            document[name] = value
    for name in _WORDS:
        if value := getattr(op, name):
            document[name] = dict(value)
    for name in _NESTED:
        if (value := getattr(op, name)) is not None:
            document[name] = {k: v for k, v in _shallow(value).items() if v is not None}
    if op.verdict is not None:
        document["verdict"] = _shallow(op.verdict)
    if op.results:
        document["results"] = [[ref.name, ref.role] for ref in op.results]
    if op.result is not None:
        document["result"] = {k: v for k, v in asdict(op.result).items() if v or k != "indexes"}
    for name in _JOBS:
        if value := getattr(op, name):
            document[name] = list(value)
    return _spell(document)


def _shallow(value: Any) -> dict[str, Any]:
    """A dataclass that holds no other; `asdict` would copy what it holds, to the last word."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def load(row: Sequence[Any], **beside: Any) -> tuple[int, Operation]:
    """One row of `SELECT` as (key, operation); its `request` and `expect` stay in their own table, or come `beside`."""
    key, operation_id, provider, kind, state, remote_job_id, remote_status, created_at, started_at = row[:9]
    completed_at, token, trace_id, fingerprint, contract_version, seq, head, document = row[9:_WIDE]
    # A quiet row says little: what it leaves out is not looked for.
    known = {name: _READ[name](value) for name, value in json.loads(document).items() if name in _READ}
    return key, replace(
        _QUIET,
        operation_id=operation_id,
        provider=provider,
        type=kind,
        state=_STATES[state],
        token=token,
        trace_id=trace_id,
        fingerprint=fingerprint,
        created_at=created_at,
        schedule=_schedule(row[_WIDE:], completed_at or created_at),
        contract_version=contract_version,
        remote_job_id=remote_job_id,
        remote_status=remote_status,
        started_at=started_at,
        completed_at=completed_at,
        seq=seq,
        head=head,
        **known,
        **beside,
    )


def _schedule(columns: Sequence[Any], otherwise_at: UnixMs) -> Schedule:
    if not columns or columns[0] is None:  # of a terminal operation, or a wide row alone
        return Schedule(due_at=otherwise_at)
    due_at, deadline_at, priority, polls, errors, gone_reads, gone_since, mark_at, marks_on_claim, fence = columns[:10]
    return Schedule(
        due_at, priority, deadline_at, polls, errors, gone_reads, gone_since, mark_at, bool(marks_on_claim), fence
    )


def _verdict(document: dict[str, Any]) -> Verdict:
    return Verdict(VerdictKind(document["kind"]), document["word"], document["known"], document["may_hold_results"])


def _result(document: dict[str, Any]) -> ResultInfo:
    problems = document.pop("problems", None)
    files, indexes = (tuple(document.pop(name, ())) for name in ("files", "indexes"))
    if problems is not None:
        listed: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in problems.items()}
        problems = Problems(**listed)
    return ResultInfo(**document, files=files, problems=problems, indexes=indexes)


def _nested(make: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda document: make(**document)


def _as_it_is(value: Any) -> Any:
    return value


#: How each part of `living` is read.
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys((*_PLAIN, *_WORDS), _as_it_is),
    **{name: _nested(make) for name, make in _NESTED.items()},
    **dict.fromkeys(_JOBS, tuple),
    "verdict": _verdict,
    "results": lambda document: tuple(ResultRef(name, role) for name, role in document),
    "result": _result,
}


_INSERT: Final = f"INSERT INTO operations ({', '.join(COLUMNS[1:])}) VALUES ({', '.join('?' * (len(COLUMNS) - 1))})"
_UPDATE: Final = (
    "UPDATE operations SET state = ?, remote_job_id = ?, remote_status = ?, started_at = ?, completed_at = ?, seq = ?,"
    " head = ?, living = ? WHERE key = ?"
)


def insert(connection: sqlite3.Connection, op: Operation) -> int:
    """Write a new operation's wide row and give its key."""
    values = [getattr(op, name) for name in COLUMNS[1:-1]]
    cursor = connection.execute(_INSERT, (*values, living(op)))
    key = cursor.lastrowid
    assert key is not None  # noqa: S101 - an INSERT that returned has a row id
    return key


def update(connection: sqlite3.Connection, rows: Sequence[tuple[int, Operation]]) -> None:
    """Write wide rows back, in one statement for all."""
    connection.executemany(
        _UPDATE,
        [
            (
                op.state,
                op.remote_job_id,
                op.remote_status,
                op.started_at,
                op.completed_at,
                op.seq,
                op.head,
                living(op),
                key,
            )
            for key, op in rows
        ],
    )


def by_ids(connection: sqlite3.Connection, operation_ids: Sequence[str]) -> dict[str, tuple[int, Operation]]:
    """Operations by their ids, as (key, operation); unknown ids are absent."""
    sql = SELECT + "WHERE o.operation_id IN (SELECT value FROM json_each(?)) ORDER BY o.key"
    found = connection.execute(sql, (json.dumps(list(operation_ids)),)).fetchall()
    return {op.operation_id: (key, op) for key, op in map(load, found)}

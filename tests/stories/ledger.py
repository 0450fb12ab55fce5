"""What a file must say after any crash, whatever the story was: each check gives a list of violations in words.

Numbers name the invariants. Expected moves are not looked up here; the history is held to the rows it tells of.
"""

import json
from collections import defaultdict
from typing import Any, Final

from daemon.standin.truth import Truth
from reconcile.chain import ChainedRow
from reconcile.errors import RecordDamaged
from reconcile.states import TERMINAL
from reconcile.store.audit import verify as audit
from reconcile.store.looking import look_at
from tests.reconcile.chains import verify
from tests.stories.stage import Home

_HISTORY: Final = (
    "SELECT h.*, o.operation_id FROM history h JOIN operations o ON o.key = h.operation_key ORDER BY h.seq"
)
#: Where the record stands that a cause names.
_CAUSES: Final = {
    "observation": "SELECT observation_id AS id FROM observations",
    "request": "SELECT request_id AS id FROM requests",
    "event": "SELECT event_id AS id FROM events",
    "start": "SELECT operation_id AS id FROM operations",
}
_TERMINAL: Final = frozenset(state.value for state in TERMINAL)


def violations(home: Home, truth: Truth, accepted: set[str]) -> list[str]:
    """All that is wrong in the file; `accepted` are the operation ids that clients got a 2xx for."""
    return faults_in_file(home) + lost_acknowledgements(home, truth, accepted) + _of_jobs(home, truth)


def faults_in_file(home: Home) -> list[str]:
    """What is wrong in the file whatever the provider did."""
    histories: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in home.rows(_HISTORY):
        histories[row["operation_id"]].append(row)
    found = [f"integrity: {row}" for row in home.rows("PRAGMA integrity_check") if row["integrity_check"] != "ok"]
    found += [f"foreign key: {row}" for row in home.rows("PRAGMA foreign_key_check")]
    for operation in home.rows("SELECT * FROM operations"):
        found += _of_operation(operation, histories[operation["operation_id"]])
    found += _of_positions(home)
    try:
        look_at(home.database, audit.verify)
    except RecordDamaged as damage:
        found.append(f"the record does not verify: {damage}")
    found += _of_causes(home, histories)
    return found + _of_schedule(home)


def _of_operation(operation: dict[str, Any], history: list[dict[str, Any]]) -> list[str]:
    """N26: the chain is whole, to its recorded head. N27: it folds to the row. N8: one entry into a terminal state."""
    name, found = operation["operation_id"], []
    if (fault := verify(map(_chained, history), head=operation["head"], length=operation["seq"])) is not None:
        found.append(f"chain: {fault}")
    moves = [row for row in history if row["kind"] == "move"]
    state = None
    for move in moves:
        if move["from_state"] != state:
            found.append(f"{name}: a move from {move['from_state']} where {state} stood")
        state = move["to_state"]
    if state != operation["state"]:
        found.append(f"{name}: the history ends in {state}, the row says {operation['state']}")
    facts: dict[str, Any] = {}
    for row in history:
        facts |= json.loads(row["facts"])
    if facts.get("remote_job_id") != operation["remote_job_id"]:
        found.append(f"{name}: the history names job {facts.get('remote_job_id')}, not {operation['remote_job_id']}")
    if sum(move["to_state"] in _TERMINAL for move in moves) > 1:
        found.append(f"{name}: ended more than once")
    return found


def _chained(row: dict[str, Any]) -> tuple[ChainedRow, str]:
    names = ("position", "operation_id", "seq", "at", "actor", "kind", "from_state", "to_state", "cause")
    return ChainedRow(**{name: row[name] for name in (*names, "remote_job_id", "reason", "facts")}), row["hash"]


def _of_positions(home: Home) -> list[str]:
    """History is numbered over all operations without a gap, lost transactions included."""
    positions = [row["position"] for row in home.rows("SELECT position FROM history ORDER BY position")]
    return [] if positions == list(range(1, len(positions) + 1)) else [f"positions: {positions}"]


def _of_causes(home: Home, histories: dict[str, list[dict[str, Any]]]) -> list[str]:
    """N9: each move names a cause that is on record. N20: no end is believed on an event's word alone."""
    known = {kind: {row["id"] for row in home.rows(sql)} for kind, sql in _CAUSES.items()}
    found = []
    for move in (row for rows in histories.values() for row in rows if row["kind"] == "move"):
        kind, _, name = move["cause"].partition(":")
        if kind in known and name not in known[kind]:
            found.append(
                f"{move['operation_id']}: moved to {move['to_state']} by {move['cause']}, which is not on record"
            )
        if move["to_state"] == "result_collecting" and kind not in ("observation", "request"):
            found.append(f"{move['operation_id']}: collected because of {move['cause']}, with no read of the job")
    return found


def _of_schedule(home: Home) -> list[str]:
    """N23: an open operation has its next time, an ended one has none."""
    sql = (
        "SELECT operation_id, completed_at IS NULL AS is_open, s.key IS NOT NULL AS is_due"
        " FROM operations o LEFT JOIN schedule s ON s.key = o.key"
    )
    return [f"schedule: {row}" for row in home.rows(sql) if row["is_open"] != row["is_due"]]


def lost_acknowledgements(home: Home, truth: Truth, accepted: set[str]) -> list[str]:
    """N18: what was acknowledged is in the file. N17: each event once, its repeats counted."""
    events: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in home.rows("SELECT event_id, duplicates, disposition FROM events"):
        events[row["event_id"]].append(row)
    operations = {row["operation_id"] for row in home.rows("SELECT operation_id FROM operations")}
    found = [f"accepted with 2xx, but not in the file: {name}" for name in accepted - operations]
    for event in truth.events:
        kept = events.pop(event.event_id, [])
        if event.taken and len(kept) != 1:
            found.append(f"answered 200 {event.taken} times, but in the file {len(kept)} times: {event.event_id}")
        # A delivery whose 200 was lost with the process is kept and uncounted there; so only a lower bound holds.
        if kept and kept[0]["duplicates"] + 1 < event.taken:
            found.append(f"taken {event.taken} times, {kept[0]['duplicates']} repeats counted: {event.event_id}")
    return found + [f"an event that nobody sent: {name}" for name in events]


def _of_jobs(home: Home, truth: Truth) -> list[str]:
    """N3, N5: at most one create and one job for each operation, and the operation holds that one."""
    found, held = [], {}
    for row in home.rows("SELECT operation_id, remote_job_id, state FROM operations"):
        held[row["operation_id"]] = row["remote_job_id"]
    jobs: dict[str, list[str]] = defaultdict(list)
    for job in truth.jobs:
        jobs[str((job.metadata or {}).get("reconciled_operation"))].append(job.id)
    for name, ids in jobs.items():
        if len(ids) > 1:
            found.append(f"{len(ids)} jobs for {name}")
        if held.get(name) not in ids:
            found.append(f"{name} holds {held.get(name)}, the provider made {ids} for it")
    if truth.creates > len(held):
        found.append(f"{truth.creates} creates for {len(held)} operations")
    return found

"""The record by itself: what one operation's row, history, schedule, items and files say of each other."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from reconcile.chain import ChainedRow
from reconcile.errors import RecordDamaged
from reconcile.states import TERMINAL, TRANSITIONS, State
from reconcile.store.audit import verify as audit
from reconcile.store.looking import look_at
from tests.reconcile.chains import verify
from tests.simulation.view import Row, View, facts, moves

#: Ends that say nothing of the job.
GIVEN_UP: Final = frozenset({"timed_out", "abandoned"})
#: Ends with a result.
GOOD_ENDS: Final = frozenset({"succeeded", "completed_with_errors"})
#: Where a person is asked which of several jobs it is.
MANY_JOBS_ARE_TOLD: Final = frozenset({"contract_violation", "create_unresolved"})
#: What may become of an item, as a summary counts it.
ITEM_ENDS: Final = ("succeeded", "failed", "cancelled", "expired", "missing")


# ---- names -----------------------------------------------------------------------------------------------------------


def n2_tokens_are_unique(view: View) -> Iterator[str]:
    """No two operations bear one token."""
    tokens = Counter(op["token"] for op in view.operations)
    yield from (f"{n} operations bear the token {token}" for token, n in tokens.items() if n > 1)


def n4_four_names_differ(view: View) -> Iterator[str]:
    """The four ids of an operation differ."""
    for op in view.operations:
        names = [op["operation_id"], op["token"], op["trace_id"], op["remote_job_id"]]
        if len(set(names)) < 4:
            yield f"two of these are one: {names}"


# ---- history ---------------------------------------------------------------------------------------------------------


def n7_moves_are_legal(view: View) -> Iterator[str]:
    """Each move begins where the last one ended and is an arrow of the table."""
    for op in view.operations:
        standing: str | None = None
        for row in moves(view, op):
            if row["from_state"] != standing:
                yield f"{op['operation_id']} seq {row['seq']} starts in {row['from_state']}, not in {standing}"
            first = "accepted" if op["living"].get("adopted") else "create_pending"
            legal = {first} if standing is None else {s.value for s in TRANSITIONS[State(standing)]}
            if row["to_state"] not in legal:
                yield f"{op['operation_id']} seq {row['seq']}: no arrow from {standing} to {row['to_state']}"
            standing = row["to_state"]


def n8_one_end(view: View) -> Iterator[str]:
    """A terminal state is entered once at most, and contradictions are counted."""
    for op in view.operations:
        ends = [row["to_state"] for row in moves(view, op) if State(row["to_state"]) in TERMINAL]
        if len(ends) > 1:
            yield f"{op['operation_id']} ended {len(ends)} times: {ends}"
        against = sum(row["kind"] == "contradiction" for row in view.history[op["key"]])
        if against != op["living"].get("contradictions", 0):
            yield f"{op['operation_id']} counts {op['living'].get('contradictions', 0)} contradictions of {against}"


def nobody_asked(_: Row) -> Mapping[str, bool]:
    """Where no cause is a person's wish."""
    return {}


def n9_causes_exist(view: View, asked: Callable[[Row], Mapping[str, bool]] = nobody_asked) -> Iterator[str]:
    """What a move names as its cause is there; of causes that are wishes people themselves know: `asked`, by kind."""
    for op in view.operations:
        wishes = asked(op)
        for row in moves(view, op):
            kind, _, name = row["cause"].partition(":")
            if not wishes.get(kind, name in view.causes.get(kind, ())):
                yield f"{op['operation_id']} seq {row['seq']} was caused by {row['cause']}, which does not exist"


def n26_the_chain_holds(view: View) -> Iterator[str]:
    """Each chain verifies up to the head that its row keeps; positions have no gap; and `audit verify` agrees."""
    positions = sorted(row["position"] for rows in view.history.values() for row in rows)
    if positions != list(range(1, len(positions) + 1)):
        yield f"positions with a gap: {positions}"
    for op in view.operations:
        names = ("position", "seq", "at", "actor", "kind", "from_state", "to_state", "cause", "remote_job_id", "reason")
        chain = [
            (ChainedRow(operation_id=op["operation_id"], facts=row["facts"], **{n: row[n] for n in names}), row["hash"])
            for row in view.history[op["key"]]
        ]
        fault = verify(chain, head=op["head"], length=op["seq"])
        if fault is not None:
            yield fault
    try:
        if view.operations:
            look_at(view.world.database, audit.verify)
    except RecordDamaged as damage:
        yield f"the record does not verify: {damage}"


def n27_history_folds_to_the_row(view: View) -> Iterator[str]:
    """State, job, outcome and deadlines follow from the history alone."""
    for op in view.operations:
        folded: Row = {"remote_job_id": None, "outcome": None, "deadlines": {}, "state": None}
        for row in facts(view, op):
            folded |= {k: v for k, v in row["facts"].items() if k in ("remote_job_id", "outcome", "deadlines")}
            folded |= {"state": row["to_state"]} if row["kind"] == "move" else {}
        folded["deadlines"] = {name: at for name, at in folded["deadlines"].items() if at is not None}
        stands = {
            "remote_job_id": op["remote_job_id"],
            "outcome": op["state"] if State(op["state"]) in TERMINAL else None,
            "deadlines": op["living"].get("deadlines", {}),
            "state": op["state"],
        }
        if folded != stands:
            yield f"{op['operation_id']} stands as {stands}, its history folds to {folded}"


# ---- what stands beside the row --------------------------------------------------------------------------------------


def n23_questions_have_a_deadline(view: View, *, but_for: frozenset[str] = frozenset()) -> Iterator[str]:
    """Whatever waits for a person does so until some time, but for questions in states that may stay open."""
    for op, _ in open_rows(view):
        deadlines = op["living"].get("deadlines", {})
        if op["living"].get("attention") and deadlines.get("attention") is None and op["state"] not in but_for:
            yield f"{op['operation_id']} waits in {op['state']} for a person, for ever"


def open_rows(view: View) -> Iterator[tuple[Row, Row]]:
    """Each operation that has not ended, and its row of the schedule; N28 tells of those that have none."""
    for op in view.operations:
        plan = view.schedule.get(op["key"])
        if State(op["state"]) not in TERMINAL and plan is not None:
            yield op, plan


def n28_rows_stand_together(view: View) -> Iterator[str]:
    """What one decision writes stands together: row, history, schedule, client key."""
    keys = Counter(row["operation_key"] for row in view.client_keys)
    for op in view.operations:
        if len(view.history[op["key"]]) != op["seq"]:
            yield f"{op['operation_id']} says {op['seq']} history rows, there are {len(view.history[op['key']])}"
        is_done = State(op["state"]) in TERMINAL
        if is_done == (op["key"] in view.schedule):
            yield f"{op['operation_id']} is {op['state']} and {'has a' if is_done else 'has no'} schedule row"
        if keys[op["key"]] != 1:
            yield f"{op['operation_id']} and its client key do not stand together"
    if not set(view.schedule) <= {op["key"] for op in view.operations}:
        yield "a schedule row has no operation"


def n28_items_are_kept(view: View, op: Row, item_ids: Iterable[str]) -> Iterator[str]:
    """The ids that were submitted stand in the file from the start on."""
    submitted = sorted(row["item_id"] for row in view.items[op["key"]] if row["attempt"] == 0)
    if submitted != sorted(item_ids):
        yield f"{op['operation_id']} keeps the submitted ids {submitted}"


def n10_files_are_there(view: View, op: Row) -> Iterator[str]:
    """The files of a result are the bytes that were recorded."""
    result = op["living"]["result"]
    names = [name for name in result["files"] if name not in result.get("indexes", ())]
    data = b"".join((view.world.state_dir / name).read_bytes() for name in names)
    if (len(data), hashlib.sha256(data).hexdigest()) != (result["bytes"], result["sha256"]):
        yield f"{op['operation_id']} keeps other bytes than it recorded"


def counted(op: Row) -> dict[str, int]:
    """How many of its items came to what, as its summary says; nothing of those that it has no number of."""
    summary = op["living"].get("summary") or {}
    return {word: summary.get(word, 0) for word in ITEM_ENDS}

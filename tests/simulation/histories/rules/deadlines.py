"""That each operation comes to its end, and neither too early nor too late."""

from collections.abc import Iterator
from typing import Final

from reconcile.states import TERMINAL, State
from tests.simulation.histories.configuration import ATTENTION, host_of
from tests.simulation.histories.rules.seen import Seen, is_calm
from tests.simulation.rules import record
from tests.simulation.view import facts
from tests.simulation.world import EPOCH_MS, LEASE_MS

_ATTENTION_MS: Final = int(ATTENTION.removesuffix("m")) * 60_000
#: The longest of each deadline that a plan gives, ms: create, result, cancel, input.
_LONGEST_MS: Final = 120_000 + 160_000 + 45_000 + 60_000
_CAP_MS, _SWEEP_MS = 20_000, 30_000
#: The longest Retry-After that is heeded, typed by hand (N21), ms.
_RETRY_AFTER_MS: Final = 3_600_000


def n22_a_deadline_is_a_wall_clock(seen: Seen) -> Iterator[str]:
    """Nothing is timed out before its time, nor without one last try to read it."""
    for op in seen.view.operations:
        deadlines: dict[str, int | None] = {}
        for row in facts(seen.view, op):
            if row["kind"] == "move" and row["to_state"] == "result_timed_out":
                name = row["cause"].partition(":")[2] if row["cause"].startswith("deadline:") else "result"
                due = deadlines.get(name)
                if due is not None and row["at"] < due:
                    yield f"{op['operation_id']} was timed out at {row['at']}, {due - row['at']} ms early"
            deadlines |= row["facts"].get("deadlines", {})


def n22_after_one_last_read(seen: Seen) -> Iterator[str]:
    """Where nothing is broken, a job is read once its time is over, before that is said of it."""
    if not is_calm(seen):
        return
    for op in seen.view.operations:
        due: int | None = None
        for row in facts(seen.view, op):
            if row["kind"] == "move" and row["cause"] == "deadline:result" and row["to_state"] == "result_timed_out":
                own = [s.at_ms for s in seen.its_sends(op) if s.method == "GET"]
                lists = [s.at_ms for s in seen.world.sends if s.host == host_of(op["provider"]) and s.is_list]
                # A read that was under way when its time was over is the last one.
                if due is not None and not any(due - 1_000 <= at <= row["at"] for at in (*own, *lists)):
                    yield f"{op['operation_id']} was timed out at {row['at']} without a read since {due}"
            due = row["facts"].get("deadlines", {"result": due}).get("result")


def n23_something_always_comes_next(seen: Seen) -> Iterator[str]:
    """An open row has a next action with a time in reach, or a question with a deadline."""
    if seen.world.jumped:
        return
    yield from record.n23_questions_have_a_deadline(seen.view, but_for=frozenset({"blocked"}))
    reach = seen.world.now_ms + _RETRY_AFTER_MS + LEASE_MS
    for op, plan in record.open_rows(seen.view):
        if min(plan["due_at"], plan["deadline_at"] or plan["due_at"]) > reach:
            yield f"{op['operation_id']} in {op['state']} is due only at {plan['due_at']}"


def n23_it_ends(seen: Seen) -> Iterator[str]:
    """With nothing broken any more, all is done within the bounds of its deadlines and of what people added to them."""
    yield from (f"life {life.number} waited in vain for its end" for life in seen.world.lives if life.stalled)
    calm_ms = EPOCH_MS + round(seen.world.calm_since * 1000)
    for op in seen.view.operations:
        if State(op["state"]) not in TERMINAL:
            yield f"{op['operation_id']} still stands in {op['state']}"
        elif not seen.world.jumped:
            rounds = 2 + len(seen.told(op).asked)
            bound = rounds * (_LONGEST_MS + _ATTENTION_MS + LEASE_MS + _SWEEP_MS + _CAP_MS)
            late = op["completed_at"] - max(op["created_at"], calm_ms) - bound
            if late > 0:
                yield f"{op['operation_id']} came to its end {late} ms later than it may"

"""What clients and people asked for: it stands whole in the record, is sent once, and decides what was open."""

from collections.abc import Iterator, Mapping

from tests.simulation.histories.rules.seen import Seen, creates_that_may_have_arrived, creed_of, may_have_arrived
from tests.simulation.histories.scripts import STANDINS
from tests.simulation.rules import record
from tests.simulation.view import Row


def n9_causes_exist(seen: Seen) -> Iterator[str]:
    """What a move names as its cause is there; what a person is said to have done was asked for by one."""

    def asked(op: Row) -> Mapping[str, bool]:
        told = seen.told(op)
        is_cancelled = told.cancels_asked or seen.asked(op, "cancel", "cancel_again")
        return {"decision": bool(told.asked), "input": bool(told.inputs_asked), "cancel": bool(is_cancelled)}

    yield from record.n9_causes_exist(seen.view, asked)


def n15_a_cancel_is_a_wish(seen: Seen) -> Iterator[str]:
    """Sent once an intent, unless it was surely not taken; nothing is withdrawn after its create has left."""
    for op in seen.view.operations:
        told = seen.told(op)
        creed = creed_of(op)
        wanted = min(told.cancels_asked, 1) + seen.asked(op, "cancel", "cancel_again")
        sent = may_have_arrived(seen, op, lambda request: request.is_cancel)
        leave = len(seen.world.lives) - 1 if creed is None or creed.cancel_is_repeatable else 0
        if sent > wanted + leave:
            yield f"{sent} cancels of {op['operation_id']} may have arrived, {wanted} were wanted"
        may_be_made = creates_that_may_have_arrived(seen, op) > 0
        if op["state"] == "cancelled" and op["remote_job_id"] is None and may_be_made:
            yield f"{op['operation_id']} was withdrawn after a create had left"
        if 202 in told.cancels and not _cancel_is_kept(seen, op):
            yield f"the cancel of {op['operation_id']} was acknowledged and is not there"


def _cancel_is_kept(seen: Seen, op: Row) -> bool:
    is_asked = any("asked for a cancel" in row["reason"] for row in seen.view.history[op["key"]])
    return is_asked or any(row["cause"].startswith("cancel:") for row in seen.view.history[op["key"]])


def inputs_are_sent_once(seen: Seen) -> Iterator[str]:
    """As a cancel: at most once for each that a person gave."""
    for op in seen.view.operations:
        told = seen.told(op)
        sent = may_have_arrived(seen, op, lambda request: request.is_input)
        given = told.inputs_asked - told.inputs_refused
        if sent > given:
            yield f"{sent} inputs of {op['operation_id']} may have arrived, {given} were given"


def n28_all_or_nothing(seen: Seen) -> Iterator[str]:
    """What one decision writes stands together: row, history, schedule, items, client key."""
    yield from record.n28_rows_stand_together(seen.view)
    for op in seen.view.operations:
        if op["provider"] in STANDINS and op["operation_id"] in seen.customers:
            yield from record.n28_items_are_kept(seen.view, op, seen.wish(op).item_ids)


def n32_only_what_is_open_is_decided(seen: Seen) -> Iterator[str]:
    """As many decisions stand in the history as people made, at most; a 409 made none."""
    for op in seen.view.operations:
        told = seen.told(op)
        refused = sum(status == 409 for _, status in told.decisions)
        causes = {row["cause"] for row in seen.view.history[op["key"]] if row["cause"].startswith("decision:")}
        kept = {row["cause"] for row in seen.view.history[op["key"]] if row["kind"] != "refused"} & causes
        if len(kept) > len(told.asked) - refused:
            yield f"{op['operation_id']} keeps {len(kept)} decisions, {len(told.asked)} were asked, {refused} refused"

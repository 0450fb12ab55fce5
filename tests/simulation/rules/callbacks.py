"""What whoever is called back was sent, held against what the file says of it (N29)."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from reconcile.states import REASON_OF, TERMINAL, State
from tests.simulation.receiver import Receiver
from tests.simulation.view import Row, View, facts


def one_body_each(receiver: Receiver) -> Iterator[str]:
    """The same id, the same bytes each time."""
    bodies: dict[str, bytes] = {}
    for got in receiver.got:
        if bodies.setdefault(got.event_id, got.body) != got.body:
            yield f"{got.event_id} was sent with two bodies"


def signed_each_time(receiver: Receiver) -> Iterator[str]:
    """By every secret, by the clock of whoever receives it."""
    for got in receiver.got:
        if not got.is_signed:
            yield f"{got.event_id} was not signed by every secret, at the time of its attempt"


def delivered_was_taken(view: View, receiver: Receiver) -> Iterator[str]:
    """Nothing counts as delivered that had no effect."""
    for row in view.deliveries:
        if row["state"] == "delivered" and not receiver.effects.get(row["delivery_id"]):
            yield f"{row['delivery_id']} counts as delivered, and nobody took it"


def nothing_waits(view: View) -> Iterator[str]:
    """At the end each delivery was taken, or given up."""
    for row in view.deliveries:
        if row["state"] == "waiting":
            yield f"{row['delivery_id']} still waits"


def told_of(view: View, op: Row) -> Iterator[str]:
    """One delivery for each question that was not only passed, and one for the end, with the body of that state."""
    asks_or_ends = {state.value for state in TERMINAL} | set(REASON_OF)
    walked = [row for row in facts(view, op) if row["kind"] == "move" and not row["facts"].get("passing")]
    moved = Counter((row["to_state"], row["at"]) for row in walked if row["to_state"] in asks_or_ends)
    # A question that the same decision left again was asked of nobody.
    left = Counter((one["to_state"], one["at"]) for one, two in pairwise(walked) if one["at"] == two["at"])
    told = []
    for row in view.deliveries:
        if row["operation_key"] == op["key"]:
            body = json.loads(row["body"])
            told.append((body["data"]["state"], row["created_at"]))
            is_end = State(body["data"]["state"]) in TERMINAL
            if row["type"] != ("operation.done" if is_end else "operation.needs_attention"):
                yield f"{row['delivery_id']} is a {row['type']} of {body['data']['state']}"
            if body["data"]["operation_id"] != op["operation_id"] or body["type"] != row["type"]:
                yield f"{row['delivery_id']} of {op['operation_id']} speaks of something else"
    if Counter(told) - moved or moved - left - Counter(told):
        yield f"{op['operation_id']} came to {sorted(moved)}, and callbacks are told {told}"

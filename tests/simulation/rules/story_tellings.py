"""What was told, by webhooks and to the client and whoever is called back of a told story: it stands in the file."""

from collections import Counter
from collections.abc import Iterator

from tests.simulation.client import ITEM_IDS
from tests.simulation.rules import callbacks, record
from tests.simulation.view import View, moves


def n17_one_effect_an_event(view: View) -> Iterator[str]:
    """An event stands once, counts its repeats, and moves an operation at most once."""
    attempts = {event.event_id: event.attempts for event in view.world.provider.truth().events}
    acks = Counter(ack.event_id for ack in view.world.provider.acks)
    for row in view.events:
        told = 1 + row["duplicates"]
        if not acks[row["event_id"]] <= told <= attempts.get(row["event_id"], 0):
            yield (
                f"{row['event_id']} was counted {told} times, sent {attempts.get(row['event_id'])} times and"
                f" taken {acks[row['event_id']]} times"
            )
    for event_id, n in Counter(row["event_id"] for row in view.events).items():
        if n > 1:
            yield f"{event_id} stands {n} times"
    causes = Counter(row["cause"] for op in view.operations for row in moves(view, op))
    yield from (f"{cause} moved {n} times" for cause, n in causes.items() if cause.startswith("event:") and n > 1)


def n18_acks_are_durable(view: View) -> Iterator[str]:
    """What a client or the webhook's sender was told is in the file."""
    stored = {(row["event_id"], bytes(row["body"])) for row in view.events}
    for ack in view.world.provider.acks:
        if (ack.event_id, ack.body) not in stored:
            yield f"the delivery {ack.event_id} was acknowledged and is not there"
    known = {op["operation_id"] for op in view.operations}
    for operation_id in view.world.client.started:
        if operation_id not in known:
            yield f"the start of {operation_id} was acknowledged and is not there"
    if len(set(view.world.client.started)) > 1 or len(known) > 1:
        yield f"one key stands for {known}, the client was told {view.world.client.started}"
    body = view.world.client.body
    stands = {op["operation_id"]: op["state"] for op in view.operations}
    if body.get("done") and stands.get(body["operation_id"]) != body["state"]:
        yield f"the client was told {body['state']}, the row says {stands.get(body['operation_id'])}"


def n28_all_or_nothing(view: View) -> Iterator[str]:
    """What one decision writes stands together: row, history, schedule, items, client key."""
    yield from record.n28_rows_stand_together(view)
    for op in view.operations:
        yield from record.n28_items_are_kept(view, op, ITEM_IDS)


def n29_callbacks_tell_what_was_kept(view: View) -> Iterator[str]:
    """None before the commit of its move, the same id and bytes each time; taken, or waiting, or told to a person."""
    receiver = view.world.receiver
    if receiver is None:
        return
    for got in receiver.got:
        if got.row is None:
            yield f"{got.event_id} was sent, and no committed row has told of it"
        elif got.row != (got.body, "waiting"):
            yield f"{got.event_id} was sent with other bytes than its row's, or stood as {got.row[1]}"
    yield from callbacks.one_body_each(receiver)
    yield from callbacks.signed_each_time(receiver)
    for op in view.operations:
        yield from callbacks.told_of(view, op)
    yield from callbacks.delivered_was_taken(view, receiver)
    told = {row["notice_id"] for row in view.notices if row["acknowledged_at"] is None}
    owners = {op["key"]: op["operation_id"] for op in view.operations}
    for row in view.deliveries:
        if row["state"] == "exhausted" and f"callback_exhausted.{owners.get(row['operation_key'])}" not in told:
            yield f"{row['delivery_id']} was given up, and nobody is told"


def n29_all_are_told(view: View) -> Iterator[str]:
    """At the end nothing waits, and what counts as delivered was answered."""
    receiver = view.world.receiver
    if receiver is None:
        return
    yield from callbacks.nothing_waits(view)
    for row in view.deliveries:
        if row["state"] == "delivered" and row["delivery_id"] not in receiver.answered:
            yield f"{row['delivery_id']} counts as delivered without an answer"

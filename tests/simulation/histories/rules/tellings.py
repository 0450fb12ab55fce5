"""What was told, by webhooks and to clients, consumers and whoever is called back: it stands in the file."""

from collections import Counter
from collections.abc import Iterator

from tests.simulation.histories.rules.seen import Seen
from tests.simulation.rules import callbacks, record
from tests.simulation.view import moves


def n17_one_effect_an_event(seen: Seen) -> Iterator[str]:
    """An event stands once for each content, and moves nothing: each of these providers can be asked (C8)."""
    stands = Counter((row["provider"], row["event_id"], row["body_sha256"]) for row in seen.view.events)
    yield from (f"{key} stands {n} times" for key, n in stands.items() if n > 1)
    for op in seen.view.operations:
        moved = [row["cause"] for row in moves(seen.view, op) if row["cause"].startswith("event:")]
        yield from (f"{cause} moved {op['operation_id']}" for cause in moved)
    sent: Counter[tuple[str, bytes]] = Counter()
    for account in seen.world.accounts.values():
        for event in account.events:
            sent[account.creed.name, event.body] += event.attempts
    for row in seen.view.events:
        told, tries = 1 + row["duplicates"], sent.get((row["provider"], bytes(row["body"])))
        if tries is not None and told > tries:
            yield f"{row['event_id']} was counted {told} times and sent {tries} times"


def n18_acks_are_durable(seen: Seen) -> Iterator[str]:
    """What a client or a webhook's sender was told is in the file."""
    stored = {(row["provider"], bytes(row["body"])) for row in seen.view.events}
    for name, sender in seen.world.senders.items():
        for event_id, delivered in sender.acks:
            if (name, delivered) not in stored:
                yield f"the delivery {event_id} of {name} was acknowledged and is not there"
    known = {op["operation_id"]: op for op in seen.view.operations}
    for customer in seen.world.customers:
        told, started = customer.told, set(customer.told.started)
        yield from (f"the start of {one} was acknowledged and is not there" for one in started - set(known))
        if len(started) > 1:
            yield f"one key was answered with {sorted(started)}"
        body = told.body
        if body.get("done") and known[body["operation_id"]]["state"] != body["state"]:
            yield f"a client was told {body['state']}, the row says {known[body['operation_id']]['state']}"
        yield from (f"wish {customer.wish.number}: {words}" for words in told.surprises)


def n19_an_event_finds_its_operation(seen: Seen) -> Iterator[str]:
    """What was told of a job stands with the operation that holds it, also where it came before the job was known."""
    holders = {
        (op["provider"], op["remote_job_id"]): op for op in seen.view.operations if op["state"] not in record.GIVEN_UP
    }
    for row in seen.view.events:
        op = holders.get((row["provider"], row["remote_job_id"]))
        if op is not None and row["operation_key"] is None:
            yield f"the event {row['event_id']} of {row['remote_job_id']} never came to {op['operation_id']}"


def n29_an_effect_once(seen: Seen) -> Iterator[str]:
    """Callbacks tell what was kept; a claim is given once to each consumer."""
    for customer in seen.world.customers:
        for consumer, statuses in customer.told.claims.items():
            if statuses.count(200) > 1:
                yield f"{consumer} claimed wish {customer.wish.number} {statuses.count(200)} times"
    receiver = seen.world.receiver
    assert receiver is not None
    for got in receiver.got:
        if got.row is None or got.row != (got.body, "waiting"):
            yield f"{got.event_id} was sent, and its committed row was {got.row and got.row[1]}"
    yield from callbacks.one_body_each(receiver)
    if not seen.world.jumped:
        yield from callbacks.signed_each_time(receiver)
    for op in seen.view.operations:
        if "callback_url" in seen.wish(op).body:
            yield from callbacks.told_of(seen.view, op)
    yield from callbacks.delivered_was_taken(seen.view, receiver)


def everybody_was_told(seen: Seen) -> Iterator[str]:
    """Each wish was started and came to its end; nothing waits in the outbox; and no life had troubles of its own."""
    for customer in seen.world.customers:
        if not customer.told.started or not customer.told.body.get("done"):
            yield f"wish {customer.wish.number} was never told its end"
    yield from callbacks.nothing_waits(seen.view)
    for life in seen.world.lives:
        yield from (f"life {life.number}: {words}" for words in life.troubles if life.ended)

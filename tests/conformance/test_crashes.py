"""A process that ends at either edge of a commit: all of a batch is there afterwards, or nothing (N18 N25 N28)."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from reconcile.callback import CallbackEvent, Fate
from reconcile.evidence import CancelAsked, FinishedAtOnce, LookupFound
from reconcile.intents import CallbackWish
from reconcile.limits import Pause
from reconcile.model import Observation, Operation, UnixMs
from reconcile.notice import Notice
from reconcile.states import State
from reconcile.store.claims import ClaimWish
from reconcile.store.completion_claims import CompletionClaim
from reconcile.store.deliveries import Recorded, Taking
from reconcile.store.items import ItemRow, ItemSlice
from reconcile.store.sweeps import Begin, SweepWish
from tests.conformance.owner import Owner, Place, killed, together
from tests.conformance.record import check_record, everything, sign
from tests.conformance.values import LEASE, accepted, arrival, event, exchange, operation, read, record
from tests.reconcile.rows import NOW

S = State
Write = Coroutine[Any, Any, Any]
WISH: Final = CallbackWish("hook", "https://hook.example/x")


def announce(op: Operation, told: CallbackEvent, _: UnixMs) -> bytes | None:
    """What a callback would be told."""
    return f"{told.value} {op.operation_id} {op.state}".encode()


async def _furnish(owner: Owner) -> None:
    """Something for every kind of write to be about."""
    await owner.start(operation(1), operation(2, S.CREATE_PENDING), operation(3, S.CANCEL_REQUESTED))
    await owner.start(operation(4, callback=WISH), operation(5), operation(6, callback=WISH))
    await owner.apply(5, read("failed", 5), **exchange("fifth"))
    await owner.apply(6, read("failed", 6))
    await owner.store.receive(event("early", job="job_2"))
    await owner.store.know_providers({"test": "kind"})
    await owner.store.sweeps.begin(Begin("test", NOW))
    await sign(owner)
    await owner.apply(1, read("running"))


#: One batch each, by what it is.
BATCHES: Final[dict[str, Callable[[Owner], list[Write]]]] = {
    "a start": lambda o: [o.store.start(record(operation(10), client_key="k", content="c"))],
    "an acceptance that matches a kept event": lambda o: [
        o.store.apply(arrival(2, accepted("job_2"), **exchange("second")))
    ],
    "an end with its callback": lambda o: [o.store.apply(arrival(4, read("failed", 4), **exchange("fourth")))],
    "a question": lambda o: [o.store.apply(arrival(2, LookupFound(("job_a", "job_b")), **exchange("second")))],
    "an end at once": lambda o: [o.store.apply(arrival(2, FinishedAtOnce(Observation("done", "job_2"))))],
    "a contradiction": lambda o: [o.store.apply(arrival(5, read("done", 5), **exchange("again")))],
    "a wish": lambda o: [o.store.apply(arrival(1, CancelAsked("cancel_9", "client:ci", "why", "stops")))],
    "a delivery": lambda o: [o.store.receive(event("evt"))],
    "a claim": lambda o: [o.store.claim(ClaimWish("A", NOW + 1, LEASE, {"test": 9}))],
    "items": lambda o: [o.store.index(ItemSlice("op_1", 0, (ItemRow("a", 1, "submitted", "", 0, 0, 1),)))],
    "notices": lambda o: [
        o.store.tell([Notice("clock_stepped", NOW, "back")]),
        o.store.stand([Notice("disk_low", NOW, "full")]),
    ],
    "a pause": lambda o: [o.store.keep_pauses({"test": Pause(NOW + 9, "http_503", 3, NOW)}, NOW)],
    "a kind of provider": lambda o: [o.store.know_providers({"test": "other", "new": "kind"})],
    "a sweep": lambda o: [o.store.sweeps.begin(Begin("new", NOW + 1))],
    "the outbox": lambda o: [o.store.deliveries.record(Recorded(_told(o), NOW, Fate("delivered", 1, None, 200, None)))],
    "many at once": lambda o: [
        o.store.start(record(operation(10), client_key="k", content="c")),
        *(o.store.apply(arrival(n, read("done", n), **exchange(f"many_{n}"))) for n in (1, 4)),
        *(o.store.receive(event(f"evt_{n}")) for n in range(5)),
        o.store.claim(ClaimWish("A", NOW + 1, LEASE, {"test": 1})),
        o.store.tell([Notice("clock_stepped", NOW, "back")]),
    ],
}


def _told(owner: Owner) -> str:
    (delivered,) = [c.rows[-1].hash for done in owner.heard for d in done for c in d.changes if c.delivers]
    return f"msg_{delivered[:32]}"


@pytest.mark.parametrize("name", BATCHES)
async def test_killed_before_the_commit_nothing_is_there_and_the_same_writes_do_it_then(
    places: Callable[[], Place], name: str
) -> None:
    place, calm = places(), places()
    async with calm.opened(announce=announce) as owner:
        await _furnish(owner)
        before = await everything(owner)
        await together(*BATCHES[name](owner))
        after = await everything(owner)
    assert before != after
    async with place.opened(announce=announce) as owner:
        await _furnish(owner)
        batch, heard = BATCHES[name](owner), len(owner.heard)
        owner.faults.kill("before")
        assert await killed(owner, *batch) == []
        assert len(owner.heard) == heard
        told = _told(owner)
    async with place.opened(announce=announce) as owner:
        assert await everything(owner) == before
        await check_record(owner)
        if name == "the outbox":
            fate = Fate("delivered", 1, None, 200, None)
            await owner.store.deliveries.record(Recorded(told, NOW, fate))
        else:
            await together(*BATCHES[name](owner))
        assert await everything(owner) == after
        await check_record(owner)


@pytest.mark.parametrize("name", BATCHES)
async def test_killed_after_the_commit_all_is_there_although_nobody_heard(
    places: Callable[[], Place], name: str
) -> None:
    place, calm = places(), places()
    async with calm.opened(announce=announce) as owner:
        await _furnish(owner)
        await together(*BATCHES[name](owner))
        after = await everything(owner)
    async with place.opened(announce=announce) as owner:
        await _furnish(owner)
        batch = BATCHES[name](owner)
        owner.faults.kill("after")
        assert await killed(owner, *batch) == []
    async with place.opened(announce=announce) as owner:
        assert await everything(owner) == after
        await check_record(owner)


async def test_a_restart_forgets_nothing(place: Place) -> None:
    """Neither what reads show, nor who holds which row, nor what was taken, nor what a repeat would be."""
    async with place.opened(announce=announce) as owner:
        await _furnish(owner)
        await owner.store.start(record(operation(10), client_key="k", content="c"))
        (claim,) = (await owner.claim(room=1)).claims
        fence = await owner.store.sweeps.claim(SweepWish("test", "A", NOW, LEASE))
        await owner.store.consumers.take(CompletionClaim("op_5", "mailer", "client:ci", NOW, "mine"))
        (sent,) = await owner.store.deliveries.take(Taking(NOW, NOW + LEASE, {"hook": 9}))
        await owner.store.keep_pauses({"test": Pause(NOW + 9, "http_503", 3, NOW)}, NOW)
        before = await everything(owner)
    async with place.opened(announce=announce) as owner:
        assert await everything(owner) == before
        again = await owner.store.start(record(operation(11), client_key="k", content="c"))
        assert (again.is_new, again.operation.operation_id) == (False, "op_10")
        assert await owner.store.receive(event("early", job="job_2")) == "duplicate"
        n = int(claim.operation.operation_id.removeprefix("op_"))
        assert await owner.keeps("A", claim.fence, n)
        assert fence is not None
        assert await owner.store.sweeps.claim(SweepWish("test", "B", NOW, LEASE)) is None
        assert not (await owner.store.consumers.take(CompletionClaim("op_5", "mailer", "x", NOW, "other"))).is_yours
        assert (await owner.store.consumers.take(CompletionClaim("op_5", "mailer", "x", NOW, "mine"))).is_yours
        assert await owner.store.deliveries.take(Taking(NOW, NOW + LEASE, {"hook": 9})) == []
        (late,) = await owner.store.deliveries.take(Taking(NOW + LEASE, NOW + 2 * LEASE, {"hook": 9}))
        assert late == sent, "another id or other bytes"
        assert await owner.store.pauses() == {"test": Pause(NOW + 9, "http_503", 3, NOW)}

"""The outbox in the file: what is taken is somebody's own for a while; whatever happens, it is sent again or told."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconcile.callback import CallbackEvent, Fate
from reconcile.decisions import Decision
from reconcile.evidence import PersonDecided, ReadFailed
from reconcile.ingest import judge_by
from reconcile.intents import CallbackWish
from reconcile.model import Change, Entry, EntryKind, Operation
from reconcile.states import State
from reconcile.store.deliveries import Cut, Delivery, Recorded, Redelivery, Taking
from reconcile.store.evidence import Arrival, delivery_id
from tests.reconcile.rows import CONTRACT, NOW, in_state
from tests.reconcile.store.ground import Ground, opened

S = State
WISH = CallbackWish("ci", "https://ci.example.com/x")
HELD = 60_000
Move = tuple[State, State, dict[str, Any]]
WAITING = Fate("waiting", 1, NOW + 5_000, 500, "http_500")
GIVEN_UP = Fate("exhausted", 8, None, 500, "http_500")


def announce(op: Operation, event: CallbackEvent, at: int) -> bytes | None:
    return f"{event} {op.state} {op.candidates}".encode()


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    """Three operations that want to be told, the first two of which have just come to their question."""
    async with opened(tmp_path / "reconciled.db", judge=stops, announce=announce) as g:
        for n in (1, 2, 3):
            op = in_state(S.OBSERVING, operation_id=f"op_{n}", token=f"tok_{n}", remote_job_id=f"job_{n}")
            await g.start(replace(op, callback=replace(WISH, name="ci" if n < 3 else "other")))
        for n in (1, 2):
            await g.apply(n, ReadFailed("http_500"), at=NOW + n)
        yield g


def stops(op: Operation, arrival: Arrival) -> Change:
    """The first error is one too many."""
    strict = replace(CONTRACT, poll=replace(CONTRACT.poll, error_budget=1))
    return judge_by(lambda _: strict)(op, arrival)


async def take(ground: Ground, now: int = NOW + 10, *, room: int = 10, **more: int) -> list[Delivery]:
    return await ground.store.deliveries.take(Taking(now, now + HELD, {"ci": room, **more}))


async def record(ground: Ground, delivery: Delivery, fate: Fate, at: int = NOW + 10) -> None:
    await ground.store.deliveries.record(Recorded(delivery.delivery_id, at, fate))


def fares(ground: Ground) -> list[tuple[Any, ...]]:
    sql = "SELECT o.operation_id, d.state, d.attempts, d.due_at - ?, d.is_taken FROM deliveries d JOIN operations o"
    return ground.look(f"{sql} ON o.key = d.operation_key ORDER BY d.operation_key", NOW)


async def test_a_delivery_stands_with_its_move_and_is_due_at_once(ground: Ground) -> None:
    assert fares(ground) == [("op_1", "waiting", 0, 1, 0), ("op_2", "waiting", 0, 2, 0)]
    op = await ground.get(1)
    assert ground.look("SELECT delivery_id, body FROM deliveries WHERE operation_key = 1") == [
        (delivery_id(op), b"operation.needs_attention observation_failed ()")
    ]
    assert await ground.store.deliveries.next_due(["ci", "other"]) == NOW + 1
    assert await ground.store.deliveries.next_due(["other"]) is None
    assert await ground.store.deliveries.next_due([]) is None


async def test_what_is_taken_is_nobody_elses_until_it_must_have_ended(ground: Ground) -> None:
    first = await take(ground, room=1)
    assert [(one.operation_id, one.attempts, one.url) for one in first] == [("op_1", 0, WISH.url)]
    assert [one.operation_id for one in await take(ground)] == ["op_2"]
    assert await take(ground) == []
    again = await take(ground, NOW + 10 + HELD)
    assert [one.delivery_id for one in again][:1] == [first[0].delivery_id], "its owner died, or nobody knows"


async def test_what_came_of_it_is_kept_and_a_late_answer_counts_too(ground: Ground) -> None:
    first, second = await take(ground)
    await record(ground, first, WAITING)
    await record(ground, second, Fate("delivered", 1, None, 200, None))
    assert fares(ground) == [("op_1", "waiting", 1, 5_000, 0), ("op_2", "delivered", 1, None, 0)]
    await record(ground, second, WAITING)
    assert fares(ground)[1] == ("op_2", "delivered", 1, None, 0), "what ended has ended"
    assert await ground.store.deliveries.counts() == {"ci": {"delivered": 1, "waiting": 1}}


async def test_a_start_makes_due_what_an_earlier_process_had_under_way(ground: Ground) -> None:
    first, _ = await take(ground)
    await record(ground, first, WAITING)
    await ground.store.deliveries.cut(Cut(NOW + 100, 1_000_000, is_start=True))
    assert fares(ground) == [("op_1", "waiting", 1, 5_000, 0), ("op_2", "waiting", 0, 100, 0)]


async def test_what_a_clock_ahead_has_written_waits_as_long_as_was_meant(ground: Ground) -> None:
    """N34: set back by a day, it delays nothing by a day."""
    day = 86_400_000
    (first,) = await take(ground, room=1)
    await record(ground, first, WAITING)
    for _ in range(2):
        await ground.store.deliveries.cut(Cut(NOW - day, 1_000_000, is_start=False))
        assert fares(ground) == [("op_1", "waiting", 1, 4_990 - day, 0), ("op_2", "waiting", 0, -day, 0)]


async def test_waits_that_a_clock_ahead_has_written_are_cut(ground: Ground) -> None:
    (first,) = await take(ground, room=1)
    await record(ground, first, replace(WAITING, due_at=NOW + 1_000_000_000))
    await ground.store.deliveries.cut(Cut(NOW + 10, 1_000, is_start=False))
    assert fares(ground) == [("op_1", "waiting", 1, 1_010, 0), ("op_2", "waiting", 0, 2, 0)]


async def test_the_last_failure_and_its_notice_are_one_write_and_redelivery_undoes_both(ground: Ground) -> None:
    first, _ = await take(ground)
    await record(ground, first, GIVEN_UP)
    (notice,) = await ground.store.notices()
    assert (notice.notice_id, notice.operation_id) == ("callback_exhausted.op_1", "op_1")
    wish = Redelivery(notice.notice_id, "ana", "it is back", NOW + 20)
    assert await ground.store.deliveries.redeliver(wish) is True
    assert await ground.store.notices() == []
    assert fares(ground)[0] == ("op_1", "waiting", 0, 20, 0)
    assert await ground.store.deliveries.redeliver(wish) is False
    assert ground.look("SELECT acknowledged_by, because FROM notices") == [("ana", "it is back")]
    (again,) = await take(ground, NOW + 30, room=1)
    assert (again.delivery_id, again.body, again.attempts) == (first.delivery_id, first.body, 0)


async def test_several_of_one_operation_are_one_notice_that_names_them_all(ground: Ground) -> None:
    first, _ = await take(ground)
    await record(ground, first, GIVEN_UP)
    said = PersonDecided("decision_1", Decision.GIVE_UP, by="ana", reason="enough")
    assert (await ground.apply(1, said, at=NOW + 15)).operation.state is S.ABANDONED
    (second,) = await take(ground, NOW + 20)
    await record(ground, second, replace(GIVEN_UP, attempts=1, status=410, error="http_410"), NOW + 21)
    (notice,) = await ground.store.notices()
    assert [one["type"] for one in notice.evidence["deliveries"]] == ["operation.needs_attention", "operation.done"]
    assert "operation.done of op_1: tried 1 time, the last came to http_410 (2 in all)" in notice.message
    await ground.store.deliveries.redeliver(Redelivery(notice.notice_id, "ana", "it is back", NOW + 30))
    assert [fate for _, fate, *_ in fares(ground)] == ["waiting"] * 3


async def test_one_callback_takes_no_other_ones_room(ground: Ground) -> None:
    await ground.apply(3, ReadFailed("http_500"), at=NOW + 3)
    assert [one.operation_id for one in await take(ground, room=0, other=5)] == ["op_3"]


# ---- what is told ----------------------------------------------------------------------------------------------------


async def told(
    tmp_path: Path, *moves: tuple[State, State, dict[str, Any]], callback: CallbackWish | None = WISH
) -> list[bytes]:
    """The bodies that one change of these moves puts into the outbox."""

    def judge(op: Operation, _: Arrival) -> Change:
        entries = tuple(Entry(EntryKind.MOVE, a, b, "start:op_1", "so", facts) for a, b, facts in moves)
        end = moves[-1][1]
        return Change(replace(op, state=end, completed_at=NOW if end is S.FAILED else None), entries)

    async with opened(tmp_path / "reconciled.db", judge=judge, announce=announce) as ground:
        await ground.start(in_state(moves[0][0], callback=callback))
        change = await ground.apply(1, ReadFailed("http_500"))
        bodies = [body for (body,) in ground.look("SELECT body FROM deliveries")]
        assert change.delivers == bool(bodies)
        return bodies


async def test_a_question_that_the_same_change_leaves_is_not_told(tmp_path: Path) -> None:
    passing = {"passing": True}
    lost = (S.CREATE_UNKNOWN, S.CREATE_UNRESOLVED, passing), (S.CREATE_UNRESOLVED, S.CREATE_PENDING, passing)
    assert await told(tmp_path, *lost) == []


async def test_only_the_state_that_a_change_comes_to_is_told(tmp_path: Path) -> None:
    moves: list[Move] = [(S.OBSERVING, S.OBSERVATION_FAILED, {}), (S.OBSERVATION_FAILED, S.FAILED, {})]
    assert await told(tmp_path, *moves) == [b"operation.done failed ()"]


async def test_a_move_between_working_states_is_not_told(tmp_path: Path) -> None:
    assert await told(tmp_path, (S.ACCEPTED, S.OBSERVING, {})) == []


async def test_without_a_wish_nothing_is_told(tmp_path: Path) -> None:
    assert await told(tmp_path, (S.OBSERVING, S.FAILED, {}), callback=None) == []


async def test_a_lost_create_shows_no_candidate_that_somebody_else_holds(tmp_path: Path) -> None:
    def judge(op: Operation, _: Arrival) -> Change:
        entry = Entry(EntryKind.MOVE, op.state, S.CREATE_UNRESOLVED, "start:op_1", "so")
        return Change(replace(op, state=S.CREATE_UNRESOLVED), (entry,))

    async with opened(tmp_path / "reconciled.db", judge=judge, announce=announce) as ground:
        other = in_state(S.OBSERVING, operation_id="op_2", token="tok_2", remote_job_id="job_held")
        await ground.start(in_state(S.CREATE_UNKNOWN, callback=WISH, candidates=("job_free", "job_held")), other)
        await ground.apply(1, ReadFailed("http_500"))
        assert ground.one("SELECT body FROM deliveries") == b"operation.needs_attention create_unresolved ('job_free',)"

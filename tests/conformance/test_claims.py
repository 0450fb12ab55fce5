"""Leases: who may act on which due row, in which order, until when (N24, and N23 where a deadline passes)."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconcile.evidence import CancelAnswer, CancelAnswered, ReadFailed
from reconcile.model import Deadlines
from reconcile.states import ACTIONS, Priority, State
from reconcile.store.claims import COMPANY_MS, Claimed, ClaimWish, Renewal
from tests.conformance.owner import Owner, Place, killed, together
from tests.conformance.record import check_record, everything
from tests.conformance.values import LEASE, operation, read
from tests.reconcile.rows import HOUR, MINUTE, NOW

S = State
CANCEL, CREATE, RUNG, COLLECT, SWEPT = 0, 1, 2, 3, 4


def _ids(claimed: Claimed) -> list[str]:
    return [claim.operation.operation_id for claim in claimed.claims]


async def _due(owner: Owner, *priorities: int, due_at: int = NOW) -> None:
    """One due row for each priority, numbered from 0 in their order."""
    await owner.start(*(operation(n, priority=p, due_at=due_at) for n, p in enumerate(priorities)))


def test_the_order_of_urgency_is_cancel_create_rung_collect_swept() -> None:
    ranked = [Priority.CANCEL, Priority.CREATE, Priority.RUNG, Priority.COLLECT, Priority.SWEPT]
    assert ranked == sorted(ranked) == [CANCEL, CREATE, RUNG, COLLECT, SWEPT]


# ---- which rows ----


@pytest.mark.parametrize("room", [1, 2, 3, 4])
async def test_the_more_urgent_rows_are_taken_first(place: Place, room: int) -> None:
    async with place.opened() as owner:
        await _due(owner, COLLECT, RUNG, CREATE, CANCEL)
        assert sorted(_ids(await owner.claim(room=room))) == sorted(["op_3", "op_2", "op_1", "op_0"][:room])


async def test_claims_are_handed_out_in_the_order_of_their_urgency(place: Place) -> None:
    async with place.opened() as owner:
        await _due(owner, SWEPT, COLLECT, RUNG, CREATE, CANCEL)
        assert _ids(await owner.claim(room=10)) == ["op_4", "op_3", "op_2", "op_1", "op_0"]


async def test_of_equal_urgency_the_row_that_waits_longest_comes_first(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(*(operation(n, priority=RUNG, due_at=NOW - n) for n in range(6)))
        assert sorted(_ids(await owner.claim(room=2))) == ["op_4", "op_5"]


async def test_a_row_is_claimed_from_its_due_time_on_and_not_before(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, due_at=NOW + 1))
        assert _ids(await owner.claim(now=NOW)) == []
        assert _ids(await owner.claim(now=NOW + 1)) == ["op_1"]


@pytest.mark.parametrize(("room", "floor"), [(8, 1), (16, 2), (24, 3)])
async def test_a_flood_of_urgent_rows_leaves_the_sweep_its_share(place: Place, room: int, floor: int) -> None:
    async with place.opened() as owner:
        await _due(owner, *[RUNG] * 40, *[SWEPT] * 10)
        claimed = await owner.claim(room=room)
        assert Counter(claim.operation.schedule.priority for claim in claimed.claims) == {
            RUNG: room - floor,
            SWEPT: floor,
        }


async def test_the_probe_of_a_pause_is_what_has_been_due_for_longest(place: Place) -> None:
    """An urgent row that fails each time, a look-up by a refused list, does not keep the probes to itself."""
    async with place.opened() as owner:
        await owner.start(
            operation(0, priority=CANCEL, due_at=NOW),
            operation(1, priority=SWEPT, due_at=NOW - 2),
            operation(2, priority=CREATE, due_at=NOW - 1),
            operation(3, priority=SWEPT, due_at=NOW + 1),
        )
        wish = ClaimWish("A", NOW, LEASE, {"test": 1}, probed=frozenset({"test"}))
        probes = [_ids(await owner.store.claim(wish)) for _ in range(4)]
        assert probes == [["op_1"], ["op_2"], ["op_0"], []]


async def test_room_that_urgent_rows_do_not_need_goes_to_the_sweep(place: Place) -> None:
    async with place.opened() as owner:
        await _due(owner, CANCEL, RUNG, *[SWEPT] * 10)
        claimed = await owner.claim(room=8)
        assert Counter(claim.operation.schedule.priority for claim in claimed.claims) == {CANCEL: 1, RUNG: 1, SWEPT: 6}


async def test_room_that_the_sweep_does_not_need_goes_to_urgent_rows(place: Place) -> None:
    async with place.opened() as owner:
        await _due(owner, *[RUNG] * 20)
        assert len((await owner.claim(room=16)).claims) == 16


async def test_a_cancel_comes_before_the_sweep_although_there_is_room_for_one_only(place: Place) -> None:
    async with place.opened() as owner:
        await _due(owner, *[SWEPT] * 5, CANCEL)
        assert _ids(await owner.claim(room=1)) == ["op_5"]


@pytest.mark.parametrize("room", [1, 3])
async def test_with_little_room_at_a_time_neither_the_urgent_nor_the_swept_starve(place: Place, room: int) -> None:
    async with place.opened() as owner:
        await _due(owner, *[RUNG] * 100, *[SWEPT] * 100)
        taken: Counter[int] = Counter()
        for _ in range(48 // room):
            taken.update(c.operation.schedule.priority for c in (await owner.claim(room=room)).claims)
        assert taken[RUNG] >= 24, taken
        assert taken[SWEPT] >= 1, taken


@pytest.mark.parametrize("room", [1, 3, 8])
async def test_where_a_list_can_be_read_one_place_of_the_sweep_s_share_is_left_to_it(place: Place, room: int) -> None:
    async with place.opened() as owner:
        await _due(owner, *[RUNG] * 100, *[SWEPT] * 100)
        wish = ClaimWish("A", NOW, LEASE, {"test": room}, listed=frozenset({"test"}))
        taken = [len((await owner.store.claim(wish)).claims) for _ in range(24 // room)]
        assert set(taken) <= {room, room - 1}
        assert sum(taken) == 24 - 3


@pytest.mark.parametrize("room", [0, -1])
async def test_without_room_nothing_is_leased(place: Place, room: int) -> None:
    async with place.opened() as owner:
        await _due(owner, CANCEL, SWEPT)
        before = await everything(owner)
        claimed = await owner.claim(room=room)
        assert claimed.claims == ()
        assert claimed.next_due == {"test": NOW}
        assert await everything(owner) == before


async def test_one_provider_s_flood_takes_no_room_of_another(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(*(operation(n, priority=CANCEL) for n in range(20)))
        await owner.start(operation(50, provider="other"), operation(51, provider="third"))
        claimed = await owner.store.claim(ClaimWish("A", NOW, LEASE, {"test": 2, "other": 2}))
        assert Counter(claim.operation.provider for claim in claimed.claims) == {"test": 2, "other": 1}


@pytest.mark.parametrize("state", [state for state, action in ACTIONS.items() if action is not None])
async def test_a_claim_bears_what_was_asked_for_but_where_a_job_is_only_read(place: Place, state: State) -> None:
    asked: dict[str, Any] = {"request": {"endpoint": "/v1/é"}, "expect": {"items": 3}}
    async with place.opened() as owner:
        await owner.start(operation(1, state=state, labels={"team": "a"}, **asked))
        claim = await owner.claim_one()
        borne = {"request": claim.operation.request, "expect": claim.operation.expect}
        assert borne == ({"request": {}, "expect": {}} if state is State.OBSERVING else asked)
        assert claim.operation.labels == {"team": "a"}
        assert claim.fence == claim.operation.schedule.fence == 1


# ---- how long ----


async def test_a_leased_row_is_not_claimed_again_before_its_lease_ran_out(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        first = await owner.claim_one("A")
        assert _ids(await owner.claim("B", now=NOW + LEASE - 1)) == []
        second = await owner.claim_one("B", now=NOW + LEASE)
        assert second.fence > first.fence
        assert not await owner.keeps("A", first.fence)
        assert await owner.keeps("B", second.fence, until=NOW + 2 * LEASE)


async def test_after_a_restart_an_expired_lease_is_taken_over_and_the_old_owner_s_write_refused(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        old = await owner.claim_one("A")
    async with place.opened() as owner:
        new = await owner.claim_one("B", now=NOW + LEASE)
        late = await owner.apply(1, ReadFailed("http_500"), fence=old.fence, at=NOW + LEASE)
        assert [entry.kind for entry in late.entries] == ["refused"]
        assert (await owner.get()).schedule.errors == 0
        done = await owner.apply(1, read("done"), fence=new.fence, at=NOW + LEASE)
        assert done.operation.state is S.RESULT_COLLECTING


async def test_releasing_all_frees_every_row_for_the_next_owner_at_once(place: Place) -> None:
    async with place.opened() as owner:
        await _due(owner, CANCEL, RUNG, SWEPT)
        await owner.claim("A")
        assert await owner.store.release_all() == 3
        assert await owner.store.release_all() == 0
        again = await owner.claim("B")
        assert len(again.claims) == 3
        assert {claim.fence for claim in again.claims} == {2}


async def test_a_lease_is_kept_by_its_owner_and_fence_only(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        claim = await owner.claim_one("A")
        until = NOW + 2 * LEASE
        wrong = [
            Renewal("op_1", "B", claim.fence, until),
            Renewal("op_1", "A", claim.fence + 1, until),
            Renewal("op_1", "A", claim.fence - 1, until),
            Renewal("op_2", "A", claim.fence, until),
        ]
        assert await owner.store.renew(wrong) == [False] * 4
        assert (await owner.claim("B", now=NOW + 1)).next_expiry == NOW + LEASE
        assert await owner.store.renew([Renewal("op_1", "A", claim.fence, until)]) == [True]
        assert (await owner.claim("B", now=NOW + 1)).next_expiry == until
        assert _ids(await owner.claim("B", now=NOW + LEASE)) == []


async def test_a_lease_that_was_answered_or_taken_over_is_not_kept(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1))
        old = await owner.claim_one("A")
        await owner.claim_one("A", now=NOW + LEASE)
        assert await owner.store.renew([Renewal("op_1", "A", old.fence, NOW + 9 * LEASE)]) == [False]
        await owner.apply(1, read("running"), fence=old.fence + 1)
        assert await owner.store.renew([Renewal("op_1", "A", old.fence + 1, NOW + 9 * LEASE)]) == [False]
        assert (await owner.claim("B", now=NOW)).next_expiry is None


async def test_a_claim_stands_before_its_owner_hears_of_it(place: Place) -> None:
    """No action without a committed lease: a second owner that looks as soon as the first has heard finds it taken."""
    async with place.opened() as one, place.opened() as two:
        await one.start(operation(1, S.CANCEL_REQUESTED))
        await one.apply(1, read("running"))  # plans the row: its next action has an effect
        claim = await one.claim_one(now=NOW + MINUTE)
        assert (await two.get()).schedule == claim.operation.schedule
        assert _ids(await two.claim("B", now=NOW + MINUTE)) == []


# ---- marks ----


async def _cancel_wanted(owner: Owner) -> None:
    """Operation 1 with a cancel to send: its claim must set the mark."""
    await owner.start(operation(1, S.CANCEL_REQUESTED))
    await owner.apply(1, read("running"))
    assert (await owner.get()).schedule.marks_on_claim


async def test_a_claim_sets_the_send_mark_in_its_own_commit(place: Place) -> None:
    async with place.opened() as owner:
        await _cancel_wanted(owner)
        commits = owner.store.commits
        claim = await owner.claim_one(now=NOW + MINUTE)
        assert owner.store.commits == commits + 1
        assert claim.open_mark is False
        assert claim.operation.schedule.mark_at == (await owner.get()).schedule.mark_at == NOW + MINUTE


async def test_killed_before_the_commit_of_a_claim_neither_lease_nor_mark_is_set(place: Place) -> None:
    async with place.opened() as owner:
        await _cancel_wanted(owner)
        before = await everything(owner)
        owner.faults.kill("before")
        await killed(owner, owner.store.claim(ClaimWish("A", NOW + MINUTE, LEASE, {"test": 1})))
    async with place.opened() as owner:
        assert await everything(owner) == before
        assert (await owner.claim_one(now=NOW + MINUTE)).open_mark is False


async def test_a_mark_that_an_earlier_owner_left_is_told_and_keeps_its_time(place: Place) -> None:
    async with place.opened() as owner:
        await _cancel_wanted(owner)
        await owner.claim_one("A", now=NOW + MINUTE)
        await owner.store.release_all()
        again = await owner.claim_one("B", now=NOW + 2 * MINUTE)
        assert again.open_mark is True
        assert again.operation.schedule.mark_at == (await owner.get()).schedule.mark_at == NOW + MINUTE


async def test_an_answer_clears_the_mark(place: Place) -> None:
    async with place.opened() as owner:
        await _cancel_wanted(owner)
        claim = await owner.claim_one(now=NOW + MINUTE)
        await owner.apply(1, CancelAnswered(CancelAnswer.NOT_ACCEPTED), fence=claim.fence, at=NOW + MINUTE)
        row = (await owner.get()).schedule
        assert (row.mark_at, row.marks_on_claim) == (None, True)
        assert (await owner.claim_one(now=row.due_at)).open_mark is False


@pytest.mark.parametrize("state", [S.CREATE_PENDING, S.OBSERVING, S.RESULT_COLLECTING])
async def test_a_claim_whose_action_starts_without_an_effect_sets_no_mark(place: Place, state: State) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, state))
        claim = await owner.claim_one()
        assert claim.open_mark is False
        assert claim.operation.schedule.mark_at is None
        assert (await owner.get()).schedule.mark_at is None


# ---- when next ----


async def test_a_claim_tells_when_there_is_more_to_take(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(
            operation(1, priority=RUNG, due_at=NOW),
            operation(2, priority=SWEPT, due_at=NOW + 7),
            operation(3, priority=CANCEL, due_at=NOW + 9),
            operation(4, provider="other", due_at=NOW + 3),
        )
        claimed = await owner.store.claim(ClaimWish("A", NOW, LEASE, {"test": 5, "other": 5, "third": 5}))
        assert _ids(claimed) == ["op_1"]
        # A poll waits for company; a cancel does not, and takes the poll along that is due by then.
        assert claimed.next_due == {"test": NOW + 9, "other": NOW + 3 + COMPANY_MS}
        assert claimed.next_expiry == NOW + LEASE


@pytest.mark.parametrize(("deadline", "next_at"), [(7, 7), (50, 50), (500, 7 + COMPANY_MS), (-5, 7 + COMPANY_MS)])
async def test_polls_wait_for_company_and_no_longer_than_the_next_deadline(
    place: Place, deadline: int, next_at: int
) -> None:
    """The last: a deadline that has passed, whose last read failed and is tried again at its time."""
    async with place.opened() as owner:
        due_at = NOW + max(7, deadline)
        await owner.start(
            operation(1, due_at=NOW + 7),
            operation(2, due_at=due_at, deadlines=Deadlines(result=NOW + deadline)),
        )
        assert (await owner.claim()).next_due == {"test": NOW + next_at}


async def test_rows_that_found_no_room_are_due_already(place: Place) -> None:
    async with place.opened() as owner:
        await _due(owner, RUNG, RUNG, RUNG, due_at=NOW - 4)
        assert (await owner.claim(room=2)).next_due == {"test": NOW - 4}


async def test_where_everything_is_leased_only_the_first_expiry_is_known(place: Place) -> None:
    async with place.opened() as owner:
        await _due(owner, RUNG, RUNG)
        await owner.claim("A", room=1)
        claimed = await owner.claim("B", now=NOW + 5, room=5)
        assert claimed.next_due == {}
        assert claimed.next_expiry == NOW + LEASE


async def test_an_empty_store_has_nothing_to_wait_for(place: Place) -> None:
    async with place.opened() as owner:
        claimed = await owner.claim()
        assert (claimed.claims, claimed.next_due, claimed.next_expiry) == ((), {}, None)


async def test_the_backlog_counts_due_rows_that_nobody_leased(place: Place) -> None:
    async with place.opened() as owner:
        await _due(owner, RUNG, RUNG, SWEPT, due_at=NOW - 4)
        await owner.start(operation(9, due_at=NOW + 1))
        assert await owner.store.due_backlog(NOW) == {"test": (3, NOW - 4)}
        await owner.claim(room=2)
        assert await owner.store.due_backlog(NOW) == {"test": (1, NOW - 4)}


# ---- never two ----


async def test_owners_that_claim_at_once_never_share_a_row(place: Place) -> None:
    async with place.opened() as owner:
        await _due(owner, *[RUNG, SWEPT, CANCEL, CREATE] * 10)
        claims = await together(*(owner.claim(f"owner_{n}", room=5) for n in range(12)))
        taken = [operation_id for claimed in claims for operation_id in _ids(claimed)]
        assert len(taken) == len(set(taken)) == 40
        for n, claimed in enumerate(claims):
            for claim in claimed.claims:
                kept = Renewal(claim.operation.operation_id, f"owner_{n}", claim.fence, NOW + LEASE)
                assert await owner.store.renew([kept]) == [True]


async def test_two_stores_on_one_file_never_share_a_row(place: Place) -> None:
    async with place.opened() as one, place.opened() as two:
        await _due(one, *[SWEPT] * 40)
        claims = await together(
            *(owner.claim(f"{name}_{n}", room=4) for n in range(5) for name, owner in (("one", one), ("two", two)))
        )
        taken = [operation_id for claimed in claims for operation_id in _ids(claimed)]
        assert len(taken) == len(set(taken)) == 40


ROWS = 4
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["claim", "claim", "claim", "renew", "answer", "ring", "release", "wait"]),
        st.sampled_from("AB"),
        st.integers(0, ROWS - 1),
        st.integers(0, 3),
    ),
    max_size=25,
)


@given(steps=_STEPS)
@settings(max_examples=40, deadline=None)
def test_at_every_moment_a_row_has_one_holder_and_each_holder_a_higher_fence(
    places: Callable[[], Place], steps: list[tuple[str, str, int, int]]
) -> None:
    asyncio.run(_walk(places(), steps))


async def _walk(place: Place, steps: list[tuple[str, str, int, int]]) -> None:
    """Do the steps, and hold the store to a model: row -> (who, fence, until)."""
    held: dict[str, tuple[str, int, int]] = {}
    last_fence = dict.fromkeys((f"op_{n}" for n in range(ROWS)), 0)
    now = NOW
    async with place.opened() as owner:
        await owner.start(*(operation(n, priority=n) for n in range(ROWS)))
        for (what, who, n, amount), serial in zip(steps, itertools.count(), strict=False):
            row = f"op_{n}"
            holder = held.get(row)
            if what == "claim":
                for claim in (await owner.claim(who, now=now, room=amount)).claims:
                    name = claim.operation.operation_id
                    assert name not in held or held[name][2] <= now, "a held row was given away"
                    assert claim.fence > last_fence[name]
                    last_fence[name] = claim.fence
                    held[name] = (who, claim.fence, now + LEASE)
                held = {name: lease for name, lease in held.items() if lease[2] > now}
            elif what == "renew":
                kept = await owner.keeps(who, last_fence[row], n, until=now + LEASE)
                assert kept == (holder is not None and holder[0] == who)
                if kept and holder is not None:
                    held[row] = (who, holder[1], now + LEASE)
            elif what == "answer":
                fence = last_fence[row] - (amount == 3)
                change = await owner.apply(n, read("running", n), fence=fence, at=now)
                was_taken = change.entries == ()
                assert was_taken == (holder is not None and holder[1] == fence)
                if was_taken:
                    del held[row]
            elif what == "ring":
                await owner.apply(n, ReadFailed("http_500", counts=False), at=now, cause=f"event:{serial}")
            elif what == "release":
                assert await owner.store.release_all() == len(held)
                held = {}
            else:
                now += amount * LEASE // 2
            await _check_held(owner, held, last_fence)
        await check_record(owner)


async def _check_held(owner: Owner, held: dict[str, tuple[str, int, int]], fences: dict[str, int]) -> None:
    """Who holds what, asked by keeping each lease for as long as it runs."""
    for n in range(ROWS):
        who, fence, until = held.get(f"op_{n}", ("nobody", fences[f"op_{n}"], NOW))
        for one in "AB":
            assert await owner.keeps(one, fence, n, until=until) == (one == who)
        assert (await owner.get(n)).schedule.fence == fences[f"op_{n}"]
    untaken = await owner.store.due_backlog(NOW + 1000 * HOUR)
    assert sum(count for count, _ in untaken.values()) == ROWS - len(held)


# ---- deadlines without room ----


async def test_a_deadline_waits_for_a_slot_and_its_last_read_as_long_as_slots_come_free(place: Place) -> None:
    """A daemon that was down past many deadlines reads each job before it calls any of them timed out (C5)."""
    async with place.opened() as owner:
        await owner.start(operation(1, S.OBSERVING, deadlines=Deadlines(result=NOW), due_at=NOW))
        full = await owner.claim(room=0, now=NOW + 24 * HOUR)
        assert (full.claims, full.next_overdue) == ((), None)
        (claim,) = (await owner.claim(room=1, now=NOW + 24 * HOUR)).claims
        assert not claim.is_overdue


async def test_a_deadline_fires_where_no_slot_comes_free(place: Place) -> None:
    """Four slow transfers must not hold up every deadline of a provider (N23)."""
    async with place.opened() as owner:
        await owner.start(operation(1, S.OBSERVING, deadlines=Deadlines(result=NOW), due_at=NOW))
        early = await owner.store.claim(ClaimWish("A", NOW - 1, LEASE, {"test": 0}, stuck=frozenset({"test"})))
        assert (early.claims, early.next_overdue) == ((), NOW)
        wish = ClaimWish("A", NOW, LEASE, {"test": 0}, stuck=frozenset({"test"}))
        (claim,) = (await owner.store.claim(wish)).claims
        assert claim.is_overdue


async def test_a_paused_provider_s_deadlines_fire_at_once(place: Place) -> None:
    async with place.opened() as owner:
        await owner.start(operation(1, S.OBSERVING, deadlines=Deadlines(result=NOW), due_at=NOW))
        wish = ClaimWish("A", NOW, LEASE, {"test": 0}, paused=frozenset({"test"}))
        (claim,) = (await owner.store.claim(wish)).claims
        assert claim.is_overdue


# ---- long transfers ----


async def test_results_to_fetch_take_no_more_slots_than_they_are_given(place: Place) -> None:
    """Others behind them are served, and nobody looks again for what cannot be taken yet."""
    async with place.opened() as owner:
        collecting = [operation(n, S.RESULT_COLLECTING, due_at=NOW, priority=COLLECT) for n in range(1, 5)]
        await owner.start(*collecting, operation(5, S.CREATE_PENDING, due_at=NOW, priority=CREATE))
        wish = ClaimWish("A", NOW, LEASE, {"test": 4}, {"test": 3})
        claimed = (await owner.store.claim(wish)).claims
        assert sorted(c.operation.operation_id for c in claimed) == ["op_1", "op_2", "op_3", "op_5"]
        later = await owner.store.claim(ClaimWish("A", NOW, LEASE, {"test": 1}, {"test": 0}))
        assert (later.claims, dict(later.next_due)) == ((), {})
        (last,) = (await owner.store.claim(ClaimWish("A", NOW, LEASE, {"test": 1}, {"test": 1}))).claims
        assert last.operation.operation_id == "op_4"

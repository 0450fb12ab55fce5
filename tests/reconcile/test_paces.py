"""How a provider's jobs are watched follows from its ends, its open jobs and its list, and from nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from reconcile.absence import Served
from reconcile.contract import Lookup, WebhookTerms
from reconcile.listing import ERRORS_TO_LEAVE
from reconcile.model import Change, Entry, EntryKind
from reconcile.paces import Paces, Watch
from reconcile.schedule import Pace
from reconcile.states import State
from tests.reconcile.rows import CONTRACT, HOUR, NOW, in_state

HOOKS = WebhookTerms(scheme="standard", tolerance_seconds=300, retries_ms=HOUR)
TOLD = replace(CONTRACT, webhook=HOOKS)
SWEEPABLE = replace(TOLD, lookup=Lookup(is_sure=True, page_size=100))
HEALTHY = "1" * 20


def moved(before: State | None, after: State, **over: Any) -> Change:
    entry = Entry(EntryKind.MOVE, before, after, "observation:1", "so")
    return replace(Change(in_state(after), (entry,)), **over)


def test_healthy_webhooks_let_reads_wait_for_the_sweep_where_any_are_expected() -> None:
    assert Watch(TOLD, recent_ends=HEALTHY).pace is Pace.SWEPT
    assert Watch(TOLD, recent_ends="00" + "1" * 18).pace is Pace.POLLED
    assert Watch(CONTRACT, recent_ends=HEALTHY).pace is Pace.POLLED  # it has no webhooks, or no proof of them


def test_a_list_carries_its_jobs_only_once_the_file_has_taken_their_polls_away() -> None:
    watch = Watch(SWEEPABLE, open_jobs=20)
    assert (watch.goal, watch.pace) == (Pace.LISTED, Pace.POLLED)
    watch.has_sweep, watch.in_file = True, Pace.LISTED
    assert watch.pace is Pace.LISTED


def test_jobs_are_polled_from_the_decision_on_that_their_list_no_longer_carries_them() -> None:
    watch = Watch(SWEEPABLE, open_jobs=120, has_sweep=True, in_file=Pace.LISTED)
    watch.errors = ERRORS_TO_LEAVE - 1
    assert (watch.goal, watch.pace) == (Pace.LISTED, Pace.LISTED)
    watch.errors = ERRORS_TO_LEAVE
    assert (watch.goal, watch.pace, watch.is_worth_a_sweep) == (Pace.POLLED, Pace.POLLED, True)
    watch.recent_ends = HEALTHY
    assert (watch.goal, watch.pace) == (Pace.SWEPT, Pace.SWEPT)
    watch.errors, watch.open_jobs = 0, 9
    assert (watch.pace, watch.is_worth_a_sweep) == (Pace.SWEPT, False)


@pytest.mark.parametrize(
    ("before", "after", "by"),
    [
        (None, State.ACCEPTED, 1),
        (State.CREATE_PENDING, State.ACCEPTED, 1),
        (State.ACCEPTED, State.OBSERVING, 0),
        (State.OBSERVING, State.BLOCKED, 0),
        (State.OBSERVING, State.RESULT_COLLECTING, -1),
        (State.OBSERVING, State.CANCEL_REQUESTED, -1),
        (State.BLOCKED, State.INPUT_GIVEN, -1),
        (State.RESULT_TIMED_OUT, State.OBSERVING, 1),
        (State.CREATE_PENDING, State.FAILED, 0),
        (State.RESULT_COLLECTING, State.SUCCEEDED, 0),
    ],
)
def test_open_jobs_are_counted_from_what_was_committed(before: State | None, after: State, by: int) -> None:
    paces = Paces.of({"test": TOLD})
    paces.watches["test"].open_jobs = 5
    paces.take(moved(before, after))
    assert paces.watches["test"].open_jobs == 5 + by


def test_jobs_that_nothing_may_be_asked_about_are_not_counted_and_their_ends_are() -> None:
    served = Served({"test": frozenset({"https://here.example"})})
    paces = Paces.of({"test": SWEEPABLE}, served)
    watch = paces.watches["test"]
    watch.open_jobs = 5
    for origin, count in (("https://moved.example", 5), ("https://here.example", 4), (None, 3)):
        left = moved(State.OBSERVING, State.OBSERVATION_FAILED, recent_ends="1")
        paces.take(replace(left, operation=replace(left.operation, origin=origin)))
        assert (watch.open_jobs, watch.recent_ends) == (count, "1")


def test_whoever_keeps_the_due_times_is_told_when_the_pace_is_to_change_and_only_then() -> None:
    paces = Paces.of({"test": SWEEPABLE})
    watch = paces.watches["test"]
    watch.open_jobs = 18
    assert not paces.take(moved(State.CREATE_PENDING, State.ACCEPTED))
    assert paces.take(moved(State.CREATE_PENDING, State.ACCEPTED))  # the twentieth
    assert not paces.take(moved(State.ACCEPTED, State.OBSERVING))
    watch.open_jobs, watch.recent_ends = 5, "1" * 19
    end = moved(State.OBSERVING, State.RESULT_COLLECTING, recent_ends=HEALTHY)
    assert paces.take(end)
    assert paces("test") is Pace.SWEPT
    assert paces.take(replace(end, recent_ends="0" * 20))


def test_a_provider_that_is_not_configured_is_polled() -> None:
    paces = Paces.of({})
    assert paces("test") is Pace.POLLED
    assert not paces.take(moved(None, State.ACCEPTED))


def test_silence_is_told_of_those_whose_events_are_expected() -> None:
    paces = Paces({"a": Watch(TOLD, recent_ends="00000"), "b": Watch(CONTRACT, recent_ends="00000"), "c": Watch(TOLD)})
    assert [notice.notice_id for notice in paces.silent(NOW)] == ["webhooks_silent.a"]

"""What is told of a commit: each change of each write, to whoever waits for its operation."""

from dataclasses import replace
from typing import Any, cast

import structlog

from daemon.meters import Counts
from reconcile.changes import Changes
from reconcile.model import Change, Entry, EntryKind, Operation
from reconcile.report import Reporter
from reconcile.states import State
from reconcile.store.writer import Done
from tests.reconcile.rows import in_state


def moved(op: Operation, to: State) -> Change:
    after = replace(op, state=to)
    return Change(after, (Entry(EntryKind.MOVE, op.state, to, "event:e", "told", {}),), is_news=True)


async def test_who_waits_hears_of_the_last_change_of_a_write_that_made_several() -> None:
    """An event that was kept is judged in the write that brings its job: its end is the second change."""
    changes, seen = Changes(), list[State]()

    def note(state: State) -> bool:
        seen.append(state)
        return False

    reporter = Reporter(
        changes=changes,
        meters=Counts(),
        clock=cast("Any", None),
        log=structlog.get_logger(),
        on_due=lambda _: None,
        on_change=lambda change: note(change.operation.state),
    )
    accepted = moved(in_state(State.CREATE_PENDING), State.ACCEPTED)
    ended = moved(accepted.operation, State.FAILED)
    with changes.watch(accepted.operation.operation_id) as watch:
        reporter([Done(changes=(accepted, ended))])
        told = await watch.next()
    assert (told and told.state, seen) == (State.FAILED, [State.ACCEPTED, State.FAILED])

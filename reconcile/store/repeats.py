"""Reads that told nothing new: of each the next due time is written and nothing else, where its row stands as it did.

Whatever has come to the row since it was leased, a ring or a wish or another owner, sends the read to `evidence`.
"""

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from reconcile.light_dataclass import light_dataclass
from reconcile.model import Operation, UnixMs
from reconcile.states import Priority, State
from reconcile.store.writer import Done, Kind


@light_dataclass(frozen=True, slots=True)
class Repeat:
    """A read that repeats what `operation` says, under the lease with this fence."""

    operation: Operation
    fence: int
    at: UnixMs
    #: When the job is read again, if no deadline comes before.
    next_at: UnixMs


#: `seq`: no history since. `polls`: no read since, which alone changes what is shown of a job under a lease.
_STANDING: Final = (
    "SELECT j.key, s.key, s.deadline_at FROM json_each(?) j CROSS JOIN operations o ON o.operation_id = j.value ->> 0"
    f" JOIN schedule s ON s.key = o.key WHERE o.state = '{State.OBSERVING}' AND o.seq = j.value ->> 1"
    " AND s.lease_owner IS NOT NULL AND s.fence = j.value ->> 2 AND s.polls = j.value ->> 3 AND s.ring IS NULL"
    " AND s.errors = 0 AND s.gone_reads = 0 AND s.mark_at IS NULL"
    " AND (s.deadline_at IS NULL OR s.deadline_at > j.value ->> 4)"
)
_PLAN: Final = (
    f"UPDATE schedule SET due_at = ?, priority = {Priority.SWEPT}, polls = polls + 1,"
    " last_read_at = ?, reads = reads + 1, lease_owner = NULL, lease_until = NULL WHERE key = ?"
)


def _keep(connection: sqlite3.Connection, repeats: Sequence[Repeat]) -> list[Done]:
    """Answered True where the row stood as it did."""
    said = [
        (each.operation.operation_id, each.operation.seq, each.fence, each.operation.schedule.polls, each.at)
        for each in repeats
    ]
    done = [Done(result=False)] * len(repeats)
    plans = []
    for n, key, deadline_at in connection.execute(_STANDING, (json.dumps(said),)).fetchall():
        due_at = repeats[n].next_at if deadline_at is None else min(repeats[n].next_at, deadline_at)
        plans.append((due_at, repeats[n].at, key))
        done[n] = Done(result=True, due_at=due_at)  # a deadline that comes first wakes the worker too
    connection.executemany(_PLAN, plans)
    return done


KEEP: Final = Kind("repeats", _keep)

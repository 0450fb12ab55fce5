"""What one look-up for a lost create cannot know by itself: which jobs are held, and whose the others may be.

Asked inside the transaction that decides: on a copy read before, two operations could take one job for theirs.
"""

import json
import sqlite3
from collections.abc import Mapping
from typing import Final

from reconcile.evidence import LookupFound
from reconcile.model import Operation
from reconcile.replacing import replace
from reconcile.states import GIVEN_UP, State
from reconcile.store.reading import Reader
from reconcile.store.schema import listed

#: Jobs that are other operations' own. Those that ended without the job's own end hold none (N5), but their creates
#: did make it.
_OF_OTHERS: Final = (
    f"SELECT remote_job_id, state NOT IN {listed(GIVEN_UP)} FROM present WHERE provider = ? AND key <> ?"
    " AND remote_job_id IN (SELECT value FROM json_each(?))"
)
#: The same for a reader, which knows an operation by its id and not by its key.
_OF_OTHERS_BY_ID: Final = _OF_OTHERS.replace("key <> ?", "operation_id <> ?")
#: Other operations whose create may have made a job that nobody holds: lost, under way, stopped over it, or given up
#: since this one was started.
_LOST: Final = (
    "SELECT EXISTS (SELECT 1 FROM operations o LEFT JOIN schedule s ON s.key = o.key"
    " WHERE o.provider = ? AND o.key <> ? AND o.remote_job_id IS NULL AND o.state IN"
    "  ('create_pending', 'create_unknown', 'create_unresolved', 'contract_violation', 'abandoned')"
    " AND (o.state <> 'create_pending' OR s.mark_at IS NOT NULL OR coalesce(o.living ->> '$.resends', 0) > 0)"
    " AND (o.state <> 'abandoned' OR o.completed_at >= ?))"
)


def among_others(connection: sqlite3.Connection, key: int, op: Operation, found: LookupFound) -> LookupFound:
    """`found` without the jobs that other operations hold, and with what else it takes to judge it.

    What bears this operation's own mark stays, whoever holds it: two operations cannot have made one job.
    """
    jobs = list(dict.fromkeys((*found.job_ids, *op.candidates)))
    if found.is_sure or not jobs:
        return found
    of_others = dict(connection.execute(_OF_OTHERS, (op.provider, key, json.dumps(jobs))).fetchall())
    held = tuple(job_id for job_id in jobs if of_others.get(job_id))
    left = tuple(job_id for job_id in found.job_ids if job_id not in held)
    is_lost = connection.execute(_LOST, (op.provider, key, op.created_at)).fetchone()[0]
    is_only_lost = not is_lost and not set(left) & of_others.keys()
    return replace(found, job_ids=left, held=held, is_only_lost=is_only_lost)


async def shown_now(reader: Reader, op: Operation) -> Operation:
    """As `as_shown`, for a reader."""
    if not _may_have_lost(op):
        return op
    parameters = (op.provider, op.operation_id, json.dumps(op.candidates))
    return _without(op, dict(await reader.execute_fetchall(_OF_OTHERS_BY_ID, parameters)))


def as_shown(connection: sqlite3.Connection, key: int, op: Operation) -> Operation:
    """A lost create without candidates that others came to hold; a violation shows whatever it has."""
    if not _may_have_lost(op):
        return op
    parameters = (op.provider, key, json.dumps(op.candidates))
    return _without(op, dict(connection.execute(_OF_OTHERS, parameters).fetchall()))


def _may_have_lost(op: Operation) -> bool:
    return op.state is State.CREATE_UNRESOLVED and bool(op.candidates)


def _without(op: Operation, of_others: Mapping[str, int]) -> Operation:
    return replace(op, candidates=tuple(job_id for job_id in op.candidates if not of_others.get(job_id)))

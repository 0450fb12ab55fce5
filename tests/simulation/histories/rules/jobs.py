"""Which jobs a provider has for an operation, and which of them the operation holds."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tests.simulation.histories.rules.seen import Seen, creates_that_may_have_arrived, creed_of, surely_answered
from tests.simulation.histories.truth import TrueJob
from tests.simulation.rules import record
from tests.simulation.view import Row, facts

#: How long an answer may take and be kept, ms: longer than any that is not late by its network.
_KEPT_MS: Final = 5_000


def n3_one_job(seen: Seen) -> Iterator[str]:
    """At most one job; without an honoured token at most one create that may have arrived, and one a permission."""
    known = {op["trace_id"]: op for op in seen.view.operations}
    for trace_id, jobs in seen.jobs.items():
        if trace_id not in known:
            yield f"the jobs {[job.id for job in jobs]} are nobody's: their trace is {trace_id!r}"
    for op in seen.view.operations:
        creed = creed_of(op)
        jobs = seen.its_jobs(op)
        leave = seen.asked(op, "resend") + (creed is not None and creed.on_absent == "resend")
        if creed is not None and creed.lies:
            continue  # it makes a job of each create; who is told of them, the next rule looks at
        if len(jobs) > 1 + leave:
            yield f"{op['operation_id']} has {len(jobs)} jobs, {leave} re-sends were allowed"
        if creed is None or not creed.token:
            sent = creates_that_may_have_arrived(seen, op)
            if sent > 1 + leave:
                yield f"{sent} creates of {op['operation_id']} may have made a job, {leave} re-sends were allowed"


def n3_two_jobs_are_told(seen: Seen) -> Iterator[str]:
    """Where two jobs of one operation were surely heard of, both stand in its record and somebody is told (B4)."""
    if seen.world.jumped:
        return
    for op in seen.view.operations:
        jobs = seen.its_jobs(op)
        heard = _heard_of(seen, op, jobs) if len(jobs) > 1 else set()
        if len(heard) < 2:
            continue
        rows = facts(seen.view, op)
        told = [op["remote_job_id"], *op["living"].get("candidates", ()), *(f"{row['facts']}" for row in rows)]
        unnamed = [job for job in sorted(heard) if not any(job in words for words in told if words)]
        is_told = any(row["kind"] == "contradiction" or row["to_state"] in record.MANY_JOBS_ARE_TOLD for row in rows)
        if unnamed or not is_told:
            yield f"{op['operation_id']} has the jobs {sorted(heard)}, which were answered; unnamed: {unnamed}"


def _heard_of(seen: Seen, op: Row, jobs: list[TrueJob]) -> set[str]:
    """The jobs that a create or a look-up was surely answered with, in a life that went on long enough to keep it."""
    late_ms = seen.wish(op).script.shown_after_ms
    births = [life.began_ms for life in seen.world.lives]
    births += [] if seen.at_the_end else [seen.world.now_ms]
    heard: set[str] = set()
    for at, method, path in surely_answered(seen, op["trace_id"]):
        if path != "/v1/jobs" or any(at < birth <= at + _KEPT_MS for birth in births):
            continue
        if method == "POST":
            heard |= {job.id for job in jobs if job.created_ms == at}
        else:
            heard |= {job.id for job in jobs if job.created_ms + late_ms <= at}
    return heard


def n5_a_job_id_is_written_once(seen: Seen) -> Iterator[str]:
    """An operation holds the job of its own create, or one that a person named; one id, and one holder."""
    held = Counter(
        (op["provider"], op["remote_job_id"]) for op in seen.view.operations if op["state"] not in record.GIVEN_UP
    )
    for op in seen.view.operations:
        rows = facts(seen.view, op)
        told = [row["facts"]["remote_job_id"] for row in rows if "remote_job_id" in row["facts"]]
        told = [job for job in dict.fromkeys(told) if job is not None]
        job_id = op["remote_job_id"]
        if (told[-1] if told else None) != job_id:
            yield f"{op['operation_id']} holds {job_id}, its history says {told}"
        if len(told) > 1 + seen.asked(op, "choose_job"):
            yield f"{op['operation_id']} held {told}"
        if job_id is None:
            continue
        job = seen.job(op)
        if job is None:
            yield f"{op['operation_id']} holds {job_id}, which never was"
        elif job.trace_id != op["trace_id"] and not seen.asked(op, "adopt_job", "choose_job"):
            yield f"{op['operation_id']} holds {job_id}, the job of another operation"
        if held[op["provider"], job_id] > 1:
            yield f"{job_id} is held by {held[op['provider'], job_id]} operations"

"""What an operation came to: it is what really happened to its job, and what was read of it."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from reconcile.states import TERMINAL, State
from tests.simulation.histories.accounts import WORDS
from tests.simulation.histories.configuration import host_of
from tests.simulation.histories.rules.seen import Seen, creates_that_may_have_arrived, shows
from tests.simulation.rules import record
from tests.simulation.view import Row, moves

#: Within so long of its create a job may have ended in the answer itself, ms: the longest that an account takes.
_AT_ONCE_MS: Final = 4_000


def n10_ends_fit_their_counts(seen: Seen) -> Iterator[str]:
    """Success has a whole, collected result; "with errors" some of each; the files are there and are the bytes."""
    for op in seen.view.operations:
        summary, result = op["living"].get("summary"), op["living"].get("result")
        if op["state"] not in record.GOOD_ENDS:
            continue
        is_accepted = seen.asked(op, "accept") > 0
        if summary is None or result is None or (result.get("problems") and not is_accepted):
            yield f"{op['operation_id']} is {op['state']} without a valid result: {result}"
            continue
        if sum(record.counted(op).values()) != summary["total"] or not (summary["succeeded"] or is_accepted):
            yield f"{op['operation_id']} is {op['state']} with {summary}"
        is_whole, verdict = summary["succeeded"] == summary["total"], op["living"].get("verdict") or {}
        may_be_whole = is_accepted or verdict.get("kind") == "EXPIRED"
        if (op["state"] == "succeeded" and not is_whole) or (
            op["state"] != "succeeded" and is_whole and not may_be_whole
        ):
            yield f"{op['operation_id']} is {op['state']} with {summary}"
        yield from record.n10_files_are_there(seen.view, op)


def n11_no_end_against_the_truth(seen: Seen) -> Iterator[str]:
    """An outcome is what really happened to the job; without a job, what really became of its create."""
    for op in seen.view.operations:
        if State(op["state"]) not in TERMINAL or op["state"] in record.GIVEN_UP:
            continue
        allowed = _allowed(seen, op)
        if op["state"] not in allowed:
            yield f"{op['operation_id']} of {op['provider']} is {op['state']}; in truth: {sorted(allowed) or 'it runs'}"


def _allowed(seen: Seen, op: Row) -> set[str]:
    account = seen.world.accounts.get(op["provider"])
    job = seen.job(op)
    allowed: set[str] = set()
    if job is not None:
        allowed = job.outcomes()
        if seen.asked(op, "accept"):
            allowed |= {"failed"} | ({"completed_with_errors"} if job.end in ("done", "expired") else set())
        if account is not None and "after an event told its end" in moves(seen.view, op)[-1]["reason"]:
            # Nobody else told of a job that is forgotten: a lie of its provider is all that there was.
            told = {event.state for event in account.events if event.job_id == job.id and event.attempts}
            allowed = allowed.union(*map(job.outcomes_of, told & set(WORDS.values())))
        return allowed
    jobs = seen.its_jobs(op)
    if not any(send.has_effect for send in seen.its_sends(op)):
        return {"failed", "cancelled"}
    if account is not None:
        if op["trace_id"] in account.finished_at_once:
            allowed |= {account.finished_at_once[op["trace_id"]]}
        if account.refusals[op["trace_id"]]:
            allowed |= {"failed"}
    if not jobs and creates_that_may_have_arrived(seen, op) <= 0:  # its deadline ends it as never sent
        allowed |= {"failed", "cancelled"}
    return allowed


def n12_items_add_up(seen: Seen) -> Iterator[str]:
    """Ids that were sent each stand once in what is served, with the outcome that the provider gave them (N12, N16)."""
    for op in seen.view.operations:
        job = seen.job(op)
        is_judged = op["state"] in record.GOOD_ENDS | {"cancelled"}
        if job is None or not is_judged or not job.has_items or job.is_spoiled or job.also_told:
            continue
        if seen.asked(op, "accept", "adopt_job", "choose_job") or seen.wish(op).script.forgotten_after_ms is not None:
            continue
        ids = seen.wish(op).item_ids
        absent = {"expired": "expired", "cancelled": "cancelled"}.get(job.end or "", "missing")
        true = Counter(job.items.get(i, absent) for i in ids)
        if record.counted(op) != {word: true[word] for word in record.ITEM_ENDS}:
            summary = op["living"].get("summary") or {}
            yield f"{op['operation_id']} of {op['provider']} sums up {summary}, in truth {dict(true)}"


def n20_success_was_read(seen: Seen) -> Iterator[str]:
    """A good end was read with our key after it happened: of the job, its list or its result."""
    for op in seen.view.operations:
        job = seen.job(op)
        if op["state"] not in record.GOOD_ENDS or job is None or job.ended_ms is None:
            continue
        ended_ms = job.ended_ms
        reads = [a for a in seen.its_arrivals(op) if shows(a, ended_ms) and job.id in a.path]
        host = host_of(op["provider"])
        watch = seen.world.watches[op["provider"]]
        lists = [a for a in watch.arrivals if shows(a, ended_ms) and a.is_list]
        at_once = [a for a in watch.arrivals if a.is_create and ended_ms <= a.at_ms + _AT_ONCE_MS]
        if not reads and not lists and not at_once:
            yield f"{op['operation_id']} is {op['state']}, and {host} was never asked after its end at {ended_ms}"

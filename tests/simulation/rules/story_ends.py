"""That a told story comes to its end, and that the end is what really happened to its job."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from reconcile.states import TERMINAL, State
from tests.simulation.client import CREATE_WITHIN_MS, ITEM_IDS, NAME
from tests.simulation.rules import record
from tests.simulation.view import View, moves
from tests.simulation.world import LEASE_MS, PATIENCE_SECONDS

#: How long the provider may need for a job and for the last of its webhooks, ms: both bounds of the scenarios here.
PROVIDER_MS: Final = 120_000


def n10_ends_fit_their_counts(view: View) -> Iterator[str]:
    """Success has a whole, collected result; "with errors" has some of each; the files are there and are the bytes."""
    for op in view.operations:
        summary, result = op["living"].get("summary"), op["living"].get("result")
        if op["state"] not in record.GOOD_ENDS:
            continue
        if summary is None or result is None or result.get("problems"):
            yield f"{op['operation_id']} is {op['state']} without a valid result: {result}"
            continue
        if summary["total"] != len(ITEM_IDS) or result["items"] != len(ITEM_IDS):
            yield f"{op['operation_id']} is {op['state']} with {summary['total']} of {len(ITEM_IDS)} items"
        if (op["state"] == "succeeded") != (summary["succeeded"] == summary["total"]) or not summary["succeeded"]:
            yield f"{op['operation_id']} is {op['state']} with {summary}"
        yield from record.n10_files_are_there(view, op)


def n11_no_end_against_the_truth(view: View) -> Iterator[str]:
    """An outcome is what really happened to the job."""
    for op in view.operations:
        if State(op["state"]) not in TERMINAL or op["state"] in record.GIVEN_UP:
            continue
        jobs = view.jobs(op)
        if not jobs and op["state"] in ("failed", "cancelled"):
            continue  # never sent, refused, or withdrawn (N15)
        ends = {_true_outcome(view, job) for job in jobs}
        if ends != {op["state"]}:
            yield f"{op['operation_id']} is {op['state']}; in truth its job came to {ends or 'nothing: there is none'}"


def _true_outcome(view: View, job: Any) -> str:
    words = set(view.world.provider.item_outcomes(job).values())
    match job.status:
        case "completed" if len(words) == 1:
            return str(*words)
        case "completed":
            return "completed_with_errors"
        case "expired":
            return "completed_with_errors" if "succeeded" in words else "failed"
        case status:
            return str(status)


def n12_items_add_up(view: View) -> Iterator[str]:
    """Each submitted id stands once in what is served, with the outcome that the provider gave it."""
    for op in view.operations:
        attempt = op["living"].get("collect_attempt", 0)
        served = [row for row in view.items[op["key"]] if row["attempt"] == attempt]
        if op["state"] not in record.GOOD_ENDS | {"cancelled"} or not attempt:
            continue
        found = [(row["item_id"], row["outcome"]) for row in served]
        true = sorted(view.world.provider.item_outcomes(view.jobs(op)[0]).items())
        if sorted(found) != true or {item_id for item_id, _ in found} != set(ITEM_IDS):
            yield f"{op['operation_id']} serves {found}, in truth {true}"
        there = Counter(outcome for _, outcome in found)
        if record.counted(op) != {word: there[word] for word in record.ITEM_ENDS}:
            yield f"{op['operation_id']} sums up {op['living'].get('summary')}, its items are {dict(there)}"


def n20_success_was_read(view: View) -> Iterator[str]:
    """An end was read with our key after it happened, and after the event that announced it was taken."""
    arrivals = view.world.provider.watch.arrivals
    for op in view.operations:
        collecting = next((row for row in moves(view, op) if row["to_state"] == "result_collecting"), None)
        if collecting is None:
            if op["state"] in record.GOOD_ENDS:
                yield f"{op['operation_id']} is {op['state']} and never collected"
            continue
        job = view.jobs(op)[0]
        ended_at = job.states[-1][1]
        reads = [a for a in arrivals if a.method == "GET" and a.status == 200 and ended_at <= a.at_ms]
        of_job = [a for a in reads if a.path in (f"/v1/batches/{job.id}", "/v1/batches")]
        if not any(a.at_ms <= collecting["at"] for a in of_job):
            yield f"{op['operation_id']} was collected at {collecting['at']}, before any read of its end ({ended_at})"
        fetched = {a.path for a in reads}
        files = [name for name in (job.output_file_id, job.error_file_id) if name]
        if op["state"] in record.GOOD_ENDS:
            yield from (
                f"{op['operation_id']} ended without a fetch of {name}"
                for name in files
                if f"/v1/files/{name}/content" not in fetched
            )


def n23_something_always_comes_next(view: View) -> Iterator[str]:
    """An open row has a next action with a time in reach, or a question with a deadline."""
    yield from record.n23_questions_have_a_deadline(view)
    reach = view.world.now_ms + _longest_wait_ms(view) + LEASE_MS
    for op, plan in record.open_rows(view):
        if not op["living"].get("attention") and plan["due_at"] > reach:
            yield f"{op['operation_id']} in {op['state']} is due only at {plan['due_at']}"


def n23_it_ends(view: View) -> Iterator[str]:
    """With nothing broken any more all is done, or in the inbox, within the bounds."""
    for life in view.world.lives:
        if life.stalled:
            yield f"life {life.number} waited {PATIENCE_SECONDS} s for its end in vain"
    begun = view.world.lives[-1].began_ms
    bound = max(CREATE_WITHIN_MS, PROVIDER_MS) + LEASE_MS + 2 * _longest_wait_ms(view)
    for op in view.operations:
        if State(op["state"]) not in TERMINAL and not op["living"].get("attention"):
            yield f"{op['operation_id']} still stands in {op['state']}"
        elif (late := moves(view, op)[-1]["at"] - max(op["created_at"], begun) - bound) > 0:
            yield f"{op['operation_id']} came to its end {late} ms later than it may"


def _longest_wait_ms(view: View) -> int:
    poll = view.world.config.providers[NAME].provider.contract.poll
    return max(poll.cap_ms, poll.sweep_ms)

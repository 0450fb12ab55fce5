"""What really happened to each job of a random world, in one shape, read from the providers' own accounts alone."""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from daemon.standin.anthropic_jobs import MessageBatch
from daemon.standin.jobs import Job as StandInJob
from tests.simulation.histories.accounts import Job
from tests.simulation.histories.standins import StandIn
from tests.simulation.histories.world import HistoryWorld

_ANTHROPIC_WORDS: Final = {"succeeded": "succeeded", "errored": "failed", "canceled": "cancelled", "expired": "expired"}


@dataclass(frozen=True, slots=True)
class TrueJob:
    """One job. `end`: done, failed, expired, cancelled; None: it runs."""

    id: str
    provider: str
    trace_id: str
    created_ms: int
    end: str | None
    ended_ms: int | None
    #: Ends that its provider told beside the true one.
    also_told: frozenset[str]
    #: What became of its items, as its results tell; of ids in no result nothing.
    items: Mapping[str, str]
    has_items: bool
    is_spoiled: bool

    def outcomes(self) -> set[str]:
        """What an operation that holds it may have come to, without a person's `accept`."""
        allowed = {outcome for word in {self.end, *self.also_told} if word for outcome in self.outcomes_of(word)}
        return allowed | ({"failed", "completed_with_errors"} if self.also_told else set())

    def outcomes_of(self, word: str) -> set[str]:
        """The same, had it ended as `word`."""
        words = set(self.items.values())
        if word == "failed":
            return {"failed"}
        if word == "cancelled":
            return {"cancelled"}
        if word == "expired" and self.is_spoiled:
            return {"failed", "completed_with_errors"}
        if word == "expired":
            return {"completed_with_errors" if "succeeded" in words else "failed"}
        if self.is_spoiled:
            return set()
        if not self.has_items:
            return {"succeeded"}
        if words == {"succeeded"}:
            return {"succeeded"}
        return {"completed_with_errors" if "succeeded" in words else "failed"}


def jobs_by_trace(world: HistoryWorld) -> Mapping[str, list[TrueJob]]:
    """Every job of every provider, by the trace of the create that made it."""
    found: defaultdict[str, list[TrueJob]] = defaultdict(list)
    for account in world.accounts.values():
        for job in account.jobs.values():
            job.latch(world.now_ms)
            found[job.trace_id].append(_of_declared(account.creed.name, job))
    for name, standin in world.standins.items():
        standin.advance(world.now_ms)
        for each in standin._order:
            found[standin.trace_of[each.id]].append(_of_standin(name, standin, each))
    return found


def _of_declared(provider: str, job: Job) -> TrueJob:
    end, ended_ms = job.ended or (None, None)
    has_items = job.creed.results == "items"
    is_spoiled = has_items and bool(job.script.spoils) and bool(job.outcomes())
    return TrueJob(
        job.id,
        provider,
        job.trace_id,
        job.created_ms,
        end,
        ended_ms,
        frozenset(job.also_told),
        job.outcomes(),
        has_items,
        is_spoiled,
    )


def _of_standin(provider: str, standin: StandIn, job: StandInJob) -> TrueJob:
    items = _items(standin, job) if job.ended else {}
    end = {"completed": "done"}.get(job.ends, job.ends) if job.ended else None
    if provider == "anthropic" and end is not None:
        # A Message Batch only ends; whether it was cancelled, or its time was up, its requests tell.
        end = "cancelled" if "cancelled" in items.values() else "done"
    return TrueJob(
        job.id,
        provider,
        standin.trace_of[job.id],
        job.created_ms,
        end,
        job.ends_ms if job.ended else None,
        frozenset(),
        items,
        has_items=True,
        is_spoiled=False,
    )


def _items(standin: StandIn, job: StandInJob) -> dict[str, str]:
    if isinstance(job, MessageBatch):
        read = (json.loads(line) for line in job.result_lines())
        return {row["custom_id"]: _ANTHROPIC_WORDS[row["result"]["type"]] for row in read}
    return standin.item_outcomes(job)

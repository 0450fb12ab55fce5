"""What the stand-in did and knows, as a plain record for tests to compare with."""

import dataclasses

from daemon.standin.deliveries import EventRecord
from daemon.standin.jobs import Batch, Job


@dataclasses.dataclass(frozen=True)
class JobTruth:
    """What really happened to one job. A Message Batch has no files and no metadata."""

    id: str
    input_file_id: str | None
    metadata: dict[str, str] | None
    scenario: str
    status: str
    #: Each status it was in and since when, unix ms; the last is the present one.
    states: tuple[tuple[str, int], ...]
    total: int
    completed: int
    failed: int
    output_file_id: str | None
    error_file_id: str | None
    reads: int
    cancels: int


@dataclasses.dataclass(frozen=True)
class EventTruth:
    """What became of one webhook."""

    event_id: str
    job_id: str
    attempts: int
    taken: int
    given_up: bool


@dataclasses.dataclass(frozen=True)
class Truth:
    """What the provider did and knows, for tests to compare with. Calls are counted whether they succeeded or not."""

    jobs: tuple[JobTruth, ...]
    events: tuple[EventTruth, ...]
    uploads: int
    creates: int
    reads: int
    lists: int
    cancels: int
    downloads: int


def truth_of_job(job: Job, now_ms: int) -> JobTruth:
    """A job at `now_ms`."""
    counts = job.counts(now_ms)
    input_file_id = metadata = output_file_id = error_file_id = None
    if isinstance(job, Batch):
        input_file_id, metadata = job.input_file_id, job.metadata
        output_file_id, error_file_id = job.output_file_id, job.error_file_id
    return JobTruth(
        job.id,
        input_file_id,
        metadata,
        job.scenario.name,
        job.status(now_ms),
        tuple(job.reached(now_ms)),
        counts.total,
        counts.completed,
        counts.failed,
        output_file_id,
        error_file_id,
        job.reads,
        job.cancels,
    )


def truth_of_event(record: EventRecord) -> EventTruth:
    """A webhook so far."""
    return EventTruth(record.event_id, record.job_id, record.attempts, record.taken, record.given_up)

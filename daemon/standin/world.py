"""The stand-in's world: its files, its batch jobs and the webhooks it owes. Pure: the time is handed to every call.

Nothing here waits, draws or opens anything, so that a server on a real socket and a simulation under a virtual clock
tell the same story. Jobs move by being asked about (jobs.py); ends are latched in the order of their times, whoever
asks first, so that equal calls give equal ids.
"""

import dataclasses
import heapq
from collections.abc import Callable, Iterator
from typing import Final, Literal

from daemon.standin.deliveries import Deliveries, Delivery
from daemon.standin.items import BatchInput, NumberedIds, ResultLines, read_input
from daemon.standin.jobs import Job
from daemon.standin.openai_bodies import (
    DEFAULT_KEPT_SECONDS,
    ApiError,
    Body,
    batch_body,
    check_create,
    event_bytes,
    fault_answer,
    file_body,
    list_body,
    no_batch,
    no_file,
)
from daemon.standin.scenarios import SCENARIO_KEY, Scenario, find_scenario
from daemon.standin.truth import Truth, truth_of_event, truth_of_job
from reconcile.errors import RequestInvalid

#: The provider's page size and its limit.
DEFAULT_PAGE, MAX_PAGE = 20, 100
#: Purposes the provider's reference names for uploads; only "batch" can be used here.
PURPOSES: Final = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")


@dataclasses.dataclass(frozen=True)
class Content:
    """A file's bytes, made as they are taken. `size` is their exact number."""

    size: int
    lines: Callable[[], Iterator[bytes]]


@dataclasses.dataclass(frozen=True)
class _File:
    id: str
    purpose: str
    filename: str
    created_ms: int
    expires_ms: int
    source: bytes | ResultLines

    @property
    def size(self) -> int:
        return len(self.source) if isinstance(self.source, bytes) else self.source.size

    def lines(self) -> Iterator[bytes]:
        return iter((self.source,)) if isinstance(self.source, bytes) else iter(self.source)


class World:
    """One account at the provider."""

    def __init__(self, scenario: Scenario, *, ids: Callable[[str], str], speed: float = 1.0) -> None:
        """`ids` makes a fresh id that begins with what it is given; `speed` 10 makes every span a tenth."""
        self.ids = ids
        self._speed, self._scenario = speed, scenario.at_speed(speed)
        self._at_speed: dict[str, Scenario] = {}
        self._files: dict[str, _File] = {}
        self._jobs: dict[str, Job] = {}
        self._order: list[Job] = []
        self._now_ms = 0
        #: (when, tie-break, job); entries of a plan that a cancel replaced are passed over.
        self._ends: list[tuple[int, int, Job]] = []
        self._announcements: list[tuple[int, int, Job]] = []
        self._announced: set[str] = set()
        self._pushed = 0
        self._deliveries = Deliveries(speed)
        self._calls = dict.fromkeys(("uploads", "creates", "reads", "lists", "cancels", "downloads"), 0)

    # Files.

    def upload(self, data: bytes, purpose: str, now_ms: int, *, filename: str = "batch.jsonl") -> Body:
        """Keep a file; its lines are looked at when a batch is made of it.

        Raises:
            ApiError: a purpose that is not one, or a batch file whose name does not end in .jsonl.
        """
        now_ms = self._advance(now_ms)
        self._calls["uploads"] += 1
        if purpose not in PURPOSES:
            raise ApiError(400, f"'{purpose}' is not one of {', '.join(PURPOSES)} - 'purpose'", param="purpose")
        if purpose == "batch" and not filename.endswith(".jsonl"):
            raise ApiError(400, "Invalid file format for Batch API. Must be .jsonl")
        file = _File(self.ids("file-"), purpose, filename, now_ms, now_ms + DEFAULT_KEPT_SECONDS * 1000, data)
        self._files[file.id] = file
        return self._file_body(file)

    def file(self, file_id: str, now_ms: int) -> Body:
        """A file's description. Raises: ApiError 404."""
        self._advance(now_ms)
        return self._file_body(self._file(file_id))

    def content(self, file_id: str, now_ms: int) -> Content:
        """A file's bytes. Raises: ApiError 404."""
        self._advance(now_ms)
        self._calls["downloads"] += 1
        file = self._file(file_id)
        return Content(file.size, file.lines)

    def _file(self, file_id: str) -> _File:
        file = self._files.get(file_id)
        if file is None or file.expires_ms <= self._now_ms:
            raise no_file(file_id)
        return file

    def _file_body(self, file: _File) -> Body:
        return file_body(
            file.id,
            size=file.size,
            created_ms=file.created_ms,
            expires_ms=file.expires_ms,
            filename=file.filename,
            purpose=file.purpose,
        )

    # Jobs.

    def create(self, body: object, now_ms: int) -> Body:
        """Make a batch. What is wrong with its lines shows later, as the batch's own failure.

        Raises:
            ApiError: the body itself is at fault; no batch was made.
        """
        now_ms = self._advance(now_ms)
        self._calls["creates"] += 1
        file_id, endpoint, metadata, kept_seconds = check_create(body)
        file = self._files.get(file_id)
        if file is None or file.expires_ms <= now_ms or not isinstance(file.source, bytes):
            raise ApiError(400, f"No such File object: {file_id}", param="input_file_id", code="invalid_value")
        if file.purpose != "batch":
            text = f"The file {file_id} was uploaded for '{file.purpose}', not for 'batch'."
            raise ApiError(400, text, param="input_file_id", code="invalid_value")
        scenario = self._scenario_for(metadata)
        job = self._add(
            read_input(file.source, endpoint),
            scenario,
            now_ms,
            endpoint=endpoint,
            input_file_id=file_id,
            metadata=metadata,
            kept_seconds=kept_seconds,
        )
        return batch_body(job, now_ms)

    def seed_job(
        self,
        *,
        items: int,
        now_ms: int,
        scenario: Scenario | None = None,
        metadata: dict[str, str] | None = None,
        endpoint: str = "/v1/responses",
    ) -> str:
        """Put in a job that nobody here uploaded or created, for adoption and for size tests; its id.

        It begins at `now_ms`, or at the world's own time if that is later: jobs stand in the order of their creation.
        Its items are `item-00000000` and on; the provider's limit on them does not hold. Its input cannot be read.
        """
        now_ms = self._advance(now_ms)
        job = self._add(
            BatchInput(NumberedIds(items), "example-model"),
            self._scenario if scenario is None else scenario.at_speed(self._speed),
            now_ms,
            endpoint=endpoint,
            input_file_id=self.ids("file-"),
            metadata=metadata,
            kept_seconds=DEFAULT_KEPT_SECONDS,
        )
        return job.id

    def read(self, job_id: str, now_ms: int) -> Body:
        """A batch as it stands.

        Raises:
            ApiError: 404, or whatever trouble the job's scenario has for this read.
        """
        now_ms = self._advance(now_ms)
        self._calls["reads"] += 1
        job = self._job(job_id)
        status = job.scenario.read_statuses[job.reads % len(job.scenario.read_statuses)]
        job.reads += 1
        if status != 200:
            raise fault_answer(status)
        return batch_body(job, now_ms)

    def list_page(self, limit: int, after: str | None, now_ms: int) -> Body:
        """A page of batches, newest first, from the one that follows `after`.

        Raises:
            ApiError: a limit out of range, or `after` names no batch.
        """
        now_ms = self._advance(now_ms)
        self._calls["lists"] += 1
        if not 1 <= limit <= MAX_PAGE:
            raise ApiError(400, f"Invalid value for 'limit': 1 to {MAX_PAGE} are allowed.", param="limit")
        place = self._job(after).place if after else len(self._order)
        found: list[Job] = []
        while place > 0 and len(found) <= limit:
            place -= 1
            job = self._order[place]
            if now_ms - job.created_ms >= job.scenario.listed_after_ms and not self._forgotten(job):
                found.append(job)
        return list_body([batch_body(job, now_ms) for job in found[:limit]], has_more=len(found) > limit)

    def cancel(self, job_id: str, now_ms: int) -> Body:
        """Ask a batch to stop; asked again, the same answer.

        Raises:
            ApiError: 404; 409 for one that has ended.
        """
        now_ms = self._advance(now_ms)
        self._calls["cancels"] += 1
        job = self._job(job_id)
        job.cancels += 1
        if job.ended:
            raise ApiError(409, f"Cannot cancel a batch with status {job.ends}.")
        if job.cancelling_ms is None:
            job.plan_cancel(now_ms)
            self._schedule(job)
        return batch_body(job, now_ms)

    def scenario_of(self, job_id: str) -> Scenario:
        """The scenario that plays for a job, at the server's speed."""
        return self._jobs[job_id].scenario

    def _scenario_for(self, metadata: dict[str, str] | None) -> Scenario:
        name = (metadata or {}).get(SCENARIO_KEY)
        if name is None:
            return self._scenario
        if name not in self._at_speed:
            try:
                self._at_speed[name] = find_scenario(name).at_speed(self._speed)
            except RequestInvalid as error:
                param = f"metadata.{SCENARIO_KEY}"
                raise ApiError(400, error.message, param=param, code="invalid_value") from error
        return self._at_speed[name]

    def _add(
        self,
        batch_input: BatchInput,
        scenario: Scenario,
        now_ms: int,
        *,
        endpoint: str,
        input_file_id: str,
        metadata: dict[str, str] | None,
        kept_seconds: int,
    ) -> Job:
        job = Job(
            self.ids("batch_"),
            len(self._order),
            scenario,
            endpoint,
            input_file_id,
            batch_input.custom_ids,
            batch_input.model,
            metadata,
            kept_seconds,
            now_ms,
            batch_input.faults,
        )
        job.plan()
        self._jobs[job.id] = job
        self._order.append(job)
        self._schedule(job)
        return job

    def _job(self, job_id: str) -> Job:
        job = self._jobs.get(job_id)
        if job is None or self._forgotten(job):
            raise no_batch(job_id)
        return job

    def _forgotten(self, job: Job) -> bool:
        after_ms = job.scenario.forgotten_after_ms
        return after_ms is not None and self._now_ms - job.created_ms >= after_ms

    # Time.

    def _schedule(self, job: Job) -> None:
        """Note when the job's plan ends it, and when its webhook is due."""
        if job.ends_ms is None:
            return
        self._pushed += 1
        heapq.heappush(self._ends, (job.ends_ms, self._pushed, job))
        if job.scenario.webhooks != "lost" and job.id not in self._announced:
            at_ms = max(job.created_ms, job.ends_ms + job.scenario.webhook_after_ms)
            heapq.heappush(self._announcements, (at_ms, self._pushed, job))

    def _advance(self, now_ms: int) -> int:
        """Latch every end and make every webhook whose time has come; the world's own time, which never goes back."""
        self._now_ms = max(self._now_ms, now_ms)
        while True:
            end_ms = self._ends[0][0] if self._ends else None
            event_ms = self._next_announcement()
            # Strictly in the order of their times, an end before its webhook: so the ids are the same whoever asks.
            if end_ms is not None and end_ms <= self._now_ms and (event_ms is None or end_ms <= event_ms):
                _, _, job = heapq.heappop(self._ends)
                if not job.ended and end_ms == job.ends_ms:
                    self._end(job, end_ms)
            elif event_ms is not None and event_ms <= self._now_ms:
                _, _, job = heapq.heappop(self._announcements)
                self._announce(job, event_ms)
            else:
                break
        return self._now_ms

    def _announce(self, job: Job, at_ms: int) -> None:
        """The webhook of the job's end, from now on owed."""
        self._announced.add(job.id)
        body = event_bytes(self.ids("evt_"), f"batch.{job.ends}", at_ms=at_ms, job_id=job.id)
        copies = 2 if job.scenario.webhooks == "twice" else 1
        self._deliveries.add(Delivery(self.ids("wh_"), body, at_ms, job.id), copies=copies)

    def _next_announcement(self) -> int | None:
        """When the next webhook comes to be due, entries of replaced plans dropped."""
        while self._announcements:
            at_ms, _, job = self._announcements[0]
            planned_ms = None if job.ends_ms is None else job.ends_ms + job.scenario.webhook_after_ms
            if job.id not in self._announced and planned_ms is not None and at_ms == max(job.created_ms, planned_ms):
                return at_ms
            heapq.heappop(self._announcements)
        return None

    def _end(self, job: Job, at_ms: int) -> None:
        """The job's end: latched, its result files made where it has any."""
        job.ended = True
        if job.ends == "failed":
            return
        files: list[str | None] = []
        kinds: tuple[Literal["output", "error"], ...] = ("output", "error")
        for kind in kinds:
            lines = ResultLines(
                kind,
                custom_ids=() if job.faults else job.custom_ids,
                run=job.runs,
                failing_share=job.scenario.failing_share,
                unrun_code=f"batch_{job.ends}",
                endpoint=job.endpoint,
                model=job.model or "example-model",
                job_id=job.id,
                at_seconds=at_ms // 1000,
            )
            if not lines.count:
                files.append(None)
                continue
            name = f"{job.id}_{kind}.jsonl"
            file = _File(self.ids("file-"), "batch_output", name, at_ms, at_ms + job.kept_seconds * 1000, lines)
            self._files[file.id] = file
            files.append(file.id)
        job.output_file_id, job.error_file_id = files

    # Webhooks.

    def next_event_at(self, now_ms: int) -> int | None:
        """When a webhook is next to be sent, as things stand; in the past: at once. None: nothing is owed."""
        self._advance(now_ms)
        times = [at for at in (self._deliveries.next_at(), self._next_announcement()) if at is not None]
        return min(times, default=None)

    def events_due(self, now_ms: int) -> list[Delivery]:
        """The webhooks to send now; each must be answered with `delivered`."""
        now_ms = self._advance(now_ms)
        return self._deliveries.due(now_ms)

    def delivered(self, event_id: str, ok: bool, now_ms: int) -> None:
        """Say how a delivery went; anything but a 2xx is tried again, later each time."""
        now_ms = self._advance(now_ms)
        self._deliveries.settled(event_id, ok, now_ms)

    # Truth.

    def truth(self) -> Truth:
        """What happened, up to the latest time that was handed in."""
        jobs = tuple(truth_of_job(job, self._now_ms) for job in self._order)
        events = tuple(truth_of_event(record) for record in self._deliveries.records.values())
        return Truth(jobs, events, **self._calls)

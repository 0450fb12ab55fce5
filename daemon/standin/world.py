"""The stand-in's world: one account with the OpenAI calls on files and batches; its Message Batches hang on it.

Pure like the account it is (account.py): the time is handed to every call.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Final, Literal

from daemon.standin.account import Account, AnswerLost
from daemon.standin.anthropic_calls import MessageBatches
from daemon.standin.items import BatchInput, NumberedIds, ResultLines, read_input
from daemon.standin.jobs import Batch, Job
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
    no_scenario,
)
from daemon.standin.scenarios import SCENARIO_KEY, Scenario
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


class World(Account):
    """One account at the provider."""

    def __init__(self, scenario: Scenario, *, ids: Callable[[str], str], speed: float = 1.0) -> None:
        """`ids` makes a fresh id that begins with what it is given; `speed` 10 makes every span a tenth."""
        super().__init__(scenario, ids=ids, speed=speed)
        #: The Anthropic calls on the same account.
        self.message_batches = MessageBatches(self)
        self._files: dict[str, _File] = {}

    # Files.

    def upload(self, data: bytes, purpose: str, now_ms: int, *, filename: str = "batch.jsonl") -> Body:
        """Keep a file; its lines are looked at when a batch is made of it.

        Raises:
            ApiError: a purpose that is not one, or a batch file whose name does not end in .jsonl.
        """
        now_ms = self.begin("uploads", now_ms)
        if purpose not in PURPOSES:
            raise ApiError(400, f"'{purpose}' is not one of {', '.join(PURPOSES)} - 'purpose'", param="purpose")
        if purpose == "batch" and not filename.endswith(".jsonl"):
            raise ApiError(400, "Invalid file format for Batch API. Must be .jsonl")
        file = _File(self.ids("file-"), purpose, filename, now_ms, now_ms + DEFAULT_KEPT_SECONDS * 1000, data)
        self._files[file.id] = file
        return self._file_body(file)

    def file(self, file_id: str, now_ms: int) -> Body:
        """A file's description. Raises: ApiError 404."""
        self.advance(now_ms)
        return self._file_body(self._file(file_id))

    def content(self, file_id: str, now_ms: int) -> Content:
        """A file's bytes. Raises: ApiError 404."""
        self.begin("downloads", now_ms)
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

    # Batches.

    def create(self, body: object, now_ms: int) -> Body:
        """Make a batch. What is wrong with its lines shows later, as the batch's own failure.

        Raises:
            ApiError: the body itself is at fault and no batch was made; or what the scenario has for this create.
            AnswerLost: the batch was made, unless the scenario says otherwise.
        """
        now_ms = self.begin("creates", now_ms)
        file_id, endpoint, metadata, kept_seconds = check_create(body)
        file = self._files.get(file_id)
        if file is None or file.expires_ms <= now_ms or not isinstance(file.source, bytes):
            raise ApiError(400, f"No such File object: {file_id}", param="input_file_id", code="invalid_value")
        if file.purpose != "batch":
            text = f"The file {file_id} was uploaded for '{file.purpose}', not for 'batch'."
            raise ApiError(400, text, param="input_file_id", code="invalid_value")
        try:
            scenario = self.pick_scenario((metadata or {}).get(SCENARIO_KEY))
        except RequestInvalid as error:
            raise no_scenario(error.message) from error
        # Not the file's id: who sends a job again may have uploaded its input again.
        fault = self.fault_of_create(scenario, file.source, [endpoint, metadata])
        if fault == "never-made":
            raise AnswerLost
        if isinstance(fault, int) and fault < 500:
            raise fault_answer(fault)
        batch_input = read_input(file.source, endpoint)
        batch = self._add(batch_input, scenario, now_ms, endpoint, file_id, metadata, kept_seconds)
        if fault == "lost":
            raise AnswerLost(batch.id)
        if fault is not None:
            raise fault_answer(fault)
        return batch_body(batch, now_ms)

    def seed_job(
        self,
        *,
        items: int,
        now_ms: int,
        scenario: Scenario | None = None,
        metadata: dict[str, str] | None = None,
        endpoint: str = "/v1/responses",
    ) -> str:
        """Put in a batch that nobody here uploaded or created, for adoption and for size tests; its id.

        It begins at `now_ms`, or at the world's own time if that is later: jobs stand in the order of their creation.
        Its items are `item-00000000` and on; the provider's limit on them does not hold. Its input cannot be read.
        """
        now_ms = self.advance(now_ms)
        batch_input, file_id = BatchInput(NumberedIds(items), "example-model"), self.ids("file-")
        chosen = self.at_speed(scenario)
        return self._add(batch_input, chosen, now_ms, endpoint, file_id, metadata, DEFAULT_KEPT_SECONDS).id

    def read(self, job_id: str, now_ms: int) -> Body:
        """A batch as it stands.

        Raises:
            ApiError: 404, or whatever trouble the job's scenario has for this read.
        """
        now_ms = self.begin("reads", now_ms)
        batch = self._batch(job_id)
        trouble = batch.take_read()
        if trouble is not None:
            raise fault_answer(trouble)
        return batch_body(batch, now_ms)

    def list_page(self, limit: int, after: str | None, now_ms: int) -> Body:
        """A page of batches, newest first, from the one that follows `after`.

        Raises:
            ApiError: a limit out of range, or `after` names no batch.
        """
        now_ms = self.begin("lists", now_ms)
        if not 1 <= limit <= MAX_PAGE:
            raise ApiError(400, f"Invalid value for 'limit': 1 to {MAX_PAGE} are allowed.", param="limit")
        place = self._batch(after).place if after else self.next_place()
        found = list(itertools.islice(self.listed(Batch, place, -1), limit + 1))
        return list_body([batch_body(batch, now_ms) for batch in found[:limit]], has_more=len(found) > limit)

    def cancel(self, job_id: str, now_ms: int) -> Body:
        """Ask a batch to stop; asked again, the same answer.

        Raises:
            ApiError: 404; 409 for one that has ended.
        """
        now_ms = self.begin("cancels", now_ms)
        batch = self._batch(job_id)
        batch.cancels += 1
        if batch.ended:
            raise ApiError(409, f"Cannot cancel a batch with status {batch.ends}.")
        self.cancel_job(batch, now_ms)
        return batch_body(batch, now_ms)

    def _add(
        self,
        batch_input: BatchInput,
        scenario: Scenario,
        now_ms: int,
        endpoint: str,
        input_file_id: str,
        metadata: dict[str, str] | None,
        kept_seconds: int,
    ) -> Batch:
        batch = Batch(
            id=self.ids("batch_"),
            place=self.next_place(),
            scenario=scenario,
            custom_ids=batch_input.custom_ids,
            created_ms=now_ms,
            faults=batch_input.faults,
            endpoint=endpoint,
            input_file_id=input_file_id,
            model=batch_input.model,
            metadata=metadata,
            kept_seconds=kept_seconds,
        )
        self.add(batch)
        return batch

    def _batch(self, job_id: str) -> Batch:
        batch = self.find(Batch, job_id)
        if batch is None:
            raise no_batch(job_id)
        return batch

    def _event(self, job: Job, at_ms: int) -> bytes:
        """See Account: the one event of a batch, named after its end."""
        return event_bytes(self.ids("evt_"), f"batch.{job.ends}", at_ms=at_ms, job_id=job.id)

    def _take_end(self, job: Job, at_ms: int) -> None:
        """See Account: a batch's result files are made, where it has any."""
        if not isinstance(job, Batch) or job.ends == "failed":
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
                longer_answers=job.scenario.longer_answers,
            )
            if not lines.count:
                files.append(None)
                continue
            name = f"{job.id}_{kind}.jsonl"
            file = _File(self.ids("file-"), "batch_output", name, at_ms, at_ms + job.kept_seconds * 1000, lines)
            self._files[file.id] = file
            files.append(file.id)
        job.output_file_id, job.error_file_id = files

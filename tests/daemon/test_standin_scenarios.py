"""Each named scenario on its own, in both shapes and with the time handed in. The tables are typed by hand."""

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest

from daemon.standin.account import AnswerLost
from daemon.standin.anthropic_bodies import SCENARIO_MARK, MessagesError
from daemon.standin.deliveries import REPEAT_MS
from daemon.standin.openai_bodies import ApiError, Body
from daemon.standin.scenarios import SCENARIO_KEY, SCENARIOS
from daemon.standin.world import World
from tests.daemon.test_standin_world import START, input_of, new_world

#: Milliseconds to the end, the end, the counts (total, completed, failed), how many webhooks are taken.
ENDS = {
    "normal": (4_000, "completed", (8, 8, 0), 1),
    "slow": (120_000, "completed", (8, 8, 0), 1),
    "lost-webhook": (4_000, "completed", (8, 8, 0), 0),
    "duplicate-webhook": (4_000, "completed", (8, 8, 0), 2),
    "early-webhook": (1_000, "completed", (8, 8, 0), 1),
    "lost-create-response": (4_000, "completed", (8, 8, 0), 1),
    "lost-create-request": (4_000, "completed", (8, 8, 0), 1),
    "unknown-status": (20_000, "completed", (8, 8, 0), 1),
    "partial-failure": (4_000, "completed", (8, 6, 2), 1),
    "all-failed": (4_000, "completed", (8, 0, 8), 1),
    "late-failure": (60_000, "failed", (8, 7, 0), 1),
    "cancel-race": (60_000, "completed", (8, 8, 0), 1),
    "flaky": (4_000, "completed", (8, 8, 0), 1),
    "expired-with-partial-results": (4_000, "expired", (8, 4, 0), 1),
    "slow-list": (4_000, "completed", (8, 8, 0), 1),
}
#: The same ends of a Message Batch: succeeded, errored, expired.
TALLIES = dict.fromkeys(ENDS, (8, 0, 0)) | {
    "partial-failure": (6, 2, 0),
    "all-failed": (0, 8, 0),
    "late-failure": (0, 8, 0),
    "expired-with-partial-results": (4, 0, 4),
}
WITHOUT_END = {"never-ends", "forgets-the-job"}
#: What becomes of the first creates and reads, where that is not an answer.
CREATES: dict[str, list[Any]] = {
    "lost-create-response": ["lost"],
    "lost-create-request": ["lost"],
    "flaky": [429, 503],
}
READS: dict[str, list[Any]] = {"flaky": [500, 429, 503]}
#: This provider says 529 where the other says 503.
ITS_OWN = {503: 529}


class OpenAIShape:
    """The calls of one shape, for one job in one scenario."""

    def __init__(self, name: str) -> None:
        self.world, self.job_id = new_world(), ""
        self._metadata = {SCENARIO_KEY: name}

    def create(self) -> Body:
        file_id = self.world.upload(input_of(8), "batch", START)["id"]
        body = {"input_file_id": file_id, "endpoint": "/v1/responses", "completion_window": "24h"}
        return self.world.create(body | {"metadata": self._metadata}, START)

    def read(self, at_ms: int) -> Body:
        return self.world.read(self.job_id, START + at_ms)

    def cancel(self, at_ms: int) -> Body:
        return self.world.cancel(self.job_id, START + at_ms)

    def status(self, at_ms: int) -> object:
        return self.read(at_ms)["status"]

    def listed(self, at_ms: int) -> list[str]:
        page: Any = self.world.list_page(20, None, START + at_ms)
        return [batch["id"] for batch in page["data"]]


class AnthropicShape(OpenAIShape):
    """The same calls in the other shape."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._mark = SCENARIO_MARK + name

    def create(self) -> Body:
        params = {"model": "example-model", "max_tokens": 64, "messages": [{"role": "user", "content": "hello"}]}
        requests = [{"custom_id": f"row-{n}", "params": dict(params)} for n in range(8)]
        requests[3]["params"] = params | {"metadata": {"user_id": self._mark}}
        return self.world.message_batches.create({"requests": requests}, START)

    def read(self, at_ms: int) -> Body:
        return self.world.message_batches.read(self.job_id, START + at_ms)

    def cancel(self, at_ms: int) -> Body:
        return self.world.message_batches.cancel(self.job_id, START + at_ms)

    def status(self, at_ms: int) -> object:
        return self.read(at_ms)["processing_status"]

    def listed(self, at_ms: int) -> list[str]:
        page: Any = self.world.message_batches.list_page(20, START + at_ms)
        return [batch["id"] for batch in page["data"]]


BOTH = pytest.mark.parametrize("shape", [OpenAIShape, AnthropicShape])
Shape = type[OpenAIShape]


def answer_of(call: Callable[[], Body]) -> Body | int | str:
    """A call's body, or what befell it."""
    try:
        return call()
    except AnswerLost:
        return "lost"
    except (ApiError, MessagesError) as error:
        return error.status


def in_its_words(shape: Shape, statuses: list[Any]) -> list[Any]:
    return statuses if shape is OpenAIShape else [ITS_OWN.get(status, status) for status in statuses]


def started(shape: Shape, name: str) -> OpenAIShape:
    """A job of the scenario, taken past what befalls its first creates and reads."""
    job = shape(name)
    found = [answer_of(job.create) for _ in CREATES.get(name, ())]
    assert found == in_its_words(shape, CREATES.get(name, []))
    if not job.world.truth().jobs:
        job.create()
    job.job_id = job.world.truth().jobs[0].id
    found = [answer_of(lambda: job.read(0)) for _ in READS.get(name, ())]
    assert found == in_its_words(shape, READS.get(name, []))
    return job


def webhooks_of(world: World, now_ms: int) -> list[str]:
    """The kinds of all webhooks up to `now_ms`, each one taken at once."""
    kinds = []
    while (at_ms := world.next_event_at(START)) is not None and at_ms <= now_ms:
        for delivery in world.events_due(at_ms):
            kinds.append(json.loads(delivery.body)["type"])
            world.delivered(delivery.event_id, True, at_ms)
    return kinds


def test_each_scenario_is_in_these_tables() -> None:
    assert set(ENDS) | WITHOUT_END == set(SCENARIOS)
    assert not set(ENDS) & WITHOUT_END


@pytest.mark.parametrize("name", ENDS)
def test_a_batch_ends_as_its_scenario_says_and_when(name: str) -> None:
    ends_ms, status, counts, webhooks = ENDS[name]
    job = started(OpenAIShape, name)
    assert job.status(ends_ms - 1) not in {"completed", "failed", "expired", "cancelled"}
    body = job.read(ends_ms)
    assert (body["status"], body["request_counts"]) == (
        status,
        dict(zip(("total", "completed", "failed"), counts, strict=True)),
    )
    assert bool(body["output_file_id"]) == (status != "failed" and counts[1] > 0)
    assert bool(body["error_file_id"]) == (status != "failed" and counts[1] < 8)
    assert webhooks_of(job.world, START + ends_ms + REPEAT_MS) == [f"batch.{status}"] * webhooks
    assert job.world.next_event_at(START + 10**9) is None
    assert job.read(10**9) == body


@pytest.mark.parametrize("name", TALLIES)
def test_a_message_batch_ends_as_its_scenario_says_and_never_rings(name: str) -> None:
    ends_ms = ENDS[name][0]
    job = started(AnthropicShape, name)
    waiting = dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0)
    assert job.status(ends_ms - 1) != "ended"
    assert job.read(ends_ms - 1)["request_counts"] == {"processing": 8, **waiting}
    body = job.read(ends_ms)
    assert body["processing_status"] == "ended"
    succeeded, errored, expired = TALLIES[name]
    found = {"processing": 0, "succeeded": succeeded, "errored": errored, "canceled": 0, "expired": expired}
    assert body["request_counts"] == found
    lines = [json.loads(line) for line in job.world.message_batches.results(job.job_id, START + ends_ms)]
    types = [line["result"]["type"] for line in lines]
    assert {word: types.count(word) for word in found if word != "processing"} | {"processing": 0} == found
    assert job.world.next_event_at(START + 10**9) is None
    assert job.world.events_due(START + 10**9) == []


@BOTH
def test_the_lost_create_is_the_first_of_its_job_only_and_made_one(shape: Shape) -> None:
    job = shape("lost-create-response")
    assert answer_of(job.create) == "lost"
    made = job.listed(0)
    assert len(made) == 1
    again = job.create()
    assert job.listed(0) == [again["id"], *made], "who sends it again has two"
    assert answer_of(job.create) == "lost", "and the next is another job"


@BOTH
def test_a_create_that_is_lost_on_its_way_made_nothing_and_the_next_one_does(shape: Shape) -> None:
    job = shape("lost-create-request")
    assert answer_of(job.create) == "lost"
    assert job.listed(0) == []
    made = job.create()["id"]
    assert job.listed(0) == [made]


@BOTH
def test_of_the_flaky_creates_the_refused_one_made_nothing_and_the_failed_one_did(shape: Shape) -> None:
    job = shape("flaky")
    assert answer_of(job.create) == 429
    assert job.listed(0) == []
    assert answer_of(job.create) == in_its_words(shape, [503])[0]
    assert len(job.listed(0)) == 1
    job.job_id = job.listed(0)[0]
    answers = [answer_of(lambda: job.read(4_000)) for _ in range(5)]
    assert answers[:3] == in_its_words(shape, [500, 429, 503])
    assert all(isinstance(answer, dict) for answer in answers[3:])


@BOTH
def test_a_status_that_no_document_names_stands_for_a_while(shape: Shape) -> None:
    job = started(shape, "unknown-status")
    first, last = ("validating", "finalizing") if shape is OpenAIShape else ("in_progress", "in_progress")
    seen = [job.status(at_ms) for at_ms in (1_999, 2_000, 15_999, 16_000)]
    assert seen == [first, "awaiting_capacity", "awaiting_capacity", last]
    ends = "completed" if shape is OpenAIShape else "ended"
    assert job.status(20_000) == ends
    assert [word for word, _ in job.world.truth().jobs[0].states] == [first, "awaiting_capacity", last, ends]


@BOTH
def test_a_job_that_never_ends_is_ended_by_a_cancel(shape: Shape) -> None:
    job = started(shape, "never-ends")
    assert job.status(10**9) == "in_progress"
    job.cancel(10**9)
    body = job.read(10**9 + 1_000)
    if shape is OpenAIShape:
        assert (body["status"], body["request_counts"]) == ("cancelled", {"total": 8, "completed": 4, "failed": 0})
    else:
        counts = {"processing": 0, "succeeded": 4, "errored": 0, "canceled": 4, "expired": 0}
        assert (body["processing_status"], body["request_counts"]) == ("ended", counts)


@BOTH
def test_in_a_cancel_race_the_cancel_is_accepted_and_the_job_completes(shape: Shape) -> None:
    job = started(shape, "cancel-race")
    body = job.cancel(30_000)
    if shape is OpenAIShape:
        assert body["status"] == "cancelling"
        assert job.status(30_999) == "cancelling"
        body = job.read(31_000)
        assert (body["status"], body["request_counts"]) == ("completed", {"total": 8, "completed": 8, "failed": 0})
        assert webhooks_of(job.world, START + 10**9) == ["batch.completed"]
    else:
        assert body["processing_status"] == "canceling"
        assert job.status(30_999) == "canceling"
        body = job.read(31_000)
        counts = {"processing": 0, "succeeded": 8, "errored": 0, "canceled": 0, "expired": 0}
        assert (body["processing_status"], body["request_counts"]) == ("ended", counts)
        assert body["cancel_initiated_at"] is not None


@BOTH
def test_a_forgotten_job_is_gone_for_every_call_and_for_good(shape: Shape) -> None:
    job = started(shape, "forgets-the-job")
    assert job.status(19_999) == "in_progress"
    assert job.listed(19_999) == [job.job_id]
    for at_ms in (20_000, 60_000, 10**9):
        for call in (job.read, job.cancel):
            with pytest.raises((ApiError, MessagesError), match=r"404: (No batch found with|Message batch not found)"):
                call(at_ms)
        assert job.listed(at_ms) == []
    assert webhooks_of(job.world, START + 10**9) == []


@BOTH
def test_a_slow_list_shows_a_job_late_that_a_read_finds_at_once(shape: Shape) -> None:
    job = started(shape, "slow-list")
    assert job.status(0) in {"validating", "in_progress"}
    assert job.listed(19_999) == []
    assert job.listed(20_000) == [job.job_id]


@pytest.mark.parametrize("name", SCENARIOS)
@BOTH
def test_the_same_calls_at_the_same_times_get_the_same_answers(shape: Shape, name: str) -> None:
    seen = []
    for job in (shape(name), shape(name)):
        answers = [answer_of(job.create) for _ in range(4)]
        job.job_id = job.world.truth().jobs[0].id
        moments = (0, 100, 3_000, 21_000, 61_000, 121_000)
        answers += [answer_of(functools.partial(job.read, at_ms)) for at_ms in moments]
        seen.append((answers, job.world.truth()))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", SCENARIOS)
def test_speed_divides_every_span_of_every_scenario(name: str) -> None:
    scenario, faster = SCENARIOS[name], SCENARIOS[name].at_speed(10)
    for span in ("duration_ms", "cancel_ms", "create_answer_after_ms", "listed_after_ms", "forgotten_after_ms"):
        plain = getattr(scenario, span)
        assert getattr(faster, span) == (None if plain is None else plain // 10)
    assert faster.create_faults == scenario.create_faults
    assert faster.read_faults == scenario.read_faults

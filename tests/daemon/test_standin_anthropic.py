"""The stand-in's Message Batches calls, with the time handed in, held to the official SDK's types."""

import json
from typing import Any

import pytest
from anthropic.types.messages import MessageBatch, MessageBatchIndividualResponse
from anthropic.types.shared import ErrorResponse
from hypothesis import given
from hypothesis import strategies as st

from daemon.standin.anthropic_bodies import SCENARIO_MARK, MessagesError
from daemon.standin.anthropic_jobs import KEPT_MS
from daemon.standin.scenarios import SCENARIOS, Scenario
from daemon.standin.world import World
from tests.daemon.test_standin_bench import strictly
from tests.daemon.test_standin_world import END, START, new_world, start_job

#: The fields of the provider's answers, in its order; typed from its published types and recorded bodies.
BATCH_FIELDS = [
    "id",
    "type",
    "processing_status",
    "request_counts",
    "created_at",
    "expires_at",
    "ended_at",
    "archived_at",
    "cancel_initiated_at",
    "results_url",
]


def params(**more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hello"}]
    return {"model": "example-model", "max_tokens": 64, "messages": messages, **more}


def requests_of(*names: str, scenario: str | None = None) -> list[dict[str, Any]]:
    more = {} if scenario is None else {"metadata": {"user_id": SCENARIO_MARK + scenario}}
    return [{"custom_id": name, "params": params(**more)} for name in names]


def create(world: World, *names: str, now_ms: int = START, scenario: str | None = None) -> str:
    return str(world.message_batches.create({"requests": requests_of(*names, scenario=scenario)}, now_ms)["id"])


def results_of(world: World, job_id: str, now_ms: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in world.message_batches.results(job_id, now_ms)]


# The life of a batch.


def test_a_batch_has_the_providers_fields_and_tells_no_counts_before_its_end() -> None:
    world = new_world()
    job_id = create(world, "a", "b", "c", "d")
    for at_ms in (START, START + 2_000, END - 1):
        body = strictly_read(world, job_id, at_ms)
        assert body["processing_status"] == "in_progress"
        waiting = {"processing": 4, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
        assert body["request_counts"] == waiting
        assert (body["ended_at"], body["results_url"]) == (None, None)
    body = strictly_read(world, job_id, END)
    assert (body["processing_status"], body["ended_at"]) == ("ended", "2026-11-29T12:00:04.000000Z")
    assert (body["created_at"], body["expires_at"]) == ("2026-11-29T12:00:00.000000Z", "2026-11-30T12:00:00.000000Z")
    assert body["request_counts"] == {"processing": 0, "succeeded": 4, "errored": 0, "canceled": 0, "expired": 0}
    assert body["results_url"] == f"https://api.anthropic.com/v1/messages/batches/{job_id}/results"


def strictly_read(world: World, job_id: str, now_ms: int) -> dict[str, Any]:
    body = world.message_batches.read(job_id, now_ms)
    strictly(MessageBatch, body)
    assert list(body) == BATCH_FIELDS
    assert job_id.startswith("msgbatch_")
    return body


def test_moments_have_the_providers_spelling() -> None:
    world = new_world()
    body = world.message_batches.create({"requests": requests_of("a")}, START + 123)
    assert body["created_at"] == "2026-11-29T12:00:00.123000Z"


def test_a_cancel_leaves_what_was_done_and_a_second_one_moves_nothing() -> None:
    world = new_world()
    job_id = create(world, *(f"row-{n}" for n in range(8)))
    body = world.message_batches.cancel(job_id, START + 2_000)
    assert (body["processing_status"], body["cancel_initiated_at"]) == ("canceling", "2026-11-29T12:00:02.000000Z")
    assert world.message_batches.cancel(job_id, START + 2_500) == body
    body = strictly_read(world, job_id, START + 3_000)
    assert body["request_counts"] == {"processing": 0, "succeeded": 4, "errored": 0, "canceled": 4, "expired": 0}
    with pytest.raises(MessagesError, match="400: The message batch has ended"):
        world.message_batches.cancel(job_id, START + 3_000)
    types = [line["result"]["type"] for line in results_of(world, job_id, END)]
    assert sorted(types) == ["canceled"] * 4 + ["succeeded"] * 4
    assert [word for word, _ in world.truth().jobs[0].states] == ["in_progress", "canceling", "ended"]


def test_results_are_gone_after_29_days_and_the_batch_is_not() -> None:
    world = new_world()
    job_id = create(world, "a")
    gone_ms = START + KEPT_MS
    assert results_of(world, job_id, gone_ms - 1)
    body = strictly_read(world, job_id, gone_ms)
    assert (body["processing_status"], body["results_url"]) == ("ended", None)
    assert body["archived_at"] == "2026-12-28T12:00:00.000000Z"
    with pytest.raises(MessagesError, match="404: The results"):
        world.message_batches.results(job_id, gone_ms)


def test_there_are_no_results_before_the_end() -> None:
    world = new_world()
    job_id = create(world, "a")
    with pytest.raises(MessagesError, match="400: The message batch is still processing"):
        world.message_batches.results(job_id, END - 1)


# Results.


def test_each_request_has_one_line_of_the_providers_type_in_another_order() -> None:
    world = new_world(SCENARIOS["partial-failure"])
    names = [f"row-{n}" for n in range(50)]
    job_id = create(world, *names)
    lines = results_of(world, job_id, END)
    for line in lines:
        strictly(MessageBatchIndividualResponse, line)
        if line["result"]["type"] == "succeeded":
            message = line["result"]["message"]
            assert message["content"][0]["text"] == f"answer to {line['custom_id']} – ünï"
        else:
            error = line["result"]["error"]
            assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert [line["custom_id"] for line in lines] != names
    assert sorted(line["custom_id"] for line in lines) == sorted(names)


def test_faulty_params_are_no_fault_of_the_body_but_make_their_request_errored() -> None:
    world = new_world()
    faulty: dict[str, dict[str, Any]] = {
        "no-model": params(model=""),
        "no-tokens": params(max_tokens=0),
        "true-tokens": params(max_tokens=True),
        "no-messages": params(messages=[]),
        "nothing": {},
        "odd-model": params(model="\ud800"),
        "good": params(model="another-model"),
    }
    requests = [{"custom_id": name, "params": each} for name, each in faulty.items()]
    job_id = str(world.message_batches.create({"requests": requests}, START)["id"])
    body = strictly_read(world, job_id, END)
    assert body["request_counts"] == {"processing": 0, "succeeded": 2, "errored": 5, "canceled": 0, "expired": 0}
    found = {line["custom_id"]: line["result"] for line in results_of(world, job_id, END)}
    assert {name for name, result in found.items() if result["type"] == "succeeded"} == {"odd-model", "good"}
    assert found["good"]["message"]["model"] == "another-model"
    assert found["no-tokens"]["error"]["error"]["message"].startswith("max_tokens:")


@given(
    count=st.integers(1, 40),
    invalid=st.sets(st.integers(0, 39)),
    scenario=st.builds(
        Scenario,
        st.just("any"),
        st.just(""),
        ends=st.sampled_from(["completed", "failed", "expired"]),
        failing_share=st.sampled_from([0.0, 0.001, 0.25, 0.333, 0.5, 0.999, 1.0]),
        run_share=st.floats(0, 1),
        cancel_ends=st.sampled_from(["cancelled", "completed"]),
    ),
    cancel_ms=st.none() | st.integers(0, 3_999),
)
def test_the_counts_of_an_ended_batch_are_those_of_its_result_lines(
    count: int, invalid: set[int], scenario: Scenario, cancel_ms: int | None
) -> None:
    world = new_world(scenario)
    requests = [{"custom_id": f"row-{n}", "params": {} if n in invalid else params()} for n in range(count)]
    job_id = str(world.message_batches.create({"requests": requests}, START)["id"])
    if cancel_ms is not None:
        world.message_batches.cancel(job_id, START + cancel_ms)
    counts: Any = world.message_batches.read(job_id, END + 1_000)["request_counts"]
    types = [line["result"]["type"] for line in results_of(world, job_id, END + 1_000)]
    assert sum(counts.values()) == len(types) == count
    assert counts == {word: types.count(word) for word in counts}


# The create body.


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (None, "body:"),
        ([], "body:"),
        ({}, "requests: Field required"),
        ({"requests": {}}, "requests: Input should be a valid list"),
        ({"requests": []}, "requests: List should have"),
        ({"requests": [], "metadata": {}}, "metadata: Extra inputs"),
        ({"requests": ["x"]}, "requests.0: "),
        ({"requests": [{"custom_id": "a"}]}, "requests.0.params: Field required"),
        ({"requests": [{"params": {}}]}, "requests.0.custom_id: Field required"),
        ({"requests": [{"custom_id": "a", "params": {}, "url": "x"}]}, "requests.0.url: Extra inputs"),
        ({"requests": [{"custom_id": "a", "params": []}]}, "requests.0.params: "),
        ({"requests": [{"custom_id": 7, "params": {}}]}, "requests.0.custom_id: "),
        ({"requests": [{"custom_id": "", "params": {}}]}, "requests.0.custom_id: "),
        ({"requests": [{"custom_id": "a:b", "params": {}}]}, "requests.0.custom_id: "),
        ({"requests": [{"custom_id": "a\n", "params": {}}]}, "requests.0.custom_id: "),
        ({"requests": [{"custom_id": "a" * 65, "params": {}}]}, "requests.0.custom_id: "),
        ({"requests": requests_of("a", "b", "a")}, "requests.2.custom_id: "),
        ({"requests": requests_of("a", scenario="no-such")}, "requests.params.metadata.user_id: no scenario"),
        ({"requests": requests_of("a", scenario="\ud800")}, "requests.params.metadata.user_id: no scenario"),
        ({"requests": requests_of("a") * 100_001}, "requests: List should have"),
    ],
)
def test_a_bad_create_body_makes_no_batch_and_names_the_field(body: object, where: str) -> None:
    world = new_world()
    with pytest.raises(MessagesError) as refused:
        world.message_batches.create(body, START)
    assert refused.value.status == 400
    assert refused.value.message.startswith(where)
    answer = refused.value.body("req_1")
    strictly(ErrorResponse, answer)
    assert list(answer) == ["type", "error", "request_id"]
    assert (world.truth().jobs, world.truth().creates) == ((), 1)


def test_any_request_of_a_batch_may_name_its_scenario() -> None:
    world = new_world()
    requests = [*requests_of("a", "b"), *requests_of("c", scenario="all-failed"), *requests_of("d")]
    requests[0]["params"]["metadata"] = {"user_id": "somebody"}
    requests[1]["params"]["metadata"] = {"user_id": 7}
    world.message_batches.create({"requests": requests}, START)
    assert [job.scenario for job in world.truth().jobs] == ["all-failed"]


# Lists, and the other shape on the same account.


def ids_of(page: Any) -> list[str]:
    return [batch["id"] for batch in page["data"]]


def test_list_pages_run_both_ways_without_a_gap_and_newest_first() -> None:
    world = new_world()
    made = [world.message_batches.seed_job(items=1, now_ms=START + n) for n in range(7)][::-1]
    calls = world.message_batches
    first: Any = calls.list_page(3, START + 10)
    second: Any = calls.list_page(3, START + 10, after_id=first["last_id"])
    third: Any = calls.list_page(3, START + 10, after_id=second["last_id"])
    assert [ids_of(first), ids_of(second), ids_of(third)] == [made[:3], made[3:6], made[6:]]
    assert [page["has_more"] for page in (first, second, third)] == [True, True, False]
    back: Any = calls.list_page(2, START + 10, before_id=third["first_id"])
    assert (ids_of(back), back["has_more"]) == (made[4:6], True)
    assert (back["first_id"], back["last_id"]) == (made[4], made[5])
    assert calls.list_page(20, START + 10, before_id=made[0]) == {
        "data": [],
        "has_more": False,
        "first_id": None,
        "last_id": None,
    }


@pytest.mark.parametrize(
    "asked",
    [{"limit": 0}, {"limit": 1001}, {"after_id": "msgbatch_x"}, {"before_id": "msgbatch_x"}, {"after_id": ""}],
)
def test_a_list_that_cannot_be_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(MessagesError, match=r"^400"):
        new_world().message_batches.list_page(asked.pop("limit", 20), START, **asked)


def test_only_one_cursor_is_taken() -> None:
    world = new_world()
    job_id = create(world, "a")
    with pytest.raises(MessagesError, match="Only one"):
        world.message_batches.list_page(20, START, after_id=job_id, before_id=job_id)


def test_neither_shape_sees_the_jobs_of_the_other() -> None:
    world = new_world()
    batch_id, message_batch_id = start_job(world), create(world, "a")
    page: Any = world.list_page(20, None, START)
    assert ids_of(page) == [batch_id]
    assert ids_of(world.message_batches.list_page(20, START)) == [message_batch_id]
    with pytest.raises(MessagesError, match="404: Message batch not found"):
        world.message_batches.read(batch_id, START)
    with pytest.raises(MessagesError, match="400: The cursor"):
        world.message_batches.list_page(20, START, after_id=batch_id)
    assert [delivery.job_id for delivery in world.events_due(END)] == [batch_id]
    assert [(job.id, job.input_file_id is None) for job in world.truth().jobs] == [
        (batch_id, False),
        (message_batch_id, True),
    ]

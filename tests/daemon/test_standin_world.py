"""The stand-in's world on its own: the time is a number that each call is given."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.standin.deliveries import FIRST_RETRY_MS, REPEAT_MS
from daemon.standin.items import NumberedIds, ResultLines, failed_of, shuffled
from daemon.standin.openai_bodies import ApiError
from daemon.standin.scenarios import SCENARIO_KEY, SCENARIOS, Scenario, find_scenario
from daemon.standin.world import World
from reconcile.errors import RequestInvalid

FIXTURES = Path(__file__).parents[1] / "fixtures" / "openai"
START = 1_795_953_600_000
NORMAL = SCENARIOS["normal"]
END = START + NORMAL.duration_ms


def counting_ids() -> Callable[[str], str]:
    numbers = itertools.count(1)
    return lambda prefix: f"{prefix}{next(numbers):06d}"


def new_world(scenario: Scenario = NORMAL, *, speed: float = 1.0) -> World:
    return World(scenario, ids=counting_ids(), speed=speed)


def request_line(custom_id: object, *, url: str = "/v1/responses", model: str = "example-model") -> dict[str, object]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": model, "input": "hello"}}


def jsonl(*lines: object) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def input_of(count: int) -> bytes:
    return jsonl(*(request_line(f"row-{n}") for n in range(count)))


def start_job(world: World, count: int = 8, now_ms: int = START, **more: Any) -> str:
    file_id = world.upload(input_of(count), "batch", now_ms)["id"]
    body = {"input_file_id": file_id, "endpoint": "/v1/responses", "completion_window": "24h", **more}
    return str(world.create(body, now_ms)["id"])


def start_with(world: World, data: bytes, now_ms: int = START) -> str:
    file_id = world.upload(data, "batch", now_ms)["id"]
    body = {"input_file_id": file_id, "endpoint": "/v1/responses", "completion_window": "24h"}
    return str(world.create(body, now_ms)["id"])


def lines_of(world: World, file_id: object, now_ms: int) -> list[dict[str, Any]]:
    content = world.content(str(file_id), now_ms)
    data = b"".join(content.lines())
    assert len(data) == content.size
    return [json.loads(line) for line in data.splitlines()]


def error_of(refused: "pytest.ExceptionInfo[ApiError]") -> dict[str, Any]:
    body = refused.value.body()
    assert set(body) == {"error"}
    error = body["error"]
    assert isinstance(error, dict)
    assert set(error) == {"message", "type", "param", "code"}
    return error


# The life of a job.


def test_a_job_goes_through_the_providers_statuses_and_its_counts_move() -> None:
    world = new_world()
    job_id = start_job(world)
    seen = [world.read(job_id, START + at) for at in (0, 400, 2000, 3199, 3200, 3999, 4000)]
    statuses = [body["status"] for body in seen]
    assert statuses == [
        "validating",
        "in_progress",
        "in_progress",
        "in_progress",
        "finalizing",
        "finalizing",
        "completed",
    ]
    assert [body["request_counts"] for body in seen] == [
        {"total": 0, "completed": 0, "failed": 0},
        {"total": 8, "completed": 0, "failed": 0},
        {"total": 8, "completed": 4, "failed": 0},
        {"total": 8, "completed": 7, "failed": 0},
        {"total": 8, "completed": 8, "failed": 0},
        {"total": 8, "completed": 8, "failed": 0},
        {"total": 8, "completed": 8, "failed": 0},
    ]
    assert [body["output_file_id"] for body in seen[:-1]] == [None] * 6
    assert seen[-1]["output_file_id"]
    assert seen[-1]["error_file_id"] is None
    assert seen[-1]["completed_at"] == END // 1000


def test_a_batch_has_exactly_the_fields_of_the_recorded_bodies() -> None:
    world = new_world()
    job_id = start_job(world)
    for name, at in (("create_response", 0), ("status_in_progress", 2000), ("status_finalizing", 3500)):
        recorded = json.loads((FIXTURES / f"batch_{name}.json").read_text())
        assert list(world.read(job_id, START + at)) == list(recorded)
    recorded = json.loads((FIXTURES / "batch_status_completed_partial.json").read_text())
    assert list(world.read(job_id, END)) == list(recorded)
    assert set(world.list_page(20, None, END)) == set(json.loads((FIXTURES / "batch_list_page1.json").read_text()))


def test_an_end_is_latched_at_its_own_time_whoever_asks_first_and_whenever() -> None:
    early, late = new_world(), new_world()
    for world in (early, late):
        start_job(world, now_ms=START)
        start_job(world, now_ms=START + 1000)
    job_ids = [job.id for job in early.truth().jobs]
    for at in (END, END + 1000, END + 9000):
        early.read(job_ids[0], at)
    late.read(job_ids[1], END + 9000)
    late.read(job_ids[0], END + 9000)
    assert [replace(job, reads=0) for job in early.truth().jobs] == [replace(job, reads=0) for job in late.truth().jobs]
    before = early.read(job_ids[0], END + 9000)
    assert early.read(job_ids[0], START) == before, "a clock that goes back changes nothing"


def test_speed_divides_every_span() -> None:
    world = new_world(speed=10)
    job_id = start_job(world)
    assert world.read(job_id, START + 399)["status"] == "finalizing"
    assert world.read(job_id, START + 400)["status"] == "completed"


def test_truth_tells_what_was_made_and_asked() -> None:
    world = new_world(SCENARIOS["partial-failure"])
    job_id = start_job(world, metadata={"reconciled_job": "job-1"})
    world.read(job_id, START + 1000)
    world.list_page(20, None, START + 2000)
    with pytest.raises(ApiError):
        world.create({}, END)
    truth = world.truth()
    assert (truth.uploads, truth.creates, truth.reads, truth.lists) == (1, 2, 1, 1)
    (job,) = truth.jobs
    assert (job.id, job.metadata, job.scenario) == (job_id, {"reconciled_job": "job-1"}, "partial-failure")
    assert (job.total, job.completed, job.failed, job.reads) == (8, 6, 2, 1)
    assert job.states == (
        ("validating", START),
        ("in_progress", START + 400),
        ("finalizing", START + 3200),
        ("completed", END),
    )


# Results.


def test_results_come_in_another_order_and_each_answers_its_own_item() -> None:
    world = new_world()
    job_id = start_job(world, 50)
    lines = lines_of(world, world.read(job_id, END)["output_file_id"], END)
    names = [line["custom_id"] for line in lines]
    assert sorted(names) == sorted(f"row-{n}" for n in range(50))
    assert names != [f"row-{n}" for n in range(50)]
    for line in lines:
        assert line["error"] is None
        assert line["response"]["status_code"] == 200
        text = line["response"]["body"]["output"][0]["content"][0]["text"]
        assert text == f"answer to {line['custom_id']} – ünï"
    for unique in ("id", "custom_id"):
        assert len({line[unique] for line in lines}) == 50


def test_in_a_partial_failure_each_item_is_in_exactly_one_file() -> None:
    world = new_world(SCENARIOS["partial-failure"])
    job_id = start_job(world, 8)
    body = world.read(job_id, END)
    assert body["status"] == "completed"
    assert body["request_counts"] == {"total": 8, "completed": 6, "failed": 2}
    output, errors = (lines_of(world, body[key], END) for key in ("output_file_id", "error_file_id"))
    assert len(output) == 6
    assert len(errors) == 2
    assert {line["custom_id"] for line in (*output, *errors)} == {f"row-{n}" for n in range(8)}
    recorded = json.loads((FIXTURES / "batch_errors_one_failed.jsonl").read_text())
    for line in errors:
        assert list(line) == list(recorded)
        assert line["response"]["status_code"] == 400
        assert line["response"]["body"] == recorded["response"]["body"]


def test_where_there_is_nothing_the_file_id_is_null() -> None:
    world = new_world(Scenario("all", "All fail.", failing_share=1.0))
    body = world.read(start_job(world, 4), START) and world.read(world.truth().jobs[0].id, END)
    assert body["output_file_id"] is None
    assert len(lines_of(world, body["error_file_id"], END)) == 4
    assert body["request_counts"] == {"total": 4, "completed": 0, "failed": 4}


def test_an_expired_job_keeps_what_was_done_and_counts_the_rest_in_neither_part() -> None:
    world = new_world(Scenario("late", "Expires.", ends="expired", run_share=0.25))
    job_id = start_job(world, 4)
    body = world.read(job_id, END)
    assert body["status"] == "expired"
    assert body["request_counts"] == {"total": 4, "completed": 1, "failed": 0}
    assert len(lines_of(world, body["output_file_id"], END)) == 1
    unrun = lines_of(world, body["error_file_id"], END)
    assert [line["response"] for line in unrun] == [None] * 3
    assert {line["error"]["code"] for line in unrun} == {"batch_expired"}


def test_a_result_file_knows_its_size_before_a_line_of_it_exists() -> None:
    world = new_world(SCENARIOS["partial-failure"])
    job_id = world.seed_job(items=1_000_000, now_ms=START)
    body = world.read(job_id, END)
    assert body["request_counts"] == {"total": 1_000_000, "completed": 750_000, "failed": 250_000}
    content = world.content(str(body["output_file_id"]), END)
    first = list(itertools.islice(content.lines(), 3))
    assert content.size == 750_000 * len(first[0])
    assert all(json.loads(line)["custom_id"].startswith("item-") for line in first)


def test_answers_are_longer_by_as_much_as_the_scenario_says() -> None:
    """So that a job can be put in whose result has a certain size; failed items have no answer."""
    found = []
    for longer in (0, 242):
        world = new_world(replace(SCENARIOS["partial-failure"], longer_answers=longer))
        body = world.read(world.seed_job(items=8, now_ms=START), END)
        contents = [world.content(str(body[name]), END) for name in ("output_file_id", "error_file_id")]
        assert [content.size for content in contents] == [len(b"".join(content.lines())) for content in contents]
        found.append([content.size for content in contents])
        assert lines_of(world, body["output_file_id"], END)[0]["response"]["status_code"] == 200
    assert [longer - plain for plain, longer in zip(*found, strict=True)] == [6 * 242, 0]


@given(
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True, max_size=30),
    run_share=st.floats(0, 1),
    failing_share=st.sampled_from([0.0, 0.001, 0.25, 0.333, 0.5, 0.999, 1.0]),
    model=st.text(max_size=5) | st.sampled_from(["%", "%(name)s", "\ue000\ue001"]),
)
def test_any_items_are_split_over_the_two_files_and_the_sizes_are_exact(
    names: list[str], run_share: float, failing_share: float, model: str
) -> None:
    run = int(len(names) * run_share)
    found: list[str] = []
    for kind in ("output", "error"):
        lines = ResultLines(
            "output" if kind == "output" else "error",
            custom_ids=names,
            run=run,
            failing_share=failing_share,
            unrun_code="batch_expired",
            endpoint="/v1/chat/completions",
            model=model,
            job_id="batch_1",
            at_seconds=1,
        )
        data = list(lines)
        assert sum(map(len, data)) == lines.size
        assert len(data) == lines.count
        names_here = [json.loads(line)["custom_id"] for line in data]
        order = [names.index(name) for name in names_here]
        assert len(order) < 2 or order != sorted(order)
        found += names_here
    assert sorted(found) == sorted(names)


@given(st.integers(0, 500))
def test_shuffled_is_a_permutation_that_never_rises(count: int) -> None:
    order = list(shuffled(count))
    assert sorted(order) == list(range(count))
    assert count < 2 or order != sorted(order)


def test_a_share_of_failures_means_at_least_one_but_not_all() -> None:
    assert [failed_of(run, 0.25) for run in range(6)] == [0, 1, 1, 1, 1, 2]
    assert list(NumberedIds(2)) == ["item-00000000", "item-00000001"]


# Validation of the input.


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", [("empty_file", None)]),
        (b"\n \n", [("empty_file", None)]),
        (b"not json\n", [("invalid_json_line", 1)]),
        (b"[" * 100_000, [("invalid_json_line", 1)]),
        (b"\xff\n", [("invalid_json_line", 1)]),
        (b"[]", [("invalid_json_line", 1)]),
        (jsonl(request_line("a"), request_line("b"), request_line("a")), [("duplicate_custom_id", 3)]),
        (jsonl(request_line("a"), request_line(7)), [("missing_required_parameter", 2)]),
        (jsonl(request_line("a"), {"custom_id": "b"}), [("missing_required_parameter", 2)]),
        (jsonl(request_line("a"), request_line("b", url="/v1/embeddings")), [("url_mismatch", 2)]),
        (jsonl(request_line("a"), request_line("b", model="other")), [("model_mismatch", 2)]),
        (jsonl(request_line("\ud800")), [("invalid_json_line", 1)]),
        (jsonl(*[{}] * 200), [("missing_required_parameter", line) for line in range(1, 51)]),
        (input_of(1) * 50_001, [("too_many_tasks", None)]),
    ],
)
def test_a_bad_input_fails_the_batch_itself_and_names_the_line(
    data: bytes, expected: list[tuple[str, int | None]]
) -> None:
    world = new_world()
    job_id = start_with(world, data)
    assert world.read(job_id, START)["status"] == "validating"
    body = world.read(job_id, END)
    assert body["status"] == "failed"
    errors: Any = body["errors"]
    assert errors["object"] == "list"
    assert [(error["code"], error["line"]) for error in errors["data"]] == expected
    assert all(set(error) == {"code", "message", "param", "line"} for error in errors["data"])
    assert body["failed_at"] is not None
    assert body["in_progress_at"] is None
    assert body["request_counts"] == {"total": 0, "completed": 0, "failed": 0}
    assert (body["output_file_id"], body["error_file_id"]) == (None, None)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"completion_window": "1h"}, "completion_window"),
        ({"completion_window": 24}, "completion_window"),
        ({"endpoint": "/v1/nothing"}, "endpoint"),
        ({"input_file_id": "file-unknown"}, "input_file_id"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata"),
        ({"metadata": {SCENARIO_KEY: "no-such"}}, f"metadata.{SCENARIO_KEY}"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after.seconds"),
        ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, "output_expires_after.anchor"),
        ({"idempotency_key": "x"}, "idempotency_key"),
    ],
)
def test_a_bad_create_body_makes_no_job_and_names_the_parameter(change: dict[str, Any], param: str) -> None:
    world = new_world()
    with pytest.raises(ApiError) as refused:
        start_job(world, **change)
    error = error_of(refused)
    assert refused.value.status == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert world.truth().jobs == ()


def test_only_a_batch_file_with_the_right_name_makes_a_batch() -> None:
    world = new_world()
    with pytest.raises(ApiError, match=r"Must be \.jsonl"):
        world.upload(b"{}", "batch", START, filename="input.txt")
    with pytest.raises(ApiError, match="is not one of"):
        world.upload(b"{}", "no purpose", START)
    file_id = world.upload(b"{}", "user_data", START)["id"]
    with pytest.raises(ApiError, match="not for 'batch'"):
        world.create({"input_file_id": file_id, "endpoint": "/v1/responses", "completion_window": "24h"}, START)


def test_what_is_not_there_is_404_in_the_recorded_shape() -> None:
    world = new_world()
    recorded = json.loads((FIXTURES / "http_404_batch.json").read_text())
    for call in (world.read, world.cancel):
        with pytest.raises(ApiError) as refused:
            call("batch_fxmissing", START)
        assert (refused.value.status, refused.value.body()) == (404, recorded["body"])
    for file_call in (world.file, world.content):
        with pytest.raises(ApiError) as refused:
            file_call("file-missing", START)
        assert (refused.value.status, error_of(refused)["param"]) == (404, "id")


def test_result_files_are_gone_when_their_time_is_over() -> None:
    world = new_world()
    job_id = start_job(world, output_expires_after={"anchor": "created_at", "seconds": 3600})
    file_id = str(world.read(job_id, END)["output_file_id"])
    assert world.file(file_id, END)["expires_at"] == END // 1000 + 3600
    assert lines_of(world, file_id, END + 3_599_999)
    with pytest.raises(ApiError, match="No such File object"):
        world.content(file_id, END + 3_600_000)


# Lists.


def test_list_pages_run_from_the_newest_to_the_oldest_without_a_gap() -> None:
    world = new_world()
    made = [world.seed_job(items=1, now_ms=START + n) for n in range(7)]
    after, found, pages = None, [], 0
    while True:
        page: Any = world.list_page(3, after, START + 10)
        found += [body["id"] for body in page["data"]]
        pages += 1
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
        if not page["has_more"]:
            break
        after = page["last_id"]
    assert found == made[::-1]
    assert pages == 3
    exact: Any = world.list_page(7, None, START + 10)
    assert (len(exact["data"]), exact["has_more"]) == (7, False)


def test_an_empty_list_has_no_ends() -> None:
    recorded = json.loads((FIXTURES / "batch_list_page2_empty.json").read_text())
    assert new_world().list_page(20, None, START) == recorded


@pytest.mark.parametrize("limit", [0, 101, -1])
def test_a_list_limit_out_of_range_is_refused(limit: int) -> None:
    with pytest.raises(ApiError, match="limit"):
        new_world().list_page(limit, None, START)


# Cancel.


def test_a_cancel_settles_later_and_leaves_what_was_done() -> None:
    world = new_world()
    job_id = start_job(world, 8)
    body = world.cancel(job_id, START + 2000)
    assert (body["status"], body["cancelling_at"]) == ("cancelling", (START + 2000) // 1000)
    again = world.cancel(job_id, START + 2500)
    assert again["cancelling_at"] == body["cancelling_at"], "a second cancel moves nothing"
    assert world.read(job_id, START + 2999)["status"] == "cancelling"
    body = world.read(job_id, START + 3000)
    assert (body["status"], body["cancelled_at"]) == ("cancelled", (START + 3000) // 1000)
    assert body["request_counts"] == {"total": 8, "completed": 4, "failed": 0}
    assert len(lines_of(world, body["output_file_id"], END)) == 4
    unrun = lines_of(world, body["error_file_id"], END)
    assert [line["error"]["code"] for line in unrun] == ["batch_cancelled"] * 4
    assert world.read(job_id, END + 60_000)["status"] == "cancelled", "the first plan's end is forgotten"
    assert len(world.events_due(END + 60_000)) == 1
    assert world.truth().jobs[0].states[-2:] == (("cancelling", START + 2000), ("cancelled", START + 3000))


def test_cancelled_before_validation_nothing_ran_and_nothing_changes_afterwards() -> None:
    world = new_world(replace(NORMAL, cancel_ms=100))
    job_id = start_job(world, 4)
    world.cancel(job_id, START + 10)
    body = world.read(job_id, START + 110)
    assert body["status"] == "cancelled"
    assert body["request_counts"] == {"total": 4, "completed": 0, "failed": 0}
    assert (body["output_file_id"], body["in_progress_at"]) == (None, None)
    assert world.read(job_id, END) == body


def test_a_cancel_can_come_too_late_to_matter() -> None:
    world = new_world(replace(NORMAL, cancel_ends="completed"))
    job_id = start_job(world, 8)
    assert world.cancel(job_id, START + 2000)["status"] == "cancelling"
    body = world.read(job_id, START + 3000)
    assert (body["status"], body["error_file_id"]) == ("completed", None)
    assert body["request_counts"] == {"total": 8, "completed": 8, "failed": 0}


def test_an_ended_job_is_not_cancelled() -> None:
    world = new_world()
    job_id = start_job(world)
    with pytest.raises(ApiError) as refused:
        world.cancel(job_id, END)
    recorded = json.loads((FIXTURES / "http_409_cancel_terminal.json").read_text())
    assert (refused.value.status, refused.value.body()) == (409, recorded["body"])


# Webhooks.


def test_one_terminal_event_in_the_recorded_shape_is_due_when_the_job_ends() -> None:
    world = new_world()
    job_id = start_job(world)
    assert world.next_event_at(START) == END
    assert world.events_due(END - 1) == []
    (delivery,) = world.events_due(END)
    assert (delivery.at_ms, delivery.job_id) == (END, job_id)
    event = json.loads(delivery.body)
    recorded = json.loads((FIXTURES / "webhook_batch_completed.json").read_text())
    assert list(event) == list(json.loads(recorded["body"]))
    assert event["id"].startswith("evt_")
    assert delivery.event_id.startswith("wh_")
    assert (event["type"], event["created_at"], event["data"]) == ("batch.completed", END // 1000, {"id": job_id})
    world.delivered(delivery.event_id, True, END)
    assert world.next_event_at(END + 10**9) is None


def test_a_refused_webhook_comes_again_with_the_same_id_and_growing_gaps() -> None:
    world = new_world()
    start_job(world)
    now_ms, gaps, ids = END, [], set()
    for _ in range(4):
        (delivery,) = world.events_due(now_ms)
        ids.add(delivery.event_id)
        assert world.events_due(now_ms) == [], "not handed out twice at once"
        world.delivered(delivery.event_id, False, now_ms)
        next_ms = world.next_event_at(now_ms)
        assert next_ms is not None
        gaps.append(next_ms - now_ms)
        now_ms = next_ms
    assert gaps == [FIRST_RETRY_MS, 2 * FIRST_RETRY_MS, 4 * FIRST_RETRY_MS, 8 * FIRST_RETRY_MS]
    assert len(ids) == 1


def test_a_webhook_that_is_refused_for_three_days_is_given_up() -> None:
    world = new_world()
    start_job(world)
    now_ms: int | None = END
    while now_ms is not None:
        for delivery in world.events_due(now_ms):
            world.delivered(delivery.event_id, False, now_ms)
        last_ms, now_ms = now_ms, world.next_event_at(now_ms)
    (event,) = world.truth().events
    assert event.given_up
    assert 72 * 3_600_000 <= last_ms - END < 74 * 3_600_000


def test_a_lost_webhook_is_never_due() -> None:
    world = new_world(SCENARIOS["lost-webhook"])
    job_id = start_job(world)
    assert world.next_event_at(START) is None
    assert world.events_due(END + 10**9) == []
    assert world.read(job_id, END)["status"] == "completed"


def test_a_duplicate_webhook_is_due_twice_under_one_id() -> None:
    world = new_world(SCENARIOS["duplicate-webhook"])
    start_job(world)
    (first,) = world.events_due(END)
    world.delivered(first.event_id, True, END)
    assert world.next_event_at(END) == END + REPEAT_MS
    (second,) = world.events_due(END + REPEAT_MS)
    assert (second.event_id, second.body) == (first.event_id, first.body)
    world.delivered(second.event_id, True, END + REPEAT_MS)
    assert world.next_event_at(END + 10**9) is None


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        (Scenario("a", "", ends="expired", run_share=0.5), "batch.expired"),
        (Scenario("b", "", ends="failed"), "batch.failed"),
    ],
)
def test_each_end_has_its_own_event(scenario: Scenario, kind: str) -> None:
    world = new_world(scenario)
    start_job(world)
    (delivery,) = world.events_due(END)
    assert json.loads(delivery.body)["type"] == kind


# Scenarios as data.


def test_the_scenarios_have_a_name_each_and_a_sentence() -> None:
    for name, scenario in SCENARIOS.items():
        assert scenario.name == name
        assert scenario.summary.endswith(".")
    with pytest.raises(RequestInvalid, match="lost-webhook"):
        find_scenario("no-such")


def test_a_jobs_own_metadata_picks_its_scenario() -> None:
    world = new_world(SCENARIOS["lost-webhook"])
    named = ["normal", "lost-webhook", "duplicate-webhook", "partial-failure"]
    for name in named:
        start_job(world, metadata={SCENARIO_KEY: name})
    start_job(world)
    world.list_page(5, None, END)
    truth = world.truth()
    assert [job.scenario for job in truth.jobs] == [*named, "lost-webhook"]
    assert [job.failed for job in truth.jobs] == [0, 0, 0, 2, 0]
    assert {event.job_id for event in truth.events} == {truth.jobs[n].id for n in (0, 2, 3)}


def test_a_job_without_an_end_stays_where_it_is() -> None:
    world = new_world(Scenario("stuck", "", ends=None, run_share=0.5))
    job_id = start_job(world, 4)
    body = world.read(job_id, START + 10**10)
    assert (body["status"], body["request_counts"]) == ("in_progress", {"total": 4, "completed": 2, "failed": 0})
    assert world.next_event_at(START + 10**10) is None
    assert world.cancel(job_id, START + 10**10)["status"] == "cancelling"


def test_a_late_failure_comes_out_of_the_middle_of_the_work() -> None:
    world = new_world(Scenario("late", "", ends="failed"))
    job_id = start_job(world, 4)
    assert world.read(job_id, END - 1)["status"] == "in_progress"
    body = world.read(job_id, END)
    assert body["status"] == "failed"
    assert body["finalizing_at"] is None
    errors: Any = body["errors"]
    assert [error["code"] for error in errors["data"]] == ["server_error"]


def test_a_new_status_word_stands_where_the_old_one_stood() -> None:
    world = new_world(replace(NORMAL, working_word="paused_by_policy"))
    job_id = start_job(world)
    assert world.read(job_id, START + 2000)["status"] == "paused_by_policy"
    assert world.read(job_id, END)["status"] == "completed"


def test_a_webhook_can_run_ahead_of_the_status() -> None:
    world = new_world(replace(NORMAL, webhook_after_ms=-1000))
    job_id = start_job(world)
    (delivery,) = world.events_due(END - 1000)
    assert json.loads(delivery.body)["type"] == "batch.completed"
    assert world.read(job_id, END - 1000)["status"] == "in_progress"
    assert world.events_due(END) == []


def test_the_first_reads_can_be_answered_with_trouble_in_turn() -> None:
    world = new_world(replace(NORMAL, read_faults=(500, 429)))
    job_id = start_job(world)
    answers = []
    for _ in range(4):
        try:
            answers.append(world.read(job_id, END)["status"])
        except ApiError as error:
            answers.append(error.status)
    assert answers == [500, 429, "completed", "completed"]


def test_a_create_that_met_trouble_is_told_from_those_of_other_jobs_by_its_content() -> None:
    world = new_world(replace(NORMAL, create_faults=(429,)))
    asked: tuple[dict[str, Any], ...] = ({}, {"metadata": {"job": "1"}}, {"metadata": {"job": "2"}}, {"count": 2})
    for more in asked:
        with pytest.raises(ApiError, match="Rate limit"):
            start_job(world, **more)
    assert world.truth().jobs == ()
    for more in asked:
        start_job(world, **more)
    with pytest.raises(ApiError, match="Rate limit"):
        start_job(world)
    assert len(world.truth().jobs) == 4, "once answered, the same content again is another job"


def test_a_job_can_be_missing_from_lists_for_a_while_and_forgotten_later() -> None:
    world = new_world(replace(NORMAL, listed_after_ms=1000, forgotten_after_ms=9000))
    job_id = start_job(world)
    assert world.list_page(20, None, START + 999)["data"] == []
    assert world.list_page(20, None, START + 1000)["first_id"] == job_id
    assert world.read(job_id, START + 8999)["status"] == "completed"
    with pytest.raises(ApiError, match="No batch found"):
        world.read(job_id, START + 9000)
    assert world.list_page(20, None, START + 9000)["data"] == []

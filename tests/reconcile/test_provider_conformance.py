"""Every registered provider is held to its contract and to each fixture of its kind, before it has its own tests."""

import ast
import contextlib
import dataclasses
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconcile.classify import classify
from reconcile.contract import Contract
from reconcile.errors import Unreadable
from reconcile.evidence import (
    Accepted,
    CancelAnswered,
    CollectFailed,
    CreateNotAccepted,
    CreateRejected,
    CreateUnknown,
    FinishedAtOnce,
    JobGone,
    JobRead,
    ReadFailed,
    ResultIsFailure,
    StepDone,
)
from reconcile.listing import can_list
from reconcile.model import Observation, Progress, ResultRef, VerdictKind
from reconcile.provider import (
    AsksByMarker,
    HttpRequest,
    HttpResponse,
    Item,
    JsonLines,
    Multipart,
    Page,
    Provider,
    Purpose,
    TakesInput,
)
from reconcile.read_json import read_id
from reconcile.registry import DECLARED, KINDS, provider_for
from reconcile.signatures import SCHEMES
from tests.reconcile.provider_cases import (
    EXPECT,
    FIXTURES,
    GENERIC,
    SAMPLES,
    answer,
    configured,
    create_step,
    create_word,
    expected,
    fixture_bytes,
    http_fixture,
    lines,
    operation,
    poll_word,
    provider_of,
    result_word,
)

PROVIDERS = [pytest.param(provider_of(kind), id=kind) for kind in KINDS]
every_provider = pytest.mark.parametrize("provider", PROVIDERS)

#: Roles that the tests below read, or that hold nothing for an adapter: `other`, and a file of no kind.
READ_ROLES = {"status", "create", "list", "http", "lines", "request", "other"}
#: Modules an adapter may import: values and text, nothing that reaches the world or the clock.
PURE = {
    "base64",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "contextlib",
    "hashlib",
    "itertools",
    "json",
    "jsonpath",
    "jsonpath.segments",
    "jsonpath.selectors",
    "math",
    "re",
    "typing",
    "urllib.parse",
}
HOSTILE_IDS = ["a/b", "../files/x", "x?y=1", "x#frag", "%2e%2e", "naïve ☕", "a b", "x;y", "http://elsewhere/x", "a\\b"]


def cases(section: str, *roles: str) -> list[Any]:
    """One parameter set for each entry of EXPECT.json whose kind is registered."""
    return [
        pytest.param(provider_of(kind), name, entry, id=f"{kind}-{name}")
        for kind in KINDS
        for name, entry in expected(section, kind, *roles)
    ]


# ---- the registry ----------------------------------------------------------------------------------------------


def test_each_kind_stands_once_in_the_registry() -> None:
    """A kind names one adapter, and the adapter's contract bears its name."""
    assert len(set(KINDS)) == len(KINDS)
    assert [provider_for(kind).contract.kind for kind in KINDS] == list(KINDS)
    with pytest.raises(KeyError):
        provider_for("no such kind")


@every_provider
def test_a_configured_contract_takes_the_place_of_the_own_one(provider: Provider) -> None:
    """An operator's poll numbers reach the adapter, nothing else changes."""
    contract = provider.contract.with_poll(base_ms=1_000)
    assert provider_for(contract.kind, contract).contract == contract


# ---- the contract ----------------------------------------------------------------------------------------------


def tuned_numbers(value: Any, path: str = "") -> Iterator[str]:
    for item in dataclasses.fields(value):
        here, held = f"{path}{item.name}", getattr(value, item.name)
        if dataclasses.is_dataclass(held):
            yield from tuned_numbers(held, f"{here}.")
        elif isinstance(held, int | float) and not isinstance(held, bool) and here != "version":
            yield here


@every_provider
def test_every_tuned_number_names_its_source(provider: Provider) -> None:
    """A number without a page behind it is called arbitrary, and no source speaks of a number that is not there."""
    contract = provider.contract
    assert set(contract.sources) == set(tuned_numbers(contract))
    assert all(source.strip() for source in contract.sources.values())


@every_provider
def test_every_documented_word_has_one_meaning_and_no_other_word_has_any(provider: Provider) -> None:
    """Known words give their verdict; strangers, near misses and no word at all are pending and not known."""
    contract = provider.contract
    for word, meaning in contract.words.items():
        verdict = classify(contract, word)
        assert (verdict.kind, verdict.known, verdict.may_hold_results) == (meaning.kind, True, meaning.may_hold_results)
        assert verdict.kind is not VerdictKind.GONE, "gone is judged from a run of reads, never a word"
        for near in (word.upper() + " ", f" {word}", f"{word}\n", ""):
            assert not classify(contract, near).known
    assert (classify(contract, None).kind, classify(contract, None).known) == (VerdictKind.PENDING, False)
    assert {verdict_of(contract, word) for word in contract.words} & {
        VerdictKind.DONE,
        VerdictKind.DONE_UNKNOWN_OUTCOME,
    }
    assert VerdictKind.PENDING in {verdict_of(contract, word) for word in contract.words}


def verdict_of(contract: Contract, word: str) -> VerdictKind:
    return classify(contract, word).kind


@every_provider
def test_the_numbers_of_a_contract_fit_together(provider: Provider) -> None:
    """Waits are ordered, the result is fetched before it is dropped, and what is promised has its terms."""
    contract = provider.contract
    assert 0 < contract.poll.base_ms <= contract.poll.cap_ms
    assert contract.poll.base_ms <= contract.poll.sweep_ms
    assert contract.results_kept_ms is None or contract.poll.sweep_ms < contract.results_kept_ms
    assert contract.limits.requests_per_second > 0
    assert contract.limits.concurrency > 0
    assert contract.status_page.startswith("https://") or contract.kind == DECLARED  # an operator may know of none
    assert contract.cancel is None or contract.cancel.may_remain
    assert contract.webhook is None or contract.webhook.scheme in SCHEMES
    assert isinstance(provider, TakesInput) == contract.takes_input


# ---- fixtures --------------------------------------------------------------------------------------------------


@every_provider
def test_every_fixture_of_the_kind_is_read_by_a_test_here(provider: Provider) -> None:
    """Nothing that EXPECT.json states of a kind is left out, and each file that it names is there."""
    files = expected("files", provider.contract.kind)
    assert files
    assert {entry["role"] for _, entry in files} <= READ_ROLES
    assert all((FIXTURES / name).is_file() for name, _ in files)


#: Not a provider's: what earlier releases of ours wrote, read by tests/upgrade.
OUR_OWN = ("schemas", "histories")


def test_every_fixture_file_is_named_in_the_expectations() -> None:
    """A file that no expectation names would be read by nobody."""
    on_disk = {str(path.relative_to(FIXTURES)) for path in FIXTURES.glob("*/*") if path.parent.name not in OUR_OWN}
    assert on_disk == {name for name in EXPECT["files"] | EXPECT["deliveries"] if (FIXTURES / name).exists()}


def assert_observed(provider: Provider, observation: Observation, entry: Any) -> None:
    """What was read is what EXPECT.json says of it."""
    verdict = classify(provider.contract, observation.word)
    assert observation.word == entry["word"]
    assert observation.remote_status == entry.get("remote_status", entry["word"])
    assert observation.remote_job_id == entry["remote_job_id"]
    assert (verdict.kind.value, verdict.known) == (entry["verdict"], entry["known"])
    if "partial_results" in entry:
        assert verdict.may_hold_results == entry["partial_results"]
    if "progress" in entry:
        assert shown(observation.progress) == entry["progress"]
    else:
        assert not verdict.is_end or observation.progress is None
    if "results" in entry:
        assert [ref.name for ref in observation.results] == entry["results"]
    if "error" in entry:
        assert observation.error is not None
        assert observation.error.code == entry["error"]


def shown(progress: Progress | None) -> dict[str, Any] | None:
    if progress is None:
        return None
    return {key: value for key, value in dataclasses.asdict(progress).items() if value is not None}


@pytest.mark.parametrize(("provider", "name", "entry"), cases("files", "status"))
def test_a_read_says_what_the_expectations_state(provider: Provider, name: str, entry: Any) -> None:
    """Word, verdict, job, progress, results and error of each status body."""
    read = provider.read_status(answer(fixture_bytes(name)))
    assert isinstance(read, JobRead)
    assert_observed(provider, read.observation, entry)


@pytest.mark.parametrize(("provider", "name", "entry"), cases("files", "status"))
def test_a_webhook_or_page_with_the_same_status_means_the_same(provider: Provider, name: str, entry: Any) -> None:
    """Whatever road brings a status, one meaning (C2): here as a list page and as the answer to a cancel."""
    body = json.loads(fixture_bytes(name))
    page = provider.read_list(answer({"object": "list", "data": [body], "has_more": False}))
    assert isinstance(page, Page)
    assert_observed(provider, page.jobs[0], entry)
    cancelled = provider.read_cancel(answer(body)).observation
    assert cancelled is not None
    assert_observed(provider, cancelled, entry)


@pytest.mark.parametrize(("provider", "name", "entry"), cases("files", "create"))
def test_a_create_answer_names_the_job(provider: Provider, name: str, entry: Any) -> None:
    """The create answer is an observation like any other, and it carries the marker that a look-up would match."""
    step = create_step(provider)
    evidence = provider.read_submit(operation(provider.contract.kind), step, answer(fixture_bytes(name)))
    assert create_word(evidence) == entry["create"]
    assert isinstance(evidence, Accepted | FinishedAtOnce)
    assert_observed(provider, evidence.observation, entry)
    if "marker" in entry:
        assert evidence.observation.marker in entry["marker"].values()
    else:
        assert evidence.observation.marker is None


@pytest.mark.parametrize(("provider", "name", "entry"), cases("files", "list"))
def test_a_page_shows_its_jobs_and_the_look_up_finds_ours(provider: Provider, name: str, entry: Any) -> None:
    """Each job on the page is read, the cursor is given on, and the operation's look-up picks its own jobs alone."""
    page = provider.read_list(answer(fixture_bytes(name)))
    assert isinstance(page, Page)
    assert page.next == entry["next"]
    assert len(page.jobs) == len(entry["jobs"])
    for observation, stated in zip(page.jobs, entry["jobs"], strict=True):
        assert_observed(provider, observation, stated)
    kind = provider.contract.kind
    op = operation(kind, steps=SAMPLES[kind].steps)
    lookup = provider.contract.lookup
    assert lookup is not None
    assert provider.marker(op) in (entry["lookup"]["by"].values() if lookup.is_sure else [None])
    assert [job.remote_job_id for job in page.jobs if provider.is_candidate(op, job)] == entry["lookup"]["finds"]


@pytest.mark.parametrize(("provider", "name", "entry"), cases("files", "http"))
def test_an_http_answer_means_what_the_expectations_state_on_each_road(
    provider: Provider, name: str, entry: Any
) -> None:
    """One answer to a create, a poll, a cancel and a fetch: four meanings, and the wait it asks for on each."""
    response = http_fixture(name, now_ms=entry.get("clock", 0) * 1000)
    meant: dict[str, Any] = {
        "create": provider.read_submit(operation(provider.contract.kind), create_step(provider), response),
        "poll": provider.read_status(response),
        "cancel": provider.read_cancel(response),
        "result": provider.read_result_error(response),
    }
    if isinstance(provider, TakesInput):
        meant["input"] = provider.read_input(response)
    told: dict[str, Callable[[Any], str]] = {
        "create": create_word,
        "poll": poll_word,
        "cancel": lambda answered: answered.answer.value,
        "input": lambda answered: answered.answer.value,
        "result": result_word,
    }
    for road, word in told.items():
        if road in entry and road in meant:
            assert word(meant[road]) == entry[road], road
        waits_by_itself = not isinstance(meant.get(road), CreateUnknown)  # else its provider's pause keeps the wait
        if road in entry and road in meant and "retry_after" in entry and waits_by_itself:
            assert meant[road].retry_after_ms == entry["retry_after"] * 1000, road


@pytest.mark.parametrize(("provider", "name", "entry"), cases("files", "lines"))
def test_each_line_of_a_file_is_read_for_itself(provider: Provider, name: str, entry: Any) -> None:
    """Outcome and reason of each item, in whatever order and file; a cut line is unreadable and harms no other."""
    if set(entry["items"].values()) == {"submitted"}:
        submitted = [json.loads(line) for line in lines(name)]
        written = [provider.item_line(item, index) for index, item in enumerate(submitted)]
        assert [item_id for item_id, _ in written] == list(entry["items"])
        assert [json.loads(line) for _, line in written] == submitted
        return
    found: dict[str, str] = {}
    doubled, unreadable = [], []
    for number, line in enumerate(lines(name), start=1):
        try:
            item = provider.read_item(line, ResultRef("any"))
        except Unreadable:
            unreadable.append(number)
            continue
        assert_item(item)
        doubled += [item.item_id] * (item.item_id in found)
        found.setdefault(item.item_id, f"{item.outcome}: {item.reason}" if item.reason else item.outcome)
    assert found == entry["items"]
    assert doubled == entry.get("duplicate", [])
    assert unreadable == entry.get("unreadable_lines", [])


@pytest.mark.parametrize(("provider", "name", "entry"), cases("deliveries"))
def test_a_delivery_says_which_job_and_what_of_it(provider: Provider, name: str, entry: Any) -> None:
    """The word of an event passes the same classify as any other; its job id is the one the file names."""
    delivery = json.loads(fixture_bytes(name))
    observation = provider.read_webhook(delivery["body"].encode())
    assert observation.remote_job_id == delivery["job_id"]
    if "word" in entry:
        verdict = classify(provider.contract, observation.word)
        assert observation.word == entry["word"]
        assert (verdict.kind.value, verdict.known) == (entry["verdict"], entry["known"])


# ---- requests --------------------------------------------------------------------------------------------------


@every_provider
def test_the_sample_start_is_taken_and_sent_in_steps_the_create_last(provider: Provider) -> None:
    """Only the create may make a job; each step before it names what is written into the row."""
    kind = provider.contract.kind
    sample = SAMPLES[kind]
    request = provider.check_start(sample.request, sample.items)
    steps: dict[str, str] = {}
    while not (step := provider.submit(operation(kind, request=request, steps=dict(steps)))).has_effect:
        assert step.name not in steps
        done = provider.read_submit(operation(kind), step, answer({"id": f"value-{step.name}"}))
        assert done == StepDone(step.name, f"value-{step.name}")
        steps[step.name] = done.value
    assert set(steps) == set(sample.steps)


@every_provider
def test_a_create_is_the_same_bytes_each_time(provider: Provider) -> None:
    """A create that is sent again is the first one, byte by byte; so is an upload, but for the file it streams."""
    kind = provider.contract.kind
    request = provider.check_start(SAMPLES[kind].request, SAMPLES[kind].items)
    reordered = dict(reversed(request.items()))
    for steps in ({}, SAMPLES[kind].steps):
        first = provider.submit(operation(kind, request=request, steps=steps))
        assert provider.submit(operation(kind, request=reordered, steps=steps)) == first
        assert isinstance(first.request.body, bytes | Multipart | JsonLines)


@every_provider
@pytest.mark.parametrize("hostile", HOSTILE_IDS)
def test_an_id_cannot_lead_a_request_elsewhere(provider: Provider, hostile: str) -> None:
    """Ids stand in paths percent-encoded, each within one segment; nothing else of a request moves with them."""
    kind = provider.contract.kind
    strange = operation(kind, remote_job_id=hostile, steps=SAMPLES[kind].steps)
    tame = operation(kind, remote_job_id="tame", steps=SAMPLES[kind].steps)
    for strange_request, tame_request in (
        (provider.status(strange), provider.status(tame)),
        (provider.cancel(strange), provider.cancel(tame)),
        (provider.result(strange, ResultRef(hostile)), provider.result(tame, ResultRef("tame"))),
    ):
        assert strange_request.path.count("/") == tame_request.path.count("/")
        assert set(strange_request.path) <= set(
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%/:@!$&'()*+,="
        )
        assert strange_request.method == tame_request.method
        assert hostile not in strange_request.path.split("/")


@every_provider
def test_requests_stay_below_the_base_url_and_carry_no_credential(provider: Provider) -> None:
    """The client adds the key, and only towards the provider's own origin; an adapter never holds one."""
    for request in requests_of(provider):
        assert not request.path.startswith("/")
        assert "://" not in request.path
        assert ".." not in request.path.split("/")
        assert not {name.lower() for name in request.headers} & {"authorization", "x-api-key", "cookie", "host"}
        assert all(name == name.lower() for name in request.headers)
        assert request.url is None or request.purpose is Purpose.RESULT, "only a result may lie elsewhere"


@every_provider
def test_the_configured_key_stands_in_the_header_that_the_contract_names(provider: Provider) -> None:
    """There and nowhere else, behind the word that the provider wants before it."""
    kind, contract = provider.contract.kind, provider.contract
    more = GENERIC if kind == DECLARED else {"kind": kind}
    table = {**more, "base_url": "https://x.invalid/v1", "api_key": {"env": "KEY"}}
    assert configured(table, KEY="sk-1").credentials == {contract.api_key_header: f"{contract.api_key_prefix}sk-1"}


@every_provider
def test_our_token_leaves_only_where_the_provider_honours_it(provider: Provider) -> None:
    """A token that nobody honours would only be shown around."""
    if provider.contract.replays:
        return
    assert all("token-of-the-sample" not in repr(request) for request in requests_of(provider))


def requests_of(provider: Provider) -> list[HttpRequest]:
    kind = provider.contract.kind
    op = operation(kind, remote_job_id="job-1", steps=SAMPLES[kind].steps)
    return [
        provider.submit(operation(kind)).request,
        provider.submit(op).request,
        provider.status(op),
        *([provider.look_up(op)] if isinstance(provider, AsksByMarker) else map(provider.list_page, (None, "cursor"))),
        provider.cancel(op),
        provider.result(op, ResultRef("file-1")),
    ]


@every_provider
def test_an_adapter_imports_nothing_that_reaches_the_world(provider: Provider) -> None:
    """Neither sockets nor clocks nor dice, nor another adapter: only values and text."""
    own = type(provider).__module__.rpartition(".")[0]
    folder = Path(str(importlib.import_module(type(provider).__module__).__file__)).parent
    imported = {
        name
        for source in folder.glob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    others = {name for name in imported if not name.startswith(own)}
    assert not {name for name in others if name.startswith(("reconcile.providers", "handlers", "daemon"))}
    assert {
        name for name in imported if not name.startswith("reconcile") and name not in PURE and name != "collections.abc"
    } == set()


@every_provider
def test_a_page_of_more_than_ten_pages_is_not_read(provider: Provider) -> None:
    """What a provider shows that heeds no size would hold the event loop for seconds."""
    size = {"openai_batch": 100, "anthropic_batches": 1_000}.get(provider.contract.kind)
    if size is None:  # no list is read: its look-up names jobs by their ids alone
        assert not can_list(provider.contract)
        return
    most = provider.read_list(answer({"data": [{}] * (10 * size), "has_more": False}))
    assert most == Page((), None)
    assert provider.read_list(answer({"data": [{}] * (10 * size + 1)})) == ReadFailed("page_too_large")


# ---- whatever a stranger sends ---------------------------------------------------------------------------------

#: Keys that real bodies have, so that garbage reaches the inner reads.
KEYS = sorted(
    {
        key
        for path in FIXTURES.glob("*/*.json*")
        for line in path.read_text().splitlines()
        for key in line.split('"')[1::2]
        if 0 < len(key) < 24 and key.replace("_", "").isalpha()
    }
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**64), 2**64),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["completed", "failed", "batch.completed", "..", "\x00", "a/b", ""]),
)
garbage = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), inner, max_size=6)
    ),
    max_leaves=24,
)
bodies = st.one_of(st.binary(max_size=40), garbage.map(lambda value: json.dumps(value).encode()))
responses = st.builds(
    answer, bodies, st.sampled_from([200, 201, 204, 302, 400, 401, 403, 404, 409, 410, 422, 429, 500])
)


@every_provider
@given(response=responses)
def test_no_answer_raises_whatever_it_holds(provider: Provider, response: HttpResponse) -> None:
    """Each read gives one of its outcomes, and every id in it is safe in a set, a path, a log and the store."""
    kind = provider.contract.kind
    submitted = provider.read_submit(operation(kind), create_step(provider), response)
    assert isinstance(submitted, Accepted | FinishedAtOnce | CreateRejected | CreateNotAccepted | CreateUnknown)
    first = provider.submit(operation(kind))
    earlier = provider.read_submit(operation(kind), first, response)
    assert first.has_effect or isinstance(earlier, StepDone | CreateRejected | CreateNotAccepted)
    read = provider.read_status(response)
    assert isinstance(read, JobRead | JobGone | ReadFailed)
    page = provider.read_list(response)
    assert isinstance(page, Page | ReadFailed)
    cancelled = provider.read_cancel(response)
    assert isinstance(cancelled, CancelAnswered)
    assert isinstance(provider.read_result_error(response), CollectFailed | ResultIsFailure)
    if isinstance(submitted, Accepted):
        assert_safe(submitted.observation)
        assert submitted.observation.remote_job_id is not None
    if isinstance(read, JobRead):
        assert_safe(read.observation)
    for observation in page.jobs if isinstance(page, Page) else ():
        assert_safe(observation)
        assert observation.remote_job_id is not None


@every_provider
@given(body=bodies)
def test_no_line_and_no_event_raises_but_unreadable(provider: Provider, body: bytes) -> None:
    """A line or an event that cannot be read is that, and nothing else."""
    try:
        item = provider.read_item(body, ResultRef("any"))
    except Unreadable:
        pass
    else:
        assert_item(item)
    with contextlib.suppress(Unreadable):
        assert_safe(provider.read_webhook(body))


def assert_item(item: Item) -> None:
    assert item.item_id
    assert item.outcome in {"succeeded", "failed", "cancelled", "expired"}
    assert bool(item.reason) == (item.outcome != "succeeded")
    assert (item.body is not None) == (item.outcome == "succeeded"), "a promised schema would have nothing to hold"


def assert_safe(observation: Observation) -> None:
    refs = [ref.name for ref in observation.results]
    for name in (observation.word, observation.remote_job_id, observation.marker, *refs):
        assert name is None or read_id(name, what="id") == name
    assert not {observation.remote_job_id, *refs} & {".", ".."}
    for number in (observation.finished_items, observation.total_items, observation.provider_at):
        assert number is None or 0 <= number < 2**63
    if observation.progress is not None:
        assert observation.progress.percent is None or 0 <= observation.progress.percent <= 100
